"""Constant folding: operations on constants are evaluated with the reference table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnigraphError
from ..graph import CONSTANT, Graph, GraphLike, Operation, Value, as_graph
from ..ops import elementwise as e
from ..ops import movement as m
from .rewrite import Rewriter, apply_rules

if TYPE_CHECKING:
    from ..evaluate import Table

MAX_BYTES = 1 << 16  # a folded constant may be this big, or as big as the constants it replaces

# A number spread by broadcast_in_dim stays spread: that is its compact form. A barrier is a wish of
# the person who wrote it.
KEPT = {m.broadcast_in_dim, e.optimization_barrier}


def fold(graph: GraphLike, table: Table | None = None, max_bytes: int = MAX_BYTES) -> Graph:
    """The graph with every operation whose operands are all constants replaced by its value.

    ``table`` computes the values (the NumPy reference by default). An operation that fails to
    evaluate stays, and fails (or not) when the graph runs.
    """
    graph = as_graph(graph)
    table = table or _reference()

    def constant_operands(r: Rewriter, op: Operation, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        """f(constants) -> constant."""
        for v in inputs:
            if v.role != CONSTANT:
                return None
        if op.op in KEPT or op.regions or not _is_static(op, inputs):
            return None
        held = sum(int(v.type.nbytes) for v in inputs)
        if sum(int(v.type.nbytes) for v in op.outputs) > max(max_bytes, held):
            return None
        try:
            results = _evaluate(op, [r.array(v) for v in inputs], table)
        except UnigraphError:
            return None
        return tuple(r.constant(x) for x in results)

    return apply_rules(graph, {}, [constant_operands])[0]


def _is_static(op: Operation, inputs: tuple[Value, ...]) -> bool:
    """Whether neither types nor attributes hold a symbolic size, and no value is a key."""
    if any(not v.type.is_static or v.type.dtype.is_key for v in (*inputs, *op.outputs)):
        return False
    return not any(hasattr(d, "free_symbols") for a in op.attrs.values() for d in (a if isinstance(a, tuple) else (a,)))


def _evaluate(op: Operation, arrays: list[Any], table: Table) -> list[np.ndarray]:
    from ..evaluate import Program

    fresh = tuple(Value(v.type, f"c{i}", "input") for i, v in enumerate(op.inputs))
    outputs = tuple(Value(v.type) for v in op.outputs)
    single = Operation(op.op, fresh, outputs, op.attrs, (), op.scope, op.source)
    results = Program(Graph(fresh, outputs, (single,)), table).run(arrays)
    return [np.array(x, order="C") for x in results]  # a copy: a view would keep a larger array alive


def _reference() -> Table:
    """The NumPy table. Folding is interpretation, so it alone of the passes looks at the runtime."""
    from ..runtime.numpy.table import TABLE

    return TABLE
