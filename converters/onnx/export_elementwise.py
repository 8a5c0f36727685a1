"""Elementwise rows of the ONNX export: one operator where ONNX has it, a few where its edges differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unigraph import dtypes
from unigraph.dtypes import DType, bool_, f32, f64, i32, i64, u32, u64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

from .dtypes import TO_ONNX
from .emitter import Emitter
from .handles import Array


def direct(op_type: str, **attrs: Any) -> Row:
    """The row of an op that is one ONNX operator."""
    return lambda o, *xs: o.emit(op_type, xs, **attrs)


def on_bool(plain: str, logical: str) -> Row:
    """An operator for numbers and another one for bools."""
    return lambda o, *xs: o.emit(logical if xs[0].dtype is bool_ else plain, xs)


def wide(f: Callable[..., Array], short: DType | None = None) -> Row:
    """``f`` computed in f64 (or ``short`` for dtypes that fit into it) and rounded once."""

    def row(o: Emitter, *xs: Array, **attrs: Any) -> Array:
        kind = short if short is not None and xs[0].dtype.bits <= short.bits else f64
        return o.cast(f(o, *(o.cast(x, kind) for x in xs), **attrs), xs[0].dtype)

    return row


def unsigned(kind: DType) -> DType:
    """The unsigned integer of the same width."""
    return dtypes.dtype(f"u{kind.bits}")


def whole_bytes(kind: DType, what: str) -> None:
    if kind.bits < 8:
        raise Unsupported(f"{what} of {kind} has no ONNX operators", "convert to a wider integer")


def number(o: Emitter, value: Any, kind: DType) -> Array:
    return o.const(np.asarray(value).astype(kind.numpy), kind)


# -- arithmetic ----------------------------------------------------------------------------------


def _plain_divisor(y: Array) -> bool:
    """True for a constant divisor that is neither 0 nor -1."""
    return y.uniform is not None and int(y.uniform) not in (0, -1)


def quotient(o: Emitter, x: Array, y: Array) -> tuple[Array, Array]:
    """x div y toward zero with a divisor made safe (1 for 0 and -1), and that divisor."""
    if _plain_divisor(y):
        return o.Div(x, y), y
    trap = o.Equal(y, 0)
    if x.dtype.kind == "int":
        trap = o.Or(trap, o.Equal(y, -1))
    safe = o.Where(trap, number(o, 1, y.dtype), y)
    return o.Div(x, safe), safe


def div(o: Emitter, x: Array, y: Array) -> Array:
    if not x.dtype.is_integer:
        return o.Div(x, y)
    result, _ = quotient(o, x, y)
    if _plain_divisor(y):
        return result
    if x.dtype.kind == "int":
        result = o.Where(o.Equal(y, -1), neg(o, x), result)
        return o.Where(o.Equal(y, 0), number(o, -1, x.dtype), result)
    return o.Where(o.Equal(y, 0), number(o, (1 << x.dtype.bits) - 1, x.dtype), result)


def rem(o: Emitter, x: Array, y: Array) -> Array:
    if not x.dtype.is_integer:
        return o.Mod(x, y, fmod=1)
    result, safe = quotient(o, x, y)
    result = o.Sub(x, o.Mul(result, safe))
    return result if _plain_divisor(y) else o.Where(o.Equal(y, 0), x, result)


def neg(o: Emitter, x: Array) -> Array:
    return o.Sub(number(o, 0, x.dtype), x) if x.dtype.kind == "uint" else o.Neg(x)


def _sign(o: Emitter, x: Array) -> Array:
    if not x.dtype.is_float:
        return o.Sign(x)
    return o.Where(o.Or(o.IsNaN(x), o.Equal(x, 0)), x, o.Sign(x))  # keeps NaN and -0.0


def integer_pow(o: Emitter, x: Array, y: int) -> Array:
    """Binary exponentiation."""
    if y == 0:
        return o.full(1, x.dtype, x.shape)
    result: Array | None = None
    base, power = x, abs(y)
    while power:
        if power & 1:
            result = base if result is None else o.Mul(result, base)
        power >>= 1
        if power:
            base = o.Mul(base, base)
    assert result is not None
    return o.Reciprocal(result) if y < 0 else result


def sign_bit(o: Emitter, x: Array) -> Array:
    """True for negative numbers and -0.0 (not for NaN)."""
    return o.Or(o.Less(x, 0), o.And(o.Equal(x, 0), o.Less(o.Reciprocal(x), 0)))


def _atan2(o: Emitter, y: Array, x: Array) -> Array:
    size_x, size_y = o.Abs(x), o.Abs(y)
    steep = o.Greater(size_y, size_x)
    low, high = o.Where(steep, size_x, size_y), o.Where(steep, size_y, size_x)
    same = o.Equal(low, high)  # 0/0 and inf/inf among them
    ratio = o.Where(same, o.Where(o.Equal(high, 0), number(o, 0, x.dtype), number(o, 1, x.dtype)), o.Div(low, high))
    angle = _atan(o, ratio)
    angle = o.Where(steep, o.Sub(number(o, np.pi / 2, x.dtype), angle), angle)
    angle = o.Where(sign_bit(o, x), o.Sub(number(o, np.pi, x.dtype), angle), angle)
    angle = o.Where(sign_bit(o, y), o.Neg(angle), angle)
    return o.Where(o.Or(o.IsNaN(x), o.IsNaN(y)), o.Add(x, y), angle)


# -- rounding ------------------------------------------------------------------------------------


def _round(o: Emitter, x: Array, mode: str) -> Array:
    if mode == "even":
        return o.Round(x)
    whole = o.Where(o.Less(x, 0), o.Ceil(x), o.Floor(x))
    return o.Where(o.GreaterOrEqual(o.Abs(o.Sub(x, whole)), 0.5), o.Add(whole, o.Sign(x)), whole)


def is_finite(o: Emitter, x: Array) -> Array:
    x = o.cast(x, f32) if x.dtype.bits < 32 else x
    return o.Not(o.Or(o.IsNaN(x), o.IsInf(x)))


_CAST_WIDTHS = {(8, 7): "bf16"}


def _reduce_precision(o: Emitter, x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round the mantissa in the integer behind the float, then clip the exponent."""
    kind = x.dtype
    x = o.cast(x, f32) if kind.bits < 32 else x
    mantissa, exponent = (23, 8) if x.dtype is f32 else (52, 11)
    if (exponent_bits, mantissa_bits) in _CAST_WIDTHS and x.dtype is f32:
        return o.cast(o.cast(o.cast(x, dtypes.dtype(_CAST_WIDTHS[exponent_bits, mantissa_bits])), f32), kind)
    if exponent_bits >= exponent and mantissa_bits >= mantissa:
        return o.cast(x, kind)
    whole = unsigned(x.dtype)
    bits = same_bits(o, x, whole)
    drop = mantissa - mantissa_bits
    if drop > 0:
        last = o.BitwiseAnd(o.BitShift(bits, drop, direction="RIGHT", shape=x.shape), 1, shape=x.shape)
        bits = o.Add(bits, o.Add(last, (1 << (drop - 1)) - 1))
        bits = o.BitwiseAnd(bits, number(o, (1 << whole.bits) - (1 << drop), whole))
    if exponent_bits < exponent:
        sign = o.BitwiseAnd(bits, number(o, 1 << (whole.bits - 1), whole))
        field = o.BitShift(
            o.BitwiseAnd(bits, number(o, ((1 << exponent) - 1) << mantissa, whole)), mantissa, direction="RIGHT"
        )
        bias, small = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = o.BitwiseOr(sign, number(o, ((1 << exponent) - 1) << mantissa, whole))
        bits = o.Where(o.Greater(field, bias + small), infinity, bits)
        bits = o.Where(o.LessOrEqual(field, bias - small), sign, bits)
    return o.cast(o.Where(o.IsNaN(x), x, same_bits(o, bits, x.dtype)), kind)


