"""Lowering rows of gather and scatter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unigraph.graph import Value
from unigraph.ops import control

from . import compat
from .lower import MOST_RULES, JaxprBuilder, Row
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
        if combiner == "replace" and _applies(p.get("update_jaxpr")):
            return _apply(b, eqn, x, indices, updates)
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


def _applies(jaxpr: Any) -> bool:
    """True for a combiner that is not "the update": a function of the old element, of ``x.at[i].apply``."""
    if jaxpr is None:
        return False
    plain, _ = compat.unclosed(jaxpr)
    return plain.outvars[0] is not plain.invars[1]


def _apply(b: JaxprBuilder, eqn: Any, x: Value, indices: Value, updates: Value) -> Value:
    """``x`` with a function applied to each element as often as it is indexed."""
    p = eqn.params
    function = compat.over_arrays(p["update_jaxpr"], p.get("update_consts", ()), eqn.invars[0].aval)
    ones = b.full(1, "i32", updates.type.shape)
    counts = _scatter("add")(b, eqn, b.full(0, "i32", x.type.shape), indices, ones)

    start = b.full(0, "i32", ())
    types = [v.type for v in (counts, start, x)]
    more = b.inner_builder()
    count, i, _ = (more.input(f"x{n}", t.dtype, t.shape) for n, t in enumerate(types))
    left = more.op("reduce_or", more.op("gt", count, more.broadcast_to(i, count.type.shape)), axes=_axes(count))
    arrays = b.nested_arrays(function)
    step = b.inner_builder(arrays)
    count, i, old = (step.input(f"x{n}", t.dtype, t.shape) for n, t in enumerate(types))
    with b.capture.within(MOST_RULES):
        (new,) = step.inline(function, (old,))
    chosen = step.op("select", step.op("gt", count, step.broadcast_to(i, count.type.shape)), old, new)
    following = step.op("add", i, step.full(1, "i32", ()))
    held = [b.closed_over(a) for a in arrays]
    regions = [more.build((left,)), step.build((count, following, chosen))]
    return b.run(control.while_, (*held, counts, start, x), regions, body_consts=len(held))[2]


def _axes(x: Value) -> tuple[int, ...]:
    return tuple(range(x.type.rank))


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
