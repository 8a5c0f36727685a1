"""Elementwise ATen operators: arithmetic, rounding, powers, trigonometry, special functions, bits, comparison."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from unigraph.dtypes import DType, bool_
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast

from .helpers import arrange, as_float, full, in_single, operand, promote, result_dtype
from .rowbook import row, rows

aten = torch.ops.aten


# -- one operand -------------------------------------------------------------------------------------


def float_unary(op: str) -> Callable[..., Value]:
    """A function of floats: integers are converted first."""
    return lambda b, x: getattr(b, op)(cast(b, x, as_float(x.type.dtype)))


def same_unary(op: str) -> Callable[..., Value]:
    return lambda b, x: getattr(b, op)(x)


def rounding(op: str) -> Callable[..., Value]:
    """Integers are whole already."""
    return lambda b, x: getattr(b, op)(x) if x.type.dtype.is_float else x


def composed(function: Callable[[Any, Value], Value]) -> Callable[..., Value]:
    """A float function written with others."""
    return in_single(lambda b, x: function(b, cast(b, x, as_float(x.type.dtype))))


def _trunc(b: Any, x: Value) -> Value:
    if not x.type.dtype.is_float:
        return x
    return b.select(b.lt(x, 0.0), b.floor(x), b.ceil(x))


def _frac(b: Any, x: Value) -> Value:
    return b.sub(x, _trunc(b, x))


def _neg(b: Any, x: Value) -> Value:
    return b.neg(x)


def magnitude(b: Any, x: Value) -> Value:
    return x if x.type.dtype.kind in ("uint", "bool") else b.abs(x)


def _sign(b: Any, x: Value) -> Value:
    if x.type.dtype is bool_:
        return x
    if x.type.dtype.is_float:
        # torch gives 0 for NaN.
        return b.select(b.ne(x, x), b.sign(x), full(b, 0.0, x.type))
    return b.sign(x)


def _isinf(b: Any, x: Value) -> Value:
    if not x.type.dtype.is_inexact:
        return full(b, False, x.type.with_(bool_))
    if x.type.dtype.is_complex:
        return b.or_(_isinf(b, b.real(x)), _isinf(b, b.imag(x)))
    return b.eq(b.abs(x), math.inf)


def _isnan(b: Any, x: Value) -> Value:
    return b.ne(x, x) if x.type.dtype.is_inexact else full(b, False, x.type.with_(bool_))


def _isfinite(b: Any, x: Value) -> Value:
    if not x.type.dtype.is_inexact:
        return full(b, True, x.type.with_(bool_))
    if x.type.dtype.is_complex:
        return b.and_(b.is_finite(b.real(x)), b.is_finite(b.imag(x)))
    return b.is_finite(x)


def _signbit(b: Any, x: Value) -> Value:
    if x.type.dtype.is_float:
        bits = b.bitcast(x, dtype=f"i{x.type.dtype.bits}")
        return b.lt(bits, 0)
    if x.type.dtype.kind == "int":
        return b.lt(x, 0)
    return full(b, False, x.type.with_(bool_))


def _logical_not(b: Any, x: Value) -> Value:
    return b.not_(cast(b, x, bool_))


def _nan_to_num(b: Any, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    d = x.type.dtype
    if not d.is_float:
        return x
    biggest = float(torch.finfo(getattr(torch, _TORCH_NAME[d.name])).max)
    x = b.select(b.ne(x, x), x, full(b, 0.0 if nan is None else nan, x.type))
    x = b.select(b.eq(x, math.inf), x, full(b, biggest if posinf is None else posinf, x.type))
    return b.select(b.eq(x, -math.inf), x, full(b, -biggest if neginf is None else neginf, x.type))


_TORCH_NAME = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


def _round(b: Any, x: Value, decimals: int = 0) -> Value:
    if not x.type.dtype.is_float:
        return x
    if not decimals:
        return b.round(x, mode="even")
    # As torch: scale up and divide down, so that the rounding errors are the same.
    scale = float(10 ** abs(decimals))
    up, down = (b.mul, b.div) if decimals > 0 else (b.div, b.mul)
    return down(b.round(up(x, scale), mode="even"), scale)


def _reciprocal(b: Any, x: Value) -> Value:
    return b.div(full(b, 1, x.type), x)


def _angle(b: Any, x: Value) -> Value:
    if x.type.dtype.is_complex:
        return b.atan2(b.imag(x), b.real(x))
    x = cast(b, x, as_float(x.type.dtype))
    answer = b.select(b.lt(x, 0.0), full(b, 0.0, x.type), full(b, math.pi, x.type))
    return b.select(b.ne(x, x), answer, x)


def _sgn(b: Any, x: Value) -> Value:
    return b.sign(x) if x.type.dtype.is_complex else _sign(b, x)


_FLOAT = """
    exp exp2 expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    erf erfc lgamma
