"""gather, scatter and nonzero, through index tensors over all windows at once.

Updates that hit one element meet in a fixed order on every device where the order shows: for
`replace` the last one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import index as ix

from .dtypes import SHORT, bits, from_order, from_torch, full, is_weak, narrow, to_order, unbits, widen
from .movement import static_equal

Tensor = torch.Tensor
Ints = tuple[int, ...]


def _starts(
    x: Tensor,
    indices: Tensor,
    index_map: Ints,
    batching: Ints,
    indices_batching: Ints,
    sizes: Sequence[int],
    check: bool,
) -> tuple[dict[int, Tensor], Tensor | None]:
    """Where each window starts along the axes that move, made to fit; and which windows fitted.

    Both have the leading axes of ``indices``.
    """
    places = indices.shape[:-1]
    inside: Tensor | None = None
    starts: dict[int, Tensor] = {}
    for entry, axis in enumerate(index_map):
        last = x.shape[axis] - sizes[axis]
        column = indices[..., entry]
        wanted = widen(column).to(torch.int64)
        if column.dtype is torch.uint64:  # its upper half is negative as i64, and far beyond
            wanted = torch.where(wanted < 0, (1 << 63) - 1, wanted)
        if check:
            fits = (wanted >= 0) & (wanted <= last)
            inside = fits if inside is None else inside & fits
        starts[axis] = wanted.clamp(0, last)
    for axis, at in zip(batching, indices_batching):
        counted = torch.arange(places[at], device=indices.device)
        starts[axis] = counted.reshape([-1 if a == at else 1 for a in range(len(places))])
    return starts, inside


def gather(
    x: Tensor,
    indices: Tensor,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    start_index_map: Ints,
    slice_sizes: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    mode: str,
    fill_value: Any,
) -> Tensor:
    places = indices.shape[:-1]
    hidden = collapsed_slice_dims + operand_batching_dims
    shown = [a for a in range(x.ndim) if a not in hidden]
    axis_of = dict(zip(shown, offset_dims))
    if any(static_equal(x.shape[a], 0) and not static_equal(n, 0) for a, n in enumerate(slice_sizes)):
        # No window fits anywhere: there is nothing to gather from (and, with no places, nothing to do).
        shape, window = iter(places), {axis_of[a]: slice_sizes[a] for a in shown}
        sizes_ = tuple(window[a] if a in window else next(shape) for a in range(len(places) + len(shown)))
        return full(sizes_, _fill(x, fill_value), x)
    starts, inside = _starts(
        x, indices, start_index_map, operand_batching_dims, start_indices_batching_dims, slice_sizes, mode == "fill"
    )
    # Axes taken whole stay basic axes, after the indexed ones: rows of a table are copied as rows.
    whole = [a for a in shown if static_equal(slice_sizes[a], x.shape[a])]
    indexed = [a for a in range(x.ndim) if a not in whole]
    part = [a for a in indexed if a in shown]
    grids = []
    for a in indexed:
        start = starts.get(a)
        if start is None:
            start = torch.zeros((1,) * len(places), dtype=torch.int64, device=x.device)
        if part:
            start = start.reshape((*start.shape, *(1,) * len(part)))
        if a in shown:
            start = start + torch.arange(slice_sizes[a], device=x.device).reshape([-1 if b == a else 1 for b in part])
        grids.append(start)
    order = indexed + whole
    moved = bits(x) if order == list(range(x.ndim)) else bits(x).permute(order)
    lead = (*places, *(slice_sizes[a] for a in part))
    if grids:
        # One grid alone decides the shape, so it is stretched; several stretch one another.
        grids[0] = grids[0].expand(lead)
        if lead:
            result = moved[tuple(grids)]
        else:  # torch reads an index of rank 0 as a number, which cannot be traced
            result = moved[tuple(g.reshape(1) for g in grids)].squeeze(0)
    else:
        result = moved.expand(*lead, *moved.shape)
    result = unbits(result, x.dtype)
    if inside is not None:
        keep = inside.reshape((*inside.shape, *(1,) * len(shown)))
        fill = full((), _fill(x, fill_value), x)
        result = unbits(torch.where(keep, bits(result), bits(fill)), x.dtype)
    origin, target = tuple(range(len(places), result.ndim)), tuple(axis_of[a] for a in part + whole)
    return result if origin == target else torch.movedim(result, origin, target)


def _fill(x: Tensor, fill_value: Any) -> Any:
    if fill_value is not None:
        return fill_value
    kind = from_torch(x.dtype)
    if kind.is_inexact:
        return float("nan")
    if kind.kind == "bool":
        return True
    return -(1 << (kind.bits - 1)) if kind.kind == "int" else (1 << kind.bits) - 1


def scatter(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    combiner: str,
    update_window_dims: Ints,
    inserted_window_dims: Ints,
    scatter_dims_to_operand_dims: Ints,
    operand_batching_dims: Ints,
    scatter_indices_batching_dims: Ints,
    mode: str,
    unique_indices: bool,
) -> Tensor:
    places = indices.shape[:-1]
    hidden = inserted_window_dims + operand_batching_dims
    shown = [a for a in range(x.ndim) if a not in hidden]
    if any(static_equal(n, 0) for n in (*updates.shape, *x.shape)):
        return x
    order = [a for a in range(updates.ndim) if a not in update_window_dims] + list(update_window_dims)
    moved = bits(updates) if order == list(range(updates.ndim)) else bits(updates).permute(order)
    window = moved.shape[len(places) :]
    size_of = dict(zip(shown, window))
    sizes = [size_of.get(a, 1) for a in range(x.ndim)]
    starts, inside = _starts(
        x,
        indices,
        scatter_dims_to_operand_dims,
        operand_batching_dims,
        scatter_indices_batching_dims,
        sizes,
        mode != "clip",
    )
    # The position of every updated element in x, counted in row-major order.
    strides: list[Any] = [1] * x.ndim
    for a in range(x.ndim - 2, -1, -1):
        strides[a] = strides[a + 1] * x.shape[a + 1]
    at = torch.zeros((1,) * (len(places) + len(window)), dtype=torch.int64, device=x.device)
    for a, start in starts.items():
        at = at + (start * strides[a]).reshape((*start.shape, *(1,) * len(window)))
    for i, a in enumerate(shown):
        offsets = torch.arange(window[i], device=x.device) * strides[a]
        at = at + offsets.reshape([-1 if j == i else 1 for j in range(len(window))])
    total = x.numel()
    if inside is not None:
        # Windows that do not fit go to one more element, which is cut off afterwards.
        at = torch.where(inside.reshape((*inside.shape, *(1,) * len(window))), at, total)
    at = at.expand(moved.shape).reshape(-1)
    flat = bits(x).reshape(-1)
    if inside is not None:
        flat = torch.cat([flat, flat[:1]])
    news = moved.reshape(-1)
    result = _combine(unbits(flat, x.dtype), at, unbits(news, x.dtype), combiner, unique_indices)
    result = bits(result)[:total] if inside is not None else bits(result)
    return unbits(result.reshape(x.shape), x.dtype)


_REDUCE = {"mul": "prod", "min": "amin", "max": "amax"}


def _combine(x: Tensor, at: Tensor, news: Tensor, combiner: str, unique: bool) -> Tensor:
    """The flat ``x`` with ``news`` combined into its elements number ``at``."""
    t = x.dtype
    if combiner == "replace":
        return unbits(_replace(bits(x), at, bits(news), unique), t)
    if t is torch.bool:  # add is `or`, mul is `and`
        how = {"add": "amax", "max": "amax", "mul": "amin", "min": "amin"}[combiner]
        return x.to(torch.uint8).scatter_reduce(0, at, news.to(torch.uint8), how).to(torch.bool)
    if combiner in ("add", "sub"):
        small = is_weak(t) and from_torch(t).bits < 16
        base, more = (widen(x), widen(news)) if small else (bits(x), bits(news))
        more = more if combiner == "add" else -more
        if t in SHORT:  # scatter_add would add up in f32 here and there
            return base.index_put((at,), more, accumulate=True)
        return _back(base.scatter_add(0, at, more), t)
    if combiner == "mul":
        if x.is_complex():
            return _multiply(x, at, news)
        small = is_weak(t) and from_torch(t).bits < 16
        base, more = (widen(x), widen(news)) if small else (bits(x), bits(news))
        return _back(base.scatter_reduce(0, at, more, "prod"), t)
    if x.is_complex():
        return _extreme(x, at, news, _REDUCE[combiner])
    return from_order(to_order(x).scatter_reduce(0, at, to_order(news), _REDUCE[combiner]), t)


def _back(x: Tensor, t: torch.dtype) -> Tensor:
    return x if x.dtype is t else x.view(t) if is_weak(t) and from_torch(t).bits >= 16 else narrow(x, t)


def _multiply(x: Tensor, at: Tensor, news: Tensor) -> Tensor:
    """Products of complex numbers: logarithms add up, and a zero makes zero."""
    logs = torch.zeros_like(x).scatter_add(0, at, torch.log(torch.where(news == 0, 1, news)))
    zero = torch.zeros_like(x.real).scatter_add(0, at, (news == 0).to(x.real.dtype)) > 0
    return torch.where(zero, 0, x * torch.exp(logs))


def _extreme(x: Tensor, at: Tensor, news: Tensor, how: str) -> Tensor:
    """Extremes of complex numbers, ordered by real part, then imaginary part: those of their places in that order."""
    every = torch.cat([x, news])
    by_imaginary = torch.argsort(every.imag, stable=True)
    order = by_imaginary[torch.argsort(every.real[by_imaginary], stable=True)]
    places = torch.empty_like(order).scatter(0, order, torch.arange(order.shape[0], device=x.device))
    n = x.shape[0]
    nan = torch.isnan(x).scatter_reduce(0, at, torch.isnan(news), "amax")
    return torch.where(nan, torch.nan, every[order[places[:n].scatter_reduce(0, at, places[n:], how)]])


def _replace(x: Tensor, at: Tensor, news: Tensor, unique: bool) -> Tensor:
    if unique:
        return x.scatter(0, at, news)
    numbers = torch.arange(at.shape[0], device=x.device)
    winner = torch.full_like(x, -1, dtype=torch.int64).scatter_reduce(0, at, numbers, "amax")
    return torch.where(winner >= 0, news[winner.clamp(min=0)], x)


def nonzero(x: Tensor, symbol: str) -> Tensor:
    return torch.nonzero(widen(x) if is_weak(x.dtype) else x)


def sized(sizes: Tensor, symbols: tuple[str, ...]) -> Tensor:
    """The sizes leave the device: they are the shape of the result."""
    wanted: list[Any] = [widen(sizes)[i].item() for i in range(len(symbols))]
    return torch.full((), False, device=sizes.device).expand(wanted)


ROWS: dict[OpDef, Row] = {ix.gather: gather, ix.scatter: scatter, ix.nonzero: nonzero, ix.sized: sized}