# -- exponentials and their inverses ---------------------------------------------------------------


def expm1(o: Emitter, x: Array) -> Array:
    """Kahan's method: the rounding error of exp(x) cancels against that of its logarithm."""
    u = o.Exp(x)
    near = o.Div(o.Mul(o.Sub(u, 1.0), x), o.Log(u))
    plain = o.any_of(o.Equal(o.Sub(u, 1.0), -1.0), o.IsInf(u))
    return o.Where(o.Equal(u, 1.0), x, o.Where(plain, o.Sub(u, 1.0), near))


def log1p(o: Emitter, x: Array) -> Array:
    """Kahan's method, as in `expm1`."""
    u = o.Add(x, 1.0)
    near = o.Div(o.Mul(o.Log(u), x), o.Sub(u, 1.0))
    return o.Where(o.Equal(u, 1.0), x, o.Where(o.IsInf(u), o.Log(u), near))


def _atan(o: Emitter, x: Array) -> Array:
    """Arc tangent; in f64 the f32 angle is corrected by one rotation, whose cube is below an ulp."""
    if x.dtype is not f64:
        return o.Atan(x)
    angle = o.cast(o.Atan(o.cast(x, f32)), f64)
    sine, cosine = o.Sin(angle), o.Cos(angle)
    slope = o.Div(o.Sub(o.Mul(x, cosine), sine), o.Add(o.Mul(x, sine), cosine))
    return o.Where(o.IsInf(x), o.Mul(o.Sign(x), np.pi / 2), o.Add(angle, slope))