""".split()  # noqa: SIM905
rows(
    {
        getattr(aten, name): float_unary(op)
        for name, op in {
            **{n: n for n in _FLOAT},
            "erfinv": "erf_inv",
            "special_i0e": "bessel_i0e",
            "special_i1e": "bessel_i1e",
            "sigmoid": "logistic",
        }.items()
    }
)
rows(
    {
        aten.neg: _neg,
        aten.abs: magnitude,
        aten.sign: _sign,
        aten.sgn: _sgn,
        aten.positive: lambda b, x: x,
        aten.floor: rounding("floor"),
        aten.ceil: rounding("ceil"),
        aten.trunc: _trunc,
        aten.fix: _trunc,
        aten.frac: _frac,
        aten.round: _round,
        aten.square: same_unary("square"),
        aten.reciprocal: lambda b, x: _reciprocal(b, cast(b, x, as_float(x.type.dtype))),
        aten.log2: composed(lambda b, x: b.div(b.log(x), math.log(2.0))),
        aten.log10: composed(lambda b, x: b.div(b.log(x), math.log(10.0))),
        aten.deg2rad: composed(lambda b, x: b.mul(x, math.pi / 180)),
        aten.rad2deg: composed(lambda b, x: b.mul(x, 180 / math.pi)),
        aten.isnan: _isnan,
        aten.isinf: _isinf,
        aten.isfinite: _isfinite,
        aten.isposinf: lambda b, x: b.eq(x, math.inf) if x.type.dtype.is_float else full(b, False, x.type.with_(bool_)),
        aten.isneginf: lambda b, x: (
            b.eq(x, -math.inf) if x.type.dtype.is_float else full(b, False, x.type.with_(bool_))
        ),
        aten.signbit: _signbit,
        aten.logical_not: _logical_not,
        aten.bitwise_not: same_unary("not_"),
        aten.nan_to_num: _nan_to_num,
        aten.angle: _angle,
        aten.real: lambda b, x: b.real(x) if x.type.dtype.is_complex else x,
        aten.imag: lambda b, x: b.imag(x),
        aten.conj: lambda b, x: b.conj(x) if x.type.dtype.is_complex else x,
        aten._conj: lambda b, x: b.conj(x) if x.type.dtype.is_complex else x,
        aten.conj_physical: lambda b, x: b.conj(x) if x.type.dtype.is_complex else x,
        aten._conj_physical: lambda b, x: b.conj(x) if x.type.dtype.is_complex else x,
        aten.resolve_conj: lambda b, x: x,
        aten.resolve_neg: lambda b, x: x,
        aten._neg_view: _neg,
        aten.complex: lambda b, re, im: b.complex(*arrange(b, re, im)),
        aten.polar: lambda b, r, t: _polar(b, *arrange(b, r, t)),
        aten.view_as_real: lambda b, x: _view_as_real(b, x),
        aten.view_as_complex: lambda b, x: _view_as_complex(b, x),
    }
)


def _polar(b: Any, radius: Value, angle: Value) -> Value:
    return b.complex(b.mul(radius, b.cos(angle)), b.mul(radius, b.sin(angle)))


def _view_as_real(b: Any, x: Value) -> Value:
    shape = (*x.type.shape, 1)
    parts = [b.reshape(p, shape=shape) for p in (b.real(x), b.imag(x))]
    return b.concatenate(*parts, axis=x.type.rank)


def _view_as_complex(b: Any, x: Value) -> Value:
    shape = x.type.shape[:-1]
    low = (0,) * (x.type.rank - 1)
    parts = [
        b.reshape(b.slice(x, start=(*low, i), limit=(*shape, i + 1), strides=(1,) * x.type.rank), shape=shape)
        for i in (0, 1)
    ]
    return b.complex(*parts)


# -- two operands ------------------------------------------------------------------------------------


def _alpha(b: Any, y: Any, alpha: Any, dtype: DType) -> Value:
    y = operand(b, y, dtype)
    return y if alpha == 1 else b.mul(y, full(b, alpha, y.type))


def _sum(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
        dtype = result_dtype(x, y)
        return getattr(b, op)(*arrange(b, operand(b, x, dtype), _alpha(b, y, alpha, dtype)))

    single = in_single(apply)
    return lambda b, x, y, alpha=1: apply(b, x, y) if alpha == 1 else single(b, x, y, alpha)


_add, _sub = _sum("add"), _sum("sub")


def _rsub(b: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _sub(b, y, x, alpha)


def binary(op: str) -> Callable[..., Value]:
    """Promote, broadcast, apply."""
    return lambda b, x, y: getattr(b, op)(*arrange(b, x, y))


def float_binary(op: str) -> Callable[..., Value]:
    return lambda b, x, y: getattr(b, op)(*arrange(b, x, y, dtype=as_float(result_dtype(x, y))))


def logical(op: str) -> Callable[..., Value]:
    return lambda b, x, y: getattr(b, op)(*arrange(b, x, y, dtype=bool_))


def floor_div(b: Any, x: Value, y: Value) -> Value:
    """Quotient rounded down, of two arranged values."""
    if x.type.dtype.is_float:
        # As torch: from the remainder, so that the result is right where x / y rounds up.
        r = b.rem(x, y)
        q = b.div(b.sub(x, r), y)
        zero = full(b, 0.0, x.type)
        down = b.and_(b.ne(r, zero), b.ne(b.lt(r, zero), b.lt(y, zero)))
        q = b.select(down, q, b.sub(q, 1.0))
        whole = b.floor(q)
        nearest = b.select(b.gt(b.sub(q, whole), 0.5), whole, b.add(whole, 1.0))
        signed_zero = b.mul(zero, b.div(x, y))
        result = b.select(b.eq(q, zero), nearest, signed_zero)
        return b.select(b.eq(y, zero), result, b.div(x, y))
    q = b.div(x, y)
    if x.type.dtype.kind == "uint":
        return q
    r = b.rem(x, y)
    down = b.and_(b.ne(r, 0), b.ne(b.lt(r, 0), b.lt(y, 0)))
    return b.select(down, q, b.sub(q, 1))


def _floor_divide(b: Any, x: Any, y: Any) -> Value:
    return floor_div(b, *arrange(b, x, y))


def _div(b: Any, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return b.div(*arrange(b, x, y, dtype=as_float(result_dtype(x, y))))
    x, y = arrange(b, x, y)
    if rounding_mode == "floor":
        return floor_div(b, x, y)
    return _trunc(b, b.div(x, y))


def remainder(b: Any, x: Value, y: Value) -> Value:
    """Remainder with the sign of y, of two arranged values."""
    r = b.rem(x, y)
    if x.type.dtype.kind == "uint":
        return r
    wrong = b.and_(b.ne(r, 0), b.ne(b.lt(r, 0), b.lt(y, 0)))
    return b.select(wrong, r, b.add(r, y))


def _pow(b: Any, x: Any, y: Any) -> Value:
    dtype = result_dtype(x, y)
    if isinstance(y, (int, float)) and isinstance(x, Value) and not isinstance(y, bool):
        base = cast(b, x, dtype)
        whole = float(y).is_integer() and abs(y) <= 64
        if y == 2:
            return b.square(base) if dtype is not bool_ else base
        if y == 0.5 and dtype.is_inexact:
            return b.sqrt(base)
        if whole and (y >= 0 or dtype.is_inexact) and (dtype.is_integer or 0 <= abs(y) <= 4):
            return b.integer_pow(base, y=int(y))
    if dtype.is_integer:
        return _integer_power(b, *arrange(b, x, y))
    if dtype is bool_:
        x, y = arrange(b, x, y)
        return b.or_(x, b.not_(y))
    return b.pow(*arrange(b, x, y))


def _integer_power(b: Any, x: Value, y: Value) -> Value:
    """x ** y by squaring; negative exponents give 0 except for 1 and -1."""
    one, zero = full(b, 1, x.type), full(b, 0, x.type)
    result, base = one, x
    for bit in range(x.type.dtype.bits - 1 if x.type.dtype.bits < 64 else 63):
        if bit >= 8:
            break
        odd = b.ne(b.and_(b.shift_right_logical(y, full(b, bit, y.type)), one), zero)
        result = b.select(odd, result, b.mul(result, base))
        base = b.mul(base, base)
    # Exponents of 256 and more overflow every base but -1, 0, 1 (and powers of two wrap to 0).
    if x.type.dtype.kind == "int":
        parity = b.ne(b.and_(y, one), zero)
        minus = b.select(parity, one, b.neg(one))
        unit = b.select(b.eq(x, one), b.select(b.eq(x, b.neg(one)), zero, minus), one)
        result = b.select(b.lt(y, zero), result, unit)
    return result


def _fmax(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Any, y: Any) -> Value:
        x, y = arrange(b, x, y)
        result = getattr(b, op)(x, y)
        if not x.type.dtype.is_float:
            return result
        return b.select(b.ne(x, x), b.select(b.ne(y, y), result, x), y)

    return apply


def _hypot(b: Any, x: Value, y: Value) -> Value:
    x, y = arrange(b, x, y)
    x, y = b.abs(x), b.abs(y)
    big, small = b.max(x, y), b.min(x, y)
    zero = b.eq(big, 0.0)
    ratio = b.div(small, b.select(zero, big, full(b, 1.0, big.type)))
    length = b.mul(big, b.sqrt(b.add(b.square(ratio), 1.0)))
    infinite = b.eq(big, math.inf)
    return b.select(infinite, length, full(b, math.inf, big.type))


def _copysign(b: Any, x: Any, y: Any) -> Value:
    x, y = arrange(b, x, y, dtype=as_float(result_dtype(x, y)))
    size = b.abs(x)
    return b.select(_signbit(b, y), size, b.neg(size))


def _xlogy(log: str) -> Callable[..., Value]:
    def apply(b: Any, x: Any, y: Any) -> Value:
        x, y = arrange(b, x, y, dtype=as_float(result_dtype(x, y)))
        product = b.mul(x, getattr(b, log)(y))
        zero = b.and_(b.eq(x, 0.0), b.eq(y, y))
        return b.select(zero, product, full(b, 0.0, x.type))

    return apply


def _logaddexp(scale: float) -> Callable[..., Value]:
    """log_base(base**x + base**y), with ``scale`` = log(base)."""

    def apply(b: Any, x: Any, y: Any) -> Value:
        x, y = arrange(b, x, y, dtype=as_float(result_dtype(x, y)))
        big = b.max(x, y)
        gap = b.neg(b.abs(b.sub(x, y)))
        part = b.log1p(b.exp(b.mul(gap, scale) if scale != 1 else gap))
        total = b.add(big, b.div(part, scale) if scale != 1 else part)
        same = b.and_(b.eq(x, y), b.eq(b.abs(x), math.inf))
        return b.select(same, total, x)

    return apply


def _ldexp(b: Any, x: Any, y: Any) -> Value:
    dtype = as_float(result_dtype(x, y))
    x, y = arrange(b, x, y, dtype=dtype)
    return b.mul(x, b.exp2(y))


def _shift(left: bool) -> Callable[..., Value]:
    def apply(b: Any, x: Any, y: Any) -> Value:
        x, y = arrange(b, x, y)
        if left:
            return b.shift_left(x, y)
        right = b.shift_right_logical if x.type.dtype.kind == "uint" else b.shift_right_arithmetic
        return right(x, y)

    return apply


rows(
    {
        aten.add: _add,
        aten.sub: _sub,
        aten.subtract: _sub,
        aten.rsub: _rsub,
        aten.mul: binary("mul"),
        aten.multiply: binary("mul"),
        aten.div: _div,
        aten.divide: _div,
        aten.true_divide: _div,
        aten.floor_divide: in_single(_floor_divide),
        aten.remainder: in_single(lambda b, x, y: remainder(b, *arrange(b, x, y))),
        aten.fmod: binary("rem"),
        aten.pow: _pow,
        aten.float_power: lambda b, x, y: b.pow(*arrange(b, x, y, dtype=b.dtype)),
        aten.maximum: binary("max"),
        aten.minimum: binary("min"),
        aten.max.other: binary("max"),
        aten.min.other: binary("min"),
        aten.fmax: _fmax("max"),
        aten.fmin: _fmax("min"),
        aten.atan2: float_binary("atan2"),
        aten.arctan2: float_binary("atan2"),
        aten.hypot: in_single(_hypot),
        aten.nextafter: binary("nextafter"),
        aten.copysign: _copysign,
        aten.ldexp: _ldexp,
        aten.xlogy: in_single(_xlogy("log")),
        aten.special_xlogy: in_single(_xlogy("log")),
        aten.special_xlog1py: in_single(_xlogy("log1p")),
        aten.logaddexp: in_single(_logaddexp(1.0)),
        aten.logaddexp2: in_single(_logaddexp(math.log(2.0))),
        aten.bitwise_and: binary("and_"),
        aten.bitwise_or: binary("or_"),
        aten.bitwise_xor: binary("xor"),
        aten.__and__: binary("and_"),
        aten.__or__: binary("or_"),
        aten.__xor__: binary("xor"),
        aten.bitwise_left_shift: _shift(True),
        aten.bitwise_right_shift: _shift(False),
        aten.__lshift__: _shift(True),
        aten.__rshift__: _shift(False),
        aten.logical_and: logical("and_"),
        aten.logical_or: logical("or_"),
        aten.logical_xor: logical("xor"),
        **{getattr(aten, n): binary(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
        aten.not_equal: binary("ne"),
        aten.greater: binary("gt"),
        aten.greater_equal: binary("ge"),
        aten.less: binary("lt"),
        aten.less_equal: binary("le"),
        aten.heaviside: lambda b, x, y: _heaviside(b, x, y),
    }
)


def _heaviside(b: Any, x: Any, y: Any) -> Value:
    x, y = arrange(b, x, y)
    step = b.convert(b.gt(x, 0), dtype=x.type.dtype)
    step = b.select(b.eq(x, 0), step, y)
    return step


# -- three operands ----------------------------------------------------------------------------------


@row(aten.where)
def _where(b: Any, condition: Value, x: Any = None, y: Any = None) -> Value:
    if x is None:
        raise Unsupported("where with one argument", "use nonzero")
    condition = cast(b, condition, bool_)
    x, y = promote(b, x, y)
    shape = b.shape
    return b.select(broadcast_to(b, condition, shape), broadcast_to(b, y, shape), broadcast_to(b, x, shape))


@row(aten.clamp, aten.clip)
def _clamp(b: Any, x: Value, min: Any = None, max: Any = None) -> Value:
    operands = [o for o in (x, min, max) if o is not None]
    dtype = result_dtype(*operands)
    if dtype is not b.dtype:
        dtype = b.dtype
    x = cast(b, x, dtype)
    if min is not None:
        x = b.max(*arrange(b, x, operand(b, min, dtype)))
    if max is not None:
        x = b.min(*arrange(b, x, operand(b, max, dtype)))
    return x


rows(
    {
        aten.clamp_min: lambda b, x, low: _clamp(b, x, low),
        aten.clamp_max: lambda b, x, high: _clamp(b, x, None, high),
        aten.lerp: in_single(lambda b, x, y, w: _lerp(b, *arrange(b, x, y, w, dtype=b.dtype))),
        aten.addcmul: in_single(lambda b, x, y, z, value=1: _addcmul(b, x, y, z, value)),
        aten.addcdiv: in_single(lambda b, x, y, z, value=1: _addcdiv(b, x, y, z, value)),
        aten.masked_fill: lambda b, x, mask, value: _masked_fill(b, x, mask, value),
    }
)


def _lerp(b: Any, x: Value, y: Value, w: Value) -> Value:
    # As torch: from the nearer end.
    if x.type.dtype.is_complex:
        return b.add(x, b.mul(w, b.sub(y, x)))
    near = b.lt(b.abs(w), 0.5)
    gap = b.sub(y, x)
    return b.select(near, b.sub(y, b.mul(gap, b.sub(full(b, 1.0, w.type), w))), b.add(x, b.mul(w, gap)))


def _addcmul(b: Any, x: Value, y: Value, z: Value, value: Any) -> Value:
    x, y, z = arrange(b, x, y, z)
    y = y if value == 1 else b.mul(y, full(b, value, y.type))
    return b.add(x, b.mul(y, z))


def _addcdiv(b: Any, x: Value, y: Value, z: Value, value: Any) -> Value:
    x, y, z = arrange(b, x, y, z)
    y = y if value == 1 else b.mul(y, full(b, value, y.type))
    return b.add(x, b.div(y, z))


def _masked_fill(b: Any, x: Value, mask: Value, value: Any) -> Value:
    dtype, shape = x.type.dtype, b.shape
    value = operand(b, value, dtype)
    return b.select(
        broadcast_to(b, cast(b, mask, bool_), shape), broadcast_to(b, x, shape), broadcast_to(b, value, shape)
    )


# -- types -------------------------------------------------------------------------------------------


def _to(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return cast(b, x, b.dtype)


rows(
    {
        aten.to: _to,
        aten._to_copy: _to,
        aten.type_as: lambda b, x, other: cast(b, x, other.type.dtype),
        torch.ops.prims.convert_element_type: lambda b, x, dtype: cast(b, x, dtype),
        aten.view.dtype: lambda b, x, dtype: _view_dtype(b, x, dtype),
        **{
            packet: (lambda b, x, *a, **k: x)
            for packet in (
                aten.clone,
                aten.alias,
                aten.contiguous,
                aten.detach,
                aten.detach_.default,
                aten.detach_copy,
                aten.lift_fresh_copy,
                aten.lift_fresh,
                aten.lift,
                aten.alias_copy,
                torch.ops.prims.device_put,
            )
        },
    }
)


def _view_dtype(b: Any, x: Value, dtype: DType) -> Value:
    old, new = x.type.dtype.bits, dtype.bits
    if bool_ in (x.type.dtype, dtype) and old == new and x.type.dtype is not dtype:
        return b.ne(x, 0) if dtype is bool_ else cast(b, x, dtype)
    if new > old:
        ratio = new // old
        shape = x.type.shape
        return b.bitcast(b.reshape(x, shape=(*shape[:-1], shape[-1] // ratio, ratio)), dtype=dtype)
    result = b.bitcast(x, dtype=dtype)
    return result if new == old else b.reshape(result, shape=b.shape)
