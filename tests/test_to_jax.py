"""Graphs given back to JAX: pure functions that jit, differentiate, vmap and export."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.converters.jaxpr import from_jax, to_jax
from unigraph.converters.jaxpr.compat import enable_x64
from unigraph.errors import InputError

from .test_from_jax import MLP, agree, arr, attention, mlp, rnn


def loss(params: Any, x: Any) -> Any:
    return (mlp(params, x)[:, 0] ** 2).sum()


def test_params_keep_names_and_gradients_agree() -> None:
    x = arr(5, 4)
    fn, params = to_jax(from_jax(loss, MLP, x, weights=0))
    assert set(params) == {"params.dense.kernel", "params.dense.bias", "params.out.kernel"}
    ours = jax.jit(jax.grad(fn))(params, x)
    theirs = jax.grad(loss)(MLP, x)
    agree(ours["params.dense.kernel"], theirs["dense"]["kernel"])
    agree(ours["params.out.kernel"], theirs["out"]["kernel"])


@pytest.mark.parametrize("fn, args", [(attention, (arr(2, 5, 2, 4),) * 3), (rnn, (arr(4, 4), arr(6, 4)))])
def test_transforms_of_the_function(fn: Any, args: Any) -> None:
    back, _ = to_jax(from_jax(fn, *args))

    def total(f: Any) -> Any:
        return lambda *xs: sum(jnp.sum(v**2) for v in jax.tree_util.tree_leaves(f(*xs)))

    agree(jax.grad(total(lambda *xs: back({}, *xs)))(*args), jax.grad(total(fn))(*args), 100)
    many = [np.stack([a, a + 1]) for a in args]
    agree(jax.vmap(lambda *xs: back({}, *xs))(*many), jax.vmap(fn)(*many))


def test_export_with_symbolic_sizes() -> None:
    graph = from_jax(lambda x: jax.nn.softmax(x @ MLP["dense"]["kernel"]).sum(0), arr(5, 4), dynamic={"x": ("n", None)})
    fn, params = to_jax(graph)
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("m, 4"), np.float32)
    exported = jax.export.export(jax.jit(lambda x: fn(params, x)))(spec)
    x = arr(7, 4)
    agree(exported.call(x), fn(params, x))


def test_keys_in_every_form() -> None:
    fn, _ = to_jax(from_jax(lambda k, x: x + jax.random.normal(k, x.shape), jax.random.key(0), arr(3)))
    x, key = arr(3), jax.random.key(7)
    expected = x + jax.random.normal(key, (3,))
    for form in (key, jax.random.key_data(key), np.asarray(jax.random.key_data(key)), 7):
        agree(fn({}, form, x), expected)
    with pytest.raises(InputError, match="random key"):
        fn({}, np.zeros(3, np.float32), x)


def test_added_key_is_a_keyword() -> None:
    b = GraphBuilder("noisy")
    x = b.input("x", "f32", (3,))
    key = b.key()
    bits = b.rng_bits(key, shape=(3,), dtype="u32")
    graph = b.build(b.add(x, b.convert(bits, dtype="f32")))
    from unigraph.tree import DICT, LEAF, TUPLE, Signature, Tree

    graph = graph.replace(signature=Signature(Tree(TUPLE, (Tree(LEAF),)), Tree(DICT), Tree(LEAF), ("x",)))
    fn, _ = to_jax(graph)
    v = arr(3)
    agree(fn({}, v, key=5), v + jax.random.bits(jax.random.key(5), (3,)).astype("float32"))
    with pytest.raises(InputError, match="key"):
        fn({}, v)


def test_states_are_returned() -> None:
    b = GraphBuilder("counter")
    x = b.input("x", "f32", (2,))
    total = b.state("total", np.ones(2, np.float32))
    new = b.add(total, x)
    b.update(total, new)
    fn, params = to_jax(b.build(b.mul(new, new)))
    out, states = jax.jit(fn)(params, np.ones(2, np.float32))
    agree((out, states["total"]), (np.full(2, 4, np.float32), np.full(2, 2, np.float32)))


def test_narrowing_is_said_once() -> None:
    with enable_x64():
        graph = from_jax(lambda x: x * 2, np.arange(3, dtype=np.float64))
    fn, _ = to_jax(graph)
    with pytest.warns(UserWarning, match="input 'x'"):
        assert fn({}, np.ones(3)).dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn({}, np.ones(3))
        with enable_x64():
            assert fn({}, np.ones(3)).dtype == np.float64


def test_wrong_calls() -> None:
    fn, params = to_jax(from_jax(loss, MLP, arr(5, 4), weights=0))
    with pytest.raises(InputError, match="axis 1 must have size 4"):
        fn(params, arr(5, 3))
    with pytest.raises(InputError, match="convert"):
        fn(params, np.zeros((5, 4), np.int32))
    with pytest.raises(InputError, match="params lacks"):
        fn({}, arr(5, 4))
