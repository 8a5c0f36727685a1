"""Where two graphs, or one graph on two engines, part ways: the first value that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unigraph.errors import InputError
from unigraph.graph import Graph, GraphLike, Operation, Value, as_graph, counted
from unigraph.tolerances import difference

from . import arrays
from .engines import compile


@dataclass(frozen=True)
class Part:
    """One value that differs: its name, how, and the operation that makes it on the first side."""

    value: str
    reason: str
    largest: float
    op: str = ""
    scope: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f" at {self.scope}" if self.scope else ""
        line = f" ({self.source})" if self.source else ""
        return f"{self.value} from {self.op or 'the inputs'}{where}{line}: {self.reason}"


@dataclass(frozen=True)
class Diff:
    """The result of `diff`: how many values were compared, and those that differ, in order.

    ``largest`` is the largest absolute difference of any finite element.
    """

    compared: int
    parts: tuple[Part, ...]
    largest: float

    @property
    def first(self) -> Part | None:
        """The first value at which the two sides part ways."""
        return self.parts[0] if self.parts else None

    @property
    def same(self) -> bool:
        """True when every compared value agrees within its tolerance."""
        return not self.parts

    def __str__(self) -> str:
        compared = counted(self.compared, "value")
        if self.first is None:
            return f"{compared} compared, all within tolerance; largest difference {self.largest:.3g}"
        verb = "differs" if len(self.parts) == 1 else "differ"
        return (
            f"{compared} compared, {len(self.parts)} {verb}, by {self.largest:.3g} at most; the first is {self.first}"
        )


Side = GraphLike | tuple[Any, str]


def diff(a: Side, b: Side, inputs: Any = (), *, seed: int = 0, scale: float = 10.0) -> Diff:
    """Run ``a`` and ``b`` on the same inputs and compare value by value.

    A side is a graph, a path, or a pair (graph or path, engine name); the engine is ``numpy`` when
    not named. ``inputs`` is a sequence of positional inputs, a mapping by name, or one array. The same
    graph on two engines is compared at every value; two graphs at the values they share (by identity,
    as passes keep them, or by name), and at their outputs. NaNs are equal. ``scale`` multiplies the
    tolerance of one operation, as errors add up on the way.

    Raises InputError when the two sides have different numbers of outputs or do not take these
    inputs, and what `compile` and its calls raise.
    """
    (graph_a, engine_a), (graph_b, engine_b) = _side(a), _side(b)
    if len(graph_a.outputs) != len(graph_b.outputs):
        raise InputError(
            f"the first graph has {len(graph_a.outputs)} outputs, the second {len(graph_b.outputs)}: "
            "prune both to the outputs that should agree"
        )
    pairs = _pairs(graph_a, graph_b)
    values_a = _run(graph_a, engine_a, [p[0] for p in pairs], inputs, seed)
    values_b = _run(graph_b, engine_b, [p[1] for p in pairs], inputs, seed)
    parts, worst = [], 0.0
    for (value, _), x, y in zip(pairs, values_a, values_b, strict=True):
        largest = _largest(x, y)
        worst = max(worst, largest)
        reason = difference(y, x, scale)
        if reason:
            parts.append(_part(graph_a, value, reason, largest))
    return Diff(len(pairs), tuple(parts), worst)


def _side(x: Any) -> tuple[Graph, str]:
    graph, engine = x if isinstance(x, tuple) else (x, "numpy")
    return as_graph(graph), engine


def _pairs(a: Graph, b: Graph) -> list[tuple[Value, Value]]:
    """Values to compare, each pair once, in the order in which they come to be."""
    made_a = [v for op in a.edges for v in op.outputs]
    if _same_structure(a, b):
        shared = list(zip(made_a, (v for op in b.edges for v in op.outputs), strict=True))
    else:
        by_name = {v.name: v for v in b.producers if v.name}
        found = [(v, v if v in b.producers else by_name.get(v.name)) for v in made_a]
        shared = [(v, w) for v, w in found if w is not None and v.type == w.type]
    known = set(shared)
    return shared + [p for p in zip(a.outputs, b.outputs) if p not in known]


def _same_structure(a: Graph, b: Graph) -> bool:
    """True when both hold the same operations, wired alike: the same program, perhaps loaded twice."""
    if a is b:
        return True
    if len(a.edges) != len(b.edges) or len(a.nodes) != len(b.nodes):
        return False
    place_a, place_b = ({v: i for i, v in enumerate(g.nodes)} for g in (a, b))
    return all(
        x.op is y.op
        and x.attrs == y.attrs
        and [place_a[v] for v in x.inputs] == [place_b[v] for v in y.inputs]
        and [v.type for v in x.outputs] == [v.type for v in y.outputs]
        for x, y in zip(a.edges, b.edges)
    )


def _run(graph: Graph, engine: str, values: Sequence[Value], inputs: Any, seed: int) -> list[np.ndarray]:
    wider = graph.replace(outputs=tuple(values), states=())
    compiled = compile(wider, engine)
    args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
    if arrays.is_array(args):
        args = (args,)
    return [arrays.to_numpy(x) for x in compiled.flat(args, kwargs, seed)]


def _largest(x: np.ndarray, y: np.ndarray) -> float:
    if x.shape != y.shape or not x.size or x.dtype.kind == "b":
        return 0.0
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        gap = np.abs(x.astype(wide) - y.astype(wide))
    gap = gap[np.isfinite(gap)]
    return float(gap.max()) if gap.size else 0.0


def _part(graph: Graph, value: Value, reason: str, largest: float) -> Part:
    op: Operation | None = graph.producers.get(value)
    name = f"%{value.name}" if value.name else f"value {graph.nodes.index(value)}"
    if op is None:
        return Part(name, reason, largest)
    return Part(name, reason, largest, op.op.name, op.scope, op.source)
