"""Fuse: raise groups of core operations to the composites that fast kernels know by name.

Each row is a pattern (ordinary op calls, see `patterns`) and a ``finish`` that reads attributes off
what was found or says why it is not that composite. Rows build on what other rows raised before: a
layer_norm is a pattern over `mean`, an attention one over `softmax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import dims
from ..graph import Graph, GraphLike, Operation, Value, as_graph
from ..opdef import registry
from ..ops import movement as m
from .attention import attention_left, attention_right, finish_attention
from .patterns import Finish, Match, Node, Outcome, Row, fuse_with, lies_along, trace

P = Any  # a PatternBuilder: its methods are the ops


def _operands(*names: str, **attrs: Any) -> Finish:
    """A finish that takes these variables and fixed attributes."""
    return lambda found: (tuple(found.values[n] for n in names), attrs)


def _kept(op: Operation) -> list[int]:
    """For each axis of a reduction's result, the axis of its operand that it is."""
    rank = op.inputs[0].type.rank
    axes = {a % rank for a in op.attrs["axes"]}
    return [a for a in range(rank) if a not in axes or op.attrs.get("keepdims")]


def _square(p: P, x: Node) -> Node:
    return p.any(p.square(x), p.mul(x, x), p.pow(x, p.number(2.0)))


# -- activations -----------------------------------------------------------------------------------


def relu(p: P, x: Node) -> Node:
    return p.max(x, p.number(0.0))


def silu(p: P, x: Node) -> Node:
    return p.mul(x, p.logistic(x))


def gelu(p: P, x: Node) -> Node:
    """x * 0.5 * (1 + erf(x / sqrt 2)) in the orders torch and ONNX exporters write it, or
    0.5 * x * erfc(-x / sqrt 2) as jax.nn.gelu does."""
    half = p.number(0.5)
    root = math.sqrt(0.5)
    scaled = p.any(p.mul(x, p.number(root)), p.div(x, p.number(math.sqrt(2.0))))
    twice = p.add(p.erf(scaled), p.number(1.0))
    opposite = p.any(p.mul(p.neg(x), p.number(root)), p.mul(x, p.number(-root)))
    return p.any(
        p.mul(p.mul(x, half), p.any(twice, p.erfc(opposite))),
        p.mul(p.mul(x, twice), half),
        p.mul(x, p.mul(twice, half)),
    )


