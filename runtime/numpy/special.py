"""Special functions on NumPy, computed in f64 (f32 where that is enough) over whole arrays.

Coefficients of the Bessel functions and of the f32 error function were fitted for this file
(Chebyshev interpolation, least-squares rational fit); the other methods are cited where used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unigraph.dtypes import dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

Array = Any  # np.ndarray, whose stubs do not know ml_dtypes
MAX_TERMS = 20000  # of a series or continued fraction; convergence stops it long before

# fmt: off
# exp(-x) I0(x) and exp(-x) I1(x) / x on [0, 8], in x / 4 - 1; sqrt(x) times them beyond, in 16 / x - 1.
_I0E_SMALL = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071,
    -0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357,
    -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05,
    -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
    -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11,
    -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14,
    -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17,
    -4.4153416464793395e-18,
)
_I0E_LARGE = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.827623980516583e-16, 3.4612228676974575e-17, 4.465621420296758e-17, -4.830504485944022e-18,
    -7.23318048787497e-18,
)
_I1E_SMALL = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516,
    -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758,
    -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06,
    -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
    -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11,
    -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15,
    -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18,
)
_I1E_LARGE = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.20952592199342e-17, -4.650305368489357e-17, 4.414348323071546e-18,
    7.517296310842329e-18,
)
# erf(x) / x as a rational function of x**2 on [0, 16], to f32 precision.
_ERF_P = (
    1.1283791681226927, 0.16687895837424493, 0.0509335628928677, 0.0029547674902464516, 0.0003056408837764215,
    -2.9612655256804754e-07, -4.488259286545274e-08,
)
_ERF_Q = (
    1.0, 0.4812259979815057, 0.10554709678082023, 0.013488597660548603, 0.0010394709037625158,
    4.09649137361427e-05, -6.209640479024738e-07,
)
# Giles, "Approximating the erfinv function" (2010), single precision, in w = -log(1 - x**2).
_GILES_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)
_GILES_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)
# fmt: on


def in_double(f: Callable[..., Any]) -> Row:
    """``f`` computed in f64 and rounded to the operands' dtype."""

    @functools.wraps(f)
    def row(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            result = f(*(np.asarray(a, dtype=np.float64) for a in args))
        return np.asarray(result).astype(args[0].dtype)

    return row


def scalar(f: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the C library applied to every element."""
    apply = np.frompyfunc(f, 1, 1)
    return lambda x: np.asarray(apply(x), dtype=np.float64)


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    """The polynomial with the highest power first."""
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + x.dtype.type(c)
    return total


# -- error functions -----------------------------------------------------------------------------

_erf_double, _erfc_double = scalar(math.erf), scalar(math.erfc)


def _erf(x: Array) -> Array:
    kind = dtype(x.dtype)
    if kind.bits > 32:
        return _erf_double(x)
    x32 = x.astype(np.float32)
    with np.errstate(all="ignore"):
        inside = np.clip(x32, -4, 4)
        u = inside * inside
        y = inside * _horner(_ERF_P[::-1], u) / _horner(_ERF_Q[::-1], u)
    return np.clip(y, -1, 1).astype(x.dtype)


def erf_inv(x: Array) -> Array:
    kind = dtype(x.dtype)
    single = kind.bits <= 32
    z = x.astype(np.float32 if single else np.float64)
    with np.errstate(all="ignore"):
        w = -np.log1p(-z * z)
        centre = w < 5
        y = np.where(centre, _horner(_GILES_CENTRE, w - 2.5), _horner(_GILES_TAIL, np.sqrt(w) - 3)) * z
        if not single:
            # Newton on erfc in the tail, where 1 - |x| is exact and keeps all digits.
            size, tail = np.abs(y), 1 - np.abs(z)
            for _ in range(3):
                ok = np.isfinite(size)
                safe = np.where(ok, size, 0)
                size = np.where(
                    ok, safe + (_erfc_double(safe) - tail) * (math.sqrt(math.pi) / 2) * np.exp(safe * safe), size
                )
            small = np.abs(z) < 0.5
            core = np.where(small, y, 0)
            for _ in range(3):
                core = core - (_erf_double(core) - np.where(small, z, 0)) * (math.sqrt(math.pi) / 2) * np.exp(
                    core * core
                )
            y = np.where(small, core, np.copysign(size, z))
        y = np.where(np.abs(z) == 1, np.copysign(np.inf, z), np.where(np.abs(z) > 1, np.nan, y))
    return y.astype(x.dtype)


# -- gamma and its kin ---------------------------------------------------------------------------


def _lgamma_one(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return math.lgamma(x)


_lgamma = scalar(_lgamma_one)
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma(x: Array) -> Array:
    """Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection below 0."""
    reflect = x <= 0
    pole = reflect & (x == np.floor(x))
    y = np.where(reflect, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(10):
        low = y < 10
        total = total - np.where(low, 1 / np.where(low, y, 1), 0)
        y = np.where(low, y + 1, y)
    square = 1 / (y * y)
    series = np.zeros_like(y)
    for b in reversed(_BERNOULLI):
        series = (series + b) * square
    result = total + np.log(y) - 0.5 / y - series
    # x - round(x) keeps tan exact for large |x|.
    turn = x - np.rint(x)
    result = np.where(reflect, result - np.pi / np.tan(np.pi * turn), result)
    return np.where(pole | (x == -np.inf), np.nan, result)


def _chebyshev(coefficients: tuple[float, ...], u: Array) -> Array:
    """Clenshaw's recurrence for the sum of c_k T_k(u)."""
    b1 = b2 = np.zeros_like(u)
    for c in reversed(coefficients[1:]):
        b1, b2 = 2 * u * b1 - b2 + c, b1
    return u * b1 - b2 + coefficients[0]


def _bessel(small: tuple[float, ...], large: tuple[float, ...], odd: bool) -> Callable[[Array], Array]:
    def f(x: Array) -> Array:
        size = np.abs(x)
        near = size <= 8
        inner = _chebyshev(small, np.where(near, size, 0) / 4 - 1)
        outer = _chebyshev(large, 16 / np.where(near, 16, size) - 1) / np.sqrt(np.where(near, 1, size))
        result = np.where(near, inner * size if odd else inner, outer)
        result = np.where(np.isinf(size), 0, result)
        return np.where(np.isnan(x), np.nan, np.copysign(result, x) if odd else result)

    return f


# -- incomplete gamma ----------------------------------------------------------------------------


def _gamma_series(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) by its power series (DLMF 8.11.4), and its derivative in a."""
    term = total = np.ones_like(x)
    slope_term = slope = np.zeros_like(x)
    n = a.copy()
    for _ in range(MAX_TERMS):
        n = n + 1
        ratio = x / n
        slope_term = slope_term * ratio - term * ratio / n
        term = term * ratio
        total, slope = total + term, slope + slope_term
        if not np.any((term > total * 1e-17) | (np.abs(slope_term) > np.abs(slope) * 1e-17)):
            break
    scale = np.exp(a * np.log(x) - x - _lgamma(a + 1))
    return scale * total, scale * (slope + total * (np.log(x) - _digamma(a + 1)))


def _gamma_fraction(a: Array, x: Array) -> tuple[Array, Array]:
    """Q(a, x) by its continued fraction (DLMF 8.9.2), and its derivative in a.

    Each quantity of the recurrence is carried together with its derivative.
    """
    y, z = 1 - a, x + 2 - a
    p1, q1 = x + 1, z * x
    p2, q2 = np.ones_like(x), x.copy()
    dp1 = dp2 = np.zeros_like(x)
    dq1, dq2 = -x, np.zeros_like(x)
    value, slope = p1 / q1, (dp1 - p1 / q1 * dq1) / q1
    for c in range(1, MAX_TERMS):
        y, z = y + 1, z + 2
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp = dp1 * z - p1 - dp2 * yc + p2 * c
        dq = dq1 * z - q1 - dq2 * yc + q2 * c
        nonzero = q != 0
        safe = np.where(nonzero, q, 1)
        ratio = np.where(nonzero, p / safe, value)
        tangent = np.where(nonzero, (dp - ratio * dq) / safe, slope)
        change = np.abs(ratio - value) > 1e-16 * np.abs(ratio)
        turn = np.abs(tangent - slope) > 1e-16 * np.abs(tangent)
        value, slope = ratio, tangent
        p2, p1, q2, q1, dp2, dp1, dq2, dq1 = p1, p, q1, q, dp1, dp, dq1, dq
        big = np.where(np.abs(p) > 1e15, 1e-15, 1.0)
        p1, p2, q1, q2 = p1 * big, p2 * big, q1 * big, q2 * big
        dp1, dp2, dq1, dq2 = dp1 * big, dp2 * big, dq1 * big, dq2 * big
        if not np.any(change | turn):
            break
    log_scale = a * np.log(x) - x - _lgamma(a)
    scale = np.exp(log_scale)
    return scale * value, scale * (slope + value * (np.log(x) - _digamma(a)))


def _gamma_parts(a: Array, x: Array) -> tuple[Array, Array, Array]:
    """P, Q and dP/da, each from the expansion that keeps its digits."""
    a, x = np.broadcast_arrays(a, x)
    good = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    upper = good & (x > 1) & (x > a)
    lower = good & ~upper
    p, q, slope = (np.full(x.shape, np.nan) for _ in range(3))
    if lower.any():
        p[lower], slope[lower] = _gamma_series(a[lower], x[lower])
        q[lower] = 1 - p[lower]
    if upper.any():
        q[upper], negative = _gamma_fraction(a[upper], x[upper])
        slope[upper] = -negative
        p[upper] = 1 - q[upper]
    at_zero = (x == 0) & (a > 0)
    at_infinity = (x == np.inf) & (a > 0) & np.isfinite(a)
    past = (a == np.inf) & (x >= 0) & np.isfinite(x)
    for mask, value in ((at_zero, 0.0), (at_infinity, 1.0), (past, 0.0)):
        p[mask], q[mask], slope[mask] = value, 1 - value, 0.0
    at_origin = (a == 0) & (x > 0)
    p[at_origin], q[at_origin] = 1.0, 0.0
    return p, q, slope


def _random_gamma_grad(a: Array, x: Array) -> Array:
    """-(dP/da) / (dP/dx): how a sample moves with its shape parameter."""
    density = np.exp((a - 1) * np.log(x) - x - _lgamma(a))
    return np.where(x == 0, 0.0, -_gamma_parts(a, x)[2] / density)


# -- zeta and beta -------------------------------------------------------------------------------

# (2k)! / B_2k for the Euler-Maclaurin tail (DLMF 25.11.7).
_ZETA = tuple(
    math.factorial(2 * k) / b
    for k, b in enumerate(
        (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
         854513 / 138, -236364091 / 2730), 1
    )
)  # fmt: skip


def _zeta(x: Array, q: Array) -> Array:
    total = np.zeros_like(x)
    a = q.copy()
    for _ in range(10_000):  # steps to the right of zero; what needs more of them is NaN
        left = a < 0
        if not left.any():
            break
        total = np.where(left, total + np.power(a, -x), total)
        a = np.where(left, a + 1, a)
    a = np.where(a < 0, np.nan, a)
    for _ in range(12):
        total = total + np.power(a, -x)
        a = a + 1
    power = np.power(a, -x)
    total = total + power * a / (x - 1) + 0.5 * power
    factor, scale = x.copy(), power / a
    for k, b in enumerate(_ZETA):
        total = total + factor * scale / b
        factor = factor * (x + 2 * k + 1) * (x + 2 * k + 2)
        scale = scale / (a * a)
    whole = q == np.floor(q)
    total = np.where(q == np.inf, 0.0, total)
    total = np.where((x < 1) | ((q <= 0) & ~whole & (x != np.floor(x))), np.nan, total)
    total = np.where((q <= 0) & whole, np.where(np.fmod(x, 2) == 0, np.inf, np.nan), total)
    total = np.where(x == 1, np.inf, total)
    return np.where(np.isnan(x) | np.isnan(q), np.nan, total)


def _polygamma(m: Array, x: Array) -> Array:
    sign = np.where(np.fmod(m, 2) == 0, -1.0, 1.0)
    higher = sign * np.exp(_lgamma(m + 1)) * _zeta(m + 1, x)
    return np.where(m == 0, _digamma(x), np.where((m < 0) | (m != np.floor(m)), np.nan, higher))


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    c = np.ones_like(x)
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / np.where(np.abs(d) < tiny, tiny, d)
    h = d.copy()
    for m in range(1, MAX_TERMS):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + step * d
            c = 1 + step / c
            d = 1 / np.where(np.abs(d) < tiny, tiny, d)
            c = np.where(np.abs(c) < tiny, tiny, c)
            h = h * c * d
        if not np.any(np.abs(c * d - 1) > 1e-16):
            break
    return h


def _betainc(a: Array, b: Array, x: Array) -> Array:
    a, b, x = np.broadcast_arrays(a, b, x)
    result = np.full(x.shape, np.nan)
    good = (a > 0) & (b > 0) & (x > 0) & (x < 1) & np.isfinite(a) & np.isfinite(b)
    if good.any():
        p, q, z = a[good], b[good], x[good]
        swap = z > (p + 1) / (p + q + 2)
        p, q, z = np.where(swap, q, p), np.where(swap, p, q), np.where(swap, 1 - z, z)
        log_beta = _lgamma(p) + _lgamma(q) - _lgamma(p + q)
        value = np.exp(p * np.log(z) + q * np.log1p(-z) - log_beta) * _beta_fraction(p, q, z) / p
        result[good] = np.where(swap, 1 - value, value)
    # The limits: all mass at 1 when b is 0, at 0 when a is 0.
    inside = (x >= 0) & (x <= 1)
    result[inside & (a == 0) & (b > 0)] = 1.0
    result[inside & (a > 0) & (b == 0)] = 0.0
    valid = (a >= 0) & (b >= 0) & (a + b > 0)
    result[valid & (x == 0) & (a > 0)] = 0.0
    result[valid & (x == 1)] = 1.0
    return result


def _named(name: str) -> OpDef:
    return getattr(e, name)


ROWS: dict[OpDef, Row] = {
    _named("erf"): _erf,
    _named("erfc"): in_double(_erfc_double),
    _named("erf_inv"): erf_inv,
    _named("lgamma"): in_double(_lgamma),
    _named("digamma"): in_double(_digamma),
    _named("bessel_i0e"): in_double(_bessel(_I0E_SMALL, _I0E_LARGE, odd=False)),
    _named("bessel_i1e"): in_double(_bessel(_I1E_SMALL, _I1E_LARGE, odd=True)),
    e.igamma: in_double(lambda a, x: _gamma_parts(a, x)[0]),
    e.igammac: in_double(lambda a, x: _gamma_parts(a, x)[1]),
    e.igamma_grad_a: in_double(lambda a, x: _gamma_parts(a, x)[2]),
    e.random_gamma_grad: in_double(_random_gamma_grad),
    e.zeta: in_double(_zeta),
    e.polygamma: in_double(_polygamma),
    e.regularized_incomplete_beta: in_double(_betainc),
}
