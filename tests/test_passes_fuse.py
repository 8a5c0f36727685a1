"""Fuse: every row once where it applies and once where it must not, and the numbers hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph, Operation
from unigraph.tolerances import difference

from .pass_graphs import INF, B, V, ops, products, run, unary_graph

# -- fuse ----------------------------------------------------------------------------------------

FLAT = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
W, BIAS = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in ((1, (8, 5)), (2, (5,))))


def back(b: B, y: V, x: V, axis: int = 2) -> V:
    """A value reduced over an axis, spread over the shape of x again."""
    kept = [a for a in range(x.type.rank) if a != axis]
    return b.broadcast_in_dim(y, shape=x.type.shape, broadcast_dimensions=kept)


def with_ones(b: B, y: V) -> V:
    return b.reshape(y, shape=(*y.type.shape, 1))


def softmax(b: B, x: V, top: int = 2, total: int = 2) -> V:
    e = b.exp(b.sub(x, back(b, b.reduce_max(x, axes=(top,)), x, top)))
    return b.div(e, back(b, b.reduce_sum(e, axes=(total,)), x, total))


def softmax_bounded(b: B, x: V) -> V:
    top = b.max(b.reduce_max(x, axes=(2,)), -INF)
    spread = b.broadcast_in_dim(b.stop_gradient(with_ones(b, top)), shape=x.type.shape, broadcast_dimensions=(0, 1, 2))
    e = b.exp(b.sub(x, spread))
    return b.div(e, back(b, b.reduce_sum(e, axes=(2,)), x))


def log_softmax(b: B, x: V) -> V:
    shifted = b.sub(x, back(b, b.reduce_max(x, axes=(2,)), x))
    return b.sub(shifted, back(b, b.log(b.reduce_sum(b.exp(shifted), axes=(2,))), x))


def mean(b: B, x: V, count: float = 8.0) -> V:
    return b.div(b.reduce_sum(x, axes=(2,)), count)


def layer_norm(b: B, x: V, square: str = "square", count: float = 8.0) -> V:
    centred = b.sub(x, back(b, mean(b, x), x))
    squares = {"square": b.square, "product": lambda v: b.mul(v, v), "power": lambda v: b.pow(v, 2.0)}[square](centred)
    variance = mean(b, squares, count)
    if square == "power":
        return b.div(centred, back(b, b.sqrt(b.add(variance, 1e-5)), x))
    return b.mul(centred, back(b, b.rsqrt(b.add(variance, 1e-5)), x))


def fast_norm(b: B, x: V) -> V:
    """As Flax writes it: variance from two means, the weight multiplied to the factor."""
    m = mean(b, x)
    variance = b.max(b.sub(mean(b, b.square(x)), b.square(m)), 0.0)
    factor = with_ones(b, b.rsqrt(b.add(variance, 1e-6)))
    factor = b.broadcast_in_dim(factor, shape=x.type.shape, broadcast_dimensions=(0, 1, 2))
    weight, bias = (b.weight(n, np.linspace(0.5, 2, 8, dtype=np.float32)) for n in "wb")
    weight, bias = (b.broadcast_in_dim(v, shape=x.type.shape, broadcast_dimensions=(2,)) for v in (weight, bias))
    return b.add(b.mul(b.sub(x, back(b, m, x)), b.mul(factor, weight)), bias)


def rms_norm(b: B, x: V, axis: int = 2) -> V:
    squares = b.div(b.reduce_sum(b.square(x), axes=(axis,)), float(x.type.shape[axis]))
    return b.mul(x, back(b, b.rsqrt(b.add(squares, 1e-6)), x, axis))


def dense(b: B, x: V, bias: np.ndarray, transposed: bool = False) -> V:
    w = b.constant(W.T.copy() if transposed else W)
    y = b.dot_general(x, w, lhs_contracting=(2,), rhs_contracting=(1 if transposed else 0,))
    return b.add(
        y, b.broadcast_in_dim(b.constant(bias), shape=y.type.shape, broadcast_dimensions=range(3 - bias.ndim, 3))
    )


def gelu_tanh(b: B, x: V, power: int = 3) -> V:
    inner = b.mul(b.add(x, b.mul(b.integer_pow(x, y=power), 0.044715)), math.sqrt(2 / math.pi))
    return b.mul(x, b.mul(b.add(b.tanh(inner), 1.0), 0.5))


def attend(b: B, x: V, mask: str = "", scale: float = 0.5, fill: float = -INF, axis: int = 2) -> V:
    """Attention of x with itself, two heads made by batch."""
    batch: dict[str, Any] = {"lhs_batch": (0,), "rhs_batch": (0,)}
    scores = b.mul(b.dot_general(x, b.tanh(x), lhs_contracting=(2,), rhs_contracting=(2,), **batch), scale)
    shape = scores.type.shape
    row, column = (b.iota(dtype="i32", shape=shape, axis=a) for a in (1, 2))
    if mask == "causal":
        scores = b.select(b.ge(row, column), b.full_like(scores, fill), scores)
    elif mask == "anticausal":
        scores = b.select(b.le(row, column), b.full_like(scores, fill), scores)
    elif mask == "added":
        bias = b.constant(np.array([0.0, -1.0, 2.0], np.float32))
        scores = b.add(scores, b.broadcast_in_dim(bias, shape=shape, broadcast_dimensions=(2,)))
    shares = softmax(b, scores, axis, axis)
    return b.dot_general(shares, x, lhs_contracting=(2,), rhs_contracting=(1,), **batch)


RAISED: dict[str, tuple[Callable[[B, V], Any], str, dict[str, Any]]] = {
    "relu": (lambda b, x: b.max(x, 0.0), "relu", {}),
    "silu": (lambda b, x: b.mul(b.logistic(x), x), "silu", {}),
    "gelu erf": (
        lambda b, x: b.mul(b.mul(x, 0.5), b.add(b.erf(b.mul(x, 0.5**0.5)), 1.0)),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu onnx": (
        lambda b, x: b.mul(b.mul(x, b.add(b.erf(b.div(x, 2**0.5)), 1.0)), 0.5),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu erfc": (
        lambda b, x: b.mul(b.mul(x, 0.5), b.erfc(b.mul(b.neg(x), 0.5**0.5))),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu tanh": (gelu_tanh, "gelu", {"approximate": "tanh"}),
    "mean": (mean, "mean", {"axes": (2,)}),
    "mean by share": (lambda b, x: b.mul(b.reduce_sum(x, axes=(2,)), 0.125), "mean", {"axes": (2,)}),
    "softmax": (softmax, "softmax", {"axis": 2}),
    "softmax over another axis": (lambda b, x: softmax(b, x, 1, 1), "softmax", {"axis": 1}),
    "softmax bounded": (softmax_bounded, "softmax", {"axis": 2}),
    "log_softmax": (log_softmax, "log_softmax", {"axis": 2}),
    "layer_norm": (layer_norm, "layer_norm", {"normalized_rank": 1}),
    "layer_norm product": (lambda b, x: layer_norm(b, x, "product"), "layer_norm", {}),
    "layer_norm power": (lambda b, x: layer_norm(b, x, "power"), "layer_norm", {}),
    "layer_norm affine": (fast_norm, "layer_norm", {}),
    "rms_norm": (rms_norm, "rms_norm", {"normalized_rank": 1}),
    "linear": (lambda b, x: dense(b, x, BIAS), "linear", {}),
    "linear transposed": (lambda b, x: dense(b, x, BIAS, True), "linear", {}),
    "attention": (attend, "attention", {"scale": 0.5, "is_causal": False}),
    "attention causal": (lambda b, x: attend(b, x, "causal"), "attention", {"is_causal": True}),
    "attention causal finite": (lambda b, x: attend(b, x, "causal", fill=-1e38), "attention", {"is_causal": True}),
    "attention masked": (lambda b, x: attend(b, x, "anticausal"), "attention", {"is_causal": False}),
    "attention masked finite": (lambda b, x: attend(b, x, "anticausal", fill=-1e38), "attention", {}),
    "attention added": (lambda b, x: attend(b, x, "added"), "attention", {}),
}

NOT_RAISED: dict[str, tuple[Callable[[B, V], Any], str]] = {
    "max with one": (lambda b, x: b.max(x, 1.0), "relu"),
    "silu of another": (lambda b, x: b.mul(x, b.logistic(b.neg(x))), "silu"),
    "gelu of another constant": (lambda b, x: b.mul(b.mul(x, 0.5), b.add(b.erf(b.mul(x, 0.70)), 1.0)), "gelu"),
    "gelu with a square": (lambda b, x: gelu_tanh(b, x, 2), "gelu"),
    "sum by another count": (lambda b, x: mean(b, x, 7.0), "mean"),
    "softmax over two axes": (lambda b, x: softmax(b, x, 1, 2), "softmax"),
    "unbiased variance": (lambda b, x: layer_norm(b, x, count=7.0), "layer_norm"),
    "rms over a leading axis": (lambda b, x: rms_norm(b, x, 1), "rms_norm"),
    "bias by row": (lambda b, x: dense(b, x, np.ones((3, 5), np.float32)), "linear"),
    "small fill": (lambda b, x: attend(b, x, "anticausal", fill=-10.0), "attention"),
    "softmax over queries": (lambda b, x: attend(b, x, axis=1), "attention"),
}  # fmt: skip


def composites(graph: Graph) -> list[Operation]:
    return [op for op in graph.edges if op.op.is_composite]


@pytest.mark.parametrize("name", RAISED)
def test_fuse_raises(name: str) -> None:
    program, composite, attrs = RAISED[name]
    graph = passes.prune(unary_graph(program, FLAT))
    notes: list[str] = []
    new = passes.fuse(graph, report=notes.append)
    ug.check(new)
    (found,) = [op for op in composites(new) if op.op.name == composite]
    assert attrs.items() <= found.attrs.items()
    assert any(note.startswith(f"{composite}: ") for note in notes)
    for a, e in zip(run(new, FLAT), run(graph, FLAT), strict=True):
        assert difference(a, e, scale=20) is None
    again = ug.optimize(graph, 2)
    assert difference(run(again, FLAT)[0], run(graph, FLAT)[0], scale=20) is None


@pytest.mark.parametrize("name", NOT_RAISED)
def test_fuse_declines(name: str) -> None:
    program, composite = NOT_RAISED[name]
    graph = passes.prune(unary_graph(program, FLAT))
    new = passes.fuse(graph)
    ug.check(new)
    assert composite not in ops(new)
    assert difference(run(new, FLAT)[0], run(graph, FLAT)[0], scale=20) is None


def test_fuse_looks_at_the_axes_of_what_is_spread() -> None:
    """On a square the sum of each row may be spread along columns: no softmax."""
    square = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)

    def program(b: B, x: V) -> V:
        e = b.exp(b.sub(x, back(b, b.reduce_max(x, axes=(1,)), x, 1)))
        return b.div(e, b.broadcast_in_dim(b.reduce_sum(e, axes=(1,)), shape=(4, 4), broadcast_dimensions=(1,)))

    notes: list[str] = []
    assert "softmax" not in ops(passes.fuse(unary_graph(program, square), notes.append))
    assert any("spread along another axis" in note for note in notes)


def test_fuse_weight_along_rows_is_no_affine() -> None:
    def program(b: B, x: V) -> V:
        w = b.weight("w", np.arange(4, dtype=np.float32))
        norm = b.layer_norm(x, normalized_rank=1, epsilon=1e-5)
        column = b.reshape(w, shape=(4, 1))
        return b.mul(norm, b.broadcast_in_dim(column, shape=(4, 4), broadcast_dimensions=(0, 1)))

    square = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    graph = unary_graph(program, square)
    assert ops(passes.fuse(graph)) == ops(graph)


def test_fuse_finds_what_jax_writes() -> None:
    jax = pytest.importorskip("jax")
    cases: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
        "softmax": (jax.nn.softmax, (FLAT,)),
        "log_softmax": (jax.nn.log_softmax, (FLAT,)),
        "gelu": (lambda x: jax.nn.gelu(x, approximate=False), (FLAT,)),
        "silu": (jax.nn.silu, (FLAT,)),
        "relu": (jax.nn.relu, (FLAT,)),
        "layer_norm": (jax.nn.standardize, (FLAT,)),
        "linear": (lambda x: x @ W + BIAS, (FLAT,)),
        "attention": (lambda x: jax.nn.dot_product_attention(x, x, x, is_causal=True), (FLAT.reshape(2, 3, 2, 4),)),
    }
    for name, (function, args) in cases.items():
        graph = ug.from_jax(function, *args)
        new = ug.optimize(graph)
        assert name in ops(new), name
        assert difference(run(new, *args)[0], run(graph, *args)[0], scale=20) is None, name


def test_fuse_finds_what_flax_writes() -> None:
    nn = pytest.importorskip("flax.linen")
    import jax

    cases = {
        "layer_norm": (nn.LayerNorm(), 1),
        "rms_norm": (nn.RMSNorm(), 1),
        "linear": (nn.Dense(5), 2),
        "attention": (nn.MultiHeadDotProductAttention(num_heads=2), None),
    }
    for name, (module, operations) in cases.items():
        parameters = module.init(jax.random.key(0), FLAT)
        graph = ug.from_jax(module.apply, parameters, FLAT, weights=(0,))
        new = ug.optimize(graph)
        assert name in ops(new) and (operations is None or len(new.edges) == operations), name
        assert difference(run(new, FLAT)[0], run(graph, FLAT)[0], scale=20) is None, name


def test_fuse_after_the_round_trip_through_onnx() -> None:
    """ONNX files hold norms, activations and attention written out; they are found again."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def vector(name: str) -> Any:
        return onnx.numpy_helper.from_array(np.linspace(0.5, 1, 8, dtype=np.float32), name)

    def number(name: str, value: float) -> Any:
        return onnx.numpy_helper.from_array(np.float32(value), name)

    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Pow", ["c", "two"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["v"], axes=[-1], keepdims=1),
        helper.make_node("Add", ["v", "eps"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["sd"]),
        helper.make_node("Div", ["c", "sd"], ["n"]),
        helper.make_node("Mul", ["n", "w"], ["nw"]),
        helper.make_node("Add", ["nw", "b"], ["y"]),
        helper.make_node("Div", ["y", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["e1"]),
        helper.make_node("Mul", ["y", "e1"], ["g"]),
        helper.make_node("Mul", ["g", "half"], ["z"]),
    ]
    numbers = {"two": 2.0, "eps": 1e-5, "root": 2**0.5, "one": 1.0, "half": 0.5}
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 8])],
        [vector("w"), vector("b"), *(number(k, v) for k, v in numbers.items())],
    )
    captured = ug.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    new = ug.optimize(captured)
    assert ops(new) == ["layer_norm", "gelu"]
    x = FLAT.reshape(6, 8)
    assert difference(run(new, x)[0], run(captured, x)[0], scale=20) is None


# -- siblings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_siblings_are_joined(bias: bool) -> None:
    graph = products(True, bias)
    new = passes.siblings(graph)
    ug.check(new)
    assert ops(new).count("linear") == 1 and ops(new).count("slice") == 3
    assert list(new.weights) == list(graph.weights)
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    for a, e in zip(run(new, x), run(graph, x), strict=True):
        assert difference(a, e) is None


def test_siblings_of_computed_weights_or_single_rows_stay() -> None:
    graph = products(False)
    assert passes.siblings(graph) is graph
    b = B()
    x = b.input("x", "f32", (4,))
    rows = [b.linear(x, b.weight(f"w{i}", np.ones(4, np.float32))) for i in range(2)]
    graph = b.build(tuple(rows))
    assert passes.siblings(graph) is graph


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_optimized_graphs_on_engines(engine: str, level: int) -> None:
    pytest.importorskip(engine)
    graph = products(True)
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    new = ug.optimize(graph, level)
    for a, e in zip(ug.compile(new, engine)(x), run(graph, x), strict=True):
        assert difference(np.asarray(a), e) is None
