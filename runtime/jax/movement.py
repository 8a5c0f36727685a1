"""Rows that move elements without computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from unigraph.dtypes import DType
from unigraph.opdef import OpDef
from unigraph.ops import movement as m

from .dtypes import to_jax


def _pad(x: Any, value: Any, low: Any, high: Any, interior: Any = None) -> Any:
    return lax.pad(x, value, tuple(zip(low, high, interior or (0,) * x.ndim, strict=True)))


def _dynamic_slice(x: Any, *starts: Any, sizes: Any) -> Any:
    return lax.dynamic_slice(x, _same_integers(starts), sizes, allow_negative_indices=False)


def _dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(x, update, _same_integers(starts), allow_negative_indices=False)


def _same_integers(starts: tuple[Any, ...]) -> list[Any]:
    """lax wants one dtype for all starts; clamping happens in the widest signed one given."""
    if len({s.dtype for s in starts}) <= 1:
        return list(starts)
    wide = jnp.result_type(*starts)
    return [lax.convert_element_type(s, wide) for s in starts]


def _iota(dtype: DType, shape: Any, axis: int) -> Any:
    if dtype.kind == "bool":
        return lax.broadcasted_iota(jnp.int32, shape, axis) != 0
    return lax.broadcasted_iota(to_jax(dtype), shape, axis)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    m.broadcast_in_dim: lax.broadcast_in_dim,
    m.reshape: lambda x, shape: lax.reshape(x, shape),
    m.transpose: lax.transpose,
    m.reverse: lax.rev,
    m.slice: lambda x, start, limit, strides=None: lax.slice(x, start, limit, strides),
    m.dynamic_slice: _dynamic_slice,
    m.dynamic_update_slice: _dynamic_update_slice,
    m.pad: _pad,
    m.concatenate: lambda *xs, axis: lax.concatenate(xs, axis),
    m.iota: _iota,
    m.dim_size: lambda dim, dtype: jnp.asarray(dim, to_jax(dtype)),
}
