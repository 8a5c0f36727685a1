"""ONNX control flow: If becomes ``cond``; Loop and Scan become ``scan`` or ``while``, or are unrolled.

What a subgraph captures is passed into its region as operands. Sequences and values that change
their type from step to step have no place in a region: a loop over them is unrolled when its trip
count is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.dims import Dim
from unigraph.errors import FormatError, Gaps, TypeCheckError, Unsupported, UnsupportedError
from unigraph.graph import Graph, Value
from unigraph.ops.idioms import reshape
from unigraph.tree import Tree, flatten, unflatten
from unigraph.types import TensorType

from .node import Node, Operand, RowBook, Sizes, axis_of
from .reader import array

rows = RowBook()

MAX_UNROLLED = 1024  # steps of a loop that is written out


# -- subgraphs -------------------------------------------------------------------------------------


def captures(graph: onnx.GraphProto) -> set[str]:
    """Names that a subgraph reads from outside, nested subgraphs included."""
    inside = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    found: set[str] = set()
    for node in graph.node:
        found |= {i for i in node.input if i and i not in inside}
        for a in node.attribute:
            for g in [a.g] if a.type == onnx.AttributeProto.GRAPH else list(a.graphs):
                found |= captures(g) - inside
        inside |= set(node.output)
    return found | {o.name for o in graph.output if o.name not in inside}


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))


@dataclass
class Captured:
    """What subgraphs read from outside: tensors travel as operands, the rest is known inside."""

    tensors: list[Value]
    known: dict[str, Operand]

    @classmethod
    def by(cls, n: Node, *graphs: onnx.GraphProto) -> Captured:
        names = sorted({name for g in graphs for name in captures(g)})
        absent = [name for name in names if name not in n.env]
        if absent:
            raise FormatError(f"a subgraph reads {absent[0]!r}, which nothing before it gives", f"node {n.op_type!r}")
        found = {name: n.env[name] for name in names}
        lists = [x for x in found.values() if isinstance(x, list)]
        return cls(
            _distinct(x for x in [*found.values(), *(y for x in lists for y in x)] if isinstance(x, Value)), found
        )

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(self.tensors)

    def inside(self, inner: GraphBuilder) -> dict[str, Operand]:
        """The environment of a region: its first inputs stand for the captured tensors."""
        made: dict[Any, Operand] = {
            v: inner.input(f"c{i}", v.type.dtype, v.type.shape) for i, v in enumerate(self.tensors)
        }
        known = {k: [made[y] for y in x] if isinstance(x, list) else x for k, x in self.known.items()}
        return {"": None, **{k: made[x] if isinstance(x, Value) else x for k, x in known.items()}}  # type: ignore[dict-item]


def walk_in_place(n: Node, graph: onnx.GraphProto, given: Sequence[Operand] = ()) -> list[Operand]:
    """Lower a subgraph's nodes here and now; its outputs."""
    inner = {name for node in graph.node for name in node.output} | {i.name for i in graph.input}
    env = {k: v for k, v in n.env.items() if k not in inner or not k}
    env.update(zip((i.name for i in graph.input), given, strict=True))
    return _lowered(n, graph, env)


def _lowered(n: Node, graph: onnx.GraphProto, env: dict[str, Operand]) -> list[Operand]:
    importer = n.importer
    for tensor in graph.initializer:
        env[tensor.name] = importer.held_constant(array(tensor, importer.folder))
    importer.walk(graph.node, env)
    return [importer.output(o.name, env) for o in graph.output]


class Inside:
    """Lowering into a region: the importer's builder is another one in the meantime.

    Gaps found inside are kept apart, so that an attempt may fail and another follow.
    """

    def __init__(self, n: Node, name: str):
        self.importer = n.importer
        self.b = GraphBuilder(name)
        self.b.scope, self.b.source = n.b.scope, n.b.source

    def __enter__(self) -> GraphBuilder:
        self.before = self.importer.b, self.importer.gaps
        self.importer.b, self.importer.gaps = self.b, Gaps(self.before[1].task)
        return self.b

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        gaps = self.importer.gaps
        self.importer.b, self.importer.gaps = self.before
        if isinstance(error, UnsupportedError):
            raise _nested(error.gaps) from None
        if error is None and gaps.found:
            raise _nested(list(gaps.found.values()))


