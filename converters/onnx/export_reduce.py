"""Reductions, cumulative rows and windows of the ONNX export."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from unigraph.dtypes import DType, bool_, f64, i8, i32, i64, u8, u64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import reduce as r

from .emitter import Emitter
from .export_elementwise import convert, log1p, number, same_bits, unsigned
from .export_lift import lifted
from .export_movement import pad
from .handles import Array

MAX_UNROLLED = 512  # window elements of a body that is applied one element after the other


def extreme_value(kind: DType, largest: bool) -> Any:
    """What max (``largest`` False) or min starts from: infinity where the dtype has one."""
    if kind is bool_:
        return largest
    if kind.is_integer:
        signed = kind.kind == "int"
        return (1 << (kind.bits - signed)) - 1 if largest else -(1 << (kind.bits - 1)) if signed else 0
    value = np.inf if largest else -np.inf
    if not np.isinf(np.asarray(value).astype(kind.numpy).astype(np.float64)):
        info = ml_dtypes.finfo(kind.numpy)
        value = float(info.max if largest else info.min)
    return value


def in_order(o: Emitter, x: Array) -> Array:
    """u64 as the i64 that sorts alike; the same function brings it back."""
    if x.dtype is u64:
        return o.cast(o.BitwiseXor(x, number(o, 1 << 63, u64)), i64)
    return o.cast(x, i32) if x.dtype is bool_ else x


def _back(o: Emitter, x: Array, kind: DType) -> Array:
    if kind is u64:
        return o.BitwiseXor(o.cast(x, u64), number(o, 1 << 63, u64))
    return o.cast(x, kind)


def _empty(x: Array, axes: Sequence[int]) -> bool:
    return any(type(x.shape[a]) is int and x.shape[a] == 0 for a in axes)


def _without(x: Array, axes: Sequence[int]) -> list[Any]:
    return [n for a, n in enumerate(x.shape) if a not in axes]


def reducer(op_type: str, identity: Callable[[DType], Any]) -> Row:
    def row(o: Emitter, x: Array, axes: Sequence[int]) -> Array:
        if not axes:
            return x
        if _empty(x, axes):
            return o.full(identity(x.dtype), x.dtype, _without(x, axes))
        if op_type in ("ReduceSum", "ReduceProd"):
            if x.dtype.is_integer:
                return integer_sum(o, x, axes) if op_type == "ReduceSum" else _integer_product(o, x, axes)
            return o.reduce(op_type, x, axes)
        result = _back(o, o.reduce(op_type, in_order(o, x), axes), x.dtype)
        return keep_nan(o, x, axes, result)

    return row


def _as_rows(o: Emitter, x: Array, axes: Sequence[int]) -> Array:
    """x with the reduced axes merged into one last axis."""
    rest = [a for a in range(x.rank) if a not in axes]
    return o.reshape(o.transpose(x, (*rest, *axes)), (*(x.shape[a] for a in rest), _total(x, axes)))


def integer_sum(o: Emitter, x: Array, axes: Sequence[int]) -> Array:
    """A sum that wraps around. ONNX Runtime adds integers in double precision: exact below 2**53 only."""
    count, kind = _total(x, axes), x.dtype
    if kind.bits <= 32 and type(count) is int and count <= 1 << 21:
        return convert(o, o.reduce("ReduceSum", o.cast(x, i64), axes), kind)
    rows = _as_rows(o, o.cast(x, i64), axes)
    ones = o.full(1, i64, [count])
    return convert(o, o.MatMul(rows, ones, shape=rows.shape[:-1]), kind)


def _integer_product(o: Emitter, x: Array, axes: Sequence[int]) -> Array:
    """A product that wraps around: halves multiplied onto each other, or one by one where the number is not known."""
    kind = x.dtype
    rows = _as_rows(o, o.cast(x, i64), axes)
    last, count = rows.rank - 1, rows.shape[-1]
    if type(count) is not int:
        rest = rows.shape[:-1]

        def step(i: Array, state: Array) -> list[Array]:
            return [o.Mul(state, o.Gather(rows, i, axis=last, shape=rest))]

        (total,) = o.loop(o.scalar(count), [o.full(1, i64, rest)], step)
        return convert(o, total, kind)
    while count > 1:
        if count % 2:
            rows = o.concat([rows, o.full(1, i64, (*rows.shape[:-1], 1))], last)
        half = (count + 1) // 2
        rows = o.Mul(o.slice(rows, [0], [half], [last]), o.slice(rows, [half], [2 * half], [last]))
        count = half
    return convert(o, o.squeeze(rows, [last]), kind)


def keep_nan(o: Emitter, x: Array, axes: Sequence[int], result: Array) -> Array:
    """The runtime's extremes may drop NaN: put it back where there was one."""
    if not x.dtype.is_float:
        return result
    met = o.reduce("ReduceMax", o.cast(o.IsNaN(x), i32), axes)
    return o.Where(o.Greater(met, 0), number(o, np.nan, x.dtype), result)


