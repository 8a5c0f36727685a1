"""ONNX nodes of neural networks: products, convolutions, pools, norms, quantisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from unigraph import dims
from unigraph.dtypes import dtype
from unigraph.errors import Unsupported
from unigraph.graph import STATE, Value
from unigraph.ops.idioms import cast, reshape

from .import_elementwise import to_shape
from .node import Node, RowBook

rows = RowBook()


# -- products --------------------------------------------------------------------------------------


@rows("MatMul")
def matmul(n: Node) -> Value:
    return n.b.matmul(n.value(0), n.value(1))


@rows("Gemm")
def gemm(n: Node) -> Value:
    """alpha * A' B' + beta * C."""
    a, b = n.value(0), n.value(1)
    sides = {
        "lhs_contracting": (0 if n.attr("transA", 0) else 1,),
        "rhs_contracting": (1 if n.attr("transB", 0) else 0,),
    }
    product = n.b.dot_general(a, b, **sides)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    product = _scaled(n, product, alpha)
    if not n.has(2):
        return product
    return n.b.add(product, to_shape(n, _scaled(n, n.value(2), beta), product.type.shape))


def _scaled(n: Node, x: Value, factor: float) -> Value:
    """``factor * x``; integers only with a whole factor."""
    if factor == 1:
        return x
    if x.type.dtype.is_integer:
        if factor != int(factor):
            raise Unsupported(f"Gemm of integers scaled by {factor}")
        factor = int(factor)
    return n.b.mul(x, factor)


@rows("Einsum")
def einsum(n: Node) -> Value:
    return n.b.einsum(*n.values(), equation=n.attr("equation"))


# -- windows ---------------------------------------------------------------------------------------


def _ints(n: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    return tuple(n.attr(name) or (default,) * rank)


def _padding(
    n: Node, x: Value, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads before and after each spatial axis, from ``pads`` or ``auto_pad``."""
    rank = len(kernel)
    mode = n.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = _ints(n, "pads", 2 * rank, 0)
        return tuple(pads[:rank]), tuple(pads[rank:])
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    low, high = [], []
    for size, k, s, d in zip(x.type.shape[2:], kernel, strides, dilation):
        if not dims.is_static(size):
            raise Unsupported(
                f"auto_pad={mode} of a symbolic size", "fix the shapes with from_onnx(path, shapes={...})"
            )
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        low.append(before)
        high.append(total - before)
    return tuple(low), tuple(high)


def conv_attributes(n: Node, x: Value, w: Value) -> dict[str, Any]:
    """Attributes of the composite ``conv`` from those of a node."""
    rank = w.type.rank - 2
    kernel = tuple(n.attr("kernel_shape") or w.type.shape[2:])
    strides, dilation = _ints(n, "strides", rank, 1), _ints(n, "dilations", rank, 1)
    low, high = _padding(n, x, kernel, strides, dilation)
    return {"strides": strides, "low": low, "high": high, "dilation": dilation, "groups": n.attr("group", 1)}


@rows("Conv")
def conv(n: Node) -> Value:
    x, w = n.value(0), n.value(1)
    operands = [x, w, *([n.value(2)] if n.has(2) else [])]
    return n.b.conv(*operands, **conv_attributes(n, x, w))


