"""Elements put into groups: unique values, histograms, segments and bags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import bool_, f64, i32, i64, u64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from .helpers import axes_of, axis_of, full, iota, keep, move_axis, operand, widened
from .rowbook import row
from .rows_index import data_symbol, extreme, index_write
from .rows_reduce import sort_with_index

aten = torch.ops.aten


# -- unique ------------------------------------------------------------------------------------------


def _starts(b: Any, ordered: Value) -> Value:
    """True where a row [n, ...] differs from the one before; the first always does."""
    n = ordered.type.shape[0]
    before, after = cut(b, ordered, 0, 0, n - 1), cut(b, ordered, 0, 1, n)
    other = b.ne(before, after)
    if other.type.rank > 1:
        other = b.reduce_or(other, axes=tuple(range(1, other.type.rank)))
    return b.concatenate(full(b, True, other.type.with_(shape=(1,))), other, axis=0)


def _grouped(b: Any, rows: Value, order: Value | None, inverse_shape: Any) -> tuple[Value, Value, Value]:
    """(first of each run, run of each element, length of each run) of rows that lie in order.

    ``order`` says where each row stood before; None when they were not moved.
    """
    n = rows.type.shape[0]
    if dims.equal(n, 0):
        return rows, full(b, 0, b.out[1]), full(b, 0, b.out[2])
    starts = _starts(b, rows)
    place = b.nonzero(starts, symbol=data_symbol(b))
    count = place.type.shape[0]
    first = b.take(rows, reshape(b, place, (count,)), axis=0, mode="clip")
    run = b.sub(b.cumsum(cast(b, starts, i64), axis=0), 1)
    inverse = run if order is None else index_write(b, full(b, 0, run.type), 0, order, run, "replace")
    counts = index_write(b, full(b, 0, run.type.with_(shape=(count,))), 0, run, 1, "add")
    return first, reshape(b, inverse, inverse_shape), counts


def _asked(b: Any, first: Value, inverse: Value, counts: Value, want_inverse: bool, want_counts: bool) -> Any:
    return (
        first,
        inverse if want_inverse else full(b, 0, b.out[1]),
        counts if want_counts else full(b, 0, b.out[2]),
    )


@row(aten._unique2)
def _unique(b: Any, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    flat = reshape(b, x, (x.type.size,))
    ordered, order = sort_with_index(b, flat, 0, False)
    return _asked(b, *_grouped(b, ordered, order, x.type.shape), return_inverse, return_counts)


@row(aten.unique_dim)
def _unique_dim(
    b: Any, x: Value, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    axis = axis_of(dim, x.type.rank)
    front = move_axis(b, x, axis, 0)
    n, rest = front.type.shape[0], front.type.shape[1:]
    width = dims.product(rest)
    if not isinstance(width, int):
        raise Unsupported("unique along an axis of slices with a free size", "fix the other axes")
    flat = cast(b, front, i32) if x.type.dtype is bool_ else front
    flat = reshape(b, flat, (n, width))
    columns = [reshape(b, cut(b, flat, 1, k, k + 1), (n,)) for k in range(width)]
    order = b.sort(*columns, iota(b, (n,), 0), axis=0, num_keys=max(width, 1), stable=True)[-1]
    ordered = b.take(front, order, axis=0, mode="clip")
    first, inverse, counts = _grouped(b, ordered, order, (n,))
    return _asked(b, move_axis(b, first, 0, axis), inverse, counts, return_inverse, return_counts)


@row(aten.unique_consecutive)
def _unique_consecutive(
    b: Any, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is None:
        flat = reshape(b, x, (x.type.size,))
        return _asked(b, *_grouped(b, flat, None, x.type.shape), return_inverse, return_counts)
    axis = axis_of(dim, x.type.rank)
    front = move_axis(b, x, axis, 0)
    first, inverse, counts = _grouped(b, front, None, front.type.shape[:1])
    return _asked(b, move_axis(b, first, 0, axis), inverse, counts, return_inverse, return_counts)


# -- histograms ----------------------------------------------------------------------------------------


def _limits(b: Any, x: Value, given: Sequence[float] | None, margin: float) -> tuple[Value, Value]:
    """The outer edges as scalars: those given, or the extremes of the data; equal ones are moved apart."""
    if given is not None:
        low, high = (operand(b, float(v), x.type.dtype) for v in given)
    else:
        axes = tuple(range(x.type.rank))
        if dims.equal(x.type.size, 0):
            low = high = operand(b, 0.0, x.type.dtype)
        else:
            low, high = b.reduce_min(x, axes=axes), b.reduce_max(x, axes=axes)
    same = b.eq(low, high)
    return b.select(same, low, b.sub(low, margin)), b.select(same, high, b.add(high, margin))


def _edges(b: Any, low: Value, high: Value, bins: int) -> Value:
    """``bins + 1`` evenly spaced edges, built from both ends as linspace does."""
    line = low.type.with_(shape=(bins + 1,))
    i = b.iota(dtype=i64, shape=line.shape, axis=0)
    step = broadcast_to(b, b.div(b.sub(high, low), operand(b, bins, low.type.dtype)), line.shape)
    up = b.add(broadcast_to(b, low, line.shape), b.mul(step, cast(b, i, line.dtype)))
    back = cast(b, b.sub(full(b, bins, i.type), i), line.dtype)
    down = b.sub(broadcast_to(b, high, line.shape), b.mul(step, back))
    return b.select(b.lt(i, (bins + 1) // 2), down, up)


def _bin_of(b: Any, x: Value, edges: Value) -> Value:
    """The bin of each element of x[n]; -1 outside. The last bin includes its right edge."""
    n, count = x.type.shape[0], edges.type.shape[0]
    wide = (n, count)
    left = b.broadcast_in_dim(edges, shape=wide, broadcast_dimensions=(1,))
    value = b.broadcast_in_dim(x, shape=wide, broadcast_dimensions=(0,))
    place = b.sub(b.reduce_sum(cast(b, b.le(left, value), i64), axes=(1,)), 1)
    last = reshape(b, cut(b, edges, 0, count - 1, count), ())
    on_last = b.eq(x, broadcast_to(b, last, x.type.shape))
    place = b.select(on_last, place, full(b, count - 2, place.type))
    outside = b.or_(b.gt(x, broadcast_to(b, last, x.type.shape)), b.ne(x, x))
    return b.select(outside, place, full(b, -1, place.type))


def _counted(b: Any, places: Sequence[Value], sizes: Sequence[Any], weight: Value | None, like: Value) -> Value:
    """How much weight falls into each cell of a grid; a place of -1 on any axis drops the element."""
    flat = full(b, 0, places[0].type)
    dropped = full(b, False, flat.type.with_(bool_))
    for place, size in zip(places, sizes):
        flat = b.add(b.mul(flat, full(b, size, flat.type)), place)
        dropped = b.or_(dropped, b.lt(place, 0))
    total = dims.product(sizes)
    amount = (
        full(b, 1, like.type.with_(shape=flat.type.shape)) if weight is None else reshape(b, weight, flat.type.shape)
    )
    amount = b.select(dropped, amount, full(b, 0, amount.type))
    flat = b.select(dropped, flat, full(b, 0, flat.type))
    empty = full(b, 0, like.type.with_(shape=(total,)))
    if dims.equal(flat.type.shape[0], 0):
        return reshape(b, empty, tuple(sizes))
    return reshape(b, index_write(b, empty, 0, flat, amount, "add"), tuple(sizes))


def _histogram(b: Any, x: Value, edges: Sequence[Value], weight: Value | None, density: bool) -> Value:
    """Counts over a grid of edges, for points x[n, axes]."""
    n = x.type.shape[0]
    columns = [reshape(b, cut(b, x, 1, k, k + 1), (n,)) for k in range(len(edges))]
    sizes = [e.type.shape[0] - 1 for e in edges]
    counts = _counted(b, [_bin_of(b, c, e) for c, e in zip(columns, edges)], sizes, weight, x)
    if not density:
        return counts
    total = b.reduce_sum(counts, axes=tuple(range(len(edges))))
    for axis, e in enumerate(edges):
        width = b.sub(cut(b, e, 0, 1, e.type.shape[0]), cut(b, e, 0, 0, e.type.shape[0] - 1))
        counts = b.div(counts, b.broadcast_in_dim(width, shape=counts.type.shape, broadcast_dimensions=(axis,)))
    return b.div(counts, broadcast_to(b, total, counts.type.shape))


def _points(b: Any, x: Value) -> Value:
    return reshape(b, x, (dims.product(x.type.shape[:-1]), x.type.shape[-1]))


@row(aten.histogram.bin_ct)
def _histogram_of_count(
    b: Any, x: Value, bins: int = 100, *, range: Any = None, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    edges = _edges(b, *_limits(b, x, range, 0.5), bins)
    return _histogram(b, reshape(b, x, (x.type.size, 1)), [edges], weight, density), edges


@row(aten.histogram.bins_tensor)
def _histogram_of_edges(
    b: Any, x: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    return _histogram(b, reshape(b, x, (x.type.size, 1)), [bins], weight, density), bins


@row(aten._histogramdd_bin_edges)
def _grid_edges(
    b: Any, x: Value, bins: Sequence[int], *, range: Any = None, weight: Value | None = None, density: bool = False
) -> list[Value]:
    points = _points(b, x)
    result = []
    for k, count in enumerate(bins):
        column = cut(b, points, 1, k, k + 1)
        given = None if not range else range[2 * k : 2 * k + 2]
        result.append(_edges(b, *_limits(b, column, given, 0.5), count))
    return result


@row(aten._histogramdd_from_bin_cts)
def _grid_of_counts(
    b: Any, x: Value, bins: Sequence[int], *, range: Any = None, weight: Value | None = None, density: bool = False
) -> Value:
    return _histogram(b, _points(b, x), _grid_edges(b, x, bins, range=range), weight, density)


@row(aten._histogramdd_from_bin_tensors)
def _grid_of_edges(
    b: Any, x: Value, bins: Sequence[Value], *, weight: Value | None = None, density: bool = False
) -> Value:
    return _histogram(b, _points(b, x), list(bins), weight, density)


@row(aten.histc)
def _histc(b: Any, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Counts in evenly spaced bins; the bin is computed from the value, not looked up among edges."""
    flat = reshape(b, x, (x.type.size,))
    wide = cast(b, flat, b.dtype)
    low, high = _limits(b, wide, None if min == max else (min, max), 1.0)
    low, high = broadcast_to(b, low, wide.type.shape), broadcast_to(b, high, wide.type.shape)
    share = b.div(b.mul(b.sub(wide, low), full(b, bins, wide.type)), b.sub(high, low))
    inside = b.and_(b.ge(wide, low), b.le(wide, high))
    place = cast(b, b.select(inside, full(b, 0, share.type), share), i64)
    place = b.min(place, full(b, bins - 1, place.type))
    return _counted(b, [b.select(inside, full(b, -1, place.type), place)], [bins], None, wide)


