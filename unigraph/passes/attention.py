"""The attention row of `fuse`: two products around a softmax, in any order of axes.

Every axis of the scores is a batch axis of both products (or of size 1), a row (of queries) or a
column (of keys). Operands are transposed into the order of the scores, so that masks fit as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import CONSTANT, Operation, Value
from ..opdef import registry
from ..ops import contract
from ..ops import elementwise as e
from ..ops import movement as m
from ..ops.nn_contract import attention
from .patterns import PASS_THROUGH, Match, Node, Outcome
from .rewrite import Rewriter

_GE, _LE = registry()["ge"], registry()["le"]
ABSORBING = -1e30  # a finite fill below this swallows any score that is added to it


def attention_left(p: Any, scores: Node, value: Node) -> Node:
    return p.dot_general(p.softmax(scores, name="softmax"), value)


def attention_right(p: Any, scores: Node, value: Node) -> Node:
    return p.dot_general(value, p.softmax(scores, name="softmax"))


class _Declined(Exception):
    """Why something is not an attention."""


@dataclass
class _Side:
    """One operand of a product: where its batch, contracted and free axes are."""

    value: Value
    batch: tuple[int, ...]
    contracting: tuple[int, ...]

    @property
    def free(self) -> list[int]:
        taken = {*self.batch, *self.contracting}
        return [a for a in range(self.value.type.rank) if a not in taken]


def _sides(dot: Operation, inputs: tuple[Value, ...]) -> tuple[_Side, _Side]:
    a = dot.attrs
    if a["out_dtype"] not in (None, inputs[0].type.dtype):
        raise _Declined(f"a product accumulates in {a['out_dtype']}")
    left = _Side(inputs[0], a["lhs_batch"], a["lhs_contracting"])
    right = _Side(inputs[1], a["rhs_batch"], a["rhs_contracting"])
    if len(left.contracting) != 1:
        raise _Declined("a product sums over several axes")
    return left, right


def finish_attention(found: Match) -> Outcome:
    """softmax(mask(scale * q k^T)) v -> attention, and a transpose where the axes stand otherwise."""
    try:
        return _attention(found)
    except _Declined as reason:
        return str(reason)


def _attention(found: Match) -> Value:
    r, soft = found.rewriter, found.operation("softmax")
    scores = found.values["scores"]
    rank = scores.type.rank
    if soft.attrs["axis"] % rank != rank - 1 or rank < 2:
        raise _Declined("the softmax is not over the last axis of the scores")
    product, mask, causal = _peel(r, scores)
    query, key = _sides(product.dot, product.dot.inputs)
    # Each axis of the scores: number of a batch axis, of a free axis of q or of one of k.
    origin = [("batch", i) for i in range(len(query.batch))]
    origin += [("query", a) for a in query.free] + [("key", a) for a in key.free]
    axes = [origin[a] for a in product.order]
    if axes[-1][0] == "query":  # the product was written as k q^T
        query, key = key, query
        swap = {"query": "key", "key": "query", "batch": "batch"}
        axes = [(swap[kind], a) for kind, a in axes]
    if axes[-1][0] != "key" or axes[-2][0] != "query" or len(key.free) != 1:
        raise _Declined("the last two axes of the scores are not one of queries and one of keys")
    lead = list(range(rank - 2))
    if any(axes[i][0] != "batch" and scores.type.shape[i] != 1 for i in lead):
        raise _Declined("an axis of the queries is not one of the keys")

    left, right = _sides(found.root, tuple(r.now(v) for v in found.root.inputs))
    weights, value = (left, right) if _is_softmax(r, left.value, soft) else (right, left)
    if weights.contracting != (rank - 1,) or rank - 2 in weights.batch or len(value.free) != 1:
        raise _Declined("the values are not summed over the axis of keys alone")
    if any(i not in weights.batch and scores.type.shape[i] != 1 for i in lead):
        raise _Declined("the values do not have the leading axes of the scores")
    q = _arranged(
        r, query, [query.batch[a] if kind == "batch" else a for kind, a in axes[:-1]] + [query.contracting[0]]
    )
    k = _arranged(
        r, key, [key.batch[a] if kind == "batch" else None for kind, a in axes[:-2]] + [axes[-1][1], key.contracting[0]]
    )
    places = [value.batch[weights.batch.index(i)] if i in weights.batch else None for i in lead]
    v = _arranged(r, value, [*places, value.contracting[0], value.free[0]])
    operands = [q, k, v] if mask is None else [q, k, v, mask]
    result = r.emit(attention, operands, {"scale": product.scale, "is_causal": causal})
    batch, free = list(weights.batch), weights.free
    order = [*batch, *free, rank - 1] if weights is left else [*batch, rank - 1, *free]
    return result if order == list(range(rank)) else r.emit(m.transpose, [result], {"permutation": tuple(order)})


def _made(r: Rewriter, value: Value) -> Operation | None:
    """The operation that makes a value, operations without effect on it skipped."""
    op = r.producer(value)
    while op is not None and op.op in PASS_THROUGH:
        op = r.producer(op.inputs[0])
    return op


def _is_softmax(r: Rewriter, value: Value, soft: Operation) -> bool:
    return _made(r, value) is soft


def _arranged(r: Rewriter, side: _Side, axes: Sequence[int | None]) -> Value:
    """The operand with its axes in this order; None is a new axis of size 1."""
    order = tuple(a for a in axes if a is not None)
    x = side.value
    if order != tuple(range(len(order))):
        x = r.emit(m.transpose, [x], {"permutation": order})
    if len(order) == len(axes):
        return x
    sizes = iter(x.type.shape)
    return r.emit(m.reshape, [x], {"shape": tuple(1 if a is None else next(sizes) for a in axes)})


# -- what stands between the first product and the softmax ------------------------------------------


@dataclass
class _Product:
    """The product q k^T under a scale and a transpose: axis i of the scores is axis order[i] of it."""

    dot: Operation
    scale: float
    order: tuple[int, ...]


def _product(r: Rewriter, x: Value) -> _Product | None:
    """The product that ``x`` is a multiple of, or None."""
    scale, order = 1.0, tuple(range(x.type.rank))
    for _ in range(4):
        op = _made(r, x)
        if op is None:
            return None
        if op.op is contract.dot_general:
            return _Product(op, scale, order)
        if op.op is m.transpose:
            order = tuple(op.attrs["permutation"][a] for a in order)
            x = op.inputs[0]
            continue
        if op.op not in (e.mul, e.div):
            return None
        x, other = op.inputs
        number = r.splat(other)
        if number is None and op.op is e.mul:
            x, other = other, x
            number = r.splat(other)
        if number is None or not (np.isfinite(number) and number != 0):
            return None
        scale *= float(number) if op.op is e.mul else 1.0 / float(number)
    return None


def _peel(r: Rewriter, scores: Value) -> tuple[_Product, Value | None, bool]:
    """(the product, the mask, whether it is causal)."""
    op = _made(r, scores)
    if op is not None and op.op is e.add:
        for x, mask in (op.inputs, op.inputs[::-1]):
            product = _product(r, x)
            if product is not None:
                return product, _narrow(r, mask), False
    if op is not None and op.op is e.select and len(op.inputs) == 3:
        return _selected(r, op)
    product = _product(r, scores)
    if product is None:
        raise _Declined("the scores are not a product, scaled and masked")
    return product, None, False


def _selected(r: Rewriter, op: Operation) -> tuple[_Product, Value | None, bool]:
    """select(mask, fill, scores), or the other way round."""
    which, *cases = op.inputs
    if which.type.dtype.kind != "bool" or which.type.shape != op.outputs[0].type.shape:
        raise _Declined("the scores are chosen by one number")
    for attend in (True, False):
        fill, product = r.splat(cases[not attend]), _product(r, cases[attend])
        if fill is None or product is None:
            continue
        if not fill <= ABSORBING:
            raise _Declined(f"masked scores are {float(fill):g}, which a large score outweighs")
        if attend and _is_causal(r, which):
            return product, None, True
        mask = _narrow(r, which)
        if np.isinf(fill):
            return product, mask if attend else r.emit(e.not_, [mask]), False
        # With a finite fill a row in which nothing is attended to takes the mean of all values, as
        # it does when the fill is added.
        parts = [r.full(x, op.outputs[0].type.dtype, mask.type.shape) for x in (fill, 0.0)]
        return product, r.emit(e.select, [mask, *(parts if attend else parts[::-1])]), False
    raise _Declined("what is chosen is not a product and a number")


def _narrow(r: Rewriter, mask: Value) -> Value:
    """A mask before it was repeated to the shape of the scores, with 1 for the sizes repeated."""
    op = r.producer(mask)
    if op is None or op.op is not m.broadcast_in_dim:
        return mask
    source, where = op.inputs[0], op.attrs["broadcast_dimensions"]
    shape = [1] * mask.type.rank
    for axis, size in zip(where, source.type.shape):
        shape[axis] = size
    if source.type.shape == tuple(shape):
        return source
    return r.emit(m.reshape, [source], {"shape": tuple(shape)})


def _is_causal(r: Rewriter, mask: Value) -> bool:
    """Whether a mask is row >= column along its last two axes."""
    rank = mask.type.rank
    axes = {a: a for a in range(rank)}
    op = _made(r, mask)
    while op is not None and op.op in (m.broadcast_in_dim, m.reshape):
        axes = _through(op, axes)
        mask = op.inputs[0]
        op = _made(r, mask)
    if op is None:
        return _is_triangle(r.array(mask), [axes.get(a) for a in range(mask.type.rank)], rank)
    if op.op not in (_GE, _LE):
        return False
    row, column = op.inputs if op.op is _GE else op.inputs[::-1]
    return _index(r, row, axes) == rank - 2 and _index(r, column, axes) == rank - 1


def _through(op: Operation, axes: dict[int, int]) -> dict[int, int]:
    """Where the axes of an operand go in the end, given where those of the result go."""
    inner = op.inputs[0].type.shape
    if op.op is m.broadcast_in_dim:
        where = op.attrs["broadcast_dimensions"]
        return {a: axes[w] for a, w in enumerate(where) if inner[a] != 1 and w in axes}
    old = [a for a, n in enumerate(inner) if n != 1]
    new = [a for a, n in enumerate(op.outputs[0].type.shape) if n != 1]
    if [inner[a] for a in old] != [op.outputs[0].type.shape[a] for a in new]:
        return {}
    return {a: axes[b] for a, b in zip(old, new) if b in axes}


def _index(r: Rewriter, value: Value, axes: dict[int, int]) -> int | None:
    """The axis along which a value counts 0, 1, 2…, or None."""
    op = _made(r, value)
    while op is not None and op.op in (m.broadcast_in_dim, m.reshape):
        axes = _through(op, axes)
        value = op.inputs[0]
        op = _made(r, value)
    if op is not None:
        return axes.get(op.attrs["axis"]) if op.op is m.iota else None
    array = r.array(value) if value.role == CONSTANT else None
    if array is None:
        return None
    for axis, size in enumerate(array.shape):
        counted = np.arange(size).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        if size > 1 and np.array_equal(array, np.broadcast_to(counted, array.shape)):
            return axes.get(axis)
    return None


def _is_triangle(array: np.ndarray | None, places: list[int | None], rank: int) -> bool:
    """Whether a constant mask is lower triangular along the last two axes."""
    if array is None or array.ndim < 2 or places[-2:] != [rank - 2, rank - 1]:
        return False
    return bool(np.array_equal(array, np.broadcast_to(np.tri(*array.shape[-2:], dtype=np.bool_), array.shape)))
