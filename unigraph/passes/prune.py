"""Prune: dead values, chosen outputs, unused inputs, common sub-expressions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ..errors import InputError
from ..graph import CONSTANT, Graph, GraphLike, Operation, Value, as_graph
from ..opdef import OpDef
from ..tree import DICT, LEAF, TUPLE, Signature, Tree
from .rewrite import Rewriter, once, with_regions

MERGED_BYTES = 1 << 16  # larger constants are not compared: that would read them all


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


def choose_outputs(graph: Graph, outputs: str | int | Sequence[str | int]) -> Graph:
    """The graph that computes only these outputs, given by position or by name, as a tuple (one: bare).

    A name is an output's path in the captured structure (``last_hidden_state``) or a value's name.
    Raises InputError for an output that is not there.
    """
    if isinstance(outputs, (str, int)):
        outputs = [outputs]
    paths = graph.signature.out.paths() if graph.signature else []
    chosen = [_find(graph, paths, wanted) for wanted in outputs]
    leaf = Tree(LEAF)
    out = leaf if len(chosen) == 1 else Tree(TUPLE, (leaf,) * len(chosen))
    s = graph.signature
    signature = s and Signature(s.args, s.kwargs, out, s.arg_names)
    return dead_code(graph.replace(outputs=tuple(chosen), signature=signature))


def _find(graph: Graph, paths: list[str], wanted: str | int) -> Value:
    if isinstance(wanted, int):
        if -len(graph.outputs) <= wanted < len(graph.outputs):
            return graph.outputs[wanted]
    elif wanted in paths:
        return graph.outputs[paths.index(wanted)]
    else:
        try:
            return graph.value(wanted)
        except KeyError:
            pass
    there = ", ".join(filter(None, paths)) or str(len(graph.outputs))
    raise InputError(f"there is no output {wanted!r}; the graph has {there}")


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
    for op in graph.edges:
        inputs = r.inputs_of(op)
        key = (op.op, inputs, _attributes(op), op.regions)
        earlier = seen.setdefault(key, op.outputs)
        if earlier is op.outputs:
            r.replay(op, inputs)
        else:
            r.env.update(zip(op.outputs, earlier))
    return r.finish() if r.env else graph


_REALS = {"float", "scalar", "floats"}
_has_reals: dict[OpDef, bool] = {}


def _attributes(op: Operation) -> Hashable:
    """The attributes as a key that keeps 0.0 from -0.0, and 1 from 1.0 and True."""
    if not op.attrs:
        return ()
    reals = _has_reals.get(op.op)
    if reals is None:
        reals = _has_reals[op.op] = any(a.kind in _REALS for a in op.op.attrs.values())
    values = tuple(op.attrs.values())
    return (values, repr(values)) if reals else values


def _merge_constants(r: Rewriter) -> None:
    seen: dict[Hashable, Value] = {}
    for value, array in list(r.old.data.items()):
        if value.role != CONSTANT or array is None or array.nbytes > MERGED_BYTES:
            continue
        key = (value.type, array.tobytes())
        earlier = seen.setdefault(key, value)
        if earlier is not value:
            r.env[value] = earlier
            del r._data[value]


def prune(graph: GraphLike, outputs: str | int | Sequence[str | int] | None = None, inputs: bool = False) -> Graph:
    """Everything in this file: dead code, equal sub-expressions, and on request other outputs and inputs.

    ``outputs`` chooses what to compute (names or positions); ``inputs=True`` drops unused inputs.
    States and what updates them stay. Raises InputError for an output that is not there.
    """
    graph = as_graph(graph)
    if outputs is not None:
        graph = choose_outputs(graph, outputs)
    graph = once(_pruned)(graph)
    return unused_inputs(graph) if inputs else graph


def _pruned(graph: Graph) -> Graph:
    """Dead code and equal operations taken out, inside regions too (their inputs and outputs are kept)."""
    graph = dead_code(graph)
    if any(op.regions for op in graph.edges):
        inside = once(_pruned)
        edges: tuple[Any, ...] = tuple([with_regions(op, inside) if op.regions else op for op in graph.edges])
        if any(a is not b for a, b in zip(edges, graph.edges)):
            graph = graph.replace(edges=edges)
    # The second round drops constants whose only readers were merged away.
    return dead_code(common_subexpressions(graph))
