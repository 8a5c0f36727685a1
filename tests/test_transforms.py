"""Transforms of graphs agree with the transforms of the functions they came from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.converters import transforms as t
from unigraph.converters.jaxpr import from_jax, to_jax
from unigraph.converters.jaxpr.compat import enable_x64
from unigraph.errors import InputError
from unigraph.runtime.engines import compile

from .test_from_jax import MLP, agree, arr, mlp


def loss(params: Any, x: Any) -> Any:
    return (mlp(params, x)[:, 0] ** 2).sum()


X = arr(5, 4)


def graph() -> Any:
    return from_jax(loss, MLP, X, weights=0)


def run(g: Any, *args: Any, **kwargs: Any) -> Any:
    return compile(g, "numpy")(*args, **kwargs)


def test_grad_of_weights_by_name() -> None:
    g = graph()
    gradient = t.grad(g)
    assert list(gradient.weights) == list(g.weights)
    assert gradient.weights["params.out.kernel"] is g.weights["params.out.kernel"]
    theirs = jax.grad(loss)(MLP, X)
    ours = run(gradient, X)
    agree(ours["params.dense.kernel"], theirs["dense"]["kernel"])
    agree(ours["params.dense.bias"], theirs["dense"]["bias"])


def test_value_and_grad_of_an_input() -> None:
    value, gradient = run(t.value_and_grad(graph(), wrt="x"), X)
    agree((value, gradient), jax.value_and_grad(loss, 1)(MLP, X))


def test_grad_is_differentiable_again() -> None:
    g = from_jax(lambda x: jnp.sin(x) ** 3, np.float32(0.7))
    agree(run(t.grad(t.grad(g)), np.float32(0.7)), jax.grad(jax.grad(lambda x: jnp.sin(x) ** 3))(np.float32(0.7)))


def test_jvp() -> None:
    tangent = arr(5, 4)
    ours = run(t.jvp(graph(), wrt="x"), X, tangents=tangent)
    agree(ours, jax.jvp(lambda x: loss(MLP, x), (X,), (tangent,)))


def test_hessian() -> None:
    def fn(x: Any) -> Any:
        return jnp.prod(jnp.sin(x))

    x = arr(3)
    agree(run(t.hessian(from_jax(fn, x), wrt="x"), x), jax.hessian(fn)(x), 100)


def test_vmap() -> None:
    g = t.vmap(graph())
    assert str(g.inputs[0].type) == "f32[vmap_size,5,4]"
    many = np.stack([X, X * 2, X - 1])
    agree(run(g, many), jax.vmap(lambda x: loss(MLP, x))(many))
    g = t.vmap(from_jax(lambda x, y: x * y, X, X), in_axes={"x": 1}, size=3)
    agree(run(g, np.stack([X] * 3, 1), X), np.stack([X * X] * 3))


def test_vmap_of_keys() -> None:
    g = t.vmap(from_jax(lambda k: jax.random.normal(k, (2,)), jax.random.key(0)), size=3)
    keys = jax.random.split(jax.random.key(1), 3)
    agree(to_jax(g)[0]({}, keys), jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys))


def test_checkpoint() -> None:
    g = t.checkpoint(graph())
    assert [e.op.name for e in g.edges].count("remat") == 1
    agree(run(g, X), loss(MLP, X))


def test_symbolic_sizes_survive() -> None:
    g = from_jax(loss, MLP, X, weights=0, dynamic={"x": ("batch", None)})
    gradient = t.grad(g, wrt="x")
    assert str(gradient.inputs[0].type) == "f32[batch,4]"
    for n in (1, 6):
        x = arr(n, 4)
        agree(run(gradient, x), jax.grad(loss, 1)(MLP, x))


def test_states_survive() -> None:
    b = GraphBuilder("counter")
    x = b.input("x", "f32", ())
    total = b.state("total", np.float32(1))
    new = b.add(total, x)
    b.update(total, new)
    g = t.grad(b.build(b.mul(new, new)), wrt="x")
    out, states = compile(g, "numpy").step(np.float32(2))
    agree((out, states["total"]), (np.float32(6), np.float32(3)))


def test_64_bit_types_are_kept() -> None:
    with enable_x64():
        g = from_jax(lambda x: (x * x).sum(), np.arange(3.0))
    assert str(t.grad(g).outputs[0].type) == "f64[3]"


def test_refusals() -> None:
    with pytest.raises(InputError, match="scalar"):
        t.grad(from_jax(lambda x: x, arr(3)))
    with pytest.raises(InputError, match="no weight or input 'z'"):
        t.grad(graph(), wrt="z")
    with pytest.raises(InputError, match="no derivative"):
        t.grad(from_jax(lambda i: i.sum() * 1.0, np.arange(3)), wrt="i")
