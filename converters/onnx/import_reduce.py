"""ONNX reductions, softmax and ordering."""

from __future__ import annotations

from collections.abc import Callable

from unigraph import dims
from unigraph.dtypes import bf16, f16
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import back, broadcast_to, cast, keep, mean_of, ones_at, reshape

from .node import Node, RowBook, axis_of

rows = RowBook()


def _axes(n: Node, x: Value) -> tuple[int, ...] | None:
    """The reduced axes; None when nothing is to be reduced (noop_with_empty_axes)."""
    inputs_since = 13 if n.op_type == "ReduceSum" else 18
    given = (n.ints(1) if n.has(1) else None) if n.opset >= inputs_since else n.attr("axes")
    if not given:
        return None if n.attr("noop_with_empty_axes", 0) else tuple(range(x.type.rank))
    return tuple(sorted({axis_of(a, x.type.rank) for a in given}))


def _reduction(
    f: Callable[[Node, Value, tuple[int, ...]], Value], before: Callable[[Node, Value], Value] | None = None
) -> Callable[[Node], Value]:
    def row(n: Node) -> Value:
        x = n.value(0)
        axes = _axes(n, x)
        if axes is None:
            axes = ()
        reduced = f(n, x if before is None else before(n, x), axes)
        return keep(n.b, reduced, x.type.shape, axes, bool(n.attr("keepdims", 1)))

    return row