def bit_reducer(op_type: str, identity: Callable[[DType], Any]) -> Row:
    """and, or, xor: bit by bit as smallest, largest, or sum modulo 2."""

    def merge(o: Emitter, bits: Array, axes: Sequence[int]) -> Array:
        merged = o.reduce(op_type, bits, axes)
        return o.Mod(merged, 2) if op_type == "ReduceSum" else merged

    def row(o: Emitter, x: Array, axes: Sequence[int]) -> Array:
        if not axes:
            return x
        if _empty(x, axes):
            return o.full(identity(x.dtype), x.dtype, _without(x, axes))
        if x.dtype is bool_:
            return o.cast(merge(o, o.cast(x, i32), axes), bool_)
        if x.dtype.bits < 8:  # sign extension keeps and, or, xor
            wider = i8 if x.dtype.kind == "int" else u8
            return o.cast(row(o, o.cast(x, wider), axes), x.dtype)
        whole = unsigned(x.dtype)
        places = number(o, np.arange(x.dtype.bits), whole)
        spread = o.BitShift(o.unsqueeze(same_bits(o, x, whole), [x.rank]), places, direction="RIGHT")
        bits = o.cast(o.BitwiseAnd(spread, number(o, 1, whole)), i32)
        merged = o.BitShift(o.cast(merge(o, bits, axes), whole), places, direction="LEFT")
        return same_bits(o, integer_sum(o, merged, [merged.rank - 1]), x.dtype)

    return row


def arg(op_type: str) -> Row:
    def row(o: Emitter, x: Array, axis: int, index_dtype: DType) -> Array:
        ordered = in_order(o, x)
        shape = _without(x, [axis])

        def find(y: Array, kind: str) -> Array:
            return o.emit(kind, (y,), axis=axis, keepdims=0, shape=shape)

        if not x.dtype.is_float:
            return o.cast(find(ordered, op_type), index_dtype)
        nan = o.cast(o.IsNaN(x), i32)
        worst = number(o, -np.inf if op_type == "ArgMax" else np.inf, x.dtype)
        plain = find(o.Where(o.IsNaN(x), worst, x), op_type)
        met = o.Greater(o.reduce("ReduceMax", nan, [axis]), 0)
        return o.cast(o.Where(met, find(nan, "ArgMax"), plain), index_dtype)

    return row


def _reduce(o: Emitter, *operands: Array, axes: Sequence[int], body: Any) -> tuple[Array, ...]:
    """A body over arrays: fold halves onto each other until one is left (static), or row by row (Loop)."""
    n = len(operands) // 2
    xs, inits = operands[:n], operands[n:]
    rest = [a for a in range(xs[0].rank) if a not in axes]
    shape = [xs[0].shape[a] for a in rest]
    starts = [o.expand(i, shape) for i in inits]
    if not axes or _empty(xs[0], axes):
        return tuple(starts) if axes else tuple(lifted(o, o.operation.regions[0], [*starts, *xs], shape))
    rows = [o.reshape(o.transpose(x, (*axes, *rest)), (_total(x, axes), *shape)) for x in xs]
    count = rows[0].shape[0]
    graph = o.operation.regions[0]
    if type(count) is int and count <= 8:
        state = starts
        for i in range(count):
            state = lifted(o, graph, [*state, *(_row(o, x, i) for x in rows)], shape)
        return tuple(state)
    return tuple(
        o.loop(
            o.scalar(count),
            starts,
            lambda step, *state: lifted(
                o, graph, [*state, *(o.Gather(x, step, axis=0, shape=tuple(shape)) for x in rows)], shape
            ),
        )
    )


