"""Fuse: raise groups of core operations to the composites that fast kernels know by name.

Each row is a pattern (ordinary op calls, see `patterns`) and a ``finish`` that reads attributes off
what was found or says why it is not that composite. Rows come in stages: later ones build on what
earlier ones raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .. import dims
from ..graph import Graph, Value
from ..ops import movement as m
from .patterns import Finish, Match, Node, Row, fuse_with

P = Any  # a PatternBuilder: its methods are the ops
Attrs = Mapping[str, Any]


def _operands(*names: str, **attrs: Any) -> Finish:
    """A finish that takes these variables and fixed attributes."""
    return lambda found: (tuple(found.values[n] for n in names), attrs)


# -- activations -----------------------------------------------------------------------------------


def relu(p: P, x: Node) -> Node:
    return p.max(x, p.number(0.0))


def silu(p: P, x: Node) -> Node:
    return p.mul(x, p.logistic(x))


def gelu_erf(p: P, x: Node) -> Node:
    """x * 0.5 * (1 + erf(x / sqrt 2)), as torch decomposes it."""
    return p.mul(p.mul(x, p.number(0.5)), p.add(p.erf(p.mul(x, p.number(math.sqrt(0.5)))), p.number(1.0)))


def gelu_erf_divided(p: P, x: Node) -> Node:
    """0.5 * (x * (1 + erf(x / sqrt 2))), as ONNX exporters write it."""
    return p.mul(p.mul(x, p.add(p.erf(p.div(x, p.number(math.sqrt(2.0)))), p.number(1.0))), p.number(0.5))


def gelu_erfc(p: P, x: Node) -> Node:
    """0.5 * x * erfc(-x / sqrt 2), as jax.nn.gelu writes it."""
    return p.mul(p.mul(x, p.number(0.5)), p.erfc(p.mul(p.neg(x), p.number(math.sqrt(0.5)))))


def gelu_tanh(p: P, x: Node) -> Node:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), as jax.nn.gelu writes it."""
    cube = p.mul(p.number(0.044715), p.integer_pow(x, name="cube"))
    cdf = p.mul(p.number(0.5), p.add(p.number(1.0), p.tanh(p.mul(p.number(math.sqrt(2 / math.pi)), p.add(x, cube)))))
    return p.mul(x, cdf)


def _cube(found: Match) -> tuple[tuple[Value, ...], Attrs] | str:
    if found.operations["cube"].attrs["y"] != 3:
        return "the inner power is not 3"
    return (found.values["x"],), {"approximate": "tanh"}


# -- softmax ---------------------------------------------------------------------------------------


def softmax(p: P, x: Node) -> Node:
    e = p.exp(p.sub(x, p.spread(p.reduce_max(x, name="max"))))
    return p.div(e, p.spread(p.reduce_sum(e, name="sum")))


def softmax_bounded(p: P, x: Node) -> Node:
    """With the maximum taken once more against -inf, as jnp.max(initial=-inf) does."""
    e = p.exp(p.sub(x, p.spread(p.max(p.spread(p.reduce_max(x, name="max")), p.number(-math.inf)))))
    return p.div(e, p.spread(p.reduce_sum(e, name="sum")))


def log_softmax(p: P, x: Node) -> Node:
    shifted = p.sub(x, p.spread(p.reduce_max(x, name="max")))
    return p.sub(shifted, p.spread(p.log(p.spread(p.reduce_sum(p.exp(shifted), name="sum")))))


def log_softmax_bounded(p: P, x: Node) -> Node:
    shifted = p.sub(x, p.spread(p.max(p.spread(p.reduce_max(x, name="max")), p.number(-math.inf))))
    return p.sub(shifted, p.spread(p.log(p.spread(p.reduce_sum(p.exp(shifted), name="sum")))))


