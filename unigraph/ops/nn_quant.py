"""Affine quantisation: real number = (quantised number - zero point) * scale (Jacob et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes

from .. import dims
from ..dims import Dim
from ..dtypes import DType, f32, f64, i8, i32
from ..opdef import Attr, require
from .composite import op
from .idioms import GraphBuilder, Value, along, axis_of, cast, float_required

AXIS = Attr("int", None, "the axis along which scale and zero point lie; None: they are scalars")


def _spread(b: GraphBuilder, name: str, v: Value, shape: Sequence[Dim], axis: int | None) -> Value:
    """A scale or zero point repeated to ``shape``."""
    if axis is None:
        require(
            v.type.rank == 0, f"{name}_scale", f"scale and zero point must be scalars without an axis, got {v.type}"
        )
        return along(b, v, shape, ())
    axis = axis_of(name, axis, len(shape))
    fits = v.type.rank == 1 and dims.compatible(v.type.shape[0], shape[axis])
    require(fits, f"{name}_scale", f"scale and zero point need one entry for each of axis {axis}, got {v.type}")
    return along(b, v, shape, (axis,))


def _quantised(name: str, dtype: DType) -> None:
    small = dtype.is_integer or (dtype.is_float and dtype.bits <= 8)
    require(small, f"{name}_dtype", f"a quantised dtype is an integer or a float of 8 or 4 bits, not {dtype}")


def _limits(dtype: DType) -> tuple[float, float]:
    if dtype.is_integer:
        info = ml_dtypes.iinfo(dtype.numpy)
        return float(info.min), float(info.max)
    limits = ml_dtypes.finfo(dtype.numpy)
    return float(limits.min), float(limits.max)


@op(axis=AXIS, dtype=Attr("dtype", doc="the quantised dtype"))
def quantize(b: GraphBuilder, x: Value, scale: Value, zero_point: Value, *, axis: int | None, dtype: DType) -> Value:
    """round(x / scale) + zero_point, halves to even, clamped to the range of an integer dtype; NaN gives
    0. For a dtype of 8-bit or 4-bit floats x / scale is only clamped and rounded to it. scale and
    zero_point are scalars, or vectors along an axis; zero_point has any integer dtype, or the result's.
    """
    float_required("quantize", x, scale)
    _quantised("quantize", dtype)
    kind = f64 if x.type.dtype is f64 else f32
    shape = x.type.shape
    y = b.div(cast(b, x, kind), _spread(b, "quantize", cast(b, scale, kind), shape, axis))
    if dtype.is_integer:
        y = b.round(y, mode="even")
    y = b.add(y, _spread(b, "quantize", cast(b, zero_point, kind), shape, axis))
    low, high = _limits(dtype)
    if dtype.bits < 32:  # wider limits are no f32 numbers; convert saturates there
        y = b.min(b.max(y, low), high)
    return b.convert(y, dtype=dtype)


@op(axis=AXIS, dtype=Attr("dtype", f32, "dtype of the result"))
def dequantize(b: GraphBuilder, q: Value, scale: Value, zero_point: Value, *, axis: int | None, dtype: DType) -> Value:
    """(q - zero_point) * scale, subtracted in i32 and multiplied in f32 (f64 for a result of f64)."""
    float_required("dequantize", scale)
    _quantised("dequantize", q.type.dtype)
    require(dtype.is_float, "dequantize_result", f"the result is a float, not {dtype}")
    kind = f64 if dtype is f64 else f32
    exact = i32 if q.type.dtype.is_integer else kind
    shape = q.type.shape
    y = b.sub(cast(b, q, exact), _spread(b, "dequantize", cast(b, zero_point, exact), shape, axis))
    y = b.mul(cast(b, y, kind), _spread(b, "dequantize", cast(b, scale, kind), shape, axis))
    return cast(b, y, dtype)


@op()
def quantized_linear(b: GraphBuilder, x: Value, weight: Value, scale: Value, bias: Value | None = None) -> Value:
    """A linear layer in whole numbers: x[..., in] is quantised to 8 bits as it comes, over its own range
    (which is made to hold 0), weight i8[out, in] has a scale f32[out] for each row; the product is added up
    in i32 and scaled back to f32. x of zeros only counts as having scale 1.

    The quantisation is that of ONNX's DynamicQuantizeLinear; every finite f32 is rounded to one of 256
    levels, so results are within about 1 % of the range of those of `linear`.
    """
    require(x.type.dtype is f32 and x.type.rank >= 1, "quantized_linear_x", f"x must be f32[..., in], got {x.type}")
    fits = weight.type.dtype is i8 and weight.type.rank == 2
    require(
        fits and dims.compatible(weight.type.shape[1], x.type.shape[-1]),
        "quantized_linear_weight",
        f"weight must be i8[out, in] for {x.type}, got {weight.type}",
    )
    for name, v in (("scale", scale), ("bias", bias)):
        fits = v is None or (v.type.dtype is f32 and v.type.rank == 1)
        fits = fits and (v is None or dims.compatible(v.type.shape[0], weight.type.shape[0]))
        require(fits, f"quantized_linear_{name}", f"{name} must be f32[out], got {v and v.type}")
    axes = tuple(range(x.type.rank))
    low, high = b.min(b.reduce_min(x, axes=axes), 0.0), b.max(b.reduce_max(x, axes=axes), 0.0)
    step = b.div(b.sub(high, low), 255.0)
    step = b.select(b.eq(step, 0.0), step, b.constant(1.0, f32))
    zero = b.clip(b.round(b.neg(b.div(low, step)), mode="even"), low=0.0, high=255.0)
    shape = x.type.shape
    q = b.add(b.round(b.div(x, along(b, step, shape, ())), mode="even"), along(b, zero, shape, ()))
    # Moved down by 128, so that both factors are signed.
    q = b.convert(b.sub(b.clip(q, low=0.0, high=255.0), 128.0), dtype=i8)
    last = x.type.rank - 1
    total = b.dot_general(q, weight, lhs_contracting=(last,), rhs_contracting=(1,), out_dtype=i32)
    rows = b.reduce_sum(b.convert(weight, dtype=i32), axes=(1,))
    shift = b.mul(rows, along(b, b.convert(b.sub(zero, 128.0), dtype=i32), rows.type.shape, ()))
    total = b.sub(total, along(b, shift, total.type.shape, (last,)))
    factor = b.mul(scale, along(b, step, scale.type.shape, ()))
    y = b.mul(b.convert(total, dtype=f32), along(b, factor, total.type.shape, (last,)))
    return y if bias is None else b.add(y, along(b, bias, y.type.shape, (last,)))
