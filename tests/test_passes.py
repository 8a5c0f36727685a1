"""Fold, prune, reorder, unroll, and the pass manager."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph, Operation
from unigraph.passes.reorder import peak_memory

from .pass_graphs import B, V, ops, products, run, unary_graph
from .test_random_graphs import same_bits

# -- fold ----------------------------------------------------------------------------------------


def test_fold_computes_constants() -> None:
    b = B()
    x = b.input("x", "f32", (3,))
    y = b.sin(b.constant(np.arange(3, dtype=np.float32)))
    new = passes.prune(passes.fold(b.build(b.add(x, y))))
    assert ops(new) == ["add"] and len(new.data) == 1


def test_fold_leaves_what_is_large_unbuilt_or_failing() -> None:
    b = B()
    big = b.exp(b.iota(dtype="f32", shape=(1 << 20,), axis=0))
    spread = b.full(1.0, "f32", (1000,))
    weight = b.tanh(b.weight("w", np.ones(3, np.float32)))
    key = b.rng_seed(b.constant(7, "i32"), impl="threefry2x32")
    graph = b.build((big, spread, weight, b.rng_unwrap(key)))
    assert passes.fold(graph) is graph


# -- prune ---------------------------------------------------------------------------------------


def two_headed() -> Graph:
    b = B()
    x = b.input("x", "f32", (2,))
    unused = b.input("unused", "f32", (5,))
    y = b.tanh(b.add(x, b.weight("shared", np.ones(2, np.float32))))
    left = b.mul(y, b.weight("left", np.ones(2, np.float32)))
    right = b.mul(b.label(b.sin(y), "inner"), b.weight("right", np.ones(2, np.float32)))
    b.neg(unused)
    return b.build({"left": left, "right": right})


def test_prune_to_one_output_drops_weights() -> None:
    graph = two_headed()
    new = passes.prune(graph, outputs=["right"])
    assert list(new.weights) == ["shared", "right"] and ops(new) == ["add", "tanh", "sin", "mul"]
    args = np.ones(2, np.float32), np.ones(5, np.float32)
    assert np.array_equal(ug.compile(new, "numpy")(*args), ug.compile(graph, "numpy")(*args)["right"])
    assert list(passes.prune(graph, outputs=[0]).weights) == ["shared", "left"]
    assert list(passes.prune(graph, outputs="inner").weights) == ["shared"]
    assert len(passes.prune(graph, outputs=["left", "right"]).outputs) == 2


@pytest.mark.parametrize("wanted", ["nowhere", 2, -3])
def test_prune_to_a_missing_output(wanted: Any) -> None:
    with pytest.raises(ug.InputError, match="there is no output"):
        passes.prune(two_headed(), outputs=[wanted])


def test_prune_inputs_on_request() -> None:
    graph = two_headed()
    assert len(passes.prune(graph).inputs) == 2
    new = passes.prune(graph, inputs=True)
    assert [v.name for v in new.inputs] == ["x"]
    assert set(ug.compile(new, "numpy")(np.ones(2, np.float32))) == {"left", "right"}


def test_prune_keeps_states() -> None:
    b = B()
    x = b.input("x", "f32", (2,))
    count = b.state("count", np.zeros(2, np.float32))
    b.update(count, b.add(count, x))
    new = passes.prune(b.build((b.neg(x), b.abs(x))), outputs=[0])
    ug.check(new)
    assert ops(new) == ["add", "neg"] and len(new.states) == 1


def test_equal_operations_become_one() -> None:
    graph = unary_graph(
        lambda b, x: b.mul(b.tanh(b.add(x, b.constant(2.0, "f32"))) if x.type.rank == 0 else b.tanh(x), b.tanh(x))
    )
    assert ops(passes.prune(graph)) == ["tanh", "mul"]


def test_attributes_that_only_look_equal_stay_apart() -> None:
    def program(b: B, x: V) -> Any:
        return (
            b.hardtanh(x, low=-1.0, high=0.0),
            b.hardtanh(x, low=-1.0, high=-0.0),
            b.argmax(x, axis=0),
            b.argmin(x, axis=0),
        )

    graph = unary_graph(program)
    assert passes.prune(graph) is graph


def test_shared_regions_stay_shared() -> None:
    b = B()
    x = b.input("x", "f32", ())
    body = b.region(lambda b, v: b.add(b.neg(b.neg(v)), b.mul(b.tanh(v), b.tanh(v))), [x.type])
    for _ in range(3):
        (x,) = b.call(x, body=body)
    new = passes.prune(passes.simplify(b.build(x)))
    first = new.edges[0].regions[0]
    assert ops(first) == ["tanh", "mul", "add"] and all(op.regions[0] is first for op in new.edges)


# -- reorder -------------------------------------------------------------------------------------


def wide_then_narrow(branches: int) -> Graph:
    """All big values are made before any is reduced: the worst order there is."""
    b = B()
    x = b.input("x", "f32", (4,))
    big = [b.broadcast_in_dim(b.mul(x, float(i)), shape=(1000, 4), broadcast_dimensions=(1,)) for i in range(branches)]
    small = [b.reduce_sum(b.tanh(v), axes=(0,)) for v in big]
    total = small[0]
    for v in small[1:]:
        total = b.add(total, v)
    return b.build(total)


def test_reorder_lowers_the_peak() -> None:
    graph = wide_then_narrow(10)
    new = passes.reorder(graph)
    ug.check(new)
    assert peak_memory(graph) > 10 * 16_000 and peak_memory(new) < 3 * 16_000
    assert {*new.edges} == {*graph.edges}
    same_bits(run(new, np.ones(4, np.float32)), run(graph, np.ones(4, np.float32)))


def test_reorder_keeps_what_is_best_already() -> None:
    graph = passes.reorder(wide_then_narrow(5))
    assert passes.reorder(graph) is graph


def test_peak_memory_by_hand() -> None:
    b = B()
    x = b.input("x", "f32", ("n",))
    y = b.tanh(x)
    graph = b.build(b.reduce_sum(b.mul(y, y), axes=(0,)))
    assert peak_memory(graph, sizes={"n": 10}) == 3 * 40
    assert peak_memory(graph) == 3 * 4  # the least size, as in the figures of stats


# -- unroll --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_unrolled_scan_equals_scan(length: int, reverse: bool) -> None:
    b = B()
    start, xs = b.input("start", "f32", (2,)), b.input("xs", "f32", (length, 2))

    def body(b: B, scale: V, carry: V, x: V) -> Sequence[V]:
        new = b.tanh(b.add(b.mul(carry, scale), x))
        return new, b.add(new, b.constant(np.array([1.0, 2.0], np.float32)))

    scale = b.constant(np.array([0.5, 2.0], np.float32))
    graph = b.build(
        tuple(b.scan(scale, start, xs, length=length, num_consts=1, num_carry=1, reverse=reverse, body=body))
    )
    new = passes.unroll(graph)
    ug.check(new)
    assert "scan" not in ops(new) and len(new.data) <= 3
    args = np.ones(2, np.float32), np.linspace(-1, 1, 2 * length, dtype=np.float32).reshape(length, 2)
    same_bits(run(new, *args), run(graph, *args))
    assert passes.unroll(graph, max_length=length - 1) is graph if length else True


def test_unrolled_scan_over_keys() -> None:
    b = B()
    keys = b.rng_split(b.key("key"), shape=(3,))

    def body(b: B, key: V) -> Sequence[V]:
        return b.rng_bits(key, shape=(2,), dtype="u32"), b.rng_fold_in(key, b.constant(1, "u32"))

    bits, folded = b.scan(keys, length=3, num_consts=0, num_carry=0, body=body)
    graph = b.build((bits, b.rng_unwrap(folded)))
    new = passes.unroll(graph)
    ug.check(new)
    assert "scan" not in ops(new)
    same_bits(run(new, np.array([0, 3], np.uint32)), run(graph, np.array([0, 3], np.uint32)))


def test_unroll_inside_branches_and_calls() -> None:
    b = B()
    which, x = b.input("which", "bool", ()), b.input("x", "f32", (3, 2))

    def total(b: B, v: V) -> V:
        zero = b.full(0.0, "f32", (2,))
        return b.scan(zero, v, length=3, num_consts=0, num_carry=1, body=lambda b, c, i: [b.add(c, i)])[0]

    (y,) = b.cond(which, x, branches=[total, lambda b, v: b.call(v, body=total)[0]])
    graph = b.build(y)
    new = passes.unroll(graph)
    assert not {"scan", "call"} & {op.op.name for op in new.all_edges()}
    for choice in (True, False):
        args = np.array(choice), np.ones((3, 2), np.float32)
        same_bits(run(new, *args), run(graph, *args))


def test_unroll_refuses_a_negative_length() -> None:
    with pytest.raises(ug.InputError, match="must not be negative"):
        passes.unroll(two_headed(), max_length=-1)


# -- optimize ------------------------------------------------------------------------------------


def test_optimize_explains_itself() -> None:
    _, reports = ug.optimize(products(True), 3, explain=True)
    assert [r.name for r in reports] == [p.name for p in passes.LEVELS[3]]
    text = str(reports).splitlines()
    assert text[0].split() == ["pass", "operations", "peak", "memory"]
    assert any(line.startswith("siblings") and "->" in line for line in text)
    assert str(reports[0]).splitlines()[1].startswith("prune")


def test_optimize_refuses_other_levels() -> None:
    with pytest.raises(ValueError, match="level must be one of 0, 1, 2, 3"):
        ug.optimize(two_headed(), 4)


def test_a_pass_that_changes_the_interface_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = passes.Pass("broken", lambda g: g.replace(outputs=()))
    monkeypatch.setitem(passes.LEVELS, 1, (broken,))
    with pytest.raises(ug.GraphError, match="pass broken changed the interface"):
        ug.optimize(two_headed(), 1)


def test_results_hold_their_operations() -> None:
    """Passes never change an operation that they were given."""
    graph = two_headed()
    before = [(op.op, op.inputs, op.outputs) for op in graph.edges]
    ug.optimize(graph, 3)
    assert [(op.op, op.inputs, op.outputs) for op in graph.edges] == before
    assert all(isinstance(op, Operation) for op in graph.edges)
