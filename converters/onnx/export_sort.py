"""Sorting in the ONNX export: TopK over keys that put NaN where the record wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import f64, i32, i64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import sort as s

from .emitter import Emitter
from .export_elementwise import number
from .export_reduce import in_order
from .handles import Array

_BEYOND_F32 = 1e300


def _keys(o: Emitter, x: Array) -> list[Array]:
    """Arrays whose lexicographic order is that of x with NaN last: one where a wider dtype has room for NaN."""
    if not x.dtype.is_float:
        return [in_order(o, x)]
    nan = o.IsNaN(x)
    wide = o.cast(x, f64)
    infinity = number(o, np.inf, f64)
    if x.dtype is f64:
        return [o.cast(nan, i32), o.Where(nan, infinity, x)]
    wide = o.Where(o.Equal(wide, infinity), number(o, _BEYOND_F32, f64), wide)
    return [o.Where(nan, infinity, wide)]


def _top(o: Emitter, key: Array, k: Any, axis: int, largest: bool) -> Array:
    shape = tuple(k if a == axis else n for a, n in enumerate(key.shape))
    # Cast here and not by the emitter, which could not tell i64 places from values carried in i64 (u32).
    key = o.cast(key, _kind(o, key))
    return o.TopK(key, o.vector([k]), axis=axis, largest=int(largest), sorted=1, outputs=2, shape=shape,
                  dtype=[key.dtype, i64])[1]  # fmt: skip


def _kind(o: Emitter, key: Array) -> Any:
    from .dtypes import carrier

    return carrier("TopK", key.dtype)


def _take(o: Emitter, x: Array, order: Array, axis: int) -> Array:
    return o.GatherElements(x, order, axis=axis, shape=order.shape)


def _ordering(o: Emitter, keys: Sequence[Array], axis: int, largest: bool, k: Any = None) -> Array:
    """Positions in lexicographic order of the keys. TopK prefers the lower of equal elements: it is stable."""
    order: Array | None = None
    n = keys[0].shape[axis]
    for number_, key in enumerate(reversed(keys), 1):
        current = key if order is None else _take(o, key, order, axis)
        step = _top(o, current, k if k is not None and number_ == len(keys) else n, axis, largest)
        order = step if order is None else _take(o, order, step, axis)
    assert order is not None
    return order


def _sort(o: Emitter, *xs: Array, axis: int, num_keys: int, stable: bool) -> tuple[Array, ...]:
    n = xs[0].shape[axis]
    if 0 in xs[0].shape or (type(n) is int and n == 1):
        return xs
    keys = [key for x in xs[:num_keys] for key in _keys(o, x)]
    order = _ordering(o, keys, axis, largest=False)
    return tuple(_take(o, x, order, axis) for x in xs)


def _top_k(o: Emitter, x: Array, k: Any, axis: int) -> tuple[Array, Array]:
    axis %= x.rank
    shape = tuple(k if a == axis else n for a, n in enumerate(x.shape))
    if 0 in shape:
        return o.full(0, x.dtype, shape), o.full(0, i32, shape)
    order = _ordering(o, _keys(o, x), axis, largest=True, k=k)
    return _take(o, x, order, axis), o.cast(order, i32)


ROWS: dict[OpDef, Row] = {s.sort: _sort, s.top_k: _top_k}
