"""Special functions of the ONNX export that a series or a continued fraction gives: a Loop until it converges.

All in f64; the methods are those of the NumPy rows, where they are cited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unigraph.dtypes import bool_, f64, i32
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e
from unigraph.runtime.numpy.special import MAX_TERMS

from .emitter import Emitter
from .export_elementwise import log1p, number, wide
from .export_special import digamma, lgamma
from .handles import Array


def any_of(o: Emitter, x: Array) -> Array:
    """A scalar: is any element True."""
    return o.Greater(o.reduce("ReduceMax", o.cast(x, i32), list(range(x.rank))), 0)


def converge(o: Emitter, start: Sequence[Array], step: Callable[..., tuple[list[Array], Array]]) -> list[Array]:
    """Repeat ``step(i, *state)``, which gives the new state and where it still changes, until nothing does."""
    shape = start[0].shape
    more = o.const(np.asarray(True), bool_)

    def body(i: Array, *state: Array) -> list[Array]:
        new, changes = step(i, *state[:-1])
        return [*(o.typed(v, shape) for v in new), any_of(o, o.typed(changes, shape))]

    return list(o.loop(o.const(MAX_TERMS), [*start, more], body, condition=lambda *state: state[-1]))[:-1]


def _like(o: Emitter, x: Array, value: float) -> Array:
    return o.full(value, f64, x.shape)


def _series(o: Emitter, a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) by its power series, and its derivative in a."""
    one, zero = _like(o, x, 1.0), _like(o, x, 0.0)

    def step(i: Array, *state: Array) -> tuple[list[Array], Array]:
        n, term, total, slope_term, slope = state
        n = n + 1.0
        ratio = x / n
        slope_term = slope_term * ratio - term * ratio / n
        term = term * ratio
        total, slope = total + term, slope + slope_term
        changes = o.Or(term > total * 1e-17, o.Abs(slope_term) > o.Abs(slope) * 1e-17)
        return [n, term, total, slope_term, slope], changes

    _, _, total, _, slope = converge(o, [a, one, one, zero, zero], step)
    scale = o.Exp(a * o.Log(x) - x - lgamma(o, a + 1.0))
    return scale * total, scale * (slope + total * (o.Log(x) - digamma(o, a + 1.0)))


def _fraction(o: Emitter, a: Array, x: Array) -> tuple[Array, Array]:
    """Q(a, x) by its continued fraction, and its derivative in a; each quantity goes with its derivative."""
    one, zero = _like(o, x, 1.0), _like(o, x, 0.0)
    y, z = 1.0 - a, x + 2.0 - a
    p1, q1 = x + 1.0, z * x
    first = p1 / q1
    start = [y, z, p1, q1, one, x, zero, -x, zero, zero, first, first * x / q1]

    def step(i: Array, *state: Array) -> tuple[list[Array], Array]:
        y, z, p1, q1, p2, q2, dp1, dq1, dp2, dq2, value, slope = state
        c = o.cast(i, f64) + 1.0
        y, z = y + 1.0, z + 2.0
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        zero_q = o.Equal(q, 0)
        safe = o.Where(zero_q, number(o, 1, f64), q)
        ratio = o.Where(zero_q, value, p / safe)
        tangent = o.Where(zero_q, slope, (dp - ratio * dq) / safe)
        change = o.Abs(ratio - value) > o.Abs(ratio) * 1e-16
        turn = o.Abs(tangent - slope) > o.Abs(tangent) * 1e-16
        big = o.Where(o.Abs(p) > 1e15, number(o, 1e-15, f64), number(o, 1.0, f64))
        scaled = [v * big for v in (p, q, p1, q1, dp, dq, dp1, dq1)]
        return [y, z, *scaled, ratio, tangent], o.Or(change, turn)

    value, slope = converge(o, start, step)[-2:]
    scale = o.Exp(a * o.Log(x) - x - lgamma(o, a))
    return scale * value, scale * (slope + value * (o.Log(x) - digamma(o, a)))


