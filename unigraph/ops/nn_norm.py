"""Normalisation layers. Statistics of short floats are computed in f32 and the result is cast back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import dims
from ..opdef import Attr, require
from .composite import op
from .idioms import (
    GraphBuilder,
    Value,
    along,
    axis_of,
    back,
    broadcast_to,
    cast,
    float_required,
    mean_of,
    moments,
    reshape,
    where,
    wide,
    wide_dtype,
)

EPSILON = Attr("float", 1e-5, "added to the variance")


def _scaled(b: GraphBuilder, y: Value, weight: Value | None, bias: Value | None, axes: Sequence[int]) -> Value:
    """y * weight + bias, with the parameters lying along ``axes`` of y."""
    if weight is not None:
        y = b.mul(y, along(b, cast(b, weight, y.type.dtype), y.type.shape, axes))
    if bias is not None:
        y = b.add(y, along(b, cast(b, bias, y.type.dtype), y.type.shape, axes))
    return y


def _standardised(b: GraphBuilder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over ``axes``."""
    _, variance, centred = moments(b, x, axes)
    return b.mul(centred, back(b, b.rsqrt(b.add(variance, epsilon)), x.type.shape, axes))


def _parameters(name: str, shape: Sequence[object], *values: Value | None) -> None:
    """Refuse weights and biases that are not floats of this shape."""
    for value in values:
        if value is not None:
            float_required(name, value)
            fits = value.type.rank == len(shape) and all(map(dims.compatible, value.type.shape, shape))
            require(fits, f"{name}_weight", f"weight and bias must have shape {tuple(shape)}, got {value.type}")


def _channels(name: str, x: Value, axis: int, *values: Value | None) -> int:
    """The channel axis, counted from the front; refuses vectors that do not lie along it."""
    float_required(name, x)
    axis = axis_of(name, axis, x.type.rank)
    _parameters(name, (x.type.shape[axis],), *values)
    return axis


def _trailing(name: str, x: Value, rank: int, *values: Value | None) -> tuple[int, ...]:
    """The last ``rank`` axes; refuses parameters of another shape."""
    float_required(name, x)
    require(1 <= rank <= x.type.rank, f"{name}_rank", f"normalized_rank {rank} must lie in 1..{x.type.rank}")
    axes = tuple(range(x.type.rank - rank, x.type.rank))
    _parameters(name, [x.type.shape[a] for a in axes], *values)
    return axes


@op(normalized_rank=Attr("int", doc="number of trailing axes over which statistics are taken"), epsilon=EPSILON)
def layer_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    normalized_rank: int,
    epsilon: float,
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the trailing axes, with the biased
    variance (Ba et al. 2016). weight and bias have the shape of those axes.
    """
    axes = _trailing("layer_norm", x, normalized_rank, weight, bias)
    y = _scaled(b, _standardised(b, wide(b, x), axes, epsilon), weight, bias, axes)
    return cast(b, y, x.type.dtype)


@op(
    normalized_rank=Attr("int", doc="number of trailing axes over which the mean is taken"),
    epsilon=Attr("float", doc="added to the mean square"),
)
def rms_norm(b: GraphBuilder, x: Value, weight: Value | None = None, *, normalized_rank: int, epsilon: float) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * weight over the trailing axes (Zhang and Sennrich 2019). weight
    has the shape of those axes; it is applied before the result is cast back.
    """
    axes = _trailing("rms_norm", x, normalized_rank, weight)
    y = wide(b, x)
    scale = b.rsqrt(b.add(mean_of(b, b.mul(y, y), axes), epsilon))
    y = b.mul(y, back(b, scale, x.type.shape, axes))
    return cast(b, _scaled(b, y, weight, None, axes), x.type.dtype)


@op(num_groups=Attr("int", doc="number of groups; divides the channels"), epsilon=EPSILON)
def group_norm(
    b: GraphBuilder,
    x: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    num_groups: int,
    epsilon: float,
) -> Value:
    """The channels (axis 1) are split into groups; each group of each example is normalised by its own
    mean and biased variance, then scaled and shifted by channel (Wu and He 2018).
    """
    require(x.type.rank >= 2, "group_norm_rank", f"needs axes [N, C, ...], got {x.type}")
    axis = _channels("group_norm", x, 1, weight, bias)
    n, c, *rest = x.type.shape
    require(
        num_groups >= 1 and dims.compatible(dims.mod(c, num_groups), 0),
        "group_norm_groups",
        f"{num_groups} groups do not divide {c} channels",
    )
    grouped = reshape(b, wide(b, x), (n, num_groups, dims.floordiv(c, num_groups), *rest))
    axes = tuple(range(2, grouped.type.rank))
    y = reshape(b, _standardised(b, grouped, axes, epsilon), x.type.shape)
    return cast(b, _scaled(b, y, weight, bias, (axis,)), x.type.dtype)


@op(epsilon=EPSILON)
def instance_norm(
    b: GraphBuilder, x: Value, weight: Value | None = None, bias: Value | None = None, *, epsilon: float
) -> Value:
    """Each channel (axis 1) of each example is normalised by its own mean and biased variance, then
    scaled and shifted by channel (Ulyanov et al. 2016).
    """
    require(x.type.rank >= 2, "instance_norm_rank", f"needs axes [N, C, ...], got {x.type}")
    axis = _channels("instance_norm", x, 1, weight, bias)
    axes = tuple(range(2, x.type.rank))
    y = _standardised(b, wide(b, x), axes, epsilon)
    return cast(b, _scaled(b, y, weight, bias, (axis,)), x.type.dtype)


