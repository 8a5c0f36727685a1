"""Resampling of the spatial axes of [N, C, *S]: each axis by itself, as a few weighted neighbours.

Positions are computed in f32 (f64 for f64 input) in the graph, so that sizes may be symbolic.
"""

from __future__ import annotations

import math

from .. import dims
from ..dims import Dim
from ..dtypes import DType, f32, i32
from ..opdef import Attr, require
from .composite import op
from .idioms import GraphBuilder, Value, along, broadcast_to, cast, float_required, where, wide

NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
# Half width of the kernel of each mode, in elements of the coarser grid.
REACH = {"linear": 1, "cubic": 2}


class _Axis:
    """One axis that is resampled: its sizes, its scale and where the new elements lie in the old."""

    def __init__(self, b: GraphBuilder, old: Dim, new: Dim, coordinates: str, factor: float | None, dtype: DType):
        self.b, self.old, self.new, self.coordinates, self.factor, self.dtype = b, old, new, coordinates, factor, dtype
        self.scale = self._scale()
        self.count = b.iota(dtype=dtype, shape=(new,), axis=0)

    def _number(self, dim: Dim) -> Value:
        """A size as a scalar float."""
        return cast(self.b, self.b.size(dim), self.dtype)

    def _scale(self) -> Value:
        """Old elements per new one, a scalar."""
        b, old, new = self.b, self.old, self.new
        if self.coordinates == "align_corners":
            top, bottom = self._number(dims.normal(old - 1)), self._number(dims.normal(new - 1))
            # One new element stands at the first old one.
            return where(b, b.eq(bottom, 0.0), 0.0, b.div(top, b.max(bottom, 1.0)))
        if self.factor is not None:
            return b.constant(1.0 / self.factor, self.dtype)
        return b.div(self._number(old), self._number(new))

    def spread(self, scalar: Value, like: Value) -> Value:
        return broadcast_to(self.b, scalar, like.type.shape)

    def positions(self) -> Value:
        """Where each new element lies among the old ones, [new]."""
        b, step = self.b, self.spread(self.scale, self.count)
        if self.coordinates == "half_pixel":
            return b.sub(b.mul(step, b.add(self.count, 0.5)), 0.5)
        return b.mul(self.count, step)

    def clamped(self, place: Value) -> Value:
        """Whole positions as i32 indices inside the axis."""
        b = self.b
        last = b.size(dims.normal(self.old - 1), i32)
        return b.clamp(b.constant(0, i32), b.convert(place, dtype=i32), last)

    def taps(self, mode: str, coefficient: float) -> tuple[Value, Value]:
        """(indices, weights), both [new, k], of the neighbours that make up a new element."""
        b = self.b
        place = self.positions()
        below = b.floor(place)
        t = b.sub(place, below)
        offsets, weights = ((0, 1), [b.sub(b.full_like(t, 1.0), t), t])
        if mode == "cubic":
            offsets = (-1, 0, 1, 2)  # type: ignore[assignment]
            weights = [_cubic(b, b.abs(b.sub(t, float(o))), coefficient) for o in offsets]
        column = lambda v: b.reshape(v, shape=(self.new, 1))
        indices = b.concatenate(*(column(self.clamped(b.add(below, float(o)))) for o in offsets), axis=1)
        return indices, b.concatenate(*map(column, weights), axis=1)

    def filtered(self, mode: str, coefficient: float) -> tuple[Value, Value]:
        """(indices, weights), both [new, k], of a kernel widened when the axis shrinks.

        Weights add up to 1; those of elements outside the axis are 0.
        """
        b, reach = self.b, REACH[mode]
        shape = (self.new, self._tap_count(reach))
        one = b.constant(1.0, self.dtype)
        widened = b.max(self.scale, one)
        support = b.mul(widened, float(reach))
        # Centre of a new element, in old elements whose own centres lie at + 1/2.
        centre = b.mul(self.spread(self.scale, self.count), b.add(self.count, 0.5))
        size = self.spread(self._number(self.old), centre)
        support_ = self.spread(support, centre)
        first = b.max(b.floor(b.add(b.sub(centre, support_), 0.5)), 0.0)
        end = b.min(b.floor(b.add(b.add(centre, support_), 0.5)), size)
        rows = lambda v: along(b, v, shape, (0,))
        place = b.add(rows(first), b.iota(dtype=self.dtype, shape=shape, axis=1))
        distance = b.div(b.add(b.sub(place, rows(centre)), 0.5), broadcast_to(b, widened, shape))
        distance = b.abs(distance)
        raw = (
            b.max(b.sub(b.full_like(distance, 1.0), distance), 0.0)
            if mode == "linear"
            else _cubic(b, distance, coefficient)
        )
        raw = where(b, b.lt(place, rows(end)), raw, 0.0)
        total = b.reduce_sum(raw, axes=(1,))
        return self.clamped(place), b.div(raw, rows(total))

    def _tap_count(self, reach: int) -> Dim:
        """No kernel covers more old elements than this."""
        if self.factor is not None and self.coordinates != "align_corners":
            return 2 * math.ceil(reach * max(1.0 / self.factor, 1.0)) + 1
        widest = dims.maximum(dims.normal(reach * self.old), dims.normal(reach * self.new))
        return dims.normal(2 * dims.floordiv(widest, self.new) + 3) if not _empty(self.new) else 1


