"""Reductions, running ops and window ops.

Loops run over the positions of a window or over halvings of an axis, never over outputs. A body that
is not elementwise is mapped over its scalars by torch.vmap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from unigraph.dtypes import DType
from unigraph.errors import EngineError
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import reduce as r
from unigraph.ops.shapes import windows

from .dtypes import (
    SHORT,
    bits,
    from_order,
    from_torch,
    full,
    highest,
    lowest,
    narrow,
    to_order,
    unbits,
    wide_float,
    widen,
)
from .elementwise import convert, ring
from .movement import pad_axis, static_equal

Tensor = torch.Tensor
Ints = tuple[int, ...]
Body = Callable[..., tuple[Tensor, ...]]

# -- whole axes ----------------------------------------------------------------------------------


def _sum(x: Tensor, axes: Ints) -> Tensor:
    if not axes:
        return x
    return torch.sum(x, axes) if x.is_floating_point() or x.is_complex() else torch.sum(x, axes, dtype=x.dtype)


def _prod(x: Tensor, axes: Ints) -> Tensor:
    result = x.to(torch.float32) if x.dtype in SHORT else x
    for axis in sorted(axes, reverse=True):
        result = torch.prod(result, axis, dtype=None if x.is_floating_point() or x.is_complex() else x.dtype)
    return result.to(x.dtype)


def _without(x: Tensor, axes: Ints) -> Ints:
    return tuple(n for a, n in enumerate(x.shape) if a not in axes)


def _extremum(torch_function: Callable[..., Any], start: Callable[[torch.dtype], Any]) -> Row:
    def row(x: Tensor, axes: Ints) -> Tensor:
        if not axes:
            return x
        if any(static_equal(x.shape[a], 0) for a in axes):
            return full(_without(x, axes), start(x.dtype), x)
        if x.is_complex():
            return _complex_extremum(x, axes, torch_function, start)
        return from_order(torch_function(to_order(x), axes), x.dtype)

    return row


def _complex_extremum(x: Tensor, axes: Ints, f: Callable[..., Any], start: Callable[[torch.dtype], Any]) -> Tensor:
    """By real part, then by imaginary part among those that share it; NaN wins."""
    real = f(x.real, axes, keepdim=True)
    imag = f(torch.where(x.real == real, x.imag, start(x.real.dtype)), axes)
    nan = x.isnan().any(dim=axes) if len(axes) > 1 else x.isnan().any(axes[0])
    best = torch.complex(real.reshape(imag.shape), imag)
    return torch.where(nan, complex(float("nan"), float("nan")), best)


def _fold(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """One axis combined by halving it; at least one element."""
    size = static(x.shape[axis], "a bitwise reduction")
    while size > 1:
        half = size // 2
        paired = f(x.narrow(axis, 0, half), x.narrow(axis, half, half))
        x = torch.cat([paired, x.narrow(axis, 2 * half, 1)], axis) if size % 2 else paired
        size -= half
    return x.squeeze(axis)


def static(n: Any, what: str) -> int:
    """``n`` as an int. Raises EngineError for a traced size: the number of steps must be known."""
    if isinstance(n, int):
        return n
    raise EngineError(f"{what} over a symbolic size cannot be traced: capture with that size fixed")


def _bitwise(f: Callable[[Tensor, Tensor], Tensor], whole: Callable[..., Any] | None, start: int) -> Row:
    def row(x: Tensor, axes: Ints) -> Tensor:
        if not axes:
            return x
        if x.dtype is torch.bool and whole is not None:
            for axis in sorted(axes, reverse=True):
                x = whole(x, axis)
            return x
        t = x.dtype
        x = bits(x)
        for axis in sorted(axes, reverse=True):
            if static_equal(x.shape[axis], 0):
                x = torch.full(_without(x, (axis,)), start, dtype=x.dtype, device=x.device)
            else:
                x = _fold(f, x, axis)
        return unbits(x, t)

    return row


def _arg(f: Callable[..., Any]) -> Row:
    def row(x: Tensor, axis: int, index_dtype: DType) -> Tensor:
        keys = x.to(torch.uint8) if x.dtype is torch.bool else to_order(x)
        return convert(f(keys, axis), index_dtype)

    return row


def reduce(*operands: Tensor, axes: Ints, body: Body) -> tuple[Tensor, ...]:
    """The reduced elements become a leading axis that is halved, neighbours first."""
    n = len(operands) // 2
    kept = [a for a in range(operands[0].ndim) if a not in axes]
    shape = tuple(operands[0].shape[a] for a in kept)
    lines = [bits(x).permute(*axes, *kept).reshape(-1, *shape) for x in operands[:n]]
    types = [x.dtype for x in operands[:n]]
    inits = [bits(init).expand(shape) for init in operands[n:]]
    combine = over_arrays(body, types)
    size = static(lines[0].shape[0], "reduce")
    while size > 1:
        paired = combine(*(x[: size - 1 : 2] for x in lines), *(x[1::2] for x in lines))
        rest = [x[size - size % 2 :] for x in lines]
        lines = [torch.cat(pair) for pair in zip(paired, rest)] if size % 2 else list(paired)
        size = (size + 1) // 2
    results = combine(*inits, *(x[0] for x in lines)) if size else inits
    return tuple(unbits(x, t) for x, t in zip(results, types))


def over_arrays(body: Body, types: Sequence[torch.dtype]) -> Body:
    """A body on scalars applied to whole arrays, which come and go as their bits."""
    kinds = tuple(types) * 2

    def typed(*args: Tensor) -> tuple[Tensor, ...]:
        results = body(*(unbits(a, t) for a, t in zip(args, kinds)))
        return tuple(bits(x) for x in results)

    if getattr(body, "elementwise", False):
        return lambda *args: tuple(x.expand(args[0].shape) for x in typed(*args))

    def mapped(*args: Tensor) -> tuple[Tensor, ...]:
        shape = args[0].shape
        results = torch.vmap(typed)(*(a.reshape(-1) for a in args))
        return tuple(x.reshape(shape) for x in results)

    return mapped


# -- running along one axis ----------------------------------------------------------------------


def _running(f: Callable[..., Tensor]) -> Row:
    def row(x: Tensor, axis: int, reverse: bool) -> Tensor:
        return torch.flip(f(torch.flip(x, (axis,)), axis), (axis,)) if reverse else f(x, axis)

    return row


def _accumulate(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, axis: int) -> Tensor:
        if x.dtype in SHORT:
            return f(x.to(torch.float32), axis).to(x.dtype)
        return ring(lambda v: f(v, axis, dtype=v.dtype))(x)

    return run


def _running_extremum(f: Callable[..., Any], beyond: Callable[..., Any]) -> Callable[..., Tensor]:
    def run(x: Tensor, axis: int) -> Tensor:
        if x.dtype is torch.bool:
            return f(x.to(torch.uint8), axis).values.to(torch.bool)
        if x.is_complex():
            return _scan_complex(x, axis, beyond)
        return from_order(f(to_order(x), axis).values, x.dtype)

    return run


def _scan_complex(x: Tensor, axis: int, beyond: Callable[..., Any]) -> Tensor:
    """Lexicographic running extremum, doubling the distance at each step."""
    size, step = static(x.shape[axis], "cummax of complex numbers"), 1
    while step < size:
        left, here = x.narrow(axis, 0, size - step), x.narrow(axis, step, size - step)
        first = torch.where(left.real == here.real, beyond(left.imag, here.imag), beyond(left.real, here.real))
        best = torch.where(left.isnan() | (~here.isnan() & first), left, here)
        x = torch.cat([x.narrow(axis, 0, step), best], axis)
        step *= 2
    return x


def _logcumsumexp(x: Tensor, axis: int) -> Tensor:
    return torch.logcumsumexp(wide_float(x), axis).to(x.dtype)


# -- windows -------------------------------------------------------------------------------------


def padded(x: Tensor, value: Any, low: Ints, high: Ints, base_dilation: Ints | None) -> Tensor:
    """x with holes, padded (or cropped, where negative) with ``value``."""
    fill = value if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
    for axis in range(x.ndim):
        x = pad_axis(x, fill, axis, low[axis], high[axis], base_dilation[axis] - 1 if base_dilation else 0)
    return x


def _places(offset: int, step: int, stride: int, count: int) -> slice:
    """Elements of a padded axis that all windows hold at their position ``offset``."""
    begin = offset * step
    if stride == 1:
        return slice(begin, begin + count)
    return slice(begin, begin + (count - 1) * stride + 1, stride)


def _counts(
    x: Tensor, window: Ints, strides: Ints, low: Ints, high: Ints, base: Ints | None, inner: Ints | None
) -> Ints:
    rank = x.ndim
    if all(isinstance(n, int) for n in x.shape):
        return windows(tuple(x.shape), window, strides, low, high, base, inner)
    counts = []
    for a in range(rank):
        n = x.shape[a] if base is None or base[a] == 1 else (x.shape[a] - 1) * base[a] + 1
        reach = (window[a] - 1) * (inner[a] if inner else 1) + 1
        total = n + low[a] + high[a] - reach
        counts.append(total + 1 if strides[a] == 1 else total // strides[a] + 1)
    return tuple(counts)


def _window(
    combine: Callable[[Tensor, Tensor], Tensor],
    pool: Callable[..., Tensor | None],
    start: Callable[[torch.dtype], Any],
    into: Callable[[Tensor], Tensor],
    back: Callable[[Tensor, torch.dtype], Tensor],
) -> Row:
    def row(
        x: Tensor,
        window: Ints,
        strides: Ints,
        low: Ints,
        high: Ints,
        base_dilation: Ints | None,
        window_dilation: Ints | None,
    ) -> Tensor:
        counts = _counts(x, window, strides, low, high, base_dilation, window_dilation)
        if any(static_equal(n, 0) for n in counts):
            return full(counts, 0, x)
        values = padded(into(x), _fit(start(x.dtype), x), low, high, base_dilation)
        steps = window_dilation or (1,) * x.ndim
        result = pool(values, window, strides, steps, counts)
        if result is None:
            for axis, (size, step, stride) in enumerate(zip(window, steps, strides)):
                if size == 1 and stride == 1:
                    continue
                lead = (slice(None),) * axis
                parts = [values[(*lead, _places(o, step, stride, counts[axis]))] for o in range(size)]
                values = parts[0]
                for part in parts[1:]:
                    values = combine(values, part)
            result = values
        return back(result, x.dtype)

    return row


def _fit(value: Any, x: Tensor) -> Any:
    """A padding value as `into` sees it: a u64 extreme under its order, all else as it is."""
    if x.dtype is torch.uint64 and value > 1:
        return (1 << 63) - 1
    return -(1 << 63) if x.dtype is torch.uint64 and value == 0 else value


_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_SUM_POOLS = {2: F.avg_pool2d, 3: F.avg_pool3d}  # with a divisor of one's own, which avg_pool1d has not


def _spatial(x: Tensor, window: Ints, strides: Ints) -> list[int] | None:
    """The axes that a pool must run over, if torch has a pool of that rank for x."""
    axes = [a for a in range(x.ndim) if window[a] > 1 or strides[a] > 1]
    fits = x.dtype in (torch.float32, torch.float64) and 1 <= len(axes) <= 3
    return axes if fits and all(not static_equal(n, 0) for n in x.shape) else None


def _pooled(x: Tensor, axes: list[int], pool: Callable[[Tensor], Tensor]) -> Tensor:
    """A pool over the given axes: the others become the batch."""
    rest = [a for a in range(x.ndim) if a not in axes]
    if rest == [0, 1]:
        return pool(x)
    order = rest + axes
    moved = x.permute(order)
    flat = moved.reshape(1, -1, *moved.shape[len(rest) :])
    result = pool(flat)
    result = result.reshape(*moved.shape[: len(rest)], *result.shape[2:])
    return result.permute([order.index(a) for a in range(x.ndim)])


def _max_pool(x: Tensor, window: Ints, strides: Ints, steps: Ints, counts: Ints) -> Tensor | None:
    axes = _spatial(x, window, strides)
    if axes is None:
        return None
    k, s, d = ([v[a] for a in axes] for v in (window, strides, steps))
    return _pooled(x, axes, lambda v: _MAX_POOLS[len(axes)](v, k, s, 0, d))


def _min_pool(x: Tensor, *options: Any) -> Tensor | None:
    result = _max_pool(-x, *options)
    return None if result is None else -result


def _sum_pool(x: Tensor, window: Ints, strides: Ints, steps: Ints, counts: Ints) -> Tensor | None:
    axes = _spatial(x, window, strides)
    if axes is None or len(axes) not in _SUM_POOLS or any(steps[a] > 1 for a in axes):
        return None
    k, s = ([v[a] for a in axes] for v in (window, strides))
    return _pooled(x, axes, lambda v: _SUM_POOLS[len(axes)](v, k, s, divisor_override=1))


def _no_pool(*_: Any) -> None:
    return None


def _ring_in(x: Tensor) -> Tensor:
    return wide_float(x) if from_torch(x.dtype).is_inexact else widen(x) if from_torch(x.dtype).bits < 8 else bits(x)


def _ring_out(x: Tensor, t: torch.dtype) -> Tensor:
    return unbits(x, t) if from_torch(t).bits > 8 and not x.is_floating_point() and not x.is_complex() else narrow(x, t)


def _order_in(x: Tensor) -> Tensor:
    return x.to(torch.uint8) if x.dtype is torch.bool else to_order(x)


def _order_out(x: Tensor, t: torch.dtype) -> Tensor:
    return x.to(t) if t is torch.bool else from_order(x, t)


def _lexicographic(real: Callable[..., Tensor], beyond: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def f(x: Tensor, y: Tensor) -> Tensor:
        if not x.is_complex():
            return real(x, y)
        first = torch.where(x.real == y.real, beyond(x.imag, y.imag), beyond(x.real, y.real))
        return torch.where(x.isnan() | (~y.isnan() & first), x, y)

    return f


def _walk(window: Ints, strides: Ints, counts: Ints, steps: Ints | None = None) -> Iterator[tuple[Ints, Any]]:
    """Window positions in row-major order, each with the elements of a padded array there."""
    for offset in itertools.product(*map(range, window)):
        yield offset, tuple(map(_places, offset, steps or (1,) * len(window), strides, counts))


def reduce_window(
    *operands: Tensor,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None,
    window_dilation: Ints | None,
    body: Body,
) -> tuple[Tensor, ...]:
    n = len(operands) // 2
    types = [x.dtype for x in operands[:n]]
    xs, inits = [bits(x) for x in operands[:n]], [bits(x) for x in operands[n:]]
    counts = _counts(xs[0], window, strides, low, high, base_dilation, window_dilation)
    held = tuple(init.expand(counts) for init in inits)
    if not any(static_equal(c, 0) for c in counts):
        spread = [padded(x, init, low, high, base_dilation) for x, init in zip(xs, inits)]
        combine = over_arrays(body, types)
        for _, at in _walk(window, strides, counts, window_dilation):
            held = combine(*held, *(p[at] for p in spread))
    return tuple(unbits(x, t) for x, t in zip(held, types))


_STAYS: dict[str, tuple[Callable[..., Tensor], float]] = {
    "ge": (torch.ge, float("-inf")),
    "le": (torch.le, float("inf")),
}


def _selected(
    x: Tensor, window: Ints, strides: Ints, low: Ints, high: Ints, counts: Ints, stays: Callable[..., Tensor]
) -> Tensor:
    """For each window, the row-major number of its selected element of x; -1 where it holds none."""
    numbers = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    where = padded(numbers, -1, low, high, None)
    values = padded(x, 0, low, high, None)
    chosen = torch.full(counts, -1, device=x.device)
    held = torch.zeros(counts, dtype=x.dtype, device=x.device)
    for _, at in _walk(window, strides, counts):
        take = (where[at] >= 0) & ((chosen < 0) | ~stays(held, values[at]))
        held, chosen = torch.where(take, values[at], held), torch.where(take, where[at], chosen)
    return chosen


def select_and_scatter_add(
    source: Tensor, x: Tensor, select: str, window: Ints, strides: Ints, low: Ints, high: Ints
) -> Tensor:
    counts = tuple(source.shape)
    keys = _lex(to_order(x).detach())
    chosen = _selected(keys, window, strides, low, high, counts, _STAYS[select][0]).reshape(-1)
    base = ring(lambda v: v)(source).reshape(-1)
    total = x.numel()
    # Windows without an element add to one more, which is cut off.
    spot = torch.where(chosen < 0, total, chosen)
    short = source.dtype in SHORT or from_torch(source.dtype).bits < 16
    news = widen(base) if short else bits(base)
    sums = torch.zeros(total + 1, dtype=news.dtype, device=x.device).scatter_add(0, spot, news)[:total]
    return (narrow(sums, x.dtype) if short else unbits(sums, x.dtype)).reshape(x.shape)


def _lex(x: Tensor) -> Tensor:
    return x.real if x.is_complex() else x


def select_and_gather_add(
    tangents: Tensor,
    x: Tensor,
    select: str,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None,
    window_dilation: Ints | None,
) -> Tensor:
    stays, start = _STAYS[select]
    counts = _counts(x, window, strides, low, high, base_dilation, window_dilation)
    t = x.dtype
    if any(static_equal(c, 0) for c in counts):
        return full(counts, 0, x)
    values = padded(widen(x), start, low, high, base_dilation)
    moves = padded(widen(tangents), 0, low, high, base_dilation)
    held = torch.full(counts, start, dtype=values.dtype, device=x.device)
    found = torch.zeros(counts, dtype=moves.dtype, device=x.device)
    for _, at in _walk(window, strides, counts, window_dilation):
        keep = stays(held, values[at])
        held, found = torch.where(keep, held, values[at]), torch.where(keep, found, moves[at])
    return narrow(found, t)


def select_and_scatter(
    source: Tensor,
    x: Tensor,
    init: Tensor,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    select: Body,
    scatter: Body,
) -> Tensor:
    t, counts = x.dtype, tuple(source.shape)
    stays_ = _bool_body(select, t)
    combine = over_arrays(scatter, [t])
    flat = bits(init).expand(x.numel() + 1)
    chosen = _selected(bits(x), window, strides, low, high, counts, stays_)
    spots = torch.where(chosen < 0, x.numel(), chosen).reshape(-1)
    news = bits(source).reshape(-1)
    # Windows one after the other, in row-major order: any of them may hit the same element.
    for k in range(static(spots.shape[0], "select_and_scatter")):
        at = spots[k : k + 1]
        flat = flat.index_copy(0, at, combine(flat[at], news[k : k + 1])[0])
    return unbits(flat[: x.numel()].reshape(x.shape), t)


def _bool_body(body: Body, t: torch.dtype) -> Callable[..., Tensor]:
    combine = over_arrays(body, [t])
    return lambda held, new: combine(held, new)[0]


_ARITHMETIC: dict[str, tuple[Callable[..., Any], Row]] = {
    "sum": (torch.add, _window(torch.add, _sum_pool, lambda t: 0, _ring_in, _ring_out)),
    "prod": (torch.mul, _window(torch.mul, _no_pool, lambda t: 1, _ring_in, _ring_out)),
    "max": (
        torch.maximum,
        _window(_lexicographic(torch.maximum, torch.gt), _max_pool, lowest, _order_in, _order_out),
    ),
    "min": (
        torch.minimum,
        _window(_lexicographic(torch.minimum, torch.lt), _min_pool, highest, _order_in, _order_out),
    ),
}

ROWS: dict[OpDef, Row] = {
    r.reduce_sum: ring(_sum),
    r.reduce_prod: ring(_prod),
    r.reduce_max: _extremum(torch.amax, lowest),
    r.reduce_min: _extremum(torch.amin, highest),
    r.reduce_and: _bitwise(torch.bitwise_and, torch.all, -1),
    r.reduce_or: _bitwise(torch.bitwise_or, torch.any, 0),
    r.reduce_xor: _bitwise(torch.bitwise_xor, None, 0),
    r.argmax: _arg(torch.argmax),
    r.argmin: _arg(torch.argmin),
    r.reduce: reduce,
    r.cumsum: _running(_accumulate(torch.cumsum)),
    r.cumprod: _running(_accumulate(torch.cumprod)),
    r.cummax: _running(_running_extremum(torch.cummax, torch.gt)),
    r.cummin: _running(_running_extremum(torch.cummin, torch.lt)),
    r.cumlogsumexp: _running(_logcumsumexp),
    **{getattr(r, f"reduce_window_{name}"): row for name, (_, row) in _ARITHMETIC.items()},
    r.reduce_window: reduce_window,
    r.select_and_scatter_add: select_and_scatter_add,
    r.select_and_scatter: select_and_scatter,
    r.select_and_gather_add: select_and_gather_add,
}