@op(axis=Attr("int", 1, "the channel axis"), epsilon=EPSILON)
def batch_norm(
    b: GraphBuilder,
    x: Value,
    mean: Value,
    variance: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    axis: int,
    epsilon: float,
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * weight + bias with given statistics, one entry per channel
    (Ioffe and Szegedy 2015, at inference).
    """
    axis = _channels("batch_norm", x, axis, mean, variance, weight, bias)
    y, shape = wide(b, x), x.type.shape
    scale = b.rsqrt(b.add(cast(b, variance, y.type.dtype), epsilon))
    y = b.sub(y, along(b, cast(b, mean, y.type.dtype), shape, (axis,)))
    y = b.mul(y, along(b, scale, shape, (axis,)))
    return cast(b, _scaled(b, y, weight, bias, (axis,)), x.type.dtype)


@op(
    axis=Attr("int", 1, "the channel axis"),
    epsilon=EPSILON,
    momentum=Attr("float", 0.1, "share of the batch in the new running statistics"),
)
def batch_norm_train(
    b: GraphBuilder,
    x: Value,
    mean: Value,
    variance: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    *,
    axis: int,
    epsilon: float,
    momentum: float,
) -> tuple[Value, Value, Value]:
    """Batch normalisation by the statistics of the batch (Ioffe and Szegedy 2015), and the new running
    statistics: (1 - momentum) * old + momentum * batch. x is divided by the biased variance; the
    running variance takes the unbiased one (NaN for one element per channel), as in torch.
    """
    axis = _channels("batch_norm_train", x, axis, mean, variance, weight, bias)
    shape = x.type.shape
    axes = tuple(a for a in range(x.type.rank) if a != axis)
    y = wide(b, x)
    batch_mean, batch_variance, centred = moments(b, y, axes)
    y = b.mul(centred, back(b, b.rsqrt(b.add(batch_variance, epsilon)), shape, axes))
    y = cast(b, _scaled(b, y, weight, bias, (axis,)), x.type.dtype)
    dtype = batch_mean.type.dtype
    square_sum = b.reduce_sum(b.mul(centred, centred), axes=axes)
    size = b.size(dims.product(shape[a] for a in axes))
    below = b.convert(b.sub(size, 1), dtype=dtype)
    unbiased = b.div(square_sum, broadcast_to(b, below, square_sum.type.shape))

    def moved(old: Value, new: Value) -> Value:
        result = b.add(b.mul(cast(b, old, dtype), 1.0 - momentum), b.mul(new, momentum))
        return cast(b, result, old.type.dtype)

    return y, moved(mean, batch_mean), moved(variance, unbiased)


@op(
    size=Attr("int", doc="number of neighbouring channels"),
    alpha=Attr("float", 1e-4, "weight of the mean square"),
    beta=Attr("float", 0.75, "power"),
    k=Attr("float", 1.0, "added to the mean square"),
)
def local_response_norm(b: GraphBuilder, x: Value, *, size: int, alpha: float, beta: float, k: float) -> Value:
    """x / (k + alpha * m)^beta where m is the sum of squares over `size` neighbouring channels (axis 1),
    size // 2 of them before, divided by size (Krizhevsky et al. 2012). Missing channels count as 0.
    """
    float_required("local_response_norm", x)
    require(x.type.rank >= 2, "local_response_norm_rank", f"needs axes [N, C, ...], got {x.type}")
    require(size >= 1, "local_response_norm_size", f"size {size} must be at least 1")
    y = wide(b, x)

    def at_channels(value: int, other: int) -> tuple[int, ...]:
        return tuple(value if a == 1 else other for a in range(x.type.rank))

    total = b.reduce_window_sum(
        b.mul(y, y),
        window=at_channels(size, 1),
        strides=at_channels(1, 1),
        low=at_channels(size // 2, 0),
        high=at_channels((size - 1) // 2, 0),
    )
    scale = b.pow(b.add(b.mul(total, alpha / size), k), b.full_like(total, beta))
    return cast(b, b.div(y, scale), x.type.dtype)


@op(
    p=Attr("float", 2.0, "order of the norm; may be inf"),
    axis=Attr("int", doc="the axis of the vectors"),
    epsilon=Attr("float", 1e-12, "smallest divisor"),
)
def normalize(b: GraphBuilder, x: Value, *, p: float, axis: int, epsilon: float) -> Value:
    """x / max(norm, epsilon) where norm is the p-norm of the vectors along an axis. p = 0 counts what is
    not 0, p = inf is the largest magnitude. Short floats are computed in f32.
    """
    float_required("normalize", x)
    axis = axis_of("normalize", axis, x.type.rank)
    y = wide(b, x)
    size = b.abs(y)
    if p == math.inf:
        norm = b.reduce_max(size, axes=(axis,))
    elif p == -math.inf:
        norm = b.reduce_min(size, axes=(axis,))
    elif p == 0:
        norm = b.reduce_sum(where(b, b.eq(size, 0.0), 0.0, b.full_like(y, 1.0)), axes=(axis,))
    elif p == 1:
        norm = b.reduce_sum(size, axes=(axis,))
    elif p == 2:
        norm = b.sqrt(b.reduce_sum(b.mul(y, y), axes=(axis,)))
    else:
        norm = b.reduce_sum(b.pow(size, b.full_like(y, p)), axes=(axis,))
        norm = b.pow(norm, b.full_like(norm, 1 / p))
    norm = b.max(norm, epsilon)
    assert norm.type.dtype is wide_dtype(x.type.dtype)
    return cast(b, b.div(y, back(b, norm, x.type.shape, (axis,))), x.type.dtype)
