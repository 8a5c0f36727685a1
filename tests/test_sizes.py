"""Sizes that agree only for some values of their symbols are looked at when they are known."""

from __future__ import annotations

import numpy as np
import pytest

import unigraph as ug

ENGINES = ("numpy", "torch", "jax")


def _sum(first: bool) -> ug.Graph:
    b = ug.GraphBuilder()
    x, w = b.input("x", "f32", ("n", 3)), b.input("w", "f32", (3, 3))
    return b.build(b.add(x, w) if first else b.add(w, x))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", [True, False])
def test_a_size_of_one_does_not_broadcast(engine: str, first: bool) -> None:
    compiled = ug.compile(_sum(first), engine)
    w = np.ones((3, 3), np.float32)
    assert compiled(np.ones((3, 3), np.float32), w).shape == (3, 3)
    for n in (1, 2):
        with pytest.raises(ug.InputError, match="operands of one shape"):
            compiled(np.ones((n, 3), np.float32), w)


@pytest.mark.parametrize("engine", ("numpy", "torch", "jax", "onnx"))
def test_symbols_of_attributes_reach_decompositions(engine: str) -> None:
    """The sizes of one input decide how far another is resized; no engine needs a row of its own for that."""
    torch = pytest.importorskip("torch")

    def like(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=y.shape[2:], mode="nearest")

    x, y = torch.rand(1, 2, 4, 5), torch.rand(1, 1, 6, 7)
    graph = ug.from_torch(like, (x, y), dynamic=((None, None, "h", "w"), (None, None, "h2", "w2")))
    other = torch.rand(1, 1, 9, 3)
    assert torch.equal(ug.run(graph, x, other, engine=engine), like(x, other))
