"""Specialize, split, cast: passes that give another program on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph
from unigraph.tolerances import difference

from .pass_graphs import B, ops, run
from .test_random_graphs import same_bits

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> Graph:
    """Two layers with a free batch, a state, and a key."""
    b = B("network")
    x = b.input("x", "f32", ("batch", 4))
    count = b.state("count", np.zeros((), np.float32))
    key = b.key()
    h = b.label(b.relu(b.linear(x, b.weight("w1", normal(8, 4)), b.weight("b1", normal(8)))), "hidden")
    h = b.add(h, b.random_uniform(key, shape=("batch", 8), dtype="f32"))
    y = b.label(b.softmax(b.linear(h, b.weight("w2", normal(3, 8))), axis=-1), "probabilities")
    b.update(count, b.add(count, 1.0))
    return b.build({"y": y, "norm": b.reduce_sum(b.square(h), axes=(0, 1)), "size": b.size("batch")})


def results(graph: Graph, x: np.ndarray, engine: str = "numpy") -> list[np.ndarray]:
    return [np.asarray(r) for r in ug.compile(graph, engine).flat((x,), {}, seed=3)]


# -- specialize ----------------------------------------------------------------------------------


def test_specialize_fixes_a_size_everywhere() -> None:
    graph = network()
    new = passes.specialize(graph, batch=5)
    ug.check(new)
    assert not new.symbols and all(v.type.is_static for v in new.nodes)
    assert "dim_size" not in ops(new) and list(new.weights) == list(graph.weights)
    x = normal(5, 4)
    for a, e in zip(results(new, x), results(graph, x), strict=True):
        same_bits([a], [e])
    assert new.value("hidden").type.shape == (5, 8)


def test_specialize_inside_loops_and_partly() -> None:
    b = B()
    x = b.input("x", "f32", ("n", "m"))
    body = b.region(lambda b, c, row: (b.add(c, row), b.mul(c, row)), [ug.TensorType("f32", ("m",))] * 2)
    zero = b.full(0.0, "f32", ("m",))
    total, rows = b.scan(zero, x, body=body, length="n", num_consts=0, num_carry=1)
    graph = b.build((total, b.reshape(rows, shape=("n*m",))))
    new = passes.specialize(graph, m=3)
    assert set(new.symbols) == {"n"} and str(new.outputs[1].type) == "f32[3*n]"
    ug.check(new)
    same_bits(run(new, np.ones((4, 3), np.float32)), run(graph, np.ones((4, 3), np.float32)))


def test_specialize_refuses() -> None:
    graph = network().replace(symbols={"batch": ug.Constraint(min=2, multiple_of=2)})
    with pytest.raises(ug.InputError, match="no free size 'n'; the graph has batch"):
        passes.specialize(graph, n=4)
    with pytest.raises(ug.InputError, match="size batch = 3 must be a multiple of 2"):
        passes.specialize(graph, batch=3)


# -- split ---------------------------------------------------------------------------------------


def staged(stages: tuple[Graph, ...], **values: Any) -> Any:
    for stage in stages:
        result = ug.compile(stage, "numpy")(**{v.name: values[v.name] for v in stage.inputs})
        values |= result if isinstance(result, dict) else {}
    return result


def test_split_runs_like_the_whole() -> None:
    graph = network()
    key, x = np.array([0, 3], np.uint32), normal(6, 4)
    expected = ug.compile(graph, "numpy")(x, key=key)
    for cuts in (["hidden"], ["hidden", "probabilities"], "probabilities"):
        stages = passes.split(graph, cuts)
        for stage in stages:
            ug.check(stage)
        assert sum(len(s.edges) for s in stages) == len(graph.edges)
        actual = staged(stages, x=x, key=key)
        assert actual.keys() == expected.keys()
        same_bits(list(actual.values()), list(expected.values()))


def test_split_shares_out_weights_and_states() -> None:
    first, second = passes.split(network(), ["hidden"])
    assert list(first.weights) == ["w1", "b1"] and list(second.weights) == ["w2"]
    assert not first.states and [s.name for s, _ in second.states] == ["count"]
    assert [v.name for v in second.inputs][-1] == "hidden"


def test_split_names_what_crosses(tmp_path: Any) -> None:
    b = B()
    x = b.input("x", "f32", (3,))
    skip = b.sin(x)
    middle = b.label(b.tanh(skip), "middle")
    graph = b.build(b.add(b.exp(middle), skip))
    first, second = passes.split(graph, "middle")
    assert [v.name for v in second.inputs] == ["cut_0", "middle"]
    second.save(tmp_path / "second.ugraph")
    x_ = normal(3)
    same_bits([staged((first, ug.load(tmp_path / "second.ugraph")), x=x_)], [ug.compile(graph, "numpy")(x_)])


def test_split_refuses() -> None:
    with pytest.raises(ug.InputError, match="no produced value is called 'hiden'; there are hidden"):
        passes.split(network(), "hiden")
    b = B()
    x = b.input("x", "f32", ())
    s = b.state("s", np.zeros((), np.float32))
    early = b.label(b.add(x, s), "early")
    b.update(s, b.mul(early, 2.0))
    with pytest.raises(ug.InputError, match="state 's' is read in stage 0 and updated in stage 1"):
        passes.split(b.build(b.exp(early)), "early")


# -- cast ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("weights", [False, True])
def test_cast_runs_products_narrow(kind: str, weights: bool) -> None:
    graph = network()
    new = passes.cast(graph, kind, weights=weights)
    ug.check(new)
    assert (new.in_types, new.out_types) == (graph.in_types, graph.out_types)
    kinds = {op.op.name: op.outputs[0].type.dtype.name for op in new.edges}
    assert kinds["linear"] == kinds["relu"] == kind and kinds["softmax"] == "f32"
    assert {v.type.dtype.name for v in new.data if v.name == "w1"} == {kind if weights else "f32"}
    x = normal(6, 4)
    norm, _, y, _ = results(graph, x)
    norm_new, _, y_new, _ = results(new, x)
    scale = {"bf16": 2**-8, "f16": 2**-11}[kind]
    assert 0 < np.max(np.abs(y - y_new)) < 8 * scale
    assert abs(norm - norm_new) < 8 * scale * norm
    for engine in ("torch", "jax", "onnx"):
        for a, e in zip(results(new, x, engine), results(new, x), strict=True):
            assert difference(a, e, scale=16 * scale / 1e-5) is None


def test_cast_keeps_what_it_is_told_to() -> None:
    new = passes.cast(network(), keep=["linear"])
    assert {op.outputs[0].type.dtype.name for op in new.edges if op.op.name == "linear"} == {"f32"}
    with pytest.raises(ug.InputError, match="keep: no op is called 'liner'; did you mean linear"):
        passes.cast(network(), keep=["liner"])
    with pytest.raises(ug.InputError, match="bf16 or f16, not f64"):
        passes.cast(network(), "f64")


def test_cast_goes_into_bodies_and_keeps_what_they_carry() -> None:
    b = B()
    x = b.input("x", "f32", (5, 4))
    w = b.weight("w", normal(4, 4))
    t = ug.TensorType("f32", (4,))
    body = b.region(lambda b, w, c, row: (b.tanh(b.linear(b.add(c, row), w)), c), [w.type, t, t])
    graph = b.build(tuple(b.scan(w, b.full(0.0, "f32", (4,)), x, body=body, length=5, num_consts=1, num_carry=1)))
    new = passes.cast(graph)
    ug.check(new)
    inner = new.edges[-1].regions[0]
    assert {op.op.name: op.outputs[0].type.dtype.name for op in inner.edges}["linear"] == "bf16"
    x_ = normal(5, 4)
    for a, e in zip(run(new, x_), run(graph, x_), strict=True):
        assert np.max(np.abs(a - e)) < 0.05
