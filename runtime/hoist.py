"""Work that depends on stored data alone is done once, when an engine prepares a graph.

Transposed weights, joined weights of sibling products, folded tables: their operations leave the
graph, their results join the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unigraph.evaluate import Program, Table
from unigraph.graph import Graph, Operation, Value

SMALL = 1 << 16  # bytes; a bigger result must not be bigger than what it is made of


def hoist(graph: Graph, table: Table, data: Mapping[Value, Any]) -> tuple[Graph, dict[Value, Any]]:
    """The graph without those operations, and its data with their results.

    ``data`` holds weights and states in the framework's form, as for `Program.run`; states are not
    fixed. Results are the same bit for bit. A graph without such operations comes back as it is.
    """
    states = {state for state, _ in graph.states}
    known = {v for v in graph.data if v not in states}
    fixed: list[Operation] = []
    for op in graph.edges:
        if known.issuperset(op.inputs) and op.inputs and not op.regions and _worth(op):
            fixed.append(op)
            known.update(op.outputs)
    if not fixed:
        return graph, dict(data)
    chosen = set(fixed)
    rest = tuple(op for op in graph.edges if op not in chosen)
    read = {v for op in rest for v in op.inputs} | set(graph.results)
    wanted = tuple(v for op in fixed for v in op.outputs if v in read)
    held = {v: a for v, a in graph.data.items() if v not in states}
    once = Graph((), wanted, tuple(fixed), held)
    results = Program(once, table).run((), {v: x for v, x in data.items() if v in held})
    kept = {v: a for v, a in graph.data.items() if v in read or v in states}
    new = graph.replace(edges=rest, data={**kept, **dict.fromkeys(wanted)})
    return new, {**{v: x for v, x in data.items() if v in kept}, **dict(zip(wanted, results, strict=True))}


def _worth(op: Operation) -> bool:
    """Whether keeping the result costs no more memory than it is worth."""
    if any(not v.type.is_static for v in op.outputs):
        return False
    made = sum(int(v.type.nbytes) for v in op.outputs)
    return made <= max(SMALL, sum(int(v.type.nbytes) for v in op.inputs))
