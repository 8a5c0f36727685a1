"""Write the golden file of the current format version: ``python -m tests.golden.make``.

A golden file is written once, when a format version is released, and never again: it must load and
run for ever. ``vN.ugraph`` is the graph, ``vN.npz`` what it is given (``in0, in1, ...``) and must give.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import unigraph as ug
from unigraph.builder import GraphBuilder
from unigraph.dims import Constraint
from unigraph.graph import Graph, Value
from unigraph.serde import FORMAT_VERSION

HERE = Path(__file__).resolve().parent


def graph() -> Graph:
    """A small network that uses what a file can hold: symbols, weights, a buffer, a state, a key, constants
    inside and beside the graph, branches, a loop, composites, scopes, nested inputs and outputs."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("golden", {"batch": Constraint(1, 64)})
    x = b.input("x", "f32", ("batch", 8))
    key = b.key()
    w1 = b.weight("layers.0.weight", rng.standard_normal((16, 8)).astype(np.float32) / 4)
    b1 = b.weight("layers.0.bias", rng.standard_normal(16).astype(np.float32) / 4)
    w2 = b.weight("layers.1.weight", rng.standard_normal((8, 16)).astype(np.float32) / 4)
    scale = b.buffer("scale", np.full((), 2.0, np.float32))
    calls = b.state("calls", np.zeros((), np.int32))
    table = b.constant(rng.standard_normal((256, 8)).astype(np.float32))
    with b.at("layers.0", "golden.py:1"):
        h = b.gelu(b.linear(x, w1, b1), approximate="tanh")
    with b.at("layers.1", "golden.py:2"):
        y = b.layer_norm(b.linear(h, w2), normalized_rank=1, epsilon=1e-5)
        y = b.mul(y, b.broadcast_in_dim(scale, shape=y.type.shape, broadcast_dimensions=()))
    with b.at("branch", "golden.py:3"):
        draw = b.random_bernoulli(key, shape=(), p=0.5)
        (y,) = b.cond(draw, y, branches=[lambda c, v: c.tanh(v), lambda c, v: c.logistic(v)])
    with b.at("loop", "golden.py:4"):

        def step(c: GraphBuilder, total: Value, row: Value) -> tuple[Value, Value]:
            total = c.add(total, row)
            return total, c.mul(total, 0.5)

        zero = b.full(0.0, "f32", (8,))
        total, rows = b.scan(zero, y, length="batch", num_consts=0, num_carry=1, body=step)
    with b.at("lookup", "golden.py:5"):
        index = b.convert(b.abs(b.round(b.mul(total, 10.0))), dtype="i32")
        found = b.embedding(table, index)
    b.update(calls, b.add(calls, 1))
    return b.build({"rows": rows, "more": [total, found, b.softmax(y, axis=-1), draw]})


def main() -> int:
    path = HERE / f"v{FORMAT_VERSION}.ugraph"
    if path.exists():
        print(f"{path.name} exists; a golden file is never rewritten", file=sys.stderr)
        return 1
    g = graph()
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    inputs = (x, np.array([0, 42], np.uint32))
    outputs = ug.compile(g, "numpy").flat(inputs, {})
    g.save(path)
    arrays = {f"in{i}": a for i, a in enumerate(inputs)} | {f"out{i}": np.asarray(a) for i, a in enumerate(outputs)}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)
    print(f"wrote {path.name}, {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