def _one_axis(found: Match) -> tuple[tuple[Value, ...], Attrs] | str:
    x = found.values["x"]
    axes = found.operations["max"].attrs["axes"]
    if axes != found.operations["sum"].attrs["axes"] or len(axes) != 1:
        return f"maximum over axes {axes}, sum over {found.operations['sum'].attrs['axes']}"
    if not _kept_in_place(found, "max", "sum"):
        return "a reduced value is spread along another axis than it was reduced over"
    return (x,), {"axis": axes[0] % x.type.rank}


def _kept_in_place(found: Match, *names: str) -> bool:
    """Whether each named reduction is spread back along the very axes that it reduced."""
    r = found.rewriter
    for name in names:
        op = found.operations[name]
        axes, rank = op.attrs["axes"], op.inputs[0].type.rank
        kept = tuple(i for i in range(rank) if i not in {a % rank for a in axes})
        for spread in [o for o in r._edges if o.op is m.broadcast_in_dim and o.inputs[0] is op.outputs[0]]:
            if len(spread.attrs["shape"]) == rank and spread.attrs["broadcast_dimensions"] != kept:
                return False
    return True


# -- norms -----------------------------------------------------------------------------------------


def _mean(p: P, x: Node, name: str) -> Node:
    return p.div(p.spread(p.reduce_sum(x, name=name)), p.scalar(f"{name}_count"))


def layer_norm_divided(p: P, x: Node) -> Node:
    """(x - mean) / sqrt(var + eps)."""
    centred = p.sub(x, p.spread(_mean(p, x, "mean")))
    variance = _mean(p, p.square(centred), "variance")
    return p.div(centred, p.spread(p.sqrt(p.add(p.spread(variance), p.scalar("epsilon")))))


def layer_norm_scaled(p: P, x: Node) -> Node:
    """(x - mean) * rsqrt(var + eps)."""
    centred = p.sub(x, p.spread(_mean(p, x, "mean")))
    variance = _mean(p, p.square(centred), "variance")
    return p.mul(centred, p.spread(p.rsqrt(p.add(p.spread(variance), p.scalar("epsilon")))))


def layer_norm_product(p: P, x: Node) -> Node:
    """The same with the square written as a product."""
    centred = p.sub(x, p.spread(_mean(p, x, "mean")))
    variance = _mean(p, p.mul(centred, centred), "variance")
    return p.mul(centred, p.spread(p.rsqrt(p.add(p.spread(variance), p.scalar("epsilon")))))


def rms_norm(p: P, x: Node) -> Node:
    """x * rsqrt(mean(x^2) + eps)."""
    return p.mul(x, p.spread(p.rsqrt(p.add(p.spread(_mean(p, p.square(x), "mean")), p.scalar("epsilon")))))


def _normalized(found: Match) -> tuple[tuple[Value, ...], Attrs] | str:
    x = found.values["x"]
    rank = x.type.rank
    for name in [n for n in ("mean", "variance") if n in found.operations]:
        axes = found.operations[name].attrs["axes"]
        if sorted(axes) != list(range(rank - len(axes), rank)):
            return f"the {name} is over axes {axes}, not the last ones"
        if axes != found.operations["mean"].attrs["axes"]:
            return "mean and variance are over different axes"
        count = dims.product(x.type.shape[a] for a in axes)
        if not dims.is_static(count) or found.numbers[f"{name}_count"] != count:
            return f"the {name} divides by {found.numbers[f'{name}_count']:g}, not by {dims.to_text(count)}"
    if not _kept_in_place(found, *[n for n in ("mean", "variance") if n in found.operations]):
        return "a statistic is spread along another axis than it was reduced over"
    return (x,), {"normalized_rank": len(found.operations["mean"].attrs["axes"]), "epsilon": found.numbers["epsilon"]}


def layer_norm_affine(p: P, x: Node, weight: Node, bias: Node) -> Node:
    return p.add(p.mul(p.layer_norm(x, name="norm"), p.spread(weight)), p.spread(bias))


def rms_norm_weighted(p: P, x: Node, weight: Node) -> Node:
    return p.mul(p.rms_norm(x, name="norm"), p.spread(weight))


