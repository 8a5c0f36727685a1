"""Reorder: a schedule of the same operations that lowers peak live memory and never raises it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from .. import dims
from ..graph import Graph, GraphLike, Operation, Value, as_graph
from ..memory import Sizes, least_sizes, peak_bytes, value_bytes

HINT = 64  # the size assumed for a symbol when schedules are compared


def _sizes(graph: Graph, sizes: Mapping[str, int] | None) -> Sizes:
    """Symbols at ``sizes``, the others at HINT within their constraints."""
    return Sizes({name: _hint(c) for name, c in graph.symbols.items()} | dict(sizes or {}), HINT)


def _hint(c: dims.Constraint) -> int:
    size = max(HINT, c.min) if c.max is None else min(max(HINT, c.min), c.max)
    return max(size // c.multiple_of * c.multiple_of, c.min)


def peak_memory(
    graph: GraphLike, edges: Sequence[Operation] | None = None, sizes: Mapping[str, int] | None = None
) -> int:
    """Most bytes of inputs and produced values alive at once when edges run in this order (`memory.peak_bytes`).

    Without ``edges`` the order is that of the graph. What a region holds while it runs is not counted:
    no order of operations changes it. Sizes that are not given are the least ones, as in `stats`.
    """
    graph = as_graph(graph)
    return peak_bytes(graph, graph.edges if edges is None else edges, value_bytes(graph, least_sizes(graph, sizes)))


def reorder(graph: GraphLike, sizes: Mapping[str, int] | None = None) -> Graph:
    """The graph with its operations in the order of lowest peak memory among those tried.

    Tried are the present order, a greedy one (next the ready operation that frees most) and a
    depth-first one (finish what an output needs before starting anything else). They are compared at
    ``sizes``, other symbols at a size that is usual; an order that raises the peak at the least sizes is
    not taken. Linear up to a logarithm; results are the same bit for bit, as operations do not change.
    """
    graph = as_graph(graph)
    usual, least = _sizes(graph, sizes), least_sizes(graph, sizes)
    size = value_bytes(graph, usual)
    small = value_bytes(graph, least) if graph.symbols else size
    bound = peak_bytes(graph, graph.edges, small)
    best, lowest = graph.edges, peak_bytes(graph, graph.edges, size)
    for order in (_greedy(graph, size), _depth_first(graph, size)):
        peak = peak_bytes(graph, order, size)
        if peak < lowest and (small is size or peak_bytes(graph, order, small) <= bound):
            best, lowest = tuple(order), peak
    return graph if best is graph.edges else graph.replace(edges=best)


def _greedy(graph: Graph, size: Mapping[Value, int]) -> list[Operation]:
    """Always the ready operation with the smallest growth of live memory; ties in present order.

    The growth of an operation only ever falls, namely when it becomes the last reader of an operand:
    it then gets a second, better entry in the heap, and the first one is skipped later.
    """
    edges = graph.edges
    lasting = {*graph.results, *graph.inputs, *graph.data}
    readers: dict[Value, list[int]] = {}
    growth, waiting = [], []
    for index, op in enumerate(edges):
        for v in dict.fromkeys(op.inputs):
            readers.setdefault(v, []).append(index)
        growth.append(sum([size[v] for v in op.outputs]))
        waiting.append(0)
    produced = {v for op in edges for v in op.outputs}
    remaining = {v: len(found) for v, found in readers.items()}
    for v, found in readers.items():
        if v in produced:
            for index in found:
                waiting[index] += 1
            if len(found) == 1 and v not in lasting:
                growth[found[0]] -= size[v]
    done = bytearray(len(edges))
    heap = [(growth[i], i) for i in range(len(edges)) if not waiting[i]]
    heapq.heapify(heap)
    order: list[Operation] = []
    while heap:
        _, index = heapq.heappop(heap)
        if done[index]:
            continue
        op = edges[index]
        order.append(op)
        done[index] = 1
        for v in dict.fromkeys(op.inputs):
            remaining[v] -= 1
            if remaining[v] == 1 and v not in lasting:  # once in the life of a value, so this is linear
                reader = next(i for i in readers[v] if not done[i])
                growth[reader] -= size[v]
                if not waiting[reader]:
                    heapq.heappush(heap, (growth[reader], reader))
        for v in op.outputs:
            for reader in readers.get(v, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (growth[reader], reader))
    return order


def _depth_first(graph: Graph, size: Mapping[Value, int]) -> list[Operation]:
    """Post-order from the results, bigger operand first, so that little waits beside a big one."""
    producers = graph.producers
    order: list[Operation] = []
    seen: set[Operation] = set()
    for result in (*graph.results, *(v for op in graph.edges for v in op.outputs)):
        root = producers.get(result)
        if root is None or root in seen:
            continue
        stack: list[tuple[Operation, bool]] = [(root, False)]
        while stack:
            op, expanded = stack.pop()
            if expanded:
                order.append(op)
                continue
            if op in seen:
                continue
            seen.add(op)
            stack.append((op, True))
            inputs = op.inputs if len(op.inputs) == 1 else sorted(dict.fromkeys(op.inputs), key=size.__getitem__)
            for v in inputs:
                maker = producers.get(v)
                if maker is not None and maker not in seen:
                    stack.append((maker, False))
    return order
