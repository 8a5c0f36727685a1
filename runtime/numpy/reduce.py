"""Reductions, cumulative ops and window ops on NumPy.

Loops run over the positions of a window or the elements of one output, never over outputs; only a
body that is not elementwise is called element by element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import DType, dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import reduce as r
from unigraph.ops.shapes import windows

from .movement import pad
from .wide import fold, from_integers, highest, lowest, narrow, widen

Array = np.ndarray
Ints = tuple[int, ...]
Body = Callable[..., tuple[Array, ...]]


def _quiet(f: Row) -> Row:
    def row(*args: Array, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **attrs)

    return row


# -- whole axes ----------------------------------------------------------------------------------

# The value that a fold starts from. `and` starts from all bits set, which is -1 in two's complement.
START: dict[np.ufunc, Callable[[DType], Any]] = {
    np.add: lambda kind: 0,
    np.multiply: lambda kind: 1,
    np.maximum: lowest,
    np.minimum: highest,
    np.bitwise_and: lambda kind: True if kind.kind == "bool" else highest(kind) if kind.kind == "uint" else -1,
    np.bitwise_or: lambda kind: 0,
    np.bitwise_xor: lambda kind: 0,
}


def _reducer(ufunc: np.ufunc) -> Row:
    def row(x: Array, axes: Ints) -> Array:
        kind = dtype(x.dtype)
        wide = widen(x)
        if wide.size == 0:
            shape = [n for a, n in enumerate(x.shape) if a not in axes]
            return np.full(shape, START[ufunc](kind), wide.dtype).astype(x.dtype)

        def run(f: np.ufunc, values: Array) -> Array:
            return np.asarray(f.reduce(values, axis=axes, dtype=values.dtype))

        return narrow(fold(ufunc, wide, run), kind)

    return _quiet(row)


def _arg(find: Callable[..., Any]) -> Row:
    def row(x: Array, axis: int, index_dtype: DType) -> Array:
        return from_integers(np.asarray(find(widen(x), axis=axis)), index_dtype)

    return row


def reduce(*operands: Array, axes: Ints, body: Body) -> tuple[Array, ...]:
    """The reduced elements become a leading axis that is halved, neighbours first."""
    n = len(operands) // 2
    kept = [a for a in range(operands[0].ndim) if a not in axes]
    shape = [operands[0].shape[a] for a in kept]
    lines = [x.transpose((*axes, *kept)).reshape(-1, *shape) for x in operands[:n]]
    inits = [np.broadcast_to(init, shape) for init in operands[n:]]
    combine = _over_arrays(body)
    while lines[0].shape[0] > 1:
        size = lines[0].shape[0]
        paired = combine(*(x[: size - 1 : 2] for x in lines), *(x[1::2] for x in lines))
        rest = [x[size - size % 2 :] for x in lines]
        lines = [np.concatenate(pair) for pair in zip(paired, rest)] if size % 2 else list(paired)
    if lines[0].shape[0] == 0:
        return tuple(inits)
    return combine(*inits, *(x[0] for x in lines))


def _over_arrays(body: Body) -> Body:
    """A body on scalars applied to whole arrays: at once if it is elementwise, else one by one."""
    if getattr(body, "elementwise", False):

        def at_once(*args: Array) -> tuple[Array, ...]:
            return tuple([np.broadcast_to(result, args[0].shape) for result in body(*args)])

        return at_once

    def one_by_one(*args: Array) -> tuple[Array, ...]:
        # Run once on the first elements also where there are none, to learn the result dtypes.
        shape = args[0].shape
        if not args[0].size:
            sample = body(*(np.zeros((), a.dtype) for a in args))
            return tuple([np.empty(shape, s.dtype) for s in sample])
        rows = [body(*(np.asarray(v) for v in row)) for row in zip(*(a.reshape(-1) for a in args))]
        return tuple([np.stack(column).reshape(shape) for column in zip(*rows)])

    return one_by_one


# -- running along one axis ----------------------------------------------------------------------


def _cumulative(ufunc: np.ufunc) -> Row:
    def row(x: Array, axis: int, reverse: bool) -> Array:
        def run(f: np.ufunc, values: Array) -> Array:
            return f.accumulate(values, axis=axis, dtype=values.dtype)

        wide = np.flip(widen(x), axis) if reverse else widen(x)
        result = narrow(fold(ufunc, wide, run), dtype(x.dtype))
        return np.flip(result, axis) if reverse else result

    return _quiet(row)


def cumlogsumexp(x: Array, axis: int, reverse: bool) -> Array:
    if x.dtype.kind != "c":
        return _cumulative(np.logaddexp)(x, axis=axis, reverse=reverse)
    lines = np.moveaxis(np.flip(x, axis) if reverse else x, axis, 0)
    result = np.empty_like(lines)
    for i, line in enumerate(lines):
        result[i] = _logaddexp(result[i - 1], line) if i else line
    result = np.moveaxis(result, 0, axis)
    return np.flip(result, axis) if reverse else result


def _logaddexp(x: Array, y: Array) -> Array:
    """log(exp(x) + exp(y)) of complex numbers; the imaginary part lies in (-pi, pi]."""
    swap = y.real > x.real
    large, small = np.where(swap, y, x), np.where(swap, x, y)
    with np.errstate(all="ignore"):
        result = large + np.log1p(np.exp(small - large))
        result = np.where(np.isneginf(small.real) & ~np.isnan(small.imag), large, result)
        turn = np.remainder(result.imag + np.pi, 2 * np.pi) - np.pi
        turn = np.where(np.abs(result.imag) <= np.pi, result.imag, turn)
    wrapped = np.empty_like(x)
    wrapped.real, wrapped.imag = result.real, turn
    return wrapped


# -- windows -------------------------------------------------------------------------------------


def _padded(x: Array, value: Any, low: Ints, high: Ints, base_dilation: Ints | None) -> Array:
    """x with holes, padded (or cropped, where negative) with ``value``."""
    interior = tuple(d - 1 for d in base_dilation) if base_dilation else None
    return pad(x, np.asarray(value, x.dtype), low, high, interior)


def _places(offset: int, step: int, stride: int, count: int) -> slice:
    """Elements of a padded axis that all windows hold at their position ``offset``."""
    begin = offset * step
    return slice(begin, begin + (count - 1) * stride + 1, stride)


def _window_reducer(ufunc: np.ufunc) -> Row:
    def row(
        x: Array,
        window: Ints,
        strides: Ints,
        low: Ints,
        high: Ints,
        base_dilation: Ints | None,
        window_dilation: Ints | None,
    ) -> Array:
        kind = dtype(x.dtype)
        counts = _counts(x, window, strides, low, high, base_dilation, window_dilation)
        if 0 in counts:
            return np.empty(counts, x.dtype)
        padded = _padded(widen(x), START[ufunc](kind), low, high, base_dilation)

        def run(f: np.ufunc, values: Array) -> Array:
            # All these folds are associative and commutative: one axis after the other.
            for axis, (size, step, stride) in enumerate(zip(window, window_dilation or (1,) * x.ndim, strides)):
                lead = (slice(None),) * axis
                parts = (values[(*lead, _places(o, step, stride, counts[axis]))] for o in range(size))
                total = next(parts)
                for part in parts:
                    total = f(total, part)
                values = total
            return np.array(values)

        return narrow(fold(ufunc, padded, run), kind)

    return _quiet(row)


def _counts(
    x: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> Ints:
    return windows(x.shape, window, strides, low, high, base_dilation, window_dilation)


def _walk(window: Ints, strides: Ints, counts: Ints, window_dilation: Ints | None = None) -> Iterator[tuple[Ints, Any]]:
    """Window positions in row-major order, each with the elements of a padded array there."""
    steps = window_dilation or (1,) * len(window)
    for offset in itertools.product(*map(range, window)):
        yield offset, tuple(map(_places, offset, steps, strides, counts))


def reduce_window(
    *operands: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None,
    window_dilation: Ints | None,
    body: Body,
) -> tuple[Array, ...]:
    n = len(operands) // 2
    xs, inits = operands[:n], operands[n:]
    counts = _counts(xs[0], window, strides, low, high, base_dilation, window_dilation)
    held = tuple([np.broadcast_to(init, counts) for init in inits])
    if 0 in counts:
        return held
    padded = [_padded(x, init, low, high, base_dilation) for x, init in zip(xs, inits)]
    combine = _over_arrays(body)
    for _, at in _walk(window, strides, counts, window_dilation):
        held = combine(*held, *(p[at] for p in padded))
    return held


_SELECT: dict[str, tuple[np.ufunc, float]] = {"ge": (np.greater_equal, -np.inf), "le": (np.less_equal, np.inf)}


def _scatter_selected(
    source: Array,
    x: Array,
    result: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    stays: Callable[[Array, Array], Array],
    combine: Callable[[Array, Array], Array],
) -> Array:
    """Write into ``result``: elements of source combined in where their window selected.

    ``stays(held, next)`` says where the element held so far is kept.
    """
    counts = source.shape
    if source.size == 0:
        return result
    padded = _padded(x, 0, low, high, None)
    real = _padded(np.ones(x.shape, np.bool_), False, low, high, None)
    held, chosen = np.zeros(counts, x.dtype), np.full(counts, -1)
    positions = list(_walk(window, strides, counts))
    for number, (_, at) in enumerate(positions):
        take = real[at] & ((chosen < 0) | ~stays(held, padded[at]))
        held, chosen = np.where(take, padded[at], held), np.where(take, number, chosen)
    # Windows that chose the same position of theirs chose different elements, so each position is
    # one assignment; going backwards meets the windows of one element in row-major order.
    for number in range(len(positions) - 1, -1, -1):
        which = np.nonzero(chosen == number)
        if not which[0].size if which else not np.any(chosen == number):
            continue
        offset = positions[number][0]
        target = tuple([w * s + o - lo for w, s, o, lo in zip(which, strides, offset, low)])
        result[target] = combine(result[target], source[which])
    return result


def select_and_scatter_add(
    source: Array, x: Array, select: str, window: Ints, strides: Ints, low: Ints, high: Ints
) -> Array:
    def add(held: Array, more: Array) -> Array:
        return narrow(np.add(widen(held), widen(more)), kind)

    kind = dtype(x.dtype)
    return _scatter_selected(
        source, widen(x), np.zeros(x.shape, x.dtype), window, strides, low, high, _SELECT[select][0], add
    )


def select_and_scatter(
    source: Array,
    x: Array,
    init: Array,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Body,
    scatter: Body,
) -> Array:
    stays, combine = _over_arrays(select), _over_arrays(scatter)
    return _scatter_selected(
        source,
        x,
        np.full(x.shape, init, x.dtype),
        window,
        strides,
        low,
        high,
        lambda held, new: stays(held, new)[0],
        lambda held, new: combine(held, new)[0],
    )


def select_and_gather_add(
    tangents: Array,
    x: Array,
    select: str,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None,
    window_dilation: Ints | None,
) -> Array:
    stays, start = _SELECT[select]
    counts = _counts(x, window, strides, low, high, base_dilation, window_dilation)
    if 0 in counts:
        return np.empty(counts, x.dtype)
    values = _padded(widen(x), start, low, high, base_dilation)
    moves = _padded(tangents, 0, low, high, base_dilation)
    held, found = np.full(counts, start, values.dtype), np.zeros(counts, x.dtype)
    for _, at in _walk(window, strides, counts, window_dilation):
        keep = stays(held, values[at])
        held, found = np.where(keep, held, values[at]), np.where(keep, found, moves[at])
    return found


_FOLDS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _named(prefix: str, names: Sequence[str]) -> dict[OpDef, np.ufunc]:
    return {getattr(r, prefix + name): _FOLDS[name] for name in names}


_ARITHMETIC = ("sum", "prod", "max", "min")

ROWS: dict[OpDef, Row] = {
    **{op: _reducer(f) for op, f in _named("reduce_", list(_FOLDS)).items()},
    **{op: _cumulative(f) for op, f in _named("cum", _ARITHMETIC).items()},
    **{op: _window_reducer(f) for op, f in _named("reduce_window_", _ARITHMETIC).items()},
    r.argmax: _arg(np.argmax),
    r.argmin: _arg(np.argmin),
    r.reduce: _quiet(reduce),
    r.cumlogsumexp: _quiet(cumlogsumexp),
    r.reduce_window: _quiet(reduce_window),
    r.select_and_scatter_add: _quiet(select_and_scatter_add),
    r.select_and_scatter: _quiet(select_and_scatter),
    r.select_and_gather_add: _quiet(select_and_gather_add),
}
