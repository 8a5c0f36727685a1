"""What the tests of op families share: refusing by label, running one op on the NumPy table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.dims import parse
from unigraph.dtypes import dtype
from unigraph.errors import TypeCheckError
from unigraph.evaluate import Program
from unigraph.opdef import OpDef, registry
from unigraph.runtime.numpy.table import TABLE
from unigraph.tolerances import difference
from unigraph.types import TensorType

from . import harness


def type_of(text: str) -> TensorType:
    """``"f32[2,n]"`` as a type."""
    name, _, rest = text.partition("[")
    sizes = rest.rstrip("]")
    return TensorType(name, [parse(s) for s in sizes.split(",")] if sizes else ())


def infer(name: str, *types: str, regions: dict[str, Any] | None = None, **attrs: Any) -> Any:
    """Result type (or types) of an op, as text."""
    b = GraphBuilder()
    values = [b.input(f"x{i}", t.dtype, t.shape) for i, t in enumerate(map(type_of, types))]
    result = b.apply(registry()[name], values, {**attrs, **(regions or {})})
    return tuple(str(v.type) for v in result) if isinstance(result, tuple) else str(result.type)


def refuses(label: str, name: str, *types: str, regions: dict[str, Any] | None = None, **attrs: Any) -> None:
    """Assert that the op refuses these operands for the reason ``label``."""
    with pytest.raises(TypeCheckError) as caught:
        infer(name, *types, regions=regions, **attrs)
    assert caught.value.label == label, f"refused for another reason: {caught.value}"


def run(name: str, *inputs: np.ndarray, regions: dict[str, Any] | None = None, **attrs: Any) -> Any:
    """One op on the NumPy table; the results are held against the inferred types."""
    b = GraphBuilder()
    values = [b.input(f"x{i}", dtype(x.dtype), x.shape) for i, x in enumerate(inputs)]
    result = b.apply(registry()[name], values, {**attrs, **(regions or {})})
    outputs = result if isinstance(result, tuple) else (result,)
    arrays = Program(b.build(outputs), TABLE).run(inputs)
    for value, array in zip(outputs, arrays, strict=True):
        assert type(array) is np.ndarray
        assert dtype(array.dtype) is value.type.dtype
        assert not value.type.is_static or array.shape == value.type.shape
    return arrays if isinstance(result, tuple) else arrays[0]


def check_examples(op: OpDef) -> None:
    """Run every example of an op on the NumPy table, zeros compared with their sign."""
    assert op.examples
    for index, example in enumerate(op.examples):
        where = f"{op.name}.{index} {example.note}"
        graph = harness.example_graph(op, example)
        results = Program(graph, TABLE).run(example.inputs)
        for value, result in zip(graph.outputs, results, strict=True):
            assert dtype(result.dtype) is value.type.dtype, where
            assert not value.type.is_static or result.shape == value.type.shape, where
        for result, want in zip(results, example.outputs or results, strict=True):
            reason = difference(result, want) or zero_signs(result, want)
            assert reason is None, f"{where}: {reason}"


def zero_signs(actual: np.ndarray, expected: np.ndarray) -> str | None:
    """Why the zeros of two equal float arrays differ in sign, or None."""
    if not dtype(actual.dtype).is_float:
        return None
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    wrong = (a == 0) & (e == 0) & (np.signbit(a) != np.signbit(e))
    return f"{int(wrong.sum())} zeros of the wrong sign" if wrong.any() else None


def random_array(kind: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Values over the whole range of integers, about -8..8 for inexact dtypes."""
    rng = np.random.default_rng([seed, *map(ord, kind)])
    d = dtype(kind)
    if d.is_inexact:
        x = 3 * rng.standard_normal(shape)
        return (x + 1j * rng.standard_normal(shape) if d.is_complex else x).astype(d.numpy)
    if d.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    low, high = (0, 2**d.bits - 1) if d.kind == "uint" else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1)
    return rng.integers(low, high, shape, np.uint64 if d.kind == "uint" else np.int64, endpoint=True).astype(d.numpy)


def assert_same(actual: Any, expected: Any, note: str = "") -> None:
    """Assert that two arrays agree in dtype and in every element; NaN equals NaN."""
    a, e = np.asarray(actual), np.asarray(expected)
    assert a.dtype == e.dtype, note
    if dtype(a.dtype).is_float:
        a, e = a.astype(np.float64), e.astype(np.float64)
    np.testing.assert_array_equal(a, e, err_msg=note)
