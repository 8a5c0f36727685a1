"""ONNX nodes that read images at positions which are data: GridSample, RoiAlign, DeformConv."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.dtypes import f32, f64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, broadcast_to, cast, cut, reshape

from .node import Node, RowBook

rows = RowBook()

Taps = list[tuple[Value, Value]]  # whole positions and weights of the neighbours along one axis


def _number(n: Node, dim: Dim, like: Value) -> Value:
    """A size as a float, in the type of ``like``."""
    return broadcast_to(n.b, cast(n.b, n.b.size(dim), like.type.dtype), like.type.shape)


def _read(n: Node, x: Value, places: Sequence[Value]) -> Value:
    """x [N, C, *S] at whole float positions, one array [N, *out] for each axis of S: [N, C, *out]."""
    shape = places[0].type.shape
    index = n.b.concatenate(
        *(n.b.reshape(n.b.convert(p, dtype="i64"), shape=(*shape, 1)) for p in places), axis=len(shape)
    )
    spatial = tuple(range(2, x.type.rank))
    return n.b.gather(
        x,
        index,
        offset_dims=(1,),
        collapsed_slice_dims=spatial,
        start_index_map=spatial,
        slice_sizes=(1, x.type.shape[1], *(1 for _ in spatial)),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
        mode="clip",
    )


def _parts(
    n: Node, x: Value, taps: Sequence[Taps], settle: Callable[[int, Value], tuple[Value, Value | None]]
) -> list[Value]:
    """Weight times neighbour, for each combination of neighbours; ``settle`` moves a position inside an
    axis and says where it counts."""
    parts = []
    for combination in itertools.product(*taps):
        weight: Value | None = None
        places = []
        for axis, (place, w) in enumerate(combination):
            place, inside = settle(axis, place)
            w = w if inside is None else n.b.select(inside, n.b.full_like(w, 0.0), w)
            weight = w if weight is None else n.b.mul(weight, w)
            places.append(place)
        assert weight is not None
        pixel = _read(n, x, places)
        rank = pixel.type.rank
        spread = along(n.b, weight, pixel.type.shape, (0, *range(2, rank)))
        zero = n.b.eq(spread, 0.0)
        parts.append(n.b.select(zero, n.b.mul(pixel, spread), n.b.full_like(pixel, 0.0)))
    return parts


def _total(n: Node, parts: Sequence[Value], op: str = "add") -> Value:
    total = parts[0]
    for part in parts[1:]:
        total = getattr(n.b, op)(total, part)
    return total


def _inside(n: Node, place: Value, size: Dim) -> Value:
    return n.b.and_(n.b.ge(place, 0.0), n.b.lt(place, _number(n, size, place)))


def _clamped(n: Node, place: Value, size: Dim) -> Value:
    last = _number(n, dims.normal(size - 1), place)
    return n.b.min(n.b.max(place, 0.0), last)


def _linear(n: Node, place: Value) -> Taps:
    below = n.b.floor(place)
    t = n.b.sub(place, below)
    return [(below, n.b.sub(n.b.full_like(t, 1.0), t)), (n.b.add(below, 1.0), t)]


def _cubic(n: Node, place: Value) -> Taps:
    """Keys' kernel with a = -0.75."""
    below = n.b.floor(place)
    t, a = n.b.sub(place, below), -0.75
    taps = []
    for offset in (-1.0, 0.0, 1.0, 2.0):
        d = n.b.abs(n.b.sub(t, offset))
        if offset in (0.0, 1.0):
            w = n.b.add(n.b.mul(n.b.mul(n.b.sub(n.b.mul(d, a + 2), a + 3), d), d), 1.0)
        else:
            w = n.b.sub(n.b.mul(n.b.add(n.b.mul(n.b.sub(n.b.mul(d, a), 5 * a), d), 8 * a), d), 4 * a)
        taps.append((n.b.add(below, offset), w))
    return taps


# -- GridSample --------------------------------------------------------------------------------------


