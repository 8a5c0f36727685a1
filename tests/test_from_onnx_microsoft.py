"""The ``com.microsoft`` and ``ai.onnx.ml`` rows of the importer, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unigraph as ug

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper

RNG = np.random.default_rng(0)
KINDS = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int32): 6, np.dtype(np.int64): 7}


def f(*shape: int, scale: float = 0.5) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def i32(*values: int) -> np.ndarray:
    return np.asarray(values, np.int32)


def check(
    op: str,
    inputs: list[np.ndarray | None],
    outputs: int = 1,
    domain: str = "com.microsoft",
    held: Any = (),
    **attrs: Any,
) -> None:
    """One node gives on NumPy what ONNX Runtime gives; inputs in ``held`` are initializers."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], domain=domain, **attrs)
    given = {f"i{k}": x for k, x in enumerate(inputs) if x is not None}
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info(k, KINDS[x.dtype], x.shape) for k, x in given.items() if k not in held],
        [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)],
        [numpy_helper.from_array(given[k], k) for k in held],
    )
    imports = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("com.microsoft", 1),
        helper.make_opsetid("ai.onnx.ml", 3),
    ]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    feeds = {k: x for k, x in given.items() if k not in held}
    expected = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    actual = ug.compile(ug.from_onnx(model), "numpy")(*feeds.values())
    for a, e in zip(actual, expected, strict=True):
        assert np.asarray(a).shape == e.shape
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


def test_products() -> None:
    check("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], transA=1, transB=1, alpha=0.5)
    packed, scales = RNG.integers(0, 256, (6, 2, 8), dtype=np.uint8), f(12)
    check("MatMulNBits", [f(3, 32), packed, scales], held=("i1", "i2"), K=32, N=6, bits=4, block_size=16)
    zeros = RNG.integers(0, 256, (6,), dtype=np.uint8)
    check("MatMulNBits", [f(3, 32), packed, scales, zeros], held=("i1", "i2", "i3"), K=32, N=6, bits=4, block_size=16)


@pytest.mark.parametrize("op", ["Gelu", "QuickGelu", "FastGelu", "BiasGelu"])
def test_activations(op: str) -> None:
    check(op, [f(2, 3, 4), f(4)] if op in ("FastGelu", "BiasGelu") else [f(2, 3, 4)])


def test_norms() -> None:
    x, skip, gamma, beta, bias = f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)
    check("SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], epsilon=1e-5)
    check("SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1)
    ids, segments, mask = (RNG.integers(0, 2, (2, 3)).astype(np.int32) for _ in range(3))
    tables = [f(5, 8), f(4, 8), f(2, 8), gamma, beta]
    check("EmbedLayerNormalization", [ids, segments, *tables, mask], outputs=2)


def test_attention() -> None:
    x, w, b = f(2, 3, 8), f(8, 24), f(24)
    check("Attention", [x, w, b], num_heads=2)
    check("Attention", [x, w, b, np.ones((2, 3), np.int32)], num_heads=2, unidirectional=1)
    check("Attention", [x, w, b, i32(2, 3)], num_heads=2)
    past = f(2, 2, 2, 4, 4)
    check("Attention", [x, w, b, None, past], outputs=2, num_heads=2, unidirectional=1)


def test_multi_head_attention() -> None:
    q, k, v = f(2, 3, 8), f(2, 5, 8), f(2, 5, 8)
    check("MultiHeadAttention", [q, k, v], num_heads=2)
    mask = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    check("MultiHeadAttention", [q, k, v, f(24), mask], num_heads=2)


def test_rotary() -> None:
    cos, sin = f(16, 4), f(16, 4)
    places = np.asarray([[0, 1, 2], [4, 5, 6]], np.int64)
    for interleaved in (0, 1):
        check("RotaryEmbedding", [f(2, 3, 16), places, cos, sin], interleaved=interleaved)
    check("RotaryEmbedding", [f(2, 2, 3, 8), np.asarray([3], np.int64), cos, sin])


@pytest.mark.parametrize("past", [0, 4])
def test_group_query_attention(past: int) -> None:
    q, k, v = f(1, 3, 64), f(1, 3, 32), f(1, 3, 32)
    kept = [f(1, 2, past, 16), f(1, 2, past, 16)]
    total = past + 3
    inputs = [q, k, v, *kept, i32(total - 1), i32(total)]
    check("GroupQueryAttention", inputs, outputs=3, held=("i5", "i6"), num_heads=4, kv_num_heads=2)
    caches = [f(16, 8), f(16, 8)]
    check(
        "GroupQueryAttention",
        [*inputs, *caches],
        outputs=3,
        held=("i5", "i6"),
        num_heads=4,
        kv_num_heads=2,
        do_rotary=1,
    )


# -- ai.onnx.ml --------------------------------------------------------------------------------------

ML = "ai.onnx.ml"


def test_linear_models_and_scalers() -> None:
    x = f(4, 3)
    check("LinearRegressor", [x], domain=ML, coefficients=[0.5, -1.0, 2.0], intercepts=[0.25], targets=1)
    check("Scaler", [x], domain=ML, offset=[0.1, 0.2, 0.3], scale=[2.0, 3.0, 4.0])
    for norm in ("L1", "L2", "MAX"):
        check("Normalizer", [np.abs(x)], domain=ML, norm=norm)
    check(
        "LinearClassifier",
        [x],
        outputs=2,
        domain=ML,
        coefficients=f(9).tolist(),
        intercepts=f(3).tolist(),
        classlabels_ints=[3, 5, 7],
        multi_class=1,
        post_transform="SOFTMAX",
    )


TREES = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 0, 1, 0, 0, 2, 0, 0],
    "nodes_values": [0.1, 0.0, -0.2, 0.0, 0.0, 0.3, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
}


def test_tree_regressor() -> None:
    weights = {
        "target_treeids": [0, 0, 0, 1, 1],
        "target_nodeids": [1, 3, 4, 1, 2],
        "target_ids": [0, 1, 0, 1, 0],
        "target_weights": [0.5, 1.5, -2.0, 0.75, 3.0],
    }
    x = f(8, 3)
    check("TreeEnsembleRegressor", [x], domain=ML, n_targets=2, **TREES, **weights)


def test_tree_classifier() -> None:
    x = f(8, 3)
    owners = {"class_treeids": [0, 0, 0, 1, 1], "class_nodeids": [1, 3, 4, 1, 2]}
    weights = [0.5, 1.5, -2.0, 0.75, 3.0]
    check(
        "TreeEnsembleClassifier",
        [x],
        outputs=2,
        domain=ML,
        classlabels_int64s=[4, 8, 9],
        class_ids=[0, 1, 2, 1, 0],
        class_weights=weights,
        **TREES,
        **owners,
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_binary_tree_classifier(transform: str) -> None:
    x, weights = f(8, 3), [0.5, 1.5, -2.0, 0.75, 3.0]
    owners = {"class_treeids": [0, 0, 0, 1, 1], "class_nodeids": [1, 3, 4, 1, 2]}
    check(
        "TreeEnsembleClassifier",
        [x],
        outputs=2,
        domain=ML,
        classlabels_int64s=[0, 1],
        class_ids=[0, 0, 0, 0, 0],
        class_weights=weights,
        post_transform=transform,
        **TREES,
        **owners,
    )