def _nested(gaps: Sequence[Any]) -> Unsupported:
    reasons = "; ".join(f"{g.op}: {g.reason}" if not g.reason.startswith(g.op) else g.reason for g in gaps)
    return Unsupported(f"in its body: {reasons}", next((g.hint for g in gaps if g.hint), ""))


# -- If ----------------------------------------------------------------------------------------------


@rows("If")
def if_(n: Node) -> Any:
    """A branch known at import is walked in place; otherwise both become regions of ``cond``."""
    branches = [n.attrs["else_branch"], n.attrs["then_branch"]]
    if n.is_known(0):
        return tuple(walk_in_place(n, branches[bool(n.scalar(0))]))
    captured = Captured.by(n, *branches)
    try:
        regions, trees = zip(*(_branch(n, g, captured) for g in branches))
    except Unsupported as gap:
        advice = f"or, where only one branch is wanted, {n.depends(0).hint}"
        raise Unsupported(gap.reason, f"{gap.hint}; {advice}" if gap.hint else advice) from None
    if trees[0] != trees[1] or regions[0].out_types != regions[1].out_types:
        raise n.depends(0, "chooses between results of different types")
    which = reshape(n.b, n.value(0), ())
    leaves = n.b.cond(which, *captured.operands, branches=regions)
    return tuple(unflatten(trees[0], leaves))


def _branch(n: Node, graph: onnx.GraphProto, captured: Captured) -> tuple[Graph, Tree]:
    with Inside(n, "branch") as inner:
        outputs = _lowered(n, graph, captured.inside(inner))
    leaves, tree = flatten(tuple(outputs), lambda x: isinstance(x, Value))
    return inner.build(tuple(leaves)), tree


# -- Loop --------------------------------------------------------------------------------------------


@rows("Loop")
def loop(n: Node) -> Any:
    """A trip count and no condition is ``scan``; a condition is ``while``, its stacked results buffers."""
    body = n.attrs["body"]
    carried = n.inputs[2:]
    limit = _trip_limit(n)
    always = not n.has(1) or (n.is_known(1) and bool(n.scalar(1)))
    if n.has(1) and n.is_known(1) and not n.scalar(1):
        limit = 0
    try:
        if any(isinstance(x, list) or x is None for x in carried):
            raise Unsupported("Loop that carries a sequence")
        made = _as_scan(n, body, limit) if always and limit is not None else None
        return made if made is not None else _as_while(n, body, limit)
    except (Unsupported, TypeCheckError) as error:
        if not isinstance(limit, int) or limit > MAX_UNROLLED:
            if n.has(0) and not n.known_sizes(0):
                raise n.depends(0, f"is a trip count that must be known ({error.args[0]})") from None
            raise
        return _unrolled(n, body, limit, always)


def _trip_limit(n: Node) -> Dim | None:
    """The trip count: a number, an expression, or None for no limit."""
    if not n.has(0):
        return None
    known = n.known_sizes(0)
    if known is None:
        return n.sized(n.value(0))[0]
    return None if dims.is_static(known[0]) and known[0] >= 2**62 else dims.maximum(known[0], 0)


def _values(n: Node, start: int) -> list[Value]:
    return [n.value(i) for i in range(start, len(n.inputs))]


def _as_scan(n: Node, body: onnx.GraphProto, length: Dim) -> tuple[Value, ...] | None:
    """The loop as ``scan``, or None when the body decides when to stop."""
    captured, carry = Captured.by(n, body), _values(n, 2)
    with Inside(n, "step") as inner:
        env = captured.inside(inner)
        states = [inner.input(f"s{i}", v.type.dtype, v.type.shape) for i, v in enumerate(carry)]
        step = inner.input("step", "i64")
        env.update(zip((i.name for i in body.input), [step, inner.constant(True), *states], strict=True))
        again, *results = _lowered(n, body, env)
    stop = inner.array(again) if isinstance(again, Value) else None
    if stop is None or not stop.all():
        return None
    region = inner.build(tuple(_tensors(n, results)))
    steps = n.b.iota(dtype="i64", shape=(length,), axis=0)
    return n.b.scan(
        *captured.operands,
        *carry,
        steps,
        length=length,
        num_consts=len(captured.operands),
        num_carry=len(carry),
        body=region,
    )


