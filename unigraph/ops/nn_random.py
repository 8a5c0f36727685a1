"""Random distributions as in jax.random, and dropout.

The bits drawn and how they are turned into numbers are those of jax.random. Results are equal bit for bit
where the framework rounds alike: XLA may contract a product and a sum, and has its own log and erf_inv.

A result has the axes of the key first (none for one key), then ``shape``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dims import Dim
from ..dtypes import INT, UINT, DType, bf16, dtype, f16, f32, f64, i32
from ..opdef import Attr, require
from .composite import op
from .idioms import GraphBuilder, Value, broadcast_to, cast, cut, float_required, reshape, where

SHAPE = Attr("dims", doc="sizes of the result")
FLOAT = Attr("dtype", f32, "f16, bf16, f32 or f64")
MANTISSA = {f16: 10, bf16: 7, f32: 23, f64: 52}


def _bits(b: GraphBuilder, key: Value, bits: int, shape: tuple[Dim, ...]) -> Value:
    return b.rng_bits(key, shape=shape, dtype=f"u{bits}")


def _key_required(name: str, key: Value) -> None:
    require(
        key.type.dtype.is_key, f"{name}_key", f"the first operand is a key, got {key.type}; use rng_seed or rng_wrap"
    )


def _between(b: GraphBuilder, name: str, key: Value, shape: tuple[Dim, ...], kind: DType, low: Any, high: Any) -> Value:
    """Uniform in [low, high): the mantissa of a float in [1, 2) is drawn, then shifted and scaled.

    low and high are numbers, or scalars of dtype ``kind``.
    """
    _key_required(name, key)
    require(kind in MANTISSA, f"{name}_dtype", f"draws f16, bf16, f32 or f64, not {kind}")
    mantissa = MANTISSA[kind]
    drawn = 8 if mantissa < 8 else kind.bits
    unsigned = dtype(f"u{kind.bits}")
    bits = cast(b, _bits(b, key, drawn, shape), unsigned)
    bits = b.shift_right_logical(bits, drawn - mantissa)
    bits = b.or_(bits, int(np.array(1, kind.numpy).view(unsigned.numpy)))
    unit = b.sub(b.bitcast(bits, dtype=kind), 1.0)
    numbers = not hasattr(low, "type") and not hasattr(high, "type")
    if numbers and low == 0 and high == 1:
        return unit
    low, high = (v if hasattr(v, "type") else b.constant(v, kind) for v in (low, high))
    width, low = (broadcast_to(b, v, unit.type.shape) for v in (b.sub(high, low), low))
    return b.max(low, b.add(b.mul(unit, width), low))


@op(shape=SHAPE, dtype=FLOAT, low=Attr("float", 0.0, "lower bound"), high=Attr("float", 1.0, "upper bound, not drawn"))
def random_uniform(
    b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType, low: float, high: float
) -> Value:
    """Uniform in [low, high), as jax.random.uniform: only the mantissa bits are random."""
    return _between(b, "random_uniform", key, shape, dtype, low, high)


@op(shape=SHAPE, dtype=FLOAT)
def random_normal(b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType) -> Value:
    """Standard normal, as jax.random.normal: sqrt 2 erf_inv(u) for u uniform in (-1, 1)."""
    require(dtype in MANTISSA, "random_normal_dtype", f"draws f16, bf16, f32 or f64, not {dtype}")
    above = np.nextafter(np.array(-1, dtype.numpy), np.array(0, dtype.numpy))
    u = _between(b, "random_normal", key, shape, dtype, above, 1.0)
    return b.mul(b.erf_inv(u), math.sqrt(2))


@op(shape=SHAPE, p=Attr("float", 0.5, "probability of True"))
def random_bernoulli(b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], p: float) -> Value:
    """True with probability p, as jax.random.bernoulli for an f32 p: a uniform f32 is less than p."""
    u = _between(b, "random_bernoulli", key, shape, f32, 0.0, 1.0)
    return b.lt(u, p)


@op(
    shape=SHAPE,
    dtype=Attr("dtype", "i32", "an integer of 8 to 64 bits"),
    low=Attr("int", doc="smallest number"),
    high=Attr("int", doc="largest number + 1; low if not above low"),
)
def random_randint(b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType, low: int, high: int) -> Value:
    """Whole numbers in [low, high), as jax.random.randint: two draws, joined modulo the span, which leaves
    a bias of about span / 2^(2 bits). Bounds beyond the dtype are clipped; its maximum can be drawn.
    """
    _key_required("random_randint", key)
    kind = dtype.kind
    require(
        kind in (INT, UINT) and dtype.bits >= 8,
        "random_randint_dtype",
        f"draws integers of 8 to 64 bits, not {dtype}",
    )
    smallest, largest = _range(dtype)
    if dtype.bits < 32:  # drawn as i32, which keeps the bias small
        low, high = max(min(low, largest), smallest), max(min(high, largest + 1), smallest)
        return b.convert(_whole(b, key, shape, i32, low, high), dtype=dtype)
    return _whole(b, key, shape, dtype, low, high)


def _range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest number of an integer dtype."""
    bits = dtype.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == INT else (0, (1 << bits) - 1)


