"""Control flow in the ONNX export: If and Loop; calls are written out in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unigraph.dtypes import bool_
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import control as c

from .emitter import Emitter
from .handles import Array

Body = Callable[..., tuple[Array, ...]]


def _cond(o: Emitter, which: Array, *operands: Array, branches: Sequence[Body]) -> tuple[Array, ...]:
    """Two branches are an If; more are a chain of Ifs, which clamps an index out of range."""
    if len(branches) == 1:
        return tuple(branches[0](*operands))
    if which.dtype is bool_:
        return _if(o, which, lambda: branches[1](*operands), lambda: branches[0](*operands))

    def chain(first: int) -> Sequence[Array]:
        if first == len(branches) - 1:
            return branches[first](*operands)
        return _if(o, o.LessOrEqual(which, first), lambda: branches[first](*operands), lambda: chain(first + 1))

    return tuple(chain(0))


def _if(
    o: Emitter, test: Array, yes: Callable[[], Sequence[Array]], no: Callable[[], Sequence[Array]]
) -> tuple[Array, ...]:
    kept: list[Sequence[Array]] = []

    def record(branch: Callable[[], Sequence[Array]]) -> Callable[[], Sequence[Array]]:
        def run() -> Sequence[Array]:
            results = branch()
            kept.append(results)
            return results

        return run

    then_branch = o.subgraph("then", [], record(yes))
    else_branch = o.subgraph("else", [], record(no))
    kinds = [r.dtype for r in kept[-1]]
    if not kinds:
        return ()
    shapes = [_agreed(a, b) for a, b in zip(kept[0], kept[-1], strict=True)]
    result = o.emit(
        "If", (test,), outputs=len(kinds), dtype=kinds, shapes=shapes, then_branch=then_branch, else_branch=else_branch
    )
    return result if isinstance(result, tuple) else (result,)


def _agreed(a: Array, b: Array) -> tuple[Any, ...] | None:
    """The shape that both branches have; None where only the run tells."""
    shape = tuple(m if type(m) is int else n for m, n in zip(a.shape, b.shape, strict=True))
    return shape if all(type(n) is int for n in shape) else None


def _while(
    o: Emitter, *operands: Array, cond: Body, body: Body, cond_consts: int, body_consts: int
) -> tuple[Array, ...]:
    tests = operands[:cond_consts]
    constants = operands[cond_consts : cond_consts + body_consts]
    carry = operands[cond_consts + body_consts :]
    return o.loop(
        None, carry, lambda i, *state: body(*constants, *state), condition=lambda *state: cond(*tests, *state)[0]
    )


def _scan(
    o: Emitter, *operands: Array, length: Any, num_consts: int, num_carry: int, reverse: bool, body: Body
) -> tuple[Array, ...]:
    constants, carry = operands[:num_consts], operands[num_consts : num_consts + num_carry]
    xs = operands[num_consts + num_carry :]
    stacked = len(o.operation.outputs) - num_carry
    count = o.scalar(length)

    def step(i: Array, *state: Array) -> Sequence[Array]:
        at = o.Sub(o.Sub(count, 1), i) if reverse else i
        return body(*constants, *state, *(o.Gather(x, at, axis=0, shape=x.shape[1:]) for x in xs))

    results = o.loop(count, carry, step, stacked=stacked)
    if not reverse:
        return results
    return (*results[:num_carry], *(o.flip(r, [0]) for r in _shaped(o, results, num_carry)))


def _shaped(o: Emitter, results: Sequence[Array], first: int) -> list[Array]:
    """Stacked results with their shapes; a key has its words as one more axis."""
    shaped = []
    for r, v in zip(results[first:], o.operation.outputs[first:], strict=True):
        shape = (*v.type.shape, v.type.dtype.key_words) if v.type.dtype.is_key else v.type.shape
        shaped.append(o.typed(r, shape))
    return shaped


def inlined(o: Emitter, *operands: Array, body: Body, **attrs: Any) -> tuple[Array, ...]:
    return tuple(body(*operands))


ROWS: dict[OpDef, Row] = {
    c.cond: _cond,
    c.while_: _while,
    c.scan: _scan,
    c.call: inlined,
    c.remat: inlined,
    c.custom_jvp: inlined,
    c.custom_vjp: inlined,
}
