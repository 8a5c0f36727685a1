"""Reorder: a schedule of the same operations that lowers peak live memory and never raises it."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from .. import dims
from ..graph import Graph, Operation, Value

HINT = 64  # the size assumed for a symbol when schedules are compared


def value_bytes(graph: Graph, sizes: Mapping[str, int] | None = None) -> dict[Value, int]:
    """Bytes of every value, with symbols at ``sizes`` (or at HINT, within their constraints)."""
    env = {name: _hint(c) for name, c in graph.symbols.items()} | dict(sizes or {})
    result: dict[Value, int] = {}
    for v in graph.nodes:
        nbytes = v.type.nbytes
        if type(nbytes) is not int:
            for name in dims.symbols_of(nbytes):
                env.setdefault(name, HINT)
            nbytes = int(dims.evaluate(nbytes, env))
        result[v] = nbytes
    return result


def _hint(c: dims.Constraint) -> int:
    size = max(HINT, c.min) if c.max is None else min(max(HINT, c.min), c.max)
    return max(size // c.multiple_of * c.multiple_of, c.min)


def peak_memory(graph: Graph, edges: Sequence[Operation] | None = None, sizes: Mapping[str, int] | None = None) -> int:
    """Most bytes of inputs and produced values alive at once when edges run in this order.

    A value lives from its operation to its last reader; outputs and inputs live on. Weights and
    constants are always there and not counted.
    """
    edges = graph.edges if edges is None else edges
    return _peak(graph, edges, value_bytes(graph, sizes))


def _peak(graph: Graph, edges: Sequence[Operation], size: Mapping[Value, int]) -> int:
    last: dict[Value, int] = {}
    for index, op in enumerate(edges):
        for v in (*op.inputs, *op.outputs):
            last[v] = index
    keep = {*graph.results, *graph.inputs, *graph.data}
    live = peak = sum(size[v] for v in graph.inputs)
    for index, op in enumerate(edges):
        live += sum(size[v] for v in op.outputs)
        peak = max(peak, live)
        for v in {*op.inputs, *op.outputs}:
            if last[v] == index and v not in keep:
                live -= size[v]
    return peak


def reorder(graph: Graph, sizes: Mapping[str, int] | None = None) -> Graph:
    """The graph with its operations in the order of lowest peak memory among those tried.

    Tried are the present order, a greedy one (next the ready operation that frees most) and a
    depth-first one (finish what an output needs before starting anything else). Linear up to a
    logarithm; results are the same bit for bit, as operations do not change.
    """
    size = value_bytes(graph, sizes)
    candidates = [graph.edges, _greedy(graph, size), _depth_first(graph, size)]
    best = min(candidates, key=lambda edges: _peak(graph, edges, size))  # ties keep the present order
    return graph if best is graph.edges else graph.replace(edges=tuple(best))


def _readers(graph: Graph) -> dict[Value, int]:
    """How many operations read each value (an operation counts once)."""
    count: dict[Value, int] = {}
    for op in graph.edges:
        for v in set(op.inputs):
            count[v] = count.get(v, 0) + 1
    return count


def _greedy(graph: Graph, size: Mapping[Value, int]) -> list[Operation]:
    """Always the ready operation with the smallest growth of live memory; ties in present order."""
    remaining = _readers(graph)
    keep = {*graph.results, *graph.inputs, *graph.data}
    index = {op: i for i, op in enumerate(graph.edges)}
    waiting = {op: len({v for v in op.inputs if v in graph.producers}) for op in graph.edges}
    readers: dict[Value, list[Operation]] = {}
    for op in graph.edges:
        for v in dict.fromkeys(op.inputs):
            readers.setdefault(v, []).append(op)

    def growth(op: Operation) -> int:
        made = sum(size[v] for v in op.outputs)
        return made - sum(size[v] for v in set(op.inputs) if remaining[v] == 1 and v not in keep)

    heap: list[tuple[int, int, Any]] = []
    for op in graph.edges:
        if not waiting[op]:
            heapq.heappush(heap, (growth(op), index[op], op))
    order: list[Operation] = []
    done: set[Operation] = set()
    while heap:
        cost, _, op = heapq.heappop(heap)
        if op in done:
            continue
        now = growth(op)
        if now > cost:  # an entry made stale by nothing but luck: requeue it at its true cost
            heapq.heappush(heap, (now, index[op], op))
            continue
        order.append(op)
        done.add(op)
        for v in set(op.inputs):
            remaining[v] -= 1
            if remaining[v] == 1 and v not in keep:  # its last reader now frees it: better than before
                for reader in readers[v]:
                    if reader not in done and not waiting[reader]:
                        heapq.heappush(heap, (growth(reader), index[reader], reader))
        for v in op.outputs:
            for reader in readers.get(v, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (growth(reader), index[reader], reader))
    return order


def _depth_first(graph: Graph, size: Mapping[Value, int]) -> list[Operation]:
    """Post-order from the results, bigger operand first, so that little waits beside a big one."""
    producers = graph.producers
    order: list[Operation] = []
    state: dict[Operation, bool] = {}
    for result in (*graph.results, *(v for op in graph.edges for v in op.outputs)):
        root = producers.get(result)
        if root is None or root in state:
            continue
        stack: list[tuple[Operation, bool]] = [(root, False)]
        while stack:
            op, expanded = stack.pop()
            if expanded:
                order.append(op)
                continue
            if op in state:
                continue
            state[op] = True
            stack.append((op, True))
            for v in sorted(dict.fromkeys(op.inputs), key=lambda v: size[v]):
                maker = producers.get(v)
                if maker is not None and maker not in state:
                    stack.append((maker, False))
    return order