def _parts(o: Emitter, a: Array, x: Array) -> tuple[Array, Array, Array]:
    """P, Q and dP/da, each from the expansion that keeps its digits."""
    nan, zero, one = (number(o, v, f64) for v in (np.nan, 0.0, 1.0))

    def finite(v: Array) -> Array:
        return o.Not(o.Or(o.IsInf(v), o.IsNaN(v)))

    good = o.all_of(a > 0, x > 0, finite(a), finite(x))
    upper = o.all_of(good, x > 1.0, x > a)
    lower = o.And(good, o.Not(upper))
    p_low, slope_low = _series(o, o.Where(lower, a, one), o.Where(lower, x, one))
    q_up, slope_up = _fraction(o, o.Where(upper, a, one), o.Where(upper, x, number(o, 2.0, f64)))
    p = o.Where(upper, 1.0 - q_up, o.Where(lower, p_low, nan))
    q = o.Where(upper, q_up, o.Where(lower, 1.0 - p_low, nan))
    slope = o.Where(upper, -slope_up, o.Where(lower, slope_low, nan))
    at_zero = o.And(o.Equal(x, 0), a > 0)
    at_infinity = o.all_of(o.IsInf(x), x > 0, a > 0, finite(a))
    past = o.all_of(o.IsInf(a), a > 0, x >= 0, finite(x))
    for mask, value in ((at_zero, 0.0), (at_infinity, 1.0), (past, 0.0)):
        p, q = o.Where(mask, number(o, value, f64), p), o.Where(mask, number(o, 1 - value, f64), q)
        slope = o.Where(mask, zero, slope)
    origin = o.And(o.Equal(a, 0), x > 0)
    return o.Where(origin, one, p), o.Where(origin, zero, q), slope


def _part(index: int) -> Row:
    return wide(lambda o, a, x: _parts(o, a, x)[index] if 0 not in x.shape else x)


def _random_gamma_grad(o: Emitter, a: Array, x: Array) -> Array:
    """-(dP/da) / (dP/dx): how a sample moves with its shape parameter."""
    if 0 in x.shape:
        return x
    density = o.Exp((a - 1.0) * o.Log(x) - x - lgamma(o, a))
    return o.Where(o.Equal(x, 0), number(o, 0.0, f64), -_parts(o, a, x)[2] / density)


def _beta_fraction(o: Emitter, a: Array, b: Array, x: Array) -> Array:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = number(o, 1e-300, f64)

    def away(v: Array) -> Array:
        return o.Where(o.Abs(v) < 1e-300, tiny, v)

    d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0))

    def step(i: Array, c: Array, d: Array, h: Array) -> tuple[list[Array], Array]:
        m = o.cast(i, f64) + 1.0
        even = m * (b - m) * x / ((a + m * 2.0 - 1.0) * (a + m * 2.0))
        odd = -((a + m) * (a + b + m) * x) / ((a + m * 2.0) * (a + m * 2.0 + 1.0))
        for factor in (even, odd):
            d = 1.0 / away(factor * d + 1.0)
            c = away(factor / c + 1.0)
            h = h * c * d
        return [c, d, h], o.Abs(c * d - 1.0) > 1e-16

    return converge(o, [_like(o, x, 1.0), d, d], step)[-1]


def _betainc(o: Emitter, a: Array, b: Array, x: Array) -> Array:
    if 0 in x.shape:
        return x
    one, zero = number(o, 1.0, f64), number(o, 0.0, f64)
    bounded = o.Not(o.Or(o.IsInf(a), o.IsInf(b)))
    good = o.all_of(a > 0, b > 0, x > 0, x < 1.0, bounded)
    p, q = o.Where(good, a, one), o.Where(good, b, one)
    z = o.Where(good, x, number(o, 0.5, f64))
    swap = z > (p + 1.0) / (p + q + 2.0)
    p, q, z = o.Where(swap, q, p), o.Where(swap, p, q), o.Where(swap, 1.0 - z, z)
    log_beta = lgamma(o, p) + lgamma(o, q) - lgamma(o, p + q)
    front = o.Exp(p * o.Log(z) + q * log1p(o, -z) - log_beta)
    value = front * _beta_fraction(o, p, q, z) / p
    result = o.Where(good, o.Where(swap, 1.0 - value, value), number(o, np.nan, f64))
    # The limits: all mass at 1 when b is 0, at 0 when a is 0.
    inside = o.And(x >= 0, x <= 1.0)
    valid = o.all_of(a >= 0, b >= 0, a + b > 0)
    result = o.Where(o.all_of(inside, o.Equal(a, 0), b > 0), one, result)
    result = o.Where(o.all_of(inside, a > 0, o.Equal(b, 0)), zero, result)
    result = o.Where(o.all_of(valid, o.Equal(x, 0), a > 0), zero, result)
    return o.Where(o.And(valid, o.Equal(x, 1.0)), one, result)


ROWS: dict[OpDef, Row] = {
    e.igamma: _part(0),
    e.igammac: _part(1),
    e.igamma_grad_a: _part(2),
    e.random_gamma_grad: wide(_random_gamma_grad),
    e.regularized_incomplete_beta: wide(_betainc),
}
