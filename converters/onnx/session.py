"""Running a graph with ONNX Runtime."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from unigraph.dtypes import dtype
from unigraph.errors import EngineError
from unigraph.graph import Graph, Value
from unigraph.runtime.arrays import writable

from .export import EXTERNAL_ABOVE, _Export, weight_bytes

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Moves quantisation past a Reshape with a zero point of the wrong type, so that an int8 model does not load (1.32).
_BROKEN = ["QDQPropagationTransformer"]


def devices() -> list[str]:
    """The devices that the installed ONNX Runtime has a provider for."""
    found = onnxruntime.get_available_providers()
    return [device for device, provider in _PROVIDERS.items() if provider in found]


class Engine:
    """A graph exported to ONNX and loaded into ONNX Runtime.

    ``device`` is ``cpu`` or None; others need an ONNX Runtime built for them.
    Raises UnsupportedError for a graph that ONNX cannot express, EngineError for a device that is not there.
    """

    native = "numpy"

    def __init__(self, graph: Graph, device: str | None = None, opset: int | None = None):
        kind, _, index = str(device or "cpu").partition(":")
        if kind not in devices():
            raise EngineError(f"the onnx engine has no device {device!r} here; it has {', '.join(devices())}")
        provider = (_PROVIDERS[kind], {"device_id": int(index or 0)} if kind == "cuda" else {})
        self.graph = graph
        export = _Export(graph, opset, plain=True)
        self._inputs = [i.name for i in export.inputs]
        self._carried = [np.dtype(_numpy(i)) for i in export.inputs]
        self._results = [np.dtype(v.type.dtype.numpy) for v in graph.results]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Products with dequantised weights in f32: by default the runtime quantises what they are multiplied with.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        self._session = _session(export.model, options, provider)
        self._names = [o.name for o in self._session.get_outputs()]

    def take(self, x: np.ndarray) -> np.ndarray:
        """The array itself."""
        return x

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> list[np.ndarray]:
        """Outputs, then the new value of each state, for NumPy inputs in the graph's order.

        A key is its uint32 data. ``states`` replaces the data that the graph holds for its states.
        Raises EngineError naming the node that failed.
        """
        given = {**self.graph.data, **states} if states else self.graph.data
        held = [given[s] for s, _ in self.graph.states]
        feed = {
            name: _carried(np.asarray(x), kind)
            for name, kind, x in zip(self._inputs, self._carried, (*inputs, *held), strict=True)
        }
        try:
            results = self._session.run(self._names, feed)
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise EngineError(f"the onnx engine failed: {error}") from error
        return [writable(_result(np.asarray(r), kind)) for r, kind in zip(results, self._results, strict=True)]


def _session(
    model: Any, options: onnxruntime.SessionOptions, provider: tuple[str, dict[str, int]]
) -> onnxruntime.InferenceSession:
    """A session over the model; one too big for a single message goes through a folder."""
    if weight_bytes(model) <= EXTERNAL_ABOVE:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=[provider], disabled_optimizers=_BROKEN
        )
    import onnx

    with tempfile.TemporaryDirectory(prefix="unigraph-onnx-") as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save_model(model, path, save_as_external_data=True, location="model.data", size_threshold=1024)
        return onnxruntime.InferenceSession(path, options, providers=[provider], disabled_optimizers=_BROKEN)


def _carried(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    """An argument as it travels: a complex one with its two parts in a last axis."""
    if x.dtype == kind and x.flags.c_contiguous:
        return x
    shape = x.shape
    if x.dtype.kind == "c":
        x, shape = np.ascontiguousarray(x).view(x.real.dtype), (*shape, 2)
    return np.ascontiguousarray(x.astype(kind, copy=False)).reshape(shape)


def _result(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    if x.dtype == kind and x.dtype.num == kind.num:
        return x
    if kind.kind == "c":
        return np.ascontiguousarray(x).view(kind)[..., 0]
    # The view turns ONNX Runtime's unsigned long long into the uint64 that everybody else means.
    return x.astype(kind, copy=False).view(kind)


def _numpy(info: Any) -> Any:
    from .dtypes import FROM_ONNX

    return dtype(FROM_ONNX[info.type.tensor_type.elem_type]).numpy
