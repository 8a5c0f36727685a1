"""Higher-order operators: branches and loops become regions, wrappers are walked in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unigraph.dtypes import bool_
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import cast, reshape

from .rowbook import rows

hop = torch.ops.higher_order

# The truth value that Python asked for at a branch: that of question number so and so over tensors read.
_library = torch.library.Library("unigraph", "FRAGMENT")
_library.define("decide(Tensor[] read, int question) -> Tensor")
_library.impl("decide", lambda read, question: read[0].new_empty((), dtype=torch.bool), "CompositeExplicitAutograd")
torch.library.register_fake(
    "unigraph::decide", lambda read, question: read[0].new_empty((), dtype=torch.bool), lib=_library
)
DECIDE = torch.ops.unigraph.decide.default


@dataclass(frozen=True)
class Question:
    """A condition over numbers read from tensors: ``condition`` holds a symbol of ``symbols`` for each of them."""

    condition: Any
    symbols: tuple[Any, ...]


def _decide(b: Any, read: Sequence[Value], question: int) -> Value:
    asked = b.sizes.questions[question]
    with b.sizes.known({s.name: reshape(b, x, ()) for s, x in zip(asked.symbols, read, strict=True)}):
        return b.sizes.truth(b, asked.condition)


def walking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a row that takes the walker instead of the builder."""
    function.walks = True  # type: ignore[attr-defined]
    return function


def tensors(operands: Sequence[Any], what: str) -> list[Value]:
    for o in operands:
        if not isinstance(o, Value):
            raise Unsupported(f"{what} over {type(o).__name__} operands", "pass tensors into it")
    return list(operands)


@walking
def _cond(walker: Any, predicate: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    b = walker.b
    if isinstance(predicate, bool):
        return walker.inline(yes if predicate else no, list(operands))
    if not isinstance(predicate, Value):
        raise Unsupported("torch.cond on a size", "compare it before and pass a tensor")
    values, branches = walker.keyed_regions((no, yes), tensors(operands, "torch.cond"))
    which = reshape(b, cast(b, predicate, bool_), ())
    return b.cond(which, *values, branches=branches)


@walking
def _while(
    walker: Any, condition: Any, body: Any, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Value, ...]:
    b = walker.b
    carry, constants = tensors(carried, "torch.while_loop"), tensors(extra, "torch.while_loop")
    # torch passes (carry, constants), the graph's loop takes the constants first.
    types = [v.type for v in (*carry, *constants)]
    turn = _constants_first(len(carry), len(constants))
    cond_region = turn(walker, walker.region(condition, types))
    body_region = turn(walker, walker.region(body, types))
    n = len(constants)
    return b.while_(*constants, *constants, *carry, cond_consts=n, body_consts=n, cond=cond_region, body=body_region)


def _constants_first(carried: int, constants: int) -> Callable[[Any, Any], Any]:
    """Reorder a region's inputs from (carry, constants) to (constants, carry)."""

    def turn(walker: Any, region: Any) -> Any:
        order = (*range(carried, carried + constants), *range(carried))
        return region.replace(inputs=tuple(region.inputs[i] for i in order))

    return turn


@walking
def _scan(
    walker: Any, body: Any, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Value, ...]:
    b = walker.b
    carry, rows_, constants = (tensors(o, "scan") for o in (init, xs, extra))
    if not rows_:
        raise Unsupported("a scan over nothing")
    slices = [v.type.with_(shape=v.type.shape[1:]) for v in rows_]
    region = walker.region(body, [*(v.type for v in carry), *slices, *(v.type for v in constants)])
    order = (*range(len(carry) + len(rows_), len(region.inputs)), *range(len(carry) + len(rows_)))
    region = region.replace(inputs=tuple(region.inputs[i] for i in order))
    return b.scan(
        *constants,
        *carry,
        *rows_,
        length=rows_[0].type.shape[0],
        num_consts=len(constants),
        num_carry=len(carry),
        body=region,
    )


@walking
def _map(walker: Any, body: Any, xs: Sequence[Any], extra: Sequence[Any] = ()) -> tuple[Value, ...]:
    return _scan(walker, body, (), xs, extra)


@walking
def _grad_mode(walker: Any, enabled: bool, module: Any, *operands: Any) -> Any:
    return walker.inline(module, operands)


@walking
def _checkpoint(walker: Any, module: Any, *operands: Any, **options: Any) -> Any:
    """What a gradient computes again instead of keeping it."""
    if not all(isinstance(o, Value) for o in operands):
        return walker.inline(module, operands)
    values, (body,) = walker.keyed_regions((module,), operands)
    results = walker.b.remat(*values, body=body)
    return results if returns_several(module) else results[0]


def returns_several(module: Any) -> bool:
    """True when a sub-module gives a tuple or list."""
    return isinstance(next(iter(module.graph.find_nodes(op="output"))).args[0], (tuple, list))


rows(
    {
        DECIDE: _decide,
        hop.cond: _cond,
        hop.while_loop: _while,
        hop.scan: _scan,
        hop.map_impl: _map,
        hop.wrap_with_set_grad_enabled: _grad_mode,
        hop.wrap_activation_checkpoint: _checkpoint,
        hop.tag_activation_checkpoint: _checkpoint,
    }
)
