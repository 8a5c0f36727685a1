"""Views, joins and cuts. Views are plain values here: nothing is shared, nothing is written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import bool_, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape
from unigraph.types import TensorType

from .helpers import axis_of, full, is_dim, move_axis, operand, promote, result_dtype, unsqueeze
from .rowbook import row, rows

aten = torch.ops.aten
_END = 2**62  # torch writes "to the end" as a very large int


def _reshaped(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    """Any operator that only reads the elements in another shape: torch has worked the shape out."""
    return reshape(b, x, b.shape)


def _expand(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return broadcast_to(b, x, b.shape)


rows(
    {
        **{
            packet: _reshaped
            for packet in (
                aten.view,
                aten.reshape,
                aten._unsafe_view,
                aten._reshape_alias,
                aten.view_as,
                aten.reshape_as,
                aten.flatten,
                aten.unflatten,
                aten.ravel,
                aten.squeeze,
                aten.unsqueeze,
                aten.view_copy,
                aten.squeeze_copy,
                aten.unsqueeze_copy,
            )
        },
        torch.ops.prims.view_of: lambda b, x: x,
        aten.expand: _expand,
        aten.expand_as: _expand,
        aten.expand_copy: _expand,
        aten.broadcast_to: _expand,
    }
)


def _permute(b: Any, x: Value, order: Sequence[int]) -> Value:
    order = tuple(axis_of(a, x.type.rank) for a in order)
    return x if order == tuple(range(x.type.rank)) else b.transpose(x, permutation=order)


def _swap(b: Any, x: Value, d0: int, d1: int) -> Value:
    if x.type.rank < 2:
        return x
    order = list(range(x.type.rank))
    d0, d1 = axis_of(d0, x.type.rank), axis_of(d1, x.type.rank)
    order[d0], order[d1] = order[d1], order[d0]
    return _permute(b, x, order)


def _move(b: Any, x: Value, source: Any, target: Any) -> Value:
    rank = x.type.rank
    sources = [axis_of(a, rank) for a in (source if isinstance(source, list) else [source])]
    targets = [axis_of(a, rank) for a in (target if isinstance(target, list) else [target])]
    order = [-1] * rank
    for s, t in zip(sources, targets, strict=True):
        order[t] = s
    rest = iter(a for a in range(rank) if a not in sources)
    return _permute(b, x, [next(rest) if a < 0 else a for a in order])


rows(
    {
        aten.permute: _permute,
        aten.permute_copy: _permute,
        aten.transpose: _swap,
        aten.transpose_copy: _swap,
        aten.swapaxes: _swap,
        aten.swapdims: _swap,
        aten.t: lambda b, x: _swap(b, x, 0, 1),
        aten.t_copy: lambda b, x: _swap(b, x, 0, 1),
        aten.numpy_T: lambda b, x: _permute(b, x, list(reversed(range(x.type.rank)))),
        aten.mT: lambda b, x: _swap(b, x, -2, -1),
        aten.mH: lambda b, x: _adjoint(b, x),
        aten.adjoint: lambda b, x: _adjoint(b, x),
        aten.movedim: _move,
        aten.moveaxis: _move,
    }
)


def _adjoint(b: Any, x: Value) -> Value:
    x = _swap(b, x, -2, -1)
    return b.conj(x) if x.type.dtype.is_complex else x


# -- cuts --------------------------------------------------------------------------------------------


def bound(value: Any, size: Any, default: Any) -> Any:
    """A slice bound in 0..size, as Python would take it."""
    if value is None:
        return default
    if isinstance(value, int) and value >= _END:
        return size
    if isinstance(value, int) and isinstance(size, int):
        return min(max(value + size if value < 0 else value, 0), size)
    if is_dim(value) and getattr(value, "is_negative", False):
        return size + value
    if isinstance(value, int) and value < 0:
        return dims.maximum(size + value, 0)
    if value == 0 or dims.equal(value, size):
        return value
    return value


@row(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(b: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, x.type.rank)
    size = x.type.shape[axis]
    wanted = b.shape[axis]
    low = bound(start, size, 0)
    if dims.equal(wanted, size) and step == 1:
        return x
    if isinstance(low, int) and isinstance(size, int) and low > size:
        low = size
    # torch knows the length of the result: the stop follows from it.
    high = low + wanted if step == 1 else low + (wanted - 1) * step + 1 if wanted != 0 else low
    return cut(b, x, axis, low, high, step)


@row(aten.narrow, aten.narrow_copy)
def _narrow(b: Any, x: Value, dim: int, start: Any, length: Any) -> Value:
    if isinstance(start, Value):
        raise Unsupported("narrow from a start held in a tensor", "use an index or torch.gather")
    axis = axis_of(dim, x.type.rank)
    low = bound(start, x.type.shape[axis], 0)
    return cut(b, x, axis, low, low + length)


@row(aten.select.int, aten.select_copy.int)
def _select(b: Any, x: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.type.rank)
    size = x.type.shape[axis]
    if not isinstance(index, int) and not is_dim(index):
        return _select_dynamic(b, x, axis, index.value)
    if isinstance(index, int) and index < 0:
        index = size + index
    shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    return b.reshape(cut(b, x, axis, index, index + 1), shape=shape)


def _select_dynamic(b: Any, x: Value, axis: int, index: Value) -> Value:
    zero = b.constant(0, index.type.dtype)
    size = operand(b, x.type.shape[axis], index.type.dtype)
    index = b.select(b.lt(index, zero), index, b.add(index, size))
    starts = [index if a == axis else zero for a in range(x.type.rank)]
    sizes = tuple(1 if a == axis else d for a, d in enumerate(x.type.shape))
    part = b.dynamic_slice(x, *starts, sizes=sizes)
    return b.reshape(part, shape=sizes[:axis] + sizes[axis + 1 :])


def pieces(b: Any, x: Value, axis: int, lengths: Sequence[Any]) -> list[Value]:
    parts, at = [], 0
    for n in lengths:
        parts.append(cut(b, x, axis, at, at + n))
        at = at + n
    return parts


def _split_like_torch(b: Any, x: Value, *args: Any, **kwargs: Any) -> list[Value]:
    """Any split, chunk or unbind along an axis: the lengths are those torch gave the results."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    axis = axis_of(dim, x.type.rank)
    return pieces(b, x, axis, [t.shape[axis] for t in b.out])


