"""Loss functions with torch's meaning. Short floats are computed in f32, means too, and cast back."""

from __future__ import annotations

from .. import dims
from ..opdef import Attr, require
from .composite import op
from .idioms import (
    REDUCTION,
    GraphBuilder,
    Value,
    broadcast_to,
    cast,
    count,
    float_required,
    reduced,
    reshape,
    same_shape_required,
    where,
    wide,
)

IGNORE = Attr("int", -100, "targets of this value count for nothing")


def _class_axis(name: str, x: Value, target: Value) -> int:
    """The axis of classes: 1, or 0 for one example. Refuses targets of another shape."""
    float_required(name, x)
    require(x.type.rank >= 1, f"{name}_rank", f"needs axes [N, C, ...] or [C], got {x.type}")
    require(target.type.dtype.is_integer, f"{name}_target", f"targets are class numbers, got {target.type}")
    axis = min(1, x.type.rank - 1)
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    fits = target.type.rank == len(shape) and all(map(dims.compatible, target.type.shape, shape))
    require(fits, f"{name}_target", f"targets must have the shape of {x.type} without axis {axis}, got {target.type}")
    return axis


def _picked(b: GraphBuilder, log_probs: Value, target: Value, axis: int, ignore_index: int) -> tuple[Value, Value]:
    """(minus the log-probability of each target, which targets count)."""
    counts = b.ne(target, ignore_index) if _holds(target, ignore_index) else b.full(True, "bool", target.type.shape)
    safe = where(b, counts, target, 0)
    shape = (*target.type.shape[:axis], 1, *target.type.shape[axis:])
    picked = b.take_along_axis(log_probs, reshape(b, safe, shape), axis=axis)
    return b.neg(reshape(b, picked, target.type.shape)), counts


def _holds(target: Value, number: int) -> bool:
    """True when an element of ``target`` can be ``number``."""
    bits, signed = target.type.dtype.bits, target.type.dtype.kind == "int"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return low <= number <= high


def _over_counted(b: GraphBuilder, losses: Value, counts: Value, reduction: str) -> Value:
    """The losses that count, under a reduction; the mean is over those only (0 / 0 is NaN)."""
    losses = where(b, counts, losses, 0.0)
    axes = tuple(range(losses.type.rank))
    if reduction == "none":
        return losses
    total = b.reduce_sum(losses, axes=axes)
    if reduction == "sum":
        return total
    return b.div(total, b.reduce_sum(b.convert(counts, dtype=losses.type.dtype), axes=axes))


@op(reduction=REDUCTION, ignore_index=IGNORE, label_smoothing=Attr("float", 0.0, "weight of the uniform distribution"))
def cross_entropy(
    b: GraphBuilder, logits: Value, target: Value, *, reduction: str, ignore_index: int, label_smoothing: float
) -> Value:
    """-log_softmax(logits) at the target class, for logits [N, C, *] (or [C]) and integer targets [N, *].
    With label smoothing e, (1 - e) times that plus e times the mean over the classes (Szegedy et al.
    2016). `mean` is over the targets that are not ignored; if all are, it is NaN.
    """
    require(0 <= label_smoothing <= 1, "cross_entropy_smoothing", f"label_smoothing {label_smoothing} must lie in 0..1")
    axis = _class_axis("cross_entropy", logits, target)
    log_probs = b.log_softmax(wide(b, logits), axis=axis)
    losses, counts = _picked(b, log_probs, target, axis, ignore_index)
    if label_smoothing:
        total = b.reduce_sum(log_probs, axes=(axis,))
        classes = count(b, log_probs.type.shape, (axis,), total.type.dtype)
        uniform = b.neg(b.div(total, broadcast_to(b, classes, total.type.shape)))
        losses = b.add(b.mul(losses, 1.0 - label_smoothing), b.mul(uniform, label_smoothing))
    return cast(b, _over_counted(b, losses, counts, reduction), logits.type.dtype)


@op(reduction=REDUCTION, ignore_index=IGNORE)
def nll_loss(b: GraphBuilder, log_probs: Value, target: Value, *, reduction: str, ignore_index: int) -> Value:
    """Minus the log-probability of the target class, for log_probs [N, C, *] (or [C]) and integer targets
    [N, *]. `mean` is over the targets that are not ignored; if all are, it is NaN.
    """
    axis = _class_axis("nll_loss", log_probs, target)
    losses, counts = _picked(b, wide(b, log_probs), target, axis, ignore_index)
    return cast(b, _over_counted(b, losses, counts, reduction), log_probs.type.dtype)


def _difference(b: GraphBuilder, name: str, x: Value, y: Value) -> Value:
    float_required(name, x)
    same_shape_required(name, x, y)
    return b.sub(wide(b, x), wide(b, y))


