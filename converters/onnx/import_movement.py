"""ONNX nodes that move data: shapes, slices, gathers, scatters, pads, sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.dtypes import dtype
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_shapes, cast, cut, reshape, without

from .dtypes import FROM_ONNX
from .import_elementwise import to_shape
from .node import Node, RowBook, Sizes, axis_of

rows = RowBook()

_I64, _F64 = dtype("i64"), dtype("f64")


@rows("Constant")
def constant(n: Node) -> Any:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if name in n.attrs:
            kind = {
                "value_float": np.float32,
                "value_floats": np.float32,
                "value_int": np.int64,
                "value_ints": np.int64,
            }.get(name)
            array = np.asarray(n.attrs[name], kind)
            return (
                Sizes.of(array.astype(object), array.dtype)
                if array.dtype in (np.int64, np.int32) and array.size <= 1024
                else n.b.constant(array)
            )
    raise Unsupported("a constant of strings or of a sparse tensor")


@rows("Shape")
def shape(n: Node) -> Sizes:
    size = n.value(0).type.shape
    return Sizes.of(list(size[slice(n.attr("start", 0), n.attr("end", None))]))


@rows("Size")
def size(n: Node) -> Sizes:
    return Sizes.of(n.value(0).type.size)


@rows("Reshape")
def reshape_attr(n: Node) -> Value:
    return _reshape(n, n.attr("shape"), False)


@rows("Reshape", since=5)
def reshape_input(n: Node) -> Value:
    allow_zero = bool(n.attr("allowzero", 0))
    known = n.known_sizes(1)
    return _reshape(n, _sizes_from_data(n, allow_zero) if known is None else known, allow_zero or known is None)


def _sizes_from_data(n: Node, allow_zero: bool) -> tuple[Dim, ...]:
    """A shape that is data, with its zeros (unless allowed) and its -1 filled in."""
    x, wanted = n.value(0), n.value(1)
    if wanted.type.rank != 1 or not dims.is_static(wanted.type.shape[0]):
        raise n.depends(1, "decides a rank")
    count = wanted.type.shape[0]
    old = [*x.type.shape, *(1,) * count][:count]
    if not allow_zero and count:
        copied = Sizes.of(old).value(n.b)
        wanted = n.b.select(n.b.eq(wanted, 0), wanted, copied)
    rest = n.b.eq(wanted, -1)
    one = n.b.full_like(wanted, 1)
    held = n.b.max(n.b.reduce_prod(n.b.select(rest, wanted, one), axes=(0,)), 1)
    left = n.b.div(n.b.size(x.type.size), held)
    return n.sized(n.b.select(rest, wanted, to_shape(n, left, (count,))))


def _reshape(n: Node, wanted: Sequence[Dim], allow_zero: bool) -> Value:
    """0 copies a size (unless allowzero), -1 is what is left."""
    x = n.value(0)
    old = x.type.shape
    new = [old[i] if type(d) is int and d == 0 and not allow_zero else d for i, d in enumerate(wanted)]
    if -1 in new:
        at = new.index(-1)
        rest = dims.product(d for i, d in enumerate(new) if i != at)
        new[at] = dims.floordiv(x.type.size, rest)
    return reshape(n.b, x, tuple(new))


@rows("Flatten")
def flatten(n: Node) -> Value:
    x = n.value(0)
    axis = n.attr("axis", 1)
    axis = axis + x.type.rank if axis < 0 else axis
    return reshape(n.b, x, (dims.product(x.type.shape[:axis]), dims.product(x.type.shape[axis:])))


@rows("Transpose")
def transpose(n: Node) -> Value:
    x = n.value(0)
    order = n.attr("perm", tuple(reversed(range(x.type.rank))))
    return n.b.transpose(x, permutation=tuple(order))


def _axes(n: Node, since: int) -> tuple[int, ...] | None:
    """Axes from the attribute, or from input 1 since that opset."""
    if n.opset >= since:
        return n.ints(1) if n.has(1) else None
    found = n.attr("axes")
    return None if found is None else tuple(found)


@rows("Squeeze")
def squeeze(n: Node) -> Value:
    x, axes = n.value(0), _axes(n, 13)
    gone = (
        [a for a, d in enumerate(x.type.shape) if d == 1] if axes is None else [axis_of(a, x.type.rank) for a in axes]
    )
    return reshape(n.b, x, without(x.type.shape, gone))


@rows("Unsqueeze")
def unsqueeze(n: Node) -> Value:
    x, axes = n.value(0), _axes(n, 13) or ()
    rank = x.type.rank + len(axes)
    new: list[Dim] = list(x.type.shape)
    for a in sorted(axis_of(a, rank) for a in axes):
        new.insert(a, 1)
    return reshape(n.b, x, tuple(new))


@rows("Concat")
def concat(n: Node) -> Value:
    parts = n.values()
    return n.b.concatenate(*parts, axis=n.axis("axis", 1, parts[0].type.rank))


@rows("Split")
def split(n: Node) -> tuple[Value, ...]:
    """Sizes from the attribute (to opset 12) or input 1; else equal parts, the last one smaller."""
    x = n.value(0)
    axis = n.axis("axis", 0, x.type.rank)
    sizes: Sequence[Dim] | None = n.sizes(1) if n.has(1) else n.attr("split")
    if sizes is None:
        count = n.attr("num_outputs", n.outputs)
        total = x.type.shape[axis]
        part = dims.floordiv(total + count - 1, count)
        sizes = [part] * (count - 1) + [dims.normal(total - part * (count - 1))]
    return tuple(pieces(n, x, axis, sizes))


def pieces(n: Node, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """``x`` cut along an axis into parts of these sizes."""
    start: Dim = 0
    found = []
    for part in sizes:
        stop = dims.normal(start + part)
        found.append(cut(n.b, x, axis, start, stop))
        start = stop
    return found


@rows("Slice")
def slice_attr(n: Node) -> Value:
    starts = n.attr("starts")
    return _slice(n, starts, n.attr("ends"), n.attr("axes", range(len(starts))), [1] * len(starts))


@rows("Slice", since=10)
def slice_inputs(n: Node) -> Value:
    starts, ends = n.known_sizes(1), n.known_sizes(2)
    steps = n.known_sizes(4) if n.has(4) else ()
    if starts is None or ends is None or steps is None:
        return _slice_by_data(n)
    axes = n.ints(3) if n.has(3) else range(len(starts))
    return _slice(n, starts, ends, axes, n.ints(4) if n.has(4) else [1] * len(starts))


def _slice_by_data(n: Node) -> Value:
    """Bounds that are data: elements start, start + step, ... are picked, and their number is a new size."""
    x, starts, ends = n.value(0), n.value(1), n.value(2)
    count = starts.type.shape[0]
    if not dims.is_static(count):
        raise n.depends(1, "decides how many axes are cut")
    axes = n.ints(3) if n.has(3) else range(count)
    steps = n.value(4) if n.has(4) else n.b.full(1, "i64", (count,))
    for i, a in enumerate(axes):
        axis = axis_of(a, x.type.rank)
        start, end, step = (reshape(n.b, cut(n.b, cast(n.b, v, _I64), 0, i, i + 1), ()) for v in (starts, ends, steps))
        total, zero = n.b.size(x.type.shape[axis]), n.b.constant(np.int64(0))
        back = n.b.lt(step, 0)
        low = n.b.select(back, zero, n.b.constant(np.int64(-1)))
        high = n.b.select(back, total, n.b.sub(total, 1))
        first, last = (n.b.clamp(low, n.b.select(n.b.lt(p, 0), p, n.b.add(p, total)), high) for p in (start, end))
        towards = n.b.select(back, n.b.constant(np.int64(-1)), n.b.constant(np.int64(1)))
        number = n.b.max(n.b.div(n.b.add(n.b.sub(last, first), n.b.add(step, towards)), step), 0)
        shape = n.sized(number)
        counted = n.b.iota(dtype="i64", shape=shape, axis=0)
        index = n.b.add(to_shape(n, first, shape), n.b.mul(counted, to_shape(n, step, shape)))
        x = n.b.take(x, index, axis=axis, mode="clip")
    return x


def _slice(n: Node, starts: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[int], steps: Sequence[int]) -> Value:
    """NumPy slicing; a negative step reverses the axis first."""
    x = n.value(0)
    for start, end, a, step in zip(starts, ends, axes, steps):
        a = axis_of(a, x.type.rank)
        total = x.type.shape[a]
        if step < 0:
            x = n.b.reverse(x, dimensions=(a,))
            # Position p from the front is total - 1 - p from the back.
            start, end = (_flip(p, total) for p in (start, end))
        low, high = _place(start, total), _place(end, total)
        if dims.is_static(low) and dims.is_static(high) and low > high:
            high = low
        x = cut(n.b, x, a, low, high, abs(step))
    return x


def _flip(p: Dim, total: Dim) -> Dim:
    """The mirrored position; one before the first becomes the end."""
    if type(p) is int and p < 0:
        return dims.normal(-p - 1)
    if type(p) is int and type(total) is int:
        return max(total - 1 - p, 0) if p < total else 0
    return 0 if type(p) is int and p > 1 << 30 else dims.normal(total - 1 - p)


def _place(p: Dim, total: Dim) -> Dim:
    """A slice bound within 0..total, negative ones counted from the end."""
    if type(p) is int and type(total) is int:
        return min(max(p + total, 0) if p < 0 else p, total)
    if type(p) is int:
        if p < 0:
            return dims.maximum(dims.normal(total + p), 0) if p > -(1 << 30) else 0
        return total if p >= 1 << 30 else p if p == 0 else dims.minimum(p, total)
    return dims.minimum(p, total) if dims.is_static(total) else p


@rows("Expand")
def expand(n: Node) -> Value:
    x = n.value(0)
    return to_shape(n, x, broadcast_shapes("expand", x.type.shape, n.sizes(1)))


@rows("Tile")
def tile(n: Node) -> Value:
    x = n.value(0)
    if n.opset < 6:
        repeats = [1] * x.type.rank
        repeats[int(n.scalar(2))] = int(n.scalar(1))
    else:
        repeats = list(n.ints(1))
    return n.b.tile(x, repeats=tuple(repeats))


@rows("Pad")
def pad_attr(n: Node) -> Value:
    pads = n.attr("pads", n.attr("paddings"))
    return _pad(n, pads, range(len(pads) // 2), n.b.constant(n.attr("value", 0.0), n.value(0).type.dtype))


@rows("Pad", since=11)
def pad_inputs(n: Node) -> Value:
    x = n.value(0)
    axes = n.ints(3) if n.has(3) else range(x.type.rank)
    value = n.b.reshape(n.value(2), shape=()) if n.has(2) else n.b.constant(np.zeros((), x.type.dtype.numpy))
    return _pad(n, n.sizes(1), axes, value)


def _pad(n: Node, pads: Sequence[Dim], axes: Sequence[int], value: Value) -> Value:
    x, mode = n.value(0), n.attr("mode", "constant")
    half = len(pads) // 2
    low: list[Dim] = [0] * x.type.rank
    high: list[Dim] = [0] * x.type.rank
    for i, a in enumerate(axes):
        low[axis_of(a, x.type.rank)], high[axis_of(a, x.type.rank)] = pads[i], pads[half + i]
    if mode == "constant":
        return n.b.pad(x, value, low=tuple(low), high=tuple(high))
    for a, (before, after) in enumerate(zip(low, high)):
        x = _pad_by_index(n, x, a, before, after, mode)
    return x


def _pad_by_index(n: Node, x: Value, axis: int, before: Dim, after: Dim, mode: str) -> Value:
    size = x.type.shape[axis]
    if before == 0 and after == 0:
        return x
    if not all(map(dims.is_static, (size, before, after))):
        return n.b.take(x, _places(n, size, before, after, mode), axis=axis, mode="clip")
    index = np.arange(-before, size + after)
    if mode == "edge":
        index = np.clip(index, 0, size - 1)
    elif mode == "wrap":
        index = index % size
    else:  # reflect: a triangle wave of period 2 (size - 1)
        period = max(2 * (size - 1), 1)
        index = np.abs((index + size - 1) % period - (size - 1)) if size > 1 else index * 0
    return n.b.take(x, n.b.constant(index.astype(np.int64)), axis=axis, mode="clip")


def _places(n: Node, size: Dim, before: Dim, after: Dim, mode: str) -> Value:
    """The same indices where a size is known only at run time."""
    shape = (dims.normal(size + before + after),)

    def spread(d: Dim) -> Value:
        return n.b.broadcast_in_dim(n.b.size(d, "i64"), shape=shape, broadcast_dimensions=())

    index = n.b.sub(n.b.iota(dtype="i64", shape=shape, axis=0), spread(before))
    last = dims.normal(size - 1)
    if mode == "edge":
        return n.b.min(n.b.max(index, 0), spread(last))
    period = spread(size if mode == "wrap" else dims.maximum(dims.normal(2 * last), 1))
    moved = index if mode == "wrap" else n.b.add(index, spread(last))
    within = n.b.rem(n.b.add(n.b.rem(moved, period), period), period)
    return within if mode == "wrap" else n.b.abs(n.b.sub(within, spread(last)))


# -- gather and scatter ----------------------------------------------------------------------------


def wrapped(n: Node, indices: Value, size: Dim) -> Value:
    """Negative indices counted from the end."""
    total = n.b.size(size, indices.type.dtype)
    total = n.b.broadcast_in_dim(total, shape=indices.type.shape, broadcast_dimensions=())
    return n.b.select(n.b.lt(indices, 0), indices, n.b.add(indices, total))


@rows("Gather")
def gather(n: Node) -> Value:
    x, indices = n.values()
    axis = n.axis("axis", 0, x.type.rank)
    return n.b.take(x, wrapped(n, indices, x.type.shape[axis]), axis=axis, mode="clip")


@rows("GatherElements")
def gather_elements(n: Node) -> Value:
    x, indices = n.values()
    index = _full_index(n, x, indices, n.axis("axis", 0, x.type.rank))
    rank = x.type.rank
    return n.b.gather(
        x,
        index,
        offset_dims=(),
        collapsed_slice_dims=tuple(range(rank)),
        start_index_map=tuple(range(rank)),
        slice_sizes=(1,) * rank,
        mode="clip",
    )


def _full_index(n: Node, x: Value, indices: Value, axis: int) -> Value:
    """For every element of ``indices`` its full position in ``x``, along a new last axis."""
    shape, kind = indices.type.shape, indices.type.dtype
    parts = [
        wrapped(n, indices, x.type.shape[axis]) if a == axis else n.b.iota(dtype=kind, shape=shape, axis=a)
        for a in range(x.type.rank)
    ]
    return n.b.concatenate(*(n.b.reshape(p, shape=(*shape, 1)) for p in parts), axis=len(shape))


@rows("ScatterElements", "Scatter")
def scatter_elements(n: Node) -> Value:
    x, indices, updates = n.values()
    index = _full_index(n, x, indices, n.axis("axis", 0, x.type.rank))
    every = tuple(range(x.type.rank))
    return n.b.scatter(
        x,
        index,
        updates,
        combiner=_combiner(n),
        update_window_dims=(),
        inserted_window_dims=every,
        scatter_dims_to_operand_dims=every,
        mode="fill",
    )


def _combiner(n: Node) -> str:
    return {"none": "replace"}.get(n.attr("reduction", "none"), n.attr("reduction", "none"))


@rows("GatherND")
def gather_nd(n: Node) -> Value:
    x, indices = n.values()
    batch, depth = n.attr("batch_dims", 0), indices.type.shape[-1]
    if not dims.is_static(depth):
        raise Unsupported("GatherND with a symbolic index depth")
    rank, outer = x.type.rank, indices.type.rank - 1
    indexed = tuple(range(batch, batch + depth))
    kept = tuple(range(batch + depth, rank))
    return n.b.gather(
        x,
        _wrapped_rows(n, x, indices, indexed),
        offset_dims=tuple(range(outer, outer + len(kept))),
        collapsed_slice_dims=indexed,
        start_index_map=indexed,
        slice_sizes=tuple(x.type.shape[a] if a in kept else 1 for a in range(rank)),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
        mode="clip",
    )


def _wrapped_rows(n: Node, x: Value, indices: Value, axes: Sequence[int]) -> Value:
    """Index vectors with negative entries counted from the end of their axis."""
    parts = [n.b.reshape(n.b.size(x.type.shape[a], indices.type.dtype), shape=(1,)) for a in axes]
    sizes = n.b.concatenate(*parts, axis=0) if len(parts) > 1 else parts[0]
    return n.b.select(n.b.lt(indices, 0), indices, n.b.add(indices, to_shape(n, sizes, indices.type.shape)))


@rows("ScatterND")
def scatter_nd(n: Node) -> Value:
    x, indices, updates = n.values()
    depth, outer = indices.type.shape[-1], indices.type.rank - 1
    if not dims.is_static(depth):
        raise Unsupported("ScatterND with a symbolic index depth")
    axes = tuple(range(depth))
    return n.b.scatter(
        x,
        _wrapped_rows(n, x, indices, axes),
        updates,
        combiner=_combiner(n),
        update_window_dims=tuple(range(outer, updates.type.rank)),
        inserted_window_dims=axes,
        scatter_dims_to_operand_dims=axes,
        mode="fill",
    )


@rows("OneHot")
def one_hot(n: Node) -> Value:
    """Values are [off, on]; indices out of range give a row of off."""
    indices, values = n.value(0), n.value(2)
    depth = n.sizes(1)[0] if isinstance(n.inputs[1], Sizes) else int(n.scalar(1))
    axis = n.axis("axis", -1, indices.type.rank + 1)
    indices = n.b.convert(indices, dtype="i64")
    index = wrapped(n, indices, depth)
    new = (*indices.type.shape[:axis], depth, *indices.type.shape[axis:])
    where = tuple(a for a in range(len(new)) if a != axis)
    hit = n.b.eq(
        n.b.broadcast_in_dim(index, shape=new, broadcast_dimensions=where), n.b.iota(dtype="i64", shape=new, axis=axis)
    )
    off, on = (to_shape(n, n.b.reshape(cut(n.b, values, 0, i, i + 1), shape=()), new) for i in (0, 1))
    return n.b.select(hit, off, on)


# -- made from shapes ------------------------------------------------------------------------------


@rows("ConstantOfShape")
def constant_of_shape(n: Node) -> Value:
    fill = n.attr("value")
    fill = np.zeros(1, np.float32) if fill is None else fill
    return to_shape(n, n.b.constant(fill.reshape(())), n.sizes(0))


@rows("Range")
def range_(n: Node) -> Value:
    """Counted steps from a start; a length that is data becomes a size known at run time."""
    kind = n.value(0).type.dtype
    known = [n.known_sizes(i) for i in range(3)] if kind.is_integer else [None]
    if all(k is not None for k in known) and dims.is_static(known[2][0]):  # type: ignore[index]
        start, limit, step = (k[0] for k in known if k is not None)
        length = dims.maximum(dims.floordiv(limit - start + step - (1 if step > 0 else -1), step), 0)
    elif all(n.is_known(i) for i in range(3)):
        a, b, c = (float(n.scalar(i)) for i in range(3))
        length = max(math.ceil((b - a) / c), 0)
    else:
        first, limit, step = (reshape(n.b, cast(n.b, n.value(i), _F64), ()) for i in range(3))
        count = n.b.max(n.b.ceil(n.b.div(n.b.sub(limit, first), step)), 0.0)
        (length,) = n.sized(n.b.convert(count, dtype="i64"))
    counted = n.b.convert(n.b.iota(dtype="i64", shape=(length,), axis=0), dtype=kind)
    first, step_ = (to_shape(n, n.b.reshape(n.value(i), shape=()), (length,)) for i in (0, 2))
    return n.b.add(first, n.b.mul(counted, step_))


@rows("EyeLike")
def eye_like(n: Node) -> Value:
    x = n.value(0)
    kind = FROM_ONNX[n.attr("dtype")] if n.attr("dtype") is not None else x.type.dtype
    row, column = (n.b.iota(dtype="i64", shape=x.type.shape, axis=a) for a in (0, 1))
    return n.b.convert(n.b.eq(n.b.add(row, int(n.attr("k", 0))), column), dtype=kind)


@rows("Trilu")
def trilu(n: Node) -> Value:
    diagonal = int(n.scalar(1)) if n.has(1) else 0
    return (n.b.triu if n.attr("upper", 1) else n.b.tril)(n.value(0), diagonal=diagonal)


@rows("DepthToSpace")
def depth_to_space(n: Node) -> Value:
    x, f = n.value(0), n.attr("blocksize")
    batch, channels, height, width = x.type.shape
    inner = dims.floordiv(channels, f * f)
    if n.attr("mode", "DCR") == "DCR":
        x, order = n.b.reshape(x, shape=(batch, f, f, inner, height, width)), (0, 3, 4, 1, 5, 2)
    else:
        x, order = n.b.reshape(x, shape=(batch, inner, f, f, height, width)), (0, 1, 4, 2, 5, 3)
    return n.b.reshape(
        n.b.transpose(x, permutation=order), shape=(batch, inner, dims.normal(height * f), dims.normal(width * f))
    )


@rows("SpaceToDepth")
def space_to_depth(n: Node) -> Value:
    x, f = n.value(0), n.attr("blocksize")
    batch, channels, height, width = x.type.shape
    h, w = dims.floordiv(height, f), dims.floordiv(width, f)
    order = (0, 1, 3, 5, 2, 4) if n.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    x = n.b.transpose(n.b.reshape(x, shape=(batch, channels, h, f, w, f)), permutation=order)
    return n.b.reshape(x, shape=(batch, dims.normal(channels * f * f), h, w))
