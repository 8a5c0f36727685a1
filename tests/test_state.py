"""Programs that write to their buffers: states of the graph, over several calls, on every engine and in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import unigraph as ug
from unigraph.errors import GraphError
from unigraph.graph import Graph

from . import harness

STEPS = 4


class Norms(torch.nn.Module):
    """Batch norms in training mode, one of them with a cumulative average."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1)
        self.norm = torch.nn.BatchNorm1d(6)
        self.plain = torch.nn.BatchNorm1d(6, affine=False, momentum=0.3)

    def forward(self, x: Any) -> Any:
        return self.last(self.plain(self.norm(self.first(x)).relu()))


class Cache(torch.nn.Module):
    """Attention over registered key and value caches, written at a position that is itself a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, 12)
        self.register_buffer("keys", torch.zeros(1, 8, 4))
        self.register_buffer("values", torch.zeros(1, 8, 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        q, k, v = self.project(x).chunk(3, -1)
        where = self.position + torch.arange(x.shape[1])
        self.keys.index_copy_(1, where, k)
        self.values.index_copy_(1, where, v)
        self.position.add_(x.shape[1])
        mask = torch.arange(8)[None] < self.position
        return torch.nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)


class Mixed(torch.nn.Module):
    """A slice written, a buffer replaced, a counter, and a buffer that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.zeros(5))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("smooth", torch.full((3,), 0.5), persistent=False)

    def forward(self, x: Any) -> Any:
        self.window[1:4] = x  # type: ignore[has-type]
        self.window = torch.roll(self.window, 1)  # type: ignore[has-type]
        self.count += 1
        self.smooth.mul_(0.5).add_(x)
        return self.window.sum() * self.count + self.smooth


class Average(torch.nn.Module):
    """A moving average of a trained weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inner_layer = torch.nn.Linear(3, 3)
        self.register_buffer("average", torch.zeros(3, 3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.average.lerp_(self.inner_layer.weight, 0.1)
        return self.inner_layer(x) @ self.average


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "norms": (Norms, (5, 4)),
    "cache": (Cache, (1, 2, 4)),
    "mixed": (Mixed, (3,)),
    "average": (Average, (2, 3)),
}


def case(name: str) -> tuple[Any, list[Any], Graph]:
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = make().train()
    inputs = [torch.randn(shape) for _ in range(STEPS)]
    return module, inputs, ug.from_torch(copy.deepcopy(module), (inputs[0],))


def buffers(module: Any) -> dict[str, Any]:
    return {n: t.detach().clone() for n, t in module.named_buffers()}


@pytest.mark.parametrize("engine", harness.ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_steps_on_engines(name: str, engine: str) -> None:
    module, inputs, graph = case(name)
    assert {s.name for s, _ in graph.states} == set(buffers(module))
    compiled, states = ug.compile(graph, engine), None
    for x in inputs:
        expected = module(x).detach()
        found, states = compiled.step(x, states=states)
        torch.testing.assert_close(torch.as_tensor(np.asarray(found)), expected, rtol=1e-5, atol=1e-5)
        for n, t in buffers(module).items():
            torch.testing.assert_close(torch.as_tensor(np.asarray(states[n])), t, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_the_torch_module(name: str) -> None:
    module, inputs, graph = case(name)
    start = {v: np.array(graph.data[v]) for v, _ in graph.states}
    made = ug.to_torch(graph)
    assert set(made.state_dict()) == set(module.state_dict())
    made.load_state_dict(module.state_dict())
    twin = copy.deepcopy(made)
    assert set(twin.state_dict()) == set(module.state_dict())
    compiled = torch.compile(ug.to_torch(graph), backend="aot_eager")
    exported = torch.export.export(ug.to_torch(graph), (inputs[0],)).module()
    for x in inputs:
        expected = module(x)
        for other in (made, twin, compiled, exported):
            torch.testing.assert_close(other(x), expected)
    for n, t in module.state_dict().items():
        torch.testing.assert_close(made.state_dict()[n], t)
    assert all(np.array_equal(graph.data[v], array) for v, array in start.items())  # the graph never changes


@pytest.mark.parametrize("name", CASES)
def test_steps_in_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    module, inputs, graph = case(name)
    fn, params = ug.to_jax(graph)
    fn = jax.jit(fn)
    for x in inputs:
        found, states = fn(params, x.numpy())
        params = {**params, **states}
        np.testing.assert_allclose(np.asarray(found), module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_training_with_states_follows_torch() -> None:
    module, inputs, graph = case("norms")
    made = copy.deepcopy(ug.to_torch(graph))
    losses: list[list[float]] = []
    for net in (module, made):
        torch.manual_seed(1)
        optimizer = torch.optim.Adam(net.parameters(), 0.05)
        losses.append([])
        for _ in range(5):
            for x in inputs:
                loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1].append(float(loss.detach()))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_what_no_checkpoint_holds(tmp_path: Path) -> None:
    module, inputs, graph = case("mixed")
    assert graph.transient == {"smooth"}
    graph.save(tmp_path / "g.ugraph", weights=False)
    checkpoint = {n: t.numpy() for n, t in module.state_dict().items()}
    bound = ug.load(tmp_path / "g.ugraph", weights=checkpoint)  # complete without it
    assert bound.transient == {"smooth"} and np.array_equal(bound.data[bound.value("smooth")], [0.5] * 3)
    assert ug.parse(graph.text(full=True)).transient == {"smooth"}
    assert str(ug.parse(str(graph))) == str(graph)
    assert all(ug.optimize(graph, level=n).transient == {"smooth"} for n in range(4))
    torch.testing.assert_close(ug.to_torch(bound)(inputs[0]), module(inputs[0]))
    with pytest.raises(GraphError, match="is called transient but is no state"):
        ug.check(graph.replace(transient=frozenset({"nothing"})))
    b = ug.GraphBuilder()
    big = b.state("big", np.ones((64, 64), np.float32), transient=True)
    b.update(big, b.neg(big))
    b.build(big).save(tmp_path / "b.ugraph", weights=False)
    loaded = ug.load(tmp_path / "b.ugraph", weights={})
    assert np.array_equal(loaded.data[loaded.value("big")], np.ones((64, 64)))


@pytest.mark.parametrize("training", (True, False))
def test_derivative_of_a_norm_with_one_number_repeated(training: bool) -> None:
    """torch reads past the end of such a vector in the derivative (its stride is 0)."""
    jax = pytest.importorskip("jax")
    b = ug.GraphBuilder("norm")
    x = b.input("x", "f32", (5, 6))
    ones = [b.broadcast_in_dim(b.buffer(n, np.float32(v)), shape=(6,), broadcast_dimensions=()) for n, v in _NUMBERS]
    y = (
        b.batch_norm_train(x, *ones, epsilon=1e-5, momentum=0.1)[0]
        if training
        else b.batch_norm(x, *ones, epsilon=1e-5)
    )
    graph = b.build(b.reduce_sum(b.mul(y, b.mul(y, y)), axes=(0, 1)))
    torch.manual_seed(0)
    given = torch.randn(5, 6, requires_grad=True)
    ug.to_torch(graph)(given).backward()
    fn, params = ug.to_jax(graph)
    expected = jax.grad(lambda x: fn(params, x))(given.detach().numpy())
    np.testing.assert_allclose(given.grad.numpy(), np.asarray(expected), rtol=1e-4, atol=1e-5)


_NUMBERS = (("mean", 0.1), ("variance", 0.9), ("weight", 2.0), ("bias", 0.5))
