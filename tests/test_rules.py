"""Functions with derivative rules of their own: carried, and used by every framework that differentiates."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.builder import GraphBuilder

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
jnp = jax.numpy

X = np.array([0.3, -2.0, 5.0], np.float32)


@jax.custom_vjp
def clipped(x: Any, limit: Any) -> Any:
    """The identity, whose gradient is clipped."""
    return x


clipped.defvjp(lambda x, limit: (x, limit), lambda limit, g: (jnp.clip(g, -limit, limit), None))


@jax.custom_vjp
def straight(x: Any) -> Any:
    """Rounding, through which gradients go as they are."""
    return jnp.round(x)


straight.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))


@jax.custom_vjp
def keeps(x: Any, y: Any) -> Any:
    """A product whose rule keeps values of its own, and doubles."""
    return jnp.sin(x) * y


keeps.defvjp(
    lambda x, y: (jnp.sin(x) * y, (jnp.cos(x), jnp.sin(x), y)), lambda r, g: (2 * g * r[0] * r[2], 2 * g * r[1])
)


@jax.custom_jvp
def guarded(x: Any) -> Any:
    """A square root with the slope 0 at 0; its rule calls it again."""
    return jnp.sqrt(x)


@guarded.defjvp
def _(primals: Any, tangents: Any) -> Any:
    y = guarded(primals[0])
    return y, jnp.where(y > 0, tangents[0] / (2 * jnp.where(y > 0, y, 1)), 0)


@jax.custom_jvp
def mixed(x: Any, n: Any) -> Any:
    """An integer goes in and one comes out."""
    return x * n, n + 1


@mixed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, n = primals
    return mixed(x, n), (tangents[0] * n * 5, np.zeros(n.shape, jax.dtypes.float0))


TABLE = jnp.arange(6000, dtype=jnp.float32).reshape(2000, 3) / 1000


@jax.custom_vjp
def looked_up(x: Any) -> Any:
    """Reads an array from outside, which becomes a weight."""
    return (TABLE * x).sum(0)


looked_up.defvjp(lambda x: (looked_up(x), x), lambda x, g: (TABLE[0] + g * x,))


def loop(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = clipped(carry * row, 0.1)
        return carry, straight(carry)

    last, ys = jax.lax.scan(step, x, jnp.arange(1.0, 37.0, dtype=jnp.float32).reshape(12, 3) / 10)
    return (last**2).sum() + ys.sum()


# name -> a function of one vector to a scalar
PROGRAMS = {
    "gradient clipping": lambda x: (clipped(x, 0.5) ** 2).sum(),
    "straight through": lambda x: (straight(x) ** 2 * x).sum(),
    "residuals": lambda x: (keeps(x, x + 1) ** 2).sum(),
    "residuals once": lambda x: keeps(x, x + 1).sum(),
    "guarded": lambda x: (guarded(jnp.abs(x) - jnp.abs(x)[0]) * x).sum(),
    "mixed": lambda x: mixed(x, jnp.arange(3))[0].sum() * mixed(x, jnp.arange(3))[1].sum(),
    "outside": lambda x: looked_up(x).sum(),
    "scan": loop,
    "sinc at 0": lambda x: jnp.sinc(x - x[0]).sum(),
    "logaddexp": lambda x: jnp.logaddexp(jnp.stack([x, jnp.full(3, -jnp.inf)]), -jnp.inf)[0].sum(),
    "xlogy": lambda x: jax.scipy.special.xlogy(x - x[0], jnp.abs(x)).sum(),
    "relu6": lambda x: (jax.nn.relu6(x - x[0]) * x).sum(),
}


@pytest.fixture(scope="module")
def graphs() -> dict[str, ug.Graph]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no rule is lost
        return {name: ug.from_jax(fn, X) for name, fn in PROGRAMS.items()}


def gradient(module: Any, x: Any = X) -> np.ndarray:
    x = torch.tensor(x, requires_grad=True)
    module(x).backward()
    assert x.grad is not None
    return x.grad.numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_rule_decides_the_gradient(graphs: Any, name: str, tmp_path: Any) -> None:
    fn, graph = PROGRAMS[name], graphs[name]
    graph.save(tmp_path / "g.ugraph")
    graph = ug.parse(ug.load(tmp_path / "g.ugraph").text()) if not graph.weights else ug.load(tmp_path / "g.ugraph")
    for engine in ("numpy", "torch", "jax", "onnx"):
        np.testing.assert_allclose(ug.run(graph, X, engine=engine), fn(X), rtol=2e-5, err_msg=engine)
    wanted = jax.grad(fn)(jnp.asarray(X))
    for form in (graph, ug.optimize(graph, level=2)):
        back, params = ug.to_jax(form)
        np.testing.assert_allclose(jax.jit(jax.grad(back, argnums=1))(params, X), wanted, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(gradient(ug.to_torch(form)), wanted, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(ug.run(ug.grad(graph, "x"), X, engine="numpy"), wanted, rtol=2e-5, atol=1e-6)


def test_edges_come_back_as_what_they_were(graphs: Any) -> None:
    assert {e.op.name for e in graphs["guarded"].edges} & {"custom_jvp", "custom_vjp"} == {"custom_jvp"}
    for name, word in (("guarded", "custom_jvp_call"), ("residuals", "custom_vjp_call")):
        back, params = ug.to_jax(graphs[name])
        assert word in str(jax.make_jaxpr(lambda x: back(params, x))(X))  # noqa: B023  called at once
    again = ug.from_jax(lambda x: ug.to_jax(graphs["residuals"])[0]({}, x), X)
    assert [e.op.name for e in again.edges] == [e.op.name for e in graphs["residuals"].edges]


@pytest.mark.parametrize("name", ["residuals once", "guarded", "sinc at 0"])
def test_second_derivatives(graphs: Any, name: str) -> None:
    wanted = jax.jacrev(jax.grad(PROGRAMS[name]))(X)
    back, _ = ug.to_jax(graphs[name])
    np.testing.assert_allclose(jax.jacrev(jax.grad(lambda x: back({}, x)))(X), wanted, rtol=1e-4, atol=1e-5)
    module = ug.to_torch(graphs[name])
    x = torch.tensor(X, requires_grad=True)
    (first,) = torch.autograd.grad(module(x), x, create_graph=True)
    rows = [torch.autograd.grad(g, x, retain_graph=True)[0].numpy() for g in first]
    np.testing.assert_allclose(np.stack(rows), wanted, rtol=1e-4, atol=1e-5)


def test_forward_derivatives(graphs: Any) -> None:
    for name in ("guarded", "mixed", "sinc at 0"):
        wanted = jax.jvp(PROGRAMS[name], (X,), (X + 1,))[1]
        back, _ = ug.to_jax(graphs[name])
        np.testing.assert_allclose(jax.jvp(lambda x: back({}, x), (X,), (X + 1,))[1], wanted, rtol=1e-5)  # noqa: B023
        _, moved = torch.func.jvp(ug.to_torch(graphs[name]), (torch.tensor(X),), (torch.tensor(X + 1),))
        np.testing.assert_allclose(moved, wanted, rtol=1e-5)


def test_vmap_of_gradients(graphs: Any) -> None:
    many = np.stack([X, X * 2])
    for name in ("residuals", "guarded", "gradient clipping"):
        wanted = jax.vmap(jax.grad(PROGRAMS[name]))(many)
        back, _ = ug.to_jax(graphs[name])
        np.testing.assert_allclose(jax.vmap(jax.grad(lambda x: back({}, x)))(many), wanted, rtol=1e-5)  # noqa: B023
        found = torch.func.vmap(torch.func.grad(ug.to_torch(graphs[name])))(torch.tensor(many))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_torch_module_compiles_exports_and_copies(graphs: Any) -> None:
    for name in ("residuals", "guarded", "mixed", "outside"):
        module = ug.to_torch(graphs[name])
        wanted = gradient(module)
        compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
        np.testing.assert_allclose(gradient(compiled), wanted, rtol=1e-6)
        np.testing.assert_allclose(gradient(copy.deepcopy(module)), wanted, rtol=1e-6)
        np.testing.assert_allclose(gradient(pickle.loads(pickle.dumps(module))), wanted, rtol=1e-6)
        exported = torch.export.export(module, (torch.tensor(X),))
        torch.testing.assert_close(exported.module()(torch.tensor(X)), module(torch.tensor(X)))


def test_complex_gradients_follow_each_framework() -> None:
    @jax.custom_vjp
    def turned(z: Any) -> Any:
        return z * (2 + 1j)

    turned.defvjp(lambda z: (z * (2 + 1j), None), lambda _, g: (g * (3 - 2j),))

    def fn(z: Any) -> Any:
        w = turned(z)
        return (w.real * 2 + w.imag * 3).sum()

    z = (X + 1j * X[::-1]).astype(np.complex64)
    graph = ug.from_jax(fn, z)
    wanted = jax.grad(fn)(jnp.asarray(z))
    back, _ = ug.to_jax(graph)
    np.testing.assert_allclose(jax.grad(lambda z: back({}, z))(jnp.asarray(z)), wanted, rtol=1e-6)
    np.testing.assert_allclose(gradient(ug.to_torch(graph), z), np.conj(wanted), rtol=1e-6)


def test_free_sizes() -> None:
    graph = ug.from_jax(lambda x: keeps(x, guarded(x)), X, dynamic={"x": ("n",)})
    back, _ = ug.to_jax(graph)
    module = ug.to_torch(graph)
    for n in (1, 4):
        x = np.linspace(0.5, 2, n).astype(np.float32)
        wanted = jax.grad(lambda x: keeps(x, guarded(x)).sum())(x)
        np.testing.assert_allclose(jax.grad(lambda x: back({}, x).sum())(x), wanted, rtol=1e-5)
        np.testing.assert_allclose(gradient(lambda x: module(x).sum(), x), wanted, rtol=1e-5)


def test_a_rule_that_cannot_be_carried_is_told() -> None:
    @jax.custom_vjp
    def logged(x: Any) -> Any:
        return jnp.sin(x)

    def backward(x: Any, g: Any) -> Any:
        return (jax.pure_callback(np.cos, x, x) * g,)

    logged.defvjp(lambda x: (jnp.sin(x), x), backward)
    with pytest.warns(UserWarning, match=r"logged \(pure_callback: calls back into Python"):
        graph = ug.from_jax(logged, X)
    np.testing.assert_allclose(ug.run(graph, X, engine="numpy"), np.sin(X), rtol=1e-6)


def test_a_rule_with_unknown_operations_does_not_hinder_running() -> None:
    """The ONNX engine has no eigendecomposition, but only the rule needs one."""

    @jax.custom_vjp
    def plain(x: Any) -> Any:
        return x * 2

    plain.defvjp(lambda x: (x * 2, x), lambda x, g: (g + jnp.linalg.eigvals(jnp.outer(x, x)).real,))
    graph = ug.from_jax(plain, X)
    for engine in ("onnx", "numpy"):
        np.testing.assert_allclose(ug.run(graph, X, engine=engine), X * 2)


def test_by_hand() -> None:
    """Rules of one's own, with the builder alone."""
    b = GraphBuilder("doubled")
    x = b.input("x", "f32", (3,))
    (y,) = b.custom_jvp(
        x,
        name="square",
        body=lambda b, x: b.mul(x, x),
        jvp=lambda b, x, dx: b.mul(b.mul(x, dx), 4.0),
        vjp=lambda b, x, g: b.mul(b.mul(x, g), 4.0),
    )
    graph = b.build(y)
    module = ug.to_torch(graph)
    assert "self.square_0(x)" in module.code
    np.testing.assert_allclose(gradient(lambda x: module(x).sum()), 4 * X)
    back, _ = ug.to_jax(graph)
    np.testing.assert_allclose(jax.grad(lambda x: back({}, x).sum())(X), 4 * X)