def gelu_tanh(p: P, x: Node) -> Node:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), in several orders."""
    half = p.number(0.5)
    cube = p.any(p.integer_pow(x, name="cube"), p.mul(_square(p, x), x), p.pow(x, p.number(3.0)))
    inner = p.add(x, p.mul(cube, p.number(0.044715)))
    twice = p.add(p.tanh(p.mul(inner, p.number(math.sqrt(2 / math.pi)))), p.number(1.0))
    return p.any(p.mul(x, p.mul(twice, half)), p.mul(p.mul(x, half), twice), p.mul(p.mul(x, twice), half))


def _cube(found: Match) -> Outcome:
    if "cube" in found.values and found.operation("cube").attrs["y"] != 3:
        return "the inner power is not 3"
    return (found.values["x"],), {"approximate": "tanh"}


# -- means and softmax -----------------------------------------------------------------------------


def mean(p: P, x: Node) -> Node:
    total = p.spread(p.reduce_sum(x, name="sum"), name="spread")
    return p.any(p.div(total, p.scalar("count")), p.mul(total, p.scalar("share")))


def _mean(found: Match) -> Outcome:
    r, op, x = found.rewriter, found.operation("sum"), found.values["x"]
    if not x.type.dtype.is_float:
        return "the sum is not one of floats"
    size = dims.product(x.type.shape[a] for a in op.attrs["axes"])
    if not dims.is_static(size) or not size:
        return f"the sum is over {dims.to_text(size)} elements"
    if "count" in found.values and found.number("count") != size:
        return f"the sum is divided by {found.number('count'):g}, not by {size}"
    if "share" in found.values and not math.isclose(found.number("share") * size, 1.0, rel_tol=1e-6):
        return f"the sum is multiplied by {found.number('share'):g}, not by 1/{size}"
    where = trace(r, found.values["spread"], op.outputs[0])
    if where is None:
        return "the sum is reshaped"
    result = r.emit(registry()["mean"], [x], {"axes": op.attrs["axes"], "keepdims": False})
    shape = found.root.outputs[0].type.shape
    if result.type.shape == shape:
        return result
    free = iter(a for a, n in enumerate(shape) if n == 1 and a not in where)
    places = [next(free, None) if a is None else a for a in where]
    if None in places or sorted(places) != places:  # type: ignore[type-var]
        return "the sum is reshaped"
    return r.emit(m.broadcast_in_dim, [result], {"shape": shape, "broadcast_dimensions": tuple(places)})  # type: ignore[arg-type]


def _shifted(p: P, x: Node) -> Node:
    """x less its largest element, taken once more against -inf by jnp.max(initial=-inf)."""
    top = p.reduce_max(x, name="max")
    return p.sub(x, p.spread(p.any(top, p.max(p.spread(top), p.number(-math.inf))), name="max_at"))


def softmax(p: P, x: Node) -> Node:
    e = p.exp(_shifted(p, x))
    return p.div(e, p.spread(p.reduce_sum(e, name="sum"), name="sum_at"))


def log_softmax(p: P, x: Node) -> Node:
    shifted = _shifted(p, x)
    total = p.reduce_sum(p.exp(shifted), name="sum")
    return p.sub(shifted, p.spread(p.log(p.spread(total)), name="sum_at"))


def _one_axis(found: Match) -> Outcome:
    x, largest, total = found.values["x"], found.operation("max"), found.operation("sum")
    axes = largest.attrs["axes"]
    if axes != total.attrs["axes"] or len(axes) != 1:
        return f"the maximum is over axes {axes}, the sum over {total.attrs['axes']}"
    for name, op in (("max_at", largest), ("sum_at", total)):
        if not lies_along(found.rewriter, found.values[name], op.outputs[0], _kept(op)):
            return "a reduced value is spread along another axis than it was reduced over"
    return (x,), {"axis": axes[0] % x.type.rank}


# -- norms -----------------------------------------------------------------------------------------


def _scaled(p: P, centred: Node, variance: Node, weight: Node) -> Node:
    """centred / sqrt(variance + epsilon), perhaps with the weight multiplied to the factor."""
    deviation = p.add(p.spread(variance), p.scalar("epsilon"))
    factor = p.spread(p.rsqrt(deviation), name="factor_at")
    return p.any(
        p.mul(centred, factor),
        p.mul(centred, p.mul(factor, weight)),
        p.div(centred, p.spread(p.sqrt(deviation), name="factor_at")),
    )


def layer_norm(p: P, x: Node, weight: Node) -> Node:
    """With the variance in two passes, or as mean(x^2) - mean(x)^2, perhaps kept from below 0."""
    mean = p.mean(x, name="mean")
    centred = p.sub(x, p.spread(mean, name="mean_at"))
    apart = p.sub(p.spread(p.mean(_square(p, x), name="variance")), _square(p, p.spread(mean)))
    # The maximum with 0 is a relu by now.
    variance = p.any(p.mean(_square(p, centred), name="variance"), apart, p.relu(apart))
    return _scaled(p, centred, variance, weight)


def rms_norm(p: P, x: Node, weight: Node) -> Node:
    return _scaled(p, x, p.mean(_square(p, x), name="variance"), weight)


def _normalized(found: Match) -> Outcome:
    x, r, values = found.values["x"], found.rewriter, found.values
    rank = x.type.rank
    statistics = [("variance", "factor_at")] + (
        [("mean", "mean_at"), ("mean", "factor_at")] if "mean" in values else []
    )
    axes = found.operation("variance").attrs["axes"]
    k = len(axes)
    if sorted(a % rank for a in axes) != list(range(rank - k, rank)):
        return f"the statistics are over axes {axes}, not the last ones"
    for name, at in statistics:
        op = found.operation(name)
        if op.attrs["axes"] != axes:
            return "mean and variance are over different axes"
        needed = at != "factor_at" or name == "variance" or trace(r, values[at], op.outputs[0]) is not None
        if needed and not lies_along(r, values[at], op.outputs[0], _kept(op)):
            return "a statistic is spread along another axis than it was reduced over"
    operands = [x]
    if "weight" in values:
        weight = _trailing(found, values["weight"], x, k)
        if weight is None:
            return f"the weight is not shaped like the last {k} axes"
        operands.append(weight)
    return tuple(operands), {"normalized_rank": k, "epsilon": found.number("epsilon")}


def layer_norm_weighted(p: P, x: Node, weight: Node) -> Node:
    return p.mul(p.layer_norm(x, name="norm"), weight)


def layer_norm_biased(p: P, x: Node, weight: Node, bias: Node) -> Node:
    return p.add(p.layer_norm(x, weight, name="norm"), bias)


def rms_norm_weighted(p: P, x: Node, weight: Node) -> Node:
    return p.mul(p.rms_norm(x, name="norm"), weight)


def _affine(found: Match) -> Outcome:
    x, norm = found.values["x"], found.operation("norm")
    k = norm.attrs["normalized_rank"]
    operands = list(norm.inputs)
    source = _trailing(found, found.values["bias" if len(operands) == 2 else "weight"], x, k)
    if source is None:
        return f"what is multiplied or added is not shaped like the last {k} axes"
    return (*operands, source), dict(norm.attrs)


def _trailing(found: Match, value: Value, x: Value, k: int) -> Value | None:
    """The value shaped like x's last ``k`` axes that ``value`` is a broadcast of."""
    r, shape = found.rewriter, x.type.shape
    source = value
    for _ in range(8):
        if source.type.shape == shape[-k:] and source.type.dtype is x.type.dtype:
            fits = lies_along(r, value, source, range(len(shape) - k, len(shape)))
            return source if fits or value is source else None
        op = r.producer(source)
        if op is None or op.op not in (m.broadcast_in_dim, m.reshape):
            return None
        source = op.inputs[0]
    return None


