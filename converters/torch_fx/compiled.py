"""The ``torch.compile`` engine: the graph as a torch module, through torch's own compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from unigraph.errors import EngineError
from unigraph.graph import Graph, Value
from unigraph.runtime.torch.dtypes import from_numpy, on_device
from unigraph.runtime.torch.engine import devices, own, place, torch_device

from .export import to_torch

__all__ = ["Engine", "devices"]


class Engine:
    """A graph as a compiled module on one device. Weights are frozen into it; states travel with a call.

    Raises UnsupportedError for operations without a torch meaning, EngineError for a graph that torch
    cannot trace and for a device that is not there. The compiler runs at the first call.
    """

    native = "torch"

    def __init__(self, graph: Graph, device: str | None = None):
        self._device = torch_device(device)
        self._states = [state for state, _ in graph.states]
        self._held = {s: on_device(from_numpy(graph.data[s]), self._device) for s in self._states}
        rest = {v: a for v, a in graph.data.items() if v not in self._held}
        flat = graph.replace(
            inputs=(*graph.inputs, *self._states), outputs=graph.results, states=(), data=rest, signature=None
        )
        module = to_torch(flat).to(self._device).eval().requires_grad_(False)
        self._weights = frozenset(place(x) for x in module.state_dict().values()) - {0}
        self._run = torch.compile(module, options={"freezing": True})

    def take(self, x: np.ndarray) -> torch.Tensor:
        """A tensor over the memory of ``x``, unless that is read-only."""
        return from_numpy(x, writable=True)

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> Sequence[Any]:
        """Results as torch tensors on the device of the engine. Raises EngineError when the compiler fails."""
        held = {**self._held, **states} if states else self._held
        given = [on_device(x, self._device) for x in (*inputs, *(held[s] for s in self._states))]
        try:
            with torch.no_grad():
                results = self._run(*given)
        except Exception as error:  # the compiler's errors have no common base
            raise EngineError(f"the torch.compile engine failed: {type(error).__name__}: {error}") from error
        return [own(x, self._weights) for x in results]
