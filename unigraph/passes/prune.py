"""Prune: dead values, chosen outputs, unused inputs, common sub-expressions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..errors import InputError
from ..graph import CONSTANT, Graph, Operation, Value
from ..tree import DICT, LEAF, TUPLE, Signature, Tree
from .rewrite import Rewriter


def dead_code(graph: Graph) -> Graph:
    """The graph without operations and data that no output or state needs. Inputs all stay."""
    live: set[Value] = set(graph.results)
    kept: list[Operation] = []
    for op in reversed(graph.edges):
        if not live.isdisjoint(op.outputs):
            kept.append(op)
            live.update(op.inputs)
    states = {s for s, _ in graph.states}
    data = {v: a for v, a in graph.data.items() if v in live or v in states}
    if len(kept) == len(graph.edges) and len(data) == len(graph.data):
        return graph
    return graph.replace(edges=tuple(reversed(kept)), data=data)


def choose_outputs(graph: Graph, outputs: Sequence[str | int]) -> Graph:
    """The graph that computes only these outputs, given by position or by name, as a tuple (one: bare).

    A name is an output's path in the captured structure (``last_hidden_state``) or a value's name.
    Raises InputError for an output that is not there.
    """
    paths = graph.signature.out.paths() if graph.signature else []
    chosen = [_find(graph, paths, wanted) for wanted in outputs]
    leaf = Tree(LEAF)
    out = leaf if len(chosen) == 1 else Tree(TUPLE, (leaf,) * len(chosen))
    signature = graph.signature and Signature(graph.signature.args, graph.signature.kwargs, out, graph.signature.arg_names)
    return dead_code(graph.replace(outputs=tuple(chosen), signature=signature))


def _find(graph: Graph, paths: list[str], wanted: str | int) -> Value:
    if isinstance(wanted, int) and -len(graph.outputs) <= wanted < len(graph.outputs):
        return graph.outputs[wanted]
    if wanted in paths:
        return graph.outputs[paths.index(str(wanted))]
    try:
        return graph.value(str(wanted))
    except KeyError:
        raise InputError(f"there is no output {wanted!r}; the graph has {', '.join(paths) or len(graph.outputs)}") from None


def unused_inputs(graph: Graph) -> Graph:
    """The graph without inputs that nothing reads; it is then called with flat, named inputs."""
    used = {v for op in graph.edges for v in op.inputs} | set(graph.results)
    kept = tuple(v for v in graph.inputs if v in used)
    if len(kept) == len(graph.inputs):
        return graph
    args = Tree(TUPLE, (Tree(LEAF),) * len(kept))
    out = graph.signature.out if graph.signature else Tree(TUPLE, (Tree(LEAF),) * len(graph.outputs))
    return graph.replace(inputs=kept, signature=Signature(args, Tree(DICT), out, tuple(v.name for v in kept)))


def common_subexpressions(graph: Graph) -> Graph:
    """Operations that compute the same from the same values become one, and equal constants too."""
    r = Rewriter(graph)
    _merge_constants(r)
    seen: dict[Hashable, tuple[Value, ...]] = {}
    merged = False
    for op in graph.edges:
        inputs = tuple([r.now(v) for v in op.inputs])
        key = (op.op, inputs, tuple(op.attrs.values()), op.regions)
        earlier = seen.get(key)
        if earlier is None:
            seen[key] = op.outputs
            r.replay(op)
        else:
            merged = True
            r.env.update(zip(op.outputs, earlier))
    return r.finish() if merged or r.env else graph


def _merge_constants(r: Rewriter) -> None:
    seen: dict[Hashable, Value] = {}
    for value, array in list(r.old.data.items()):
        if value.role != CONSTANT or array is None or array.nbytes > 1 << 16:
            continue
        key = (value.type, array.tobytes())
        earlier = seen.setdefault(key, value)
        if earlier is not value:
            r.env[value] = earlier
            del r._data[value]


def prune(graph: Graph, outputs: Sequence[str | int] | None = None, inputs: bool = False) -> Graph:
    """Everything in this file: dead code, equal sub-expressions, and on request other outputs and inputs.

    ``outputs`` chooses what to compute (names or positions); ``inputs=True`` drops unused inputs.
    Raises InputError for an output that is not there.
    """
    if outputs is not None:
        graph = choose_outputs(graph, outputs)
    graph = common_subexpressions(dead_code(graph))
    graph = dead_code(_in_regions(graph))
    return unused_inputs(graph) if inputs else graph


def _in_regions(graph: Graph) -> Graph:
    """The bodies of control flow pruned in the same way; their inputs and outputs are kept."""
    if not any(op.regions for op in graph.edges):
        return graph
    edges: list[Any] = []
    for op in graph.edges:
        if op.regions:
            regions = tuple(prune(region) for region in op.regions)
            op = Operation(op.op, op.inputs, op.outputs, op.attrs, regions, op.scope, op.source)
        edges.append(op)
    return graph.replace(edges=tuple(edges))
