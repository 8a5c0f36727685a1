"""Composites that ONNX has as operators; where an operator does not fit, the decomposition is written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dtypes import DType, bool_, f32, f64, i32, u8
from unigraph.evaluate import Row
from unigraph.opdef import OpDef, registry

from .dtypes import SINCE
from .emitter import Emitter
from .export_contract import conv
from .export_elementwise import convert, number
from .handles import Array

SINGLE = ("f32", "f16", "bf16")


def fast(*names: str) -> Callable[[Callable[..., Any]], Row]:
    """A row for operands of these dtypes; it may decline by returning None, and the decomposition runs."""

    def make(row: Callable[..., Any]) -> Row:
        def guarded(o: Emitter, *xs: Any, **attrs: Any) -> Any:
            result = row(o, *xs, **attrs) if xs[0].dtype.name in names else None
            return o.decompose(xs) if result is None else result

        return guarded

    return make


def pointwise(op_type: str, **options: Any) -> Row:
    """An operator for floats up to f32, from the opset on that has it."""

    @fast(*SINGLE)
    def row(o: Emitter, x: Array) -> Array | None:
        return o.emit(op_type, (x,), **options) if o.opset >= SINCE.get(op_type, 0) else None

    return row


def scaled(op_type: str, attribute: str, given: str) -> Row:
    """An operator with one number that the op has under another name."""

    @fast(*SINGLE)
    def row(o: Emitter, x: Array, **attrs: Any) -> Array:
        return o.emit(op_type, (x,), **{attribute: attrs[given]})

    return row


@fast(*SINGLE, "f64", "i8", "i32")
def _relu(o: Emitter, x: Array) -> Array:
    return o.Relu(x)


@fast(*SINGLE)
def _gelu(o: Emitter, x: Array, approximate: str) -> Array | None:
    if o.opset >= SINCE["Gelu"]:
        return o.Gelu(x, approximate=approximate)
    if approximate != "none":
        return None
    y = o.cast(x, f32)
    return o.cast(o.Mul(o.Mul(y, 0.5), o.Add(o.Erf(o.Mul(y, math.sqrt(0.5))), 1.0)), x.dtype)


@fast(*SINGLE)
def _softplus(o: Emitter, x: Array, beta: float, threshold: float) -> Array | None:
    return o.Softplus(x) if beta == 1.0 and threshold >= 20.0 else None


@fast(*SINGLE)
def _hardsigmoid(o: Emitter, x: Array, alpha: float, beta: float) -> Array:
    return o.HardSigmoid(x, alpha=alpha, beta=beta)


def along_axis(op_type: str, *more: str) -> Row:
    @fast(*SINGLE, *more)
    def row(o: Emitter, x: Array, axis: int) -> Array | None:
        return o.emit(op_type, (x,), axis=axis % x.rank) if 0 not in x.shape else None

    return row


# -- normalisation -------------------------------------------------------------------------------


def _ones(o: Emitter, given: Array | None, value: int, shape: Sequence[Any], kind: DType) -> Array | None:
    """A parameter, or the constant that stands for its absence; None where its size is not known."""
    if given is not None:
        return o.cast(given, kind)
    if not all(type(n) is int for n in shape):
        return None
    return o.const(np.full(tuple(shape), value), kind)


def wide_dtype(kind: DType) -> DType:
    return f32 if kind.bits < 32 else kind


@fast(*SINGLE, "f64")
def _layer_norm(
    o: Emitter, x: Array, weight: Any = None, bias: Any = None, *, normalized_rank: int, epsilon: float
) -> Any:
    kind = wide_dtype(x.dtype)
    scale = _ones(o, weight, 1, x.shape[x.rank - normalized_rank :], kind)
    if scale is None or 0 in x.shape or x.dtype is f64:
        return None
    bias = None if bias is None else o.cast(bias, kind)
    y = o.LayerNormalization(o.cast(x, kind), scale, bias, axis=-normalized_rank, epsilon=epsilon)
    return o.cast(y, x.dtype)


@fast(*SINGLE)
def _rms_norm(o: Emitter, x: Array, weight: Any = None, *, normalized_rank: int, epsilon: float) -> Any:
    scale = _ones(o, weight, 1, x.shape[x.rank - normalized_rank :], f32)
    if scale is None or 0 in x.shape or o.opset < SINCE["RMSNormalization"]:
        return None
    y = o.RMSNormalization(o.cast(x, f32), scale, axis=-normalized_rank, epsilon=epsilon)
    return o.cast(y, x.dtype)


def _channelled(op_type: str) -> Row:
    @fast(*SINGLE)
    def row(o: Emitter, x: Array, weight: Any = None, bias: Any = None, **attrs: Any) -> Any:
        scale, shift = (_ones(o, p, v, x.shape[1:2], f32) for p, v in ((weight, 1), (bias, 0)))
        if scale is None or shift is None or x.rank < 3 or 0 in x.shape or o.opset < SINCE.get(op_type, 0):
            return None
        return o.cast(o.emit(op_type, (o.cast(x, f32), scale, shift), **attrs), x.dtype)

    return row


@fast(*SINGLE, "f64")
def _batch_norm(
    o: Emitter,
    x: Array,
    mean: Array,
    variance: Array,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int,
    epsilon: float,
) -> Any:
    kind = wide_dtype(x.dtype)
    scale, shift = (_ones(o, p, v, x.shape[1:2], kind) for p, v in ((weight, 1), (bias, 0)))
    if axis % x.rank != 1 or scale is None or shift is None or 0 in x.shape or kind is f64:
        return None
    inputs = (o.cast(x, kind), scale, shift, o.cast(mean, kind), o.cast(variance, kind))
    return o.cast(o.BatchNormalization(*inputs, epsilon=epsilon), x.dtype)


# -- contractions --------------------------------------------------------------------------------


@fast("f32", "f64")
def _linear(o: Emitter, x: Array, weight: Array, bias: Any = None) -> Any:
    if x.rank != 2 or weight.rank != 2 or 0 in (*x.shape, *weight.shape):
        return None
    return o.Gemm(x, weight, bias, transB=1, shape=(x.shape[0], weight.shape[0]))


@fast("f32", "f16", "bf16", "f64")
def _conv(
    o: Emitter,
    x: Array,
    w: Array,
    bias: Any = None,
    *,
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    if bias is not None and x.dtype.bits < 32:
        return None  # the bias is added after rounding
    out = conv(o, x, w, strides, low, high, (1,) * len(strides), dilation, groups, x.dtype, bias)
    return convert(o, out, x.dtype)


@fast("f32")
def _conv_transpose(
    o: Emitter,
    x: Array,
    w: Array,
    bias: Any = None,
    *,
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Any:
    space = x.rank - 2
    odd = any(p >= s for p, s in zip(output_padding, strides))  # ONNX Runtime refuses it, whatever the dilation
    if not 1 <= space <= 3 or odd or any(n < 0 for n in (*low, *high)) or 0 in (*x.shape, *w.shape):
        return None
    options = {"strides": strides, "dilations": dilation, "pads": (*low, *high), "output_padding": output_padding}
    sizes = [
        (n - 1) * s - lo - hi + d * (k - 1) + extra + 1
        for n, s, lo, hi, d, k, extra in zip(x.shape[2:], strides, low, high, dilation, w.shape[2:], output_padding)
    ]
    if any(type(n) is int and n <= 0 for n in sizes):
        return None
    shape = (x.shape[0], w.shape[1] * groups, *sizes)
    return o.ConvTranspose(x, w, bias, group=groups, shape=shape, **{k: list(v) for k, v in options.items()})


@fast(*SINGLE, "f64")
def _attention(
    o: Emitter, q: Array, k: Array, v: Array, mask: Any = None, *, scale: float | None, is_causal: bool
) -> Any:
    """Scores, mask, softmax, sum: as the decomposition, with Softmax as one operator."""
    types = [t.type.shape for t in o.operation.inputs]
    if any(type(n) is int and n == 0 for n in (*q.shape, *k.shape, *v.shape)) or type(q.shape[-1]) is not int:
        return None
    kind = wide_dtype(q.dtype)
    q2, k2, v2 = (o.cast(x, kind) for x in (q, k, v))
    *lead, rows, size = q.shape
    keys = k.shape[-2]
    q2 = o.Mul(q2, scale if scale is not None else size**-0.5)
    sharing = 1 if q.rank == 2 or dims.equal(types[0][-3], types[1][-3]) else lead[-1] // k.shape[-3]
    if sharing > 1:  # a key head serves `sharing` neighbouring query heads
        q2 = o.reshape(q2, (*lead[:-1], k.shape[-3], sharing, rows, size))
        k2, v2 = o.unsqueeze(k2, [k.rank - 2]), o.unsqueeze(v2, [v.rank - 2])
    swap = [*range(k2.rank - 2), k2.rank - 1, k2.rank - 2]
    scores = o.MatMul(q2, o.transpose(k2, swap), shape=(*q2.shape[:-1], keys))
    grouped = scores.shape
    if sharing > 1:
        scores = o.reshape(scores, (*lead, rows, keys))
    full = scores.shape
    never = number(o, -np.inf, kind)
    if is_causal:
        seen = o.GreaterOrEqual(o.unsqueeze(o.iota(rows), [1]), o.unsqueeze(o.iota(keys), [0]))
        scores = o.Where(seen, scores, never)
    if mask is not None:
        scores = o.Where(mask, scores, never) if mask.dtype is bool_ else o.Add(scores, o.cast(mask, kind))
    scores = Array(o, scores.name, kind, full)
    weights = o.Softmax(scores, axis=scores.rank - 1)
    if mask is not None:  # a row in which nothing is attended to gives zeros, not NaN
        top = o.reduce("ReduceMax", scores, [scores.rank - 1], keepdims=True)
        weights = o.Where(o.Equal(top, -np.inf), number(o, 0, kind), weights)
        weights = Array(o, weights.name, kind, full)
    if sharing > 1:
        weights = o.reshape(weights, grouped)
    result = o.MatMul(weights, v2, shape=(*weights.shape[:-1], v.shape[-1]))
    if sharing > 1:
        result = o.reshape(result, (*lead, rows, v.shape[-1]))
    return o.cast(result, q.dtype)


# -- pools, triangles, quantisation ----------------------------------------------------------------


def _pool_fits(x: Array, kernel: Sequence[int], low: Sequence[int], high: Sequence[int]) -> bool:
    space = x.rank - 2
    inside = all(0 <= p < k for p, k in zip((*low, *high), (*kernel, *kernel)))
    return 1 <= space <= 3 and inside and all(type(n) is not int or n > 0 for n in x.shape)


def _pooled(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    sizes = [
        (n + lo + hi - ((k - 1) * d + 1)) // s + 1
        for n, k, s, lo, hi, d in zip(x.shape[2:], kernel, strides, low, high, dilation)
    ]
    return None if any(type(n) is int and n <= 0 for n in sizes) else (*x.shape[:2], *sizes)


@fast("f32", "f64")
def _max_pool(
    o: Emitter,
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    shape = _pooled(x, kernel, strides, low, high, dilation)
    if shape is None or not _pool_fits(x, kernel, low, high):
        return None
    options = {
        "kernel_shape": list(kernel),
        "strides": list(strides),
        "pads": [*low, *high],
        "dilations": list(dilation),
    }
    largest = o.MaxPool(x, shape=shape, **options)
    # The runtime's pool drops NaN; a pool of what is NaN puts it back.
    met = o.MaxPool(o.cast(o.IsNaN(x), x.dtype), shape=shape, **options)
    return o.Where(o.Greater(met, 0), number(o, np.nan, x.dtype), largest)


@fast("f32")
def _avg_pool(
    o: Emitter,
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    count_include_pad: bool,
    divisor: int | None,
    ceil_extra: Sequence[int] | None,
) -> Any:
    shape = _pooled(x, kernel, strides, low, high, (1,) * len(kernel))
    if shape is None or divisor is not None or any(ceil_extra or ()) or not _pool_fits(x, kernel, low, high):
        return None
    return o.AveragePool(
        x, kernel_shape=list(kernel), strides=list(strides), pads=[*low, *high],
        count_include_pad=int(count_include_pad), shape=shape,
    )  # fmt: skip


def triangle(upper: int) -> Row:
    @fast("f32", "f64", "i32", "i64", "bool", "f16")
    def row(o: Emitter, x: Array, diagonal: int) -> Any:
        if x.rank < 2 or 0 in x.shape:
            return None
        return o.Trilu(x, o.const(np.asarray(diagonal, np.int64)), upper=upper)

    return row


@fast("i8", "u8", "i32")
def _dequantize(o: Emitter, q: Array, scale: Array, zero_point: Array, axis: int | None, dtype: DType) -> Any:
    if dtype is not f32 or scale.dtype is not f32 or zero_point.dtype is not q.dtype:
        return None
    if q.dtype is i32 and not (zero_point.value is not None and not zero_point.value.any()):
        return None
    return o.DequantizeLinear(q, scale, zero_point, axis=axis, dtype=f32, shape=q.shape)


@fast("f32")
def _quantized_linear(o: Emitter, x: Array, weight: Array, scale: Array, bias: Any = None) -> Any:
    """In the form that ONNX Runtime joins into one kernel."""
    if 0 in (*x.shape, *weight.shape):
        return None
    q, step, zero = o.DynamicQuantizeLinear(x, outputs=3, dtype=[u8, f32, u8], shapes=[x.shape, (), ()])
    out = (*x.shape[:-1], weight.shape[0])
    total = o.MatMulInteger(q, o.transpose(weight, (1, 0)), zero, dtype=i32, shape=out)
    y = o.Mul(o.cast(total, f32), o.Mul(step, scale, shape=scale.shape), shape=out)
    return y if bias is None else o.Add(y, bias, shape=out)


def _named(name: str) -> OpDef:
    return registry()[name]


ROWS: dict[OpDef, Row] = {
    _named(name): row
    for name, row in {
        "relu": _relu,
        "gelu": _gelu,
        "hardswish": pointwise("HardSwish"),
        "mish": pointwise("Mish"),
        "softsign": pointwise("Softsign"),
        "softplus": _softplus,
        "hardsigmoid": _hardsigmoid,
        "leaky_relu": scaled("LeakyRelu", "alpha", "negative_slope"),
        "elu": scaled("Elu", "alpha", "alpha"),
        "selu": pointwise("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805),
        "softmax": along_axis("Softmax", "f64"),
        "log_softmax": along_axis("LogSoftmax"),
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "group_norm": _channelled("GroupNormalization"),
        "instance_norm": _channelled("InstanceNormalization"),
        "batch_norm": _batch_norm,
        "linear": _linear,
        "conv": _conv,
        "conv_transpose": _conv_transpose,
        "attention": _attention,
        "max_pool": _max_pool,
        "avg_pool": _avg_pool,
        "tril": triangle(0),
        "triu": triangle(1),
        "dequantize": _dequantize,
        "quantized_linear": _quantized_linear,
    }.items()
}
