"""ONNX's backend suite: every case imported, saved, loaded, run on an engine, judged by the suite's tolerances."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import unigraph as ug

ENGINES = ("numpy", "torch", "jax")
KINDS = ("simple", "pytorch-operator", "pytorch-converted", "node")
RTOL, ATOL = 1e-3, 1e-7  # the suite's own


@lru_cache(maxsize=None)
def _tests(kind: str) -> dict[str, Any]:
    return {t.name: t for t in load_model_tests(kind=kind)}


def cases(kinds: tuple[str, ...] = KINDS) -> Iterator[str]:
    """Names of all cases, ``kind/name``."""
    for kind in kinds:
        for name in sorted(_tests(kind)):
            yield f"{kind}/{name}"


def group(case: str) -> str:
    """The kind a case belongs to."""
    return case.partition("/")[0]


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised."""
    kind, _, name = case.partition("/")
    test = _tests(kind)[name]
    model = test.model if test.model is not None else onnx.load(Path(test.model_dir) / "model.onnx")
    graph = ug.from_onnx(model)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "case.ugraph")
        compiled = ug.compile(ug.load(Path(folder) / "case.ugraph"), engine)
        for inputs, expected in _data(test, model):
            given = [np.asarray(x) for x in inputs[: len(graph.inputs)]]
            reason = _differ(compiled(*given), expected)
            if reason:
                return reason
    return None


def _data(test: Any, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    if test.data_sets is not None:
        yield from test.data_sets
        return
    held = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in held]
    for folder in sorted(Path(test.model_dir).glob("test_data_set_*")):
        yield (
            [_read(folder / f"input_{k}.pb", v.type) for k, v in enumerate(inputs)],
            [_read(folder / f"output_{k}.pb", v.type) for k, v in enumerate(model.graph.output)],
        )


def _read(path: Path, kind: onnx.TypeProto) -> Any:
    proto = onnx.SequenceProto() if kind.HasField("sequence_type") else onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    return numpy_helper.to_list(proto) if isinstance(proto, onnx.SequenceProto) else numpy_helper.to_array(proto)


def _differ(actual: Any, expected: Any) -> str | None:
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        pairs = zip(a, e, strict=True) if isinstance(a, list) else [(a, e)]
        for x, y in pairs:
            x, y = np.asarray(x), np.asarray(y)
            if x.dtype != y.dtype or x.shape != y.shape:
                return f"output {index} is {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
            if x.dtype.kind in "fV":
                x, y = x.astype(np.float64), y.astype(np.float64)
            if not np.allclose(x, y, rtol=RTOL, atol=ATOL, equal_nan=True):
                return f"output {index} differs by {np.max(np.abs(x - y))}"
    return None
