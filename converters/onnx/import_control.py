"""ONNX control flow: If becomes ``cond``; what a branch captures is passed to it as operands."""

from __future__ import annotations

from typing import Any

import onnx

from unigraph.builder import GraphBuilder
from unigraph.errors import Unsupported
from unigraph.graph import Graph, Value

from .node import Node, Operand, RowBook, Sizes
from .reader import array

rows = RowBook()


@rows("If")
def if_(n: Node) -> Any:
    """A branch known at import is walked in place; otherwise both become regions of ``cond``."""
    branches = [n.attrs["else_branch"], n.attrs["then_branch"]]
    known = n.inputs[0]
    which = n.value(0)
    data = n.b.array(which)
    if isinstance(known, Sizes) or data is not None:
        return tuple(_walk(n, branches[bool(n.scalar(0))]))
    which = n.b.reshape(which, shape=()) if which.type.rank else which
    names = sorted({name for g in branches for name in captures(g)})
    captured: dict[str, Operand] = {name: x for name in names if (x := n.env[name]) is not None}
    if any(isinstance(x, list) for x in captured.values()):
        raise Unsupported("If whose branches read a sequence")
    values = {k: x for k, x in captured.items() if isinstance(x, Value)}
    regions = [_region(n, g, captured, values) for g in branches]
    return n.b.cond(which, *values.values(), branches=regions)


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


def _walk(n: Node, graph: onnx.GraphProto) -> list[Operand]:
    """Lower a subgraph's nodes here and now."""
    importer = n.importer
    env = dict(n.env)
    for tensor in graph.initializer:
        env[tensor.name] = importer.held_constant(array(tensor, importer.folder))
    inner = {name for node in graph.node for name in node.output}
    env = {k: v for k, v in env.items() if k not in inner}
    importer.walk(graph.node, env)
    return [env[o.name] for o in graph.output]


def _region(n: Node, graph: onnx.GraphProto, captured: dict[str, Operand], values: dict[str, Value]) -> Graph:
    """A branch as a closed region over the captured values; sizes and constants are made inside."""
    importer = n.importer
    outer = importer.b
    inner = GraphBuilder("branch")
    inner.scope, inner.source = outer.scope, outer.source
    env: dict[str, Operand] = {"": None, **captured}
    env.update({k: inner.input(f"x{i}", v.type.dtype, v.type.shape) for i, (k, v) in enumerate(values.items())})
    importer.b = inner
    try:
        for tensor in graph.initializer:
            env[tensor.name] = importer.held_constant(array(tensor, importer.folder))
        importer.walk(graph.node, env)
        outputs = [importer.output(o.name, env) for o in graph.output]
    finally:
        importer.b = outer
    return inner.build(tuple(outputs))