def _affine(*names: str) -> Finish:
    def finish(found: Match) -> tuple[tuple[Value, ...], Attrs] | str:
        x, norm = found.values["x"], found.operations["norm"]
        k = norm.attrs["normalized_rank"]
        for name in names:
            source = found.values[name] = _trailing(found, found.values[name], x, k)  # type: ignore[assignment]
            if source is None:
                return f"the {name} is not shaped like the last {k} axes"
        return (x, *(found.values[n] for n in names)), dict(norm.attrs)

    return finish


def _trailing(found: Match, value: Value, x: Value, k: int) -> Value | None:
    """The value of x's last ``k`` axes that ``value`` is a broadcast of."""
    r = found.rewriter
    while value.type.shape != x.type.shape[-k:]:
        op = r.producer(value)
        if op is None or op.op not in (m.broadcast_in_dim, m.reshape):
            return None
        if op.op is m.broadcast_in_dim:
            rank, where = len(op.attrs["shape"]), op.attrs["broadcast_dimensions"]
            if where != tuple(range(rank - len(where), rank)):
                return None
        value = op.inputs[0]
    return value if value.type.dtype is x.type.dtype else None


# -- products --------------------------------------------------------------------------------------


def linear(p: P, x: Node, weight: Node, bias: Node) -> Node:
    return p.add(p.dot_general(x, weight, name="dot"), p.spread(bias))


def _linear(found: Match) -> tuple[tuple[Value, ...], Attrs] | str:
    x, w, dot = found.values["x"], found.values["weight"], found.operations["dot"]
    a = dot.attrs
    if a["lhs_batch"] or w.type.rank != 2 or a["lhs_contracting"] != (x.type.rank - 1,) or len(a["rhs_contracting"]) != 1:
        return "not a product of a matrix with the last axis"
    if a["out_dtype"] not in (None, x.type.dtype):
        return f"accumulates in {a['out_dtype']}"
    features = w.type.shape[1 - a["rhs_contracting"][0]]
    bias = _trailing(found, found.values["bias"], found.root.outputs[0], 1)
    if bias is None or bias.type.shape != (features,):
        return "what is added is not one number for each feature"
    if a["rhs_contracting"] == (0,):
        w = found.rewriter.emit(m.transpose, [w], {"permutation": (1, 0)})
    return (x, w, bias), {}


FIRST = [
    Row("gelu", gelu_erf, _operands("x", approximate="none")),
    Row("gelu", gelu_erf_divided, _operands("x", approximate="none")),
    Row("gelu", gelu_erfc, _operands("x", approximate="none")),
    Row("gelu", gelu_tanh, _cube),
    Row("silu", silu, _operands("x")),
    Row("softmax", softmax, _one_axis),
    Row("softmax", softmax_bounded, _one_axis),
    Row("log_softmax", log_softmax, _one_axis),
    Row("log_softmax", log_softmax_bounded, _one_axis),
    Row("layer_norm", layer_norm_divided, _normalized),
    Row("layer_norm", layer_norm_scaled, _normalized),
    Row("layer_norm", layer_norm_product, _normalized),
    Row("rms_norm", rms_norm, _normalized),
    Row("relu", relu, _operands("x")),
]
SECOND = [
    Row("layer_norm", layer_norm_affine, _affine("weight", "bias")),
    Row("rms_norm", rms_norm_weighted, _affine("weight")),
    Row("linear", linear, _linear),
]
STAGES = (FIRST, SECOND)


def fuse(graph: Graph, report: Callable[[str], None] | None = None) -> Graph:
    """The graph with composites raised wherever a row fits, and what they replace pruned.

    ``report`` is called with a line for each composite raised and for each near miss with its
    reason. Values agree within rounding, as kernels may add in another order.
    """
    from .prune import dead_code

    for stage in STAGES:
        graph, raised, declined = fuse_with(graph, stage)
        if report is not None:
            for name, count in raised.items():
                report(f"{name}: {count}")
            for reason, count in declined.items():
                report(f"declined {reason}{f' (x{count})' if count > 1 else ''}")
    return dead_code(graph)