def _sum(n: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return n.b.reduce_sum(x, axes=axes) if axes else x


def _mean(n: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return mean_of(n.b, x, axes) if axes else x


def _extreme(op: str) -> Callable[[Node, Value, tuple[int, ...]], Value]:
    return lambda n, x, axes: getattr(n.b, op)(x, axes=axes) if axes else x


def _log_sum_exp(n: Node, x: Value, axes: tuple[int, ...]) -> Value:
    return n.b.logsumexp(x, axes=axes, keepdims=False) if axes else x


def _square(n: Node, x: Value) -> Value:
    return n.b.mul(x, x)


rows.add("ReduceSum", _reduction(_sum))
rows.add("ReduceMean", _reduction(_mean))
rows.add("ReduceMax", _reduction(_extreme("reduce_max")))
rows.add("ReduceMin", _reduction(_extreme("reduce_min")))
rows.add("ReduceProd", _reduction(_extreme("reduce_prod")))
rows.add("ReduceL1", _reduction(_sum, lambda n, x: n.b.abs(x)))
rows.add("ReduceL2", _reduction(lambda n, x, axes: _root(n, _sum(n, x, axes)), _square))
rows.add("ReduceSumSquare", _reduction(_sum, _square))
rows.add("ReduceLogSum", _reduction(lambda n, x, axes: n.b.log(_sum(n, x, axes))))
rows.add("ReduceLogSumExp", _reduction(_log_sum_exp))


def _root(n: Node, x: Value) -> Value:
    if x.type.dtype.is_float:
        return n.b.sqrt(x)
    return cast(n.b, n.b.sqrt(n.b.convert(x, dtype="f64")), x.type.dtype)


@rows("ArgMax", "ArgMin")
def arg_extreme(n: Node) -> Value:
    """``select_last_index`` looks from the other end."""
    x = n.value(0)
    axis = n.axis("axis", 0, x.type.rank)
    op = n.b.argmax if n.op_type == "ArgMax" else n.b.argmin
    last = bool(n.attr("select_last_index", 0))
    found = op(n.b.reverse(x, dimensions=(axis,)) if last else x, axis=axis, index_dtype="i64")
    if last:
        end = n.b.size(dims.normal(x.type.shape[axis] - 1))
        found = n.b.sub(broadcast_to(n.b, end, found.type.shape), found)
    return keep(n.b, found, x.type.shape, (axis,), bool(n.attr("keepdims", 1)))


def _flattened(op: str) -> Callable[[Node], Value]:
    """Before opset 13: over all axes from ``axis`` on, at once."""

    def row(n: Node) -> Value:
        x = n.value(0)
        axis = n.attr("axis", 1)
        axis = axis + x.type.rank if axis < 0 else axis
        flat = reshape(n.b, x, (dims.product(x.type.shape[:axis]), dims.product(x.type.shape[axis:])))
        return reshape(n.b, _softmax(n, op, flat, 1), x.type.shape)

    return row


def _along(op: str) -> Callable[[Node], Value]:
    return lambda n: _softmax(n, op, n.value(0), n.axis("axis", -1, n.value(0).type.rank))


def _softmax(n: Node, op: str, x: Value, axis: int) -> Value:
    if op != "hardmax":
        return (_rounded if x.type.dtype in (f16, bf16) else _whole)(n, op, x, axis)
    first = n.b.argmax(x, axis=axis, index_dtype="i64")
    hit = n.b.eq(back(n.b, first, x.type.shape, (axis,)), n.b.iota(dtype="i64", shape=x.type.shape, axis=axis))
    return n.b.convert(hit, dtype=x.type.dtype)


def _whole(n: Node, op: str, x: Value, axis: int) -> Value:
    return getattr(n.b, op)(x, axis=axis)


def _rounded(n: Node, op: str, x: Value, axis: int) -> Value:
    """The steps of the function that defines the operator, each in the tensor's own precision.

    The composite keeps 32 bits inside, and a result that is two units of a 16-bit float away is not what
    Attention with its ``softmax_precision`` asks for.
    """
    shape = x.type.shape
    centred = n.b.sub(x, back(n.b, n.b.reduce_max(x, axes=(axis,)), shape, (axis,)))
    powers = n.b.exp(centred)
    total = n.b.reduce_sum(powers, axes=(axis,))
    if op == "softmax":
        return n.b.div(powers, back(n.b, total, shape, (axis,)))
    return n.b.sub(centred, back(n.b, n.b.log(total), shape, (axis,)))


for _name, _op in {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}.items():
    rows.add(_name, _flattened(_op))
    rows.add(_name, _along(_op), since=13)


@rows("TopK")
def top_k(n: Node) -> tuple[Value, Value]:
    """Largest (or smallest) first; equal elements in index order."""
    x = n.value(0)
    axis = n.axis("axis", -1, x.type.rank)
    k = n.sizes(1)[0] if n.opset >= 10 else n.attr("k")
    if n.attr("largest", 1):
        values, indices = n.b.top_k(x, k=k, axis=axis)
        return values, n.b.convert(indices, dtype="i64")
    order = n.b.iota(dtype="i64", shape=x.type.shape, axis=axis)
    values, indices = n.b.sort(x, order, axis=axis, num_keys=1, stable=True)
    start = (0,) * x.type.rank
    limit = tuple(k if a == axis else d for a, d in enumerate(x.type.shape))
    return n.b.slice(values, start=start, limit=limit), n.b.slice(indices, start=start, limit=limit)


@rows("LpNormalization")
def lp_normalization(n: Node) -> Value:
    x, p = n.value(0), n.attr("p", 2)
    axis = n.axis("axis", -1, x.type.rank)
    if p == 1:
        size = n.b.reduce_sum(n.b.abs(x), axes=(axis,))
    elif p == 2:
        size = n.b.sqrt(n.b.reduce_sum(n.b.mul(x, x), axes=(axis,)))
    else:
        raise Unsupported(f"LpNormalization with p = {p}: ONNX allows 1 and 2")
    zero = n.b.eq(size, 0.0)
    safe = n.b.select(zero, size, n.b.full_like(size, 1.0))
    return n.b.div(x, back(n.b, safe, x.type.shape, (axis,)))


@rows("MeanVarianceNormalization")
def mean_variance(n: Node) -> Value:
    x = n.value(0)
    axes = tuple(axis_of(a, x.type.rank) for a in n.attr("axes", (0, 2, 3)))
    centred = n.b.sub(x, back(n.b, mean_of(n.b, x, axes), x.type.shape, axes))
    variance = mean_of(n.b, n.b.mul(centred, centred), axes)
    root = n.b.add(n.b.sqrt(variance), 1e-9)
    return n.b.div(centred, broadcast_to(n.b, reshape(n.b, root, ones_at(x.type.shape, axes)), x.type.shape))
