"""Simplify: algebra that keeps every bit, and movement operations that cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dims
from ..dtypes import DType
from ..graph import Graph, GraphLike, Operation, Value, as_graph
from ..opdef import OpDef, registry
from ..ops import elementwise as e
from ..ops import movement as m
from ..ops import random as rng
from .rewrite import Rewriter, Rule, apply_rules

Inputs = tuple[Value, ...]


def _is(x: object, number: float) -> bool:
    return x is not None and bool(x == number)


def _sign(x: Any) -> float:
    return math.copysign(1, float(x))


# -- algebra: exact for every input, NaN, infinity and signed zero included ------------------------


def add_zero(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x + 0 -> x for integers; x + -0.0 -> x for floats (x + 0.0 would turn -0.0 into 0.0)."""
    for x, other in (inputs, inputs[::-1]):
        number = r.splat(other)
        if _is(number, 0) and (x.type.dtype.is_integer or (x.type.dtype.is_float and _sign(number) < 0)):
            return x
    return None


def sub_zero(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x - 0 -> x (for floats only +0.0)."""
    x, number = inputs[0], r.splat(inputs[1])
    if not _is(number, 0) or x.type.dtype.is_complex:
        return None
    return x if x.type.dtype.is_integer or _sign(number) > 0 else None


def mul_one(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x * 1 -> x (for bool: x and True)."""
    for x, other in (inputs, inputs[::-1]):
        if not x.type.dtype.is_complex and _is(r.splat(other), 1):
            return x
    return None


def div_one(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x / 1 -> x."""
    return inputs[0] if not inputs[0].type.dtype.is_complex and _is(r.splat(inputs[1]), 1) else None


def pow_one(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """pow(x, 1) -> x. (pow(x, 2) is not square(x) bit for bit: mathematical libraries differ.)"""
    return inputs[0] if not inputs[0].type.dtype.is_complex and _is(r.splat(inputs[1]), 1) else None


def small_power(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """integer_pow by 1 -> x, by 2 -> square(x)."""
    if op.attrs["y"] == 1:
        return inputs[0]
    return r.emit(e.square, inputs) if op.attrs["y"] == 2 and not inputs[0].type.dtype.is_complex else None


def involution(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """f(f(x)) -> x for neg, not, conj."""
    before = r.producer(inputs[0])
    return before.inputs[0] if before is not None and before.op is op.op else None


def same_choice(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """select with equal cases -> the case; with a constant choice -> the chosen case."""
    which, *cases = inputs
    if all(c is cases[0] for c in cases):
        return cases[0]
    number = r.splat(which)
    return None if number is None else cases[min(max(int(number), 0), len(cases) - 1)]


def choice_of_truth(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """select(c, False, True) -> c; select(c, True, False) -> not c."""
    which, *cases = inputs
    if len(cases) != 2 or any(v.type != op.outputs[0].type or v.type.dtype.kind != "bool" for v in inputs):
        return None
    no, yes = (r.splat(c) for c in cases)
    if no is None or yes is None or bool(no) == bool(yes):
        return None
    return which if yes else r.emit(e.not_, [which])


def bool_identity(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x and all-ones -> x; x or 0 -> x; x and x, x or x -> x."""
    if inputs[0] is inputs[1]:
        return inputs[0]
    for x, other in (inputs, inputs[::-1]):
        number = r.splat(other)
        dtype = x.type.dtype
        bits = 1 if dtype.kind == "bool" else dtype.bits
        neutral = 0 if op.op is e.or_ else (1 << bits) - 1
        if number is not None and int(number) % (1 << bits) == neutral:
            return x
    return None


def bool_again(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """ne(convert(b), 0) -> b for a bool b."""
    for x, other in (inputs, inputs[::-1]):
        before = r.producer(x)
        if before is not None and before.op is e.convert and before.inputs[0].type.dtype.kind == "bool":
            if _is(r.splat(other), 0) and x.type.dtype.name != "f8e8m0fnu":
                return before.inputs[0]
    return None


# -- types ---------------------------------------------------------------------------------------


# Bits of the mantissa (the hidden one counted) and of the exponent.
_FORMAT = {"bf16": (8, 8), "f16": (11, 5), "f32": (24, 8), "f64": (53, 11)}


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is exactly one of ``wide``."""
    n, w = _FORMAT.get(narrow.name), _FORMAT.get(wide.name)
    if narrow.is_float and wide.is_float:
        return bool(n and w and w[0] >= n[0] and w[1] >= n[1])
    if narrow.is_integer and wide.is_integer:
        return (wide.bits > narrow.bits and (wide.kind == "int" or narrow.kind == "uint")) or narrow is wide
    if narrow.is_integer and wide.is_float:
        return bool(w and w[0] >= narrow.bits and w[1] > 5)
    return narrow.kind == "bool" and (wide.is_integer or bool(w))


def _one_rounding(source: DType, target: DType) -> bool:
    """Whether converting ``source`` to ``target`` directly is sure to round once: libraries take
    wide integers to short floats by way of f32."""
    return not (source.is_integer and source.bits > 16 and target.is_inexact and target.bits < 32)


def convert_chain(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """convert to the same dtype -> x; narrow -> wide -> any: the wide step is skipped."""
    x, target = inputs[0], op.attrs["dtype"]
    if x.type.dtype is target:
        return x
    before = r.producer(x)
    if before is None or before.op is not e.convert:
        return None
    source = before.inputs[0]
    if not _holds(x.type.dtype, source.type.dtype) or not _one_rounding(source.type.dtype, target):
        return None
    return source if source.type.dtype is target else r.emit(e.convert, [source], op.attrs)


# -- movement ------------------------------------------------------------------------------------


def same_type(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """A reshape, broadcast, slice or pad that changes nothing -> x."""
    x = inputs[0]
    if x.type.shape != op.outputs[0].type.shape:
        return None
    if op.op is m.broadcast_in_dim and op.attrs["broadcast_dimensions"] != tuple(range(x.type.rank)):
        return None
    if op.op is m.slice and any(s != 1 for s in op.attrs["strides"] or ()):
        return None
    if op.op is m.pad and any(n != 0 for key in ("low", "high", "interior") for n in op.attrs[key] or ()):
        return None
    return x


def reshape_chain(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """reshape(reshape(x)) -> reshape(x)."""
    before = r.producer(inputs[0])
    return r.emit(m.reshape, before.inputs, op.attrs) if before is not None and before.op is m.reshape else None


def transpose_chain(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """transpose(transpose(x)) -> one transpose; the identity -> x."""
    order = op.attrs["permutation"]
    if order == tuple(range(len(order))):
        return inputs[0]
    before = r.producer(inputs[0])
    if before is None or before.op is not m.transpose:
        return None
    joined = tuple(before.attrs["permutation"][i] for i in order)
    if joined == tuple(range(len(joined))):
        return before.inputs[0]
    return r.emit(m.transpose, before.inputs, {"permutation": joined})


def broadcast_chain(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """broadcast(broadcast(x)) -> one; broadcast(reshape that only adds ones) -> one broadcast."""
    before = r.producer(inputs[0])
    if before is None:
        return None
    where = op.attrs["broadcast_dimensions"]
    if before.op is m.broadcast_in_dim:
        kept = before.attrs["broadcast_dimensions"]
    elif before.op is m.reshape:
        found = _added_ones(before.inputs[0].type.shape, before.outputs[0].type.shape)
        if found is None:
            return None
        kept = found
    else:
        return None
    source = before.inputs[0]
    attrs = {"shape": op.attrs["shape"], "broadcast_dimensions": tuple(where[i] for i in kept)}
    return r.emit(m.broadcast_in_dim, [source], attrs)


def _added_ones(old: Sequence[dims.Dim], new: Sequence[dims.Dim]) -> tuple[int, ...] | None:
    """Where each old axis stands in ``new`` if new is old with ones put in; None otherwise."""
    places: list[int] = []
    for axis, size in enumerate(new):
        if len(places) < len(old) and old[len(places)] == size:
            places.append(axis)
        elif size != 1:
            return None
    return tuple(places) if len(places) == len(old) else None


def only_part(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """concatenate of one value -> the value; empty parts are dropped."""
    axis = op.attrs["axis"]
    parts = [v for v in inputs if v.type.shape[axis] != 0] or list(inputs[:1])
    if len(parts) == 1:
        return parts[0]
    return r.emit(m.concatenate, parts, op.attrs) if len(parts) < len(inputs) else None


def no_axes(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """reverse over no axis, or over axes of size one -> x."""
    return inputs[0] if all(inputs[0].type.shape[d] == 1 for d in op.attrs["dimensions"]) else None


def known_size(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """dim_size of a size that is a number -> a constant."""
    size, dtype = op.attrs["dim"], op.attrs["dtype"]
    if not dims.is_static(size) or not dtype.is_integer or size >= 1 << (dtype.bits - 1):
        return None
    return r.constant(size, dtype)


def wrapped_key(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """rng_wrap(rng_unwrap(key)) -> key, and the other way round."""
    before = r.producer(inputs[0])
    inverse = rng.rng_unwrap if op.op is rng.rng_wrap else rng.rng_wrap
    return before.inputs[0] if before is not None and before.op is inverse else None


RULES: dict[OpDef, Sequence[Rule]] = {
    e.add: [add_zero],
    e.sub: [sub_zero],
    e.mul: [mul_one],
    e.div: [div_one],
    e.pow: [pow_one],
    e.integer_pow: [small_power],
    e.neg: [involution],
    e.not_: [involution],
    e.conj: [involution],
    e.select: [same_choice, choice_of_truth],
    registry()["ne"]: [bool_again],
    e.and_: [bool_identity],
    e.or_: [bool_identity],
    e.convert: [convert_chain],
    m.reshape: [same_type, reshape_chain],
    m.broadcast_in_dim: [same_type, broadcast_chain],
    m.slice: [same_type],
    m.pad: [same_type],
    m.transpose: [transpose_chain],
    m.reverse: [no_axes],
    m.concatenate: [only_part],
    m.dim_size: [known_size],
    rng.rng_wrap: [wrapped_key],
    rng.rng_unwrap: [wrapped_key],
}


def simplify(graph: GraphLike) -> Graph:
    """The graph after one sweep of the rules above; values are equal bit for bit.

    What a rule makes superfluous stays in the graph until `prune`.
    """
    graph = as_graph(graph)
    return apply_rules(graph, RULES)[0]
