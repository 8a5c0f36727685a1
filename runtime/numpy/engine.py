"""The reference engine: NumPy on the CPU, no framework needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unigraph.errors import EngineError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph

from .table import TABLE

native = "numpy"


def devices() -> list[str]:
    """The CPU, always."""
    return ["cpu"]


class Engine:
    """A graph prepared for the NumPy table."""

    native = "numpy"

    def __init__(self, graph: Graph, device: str | None = None):
        if device not in (None, "cpu"):
            raise EngineError(f"the numpy engine runs on cpu, not {device!r}; use engine='torch' or 'jax'")
        self._program = Program(graph, TABLE)
        self._data = load_data(graph, TABLE)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Results as NumPy arrays."""
        return self._program.run(inputs, self._data)
