"""Zeta and polygamma to the left of zero, where those of lax, made for positive arguments, are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

STEPS = 10_000  # an argument further to the left than this is NaN


def _in_single(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(function)
    def apply(s: Any, q: Any) -> Any:
        dtype = jnp.promote_types(q.dtype, jnp.float32)
        return function(s.astype(dtype), q.astype(dtype)).astype(q.dtype)

    return apply


@jax.custom_jvp
def _zeta(s: Any, q: Any) -> Any:
    """zeta(s, q) = q^-s + (q+1)^-s + ... until the argument is positive, and lax's zeta from there."""

    def more(state: tuple[Any, Any, Any]) -> Any:
        step, a, _ = state
        return (step < STEPS) & jnp.any(a < 0)

    def add(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        step, a, total = state
        left = a < 0
        return step + 1, jnp.where(left, a + 1, a), jnp.where(left, total + jnp.power(a, -s), total)

    s, q = jnp.broadcast_arrays(s, q)
    shifted = (q < 0) & (q != jnp.floor(q))  # at whole numbers lax knows that there are poles
    _, a, total = lax.while_loop(more, add, (0, jnp.where(shifted, q, 1), jnp.zeros_like(q)))
    moved = total + lax.zeta(s, jnp.where(a < 0, jnp.nan, a))
    return jnp.where(shifted, moved, lax.zeta(s, q))


@_zeta.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    s, q = primals
    return _zeta(s, q), -s * _zeta(s + 1, q) * tangents[1]  # as lax: no derivative in s


@jax.custom_jvp
def _polygamma(m: Any, x: Any) -> Any:
    sign = jnp.where(m % 2 == 0, -1.0, 1.0).astype(x.dtype)
    higher = sign * jnp.exp(lax.lgamma(m + 1)) * _zeta(m + 1, x)
    wrong = (m < 0) | (m != jnp.floor(m))
    return jnp.where(m == 0, lax.digamma(x), jnp.where(wrong, jnp.nan, higher))


@_polygamma.defjvp
def _(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    m, x = primals
    return _polygamma(m, x), _polygamma(m + 1, x) * tangents[1]


ROWS: Mapping[OpDef, Callable[..., Any]] = {e.zeta: _in_single(_zeta), e.polygamma: _in_single(_polygamma)}
