"""The JAX engine: the graph as one jitted function, on CPU, CUDA or TPU, with 64-bit types exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import EngineError, UnigraphError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph, Value

from ..hoist import hoist
from .table import TABLE

_PLATFORMS = {"cuda": "gpu"}  # what JAX calls them


def devices() -> list[str]:
    """Devices JAX can use here."""
    found = [f"{'cuda' if d.platform == 'gpu' else d.platform}:{d.id}" for d in jax.devices()]
    return ["cpu", *(d for d in found if not d.startswith("cpu"))]


def jax_device(device: str | None) -> Any:
    """The JAX device of that name. Raises EngineError when JAX cannot use it here."""
    platform, _, index = (device or "cpu").partition(":")
    try:
        return jax.devices(_PLATFORMS.get(platform, platform))[int(index or 0)]
    except (RuntimeError, IndexError, ValueError):
        raise EngineError(
            f"device {device!r} is not available: JAX {jax.__version__} can use {', '.join(devices())}"
        ) from None


def from_numpy(x: np.ndarray) -> Any:
    """A JAX array of exactly this dtype (64-bit types are not narrowed), with memory of its own."""
    with jax.enable_x64(True):
        return jax.numpy.array(x)


def wrap_key(words: Any, dtype: DType) -> Any:
    """A typed key array from its uint32 words."""
    return jax.random.wrap_key_data(words, impl=dtype.name[4:-1])


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
        self._places = {self._device}
        with jax.enable_x64(True), jax.default_device(self._device):
            data = {v: jax.device_put(x, self._device) for v, x in load_data(graph, TABLE).items()}
            graph, self._data = hoist(graph, TABLE, data)
            program = Program(graph, TABLE)
        held = list(self._data)

        def function(data: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
            return program.run(inputs, dict(zip(held, data, strict=True)))

        # XLA may keep the result of a short float in more bits than it has; the other engines do not.
        exact = {"xla_allow_excess_precision": False}
        self._function = function if has_data_sizes(graph) else jax.jit(function, compiler_options=exact)

    def take(self, x: np.ndarray) -> Any:
        """The array itself: it goes to the device together with the others."""
        return x

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> Sequence[Any]:
        """Results as JAX arrays on the device of the engine."""
        data = list({**self._data, **states}.values()) if states else list(self._data.values())
        with jax.enable_x64(True), jax.default_device(self._device):
            try:
                return self._function(data, [x if self._here(x) else jax.device_put(x, self._device) for x in inputs])
            except UnigraphError:
                raise
            except (jax.errors.JaxRuntimeError, ValueError, TypeError) as error:
                raise EngineError(f"the jax engine failed: {error}") from error

    def _here(self, x: Any) -> bool:
        """Whether the compiled function takes this array as it is: asking costs far less than a transfer of nothing."""
        return type(x) is np.ndarray or x.devices() == self._places
