"""Lowering rows of gather and scatter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unigraph.errors import Unsupported
from unigraph.graph import Value

from . import compat
from .lower import JaxprBuilder, Row
from .rows_movement import with_keys


def _gather(b: JaxprBuilder, eqn: Any, x: Value, indices: Value) -> Value:
    p = eqn.params
    numbers = p["dimension_numbers"]
    fill = p["fill_value"]
    return b.op(
        "gather",
        x,
        indices,
        offset_dims=numbers.offset_dims,
        collapsed_slice_dims=numbers.collapsed_slice_dims,
        start_index_map=numbers.start_index_map,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.start_indices_batching_dims,
        slice_sizes=compat.dims(p["slice_sizes"]),
        mode=compat.gather_mode(p["mode"]),
        fill_value=None if fill is None else _number(fill),
    )


def _number(x: Any) -> Any:
    return x.item() if hasattr(x, "item") else x


def _scatter(combiner: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, x: Value, indices: Value, updates: Value) -> Value:
        p = eqn.params
        if combiner == "replace" and p.get("update_jaxpr") is not None and p["update_jaxpr"].eqns:
            raise Unsupported(
                "scatter with a function of the old elements (x.at[i].apply)",
                "gather the elements, apply the function, and scatter the results",
            )
        numbers = p["dimension_numbers"]
        return b.op(
            "scatter",
            x,
            indices,
            updates,
            combiner=combiner,
            update_window_dims=numbers.update_window_dims,
            inserted_window_dims=numbers.inserted_window_dims,
            scatter_dims_to_operand_dims=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            scatter_indices_batching_dims=numbers.scatter_indices_batching_dims,
            mode=compat.gather_mode(p["mode"]),
            unique_indices=bool(p["unique_indices"]),
        )

    return row


ROWS: Mapping[str, Row] = {
    "gather": with_keys("gather", _gather),
    "scatter": with_keys("scatter", _scatter("replace")),
    "scatter-add": _scatter("add"),
    "scatter_add": _scatter("add"),
    "scatter-sub": _scatter("sub"),
    "scatter_sub": _scatter("sub"),
    "scatter-mul": _scatter("mul"),
    "scatter_mul": _scatter("mul"),
    "scatter-min": _scatter("min"),
    "scatter_min": _scatter("min"),
    "scatter-max": _scatter("max"),
    "scatter_max": _scatter("max"),
}
