"""The JAX table: every core op as a traceable function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from unigraph.evaluate import Program, Row, Table
from unigraph.graph import Operation
from unigraph.ops import nn_resize
from unigraph.types import TensorType

from . import collective, contract, control, elementwise, index, linalg, movement, nn, random, reduce, sort, special
from .dtypes import fit


class JaxTable(Table):
    """Rows work on jax arrays and tracers alike, so a program under this table jits, differentiates and vmaps."""

    name = "jax"
    derives = True

    def constant(self, array: Any, type_: TensorType) -> Any:
        """A jax array; 64-bit data stays so only where x64 is on.

        Numbers stay NumPy's: traced, they become literals, which the body of a reduction may hold.
        """
        fitting = fit(array, "a constant")
        return fitting if fitting.ndim == 0 else jnp.asarray(fitting)

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation.op in random.KEYED:
            kwargs = {**kwargs, "impl": operation.inputs[0].type.dtype.name[4:-1]}
        return row(*args, **kwargs)

    def composite(
        self, operation: Operation, program: Program, args: list[Any], symbols: Mapping[str, Any]
    ) -> Iterable[Any]:
        """Run the decomposition. What `resize` works out of fixed sizes, indices and weights, is computed here and
        now: XLA would compute a position once for each, rounded in two ways, and so the one beside the other."""
        if operation.op is not nn_resize.resize:
            return super().composite(operation, program, args, symbols)
        with jax.ensure_compile_time_eval():
            return tuple(super().composite(operation, program, args, symbols))


TABLE = JaxTable(
    elementwise.ROWS,
    movement.ROWS,
    index.ROWS,
    reduce.ROWS,
    contract.ROWS,
    sort.ROWS,
    linalg.ROWS,
    random.ROWS,
    control.ROWS,
    collective.ROWS,
    nn.ROWS,
    special.ROWS,
)
