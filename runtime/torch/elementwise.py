"""Elementwise rows: torch functions, and what torch does differently.

The sign of a zero that max and min give where +0.0 meets -0.0 is the one thing torch leaves open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from unigraph.dtypes import DType
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

from .dtypes import SHORT, bits, from_order, from_torch, is_weak, narrow, to_order, to_torch, unbits, widen

Tensor = torch.Tensor


def ring(f: Callable[..., Any]) -> Row:
    """``f`` made of sums, products and bitwise ops, which signed and unsigned integers share."""

    @functools.wraps(f)
    def row(x: Tensor, *rest: Tensor, **attrs: Any) -> Tensor:
        t = x.dtype
        if not is_weak(t):
            return f(x, *rest, **attrs)
        if from_torch(t).bits < 16:  # f8 and integers shorter than a byte
            return narrow(f(widen(x), *map(widen, rest), **attrs), t)
        return f(bits(x), *map(bits, rest), **attrs).view(t)

    return row


def exact(f: Callable[..., Any]) -> Row:
    """``f`` computed on the same values in a wider dtype; not for u64."""

    @functools.wraps(f)
    def row(x: Tensor, *rest: Tensor, **attrs: Any) -> Tensor:
        if not is_weak(x.dtype):
            return f(x, *rest, **attrs)
        return narrow(f(widen(x), *map(widen, rest), **attrs), x.dtype)

    return row


def in_single(f: Callable[..., Any]) -> Row:
    """``f`` of several steps: floats shorter than f32 compute in f32 and round once."""

    @functools.wraps(f)
    def row(x: Tensor, *rest: Tensor, **attrs: Any) -> Tensor:
        if x.dtype in SHORT:
            return f(x.to(torch.float32), *(r.to(torch.float32) for r in rest), **attrs).to(x.dtype)
        return exact(f)(x, *rest, **attrs)

    return row


def ordered(f: Callable[..., Any]) -> Row:
    """``f`` picks one of its operands by their order."""

    @functools.wraps(f)
    def row(x: Tensor, *rest: Tensor, **attrs: Any) -> Tensor:
        if not is_weak(x.dtype):
            return f(x, *rest, **attrs)
        return from_order(f(to_order(x), *map(to_order, rest), **attrs), x.dtype)

    return row


def compare(f: Callable[..., Any], strict: Callable[..., Any] | None = None) -> Row:
    """A comparison; complex numbers compare by real part, then by imaginary part."""

    @functools.wraps(f)
    def row(x: Tensor, y: Tensor) -> Tensor:
        if x.is_complex() and strict is not None:
            return torch.where(x.real == y.real, f(x.imag, y.imag), strict(x.real, y.real))
        return f(to_order(x), to_order(y)) if is_weak(x.dtype) else f(x, y)

    return row


def moved(f: Callable[..., Any]) -> Row:
    """``f`` moves elements of tensors of one dtype without looking at them."""

    @functools.wraps(f)
    def row(x: Tensor, *rest: Tensor, **attrs: Any) -> Tensor:
        if not is_weak(x.dtype):
            return f(x, *rest, **attrs)
        same = x.dtype
        return unbits(f(bits(x), *(bits(r) if r.dtype is same else r for r in rest), **attrs), same)

    return row


# -- arithmetic ----------------------------------------------------------------------------------


def _div(x: Tensor, y: Tensor) -> Tensor:
    kind = from_torch(x.dtype)
    if not kind.is_integer:
        return exact(torch.div)(x, y)
    if kind.name == "u64":
        quotient, _ = _divide64(bits(x), bits(y))
        return torch.where(bits(y) == 0, -1, quotient).view(x.dtype)
    a, b = widen(x), widen(y)
    zero = b == 0
    if kind.kind == "uint":
        quotient = torch.div(a, torch.where(zero, 1, b), rounding_mode="trunc")
        return narrow(torch.where(zero, (1 << kind.bits) - 1, quotient), x.dtype)
    # The least integer has no positive twin: by -1 it is negated, which wraps.
    quotient = torch.div(a, torch.where(zero | (b == -1), 1, b), rounding_mode="trunc")
    return narrow(torch.where(zero, -1, torch.where(b == -1, -a, quotient)), x.dtype)


def _rem(x: Tensor, y: Tensor) -> Tensor:
    kind = from_torch(x.dtype)
    if not kind.is_integer:
        return exact(torch.fmod)(x, y)
    if kind.name == "u64":
        return torch.where(bits(y) == 0, bits(x), _divide64(bits(x), bits(y))[1]).view(x.dtype)
    a, b = widen(x), widen(y)
    one = (b == 0) if kind.kind == "uint" else (b == 0) | (b == -1)
    return narrow(torch.where(b == 0, a, torch.fmod(a, torch.where(one, 1, b))), x.dtype)


def _divide64(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of the unsigned 64-bit integers behind signed ones (y = 0: any)."""
    y = torch.where(y == 0, 1, y)
    safe = torch.where(y < 0, 1, y)
    half = torch.div((x >> 1) & 0x7FFFFFFFFFFFFFFF, safe, rounding_mode="trunc")
    quotient = half << 1
    rest = x - quotient * safe
    # Divisors of 2**63 and more go in once or not at all.
    again = torch.where(y < 0, _at_least(x, y), _at_least(rest, safe))
    quotient = torch.where(y < 0, 0, quotient) + again.to(torch.int64)
    return quotient, x - quotient * y


