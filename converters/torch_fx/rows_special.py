"""Special functions and number theory, written with elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from unigraph.graph import Value
from unigraph.ops.idioms import cast

from .helpers import arrange, as_float, full, in_single, operand, result_dtype
from .rowbook import rows
from .rows_elementwise import composed, magnitude

aten = torch.ops.aten


def _sinc(b: Any, x: Value) -> Value:
    scaled = b.mul(x, math.pi)
    zero = b.eq(x, 0.0)
    safe = b.select(zero, scaled, full(b, 1.0, x.type))
    return b.select(zero, b.div(b.sin(safe), safe), full(b, 1.0, x.type))


def _erfcx(b: Any, x: Value) -> Value:
    """exp(x^2) erfc(x): as written where erfc does not underflow, by its continued fraction beyond."""
    plain = b.mul(b.exp(b.square(x)), b.erfc(x))
    far = b.select(b.gt(x, 4.0), full(b, 4.0, x.type), x)
    tail = far
    for k in range(60, 0, -1):
        tail = b.add(far, b.div(full(b, k / 2, x.type), tail))
    return b.select(b.gt(x, 4.0), plain, b.div(full(b, 1 / math.sqrt(math.pi), x.type), tail))


def _log_ndtr(b: Any, x: Value) -> Value:
    """log of the normal distribution function; the left tail through erfcx."""
    z = b.mul(x, -math.sqrt(0.5))
    near = b.select(b.lt(x, -1.0), x, full(b, 0.0, x.type))
    right = b.log1p(b.mul(b.erfc(b.mul(near, math.sqrt(0.5))), -0.5))
    left = b.sub(b.log(b.mul(_erfcx(b, z), 0.5)), b.square(z))
    return b.select(b.lt(x, -1.0), right, left)


def _logit(b: Any, x: Value, eps: float | None = None) -> Value:
    x = cast(b, x, as_float(x.type.dtype))
    if eps is not None:
        x = b.clamp(operand(b, eps, x.type.dtype), x, operand(b, 1 - eps, x.type.dtype))
    return b.log(b.div(x, b.sub(full(b, 1.0, x.type), x)))


def _mvlgamma(b: Any, x: Value, p: int) -> Value:
    x = cast(b, x, as_float(x.type.dtype))
    total = full(b, p * (p - 1) / 4 * math.log(math.pi), x.type)
    for i in range(p):
        total = b.add(total, b.lgamma(b.add(x, -i / 2)))
    return total


def _digamma(b: Any, x: Value) -> Value:
    """digamma, which torch takes from the right at 0 (from the left at -0.0): an infinity, not NaN."""
    pole = b.div(full(b, -1.0, x.type), x)
    return b.select(b.eq(x, 0.0), b.digamma(x), pole)


def _polygamma(b: Any, n: int, x: Value) -> Value:
    x = cast(b, x, as_float(x.type.dtype))
    if n == 0:
        return _digamma(b, x)
    result = b.polygamma(full(b, float(n), x.type), x)
    return b.select(_is_pole(b, x), result, full(b, math.inf if n % 2 else -math.inf, x.type))


def _is_pole(b: Any, x: Value) -> Value:
    return b.and_(b.le(x, 0.0), b.eq(x, b.floor(x)))


def _zeta(b: Any, x: Any, q: Any) -> Value:
    """zeta, which in torch has one infinity at each pole of q, whatever x."""
    x, q = arrange(b, x, q, dtype=as_float(result_dtype(x, q)))
    result = b.select(_is_pole(b, q), b.zeta(x, q), full(b, math.inf, x.type))
    return b.select(b.lt(x, 1.0), result, full(b, math.nan, x.type))


def _gcd(b: Any, x: Any, y: Any) -> Value:
    x, y = arrange(b, x, y)
    x, y = magnitude(b, x), magnitude(b, y)

    def more(c: Any, u: Value, v: Value) -> Value:
        return c.reduce_or(c.ne(v, 0), axes=tuple(range(v.type.rank))) if v.type.rank else c.ne(v, 0)

    def step(c: Any, u: Value, v: Value) -> tuple[Value, Value]:
        done = c.eq(v, 0)
        safe = c.select(done, v, c.full_like(v, 1))
        return c.select(done, v, u), c.select(done, c.rem(u, safe), v)

    return b.while_(x, y, cond=more, body=step)[0]


def _lcm(b: Any, x: Any, y: Any) -> Value:
    x, y = arrange(b, x, y)
    divisor = _gcd(b, x, y)
    zero = b.eq(divisor, 0)
    return magnitude(b, b.mul(b.div(x, b.select(zero, divisor, full(b, 1, x.type))), y))


def _igamma(op: str) -> Callable[..., Value]:
    return lambda b, a, x: getattr(b, op)(*arrange(b, a, x))


rows(
    {
        aten.i0: composed(lambda b, x: b.mul(b.bessel_i0e(x), b.exp(b.abs(x)))),
        aten.special_i1: composed(lambda b, x: b.mul(b.bessel_i1e(x), b.exp(b.abs(x)))),
        aten.special_ndtri: composed(lambda b, x: b.mul(b.erf_inv(b.sub(b.mul(x, 2.0), 1.0)), math.sqrt(2.0))),
        aten.special_modified_bessel_i0: composed(lambda b, x: b.mul(b.bessel_i0e(x), b.exp(b.abs(x)))),
        aten.special_modified_bessel_i1: composed(lambda b, x: b.mul(b.bessel_i1e(x), b.exp(b.abs(x)))),
        aten.special_spherical_bessel_j0: composed(lambda b, x: _sinc(b, b.div(x, math.pi))),
        aten.special_log_ndtr: composed(_log_ndtr),
        aten.special_erfcx: composed(_erfcx),
        aten.sinc: composed(_sinc),
        aten.digamma: composed(_digamma),
        aten.special_sinc: composed(_sinc),
        aten.logit: in_single(_logit),
        aten.special_logit: in_single(_logit),
        aten.mvlgamma: in_single(_mvlgamma),
        aten.polygamma: in_single(_polygamma),
        aten.special_polygamma: in_single(_polygamma),
        aten.gcd: _gcd,
        aten.lcm: _lcm,
        aten.igamma: _igamma("igamma"),
        aten.igammac: _igamma("igammac"),
        aten.special_gammainc: _igamma("igamma"),
        aten.special_gammaincc: _igamma("igammac"),
        aten.special_zeta: in_single(_zeta),
    }
)
