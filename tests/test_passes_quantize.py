"""Quantize: weights in 8 bits, and products in whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph

from .pass_graphs import B, ops

RNG = np.random.default_rng(2)
ENGINES = ("numpy", "torch", "jax", "onnx")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> Graph:
    """An embedding tied to the last layer, a convolution, a kernel stored [in, out], a small layer."""
    b = B()
    tokens = b.input("tokens", "i32", ("n",))
    table = b.weight("table", normal(40, 64))
    h = b.embedding(table, tokens)
    h = b.relu(b.linear(h, b.weight("up", normal(96, 64)), b.weight("bias", normal(96))))
    h = b.linear(h, b.transpose(b.weight("down", normal(96, 64)), permutation=(1, 0)))
    h = b.add(h, b.mul(b.matmul(h, b.weight("square", normal(64, 64))), 0.1))
    image = b.reshape(h, shape=("n", 4, 16))
    image = b.conv(
        image, b.weight("kernel", normal(64, 4, 5)), strides=(1,), low=(2,), high=(2,), dilation=(1,), groups=1
    )
    h = b.mean(image, axes=(2,))
    return b.build((b.linear(h, table), b.linear(h, b.weight("small", normal(3, 64)))))


TOKENS = np.array([0, 39, 7, 7, 21], np.int32)


def close(actual: Any, expected: Any) -> float:
    """The cosine between two results, over all elements."""
    a, e = (np.concatenate([np.ravel(x) for x in y]).astype(np.float64) for y in (actual, expected))
    return float(a @ e / np.linalg.norm(a) / np.linalg.norm(e))


def test_weights_in_8_bits_on_every_engine() -> None:
    graph = network()
    new = passes.quantize(graph)
    ug.check(new)
    held = {v.name: v.type.dtype.name for v in new.data if v.name}
    assert [n for n, d in held.items() if d == "i8"] == ["table", "up", "down", "square", "kernel"]
    assert held["small"] == held["bias"] == held["table_scale"] == "f32"
    expected = ug.compile(graph, "numpy")(TOKENS)
    reference = ug.compile(new, "numpy")(TOKENS)
    assert 0.999 < close(reference, expected) < 1
    for engine in ENGINES[1:]:
        assert 1 - close(ug.compile(new, engine)(TOKENS), reference) < 1e-9


def test_products_in_whole_numbers_on_every_engine() -> None:
    graph = network()
    new = passes.quantize(graph, mode="dynamic", skip=["up"])
    ug.check(new)
    # The table is read by an embedding too, "square" by a matmul, "small" is small, "up" is skipped.
    assert [v.name for v in new.data if v.type.dtype.name == "i8"] == ["down"]
    assert ops(new).count("quantized_linear") == 1 and "transpose" in ops(new)
    expected = ug.compile(graph, "numpy")(TOKENS)
    for engine in ENGINES:
        assert 0.999 < close(ug.compile(new, engine)(TOKENS), expected) < 1


def test_the_weights_are_what_they_are_rounded_to(tmp_path: Any) -> None:
    b = B()
    w = normal(32, 64)
    w[3] = 0
    graph = b.build(b.linear(b.input("x", "f32", ("n", 64)), b.weight("w", w)))
    new = passes.quantize(graph)
    scale = np.abs(w).max(axis=1, keepdims=True) / 127
    got = ug.compile(new, "numpy")(np.eye(64, dtype=np.float32)).T
    assert np.all(np.abs(got - w) <= scale / 2 * 1.001) and np.array_equal(got[3], w[3])
    graph.save(tmp_path / "a.ugraph")
    new.save(tmp_path / "b.ugraph")
    assert np.asarray(ug.load(tmp_path / "b.ugraph").weights["w"]).nbytes == w.size
    module = ug.to_torch(new)
    assert set(module.state_dict()) == {"w", "w_scale"} and not list(module.parameters())


def test_refusals() -> None:
    graph = network()
    with pytest.raises(ug.InputError, match="mode must be one of weight, dynamic, not 'static'"):
        passes.quantize(graph, mode="static")
    with pytest.raises(ug.InputError, match="skip='upp' is no weight"):
        passes.quantize(graph, skip=["upp"])
    unbound = graph.replace(data={v: None if v.name == "up" else a for v, a in graph.data.items()})
    with pytest.raises(ug.InputError, match="weight 'up' holds no data"):
        passes.quantize(unbound)
    assert passes.quantize(graph, min_size=1 << 20) is graph
