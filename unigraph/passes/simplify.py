"""Simplify: algebra that keeps every bit, and movement operations that cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import dims
from ..dtypes import DType
from ..graph import Graph, Operation, Value
from ..opdef import OpDef
from ..ops import elementwise as e
from ..ops import movement as m
from ..ops import random as rng
from .rewrite import Rewriter, Rule, apply_rules

Inputs = tuple[Value, ...]


def _is(x: object, number: float) -> bool:
    return x is not None and bool(x == number)


# -- algebra: exact for every input, NaN, infinity and signed zero included ------------------------


def add_zero(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x + 0 -> x for integers; x + -0.0 -> x for floats (x + 0.0 would turn -0.0 into 0.0)."""
    for x, other in (inputs, inputs[::-1]):
        number = r.splat(other)
        if _is(number, 0) and (x.type.dtype.is_integer or (x.type.dtype.is_float and math.copysign(1, number) < 0)):
            return x
    return None


def sub_zero(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x - 0 -> x (for floats only +0.0)."""
    x, number = inputs[0], r.splat(inputs[1])
    if not _is(number, 0) or x.type.dtype.is_complex:
        return None
    return x if x.type.dtype.is_integer or math.copysign(1, number) > 0 else None


def mul_one(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x * 1 -> x."""
    for x, other in (inputs, inputs[::-1]):
        if not x.type.dtype.is_complex and _is(r.splat(other), 1):
            return x
    return None


def div_one(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x / 1 -> x."""
    return inputs[0] if not inputs[0].type.dtype.is_complex and _is(r.splat(inputs[1]), 1) else None


def pow_whole(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """pow(x, 1) -> x; pow(x, 2) -> square(x)."""
    number = r.splat(inputs[1])
    if inputs[0].type.dtype.is_complex:
        return None
    if _is(number, 1):
        return inputs[0]
    return r.emit(e.square, [inputs[0]]) if _is(number, 2) else None


def small_power(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """integer_pow by 1 -> x, by 2 -> square(x)."""
    if op.attrs["y"] == 1:
        return inputs[0]
    return r.emit(e.square, inputs) if op.attrs["y"] == 2 else None


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


def bool_identity(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """x and all-ones -> x; x or 0 -> x; x and x, x or x -> x."""
    if inputs[0] is inputs[1]:
        return inputs[0]
    for x, other in (inputs, inputs[::-1]):
        number = r.splat(other)
        neutral = 0 if op.op is e.or_ else (True if x.type.dtype.kind == "bool" else -1)
        if number is not None and (number == neutral or (neutral == -1 and int(number) == (1 << x.type.dtype.bits) - 1)):
            return x
    return None


# -- types ---------------------------------------------------------------------------------------


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is exactly one of ``wide``."""
    mantissa = {"bf16": (8, 8), "f16": (11, 5), "f32": (24, 8), "f64": (53, 11)}
    if narrow.is_float and wide.is_float:
        n, w = mantissa.get(narrow.name), mantissa.get(wide.name)
        return bool(n and w and w[0] >= n[0] and w[1] >= n[1])
    if narrow.is_integer and wide.is_integer:
        return wide.bits > narrow.bits and (wide.kind == "int" or narrow.kind == "uint") or narrow is wide
    if narrow.is_integer and wide.is_float:
        return wide.name in mantissa and mantissa[wide.name][0] >= narrow.bits
    return narrow.kind == "bool"


def convert_chain(r: Rewriter, op: Operation, inputs: Inputs) -> Value | None:
    """convert to the same dtype -> x; narrow -> wide -> any: the wide step is skipped."""
    x = inputs[0]
    if x.type.dtype is op.attrs["dtype"]:
        return x
    before = r.producer(x)
    if before is None or before.op is not e.convert or not _holds(x.type.dtype, before.inputs[0].type.dtype):
        return None
    source = before.inputs[0]
    return source if source.type.dtype is op.attrs["dtype"] else r.emit(e.convert, [source], op.attrs)


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
    size = op.attrs["dim"]
    return r.constant(size, op.attrs["dtype"]) if dims.is_static(size) else None


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
    e.pow: [pow_whole],
    e.integer_pow: [small_power],
    e.neg: [involution],
    e.not_: [involution],
    e.conj: [involution],
    e.select: [same_choice],
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


def simplify(graph: Graph) -> Graph:
    """The graph after one sweep of the rules above; values are equal bit for bit."""
    return apply_rules(graph, RULES)[0]