def _row(o: Emitter, x: Array, i: int) -> Array:
    return o.squeeze(o.slice(x, [i], [i + 1], [0]), [0])


def _total(x: Array, axes: Sequence[int]) -> Any:
    total: Any = 1
    for a in axes:
        total = x.shape[a] * total
    return total


# -- cumulative ------------------------------------------------------------------------------------

Combine = Callable[[Array, Array], Array]


def _cumsum(o: Emitter, x: Array, axis: int, reverse: bool) -> Array:
    return o.CumSum(x, o.const(np.asarray(axis, np.int64)), reverse=int(reverse))


def _shifted(o: Emitter, x: Array, axis: int, by: int, identity: Array, reverse: bool) -> Array:
    """x moved ``by`` places towards the end (the start when reverse), identity moving in."""
    n = x.shape[axis]
    filler = o.expand(identity, [by if a == axis else m for a, m in enumerate(x.shape)])
    kept = o.slice(x, [by if reverse else 0], [n if reverse else n - by], [axis])
    return o.concat([kept, filler] if reverse else [filler, kept], axis)


def cumulative(combine: Callable[[Emitter, Array, Array], Array], identity: Callable[[DType], Any]) -> Row:
    """Every element with what stands 1, 2, 4, ... places before it; a Loop where the length is not known."""

    def row(o: Emitter, x: Array, axis: int, reverse: bool) -> Array:
        kind, n = x.dtype, x.shape[axis]
        if kind.is_float and kind.bits < 32:
            x = o.cast(x, o.const(np.float32(0)).dtype)
        nothing = number(o, identity(kind), x.dtype)
        if type(n) is int:
            by = 1
            while by < n:
                x = combine(o, _shifted(o, x, axis, by, nothing, reverse), x)
                by *= 2
            return o.cast(x, kind)
        rest = _without(x, [axis])
        last = o.Sub(o.scalar(n), 1)

        def step(i: Array, state: Array) -> list[Array]:
            at = o.Sub(last, i) if reverse else i
            state = combine(o, state, o.Gather(x, at, axis=axis, shape=tuple(rest)))
            return [state, state]

        _, rows = o.loop(o.scalar(n), [o.expand(nothing, rest)], step, stacked=1)
        rows = o.flip(o.typed(rows, (n, *rest)), [0]) if reverse else o.typed(rows, (n, *rest))
        return o.cast(o.transpose(rows, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)]), kind)

    return row


def _log_add_exp(o: Emitter, a: Array, b: Array) -> Array:
    top = o.Max(a, b)
    gap = o.cast(o.Neg(o.Abs(o.Sub(a, b))), f64)
    added = o.Add(top, o.cast(log1p(o, o.Exp(gap)), top.dtype))
    return o.Where(o.Or(o.Equal(a, b), o.IsInf(o.Sub(a, b))), o.Where(o.IsInf(top), top, _equal_add(o, a, b)), added)


