"""Sibling products: linear layers that read the same value become one bigger product, then slices.

One wide product keeps the cores busier than three narrow ones (the queries, keys and values of an
attention layer). The joined weight is built by ``concatenate``; folding it into a stored weight
would lose the original names, so an engine that caches constants should fold it itself.
"""

from __future__ import annotations

from ..graph import CONSTANT, WEIGHT, Graph, Operation, Value
from ..ops import movement as m
from ..opdef import registry
from .rewrite import Rewriter


def siblings(graph: Graph) -> Graph:
    """The graph with linear operations on one input, with stored weights of one dtype, joined.

    The outputs are the same numbers up to the order of additions in a wider product.
    """
    linear = registry()["linear"]
    groups: dict[tuple[Value, int], list[Operation]] = {}
    for op in graph.edges:
        if op.op is linear and all(v.role in (WEIGHT, CONSTANT) for v in op.inputs[1:]):
            groups.setdefault((op.inputs[0], len(op.inputs)), []).append(op)
    chosen = {op: group for group in groups.values() if len(group) > 1 for op in group}
    if not chosen:
        return graph
    r = Rewriter(graph)
    done: set[Operation] = set()
    for op in graph.edges:
        if op in done:
            continue
        if op in chosen:
            group = chosen[op]
            _join(r, group)
            done.update(group)
        else:
            r.replay(op)
    return r.finish()


def _join(r: Rewriter, group: list[Operation]) -> None:
    first = group[0]
    r.scope, r.source = first.scope, first.source
    x = r.now(first.inputs[0])
    joined = [r.emit(m.concatenate, [r.now(op.inputs[i]) for op in group], {"axis": 0}) for i in range(1, len(first.inputs))]
    whole = r.emit(first.op, [x, *joined])
    start = 0
    rank = whole.type.rank
    for op in group:
        width = op.inputs[1].type.shape[0]
        low = (0,) * (rank - 1) + (start,)
        high = (*whole.type.shape[:-1], start + width)
        r.env[op.outputs[0]] = r.emit(m.slice, [whole], {"start": low, "limit": high})
        start = start + width
