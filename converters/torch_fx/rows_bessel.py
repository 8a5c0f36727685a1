"""Bessel and Airy functions, by quadrature and series rather than by tables of fitted coefficients.

- J and Y up to `FAR`: the midpoint rule for Bessel's integral, whose error falls faster than any
  power; Y by Neumann's series in J_2k, of which each J_2k has the same integral.
- J and Y beyond: Hankel's asymptotic expansion.
- K up to 2: the power series about 0; beyond: the trapezoidal rule for its integral over cosh.
- Ai: Maclaurin's series near 0, K of order 1/3 to the right, the asymptotic expansion to the left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unigraph.dtypes import f64
from unigraph.graph import Value
from unigraph.ops.idioms import cast

from .helpers import full
from .rowbook import rows
from .rows_elementwise import composed

aten = torch.ops.aten
FAR = 25.0
POINTS, TERMS = 40, 40
GAMMA = 0.57721566490153286061


def _sum_over(b: Any, x: Value, nodes: np.ndarray, weights: np.ndarray, f: Callable[[Any, Value], Value]) -> Value:
    """sum_j weights[j] * f(x * nodes[j]), elementwise in x."""
    shape = (*x.type.shape, len(nodes))
    axis = len(shape) - 1
    wide = b.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(axis)))

    def line(values: np.ndarray) -> Value:
        return b.broadcast_in_dim(b.constant(values, x.type.dtype), shape=shape, broadcast_dimensions=(axis,))

    return b.reduce_sum(b.mul(f(b, b.mul(wide, line(nodes))), line(weights)), axes=(axis,))


_ANGLES = (np.arange(POINTS) + 0.5) * (math.pi / 2 / POINTS)
_NODES = np.sin(_ANGLES)
_FLAT = np.full(POINTS, 1.0 / POINTS)
_ORDERS = np.arange(1, TERMS + 1)
# Neumann's series for Y0: -(4/pi) sum_k (-1)^k J_2k / k, with J_2k(x) = mean of cos(2k a) cos(x sin a).
_NEUMANN = (-4 / math.pi / POINTS) * (np.cos(2 * np.outer(_ANGLES, _ORDERS)) @ ((-1.0) ** _ORDERS / _ORDERS))


def _near(b: Any, order: int, x: Value) -> tuple[Value, Value]:
    """(J, Y) of order 0 or 1 for 0 < x <= FAR."""
    j0 = _sum_over(b, x, _NODES, _FLAT, lambda b, z: b.cos(z))
    log = b.mul(b.add(b.log(b.mul(x, 0.5)), GAMMA), 2 / math.pi)
    if order == 0:
        return j0, b.add(b.mul(log, j0), _sum_over(b, x, _NODES, _NEUMANN, lambda b, z: b.cos(z)))
    # J1 = -J0' and Y1 = -Y0'.
    j1 = _sum_over(b, x, _NODES, _FLAT * _NODES, lambda b, z: b.sin(z))
    rest = _sum_over(b, x, _NODES, _NEUMANN * _NODES, lambda b, z: b.sin(z))
    pole = b.div(b.mul(j0, 2 / math.pi), x)
    return j1, b.sub(b.add(b.mul(log, j1), rest), pole)


def _polynomial(b: Any, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first."""
    total = full(b, coefficients[-1], x.type)
    for c in reversed(coefficients[:-1]):
        total = b.add(b.mul(total, x), c)
    return total


