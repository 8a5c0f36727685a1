"""ONNX models in training mode: fine-tuned in torch and in JAX, then back in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("torch", "jax", "onnx", "onnxruntime"):
    pytest.importorskip(package)

import jax
import jax.numpy as jnp
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

import unigraph as ug

STEPS, RATE = 5, 0.1
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((STEPS, 4, 2, 6, 6)).astype(np.float32)
TARGETS = RNG.standard_normal((STEPS, 4, 3)).astype(np.float32)


def model(*middle: Any) -> onnx.ModelProto:
    """Convolution, BatchNormalization, ``middle`` from ``h`` to ``d`` (nothing: they are one), Relu, mean, Gemm."""
    rng = np.random.default_rng(1)
    shapes = {"conv.w": (5, 2, 3, 3), "bn.scale": (5,), "bn.bias": (5,), "fc.w": (5, 3), "fc.b": (3,)}
    held = {k: rng.standard_normal(shape).astype(np.float32) * np.float32(0.5) for k, shape in shapes.items()}
    held |= {"bn.mean": np.zeros(5, np.float32), "bn.var": np.ones(5, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "conv.w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["h"], momentum=0.9),
        *middle,
        helper.make_node("Relu", ["d" if middle else "h"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.w", "fc.b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, ["batch", 2, 6, 6])],
        [helper.make_tensor_value_info("y", 1, ["batch", 3])],
        [numpy_helper.from_array(a, k) for k, a in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def tuned_in_torch(graph: ug.Graph) -> tuple[list[float], dict[str, np.ndarray]]:
    module = ug.to_torch(graph)
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=RATE), []
    for x, y in zip(torch.from_numpy(IMAGES), torch.from_numpy(TARGETS)):
        optimizer.zero_grad()
        (found,) = module(x)
        loss = ((found - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, {k: v.numpy().copy() for k, v in module.state_dict().items()}


def tuned_in_jax(graph: ug.Graph) -> tuple[list[float], dict[str, np.ndarray]]:
    f, held = ug.to_jax(graph)
    states = {v.name for v, _ in graph.states}

    def loss(weights: Any, state: Any, x: Any, y: Any) -> Any:
        (found,), new = f({**weights, **state}, x)
        return ((found - y) ** 2).mean(), new

    weights = {k: v for k, v in held.items() if k not in states}
    state = {k: v for k, v in held.items() if k in states}
    losses = []
    for x, y in zip(IMAGES, TARGETS):
        (value, state), slopes = jax.value_and_grad(loss, has_aux=True)(weights, state, x, y)
        weights = jax.tree.map(lambda w, g: jnp.asarray(w) - RATE * g, weights, slopes)
        losses.append(float(value))
    return losses, {k: np.asarray(v) for k, v in (weights | state).items()}


def by_hand() -> tuple[list[float], Any]:
    """The same network and steps in torch itself."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 5, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(5),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(5, 3),
    )
    held = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in model().graph.initializer}
    with torch.no_grad():
        net[0].weight.copy_(held["conv.w"])
        net[1].weight.copy_(held["bn.scale"])
        net[1].bias.copy_(held["bn.bias"])
        net[5].weight.copy_(held["fc.w"].T)
        net[5].bias.copy_(held["fc.b"])
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=RATE), []
    for x, y in zip(torch.from_numpy(IMAGES), torch.from_numpy(TARGETS)):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses, net


def test_fine_tuning_and_back(tmp_path: Path) -> None:
    graph = ug.from_onnx(model(), training=True)
    assert {v.name for v, _ in graph.states} == {"bn.mean", "bn.var"}
    wanted, net = by_hand()
    in_torch, held = tuned_in_torch(graph)
    in_jax, same = tuned_in_jax(graph)
    np.testing.assert_allclose(in_torch, wanted, rtol=1e-5)
    np.testing.assert_allclose(in_jax, wanted, rtol=1e-5)
    assert held.keys() == same.keys()
    for name in held:
        np.testing.assert_allclose(held[name], same[name], atol=1e-5, err_msg=name)
    np.testing.assert_allclose(held["bn.mean"], net[1].running_mean, atol=1e-5)
    assert not np.allclose(held["bn.var"], 1)
    plain = ug.from_onnx(model())
    tuned = plain.bind({k: v for k, v in held.items() if k in plain.weights})
    onnx.save(ug.to_onnx(tuned), tmp_path / "tuned.onnx")
    (found,) = onnxruntime.InferenceSession(str(tmp_path / "tuned.onnx")).run(None, {"x": IMAGES[0]})
    np.testing.assert_allclose(found, ug.run(tuned, IMAGES[0], engine="numpy")[0], rtol=1e-4, atol=1e-5)


def test_dropout_drops_in_training_only() -> None:
    dropping = model(helper.make_node("Dropout", ["h"], ["d"]))
    assert len(ug.from_onnx(dropping).inputs) == 1
    graph = ug.from_onnx(dropping, training=True)
    f = ug.compile(graph, "numpy")
    a, b, again = (f(IMAGES[0], seed=s)[0] for s in (0, 1, 0))
    assert not np.allclose(a, b) and np.array_equal(a, again)


def test_what_cannot_be_trained_is_named() -> None:
    shared = helper.make_node("BatchNormalization", ["h", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["d"])
    with pytest.raises(ug.UnsupportedError, match=r"share the running statistic 'bn\.mean'"):
        ug.from_onnx(model(shared), training=True)
    computed = helper.make_node("BatchNormalization", ["h", "bn.scale", "bn.bias", "bn.bias", "m"], ["d"])
    with pytest.raises(ug.UnsupportedError, match="running statistics are no initializers"):
        ug.from_onnx(model(helper.make_node("Abs", ["bn.var"], ["m"]), computed), training=True)
