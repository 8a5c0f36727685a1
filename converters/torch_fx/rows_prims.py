"""The primitives that torch's own decompositions end in, by the rows of the operators they stand under."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph.dtypes import i32
from unigraph.graph import Value
from unigraph.ops.idioms import cast
from unigraph.types import TensorType

from .helpers import arrange, full, operand
from .rowbook import BY_TARGET, rows
from .rows_elementwise import float_unary
from .rows_linalg import fft_c2c, fft_c2r, fft_r2c
from .rows_random import normal, uniform

aten, prims = torch.ops.aten, torch.ops.prims

# Same name, same meaning: the primitive only asks for more uniform operands.
_SAME = """
    abs acos acosh asin asinh atan atanh cos cosh ceil conj_physical digamma erf erfc exp expm1 exp2 floor isfinite
    lgamma log log1p log2 log10 neg reciprocal round sign signbit sin sinh sqrt rsqrt tan tanh trunc real imag add
    atan2 bitwise_and bitwise_or bitwise_xor bitwise_not eq ne ge gt le lt fmod gcd hypot igamma igammac maximum
    minimum mul nextafter pow remainder sub where amax amin prod sum argmax argmin
""".split()  # noqa: SIM905
_AS = {
    "erf_inv": "erfinv",
    "fill": "fill",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "transpose": "permute",
    "rev": "flip",
    "as_strided": "as_strided",
    "zeta": "special_zeta",
    "svd": "_linalg_svd",
}


def _row_of(name: str) -> Any:
    packet = getattr(aten, name, None)
    if packet is None:
        return None
    return BY_TARGET.get(packet) or BY_TARGET.get(getattr(packet, "default", None))


def _div(b: Any, x: Any, y: Any) -> Value:
    """Integers divide toward zero here."""
    return b.div(*arrange(b, x, y))


def _broadcast(b: Any, x: Value, shape: Sequence[Any], dimensions: Sequence[int]) -> Value:
    return b.broadcast_in_dim(x, shape=b.shape, broadcast_dimensions=tuple(dimensions))


def _slice(b: Any, x: Value, start: Any, limit: Any, strides: Any = None) -> Value:
    return b.slice(x, start=tuple(start), limit=tuple(limit), strides=tuple(strides or (1,) * x.type.rank))


def _var(b: Any, x: Value, axes: Any, correction: float = 1, **kwargs: Any) -> Value:
    return b.var(x, axes=tuple(axes), correction=float(correction))


def _frexp(b: Any, x: Value) -> tuple[Value, Value]:
    """Mantissa in [0.5, 1) and exponent, from the bits; subnormal numbers are scaled up first."""
    layout = {"f32": (23, 127, "i32"), "f64": (52, 1023, "i64"), "f16": (10, 15, "i16"), "bf16": (7, 127, "i16")}
    mantissa, bias, kind = layout[x.type.dtype.name]
    tiny = b.lt(b.abs(x), float(2.0 ** (1 - bias)))
    scaled = b.select(tiny, x, b.mul(x, float(2.0**mantissa)))
    bits = b.bitcast(scaled, dtype=kind)
    field = (1 << (x.type.dtype.bits - 1 - mantissa)) - 1
    exponent = b.and_(b.shift_right_arithmetic(bits, mantissa), field)
    rest = b.and_(bits, ~(field << mantissa))
    whole = b.bitcast(b.or_(rest, (bias - 1) << mantissa), dtype=x.type.dtype)
    power = b.sub(cast(b, exponent, i32), bias - 1)
    power = b.select(tiny, power, b.sub(power, mantissa))
    special = b.or_(b.eq(x, 0.0), b.not_(b.is_finite(x)))
    return b.select(special, whole, x), b.select(special, power, full(b, 0, power.type))


def _iota(b: Any, length: Any, *, start: Any, step: Any, dtype: Any, **kwargs: Any) -> Value:
    count = b.iota(dtype=dtype, shape=(length,), axis=0)
    if step != 1:
        count = b.mul(count, full(b, step, count.type))
    return count if start == 0 else b.add(count, full(b, start, count.type))


def _complex_fft(b: Any, x: Value, *, dim: Any, forward: bool) -> Value:
    return fft_c2c(b, x, dim, 0, forward)


_OWN: dict[str, Any] = {
    "div": _div,
    "cat": lambda b, tensors, dim: b.concatenate(*tensors, axis=dim) if len(tensors) > 1 else tensors[0],
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "squeeze": lambda b, x, axes: b.reshape(x, shape=b.shape),
    "reshape": lambda b, x, shape: b.reshape(x, shape=b.shape),
    "var": _var,
    "frexp": _frexp,
    "iota": _iota,
    "fft_c2c": _complex_fft,
    "fft_r2c": lambda b, x, *, dim, onesided: fft_r2c(b, x, dim, 0, onesided),
    "fft_c2r": lambda b, x, *, dim, last_dim_size: fft_c2r(b, x, dim, 0, last_dim_size),
    "conj": lambda b, x: b.conj(x),
    "clone": lambda b, x, **k: x,
    "copy_to": lambda b, x, y: y,
    "full": lambda b, shape, value, **k: full(b, value, TensorType(b.dtype, b.shape)),
    "scalar_tensor": lambda b, value, **k: operand(b, value, b.dtype),
    "normal": lambda b, shape, *, mean, std, **k: b.add(
        b.mul(normal(b, b.shape, b.dtype), full(b, std, TensorType(b.dtype, b.shape))),
        full(b, mean, TensorType(b.dtype, b.shape)),
    ),
    "_uniform_helper": lambda b, shape, *, low, high, **k: b.add(
        b.mul(uniform(b, b.shape, b.dtype), full(b, high - low, TensorType(b.dtype, b.shape))),
        full(b, low, TensorType(b.dtype, b.shape)),
    ),
    "bessel_i0e": float_unary("bessel_i0e"),
    "bessel_i1e": float_unary("bessel_i1e"),
    "cbrt": float_unary("cbrt"),
    "ndtri": _row_of("special_ndtri"),
}

# Names differ a little between torch versions: what a version lacks needs no row.
_ROWS = {
    **{n: _row_of(n) for n in _SAME},
    **{n: _row_of(a) for n, a in _AS.items()},
    **_OWN,
}
rows({getattr(prims, n): f for n, f in _ROWS.items() if f is not None and hasattr(prims, n)})
rows({aten.frexp: _frexp})
