"""Random graphs: engines agree, passes keep results, files and texts come back the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import unigraph as ug
from unigraph import passes, serde
from unigraph.tolerances import difference

from .random_graphs import Made, graphs

LOOSE = 200  # a graph of many steps may part from another engine's result by this many tolerances

slow_to_build = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def example_count(count: int) -> Any:
    """Settings under which every run takes the same examples."""
    return settings(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=slow_to_build
    )


def run(graph: ug.Graph, inputs: Sequence[np.ndarray], engine: str = "numpy") -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [np.asarray(x) for x in ug.compile(graph, engine)(*inputs)]


def same_bits(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> None:
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        if x.dtype.kind in "biu":
            assert np.array_equal(x, y)
        else:  # every NaN is as good as another
            nan = np.isnan(x)
            assert np.array_equal(nan, np.isnan(y))
            assert np.where(nan, 0, x).astype(x.dtype).tobytes() == np.where(nan, 0, y).astype(x.dtype).tobytes()


def close(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for index, (x, y) in enumerate(zip(actual, expected, strict=True)):
        reason = difference(x, y, scale=LOOSE)
        assert reason is None, f"output {index}: {reason}"


@example_count(60)
@given(graphs(short=True))
def test_exact_passes_keep_every_bit(made: Made) -> None:
    ug.check(made.graph)
    expected = run(made.graph, made.inputs)
    for step in (passes.simplify, passes.fold, passes.prune, passes.unroll, passes.reorder):
        new = step(made.graph)
        ug.check(new)
        same_bits(run(new, made.inputs), expected)
    for level in (0, 1):
        new = ug.optimize(made.graph, level)
        ug.check(new)
        same_bits(run(new, made.inputs), expected)


@example_count(40)
@given(graphs())
def test_inexact_passes_stay_within_rounding(made: Made) -> None:
    expected = run(made.graph, made.inputs)
    for level in (2, 3):
        new = ug.optimize(made.graph, level)
        ug.check(new)
        close(run(new, made.inputs), expected)


@example_count(60)
@given(graphs(short=True))
def test_reorder_never_raises_the_peak(made: Made) -> None:
    assert passes.peak_memory(passes.reorder(made.graph)) <= passes.peak_memory(made.graph)


@example_count(60)
@given(graphs(short=True))
def test_files_and_texts_come_back_the_same(made: Made) -> None:
    data = serde.encode(made.graph).data
    again = serde.decode(data)
    ug.check(again)
    assert serde.encode(again).data == data
    text = made.graph.text()
    assert ug.parse(text).text() == text
    same_bits(run(again, made.inputs), run(made.graph, made.inputs))


@pytest.mark.parametrize("engine", ["torch", "jax", "onnx"])
def test_engines_agree(engine: str) -> None:
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    if engine == "torch":
        pytest.importorskip("unigraph.runtime.torch.table")

    @example_count(15 if engine == "jax" else 25)
    @given(graphs(steps=10))
    def check(made: Made) -> None:
        close(run(made.graph, made.inputs, engine), run(made.graph, made.inputs))

    check()
