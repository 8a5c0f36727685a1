"""The torch engine: eager torch on CPU or CUDA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from unigraph.errors import EngineError
from unigraph.evaluate import Program, load_data
from unigraph.graph import Graph, Value

from ..hoist import hoist
from .dtypes import bits, from_numpy, on_device, unbits
from .table import TABLE


def devices() -> list[str]:
    """Devices torch can use here."""
    return ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]


def torch_device(device: str | None) -> torch.device:
    """The torch device of that name. Raises EngineError when torch cannot use it here."""
    known = devices()
    try:
        found = torch.device(device or "cpu")
    except RuntimeError:
        raise EngineError(f"{device!r} is not a device torch knows; here it can use {', '.join(known)}") from None
    if found.type == "cuda" and found.index is None and len(known) > 1:
        found = torch.device("cuda", torch.cuda.current_device())
    if str(found) not in known:
        raise EngineError(f"device {device!r} is not available: torch {torch.__version__} can use {', '.join(known)}")
    return found


class Engine:
    """A graph prepared for the torch table on one device; weights are moved there once."""

    native = "torch"

    def __init__(self, graph: Graph, device: str | None = None):
        self._device = torch_device(device)
        held = {**load_data(graph, TABLE), **Program(graph, TABLE).constants}
        with torch.no_grad(), self._factories():
            graph, self._data = hoist(graph, TABLE, {v: on_device(x, self._device) for v, x in held.items()})
        self._program = Program(graph, TABLE)
        self._held = frozenset(place(x) for x in self._data.values()) - {0}

    def take(self, x: np.ndarray) -> torch.Tensor:
        """A tensor over the memory of ``x``, unless that is read-only."""
        return from_numpy(x, writable=True)

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> Sequence[Any]:
        """Results as torch tensors on the device of the engine, which the caller may write to."""
        data, device = self._data, self._device
        if states:
            data = {**data, **{v: on_device(x, device) for v, x in states.items()}}
        with torch.no_grad(), self._factories():
            results = self._program.run([on_device(x, device) for x in inputs], data)
            return [own(x, self._held) for x in results]

    def _factories(self) -> AbstractContextManager[Any]:
        """Rows that make tensors from nothing make them here. The context costs time at every torch
        function, so it is entered only when tensors would be made elsewhere."""
        return nullcontext() if torch.get_default_device() == self._device else self._device


def own(x: torch.Tensor, held: Set[int]) -> torch.Tensor:
    """``x``, or a copy where it shares memory with itself or with weights, which are at the places ``held``."""
    broadcast = 0 in x.stride() and any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))
    if not broadcast and place(x) not in held:
        return x
    return unbits(bits(x).clone(memory_format=torch.contiguous_format), x.dtype)


def place(x: torch.Tensor) -> int:
    """Where the memory of a tensor begins; 0 for one without any."""
    return x.untyped_storage().data_ptr()