def _whole(b: GraphBuilder, key: Value, shape: tuple[Dim, ...], kind: DType, low: int, high: int) -> Value:
    """Whole numbers in [low, high) of an integer dtype of 32 or 64 bits."""
    bits, (smallest, largest) = kind.bits, _range(kind)
    first, last = (min(max(v, smallest), largest) for v in (low, high))
    span = 1 if last <= first else last - first + (high > largest)
    size = 1 << bits
    upper, lower = (_bits(b, k, bits, shape) for k in _split(b, key, 2))
    if span == size:  # every number of the dtype: nothing to reduce, and 2^bits mod span is 0
        offset = lower
    else:
        # 2^bits mod span, by way of its root as jax does it: the square wraps around.
        root = (1 << (bits // 2)) % span
        multiplier = (root * root) % size % span
        offset = b.add(b.mul(b.rem(upper, span), multiplier), b.rem(lower, span))
        offset = b.rem(offset, span)
    return b.add(cast(b, offset, kind), first)


def _split(b: GraphBuilder, key: Value, number: int) -> list[Value]:
    """Independent keys made from one, as jax.random.split."""
    words = b.rng_unwrap(b.rng_split(key, shape=(number,)))
    axis = words.type.rank - 2
    impl = key.type.dtype.name.removeprefix("key<").removesuffix(">")
    shape = (*words.type.shape[:axis], words.type.shape[-1])
    return [b.rng_wrap(reshape(b, cut(b, words, axis, i, i + 1), shape), impl=impl) for i in range(number)]


@op(shape=SHAPE, dtype=FLOAT)
def random_exponential(b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType) -> Value:
    """Exponential with rate 1, as jax.random.exponential: -log(1 - u) for u uniform in [0, 1)."""
    u = _between(b, "random_exponential", key, shape, dtype, 0.0, 1.0)
    return b.neg(b.log1p(b.neg(u)))


@op(shape=SHAPE, dtype=FLOAT)
def random_gumbel(b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType) -> Value:
    """Standard Gumbel, as jax.random.gumbel (its mode low): -log(-log(u)) for u uniform in [tiny, 1)."""
    require(dtype in MANTISSA, "random_gumbel_dtype", f"draws f16, bf16, f32 or f64, not {dtype}")
    tiny = 2.0 ** {f16: -14, f64: -1022}.get(dtype, -126)
    u = _between(b, "random_gumbel", key, shape, dtype, tiny, 1.0)
    return b.neg(b.log(b.neg(b.log(u))))


@op(shape=SHAPE, dtype=FLOAT, low=Attr("float", -2.0, "lower bound"), high=Attr("float", 2.0, "upper bound"))
def random_truncated_normal(
    b: GraphBuilder, key: Value, *, shape: tuple[Dim, ...], dtype: DType, low: float, high: float
) -> Value:
    """Standard normal restricted to the open interval (low, high), as jax.random.truncated_normal: the
    inverse distribution function at a uniform number, clipped to the interval.
    """
    require(dtype in MANTISSA, "random_truncated_normal_dtype", f"draws f16, bf16, f32 or f64, not {dtype}")
    root = b.constant(math.sqrt(2), dtype)
    lower, upper = b.constant(low, dtype), b.constant(high, dtype)
    start, stop = b.erf(b.div(lower, root)), b.erf(b.div(upper, root))
    u = _between(b, "random_truncated_normal", key, shape, dtype, start, stop)
    drawn = b.mul(b.erf_inv(u), math.sqrt(2))
    inner_low = b.nextafter(lower, b.constant(math.inf, dtype))
    inner_high = b.nextafter(upper, b.constant(-math.inf, dtype))
    return b.min(
        b.max(drawn, broadcast_to(b, inner_low, drawn.type.shape)), broadcast_to(b, inner_high, drawn.type.shape)
    )


@op(rate=Attr("float", doc="probability that an element is dropped, 0 to 1"))
def dropout(b: GraphBuilder, x: Value, key: Value, *, rate: float) -> Value:
    """x / (1 - rate) where random_bernoulli(key, 1 - rate) of the shape of x is True, else 0 (Srivastava
    et al. 2014). Rate 0 gives x, rate 1 zeros.
    """
    float_required("dropout", x)
    _key_required("dropout", key)
    require(key.type.rank == 0, "dropout_key", f"takes one key, got {key.type}")
    require(0 <= rate <= 1, "dropout_rate", f"rate {rate} must lie in 0..1")
    if rate == 0:
        return x
    if rate == 1:
        return b.full_like(x, 0.0)
    kept = b.random_bernoulli(key, shape=x.type.shape, p=1.0 - rate)
    return where(b, kept, b.div(x, 1.0 - rate), 0.0)
