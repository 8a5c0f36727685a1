"""The torch engine: eager torch on CPU or CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unigraph.errors import EngineError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph

from .table import TABLE

native = "torch"


def devices() -> list[str]:
    """Devices torch can use here."""
    return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]


def torch_device(device: str | None) -> torch.device:
    """The torch device of that name. Raises EngineError when torch cannot use it here."""
    try:
        found = torch.device(device or "cpu")
    except RuntimeError as error:
        raise EngineError(f"{device!r} is not a device torch knows; here it can use {', '.join(devices())}") from error
    if found.type == "cuda" and (not torch.cuda.is_available() or (found.index or 0) >= torch.cuda.device_count()):
        raise EngineError(f"device {device!r} is not available: torch {torch.__version__} sees {', '.join(devices())}")
    return found


class Engine:
    """A graph prepared for the torch table on one device; weights are moved there once."""

    native = "torch"

    def __init__(self, graph: Graph, device: str | None = None):
        self._device = torch_device(device)
        self._program = Program(graph, TABLE)
        self._data = {v: x.to(self._device) for v, x in load_data(graph, TABLE).items()}
        self._data.update({v: x.to(self._device) for v, x in self._program.constants.items()})

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Results as torch tensors on the device of the engine."""
        with torch.no_grad(), self._device:
            return self._program.run([x.to(self._device) for x in inputs], self._data)