def _unbind(b: Any, x: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.type.rank)
    n = x.type.shape[axis]
    if not isinstance(n, int):
        raise Unsupported("unbind of an axis with a free size", "fix that axis")
    shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    return [b.reshape(p, shape=shape) for p in pieces(b, x, axis, [1] * n)]


rows(
    {
        aten.split: _split_like_torch,
        aten.split_with_sizes: _split_like_torch,
        aten.split_with_sizes_copy: _split_like_torch,
        aten.split_copy: _split_like_torch,
        aten.chunk: _split_like_torch,
        aten.tensor_split: _split_like_torch,
        aten.unsafe_split: _split_like_torch,
        aten.unsafe_chunk: _split_like_torch,
        aten.unbind: _unbind,
        aten.unbind_copy: _unbind,
    }
)


@row(aten.diagonal, aten.diagonal_copy, aten.linalg_diagonal)
def _diagonal(b: Any, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    rank = x.type.rank
    d1, d2 = axis_of(dim1, rank), axis_of(dim2, rank)
    x = _move(b, x, [d1, d2], [rank - 2, rank - 1])
    length = b.shape[-1]
    i = b.iota(dtype=i64, shape=(length,), axis=0)
    rows_, columns = b.add(i, max(-offset, 0)), b.add(i, max(offset, 0))
    index = b.concatenate(b.reshape(rows_, shape=(length, 1)), b.reshape(columns, shape=(length, 1)), axis=1)
    lead = tuple(range(rank - 2))
    return b.gather(
        x,
        index,
        offset_dims=lead,
        collapsed_slice_dims=(rank - 2, rank - 1),
        start_index_map=(rank - 2, rank - 1),
        slice_sizes=(*x.type.shape[:-2], 1, 1),
        mode="clip",
    )


def _in_order(b: Any, storage_offset: Any) -> Any:
    """Where the first argument begins in its memory. Raises Unsupported unless it lies there in order."""
    fake = b.node.args[0].meta.get("val") if b.node is not None and b.node.args else None
    if fake is None or not fake.is_contiguous() or (storage_offset is None and fake.storage_offset() != 0):
        raise Unsupported("as_strided of a tensor that is a view", "write it with unfold, indexing or reshape")
    return fake.storage_offset()


def _places(b: Any, size: Any, stride: Any, storage_offset: Any) -> Value:
    """Where the elements of a strided view of the first argument lie in it, counted from its first element."""
    begin = _in_order(b, storage_offset)
    offset = 0 if storage_offset is None else storage_offset - begin
    place = full(b, offset, TensorType(i64, tuple(size)))
    for axis, step in enumerate(stride):
        if step != 0:
            at = b.iota(dtype=i64, shape=tuple(size), axis=axis)
            place = b.add(place, b.mul(at, full(b, step, at.type)))
    return place


@row(aten.as_strided, aten.as_strided_copy)
def _as_strided(b: Any, x: Value, size: Any, stride: Any, storage_offset: Any = None) -> Value:
    """Elements picked by their place in memory: only of a tensor that lies there in order."""
    expected: Any = 1
    strides: list[Any] = []
    for n in reversed(size):
        strides.insert(0, expected)
        expected = expected * n
    same = all(n == 1 or s == e for n, s, e in zip(size, stride, strides))
    if storage_offset in (None, 0) and same and dims.equal(x.type.size, expected):
        _in_order(b, storage_offset)
        return reshape(b, x, b.shape)
    place = _places(b, size, stride, storage_offset)
    return b.take(reshape(b, x, (x.type.size,)), place, axis=0, mode="clip")


@row(aten.as_strided_scatter)
def _as_strided_scatter(b: Any, x: Value, source: Value, size: Any, stride: Any, storage_offset: Any = None) -> Value:
    place = _places(b, size, stride, storage_offset)
    n = place.type.size
    written = b.scatter(
        reshape(b, x, (x.type.size,)),
        reshape(b, place, (n, 1)),
        reshape(b, cast(b, source, x.type.dtype), (n,)),
        combiner="replace",
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        mode="fill",
    )
    return reshape(b, written, x.type.shape)


@row(aten.resize)
def _resize(b: Any, x: Value, size: Any, **options: Any) -> Value:
    """The first elements in another shape; growing would show memory that nothing was written to."""
    wanted = dims.product(size)
    if not isinstance(wanted, int) or not isinstance(x.type.size, int) or wanted > x.type.size:
        raise Unsupported("resize_ to more elements than the tensor has", "use torch.nn.functional.pad")
    return reshape(b, cut(b, reshape(b, x, (x.type.size,)), 0, 0, wanted), tuple(size))


@row(aten.unfold, aten.unfold_copy)
def _unfold(b: Any, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of an axis; the window becomes the last axis."""
    if not x.type.rank:
        return reshape(b, x, b.shape)
    axis = axis_of(dimension, x.type.rank)
    count = b.shape[axis]
    start = b.mul(b.iota(dtype=i64, shape=(count, size), axis=0), step)
    index = b.add(start, b.iota(dtype=i64, shape=(count, size), axis=1))
    taken = b.take(x, index, axis=axis, mode="clip")  # [..., count, size, ...]
    return move_axis(b, taken, axis + 1, taken.type.rank - 1)


# -- joins -------------------------------------------------------------------------------------------


def _cat(b: Any, tensors: Sequence[Value], dim: int = 0) -> Value:
    # torch lets empty 1-d tensors pass as nothing.
    real = [t for t in tensors if not (t.type.rank == 1 and t.type.shape[0] == 0)] or list(tensors[:1])
    dtype = result_dtype(*tensors)
    values = [cast(b, t, dtype) for t in real]
    if len(values) == 1:
        return values[0]
    return b.concatenate(*values, axis=axis_of(dim, values[0].type.rank))


def _stack(b: Any, tensors: Sequence[Value], dim: int = 0) -> Value:
    values = promote(b, *tensors)
    axis = dim + values[0].type.rank + 1 if dim < 0 else dim
    values = tuple(unsqueeze(b, v, axis) for v in values)
    return values[0] if len(values) == 1 else b.concatenate(*values, axis=axis)


rows(
    {
        aten.cat: _cat,
        aten.concat: _cat,
        aten.concatenate: _cat,
        aten.stack: _stack,
        aten.flip: lambda b, x, axes: (
            b.reverse(x, dimensions=tuple(sorted({axis_of(a, x.type.rank) for a in axes})))
            if x.type.rank and axes
            else x
        ),
        aten.fliplr: lambda b, x: b.reverse(x, dimensions=(1,)),
        aten.flipud: lambda b, x: b.reverse(x, dimensions=(0,)),
        aten.repeat: lambda b, x, repeats: _repeat(b, x, repeats),
        aten.tile: lambda b, x, repeats: _repeat(b, x, [*(1,) * (x.type.rank - len(repeats)), *repeats]),
        aten.roll: lambda b, x, shifts, axes=(): _roll(b, x, shifts, axes),
        aten.tril: lambda b, x, diagonal=0: b.tril(x, diagonal=diagonal),
        aten.triu: lambda b, x, diagonal=0: b.triu(x, diagonal=diagonal),
    }
)


def _repeat(b: Any, x: Value, repeats: Sequence[Any]) -> Value:
    lead = len(repeats) - x.type.rank
    x = reshape(b, x, (*(1,) * lead, *x.type.shape))
    shape: list[Any] = []
    wide: list[Any] = []
    axes = []
    for n, size in zip(repeats, x.type.shape, strict=True):
        if n == 1 or size == 1:
            axes.append(len(wide))
            wide.append(size if n == 1 else n)
        else:
            axes.append(len(wide) + 1)
            wide += [n, size]
        shape.append(n * size)
    repeated = b.broadcast_in_dim(x, shape=tuple(wide), broadcast_dimensions=tuple(axes))
    return reshape(b, repeated, tuple(shape))


def _roll(b: Any, x: Value, shifts: Any, axes: Any) -> Value:
    shifts = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    axes = list(axes) if isinstance(axes, (list, tuple)) else [axes]
    if not axes:
        flat = reshape(b, x, (x.type.size,))
        return reshape(b, _roll(b, flat, shifts, [0]), x.type.shape)
    for shift, axis in zip(shifts, (axis_of(a, x.type.rank) for a in axes), strict=True):
        size = x.type.shape[axis]
        shift = dims.mod(shift, size) if size != 0 else 0
        if shift == 0:
            continue
        x = b.concatenate(cut(b, x, axis, size - shift, size), cut(b, x, axis, 0, size - shift), axis=axis)
    return x


@row(aten.diff)
def _diff(
    b: Any, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    """n-th differences along an axis."""
    axis = axis_of(dim, x.type.rank)
    parts = [p for p in (prepend, x, append) if p is not None]
    x = _cat(b, parts, axis) if len(parts) > 1 else x
    for _ in range(n):
        size = x.type.shape[axis]
        if size == 0:
            return x
        later, earlier = cut(b, x, axis, 1, size), cut(b, x, axis, 0, size - 1)
        x = b.ne(later, earlier) if x.type.dtype is bool_ else b.sub(later, earlier)
    return x


# -- writing into a part -----------------------------------------------------------------------------


def _update(b: Any, x: Value, part: Value, axis: int, start: Any) -> Value:
    zero = b.constant(0, i64)
    starts = [operand(b, start, i64) if a == axis else zero for a in range(x.type.rank)]
    return b.dynamic_update_slice(x, cast(b, part, x.type.dtype), *starts)


@row(aten.select_scatter)
def _select_scatter(b: Any, x: Value, src: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.type.rank)
    size = x.type.shape[axis]
    if isinstance(index, int) and index < 0:
        index = size + index
    part = broadcast_to(b, src, tuple(d for a, d in enumerate(x.type.shape) if a != axis))
    return _update(b, x, unsqueeze(b, part, axis), axis, index)


@row(aten.slice_scatter)
def _slice_scatter(
    b: Any, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, x.type.rank)
    size = x.type.shape[axis]
    low, high = bound(start, size, 0), bound(end, size, size)
    if src.type.rank != x.type.rank or (src.type.shape[axis] == 1 and (not isinstance(high, int) or high != low + 1)):
        length = dims.maximum(dims.floordiv(high - low + step - 1, step), 0)
        src = broadcast_to(b, src, tuple(length if a == axis else d for a, d in enumerate(x.type.shape)))
    src = broadcast_to(b, src, tuple(src.type.shape[a] if a == axis else d for a, d in enumerate(x.type.shape)))
    length = src.type.shape[axis]
    if dims.equal(length, size) and step == 1:
        return cast(b, src, x.type.dtype)
    if length == 0:
        return x
    if step == 1:
        return _update(b, x, src, axis, low)
    index = b.add(
        b.mul(b.iota(dtype=i64, shape=(length,), axis=0), step), broadcast_to(b, operand(b, low, i64), (length,))
    )
    window = tuple(a for a in range(x.type.rank) if a != axis)
    return b.scatter(
        x,
        reshape(b, index, (length, 1)),
        cast(b, src, x.type.dtype),
        combiner="replace",
        update_window_dims=window,
        inserted_window_dims=(axis,),
        scatter_dims_to_operand_dims=(axis,),
        mode="fill",
        unique_indices=True,
    )


@row(aten.diagonal_scatter)
def _diagonal_scatter(b: Any, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    rank = x.type.rank
    d1, d2 = axis_of(dim1, rank), axis_of(dim2, rank)
    length = src.type.shape[-1]
    i = b.iota(dtype=i64, shape=(length,), axis=0)
    pair = [b.reshape(b.add(i, max(s, 0)), shape=(length, 1)) for s in (-offset, offset)]
    index = b.concatenate(*(pair if d1 < d2 else reversed(pair)), axis=1)
    low, high = sorted((d1, d2))
    return b.scatter(
        x,
        index,
        src,
        combiner="replace",
        update_window_dims=tuple(range(rank - 2)),
        inserted_window_dims=(low, high),
        scatter_dims_to_operand_dims=(low, high),
        mode="fill",
        unique_indices=True,
    )


@row(aten.copy)
def _copy(b: Any, x: Value, src: Value, non_blocking: bool = False) -> Value:
    return broadcast_to(b, cast(b, src, x.type.dtype), x.type.shape)


@row(aten.fill)
def _fill(b: Any, x: Value, value: Any) -> Value:
    return broadcast_to(b, operand(b, value, x.type.dtype), x.type.shape)


@row(aten.meshgrid)
def _meshgrid(b: Any, tensors: Sequence[Value], indexing: str = "ij") -> list[Value]:
    result = []
    for i, (t, out) in enumerate(zip(tensors, b.out, strict=True)):
        axis = 1 - i if indexing == "xy" and i < 2 and len(tensors) > 1 else i
        t = reshape(b, t, (t.type.size,))
        result.append(b.broadcast_in_dim(t, shape=out.shape, broadcast_dimensions=(axis,)))
    return result


# -- sizes as tensors and tensors as sizes -----------------------------------------------------------


@row(aten.item, aten._local_scalar_dense)
def _item(b: Any, x: Value) -> Value:
    return reshape(b, x, ())


@row(aten.is_nonzero)
def _is_nonzero(b: Any, x: Value) -> Value:
    return cast(b, reshape(b, x, ()), bool_)


@row(aten.broadcast_tensors)
def _broadcast_tensors(b: Any, tensors: Sequence[Value]) -> list[Value]:
    return [broadcast_to(b, t, o.shape) for t, o in zip(tensors, b.out, strict=True)]
