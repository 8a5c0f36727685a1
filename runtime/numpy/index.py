"""gather, scatter and nonzero on NumPy, through index arrays over all windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import index as ix

from .wide import SIGN, narrow, out_of_bounds_fill, widen

Array = np.ndarray
Ints = tuple[int, ...]


def _starts(
    x: Array, indices: Array, index_map: Ints, batching: Ints, indices_batching: Ints, sizes: Sequence[int]
) -> tuple[dict[int, Array], Array]:
    """Where each window starts along the axes that move, made to fit; and which windows fitted.

    Both have the leading axes of ``indices``.
    """
    places = indices.shape[:-1]
    inside = np.ones(places, np.bool_)
    starts: dict[int, Array] = {}
    for entry, axis in enumerate(index_map):
        last = max(x.shape[axis] - sizes[axis], 0)
        wanted = widen(indices[..., entry])
        # Compared in the dtype of the indices: a large u64 must not turn negative.
        limit = min(last, int(np.iinfo(wanted.dtype).max))
        inside &= (wanted >= 0) & (wanted <= limit)
        starts[axis] = np.clip(wanted, 0, limit).astype(np.int64)
    for axis, at in zip(batching, indices_batching):
        aligned = [1] * len(places)
        aligned[at] = places[at]
        starts[axis] = np.broadcast_to(np.arange(places[at]).reshape(aligned), places)
    return starts, inside


def gather(
    x: Array,
    indices: Array,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    start_index_map: Ints,
    slice_sizes: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    mode: str,
    fill_value: Any,
) -> Array:
    places = indices.shape[:-1]
    hidden = collapsed_slice_dims + operand_batching_dims
    shown = [a for a in range(x.ndim) if a not in hidden]
    if 0 in indices.shape[:-1]:
        shape, window = iter(places), iter([slice_sizes[a] for a in shown])
        total = len(places) + len(shown)
        return np.empty([next(window if a in offset_dims else shape) for a in range(total)], x.dtype)
    starts, inside = _starts(
        x, indices, start_index_map, operand_batching_dims, start_indices_batching_dims, slice_sizes
    )
    # Axes taken whole stay basic axes, after the indexed ones: rows of a table are copied as rows.
    whole = [a for a in shown if slice_sizes[a] == x.shape[a]]
    indexed = [a for a in range(x.ndim) if a not in whole]
    part = [a for a in indexed if a in shown]
    grids = []
    for a in indexed:
        grid = np.reshape(starts.get(a, 0), (places if a in starts else (1,) * len(places)) + (1,) * len(part))
        if a in shown:
            grid = grid + np.arange(slice_sizes[a]).reshape([-1 if b == a else 1 for b in part])
        grids.append(grid)
    moved = x.transpose(indexed + whole)
    sizes = (*places, *(slice_sizes[a] for a in part))
    taken = moved[tuple(np.broadcast_arrays(*grids))] if grids else moved
    result = (
        np.broadcast_to(taken, (*sizes, *(x.shape[a] for a in whole))) if taken.shape[: len(sizes)] != sizes else taken
    )
    if mode == "fill" and not inside.all():
        kind = dtype(x.dtype)
        fill = np.asarray(out_of_bounds_fill(kind) if fill_value is None else fill_value).astype(x.dtype)
        result = np.where(inside.reshape(places + (1,) * len(shown)), result, fill)
    axis_of = dict(zip(shown, offset_dims))
    origin = range(len(places), len(places) + len(shown))
    return np.moveaxis(result, tuple(origin), [axis_of[a] for a in part + whole])


_AT: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def scatter(
    x: Array,
    indices: Array,
    updates: Array,
    combiner: str,
    update_window_dims: Ints,
    inserted_window_dims: Ints,
    scatter_dims_to_operand_dims: Ints,
    operand_batching_dims: Ints,
    scatter_indices_batching_dims: Ints,
    mode: str,
    unique_indices: bool,
) -> Array:
    if updates.size == 0:
        return x.copy()
    places = indices.shape[:-1]
    hidden = inserted_window_dims + operand_batching_dims
    shown = [a for a in range(x.ndim) if a not in hidden]
    updates = np.moveaxis(updates, update_window_dims, range(len(places), updates.ndim))
    window = updates.shape[len(places) :]
    size_of = dict(zip(shown, window))
    sizes = [size_of.get(a, 1) for a in range(x.ndim)]
    starts, inside = _starts(
        x, indices, scatter_dims_to_operand_dims, operand_batching_dims, scatter_indices_batching_dims, sizes
    )
    # The position of every updated element in x, counted in row-major order.
    strides = np.cumprod((1, *x.shape[:0:-1]))[::-1] if x.ndim else ()
    first = np.zeros(places, np.int64)
    for a, start in starts.items():
        first = first + start * strides[a]
    within = np.zeros(window, np.int64)
    for i, a in enumerate(shown):
        within = within + (np.arange(window[i]) * strides[a]).reshape([-1 if j == i else 1 for j in range(len(window))])
    if mode != "clip" and not inside.all():
        first, updates = first[inside], updates[inside]
        places = first.shape
    at = (first.reshape(places + (1,) * len(window)) + within).reshape(-1)
    return _combine(x, at, updates.reshape(-1), combiner)


def _combine(x: Array, at: Array, updates: Array, combiner: str) -> Array:
    """x with ``updates`` combined into its elements number ``at``, in that order."""
    if combiner == "replace":
        result = x.copy(order="C")
        result.reshape(-1)[at] = updates
        return result
    kind = dtype(x.dtype)
    ufunc = _AT[combiner]
    if kind.is_float and kind.bits < 32 and ufunc not in SIGN:
        return _combine_short(x, at, updates, ufunc)
    result = np.array(widen(x), order="C")
    flat, news = result.reshape(-1), widen(updates)
    ufunc.at(flat, at, news)
    if ufunc in SIGN and kind.is_float and np.any(flat[at] == 0):
        negative = np.signbit(widen(x)).reshape(-1)
        SIGN[ufunc].at(negative, at, np.signbit(news))
        zero = flat == 0
        flat[zero] = np.where(negative[zero], np.float32(-0.0), np.float32(0.0))
    return narrow(result, kind)


def _combine_short(x: Array, at: Array, updates: Array, ufunc: np.ufunc) -> Array:
    """Short floats round after every single step, so repeated positions go round by round."""
    result = x.copy(order="C")
    flat = result.reshape(-1)
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    new = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn = np.arange(at.size) - np.repeat(new, np.diff(np.r_[new, at.size]))
    by_turn = np.argsort(turn, kind="stable")
    for chosen in np.split(order[by_turn], np.cumsum(np.bincount(turn))[:-1]):
        where = at[chosen]
        flat[where] = ufunc(widen(flat[where]), widen(updates[chosen])).astype(x.dtype)
    return result


def nonzero(x: Array, symbol: str) -> Array:
    return np.argwhere(widen(x) != 0).astype(np.int64)


def sized(sizes: Array, symbols: tuple[str, ...]) -> Array:
    return np.broadcast_to(np.False_, tuple(int(n) for n in sizes))


def _quiet(f: Row) -> Row:
    def row(*args: Array, **attrs: Any) -> Array:
        with np.errstate(all="ignore"):
            return f(*args, **attrs)

    return row


ROWS: dict[OpDef, Row] = {
    ix.gather: _quiet(gather),
    ix.scatter: _quiet(scatter),
    ix.nonzero: nonzero,
    ix.sized: sized,
}
