"""Passes: every rule and row once where it applies and once where it must not, and the numbers hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.builder import GraphBuilder
from unigraph.graph import Graph, Operation, Value
from unigraph.passes.reorder import peak_memory
from unigraph.passes.rewrite import Rewriter
from unigraph.tolerances import difference

from . import harness
from .test_random_graphs import same_bits

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


# -- simplify ------------------------------------------------------------------------------------


def spread(b: B, x: V, number: Any) -> V:
    return b.full_like(x, number)


def through(b: B, x: V, *kinds: str) -> V:
    for kind in kinds:
        x = b.convert(x, dtype=kind)
    return x


I8 = np.array([-128, -1, 0, 1, 127, 5], np.int8)
U8 = np.array([0, 1, 127, 255], np.uint8)
BOOL = np.array([True, False, True])
F16 = np.where(np.abs(EDGES) > 1e30, INF, EDGES).astype(np.float16)
BF16 = EDGES.astype(ml_dtypes.bfloat16)
I32 = np.array([0, 16777217, -(2**31), 2**31 - 1, 65535], np.int32)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4)

# name -> (input, program, operations left after simplify and prune)
APPLIES: dict[str, tuple[np.ndarray, Callable[[B, V], Any], list[str]]] = {
    "add integer zero": (I8, lambda b, x: b.add(x, 0), []),
    "add minus zero": (EDGES, lambda b, x: b.add(x, -0.0), []),
    "minus zero add": (EDGES, lambda b, x: b.add(spread(b, x, -0.0), x), []),
    "add minus zero bf16": (BF16, lambda b, x: b.add(x, -0.0), []),
    "sub zero": (EDGES, lambda b, x: b.sub(x, 0.0), []),
    "sub integer zero": (U8, lambda b, x: b.sub(x, 0), []),
    "mul one": (EDGES, lambda b, x: b.mul(spread(b, x, 1.0), x), []),
    "mul true": (BOOL, lambda b, x: b.mul(x, True), []),
    "div one": (BF16, lambda b, x: b.div(x, 1.0), []),
    "pow one": (EDGES, lambda b, x: b.pow(x, 1.0), []),
    "integer_pow one": (EDGES, lambda b, x: b.integer_pow(x, y=1), []),
    "integer_pow two": (EDGES, lambda b, x: b.integer_pow(x, y=2), ["square"]),
    "neg neg": (EDGES, lambda b, x: b.neg(b.neg(x)), []),
    "neg neg integer": (I8, lambda b, x: b.neg(b.neg(x)), []),
    "not not": (U8, lambda b, x: b.not_(b.not_(x)), []),
    "select same": (EDGES, lambda b, x: b.select(b.gt(x, 0.0), x, x), []),
    "select constant": (EDGES, lambda b, x: b.select(b.constant(True), b.neg(x), x), []),
    "select clamped": (EDGES, lambda b, x: b.select(b.constant(7, "i32"), b.neg(x), b.abs(x), x), []),
    "select of truth": (EDGES, lambda b, x: b.select(b.gt(x, 0.0), *truth(b, x)), ["broadcast_in_dim", "gt"]),
    "select of lies": (BOOL, lambda b, x: b.select(x, *truth(b, x)[::-1]), ["not"]),
    "and all ones": (I8, lambda b, x: b.and_(x, -1), []),
    "and all ones unsigned": (U8, lambda b, x: b.and_(x, 255), []),
    "and true": (BOOL, lambda b, x: b.and_(x, True), []),
    "or zero": (I8, lambda b, x: b.or_(x, 0), []),
    "or itself": (BOOL, lambda b, x: b.or_(x, x), []),
    "bool again": (BOOL, lambda b, x: b.ne(through(b, x, "f32"), 0.0), []),
    "convert same": (EDGES, lambda b, x: through(b, x, "f32"), []),
    "convert there and back": (BF16, lambda b, x: through(b, x, "f32", "bf16"), []),
    "convert f16 there and back": (F16, lambda b, x: through(b, x, "f64", "f16"), []),
    "convert wide step": (F16, lambda b, x: through(b, x, "f32", "f64"), ["convert"]),
    "convert bool": (BOOL, lambda b, x: through(b, x, "i32", "f32"), ["convert"]),
    "convert sign extension": (I8, lambda b, x: through(b, x, "i32", "u8"), ["convert"]),
    "convert byte": (U8, lambda b, x: through(b, x, "bf16", "u8"), []),
    "reshape same": (GRID, lambda b, x: b.reshape(x, shape=(3, 4)), []),
    "reshape chain": (GRID, lambda b, x: b.reshape(b.reshape(x, shape=(12,)), shape=(2, 6)), ["reshape"]),
    "reshape back": (GRID, lambda b, x: b.reshape(b.reshape(x, shape=(12,)), shape=(3, 4)), ["reshape"]),
    "broadcast same": (GRID, lambda b, x: b.broadcast_in_dim(x, shape=(3, 4), broadcast_dimensions=(0, 1)), []),
    "broadcast chain": (GRID, lambda b, x: along(b, along(b, x, (2, 3, 4), 1), (5, 2, 3, 4), 1), ["broadcast_in_dim"]),
    "broadcast of ones": (GRID, lambda b, x: along(b, ones(b, x, (3, 1, 4)), (3, 5, 4), 0), ["broadcast_in_dim"]),
    "slice whole": (GRID, lambda b, x: b.slice(x, start=(0, 0), limit=(3, 4)), []),
    "pad nothing": (GRID, lambda b, x: b.pad(x, b.constant(0.0, "f32"), low=(0, 0), high=(0, 0)), []),
    "transpose back": (GRID, lambda b, x: turned(b, turned(b, x)), []),
    "transpose identity": (GRID, lambda b, x: b.transpose(x, permutation=(0, 1)), []),
    "reverse of one": (GRID[:1], lambda b, x: b.reverse(x, dimensions=(0,)), []),
    "concatenate one": (GRID, lambda b, x: b.concatenate(x, axis=0), []),
    "concatenate empty": (GRID, lambda b, x: b.concatenate(b.slice(x, start=(0, 0), limit=(0, 4)), x, axis=0), []),
}  # fmt: skip


def truth(b: B, x: V) -> tuple[V, V]:
    no, yes = (b.full(v, "bool", x.type.shape) for v in (False, True))
    return no, yes


def along(b: B, x: V, shape: Sequence[int], first: int) -> V:
    """x broadcast to a shape, its axes from ``first`` on."""
    return b.broadcast_in_dim(x, shape=shape, broadcast_dimensions=range(first, first + x.type.rank))


def ones(b: B, x: V, shape: Sequence[int]) -> V:
    return b.reshape(x, shape=shape)


def turned(b: B, x: V) -> V:
    return b.transpose(x, permutation=(1, 0))


DECLINES: dict[str, tuple[np.ndarray, Callable[[B, V], Any]]] = {
    "add plus zero": (EDGES, lambda b, x: b.add(x, 0.0)),
    "add mixed zeros": (EDGES[:2], lambda b, x: b.add(x, b.constant(np.array([-0.0, 0.0], np.float32)))),
    "sub minus zero": (EDGES, lambda b, x: b.sub(x, -0.0)),
    "zero minus": (EDGES, lambda b, x: b.sub(spread(b, x, 0.0), x)),
    "mul two": (EDGES, lambda b, x: b.mul(x, 2.0)),
    "one over": (EDGES, lambda b, x: b.div(spread(b, x, 1.0), x)),
    "pow two": (EDGES, lambda b, x: b.pow(x, 2.0)),
    "one to the power": (EDGES, lambda b, x: b.pow(spread(b, x, 1.0), x)),
    "integer_pow three": (EDGES, lambda b, x: b.integer_pow(x, y=3)),
    "neg not": (I8, lambda b, x: b.neg(b.not_(x))),
    "and one bit off": (I8, lambda b, x: b.and_(x, 127)),
    "or one": (U8, lambda b, x: b.or_(x, 1)),
    "xor itself": (U8, lambda b, x: b.xor(x, x)),
    "convert through short": (EDGES, lambda b, x: through(b, x, "bf16", "f32")),
    "convert f16 bf16": (F16, lambda b, x: through(b, x, "bf16", "f16")),
    "convert f32 integer": (I32, lambda b, x: through(b, x, "f32", "i32")),
    "convert wide integer": (I32, lambda b, x: through(b, x, "f64", "bf16")),
    "convert signed unsigned": (I8, lambda b, x: through(b, x, "u16", "i32")),
    "reshape other": (GRID, lambda b, x: b.reshape(x, shape=(4, 3))),
    "slice with steps": (GRID, lambda b, x: b.slice(x, start=(0, 0), limit=(3, 4), strides=(2, 1))),
    "pad and crop": (GRID, lambda b, x: b.pad(x, b.constant(0.0, "f32"), low=(1, 0), high=(-1, 0))),
    "transpose": (GRID, turned),
    "reverse": (GRID, lambda b, x: b.reverse(x, dimensions=(1,))),
    "broadcast of a reshape": (GRID, lambda b, x: along(b, ones(b, x, (2, 6)), (5, 2, 6), 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", APPLIES)
def test_rule_applies(name: str) -> None:
    array, program, left = APPLIES[name]
    graph = unary_graph(program, array)
    new = passes.prune(passes.simplify(graph))
    ug.check(new)
    assert ops(new) == left
    same_bits(run(new, array), run(graph, array))


@pytest.mark.parametrize("name", DECLINES)
def test_rule_declines(name: str) -> None:
    array, program = DECLINES[name]
    graph = unary_graph(program, array)
    new = passes.simplify(graph)
    assert new is graph
    same_bits(run(new, array), run(graph, array))


def test_keys_wrapped_and_unwrapped() -> None:
    b = B()
    key = b.key("key")
    graph = b.build(b.rng_bits(b.rng_wrap(b.rng_unwrap(key), impl="threefry2x32"), shape=(4,), dtype="u32"))
    new = passes.prune(passes.simplify(graph))
    assert ops(new) == ["rng_bits"]
    same_bits(run(new, np.array([0, 7], np.uint32)), run(graph, np.array([0, 7], np.uint32)))


def test_symbolic_sizes_stay_symbolic() -> None:
    b = B()
    x = b.input("x", "f32", ("n", 3))
    y = b.reshape(b.reshape(x, shape=("3*n",)), shape=("n", 3))
    graph = b.build((b.add(y, -0.0), b.dim_size(dim="n", dtype="i32")))
    new = passes.prune(passes.fold(passes.simplify(graph)))
    assert ops(new) == ["reshape", "dim_size"]
    for n in (1, 4):
        array = np.ones((n, 3), np.float32)
        same_bits(run(new, array), run(graph, array))


def test_named_values_keep_their_names() -> None:
    b = B()
    x = b.input("x", "f32", (2,))
    y = b.label(b.integer_pow(x, y=2), "squared")
    new = passes.simplify(b.build(b.tanh(y)))
    assert ops(new) == ["square", "tanh"] and new.value("squared") is new.edges[0].outputs[0]


def test_regions_are_swept_and_stay_closed() -> None:
    b = B()
    x = b.input("x", "f32", (3,))
    which = b.input("which", "bool", ())
    result = b.cond(which, x, branches=[lambda b, v: b.add(b.neg(b.neg(v)), -0.0), lambda b, v: b.tanh(v)])
    graph = b.build(result[0])
    new = passes.prune(passes.fold(passes.simplify(graph)))
    ug.check(new)
    assert [ops(region) for region in new.edges[0].regions] == [[], ["tanh"]]
    for choice in (True, False):
        args = np.ones(3, np.float32), np.array(choice)
        same_bits(run(new, *args), run(graph, *args))


def test_splat_tells_signed_zeros_apart() -> None:
    b = B()
    mixed, same = (b.constant(np.array(v, np.float32)) for v in ([0.0, -0.0], [-0.0, -0.0]))
    nan = b.constant(np.full(2, np.nan, np.float32))
    r = Rewriter(b.build((mixed, same, nan)))
    assert r.splat(mixed) is None and math.copysign(1, r.splat(same)) == -1 and np.isnan(r.splat(nan))


# -- every op in context -------------------------------------------------------------------------

NAMES = [name for name, op, _ in harness.all_examples()]


@pytest.mark.parametrize("family", sorted({name.split(".")[0][0] for name in NAMES}))
def test_examples_in_context(family: str) -> None:
    """Each example between operations that simplify removes, with constants where it can be folded."""
    for name, op, example in harness.all_examples():
        if not name.startswith(family):
            continue
        for constants in (False, True):
            graph = _in_context(op, example, constants)
            if graph is None:
                continue
            args = [] if constants else list(example.inputs)
            try:
                expected = run(graph, *args)
            except ug.UnsupportedError:
                continue  # no row: told elsewhere
            new = passes.prune(passes.simplify(passes.fold(passes.simplify(graph))))
            ug.check(new)
            assert len(new.edges) <= len(graph.edges), name
            try:
                same_bits(run(new, *args), expected)
            except AssertionError as error:
                raise AssertionError(f"{name}, constants={constants}") from error


def _in_context(op: Any, example: Any, constants: bool) -> Graph | None:
    if example.key_impl and constants:
        return None
    b = B(op.name)
    values = []
    for index, array in enumerate(example.inputs):
        if constants:
            values.append(b.constant(array))
            continue
        if example.key_impl and index == example.key_index:
            x = b.key(f"x{index}", example.key_impl, array.shape[:-1])
            x = b.rng_wrap(b.rng_unwrap(x), impl=example.key_impl)
        else:
            x = b.input(f"x{index}", array.dtype, array.shape)
            x = b.convert(b.reshape(x, shape=x.type.shape), dtype=x.type.dtype)
        values.append(x)
    result = b.apply(op, values, {**example.attrs, **example.regions})
    outputs = result if isinstance(result, tuple) else (result,)
    plain = [b.rng_unwrap(v) if v.type.dtype.is_key else v for v in outputs]
    again = [b.reshape(v, shape=v.type.shape) for v in plain]
    return b.build(tuple(again))


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
    assert peak_memory(graph) == 3 * 4 * 64


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


# -- fuse ----------------------------------------------------------------------------------------

FLAT = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
W, BIAS = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in ((1, (8, 5)), (2, (5,))))


def back(b: B, y: V, x: V, axis: int = 2) -> V:
    """A value reduced over an axis, spread over the shape of x again."""
    kept = [a for a in range(x.type.rank) if a != axis]
    return b.broadcast_in_dim(y, shape=x.type.shape, broadcast_dimensions=kept)


def with_ones(b: B, y: V) -> V:
    return b.reshape(y, shape=(*y.type.shape, 1))


def softmax(b: B, x: V, top: int = 2, total: int = 2) -> V:
    e = b.exp(b.sub(x, back(b, b.reduce_max(x, axes=(top,)), x, top)))
    return b.div(e, back(b, b.reduce_sum(e, axes=(total,)), x, total))


def softmax_bounded(b: B, x: V) -> V:
    top = b.max(b.reduce_max(x, axes=(2,)), -INF)
    spread = b.broadcast_in_dim(b.stop_gradient(with_ones(b, top)), shape=x.type.shape, broadcast_dimensions=(0, 1, 2))
    e = b.exp(b.sub(x, spread))
    return b.div(e, back(b, b.reduce_sum(e, axes=(2,)), x))


def log_softmax(b: B, x: V) -> V:
    shifted = b.sub(x, back(b, b.reduce_max(x, axes=(2,)), x))
    return b.sub(shifted, back(b, b.log(b.reduce_sum(b.exp(shifted), axes=(2,))), x))


def mean(b: B, x: V, count: float = 8.0) -> V:
    return b.div(b.reduce_sum(x, axes=(2,)), count)


def layer_norm(b: B, x: V, square: str = "square", count: float = 8.0) -> V:
    centred = b.sub(x, back(b, mean(b, x), x))
    squares = {"square": b.square, "product": lambda v: b.mul(v, v), "power": lambda v: b.pow(v, 2.0)}[square](centred)
    variance = mean(b, squares, count)
    if square == "power":
        return b.div(centred, back(b, b.sqrt(b.add(variance, 1e-5)), x))
    return b.mul(centred, back(b, b.rsqrt(b.add(variance, 1e-5)), x))


def fast_norm(b: B, x: V) -> V:
    """As Flax writes it: variance from two means, the weight multiplied to the factor."""
    m = mean(b, x)
    variance = b.max(b.sub(mean(b, b.square(x)), b.square(m)), 0.0)
    factor = with_ones(b, b.rsqrt(b.add(variance, 1e-6)))
    factor = b.broadcast_in_dim(factor, shape=x.type.shape, broadcast_dimensions=(0, 1, 2))
    weight, bias = (b.weight(n, np.linspace(0.5, 2, 8, dtype=np.float32)) for n in "wb")
    weight, bias = (b.broadcast_in_dim(v, shape=x.type.shape, broadcast_dimensions=(2,)) for v in (weight, bias))
    return b.add(b.mul(b.sub(x, back(b, m, x)), b.mul(factor, weight)), bias)


def rms_norm(b: B, x: V, axis: int = 2) -> V:
    squares = b.div(b.reduce_sum(b.square(x), axes=(axis,)), float(x.type.shape[axis]))
    return b.mul(x, back(b, b.rsqrt(b.add(squares, 1e-6)), x, axis))


def dense(b: B, x: V, bias: np.ndarray, transposed: bool = False) -> V:
    w = b.constant(W.T.copy() if transposed else W)
    y = b.dot_general(x, w, lhs_contracting=(2,), rhs_contracting=(1 if transposed else 0,))
    return b.add(
        y, b.broadcast_in_dim(b.constant(bias), shape=y.type.shape, broadcast_dimensions=range(3 - bias.ndim, 3))
    )


def gelu_tanh(b: B, x: V, power: int = 3) -> V:
    inner = b.mul(b.add(x, b.mul(b.integer_pow(x, y=power), 0.044715)), math.sqrt(2 / math.pi))
    return b.mul(x, b.mul(b.add(b.tanh(inner), 1.0), 0.5))


def attend(b: B, x: V, mask: str = "", scale: float = 0.5, fill: float = -INF, axis: int = 2) -> V:
    """Attention of x with itself, two heads made by batch."""
    batch: dict[str, Any] = {"lhs_batch": (0,), "rhs_batch": (0,)}
    scores = b.mul(b.dot_general(x, b.tanh(x), lhs_contracting=(2,), rhs_contracting=(2,), **batch), scale)
    shape = scores.type.shape
    row, column = (b.iota(dtype="i32", shape=shape, axis=a) for a in (1, 2))
    if mask == "causal":
        scores = b.select(b.ge(row, column), b.full_like(scores, fill), scores)
    elif mask == "anticausal":
        scores = b.select(b.le(row, column), b.full_like(scores, fill), scores)
    elif mask == "added":
        bias = b.constant(np.array([0.0, -1.0, 2.0], np.float32))
        scores = b.add(scores, b.broadcast_in_dim(bias, shape=shape, broadcast_dimensions=(2,)))
    shares = softmax(b, scores, axis, axis)
    return b.dot_general(shares, x, lhs_contracting=(2,), rhs_contracting=(1,), **batch)


RAISED: dict[str, tuple[Callable[[B, V], Any], str, dict[str, Any]]] = {
    "relu": (lambda b, x: b.max(x, 0.0), "relu", {}),
    "silu": (lambda b, x: b.mul(b.logistic(x), x), "silu", {}),
    "gelu erf": (
        lambda b, x: b.mul(b.mul(x, 0.5), b.add(b.erf(b.mul(x, 0.5**0.5)), 1.0)),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu onnx": (
        lambda b, x: b.mul(b.mul(x, b.add(b.erf(b.div(x, 2**0.5)), 1.0)), 0.5),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu erfc": (
        lambda b, x: b.mul(b.mul(x, 0.5), b.erfc(b.mul(b.neg(x), 0.5**0.5))),
        "gelu",
        {"approximate": "none"},
    ),
    "gelu tanh": (gelu_tanh, "gelu", {"approximate": "tanh"}),
    "mean": (mean, "mean", {"axes": (2,)}),
    "mean by share": (lambda b, x: b.mul(b.reduce_sum(x, axes=(2,)), 0.125), "mean", {"axes": (2,)}),
    "softmax": (softmax, "softmax", {"axis": 2}),
    "softmax over another axis": (lambda b, x: softmax(b, x, 1, 1), "softmax", {"axis": 1}),
    "softmax bounded": (softmax_bounded, "softmax", {"axis": 2}),
    "log_softmax": (log_softmax, "log_softmax", {"axis": 2}),
    "layer_norm": (layer_norm, "layer_norm", {"normalized_rank": 1}),
    "layer_norm product": (lambda b, x: layer_norm(b, x, "product"), "layer_norm", {}),
    "layer_norm power": (lambda b, x: layer_norm(b, x, "power"), "layer_norm", {}),
    "layer_norm affine": (fast_norm, "layer_norm", {}),
    "rms_norm": (rms_norm, "rms_norm", {"normalized_rank": 1}),
    "linear": (lambda b, x: dense(b, x, BIAS), "linear", {}),
    "linear transposed": (lambda b, x: dense(b, x, BIAS, True), "linear", {}),
    "attention": (attend, "attention", {"scale": 0.5, "is_causal": False}),
    "attention causal": (lambda b, x: attend(b, x, "causal"), "attention", {"is_causal": True}),
    "attention causal finite": (lambda b, x: attend(b, x, "causal", fill=-1e38), "attention", {"is_causal": True}),
    "attention masked": (lambda b, x: attend(b, x, "anticausal"), "attention", {"is_causal": False}),
    "attention masked finite": (lambda b, x: attend(b, x, "anticausal", fill=-1e38), "attention", {}),
    "attention added": (lambda b, x: attend(b, x, "added"), "attention", {}),
}

NOT_RAISED: dict[str, tuple[Callable[[B, V], Any], str]] = {
    "max with one": (lambda b, x: b.max(x, 1.0), "relu"),
    "silu of another": (lambda b, x: b.mul(x, b.logistic(b.neg(x))), "silu"),
    "gelu of another constant": (lambda b, x: b.mul(b.mul(x, 0.5), b.add(b.erf(b.mul(x, 0.70)), 1.0)), "gelu"),
    "gelu with a square": (lambda b, x: gelu_tanh(b, x, 2), "gelu"),
    "sum by another count": (lambda b, x: mean(b, x, 7.0), "mean"),
    "softmax over two axes": (lambda b, x: softmax(b, x, 1, 2), "softmax"),
    "unbiased variance": (lambda b, x: layer_norm(b, x, count=7.0), "layer_norm"),
    "rms over a leading axis": (lambda b, x: rms_norm(b, x, 1), "rms_norm"),
    "bias by row": (lambda b, x: dense(b, x, np.ones((3, 5), np.float32)), "linear"),
    "small fill": (lambda b, x: attend(b, x, "anticausal", fill=-10.0), "attention"),
    "softmax over queries": (lambda b, x: attend(b, x, axis=1), "attention"),
}  # fmt: skip


def composites(graph: Graph) -> list[Operation]:
    return [op for op in graph.edges if op.op.is_composite]


@pytest.mark.parametrize("name", RAISED)
def test_fuse_raises(name: str) -> None:
    program, composite, attrs = RAISED[name]
    graph = passes.prune(unary_graph(program, FLAT))
    notes: list[str] = []
    new = passes.fuse(graph, report=notes.append)
    ug.check(new)
    (found,) = [op for op in composites(new) if op.op.name == composite]
    assert attrs.items() <= found.attrs.items()
    assert any(note.startswith(f"{composite}: ") for note in notes)
    for a, e in zip(run(new, FLAT), run(graph, FLAT), strict=True):
        assert difference(a, e, scale=20) is None
    again = ug.optimize(graph, 2)
    assert difference(run(again, FLAT)[0], run(graph, FLAT)[0], scale=20) is None


@pytest.mark.parametrize("name", NOT_RAISED)
def test_fuse_declines(name: str) -> None:
    program, composite = NOT_RAISED[name]
    graph = passes.prune(unary_graph(program, FLAT))
    new = passes.fuse(graph)
    ug.check(new)
    assert composite not in ops(new)
    assert difference(run(new, FLAT)[0], run(graph, FLAT)[0], scale=20) is None


def test_fuse_looks_at_the_axes_of_what_is_spread() -> None:
    """On a square the sum of each row may be spread along columns: no softmax."""
    square = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)

    def program(b: B, x: V) -> V:
        e = b.exp(b.sub(x, back(b, b.reduce_max(x, axes=(1,)), x, 1)))
        return b.div(e, b.broadcast_in_dim(b.reduce_sum(e, axes=(1,)), shape=(4, 4), broadcast_dimensions=(1,)))

    notes: list[str] = []
    assert "softmax" not in ops(passes.fuse(unary_graph(program, square), notes.append))
    assert any("spread along another axis" in note for note in notes)


def test_fuse_weight_along_rows_is_no_affine() -> None:
    def program(b: B, x: V) -> V:
        w = b.weight("w", np.arange(4, dtype=np.float32))
        norm = b.layer_norm(x, normalized_rank=1, epsilon=1e-5)
        column = b.reshape(w, shape=(4, 1))
        return b.mul(norm, b.broadcast_in_dim(column, shape=(4, 4), broadcast_dimensions=(0, 1)))

    square = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    graph = unary_graph(program, square)
    assert ops(passes.fuse(graph)) == ops(graph)


def test_fuse_finds_what_jax_writes() -> None:
    jax = pytest.importorskip("jax")
    cases: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
        "softmax": (jax.nn.softmax, (FLAT,)),
        "log_softmax": (jax.nn.log_softmax, (FLAT,)),
        "gelu": (lambda x: jax.nn.gelu(x, approximate=False), (FLAT,)),
        "silu": (jax.nn.silu, (FLAT,)),
        "relu": (jax.nn.relu, (FLAT,)),
        "layer_norm": (jax.nn.standardize, (FLAT,)),
        "linear": (lambda x: x @ W + BIAS, (FLAT,)),
        "attention": (lambda x: jax.nn.dot_product_attention(x, x, x, is_causal=True), (FLAT.reshape(2, 3, 2, 4),)),
    }
    for name, (function, args) in cases.items():
        graph = ug.from_jax(function, *args)
        new = ug.optimize(graph)
        assert name in ops(new), name
        assert difference(run(new, *args)[0], run(graph, *args)[0], scale=20) is None, name


def test_fuse_finds_what_flax_writes() -> None:
    nn = pytest.importorskip("flax.linen")
    import jax

    cases = {
        "layer_norm": (nn.LayerNorm(), 1),
        "rms_norm": (nn.RMSNorm(), 1),
        "linear": (nn.Dense(5), 2),
        "attention": (nn.MultiHeadDotProductAttention(num_heads=2), None),
    }
    for name, (module, operations) in cases.items():
        parameters = module.init(jax.random.key(0), FLAT)
        graph = ug.from_jax(module.apply, parameters, FLAT, weights=(0,))
        new = ug.optimize(graph)
        assert name in ops(new) and (operations is None or len(new.edges) == operations), name
        assert difference(run(new, FLAT)[0], run(graph, FLAT)[0], scale=20) is None, name


def test_fuse_after_the_round_trip_through_onnx() -> None:
    """ONNX files hold norms, activations and attention written out; they are found again."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def vector(name: str) -> Any:
        return onnx.numpy_helper.from_array(np.linspace(0.5, 1, 8, dtype=np.float32), name)

    def number(name: str, value: float) -> Any:
        return onnx.numpy_helper.from_array(np.float32(value), name)

    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Pow", ["c", "two"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["v"], axes=[-1], keepdims=1),
        helper.make_node("Add", ["v", "eps"], ["ve"]),
        helper.make_node("Sqrt", ["ve"], ["sd"]),
        helper.make_node("Div", ["c", "sd"], ["n"]),
        helper.make_node("Mul", ["n", "w"], ["nw"]),
        helper.make_node("Add", ["nw", "b"], ["y"]),
        helper.make_node("Div", ["y", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["e1"]),
        helper.make_node("Mul", ["y", "e1"], ["g"]),
        helper.make_node("Mul", ["g", "half"], ["z"]),
    ]
    numbers = {"two": 2.0, "eps": 1e-5, "root": 2**0.5, "one": 1.0, "half": 0.5}
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 8])],
        [vector("w"), vector("b"), *(number(k, v) for k, v in numbers.items())],
    )
    captured = ug.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    new = ug.optimize(captured)
    assert ops(new) == ["layer_norm", "gelu"]
    x = FLAT.reshape(6, 8)
    assert difference(run(new, x)[0], run(captured, x)[0], scale=20) is None


# -- siblings ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("bias", [False, True])
def test_siblings_are_joined(bias: bool) -> None:
    graph = products(True, bias)
    new = passes.siblings(graph)
    ug.check(new)
    assert ops(new).count("linear") == 1 and ops(new).count("slice") == 3
    assert list(new.weights) == list(graph.weights)
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    for a, e in zip(run(new, x), run(graph, x), strict=True):
        assert difference(a, e) is None


def test_siblings_of_computed_weights_or_single_rows_stay() -> None:
    graph = products(False)
    assert passes.siblings(graph) is graph
    b = B()
    x = b.input("x", "f32", (4,))
    rows = [b.linear(x, b.weight(f"w{i}", np.ones(4, np.float32))) for i in range(2)]
    graph = b.build(tuple(rows))
    assert passes.siblings(graph) is graph


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_optimized_graphs_on_engines(engine: str, level: int) -> None:
    pytest.importorskip(engine)
    graph = products(True)
    x = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    new = ug.optimize(graph, level)
    for a, e in zip(ug.compile(new, engine)(x), run(graph, x), strict=True):
        assert difference(np.asarray(a), e) is None


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
