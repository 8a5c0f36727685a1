"""ONNX quantisation: linear quantisation per tensor, axis and block, and products of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes

from unigraph import dims
from unigraph.dtypes import DType, dtype, f32, f64, i32
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, cut, reshape

from .dtypes import FROM_ONNX
from .import_elementwise import to_shape
from .import_nn import conv_attributes
from .node import Node, RowBook

rows = RowBook()


def saturated(n: Node, x: Value, kind: DType) -> Value:
    """``x`` clamped to the finite range of a short float or integer, then converted; NaN stays."""
    limits = (ml_dtypes.iinfo if kind.is_integer else ml_dtypes.finfo)(kind.numpy)
    return n.b.convert(n.b.min(n.b.max(x, float(limits.min)), float(limits.max)), dtype=kind)


@rows("QuantizeLinear")
def quantize_linear(n: Node) -> Value:
    x, scale = n.value(0), n.value(1)
    kind = FROM_ONNX[n.attr("output_dtype")] if n.attr("output_dtype", 0) else dtype("u8")
    kind = n.value(2).type.dtype if n.has(2) else kind
    precision = FROM_ONNX[n.attr("precision")] if n.attr("precision", 0) else scale.type.dtype
    x, scale = cast(n.b, x, precision), cast(n.b, scale, precision)
    axis, fitted = _granularity(n, scale, x)
    plain = axis != BLOCKS and (kind.is_integer or n.attr("saturate", 1))
    if plain:
        zero = _granularity(n, n.value(2), x)[1] if n.has(2) else n.b.full(0, kind, fitted.type.shape)
        return n.b.quantize(x, fitted, zero, axis=axis, dtype=kind)
    wide = f64 if precision is f64 else f32
    y = n.b.div(cast(n.b, x, wide), cast(n.b, _spread(n, scale, x), wide))
    if kind.is_integer:
        y = n.b.round(y, mode="even")
    if n.has(2):
        y = n.b.add(y, cast(n.b, _spread(n, n.value(2), x), wide))
    return saturated(n, y, kind) if kind.is_integer or n.attr("saturate", 1) else n.b.convert(y, dtype=kind)


@rows("DequantizeLinear")
def dequantize_linear(n: Node) -> Value:
    q, scale = n.value(0), n.value(1)
    out = FROM_ONNX[n.attr("output_dtype")] if n.attr("output_dtype", 0) else scale.type.dtype
    axis, fitted = _granularity(n, scale, q)
    if axis != BLOCKS:
        zero = _granularity(n, n.value(2), q)[1] if n.has(2) else n.b.full(0, q.type.dtype, fitted.type.shape)
        return n.b.dequantize(q, fitted, zero, axis=axis, dtype=out)
    wide = f64 if out is f64 else f32
    y = cast(n.b, q, wide)
    if n.has(2):
        y = n.b.sub(y, cast(n.b, _spread(n, n.value(2), q), wide))
    return cast(n.b, n.b.mul(y, cast(n.b, _spread(n, scale, q), wide)), out)


BLOCKS = -1  # instead of an axis: scales belong to blocks


def _granularity(n: Node, scale: Value, x: Value) -> tuple[int | None, Value]:
    """The axis along which scales lie (None: one for all), and the scales as the composite takes them."""
    if scale.type.rank == 0:
        return None, scale
    axis = n.axis("axis", 1, x.type.rank) if x.type.rank > 1 else 0
    if scale.type.rank == 1 and not n.attr("block_size", 0):
        if scale.type.shape[0] == 1 and not (x.type.rank > 1 and x.type.shape[axis] == 1):
            return None, reshape(n.b, scale, ())
        return axis, scale
    return BLOCKS, scale


def _spread(n: Node, scale: Value, x: Value) -> Value:
    """Scales repeated to the shape of ``x``; blocks run along ``axis``."""
    axis, fitted = _granularity(n, scale, x)
    if axis is None:
        return along(n.b, fitted, x.type.shape, ())
    if axis != BLOCKS:
        return along(n.b, fitted, x.type.shape, (axis,))
    axis = n.axis("axis", 1, x.type.rank)
    size, block = x.type.shape[axis], n.attr("block_size", 0)
    if not block:
        raise Unsupported(f"{n.op_type} with scales of rank {scale.type.rank} and no block_size")
    wide = n.b.repeat(scale, repeats=block, axis=axis)
    return wide if dims.equal(wide.type.shape[axis], size) else cut(n.b, wide, axis, 0, size)


# -- products ----------------------------------------------------------------------------------------


def _centred(n: Node, i: int, zero: int, kind: DType, rows_of: bool = False) -> Value:
    """Input ``i`` less its zero point, in ``kind``; a vector of zero points lies along rows or the last axis."""
    x = cast(n.b, n.value(i), kind)
    if not n.has(zero):
        return x
    return n.b.sub(x, _fit(n, cast(n.b, n.value(zero), kind), x.type.shape, rows_of))


def _fit(n: Node, v: Value, shape: Sequence[dims.Dim], rows_of: bool) -> Value:
    if v.type.rank == 1 and v.type.shape[0] == 1:
        v = reshape(n.b, v, ())
    if rows_of and v.type.rank == 1:
        v = reshape(n.b, v, (*v.type.shape, 1))
    return to_shape(n, v, tuple(shape))


@rows("MatMulInteger")
def matmul_integer(n: Node) -> Value:
    return n.b.matmul(_centred(n, 0, 2, i32, rows_of=True), _centred(n, 1, 3, i32))


@rows("QLinearMatMul")
def qlinear_matmul(n: Node) -> Value:
    product = n.b.matmul(_centred(n, 0, 2, i32, rows_of=True), _centred(n, 3, 5, i32))
    shape = product.type.shape
    scale = n.b.mul(_fit(n, cast(n.b, n.value(1), f32), shape, True), _fit(n, cast(n.b, n.value(4), f32), shape, False))
    out = _fit(n, cast(n.b, n.value(6), f32), shape, True)
    y = n.b.mul(cast(n.b, product, f32), n.b.div(scale, out))
    zero = n.value(7)
    shifted = n.b.add(n.b.round(y, mode="even"), _fit(n, cast(n.b, zero, f32), shape, True))
    return saturated(n, shifted, zero.type.dtype)


def _integer_conv(n: Node, x: Value, w: Value) -> Value:
    """A convolution of whole numbers, in f64, which holds the sums exactly."""
    return n.b.conv(x, w, **conv_attributes(n, x, w))


def _channels(n: Node, v: Value, w: Value, axis: int) -> Value:
    """One number, or one for each output channel, in the shape of ``w``."""
    if v.type.rank == 0 or v.type.shape[0] == 1:
        return along(n.b, reshape(n.b, v, ()), w.type.shape, ())
    return along(n.b, v, w.type.shape, (axis,))


@rows("ConvInteger")
def conv_integer(n: Node) -> Value:
    x, w = _centred(n, 0, 2, f64), cast(n.b, n.value(1), f64)
    if n.has(3):
        w = n.b.sub(w, _channels(n, cast(n.b, n.value(3), f64), w, 0))
    return n.b.convert(_integer_conv(n, x, w), dtype="i32")


@rows("QLinearConv")
def qlinear_conv(n: Node) -> Value:
    x, w = _centred(n, 0, 2, f64), cast(n.b, n.value(3), f64)
    w = n.b.sub(w, _channels(n, cast(n.b, n.value(5), f64), w, 0))
    y = _integer_conv(n, x, w)
    if n.has(8):
        y = n.b.add(y, along(n.b, cast(n.b, n.value(8), f64), y.type.shape, (1,)))
    scales = [_channels(n, cast(n.b, n.value(i), f32), y, 1) for i in (1, 4, 6)]
    factor = n.b.div(n.b.mul(scales[0], scales[1]), scales[2])
    zero = n.value(7)
    whole = n.b.round(n.b.mul(cast(n.b, y, f32), factor), mode="even")
    return saturated(n, n.b.add(whole, _channels(n, cast(n.b, zero, f32), y, 1)), zero.type.dtype)


@rows("DynamicQuantizeLinear")
def dynamic_quantize(n: Node) -> tuple[Value, Value, Value]:
    x = n.value(0)
    axes = tuple(range(x.type.rank))
    low = n.b.min(n.b.reduce_min(x, axes=axes), 0.0)
    high = n.b.max(n.b.reduce_max(x, axes=axes), 0.0)
    scale = n.b.div(n.b.sub(high, low), 255.0)
    zero = n.b.convert(n.b.round(n.b.clip(n.b.neg(n.b.div(low, scale)), low=0.0, high=255.0)), dtype="u8")
    return n.b.quantize(x, scale, zero, axis=None, dtype="u8"), scale, zero