@rows("GridSample")
def grid_sample(n: Node) -> Value:
    """Positions in -1..1, last axis first; outside the image zeros, its border, or its reflection."""
    x, grid = n.value(0), n.value(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(n.attr("mode", "linear"), n.attr("mode", "linear"))
    padding, corners = n.attr("padding_mode", "zeros"), bool(n.attr("align_corners", 0))
    kind = x.type.dtype if x.type.dtype in (f32, f64) else f32
    grid = cast(n.b, grid, kind)
    sizes, depth = x.type.shape[2:], x.type.rank - 2
    out = grid.type.shape[:-1]
    taps = []
    for axis, size in enumerate(sizes):
        position = reshape(n.b, cut(n.b, grid, len(out), depth - 1 - axis, depth - axis), out)
        place = _denormalised(n, position, size, corners)
        if mode == "nearest":
            place = n.b.round(place, mode="even")
        place = _bounded(n, place, size, padding, corners)
        taps.append(
            _linear(n, place)
            if mode == "linear"
            else _cubic(n, place)
            if mode == "cubic"
            else [(n.b.floor(place), n.b.full_like(place, 1.0))]
        )

    def settle(axis: int, place: Value) -> tuple[Value, Value | None]:
        if padding == "zeros":
            return place, _inside(n, place, sizes[axis])
        return _bounded(n, place, sizes[axis], padding, corners), None

    return cast(n.b, _total(n, _parts(n, cast(n.b, x, kind), taps, settle)), x.type.dtype)


def _denormalised(n: Node, position: Value, size: Dim, corners: bool) -> Value:
    up = n.b.add(position, 1.0)
    if corners:
        return n.b.mul(n.b.mul(up, 0.5), _number(n, dims.normal(size - 1), up))
    return n.b.mul(n.b.sub(n.b.mul(up, _number(n, size, up)), 1.0), 0.5)


def _bounded(n: Node, place: Value, size: Dim, padding: str, corners: bool) -> Value:
    """A position moved inside the image by its border or by reflection."""
    if padding == "border":
        return _clamped(n, place, size)
    if padding != "reflection":
        return place
    low = 0.0 if corners else -0.5
    span = n.b.max(_number(n, dims.normal(size - 1) if corners else size, place), 1e-9)
    distance = n.b.abs(n.b.sub(place, low))
    times = n.b.floor(n.b.div(distance, span))
    rest = n.b.sub(distance, n.b.mul(times, span))
    odd = n.b.ne(n.b.rem(times, n.b.full_like(times, 2.0)), 0.0)
    return n.b.add(n.b.select(odd, rest, n.b.sub(span, rest)), low)


# -- RoiAlign ----------------------------------------------------------------------------------------


@rows("RoiAlign")
def roi_align(n: Node) -> Value:
    """Each box read on a grid of ``sampling_ratio`` points per bin, bins averaged or their maximum taken."""
    x, boxes, batch = n.values()
    ratio = n.attr("sampling_ratio", 0)
    if ratio <= 0:
        raise Unsupported("RoiAlign whose sampling_ratio follows from the boxes", "set sampling_ratio")
    half = n.opset >= 16 and n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale, count = n.attr("spatial_scale", 1.0), boxes.type.shape[0]
    bins = (n.attr("output_height", 1), n.attr("output_width", 1))
    shape = (count, bins[0], ratio, bins[1], ratio)
    taps, outside = [], None
    for axis, (size, parts) in enumerate(zip(x.type.shape[2:], bins)):
        first, last = (_box_edge(n, boxes, column, scale, half) for column in (1 - axis, 3 - axis))
        length = n.b.sub(last, first)
        length = length if half else n.b.max(length, 1.0)
        offsets = ((np.arange(parts * ratio) + 0.5) / (parts * ratio)).reshape(parts, ratio)
        where = (1, 2) if axis == 0 else (3, 4)
        steps = along(n.b, n.b.constant(offsets, x.type.dtype), shape, where)
        place = n.b.add(along(n.b, first, shape, (0,)), n.b.mul(along(n.b, length, shape, (0,)), steps))
        beyond = n.b.or_(n.b.lt(place, -1.0), n.b.gt(place, _number(n, size, place)))
        outside = beyond if outside is None else n.b.or_(outside, beyond)
        taps.append(_linear(n, _clamped(n, place, size)))
    taps[0] = [(p, n.b.select(outside, w, n.b.full_like(w, 0.0))) for p, w in taps[0]]
    own = n.b.take(x, batch, axis=0, mode="clip")
    parts = _parts(n, own, taps, lambda axis, p: (_clamped(n, p, x.type.shape[2 + axis]), None))
    if n.attr("mode", "avg") == "max":
        return n.b.reduce_max(_total(n, parts, "max"), axes=(3, 5))
    return n.b.mean(_total(n, parts), axes=(3, 5), keepdims=False)


def _box_edge(n: Node, boxes: Value, column: int, scale: float, half: bool) -> Value:
    edge = n.b.mul(reshape(n.b, cut(n.b, boxes, 1, column, column + 1), (boxes.type.shape[0],)), scale)
    return n.b.sub(edge, 0.5) if half else edge


# -- DeformConv --------------------------------------------------------------------------------------


@rows("DeformConv")
def deform_conv(n: Node) -> Value:
    """The image read at moved positions, then a 1x1 convolution over channels and kernel places."""
    x, w, offset = n.value(0), n.value(1), n.value(2)
    if x.type.rank != 4:
        raise Unsupported("DeformConv over other than two spatial axes")
    kernel = [int(k) for k in w.type.shape[2:]]
    groups, places = n.attr("offset_group", 1), kernel[0] * kernel[1]
    batch, channels = x.type.shape[:2]
    out = offset.type.shape[2:]
    moved = n.b.reshape(offset, shape=(batch, groups, places, 2, *out))
    mask = n.b.reshape(n.value(4), shape=(batch, groups, places, *out)) if n.has(4) else None
    part = channels // groups
    columns = []
    for g in range(groups):
        taps = [_linear(n, _place(n, moved, g, axis, kernel, out)) for axis in (0, 1)]
        own = cut(n.b, x, 1, g * part, (g + 1) * part)

        def settle(axis: int, place: Value) -> tuple[Value, Value | None]:
            return place, _inside(n, place, x.type.shape[2 + axis])

        read = _total(n, _parts(n, own, taps, settle))
        if mask is not None:
            one = reshape(n.b, cut(n.b, mask, 1, g, g + 1), (batch, places, *out))
            read = n.b.mul(read, along(n.b, one, read.type.shape, (0, 2, 3, 4)))
        columns.append(read)
    read = n.b.concatenate(*columns, axis=1) if groups > 1 else columns[0]
    flat = n.b.reshape(read, shape=(batch, channels * places, *out))
    weight = n.b.reshape(w, shape=(w.type.shape[0], w.type.shape[1] * places, 1, 1))
    none: Any = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    bias = [n.value(3)] if n.has(3) else []
    return n.b.conv(flat, weight, *bias, **none, groups=n.attr("group", 1))


def _place(n: Node, moved: Value, group: int, axis: int, kernel: Sequence[int], out: Sequence[Dim]) -> Value:
    """Positions [N, places, *out] along one axis."""
    strides, dilation = n.attr("strides") or (1, 1), n.attr("dilations") or (1, 1)
    low = (n.attr("pads") or (0, 0, 0, 0))[axis]
    batch, places = moved.type.shape[0], kernel[0] * kernel[1]
    one = cut(n.b, cut(n.b, moved, 1, group, group + 1), 3, axis, axis + 1)
    offset = n.b.reshape(one, shape=(batch, places, *out))
    within = np.indices(kernel)[axis].reshape(-1) * dilation[axis] - low
    base = n.b.mul(n.b.iota(dtype=offset.type.dtype, shape=offset.type.shape, axis=2 + axis), float(strides[axis]))
    fixed = along(n.b, n.b.constant(within, offset.type.dtype), offset.type.shape, (1,))
    return n.b.add(offset, n.b.add(base, fixed))
