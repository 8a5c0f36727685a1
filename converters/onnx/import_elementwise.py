"""ONNX elementwise nodes: NumPy broadcasting (since opset 7), attributes turned into inputs over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_shapes, cast

from .dtypes import FROM_ONNX
from .node import Node, RowBook

rows = RowBook()


def broadcast(n: Node, *values: Value) -> list[Value]:
    """The values repeated to their common shape."""
    shape = broadcast_shapes(n.op_type.lower(), *(v.type.shape for v in values))
    return [to_shape(n, v, shape) for v in values]


def to_shape(n: Node, x: Value, shape: tuple[Any, ...]) -> Value:
    """``x`` repeated to ``shape`` as NumPy does."""
    if x.type.shape == tuple(shape):
        return x
    where = tuple(range(len(shape) - x.type.rank, len(shape)))
    return n.b.broadcast_in_dim(x, shape=shape, broadcast_dimensions=where)


def operands(n: Node) -> list[Value]:
    """Both inputs in one shape; before opset 7 by the attributes ``broadcast`` and ``axis``."""
    values = n.values()
    if n.opset >= 7 or len(values) != 2:
        return broadcast(n, *values)
    x, y = values
    if not n.attr("broadcast", 0):
        return [x, y]
    axis = n.attr("axis", x.type.rank - y.type.rank) % max(x.type.rank, 1)
    where = tuple(range(axis, axis + y.type.rank))
    return [x, n.b.broadcast_in_dim(y, shape=x.type.shape, broadcast_dimensions=where)]


def unary(op: str) -> Callable[[Node], Value]:
    return lambda n: getattr(n.b, op)(n.value(0))


def binary(op: str) -> Callable[[Node], Value]:
    return lambda n: getattr(n.b, op)(*operands(n))


def variadic(op: str) -> Callable[[Node], Value]:
    def row(n: Node) -> Value:
        first, *rest = broadcast(n, *n.values())
        for x in rest:
            first = getattr(n.b, op)(first, x)
        return first

    return row


def with_attrs(op: str, **names: tuple[str, float]) -> Callable[[Node], Value]:
    """A unary op whose attributes are ONNX attributes with these names and defaults."""
    return lambda n: getattr(n.b, op)(n.value(0), **{k: float(n.attr(a, d)) for k, (a, d) in names.items()})


_UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Ceil": "ceil", "Floor": "floor", "Exp": "exp", "Log": "log",
    "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Not": "not_", "BitwiseNot": "not_", "Sigmoid": "logistic", "Relu": "relu", "Softplus": "softplus",
    "Softsign": "softsign", "Mish": "mish", "HardSwish": "hardswish", "Round": "round",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and_", "Or": "or_", "Xor": "xor",
    "BitwiseAnd": "and_",
    "BitwiseOr": "or_", "BitwiseXor": "xor", "Equal": "eq", "Less": "lt", "Greater": "gt", "LessOrEqual": "le",
    "GreaterOrEqual": "ge",
}  # fmt: skip
for _name, _op in _UNARY.items():
    rows.add(_name, unary(_op))
for _name, _op in _BINARY.items():
    rows.add(_name, binary(_op))
for _name, _op in {"Max": "max", "Min": "min", "Sum": "add"}.items():
    rows.add(_name, variadic(_op))

rows.add("Elu", with_attrs("elu", alpha=("alpha", 1.0)))
rows.add("Celu", with_attrs("celu", alpha=("alpha", 1.0)))
rows.add("LeakyRelu", with_attrs("leaky_relu", negative_slope=("alpha", 0.01)))
rows.add("HardSigmoid", with_attrs("hardsigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)))


@rows("Mean")
def mean(n: Node) -> Value:
    total = variadic("add")(n)
    return n.b.div(total, float(len(n.inputs)))


@rows("Reciprocal")
def reciprocal(n: Node) -> Value:
    return n.b.div(1.0, n.value(0))


@rows("Pow")
def power(n: Node) -> Value:
    """The result has the dtype of the base; integers compute in f64."""
    x, y = operands(n)
    kind = x.type.dtype
    if kind.is_integer or (y.type.dtype.is_float and y.type.dtype.bits > kind.bits):
        return cast(n.b, n.b.pow(cast(n.b, x, _F64), cast(n.b, y, _F64)), kind)
    return n.b.pow(x, cast(n.b, y, kind))


_F64: DType = FROM_ONNX[11]


@rows("Mod")
def modulo(n: Node) -> Value:
    """fmod=1: sign of the dividend; fmod=0: sign of the divisor."""
    x, y = operands(n)
    r = n.b.rem(x, y)
    if n.attr("fmod", 0) or x.type.dtype.kind == "uint":
        return r
    wrong = n.b.and_(n.b.ne(r, 0), n.b.ne(n.b.lt(r, 0), n.b.lt(y, 0)))
    return n.b.select(wrong, r, n.b.add(r, y))


@rows("BitShift")
def shift(n: Node) -> Value:
    """The right shift of a signed number keeps its sign; too far a shift leaves what the sign leaves."""
    x, y = operands(n)
    if n.attr("direction") == "LEFT":
        return n.b.shift_left(x, y)
    return (n.b.shift_right_arithmetic if x.type.dtype.kind == "int" else n.b.shift_right_logical)(x, y)


@rows("IsNaN")
def is_nan(n: Node) -> Value:
    return n.b.ne(n.value(0), n.value(0))


@rows("IsInf")
def is_inf(n: Node) -> Value:
    x = n.value(0)
    found = n.b.full(False, "bool", x.type.shape)
    for name, sign in (("detect_positive", 1.0), ("detect_negative", -1.0)):
        if n.attr(name, 1):
            found = n.b.or_(found, n.b.eq(x, sign * float("inf")))
    return found


@rows("Where")
def where(n: Node) -> Value:
    which, x, y = broadcast(n, *n.values())
    return n.b.select(which, y, x)


@rows("PRelu")
def prelu(n: Node) -> Value:
    x, slope = n.values()
    if n.opset < 7 and slope.type.rank == 1 and x.type.rank > 1 and slope.type.shape[0] != 1:
        slope = n.b.reshape(slope, shape=(*slope.type.shape, *(1,) * (x.type.rank - 2)))
    slope = to_shape(n, slope, x.type.shape)
    return n.b.select(n.b.lt(x, 0.0), x, n.b.mul(x, slope))


@rows("Clip")
def clip(n: Node) -> Value:
    return _bounded(n, n.attr("min", None), n.attr("max", None))


def _bounded(n: Node, low: Any, high: Any) -> Value:
    x = n.value(0)
    x = x if low is None else n.b.max(x, low)
    return x if high is None else n.b.min(x, high)


@rows("Clip", since=11)
def clip_inputs(n: Node) -> Value:
    x = n.value(0)
    for i, op in ((1, n.b.max), (2, n.b.min)):
        if n.has(i):
            x = op(x, to_shape(n, n.b.reshape(n.value(i), shape=()), x.type.shape))
    return x


@rows("Selu")
def selu(n: Node) -> Value:
    alpha, gamma = n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232421875)
    x = n.value(0)
    return n.b.mul(n.b.select(n.b.gt(x, 0.0), n.b.mul(n.b.expm1(x), alpha), x), gamma)


@rows("ThresholdedRelu")
def thresholded_relu(n: Node) -> Value:
    x = n.value(0)
    return n.b.select(n.b.gt(x, float(n.attr("alpha", 1.0))), n.b.full_like(x, 0.0), x)


@rows("Shrink")
def shrink(n: Node) -> Value:
    x, bias, lambd = n.value(0), n.attr("bias", 0.0), n.attr("lambd", 0.5)
    kind = x.type.dtype
    wide = cast(n.b, x, FROM_ONNX[1]) if kind.is_integer else x
    zero = n.b.full_like(wide, 0.0)
    low = n.b.select(n.b.lt(wide, -lambd), zero, n.b.add(wide, bias))
    return cast(n.b, n.b.select(n.b.gt(wide, lambd), low, n.b.sub(wide, bias)), kind)


@rows("Gelu")
def gelu(n: Node) -> Value:
    return n.b.gelu(n.value(0), approximate=n.attr("approximate", "none"))


@rows("Swish")
def swish(n: Node) -> Value:
    x = n.value(0)
    return n.b.mul(x, n.b.logistic(n.b.mul(x, float(n.attr("alpha", 1.0)))))


# Opsets 1 to 5 name the target dtype in words.
_CAST_NAMES = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10,
    "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip


@rows("Cast")
def to_dtype(n: Node) -> Value:
    to = n.attr("to")
    kind = FROM_ONNX.get(_CAST_NAMES.get(to, to))
    if kind is None:
        raise Unsupported("casts to or from strings have no numeric meaning")
    return _cast(n, kind)


@rows("CastLike")
def cast_like(n: Node) -> Value:
    return _cast(n, n.value(1).type.dtype)


def _cast(n: Node, kind: DType) -> Value:
    """To 8-bit floats values out of range saturate (unless saturate=0); to 4-bit integers floats wrap."""
    x = n.value(0)
    if kind is x.type.dtype:
        return x
    if kind.name == "f8e8m0fnu":
        return _to_power_of_two(n, x, kind)
    if kind.is_float and kind.bits <= 8 and n.attr("saturate", 1):
        limits = ml_dtypes.finfo(kind.numpy)
        wide = x if x.type.dtype.is_float and x.type.dtype.bits >= 16 else cast(n.b, x, FROM_ONNX[1])
        return n.b.convert(n.b.min(n.b.max(wide, float(limits.min)), float(limits.max)), dtype=kind)
    if kind.is_integer and kind.bits < 8 and x.type.dtype.is_float:
        return n.b.convert(n.b.convert(x, dtype="i32"), dtype=kind)
    return n.b.convert(x, dtype=kind)


def _to_power_of_two(n: Node, x: Value, kind: DType) -> Value:
    """The exponent of an f32 as f8e8m0, rounded by ``round_mode``; sign and fraction are lost."""
    bits = n.b.bitcast(cast(n.b, x, FROM_ONNX[1]), dtype="i32")
    exponent = n.b.and_(n.b.shift_right_logical(bits, 23), 255)
    fraction = n.b.and_(bits, 0x7FFFFF)
    mode = n.attr("round_mode", "up")
    if mode == "up":
        more = n.b.gt(fraction, 0)
    elif mode == "nearest":
        more = n.b.or_(n.b.gt(fraction, 0x400000), n.b.and_(n.b.eq(fraction, 0x400000), n.b.gt(exponent, 0)))
    else:
        more = n.b.full(False, "bool", x.type.shape)
    top = 254 if n.attr("saturate", 1) else 255
    more = n.b.and_(more, n.b.lt(exponent, top))
    whole = n.b.add(exponent, n.b.convert(more, dtype="i32"))
    return n.b.bitcast(n.b.convert(whole, dtype="u8"), dtype=kind)


@rows("BitCast")
def bit_cast(n: Node) -> Value:
    """The same bits as another type; a bool is a byte."""
    x, kind = n.value(0), FROM_ONNX[n.attr("to")]
    x = n.b.convert(x, dtype="u8") if x.type.dtype.kind == "bool" else x
    if kind.kind == "bool":
        return n.b.ne(n.b.bitcast(x, dtype="u8") if x.type.dtype.name != "u8" else x, 0)
    return x if x.type.dtype is kind else n.b.bitcast(x, dtype=kind)


@rows("CumSum", "CumProd")
def cumulative(n: Node) -> Value:
    """``exclusive`` leaves out the element itself."""
    x = n.value(0)
    axis = int(n.scalar(1)) % x.type.rank
    reverse = bool(n.attr("reverse", 0))
    product = n.op_type == "CumProd"
    total = (n.b.cumprod if product else n.b.cumsum)(x, axis=axis, reverse=reverse)
    if not n.attr("exclusive", 0):
        return total
    start = n.b.constant(np.asarray(int(product)).astype(x.type.dtype.numpy))
    edge = [0] * x.type.rank
    edge[axis] = 1
    crop = [-e for e in edge]
    low, high = (crop, edge) if reverse else (edge, crop)
    return n.b.pad(total, start, low=tuple(low), high=tuple(high))
