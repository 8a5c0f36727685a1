"""Special functions: torch.special where it has them, series and continued fractions where not.

Series stop when all elements have converged; under a trace, which has no values to look at, they run
a fixed number of terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

from .compat import is_traced
from .elementwise import in_single

Tensor = torch.Tensor
MAX_TERMS = 20000
TRACED_TERMS = 64


def _in_double(f: Callable[..., Tensor]) -> Row:
    def row(*args: Tensor) -> Tensor:
        return f(*(a.to(torch.float64) for a in args)).to(args[0].dtype)

    return row


def _terms(x: Tensor) -> int:
    return TRACED_TERMS if is_traced(x) else MAX_TERMS


def _done(changing: Tensor) -> bool:
    return not is_traced(changing) and not bool(changing.any())


def _digamma(x: Tensor) -> Tensor:
    """torch gives an infinity at 0; poles have no value."""
    return torch.where((x == 0) | (x == -torch.inf), torch.nan, torch.digamma(x))


def _lgamma(x: Tensor) -> Tensor:
    return torch.lgamma(x)


# -- incomplete gamma ----------------------------------------------------------------------------


def _series_slope(a: Tensor, x: Tensor) -> Tensor:
    """dP/da by the power series of P(a, x) (DLMF 8.11.4)."""
    total, term = torch.ones_like(x), torch.ones_like(x)
    slope, slope_term = torch.zeros_like(x), torch.zeros_like(x)
    n = a
    for _ in range(_terms(x)):
        n = n + 1
        ratio = x / n
        slope_term = slope_term * ratio - term * ratio / n
        term = term * ratio
        total, slope = total + term, slope + slope_term
        if _done((term > total * 1e-17) | (slope_term.abs() > slope.abs() * 1e-17)):
            break
    scale = torch.exp(a * torch.log(x) - x - torch.lgamma(a + 1))
    return scale * (slope + total * (torch.log(x) - torch.digamma(a + 1)))


def _fraction_slope(a: Tensor, x: Tensor) -> Tensor:
    """dQ/da by the continued fraction of Q(a, x) (DLMF 8.9.2), carried with its derivative."""
    y, z = 1 - a, x + 2 - a
    p1, q1, p2, q2 = x + 1, z * x, torch.ones_like(x), x
    dp1, dp2, dq1, dq2 = torch.zeros_like(x), torch.zeros_like(x), -x, torch.zeros_like(x)
    value = p1 / q1
    slope = (dp1 - value * dq1) / q1
    for c in range(1, _terms(x)):
        y, z = y + 1, z + 2
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        dp, dq = dp1 * z - p1 - dp2 * yc + p2 * c, dq1 * z - q1 - dq2 * yc + q2 * c
        usable = q != 0
        safe = torch.where(usable, q, 1)
        ratio = torch.where(usable, p / safe, value)
        tangent = torch.where(usable, (dp - ratio * dq) / safe, slope)
        changing = ((ratio - value).abs() > 1e-16 * ratio.abs()) | ((tangent - slope).abs() > 1e-16 * tangent.abs())
        value, slope = ratio, tangent
        scale = torch.where(p.abs() > 1e15, 1e-15, 1.0)
        p2, p1, q2, q1 = p1 * scale, p * scale, q1 * scale, q * scale
        dp2, dp1, dq2, dq1 = dp1 * scale, dp * scale, dq1 * scale, dq * scale
        if _done(changing):
            break
    scale = torch.exp(a * torch.log(x) - x - torch.lgamma(a))
    return scale * (slope + value * (torch.log(x) - torch.digamma(a)))


def igamma_grad_a(a: Tensor, x: Tensor) -> Tensor:
    """Each element from the expansion that keeps its digits; the other one sees harmless numbers."""
    good = (a > 0) & (x > 0) & torch.isfinite(a) & torch.isfinite(x)
    upper = good & (x > 1) & (x > a)
    lower = good & ~upper
    series = _series_slope(torch.where(lower, a, 1), torch.where(lower, x, 0.5))
    fraction = -_fraction_slope(torch.where(upper, a, 1), torch.where(upper, x, 2))
    result = torch.where(lower, series, torch.where(upper, fraction, torch.nan))
    flat = ((x == 0) & (a > 0)) | ((x == torch.inf) & (a > 0) & torch.isfinite(a)) | ((a == torch.inf) & (x >= 0))
    return torch.where(flat & ~good, 0.0, result)


def _random_gamma_grad(a: Tensor, x: Tensor) -> Tensor:
    """-(dP/da) / (dP/dx): how a sample moves with its shape parameter."""
    density = torch.exp((a - 1) * torch.log(x) - x - torch.lgamma(a))
    return torch.where(x == 0, 0.0, -igamma_grad_a(a, x) / density)


# -- zeta and beta -------------------------------------------------------------------------------


def _polygamma(m: Tensor, x: Tensor) -> Tensor:
    sign = torch.where(torch.fmod(m, 2) == 0, -1.0, 1.0)
    higher = sign * torch.exp(torch.lgamma(m + 1)) * torch.special.zeta(m + 1, x)
    return torch.where(
        m == 0, _digamma(x), torch.where((m < 0) | (m != torch.floor(m)), torch.full_like(x, torch.nan), higher)
    )


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300

    def away(v: Tensor) -> Tensor:
        return torch.where(v.abs() < tiny, tiny, v)

    c = torch.ones_like(x)
    d = 1 / away(1 - (a + b) * x / (a + 1))
    h = d
    for m in range(1, _terms(x)):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / away(1 + step * d)
            c = away(1 + step / c)
            h = h * c * d
        if _done((c * d - 1).abs() > 1e-16):
            break
    return h


def _betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    good = (a > 0) & (b > 0) & (x > 0) & (x < 1) & torch.isfinite(a) & torch.isfinite(b)
    p, q, z = torch.where(good, a, 1), torch.where(good, b, 1), torch.where(good, x, 0.5)
    swap = z > (p + 1) / (p + q + 2)
    p, q, z = torch.where(swap, q, p), torch.where(swap, p, q), torch.where(swap, 1 - z, z)
    log_beta = torch.lgamma(p) + torch.lgamma(q) - torch.lgamma(p + q)
    value = torch.exp(p * torch.log(z) + q * torch.log1p(-z) - log_beta) * _beta_fraction(p, q, z) / p
    result = torch.where(good, torch.where(swap, 1 - value, value), torch.nan)
    # The limits: all mass at 1 when b is 0, at 0 when a is 0.
    inside = (x >= 0) & (x <= 1)
    valid = (a >= 0) & (b >= 0) & (a + b > 0)
    for mask, limit in (
        (inside & (a == 0) & (b > 0), 1.0),
        (inside & (a > 0) & (b == 0), 0.0),
        (valid & (x == 0) & (a > 0), 0.0),
        (valid & (x == 1), 1.0),
    ):
        result = torch.where(mask, limit, result)
    return result


def _named(name: str) -> OpDef:
    return getattr(e, name)


_SINGLE: dict[str, Callable[..., Any]] = {
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erf_inv": torch.erfinv,
    "lgamma": _lgamma,
    "digamma": _digamma,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1e": torch.special.i1e,
    "igamma": torch.special.gammainc,
    "igammac": torch.special.gammaincc,
}

ROWS: dict[OpDef, Row] = {
    **{_named(name): in_single(f) for name, f in _SINGLE.items()},
    e.igamma_grad_a: _in_double(igamma_grad_a),
    e.random_gamma_grad: _in_double(_random_gamma_grad),
    e.zeta: _in_double(torch.special.zeta),
    e.polygamma: _in_double(_polygamma),
    e.regularized_incomplete_beta: _in_double(_betainc),
}
