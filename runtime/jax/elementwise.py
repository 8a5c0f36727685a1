"""Elementwise rows: the functions of ``jax.lax`` that bear the op's name, and the few that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from unigraph.dtypes import DType
from unigraph.opdef import OpDef, registry
from unigraph.ops import elementwise as e

from .dtypes import to_jax

R = registry()

# Ops whose lax function has the same name, operands and attributes.
_SAME = (
    "sub div rem max min pow atan2 nextafter neg sign square integer_pow ceil floor is_finite reduce_precision "
    "exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic cbrt erf "
    "erfc erf_inv lgamma digamma bessel_i0e bessel_i1e igamma igammac igamma_grad_a random_gamma_grad "
    "shift_left shift_right_logical shift_right_arithmetic population_count clz mulhi eq ne clamp "
    "complex real imag conj stop_gradient"
)


def _add(x: Any, y: Any) -> Any:
    return lax.bitwise_or(x, y) if x.dtype == jnp.bool_ else lax.add(x, y)


def _mul(x: Any, y: Any) -> Any:
    return lax.bitwise_and(x, y) if x.dtype == jnp.bool_ else lax.mul(x, y)


def _abs(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else lax.abs(x)


def _exp2(x: Any) -> Any:
    # In 16 bits XLA's exp(x log 2) misses whole powers.
    return lax.exp2(x.astype(jnp.float32)).astype(x.dtype) if x.dtype.itemsize < 4 else lax.exp2(x)


def _ordered(strict: Callable[[Any, Any], Any], compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``compare``, lexicographic on complex numbers."""

    def row(x: Any, y: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.complexfloating):
            return compare(x, y)
        a, b = lax.real(x), lax.real(y)
        return strict(a, b) | ((a == b) & compare(lax.imag(x), lax.imag(y)))

    return row


def _select(which: Any, *cases: Any) -> Any:
    if which.dtype != jnp.bool_ and len(cases) > 1:
        which = lax.clamp(jnp.int32(0), which, jnp.int32(len(cases) - 1))
        if len(cases) == 2:
            which = which == 1
    if 0 < which.ndim < cases[0].ndim:  # keys, which have their words as one more axis
        which = lax.broadcast_in_dim(which, cases[0].shape, tuple(range(which.ndim)))
    # A lone case needs no choice, and lax takes none.
    return lax.select_n(which, *cases) if len(cases) > 1 else cases[0]


def _convert(x: Any, dtype: DType) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not dtype.is_complex:
        x = x != 0 if dtype.name == "bool" else lax.real(x)
    if dtype.is_integer and jnp.issubdtype(x.dtype, jnp.floating):
        return _saturate(x, dtype)
    return lax.convert_element_type(x, to_jax(dtype))


def _saturate(x: Any, dtype: DType) -> Any:
    """Float to integer: toward zero, clamped to the range, NaN to 0.

    The platforms' own conversions part ways beyond 32 bits and below 8, so the clamp is explicit.
    """
    target = to_jax(dtype)
    info = jnp.iinfo(target)
    wide = x if x.dtype in (jnp.float32, jnp.float64) else lax.convert_element_type(x, jnp.float32)
    low, high = float(info.min), float(2 ** (info.bits - (dtype.kind == "int")))
    inside = (wide > low - 1 if info.bits <= 32 else wide >= low) & (wide < high)
    whole = lax.convert_element_type(jnp.where(inside, wide, 0), target)
    edge = jnp.where(wide < 0, jnp.array(info.min, target), jnp.array(info.max, target))
    return jnp.where(inside, whole, jnp.where(jnp.isnan(wide), jnp.array(0, target), edge))


def _bitcast(x: Any, dtype: DType) -> Any:
    return lax.bitcast_convert_type(x, to_jax(dtype))


def _round(x: Any, mode: str) -> Any:
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    return lax.round(x, even if mode == "even" else lax.RoundingMethod.AWAY_FROM_ZERO)


def _barrier(*xs: Any) -> tuple[Any, ...]:
    return tuple(lax.optimization_barrier(xs)) if xs else ()


def _total(primitive: Any) -> Callable[[Any, Any], Any]:
    return lambda x, y: primitive.bind(x, y)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    **{R[name]: getattr(lax, name) for name in _SAME.split()},
    e.add: _add,
    e.mul: _mul,
    e.abs: _abs,
    R["exp2"]: _exp2,
    R["lt"]: _ordered(lax.lt, lax.lt),
    R["le"]: _ordered(lax.lt, lax.le),
    R["gt"]: _ordered(lax.gt, lax.gt),
    R["ge"]: _ordered(lax.gt, lax.ge),
    e.and_: lax.bitwise_and,
    e.or_: lax.bitwise_or,
    e.xor: lax.bitwise_xor,
    e.not_: lax.bitwise_not,
    R["eq_to"]: _total(lax.eq_to_p),
    R["lt_to"]: _total(lax.lt_to_p),
    R["le_to"]: _total(lax.le_to_p),
    e.regularized_incomplete_beta: lax.betainc,
    e.round: _round,
    e.select: _select,
    e.convert: _convert,
    e.bitcast: _bitcast,
    e.copy: lambda x: x,
    e.optimization_barrier: _barrier,
}