def _asin(o: Emitter, x: Array) -> Array:
    root = o.Sqrt(o.Mul(o.Sub(o.const(1.0, x.dtype), x), o.Add(x, 1.0)))
    return o.Mul(_atan(o, o.Div(x, o.Add(root, 1.0))), 2.0)


def _acos(o: Emitter, x: Array) -> Array:
    one = o.const(1.0, x.dtype)
    return o.Mul(_atan(o, o.Sqrt(o.Div(o.Sub(one, x), o.Add(one, x)))), 2.0)


def _sinh(o: Emitter, x: Array) -> Array:
    # exp(x/2) twice, so that the factor 1/2 comes before the overflow.
    size = o.Abs(x)
    big = o.Exp(o.Mul(size, 0.5))
    large = o.Mul(o.Mul(big, 0.5), big)
    t = expm1(o, size)
    small = o.Mul(o.Add(t, o.Div(t, o.Add(t, 1.0))), 0.5)
    result = o.Mul(o.Sign(x), o.Where(o.Greater(size, 20.0), large, small))
    return o.Where(o.Equal(x, 0), x, result)


def _cosh(o: Emitter, x: Array) -> Array:
    big = o.Exp(o.Mul(o.Abs(x), 0.5))
    return o.Add(o.Mul(o.Mul(big, 0.5), big), o.Div(o.Div(number(o, 0.5, x.dtype), big), big))


def _asinh(o: Emitter, x: Array) -> Array:
    a = o.Abs(x)
    square = o.Mul(a, a)
    middle = log1p(o, o.Add(a, o.Div(square, o.Add(o.Sqrt(o.Add(square, 1.0)), 1.0))))
    large = o.Add(o.Log(a), np.log(2.0))
    result = o.Where(o.Greater(a, 1e9), large, middle)
    return o.Where(o.Equal(x, 0), x, o.Mul(o.Sign(x), result))


def _acosh(o: Emitter, x: Array) -> Array:
    t = o.Sub(x, 1.0)
    middle = log1p(o, o.Add(t, o.Sqrt(o.Add(o.Mul(t, 2.0), o.Mul(t, t)))))
    return o.Where(o.Greater(x, 1e9), o.Add(o.Log(x), np.log(2.0)), middle)


def _atanh(o: Emitter, x: Array) -> Array:
    one = o.const(1.0, x.dtype)
    a = o.Abs(x)
    half = o.Mul(log1p(o, o.Div(o.Mul(a, 2.0), o.Sub(one, a))), 0.5)
    return o.Where(o.Equal(x, 0), x, o.Mul(o.Sign(x), half))


def _cbrt(o: Emitter, x: Array) -> Array:
    root = o.Pow(o.Abs(x), number(o, 1 / 3, x.dtype))
    return o.Where(o.Equal(x, 0), x, o.Mul(o.Sign(x), root))