def _empty(dim: Dim) -> bool:
    return dims.is_static(dim) and dim == 0


def _cubic(b: GraphBuilder, d: Value, a: float) -> Value:
    """Keys' cubic kernel at distance d >= 0."""
    square, cube = b.mul(d, d), b.mul(b.mul(d, d), d)
    near = b.add(b.sub(b.mul(cube, a + 2), b.mul(square, a + 3)), 1.0)
    far = b.sub(b.add(b.sub(b.mul(cube, a), b.mul(square, 5 * a)), b.mul(d, 8 * a)), 4 * a)
    return where(b, b.le(d, 1.0), near, where(b, b.lt(d, 2.0), far, 0.0))


def _nearest(axis: _Axis, rounding: str) -> Value:
    """i32 indices [new] of the elements that stand nearest."""
    b = axis.b
    if rounding == "round_prefer_ceil" and axis.coordinates == "half_pixel":
        # floor(position + 1/2) without rounding twice
        return axis.clamped(b.floor(b.mul(axis.spread(axis.scale, axis.count), b.add(axis.count, 0.5))))
    place = axis.positions()
    if rounding == "floor":
        whole = b.floor(place)
    elif rounding == "ceil":
        whole = b.ceil(place)
    elif rounding == "round_prefer_floor":
        whole = b.ceil(b.sub(place, 0.5))
    else:
        whole = b.floor(b.add(place, 0.5))
    return axis.clamped(whole)


def _weighted(b: GraphBuilder, x: Value, axis: int, indices: Value, weights: Value) -> Value:
    """Sum of weights * neighbours along one axis; a neighbour of weight 0 adds nothing."""
    values = b.take(x, indices, axis=axis, mode="clip")
    weights = along(b, cast(b, weights, x.type.dtype), values.type.shape, (axis, axis + 1))
    product = where(b, b.eq(weights, 0.0), 0.0, b.mul(values, weights))
    return b.reduce_sum(product, axes=(axis + 1,))


@op(
    shape=Attr("dims", doc="size of the result along each spatial axis"),
    mode=Attr("str", doc="which neighbours make up an element", choices=("nearest", "linear", "cubic")),
    coordinates=Attr("str", "half_pixel", "how grids lie on each other", ("half_pixel", "align_corners", "asymmetric")),
    nearest=Attr("str", "floor", "how mode nearest rounds a position", NEAREST),
    cubic_coeff=Attr("float", -0.75, "the coefficient a of the cubic kernel"),
    antialias=Attr("bool", False, "widen the kernel when an axis shrinks (linear and cubic)"),
    scales=Attr("floats", None, "new elements per old one along each spatial axis; None: the ratio of the sizes"),
)
def resize(
    b: GraphBuilder,
    x: Value,
    *,
    shape: tuple[Dim, ...],
    mode: str,
    coordinates: str,
    nearest: str,
    cubic_coeff: float,
    antialias: bool,
    scales: tuple[float, ...] | None,
) -> Value:
    """x [N, C, *S] resampled to new spatial sizes. New element i lies at (i + 1/2) s - 1/2 (half_pixel),
    i s (asymmetric) or i (n - 1) / (m - 1) (align_corners) among the old ones, with s = 1 / scales or
    n / m. It is its nearest neighbour, or is interpolated linearly or by Keys' cubic kernel (Keys 1981),
    the border being repeated. With antialias, a shrinking axis widens the kernel by s and drops what
    lies outside, weights being normalised. torch's nearest is asymmetric and floor, its nearest-exact
    half_pixel and round_prefer_ceil.
    """
    spatial = x.type.rank - 2
    require(
        spatial >= 1 and len(shape) == spatial,
        "resize_rank",
        f"shape {shape} needs one entry for each spatial axis of {x.type}",
    )
    require(
        scales is None or len(scales) == spatial,
        "resize_scales",
        f"scales {scales} need one entry for each spatial axis",
    )
    require(scales is None or min(scales) > 0, "resize_scales", f"scales {scales} must be positive")
    require(not (antialias and mode == "nearest"), "resize_antialias", "antialias is for linear and cubic only")
    if mode != "nearest":
        float_required("resize", x)
    y = x if mode == "nearest" else wide(b, x)
    dtype = y.type.dtype if mode != "nearest" else f32
    for i, new in enumerate(shape):
        old = x.type.shape[i + 2]
        if dims.equal(old, new) and (scales is None or scales[i] == 1.0):
            continue  # every new element stands on an old one
        axis = _Axis(b, old, new, coordinates, None if scales is None else scales[i], dtype)
        if mode == "nearest":
            y = b.take(y, _nearest(axis, nearest), axis=i + 2, mode="clip")
            continue
        taps = axis.filtered if antialias else axis.taps
        y = _weighted(b, y, i + 2, *taps(mode, cubic_coeff))
    return cast(b, y, x.type.dtype)