def _equal_add(o: Emitter, a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) for a == b, or the larger where one is infinite."""
    top = o.Max(a, b)
    return o.Where(o.Equal(a, b), o.Add(top, number(o, np.log(2.0), top.dtype)), top)


# -- windows ---------------------------------------------------------------------------------------


class Window:
    """The places of a window over a padded, dilated array; offsets are walked in row-major order."""

    def __init__(
        self,
        x: Array,
        window: Sequence[int],
        strides: Sequence[int],
        low: Sequence[int],
        high: Sequence[int],
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None,
    ):
        ones = (1,) * len(window)
        self.window, self.strides, self.low, self.high = window, strides, low, high
        self.base, self.dilation = base_dilation or ones, window_dilation or ones

    def padded(self, o: Emitter, x: Array, value: Array) -> Array:
        return pad(o, x, value, self.low, self.high, [d - 1 for d in self.base])

    def offsets(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*(range(w) for w in self.window)))

    def count(self, padded: Array, axis: int) -> Any:
        extent = (self.window[axis] - 1) * self.dilation[axis] + 1
        n = padded.shape[axis]
        if type(n) is int and n < extent:
            return 0
        return (n - extent) // self.strides[axis] + 1

    def at(self, o: Emitter, padded: Array, offset: Sequence[int]) -> Array:
        """The element at ``offset`` of every window."""
        starts, ends, axes, steps = [], [], [], []
        for a, k in enumerate(offset):
            if self.window[a] == 1 and self.strides[a] == 1:
                continue
            begin, count = k * self.dilation[a], self.count(padded, a)
            starts.append(begin)
            ends.append(begin + (count - 1) * self.strides[a] + 1 if not (type(count) is int and count == 0) else begin)
            axes.append(a)
            steps.append(self.strides[a])
        return o.slice(padded, starts, ends, axes, steps) if axes else padded

    def empty(self, padded: Array) -> bool:
        counts = [self.count(padded, a) for a in range(padded.rank)]
        return any(type(c) is int and c == 0 for c in counts)

    def shape(self, padded: Array) -> list[Any]:
        return [self.count(padded, a) for a in range(padded.rank)]


def window_reducer(combine: Callable[[Emitter, Any, Any], Any], identity: Callable[[DType], Any]) -> Row:
    """One axis after the other, each by doubling: a window of 2k is two windows of k side by side."""

    def row(o: Emitter, x: Array, **options: Any) -> Array:
        kind = x.dtype
        w = Window(x, **options)
        if kind.is_float and kind.bits < 32:
            x = o.cast(x, o.const(np.float32(0)).dtype)
        nothing = number(o, identity(kind), x.dtype)
        y = w.padded(o, x, nothing)
        if w.empty(y):
            return o.full(identity(kind), kind, w.shape(y))
        for a, size in enumerate(w.window):
            y = _along_axis(o, y, a, size, w.dilation[a], w.strides[a], combine)
        return o.cast(y, kind)

    return row


def _along_axis(
    o: Emitter, y: Array, axis: int, size: int, dilation: int, stride: int, combine: Callable[..., Array]
) -> Array:
    n = y.shape[axis]
    count = (n - ((size - 1) * dilation + 1)) // stride + 1  # windows

    def take(part: Array, start: int) -> Array:
        return o.slice(part, [start], [start + (count - 1) * stride + 1], [axis], [stride])

    if size == 1 and stride == 1:
        return y
    result: Array | None = None
    done, power, part = 0, 1, y  # part[i] combines `power` elements from i on
    while True:
        if size & power:
            piece = take(part, done * dilation)
            result = piece if result is None else combine(o, result, piece)
            done += power
        if done == size:
            assert result is not None
            return result
        length = part.shape[axis]
        shift = power * dilation
        part = combine(o, o.slice(part, [0], [length - shift], [axis]), o.slice(part, [shift], [length], [axis]))
        power *= 2


def _reduce_window(o: Emitter, *operands: Array, body: Any, **options: Any) -> tuple[Array, ...]:
    n = len(operands) // 2
    xs, inits = operands[:n], operands[n:]
    w = Window(xs[0], **options)
    if len(w.offsets()) > MAX_UNROLLED:
        raise Unsupported(
            f"a window of {len(w.offsets())} elements with a body of its own", "use reduce_window_sum or its kin"
        )
    padded = [w.padded(o, x, i) for x, i in zip(xs, inits)]
    shape = w.shape(padded[0])
    state = [o.expand(i, shape) for i in inits]
    if w.empty(padded[0]):
        return tuple(state)
    for offset in w.offsets():
        state = lifted(o, o.operation.regions[0], [*state, *(w.at(o, p, offset) for p in padded)], shape)
    return tuple(state)


def _chosen(o: Emitter, w: Window, x: Array, select: str, from_infinity: bool) -> list[Array]:
    """For each offset: where it holds the element that its window selects.

    The element held stays while it is >= (<=) the next, so a NaN takes its place and is itself replaced. What
    starts is the first element that is not padding, or (``from_infinity``) an infinity that padding holds too.
    """
    kind = x.dtype
    padded = w.padded(o, x, number(o, extreme_value(kind, largest=select == "le"), kind))
    real = w.padded(o, o.full(True, bool_, x.shape), number(o, False, bool_))
    stays = "GreaterOrEqual" if select == "ge" else "LessOrEqual"
    offsets = w.offsets()
    if from_infinity:
        held: Array = number(o, extreme_value(kind, largest=select == "le"), kind)
        index: Array = number(o, -1, i32)
    else:
        held = w.at(o, padded, offsets[0])
        index = o.Where(w.at(o, real, offsets[0]), number(o, 0, i32), number(o, -1, i32))
    for k, offset in enumerate(offsets[0 if from_infinity else 1 :], 0 if from_infinity else 1):
        value = w.at(o, padded, offset)
        take = o.Not(o.emit(stays, (held, value)))
        if not from_infinity:
            take = o.And(w.at(o, real, offset), o.Or(take, o.Less(index, 0)))
        held, index = o.Where(take, value, held), o.Where(take, number(o, k, i32), index)
    return [o.Equal(index, k) for k in range(len(offsets))]


def placed(o: Emitter, w: Window, part: Array, offset: Sequence[int], full: Array, nothing: Array) -> Array:
    """``part`` (an element for each window) put where that offset of each window lies in the padded array ``full``."""
    low = [k * d for k, d in zip(offset, w.dilation)]
    high = [n - lo - ((c - 1) * s + 1) for n, lo, c, s in zip(full.shape, low, part.shape, w.strides)]
    return pad(o, part, nothing, low, high, [s - 1 for s in w.strides])


def _cropped(o: Emitter, w: Window, total: Array, x: Array) -> Array:
    axes = [a for a in range(x.rank) if w.low[a] or w.high[a]]
    if not axes:
        return total
    return o.slice(total, [w.low[a] for a in axes], [x.shape[a] + w.low[a] for a in axes], axes)


def _select_and_scatter_add(o: Emitter, source: Array, x: Array, select: str, **options: Any) -> Array:
    w = Window(x, **options)
    nothing = number(o, 0, x.dtype)
    if 0 in source.shape:
        return o.full(0, x.dtype, x.shape)
    hits = _chosen(o, w, x, select, from_infinity=False)
    shape = o.full(0, x.dtype, [n + lo + hi for n, lo, hi in zip(x.shape, w.low, w.high)])
    total: Array | None = None
    for offset, hit in zip(w.offsets(), hits):
        part = placed(o, w, o.typed(o.Where(hit, source, nothing), source.shape), offset, shape, nothing)
        total = part if total is None else o.Add(total, part)
    assert total is not None
    return _cropped(o, w, total, x)


def _select_and_gather_add(o: Emitter, tangents: Array, x: Array, select: str, **options: Any) -> Array:
    w = Window(x, **options)
    hits = _chosen(o, w, x, select, from_infinity=True)
    nothing = number(o, 0, x.dtype)
    padded = w.padded(o, tangents, nothing)
    total: Array | None = None
    for offset, hit in zip(w.offsets(), hits):
        part = o.Where(hit, w.at(o, padded, offset), nothing)
        total = part if total is None else o.Add(total, part)
    assert total is not None
    return total


def _select_and_scatter(
    o: Emitter, source: Array, x: Array, init: Array, select: Any, scatter: Any, **options: Any
) -> Array:
    """The chosen element by folding the select body over offsets, the scatter body where it hits."""
    w = Window(x, **options)
    if len(w.offsets()) > MAX_UNROLLED:
        raise Unsupported(f"a window of {len(w.offsets())} elements with a body of its own")
    if 0 in source.shape:
        return o.expand(init, x.shape)
    choose, merge = o.operation.regions
    padded = w.padded(o, x, number(o, 0, x.dtype))
    real = w.padded(o, o.full(True, bool_, x.shape), number(o, False, bool_))
    best: Array | None = None
    index: Array | None = None
    for k, offset in enumerate(w.offsets()):
        value, is_real = w.at(o, padded, offset), w.at(o, real, offset)
        if best is None or index is None:
            best, index = value, o.Where(is_real, number(o, k, i32), number(o, -1, i32))
            continue
        (keep,) = lifted(o, choose, [best, value], source.shape)
        take = o.And(is_real, o.Or(o.Not(keep), o.Less(index, 0)))
        best, index = o.Where(take, value, best), o.Where(take, number(o, k, i32), index)
    assert index is not None
    full = [n + lo + hi for n, lo, hi in zip(x.shape, w.low, w.high)]
    total, nothing, no = o.full(0, x.dtype, full), number(o, 0, x.dtype), number(o, False, bool_)
    outline, total = total, o.expand(init, full)
    for k, offset in enumerate(w.offsets()):
        hit = placed(o, w, o.typed(o.Equal(index, k), source.shape), offset, outline, no)
        part = placed(o, w, source, offset, outline, nothing)
        (merged,) = lifted(o, merge, [total, part], full)
        total = o.typed(o.Where(hit, merged, total), full)
    return _cropped(o, w, total, x)


def _zero(kind: DType) -> Any:
    return 0


def _one(kind: DType) -> Any:
    return 1


def _lowest(kind: DType) -> Any:
    return extreme_value(kind, largest=False)


def _highest(kind: DType) -> Any:
    return extreme_value(kind, largest=True)


def _all_bits(kind: DType) -> Any:
    return True if kind is bool_ else -1 if kind.kind == "int" else (1 << kind.bits) - 1


def _larger(o: Emitter, a: Array, b: Array) -> Array:
    return o.Or(a, b) if a.dtype is bool_ else o.Max(a, b)


def _smaller(o: Emitter, a: Array, b: Array) -> Array:
    return o.And(a, b) if a.dtype is bool_ else o.Min(a, b)


ROWS: dict[OpDef, Row] = {
    r.reduce_sum: reducer("ReduceSum", _zero),
    r.reduce_prod: reducer("ReduceProd", _one),
    r.reduce_max: reducer("ReduceMax", _lowest),
    r.reduce_min: reducer("ReduceMin", _highest),
    r.reduce_and: bit_reducer("ReduceMin", _all_bits),
    r.reduce_or: bit_reducer("ReduceMax", _zero),
    r.reduce_xor: bit_reducer("ReduceSum", _zero),
    r.argmax: arg("ArgMax"),
    r.argmin: arg("ArgMin"),
    r.reduce: _reduce,
    r.cumsum: _cumsum,
    r.cumprod: cumulative(lambda o, a, b: o.Mul(a, b), _one),
    r.cummax: cumulative(_larger, _lowest),
    r.cummin: cumulative(_smaller, _highest),
    r.cumlogsumexp: cumulative(_log_add_exp, _lowest),
    r.reduce_window_sum: window_reducer(lambda o, a, b: o.Add(a, b), _zero),
    r.reduce_window_prod: window_reducer(lambda o, a, b: o.Mul(a, b), _one),
    r.reduce_window_max: window_reducer(_larger, _lowest),
    r.reduce_window_min: window_reducer(_smaller, _highest),
    r.reduce_window: _reduce_window,
    r.select_and_scatter_add: _select_and_scatter_add,
    r.select_and_gather_add: _select_and_gather_add,
    r.select_and_scatter: _select_and_scatter,
}
