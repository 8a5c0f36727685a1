"""Training steps written in torch, captured as graphs and replayed elsewhere; program files of torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unigraph as ug

STEPS = 20
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005, momentum=0.5),
}


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))


def batches() -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 5, generator=generator), torch.randint(0, 3, (8,), generator=generator)) for _ in range(STEPS)
    ]


def training_step(net: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def replayed(graph: ug.Graph, engine: str, data: list[tuple[Any, Any]]) -> tuple[list[float], dict[str, Any]]:
    f, losses, states = ug.compile(graph, engine), [], {}
    for x, y in data:
        loss, states = f.step(x, y, states=states)
        losses.append(float(loss))
    return losses, states


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_an_optimizer(name: str, tmp_path: Path) -> None:
    net, data = network(), batches()
    step = training_step(net, OPTIMIZERS[name](net.parameters()))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    ug.from_torch(step, data[0]).save(tmp_path / "step.ugraph")
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items()), "a capture trains nothing"
    graph = ug.load(tmp_path / "step.ugraph")
    wanted = [float(step(x, y)) for x, y in data]
    for engine in ("jax", "torch", "numpy"):
        losses, states = replayed(graph, engine, data)
        np.testing.assert_allclose(losses, wanted, atol=1e-5, err_msg=engine)
        for key, value in net.state_dict().items():
            found = next(v for k, v in states.items() if k.endswith(key))
            np.testing.assert_allclose(found, value, atol=1e-4, err_msg=f"{engine}: {key}")


def test_gradients_by_hand() -> None:
    net, data = network(), batches()
    names = list(dict(net.named_parameters()))

    def step(parameters: dict[str, Any], x: Any, y: Any) -> Any:
        parameters = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        loss = torch.nn.functional.cross_entropy(torch.func.functional_call(net, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, [parameters[k] for k in names])
        return {k: (parameters[k] - 0.1 * g).detach() for k, g in zip(names, gradients)}, loss.detach()

    start = {k: v.detach().clone() for k, v in net.named_parameters()}
    graph = ug.from_torch(step, (start, *data[0]))
    wanted, parameters = [], start
    for x, y in data:
        parameters, loss = step(parameters, x, y)
        wanted.append(float(loss))
    for engine in ("jax", "numpy"):
        f, losses, parameters = ug.compile(graph, engine), [], start
        for x, y in data:
            parameters, loss = f(parameters, x, y)
            losses.append(float(loss))
        np.testing.assert_allclose(losses, wanted, atol=1e-5, err_msg=engine)


# -- files -------------------------------------------------------------------------------------------


def test_an_exported_program_from_a_file(tmp_path: Path) -> None:
    net, x = network().eval(), torch.ones(2, 5)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    graph = ug.from_torch(tmp_path / "net.pt2")
    assert set(graph.weights) == set(net.state_dict())
    np.testing.assert_allclose(ug.run(graph, x, engine="numpy"), net(x).detach(), rtol=1e-5)


def test_torchscript_from_a_file(tmp_path: Path) -> None:
    net, x = network().eval(), torch.ones(2, 5)
    torch.jit.trace(net, (x,)).save(str(tmp_path / "net.pt"))
    graph = ug.from_torch(tmp_path / "net.pt", (x,))
    np.testing.assert_allclose(ug.run(graph, x, engine="jax"), net(x).detach(), rtol=1e-5)


def test_files_that_hold_no_program(tmp_path: Path) -> None:
    with pytest.raises(ug.InputError, match="there is no file"):
        ug.from_torch(tmp_path / "none.pt2")
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(ug.UnigraphError, match=r"bad\.pt2"):
        ug.from_torch(tmp_path / "bad.pt2")
