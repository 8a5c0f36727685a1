"""Random keys: whatever a caller gives, as the uint32 words that every engine works on."""

from __future__ import annotations

import secrets
import sys
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dtypes import DType
from unigraph.errors import InputError
from unigraph.graph import Value
from unigraph.types import shown

from .arrays import key_impl, to_numpy


def seed_words(seed: int, dtype: DType, bits: int | None = None) -> np.ndarray:
    """The key that ``jax.random.key(seed)`` makes here: uint32[2] (threefry) or uint32[4] (rbg).

    JAX reads a seed as a number of 32 ``bits``, or of 64 where the process has switched its 64-bit
    types on; so do we, and as JAX does by default where it is not loaded.
    """
    if bits is None:
        jax = sys.modules.get("jax")
        bits = 64 if jax is not None and jax.config.jax_enable_x64 else 32
    words = np.array([seed >> 32 & 0xFFFFFFFF if bits == 64 else 0, seed & 0xFFFFFFFF], np.uint32)
    return np.concatenate([words] * (dtype.key_words // 2))


def fresh_words(value: Value) -> np.ndarray:
    """Words from the system's own entropy for a key that nobody gave."""
    shape = (*value.type.shape, value.type.dtype.key_words)
    return np.frombuffer(secrets.token_bytes(4 * int(np.prod(shape))), np.uint32).reshape(shape).copy()


def seeded(seed: int, value: Value) -> np.ndarray:
    """The words of a key made from ``seed``. Raises InputError for an array of keys and for a huge seed."""
    if value.type.shape:
        raise InputError(
            f"input {value.name!r} is an array of keys {value.type}, an integer seed makes only one: "
            "give jax.random.split(key, n) or its uint32 data"
        )
    if not -(1 << 63) <= seed < 1 << 64:
        raise InputError(f"the seed {seed} for input {value.name!r} does not fit 64 bits: give a smaller one")
    return seed_words(seed, value.type.dtype)


def key_data(x: Any, value: Value) -> np.ndarray:
    """A JAX key, its uint32 data, or an integer seed as uint32[*shape, words].

    Raises InputError when it is none of these, of another kind, or has another shape.
    """
    words = value.type.dtype.key_words
    if isinstance(x, int) and not isinstance(x, bool):
        return seeded(x, value)
    impl = key_impl(x)
    if impl and f"key<{impl}>" != value.type.dtype.name:
        raise InputError(
            f"input {value.name!r} must be a {value.type.dtype}, got a key of kind {impl}: "
            f"make it with jax.random.key(seed, impl={value.type.dtype.name[4:-1]!r})"
        )
    data = to_numpy(x)
    if data.ndim == 0 and data.dtype.kind in "iu":  # a seed of a given width
        wide = data.dtype.itemsize == 8
        return seeded(int(data), value) if wide else seed_words(int(data), value.type.dtype, 32)
    plain = data
    if data.dtype.kind in "iu" and data.dtype != np.uint32:  # torch users keep words in wider integers
        data = data.astype(np.uint32)
    fits = data.dtype == np.uint32 and np.array_equal(data, plain)
    if not fits or data.ndim != value.type.rank + 1 or data.shape[-1] != words:
        raise InputError(
            f"input {value.name!r} is a random key {value.type}: give a JAX key, its uint32 data of shape "
            f"(..., {words}) or an integer seed, not {shown(plain.dtype, plain.shape)}"
        )
    return data


def bind_sizes(value: Value, data: np.ndarray, sizes: dict[str, Any]) -> None:
    """Match the shape of an array of keys with the declared one."""
    dims.bind(value.type.shape, data.shape[:-1], sizes, f"input {value.name!r}")
