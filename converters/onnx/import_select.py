"""ONNX nodes that pick elements by data: Unique, Compress, NonMaxSuppression; and placements by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, cut, reshape

from .import_elementwise import to_shape
from .node import Node, RowBook

rows = RowBook()

_FREE = "fix the shapes with from_onnx(path, shapes={...})"
MAX_COLUMNS = 1024  # sort keys of Unique along an axis


@rows("NonZero")
def nonzero(n: Node) -> Value:
    return n.b.transpose(_found(n, n.value(0)), permutation=(1, 0))


def _found(n: Node, x: Value) -> Value:
    """Positions of the elements that are not zero, [count, rank]."""
    n.importer.data_sizes.append(f"u{len(n.importer.data_sizes)}")
    return n.b.nonzero(x, symbol=n.importer.data_sizes[-1])


def _flat(n: Node, x: Value) -> Value:
    return reshape(n.b, x, (x.type.size,))


@rows("Compress")
def compress(n: Node) -> Value:
    """The slices whose condition holds; a short condition leaves out the rest."""
    x = n.value(0) if n.attr("axis") is not None else _flat(n, n.value(0))
    axis = n.axis("axis", 0, x.type.rank)
    where = _found(n, n.value(1))
    return n.b.take(x, reshape(n.b, where, (where.type.shape[0],)), axis=axis, mode="clip")


# -- Unique ------------------------------------------------------------------------------------------


@rows("Unique")
def unique(n: Node) -> tuple[Value, ...]:
    """Equal elements (or slices) come together by a stable sort; each first one stands for its like."""
    x = n.value(0)
    axis = None if n.attr("axis") is None else n.axis("axis", 0, x.type.rank)
    x = _flat(n, x) if axis is None else x
    along_axis = axis or 0
    count = x.type.shape[along_axis]
    keys = _columns(n, x, along_axis)
    order = n.b.iota(dtype="i64", shape=(count,), axis=0)
    *ordered, place = n.b.sort(*keys, order, axis=0, num_keys=len(keys), stable=True)
    fresh = n.b.eq(order, 0)
    for key in ordered:
        before = n.b.concatenate(cut(n.b, key, 0, 0, 1), cut(n.b, key, 0, 0, dims.normal(count - 1)), axis=0)
        fresh = n.b.or_(fresh, n.b.ne(key, before))
    starts = _found(n, fresh)
    found = starts.type.shape[0]
    first = n.b.take(place, reshape(n.b, starts, (found,)), axis=0, mode="clip")
    group = n.b.sub(n.b.cumsum(n.b.convert(fresh, dtype="i64"), axis=0, reverse=False), 1)
    counts = _scattered(n, n.b.full(0, "i64", (found,)), group, n.b.full(1, "i64", (count,)), "add")
    if not n.attr("sorted", 1):
        first, by = n.b.sort(first, n.b.iota(dtype="i64", shape=(found,), axis=0), axis=0, num_keys=1, stable=True)
        counts = n.b.take(counts, by, axis=0, mode="clip")
        ranks = n.b.iota(dtype="i64", shape=(found,), axis=0)
        group = n.b.take(_scattered(n, ranks, by, ranks, "replace"), group, axis=0, mode="clip")
    inverse = _scattered(n, n.b.full(0, "i64", (count,)), place, group, "replace")
    y = n.b.take(x, first, axis=along_axis, mode="clip")
    return (y, first, inverse, counts)[: n.outputs]


def _columns(n: Node, x: Value, axis: int) -> list[Value]:
    """The sort keys: the elements at one place of every slice along ``axis``."""
    order = (axis, *(a for a in range(x.type.rank) if a != axis))
    rest = dims.product(x.type.shape[a] for a in order[1:])
    if not dims.is_static(rest) or rest > MAX_COLUMNS:
        raise Unsupported(f"Unique over slices of {dims.to_text(rest)} elements", _FREE)
    flat = reshape(n.b, n.b.transpose(x, permutation=order) if axis else x, (x.type.shape[axis], rest))
    return [reshape(n.b, cut(n.b, flat, 1, i, i + 1), (x.type.shape[axis],)) for i in range(rest)]


def _scattered(n: Node, x: Value, index: Value, updates: Value, combiner: str) -> Value:
    """``updates`` put into the vector ``x`` at ``index``."""
    return n.b.scatter(
        x,
        n.b.reshape(index, shape=(*index.type.shape, 1)),
        updates,
        combiner=combiner,
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        mode="fill",
    )


# -- NonMaxSuppression -------------------------------------------------------------------------------


@rows("NonMaxSuppression")
def non_max_suppression(n: Node) -> Value:
    """Boxes in order of score; a scan keeps each one that overlaps none of those kept before it."""
    boxes, scores = n.value(0), n.value(1)
    batch, classes, count = scores.type.shape
    shape = (batch, classes, count)
    place = n.b.iota(dtype="i64", shape=shape, axis=2)
    _, ordered, order = n.b.sort(n.b.neg(scores), scores, place, axis=2, num_keys=1, stable=True)
    valid = n.b.full(True, "bool", shape)
    if n.has(4):
        valid = n.b.gt(ordered, along(n.b, reshape(n.b, n.value(4), ()), shape, ()))
    sides = _sides(n, boxes, order)
    overlap = _overlap(n, sides, (batch, classes, count, count))
    limit = reshape(n.b, n.value(3), ()) if n.has(3) else n.b.constant(0.0, boxes.type.dtype)
    hides = n.b.gt(overlap, along(n.b, limit, overlap.type.shape, ()))
    most = reshape(n.b, cast(n.b, n.value(2), place.type.dtype), ()) if n.has(2) else n.b.constant(np.int64(0))

    def body(b: Any, most: Value, kept: Value, total: Value, hidden_by: Value, ok: Value, step: Value) -> Any:
        beaten = b.reduce_or(b.and_(kept, hidden_by), axes=(2,))
        free = b.lt(total, b.broadcast_in_dim(most, shape=total.type.shape, broadcast_dimensions=()))
        take = b.and_(b.and_(ok, b.not_(beaten)), free)
        at = b.eq(
            b.iota(dtype="i64", shape=shape, axis=2), b.broadcast_in_dim(step, shape=shape, broadcast_dimensions=())
        )
        kept = b.or_(kept, b.and_(at, b.broadcast_in_dim(take, shape=shape, broadcast_dimensions=(0, 1))))
        return kept, b.add(total, b.convert(take, dtype="i64"))

    kept, _ = n.b.scan(
        most,
        n.b.full(False, "bool", shape),
        n.b.full(0, "i64", (batch, classes)),
        n.b.transpose(hides, permutation=(3, 0, 1, 2)),
        n.b.transpose(valid, permutation=(2, 0, 1)),
        n.b.iota(dtype="i64", shape=(count,), axis=0),
        length=count,
        num_consts=1,
        num_carry=2,
        body=body,
    )
    where = _found(n, kept)
    every = n.b.gather(
        order,
        where,
        offset_dims=(),
        collapsed_slice_dims=(0, 1, 2),
        start_index_map=(0, 1, 2),
        slice_sizes=(1, 1, 1),
        mode="clip",
    )
    chosen = n.b.reshape(every, shape=(where.type.shape[0], 1))
    return n.b.concatenate(cut(n.b, where, 1, 0, 2), chosen, axis=1)


def _sides(n: Node, boxes: Value, order: Value) -> list[tuple[Value, Value]]:
    """(low, high) along both directions of the boxes in order of score, [batch, classes, count] each."""
    batch, classes, count = order.type.shape
    columns = [reshape(n.b, cut(n.b, boxes, 2, i, i + 1), boxes.type.shape[:2]) for i in range(4)]
    spread = [along(n.b, c, (batch, classes, count), (0, 2)) for c in columns]
    a, b, c, d = (n.b.take_along_axis(s, order, axis=2) for s in spread)
    if n.attr("center_point_box", 0):
        half = [n.b.mul(v, 0.5) for v in (c, d)]
        return [(n.b.sub(v, h), n.b.add(v, h)) for v, h in zip((a, b), half)]
    return [(n.b.min(v, w), n.b.max(v, w)) for v, w in ((b, d), (a, c))]


def _overlap(n: Node, sides: Sequence[tuple[Value, Value]], shape: tuple[Dim, ...]) -> Value:
    """Intersection over union of every pair; 0 for boxes without area."""
    first, second = (0, 1, 2), (0, 1, 3)
    common: Value | None = None
    area: Value | None = None
    for low, high in sides:
        lows, highs = ([along(n.b, v, shape, axes) for axes in (first, second)] for v in (low, high))
        width = n.b.max(n.b.sub(n.b.min(*highs), n.b.max(*lows)), 0.0)
        own = n.b.sub(high, low)
        common = width if common is None else n.b.mul(common, width)
        area = own if area is None else n.b.mul(area, own)
    assert common is not None and area is not None
    areas = [along(n.b, area, shape, axes) for axes in (first, second)]
    union = n.b.sub(n.b.add(*areas), common)
    empty = n.b.or_(n.b.le(n.b.min(*areas), 0.0), n.b.le(union, 0.0))
    safe = n.b.select(empty, union, n.b.full_like(union, 1.0))
    return n.b.select(empty, n.b.div(common, safe), n.b.full_like(common, 0.0))


# -- placement by index ------------------------------------------------------------------------------


@rows("ReverseSequence")
def reverse_sequence(n: Node) -> Value:
    """The first ``len`` steps of each sample in reverse order, the rest as they are."""
    x, lengths = n.value(0), n.value(1)
    batch, time = n.attr("batch_axis", 1), n.attr("time_axis", 0)
    step = n.b.iota(dtype="i64", shape=x.type.shape, axis=time)
    limit = along(n.b, cast(n.b, lengths, step.type.dtype), x.type.shape, (batch,))
    mirrored = n.b.sub(n.b.sub(limit, step), 1)
    return n.b.take_along_axis(x, n.b.select(n.b.lt(step, limit), step, mirrored), axis=time)


@rows("TensorScatter")
def tensor_scatter(n: Node) -> Value:
    """Updates written into a cache from each sample's position on, round and round in mode circular."""
    x, update = n.value(0), n.value(1)
    axis = n.axis("axis", -2, x.type.rank)
    shape = update.type.shape
    place = n.b.iota(dtype="i64", shape=shape, axis=axis)
    if n.has(2):
        place = n.b.add(place, along(n.b, cast(n.b, n.value(2), place.type.dtype), shape, (0,)))
    if n.attr("mode", "linear") == "circular":
        total = to_shape(n, n.b.size(x.type.shape[axis]), shape)
        place = n.b.rem(place, total)
    parts = [place if a == axis else n.b.iota(dtype="i64", shape=shape, axis=a) for a in range(x.type.rank)]
    every = tuple(range(x.type.rank))
    return n.b.scatter(
        x,
        n.b.concatenate(*(n.b.reshape(p, shape=(*shape, 1)) for p in parts), axis=x.type.rank),
        update,
        combiner="replace",
        update_window_dims=(),
        inserted_window_dims=every,
        scatter_dims_to_operand_dims=every,
        mode="fill",
    )


