"""Decompose: composites written out as core operations, the opposite of fuse."""

from __future__ import annotations

from collections.abc import Collection

from ..evaluate import decomposition
from ..graph import Graph, GraphLike, Operation, as_graph
from .rewrite import Rewriter


def decompose(graph: GraphLike, keep: Collection[str] = ()) -> Graph:
    """The graph with every composite replaced by its meaning, except those named in ``keep``.

    Regions are decomposed too. Values are those of the decompositions: equal within rounding to what
    an engine's own kernels give.
    """
    graph = as_graph(graph)
    if not any(op.op.is_composite for op in graph.all_edges()):
        return graph
    r = Rewriter(graph)
    for op in graph.edges:
        r.scope, r.source = op.scope, op.source
        if op.op.is_composite and op.op.name not in keep:
            inner = decompose(decomposition(op), keep)
            r.env.update(zip(op.outputs, r.inline(inner, [r.now(v) for v in op.inputs]), strict=True))
        elif op.regions:
            regions = tuple(decompose(region, keep) for region in op.regions)
            r.replay(Operation(op.op, op.inputs, op.outputs, op.attrs, regions, op.scope, op.source))
        else:
            r.replay(op)
    return r.finish()
