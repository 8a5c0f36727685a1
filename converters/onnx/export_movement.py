"""Rows of the ONNX export that move, cut and join elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dtypes import DType, i64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import movement as m

from .emitter import Emitter
from .export_elementwise import convert
from .handles import Array, Size


def carry(x: Array, result: Array) -> Array:
    """``result`` holds the elements of x in another order: if all are one scalar, it still is at hand."""
    if x.compact is not None and x.compact.shape_ == () and result is not x:
        result.compact = x.compact
    return result


def declared(o: Emitter, operand: int, attribute: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Symbolic sizes of an operand and of an attribute, which can be compared (run-time sizes cannot)."""
    return o.operation.inputs[operand].type.shape, o.operation.attrs[attribute]


def _broadcast_in_dim(o: Emitter, x: Array, shape: Sequence[Any], broadcast_dimensions: Sequence[int]) -> Array:
    rank = len(shape)
    known, wanted = declared(o, 0, "shape")
    if x.compact is not None and x.compact.shape_ == ():
        return o.expand(x.compact, shape)
    missing = [a for a in range(rank) if a not in broadcast_dimensions]
    same = all(dims.equal(n, wanted[d]) for n, d in zip(known, broadcast_dimensions))
    if same and not missing:
        return x
    # New leading axes need no Unsqueeze: ONNX broadcasting adds them.
    leading = missing == list(range(len(missing)))
    y = x if leading and x.rank else o.unsqueeze(x, missing) if x.rank else x
    if same and all(type(wanted[a]) is int and wanted[a] == 1 for a in missing):
        return o.unsqueeze(x, missing)
    return o.expand(y, shape)


def _reshape(o: Emitter, x: Array, shape: Sequence[Any]) -> Array:
    known, wanted = declared(o, 0, "shape")
    if len(known) == len(wanted) and all(map(dims.equal, known, wanted)):
        return x
    return carry(x, o.reshape(x, shape))


def reverse(o: Emitter, x: Array, dimensions: Sequence[int]) -> Array:
    return carry(x, o.flip(x, dimensions))


def _slice(o: Emitter, x: Array, start: Sequence[Any], limit: Sequence[Any], strides: Sequence[int] | None) -> Array:
    known, limits = declared(o, 0, "limit")
    strides = strides or (1,) * x.rank
    cut = [
        a
        for a, (lo, hi, n, s) in enumerate(zip(o.operation.attrs["start"], limits, known, strides))
        if s != 1 or not (type(lo) is int and lo == 0) or not dims.equal(hi, n)
    ]
    if not cut:
        return x
    return o.slice(x, [start[a] for a in cut], [limit[a] for a in cut], cut, [strides[a] for a in cut])


def index64(o: Emitter, x: Array) -> Array:
    """Integers as int64; those beyond stay large."""
    if x.dtype.name == "u64":
        x = o.Min(x, np.uint64(np.iinfo(np.int64).max))
    return o.cast(x, i64)


def start_vector(o: Emitter, starts: Sequence[Array], shape: Sequence[Any], sizes: Sequence[Any]) -> Array:
    """Scalar starts as one vector, each clamped to 0..shape - size."""
    if not starts:
        return o.vector([])
    parts = [o.reshape(index64(o, s), (1,)) for s in starts]
    joined = o.concat(parts, 0)
    room = o.vector([n - size for n, size in zip(shape, sizes)])
    return o.Max(o.Min(joined, room), 0)


def _dynamic_slice(o: Emitter, x: Array, *starts: Array, sizes: Sequence[Any]) -> Array:
    if not starts:
        return x
    known, wanted = declared(o, 0, "sizes")
    cut = [a for a in range(x.rank) if not dims.equal(known[a], wanted[a])]
    if not cut:
        return x
    take = [sizes[a] for a in cut]
    begin = start_vector(o, [starts[a] for a in cut], [x.shape[a] for a in cut], take)
    end = o.Add(begin, o.vector(take))
    shape = tuple(sizes[a] if a in cut else n for a, n in enumerate(x.shape))
    return o.Slice(x, begin, end, o.const(np.array(cut, np.int64)), shape=shape)


def linear_index(o: Emitter, coordinates: Sequence[Array], shape: Sequence[Any]) -> Array:
    """Row-major positions from broadcasting coordinates along the axes of ``shape``."""
    total: Array | None = None
    for c, n in zip(coordinates, shape, strict=True):
        total = c if total is None else o.Add(o.Mul(total, o.scalar(n)), c)
    assert total is not None
    return total


