"""Random keys: whatever a caller gives, as the uint32 words that every engine works on."""

from __future__ import annotations

from typing import Any

import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import InputError
from unigraph.graph import Value

from .arrays import to_numpy


def seed_words(seed: int, dtype: DType) -> np.ndarray:
    """The key that ``jax.random.key(seed)`` makes: uint32[2] (threefry) or uint32[4] (rbg)."""
    words = np.array([(seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
    return np.concatenate([words] * (dtype.key_words // 2))


def key_data(x: Any, value: Value) -> np.ndarray:
    """A JAX key, its uint32 data, or an integer seed as uint32[*shape, words].

    Raises InputError when it is none of these or has another shape.
    """
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        if value.type.shape:
            raise InputError(f"input {value.name!r} is an array of keys {value.type}: an integer seed makes only one")
        return seed_words(int(x), value.type.dtype)
    data = to_numpy(x)
    words = value.type.dtype.key_words
    if data.dtype.kind in "iu" and data.dtype != np.uint32:
        data = data.astype(np.uint32)
    if data.dtype != np.uint32 or data.ndim != value.type.rank + 1 or data.shape[-1] != words:
        raise InputError(
            f"input {value.name!r} is a random key {value.type}: give a JAX key, its uint32 data of shape "
            f"(..., {words}) or an integer seed, not {data.dtype}{list(data.shape)}"
        )
    return data
