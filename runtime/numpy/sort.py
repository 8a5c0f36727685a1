"""Sorting, the largest elements, and Fourier transforms on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from unigraph.dtypes import dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import sort as s

from .wide import widen

Array = np.ndarray


def _keys(x: Array) -> list[Array]:
    """Arrays that NumPy compares as the op does; complex numbers become two."""
    wide = widen(x)
    return [wide.real, wide.imag] if dtype(x.dtype).is_complex else [wide]


def sort(*xs: Array, axis: int, num_keys: int = 1, stable: bool = True) -> tuple[Array, ...]:
    """By positions: NumPy puts NaN last and takes both zeros as equal, as the op does."""
    keys = [key for x in xs[:num_keys] for key in _keys(x)]
    # lexsort takes the most important key last.
    order = np.argsort(keys[0], axis=axis, kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1], axis=axis)
    return tuple(np.take_along_axis(x, order, axis) for x in xs)


def top_k(x: Array, k: int, axis: int = -1) -> tuple[Array, Array]:
    """The tail of a stable sort of the reversed axis, read backwards: ties come lowest position first."""
    n = x.shape[axis]
    flipped = np.flip(widen(x), axis)
    order = np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
    order = n - 1 - np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


TRANSFORMS: dict[str, Callable[..., Array]] = {
    "fft": np.fft.fftn,
    "ifft": np.fft.ifftn,
    "rfft": np.fft.rfftn,
    "irfft": np.fft.irfftn,
}


def fft(x: Array, kind: str, lengths: tuple[int, ...]) -> Array:
    """numpy.fft, which keeps single precision; empty batches have nothing to transform."""
    return TRANSFORMS[kind](x, s=lengths, axes=range(-len(lengths), 0))


ROWS: Mapping[OpDef, Row] = {s.sort: sort, s.top_k: top_k, s.fft: fft}
