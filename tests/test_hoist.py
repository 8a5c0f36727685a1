"""Operations on stored data alone run once, at preparation."""

from __future__ import annotations

import numpy as np

import unigraph as ug
from unigraph.evaluate import Program, load_data
from unigraph.runtime.hoist import hoist
from unigraph.runtime.numpy.table import TABLE


def _graph() -> ug.Graph:
    b = ug.GraphBuilder("hoisted")
    x = b.input("x", "f32", ("batch", 3))
    w = b.weight("w", np.arange(12, dtype=np.float32).reshape(3, 4))
    s = b.state("s", np.zeros((), np.float32))
    turned = b.transpose(w, permutation=(1, 0))
    both = b.concatenate(turned, turned, axis=0)
    y = b.linear(x, both)
    b.update(s, b.add(s, 1.0))
    return b.build(b.add(y, b.broadcast_in_dim(s, shape=("batch", 8), broadcast_dimensions=())))


def test_results_are_the_same_and_work_is_gone() -> None:
    graph = _graph()
    data = load_data(graph, TABLE)
    new, held = hoist(graph, TABLE, data)
    names = [op.op.name for op in new.edges]
    assert "transpose" not in names and "concatenate" not in names and "add" in names
    x = np.ones((2, 3), np.float32)
    for a, b in zip(Program(graph, TABLE).run([x], data), Program(new, TABLE).run([x], held), strict=True):
        assert a.tobytes() == b.tobytes()
    assert not any(v.name == "w" for v in new.data), "a weight that only hoisted work read is let go"


def test_states_and_growing_results_stay() -> None:
    b = ug.GraphBuilder()
    big = b.broadcast_in_dim(b.weight("w", np.ones(4, np.float32)), shape=(1 << 15, 4), broadcast_dimensions=(1,))
    graph = b.build(b.add(big, b.input("x", "f32", (1 << 15, 4))))
    assert hoist(graph, TABLE, load_data(graph, TABLE))[0] is graph
