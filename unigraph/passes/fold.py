"""Constant folding: operations on constants are evaluated with the reference table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UnigraphError
from ..graph import CONSTANT, Graph, Operation, Value
from ..ops import movement as m
from .rewrite import Rewriter, apply_rules

if TYPE_CHECKING:
    from ..evaluate import Table

MAX_BYTES = 1 << 16  # a folded constant may be this big, or as big as the constants it replaces


def fold(graph: Graph, table: Table | None = None, max_bytes: int = MAX_BYTES) -> Graph:
    """The graph with every operation whose operands are all constants replaced by its value.

    ``table`` computes the values (the NumPy reference by default). A number spread by
    broadcast_in_dim stays spread: that is its compact form. An operation that fails to evaluate
    stays, and fails (or not) when the graph runs.
    """
    from ..evaluate import Program

    table = table or _reference()

    def constant_operands(r: Rewriter, op: Operation, inputs: tuple[Value, ...]) -> Value | tuple[Value, ...] | None:
        """f(constants) -> constant."""
        if op.op is m.broadcast_in_dim or op.regions or any(v.role != CONSTANT for v in inputs):
            return None
        if any(not v.type.is_static or v.type.dtype.is_key for v in (*inputs, *op.outputs)):
            return None
        if any(hasattr(d, "free_symbols") for a in op.attrs.values() for d in (a if isinstance(a, tuple) else (a,))):
            return None
        held = sum(int(v.type.nbytes) for v in inputs)
        if sum(int(v.type.nbytes) for v in op.outputs) > max(max_bytes, held):
            return None
        fresh = tuple(Value(v.type, f"c{i}", "input") for i, v in enumerate(inputs))
        single = Graph(fresh, op.outputs, (op.with_inputs(fresh),))
        try:
            results = Program(single, table).run([r.array(v) for v in inputs])
        except UnigraphError:
            return None
        values = tuple(r.constant(x) for x in results)
        return values[0] if len(values) == 1 else values

    return apply_rules(graph, {}, [constant_operands])[0]


def _reference() -> Table:
    """The NumPy table. Folding is interpretation, so it alone of the passes looks at the runtime."""
    from ..runtime.numpy.table import TABLE

    return TABLE