def _tensors(n: Node, results: Sequence[Operand]) -> list[Value]:
    if not all(isinstance(x, Value) for x in results):
        raise Unsupported(f"{n.op_type} whose body gives a sequence")
    return [x for x in results if isinstance(x, Value)]


def _as_while(n: Node, body: onnx.GraphProto, limit: Dim | None) -> tuple[Value, ...]:
    """The loop as ``while`` over (step, go on, states, buffers of the stacked results)."""
    captured, carry = Captured.by(n, body), _values(n, 2)
    stacked = len(body.output) - 1 - len(carry)
    if stacked and limit is None:
        raise n.depends(0, "is a trip count that must limit the stacked results")
    slices: list[TensorType] = []

    def build(buffers: Sequence[Value]) -> Graph:
        with Inside(n, "body") as inner:
            env = captured.inside(inner)
            step, go = inner.input("step", "i64"), inner.input("go", "bool")
            states = [inner.input(f"s{i}", v.type.dtype, v.type.shape) for i, v in enumerate(carry)]
            held = [inner.input(f"y{i}", v.type.dtype, v.type.shape) for i, v in enumerate(buffers)]
            env.update(zip((i.name for i in body.input), [step, go, *states], strict=True))
            again, *results = _tensors(n, _lowered(n, body, env))
            new = results[len(carry) :]
            slices[:] = [x.type for x in new]
            written = []
            for buffer, x in zip(held, new):
                zero = [inner.constant(np.int64(0))] * x.type.rank
                update = inner.reshape(x, shape=(1, *x.type.shape))
                written.append(inner.dynamic_update_slice(buffer, update, step, *zero))
            after = inner.add(step, 1)
        return inner.build((after, reshape(inner, again, ()), *results[: len(carry)], *written))

    if stacked:
        build([])  # for the types of one step
    buffers = [n.b.full(0, t.dtype, (limit, *t.shape)) for t in slices]
    region = build(buffers)
    go = reshape(n.b, n.value(1), ()) if n.has(1) else n.b.constant(True)
    top = [] if limit is None else [n.b.size(limit)]

    def condition(b: GraphBuilder, *values: Value) -> Value:
        step, again = values[len(top) : len(top) + 2]
        return b.and_(again, b.lt(step, values[0])) if top else again

    start = [n.b.constant(np.int64(0)), go, *carry, *buffers]
    types = [v.type for v in (*top, *start)]
    count, _, *found = n.b.while_(
        *top,
        *captured.operands,
        *start,
        cond_consts=len(top),
        body_consts=len(captured.operands),
        cond=n.b.region(condition, types, name="cond"),
        body=region,
    )
    if stacked:
        (length,) = n.sized(count)
        for i in range(len(carry), len(found)):
            shape = (length, *found[i].type.shape[1:])
            found[i] = n.b.slice(found[i], start=(0,) * len(shape), limit=shape)
    return tuple(found)


def _unrolled(n: Node, body: onnx.GraphProto, limit: int, always: bool) -> tuple[Operand, ...]:
    """Every step written out; the condition must be known at each."""
    if not always and not n.is_known(1):
        raise n.depends(1, "decides when to stop, in a loop whose values change their type")
    carry, go = list(n.inputs[2:]), True
    stacked: list[list[Value]] = [[] for _ in body.output[1 + len(carry) :]]
    for step in range(limit):
        if not go:
            break
        again, *results = walk_in_place(n, body, [Sizes.of(step), n.b.constant(True), *carry])
        known = n.b.array(again) if isinstance(again, Value) else None
        if known is None:
            raise Unsupported("Loop that decides from data when to stop, and whose values change their type")
        go, carry = bool(known.all()), results[: len(carry)]
        for column, x in zip(stacked, _tensors(n, results[len(carry) :])):
            column.append(x)
    if any(not column for column in stacked):
        raise Unsupported("Loop of no steps that stacks results: their shape is not known")
    return (*carry, *(_stack(n, column) for column in stacked))


def _stack(n: Node, items: Sequence[Value]) -> Value:
    parts = [n.b.reshape(x, shape=(1, *x.type.shape)) for x in items]
    return n.b.concatenate(*parts, axis=0) if len(parts) > 1 else parts[0]


