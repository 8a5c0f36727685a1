"""The ONNX export: checked models that ONNX Runtime runs, at every size, with names and refusals as promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.dtypes import dtype
from unigraph.errors import InputError, UnsupportedError
from unigraph.evaluate import evaluate
from unigraph.graph import Graph
from unigraph.opdef import registry
from unigraph.runtime.numpy.table import TABLE
from unigraph.tolerances import difference

from . import harness

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from unigraph.converters.onnx import export
from unigraph.converters.onnx.export import save_onnx, to_onnx
from unigraph.converters.onnx.export_gaps import GAPS
from unigraph.converters.onnx.session import Engine

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def agrees(graph: Graph, inputs: list[Any], scale: float = 10.0, opset: int | None = None) -> None:
    """The graph gives on ONNX Runtime what the reference gives."""
    actual = Engine(graph, opset=opset).run(inputs)
    for a, e in zip(actual, evaluate(graph, TABLE, inputs), strict=True):
        assert difference(a, e, scale) is None


# -- every op ------------------------------------------------------------------------------------


def test_every_core_op_has_a_row_or_a_reason() -> None:
    told = {*export.ROWS, *export.COMPLEX_ROWS, *GAPS}
    assert not [op.name for op in registry().values() if not op.is_composite and op not in told]
    assert not [op.name for op in export.ROWS if op in GAPS], "a row and a reason why there is none"


@pytest.mark.parametrize("op", GAPS, ids=lambda op: op.name)
def test_gaps_are_refused_with_their_reason(op: Any) -> None:
    for example in op.examples:
        with pytest.raises(UnsupportedError) as error:
            to_onnx(harness.example_graph(op, example))
        assert op.name in str(error.value) or "complex" in str(error.value)


FAST = [n for n, op, _ in harness.all_examples() if op.is_composite and op in export.ROWS]


@pytest.mark.parametrize("name", FAST)
def test_composite_rows_agree_with_their_decomposition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, example = harness.by_name()[name]
    graph = harness.example_graph(op, example)
    with_row = Engine(graph).run(example.inputs)
    monkeypatch.setattr(export, "ROWS", {o: r for o, r in export.ROWS.items() if not o.is_composite})
    assert harness.compare(with_row, tuple(Engine(graph).run(example.inputs))) is None


@pytest.mark.parametrize("opset", [17, 18, 20, 21, 23, 26])
@pytest.mark.parametrize("name", ["add", "layer_norm", "gelu", "reduce_max", "gather", "attention", "pad", "scan"])
def test_opsets(name: str, opset: int) -> None:
    op = registry()[name]
    example = op.examples[0]
    graph = harness.example_graph(op, example)
    actual = Engine(graph, opset=opset).run(example.inputs)
    assert harness.compare(actual, harness.reference(f"{name}.0")) is None


# -- symbolic sizes ------------------------------------------------------------------------------


def block() -> Graph:
    """A transformer block with free batch and sequence length."""
    b = GraphBuilder("block")
    x = b.input("x", "f32", ("batch", "seq", 8))
    mask = b.input("mask", "bool", ("batch", "seq"))

    def weight(name: str, *shape: int) -> Any:
        return b.weight(name, floats(*shape) * 0.3)

    def heads(t: Any) -> Any:
        return b.transpose(b.reshape(t, shape=("batch", "seq", 2, 4)), permutation=(0, 2, 1, 3))

    with b.at("encoder.layer.0"):
        h = b.layer_norm(x, weight("ln.weight", 8), weight("ln.bias", 8), normalized_rank=1, epsilon=1e-5)
        with b.at("encoder.layer.0.attention"):
            q, k, v = (heads(b.linear(h, weight(f"{n}.weight", 8, 8), weight(f"{n}.bias", 8))) for n in "qkv")
            wide = b.broadcast_in_dim(mask, shape=("batch", 1, 1, "seq"), broadcast_dimensions=(0, 3))
            a = b.transpose(b.attention(q, k, v, wide), permutation=(0, 2, 1, 3))
        x = b.add(x, b.linear(b.reshape(a, shape=("batch", "seq", 8)), weight("o.weight", 8, 8)))
        up = b.gelu(b.linear(x, weight("up.weight", 16, 8), weight("up.bias", 16)))
        y = b.add(x, b.linear(up, weight("down.weight", 8, 16)))
    return b.build({"hidden": y, "pooled": b.mean(y, axes=(1,))})


def test_transformer_block_at_several_sizes() -> None:
    graph = block()
    engine = Engine(graph)
    for batch, length in ((2, 3), (1, 7), (3, 1)):
        inputs = [floats(batch, length, 8), RNG.random((batch, length)) > 0.3]
        for a, e in zip(engine.run(inputs), evaluate(graph, TABLE, inputs), strict=True):
            assert difference(a, e, 20) is None


def test_names_and_sizes_of_the_interface() -> None:
    model = to_onnx(block())
    onnx.checker.check_model(model, full_check=True)

    def sizes(info: Any) -> list[Any]:
        return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]

    assert {i.name: sizes(i) for i in model.graph.input} == {"x": ["batch", "seq", 8], "mask": ["batch", "seq"]}
    assert {i.name: sizes(i) for i in model.graph.output} == {"hidden": ["batch", "seq", 8], "pooled": ["batch", 8]}
    assert {"ln.weight", "q.bias", "down.weight"} <= {t.name for t in model.graph.initializer}
    assert any(n.name.startswith("encoder.layer.0.attention/MatMul") for n in model.graph.node)
    assert {"LayerNormalization", "Softmax", "Gelu"} <= {n.op_type for n in model.graph.node}


SIZED = {
    "concatenate": lambda b, x: b.concatenate(x, x, axis=1),
    "reshape": lambda b, x: b.reshape(x, shape=("3*n*m",)),
    "slice": lambda b, x: b.slice(x, start=(0, 0, 0), limit=("n", "m-1", 3)),
    "pad": lambda b, x: b.pad(x, b.constant(0.5, "f32"), low=(0, 1, -1), high=(0, 2, 0), interior=(0, 1, 0)),
    "iota": lambda b, x: b.add(x, b.iota(dtype="f32", shape=("n", "m", 3), axis=1)),
    "dim_size": lambda b, x: b.size("(n + 3*m) // 2 + n % 3", "i32"),
    "cumsum": lambda b, x: b.cumsum(x, axis=1),
    "cumprod": lambda b, x: b.cumprod(x, axis=1),
    "cummax": lambda b, x: b.cummax(x, axis=1, reverse=True),
    "sort": lambda b, x: b.sort(x, axis=1),
    "argmax": lambda b, x: b.argmax(x, axis=1),
    "reduce_prod": lambda b, x: b.reduce_prod(b.convert(b.mul(x, 3.0), dtype="i32"), axes=(1,)),
    "window": lambda b, x: b.reduce_window_max(x, window=(1, 2, 1), strides=(1, 2, 1), low=(0, 1, 0), high=(0, 0, 0)),
    "nonzero": lambda b, x: b.nonzero(b.gt(x, 0.0), symbol="found"),
    "softmax": lambda b, x: b.softmax(x, axis=1),
    "tile": lambda b, x: b.tile(x, repeats=(1, 2, 1)),
    "conv": lambda b, x: b.conv(
        x, b.constant(np.ones((2, 3, 2), np.float32)), strides=(1,), low=(1,), high=(0,), dilation=(1,)
    ),
}


@pytest.mark.parametrize("name", SIZED)
def test_symbolic_sizes(name: str) -> None:
    b = GraphBuilder(name)
    shape = ("n", 3, "m") if name == "conv" else ("n", "m", 3)
    graph = b.build(SIZED[name](b, b.input("x", "f32", shape)))
    onnx.checker.check_model(to_onnx(graph), full_check=True)
    engine = Engine(graph)
    for n, m in ((2, 4), (1, 7)):
        x = floats(n, 3, m) if name == "conv" else floats(n, m, 3)
        for a, e in zip(engine.run([x]), evaluate(graph, TABLE, [x]), strict=True):
            assert difference(a, e, 10) is None


# -- control flow, randomness, state ---------------------------------------------------------------


@pytest.mark.parametrize("which", [-1, 0, 1, 2, 7])
def test_branches(which: int) -> None:
    b = GraphBuilder()
    w, x = b.input("which", "i32"), b.input("x", "f32", (3,))
    branches = [lambda b, x: b.neg(x), lambda b, x: b.add(x, 1.0), lambda b, x: x]
    graph = b.build(b.cond(w, x, branches=branches))
    assert "If" in {n.op_type for n in to_onnx(graph).graph.node}
    agrees(graph, [np.int32(which), floats(3)])


def test_while_loop_with_constants() -> None:
    b = GraphBuilder()
    n, x = b.input("n", "i32"), b.input("x", "f32", ("size",))
    out = b.while_(
        n, x, n, x, cond_consts=0, body_consts=2,
        cond=lambda b, i, y: b.gt(i, 0),
        body=lambda b, n, x, i, y: (b.sub(i, 1), b.add(b.mul(y, 0.5), x)),
    )  # fmt: skip
    graph = b.build(out)
    for count, size in ((0, 2), (5, 3)):
        agrees(graph, [np.int32(count), floats(size)])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_with_free_length(reverse: bool) -> None:
    b = GraphBuilder()
    c, s, xs = b.input("c", "f32", (3,)), b.input("s", "f32", (3,)), b.input("xs", "f32", ("n", 3))
    out = b.scan(
        c, s, xs, length="n", num_consts=1, num_carry=1, reverse=reverse,
        body=lambda b, c, s, x: (b.add(b.mul(s, c), x), b.mul(s, 2.0)),
    )  # fmt: skip
    graph = b.build(out)
    for n in (4, 1, 0):
        agrees(graph, [floats(3), floats(3), floats(n, 3)])


def test_nested_loops_and_branches() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", (3,))

    def inner(b: Any, i: Any, y: Any) -> Any:
        branch = b.cond(
            b.gt(b.reduce_sum(y, axes=(0,)), 0.0), y, branches=[lambda b, y: b.add(y, 1.0), lambda b, y: b.neg(y)]
        )
        return b.sub(i, 1), branch[0] if isinstance(branch, tuple) else branch

    out = b.while_(b.constant(4, "i32"), x, cond_consts=0, body_consts=0, cond=lambda b, i, y: b.gt(i, 0), body=inner)
    agrees(b.build(out), [floats(3)])


def test_random_bits_are_the_reference_s() -> None:
    b = GraphBuilder()
    key = b.key("key")
    parts = b.rng_split(key, shape=(2,))
    graph = b.build((b.rng_bits(parts, shape=(5,), dtype="u32"), b.random_bernoulli(key, shape=(40,), p=0.3)))
    model = to_onnx(graph)
    (info,) = model.graph.input
    assert [d.dim_value for d in info.type.tensor_type.shape.dim] == [2]
    assert info.type.tensor_type.elem_type == onnx.TensorProto.UINT32
    agrees(graph, [np.array([7, 9], np.uint32)], scale=1)


def test_states_are_inputs_and_outputs() -> None:
    b = GraphBuilder()
    count = b.state("count", np.zeros((2,), np.float32))
    x = b.input("x", "f32", (2,))
    b.update(count, b.add(count, x))
    graph = b.build(b.mul(x, count))
    model = to_onnx(graph)
    assert [i.name for i in model.graph.input] == ["x", "count"]
    assert [o.name for o in model.graph.output][1:] == ["count_out"]
    agrees(graph, [floats(2)])


# -- linear algebra ------------------------------------------------------------------------------

CLOSE = {"f32": 1e-3, "f64": 1e-9}


@pytest.mark.parametrize("kind", CLOSE)
@pytest.mark.parametrize("n", [1, 5, 12])
def test_eigenvectors_rebuild_the_matrix(n: int, kind: str) -> None:
    a = RNG.standard_normal((2, n, n))
    a = (a + a.swapaxes(1, 2)).astype(dtype(kind).numpy)
    b = GraphBuilder()
    v, w = Engine(b.build(b.eigh(b.input("a", kind, a.shape), lower=False))).run([a])
    assert np.abs(w - np.linalg.eigvalsh(a)).max() < CLOSE[kind]
    assert np.abs(v @ (w[..., None] * v.swapaxes(1, 2)) - a).max() < CLOSE[kind]
    assert np.abs(v @ v.swapaxes(1, 2) - np.eye(n)).max() < CLOSE[kind]


@pytest.mark.parametrize("kind", CLOSE)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("m", "n", "rank"), [(4, 4, 4), (6, 3, 3), (3, 6, 3), (5, 4, 2), (4, 4, 0)])
def test_singular_vectors_rebuild_the_matrix(m: int, n: int, rank: int, full: bool, kind: str) -> None:
    a = (RNG.standard_normal((2, m, rank)) @ RNG.standard_normal((2, rank, n))).astype(dtype(kind).numpy)
    b = GraphBuilder()
    graph = b.build(b.svd(b.input("a", kind, a.shape), full_matrices=full, compute_uv=True))
    s, u, vt = Engine(graph).run([a])
    k = min(m, n)
    assert np.abs(s - np.linalg.svd(a)[1]).max() < CLOSE[kind]
    assert np.abs(u[..., :k] @ (s[..., None] * vt[:, :k]) - a).max() < CLOSE[kind]
    for q in (u, vt.swapaxes(1, 2)):
        assert np.abs(q.swapaxes(1, 2) @ q - np.eye(q.shape[-1])).max() < CLOSE[kind]


# -- files and refusals --------------------------------------------------------------------------


def test_external_weights(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    b = GraphBuilder()
    x, w = b.input("x", "f32", (2, 64)), floats(64, 64)
    graph = b.build(b.matmul(x, b.weight("w", w)))
    for external in (True, True, False):
        path = tmp_path / "model.onnx"
        save_onnx(graph, path, external=external)
        a = floats(2, 64)
        (result,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": a})
        assert difference(result, a @ w, 10) is None
    assert (tmp_path / "model.onnx.data").stat().st_size < 3 * w.nbytes
    monkeypatch.setattr("unigraph.converters.onnx.session.EXTERNAL_ABOVE", 100)
    agrees(graph, [floats(2, 64)])


def test_everything_unsupported_is_reported_at_once() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", (4, 4))
    with b.at("head", "model.py:3"):
        _, d, *_ = b.tridiagonal(x, lower=True)
        _, d2, *_ = b.tridiagonal(b.add(x, x), lower=True)
    (t,) = b.schur(x, vectors=False)
    with pytest.raises(UnsupportedError) as error:
        to_onnx(b.build((b.add(d, d2), t)))
    text = str(error.value)
    assert "tridiagonal (x2)" in text and "schur (x1)" in text and "head (model.py:3)" in text


def test_a_newer_operator_raises_the_opset_or_says_so() -> None:
    b = GraphBuilder()
    graph = b.build(b.bitcast(b.input("x", "f32", (2,)), dtype="i32"))
    assert to_onnx(graph).opset_import[0].version == 26
    with pytest.raises(UnsupportedError, match="opset 26"):
        to_onnx(graph, opset=23)
    with pytest.raises(InputError, match="opset"):
        to_onnx(graph, opset=9)


def test_an_unbound_weight_is_an_error() -> None:
    b = GraphBuilder()
    from unigraph.types import TensorType

    graph = b.build(b.neg(b.weight("w", type=TensorType("f32", (2,)))))
    with pytest.raises(InputError, match="'w'"):
        to_onnx(graph)


@pytest.mark.parametrize("kind", ["bf16", "f8e4m3fn", "u4", "i4", "u32", "f16"])
def test_dtypes_at_the_interface(kind: str) -> None:
    b = GraphBuilder()
    graph = b.build(b.concatenate(*[b.input(n, kind, (3,)) for n in "xy"], axis=0))
    x = np.array([1, 2, 3]).astype(dtype(kind).numpy)
    (result,) = Engine(graph).run([x, x])
    assert result.dtype == x.dtype and np.array_equal(result, np.concatenate([x, x]))


def test_unsigned_sort_keys_leave_the_places_alone() -> None:
    """u32 keys are sorted in i64: only they are cast back, the places stay i64."""
    b = GraphBuilder()
    keys, payload = b.input("keys", "u32", (4,)), b.input("payload", "f32", (4,))
    graph = b.build(b.sort(keys, payload, axis=0, num_keys=1))
    agrees(graph, [np.array([2**32 - 1, 3, 2**31, 0], np.uint32), np.arange(4, dtype=np.float32)])