@rows("ConvTranspose")
def conv_transpose(n: Node) -> Value:
    """``output_shape`` decides the pads; otherwise they crop the full result."""
    x, w = n.value(0), n.value(1)
    rank = w.type.rank - 2
    kernel = tuple(n.attr("kernel_shape") or w.type.shape[2:])
    strides, dilation = _ints(n, "strides", rank, 1), _ints(n, "dilations", rank, 1)
    extra = _ints(n, "output_padding", rank, 0)
    wanted, mode = n.attr("output_shape"), n.attr("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(x.type.shape[2:], strides)]
    if wanted is None:
        pads = _ints(n, "pads", 2 * rank, 0)
        low, high = tuple(pads[:rank]), tuple(pads[rank:])
    else:
        totals = [
            s * (i - 1) + e + (k - 1) * d + 1 - o
            for s, i, e, k, d, o in zip(strides, x.type.shape[2:], extra, kernel, dilation, wanted[-rank:])
        ]
        half = [t // 2 for t in totals]
        rest = [t - h for t, h in zip(totals, half)]
        low, high = (tuple(half), tuple(rest)) if mode == "SAME_UPPER" else (tuple(rest), tuple(half))
    operands = [x, w, *([n.value(2)] if n.has(2) else [])]
    return n.b.conv_transpose(
        *operands,
        strides=strides,
        low=low,
        high=high,
        output_padding=extra,
        dilation=dilation,
        groups=n.attr("group", 1),
    )


def _window(n: Node, x: Value) -> dict[str, Any]:
    """Attributes of a pool; ceil mode grows the padding after, and says by how much."""
    kernel = tuple(n.attr("kernel_shape"))
    rank = len(kernel)
    strides, dilation = _ints(n, "strides", rank, 1), _ints(n, "dilations", rank, 1)
    low, high = _padding(n, x, kernel, strides, dilation)
    extra = [0] * rank
    if n.attr("ceil_mode", 0):
        for a, (size, k, s, d) in enumerate(zip(x.type.shape[2:], kernel, strides, dilation)):
            if not dims.is_static(size):
                raise Unsupported("ceil_mode of a symbolic size", "fix the shapes with from_onnx(path, shapes={...})")
            span = size + low[a] + high[a] - (k - 1) * d - 1
            steps = -(-span // s)
            if steps * s >= size + low[a]:  # the last window would start in the padding after
                steps -= 1
            extra[a] = max(steps * s - span, 0)
    high = tuple(h + e for h, e in zip(high, extra))
    return {"kernel": kernel, "strides": strides, "low": low, "high": high, "dilation": dilation, "extra": tuple(extra)}


@rows("MaxPool")
def max_pool(n: Node) -> Any:
    x = n.value(0)
    w = _window(n, x)
    del w["extra"]
    pooled = n.b.max_pool(x, **w)
    if n.outputs == 1:
        return pooled
    return pooled, _max_pool_indices(n, x, w)


def _max_pool_indices(n: Node, x: Value, w: dict[str, Any]) -> Value:
    """Flat position of each maximum: windows as a stack of slices, and the first largest one."""
    shape, rank = x.type.shape, x.type.rank
    if not x.type.is_static:
        raise Unsupported("MaxPool's indices for symbolic sizes", "fix the shapes with from_onnx(path, shapes={...})")
    flat = np.arange(int(np.prod(shape)), dtype=np.int64)
    if n.attr("storage_order", 0):
        spatial = np.arange(int(np.prod(shape[2:]))).reshape(shape[2:][::-1]).T
        base = np.arange(int(np.prod(shape[:2]))).reshape(shape[:2] + (1,) * (rank - 2)) * spatial.size
        positions = (base + spatial).astype(np.int64)
    else:
        positions = flat.reshape(shape)
    low, high = (0, 0, *w["low"]), (0, 0, *w["high"])
    bottom = n.b.constant(-np.inf if x.type.dtype.is_float else np.iinfo(x.type.dtype.numpy).min, x.type.dtype)
    values = n.b.pad(x, bottom, low=low, high=high)
    where = np.pad(positions, tuple(zip(low, high)))
    outs = [
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(values.type.shape[2:], w["kernel"], w["dilation"], w["strides"])
    ]
    stack, places = [], []
    for offset in np.ndindex(*w["kernel"]):
        start = (0, 0, *(o * d for o, d in zip(offset, w["dilation"])))
        limit = (*shape[:2], *(b + (o - 1) * s + 1 for b, o, s in zip(start[2:], outs, w["strides"])))
        steps = (1, 1, *w["strides"])
        piece = n.b.slice(values, start=start, limit=limit, strides=steps)
        stack.append(n.b.reshape(piece, shape=(1, *piece.type.shape)))
        places.append(where[tuple(slice(b, e, s) for b, e, s in zip(start, limit, steps))])
    best = n.b.argmax(n.b.concatenate(*stack, axis=0), axis=0, index_dtype="i64")
    index = n.b.reshape(best, shape=(1, *best.type.shape))
    found = n.b.take_along_axis(n.b.constant(np.stack(places)), index, axis=0)
    return n.b.reshape(found, shape=best.type.shape)


@rows("AveragePool")
def average_pool(n: Node) -> Value:
    x = n.value(0)
    w = _window(n, x)
    extra, dilation = w.pop("extra"), w.pop("dilation")
    if any(d != 1 for d in dilation):
        return _dilated_average(n, x, {**w, "dilation": dilation}, bool(n.attr("count_include_pad", 0)), extra)
    return n.b.avg_pool(x, **w, count_include_pad=bool(n.attr("count_include_pad", 0)), ceil_extra=extra)


def _dilated_average(n: Node, x: Value, w: dict[str, Any], include: bool, extra: Sequence[int]) -> Value:
    attrs = {
        "window": (1, 1, *w["kernel"]),
        "strides": (1, 1, *w["strides"]),
        "window_dilation": (1, 1, *w["dilation"]),
    }
    total = n.b.reduce_window_sum(x, low=(0, 0, *w["low"]), high=(0, 0, *w["high"]), **attrs)
    ones = n.b.full_like(x, 1.0)
    if include:
        declared = tuple(h - e for h, e in zip(w["high"], extra))
        ones = n.b.pad(ones, n.b.constant(1.0, x.type.dtype), low=(0, 0, *w["low"]), high=(0, 0, *declared))
        count = n.b.reduce_window_sum(ones, low=(0,) * x.type.rank, high=(0, 0, *extra), **attrs)
    else:
        count = n.b.reduce_window_sum(ones, low=(0, 0, *w["low"]), high=(0, 0, *w["high"]), **attrs)
    return n.b.div(total, count)


@rows("LpPool")
def lp_pool(n: Node) -> Value:
    x, p = n.value(0), n.attr("p", 2)
    w = _window(n, x)
    powered = n.b.pow(n.b.abs(x), float(p))
    total = n.b.reduce_window_sum(
        powered,
        window=(1, 1, *w["kernel"]),
        strides=(1, 1, *w["strides"]),
        low=(0, 0, *w["low"]),
        high=(0, 0, *w["high"]),
        window_dilation=(1, 1, *w["dilation"]),
    )
    return n.b.pow(total, 1.0 / p)


@rows("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Node) -> Value:
    x = n.value(0)
    axes = tuple(range(2, x.type.rank))
    if n.op_type == "GlobalAveragePool":
        return n.b.mean(x, axes=axes, keepdims=True)
    if n.op_type == "GlobalMaxPool":
        found = n.b.reduce_max(x, axes=axes)
    else:
        p = float(n.attr("p", 2))
        found = n.b.pow(n.b.reduce_sum(n.b.pow(n.b.abs(x), p), axes=axes), 1.0 / p)
    return reshape(n.b, found, (*x.type.shape[:2], *(1 for _ in axes)))


# -- norms -----------------------------------------------------------------------------------------


def statistics(graph: onnx.GraphProto) -> set[str]:
    """Names of what BatchNormalization nodes read as running mean and variance."""
    return {name for node in graph.node if node.op_type == "BatchNormalization" for name in node.input[3:5]}


@rows("BatchNormalization")
def batch_norm(n: Node) -> Any:
    """Inference; in training mode (opset 14 on) also the new running statistics."""
    x, scale, bias, mean, variance = (n.value(i) for i in range(5))
    epsilon, momentum = n.attr("epsilon", 1e-5), n.attr("momentum", 0.9)
    if n.opset < 9 and not n.attr("spatial", 1):
        raise Unsupported("BatchNormalization with spatial=0 (statistics for each position)")
    declared = n.attr("training_mode", 0) if n.opset >= 14 else n.outputs > 1
    training = declared or n.importer.training
    kind = mean.type.dtype
    if not training:
        wide = cast(n.b, x, kind) if kind.bits > x.type.dtype.bits else x
        parts = [cast(n.b, v, wide.type.dtype) for v in (mean, variance, scale, bias)]
        return cast(n.b, n.b.batch_norm(wide, *parts, axis=1, epsilon=epsilon), x.type.dtype)
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    wide = cast(n.b, x, kind)
    now, spread = n.b.mean(wide, axes=axes), n.b.var(wide, axes=axes, correction=0.0)
    parts = [cast(n.b, v, kind) for v in (now, spread, scale, bias)]
    y = cast(n.b, n.b.batch_norm(wide, *parts, axis=1, epsilon=epsilon), x.type.dtype)
    fresh = [
        n.b.add(n.b.mul(old, momentum), n.b.mul(new, 1.0 - momentum)) for old, new in ((mean, now), (variance, spread))
    ]
    if n.importer.training and not declared:
        _keep(n, (mean, variance), fresh)
    return (y, *fresh, now, spread)[: n.outputs]


def _keep(n: Node, states: Sequence[Value], fresh: Sequence[Value]) -> None:
    """Running statistics updated by every call."""
    if n.b is not n.importer.top:
        raise Unsupported("BatchNormalization in training mode inside a subgraph")
    for state, new in zip(states, fresh):
        if state.role != STATE:
            raise Unsupported("BatchNormalization in training mode whose running statistics are no initializers")
        if state.name in n.importer.updated:
            raise Unsupported(f"two BatchNormalization nodes share the running statistic {state.name!r}")
        n.importer.updated.add(state.name)
        n.b.update(state, new)


@rows("InstanceNormalization")
def instance_norm(n: Node) -> Value:
    return n.b.instance_norm(*n.values(), epsilon=n.attr("epsilon", 1e-5))


@rows("LayerNormalization")
def layer_norm(n: Node) -> Any:
    x, scale = n.value(0), n.value(1)
    axis = n.axis("axis", -1, x.type.rank)
    rank, epsilon = x.type.rank - axis, n.attr("epsilon", 1e-5)
    operands = [to_shape(n, v, x.type.shape[axis:]) for v in (scale, n.optional(2)) if v is not None]
    y = n.b.layer_norm(x, *operands, normalized_rank=rank, epsilon=epsilon)
    if n.outputs == 1:
        return y
    axes = tuple(range(axis, x.type.rank))
    wide = cast(n.b, x, dtype("f32")) if x.type.dtype.bits < 32 else x
    variance = n.b.var(wide, axes=axes, correction=0.0, keepdims=True)
    return (y, n.b.mean(wide, axes=axes, keepdims=True), n.b.rsqrt(n.b.add(variance, epsilon)))[: n.outputs]


@rows("RMSNormalization")
def rms_norm(n: Node) -> Value:
    x, scale = n.value(0), n.value(1)
    axis = n.axis("axis", -1, x.type.rank)
    weight = to_shape(n, cast(n.b, scale, x.type.dtype), x.type.shape[axis:])
    return n.b.rms_norm(x, weight, normalized_rank=x.type.rank - axis, epsilon=n.attr("epsilon", 1e-5))


@rows("GroupNormalization", since=21)
def group_norm(n: Node) -> Value:
    return n.b.group_norm(*n.values(), num_groups=n.attr("num_groups"), epsilon=n.attr("epsilon", 1e-5))


@rows("LRN")
def lrn(n: Node) -> Value:
    names = {
        "size": n.attr("size"),
        "alpha": n.attr("alpha", 1e-4),
        "beta": n.attr("beta", 0.75),
        "k": n.attr("bias", 1.0),
    }
    return n.b.local_response_norm(n.value(0), **names)
