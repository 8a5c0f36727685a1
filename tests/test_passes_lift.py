"""Lift: loop-invariant work leaves loop bodies."""

from __future__ import annotations

from typing import Any

import numpy as np

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph

from .pass_graphs import B, ops, run
from .test_random_graphs import same_bits

T = ug.TensorType
RNG = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def inside(graph: Graph, region: int = 0) -> list[str]:
    loop = next(op for op in graph.edges if op.regions)
    return ops(loop.regions[region])


def same(graph: Graph, *inputs: Any) -> Graph:
    """The lifted graph, checked to be well formed and to give the same bits on every engine that loops."""
    new = passes.lift(graph)
    ug.check(new)
    same_bits(run(new, *inputs), run(graph, *inputs))
    for engine in ("torch", "jax", "onnx"):
        for a, e in zip(ug.compile(new, engine).flat(inputs, {}), ug.compile(graph, engine).flat(inputs, {})):
            np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=1e-6)
    return new


def scanned(length: int | str = 5) -> Graph:
    b = B()
    x, w = b.input("x", "f32", (length, 4)), b.input("w", "f32", (4, 4))

    def step(b: B, w: Any, kept: Any, c: Any, row: Any) -> Any:
        scale = b.broadcast_in_dim(b.tanh(b.reduce_sum(w, axes=(0, 1))), shape=(4,), broadcast_dimensions=())
        product = b.linear(b.add(c, row), b.transpose(b.exp(w), permutation=(1, 0)))
        return kept, b.tanh(b.mul(product, b.add(scale, b.add(kept, 1.0)))), b.mul(c, 2.0)

    types = [w.type, T("f32", (4,)), T("f32", (4,)), T("f32", (4,))]
    zero = b.full(0.0, "f32", (4,))
    body = b.region(step, types)
    return b.build(tuple(b.scan(w, zero, zero, x, body=body, length=length, num_consts=1, num_carry=2)))


def test_scan_computes_invariants_once() -> None:
    new = same(scanned(), normal(5, 4), normal(4, 4))
    # The carried value that stays as it is became a constant; spreading a number stays in the body.
    assert set(inside(new)) == {"broadcast_in_dim", "add", "linear", "mul", "tanh"}
    assert {"exp", "transpose", "reduce_sum", "tanh", "add"} <= set(ops(new))
    loop = next(op for op in new.edges if op.regions)
    assert loop.attrs["num_carry"] == 1 and inside(new).count("tanh") == 1


def test_a_free_length_and_a_length_of_zero() -> None:
    graph = scanned("n")
    same(graph, normal(3, 4), normal(4, 4))
    same(graph, normal(0, 4), normal(4, 4))


def test_while_lifts_from_both_regions() -> None:
    b = B()
    x, bound = b.input("x", "f32", (3,)), b.input("bound", "f32", ())
    cond = b.region(lambda b, bound, w, s: b.lt(b.reduce_sum(s, axes=(0,)), b.exp(bound)), [bound.type, x.type, x.type])
    body = b.region(lambda b, w, s: (w, b.add(s, b.square(b.exp(w)))), [x.type, x.type])
    graph = b.build(tuple(b.while_(bound, x, x, cond=cond, body=body, cond_consts=1)))
    new = same(graph, np.ones(3, np.float32), np.float32(3.0))
    assert (inside(new, 0), inside(new, 1)) == (["reduce_sum", "lt"], ["add"])
    assert ops(new).count("exp") == 2 and ops(new)[-1] == "while"


def test_nested_loops_lift_to_the_outside() -> None:
    b = B()
    x, w = b.input("x", "f32", (2, 3)), b.input("w", "f32", (3,))
    t = w.type

    def outer(b: B, w: Any, c: Any, row: Any) -> Any:
        inner = b.region(lambda b, w, c: (b.add(c, b.exp(w)),), [t, t])
        return b.scan(w, b.add(c, row), body=inner, length=3, num_consts=1, num_carry=1)

    body = b.region(outer, [t, t, t])
    graph = b.build(tuple(b.scan(w, b.full(0.0, "f32", (3,)), x, body=body, length=2, num_consts=1, num_carry=1)))
    new = same(graph, normal(2, 3), normal(3))
    assert "exp" in ops(new) and all(op.op.name != "exp" for e in new.edges for g in e.regions for op in g.all_edges())


def test_nothing_to_lift_is_nothing_to_do() -> None:
    b = B()
    x = b.input("x", "f32", (4,))
    body = b.region(lambda b, c, row: (b.mul(c, row), c), [T("f32", ()), T("f32", ())])
    graph = b.build(tuple(b.scan(b.constant(1.0, "f32"), x, body=body, length=4, num_consts=0, num_carry=1)))
    assert passes.lift(graph) is graph


def test_optimize_lifts_and_merges_with_what_is_outside() -> None:
    b = B()
    x, w = b.input("x", "f32", (4, 3)), b.input("w", "f32", (3,))
    body = b.region(lambda b, w, c, row: (b.add(b.mul(c, b.exp(w)), row),), [w.type] * 3)
    (y,) = b.scan(w, b.exp(w), x, body=body, length=4, num_consts=1, num_carry=1)
    graph = b.build(y)
    new = ug.optimize(graph, level=1)
    assert ops(new) == ["exp", "scan"]
    args = normal(4, 3), normal(3)
    same_bits(run(new, *args), run(graph, *args))
