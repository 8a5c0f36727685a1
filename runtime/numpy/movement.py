"""Movement rows on NumPy. Many give views; nothing writes into an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import DType
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import movement as m

from .wide import from_integers

Array = np.ndarray
Ints = tuple[int, ...]


def broadcast_in_dim(x: Array, shape: Ints, broadcast_dimensions: Ints) -> Array:
    aligned = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape):
        aligned[axis] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def slice_(x: Array, start: Ints, limit: Ints, strides: Ints | None) -> Array:
    return x[tuple(map(slice, start, limit, strides or (1,) * x.ndim))]


def _block(x: Array, starts: Sequence[Array], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Where a block with run-time starts lies, moved inside x."""
    clamped = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, x.shape, sizes)]
    return tuple(slice(s, s + size) for s, size in zip(clamped, sizes))


def dynamic_slice(x: Array, *starts: Array, sizes: Ints) -> Array:
    return x[_block(x, starts, sizes)]


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    result = x.copy()
    result[_block(x, starts, update.shape)] = update
    return result


def pad(x: Array, value: Array, low: Ints, high: Ints, interior: Ints | None) -> Array:
    """Element i of x lands at low + i * (interior + 1); those outside the result are cropped."""
    shape, source, target = [], [], []
    for n, lo, hi, gap in zip(x.shape, low, high, interior or (0,) * x.ndim):
        step = gap + 1
        size = (n - 1) * step + 1 + lo + hi if n else lo + hi
        first = -(min(lo, 0) // step)
        last = max(first, min(n, -((lo - size) // step)))
        shape.append(size)
        source.append(slice(first, last))
        begin = lo + first * step
        target.append(slice(begin, begin + (last - first) * step, step))
    result = np.full(shape, value, x.dtype)
    if all(s.stop > s.start for s in source):
        result[tuple(target)] = x[tuple(source)]
    return result


def iota(dtype: DType, shape: Ints, axis: int) -> Array:
    aligned = [1] * len(shape)
    aligned[axis] = shape[axis]
    counted = from_integers(np.arange(shape[axis]), dtype)
    return np.broadcast_to(counted.reshape(aligned), shape)


def dim_size(dim: Any, dtype: DType) -> Array:
    return from_integers(np.asarray(dim, np.int64), dtype)


ROWS: dict[OpDef, Row] = {
    m.broadcast_in_dim: broadcast_in_dim,
    m.reshape: lambda x, shape: x.reshape(shape),
    m.transpose: lambda x, permutation: x.transpose(permutation),
    m.reverse: lambda x, dimensions: np.flip(x, dimensions),
    m.slice: slice_,
    m.dynamic_slice: dynamic_slice,
    m.dynamic_update_slice: dynamic_update_slice,
    m.pad: pad,
    m.concatenate: lambda *xs, axis: np.concatenate(xs, axis),
    m.iota: iota,
    m.dim_size: dim_size,
}
