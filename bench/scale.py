"""Cost per operation of building, checking, saving, loading and each pass, at two sizes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug
from unigraph import passes
from unigraph.builder import GraphBuilder
from unigraph.graph import Value

from .table import Figures, seconds

SIZES = (20_000, 200_000)
LIMIT, GROWTH = 40.0, 2.0  # microseconds per operation; how much it may rise from the small size to the big one
ROUNDS = 2  # the better one counts: the rest is what else the machine did
HEADS, WIDTH = 4, 64


def network(operations: int) -> ug.Graph:
    """Layers like a transformer's, written out in core operations, with diamonds, branches and dead ends."""
    b = GraphBuilder("network")
    x = b.input("x", "f32", ("batch", "seq", WIDTH))
    rng = np.random.default_rng(0)
    weights = [b.weight(f"w.{i}", rng.standard_normal((WIDTH, WIDTH), np.float32) / 8) for i in range(16)]
    biases = [b.weight(f"b.{i}", np.zeros(WIDTH, np.float32)) for i in range(16)]
    layer = 0
    while len(b.edges) < operations:
        with b.at(f"encoder.layer.{layer}", f"model.py:{layer % 200}"):
            x = _layer(b, x, weights, biases, layer)
        layer += 1
    return b.build(x)


def _layer(b: GraphBuilder, x: Value, weights: list[Value], biases: list[Value], layer: int) -> Value:
    def dense(x: Value, i: int) -> Value:
        n = (layer + i) % len(weights)
        y = b.dot_general(x, weights[n], lhs_contracting=(2,), rhs_contracting=(1,))
        return b.add(y, b.broadcast_in_dim(biases[n], shape=y.type.shape, broadcast_dimensions=(2,)))

    def heads(x: Value) -> Value:
        split = b.reshape(x, shape=(*x.type.shape[:2], HEADS, WIDTH // HEADS))
        return b.transpose(split, permutation=(0, 2, 1, 3))

    def norm(x: Value) -> Value:
        def mean(x: Value) -> Value:
            return b.div(b.reduce_sum(x, axes=(2,)), float(WIDTH))

        def back(y: Value) -> Value:
            return b.broadcast_in_dim(y, shape=x.type.shape, broadcast_dimensions=(0, 1))

        centred = b.sub(x, back(mean(x)))
        return b.mul(centred, back(b.rsqrt(b.add(mean(b.square(centred)), 1e-5))))

    q, k, v = (heads(dense(x, i)) for i in range(3))
    axes: dict[str, Any] = {"lhs_batch": (0, 1), "rhs_batch": (0, 1)}
    scores = b.mul(b.dot_general(q, k, lhs_contracting=(3,), rhs_contracting=(3,), **axes), 0.25)

    def along(y: Value) -> Value:
        return b.broadcast_in_dim(y, shape=scores.type.shape, broadcast_dimensions=(0, 1, 2))

    e = b.exp(b.sub(scores, along(b.reduce_max(scores, axes=(3,)))))
    shares = b.div(e, along(b.reduce_sum(e, axes=(3,))))
    mixed = b.transpose(
        b.dot_general(shares, v, lhs_contracting=(3,), rhs_contracting=(2,), **axes), permutation=(0, 2, 1, 3)
    )
    x = norm(b.add(x, dense(b.reshape(mixed, shape=x.type.shape), 3)))
    hidden = dense(x, 4)
    active = b.mul(b.mul(hidden, 0.5), b.add(b.erf(b.mul(hidden, 0.5**0.5)), 1.0))
    b.tanh(active)  # read by nothing
    return norm(b.add(x, dense(b.convert(b.convert(active, dtype="f64"), dtype="f32"), 5)))


def measure(operations: int, folder: Path) -> dict[str, float]:
    """Microseconds per operation of each step."""
    times: dict[str, float] = {}
    count = operations

    def step(name: str, function: Callable[[], Any]) -> Any:
        found = [seconds(function, time.process_time) for _ in range(ROUNDS)]
        times[name] = min(s for s, _ in found) / count * 1e6
        return found[-1][1]

    graph = step("build", lambda: network(operations))
    count = len(graph.edges)
    file = folder / f"{operations}.ugraph"
    step("check", lambda: ug.check(graph))
    step("save", lambda: graph.save(file))
    # Loading includes the check of every type.
    loaded = step("load", lambda: ug.load(file))
    for name in ("prune", "simplify", "fold", "fuse", "siblings", "reorder", "unroll"):
        step(name, partial(getattr(passes, name), loaded))
    step("peak_memory", lambda: passes.peak_memory(loaded))
    return times


def run() -> Figures:
    """The table of microseconds per operation."""
    figures = Figures(
        "Cost per operation",
        f"Microseconds of processor time per operation, for a graph of {SIZES[0]:,} and one of {SIZES[1]:,} operations "
        "(transformer layers written out in core operations, symbolic batch and length), and how they grow. "
        f"The bar is {LIMIT:g} microseconds and growth that is linear.",
        ("step", f"{SIZES[0]:,}", f"{SIZES[1]:,}", "growth"),
    )
    with tempfile.TemporaryDirectory() as folder:
        small, big = (measure(n, Path(folder)) for n in SIZES)
    for name in small:
        growth = big[name] / small[name]
        figures.rows.append((name, f"{small[name]:.1f}", f"{big[name]:.1f}", f"{growth:.2f}"))
        figures.bar(f"{name} at {SIZES[1]:,}", big[name], LIMIT, " us")
        if big[name] > 1.0:
            figures.bar(f"growth of {name}", growth, GROWTH)
    return figures


if __name__ == "__main__":
    print(run())
