"""Elementwise rows on NumPy: mostly ufuncs; each exception says what NumPy does differently.

Floats shorter than 32 bits compute in f32 and round once (as XLA does on CPU); integers shorter
than a byte compute in i32 and wrap.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from unigraph.dtypes import DType, dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

Array = Any  # np.ndarray, whose stubs do not know ml_dtypes


def quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` without NumPy's floating-point warnings: NaN and infinity are results like any other."""

    @functools.wraps(f)
    def silent(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)

    return silent


def wide(f: Callable[..., Any]) -> Row:
    """``f`` computed in a dtype that NumPy handles well, and cast back to the operands' dtype."""

    @functools.wraps(f)
    def row(*args: Array, **attrs: Any) -> Array:
        kind = dtype(args[0].dtype)
        with np.errstate(all="ignore"):
            if kind.is_float and kind.bits < 32:
                return f(*(a.astype(np.float32) for a in args), **attrs).astype(kind.numpy)
            if kind.is_integer and kind.bits < 8:
                return wrap_integer(np.asarray(f(*(a.astype(np.int32) for a in args), **attrs)), kind)
            return np.asarray(f(*args, **attrs), dtype=kind.numpy)

    return row


def wrap_integer(x: Array, kind: DType) -> Array:
    """Integers reduced to the bits of a type shorter than a byte."""
    span = 1 << kind.bits
    low = x & (span - 1)
    if kind.kind == "int":
        low = np.where(low >= span // 2, low - span, low)
    return low.astype(np.int8 if kind.kind == "int" else np.uint8).astype(kind.numpy)


def compare(f: Callable[..., Any], beyond: Callable[..., Any] | None = None) -> Row:
    """A comparison; complex numbers compare by real part, then by imaginary part."""

    def row(x: Array, y: Array) -> Array:
        if x.dtype.kind == "c" and beyond is not None:
            return np.where(x.real == y.real, f(x.imag, y.imag), beyond(x.real, y.real))
        kind = dtype(x.dtype)
        if kind.is_float and kind.bits < 32:
            x, y = x.astype(np.float32), y.astype(np.float32)
        elif kind.is_integer and kind.bits < 8:
            x, y = x.astype(np.int32), y.astype(np.int32)
        with np.errstate(all="ignore"):
            return np.asarray(f(x, y))

    return row


# -- arithmetic ----------------------------------------------------------------------------------


def _div(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    # C division: toward zero; x / 0 is all bits set (-1 or the largest), min / -1 wraps to min.
    zero = y == 0
    y = np.where(zero, np.ones_like(y), y)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // y).astype(x.dtype)
    flip = y == -1
    quotient = np.floor_divide(x, np.where(flip, np.ones_like(y), y))
    inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & ~flip
    quotient = np.where(flip, np.negative(x), quotient + inexact.astype(x.dtype))
    return np.where(zero, np.full_like(x, -1), quotient)


def _rem(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    zero = y == 0
    safe = np.where(zero | ((y == -1) if x.dtype.kind == "i" else False), np.ones_like(y), y)
    return np.where(zero, x, np.fmod(x, safe))


def _max(x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(_total_complex(x, y, np.greater), x, y)
    if x.dtype.kind != "f":
        return np.maximum(x, y)
    # NumPy may return either zero; the record says +0.0 wins.
    return np.where((x == y) & np.signbit(x), y, np.maximum(x, y))


def _min(x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(_total_complex(x, y, np.less), x, y)
    if x.dtype.kind != "f":
        return np.minimum(x, y)
    return np.where((x == y) & np.signbit(x), x, np.minimum(x, y))


def _total_complex(x: Array, y: Array, beyond: Callable[..., Any]) -> Array:
    """Lexicographic comparison in which NaN beats everything."""
    nan = np.isnan(x)
    return nan | (~np.isnan(y) & np.where(x.real == y.real, beyond(x.imag, y.imag), beyond(x.real, y.real)))


def _sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        size = np.abs(x)
        return np.where(size == 0, np.zeros_like(x), x / np.where(size == 0, 1, size).astype(size.dtype))
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.sign(x))
    return np.sign(x)


def _abs(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.abs(x)
    kind = dtype(x.dtype)
    return x.copy() if kind.kind == "uint" else _wide_abs(x)


_wide_abs = wide(np.abs)


def _integer_pow(x: Array, y: int) -> Array:
    """Binary exponentiation, the order of multiplications XLA uses."""
    if y == 0:
        return np.ones_like(x)
    result, base, power = None, x, abs(y)
    while power:
        if power & 1:
            result = base if result is None else result * base
        power >>= 1
        if power:
            base = base * base
    assert result is not None
    return np.asarray(1, x.dtype) / result if y < 0 else result


def _nextafter(x: Array, y: Array) -> Array:
    kind = dtype(x.dtype)
    if kind.bits >= 32 or kind.name == "f16":
        return np.nextafter(x, y)
    # Step the integer behind the float: up in magnitude away from zero, down toward it.
    unsigned = np.uint16 if kind.bits == 16 else np.uint8
    signed = np.int16 if kind.bits == 16 else np.int8
    sign = unsigned(1 << (kind.bits - 1))
    bits = x.view(unsigned)
    fx, fy = x.astype(np.float32), y.astype(np.float32)
    grow = (fx > 0) == (fy > fx)
    stepped = (bits.view(signed) + np.where(grow, 1, -1).astype(signed)).view(unsigned)
    tiny = np.where(fy > 0, unsigned(1), sign | unsigned(1))
    bits = np.where(fx == 0, tiny, stepped).astype(unsigned)
    result = bits.view(x.dtype)
    nan = np.isnan(fx) | np.isnan(fy)
    return np.where(nan, np.asarray(np.nan, x.dtype), np.where(fx == fy, y, result))


# -- rounding ------------------------------------------------------------------------------------


def _round(x: Array, mode: str) -> Array:
    if mode == "even":
        return np.rint(x)
    whole = np.trunc(x)
    return np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0), x)


def _reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round the mantissa (half to even) in the integer behind the float, then clip the exponent."""
    kind = dtype(x.dtype)
    if kind.bits < 32:
        return _reduce_precision(x.astype(np.float32), exponent_bits, mantissa_bits).astype(x.dtype)
    unsigned, mantissa, exponent = (np.uint32, 23, 8) if kind.bits == 32 else (np.uint64, 52, 11)
    one = unsigned(1)
    bits = x.view(unsigned)
    drop = mantissa - mantissa_bits
    if drop > 0:
        last = (bits >> unsigned(drop)) & one
        bits = bits + (unsigned((1 << (drop - 1)) - 1) + last)
        bits = bits & ~unsigned((1 << drop) - 1)
    if exponent_bits < exponent:
        sign = bits & unsigned(1 << (kind.bits - 1))
        field = (bits >> unsigned(mantissa)) & unsigned((1 << exponent) - 1)
        bias, small = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = unsigned(((1 << exponent) - 1) << mantissa)
        bits = np.where(field > unsigned(bias + small), sign | infinity, bits)
        bits = np.where(field <= unsigned(bias - small), sign, bits)
    return np.where(np.isnan(x), x, bits.view(x.dtype))


# -- exponentials --------------------------------------------------------------------------------


def _logistic(x: Array) -> Array:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    z = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + z), z / (1 + z))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _atan2(x: Array, y: Array) -> Array:
    if x.dtype.kind == "c":
        return -1j * np.log((y + 1j * x) / np.sqrt(x * x + y * y))
    return np.arctan2(x, y)


# -- bits ----------------------------------------------------------------------------------------


def _shift(left: bool, arithmetic: bool = False) -> Row:
    def row(x: Array, y: Array) -> Array:
        kind = dtype(x.dtype)
        width = kind.bits
        out = (y.astype(np.int64) < 0) | (y.astype(np.int64) >= width) if kind.name != "u64" else y >= 64
        if width < 8:
            amount = np.where(out, 0, y.astype(np.int32))
            wide_x = x.astype(np.int32)
            if not left and not arithmetic:
                wide_x = wide_x & ((1 << width) - 1)
            if arithmetic:
                amount = np.where(out, width - 1, amount)
                wide_x = np.where(wide_x >= 1 << (width - 1), wide_x - (1 << width), wide_x)
            shifted = wide_x << amount if left else wide_x >> amount
            return wrap_integer(np.where(out & (not arithmetic), 0, shifted), kind)
        amount = np.where(out, np.zeros_like(y), y)
        signed, unsigned = np.dtype(f"i{x.dtype.itemsize}"), np.dtype(f"u{x.dtype.itemsize}")
        if arithmetic:
            amount = np.where(out, np.full_like(y, width - 1), amount)
            return np.right_shift(x.view(signed), amount.view(signed)).view(x.dtype)
        ufunc = np.left_shift if left else np.right_shift
        shifted = ufunc(x.view(unsigned), amount.view(unsigned)).view(x.dtype)
        return np.where(out, np.zeros_like(x), shifted)

    return row


def _bits_of(x: Array) -> tuple[Array, int]:
    """The bits as an unsigned integer of at least a byte, and the width."""
    kind = dtype(x.dtype)
    if kind.bits < 8:
        return (x.astype(np.int32) & ((1 << kind.bits) - 1)).astype(np.uint8), kind.bits
    return x.view(np.dtype(f"u{x.dtype.itemsize}")), kind.bits


def _population_count(x: Array) -> Array:
    return np.bitwise_count(_bits_of(x)[0]).astype(x.dtype)


def _clz(x: Array) -> Array:
    bits, width = _bits_of(x)
    shift = 1
    while shift < width:  # smear the highest bit downwards, then count
        bits = bits | (bits >> bits.dtype.type(shift))
        shift *= 2
    return (width - np.bitwise_count(bits).astype(np.int32)).astype(x.dtype)


def _mulhi(x: Array, y: Array) -> Array:
    kind = dtype(x.dtype)
    if kind.bits < 64:
        product = x.astype(np.int64 if kind.kind == "int" else np.uint64) * y.astype(
            np.int64 if kind.kind == "int" else np.uint64
        )
        high = product >> product.dtype.type(kind.bits)
        return wrap_integer(high.astype(np.int32), kind) if kind.bits < 8 else high.astype(x.dtype)
    # 64 x 64 bits by halves, as unsigned; signed operands correct the high half afterwards.
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b = x.view(np.uint64), y.view(np.uint64)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    middle = a1 * b0 + ((a0 * b0) >> half)
    carry = (a0 * b1 + (middle & mask)) >> half
    high = a1 * b1 + (middle >> half) + carry
    if kind.kind == "int":
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return high.view(x.dtype)


# -- comparison, choice, types -------------------------------------------------------------------


def _total_order(x: Array) -> Array:
    """Integers that sort as floats do in IEEE 754 total order."""
    signed = np.dtype(f"i{x.dtype.itemsize}")
    bits = x.view(signed)
    return np.where(bits < 0, np.iinfo(signed).min - bits - 1, bits)


def _select(which: Array, *cases: Array) -> Array:
    if len(cases) == 1:
        return cases[0].copy()
    if which.dtype == np.bool_:
        return np.where(which, cases[1], cases[0])
    index = np.clip(which, 0, len(cases) - 1)
    if index.ndim == 0:
        return cases[int(index)].copy()
    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = np.where(index == number, case, result)
    return result


def _clamp(low: Array, x: Array, high: Array) -> Array:
    return _MIN(_MAX(x, np.broadcast_to(low, x.shape)), np.broadcast_to(high, x.shape))


_MAX, _MIN = wide(_max), wide(_min)


@quiet
def convert(x: Array, dtype: DType) -> Array:
    """``x`` in another dtype, as the record of ``convert`` says."""
    source, target = _dtype(x.dtype), dtype
    if source is target:
        return x
    if target.name == "bool":
        return np.asarray(x != np.zeros((), x.dtype))
    if source.is_complex and not target.is_complex:
        return convert(x.real, target)
    if source.bits < 8 or (source.is_float and source.bits < 16):
        x = x.astype(np.float32 if source.is_float else np.int32)
    if target.is_integer:
        if source.is_float:
            return _float_to_int(x, target)
        return wrap_integer(x.astype(np.int64), target) if target.bits < 8 else x.astype(target.numpy)
    if target.is_float and target.bits < 16 and x.dtype != np.float32:
        return x.astype(np.float64).astype(target.numpy)
    return x.astype(target.numpy)


_dtype = dtype


def _float_to_int(x: Array, target: DType) -> Array:
    signed = target.kind == "int"
    low = -(1 << (target.bits - 1)) if signed else 0
    high = (1 << (target.bits - (1 if signed else 0))) - 1
    x = np.trunc(x.astype(np.float64))
    safe = np.where(np.isnan(x), 0.0, x)
    # float(high) may round up to high + 1, which is out of range: saturate before converting.
    inside = (safe >= float(low)) & (safe < float(high + 1))
    whole = np.where(inside, safe, 0.0)
    wide_type = np.uint64 if not signed else np.int64
    result = np.where(inside, whole.astype(wide_type), np.where(safe < 0, wide_type(low), wide_type(high)))
    return wrap_integer(result.astype(np.int64), target) if target.bits < 8 else result.astype(target.numpy)


def bitcast(x: Array, dtype: DType) -> Array:
    """The same bits as another dtype; types shorter than a byte are unpacked and packed."""
    source, target = _dtype(x.dtype), dtype
    x = np.ascontiguousarray(x).reshape(x.shape)  # a scalar stays a scalar
    if source.bits == target.bits:
        return x.view(target.numpy)
    if source.bits >= 8 and target.bits >= 8:
        if source.bits > target.bits:
            return x[..., None].view(target.numpy)
        return x.view(target.numpy)[..., 0]
    if source.bits > target.bits:
        bits, _ = _bits_of(x)
        count = source.bits // target.bits
        shifts = (np.arange(count) * target.bits).astype(bits.dtype)
        parts = (bits[..., None] >> shifts) & bits.dtype.type((1 << target.bits) - 1)
        return _short(parts.astype(np.uint8), target)
    bits, _ = _bits_of(x)
    whole = np.zeros(x.shape[:-1], np.dtype(f"u{target.bits // 8}") if target.bits >= 8 else np.uint8)
    for i in range(x.shape[-1]):
        whole |= bits[..., i].astype(whole.dtype) << whole.dtype.type(i * source.bits)
    return whole.view(target.numpy) if target.bits >= 8 else _short(whole, target)


def _short(bits: Array, target: DType) -> Array:
    return bits.view(target.numpy) if target.is_float else wrap_integer(bits.astype(np.int32), target)


def _complex(re: Array, im: Array) -> Array:
    result = np.empty(re.shape, np.complex64 if re.dtype == np.float32 else np.complex128)
    result.real, result.imag = re, im
    return result


def _named(name: str) -> OpDef:
    return getattr(e, name)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": _rsqrt, "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logistic": _logistic,
    "ceil": np.ceil, "floor": np.floor, "round": _round, "neg": np.negative, "sign": _sign,
    "square": np.square, "integer_pow": _integer_pow, "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "div": _div, "rem": _rem, "max": _max, "min": _min, "pow": np.power, "atan2": _atan2,
    "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor, "not_": np.bitwise_not,
}  # fmt: skip

_COMPARE: dict[str, Row] = {
    "eq": compare(np.equal),
    "ne": compare(np.not_equal),
    "lt": compare(np.less, np.less),
    "le": compare(np.less_equal, np.less),
    "gt": compare(np.greater, np.greater),
    "ge": compare(np.greater_equal, np.greater),
    "eq_to": lambda x, y: np.asarray(_total_order(x) == _total_order(y)),
    "lt_to": lambda x, y: np.asarray(_total_order(x) < _total_order(y)),
    "le_to": lambda x, y: np.asarray(_total_order(x) <= _total_order(y)),
}

ROWS: dict[OpDef, Row] = {
    **{_named(name): wide(f) for name, f in _UFUNCS.items()},
    **{_named(name): f for name, f in _COMPARE.items()},
    e.abs: quiet(_abs),
    e.nextafter: quiet(_nextafter),
    e.is_finite: lambda x: np.isfinite(x.astype(np.float32) if _dtype(x.dtype).bits < 16 else x),
    e.reduce_precision: _reduce_precision,
    e.shift_left: _shift(left=True),
    e.shift_right_logical: _shift(left=False),
    e.shift_right_arithmetic: _shift(left=False, arithmetic=True),
    e.population_count: _population_count,
    e.clz: _clz,
    e.mulhi: _mulhi,
    e.select: _select,
    e.clamp: _clamp,
    e.convert: convert,
    e.bitcast: bitcast,
    e.complex_: _complex,
    e.real: lambda x: x.real.copy(),
    e.imag: lambda x: x.imag.copy(),
    e.conj: np.conj,
    e.copy: np.copy,
    e.optimization_barrier: lambda *xs: xs,
    e.stop_gradient: lambda x: x,
}
