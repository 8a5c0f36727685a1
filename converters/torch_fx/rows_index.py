"""Indexing: gather and scatter in all of torch's forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import DType, bool_, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from .helpers import axis_of, common_shape, full, operand, promote, wrap_index
from .rowbook import row, rows
from .walk import is_unbacked

aten = torch.ops.aten


# -- x[i, j, mask] -----------------------------------------------------------------------------------


def _without_masks(b: Any, x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    """Boolean masks become the coordinates of their True elements."""
    result: list[Value | None] = []
    for index in indices:
        if index is None or index.type.dtype.name not in ("bool", "u8"):
            result.append(index)
            continue
        mask = cast(b, index, bool_)
        found = b.nonzero(mask, symbol=data_symbol(b))
        count = found.type.shape[0]
        result.extend(reshape(b, cut(b, found, 1, a, a + 1), (count,)) for a in range(mask.type.rank))
    return result


def data_symbol(b: Any) -> str:
    """The name torch gave the unknown size, where the result shows it."""
    for t in b.out:
        for d in t.shape if t is not None else ():
            if is_unbacked(d) and getattr(d, "is_Symbol", False):
                return str(d.name)
    return str(b.fresh("n"))


class _Indexed:
    """An advanced index made plain: one coordinate tensor and where its axes go in the result."""

    def __init__(self, b: Any, x: Value, indices: Sequence[Value | None]):
        indices = _without_masks(b, x, indices)
        self.axes = tuple(i for i, index in enumerate(indices) if index is not None)
        given = [i for i in indices if i is not None]
        self.batch = common_shape(i.type.shape for i in given)
        adjacent = all(q - p == 1 for p, q in zip(self.axes, self.axes[1:]))
        self.at = self.axes[0] if adjacent and self.axes else 0
        self.rest = tuple(a for a in range(x.type.rank) if a not in self.axes)
        columns = []
        for axis, index in zip(self.axes, given):
            index = cast(b, index, i64)
            index = wrap_index(b, index, x.type.shape[axis])
            columns.append(reshape(b, broadcast_to(b, index, self.batch), (*self.batch, 1)))
        last = len(self.batch)
        self.coordinates = columns[0] if len(columns) == 1 else b.concatenate(*columns, axis=last)
        rank = len(self.rest) + last
        self.window = tuple(a for a in range(rank) if not self.at <= a < self.at + last)
        rest = [x.type.shape[a] for a in self.rest]
        self.shape = (*rest[: self.at], *self.batch, *rest[self.at :])


@row(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(b: Any, x: Value, indices: Sequence[Value | None]) -> Value:
    if all(i is None for i in indices):
        return x
    plan = _Indexed(b, x, indices)
    return b.gather(
        x,
        plan.coordinates,
        offset_dims=plan.window,
        collapsed_slice_dims=plan.axes,
        start_index_map=plan.axes,
        slice_sizes=tuple(1 if a in plan.axes else d for a, d in enumerate(x.type.shape)),
        mode="clip",
    )


@row(aten._unsafe_masked_index)
def _masked_index(b: Any, x: Value, mask: Value, indices: Any, fill: Any) -> Value:
    taken = _index(b, x, indices)
    mask = broadcast_to(b, mask, taken.type.shape)
    return b.select(mask, full(b, fill, taken.type), taken)


@row(aten.index_put, aten._unsafe_index_put)
def _index_put(b: Any, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    values = cast(b, values, x.type.dtype)
    single = [i for i in indices if i is not None]
    if len(single) == 1 and single[0].type.dtype is bool_ and not accumulate and values.type.size == 1:
        lead = list(indices).index(single[0])
        mask = single[0]
        shape = (*mask.type.shape, *(1,) * (x.type.rank - lead - mask.type.rank))
        mask = broadcast_to(b, reshape(b, mask, shape), x.type.shape)
        return b.select(mask, x, broadcast_to(b, reshape(b, values, ()), x.type.shape))
    plan = _Indexed(b, x, indices)
    return b.scatter(
        x,
        plan.coordinates,
        broadcast_to(b, values, plan.shape),
        combiner="add" if accumulate else "replace",
        update_window_dims=plan.window,
        inserted_window_dims=plan.axes,
        scatter_dims_to_operand_dims=plan.axes,
        mode="fill",
    )


# -- along one axis ----------------------------------------------------------------------------------


def _flat_index(b: Any, index: Value) -> Value:
    return reshape(b, index, (1,)) if not index.type.rank else index


@row(aten.index_select)
def _index_select(b: Any, x: Value, dim: int, index: Value) -> Value:
    if not x.type.rank:
        return x
    return b.take(x, _flat_index(b, index), axis=axis_of(dim, x.type.rank), mode="clip")


def _pointwise(b: Any, x: Value, axis: int, index: Value) -> Value:
    """Coordinates [*index.shape, rank] that name the element of ``x`` meant by each element of ``index``."""
    shape = index.type.shape
    parts = [cast(b, index, i64) if a == axis else b.iota(dtype=i64, shape=shape, axis=a) for a in range(len(shape))]
    parts = [reshape(b, p, (*shape, 1)) for p in parts]
    return parts[0] if len(parts) == 1 else b.concatenate(*parts, axis=len(shape))


@row(aten.gather)
def _gather(b: Any, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not x.type.rank or not index.type.rank:
        flat = reshape(b, x, (1,)) if not x.type.rank else x
        return reshape(b, b.take(flat, _flat_index(b, index), axis=0, mode="clip"), b.shape)
    axis = axis_of(dim, x.type.rank)
    for a, n in enumerate(index.type.shape):
        if a != axis and not dims.equal(n, x.type.shape[a]):
            x = cut(b, x, a, 0, n)
    return b.take_along_axis(x, index, axis=axis)


@row(aten.take_along_dim)
def _take_along_dim(b: Any, x: Value, index: Value, dim: int | None = None) -> Value:
    if dim is None:
        flat, where = reshape(b, x, (x.type.size,)), reshape(b, index, (index.type.size,))
        return b.take_along_axis(flat, where, axis=0)
    axis = axis_of(dim, x.type.rank)
    shape = common_shape(tuple(1 if a == axis else d for a, d in enumerate(t.type.shape)) for t in (x, index))
    x = broadcast_to(b, x, tuple(x.type.shape[a] if a == axis else d for a, d in enumerate(shape)))
    index = broadcast_to(b, index, tuple(index.type.shape[a] if a == axis else d for a, d in enumerate(shape)))
    return b.take_along_axis(x, index, axis=axis)


@row(aten.take)
def _take(b: Any, x: Value, index: Value) -> Value:
    flat = reshape(b, x, (x.type.size,))
    return b.take(flat, wrap_index(b, index, x.type.size), axis=0, mode="clip")


def _scatter_points(b: Any, x: Value, axis: int, index: Value, updates: Value, combiner: str) -> Value:
    axes = tuple(range(x.type.rank))
    for a, n in enumerate(index.type.shape):
        if not dims.equal(n, updates.type.shape[a]):
            updates = cut(b, updates, a, 0, n)
    return b.scatter(
        x,
        _pointwise(b, x, axis, index),
        updates,
        combiner=combiner,
        update_window_dims=(),
        inserted_window_dims=axes,
        scatter_dims_to_operand_dims=axes,
        mode="fill",
    )


def scatter(b: Any, x: Value, dim: int, index: Value, source: Any, combiner: str) -> Value:
    """One of torch's scatters along an axis, from a tensor or a number."""
    if not x.type.rank or not index.type.rank:
        shape = x.type.shape
        x, index = (reshape(b, t, (1,)) if not t.type.rank else t for t in (x, index))
        if isinstance(source, Value) and not source.type.rank:
            source = reshape(b, source, (1,))
        return reshape(b, scatter(b, x, 0, index, source, combiner), shape)
    if isinstance(source, Value) and source.type.rank:
        updates = cast(b, source, x.type.dtype)
    else:
        updates = broadcast_to(b, operand(b, source, x.type.dtype), index.type.shape)
    return _scatter_points(b, x, axis_of(dim, x.type.rank), index, updates, combiner)


