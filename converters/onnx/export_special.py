"""Special functions of the ONNX export, composed in f64 from elementary operators of fixed number.

Coefficients are Chebyshev expansions: those of the error functions were fitted for this file, those of the
Bessel functions and Giles's inverse error function are shared with the NumPy rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unigraph.dtypes import f32, f64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e
from unigraph.runtime.numpy import special as shared

from .emitter import Emitter
from .export_elementwise import log1p, number, wide
from .handles import Array

# fmt: off
# erf(x) / x on [0, 1], in 2 x**2 - 1.
_ERF = (
    0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485, 2.741993125219606e-05,
    -1.1043175507344507e-06, 3.8488755420345036e-08, -1.1808582533875466e-09, 3.2334215826050907e-11,
    -7.991015947004549e-13, 1.7990725113961456e-14, -3.718635487818693e-16, 7.103599003714253e-18,
)
# erfc(x) exp(x**2) (1 + 2 x) on [0, inf), in (x - 3.75) / (x + 3.75).
_ERFC = (
    1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189, -0.026658668435305753,
    0.009074997670705265, -0.002413163540417608, 0.0004907758365258086, -6.916973302501207e-05,
    4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07, 1.076499946567091e-08,
    4.521959811218287e-09, -7.754400208831351e-10, -6.318088340886684e-11, 2.86879501093067e-11,
    1.9455868545777347e-13, -9.65469674843344e-13, 3.25254814814874e-14, 3.3478119482868056e-14,
    -1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17, 5.0681489047961116e-17,
    -2.2370566594359995e-18,
)
# fmt: on


def chebyshev(o: Emitter, coefficients: Sequence[float], u: Array) -> Array:
    """Clenshaw's recurrence for the sum of c_k T_k(u)."""
    twice = u + u
    b1: Array | None = None
    b2: Array | None = None
    for c in reversed(coefficients[1:]):
        if b1 is None:
            b1 = number(o, c, u.dtype)
            continue
        b1, b2 = (twice * b1 + c if b2 is None else twice * b1 - b2 + c), b1
    assert b1 is not None and b2 is not None
    return u * b1 - b2 + coefficients[0]


def _horner(o: Emitter, coefficients: Sequence[float], x: Array) -> Array:
    """The polynomial with the highest power first."""
    total: Array | float = float(coefficients[0])
    for c in coefficients[1:]:
        total = x * total + c
    assert isinstance(total, Array)
    return total


def _copy_sign(o: Emitter, size: Array, x: Array) -> Array:
    return o.Where(x < 0, -size, size)


def _erfc_positive(o: Emitter, x: Array) -> Array:
    """erfc for x >= 0 in f64. Beyond 27 it is below the smallest float; there x is cut to keep off inf / inf."""
    x = o.Min(x, 30.0)
    tail = chebyshev(o, _ERFC, (x - 3.75) / (x + 3.75))
    return tail * o.Exp(-(x * x)) / (x * 2.0 + 1.0)


def _erf_double(o: Emitter, x: Array) -> Array:
    size = o.Abs(x)
    inner = o.Min(size, 1.0)
    near = x * chebyshev(o, _ERF, inner * inner * 2.0 - 1.0)
    return o.Where(size < 1.0, near, _copy_sign(o, 1.0 - _erfc_positive(o, size), x))


def _erf(o: Emitter, x: Array) -> Array:
    return _erf_double(o, x) if x.dtype is f64 else o.Erf(x)


def _erfc(o: Emitter, x: Array) -> Array:
    tail = _erfc_positive(o, o.Abs(x))
    return o.Where(x < 0, 2.0 - tail, tail)


def _erf_inv(o: Emitter, x: Array) -> Array:
    kind = x.dtype
    single = kind.bits <= 32
    z = o.cast(x, f32 if single else f64)
    w = -o.cast(log1p(o, o.cast(-(z * z), f64)), z.dtype)
    centre, tail = _horner(o, shared._GILES_CENTRE, w - 2.5), _horner(o, shared._GILES_TAIL, o.Sqrt(w) - 3.0)
    y = o.Where(w < 5.0, centre, tail) * z
    size = o.Abs(z)
    if not single:
        half_root = math.sqrt(math.pi) / 2
        # Newton: on erf near 0, on erfc in the tail, where 1 - |x| is exact and keeps all digits.
        small = size < 0.5
        core, far = o.Where(small, y, number(o, 0.0, f64)), o.Where(small, number(o, 1.0, f64), o.Abs(y))
        target = o.Where(small, z, number(o, 0.0, f64))
        for _ in range(3):
            core = core - (_erf_double(o, core) - target) * half_root * o.Exp(core * core)
            far = far + (_erfc_positive(o, far) - (1.0 - size)) * half_root * o.Exp(far * far)
        y = o.Where(small, core, _copy_sign(o, far, z))
    infinite = _copy_sign(o, o.Where(size > 1.0, number(o, np.nan, z.dtype), number(o, np.inf, z.dtype)), z)
    return o.cast(o.Where(size < 1.0, y, o.Where(o.IsNaN(z), z, infinite)), kind)


# -- gamma and its kin ---------------------------------------------------------------------------

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


