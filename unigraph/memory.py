"""Bytes of values under assumed sizes, and of everything alive at the fullest moment of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import dims
from .graph import Graph, Operation, Value
from .types import TensorType


class Sizes(dict[str, int]):
    """Sizes of symbols; one that is not known, such as the count of a `nonzero`, counts as ``otherwise``."""

    def __init__(self, known: Mapping[str, int], otherwise: int):
        super().__init__(known)
        self.otherwise = otherwise

    def __missing__(self, name: str) -> int:
        self[name] = self.otherwise
        return self.otherwise


def least_sizes(graph: Graph, sizes: Mapping[str, int] | None = None) -> Sizes:
    """``sizes``, and for the other symbols the least size above 0 that they allow: what figures are told for."""
    return Sizes({s: max(c.min, c.multiple_of, 1) for s, c in graph.symbols.items()} | dict(sizes or {}), 1)


def type_bytes(type_: TensorType, sizes: Mapping[str, int]) -> int:
    """Bytes of one value, element types narrower than a byte taking one byte."""
    size = type_.nbytes
    return size if type(size) is int else int(dims.evaluate(size, sizes))


def value_bytes(graph: Graph, sizes: Mapping[str, int]) -> dict[Value, int]:
    """Bytes of every value of a graph, those inside regions left out."""
    known: dict[TensorType, int] = {}
    result: dict[Value, int] = {}
    for v in graph.nodes:
        nbytes = known.get(v.type)
        if nbytes is None:
            nbytes = known[v.type] = type_bytes(v.type, sizes)
        result[v] = nbytes
    return result


def peak_bytes(
    graph: Graph,
    edges: Sequence[Operation],
    size: Mapping[Value, int],
    inside: Mapping[Operation, int] | None = None,
) -> int:
    """Most bytes of inputs and produced values alive at once when ``edges`` run in this order.

    A value lives from its operation to its last reader; outputs and inputs live on. Weights and
    constants are always there and not counted. ``inside`` is what the regions of an operation hold
    while it runs, nothing if absent.
    """
    inside = inside or {}
    last: dict[Value, int] = {}
    for index, op in enumerate(edges):
        for v in op.inputs:
            last[v] = index
        for v in op.outputs:
            last[v] = index
    for v in (*graph.results, *graph.inputs, *graph.data):
        last.pop(v, None)
    freed = [0] * len(edges)
    for v, index in last.items():
        freed[index] += size[v]
    live = peak = sum(size[v] for v in graph.inputs)
    for index, op in enumerate(edges):
        for v in op.outputs:
            live += size[v]
        peak = max(peak, live + inside.get(op, 0))
        live -= freed[index]
    return peak
