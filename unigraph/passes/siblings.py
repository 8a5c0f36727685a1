"""Sibling products: linear layers that read the same value become one bigger product, then slices.

One wide product keeps the cores busier than three narrow ones (the queries, keys and values of an
attention layer). The joined weight is built by ``concatenate``; folding it into a stored weight
would lose the original names, so an engine that caches constants should fold it itself.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..graph import BUFFER, CONSTANT, WEIGHT, Graph, GraphLike, Operation, Value, as_graph
from ..ops import movement as m
from ..ops.nn_contract import linear
from .rewrite import Rewriter, once, with_regions

STORED = (WEIGHT, BUFFER, CONSTANT)


def siblings(graph: GraphLike) -> Graph:
    """The graph with linear operations on one input, with stored weights (or their transposes), joined.

    The outputs are the same numbers up to the order of additions in a wider product.
    """
    graph = as_graph(graph)
    return once(_joined)(graph)


def _joined(graph: Graph) -> Graph:
    groups: dict[Hashable, list[Operation]] = {}
    for op in graph.edges:
        if op.op is linear and all(_stored(graph, v) for v in op.inputs[1:]):
            x, *parameters = op.inputs
            # A matrix, and if there is a bias one number for each feature.
            if [v.type.rank for v in parameters] in ([2], [2, 1]):
                groups.setdefault((x, len(parameters)), []).append(op)
    chosen = {op: group for group in groups.values() if len(group) > 1 for op in group}
    r = Rewriter(graph)
    changed = False
    inside = once(_joined)
    for op in graph.edges:
        if op.outputs[0] in r.env:
            continue
        if op in chosen:
            _join(r, chosen[op])
            changed = True
            continue
        new = with_regions(op, inside) if op.regions else op
        changed = changed or new is not op
        r.replay(new)
    return r.finish() if changed else graph


def _stored(graph: Graph, value: Value) -> bool:
    """Whether a value is held by the graph, or is the transpose of one that is."""
    if value.role in STORED:
        return True
    op = graph.producers.get(value)
    return op is not None and op.op is m.transpose and op.inputs[0].role in STORED


def _join(r: Rewriter, group: list[Operation]) -> None:
    first = group[0]
    r.scope, r.source = first.scope, first.source
    x = r.now(first.inputs[0])
    joined = [
        r.emit(m.concatenate, [_ready(r, op.inputs[i]) for op in group], {"axis": 0})
        for i in range(1, len(first.inputs))
    ]
    whole = r.emit(first.op, [x, *joined])
    start = 0
    rank = whole.type.rank
    for op in group:
        width = op.inputs[1].type.shape[0]
        low = (0,) * (rank - 1) + (start,)
        high = (*whole.type.shape[:-1], start + width)
        part = r.emit(m.slice, [whole], {"start": low, "limit": high})
        r.env[op.outputs[0]] = r.label(part, op.outputs[0].name)
        start = start + width


def _ready(r: Rewriter, value: Value) -> Value:
    """A stored value, or its transpose made here: the original one may stand further down."""
    if value.role in STORED:
        return r.now(value)
    op = r.old.producers[value]
    return r.emit(op.op, [r.now(op.inputs[0])], op.attrs)