@rows("MaxUnpool")
def max_unpool(n: Node) -> Value:
    """Values back at the flat positions where a max pool found them."""
    x, index = n.value(0), n.value(1)
    if not x.type.is_static:
        raise Unsupported("MaxUnpool of symbolic sizes", _FREE)
    kernel = n.attr("kernel_shape")
    rank = len(kernel)
    strides, pads = n.attr("strides") or [1] * rank, n.attr("pads") or [0] * 2 * rank
    plain = [
        (d - 1) * s - pads[i] - pads[rank + i] + k for i, (d, s, k) in enumerate(zip(x.type.shape[2:], strides, kernel))
    ]
    shape = (*x.type.shape[:2], *plain)
    empty = n.b.full(0, x.type.dtype, (dims.product(shape),))
    y = n.b.reshape(_scattered(n, empty, _flat(n, index), _flat(n, x), "replace"), shape=shape)
    if not n.has(2):
        return y
    wanted = n.ints(2)
    zero = n.b.constant(np.zeros((), x.type.dtype.numpy))
    return n.b.pad(y, zero, low=(0,) * len(shape), high=tuple(w - s for w, s in zip(wanted, shape)))


@rows("Col2Im")
def col2im(n: Node) -> Value:
    """Blocks added up where they stood in the image."""
    x, image, block = n.value(0), n.ints(1), n.ints(2)
    rank = len(image)
    dilation, strides = n.attr("dilations") or [1] * rank, n.attr("strides") or [1] * rank
    pads = n.attr("pads") or [0] * 2 * rank
    padded = [size + pads[i] + pads[rank + i] for i, size in enumerate(image)]
    counts = [(size - d * (k - 1) - 1) // s + 1 for size, d, k, s in zip(padded, dilation, block, strides)]
    within = np.indices(block).reshape(rank, -1, 1) * np.reshape(dilation, (rank, 1, 1))
    start = np.indices(counts).reshape(rank, 1, -1) * np.reshape(strides, (rank, 1, 1))
    index = np.ravel_multi_index(tuple(within + start), tuple(padded)).reshape(-1, 1)
    batch = x.type.shape[0]
    channels = dims.floordiv(x.type.shape[1], int(np.prod(block)))
    updates = n.b.reshape(x, shape=(batch, channels, index.shape[0]))
    flat = n.b.scatter(
        n.b.full(0, x.type.dtype, (batch, channels, int(np.prod(padded)))),
        n.b.constant(index),
        updates,
        combiner="add",
        update_window_dims=(0, 1),
        inserted_window_dims=(2,),
        scatter_dims_to_operand_dims=(2,),
        mode="fill",
    )
    whole = n.b.reshape(flat, shape=(batch, channels, *padded))
    start_at = (0, 0, *pads[:rank])
    return n.b.slice(whole, start=start_at, limit=(batch, channels, *(p + i for p, i in zip(pads, image))))


@rows("Det")
def determinant(n: Node) -> Value:
    """The product of the pivots, with the sign of the row swaps."""
    x = n.value(0)
    factors, pivots, _ = n.b.lu(x)
    rank = x.type.rank
    row, column = (n.b.iota(dtype="i32", shape=x.type.shape, axis=a) for a in (rank - 2, rank - 1))
    one = n.b.full_like(factors, 1.0)
    diagonal = n.b.reduce_prod(n.b.select(n.b.eq(row, column), one, factors), axes=(rank - 2, rank - 1))
    stays = n.b.iota(dtype="i32", shape=pivots.type.shape, axis=rank - 2)
    swapped = n.b.reduce_sum(n.b.convert(n.b.ne(pivots, stays), dtype="i32"), axes=(rank - 2,))
    odd = n.b.eq(n.b.rem(swapped, n.b.full_like(swapped, 2)), 1)
    return n.b.select(odd, diagonal, n.b.neg(diagonal))
