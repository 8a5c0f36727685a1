"""The torch and JAX engines on a CUDA device; skipped where there is none."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.graph import Graph
from unigraph.runtime.engines import engine_module

from . import harness

pytestmark = pytest.mark.cuda
HIDDEN, HEADS = 32, 4
# Matrix products and long sums are taken in another order than on the CPU.
SCALE = 10.0


@cache
def lacking(engine: str) -> str:
    """Why an engine cannot use CUDA here, or an empty string."""
    try:
        devices = engine_module(engine).devices()
    except ug.UnigraphError as error:
        return str(error)
    return (
        "" if any(d.startswith("cuda") for d in devices) else f"{engine} sees no CUDA device: only {', '.join(devices)}"
    )


@pytest.fixture(params=["torch", "jax"])
def engine(request: pytest.FixtureRequest) -> str:
    if lacking(request.param):
        pytest.skip(lacking(request.param))
    return str(request.param)


@pytest.mark.parametrize("name", list(harness.by_name()))
def test_every_example_on_torch(name: str) -> None:
    if lacking("torch"):
        pytest.skip(lacking("torch"))
    op, example = harness.by_name()[name]
    known = harness.gaps("torch")
    if name in known or op.name in known:
        pytest.skip(known.get(name) or known[op.name])
    actual = harness.run(op, example, "torch", "cuda")
    assert harness.compare(actual, harness.reference(name), SCALE) is None


def block() -> Graph:
    """A transformer block over a free batch and length."""
    b = ug.GraphBuilder("block")
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        return b.weight(name, (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    def heads(x: Any) -> Any:
        split = b.reshape(x, shape=("batch", "length", HEADS, HIDDEN // HEADS))
        return b.transpose(split, permutation=(0, 2, 1, 3))

    x = b.input("x", "f32", ("batch", "length", HIDDEN))
    h = b.layer_norm(x, weight("norm.weight", HIDDEN), weight("norm.bias", HIDDEN), normalized_rank=1)
    q, k, v = (heads(b.linear(h, weight(name, HIDDEN, HIDDEN))) for name in ("q", "k", "v"))
    mixed = b.transpose(b.attention(q, k, v, is_causal=True), permutation=(0, 2, 1, 3))
    x = b.add(x, b.linear(b.reshape(mixed, shape=("batch", "length", HIDDEN)), weight("out", HIDDEN, HIDDEN)))
    wide = b.gelu(b.linear(x, weight("up", 4 * HIDDEN, HIDDEN)), approximate="tanh")
    return b.build(b.add(x, b.linear(wide, weight("down", HIDDEN, 4 * HIDDEN))))


X = np.random.default_rng(1).standard_normal((2, 7, HIDDEN)).astype(np.float32)


def test_block_on_the_cpu_engines() -> None:
    """The block itself is right, so that a failure below is one of the device."""
    pytest.importorskip("torch")
    np.testing.assert_allclose(ug.run(block(), X, engine="torch"), ug.run(block(), X, engine="numpy"), atol=1e-5)


def test_transformer_block(engine: str) -> None:
    expected = ug.run(block(), X, engine="numpy")
    f = ug.compile(block(), engine, "cuda")
    result = f(X)
    assert type(result) is np.ndarray
    np.testing.assert_allclose(result, expected, atol=1e-3)
    np.testing.assert_allclose(f(X[:1, :3]), ug.run(block(), X[:1, :3], engine="numpy"), atol=1e-3)


def test_results_come_back(engine: str) -> None:
    """Arrays of the engine's own framework stay on the device; others come back as they went in."""
    f = ug.compile(block(), engine, "cuda")
    if engine == "torch":
        torch = pytest.importorskip("torch")
        assert f(torch.from_numpy(X)).is_cuda and f(torch.from_numpy(X).cuda()).is_cuda
        return
    jax = pytest.importorskip("jax")
    assert next(iter(f(jax.numpy.asarray(X)).devices())).platform == "gpu"


def test_made_from_nothing(engine: str) -> None:
    """Operations without operands make their arrays on the device."""
    b = ug.GraphBuilder("counting")
    x = b.input("x", "i32", (5,))
    g = b.build(b.add(x, b.iota(dtype="i32", shape=(5,), axis=0)))
    np.testing.assert_array_equal(ug.run(g, np.ones(5, np.int32), engine=engine, device="cuda"), np.arange(1, 6))


def test_random_stream_is_the_same(engine: str) -> None:
    b = ug.GraphBuilder("random")
    g = b.build(b.rng_bits(b.key(), shape=(1000,), dtype="u32"))
    np.testing.assert_array_equal(ug.run(g, 3, engine=engine, device="cuda"), ug.run(g, 3, engine="numpy"))