def short_direct(op_type: str, exact: Callable[..., Array]) -> Row:
    """The operator up to f32, and a composition for f64, where ONNX Runtime has no kernel."""
    composed = wide(exact)
    return lambda o, x: composed(o, x) if x.dtype is f64 else o.emit(op_type, (x,))


# -- bits ----------------------------------------------------------------------------------------


def same_bits(o: Emitter, x: Array, kind: DType) -> Array:
    """The bits of x read as another dtype of the same width."""
    if x.dtype is kind:
        return x
    if not x.dtype.is_float and not kind.is_float and kind is not bool_ and x.dtype is not bool_:
        return o.cast(x, kind)  # integers of one width convert by keeping their bits
    if kind is bool_ or x.dtype is bool_:
        return o.cast(x, kind)
    return o.BitCast(x, to=TO_ONNX[kind.name], dtype=kind)


def bitcast(o: Emitter, x: Array, dtype: DType) -> Array:
    old, new = x.dtype.bits, dtype.bits
    if old == new:
        return same_bits(o, x, dtype)
    if x.dtype.bits < 8 or dtype.bits < 8:
        raise Unsupported(f"bitcast between {x.dtype} and {dtype} needs packed 4-bit data, which ONNX does not expose")
    small, big = min(old, new), max(old, new)
    part, whole = dtypes.dtype(f"u{small}"), dtypes.dtype(f"u{big}")
    shifts = number(o, np.arange(big // small) * small, whole)
    if old > new:
        bits = o.unsqueeze(same_bits(o, x, whole), [x.rank])
        parts = o.BitShift(bits, shifts, direction="RIGHT", shape=(*x.shape, big // small))
        return same_bits(o, o.cast(parts, part), dtype)
    bits = o.BitShift(o.cast(same_bits(o, x, part), whole), shifts, direction="LEFT")
    joined = None
    for i in range(big // small):  # parts do not overlap: `or` puts them together
        one = o.squeeze(o.slice(bits, [i], [i + 1], [x.rank - 1]), [x.rank - 1])
        joined = one if joined is None else o.BitwiseOr(joined, one)
    assert joined is not None
    return same_bits(o, joined, dtype)


def shift(left: bool, arithmetic: bool = False) -> Row:
    """A shift whose amount may be negative or at least the width."""

    def row(o: Emitter, x: Array, y: Array) -> Array:
        kind = x.dtype
        if kind.bits < 8:
            return _short_shift(o, x, y, left, arithmetic)
        bits, whole = same_bits(o, x, unsigned(kind)), unsigned(kind)
        amount, out = same_bits(o, y, whole), None
        fixed = None if y.uniform is None else int(y.uniform)
        if fixed is None or not 0 <= fixed < kind.bits:
            # A negative amount is a huge one when read as unsigned.
            out = o.GreaterOrEqual(amount, kind.bits)
            amount = o.Where(out, number(o, kind.bits - 1 if arithmetic else 0, whole), amount)
        direction = "LEFT" if left else "RIGHT"
        moved = o.BitShift(bits, amount, direction=direction)
        if arithmetic:
            filled = o.BitwiseNot(o.BitShift(o.BitwiseNot(bits), amount, direction=direction))
            moved = o.Where(o.GreaterOrEqual(bits, number(o, 1 << (kind.bits - 1), whole)), filled, moved)
        elif out is not None:
            moved = o.Where(out, number(o, 0, whole), moved)
        return same_bits(o, moved, kind)

    return row


def _short_shift(o: Emitter, x: Array, y: Array, left: bool, arithmetic: bool) -> Array:
    """A shift of 2- or 4-bit integers, in u32 holding their bits, sign-extended where the sign moves in."""
    kind = x.dtype
    bits = o.cast(o.cast(x, i32), u32)
    full = number(o, (1 << kind.bits) - 1, u32)
    if arithmetic:  # also for an unsigned one: its highest bit counts as the sign
        low = o.BitwiseAnd(bits, full)
        negative = o.GreaterOrEqual(low, number(o, 1 << (kind.bits - 1), u32))
        bits = o.Where(negative, o.BitwiseOr(low, o.BitwiseNot(full)), low)
    elif not left:
        bits = o.BitwiseAnd(bits, full)
    moved = shift(left, arithmetic)(o, same_bits(o, bits, i32), o.cast(y, i32))
    return convert(o, moved, kind)


shift_right_arithmetic = shift(left=False, arithmetic=True)


def _count(o: Emitter, x: Array) -> Array:
    """Bits set in u32 or u64 data, counted in pairs, nibbles and bytes."""
    kind, full = x.dtype, (1 << x.dtype.bits) - 1

    def mask(byte: int) -> Array:
        return number(o, byte * (full // 255), kind)

    def right(v: Array, by: int) -> Array:
        return o.BitShift(v, by, direction="RIGHT")

    x = o.Sub(x, o.BitwiseAnd(right(x, 1), mask(0x55)))
    x = o.Add(o.BitwiseAnd(x, mask(0x33)), o.BitwiseAnd(right(x, 2), mask(0x33)))
    x = o.BitwiseAnd(o.Add(x, right(x, 4)), mask(0x0F))
    return right(o.Mul(x, mask(1)), kind.bits - 8)


def _counted(o: Emitter, x: Array) -> Array:
    whole_bytes(x.dtype, "counting bits")
    return o.cast(same_bits(o, x, unsigned(x.dtype)), u64 if x.dtype.bits == 64 else u32)


def _population_count(o: Emitter, x: Array) -> Array:
    return o.cast(_count(o, _counted(o, x)), x.dtype)


def _clz(o: Emitter, x: Array) -> Array:
    bits, by = _counted(o, x), 1
    while by < x.dtype.bits:
        bits = o.BitwiseOr(bits, o.BitShift(bits, by, direction="RIGHT"))
        by *= 2
    return o.cast(o.Sub(number(o, x.dtype.bits, bits.dtype), _count(o, bits)), x.dtype)


def mulhi(o: Emitter, x: Array, y: Array) -> Array:
    kind = x.dtype
    whole_bytes(kind, "mulhi")
    if kind.bits < 64:
        big = i64 if kind.kind == "int" else u64
        product = o.Mul(o.cast(x, big), o.cast(y, big))
        return o.cast(shift_right_arithmetic(o, product, number(o, kind.bits, big)) if big is i64
                      else o.BitShift(product, kind.bits, direction="RIGHT"), kind)  # fmt: skip
    # 64 x 64 bits by halves, as unsigned; signed operands correct the high half afterwards.
    a, b = same_bits(o, x, u64), same_bits(o, y, u64)

    def split(v: Array) -> tuple[Array, Array]:
        return o.BitShift(v, 32, direction="RIGHT"), o.BitwiseAnd(v, number(o, 0xFFFFFFFF, u64))

    (a1, a0), (b1, b0) = split(a), split(b)
    middle = o.Add(o.Mul(a1, b0), split(o.Mul(a0, b0))[0])
    carry = split(o.Add(o.Mul(a0, b1), split(middle)[1]))[0]
    high = o.Add(o.Add(o.Mul(a1, b1), split(middle)[0]), carry)
    if kind.kind == "int":
        nothing = number(o, 0, u64)
        high = o.Sub(high, o.Where(o.Less(x, 0), b, nothing))
        high = o.Sub(high, o.Where(o.Less(y, 0), a, nothing))
    return same_bits(o, high, kind)


def _total(o: Emitter, x: Array) -> Array:
    """Integers that sort as floats do in IEEE 754 total order."""
    whole = dtypes.dtype(f"i{x.dtype.bits}")
    bits = same_bits(o, x, whole)
    wide_bits = bits if whole.bits >= 32 else o.cast(bits, i32)
    low = -(1 << (x.dtype.bits - 1))
    flipped = o.Sub(o.Sub(number(o, low, wide_bits.dtype), wide_bits), 1)
    return o.Where(o.Less(wide_bits, 0), flipped, wide_bits)


def total_order(op_type: str) -> Row:
    return lambda o, x, y: o.emit(op_type, (_total(o, x), _total(o, y)))


def _nextafter(o: Emitter, x: Array, y: Array) -> Array:
    kind, whole = x.dtype, unsigned(x.dtype)
    bits = same_bits(o, x, whole)
    up = o.Greater(y, x)
    away = o.Equal(o.cast(o.Greater(x, 0), i32), o.cast(up, i32))
    stepped = o.Where(away, o.Add(bits, 1), o.Sub(bits, 1))
    tiny = o.Where(up, number(o, 1, whole), number(o, (1 << (kind.bits - 1)) | 1, whole))
    moved = same_bits(o, o.Where(o.Equal(x, 0), tiny, stepped), kind)
    return o.Where(o.Or(o.IsNaN(x), o.IsNaN(y)), number(o, np.nan, kind), o.Where(o.Equal(x, y), y, moved))


# -- comparison, choice, types -------------------------------------------------------------------


def compare(op_type: str, negate: bool = False) -> Row:
    def row(o: Emitter, x: Array, y: Array) -> Array:
        if x.dtype is bool_ and op_type != "Equal":
            x, y = o.cast(x, i32), o.cast(y, i32)
        result = o.emit(op_type, (x, y))
        return o.Not(result) if negate else result

    return row


def extreme(op_type: str, logical: str) -> Row:
    """Max or Min; zeros of different sign, which the runtime takes as equal, are told apart."""

    def row(o: Emitter, x: Array, y: Array) -> Array:
        if x.dtype is bool_:
            return o.emit(logical, (x, y))
        if y.uniform is not None:
            x, y = y, x  # of two equal operands the runtime gives the first: max(0, -0.0) is 0
        result = o.emit(op_type, (x, y))
        if not x.dtype.is_float or x.uniform is not None:
            return result
        zeros = o.Add(x, y) if op_type == "Max" else o.Neg(o.Add(o.Neg(x), o.Neg(y)))
        return o.Where(o.And(o.Equal(x, 0), o.Equal(y, 0)), zeros, result)

    return row


def select(o: Emitter, which: Array, *cases: Array) -> Array:
    if len(cases) == 1:
        return cases[0]
    if which.dtype is bool_:
        return o.Where(which, cases[1], cases[0])
    result = cases[0]
    for number_, case in enumerate(cases[1:], 1):
        result = o.Where(o.GreaterOrEqual(which, number_), case, result)
    return result


def clamp(o: Emitter, low: Array, x: Array, high: Array) -> Array:
    return o.Min(o.Max(x, low), high)


def convert(o: Emitter, x: Array, dtype: DType) -> Array:
    if dtype is bool_ and x.dtype is not bool_:
        short = x.dtype.is_float and x.dtype.bits < 32
        return o.Not(o.Equal(o.cast(x, f32) if short else x, 0))
    if x.dtype.is_float and dtype.is_integer:
        return _float_to_int(o, x, dtype)
    if dtype.bits < 8 and x.dtype.is_integer:
        # The low bits: 4-bit casts saturate or wrap depending on the runtime, so wrap before them.
        span = 1 << dtype.bits
        low = o.Mod(o.cast(x, i32) if x.dtype.bits < 64 else o.cast(x, i64), span)
        if dtype.kind == "int":
            low = o.Where(o.GreaterOrEqual(low, span // 2), o.Sub(low, span), low)
        return o.cast(low, dtype)
    if dtype.is_float and dtype.bits < 16:
        return o.cast(o.cast(x, f32), dtype)
    return o.cast(x, dtype)


def _float_to_int(o: Emitter, x: Array, dtype: DType) -> Array:
    """Truncates, saturates, and gives 0 for NaN, whatever the runtime's own cast does."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (dtype.bits - (1 if dtype.kind == "int" else 0))) - 1
    x = o.cast(x, f64)
    x = o.Where(o.IsNaN(x), number(o, 0.0, f64), x)
    if dtype.bits <= 32:
        return o.cast(o.Clip(x, number(o, low, f64), number(o, high, f64)), dtype)
    # float(high) is high + 1, which is out of range: such elements are set afterwards.
    below, above = o.Less(x, float(low)), o.GreaterOrEqual(x, float(high))
    inside = o.cast(o.Where(o.Or(below, above), number(o, 0.0, f64), x), dtype)
    inside = o.Where(above, number(o, high, dtype), inside)
    return o.Where(below, number(o, low, dtype), inside)


def identity(o: Emitter, x: Array) -> Array:
    return x


ROWS: dict[OpDef, Row] = {
    e.add: on_bool("Add", "Or"),
    e.sub: direct("Sub"),
    e.mul: on_bool("Mul", "And"),
    e.div: div,
    e.rem: rem,
    e.max: extreme("Max", "Or"),
    e.min: extreme("Min", "And"),
    e.pow: direct("Pow"),
    e.atan2: wide(_atan2, f32),
    e.nextafter: _nextafter,
    e.neg: neg,
    e.abs: lambda o, x: x if x.dtype.kind == "uint" else o.Abs(x),
    e.sign: _sign,
    e.square: lambda o, x: o.Mul(x, x),
    e.integer_pow: integer_pow,
    e.ceil: direct("Ceil"),
    e.floor: direct("Floor"),
    e.round: _round,
    e.is_finite: is_finite,
    e.reduce_precision: _reduce_precision,
    e.and_: on_bool("BitwiseAnd", "And"),
    e.or_: on_bool("BitwiseOr", "Or"),
    e.xor: on_bool("BitwiseXor", "Xor"),
    e.not_: on_bool("BitwiseNot", "Not"),
    e.shift_left: shift(left=True),
    e.shift_right_logical: shift(left=False),
    e.shift_right_arithmetic: shift_right_arithmetic,
    e.population_count: _population_count,
    e.clz: _clz,
    e.mulhi: mulhi,
    e.select: select,
    e.clamp: clamp,
    e.convert: convert,
    e.bitcast: bitcast,
    e.copy: identity,
    e.stop_gradient: identity,
    e.optimization_barrier: lambda o, *xs: xs,
    **{
        op: compare(op_type, negate)
        for op, op_type, negate in (
            (e.eq, "Equal", False),  # type: ignore[attr-defined]
            (e.ne, "Equal", True),  # type: ignore[attr-defined]
            (e.lt, "Less", False),  # type: ignore[attr-defined]
            (e.le, "LessOrEqual", False),  # type: ignore[attr-defined]
            (e.gt, "Greater", False),  # type: ignore[attr-defined]
            (e.ge, "GreaterOrEqual", False),  # type: ignore[attr-defined]
        )
    },
    e.eq_to: total_order("Equal"),  # type: ignore[attr-defined]
    e.lt_to: total_order("Less"),  # type: ignore[attr-defined]
    e.le_to: total_order("LessOrEqual"),  # type: ignore[attr-defined]
}


def _named(name: str) -> OpDef:
    return getattr(e, name)


_DIRECT = {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "logistic": "Sigmoid",
}  # fmt: skip
_SHORT: dict[str, tuple[str, Callable[..., Array]]] = {
    "tan": ("Tan", lambda o, x: o.Div(o.Sin(x), o.Cos(x))),
    "asin": ("Asin", _asin),
    "acos": ("Acos", _acos),
    "atan": ("Atan", _atan),
    "sinh": ("Sinh", _sinh),
    "cosh": ("Cosh", _cosh),
    "asinh": ("Asinh", _asinh),
    "acosh": ("Acosh", _acosh),
    "atanh": ("Atanh", _atanh),
}
_WIDE: dict[str, Callable[..., Array]] = {"expm1": expm1, "log1p": log1p, "cbrt": _cbrt}
ROWS.update({_named(name): direct(op_type) for name, op_type in _DIRECT.items()})
ROWS.update({_named(name): short_direct(*pair) for name, pair in _SHORT.items()})
ROWS.update({_named(name): wide(f) for name, f in _WIDE.items()})
ROWS[_named("exp2")] = lambda o, x: o.Pow(number(o, 2, x.dtype), x)
ROWS[_named("rsqrt")] = lambda o, x: o.Reciprocal(o.Sqrt(x))
