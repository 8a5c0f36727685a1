"""ONNX sequences and optionals of static structure: Python lists and None while importing."""

from __future__ import annotations

from typing import Any

from unigraph import dims
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import reshape, without

from .import_control import walk_in_place
from .import_movement import pieces
from .node import Node, Operand, RowBook, Sizes, axis_of

rows = RowBook()


def _sequence(n: Node) -> list[Value]:
    items = n.inputs[0] if n.inputs else None
    if not isinstance(items, list):
        raise Unsupported(f"{n.op_type}: input 0 must be a sequence")
    return list(items)


def _position(n: Node, i: int, length: int) -> int:
    """Input ``i`` as a position in a sequence of this length."""
    at = int(n.scalar(i))
    if not -length <= at < length:
        raise Unsupported(f"{n.op_type}: position {at} of a sequence of {length}")
    return at % length


@rows("SequenceConstruct", "SequenceEmpty")
def sequence(n: Node) -> list[Value]:
    return n.values()


@rows("SequenceInsert")
def sequence_insert(n: Node) -> list[Value]:
    items = _sequence(n)
    items.insert(int(n.scalar(2)) if n.has(2) else len(items), n.value(1))
    return items


@rows("SequenceErase")
def sequence_erase(n: Node) -> list[Value]:
    items = _sequence(n)
    del items[_position(n, 1, len(items)) if n.has(1) else -1]
    return items


@rows("SequenceAt")
def sequence_at(n: Node) -> Value:
    items = _sequence(n)
    return items[_position(n, 1, len(items))]


@rows("SequenceLength")
def sequence_length(n: Node) -> Sizes:
    return Sizes.of(len(_sequence(n)))


@rows("SequenceMap")
def sequence_map(n: Node) -> Any:
    """The body applied to the items; tensors are passed to every step."""
    body = n.attrs["body"]
    count = len(_sequence(n))
    columns: list[list[Any]] = [[] for _ in body.output]
    for step in range(count):
        given: list[Operand] = [x[step] if isinstance(x, list) else x for x in n.inputs]
        for column, x in zip(columns, walk_in_place(n, body, given)):
            column.append(x)
    return tuple(columns)


@rows("SplitToSequence")
def split_to_sequence(n: Node) -> list[Value]:
    x = n.value(0)
    axis = n.axis("axis", 0, x.type.rank)
    total = x.type.shape[axis]
    if n.has(1) and n.rank(1):
        return pieces(n, x, axis, n.sizes(1))
    part = int(n.scalar(1)) if n.has(1) else 1
    if not dims.is_static(total):
        raise Unsupported("SplitToSequence along a symbolic size", "fix the shapes with from_onnx(path, shapes={...})")
    found = pieces(n, x, axis, [min(part, total - at) for at in range(0, total, part)])
    if n.has(1) or n.attr("keepdims", 1):
        return found
    return [reshape(n.b, p, without(p.type.shape, [axis])) for p in found]


@rows("ConcatFromSequence")
def concat_from_sequence(n: Node) -> Value:
    items, new = _sequence(n), bool(n.attr("new_axis", 0))
    if not items:
        raise Unsupported("ConcatFromSequence of an empty sequence")
    axis = axis_of(n.attr("axis"), items[0].type.rank + new)
    if new:
        items = [reshape(n.b, x, (*x.type.shape[:axis], 1, *x.type.shape[axis:])) for x in items]
    return n.b.concatenate(*items, axis=axis)


@rows("Optional", "OptionalGetElement", "Identity")
def same(n: Node) -> Any:
    """An optional is what it holds, or None."""
    x = n.inputs[0] if n.inputs else None
    if x is None and n.op_type == "OptionalGetElement":
        raise Unsupported("OptionalGetElement of an optional that is absent")
    return x


@rows("OptionalHasElement")
def has_element(n: Node) -> Value:
    return n.b.constant(bool(n.inputs) and n.inputs[0] is not None)
