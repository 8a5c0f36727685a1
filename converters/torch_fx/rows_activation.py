"""Activations, softmax and losses: composites kept whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, reshape

from .helpers import arrange, as_float, axis_of, full, operand
from .rowbook import lower_torch, row, rows

aten = torch.ops.aten
REDUCTION = {0: "none", 1: "mean", 2: "sum"}


def plain(op: str, *names: str) -> Callable[..., Value]:
    """A composite whose attributes are torch's further arguments, in order."""

    def apply(b: Any, x: Value, *values: Any, **kwargs: Any) -> Value:
        attrs = {n: float(v) for n, v in zip(names, values)}
        attrs.update({k: float(v) for k, v in kwargs.items()})
        return getattr(b, op)(cast(b, x, as_float(x.type.dtype)), **attrs)

    return apply


def _softmax(op: str) -> Callable[..., Value]:
    def apply(b: Any, x: Value, dim: int, dtype: Any = None) -> Value:
        x = cast(b, x, b.dtype)
        if not x.type.rank:
            return reshape(b, getattr(b, op)(reshape(b, x, (1,)), axis=0), ())
        return getattr(b, op)(x, axis=axis_of(dim, x.type.rank))

    return apply


def _elu(b: Any, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if scale == 1 and input_scale == 1:
        return b.elu(x, alpha=float(alpha))
    negative = b.mul(b.expm1(b.mul(x, float(input_scale))), float(alpha * scale))
    return b.select(b.gt(x, 0.0), negative, b.mul(x, float(scale)))


def _prelu(b: Any, x: Value, weight: Value) -> Value:
    if weight.type.rank == 1 and x.type.rank > 1:
        weight = reshape(b, weight, (weight.type.shape[0], *(1,) * (x.type.rank - 2)))
    return b.select(b.gt(x, 0.0), b.mul(x, broadcast_to(b, weight, x.type.shape)), x)


def _relu(b: Any, x: Value) -> Value:
    return b.relu(x) if x.type.dtype.is_float else b.max(x, full(b, 0, x.type))


def _hardtanh(b: Any, x: Value, low: Any = -1, high: Any = 1) -> Value:
    if not x.type.dtype.is_float:
        return b.min(b.max(x, full(b, low, x.type)), full(b, high, x.type))
    return b.hardtanh(x, low=float(low), high=float(high))


def _relu6(b: Any, x: Value) -> Value:
    return b.relu6(x) if x.type.dtype.is_float else _hardtanh(b, x, 0, 6)


def _hardsigmoid(b: Any, x: Value) -> Value:
    return b.hardsigmoid(x)


def _log_sigmoid_forward(b: Any, x: Value) -> tuple[Value, None]:
    return b.log_sigmoid(x), None


def _rrelu(b: Any, x: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *rest: Any) -> Value:
    if training:
        raise Unsupported("rrelu in training", "call eval() on the module")
    return b.leaky_relu(x, negative_slope=(lower + upper) / 2)


def _rrelu_with_noise(
    b: Any, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *rest: Any
) -> tuple[Value, Value]:
    """In training the slope of each negative element is drawn; ``noise`` holds the slopes."""
    if not training:
        return _rrelu(b, x, lower, upper), noise
    slope = b.random_uniform(b.draw(), shape=x.type.shape, dtype=x.type.dtype, low=float(lower), high=float(upper))
    slope = b.select(b.le(x, full(b, 0.0, x.type)), full(b, 1.0, x.type), slope)
    return b.mul(x, slope), slope


rows(
    {
        aten.relu: _relu,
        aten.relu6: _relu6,
        aten.silu: plain("silu"),
        aten.mish: plain("mish"),
        aten.selu: plain("selu"),
        aten.log_sigmoid: plain("log_sigmoid"),
        aten.log_sigmoid_forward: _log_sigmoid_forward,
        aten.hardswish: plain("hardswish"),
        aten.hardsigmoid: _hardsigmoid,
        aten.hardtanh: _hardtanh,
        aten.gelu: lambda b, x, approximate="none": b.gelu(x, approximate=approximate),
        aten.leaky_relu: plain("leaky_relu", "negative_slope"),
        aten.elu: _elu,
        aten.celu: plain("celu", "alpha"),
        aten.softplus: plain("softplus", "beta", "threshold"),
        aten.softshrink: plain("softshrink", "lambd"),
        aten.hardshrink: plain("hardshrink", "lambd"),
        aten.threshold: lambda b, x, threshold, value: b.select(
            b.gt(x, full(b, threshold, x.type)), full(b, value, x.type), x
        ),
        aten.prelu: _prelu,
        aten._prelu_kernel: _prelu,
        aten.glu: lambda b, x, dim=-1: b.glu(x, axis=axis_of(dim, x.type.rank)),
        aten.rrelu: _rrelu,
        aten.rrelu_with_noise_functional: _rrelu_with_noise,
        aten.softmax: _softmax("softmax"),
        aten._softmax: _softmax("softmax"),
        aten._safe_softmax: lambda b, x, dim, dtype=None: _safe_softmax(b, x, dim),
        aten.special_softmax: _softmax("softmax"),
        aten.log_softmax: _softmax("log_softmax"),
        aten._log_softmax: _softmax("log_softmax"),
        aten.special_log_softmax: _softmax("log_softmax"),
    }
)


def _safe_softmax(b: Any, x: Value, dim: int) -> Value:
    """softmax, but rows that are all -inf give 0."""
    axis = axis_of(dim, x.type.rank)
    y = b.softmax(cast(b, x, b.dtype), axis=axis)
    empty = b.reduce_and(b.eq(x, -float("inf")), axes=(axis,))
    empty = reshape(b, empty, tuple(1 if a == axis else d for a, d in enumerate(x.type.shape)))
    return b.select(broadcast_to(b, empty, x.type.shape), y, full(b, 0.0, y.type))


# -- losses ------------------------------------------------------------------------------------------


def pairwise(op: str, *names: str) -> Callable[..., Value]:
    """A loss of two tensors: (input, target, reduction, further attributes)."""

    def apply(b: Any, x: Value, y: Value, reduction: int = 1, *values: Any, **kwargs: Any) -> Value:
        attrs = {**dict(zip(names, values)), **kwargs}
        x, y = arrange(b, x, y)
        return getattr(b, op)(x, y, reduction=REDUCTION[reduction], **attrs)

    return apply


def reduce_loss(b: Any, loss: Value, reduction: int) -> Value:
    axes = tuple(range(loss.type.rank))
    if reduction == 0 or not axes:
        return loss
    return b.mean(loss, axes=axes) if reduction == 1 else b.reduce_sum(loss, axes=axes)


@row(aten.binary_cross_entropy)
def _bce(b: Any, x: Value, y: Value, weight: Value | None = None, reduction: int = 1) -> Value:
    if weight is None:
        return reduce_loss(b, b.bce_loss(x, y, reduction="none"), reduction)
    loss = b.mul(b.bce_loss(x, y, reduction="none"), broadcast_to(b, weight, x.type.shape))
    return reduce_loss(b, loss, reduction)


@row(aten.binary_cross_entropy_with_logits)
def _bce_logits(
    b: Any, x: Value, y: Value, weight: Value | None = None, pos_weight: Value | None = None, reduction: int = 1
) -> Value:
    x, y = arrange(b, x, y)
    if pos_weight is None:
        loss = b.bce_with_logits(x, y, reduction="none")
    else:
        # (1 - y) x + (1 + (p - 1) y) softplus(-x)
        p = broadcast_to(b, pos_weight, x.type.shape)
        factor = b.add(b.mul(b.sub(p, 1.0), y), 1.0)
        loss = b.sub(b.mul(b.sub(full(b, 1.0, y.type), y), x), b.mul(factor, b.log_sigmoid(x)))
    if weight is not None:
        loss = b.mul(loss, broadcast_to(b, weight, x.type.shape))
    return reduce_loss(b, loss, reduction)


def _gather_class(b: Any, x: Value, index: Value, axis: int) -> Value:
    """x[..., index, ...] along the class axis, which goes away."""
    shape = tuple(1 if a == axis else d for a, d in enumerate(x.type.shape))
    picked = b.take_along_axis(x, reshape(b, index, shape), axis=axis)
    return reshape(b, picked, index.type.shape)


def _nll(b: Any, logp: Value, target: Value, weight: Value | None, reduction: int, ignore: int) -> tuple[Value, Value]:
    """Negative log likelihood and the total weight it was divided by."""
    axis = 0 if logp.type.rank == 1 else 1
    ignored = b.eq(target, full(b, ignore, target.type))
    safe = b.select(ignored, target, full(b, 0, target.type))
    loss = b.neg(_gather_class(b, logp, safe, axis))
    if weight is None:
        w = full(b, 1.0, loss.type)
    else:
        w = b.take(weight, safe, axis=0, mode="clip")
    w = b.select(ignored, w, full(b, 0.0, w.type))
    axes = tuple(range(w.type.rank))
    total = b.reduce_sum(w, axes=axes) if axes else w
    loss = b.select(ignored, b.mul(loss, w), full(b, 0.0, loss.type))
    if reduction == 0:
        return loss, full(b, 0.0, total.type)
    summed = b.reduce_sum(loss, axes=axes) if axes else loss
    return (b.div(summed, total) if reduction == 1 else summed), total


@row(aten.nll_loss, aten.nll_loss_nd, aten.nll_loss2d)
def _nll_loss(
    b: Any, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    return _nll(b, x, target, weight, reduction, ignore_index)[0]


@row(aten.nll_loss_forward, aten.nll_loss2d_forward)
def _nll_forward(
    b: Any, x: Value, target: Value, weight: Any, reduction: int, ignore_index: int
) -> tuple[Value, Value]:
    return _nll(b, x, target, weight, reduction, ignore_index)


@row(aten.cross_entropy_loss)
def _cross_entropy(
    b: Any,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    axis = 0 if x.type.rank == 1 else 1
    if not target.type.dtype.is_integer:
        return _soft_cross_entropy(b, x, target, weight, reduction, label_smoothing, axis)
    if weight is None and x.type.rank > 1:
        return b.cross_entropy(
            x, target, reduction=REDUCTION[reduction], ignore_index=ignore_index, label_smoothing=float(label_smoothing)
        )
    logp = b.log_softmax(x, axis=axis)
    if not label_smoothing:
        return _nll(b, logp, target, weight, reduction, ignore_index)[0]
    return _smoothed(b, logp, target, weight, reduction, ignore_index, label_smoothing, axis)


def _smoothed(
    b: Any, logp: Value, target: Value, weight: Value | None, reduction: int, ignored: int, smoothing: float, axis: int
) -> Value:
    """Label smoothing with class weights: a share of the loss goes to all classes, each by its weight."""
    hard = _nll(b, logp, target, weight, 0, ignored)[0]
    scaled = logp
    if weight is not None:
        shape = tuple(d if a == axis else 1 for a, d in enumerate(logp.type.shape))
        scaled = b.mul(logp, broadcast_to(b, reshape(b, weight, shape), logp.type.shape))
    spread = b.neg(b.reduce_sum(scaled, axes=(axis,)))
    spread = b.select(b.eq(target, full(b, ignored, target.type)), spread, full(b, 0.0, spread.type))
    share = b.div(b.constant(smoothing, logp.type.dtype), operand(b, logp.type.shape[axis], logp.type.dtype))
    loss = b.add(b.mul(hard, 1 - smoothing), b.mul(spread, broadcast_to(b, share, spread.type.shape)))
    if reduction == 0:
        return loss
    total = b.reduce_sum(loss, axes=tuple(range(loss.type.rank))) if loss.type.rank else loss
    return total if reduction == 2 else b.div(total, _nll(b, logp, target, weight, 1, ignored)[1])


def _linear_cross_entropy(
    b: Any, x: Value, weight: Value, target: Value, bias: Value | None, class_weight: Value | None, reduction: str,
    ignore_index: int, label_smoothing: float, chunk: int, acc_policy: str, acc_dtype: Any, retain: bool, *grads: bool,
) -> tuple[Value, None, None, None]:  # fmt: skip
    """The loss of a linear layer's logits; chunks only save memory. The gradients among the results are not given."""
    if any(grads):
        raise Unsupported("a chunked linear_cross_entropy that computes gradients", "capture it under torch.no_grad()")
    logits = b.linear(x, weight, *([bias] if bias is not None else []))
    kind = {name: number for number, name in REDUCTION.items()}[reduction]
    return _cross_entropy(b, logits, target, class_weight, kind, ignore_index, label_smoothing), None, None, None


@lower_torch("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def _linear_cross_entropy_unreduced(
    b: Any, x: Value, weight: Value, target: Value, bias: Value | None, class_weight: Value | None, ignore_index: int,
    *rest: Any,
) -> Value:  # fmt: skip
    logits = b.linear(x, weight, *([bias] if bias is not None else []))
    return _cross_entropy(b, logits, target, class_weight, 0, ignore_index)


lower_torch("torch_nn::_linear_cross_entropy_batch_chunked")(_linear_cross_entropy)


def _soft_cross_entropy(
    b: Any, x: Value, target: Value, weight: Value | None, reduction: int, smoothing: float, axis: int
) -> Value:
    if smoothing:
        classes = x.type.shape[axis]
        target = b.add(b.mul(target, 1 - smoothing), full(b, 0.0, target.type))
        target = b.add(
            target,
            broadcast_to(
                b, b.div(b.constant(smoothing, x.type.dtype), operand(b, classes, x.type.dtype)), target.type.shape
            ),
        )
    logp = b.log_softmax(x, axis=axis)
    if weight is not None:
        shape = tuple(d if a == axis else 1 for a, d in enumerate(x.type.shape))
        logp = b.mul(logp, broadcast_to(b, reshape(b, weight, shape), x.type.shape))
    loss = b.neg(b.reduce_sum(b.mul(logp, target), axes=(axis,)))
    if reduction == 0:
        return loss
    total = b.reduce_sum(loss, axes=tuple(range(loss.type.rank))) if loss.type.rank else loss
    if reduction == 2 or not loss.type.rank:
        return total
    return b.div(total, operand(b, loss.type.size, loss.type.dtype))


def _kl_div(b: Any, x: Value, y: Value, reduction: int = 1, log_target: bool = False) -> Value:
    return reduce_loss(b, b.kl_div(*arrange(b, x, y), reduction="none", log_target=log_target), reduction)


rows(
    {
        aten.mse_loss: pairwise("mse_loss"),
        aten.l1_loss: pairwise("l1_loss"),
        aten.smooth_l1_loss: pairwise("smooth_l1_loss", "beta"),
        aten.huber_loss: pairwise("huber_loss", "delta"),
        aten.kl_div: _kl_div,
    }
)
