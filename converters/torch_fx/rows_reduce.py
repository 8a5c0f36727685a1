"""Reductions, running sums, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from unigraph.dtypes import bool_, i32, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from .helpers import as_float, axes_of, axis_of, full, keep, operand
from .rowbook import row, rows

aten = torch.ops.aten


def _kept(b: Any, result: Value, x: Value, axes: tuple[int, ...], keepdim: bool) -> Value:
    return keep(b, result, x, axes) if keepdim else result


def summing(op: str) -> Callable[..., Value]:
    """sum and prod: integers and bools add up in int64."""

    def apply(b: Any, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
        x = cast(b, x, b.dtype)
        axes = axes_of(dim, x.type.rank)
        result = getattr(b, op)(x, axes=axes) if axes else x
        return _kept(b, result, x, axes, keepdim)

    return apply


def _mean(b: Any, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = cast(b, x, b.dtype)
    axes = axes_of(dim, x.type.rank)
    if not axes:
        return x
    if x.type.dtype.is_complex:
        count = operand(b, _count(x, axes), x.type.dtype)
        total = b.reduce_sum(x, axes=axes)
        return _kept(b, b.div(total, broadcast_to(b, count, total.type.shape)), x, axes, keepdim)
    return b.mean(x, axes=axes, keepdims=keepdim)


def _count(x: Value, axes: tuple[int, ...]) -> Any:
    n: Any = 1
    for a in axes:
        n = n * x.type.shape[a]
    return n


def extreme(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        axes = axes_of(dim, x.type.rank)
        if not axes:
            return x
        if x.type.dtype is bool_:
            op_ = "reduce_or" if op == "reduce_max" else "reduce_and"
            return _kept(b, getattr(b, op_)(x, axes=axes), x, axes, keepdim)
        return _kept(b, getattr(b, op)(x, axes=axes), x, axes, keepdim)

    return apply


def _pick(b: Any, x: Value, index: Value, axis: int) -> Value:
    """x at one index along an axis; the axis stays with size 1."""
    return b.take_along_axis(x, index, axis=axis)


def extreme_with_index(op: str) -> Callable[..., tuple[Value, Value]]:
    def apply(b: Any, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if not x.type.rank:
            return x, full(b, 0, x.type.with_(i64))
        axis = axis_of(dim, x.type.rank)
        source = cast(b, x, i32) if x.type.dtype is bool_ else x
        index = keep(b, getattr(b, op)(source, axis=axis, index_dtype=i64), x, (axis,))
        values = _pick(b, x, index, axis)
        shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
        return (values, index) if keepdim else (reshape(b, values, shape), reshape(b, index, shape))

    return apply


def arg_extreme(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if not x.type.rank:
            return full(b, 0, x.type.with_(i64))
        source = cast(b, x, i32) if x.type.dtype is bool_ else x
        if dim is None:
            flat = reshape(b, source, (source.type.size,))
            return reshape(b, getattr(b, op)(flat, axis=0, index_dtype=i64), b.shape)
        axis = axis_of(dim, x.type.rank)
        index = getattr(b, op)(source, axis=axis, index_dtype=i64)
        return _kept(b, index, x, (axis,), keepdim)

    return apply


def truth(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        axes = axes_of(dim, x.type.rank)
        truths = cast(b, x, bool_)
        result = getattr(b, op)(truths, axes=axes) if axes else truths
        return cast(b, _kept(b, result, x, axes, keepdim), b.dtype)

    return apply


def _spread(op: str) -> Callable[..., Value]:
    """var and std in all their forms; the correction defaults to 1."""

    def apply(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
        dim, correction, keepdim = _spread_arguments(args, kwargs)
        axes = axes_of(dim, x.type.rank)
        if x.type.dtype.is_complex:
            parts = [
                b.var(p, axes=axes, correction=float(correction), keepdims=keepdim) for p in (b.real(x), b.imag(x))
            ]
            total = b.add(*parts)
            return total if op == "var" else b.sqrt(total)
        return getattr(b, op)(x, axes=axes, correction=float(correction), keepdims=keepdim)

    return apply


def _spread_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, float, bool]:
    """(dim, correction, keepdim) from (unbiased), (dim, unbiased, keepdim) or (dim, *, correction, keepdim)."""
    arguments = list(args)
    unbiased = kwargs.get("unbiased")
    dim = kwargs.get("dim")
    if arguments and isinstance(arguments[0], bool):
        unbiased = arguments.pop(0)
    elif arguments:
        dim = arguments.pop(0)
        if arguments:
            unbiased = arguments.pop(0)
    keepdim = kwargs.get("keepdim", arguments[0] if arguments else False)
    correction = kwargs.get("correction")
    if correction is None:
        correction = 0 if unbiased is False else 1
    return dim, correction, bool(keepdim)


def _with_mean(op: str) -> Callable[..., tuple[Value, Value]]:
    spread = _spread(op)

    def apply(b: Any, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
        dim, _, keepdim = _spread_arguments(args, kwargs)
        axes = axes_of(dim, x.type.rank)
        return spread(b, x, *args, **kwargs), b.mean(x, axes=axes, keepdims=keepdim)

    return apply


def _logsumexp(b: Any, x: Value, dim: Any, keepdim: bool = False) -> Value:
    x = cast(b, x, as_float(x.type.dtype))
    if not x.type.rank:
        return x
    return b.logsumexp(x, axes=axes_of(dim, x.type.rank), keepdims=keepdim)


def vector_norm(b: Any, x: Value, order: float, dim: Any = None, keepdim: bool = False) -> Value:
    """The p-norm over axes; ``x`` has its final dtype."""
    axes = axes_of(dim, x.type.rank)
    size = b.abs(x)
    if not axes:
        axes, size = (0,), reshape(b, size, (1,))
        x, keepdim = size, False
    if order == math.inf:
        result = b.reduce_max(size, axes=axes)
    elif order == -math.inf:
        result = b.reduce_min(size, axes=axes)
    elif order == 0:
        result = b.reduce_sum(cast(b, b.ne(size, 0.0), size.type.dtype), axes=axes)
    elif order == 1:
        result = b.reduce_sum(size, axes=axes)
    elif order == 2:
        result = b.sqrt(b.reduce_sum(b.square(size), axes=axes))
    else:
        total = b.reduce_sum(b.pow(size, full(b, float(order), size.type)), axes=axes)
        result = b.pow(total, full(b, 1 / order, total.type))
    return _kept(b, result, x, axes, keepdim)


def _vector_norm(b: Any, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = cast(b, x, dtype or as_float(x.type.dtype))
    return vector_norm(b, x, float(ord), dim, keepdim)


def _norm(b: Any, x: Value, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = cast(b, x, dtype or as_float(x.type.dtype))
    return vector_norm(b, x, 2.0 if p is None else float(p), dim, keepdim)


def _count_nonzero(b: Any, x: Value, dim: Any = None) -> Value:
    axes = axes_of(dim, x.type.rank)
    truths = cast(b, cast(b, x, bool_), i64)
    return b.reduce_sum(truths, axes=axes) if axes else truths


rows(
    {
        aten.sum: summing("reduce_sum"),
        aten.prod: summing("reduce_prod"),
        aten.mean: _mean,
        aten.amax: extreme("reduce_max"),
        aten.amin: extreme("reduce_min"),
        aten.max.default: extreme("reduce_max"),
        aten.min.default: extreme("reduce_min"),
        aten.max.dim: extreme_with_index("argmax"),
        aten.min.dim: extreme_with_index("argmin"),
        aten.aminmax: lambda b, x, dim=None, keepdim=False: (
            extreme("reduce_min")(b, x, dim, keepdim),
            extreme("reduce_max")(b, x, dim, keepdim),
        ),
        aten.argmax: arg_extreme("argmax"),
        aten.argmin: arg_extreme("argmin"),
        aten.any: truth("reduce_or"),
        aten.all: truth("reduce_and"),
        aten._is_any_true: truth("reduce_or"),
        aten._is_all_true: truth("reduce_and"),
        aten.var: _spread("var"),
        aten.std: _spread("std"),
        aten.var_mean: _with_mean("var"),
        aten.std_mean: _with_mean("std"),
        aten.logsumexp: _logsumexp,
        aten.linalg_vector_norm: _vector_norm,
        aten.norm: _norm,
        aten.count_nonzero: _count_nonzero,
    }
)


# -- running reductions ------------------------------------------------------------------------------


def running(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Value, dim: int, *, dtype: Any = None) -> Value:
        x = cast(b, x, b.dtype)
        return getattr(b, op)(x, axis=axis_of(dim, x.type.rank)) if x.type.rank else x

    return apply


def running_with_index(op: str) -> Callable[..., tuple[Value, Value]]:
    """cummax and cummin: the index is that of the last position that reached the value."""

    def apply(b: Any, x: Value, dim: int) -> tuple[Value, Value]:
        if not x.type.rank:
            return x, full(b, 0, x.type.with_(i64))
        axis = axis_of(dim, x.type.rank)
        source = cast(b, x, i32) if x.type.dtype is bool_ else x
        values = getattr(b, op)(source, axis=axis)
        here = b.eq(source, values)
        if source.type.dtype.is_float:
            here = b.or_(here, b.ne(source, source))
        position = b.iota(dtype=i64, shape=x.type.shape, axis=axis)
        index = b.cummax(b.select(here, full(b, 0, position.type), position), axis=axis)
        return cast(b, values, x.type.dtype), index

    return apply


rows(
    {
        aten.cumsum: running("cumsum"),
        aten.cumprod: running("cumprod"),
        aten.logcumsumexp: running("cumlogsumexp"),
        aten.cummax: running_with_index("cummax"),
        aten.cummin: running_with_index("cummin"),
    }
)


# -- sorting -----------------------------------------------------------------------------------------


def sort_with_index(b: Any, x: Value, axis: int, descending: bool, stable: bool = True) -> tuple[Value, Value]:
    """Sorted values and their positions; NaN counts as largest, equal elements keep their order."""
    position = b.iota(dtype=i64, shape=x.type.shape, axis=axis)
    source = cast(b, x, i32) if x.type.dtype is bool_ else x
    if descending:
        # Sort the reversed axis upward and reverse back: equal elements keep their order.
        flipped = [b.reverse(v, dimensions=(axis,)) for v in (source, position)]
        ordered = b.sort(*flipped, axis=axis, num_keys=1, stable=True)
        values, index = (b.reverse(v, dimensions=(axis,)) for v in ordered)
    else:
        values, index = b.sort(source, position, axis=axis, num_keys=1, stable=True)
    return cast(b, values, x.type.dtype), index


@row(aten.sort)
def _sort(b: Any, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    arguments = [a for a in args if a is not None]
    if "stable" not in kwargs and len(args) == 3:
        arguments = list(args[1:])
    dim = kwargs.get("dim", arguments[0] if arguments else -1)
    descending = kwargs.get("descending", arguments[1] if len(arguments) > 1 else False)
    if not x.type.rank:
        return x, full(b, 0, x.type.with_(i64))
    return sort_with_index(b, x, axis_of(dim, x.type.rank), bool(descending))


@row(aten.argsort)
def _argsort(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return _sort(b, x, *args, **kwargs)[1]


@row(aten.msort)
def _msort(b: Any, x: Value) -> Value:
    return sort_with_index(b, x, 0, False)[0]


@row(aten.topk)
def _topk(b: Any, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    if not x.type.rank:
        return reshape(b, x, b.shape), full(b, 0, x.type.with_(i64, b.shape))
    axis = axis_of(dim, x.type.rank)
    if largest:
        values, index = b.top_k(x, k=k, axis=axis)
        return values, cast(b, index, i64)
    values, index = sort_with_index(b, x, axis, False)
    return cut(b, values, axis, 0, k), cut(b, index, axis, 0, k)


@row(aten.kthvalue)
def _kthvalue(b: Any, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if not x.type.rank:
        return x, full(b, 0, x.type.with_(i64))
    return _at(b, x, axis_of(dim, x.type.rank), k - 1, keepdim)


def _at(b: Any, x: Value, axis: int, position: Any, keepdim: bool) -> tuple[Value, Value]:
    """The element at one place of the sorted order, with its index."""
    found = [cut(b, v, axis, position, position + 1) for v in sort_with_index(b, x, axis, False)]
    shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    values, index = found if keepdim else [reshape(b, v, shape) for v in found]
    return values, index


def _median(nan_aware: bool) -> Callable[..., Any]:
    def apply(b: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Any:
        if not x.type.rank:
            return x if dim is None else (x, full(b, 0, x.type.with_(i64)))
        flat = reshape(b, x, (x.type.size,)) if dim is None else x
        axis = 0 if dim is None else axis_of(dim, x.type.rank)
        n = flat.type.shape[axis]
        if not isinstance(n, int):
            raise Unsupported("median over an axis with a free size", "fix that axis")
        if nan_aware and x.type.dtype.is_float:
            values, index = _nanmedian(b, flat, axis, keepdim and dim is not None)
            return reshape(b, values, b.shape) if dim is None else (values, index)
        values, index = _at(b, flat, axis, (n - 1) // 2, keepdim and dim is not None)
        if x.type.dtype.is_float:
            last_value, last_index = _first_nan(b, flat, axis, keepdim and dim is not None)
            has = b.ne(last_value, last_value)
            values, index = b.select(has, values, last_value), b.select(has, index, last_index)
        return reshape(b, values, b.shape) if dim is None else (values, index)

    return apply


def _nanmedian(b: Any, x: Value, axis: int, keepdim: bool) -> tuple[Value, Value]:
    """The lower median of the numbers: NaN sorts last, so only the place in the order changes."""
    count = b.reduce_sum(cast(b, b.eq(x, x), i64), axes=(axis,))
    place = b.shift_right_arithmetic(b.sub(b.max(count, full(b, 1, count.type)), 1), full(b, 1, count.type))
    place = keep(b, place, x, (axis,))
    found = [b.take_along_axis(v, place, axis=axis) for v in sort_with_index(b, x, axis, False)]
    shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    values, index = found if keepdim else [reshape(b, v, shape) for v in found]
    return values, index


def _first_nan(b: Any, x: Value, axis: int, keepdim: bool) -> tuple[Value, Value]:
    index = keep(b, b.argmax(x, axis=axis, index_dtype=i64), x, (axis,))
    value = b.take_along_axis(x, index, axis=axis)
    shape = value.type.shape if keepdim else tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    return reshape(b, value, shape), reshape(b, index, shape)


rows({aten.median: _median(False), aten.nanmedian: _median(True)})


@row(aten.mode)
def _mode(b: Any, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent value (the smallest of equals) and the last position that holds it."""
    if not x.type.rank:
        return x, full(b, 0, x.type.with_(i64))
    axis = axis_of(dim, x.type.rank)
    values = sort_with_index(b, x, axis, False)[0]
    n = x.type.shape[axis]
    wide = (*x.type.shape, n)
    other = broadcast_to(
        b, reshape(b, b.transpose(values, permutation=_last(x.type.rank, axis)), (*_moved(x, axis), n)), wide
    )
    same = b.eq(broadcast_to(b, reshape(b, values, (*x.type.shape, 1)), wide), other)
    counts = b.reduce_sum(cast(b, same, i64), axes=(x.type.rank,))
    best = keep(b, b.argmax(counts, axis=axis, index_dtype=i64), x, (axis,))
    value = b.take_along_axis(values, best, axis=axis)
    hit = b.eq(x, broadcast_to(b, value, x.type.shape))
    position = b.iota(dtype=i64, shape=x.type.shape, axis=axis)
    last = b.reduce_max(b.select(hit, full(b, -1, position.type), position), axes=(axis,))
    shape = tuple(d for a, d in enumerate(x.type.shape) if a != axis)
    return (value, keep(b, last, x, (axis,))) if keepdim else (reshape(b, value, shape), last)


