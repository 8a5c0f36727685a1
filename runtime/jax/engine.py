"""The JAX engine: the graph as one jitted function, on CPU, CUDA or TPU, with 64-bit types exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from unigraph.errors import EngineError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph

from .table import TABLE

native = "jax"


def devices() -> list[str]:
    """Devices JAX can use here."""
    found = [f"{d.platform}:{d.id}" for d in jax.devices()]
    return found if any(d.startswith("cpu") for d in found) else ["cpu", *found]


def jax_device(device: str | None) -> Any:
    """The JAX device of that name. Raises EngineError when JAX cannot use it here."""
    platform, _, index = (device or "cpu").partition(":")
    try:
        return jax.devices("gpu" if platform == "cuda" else platform)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        raise EngineError(
            f"device {device!r} is not available: JAX {jax.__version__} sees {', '.join(devices())}"
        ) from error


def from_numpy(x: np.ndarray) -> Any:
    """A JAX array of exactly this dtype (64-bit types are not narrowed)."""
    with jax.enable_x64(True):
        return jax.numpy.asarray(x)


def has_data_sizes(graph: Graph) -> bool:
    """Whether some size is known only once data is (nonzero, sized): XLA cannot compile such a graph."""
    given = set().union(*(v.type.symbols() for v in graph.inputs)) if graph.symbols else set()
    return any(v.type.symbols() - given for op in graph.edges for v in op.outputs if not v.type.is_static)


class Engine:
    """A graph compiled by ``jax.jit``, once for each set of input shapes.

    A graph with sizes that depend on data runs operation by operation instead.
    """

    native = "jax"

    def __init__(self, graph: Graph, device: str | None = None):
        self._device = jax_device(device)
        with jax.enable_x64(True):
            program = Program(graph, TABLE)
            data = load_data(graph, TABLE)
            self._values = list(data)
            self._data = [jax.device_put(x, self._device) for x in data.values()]

        def function(data: Sequence[Any], *inputs: Any) -> tuple[Any, ...]:
            return program.run(inputs, dict(zip(self._values, data, strict=True)))

        self._function = function if has_data_sizes(graph) else jax.jit(function)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Results as JAX arrays on the device of the engine."""
        with jax.enable_x64(True):
            return self._function(self._data, *(jax.device_put(x, self._device) for x in inputs))