def lgamma(o: Emitter, x: Array) -> Array:
    """Recurrence up to 10, then Stirling's series (DLMF 5.11.1); reflection below 1/2."""
    reflect = x < 0.5
    y = o.Where(reflect, 1.0 - x, x)
    product = None
    for _ in range(10):
        low = y < 10.0
        factor = o.Where(low, y, number(o, 1.0, f64))
        product = factor if product is None else product * factor
        y = o.Where(low, y + 1.0, y)
    assert product is not None
    square = 1.0 / (y * y)
    series = _horner(o, _STIRLING[::-1], square) / y
    # y (log y - 1) overflows only where lgamma does.
    upper = (y - 0.5) * (o.Log(y) - 1.0) + (series + (0.5 * math.log(2 * math.pi) - 0.5)) - o.Log(product)
    turn = x - o.Round(x)
    below = math.log(math.pi) - o.Log(o.Abs(o.Sin(turn * math.pi))) - upper
    pole = o.any_of(o.IsInf(x), o.And(x <= 0, o.Equal(x, o.Floor(x))))
    return o.Where(pole, number(o, np.inf, f64), o.Where(reflect, below, upper))


def digamma(o: Emitter, x: Array) -> Array:
    """Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection below 0."""
    reflect = x <= 0
    y = o.Where(reflect, 1.0 - x, x)
    total = number(o, 0.0, f64)
    for _ in range(10):
        low = y < 10.0
        total = total - o.Where(low, 1.0 / y, number(o, 0.0, f64))
        y = o.Where(low, y + 1.0, y)
    square = 1.0 / (y * y)
    series = square * _horner(o, shared._BERNOULLI[::-1], square)
    result = total + o.Log(y) - 0.5 / y - series
    turn = (x - o.Round(x)) * math.pi
    result = o.Where(reflect, result - math.pi * o.Cos(turn) / o.Sin(turn), result)
    pole = o.And(reflect, o.Equal(x, o.Floor(x)))
    return o.Where(pole, number(o, np.nan, f64), result)


def _bessel(small: Sequence[float], large: Sequence[float], odd: bool) -> Row:
    def f(o: Emitter, x: Array) -> Array:
        size = o.Abs(x)
        near = size <= 8.0
        inner = chebyshev(o, small, o.Min(size, 8.0) * 0.25 - 1.0)
        far = o.Where(near, number(o, 16.0, f64), size)
        outer = chebyshev(o, large, 16.0 / far - 1.0) / o.Sqrt(far)
        result = o.Where(near, inner * size if odd else inner, outer)
        result = o.Where(o.IsNaN(x), x, result)
        return _copy_sign(o, result, x) if odd else result

    return wide(f)


def zeta(o: Emitter, x: Array, q: Array) -> Array:
    """Twelve terms, then Euler and Maclaurin's tail (DLMF 25.11.7)."""
    total: Array | None = None
    a = q
    for _ in range(12):
        term = o.Pow(a, -x)
        total = term if total is None else total + term
        a = a + 1.0
    assert total is not None
    power = o.Pow(a, -x)
    total = total + power * a / (x - 1.0) + power * 0.5
    factor, scale = x, power / a
    for k, b in enumerate(shared._ZETA):
        total = total + factor * scale / b
        factor = factor * (x + (2.0 * k + 1)) * (x + (2.0 * k + 2))
        scale = scale / (a * a)
    nan, infinity = number(o, np.nan, f64), number(o, np.inf, f64)
    below, whole = q <= 0, o.Equal(q, o.Floor(q))
    total = o.Where(o.And(o.IsInf(q), q > 0), number(o, 0.0, f64), total)
    broken = o.all_of(below, o.Not(whole), o.Not(o.Equal(x, o.Floor(x))))
    broken = o.Or(broken, o.And(q < -12.0, o.Not(whole)))  # where twelve terms do not lead to the right of zero
    total = o.Where(o.Or(x < 1.0, broken), nan, total)
    even = o.Equal(o.Mod(x, 2.0, fmod=1), 0)
    total = o.Where(o.And(below, whole), o.Where(even, infinity, nan), total)
    total = o.Where(o.Equal(x, 1.0), infinity, total)
    return o.Where(o.Or(o.IsNaN(x), o.IsNaN(q)), nan, total)


def _polygamma(o: Emitter, m: Array, x: Array) -> Array:
    sign = o.Where(o.Equal(o.Mod(m, 2.0, fmod=1), 0), number(o, -1.0, f64), number(o, 1.0, f64))
    higher = sign * o.Exp(lgamma(o, m + 1.0)) * zeta(o, m + 1.0, x)
    wrong = o.Or(m < 0, o.Not(o.Equal(m, o.Floor(m))))
    return o.Where(o.Equal(m, 0), digamma(o, x), o.Where(wrong, number(o, np.nan, f64), higher))


def _named(name: str) -> OpDef:
    return getattr(e, name)


ROWS: dict[OpDef, Row] = {
    _named("erf"): _erf,
    _named("erfc"): wide(_erfc),
    _named("erf_inv"): _erf_inv,
    _named("lgamma"): wide(lgamma),
    _named("digamma"): wide(digamma),
    _named("bessel_i0e"): _bessel(shared._I0E_SMALL, shared._I0E_LARGE, odd=False),
    _named("bessel_i1e"): _bessel(shared._I1E_SMALL, shared._I1E_LARGE, odd=True),
    e.zeta: wide(zeta),
    e.polygamma: wide(_polygamma),
}
