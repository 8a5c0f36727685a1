"""ONNX's backend suite: every case imported, saved, loaded, run on an engine, judged by the suite's tolerances."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import unigraph as ug
from unigraph.errors import UnsupportedError

ENGINES = ("numpy", "torch", "jax")
KINDS = ("simple", "pytorch-operator", "pytorch-converted", "node")
RTOL, ATOL = 1e-3, 1e-7  # the suite's own


@cache
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
    held = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in held]
    for inputs, expected in _data(test, model):
        given = {k: _array(x) for k, x in zip(names, inputs)}
        graph, fixed = _imported(model, given)
        with tempfile.TemporaryDirectory() as folder:
            graph.save(Path(folder) / "case.ugraph")
            compiled = ug.compile(ug.load(Path(folder) / "case.ugraph"), engine)
            actual = compiled(*(given[k] for k in names if k not in fixed), seed=0)
        reason = _differ(actual, [_array(x) for x in expected])
        if reason:
            return reason
    return None


def _imported(model: onnx.ModelProto, given: dict[str, Any]) -> tuple[ug.Graph, dict[str, Any]]:
    """The graph, and the inputs fixed at import: those that the importer says decide a rank or an axis.

    The shapes of sequences and optionals are told as a user would.
    """
    shapes = {i.name: _structure(given[i.name]) for i in model.graph.input if not i.type.HasField("tensor_type")}
    fixed: dict[str, Any] = {}
    while True:
        try:
            return ug.from_onnx(model, shapes=shapes, values=fixed), fixed
        except UnsupportedError as error:
            advice = [
                name for text in re.findall(r"values=\{(.*?)\}", str(error)) for name in re.findall(r"'(.+?)': ", text)
            ]
            if not advice or set(advice) <= fixed.keys():
                raise
            fixed.update({name: given[name] for name in advice})


def _structure(x: Any) -> Any:
    return None if x is None else [y.shape for y in x] if isinstance(x, list) else x.shape


def _array(x: Any) -> Any:
    """A tensor as the suite gives it (an array, or a proto for short element types), as an array."""
    if isinstance(x, list):
        return [_array(y) for y in x]
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return None if x is None else np.asarray(x)


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
    proto = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(
        kind.WhichOneof("value"), onnx.TensorProto
    )()
    proto.ParseFromString(path.read_bytes())
    return numpy_helper.to_list(proto) if isinstance(proto, onnx.SequenceProto) else _array(proto)


def _differ(actual: Any, expected: Any) -> str | None:
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if e is None or a is None:
            if e is not a:
                return f"output {index} is {a}, expected {e}"
            continue
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
