"""Random rows. A key is its uint32 data; the table tells each row which kind of key it got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import lax
from jax.extend.random import threefry2x32_p

from unigraph.dtypes import DType
from unigraph.opdef import OpDef
from unigraph.ops import random as r

from .dtypes import to_jax

_BY_WORDS = {2: "threefry2x32", 4: "rbg"}


def _typed(key: Any, impl: str | None) -> Any:
    """The jax key array with these words; without ``impl`` their number decides."""
    return jax.random.wrap_key_data(key, impl=impl or _BY_WORDS[key.shape[-1]])


def _each(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """``function`` over ``rank`` leading axes of all its arguments."""
    for _ in range(rank):
        function = jax.vmap(function)
    return function


def _seed(seed: Any, impl: str) -> Any:
    return jax.random.key_data(jax.random.key(seed, impl=impl))


def _split(key: Any, shape: Any, impl: str | None = None) -> Any:
    keys = _typed(key, impl)
    return jax.random.key_data(_each(lambda k: jax.random.split(k, shape), keys.ndim)(keys))


def _fold_in(key: Any, data: Any, impl: str | None = None) -> Any:
    keys = _typed(key, impl)
    if data.ndim < keys.ndim:
        return jax.random.key_data(_each(lambda k: jax.random.fold_in(k, data), keys.ndim)(keys))
    return jax.random.key_data(_each(jax.random.fold_in, keys.ndim)(keys, data))


def _bits(key: Any, shape: Any, dtype: DType, impl: str | None = None) -> Any:
    keys = _typed(key, impl)
    return _each(lambda k: jax.random.bits(k, shape, to_jax(dtype)), keys.ndim)(keys)


def _generator(state: Any, shape: Any, dtype: DType, algorithm: str) -> tuple[Any, Any]:
    names = {a.name.lower().removeprefix("rng_"): a for a in lax.RandomAlgorithm.__members__.values()}
    chosen = names[algorithm.lower().removeprefix("rng_")]
    state, bits = lax.rng_bit_generator(state, shape, to_jax(dtype), algorithm=chosen)
    return state, bits


def _gamma(key: Any, alpha: Any, log_space: bool, impl: str | None = None) -> Any:
    keys = _typed(key, impl)
    draw = jax.random.loggamma if log_space else jax.random.gamma
    return _each(lambda k, a: draw(k, a, a.shape, a.dtype), keys.ndim)(keys, alpha)


def _threefry(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    y0, y1 = threefry2x32_p.bind(k0, k1, x0, x1)
    return y0, y1


# Rows that want to know the kind of their key.
KEYED = frozenset({r.rng_split, r.rng_fold_in, r.rng_bits, r.random_gamma})

ROWS: Mapping[OpDef, Callable[..., Any]] = {
    r.rng_seed: _seed,
    r.rng_wrap: lambda data, impl: data,
    r.rng_unwrap: lambda key: key,
    r.rng_split: _split,
    r.rng_fold_in: _fold_in,
    r.rng_bits: _bits,
    r.threefry2x32: _threefry,
    r.rng_bit_generator: _generator,
    r.random_gamma: _gamma,
}
