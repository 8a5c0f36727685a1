"""Gather, scatter and nonzero rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from unigraph.dtypes import i64
from unigraph.errors import EngineError
from unigraph.opdef import OpDef
from unigraph.ops import index as i

from .dtypes import to_jax

_MODES = {
    "clip": lax.GatherScatterMode.CLIP,
    "fill": lax.GatherScatterMode.FILL_OR_DROP,
    "promise": lax.GatherScatterMode.PROMISE_IN_BOUNDS,
}
_SCATTERS = {
    "replace": lax.scatter,
    "add": lax.scatter_add,
    "sub": lax.scatter_sub,
    "mul": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}


def _gather(
    x: Any,
    indices: Any,
    offset_dims: Any,
    collapsed_slice_dims: Any,
    start_index_map: Any,
    slice_sizes: Any,
    operand_batching_dims: Any = (),
    start_indices_batching_dims: Any = (),
    mode: str = "clip",
    fill_value: Any = None,
) -> Any:
    numbers = lax.GatherDimensionNumbers(
        offset_dims, collapsed_slice_dims, start_index_map, operand_batching_dims, start_indices_batching_dims
    )
    return lax.gather(x, indices, numbers, slice_sizes, mode=_MODES[mode], fill_value=fill_value)


def _scatter(
    x: Any,
    indices: Any,
    updates: Any,
    combiner: str,
    update_window_dims: Any,
    inserted_window_dims: Any,
    scatter_dims_to_operand_dims: Any,
    operand_batching_dims: Any = (),
    scatter_indices_batching_dims: Any = (),
    mode: str = "fill",
    unique_indices: bool = False,
) -> Any:
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims,
        inserted_window_dims,
        scatter_dims_to_operand_dims,
        operand_batching_dims,
        scatter_indices_batching_dims,
    )
    scatter: Any = _SCATTERS[combiner]
    if x.dtype == jnp.bool_ and combiner != "replace":
        # On bool add is `or`, which is max of bytes, and mul is `and`, which is min.
        scatter = lax.scatter_max if combiner in ("add", "max") else lax.scatter_min
        bytes_ = scatter(
            x.astype(jnp.uint8),
            indices,
            updates.astype(jnp.uint8),
            numbers,
            unique_indices=unique_indices,
            mode=_MODES[mode],
        )
        return bytes_ != 0
    return scatter(x, indices, updates, numbers, unique_indices=unique_indices, mode=_MODES[mode])


def _nonzero(x: Any, symbol: str) -> Any:
    if isinstance(x, jax.core.Tracer):
        raise EngineError(
            f"nonzero has a size ({symbol}) that depends on the data, which JAX cannot trace: "
            "run this graph outside jax.jit, or on the numpy or torch engine"
        )
    # NumPy, because XLA takes subnormal numbers for zero.
    return jnp.asarray(np.argwhere(np.asarray(x)), to_jax(i64))


def _sized(sizes: Any, symbols: tuple[str, ...]) -> Any:
    if symbols and isinstance(sizes, jax.core.Tracer):
        raise EngineError(
            f"sized makes sizes ({', '.join(symbols)}) of data, which JAX cannot trace: "
            "run this graph outside jax.jit, or on the numpy or torch engine"
        )
    return jnp.zeros(tuple(int(n) for n in sizes) if symbols else (), bool)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    i.gather: _gather,
    i.scatter: _scatter,
    i.nonzero: _nonzero,
    i.sized: _sized,
}