def along(o: Emitter, vector: Array, axis: int, rank: int) -> Array:
    """A vector laid along one of ``rank`` axes."""
    return o.unsqueeze(vector, [a for a in range(rank) if a != axis])


def _dynamic_update_slice(o: Emitter, x: Array, update: Array, *starts: Array) -> Array:
    known, block = o.operation.inputs[0].type.shape, o.operation.inputs[1].type.shape
    if 0 in update.shape:
        return x
    steered = [a for a in range(x.rank) if not dims.equal(known[a], block[a])]
    if not steered:
        return update
    # Axes after the last partial one are whole rows.
    lead = steered[-1] + 1
    begin = start_vector(o, starts[:lead], x.shape[:lead], update.shape[:lead])
    places = []
    for a in range(lead):
        place = o.iota(update.shape[a])
        if a in steered:
            place = o.Add(place, o.slice(begin, [a], [a + 1], [0]))
        places.append(along(o, place, a, lead))
    index = o.reshape(o.expand(linear_index(o, places, x.shape[:lead]), update.shape[:lead]), (-1, 1))
    rest = x.shape[lead:]
    rows = o.ScatterND(o.reshape(x, (-1, *rest)), index, o.reshape(update, (-1, *rest)))
    return o.reshape(rows, x.shape)


def spread(o: Emitter, x: Array, axis: int, gap: int, value: Array) -> Array:
    """x with ``gap`` copies of value between neighbours along one axis."""
    n = x.shape[axis]
    if type(n) is int and n <= 1:
        return x
    padded = o.unsqueeze(x, [axis + 1])
    ends = [0] * (2 * padded.rank)
    ends[padded.rank + axis + 1] = gap
    wide_shape = (*padded.shape[: axis + 1], gap + 1, *padded.shape[axis + 2 :])
    padded = o.Pad(padded, o.const(np.array(ends, np.int64)), value, shape=wide_shape)
    total = n * (gap + 1)
    flat = o.reshape(padded, (*x.shape[:axis], total, *x.shape[axis + 1 :]))
    return o.slice(flat, [0], [total - gap], [axis])


def pad(
    o: Emitter, x: Array, value: Array, low: Sequence[Any], high: Sequence[Any], interior: Sequence[int] | None = None
) -> Array:
    for axis, gap in enumerate(interior or ()):
        if gap:
            x = spread(o, x, axis, gap, value)
    shape = [n + lo + hi for n, lo, hi in zip(x.shape, low, high)]
    # Crop by Slice what is known to be negative; a size of the run is left to Pad, which crops too.
    crop = [a for a in range(x.rank) if any(type(e) is int and e < 0 for e in (low[a], high[a]))]
    grown = [max(n, 0) if type(n) is int else n for n in low], [max(n, 0) if type(n) is int else n for n in high]
    if any(type(n) is not int or n for n in (*grown[0], *grown[1])):
        wide_shape = [n + lo + hi for n, lo, hi in zip(x.shape, *grown)]
        x = o.Pad(x, o.vector([*grown[0], *grown[1]]), value, shape=wide_shape)
    if crop:
        starts = [-low[a] if type(low[a]) is int and low[a] < 0 else 0 for a in crop]
        ends = [x.shape[a] + high[a] if type(high[a]) is int and high[a] < 0 else x.shape[a] for a in crop]
        x = o.slice(x, starts, ends, crop)
    return o.typed(x, shape) if all(type(n) is int for n in shape) else x


def _concatenate(o: Emitter, *xs: Array, axis: int) -> Array:
    kept = [x for x in xs if not (type(x.shape[axis]) is int and x.shape[axis] == 0)] or [xs[0]]
    return o.concat(kept, axis)


def _iota(o: Emitter, dtype: DType, shape: Sequence[Any], axis: int) -> Array:
    line = convert(o, o.iota(shape[axis]), dtype)
    return o.expand(o.unsqueeze(line, list(range(1, len(shape) - axis))), shape)


def _dim_size(o: Emitter, dim: Any, dtype: DType) -> Array:
    return convert(o, o.scalar(dim), dtype) if isinstance(dim, Size) else o.scalar(int(dim), dtype)


ROWS: dict[OpDef, Row] = {
    m.broadcast_in_dim: _broadcast_in_dim,
    m.reshape: _reshape,
    m.transpose: lambda o, x, permutation: carry(x, o.transpose(x, permutation)),
    m.reverse: reverse,
    m.slice: _slice,
    m.dynamic_slice: _dynamic_slice,
    m.dynamic_update_slice: _dynamic_update_slice,
    m.pad: pad,
    m.concatenate: _concatenate,
    m.iota: _iota,
    m.dim_size: _dim_size,
}
