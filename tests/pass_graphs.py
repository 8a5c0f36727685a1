"""What the tests of passes share: small graphs of one input, and what is in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import unigraph as ug
from unigraph.builder import GraphBuilder
from unigraph.graph import Graph, Value

B, V = GraphBuilder, Value
INF, NAN = math.inf, math.nan
EDGES = np.array([0.0, -0.0, 1.0, -1.5, INF, -INF, NAN, 1e-45, 3e38, -7.0], np.float32)


def ops(graph: Graph) -> list[str]:
    return [op.op.name for op in graph.edges]


def run(graph: Graph, *inputs: Any) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        results = ug.compile(graph, "numpy")(*inputs)
    return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]


def unary_graph(function: Callable[[B, V], Any], array: np.ndarray = EDGES) -> Graph:
    b = B()
    return b.build(function(b, b.input("x", array.dtype, array.shape)))


def products(stored: bool, bias: bool = True) -> Graph:
    rng = np.random.default_rng(0)
    b = B()
    x = b.input("x", "f32", ("n", 4))
    results = []
    for i, width in enumerate((3, 2, 5)):
        w = b.weight(f"w{i}", rng.standard_normal((width, 4) if i else (4, width)).astype(np.float32))
        w = w if i else b.transpose(w, permutation=(1, 0))
        if not stored:
            w = b.tanh(w)
        parameters = [b.weight(f"b{i}", rng.standard_normal(width).astype(np.float32))] if bias else []
        results.append(b.tanh(b.linear(x, w, *parameters)))
    return b.build(tuple(results))
