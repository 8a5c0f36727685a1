"""ONNX's backend suite: every case imported, saved, loaded, run on an engine, judged by the suite's tolerances.

Two columns are more than an engine. ``roundtrip`` exports what was imported and runs it in ONNX Runtime, which has
to agree with the imported graph on NumPy. ``as_given`` imports without any input fixed by ``values=`` and runs NumPy.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import unigraph as ug
from unigraph.errors import UnsupportedError

ENGINES = ("numpy", "torch", "jax", "roundtrip", "as_given")
KINDS = ("simple", "pytorch-operator", "pytorch-converted", "node")
RTOL, ATOL = 1e-3, 1e-7  # the suite's own
SHORT = ("BFLOAT16", "FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2")
DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


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
    test, model = _case(case)
    held = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in held]
    for inputs, expected in _data(test, model):
        given = {k: _array(x) for k, x in zip(names, inputs)}
        graph, fixed = _imported(model, given)
        if engine == "as_given" and fixed:
            return f"values= for {', '.join(fixed)}"
        wanted = [_array(x) for x in expected]
        with tempfile.TemporaryDirectory() as folder:
            graph.save(Path(folder) / "case.ugraph")
            graph = ug.load(Path(folder) / "case.ugraph")
            passed = [given[k] for k in names if k not in fixed]
            if engine == "roundtrip":
                wanted = ug.compile(graph, "numpy")(*passed, seed=0)
            name = {"roundtrip": "onnx", "as_given": "numpy"}.get(engine, engine)
            reason = _differ(ug.compile(graph, name)(*passed, seed=0), wanted)
        if reason:
            return reason
    return None


def _case(case: str) -> tuple[Any, onnx.ModelProto]:
    kind, _, name = case.partition("/")
    test = _tests(kind)[name]
    return test, test.model if test.model is not None else onnx.load(Path(test.model_dir) / "model.onnx")


@cache
def _interface(case: str) -> tuple[frozenset[str], frozenset[str], bool]:
    """Element types at the interface (or the kinds of value that are no tensor), domains, and whether a node draws."""
    _, model = _case(case)
    held = {i.name for i in model.graph.initializer}
    types = [v.type for v in (*model.graph.input, *model.graph.output) if v.name not in held]
    kinds = {
        onnx.TensorProto.DataType.Name(t.tensor_type.elem_type) if t.HasField("tensor_type") else t.WhichOneof("value")
        for t in types
    }
    draws = any(
        n.op_type in DRAWING or (n.op_type == "Dropout" and len(n.input) == 3 and n.input[2]) for n in model.graph.node
    )
    return frozenset(kinds), frozenset(n.domain for n in model.graph.node), draws


def numeric(case: str) -> bool:
    """All that goes in and out are tensors of numbers, and every node is one of ai.onnx."""
    kinds, domains, _ = _interface(case)
    return domains <= {"", "ai.onnx"} and not kinds & {"STRING", "sequence_type", "optional_type", "map_type"}


def core(case: str) -> bool:
    """Numeric, no floats of 4 or 8 bits, bfloat16 or integers below 8 bits at the interface, and nothing drawn."""
    kinds, _, draws = _interface(case)
    return numeric(case) and not draws and not any(k.startswith(SHORT) for k in kinds)


SUBSETS: dict[str, Callable[[str], bool]] = {"numeric": numeric, "core": core}


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
