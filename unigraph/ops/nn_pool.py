"""Pooling over the spatial axes of [N, C, *S], and moving pixels between channels and space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .. import dims
from ..dims import Dim
from ..dtypes import i32
from ..opdef import Attr, require
from .composite import op
from .idioms import GraphBuilder, Value, along, broadcast_to, cast, float_required, reshape, where, wide

_WINDOW = {
    "kernel": Attr("ints", doc="window size along each spatial axis"),
    "strides": Attr("ints", doc="step of the window along each spatial axis"),
    "low": Attr("ints", doc="padding before the first element of each spatial axis"),
    "high": Attr("ints", doc="padding after the last element, with what ceil mode adds"),
}


def _spatial(name: str, x: Value, given: Mapping[str, Sequence[object] | None]) -> int:
    """Number of spatial axes; refuses attributes without one entry for each."""
    spatial = x.type.rank - 2
    require(spatial >= 1, f"{name}_rank", f"needs axes [N, C, *S], got {x.type}")
    for attribute, values in given.items():
        fits = values is None or len(values) == spatial
        require(fits, f"{name}_attrs", f"{attribute} {values} needs {spatial} entries, one for each spatial axis")
    return spatial


@op(**_WINDOW, dilation=Attr("ints", doc="step between window elements along each spatial axis"))
def max_pool(
    b: GraphBuilder,
    x: Value,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    low: tuple[int, ...],
    high: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Value:
    """Largest element of each window; NaN wins. Padding never does: it is -inf, or the smallest integer.
    Ceil mode is a larger `high`.
    """
    _spatial("max_pool", x, {"kernel": kernel, "strides": strides, "low": low, "high": high, "dilation": dilation})
    return b.reduce_window_max(
        x,
        window=(1, 1, *kernel),
        strides=(1, 1, *strides),
        low=(0, 0, *low),
        high=(0, 0, *high),
        window_dilation=None if set(dilation) <= {1} else (1, 1, *dilation),
    )


@op(
    **_WINDOW,
    count_include_pad=Attr("bool", True, "padding counts in the divisor"),
    divisor=Attr("int", None, "a fixed divisor; None: the number of elements that count"),
    ceil_extra=Attr("ints", None, "how much of `high` ceil mode has added; it never counts. None: nothing"),
)
def avg_pool(
    b: GraphBuilder,
    x: Value,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    low: tuple[int, ...],
    high: tuple[int, ...],
    count_include_pad: bool,
    divisor: int | None,
    ceil_extra: tuple[int, ...] | None,
) -> Value:
    """Sum of each window divided by the number of its elements: all that lie in x, and with
    count_include_pad those in the padding, but never those that ceil mode has added at the end
    (`ceil_extra`, which is a part of `high`). A given divisor replaces that number.
    """
    float_required("avg_pool", x)
    given = {"kernel": kernel, "strides": strides, "low": low, "high": high, "ceil_extra": ceil_extra}
    spatial = _spatial("avg_pool", x, given)
    extra = ceil_extra or (0,) * spatial
    fits = all(0 <= e <= max(h, 0) for e, h in zip(extra, high))
    require(fits, "avg_pool_extra", f"ceil_extra {extra} must lie between 0 and high {high}")
    require(divisor != 0, "avg_pool_divisor", "divisor must not be 0")
    y = wide(b, x)
    total = b.reduce_window_sum(
        y, window=(1, 1, *kernel), strides=(1, 1, *strides), low=(0, 0, *low), high=(0, 0, *high)
    )
    fixed = divisor
    padded = any(low) or any(high)
    if fixed is None and (not padded or (count_include_pad and not any(extra))):
        fixed = math.prod(kernel)
    if fixed is not None:
        return cast(b, b.div(total, float(fixed)), x.type.dtype)
    declared = tuple(h - e for h, e in zip(high, extra))
    grown = x.type.shape[2:]
    before, after = low, high
    if count_include_pad:
        grown = tuple(dims.normal(n + lo + hi) for n, lo, hi in zip(grown, low, declared))
        before, after = (0,) * spatial, extra
    counted = b.reduce_window_sum(
        b.full(1.0, y.type.dtype, grown), window=kernel, strides=strides, low=before, high=after
    )
    return cast(b, b.div(total, broadcast_to(b, counted, total.type.shape)), x.type.dtype)


# -- pooling to a given size ---------------------------------------------------------------------

Reduce = Callable[..., Value]


def _adaptive(
    b: GraphBuilder, x: Value, axis: int, size: Dim, reduce: Callable[[Value, Value | None, int], Value]
) -> Value:
    """Pools one axis to ``size`` windows: window i is floor(i n / size) .. ceil((i+1) n / size).

    ``reduce(values, inside, axis)`` reduces an axis of window elements; ``inside`` marks those that
    belong to the window (None: all do).
    """
    n = x.type.shape[axis]
    shape = x.type.shape
    if dims.equal(size, n):
        return x
    if dims.equal(dims.mod(n, size), 0):  # equal windows side by side
        return reduce(reshape(b, x, (*shape[:axis], size, dims.floordiv(n, size), *shape[axis + 1 :])), None, axis + 1)
    if dims.is_static(n) and dims.is_static(size):
        longest: Dim = max(-(-(i + 1) * n // size) - i * n // size for i in range(size))
    else:
        longest = dims.floordiv(n + size - 1, size) + 1  # never less than the longest window
    window = (size, dims.normal(longest))
    count, step = (b.iota(dtype=i32, shape=window, axis=a) for a in (0, 1))
    total = broadcast_to(b, b.size(n, i32), window)
    parts = broadcast_to(b, b.size(size, i32), window)
    start = b.div(b.mul(count, total), parts)
    end = b.div(b.sub(b.add(b.mul(b.add(count, 1), total), parts), 1), parts)
    place = b.add(start, step)
    inside = b.lt(place, end)
    values = b.take(x, place, axis=axis, mode="clip")
    return reduce(values, along(b, inside, values.type.shape, (axis, axis + 1)), axis + 1)


@op(output_size=Attr("dims", doc="size of the result along each spatial axis"))
def adaptive_avg_pool(b: GraphBuilder, x: Value, *, output_size: tuple[Dim, ...]) -> Value:
    """Mean of windows chosen so that the result has the given sizes: of n elements, window i of m covers
    floor(i n / m) to ceil((i + 1) n / m).
    """
    float_required("adaptive_avg_pool", x)
    _spatial("adaptive_avg_pool", x, {"output_size": output_size})

    def mean(values: Value, inside: Value | None, axis: int) -> Value:
        dtype = values.type.dtype
        if inside is None:
            total = b.reduce_sum(values, axes=(axis,))
            size = b.convert(b.size(values.type.shape[axis]), dtype=dtype)
            return b.div(total, broadcast_to(b, size, total.type.shape))
        total = b.reduce_sum(where(b, inside, values, 0.0), axes=(axis,))
        return b.div(total, b.reduce_sum(b.convert(inside, dtype=dtype), axes=(axis,)))

    y = wide(b, x)
    for axis, size in enumerate(output_size, 2):
        y = _adaptive(b, y, axis, size, mean)
    return cast(b, y, x.type.dtype)


@op(output_size=Attr("dims", doc="size of the result along each spatial axis"))
def adaptive_max_pool(b: GraphBuilder, x: Value, *, output_size: tuple[Dim, ...]) -> Value:
    """Largest element of the windows of adaptive_avg_pool; NaN wins."""
    float_required("adaptive_max_pool", x)
    _spatial("adaptive_max_pool", x, {"output_size": output_size})

    def largest(values: Value, inside: Value | None, axis: int) -> Value:
        shown = values if inside is None else where(b, inside, values, -math.inf)
        return b.reduce_max(shown, axes=(axis,))

    y = x
    for axis, size in enumerate(output_size, 2):
        y = _adaptive(b, y, axis, size, largest)
    return y


# -- channels and space --------------------------------------------------------------------------


@op(factor=Attr("int", doc="how many times larger height and width become"))
def pixel_shuffle(b: GraphBuilder, x: Value, *, factor: int) -> Value:
    """[*, C r^2, H, W] to [*, C, H r, W r]: channel c r^2 + i r + j becomes pixel (i, j) of each block of
    channel c (Shi et al. 2016).
    """
    require(x.type.rank >= 3, "pixel_shuffle_rank", f"needs axes [*, C, H, W], got {x.type}")
    *lead, c, h, w = x.type.shape
    fits = factor >= 1 and dims.compatible(dims.mod(c, factor * factor), 0)
    require(fits, "pixel_shuffle_channels", f"{c} channels do not split by {factor}^2")
    out = dims.floordiv(c, factor * factor)
    n = len(lead)
    y = reshape(b, x, (*lead, out, factor, factor, h, w))
    y = b.transpose(y, permutation=(*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(b, y, (*lead, out, dims.normal(h * factor), dims.normal(w * factor)))


@op(factor=Attr("int", doc="how many times smaller height and width become"))
def pixel_unshuffle(b: GraphBuilder, x: Value, *, factor: int) -> Value:
    """[*, C, H r, W r] to [*, C r^2, H, W], the inverse of pixel_shuffle."""
    require(x.type.rank >= 3, "pixel_unshuffle_rank", f"needs axes [*, C, H, W], got {x.type}")
    *lead, c, h, w = x.type.shape
    fits = factor >= 1 and all(dims.compatible(dims.mod(s, factor), 0) for s in (h, w))
    require(fits, "pixel_unshuffle_size", f"sizes {h} and {w} do not split by {factor}")
    high, wide_ = dims.floordiv(h, factor), dims.floordiv(w, factor)
    n = len(lead)
    y = reshape(b, x, (*lead, c, high, factor, wide_, factor))
    y = b.transpose(y, permutation=(*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(b, y, (*lead, dims.normal(c * factor * factor), high, wide_))