# -- products --------------------------------------------------------------------------------------


def linear(p: P, x: Node, weight: Node, bias: Node) -> Node:
    return p.add(p.dot_general(x, weight, name="dot"), bias)


def _linear(found: Match) -> Outcome:
    x, w, a = found.values["x"], found.values["weight"], found.operation("dot").attrs
    if a["lhs_batch"] or w.type.rank != 2 or a["lhs_contracting"] != (x.type.rank - 1,):
        return "not a product of a matrix with the last axis"
    if a["out_dtype"] not in (None, x.type.dtype) or not x.type.dtype.is_float:
        return f"a product of {x.type.dtype} accumulated in {a['out_dtype']}"
    result = found.root.outputs[0]
    bias = _trailing(found, found.values["bias"], result, 1)
    if bias is None:
        return "what is added is not one number for each feature"
    if a["rhs_contracting"] == (0,):
        w = found.rewriter.emit(m.transpose, [w], {"permutation": (1, 0)})
    return (x, w, bias), {}


# At one root the first row that fits wins. One forward sweep is enough: what a row builds on stands
# further up and has been raised by then.
ROWS: Sequence[Row] = (
    Row("gelu", gelu, _operands("x", approximate="none")),
    Row("gelu", gelu_tanh, _cube),
    Row("silu", silu, _operands("x")),
    Row("mean", mean, _mean),
    Row("softmax", softmax, _one_axis),
    Row("log_softmax", log_softmax, _one_axis),
    Row("layer_norm", layer_norm, _normalized),
    Row("rms_norm", rms_norm, _normalized),
    Row("layer_norm", layer_norm_weighted, _affine),
    Row("layer_norm", layer_norm_biased, _affine),
    Row("rms_norm", rms_norm_weighted, _affine),
    Row("attention", attention_left, finish_attention),
    Row("attention", attention_right, finish_attention),
    Row("linear", linear, _linear),
    Row("relu", relu, _operands("x")),
)


def fuse(graph: GraphLike, report: Callable[[str], None] | None = None) -> Graph:
    """The graph with composites raised wherever a row fits, and what they replace pruned.

    ``report`` is called with a line for each composite raised and for each near miss with its
    reason. Values agree within rounding, as kernels may add in another order. Two limits of that:
    a variance computed as mean(x^2) - mean(x)^2 is computed more exactly afterwards, and a row of
    an attention in which nothing is attended to gives zeros where softmax gives NaN.
    """
    graph = as_graph(graph)
    from .prune import dead_code

    graph, raised, declined = fuse_with(graph, ROWS)
    if report is not None:
        for name, count in raised.items():
            report(f"{name}: {count}")
        for reason, count in declined.items():
            report(f"declined {reason}{f' (x{count})' if count > 1 else ''}")
    return dead_code(graph)
