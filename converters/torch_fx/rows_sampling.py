"""Images resampled: resizing, pixel shuffles, sampling at a grid of points, adaptive maximum pooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unigraph import dims
from unigraph.dtypes import i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from .helpers import full
from .rowbook import row, rows
from .rows_nn import max_pool_with_indices, plane_positions, replicate, spatial

aten = torch.ops.aten


# -- resizing ----------------------------------------------------------------------------------------


def _upsample(mode: str, n: int, nearest: str = "floor", antialias: bool = False) -> Callable[..., Value]:
    """All overloads: (x, size, [align_corners], scales...) and the .vec form (x, size, [align], scale_factors)."""

    def apply(b: Any, x: Value, size: Any, *args: Any, **kwargs: Any) -> Value:
        values = list(args)
        align = False
        if mode != "nearest":
            align = kwargs.get("align_corners", values.pop(0) if values else False)
        scales = [s for v in values for s in (v if isinstance(v, (list, tuple)) else [v])]
        scales += [v for k, v in kwargs.items() if k.startswith("scale") and not isinstance(v, (list, tuple))]
        scales += [s for k, v in kwargs.items() if isinstance(v, (list, tuple)) for s in v]
        known = len(scales) == n and all(isinstance(s, (int, float)) for s in scales) and not align
        if mode == "nearest":
            coordinates = "half_pixel" if nearest == "exact" else "asymmetric"
        else:
            coordinates = "align_corners" if align else "half_pixel"
        options: dict[str, Any] = {"scales": tuple(float(s) for s in scales)} if known else {}
        if antialias:
            # The antialiased cubic kernel is the one of Pillow, with a = -0.5.
            options |= {"antialias": True, "cubic_coeff": -0.5}
        if mode == "nearest":
            options["nearest"] = "floor"
            if nearest == "exact":
                return _nearest_exact(b, x, options.get("scales"))
        return b.resize(x, shape=b.shape[2:], mode=mode, coordinates=coordinates, **options)

    return apply


def _nearest_exact(b: Any, x: Value, scales: Any) -> Value:
    """Each output pixel takes the input pixel that holds its centre: floor((i + 0.5) * scale)."""
    for a, size in enumerate(b.shape[2:], start=2):
        old = x.type.shape[a]
        if dims.equal(old, size):
            continue
        i = b.convert(b.iota(dtype=i64, shape=(size,), axis=0), dtype="f32")
        if scales:
            ratio = b.constant(1 / scales[a - 2], "f32")
        else:
            ratio = b.div(b.size(old, "f32"), b.size(size, "f32"))
        where = cast(b, b.floor(b.mul(b.add(i, 0.5), broadcast_to(b, ratio, (size,)))), i64)
        x = b.take(x, replicate(b, where, old), axis=a, mode="clip")
    return x


rows(
    {
        **{getattr(aten, f"upsample_nearest{n}d"): _upsample("nearest", n) for n in (1, 2, 3)},
        **{getattr(aten, f"_upsample_nearest_exact{n}d"): _upsample("nearest", n, "exact") for n in (1, 2, 3)},
        aten.upsample_linear1d: _upsample("linear", 1),
        aten.upsample_bilinear2d: _upsample("linear", 2),
        aten.upsample_trilinear3d: _upsample("linear", 3),
        aten.upsample_bicubic2d: _upsample("cubic", 2),
        aten._upsample_bilinear2d_aa: _upsample("linear", 2, antialias=True),
        aten._upsample_bicubic2d_aa: _upsample("cubic", 2, antialias=True),
        aten.pixel_shuffle: lambda b, x, factor: _lead(b, x, lambda y: b.pixel_shuffle(y, factor=factor)),
        aten.pixel_unshuffle: lambda b, x, factor: _lead(b, x, lambda y: b.pixel_unshuffle(y, factor=factor)),
    }
)


def _lead(b: Any, x: Value, function: Callable[[Value], Value]) -> Value:
    """Apply a function of [N,C,H,W] to any number of leading axes."""
    if x.type.rank == 4:
        return function(x)
    lead = x.type.shape[:-3]
    y = function(reshape(b, x, (dims.product(lead), *x.type.shape[-3:])))
    return reshape(b, y, (*lead, *y.type.shape[1:]))


# -- adaptive pooling ---------------------------------------------------------------------------------


def _adaptive_max(n: int) -> Callable[..., tuple[Value, Value]]:
    """Adaptive max pooling with the flat position of each maximum in the input plane."""
    evenly = max_pool_with_indices(n)

    def apply(b: Any, x: Value, size: Any) -> tuple[Value, Value]:
        old, new = x.type.shape[-n:], spatial(size, n)
        if any(not isinstance(o, int) for o in old):
            raise Unsupported("adaptive max pooling over an axis with a free size", "fix that axis")
        if 0 in new:
            return full(b, 0, b.out[0]), full(b, 0, b.out[1])
        if all(o % s == 0 for o, s in zip(old, new)):
            kernel = [o // s for o, s in zip(old, new)]
            return evenly(b, x, kernel, kernel)
        single = x.type.rank == n + 1
        values, places = _uneven(b, reshape(b, x, (1, *x.type.shape)) if single else x, new)
        return (
            (reshape(b, values, values.type.shape[1:]), reshape(b, places, places.type.shape[1:]))
            if single
            else (values, places)
        )

    return apply


def _uneven(b: Any, x: Value, new: Sequence[int]) -> tuple[Value, Value]:
    """Windows of different widths, all read as wide as the widest: a narrow one repeats its last element."""
    n = len(new)
    tables = []
    for old, size in zip(x.type.shape[2:], new):
        first = np.arange(size) * old // size
        last = -(-(np.arange(size) + 1) * old // size) - 1
        width = int((last - first).max()) + 1
        tables.append(np.minimum(first[:, None] + np.arange(width), last[:, None]))

    def windows(v: Value) -> Value:
        for k, table in enumerate(tables):
            v = b.take(v, b.constant(table.astype(np.int64)), axis=2 + 2 * k, mode="clip")
        outer = (0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2))
        v = b.transpose(v, permutation=outer)
        return reshape(b, v, (*v.type.shape[: 2 + n], dims.product(v.type.shape[2 + n :])))

    values, places = windows(x), windows(plane_positions(b, x, n))
    axis = 2 + n
    best = b.argmax(values, axis=axis, index_dtype=i64)
    best = reshape(b, best, (*best.type.shape, 1))
    shape = values.type.shape[:axis]
    return tuple(reshape(b, b.take_along_axis(v, best, axis=axis), shape) for v in (values, places))  # type: ignore[return-value]


rows({aten.adaptive_max_pool2d: _adaptive_max(2), aten.adaptive_max_pool3d: _adaptive_max(3)})


def _fractional_max(n: int) -> Callable[..., tuple[Value, Value]]:
    """Max pooling over windows whose starts a random sample of each plane spreads over the axis."""

    def apply(b: Any, x: Value, kernel: Any, size: Any, samples: Value) -> tuple[Value, Value]:
        single = x.type.rank == n + 1
        if single:
            x = reshape(b, x, (1, *x.type.shape))
        kernels, new, old = spatial(kernel, n), spatial(size, n), x.type.shape[2:]
        lead = x.type.shape[:2]
        grid = (*lead, *new, *kernels)
        place = full(b, 0, x.type.with_(i64, grid))
        for a in range(n):
            column = n - 1 - a if n == 2 else a  # images hold the sample of the last axis first
            sample = reshape(b, cut(b, samples, 2, column, column + 1), lead)
            start = _starts(b, sample, old[a], new[a], kernels[a])
            start = b.broadcast_in_dim(start, shape=grid, broadcast_dimensions=(0, 1, 2 + a))
            inner = b.iota(dtype=i64, shape=grid, axis=2 + n + a)
            place = b.add(b.mul(place, full(b, old[a], place.type)), b.add(start, inner))
        count, width = dims.product(new), dims.product(kernels)
        flat = reshape(b, x, (*lead, dims.product(old)))
        place = reshape(b, place, (*lead, count, width))
        values = b.take_along_axis(flat, reshape(b, place, (*lead, count * width)), axis=2)
        values = reshape(b, values, place.type.shape)
        best = b.argmax(values, axis=3, index_dtype=i64)
        best = reshape(b, best, (*best.type.shape, 1))
        shape = (*lead[1:], *new) if single else (*lead, *new)
        return tuple(reshape(b, b.take_along_axis(v, best, axis=3), shape) for v in (values, place))  # type: ignore[return-value]

    return apply


def _starts(b: Any, sample: Value, old: int, new: int, kernel: int) -> Value:
    """[N, C, new]: the first element of each window; the last window ends the axis."""
    shape = (*sample.type.shape, new)
    i = b.iota(dtype=sample.type.dtype, shape=shape, axis=2)
    u = b.broadcast_in_dim(sample, shape=shape, broadcast_dimensions=(0, 1))
    alpha = (old - kernel) / (new - 1) if new > 1 else 0.0
    start = b.sub(cast(b, b.mul(b.add(i, u), alpha), i64), cast(b, b.mul(u, alpha), i64))
    place = b.iota(dtype=i64, shape=shape, axis=2)
    return b.select(b.eq(place, new - 1), start, full(b, old - kernel, start.type))


rows({aten.fractional_max_pool2d: _fractional_max(2), aten.fractional_max_pool3d: _fractional_max(3)})


# -- sampling at a grid --------------------------------------------------------------------------------


def _pixel(b: Any, g: Value, size: Any, padding: int, align: bool) -> Value:
    """Coordinates in [-1, 1] as positions among ``size`` pixels, after padding 0 zeros, 1 border, 2 reflection."""
    half = b.mul(b.add(g, 1.0), 0.5)
    at = b.mul(half, full(b, size - 1, g.type)) if align else b.sub(b.mul(half, full(b, size, g.type)), 0.5)
    if padding == 2:
        low, span = (0.0, size - 1) if align else (-0.5, size)
        if dims.equal(span, 0):
            return full(b, 0.0, g.type)
        length = full(b, span, g.type)
        distance = b.abs(b.sub(at, low))
        turns = b.floor(b.div(distance, length))
        left = b.sub(distance, b.mul(turns, length))
        odd = b.ne(b.sub(turns, b.mul(b.floor(b.mul(turns, 0.5)), 2.0)), 0.0)
        at = b.add(b.select(odd, left, b.sub(length, left)), low)
    if padding:
        at = b.min(b.max(at, full(b, 0.0, at.type)), full(b, size - 1, at.type))
    return at


@row(aten.grid_sampler_3d)
def _grid_sampler_3d(b: Any, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    """x[N,C,D,H,W] read at grid[N,d,h,w,(x,y,z)], by the eight neighbours (mode 0) or the nearest one (mode 1)."""
    if mode not in (0, 1):
        raise Unsupported("grid_sample of volumes by cubic interpolation", "use bilinear or nearest")
    n, channels, *sizes = x.type.shape
    points = dims.product(grid.type.shape[1:-1])
    columns = [reshape(b, cut(b, grid, 4, k, k + 1), (n, points)) for k in (2, 1, 0)]
    at = [_pixel(b, c, size, padding, align) for c, size in zip(columns, sizes)]
    flat = reshape(b, x, (n, channels, dims.product(sizes)))
    total = full(b, 0.0, x.type.with_(shape=(n, channels, points)))
    floors = [b.floor(p) for p in at] if mode == 0 else [b.round(p) for p in at]
    for corner in itertools.product((0, 1) if mode == 0 else (0,), repeat=3):
        place = full(b, 0, at[0].type.with_(i64))
        weight = full(b, 1.0, at[0].type)
        for p, f, c, size in zip(at, floors, corner, sizes):
            q = b.add(f, float(c))
            inside = b.and_(b.ge(q, full(b, 0.0, q.type)), b.le(q, full(b, size - 1, q.type)))
            part = b.sub(full(b, 1.0, p.type), b.abs(b.sub(p, q))) if mode == 0 else full(b, 1.0, p.type)
            weight = b.mul(weight, b.select(inside, full(b, 0.0, p.type), part))
            step = cast(b, b.select(inside, full(b, 0.0, q.type), q), i64)
            place = b.add(b.mul(place, full(b, size, place.type)), step)
        over = (n, channels, points)
        index, scale = (b.broadcast_in_dim(v, shape=over, broadcast_dimensions=(0, 2)) for v in (place, weight))
        total = b.add(total, b.mul(b.take_along_axis(flat, index, axis=2), scale))
    return reshape(b, total, (n, channels, *grid.type.shape[1:-1]))
