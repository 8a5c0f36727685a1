"""Random typed graphs for hypothesis: many ops, shapes, dtypes, control flow, now and then a symbolic size.

Floats stay small and are only put through continuous functions, so that engines that round differently
stay near each other; what branches on a value branches on integers and bools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.dims import Constraint
from unigraph.dtypes import dtype
from unigraph.graph import Graph, Value

MAX_ELEMENTS = 96
SIZE_OF_SYMBOL = 3
FLOATS, SHORT_FLOATS, INTEGERS = ("f32", "f64"), ("bf16", "f16"), ("i32", "i64", "u8", "i8")
SMOOTH = ("tanh", "sin", "logistic", "abs", "neg", "erf", "expm1", "square")
SHAPES: Sequence[tuple[Any, ...]] = ((), (3,), (2, 3), (4, 3), (2, 3, 4), (1, 3), (2, 1, 4))


@dataclass
class Made:
    """A graph and inputs for it."""

    graph: Graph
    inputs: list[np.ndarray]


class _Maker:
    """Grows a graph step by step from a pool of values."""

    def __init__(self, random: Random, symbolic: bool, short: bool):
        self.random, self.symbolic = random, symbolic
        self.b = GraphBuilder("random", {"n": Constraint(1, 8)} if symbolic else None)
        self.inputs: list[np.ndarray] = []
        self.floats = FLOATS + SHORT_FLOATS if short else FLOATS
        self.pool: list[Value] = []
        lead = ("n",) if symbolic else (2,)
        for i in range(random.randint(1, 3)):
            self.input(f"x{i}", random.choice(self.floats), random.choice([(*lead, 3), (*lead, 3, 4), (3,)]))
        self.input("k", random.choice(INTEGERS), (*lead, 3))
        self.input("m", "bool", (*lead, 3))
        self.input("which", "i32", ())
        self.pool.append(self.b.weight("w", self.array("f32", (3, 4))))
        self.pool.append(self.b.constant(self.array("f32", random.choice(SHAPES))))

    def array(self, kind: str, shape: Sequence[Any]) -> np.ndarray:
        sizes = [n if isinstance(n, int) else SIZE_OF_SYMBOL for n in shape]
        seed = np.random.default_rng(self.random.randint(0, 1 << 30))
        info = dtype(kind)
        if info.kind == "bool":
            return np.asarray(seed.random(sizes) < 0.5)
        if info.is_integer:
            return seed.integers(0 if info.kind == "uint" else -9, 10, sizes).astype(info.numpy)
        return np.asarray(seed.uniform(-2, 2, sizes)).astype(info.numpy)

    def input(self, name: str, kind: str, shape: Sequence[Any]) -> None:
        self.pool.append(self.b.input(name, kind, shape))
        self.inputs.append(self.array(kind, shape))

    # -- choosing ----------------------------------------------------------------------------------

    def pick(self, test: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value that passes the test; late ones are likelier, so that graphs grow deep."""
        found = [v for v in self.pool if test(v)]
        return found[-1 - min(self.random.randint(0, 9), len(found) - 1)] if found else None

    def float(self, test: Callable[[Value], bool] = lambda v: True) -> Value | None:
        return self.pick(lambda v: v.type.dtype.is_float and test(v))

    def twin(self, x: Value) -> Value:
        """A value of the same type: perhaps x itself."""
        found = self.pick(lambda v: v.type == x.type)
        assert found is not None
        return found

    def axis(self, x: Value) -> int | None:
        """An axis of known size."""
        axes = [a for a, n in enumerate(x.type.shape) if type(n) is int and n > 0]
        return self.random.choice(axes) if axes else None

    def keep(self, *values: Value) -> None:
        for v in values:
            size = dims.substitute(v.type.size, {"n": SIZE_OF_SYMBOL})
            if size <= MAX_ELEMENTS and v.type.rank <= 4:
                self.pool.append(v)

    # -- steps: each adds values if it finds operands ----------------------------------------------

    def smooth(self) -> None:
        if x := self.float():
            y = getattr(self.b, self.random.choice(SMOOTH))(x)
            self.keep(self.b.tanh(y) if self.random.random() < 0.7 else self.b.mul(y, 0.125))

    def binary(self) -> None:
        if x := self.float():
            y = self.twin(x)
            op = self.random.choice(["add", "sub", "mul", "max", "min", "div"])
            if op == "div":
                y = self.b.add(self.b.abs(y), 1.0)
            z = getattr(self.b, op)(x, y)
            self.keep(self.b.mul(z, 0.5))

    def neutral(self) -> None:
        """What simplify should see through."""
        if x := self.float():
            kind = self.random.choice(["add", "sub", "mul", "div", "pow", "neg", "convert", "choice", "zero"])
            b = self.b
            if kind in ("mul", "div", "pow"):
                self.keep(getattr(b, kind)(x, 1.0))
            elif kind == "zero":
                self.keep(b.add(x, 0.0), b.sub(x, -0.0))
            elif kind in ("add", "sub"):
                self.keep(getattr(b, kind)(x, -0.0 if kind == "add" else 0.0))
            elif kind == "neg":
                self.keep(b.neg(b.neg(x)))
            elif kind == "convert":
                self.keep(b.convert(b.convert(x, dtype="f64"), dtype=x.type.dtype))
            else:
                self.keep(b.select(b.constant(self.random.random() < 0.5), x, self.twin(x)))

    def integer(self) -> None:
        if x := self.pick(lambda v: v.type.dtype.is_integer):
            y = self.twin(x)
            names = ["add", "sub", "mul", "div", "rem", "max", "min", "and_", "or_", "xor", "shift_left"]
            self.keep(getattr(self.b, self.random.choice(names))(x, y))
            self.keep(self.b.population_count(x))

    def compare(self) -> None:
        if x := self.pick(lambda v: v.type.dtype.is_integer):
            self.keep(getattr(self.b, self.random.choice(["eq", "ne", "lt", "le", "gt", "ge"]))(x, self.twin(x)))

    def logic(self) -> None:
        if x := self.pick(lambda v: v.type.dtype.kind == "bool"):
            op = self.random.choice([self.b.and_, self.b.or_, self.b.xor])
            self.keep(op(self.b.not_(x), self.twin(x)))

    def select(self) -> None:
        which = self.pick(lambda v: v.type.dtype.kind == "bool")
        x = which and self.pick(lambda v: v.type.shape == which.type.shape)
        if which and x:
            self.keep(self.b.select(which, x, self.twin(x)))

    def convert(self) -> None:
        b = self.b
        if x := self.pick(lambda v: not v.type.dtype.is_key):
            if x.type.dtype.is_float:
                self.keep(b.convert(x, dtype=self.random.choice(self.floats)))
            elif x.type.dtype.is_integer:
                small = b.rem(x, 7)
                self.keep(b.convert(small, dtype=self.random.choice(self.floats)), b.convert(x, dtype="i32"))
            else:
                self.keep(b.convert(x, dtype=self.random.choice([*self.floats, *INTEGERS])))

    def move(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0)
        axis = self.axis(x) if x else None
        if x is None or axis is None:
            return
        b, rank, shape = self.b, x.type.rank, x.type.shape
        kind = self.random.choice(["transpose", "reverse", "slice", "pad", "concatenate", "broadcast", "reshape"])
        if kind == "transpose":
            order = list(range(rank))
            self.random.shuffle(order)
            self.keep(b.transpose(x, permutation=order))
        elif kind == "reverse":
            self.keep(b.reverse(x, dimensions=(axis,)))
        elif kind == "slice":
            start = self.random.randint(0, shape[axis] - 1)
            begin = [start if a == axis else 0 for a in range(rank)]
            steps = [self.random.randint(1, 2) if a == axis else 1 for a in range(rank)]
            self.keep(b.slice(x, start=begin, limit=shape, strides=steps))
        elif kind == "pad":
            low, high, inner = (
                [n if a == axis else 0 for a in range(rank)] for n in self.random.choice([(1, 0, 1), (-1, 2, 0)])
            )
            self.keep(b.pad(x, b.constant(0, x.type.dtype), low=low, high=high, interior=inner))
        elif kind == "concatenate":
            self.keep(b.concatenate(x, self.twin(x), axis=axis))
        elif kind == "broadcast":
            self.keep(b.broadcast_in_dim(x, shape=(2, *shape), broadcast_dimensions=range(1, rank + 1)))
        else:
            joined = (1, *shape) if not x.type.is_static else (int(np.prod(shape)),)
            flat = b.reshape(x, shape=joined)
            self.keep(flat, b.reshape(flat, shape=shape))

    def reduce(self) -> None:
        x = self.pick(lambda v: v.type.rank > 0 and v.type.dtype.kind != "bool")
        axis = self.axis(x) if x else None
        if x is not None and axis is not None:
            y = getattr(self.b, self.random.choice(["reduce_sum", "reduce_max", "reduce_min"]))(x, axes=(axis,))
            self.keep(self.b.mul(y, 0.25) if y.type.dtype.is_float else y)
            if x.type.dtype.is_float:
                self.keep(self.b.mul(self.b.cumsum(x, axis=axis), 0.25))
            else:
                self.keep(self.b.argmax(x, axis=axis))

    def product(self) -> None:
        x = self.float(lambda v: v.type.rank > 0 and type(v.type.shape[-1]) is int and v.type.shape[-1] > 0)
        if x:
            b = self.b
            w = b.constant(self.array(x.type.dtype.name, (x.type.shape[-1], 3)))
            y = b.dot_general(x, w, lhs_contracting=(x.type.rank - 1,), rhs_contracting=(0,))
            bias = b.broadcast_in_dim(
                b.constant(self.array(x.type.dtype.name, (3,))),
                shape=y.type.shape,
                broadcast_dimensions=(y.type.rank - 1,),
            )
            self.keep(b.tanh(y), b.mul(b.add(y, bias), 0.125))

    def gather(self) -> None:
        x = self.float(lambda v: v.type.rank > 0)
        axis = self.axis(x) if x else None
        if x is not None and axis is not None:
            indices = self.b.constant(np.array([0, 5, -1, 1], np.int32))
            self.keep(self.b.take(x, indices, axis=axis, mode=self.random.choice(["clip", "wrap"])))

    def composite(self) -> None:
        x = self.float(lambda v: v.type.rank > 0 and type(v.type.shape[-1]) is int and v.type.shape[-1] > 1)
        if x:
            b, last = self.b, x.type.rank - 1
            made = [
                lambda: b.softmax(x, axis=last),
                lambda: b.mul(b.log_softmax(x, axis=last), 0.125),
                lambda: b.gelu(x, approximate=self.random.choice(["none", "tanh"])),
                lambda: b.silu(x),
                lambda: b.mul(b.rms_norm(x, normalized_rank=1, epsilon=1e-2), 0.5),
            ]
            self.keep(self.random.choice(made)())

    def written_out(self) -> None:
        """The decomposition of a composite in place of it: what fuse should raise again."""
        x = self.float(lambda v: v.type.rank > 0 and type(v.type.shape[-1]) is int and v.type.shape[-1] > 1)
        if x and x.type.dtype.name in FLOATS:
            b, axes, shape = self.b, (x.type.rank - 1,), x.type.shape
            spread = range(x.type.rank - 1)

            def back(y: Value) -> Value:
                return b.broadcast_in_dim(y, shape=shape, broadcast_dimensions=spread)

            e = b.exp(b.sub(x, back(b.reduce_max(x, axes=axes))))
            self.keep(b.div(e, back(b.reduce_sum(e, axes=axes))), b.mul(x, b.logistic(x)))

    def size(self) -> None:
        if self.symbolic:
            self.keep(self.b.dim_size(dim="n", dtype="i32"), self.b.dim_size(dim="2*n + 1", dtype="i64"))
        else:
            self.keep(self.b.iota(dtype="i32", shape=(2, 3), axis=1))

    def branch(self) -> None:
        if x := self.float():
            which = self.pick(lambda v: v.type.rank == 0 and v.type.dtype.name in ("bool", "i32"))
            if which is not None:
                first = self.b.cond(
                    which, x, branches=[lambda b, v: b.tanh(v), lambda b, v: b.mul(b.add(v, -0.0), 0.5)]
                )
                self.keep(*first)

    def loop(self) -> None:
        x = self.float(lambda v: v.type.rank > 0 and type(v.type.shape[0]) is int and v.type.shape[0] > 0)
        if x:
            start = self.b.full(0.5, x.type.dtype, x.type.shape[1:])

            def body(b: GraphBuilder, carry: Value, item: Value) -> list[Value]:
                return [b.tanh(b.add(carry, item)), b.mul(carry, 0.5)]

            reverse = self.random.random() < 0.5
            self.keep(
                *self.b.scan(start, x, length=x.type.shape[0], num_consts=0, num_carry=1, reverse=reverse, body=body)
            )


STEPS = (
    _Maker.smooth, _Maker.smooth, _Maker.binary, _Maker.binary, _Maker.neutral, _Maker.neutral, _Maker.integer,
    _Maker.compare, _Maker.logic, _Maker.select, _Maker.convert, _Maker.move, _Maker.move, _Maker.move, _Maker.reduce,
    _Maker.product, _Maker.gather, _Maker.composite, _Maker.written_out, _Maker.size, _Maker.branch, _Maker.loop,
)  # fmt: skip


@st.composite
def graphs(draw: Any, short: bool = False, steps: int = 14) -> Made:
    """A graph with inputs for it. ``short`` lets short floats in, which engines round differently."""
    random = draw(st.randoms(use_true_random=False))
    maker = _Maker(random, draw(st.booleans()), short)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=steps)):
        step(maker)
    outputs = maker.pool[-random.randint(1, 4) :]
    return Made(maker.b.build(tuple(outputs)), maker.inputs)