# -- segments and bags ---------------------------------------------------------------------------------


def _identity(b: Any, reduce: str, like: Value) -> Value:
    number = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    return full(b, number, like.type)


@row(aten.segment_reduce)
def _segment_reduce(
    b: Any, x: Value, reduce: str, *, lengths: Value | None = None, indices: Value | None = None,
    offsets: Value | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Value:  # fmt: skip
    """Reduces runs of an axis; each run is told by its length or by its first and last offset."""
    axis = axis_of(axis, x.type.rank)
    if offsets is None:
        assert lengths is not None
        ends = b.cumsum(cast(b, lengths, i64), axis=axis)
        begins = b.sub(ends, cast(b, lengths, i64))
    else:
        n = offsets.type.shape[axis]
        offsets = cast(b, offsets, i64)
        begins, ends = cut(b, offsets, axis, 0, n - 1), cut(b, offsets, axis, 1, n)
    lead, count, size, rest = x.type.shape[:axis], begins.type.shape[axis], x.type.shape[axis], x.type.shape[axis + 1 :]
    grid = (*lead, count, size)
    over = tuple(range(axis + 1))
    place = b.iota(dtype=i64, shape=grid, axis=axis + 1)
    low, high = (b.broadcast_in_dim(v, shape=grid, broadcast_dimensions=over) for v in (begins, ends))
    member = b.and_(b.ge(place, low), b.lt(place, high))
    wide = (*grid, *rest)
    data = b.broadcast_in_dim(
        x, shape=wide, broadcast_dimensions=(*range(axis), *range(axis + 1, axis + 2 + len(rest)))
    )
    member = b.broadcast_in_dim(member, shape=wide, broadcast_dimensions=tuple(range(axis + 2)))
    chosen = b.select(member, _identity(b, reduce, data), data)
    combine = {
        "sum": b.reduce_sum,
        "mean": b.reduce_sum,
        "prod": b.reduce_prod,
        "max": b.reduce_max,
        "min": b.reduce_min,
    }
    result = combine[reduce](chosen, axes=(axis + 1,))
    length = b.broadcast_in_dim(
        cast(b, b.sub(ends, begins), x.type.dtype), shape=result.type.shape, broadcast_dimensions=over
    )
    if initial is not None:
        start = full(b, initial, result.type)
        join = {"sum": b.add, "mean": b.add, "prod": b.mul, "max": b.max, "min": b.min}[reduce]
        result = join(result, start)
    if reduce == "mean":
        empty = b.eq(length, 0.0)
        without = full(b, math.nan if initial is None else initial, result.type)
        result = b.select(empty, b.div(result, length), without)
    return result


@row(aten._embedding_bag, aten._embedding_bag_forward_only, aten.embedding_bag)
def _embedding_bag(
    b: Any, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Value | None, ...]:  # fmt: skip
    """Rows of a table reduced by bag (sum, mean or maximum). The other three results serve the gradient only."""
    n, width = indices.type.shape[0], weight.type.shape[1]
    bags = offsets.type.shape[0] - (1 if include_last_offset else 0)
    offsets = cut(b, offsets, 0, 0, bags)
    wide = (n, bags)
    start = b.broadcast_in_dim(cast(b, offsets, i64), shape=wide, broadcast_dimensions=(1,))
    place = b.iota(dtype=i64, shape=wide, axis=0)
    bag = b.sub(b.reduce_sum(cast(b, b.le(start, place), i64), axes=(1,)), 1)
    taken = widened(b, b.take(weight, indices, axis=0, mode="clip"))
    if per_sample_weights is not None:
        weights = widened(b, reshape(b, per_sample_weights, (n, 1)))
        taken = b.mul(taken, broadcast_to(b, weights, taken.type.shape))
    used = full(b, True, bag.type.with_(bool_))
    if padding_idx is not None and padding_idx >= 0:
        used = b.ne(indices, full(b, padding_idx, indices.type))
    ones = cast(b, used, i64)
    count = index_write(b, full(b, 0, bag.type.with_(shape=(bags,))), 0, bag, ones, "add")
    count = b.broadcast_in_dim(count, shape=(bags, width), broadcast_dimensions=(0,))
    empty = b.eq(count, 0)
    kept = b.broadcast_in_dim(used, shape=taken.type.shape, broadcast_dimensions=(0,))
    zero = full(b, 0, taken.type.with_(shape=(bags, width)))
    if mode == 2:
        lowest = extreme(taken.type.dtype, False)
        taken = b.select(kept, full(b, lowest, taken.type), taken)
        result = index_write(b, full(b, lowest, zero.type), 0, bag, taken, "max")
        return cast(b, b.select(empty, result, zero), weight.type.dtype), None, None, None
    taken = b.select(kept, full(b, 0, taken.type), taken)
    result = index_write(b, zero, 0, bag, taken, "add")
    if mode == 1:
        result = b.div(result, cast(b, b.max(count, full(b, 1, count.type)), result.type.dtype))
    return cast(b, result, weight.type.dtype), None, None, None


@row(aten.hash_tensor)
def _hash_tensor(b: Any, x: Value, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Value:
    """The exclusive or of all elements' bits, after widening to 64 of them."""
    axes = axes_of(dim, x.type.rank)
    wide = cast(b, x, f64 if x.type.dtype.is_float else i64)
    bits = b.bitcast(wide, dtype=u64)
    result = b.reduce_xor(bits, axes=axes) if axes else bits
    return keep(b, result, x, axes) if keepdim else result


@row(aten.nonzero_static)
def _nonzero_static(b: Any, x: Value, *, size: Any, fill_value: int = -1) -> Value:
    """Coordinates of the non-zero elements, cut or filled to ``size`` rows."""
    rank = x.type.rank
    shape = (size, rank)
    if rank == 0 or dims.equal(x.type.size, 0):
        return full(b, fill_value, b.out[0])
    mask = x if x.type.dtype is bool_ else b.ne(x, full(b, 0, x.type))
    flat = reshape(b, mask, (x.type.size,))
    slot = b.sub(b.cumsum(cast(b, flat, i64), axis=0), 1)
    slot = b.select(flat, full(b, size, slot.type), b.min(slot, full(b, size, slot.type)))
    columns = [reshape(b, b.iota(dtype=i64, shape=x.type.shape, axis=a), (x.type.size, 1)) for a in range(rank)]
    rows = columns[0] if rank == 1 else b.concatenate(*columns, axis=1)
    extended = full(b, fill_value, b.out[0].with_(shape=(size + 1, rank)))
    # Elements beyond the last row, and zeros, all go to one row more, which is cut off.
    filled = index_write(b, extended, 0, slot, rows, "replace")
    return reshape(b, cut(b, filled, 0, 0, size), shape)
