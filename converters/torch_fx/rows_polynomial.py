"""Orthogonal polynomials: the three-term recurrence, run elementwise up to the largest degree asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unigraph.dtypes import i64
from unigraph.graph import Value
from unigraph.ops.idioms import cast
from unigraph.types import TensorType

from .helpers import arrange, as_float, full, result_dtype
from .rowbook import rows

aten = torch.ops.aten
# step(b, x, k, p, q): the polynomial of degree k + 1 from those of degree k (q) and k - 1 (p).
Step = Callable[[Any, Value, Value, Value, Value], Value]


@dataclass(frozen=True)
class Family:
    """Degree 0 is 1 everywhere; ``first`` is degree 1; ``direct`` replaces the recurrence above ``limit``, |x| < 1."""

    first: tuple[float, float]  # (slope, offset)
    step: Step
    direct: Callable[[Any, Value, Value], Value] | None = None
    limit: int = 0


def _number(b: Any, k: Value, like: Value) -> Value:
    """A scalar counter repeated to the type of ``like``."""
    scalar = b.convert(k, dtype=like.type.dtype)
    return b.broadcast_in_dim(scalar, shape=like.type.shape, broadcast_dimensions=()) if like.type.rank else scalar


def _chebyshev(b: Any, x: Value, k: Value, p: Value, q: Value) -> Value:
    return b.sub(b.mul(b.mul(x, 2.0), q), p)


def _hermite(scale: float) -> Step:
    """The physicists' polynomials with scale 2, the probabilists' with 1."""

    def step(b: Any, x: Value, k: Value, p: Value, q: Value) -> Value:
        return b.mul(b.sub(b.mul(x, q), b.mul(_number(b, k, x), p)), scale)

    return step


def _laguerre(b: Any, x: Value, k: Value, p: Value, q: Value) -> Value:
    n = _number(b, k, x)
    grown = b.mul(b.add(b.mul(n, 2.0), b.sub(full(b, 1.0, x.type), x)), q)
    return b.div(b.sub(grown, b.mul(n, p)), b.add(n, 1.0))


def _legendre(b: Any, x: Value, k: Value, p: Value, q: Value) -> Value:
    n = _number(b, k, x)
    grown = b.mul(b.mul(b.add(b.mul(n, 2.0), 1.0), x), q)
    return b.div(b.sub(grown, b.mul(n, p)), b.add(n, 1.0))


def _cosine(b: Any, x: Value, n: Value) -> Value:
    """T_n(cos t) = cos(n t)."""
    return b.cos(b.mul(n, b.acos(x)))


def _ratio(function: str, shift: float, half: float) -> Callable[[Any, Value, Value], Value]:
    """f((n + shift) t) / f(t * half) with t = acos(x)."""

    def direct(b: Any, x: Value, n: Value) -> Value:
        f = getattr(b, function)
        t = b.acos(x)
        return b.div(f(b.mul(b.add(n, shift), t)), f(b.mul(t, half)))

    return direct


_FAMILIES = {
    "chebyshev_polynomial_t": Family((1.0, 0.0), _chebyshev, _cosine, 6),
    "chebyshev_polynomial_u": Family((2.0, 0.0), _chebyshev, _ratio("sin", 1.0, 1.0), 8),
    "chebyshev_polynomial_v": Family((2.0, -1.0), _chebyshev, _ratio("cos", 0.5, 0.5), 8),
    "chebyshev_polynomial_w": Family((2.0, 1.0), _chebyshev, _ratio("sin", 0.5, 0.5), 8),
    "hermite_polynomial_h": Family((2.0, 0.0), _hermite(2.0)),
    "hermite_polynomial_he": Family((1.0, 0.0), _hermite(1.0)),
    "laguerre_polynomial_l": Family((-1.0, 1.0), _laguerre),
    "legendre_polynomial_p": Family((1.0, 0.0), _legendre),
}


def _polynomial(family: Family, shifted: bool) -> Callable[..., Value]:
    def apply(b: Any, x: Any, n: Any) -> Value:
        dtype = as_float(result_dtype(x, n))
        x, n = arrange(b, x, n, dtype=dtype)
        n = cast(b, n, i64)
        if shifted:
            x = b.sub(b.mul(x, 2.0), 1.0)
        slope, offset = family.first
        first = b.add(b.mul(x, slope), offset)
        one, zero = full(b, 1.0, x.type), full(b, 0.0, x.type)
        degree = n
        if family.direct is not None:
            closed = b.and_(b.gt(n, family.limit), b.lt(b.abs(x), 1.0))
            degree = b.select(closed, n, full(b, 1, n.type))
        value = _recur(b, family, x, degree, one, first)
        if family.direct is not None:
            inside = b.select(closed, zero, x)
            value = b.select(closed, value, family.direct(b, inside, cast(b, n, dtype)))
        value = b.select(b.eq(n, 0), value, one)
        return b.select(b.lt(n, 0), value, zero)

    return apply


def _recur(b: Any, family: Family, x: Value, n: Value, p: Value, q: Value) -> Value:
    """Degree max(n, 1) of each element."""
    scalar = TensorType(i64)
    start = full(b, 1, scalar)

    def more(c: Any, x: Value, n: Value, k: Value, p: Value, q: Value) -> Value:
        left = c.gt(n, _number(c, k, n))
        return c.reduce_or(left, axes=tuple(range(n.type.rank))) if n.type.rank else left

    def step(c: Any, x: Value, n: Value, k: Value, p: Value, q: Value) -> tuple[Value, ...]:
        grow = c.gt(n, _number(c, k, n))
        new = family.step(c, x, k, p, q)
        return c.add(k, 1), c.select(grow, p, q), c.select(grow, q, new)

    return b.while_(x, n, x, n, start, p, q, cond_consts=2, body_consts=2, cond=more, body=step)[2]


rows(
    {
        getattr(aten, f"special_{prefix}{name}"): _polynomial(family, bool(prefix))
        for name, family in _FAMILIES.items()
        for prefix in ("", "shifted_")
        if hasattr(aten, f"special_{prefix}{name}")
    }
)
