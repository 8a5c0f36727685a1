"""The JAX table: every core op as a traceable function."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from unigraph.evaluate import Row, Table
from unigraph.graph import Operation
from unigraph.types import TensorType

from . import collective, contract, control, elementwise, index, linalg, movement, nn, random, reduce, sort
from .dtypes import fit


class JaxTable(Table):
    """Rows work on jax arrays and tracers alike, so a program under this table jits, differentiates and vmaps."""

    name = "jax"

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
)