def _hankel(order: int, terms: int = 12) -> tuple[list[float], list[float]]:
    """Coefficients of P in 1/x^2, and of Q in 1/x^2 after a factor 1/x."""
    a, items = 1.0, []
    for k in range(terms):
        items.append(a)
        a *= (4 * order**2 - (2 * k + 1) ** 2) / (8 * (k + 1))
    signed = [v if (k // 2) % 2 == 0 else -v for k, v in enumerate(items)]
    return signed[0::2], signed[1::2]


def _distant(b: Any, order: int, x: Value) -> tuple[Value, Value]:
    """(J, Y) for x > FAR."""
    p_terms, q_terms = _hankel(order)
    inverse = b.div(full(b, 1.0, x.type), x)
    square = b.square(inverse)
    p, q = _polynomial(b, square, p_terms), b.mul(inverse, _polynomial(b, square, q_terms))
    phase = b.add(x, -(order / 2 + 0.25) * math.pi)
    cos, sin = b.cos(phase), b.sin(phase)
    size = b.sqrt(b.mul(inverse, 2 / math.pi))
    return b.mul(size, b.sub(b.mul(p, cos), b.mul(q, sin))), b.mul(size, b.add(b.mul(p, sin), b.mul(q, cos)))


def _split(b: Any, order: int, x: Value, which: int) -> Value:
    """J (0) or Y (1) for x > 0, each region computed away from where it would be wrong."""
    far = b.gt(x, FAR)
    limit = full(b, FAR, x.type)
    near = _near(b, order, b.select(far, x, limit))[which]
    return b.select(far, near, _distant(b, order, b.select(far, limit, x))[which])


def _bessel_j(order: int) -> Callable[[Any, Value], Value]:
    def apply(b: Any, x: Value) -> Value:
        y = _split(b, order, b.abs(x), 0)
        return b.mul(y, b.sign(x)) if order else y

    return apply


def _bessel_y(order: int) -> Callable[[Any, Value], Value]:
    def apply(b: Any, x: Value) -> Value:
        return _right_half(b, x, -math.inf, lambda z: _split(b, order, z, 1))

    return apply


def _right_half(b: Any, x: Value, at_zero: float, f: Callable[[Value], Value]) -> Value:
    """f for positive x, ``at_zero`` at 0, NaN to the left."""
    positive = b.gt(x, 0.0)
    value = f(b.select(positive, full(b, 1.0, x.type), x))
    outside = b.select(b.eq(x, 0.0), full(b, math.nan, x.type), full(b, at_zero, x.type))
    return b.select(positive, outside, value)


# -- modified functions of the second kind ------------------------------------------------------------

_STEP, _COUNT = 0.4, 28


def _scaled_k(b: Any, order: float, x: Value) -> Value:
    """e^x K(x) for x >= 2: the integral of exp(-x (cosh t - 1)) cosh(order t), at t = u / sqrt(x)."""
    root = b.sqrt(x)
    total = full(b, 0.5, x.type)
    for k in range(1, _COUNT):
        t = b.div(full(b, k * _STEP, x.type), root)
        # cosh t - 1 as 2 sinh(t/2)^2, which loses no digits where t is small.
        height = b.mul(b.square(b.sinh(b.mul(t, 0.5))), 2.0)
        term = b.exp(b.neg(b.mul(x, height)))
        total = b.add(total, b.mul(term, b.cosh(b.mul(t, order))) if order else term)
    return b.div(b.mul(total, _STEP), root)


def _digamma(n: int) -> float:
    return -GAMMA + sum(1 / k for k in range(1, n))


def _k_series(b: Any, order: int, x: Value) -> Value:
    """K(x) for 0 < x <= 2."""
    quarter = b.mul(b.square(x), 0.25)
    log = b.log(b.mul(x, 0.5))
    factorial = [float(math.factorial(k)) for k in range(14)]
    if order == 0:
        plain = [1 / factorial[k] ** 2 for k in range(13)]
        weighted = [_digamma(k + 1) * c for k, c in enumerate(plain)]
        return b.sub(_polynomial(b, quarter, weighted), b.mul(log, _polynomial(b, quarter, plain)))
    plain = [1 / (factorial[k] * factorial[k + 1]) for k in range(13)]
    weighted = [(_digamma(k + 1) + _digamma(k + 2)) / 2 * c for k, c in enumerate(plain)]
    rest = b.sub(b.mul(log, _polynomial(b, quarter, plain)), _polynomial(b, quarter, weighted))
    return b.add(b.div(full(b, 1.0, x.type), x), b.mul(b.mul(x, 0.5), rest))


def _modified_k(order: int, scaled: bool) -> Callable[[Any, Value], Value]:
    def positive(b: Any, x: Value) -> Value:
        far, two = b.gt(x, 2.0), full(b, 2.0, x.type)
        low, high = b.select(far, x, two), b.select(far, two, x)
        near, distant = _k_series(b, order, low), _scaled_k(b, order, high)
        if scaled:
            near = b.mul(near, b.exp(low))
        else:
            distant = b.mul(distant, b.exp(b.neg(high)))
        return b.select(far, near, distant)

    return lambda b, x: _right_half(b, x, math.inf, lambda z: positive(b, z))


# -- Airy ----------------------------------------------------------------------------------------------

_RIGHT, _LEFT = 2.5, -8.0


def _airy_series(b: Any, x: Value) -> Value:
    cube = b.mul(b.square(x), x)
    f, g = [1.0], [1.0]
    for k in range(1, 45):
        f.append(f[-1] / ((3 * k - 1) * (3 * k)))
        g.append(g[-1] / ((3 * k) * (3 * k + 1)))
    at_zero, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), 3 ** (-1 / 3) / math.gamma(1 / 3)
    even = b.mul(_polynomial(b, cube, f), at_zero)
    return b.sub(even, b.mul(b.mul(_polynomial(b, cube, g), x), slope))


def _airy_right(b: Any, x: Value) -> Value:
    zeta = b.mul(b.mul(x, b.sqrt(x)), 2 / 3)
    k = b.mul(_scaled_k(b, 1 / 3, zeta), b.exp(b.neg(zeta)))
    return b.mul(b.mul(b.sqrt(b.mul(x, 1 / 3)), k), 1 / math.pi)


def _airy_left(b: Any, z: Value) -> Value:
    """Ai(-z)."""
    zeta = b.mul(b.mul(z, b.sqrt(z)), 2 / 3)
    c = [1.0]
    for k in range(1, 14):
        c.append(c[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    inverse = b.div(full(b, 1.0, z.type), zeta)
    square = b.square(inverse)
    even = _polynomial(b, square, [(-1) ** k * v for k, v in enumerate(c[0::2])])
    odd = b.mul(inverse, _polynomial(b, square, [(-1) ** k * v for k, v in enumerate(c[1::2])]))
    phase = b.add(zeta, math.pi / 4)
    wave = b.sub(b.mul(b.sin(phase), even), b.mul(b.cos(phase), odd))
    return b.mul(b.div(wave, b.sqrt(b.sqrt(z))), 1 / math.sqrt(math.pi))


def _airy(b: Any, x: Value) -> Value:
    """Ai, in float64 inside: the series loses six digits at its left end."""
    wide = cast(b, x, f64)
    right, left = b.gt(wide, _RIGHT), b.lt(wide, _LEFT)
    zero = full(b, 0.0, wide.type)
    middle = _airy_series(b, b.select(b.or_(right, left), wide, zero))
    value = b.select(right, middle, _airy_right(b, b.select(right, full(b, _RIGHT, wide.type), wide)))
    outer = b.neg(b.select(left, full(b, _LEFT, wide.type), wide))
    return cast(b, b.select(left, value, _airy_left(b, outer)), x.type.dtype)


rows(
    {
        aten.special_bessel_j0: composed(_bessel_j(0)),
        aten.special_bessel_j1: composed(_bessel_j(1)),
        aten.special_bessel_y0: composed(_bessel_y(0)),
        aten.special_bessel_y1: composed(_bessel_y(1)),
        aten.special_modified_bessel_k0: composed(_modified_k(0, False)),
        aten.special_modified_bessel_k1: composed(_modified_k(1, False)),
        aten.special_scaled_modified_bessel_k0: composed(_modified_k(0, True)),
        aten.special_scaled_modified_bessel_k1: composed(_modified_k(1, True)),
        aten.special_airy_ai: composed(_airy),
    }
)
