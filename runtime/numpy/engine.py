"""The reference engine: NumPy on the CPU, no framework needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unigraph.errors import EngineError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph, Value

from ..arrays import memory, writable
from ..hoist import hoist
from .table import TABLE


def devices() -> list[str]:
    """The CPU, always."""
    return ["cpu"]


class Engine:
    """A graph prepared for the NumPy table."""

    native = "numpy"

    def __init__(self, graph: Graph, device: str | None = None):
        if device not in (None, "cpu"):
            raise EngineError(f"the numpy engine runs on cpu, not {device!r}; use engine='torch' or 'jax'")
        graph, self._data = hoist(graph, TABLE, load_data(graph, TABLE))
        self._program = Program(graph, TABLE)
        held = (*self._data.values(), *self._program.constants.values())
        self._held = frozenset(memory(x) for x in held if isinstance(x, np.ndarray))

    def take(self, x: np.ndarray) -> np.ndarray:
        """The array itself."""
        return x

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> Sequence[Any]:
        """Results as NumPy arrays that the caller may write to."""
        results = self._program.run(inputs, {**self._data, **states} if states else self._data)
        return [self._own(np.asarray(x)) for x in results]

    def _own(self, x: np.ndarray) -> np.ndarray:
        return x.copy() if memory(x) in self._held else writable(x)
