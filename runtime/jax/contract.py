"""Contractions: dot products and convolutions, at full precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax import lax

from unigraph.dtypes import DType
from unigraph.opdef import OpDef
from unigraph.ops import contract as c

from .dtypes import to_jax

# Accelerators would otherwise multiply f32 in a shorter format.
_PRECISION = lax.Precision.HIGHEST


def _numpy(dtype: DType | None) -> Any:
    return None if dtype is None else to_jax(dtype)


def _dot_general(
    x: Any,
    y: Any,
    lhs_contracting: Any,
    rhs_contracting: Any,
    lhs_batch: Any = (),
    rhs_batch: Any = (),
    out_dtype: DType | None = None,
) -> Any:
    numbers = ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))
    return lax.dot_general(x, y, numbers, precision=_PRECISION, preferred_element_type=_numpy(out_dtype))


def _conv_general(
    x: Any,
    w: Any,
    strides: Any,
    low: Any,
    high: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    lhs_spec: Any,
    rhs_spec: Any,
    out_spec: Any,
    groups: int = 1,
    batch_groups: int = 1,
    out_dtype: DType | None = None,
) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        strides,
        tuple(zip(low, high, strict=True)),
        lhs_dilation,
        rhs_dilation,
        lax.ConvDimensionNumbers(lhs_spec, rhs_spec, out_spec),
        feature_group_count=groups,
        batch_group_count=batch_groups,
        precision=_PRECISION,
        preferred_element_type=_numpy(out_dtype),
    )


def _ragged_dot(x: Any, w: Any, group_sizes: Any, out_dtype: DType | None = None) -> Any:
    return lax.ragged_dot(x, w, group_sizes, precision=_PRECISION, preferred_element_type=_numpy(out_dtype))


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    c.dot_general: _dot_general,
    c.conv_general: _conv_general,
    c.ragged_dot: _ragged_dot,
}
