"""Turning op examples into graphs, running them on engines, and reading the lists of known gaps."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from unigraph.builder import GraphBuilder
from unigraph.dtypes import dtype
from unigraph.graph import Graph
from unigraph.opdef import Example, OpDef, registry
from unigraph.runtime.engines import Compiled
from unigraph.tolerances import difference

ENGINES = ("numpy", "torch", "jax", "onnx")
GAPS = Path(__file__).parent / "gaps"


def all_examples() -> Iterator[tuple[str, OpDef, Example]]:
    """Every example of every op, with a stable name such as ``pad.3``."""
    for op in registry().values():
        if op.family != "user":
            for index, example in enumerate(op.examples):
                yield f"{op.name}.{index}", op, example


def example_graph(op: OpDef, example: Example) -> Graph:
    """A graph of one operation over inputs ``x0, x1, ...``."""
    b = GraphBuilder(op.name)
    values = []
    for index, array in enumerate(example.inputs):
        if example.key_impl and index == example.key_index:
            values.append(b.key(f"x{index}", example.key_impl, array.shape[:-1]))
        else:
            values.append(b.input(f"x{index}", dtype(array.dtype), array.shape))
    result = b.apply(op, values, {**example.attrs, **example.regions})
    outputs = result if isinstance(result, tuple) else (result,)
    # A key is compared by its words.
    plain = [b.rng_unwrap(v) if v.type.dtype.is_key else v for v in outputs]
    return b.build(tuple(plain))


@cache
def reference(name: str) -> tuple[np.ndarray, ...]:
    """What an example must give: its told outputs, else the NumPy engine's."""
    op, example = by_name()[name]
    if example.outputs is not None:
        return example.outputs
    return tuple(run(op, example, "numpy"))


@cache
def by_name() -> dict[str, tuple[OpDef, Example]]:
    return {name: (op, example) for name, op, example in all_examples()}


def run(op: OpDef, example: Example, engine: str, device: str | None = None) -> list[np.ndarray]:
    """The outputs of one example on one engine."""
    return list(Compiled(example_graph(op, example), engine, device).flat(example.inputs, {}))


def compare(actual: list[Any], expected: tuple[np.ndarray, ...], scale: float = 1.0) -> str | None:
    """Why the outputs are not the expected ones (within ``scale`` tolerances of one operation), or None."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, expected {len(expected)}"
    for index, (a, e) in enumerate(zip(actual, expected)):
        reason = difference(a, e, scale)
        if reason:
            return f"output {index}: {reason}"
    return None


@cache
def gaps(engine: str) -> dict[str, str]:
    """Known gaps of an engine: op name or example name -> reason."""
    path = GAPS / f"{engine}.toml"
    return tomllib.loads(path.read_text())["gaps"] if path.exists() else {}
