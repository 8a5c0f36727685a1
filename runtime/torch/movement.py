"""Movement rows: views where torch has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph.dtypes import DType, dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import movement as m

from .dtypes import bits, narrow, to_torch, unbits, widen
from .elementwise import convert, moved

Tensor = torch.Tensor
Sizes = tuple[int, ...]
_I64 = dtype("i64")
_COUNTABLE = frozenset({torch.int32, torch.int64, torch.float32, torch.float64})


def broadcast_in_dim(x: Tensor, shape: Sizes, broadcast_dimensions: tuple[int, ...]) -> Tensor:
    """Size-1 axes are put in by indexing with None, then everything expands."""
    rank = len(shape)
    if broadcast_dimensions != tuple(range(rank - x.ndim, rank)):
        x = x[tuple(slice(None) if a in broadcast_dimensions else None for a in range(rank))]
    return x if same_sizes(x.shape, shape) else x.expand(shape)


def same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """True when the sizes are known to be the same without deciding anything about traced ones."""
    return len(a) == len(b) and all(x is y or static_equal(x, y) for x, y in zip(a, b))


def static_equal(a: Any, b: Any) -> bool:
    """True when two sizes are known to be the same without deciding anything about traced ones."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt):
        return bool(a.node.expr == b.node.expr)
    return False


def reshape(x: Tensor, shape: Sizes) -> Tensor:
    return x if same_sizes(x.shape, shape) else x.reshape(shape)


def transpose(x: Tensor, permutation: tuple[int, ...]) -> Tensor:
    return x if permutation == tuple(range(x.ndim)) else x.permute(permutation)


def slice_(x: Tensor, start: Sizes, limit: Sizes, strides: tuple[int, ...] | None) -> Tensor:
    steps = strides or (1,) * x.ndim
    parts: list[slice] = []
    for n, lo, hi, step in zip(x.shape, start, limit, steps):
        whole = static_equal(lo, 0) and static_equal(hi, n) and step == 1
        parts.append(slice(None) if whole else slice(lo, hi, None if step == 1 else step))
    while parts and parts[-1] == slice(None):
        parts.pop()
    return x[tuple(parts)] if parts else x


def start_index(start: Tensor, last: int) -> Tensor:
    """A start clamped to 0..last, as i64."""
    if start.dtype is torch.uint64:
        # The upper half of u64 is negative as i64.
        behind = bits(start)
        return torch.where(behind < 0, last, behind).clamp(0, last)
    return widen(start).to(torch.int64).clamp(0, last)


def _places(start: Tensor, n: int, size: int) -> Tensor:
    return start_index(start, n - size) + torch.arange(size, device=start.device)


def dynamic_slice(x: Tensor, *starts: Tensor, sizes: Sizes) -> Tensor:
    """Elements are picked by index: a start need not leave the device."""
    result = bits(x)
    for axis, (start, n, size) in enumerate(zip(starts, x.shape, sizes)):
        if not static_equal(n, size):
            result = result.index_select(axis, _places(start, n, size))
    return unbits(result, x.dtype)


def dynamic_update_slice(x: Tensor, update: Tensor, *starts: Tensor) -> Tensor:
    moving = [a for a in range(x.ndim) if not static_equal(x.shape[a], update.shape[a])]
    places = {a: _places(starts[a], x.shape[a], update.shape[a]) for a in moving}
    return unbits(_update(bits(x), bits(update), moving, places), x.dtype)


def _update(x: Tensor, update: Tensor, moving: list[int], places: dict[int, Tensor]) -> Tensor:
    """One axis at a time: the slabs that change are updated along the other axes first."""
    if not moving:
        return update
    axis, rest = moving[0], moving[1:]
    slabs = x.index_select(axis, places[axis]) if rest else x
    return x.index_copy(axis, places[axis], _update(slabs, update, rest, places))


def pad(x: Tensor, value: Tensor, low: Sizes, high: Sizes, interior: tuple[int, ...] | None) -> Tensor:
    """Built by joining: the value may be a tensor with a derivative."""
    result, fill = bits(x), bits(value)
    for axis in range(x.ndim):
        gap, lo, hi = interior[axis] if interior else 0, low[axis], high[axis]
        result = pad_axis(result, fill, axis, lo, hi, gap)
    return unbits(result, x.dtype)


def pad_axis(x: Tensor, value: Tensor, axis: int, lo: int, hi: int, gap: int = 0) -> Tensor:
    n = x.shape[axis]
    if gap and not static_equal(n, 0):
        holes = value.expand(*x.shape[: axis + 1], gap, *x.shape[axis + 1 :])
        x = torch.cat([x.unsqueeze(axis + 1), holes], axis + 1).flatten(axis, axis + 1)
        x = x.narrow(axis, 0, (n - 1) * (gap + 1) + 1)

    def block(size: int) -> Tensor:
        return value.expand(*x.shape[:axis], size, *x.shape[axis + 1 :])

    before, after = _grown(lo), _grown(hi)
    if not (static_equal(before, 0) and static_equal(after, 0)):
        blocks = [block(before), x, block(after)]
        x = torch.cat([b for b, n in zip(blocks, (before, 1, after)) if not static_equal(n, 0)], axis)
    first, last = _grown(-lo), _grown(-hi)
    if not (static_equal(first, 0) and static_equal(last, 0)):
        x = x.narrow(axis, first, x.shape[axis] - first - last)
    return x


def _grown(n: Any) -> Any:
    """max(n, 0), without deciding on the sign of a traced size."""
    return max(n, 0) if isinstance(n, int) else torch.sym_max(n, 0)


def concatenate(*xs: Tensor, axis: int) -> Tensor:
    return xs[0] if len(xs) == 1 else unbits(torch.cat([bits(x) for x in xs], axis), xs[0].dtype)


def iota(dtype: DType, shape: Sizes, axis: int) -> Tensor:
    target = to_torch(dtype)
    if target in _COUNTABLE:
        counted = torch.arange(shape[axis], dtype=target)
    else:
        counted = torch.arange(shape[axis])
        counted = narrow(counted, target) if dtype.is_integer else convert(counted, dtype)
    return broadcast_in_dim(counted, shape, (axis,))


def dim_size(dim: Any, dtype: DType) -> Tensor:
    return convert(torch.full((), dim, dtype=torch.int64), dtype)


ROWS: dict[OpDef, Row] = {
    m.broadcast_in_dim: broadcast_in_dim,
    m.reshape: moved(reshape),
    m.transpose: transpose,
    m.reverse: moved(lambda x, dimensions: torch.flip(x, dimensions) if dimensions else x),
    m.slice: slice_,
    m.dynamic_slice: dynamic_slice,
    m.dynamic_update_slice: dynamic_update_slice,
    m.pad: pad,
    m.concatenate: concatenate,
    m.iota: iota,
    m.dim_size: dim_size,
}
