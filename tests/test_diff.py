"""ug.diff names the first value at which two graphs, or two engines, part ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.graph import Graph, Operation
from unigraph.opdef import registry
from unigraph.runtime.engines import Compiled

X = np.linspace(-1, 1, 12).astype(np.float32).reshape(4, 3)


def network(outputs: int = 1) -> Graph:
    b = ug.GraphBuilder("network")
    x, w = b.input("x", "f32", ("batch", 3)), b.weight("w", np.eye(3, dtype=np.float32))
    with b.at("first", "net.py:3"):
        a = b.label(b.tanh(b.matmul(x, w)), "a")
    with b.at("second", "net.py:4"):
        c = b.label(b.exp(b.add(a, a)), "c")
    return b.build((c, a)[:outputs])


def other(op: str, new: str, graph: Graph) -> Graph:
    """The graph with one op put in place of another."""
    edges = [
        Operation(registry()[new], e.inputs, e.outputs, e.attrs, e.regions, e.scope, e.source) if e.op.name == op else e
        for e in graph.edges
    ]
    return graph.replace(edges=tuple(edges))


@pytest.mark.parametrize("engine", ["numpy", "torch", "jax", "onnx"])
def test_engines_agree(engine: str) -> None:
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    g = network()
    found = ug.diff(g, (g, engine), (X,))
    assert found.same and found.first is None and found.compared == len(g.edges) and found.largest < 1e-5
    assert str(found).startswith(f"{len(g.edges)} values compared, all within tolerance; largest difference ")


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from unigraph.runtime.torch.table import TABLE

    monkeypatch.setitem(TABLE.rows, registry()["tanh"], torch.sin)
    g = network()
    found = ug.diff(g, (g, "torch"), {"x": X})
    assert not found.same and found.first is not None
    first = found.first
    assert (first.value, first.op, first.scope, first.source) == ("%a", "tanh", "first", "net.py:3")
    assert len(found.parts) == 3  # what is computed from it differs too
    assert 0.05 < first.largest < 0.1 <= found.largest
    assert str(found).startswith("4 values compared, 3 differ, by ")
    assert "the first is %a from tanh at first (net.py:3): " in str(found) and "elements differ, first at" in str(found)


def test_before_and_after_a_pass() -> None:
    g = network()
    found = ug.diff(g, ug.optimize(g, level=3), X)
    assert found.same and found.compared >= 1


def test_a_wrong_pass_is_found() -> None:
    g = network()
    found = ug.diff(g, other("exp", "sinh", g), (X,))
    assert found.first is not None and found.first.op == "exp" and found.first.scope == "second"


def test_a_reordered_graph_is_compared_value_by_value() -> None:
    b = ug.GraphBuilder("branches")
    x = b.input("x", "f32", (3,))
    y, z = b.sin(x), b.cos(x)
    g = b.build(b.add(y, z))
    swapped = g.replace(edges=(g.edges[1], g.edges[0], g.edges[2]))
    found = ug.diff(g, swapped, X[0])
    assert found.same and found.compared == 3


def test_files(tmp_path: Path) -> None:
    g = network()
    g.save(tmp_path / "a.ugraph")
    found = ug.diff(g, tmp_path / "a.ugraph", (X,))
    assert found.same and found.compared == len(g.edges)  # unnamed values too
    assert ug.diff(str(tmp_path / "a.ugraph"), (tmp_path / "a.ugraph", "numpy"), X).same


def test_nan_equals_nan_and_infinities_match() -> None:
    b = ug.GraphBuilder("edges")
    x = b.input("x", "f32", (4,))
    g = b.build(b.log(x))
    given = np.array([-1, 0, 1, np.nan], np.float32)
    assert ug.diff(g, g, given).same
    assert not ug.diff(g, other("log", "log1p", g), given).same


def test_random_graphs_get_the_same_key() -> None:
    b = ug.GraphBuilder("random")
    key = b.key()
    g = b.build(b.random_normal(b.rng_fold_in(key, b.constant(1, "u32")), shape=(8,), dtype="f32"))
    assert ug.diff(g, g, seed=3).same


def test_outputs_must_match() -> None:
    with pytest.raises(ug.InputError, match="the first graph has 2 outputs, the second 1: prune"):
        ug.diff(network(2), network(1), (X,))


@pytest.mark.parametrize("inputs", [(), (X, X), {"z": X}, (X[0],)])
def test_wrong_inputs(inputs: Any) -> None:
    with pytest.raises(ug.InputError):
        ug.diff(network(), network(), inputs)


def test_states_are_compared_through_the_values_that_make_them() -> None:
    b = ug.GraphBuilder("stateful")
    x, s = b.input("x", "f32"), b.state("s", np.float32(1))
    b.update(s, b.add(s, x))
    g = b.build(b.neg(x))
    assert ug.diff(g, g, (np.float32(1),)).compared == 2
    assert Compiled(g, "numpy").step(np.float32(1))[1] == {"s": 2}
