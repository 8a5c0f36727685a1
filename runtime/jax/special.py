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


def _with_slope(value: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``value`` with this derivative in its second argument, and none in the first."""
    function = jax.custom_jvp(value)
    function.defjvp(lambda primals, tangents: (function(*primals), slope(*primals) * tangents[1]))
    return function


def _zeta_value(s: Any, q: Any) -> Any:
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


def _zeta_slope(s: Any, q: Any) -> Any:
    return -s * _zeta(s + 1, q)


_zeta = _with_slope(_zeta_value, _zeta_slope)


def _polygamma_value(m: Any, x: Any) -> Any:
    sign = jnp.where(m % 2 == 0, -1.0, 1.0).astype(x.dtype)
    higher = sign * jnp.exp(lax.lgamma(m + 1)) * _zeta(m + 1, x)
    wrong = (m < 0) | (m != jnp.floor(m))
    return jnp.where(m == 0, lax.digamma(x), jnp.where(wrong, jnp.nan, higher))


def _polygamma_slope(m: Any, x: Any) -> Any:
    return _polygamma(m + 1, x)


_polygamma = _with_slope(_polygamma_value, _polygamma_slope)


ROWS: Mapping[OpDef, Callable[..., Any]] = {e.zeta: _in_single(_zeta), e.polygamma: _in_single(_polygamma)}
