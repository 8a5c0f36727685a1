"""Graphs given back to JAX: pure functions that jit, differentiate, vmap and export."""

from __future__ import annotations

import subprocess
import sys
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


def test_exported_modules_are_stablehlo_that_loads_again() -> None:
    """Free sizes in and out: what jax.export writes needs nothing of the graph."""
    graph = from_jax(mlp, MLP, arr(5, 4), weights=0, dynamic={"x": ("n", None)})
    fn, params = to_jax(graph)
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("batch, 4"), np.float32)
    shapes = jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), params)
    exported = jax.export.export(jax.jit(fn))(shapes, spec)
    again = jax.export.deserialize(exported.serialize(vjp_order=1))
    assert "stablehlo.dot_general" in again.mlir_module()
    for n in (1, 3):
        x = arr(n, 4)
        agree(again.call(params, x), mlp(MLP, x))
        wanted = jax.grad(lambda p, x: (mlp(p, x) ** 2).sum())(MLP, x)
        found = jax.grad(lambda p, x: (again.call(p, x) ** 2).sum())(params, x)
        agree(found["params.dense.kernel"], wanted["dense"]["kernel"], 100)


def test_results_have_free_sizes() -> None:
    """A capture of the function given back has the sizes of the first."""
    graph = from_jax(lambda x, y: jnp.concatenate([x, y]) * 2, arr(2), arr(3), dynamic={"x": ("n",), "y": ("2*n + 1",)})
    fn, params = to_jax(graph)
    again = from_jax(lambda x, y: fn(params, x, y), arr(2), arr(5), dynamic={"x": ("n",), "y": ("2*n + 1",)})
    assert [str(v.type) for v in again.outputs] == [str(v.type) for v in graph.outputs] == ["f32[3*n + 1]"]
    x, y = arr(4), arr(9)
    agree(jax.jit(fn)(params, x, y), np.concatenate([x, y]) * 2)


def test_every_transform_at_once() -> None:
    """jit of vmap of grad of a checkpointed function under vmap of its weights too."""
    graph = from_jax(lambda p, x: jax.checkpoint(loss)(p, x), MLP, arr(5, 4), weights=0)
    fn, params = to_jax(graph)
    many = jax.tree.map(lambda w: np.stack([w, w * 2]), params)
    x = np.stack([arr(5, 4), arr(5, 4) + 1])
    found = jax.jit(jax.vmap(jax.grad(fn)))(many, x)
    for i in range(2):
        alone = jax.grad(fn)({k: w[i] for k, w in many.items()}, x[i])
        agree({k: g[i] for k, g in found.items()}, alone, 100)
    assert "remat" in str(jax.make_jaxpr(fn)(params, x[0]))
    primal, pull = jax.vjp(fn, params, x[0])
    pushed = jax.jvp(lambda x: fn(params, x), (x[0],), (x[1],))[1]
    agree(pushed, (pull(jnp.ones_like(primal))[1] * x[1]).sum(), 1000)


WIDE = """
import sys
import numpy as np, jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", sys.argv[1] == "on")
import unigraph as ug
graph = ug.load(sys.argv[2])
x = np.array([1.5, 2.5])
fn, params = ug.to_jax(graph)
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    y, n = fn(params, x)
on = sys.argv[1] == "on"
assert (y.dtype, n.dtype) == ((jnp.float64, jnp.int64) if on else (jnp.float32, jnp.int32)), (y, n)
assert any("jax_enable_x64 is off" in str(w.message) for w in told) is (not on), told
y, n = ug.run(graph, x, engine="jax")  # the engine keeps 64 bits whatever the user's setting
assert (np.asarray(y).dtype, np.asarray(n).dtype) == (np.float64, np.int64)
assert jax.config.jax_enable_x64 is on
assert np.asarray(y).tobytes() == (x / 3 + 1e-12).tobytes()
again = ug.from_jax(lambda x: fn(params, x), x)
assert again.outputs[0].type.dtype.name == ("f64" if on else "f32")
"""


@pytest.mark.parametrize("setting", ["on", "off"])
def test_64_bits_follow_the_setting_of_the_user(setting: str, tmp_path: Any) -> None:
    with enable_x64():
        graph = from_jax(lambda x: (x / 3 + 1e-12, jnp.argmax(x).astype(jnp.int64)), np.array([1.5, 2.5]))
    graph.save(tmp_path / "wide.ugraph")
    command = [sys.executable, "-c", WIDE, setting, str(tmp_path / "wide.ugraph")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