# -- Scan --------------------------------------------------------------------------------------------


@rows("Scan", since=9)
def scan(n: Node) -> tuple[Value, ...]:
    """Scanned inputs are brought to axis 0 and one direction, results taken back."""
    body, count = n.attrs["body"], n.attr("num_scan_inputs")
    operands = n.values()
    states, xs = operands[: len(operands) - count], operands[len(operands) - count :]
    made = len(body.output) - len(states)
    xs = [_to_front(n, x, a) for x, a in zip(xs, n.attr("scan_input_axes") or [0] * count)]
    xs = [n.b.reverse(x, dimensions=(0,)) if d else x for x, d in zip(xs, _flags(n, "scan_input_directions", count))]
    captured = Captured.by(n, body)
    region = _step(n, body, captured, states, xs)
    results = list(
        n.b.scan(
            *captured.operands,
            *states,
            *xs,
            length=xs[0].type.shape[0],
            num_consts=len(captured.operands),
            num_carry=len(states),
            body=region,
        )
    )
    ends = zip(_flags(n, "scan_output_directions", made), n.attr("scan_output_axes") or [0] * made)
    for i, (backwards, axis) in enumerate(ends, len(states)):
        if backwards:
            results[i] = n.b.reverse(results[i], dimensions=(0,))
        results[i] = _from_front(n, results[i], axis)
    return tuple(results)


@rows("Scan")
def scan_batched(n: Node) -> tuple[Value, ...]:
    """Before opset 9 axis 0 is a batch, axis 1 is scanned: a scan over the batch around one over the steps."""
    if n.has(0):
        raise Unsupported("Scan of opset 8 with sequence lengths")
    body, count = n.attrs["body"], n.attr("num_scan_inputs")
    operands = [n.value(i) for i in range(1, len(n.inputs))]
    states = len(operands) - count
    directions = _flags(n, "directions", count)
    captured = Captured.by(n, body)
    one = [TensorType(v.type.dtype, v.type.shape[1:]) for v in operands]
    with Inside(n, "step") as inner:
        env = captured.inside(inner)
        seen = [inner.input(f"x{i}", t.dtype, t.shape if i < states else t.shape[1:]) for i, t in enumerate(one)]
        env.update(zip((i.name for i in body.input), seen, strict=True))
        results = _tensors(n, _lowered(n, body, env))
    step = inner.build(tuple(results))
    consts = captured.operands

    def sample(b: GraphBuilder, *values: Value) -> Any:
        own = list(values)
        for i, backwards in enumerate(directions, len(consts) + states):
            own[i] = b.reverse(own[i], dimensions=(0,)) if backwards else own[i]
        length = one[-1].shape[0]
        return b.scan(*own, length=length, num_consts=len(consts), num_carry=states, body=step)

    region = n.b.region(sample, [*(v.type for v in consts), *one], name="sample")
    batch = operands[0].type.shape[0]
    return n.b.scan(*consts, *operands, length=batch, num_consts=len(consts), num_carry=0, body=region)


def _flags(n: Node, name: str, count: int) -> list[int]:
    return list(n.attr(name) or [0] * count)


def _step(n: Node, body: onnx.GraphProto, captured: Captured, states: Sequence[Value], xs: Sequence[Value]) -> Graph:
    with Inside(n, "step") as inner:
        env = captured.inside(inner)
        seen = [inner.input(f"s{i}", v.type.dtype, v.type.shape) for i, v in enumerate(states)]
        seen += [inner.input(f"x{i}", v.type.dtype, v.type.shape[1:]) for i, v in enumerate(xs)]
        env.update(zip((i.name for i in body.input), seen, strict=True))
        results = _tensors(n, _lowered(n, body, env))
    return inner.build(tuple(results))


def _to_front(n: Node, x: Value, axis: int) -> Value:
    axis = axis_of(axis, x.type.rank)
    order = (axis, *(a for a in range(x.type.rank) if a != axis))
    return n.b.transpose(x, permutation=order) if axis else x


def _from_front(n: Node, x: Value, axis: int) -> Value:
    axis = axis_of(axis, x.type.rank)
    order = [*range(1, axis + 1), 0, *range(axis + 1, x.type.rank)]
    return n.b.transpose(x, permutation=tuple(order)) if axis else x