@op(reduction=REDUCTION)
def mse_loss(b: GraphBuilder, x: Value, y: Value, *, reduction: str) -> Value:
    """(x - y)^2."""
    d = _difference(b, "mse_loss", x, y)
    return reduced(b, b.mul(d, d), reduction, x.type.dtype)


@op(reduction=REDUCTION)
def l1_loss(b: GraphBuilder, x: Value, y: Value, *, reduction: str) -> Value:
    """|x - y|."""
    return reduced(b, b.abs(_difference(b, "l1_loss", x, y)), reduction, x.type.dtype)


@op(reduction=REDUCTION, beta=Attr("float", 1.0, "where the parabola meets the line"))
def smooth_l1_loss(b: GraphBuilder, x: Value, y: Value, *, reduction: str, beta: float) -> Value:
    """d^2 / (2 beta) where d = |x - y| < beta, else d - beta / 2 (Girshick 2015); beta 0 is l1_loss."""
    require(beta >= 0, "smooth_l1_loss_beta", f"beta {beta} must not be negative")
    d = b.abs(_difference(b, "smooth_l1_loss", x, y))
    if beta:
        near = b.div(b.mul(b.mul(d, d), 0.5), beta)
        d = where(b, b.lt(d, beta), near, b.sub(d, 0.5 * beta))
    return reduced(b, d, reduction, x.type.dtype)


@op(reduction=REDUCTION, delta=Attr("float", 1.0, "where the parabola meets the line"))
def huber_loss(b: GraphBuilder, x: Value, y: Value, *, reduction: str, delta: float) -> Value:
    """d^2 / 2 where d = |x - y| <= delta, else delta * (d - delta / 2) (Huber 1964)."""
    require(delta > 0, "huber_loss_delta", f"delta {delta} must be positive")
    d = b.abs(_difference(b, "huber_loss", x, y))
    near, far = b.mul(b.mul(d, d), 0.5), b.mul(b.sub(d, 0.5 * delta), delta)
    return reduced(b, where(b, b.le(d, delta), near, far), reduction, x.type.dtype)


@op(reduction=REDUCTION)
def bce_loss(b: GraphBuilder, x: Value, y: Value, *, reduction: str) -> Value:
    """-(y log x + (1 - y) log(1 - x)) for probabilities x, each logarithm being at least -100."""
    float_required("bce_loss", x)
    same_shape_required("bce_loss", x, y)
    p, t = wide(b, x), wide(b, y)
    hit, miss = b.max(b.log(p), -100.0), b.max(b.log1p(b.neg(p)), -100.0)
    losses = b.sub(b.mul(b.sub(t, 1.0), miss), b.mul(t, hit))
    return reduced(b, losses, reduction, x.type.dtype)


@op(reduction=REDUCTION)
def bce_with_logits(b: GraphBuilder, x: Value, y: Value, *, reduction: str) -> Value:
    """bce_loss(logistic(x), y) without overflow: max(x, 0) - x y + log(1 + exp(-|x|))."""
    float_required("bce_with_logits", x)
    same_shape_required("bce_with_logits", x, y)
    z, t = wide(b, x), wide(b, y)
    losses = b.add(b.sub(b.max(z, 0.0), b.mul(z, t)), b.log1p(b.exp(b.neg(b.abs(z)))))
    return reduced(b, losses, reduction, x.type.dtype)


@op(
    reduction=Attr("str", "mean", "batchmean: sum divided by the first size", ("mean", "batchmean", "sum", "none")),
    log_target=Attr("bool", False, "y holds log-probabilities"),
)
def kl_div(b: GraphBuilder, x: Value, y: Value, *, reduction: str, log_target: bool) -> Value:
    """Pointwise Kullback-Leibler divergence y (log y - x) of log-probabilities x from probabilities y (0
    where y is 0), or exp(y) (y - x) with log_target (Kullback and Leibler 1951).
    """
    float_required("kl_div", x)
    same_shape_required("kl_div", x, y)
    p, t = wide(b, x), wide(b, y)
    if log_target:
        losses = b.mul(b.exp(t), b.sub(t, p))
    else:
        zero = b.eq(t, 0.0)
        entropy = where(b, zero, 0.0, b.mul(t, b.log(where(b, zero, 1.0, t))))
        losses = b.sub(entropy, b.mul(t, p))
    if reduction != "batchmean":
        return reduced(b, losses, reduction, x.type.dtype)
    require(x.type.rank >= 1, "kl_div_rank", "batchmean needs an axis")
    total = b.reduce_sum(losses, axes=tuple(range(x.type.rank)))
    return cast(b, b.div(total, count(b, x.type.shape, (0,), total.type.dtype)), x.type.dtype)