def _last(rank: int, axis: int) -> tuple[int, ...]:
    return (*(a for a in range(rank) if a != axis), axis)


def _moved(x: Value, axis: int) -> tuple[Any, ...]:
    """The shape of x with a size 1 where the axis was, so that the moved axis broadcasts."""
    return tuple(1 if a == axis else d for a, d in enumerate(x.type.shape))


# -- distances ---------------------------------------------------------------------------------------


@row(aten._cdist_forward, aten.cdist)
def _cdist(b: Any, x: Value, y: Value, p: float = 2.0, compute_mode: Any = None) -> Value:
    """The p-norm of every difference of a row of x and a row of y."""
    lead, (n, width), m = b.shape[:-2], x.type.shape[-2:], y.type.shape[-2]
    shape = (*lead, n, m, width)
    left = broadcast_to(b, reshape(b, x, (*x.type.shape[:-1], 1, width)), shape)
    right = broadcast_to(b, reshape(b, y, (*y.type.shape[:-2], 1, m, width)), shape)
    return vector_norm(b, b.sub(left, right), float(p), [len(shape) - 1])


@row(aten._pdist_forward, aten.pdist)
def _pdist(b: Any, x: Value, p: float = 2.0) -> Value:
    """The p-norm of the difference of every two different rows, in the order of the upper triangle."""
    n = x.type.shape[0]
    if not isinstance(n, int):
        raise Unsupported("pdist over a free number of rows", "fix that axis")
    first, second = (b.constant(i.astype("int64")) for i in np.triu_indices(n, 1))
    left, right = (b.take(x, i, axis=0, mode="clip") for i in (first, second))
    return vector_norm(b, b.sub(left, right), float(p), [1])
