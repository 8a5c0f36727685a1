"""Contractions of the ONNX export: MatMul and Conv after transposes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import DType, bool_, f32, i32, i64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import contract as c

from .emitter import Emitter
from .export_elementwise import convert, number
from .export_movement import pad, spread
from .handles import Array


def product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for n in sizes:
        total = n * total
    return total


def working(kind: DType, out: DType | None) -> DType:
    """The dtype to contract in: at least the one asked for, f32 for short floats, i32 for short integers."""
    if out is not None and out.bits >= kind.bits and out.kind == kind.kind:
        kind = out
    if kind.is_float and kind.bits < 32:
        return f32
    return i32 if kind is bool_ or (kind.is_integer and kind.bits < 32) else kind


def _dot_general(
    o: Emitter,
    x: Array,
    y: Array,
    lhs_contracting: Sequence[int],
    rhs_contracting: Sequence[int],
    lhs_batch: Sequence[int],
    rhs_batch: Sequence[int],
    out_dtype: DType | None,
) -> Array:
    target = o.operation.outputs[0].type.dtype
    kind = working(x.dtype, target if target.kind == x.dtype.kind else None)
    x, y = o.cast(x, kind), o.cast(y, kind)
    lhs_free = [a for a in range(x.rank) if a not in (*lhs_contracting, *lhs_batch)]
    rhs_free = [a for a in range(y.rank) if a not in (*rhs_contracting, *rhs_batch)]
    out = (
        *(x.shape[a] for a in lhs_batch),
        *(x.shape[a] for a in lhs_free),
        *(y.shape[a] for a in rhs_free),
    )
    depth = product([x.shape[a] for a in lhs_contracting])
    left = o.transpose(x, (*lhs_batch, *lhs_free, *lhs_contracting))
    right = o.transpose(y, (*rhs_batch, *rhs_contracting, *rhs_free))
    batch = [x.shape[a] for a in lhs_batch]
    # A matrix on the right multiplies any number of rows; else each side is one matrix for each batch element.
    stacked = not lhs_batch and lhs_free
    rows = [x.shape[a] for a in lhs_free] if stacked else [product([x.shape[a] for a in lhs_free])]
    columns = product([y.shape[a] for a in rhs_free])
    if len(lhs_contracting) != 1 or (not stacked and len(lhs_free) != 1):
        left = o.reshape(left, (*batch, *rows, depth))
    if len(rhs_contracting) != 1 or len(rhs_free) != 1:
        right = o.reshape(right, (*batch, depth, columns))
    result = o.MatMul(left, right, shape=(*batch, *rows, columns))
    if (*batch, *rows, columns) != out or len(out) != len(batch) + len(rows) + 1:
        result = o.reshape(result, out)
    return convert(o, result, target)


def _conv_general(
    o: Emitter,
    x: Array,
    w: Array,
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    lhs_spec: Sequence[int],
    rhs_spec: Sequence[int],
    out_spec: Sequence[int],
    groups: int,
    batch_groups: int,
    out_dtype: DType | None,
) -> Array:
    target = o.operation.outputs[0].type.dtype
    x, w = o.transpose(x, lhs_spec), o.transpose(w, rhs_spec)
    if batch_groups > 1:
        # Group g of the batch meets group g of the output features: make batch groups feature groups.
        n, features, *space = x.shape
        split = o.reshape(x, (batch_groups, n // batch_groups, features, *space))
        moved = o.transpose(split, (1, 0, *range(2, split.rank)))
        x, groups = o.reshape(moved, (n // batch_groups, batch_groups * features, *space)), batch_groups
    result = conv(o, x, w, strides, low, high, lhs_dilation, rhs_dilation, groups, target)
    inverse = [0] * result.rank
    for axis, place in enumerate(out_spec):
        inverse[place] = axis
    return convert(o, o.transpose(result, inverse), target)


def conv(
    o: Emitter,
    x: Array,
    w: Array,
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    groups: int,
    target: DType,
    bias: Array | None = None,
) -> Array:
    """x[N, C, *S] with w[O, C/groups, *K]; the result is in a dtype at least as wide as ``target``."""
    kind = working(x.dtype, target)
    x, w = o.cast(x, kind), o.cast(w, kind)
    zero = number(o, 0, kind)
    for a, d in enumerate(lhs_dilation):
        if d > 1:
            x = spread(o, x, a + 2, d - 1, zero)
    space = x.rank - 2
    if any(n < 0 for n in (*low, *high)):
        crop = [[min(n, 0) for n in ends] for ends in (low, high)]
        x = pad(o, x, zero, (0, 0, *crop[0]), (0, 0, *crop[1]))
        low, high = ([max(n, 0) for n in ends] for ends in (low, high))
    kernel = [int(n) for n in w.shape[2:]]
    out = []
    for n, k, s, lo, hi, d in zip(x.shape[2:], kernel, strides, low, high, rhs_dilation):
        extent, room = (k - 1) * d + 1, n + lo + hi
        out.append(0 if type(room) is int and room < extent else (room - extent) // s + 1)
    shape = (x.shape[0], w.shape[0], *out)
    if 0 in (*shape, *x.shape, *w.shape):
        return o.full(0, kind, shape)
    if kind is f32 and 1 <= space <= 3:
        options = {"strides": list(strides), "dilations": list(rhs_dilation), "pads": [*low, *high], "group": groups}
        return o.Conv(x, w, bias, kernel_shape=kernel, shape=shape, **options)
    result = _unfolded(o, x, w, strides, low, high, rhs_dilation, groups, kernel, shape)
    return result if bias is None else o.Add(result, o.unsqueeze(bias, list(range(1, 1 + space))))


def _unfolded(
    o: Emitter,
    x: Array,
    w: Array,
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    kernel: Sequence[int],
    shape: Sequence[Any],
) -> Array:
    """A convolution by MatMul, for dtypes and ranks that Conv has not: patches are gathered by strided slices."""
    n, features, *_ = x.shape
    out = shape[2:]
    padded = pad(o, x, number(o, 0, x.dtype), (0, 0, *low), (0, 0, *high))
    axes = list(range(2, x.rank))
    patches = []
    for offset in itertools.product(*(range(k) for k in kernel)):
        begin = [k * d for k, d in zip(offset, dilation)]
        ends = [b + (m - 1) * s + 1 for b, m, s in zip(begin, out, strides)]
        part = o.slice(padded, begin, ends, axes, strides) if axes else padded
        patches.append(o.unsqueeze(o.typed(part, (n if type(n) is int else None, features, *out)), [2]))
    columns = o.concat(patches, 2)  # N, C, K, *S
    count, taps, places = features // groups, len(patches), product(out)
    columns = o.reshape(columns, (n, groups, count * taps, places))
    weight = o.reshape(w, (groups, w.shape[0] // groups, count * taps))
    result = o.MatMul(weight, columns, shape=(n, groups, w.shape[0] // groups, places))
    return o.reshape(result, shape)


def _ragged_dot(o: Emitter, x: Array, w: Array, group_sizes: Array, out_dtype: DType | None) -> Array:
    """Every group's matrix times all rows, then each row takes what its own group gave."""
    target = o.operation.outputs[0].type.dtype
    kind = working(x.dtype, target)
    m, g = x.shape[0], w.shape[0]
    ends = o.CumSum(o.cast(group_sizes, i64), o.const(np.asarray(0, np.int64)))
    starts = o.Sub(ends, o.cast(group_sizes, i64))
    row = o.unsqueeze(o.iota(m), [0])
    own = o.And(o.GreaterOrEqual(row, o.unsqueeze(starts, [1])), o.Less(row, o.unsqueeze(ends, [1])))
    product_ = o.MatMul(o.unsqueeze(o.cast(x, kind), [0]), o.cast(w, kind), shape=(g, m, w.shape[2]))
    kept = o.Where(o.unsqueeze(own, [2]), product_, number(o, 0, kind))
    return convert(o, o.reduce("ReduceSum", kept, [0]), target)


ROWS: dict[OpDef, Row] = {
    c.dot_general: _dot_general,
    c.conv_general: _conv_general,
    c.ragged_dot: _ragged_dot,
}
