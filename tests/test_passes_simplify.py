"""Simplify: every rule once where it applies and once where it must not, and every op in context."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import unigraph as ug
from unigraph import passes
from unigraph.graph import Graph
from unigraph.passes.rewrite import Rewriter

from . import harness
from .pass_graphs import EDGES, INF, B, V, ops, run, unary_graph
from .test_random_graphs import same_bits

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