_REDUCE = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(
    b: Any, x: Value, dim: int, index: Value, source: Any = None, *, reduce: str | None = None, **kw: Any
) -> Value:
    return scatter(b, x, dim, index, kw.get("value", source), "replace" if reduce is None else _REDUCE[reduce])


def extreme(dtype: DType, largest: bool) -> Any:
    """The largest or smallest number of a dtype (infinite for floats)."""
    if dtype is bool_:
        return largest
    if dtype.is_integer:
        if dtype.kind == "uint":
            return 2**dtype.bits - 1 if largest else 0
        return 2 ** (dtype.bits - 1) - 1 if largest else -(2 ** (dtype.bits - 1))
    return float("inf") if largest else float("-inf")


def _identity(dtype: DType, combiner: str) -> Any:
    return {"add": 0, "mul": 1, "max": extreme(dtype, False), "min": extreme(dtype, True)}[combiner]


@row(aten.scatter_reduce)
def _scatter_reduce(
    b: Any, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    combiner = _REDUCE.get(reduce, "add")
    start = x
    if not include_self:
        start = scatter(b, x, dim, index, _identity(x.type.dtype, combiner), "replace")
    result = scatter(b, start, dim, index, src, combiner)
    if reduce != "mean":
        return result
    counts = full(b, 1 if include_self else 0, x.type.with_(i64))
    counts = scatter(b, counts, dim, index, 1, "add")
    if not include_self:
        counts = b.max(counts, full(b, 1, counts.type))
    return _mean(b, result, counts)


def _mean(b: Any, total: Value, counts: Value) -> Value:
    from .rows_elementwise import floor_div

    counts = cast(b, counts, total.type.dtype)
    return b.div(total, counts) if total.type.dtype.is_inexact else floor_div(b, total, counts)


def _along(b: Any, x: Value, axis: int, index: Value, updates: Value, combiner: str) -> Value:
    """Whole slices written at the positions ``index`` of one axis."""
    window = tuple(a for a in range(x.type.rank) if a != axis)
    index = wrap_index(b, cast(b, _flat_index(b, index), i64), x.type.shape[axis])
    return b.scatter(
        x,
        reshape(b, index, (*index.type.shape, 1)),
        updates,
        combiner=combiner,
        update_window_dims=window,
        inserted_window_dims=(axis,),
        scatter_dims_to_operand_dims=(axis,),
        mode="fill",
    )


def index_write(b: Any, x: Value, dim: int, index: Value, source: Any, combiner: str) -> Value:
    """index_add, index_copy, index_fill: slices of ``source`` go to ``index`` along ``dim``."""
    if not x.type.rank:
        one = reshape(b, x, (1,))
        if isinstance(source, Value):
            source = reshape(b, source, (1,)) if source.type.rank == 0 else source
        return reshape(b, index_write(b, one, 0, index, source, combiner), ())
    axis = axis_of(dim, x.type.rank)
    count = _flat_index(b, index).type.shape[0]
    shape = tuple(count if a == axis else d for a, d in enumerate(x.type.shape))
    source = broadcast_to(b, operand(b, source, x.type.dtype), shape)
    return _along(b, x, axis, index, source, combiner)


def _index_add(b: Any, x: Value, dim: int, index: Value, source: Value, alpha: Any = 1) -> Value:
    source = cast(b, source, x.type.dtype)
    if alpha != 1:
        source = b.mul(source, full(b, alpha, source.type))
    return index_write(b, x, dim, index, source, "add")


@row(aten.index_reduce)
def _index_reduce(
    b: Any, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    combiner = _REDUCE.get(reduce, "add")
    start = x if include_self else index_write(b, x, dim, index, _identity(x.type.dtype, combiner), "replace")
    result = index_write(b, start, dim, index, source, combiner)
    if reduce != "mean":
        return result
    counts = full(b, 1 if include_self else 0, x.type.with_(i64))
    counts = index_write(b, counts, dim, index, 1, "add")
    return _mean(b, result, b.max(counts, full(b, 1, counts.type)))


@row(aten.put)
def _put(b: Any, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = reshape(b, x, (x.type.size,))
    index = reshape(b, index, (index.type.size,))
    source = reshape(b, source, (source.type.size,))
    return reshape(b, index_write(b, flat, 0, index, source, "add" if accumulate else "replace"), x.type.shape)


@row(aten.masked_scatter)
def _masked_scatter(b: Any, x: Value, mask: Value, source: Value) -> Value:
    """The True positions take the elements of ``source`` in order."""
    x, mask = broadcast_to(b, x, b.shape), broadcast_to(b, mask, b.shape)
    flat = reshape(b, mask, (mask.type.size,))
    order = b.sub(b.cumsum(cast(b, flat, i64), axis=0), 1)
    order = b.max(order, full(b, 0, order.type))
    taken = b.take(reshape(b, source, (source.type.size,)), order, axis=0, mode="clip")
    return b.select(mask, x, reshape(b, taken, x.type.shape))


@row(aten.masked_select)
def _masked_select(b: Any, x: Value, mask: Value) -> Value:
    shape = common_shape((x.type.shape, mask.type.shape))
    return _index(b, broadcast_to(b, x, shape), [broadcast_to(b, mask, shape)])


@row(aten.nonzero)
def _nonzero(b: Any, x: Value) -> Value:
    if not x.type.rank:
        found = b.nonzero(reshape(b, x, (1,)), symbol=data_symbol(b))
        return cut(b, found, 1, 0, 0)
    return b.nonzero(x, symbol=data_symbol(b))


@row(aten.nonzero_numpy)
def _nonzero_numpy(b: Any, x: Value) -> list[Value]:
    if not x.type.rank:
        x = reshape(b, x, (1,))
    found = b.nonzero(x, symbol=data_symbol(b))
    return [reshape(b, cut(b, found, 1, a, a + 1), (found.type.shape[0],)) for a in range(x.type.rank)]


@row(aten.argwhere)
def _argwhere(b: Any, x: Value) -> Value:
    return _nonzero(b, x)


@row(aten.repeat_interleave.self_int)
def _repeat_interleave(b: Any, x: Value, repeats: int, dim: int | None = None, output_size: Any = None) -> Value:
    if dim is None:
        x, dim = reshape(b, x, (x.type.size,)), 0
    return b.repeat(x, repeats=repeats, axis=axis_of(dim, x.type.rank))


@row(aten.embedding)
def _embedding(b: Any, weight: Value, indices: Value, padding_idx: int = -1, *rest: Any) -> Value:
    return b.embedding(weight, indices, padding_index=padding_idx if padding_idx >= 0 else None)


@row(aten.embedding_dense_backward)
def _embedding_backward(b: Any, grad: Value, indices: Value, count: int, padding: int, by_frequency: bool) -> Value:
    if by_frequency:
        raise Unsupported("the gradient of an embedding scaled by frequency", "set scale_grad_by_freq=False")
    width = grad.type.shape[-1]
    n = indices.type.size
    index, flat = reshape(b, indices, (n,)), reshape(b, grad, (n, width))
    if padding >= 0:
        skip = reshape(b, b.eq(index, full(b, padding, index.type)), (n, 1))
        flat = b.select(broadcast_to(b, skip, flat.type.shape), flat, full(b, 0, flat.type))
    zero = full(b, 0, grad.type.with_(shape=(count, width)))
    return _along(b, zero, 0, index, flat, "add")


@row(aten.one_hot)
def _one_hot(b: Any, x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise Unsupported("one_hot without num_classes depends on the values", "pass num_classes")
    return b.one_hot(x, depth=num_classes, axis=-1, dtype=i64)


@row(aten.searchsorted)
def _searchsorted(
    b: Any,
    boundaries: Value,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    if sorter is not None:
        boundaries = b.take_along_axis(boundaries, sorter, axis=boundaries.type.rank - 1)
    return _count_below(b, boundaries, values, right or side == "right")


@row(aten.bucketize)
def _bucketize(b: Any, values: Any, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _count_below(b, boundaries, values, right)


def _count_below(b: Any, boundaries: Value, values: Any, right: bool) -> Value:
    """Number of boundaries below (``right``: not above) each value, found by comparing with all of them."""
    shape = b.shape
    dtype = boundaries.type.dtype
    if not isinstance(values, Value):
        values = broadcast_to(b, operand(b, values, dtype), shape)
    boundaries, values = promote(b, boundaries, values)
    n = boundaries.type.shape[-1]
    wide = (*shape, n)
    values = broadcast_to(b, reshape(b, values, (*shape, 1)), wide)
    if boundaries.type.rank > 1:
        boundaries = reshape(b, boundaries, (*boundaries.type.shape[:-1], 1, n))
    boundaries = broadcast_to(b, boundaries, wide)
    below = b.le(boundaries, values) if right else b.lt(boundaries, values)
    if values.type.dtype.is_float:
        below = (
            b.or_(below, b.ne(values, values))
            if right
            else b.or_(below, b.and_(b.ne(values, values), b.eq(boundaries, boundaries)))
        )
    return b.reduce_sum(cast(b, below, b.dtype), axes=(len(shape),))


rows(
    {
        aten.scatter: _scatter,
        aten.scatter_add: lambda b, x, dim, index, src: scatter(b, x, dim, index, src, "add"),
        aten.index_add: _index_add,
        aten.index_copy: lambda b, x, dim, index, src: index_write(b, x, dim, index, src, "replace"),
        aten.index_fill: lambda b, x, dim, index, value: index_write(b, x, dim, index, value, "replace"),
    }
)
