"""Activation functions, softmax and its relatives. Short floats are computed in f32, as torch does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import dims
from ..opdef import Attr, OpDef, define_composite, family_examples, require
from .composite import op
from .idioms import (
    GraphBuilder,
    Value,
    along,
    axes_of,
    axis_of,
    back,
    broadcast_to,
    cast,
    float_required,
    keep,
    split,
    where,
    wide,
    without,
)

ELEMENTWISE = "unary_composite"


def activation(doc: str, **attrs: Attr) -> Callable[[Callable[..., Value]], OpDef]:
    """Decorator: a function of one float, written on f32 or wider, as a composite of any float."""

    def make(function: Callable[..., Value]) -> OpDef:
        name = function.__name__

        def decompose(b: GraphBuilder, x: Value, **attributes: Any) -> Value:
            float_required(name, x)
            return cast(b, function(b, wide(b, x), **attributes), x.type.dtype)

        return define_composite(
            name,
            "x",
            decompose,
            doc,
            attrs=attrs,
            examples=lambda: family_examples("composite")[name](),
            properties=ELEMENTWISE,
        )

    return make


# -- piecewise linear: exact in any dtype --------------------------------------------------------


@op(ELEMENTWISE)
def relu(b: GraphBuilder, x: Value) -> Value:
    """max(x, 0), for floats and integers; NaN stays NaN."""
    return b.max(x, 0)


@op(ELEMENTWISE)
def relu6(b: GraphBuilder, x: Value) -> Value:
    """min(max(x, 0), 6) (Howard et al. 2017, MobileNets); NaN stays NaN."""
    return b.min(b.max(x, 0), 6)


@op(ELEMENTWISE, low=Attr("float", -1.0, "lower bound"), high=Attr("float", 1.0, "upper bound"))
def hardtanh(b: GraphBuilder, x: Value, *, low: float, high: float) -> Value:
    """min(max(x, low), high); NaN stays NaN."""
    require(low <= high, "hardtanh_bounds", f"low {low} must not be above high {high}")
    float_required("hardtanh", x)
    return b.min(b.max(x, low), high)


@op(ELEMENTWISE, lambd=Attr("float", 0.5, "half width of the gap"))
def softshrink(b: GraphBuilder, x: Value, *, lambd: float) -> Value:
    """x - lambd above lambd, x + lambd below -lambd, 0 between; NaN stays NaN."""
    float_required("softshrink", x)
    require(lambd >= 0, "softshrink_lambd", f"lambd {lambd} must not be negative")
    middle = b.mul(x, 0.0)  # 0, but NaN for NaN
    below = where(b, b.lt(x, -lambd), b.add(x, lambd), middle)
    return where(b, b.gt(x, lambd), b.sub(x, lambd), below)


@op(ELEMENTWISE, lambd=Attr("float", 0.5, "half width of the gap"))
def hardshrink(b: GraphBuilder, x: Value, *, lambd: float) -> Value:
    """0 where -lambd <= x <= lambd, else x; NaN stays NaN."""
    float_required("hardshrink", x)
    return where(b, b.and_(b.ge(x, -lambd), b.le(x, lambd)), 0.0, x)


@op(
    ELEMENTWISE,
    threshold=Attr("scalar", doc="largest value that is replaced"),
    value=Attr("scalar", doc="what replaces it"),
)
def threshold(b: GraphBuilder, x: Value, *, threshold: float, value: float) -> Value:
    """x where x > threshold, else value; NaN stays NaN."""
    return where(b, b.le(x, threshold), value, x)


@activation(
    "clamp(alpha * x + beta, 0, 1). The defaults are torch's; ONNX and Keras use alpha 0.2 (Courbariaux et al. 2015).",
    alpha=Attr("float", 1 / 6, "slope"),
    beta=Attr("float", 0.5, "value at 0"),
)
def hardsigmoid(b: GraphBuilder, x: Value, *, alpha: float, beta: float) -> Value:
    return b.min(b.max(b.add(b.mul(x, alpha), beta), 0.0), 1.0)


@activation("x * relu6(x + 3) / 6 (Howard et al. 2019, MobileNetV3).")
def hardswish(b: GraphBuilder, x: Value) -> Value:
    return b.div(b.mul(x, b.relu6(b.add(x, 3.0))), 6.0)


@activation(
    "x for x > 0, else negative_slope * x (Maas et al. 2013).", negative_slope=Attr("float", 0.01, "slope below 0")
)
def leaky_relu(b: GraphBuilder, x: Value, *, negative_slope: float) -> Value:
    return where(b, b.gt(x, 0.0), x, b.mul(x, negative_slope))


@op()
def prelu(b: GraphBuilder, x: Value, weight: Value) -> Value:
    """x for x > 0, else weight * x (He et al. 2015). weight has one element, or one for each channel
    (axis 1, axis 0 of a vector), or the rank of x with sizes that broadcast.
    """
    float_required("prelu", x, weight)
    shape, w = x.type.shape, weight.type
    if w.rank == 1 and x.type.rank > 1 and w.shape[0] != 1:
        require(
            dims.compatible(w.shape[0], shape[1]), "prelu_weight", f"weight {w} needs one entry per channel of {x.type}"
        )
        slope = along(b, weight, shape, (1,))
    else:
        require(w.rank <= x.type.rank, "prelu_weight", f"weight {w} does not broadcast to {x.type}")
        slope = broadcast_to(b, weight, shape)
    slope = cast(b, slope, x.type.dtype)
    return where(b, b.gt(x, 0.0), x, b.mul(x, slope))


# -- smooth ones ---------------------------------------------------------------------------------


@activation("x * logistic(x), also called swish (Ramachandran et al. 2017).")
def silu(b: GraphBuilder, x: Value) -> Value:
    return b.mul(x, b.logistic(x))


@activation("x * logistic(1.702 * x), the fast approximation of gelu (Hendrycks and Gimpel 2016).")
def quick_gelu(b: GraphBuilder, x: Value) -> Value:
    return b.mul(x, b.logistic(b.mul(x, 1.702)))


@activation(
    "x times the normal distribution function of x (Hendrycks and Gimpel 2016): x/2 * erfc(-x / sqrt 2), or with "
    "approximate tanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).",
    approximate=Attr("str", "none", "how the distribution function is computed", ("none", "tanh")),
)
def gelu(b: GraphBuilder, x: Value, *, approximate: str) -> Value:
    half = b.mul(x, 0.5)
    if approximate == "none":
        return b.mul(half, b.erfc(b.mul(x, -math.sqrt(0.5))))
    cubic = b.add(x, b.mul(b.mul(b.mul(x, x), x), 0.044715))
    return b.mul(half, b.add(b.tanh(b.mul(cubic, math.sqrt(2 / math.pi))), 1.0))


def _log1p_exp(b: GraphBuilder, x: Value) -> Value:
    """log(1 + exp(x)) without overflow."""
    return b.add(b.max(x, 0.0), b.log1p(b.exp(b.neg(b.abs(x)))))


@activation("x * tanh(softplus(x)) (Misra 2019).")
def mish(b: GraphBuilder, x: Value) -> Value:
    return b.mul(x, b.tanh(_log1p_exp(b, x)))


@activation(
    "log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.",
    beta=Attr("float", 1.0, "sharpness"),
    threshold=Attr("float", 20.0, "where the straight line begins; inf: nowhere"),
)
def softplus(b: GraphBuilder, x: Value, *, beta: float, threshold: float) -> Value:
    z = b.mul(x, beta) if beta != 1.0 else x
    smooth = _log1p_exp(b, z)
    smooth = b.div(smooth, beta) if beta != 1.0 else smooth
    return where(b, b.gt(z, threshold), x, smooth) if math.isfinite(threshold) else smooth


@activation("x / (1 + |x|).")
def softsign(b: GraphBuilder, x: Value) -> Value:
    return b.div(x, b.add(b.abs(x), 1.0))


@activation("log(logistic(x)) without overflow: min(x, 0) - log(1 + exp(-|x|)).")
def log_sigmoid(b: GraphBuilder, x: Value) -> Value:
    return b.sub(b.min(x, 0.0), b.log1p(b.exp(b.neg(b.abs(x)))))


@activation("x - tanh(x).")
def tanhshrink(b: GraphBuilder, x: Value) -> Value:
    return b.sub(x, b.tanh(x))


def _below(b: GraphBuilder, x: Value) -> Value:
    """x where it is negative, else 0: keeps exp from overflowing in the branch not taken."""
    return b.min(x, 0.0)


@activation(
    "x for x > 0, else alpha * (exp(x) - 1) (Clevert et al. 2015).", alpha=Attr("float", 1.0, "minus the limit at -inf")
)
def elu(b: GraphBuilder, x: Value, *, alpha: float) -> Value:
    return where(b, b.gt(x, 0.0), x, b.mul(b.expm1(_below(b, x)), alpha))


@activation(
    "x for x > 0, else alpha * (exp(x / alpha) - 1) (Barron 2017).", alpha=Attr("float", 1.0, "minus the limit at -inf")
)
def celu(b: GraphBuilder, x: Value, *, alpha: float) -> Value:
    require(alpha != 0, "celu_alpha", "alpha must not be 0")
    return where(b, b.gt(x, 0.0), x, b.mul(b.expm1(b.div(_below(b, x), alpha)), alpha))


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@activation("scale * elu(x, alpha) with the two constants of self-normalising networks (Klambauer et al. 2017).")
def selu(b: GraphBuilder, x: Value) -> Value:
    low = b.mul(b.expm1(_below(b, x)), SELU_ALPHA)
    return b.mul(where(b, b.gt(x, 0.0), x, low), SELU_SCALE)


@op(axis=Attr("int", -1, "the axis that is halved"))
def glu(b: GraphBuilder, x: Value, *, axis: int) -> Value:
    """First half of x along an axis times logistic of the second half (Dauphin et al. 2016)."""
    float_required("glu", x)
    axis = axis_of("glu", axis, x.type.rank)
    size = x.type.shape[axis]
    require(dims.compatible(dims.mod(size, 2), 0), "glu_size", f"axis {axis} of {x.type} must have an even size")
    first, second = split(b, wide(b, x), axis, 2)
    return cast(b, b.mul(first, b.logistic(second)), x.type.dtype)


# -- softmax -------------------------------------------------------------------------------------


def _shifted(b: GraphBuilder, x: Value, axis: int) -> tuple[Value, Value]:
    """x minus its largest element along the axis, and exp of that."""
    shape = x.type.shape
    shifted = b.sub(x, back(b, b.reduce_max(x, axes=(axis,)), shape, (axis,)))
    return shifted, b.exp(shifted)


@op(axis=Attr("int", doc="the axis along which the result adds up to 1"))
def softmax(b: GraphBuilder, x: Value, *, axis: int) -> Value:
    """exp(x) / sum(exp(x)) along an axis, shifted by the largest element so that nothing overflows.
    Short floats are computed in f32. A line of -inf, or one with +inf or NaN, gives NaN.
    """
    float_required("softmax", x)
    axis = axis_of("softmax", axis, x.type.rank)
    _, e = _shifted(b, wide(b, x), axis)
    total = back(b, b.reduce_sum(e, axes=(axis,)), x.type.shape, (axis,))
    return cast(b, b.div(e, total), x.type.dtype)


@op(axis=Attr("int", doc="the axis along which exp of the result adds up to 1"))
def log_softmax(b: GraphBuilder, x: Value, *, axis: int) -> Value:
    """x - log(sum(exp(x))) along an axis, shifted by the largest element so that nothing overflows.
    Short floats are computed in f32. A line of -inf gives NaN.
    """
    float_required("log_softmax", x)
    axis = axis_of("log_softmax", axis, x.type.rank)
    shifted, e = _shifted(b, wide(b, x), axis)
    total = b.log(b.reduce_sum(e, axes=(axis,)))
    return cast(b, b.sub(shifted, back(b, total, x.type.shape, (axis,))), x.type.dtype)


@op(axes=Attr("ints", doc="the axes that are summed"), keepdims=Attr("bool", False, "keep them with size 1"))
def logsumexp(b: GraphBuilder, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    """log(sum(exp(x))) over axes, shifted by the largest finite element. -inf everywhere (or nothing to
    sum) gives -inf, a +inf gives +inf. Short floats are computed in f32.
    """
    float_required("logsumexp", x)
    axes = axes_of("logsumexp", axes, x.type.rank)
    shape = x.type.shape
    y = wide(b, x)
    top = b.reduce_max(y, axes=axes)
    # An infinite top would give inf - inf; shifting by 0 is right then.
    top = where(b, b.is_finite(top), top, 0.0)
    total = b.reduce_sum(b.exp(b.sub(y, back(b, top, shape, axes))), axes=axes)
    result = b.add(b.log(total), top)
    assert result.type.rank == len(without(shape, axes))
    return cast(b, keep(b, result, shape, axes, keepdims), x.type.dtype)
