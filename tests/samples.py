"""Graphs that hold one of everything a file can hold, for the tests of the file, the text and the checker."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np

from unigraph.builder import GraphBuilder
from unigraph.dims import Constraint
from unigraph.graph import Graph, Value
from unigraph.opdef import OpDef

Pair = namedtuple("Pair", ["first", "second"])


def add_body(b: GraphBuilder, x: Value, y: Value) -> Value:
    return b.add(x, b.mul(y, b.constant(1.0, "f32")))


def sample(weights: bool = True) -> Graph:
    """A graph with symbols, every role, regions, odd names, every kind of data and nested outputs."""
    b = GraphBuilder("sample graph", {"batch": Constraint(1, 64, 8)})
    x = b.input("x", "f32", ("batch", "2*seq + 1"))
    b.key()
    w = b.weight(
        "enc.0/weight", np.arange(60, dtype=np.float32).reshape(20, 3) if weights else None, _type("f32", 20, 3)
    )
    odd = b.weight('0 "odd"\n', np.arange(5, dtype=np.int8) if weights else None, _type("i8", 5))
    big = b.weight("big", np.linspace(0, 1, 2048).astype(ml_dtypes.bfloat16) if weights else None, _type("bf16", 2048))
    state = b.state("running", np.zeros(3, np.float32))
    long = b.constant(np.arange(3000.0))
    for item in CONSTANTS:
        b.constant(item)
    with b.at("encoder.layer,0", "model.py:12"):
        y = b.tanh(b.add(x, x))
    with b.at("", "model.py:13"):
        y = b.integer_pow(y, y=3)
    with b.at('a "quoted"\n scope'):
        half = b.convert(b.round(y, mode="away"), dtype="bf16")
        pair = b.optimization_barrier(half, y)
    with b.at("sum", "model.py:20"):
        (total,) = b.reduce(w, b.constant(0.0, "f32"), axes=(0,), body=add_body)
    b.update(state, b.add(state, total))
    results = {"y": y, "z": [b.neg(long), b.add(odd, 1), None], 3: Pair(*pair), "t": (b.neg(big),)}
    return b.build(results)


def _type(dtype: str, *shape: int) -> Any:
    from unigraph.types import TensorType

    return TensorType(dtype, shape)


CONSTANTS = [
    np.float32(0.1),
    np.array([True, False]),
    np.array([1 + 2j, complex(float("nan"), -0.0)], np.complex64),
    np.uint64(2**64 - 1),
    np.zeros((0, 3), np.int16),
    np.array([-0.0, np.inf, -np.inf, np.nan, 5e-324]),
    np.array([1, 0.1, -0.0], ml_dtypes.bfloat16),
    np.array([3, -8], ml_dtypes.int4),
    np.array([0.5, 448], ml_dtypes.float8_e4m3fn),
    np.array([0x7FF8000000000123], np.uint64).view(np.float64),  # a NaN with a payload
]


def chain(length: int) -> Graph:
    """A long graph of cheap operations."""
    b = GraphBuilder("chain")
    x = b.input("x", "f32", (4,))
    y = x
    for i in range(length):
        with b.at(f"layer.{i // 100}", f"m.py:{i % 50}"):
            y = b.add(y, x) if i % 3 else b.convert(y, dtype="f32")
    return b.build(y)


def nested(depth: int) -> Graph:
    """Reductions whose bodies hold reductions."""

    def body(level: int) -> Any:
        def inner(b: GraphBuilder, x: Value, y: Value) -> Value:
            if level == 0:
                return b.add(x, y)
            wide = b.broadcast_in_dim(x, shape=(2,), broadcast_dimensions=())
            return b.reduce(wide, y, axes=(0,), body=body(level - 1))[0]

        return inner

    b = GraphBuilder("nested")
    x = b.input("x", "f32", (2,))
    return b.build(b.reduce(x, b.constant(0.0, "f32"), axes=(0,), body=body(depth))[0])


def user_composite(name: str = "user_double") -> OpDef:
    """An op that is not part of the language, with its meaning."""
    from unigraph.opdef import Attr, _registry, define_composite

    def double(b: GraphBuilder, x: Value, *, times: int) -> Value:
        for _ in range(times):
            x = b.add(x, x)
        return x

    return _registry.get(name) or define_composite(
        name, "x", double, "x * 2**times", attrs={"times": Attr("int")}, family="user"
    )
