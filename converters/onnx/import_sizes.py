"""Arithmetic on sizes while importing: the ops that shape computations are made of.

A row gets object arrays of dims and returns one, or None when the result is no longer a size; the
tensor row then does the work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from unigraph import dims

from .dtypes import FROM_ONNX
from .node import Node, Sizes, axis_of

MAX_ELEMENTS = 1024  # integer tensors above this are data, not sizes


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    """Apply a function of dims elementwise, with NumPy broadcasting."""

    def row(n: Node, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.frompyfunc(lambda *xs: dims.normal(f(*xs)), len(arrays), 1)(*arrays), object)

    return row


def _static(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that only makes sense of plain integers."""

    def row(n: Node, *arrays: np.ndarray) -> np.ndarray | None:
        return np.asarray(f(*(a.astype(np.int64) for a in arrays)), object) if all(map(_known, arrays)) else None

    return row


def _equal(n: Node, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Also of expressions whose difference is a number, as those of a size and itself."""
    apart = np.asarray(np.frompyfunc(lambda a, b: dims.normal(a - b), 2, 1)(x, y), object)
    return np.asarray(apart == 0, object) if _known(apart) else None


def _known(a: np.ndarray) -> bool:
    return all(type(d) is int for d in a.flat)


def _div(a: Any, b: Any) -> Any:
    if type(a) is int and type(b) is int:
        return 0 if b == 0 else int(a / b) if abs(a) < 2**52 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return dims.floordiv(a, b)


def _gather(n: Node, data: np.ndarray, indices: np.ndarray) -> np.ndarray | None:
    return (
        np.asarray(np.take(data, indices.astype(np.int64), axis=n.attr("axis", 0)), object) if _known(indices) else None
    )


def _concat(n: Node, *parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, axis=n.attr("axis", 1))


def _axes(n: Node, rest: tuple[np.ndarray, ...]) -> tuple[int, ...] | None:
    if rest:
        return tuple(int(a) for a in rest[0].reshape(-1))
    return n.attr("axes")


def _squeeze(n: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    axes = _axes(n, rest)
    return x.reshape(
        [s for a, s in enumerate(x.shape) if (s != 1 if axes is None else a not in [i % x.ndim for i in axes])]
    )


def _unsqueeze(n: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    axes = _axes(n, rest) or ()
    rank = x.ndim + len(axes)
    shape = list(x.shape)
    for a in sorted(i % rank for i in axes):
        shape.insert(a, 1)
    return x.reshape(shape)


def _slice(n: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray | None:
    if n.opset < 10:
        starts, ends = n.attr("starts"), n.attr("ends")
        axes, steps = n.attr("axes", range(len(starts))), [1] * len(starts)
    else:
        if not all(map(_known, rest)):
            return None
        starts, ends, *more = [[int(v) for v in r.reshape(-1)] for r in rest]
        axes = more[0] if more else range(len(starts))
        steps = more[1] if len(more) > 1 else [1] * len(starts)
    index = [slice(None)] * x.ndim
    for a, start, end, step in zip(axes, starts, ends, steps):
        low = None if step < 0 and end < -x.shape[a] else end
        index[axis_of(a, x.ndim)] = slice(start, low, step)
    return x[tuple(index)]


def _reshape(n: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray | None:
    shape = rest[0].reshape(-1) if rest else np.asarray(n.attr("shape"), object)
    return x.reshape([int(d) for d in shape]) if _known(shape) else None


def _cast(n: Node, x: np.ndarray) -> np.ndarray | None:
    return x if FROM_ONNX.get(n.attr("to")) is not None and FROM_ONNX[n.attr("to")].name in ("i64", "i32") else None


def _where(n: Node, which: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    return np.asarray(np.where(which.astype(bool), x, y), object) if _known(which) else None


def _constant_of_shape(n: Node, shape: np.ndarray) -> np.ndarray | None:
    fill = n.attr("value")
    if fill is None or fill.dtype.kind not in "iu" or not _known(shape):
        return None
    sizes = tuple(int(d) for d in shape.reshape(-1))
    return np.full(sizes, int(fill.reshape(-1)[0]), object) if int(np.prod(sizes)) <= MAX_ELEMENTS else None


def _range(n: Node, start: np.ndarray, limit: np.ndarray, step: np.ndarray) -> np.ndarray | None:
    if not all(map(_known, (start, limit, step))):
        return None
    found = np.arange(int(start.item()), int(limit.item()), int(step.item()))
    return found.astype(object) if found.size <= MAX_ELEMENTS else None


def _reduce(f: Callable[[Any, Any], Any], start: int) -> Callable[..., np.ndarray | None]:
    def row(n: Node, x: np.ndarray, *rest: np.ndarray) -> np.ndarray | None:
        if x.ndim != 1:
            return None
        total: Any = start
        for d in x.flat:
            total = dims.normal(f(total, d))
        return np.asarray([total] if n.attr("keepdims", 1) else total, object)

    return row


SIZE_ROWS: dict[str, Callable[..., np.ndarray | None]] = {
    "Add": _each(operator.add),
    "Sub": _each(operator.sub),
    "Mul": _each(operator.mul),
    "Div": _each(_div),
    "Mod": _each(lambda a, b: a if b == 0 else dims.mod(a, b)),
    "Max": _each(dims.maximum),
    "Min": _each(dims.minimum),
    "Neg": _each(operator.neg),
    "Abs": _static(np.abs),
    "Equal": _equal,
    "Gather": _gather,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Cast": _cast,
    "Where": _where,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Identity": lambda n, x: x,
    "ReduceProd": _reduce(operator.mul, 1),
    "ReduceSum": _reduce(operator.add, 0),
}


def on_sizes(n: Node) -> Sizes | None:
    """The node evaluated on sizes, or None when it is not (or no longer) about sizes."""
    row = SIZE_ROWS.get(n.op_type)
    given = [x for x in n.inputs if x is not None]
    if row is None or n.outputs != 1 or not given or not all(isinstance(x, Sizes) for x in given):
        return None
    result = row(n, *(x.array for x in given))  # type: ignore[union-attr]
    if result is None or result.size > MAX_ELEMENTS:
        return None
    dtype = given[-1].dtype if n.op_type == "Where" else given[0].dtype  # type: ignore[union-attr]
    if n.op_type == "Equal":
        return None if result.dtype != object else Sizes.of(result.astype(bool).astype(int).astype(object), "bool")
    if n.op_type == "Cast":
        dtype = FROM_ONNX[n.attr("to")]
    if n.op_type == "ConstantOfShape":
        dtype_ = n.attr("value").dtype
        return Sizes.of(result, dtype_)
    return Sizes.of(result, dtype)