def _at_least(x: Tensor, y: Tensor) -> Tensor:
    """x >= y for unsigned integers behind signed ones."""
    return (x ^ -(1 << 63)) >= (y ^ -(1 << 63))


def _extremum(real: Callable[..., Any], beyond: Callable[..., Any]) -> Row:
    def row(x: Tensor, y: Tensor) -> Tensor:
        if not x.is_complex():
            return real(x, y)
        first = torch.where(x.real == y.real, beyond(x.imag, y.imag), beyond(x.real, y.real))
        return torch.where(x.isnan() | (~y.isnan() & first), x, y)

    return ordered(row)


def _sign(x: Tensor) -> Tensor:
    if x.is_complex():
        return torch.sgn(x)
    if x.is_floating_point():
        # torch.sign forgets the sign of zero and NaN.
        return torch.where((x == 0) | x.isnan(), x.detach(), torch.sign(x))
    return torch.sign(x)


def _sign_any(x: Tensor) -> Tensor:
    return (bits(x) != 0).to(torch.int64).view(x.dtype) if x.dtype is torch.uint64 else exact(_sign)(x)


def _abs(x: Tensor) -> Tensor:
    return x if from_torch(x.dtype).kind == "uint" else exact(torch.abs)(x)


def _integer_pow(x: Tensor, y: int) -> Tensor:
    if x.is_floating_point():
        return torch.pow(x, y)
    if y == 0:
        return torch.ones_like(x)
    result, base, power = None, x, abs(y)
    while power:
        if power & 1:
            result = base if result is None else result * base
        power >>= 1
        if power:
            base = base * base
    assert result is not None
    return torch.reciprocal(result) if y < 0 else result


_NATIVE_NEXTAFTER = frozenset({torch.float32, torch.float64})


def _nextafter(x: Tensor, y: Tensor) -> Tensor:
    if x.dtype in _NATIVE_NEXTAFTER:
        return torch.nextafter(x, y)
    # Step the integer behind the float: up in magnitude away from zero, down toward it.
    width = from_torch(x.dtype).bits
    integer = torch.int16 if width == 16 else torch.int8
    least = -(1 << (width - 1))
    a, b, behind = x.to(torch.float32), y.to(torch.float32), x.view(integer)
    grow = (a > 0) == (b > a)
    stepped = behind + torch.where(grow, 1, -1).to(integer)
    tiny = torch.where(b > 0, 1, least + 1).to(integer)
    moved_ = torch.where(a == 0, tiny, stepped).view(x.dtype).to(torch.float32)
    result = torch.where(a == b, b, moved_)
    return torch.where(a.isnan() | b.isnan(), torch.nan, result).to(x.dtype)


