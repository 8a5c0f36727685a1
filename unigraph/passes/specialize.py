"""Specialize: free sizes fixed to numbers, everywhere they occur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import dims
from ..builder import GraphBuilder
from ..errors import InputError
from ..graph import CONSTANT, Graph, GraphLike, Operation, Value, as_graph
from .prune import prune
from .simplify import simplify


def specialize(graph: GraphLike, sizes: Mapping[str, int] | None = None, **named: int) -> Graph:
    """The graph with the free sizes of these names fixed: ``specialize(g, batch=8)``.

    Types and attributes are worked out anew, so that sizes computed from them become numbers too; the
    other sizes stay free. Values are equal bit for bit. Raises InputError for a name that is no free
    size of the graph, and for a number that breaks its constraint.
    """
    graph = as_graph(graph)
    fixed = {**(sizes or {}), **named}
    for name, size in fixed.items():
        if name not in graph.symbols:
            raise InputError(f"there is no free size {name!r}; the graph has {', '.join(graph.symbols) or 'none'}")
        problem = graph.symbols[name].check(size)
        if problem:
            raise InputError(f"size {name} = {size} {problem}")
    return prune(simplify(_fixed(graph, fixed))) if fixed else graph


def _fixed(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Every operation emitted again, under the new sizes."""
    b = GraphBuilder(graph.name, {s: c for s, c in graph.symbols.items() if s not in sizes})
    env: dict[Value, Value] = {}
    for v in graph.inputs:
        env[v] = b._source(v.name, v.type.substitute(sizes), v.role)
    for v, array in graph.data.items():
        type_ = v.type.substitute(sizes)
        env[v] = b._constant(array, type_) if v.role == CONSTANT else b._with_data(v.name, array, type_, v.role)
    for op in graph.edges:
        results = _emit(b, op, [env[v] for v in op.inputs], sizes)
        for old, new in zip(op.outputs, results, strict=True):
            env[old] = b.label(new, old.name)
    return graph.replace(
        inputs=tuple(env[v] for v in graph.inputs),
        outputs=tuple(env[v] for v in graph.outputs),
        edges=tuple(b.edges),
        data={env[v]: a for v, a in graph.data.items()},
        states=tuple((env[s], env[new]) for s, new in graph.states),
        symbols=b.symbols,
    )


def _emit(b: GraphBuilder, op: Operation, inputs: list[Value], sizes: Mapping[str, int]) -> tuple[Value, ...]:
    attrs = {k: _attribute(x, sizes) for k, x in op.attrs.items()}
    regions = tuple(_fixed(region, sizes) for region in op.regions)
    with b.at(op.scope, op.source):
        result = b.emit(op.op, inputs, attrs, regions)
    return (result,) if isinstance(result, Value) else tuple(result)


def _attribute(x: Any, sizes: Mapping[str, int]) -> Any:
    if type(x) is tuple:
        return tuple([_attribute(i, sizes) for i in x])
    return dims.substitute(x, sizes) if hasattr(x, "free_symbols") else x