def _atan2(x: Tensor, y: Tensor) -> Tensor:
    if x.is_complex():
        return -1j * torch.log((y + 1j * x) / torch.sqrt(x * x + y * y))
    return torch.atan2(x, y)


def _cbrt(x: Tensor) -> Tensor:
    """The power 1/3, and one step of Newton to put its last digits right."""
    size = x.abs()
    root = torch.pow(size, 1 / 3)
    square = root * root
    usable = torch.isfinite(size) & (square > 0)
    better = root - (root - size / torch.where(usable, square, 1)) / 3
    return torch.copysign(torch.where(usable, better, root), x.detach())


# -- rounding ------------------------------------------------------------------------------------


def _round(x: Tensor, mode: str) -> Tensor:
    if mode == "even":
        return torch.round(x)
    whole = torch.trunc(x)
    away = torch.where((x - whole).abs() >= 0.5, torch.sign(x), 0)
    return torch.copysign(whole + away, x.detach())


def _reduce_precision(x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Round the mantissa in the integer behind the float, then clip the exponent; its slope is 1."""
    kind = from_torch(x.dtype)
    if kind.bits < 32:
        return _reduce_precision(x.to(torch.float32), exponent_bits, mantissa_bits).to(x.dtype)
    integer, mantissa, exponent = (torch.int32, 23, 8) if kind.bits == 32 else (torch.int64, 52, 11)
    behind = x.detach().view(integer)
    drop = mantissa - mantissa_bits
    if drop > 0:
        last = (behind >> drop) & 1
        behind = (behind + last + ((1 << (drop - 1)) - 1)) & ~((1 << drop) - 1)
    if exponent_bits < exponent:
        sign = behind & -(1 << (kind.bits - 1))
        field = (behind >> mantissa) & ((1 << exponent) - 1)
        bias, small = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        infinity = ((1 << exponent) - 1) << mantissa
        behind = torch.where(field > bias + small, sign | infinity, behind)
        behind = torch.where(field <= bias - small, sign, behind)
    rounded = behind.view(x.dtype)
    # x - x.detach() is zero with slope one; a zero result keeps its sign by a product instead.
    sloped = torch.where(torch.isfinite(x) & (rounded != 0), rounded + (x - x.detach()), rounded)
    return torch.where(x.isnan(), x, sloped)


def _is_finite(x: Tensor) -> Tensor:
    return torch.isfinite(widen(x))


# -- bits ----------------------------------------------------------------------------------------


def unsigned64(x: Tensor) -> Tensor:
    """The bits of an integer of any width as a non-negative i64 (64-bit ones: the same bits)."""
    kind = from_torch(x.dtype)
    if kind.bits == 64:
        return bits(x)
    return widen(x).to(torch.int64) & ((1 << kind.bits) - 1)


def wrapped(x: Tensor, t: torch.dtype) -> Tensor:
    """An i64 reduced to the bits of another integer dtype."""
    return narrow(x, t)


def logical_right(x: Tensor, amount: int | Tensor) -> Tensor:
    """``x >> amount`` of an i64, filling with zeros; 0 <= amount < 64."""
    mask = (
        ~((-1 << (63 - amount)) << 1) if isinstance(amount, int) else ~((torch.full_like(x, -1) << (63 - amount)) << 1)
    )
    return (x >> amount) & mask


def _shift(left: bool, arithmetic: bool = False) -> Row:
    def row(x: Tensor, y: Tensor) -> Tensor:
        width = from_torch(x.dtype).bits
        amount = widen(y).to(torch.int64)
        beyond = (amount < 0) | (amount >= width)
        if arithmetic:
            spread = unsigned64(x) << (64 - width)
            safe = torch.where(beyond, width - 1, amount)
            return wrapped((spread >> (64 - width)) >> safe, x.dtype)
        safe = torch.where(beyond, 0, amount)
        value = unsigned64(x)
        shifted = value << safe if left else logical_right(value, safe)
        return wrapped(torch.where(beyond, 0, shifted), x.dtype)

    return row


def count_ones(x: Tensor) -> Tensor:
    """Bits set in an i64, summed in parallel over pairs, nibbles and bytes."""
    x = x - ((x >> 1) & 0x5555555555555555)
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((x * 0x0101010101010101) >> 56) & 0xFF


def _clz(x: Tensor) -> Tensor:
    smeared = unsigned64(x)
    for shift in (1, 2, 4, 8, 16, 32):
        smeared = smeared | (smeared >> shift)
    return wrapped(from_torch(x.dtype).bits - count_ones(smeared), x.dtype)


def _mulhi(x: Tensor, y: Tensor) -> Tensor:
    kind = from_torch(x.dtype)
    if kind.bits < 64:
        product = widen(x).to(torch.int64) * widen(y).to(torch.int64)
        return wrapped(product >> kind.bits, x.dtype)
    # 64 x 64 bits by halves, as unsigned; signed operands correct the high half afterwards.
    a, b, mask = bits(x), bits(y), 0xFFFFFFFF
    a1, a0, b1, b0 = logical_right(a, 32), a & mask, logical_right(b, 32), b & mask
    middle = a1 * b0 + logical_right(a0 * b0, 32)
    carry = logical_right(a0 * b1 + (middle & mask), 32)
    high = a1 * b1 + logical_right(middle, 32) + carry
    if kind.kind == "int":
        high = high - torch.where(a < 0, b, 0) - torch.where(b < 0, a, 0)
    return unbits(high, x.dtype)


# -- comparison, choice, types -------------------------------------------------------------------


def _total(f: Callable[..., Any]) -> Row:
    """Compare the integers behind the floats, those of negative ones turned round."""

    def row(x: Tensor, y: Tensor) -> Tensor:
        kind = from_torch(x.dtype)
        integer = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[kind.bits]
        least = -(1 << (kind.bits - 1))

        def key(v: Tensor) -> Tensor:
            behind = v.detach().view(integer)
            return torch.where(behind < 0, least - behind - 1, behind)

        return f(key(x), key(y))

    return row


def _select(which: Tensor, *cases: Tensor) -> Tensor:
    if len(cases) == 1:
        return cases[0]
    same = cases[0].dtype
    parts = [bits(c) for c in cases]
    if which.dtype is torch.bool:
        return unbits(torch.where(which, parts[1], parts[0]), same)
    result = parts[0]
    for number, case in enumerate(parts[1:], 1):
        result = torch.where(which >= number, case, result)
    return unbits(result, same)


def _clamp(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    def clamp(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return torch.clamp(x, low, high)

    return ordered(clamp)(x, low, high)


def convert(x: Tensor, dtype: DType) -> Tensor:
    """``x`` in another dtype, as the record of ``convert`` says."""
    source, target = from_torch(x.dtype), to_torch(dtype)
    if x.dtype is target:
        return x
    if target is torch.bool:
        return (widen(x) if source.is_float else bits(x)) != 0
    if source.is_complex and not dtype.is_complex:
        return convert(torch.real(x), dtype)
    if dtype.is_integer:
        if source.is_float:
            return _float_to_int(x, dtype)
        whole = x.to(torch.int32) if x.dtype is torch.bool else widen(x)
        return (
            narrow(whole, target)
            if dtype.bits < 8 or (dtype.name == "u64" and source.name == "i64")
            else whole.to(target)
        )
    if source.name == "u64":
        return x.to(target)
    value = x if x.dtype is torch.bool else widen(x)
    if dtype.bits >= 16:
        return value.to(target)
    value = value.to(torch.float32)
    if target is torch.float8_e4m3fn:  # newer torch saturates here, the record asks for NaN
        value = torch.where(value.abs() > 464, torch.nan, value)
    return value.to(target)


def _float_to_int(x: Tensor, dtype: DType) -> Tensor:
    """Toward zero; what lies outside goes to the nearest end, NaN to 0."""
    target = to_torch(dtype)
    value = torch.nan_to_num(x.detach().to(torch.float64), nan=0.0)
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    if dtype.bits < 64:
        return narrow(torch.clamp(value, low, high).to(torch.int64), target)
    edge = 2.0**63  # the first number that i64 cannot hold
    below = torch.clamp(value, float(low), edge - 1024).to(torch.int64)
    if dtype.kind == "int":
        return torch.where(value >= edge, high, below)
    above = torch.clamp(value - edge, 0.0, edge - 1024).to(torch.int64) ^ -(1 << 63)
    result = torch.where(value >= edge, above, below)
    return torch.where(value >= 2 * edge, -1, result).view(target)


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    """The same bits as another dtype; types shorter than a byte are unpacked and packed."""
    source, target = from_torch(x.dtype), to_torch(dtype)
    if source.bits >= 8 and dtype.bits >= 8:
        if source.bits == dtype.bits:
            return x.view(target)
        if source.bits > dtype.bits:
            return x.contiguous().unsqueeze(-1).view(target)
        return x.contiguous().view(target).squeeze(-1)
    if source.bits == dtype.bits:
        return narrow(widen(x), target)
    if source.bits > dtype.bits:
        whole = unsigned64(x if source.is_integer else x.view(_INTEGERS[source.bits]))
        shifts = torch.arange(source.bits // dtype.bits, device=x.device) * dtype.bits
        return narrow((whole.unsqueeze(-1) >> shifts) & ((1 << dtype.bits) - 1), target)
    shifts = torch.arange(dtype.bits // source.bits, device=x.device) * source.bits
    packed = (unsigned64(x) << shifts).sum(-1)
    if dtype.is_integer:
        return narrow(packed, target)
    return packed.to(_INTEGERS[dtype.bits]).view(target)


_INTEGERS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def _named(name: str) -> OpDef:
    return getattr(e, name)


_PLAIN: dict[str, Callable[..., Any]] = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "logistic": torch.sigmoid, "ceil": torch.ceil, "floor": torch.floor, "pow": torch.pow,
}  # fmt: skip
_SINGLE: dict[str, Callable[..., Any]] = {"cbrt": _cbrt, "round": _round, "atan2": _atan2}
_RING: dict[str, Callable[..., Any]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "neg": torch.neg, "square": torch.square,
    "integer_pow": _integer_pow, "and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor,
    "not_": torch.bitwise_not,
}  # fmt: skip
_COMPARE: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "eq": (torch.eq, None), "ne": (torch.ne, None), "lt": (torch.lt, torch.lt), "le": (torch.le, torch.lt),
    "gt": (torch.gt, torch.gt), "ge": (torch.ge, torch.gt),
}  # fmt: skip

ROWS: dict[OpDef, Row] = {
    **{_named(name): exact(f) for name, f in _PLAIN.items()},
    **{_named(name): in_single(f) for name, f in _SINGLE.items()},
    **{_named(name): ring(f) for name, f in _RING.items()},
    **{_named(name): compare(*pair) for name, pair in _COMPARE.items()},
    _named("eq_to"): _total(torch.eq),
    _named("lt_to"): _total(torch.lt),
    _named("le_to"): _total(torch.le),
    e.div: _div,
    e.rem: _rem,
    e.max: _extremum(torch.maximum, torch.gt),
    e.min: _extremum(torch.minimum, torch.lt),
    e.sign: _sign_any,
    e.abs: _abs,
    e.nextafter: _nextafter,
    e.reduce_precision: _reduce_precision,
    e.is_finite: _is_finite,
    e.shift_left: _shift(left=True),
    e.shift_right_logical: _shift(left=False),
    e.shift_right_arithmetic: _shift(left=False, arithmetic=True),
    e.population_count: lambda x: wrapped(count_ones(unsigned64(x)), x.dtype),
    e.clz: _clz,
    e.mulhi: _mulhi,
    e.select: _select,
    e.clamp: _clamp,
    e.convert: convert,
    e.bitcast: bitcast,
    e.complex_: torch.complex,
    e.real: torch.real,
    e.imag: torch.imag,
    e.conj: torch.conj_physical,
    e.copy: moved(torch.clone),
    e.optimization_barrier: lambda *xs: xs,
    e.stop_gradient: lambda x: x.detach(),
}
