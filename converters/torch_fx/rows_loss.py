"""Losses over labels that torch's decompositions cannot take apart, or take apart wrongly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import i64
from unigraph.graph import Value
from unigraph.ops.idioms import cast, reshape

from .helpers import full, iota, operand
from .rowbook import row
from .rows_activation import reduce_loss

aten = torch.ops.aten


# -- connectionist temporal classification -------------------------------------------------------------


def _lengths(b: Any, x: Any) -> Value:
    """Lengths as i64[N]; torch takes them as a tensor or as numbers."""
    if isinstance(x, Value):
        return cast(b, x, i64)
    return reshape(b, b.concatenate(*(reshape(b, operand(b, n, i64), (1,)) for n in x), axis=0), (len(x),))


def _padded(b: Any, targets: Value, lengths: Value, given: Any) -> Value:
    """Labels as i64[N, S]: rows of a matrix already, or parts of one line to be laid under each other."""
    targets = cast(b, targets, i64)
    if targets.type.rank == 2:
        return targets
    # A line is as long as all labels together: no row of it can be longer.
    size = targets.type.shape[0]
    numbers = [] if isinstance(given, Value) else list(given)
    if numbers and all(isinstance(n, int) for n in numbers):
        size = max(numbers)
    if dims.equal(targets.type.shape[0], 0):
        return full(b, 0, targets.type.with_(shape=(lengths.type.shape[0], 0)))
    begin = b.sub(b.cumsum(lengths, axis=0), lengths)
    grid = (lengths.type.shape[0], size)
    place = b.add(b.broadcast_in_dim(begin, shape=grid, broadcast_dimensions=(0,)), iota(b, grid, 1))
    return b.take(targets, place, axis=0, mode="clip")


def _shifted(b: Any, x: Value, by: int) -> Value:
    """x [N, L] moved to the right by ``by``, filled with minus infinity."""
    low = full(b, -math.inf, x.type.with_(shape=()))
    return b.pad(x, low, low=(0, by), high=(0, -by))


def _log_sum(b: Any, *xs: Value) -> Value:
    """log(exp(x) + exp(y) + ...), also where all are minus infinity."""
    top = xs[0]
    for x in xs[1:]:
        top = b.max(top, x)
    safe = b.select(b.eq(top, -math.inf), top, full(b, 0.0, top.type))
    total = b.exp(b.sub(xs[0], safe))
    for x in xs[1:]:
        total = b.add(total, b.exp(b.sub(x, safe)))
    return b.add(b.log(total), safe)


def ctc(
    b: Any, logp: Value, targets: Value, input_lengths: Any, target_lengths: Any, blank: int, zero_infinity: bool
) -> Value:
    """Negative log likelihood [N] of label sequences by the forward recursion; logp is [T, N, C]."""
    steps, n = logp.type.shape[:2]
    long, short = _lengths(b, input_lengths), _lengths(b, target_lengths)
    labels = _padded(b, targets, short, target_lengths)
    width = 2 * labels.type.shape[1] + 1
    grid = (n, width)
    # Labels with blanks between: blank, l1, blank, l2, ..., blank.
    blanks = full(b, blank, labels.type)
    if dims.equal(width, 1):
        line = full(b, blank, labels.type.with_(shape=grid))
    else:
        pairs = b.concatenate(*(b.reshape(v, shape=(*v.type.shape, 1)) for v in (blanks, labels)), axis=2)
        line = b.pad(reshape(b, pairs, (n, width - 1)), b.constant(blank, i64), low=(0, 0), high=(0, 1))
    place = iota(b, grid, 1)
    # A label may follow the one before it without a blank between where the two differ.
    before = b.pad(line, b.constant(blank, i64), low=(0, 2), high=(0, -2)) if width != 1 else line
    may_skip = b.and_(b.ne(line, full(b, blank, line.type)), b.ne(line, before))
    emitted = b.take_along_axis(
        logp, b.broadcast_in_dim(line, shape=(steps, *grid), broadcast_dimensions=(1, 2)), axis=2
    )
    ends = b.mul(short, 2)
    wide = lambda v: b.broadcast_in_dim(v, shape=grid, broadcast_dimensions=(0,))
    lowest = full(b, -math.inf, logp.type.with_(shape=grid))
    # Before the first step only the place in front of the line is reached: 0 and 1 are where it starts.
    start = b.select(b.and_(b.le(place, 1), b.le(place, wide(ends))), lowest, full(b, 0.0, lowest.type))

    def step(c: Any, may_skip: Value, long: Value, alpha: Value, t: Value, x: Value) -> tuple[Value, ...]:
        two = c.select(may_skip, full(c, -math.inf, alpha.type), _shifted(c, alpha, 2) if width != 1 else alpha)
        first = c.broadcast_in_dim(c.eq(t, 0), shape=grid, broadcast_dimensions=())
        moved = _log_sum(c, alpha, _shifted(c, alpha, 1), two)
        following = c.add(c.select(first, moved, alpha), x)
        going = c.lt(c.broadcast_in_dim(t, shape=long.type.shape, broadcast_dimensions=()), long)
        going = c.broadcast_in_dim(going, shape=grid, broadcast_dimensions=(0,))
        return c.select(going, alpha, following), c.add(t, 1)

    alpha, _ = b.scan(
        may_skip, long, start, b.constant(0, i64), emitted, length=steps, num_consts=2, num_carry=2, body=step
    )
    last = b.or_(b.eq(place, wide(ends)), b.eq(place, b.sub(wide(ends), 1)))
    kept = b.select(last, lowest, alpha)
    top = b.reduce_max(kept, axes=(1,))
    safe = b.select(b.eq(top, -math.inf), top, full(b, 0.0, top.type))
    total = b.reduce_sum(b.exp(b.sub(kept, wide(safe))), axes=(1,))
    loss = b.neg(b.add(b.log(total), safe))
    # Without a step only the empty sequence is possible.
    none = b.eq(long, full(b, 0, long.type))
    nothing = b.select(b.eq(short, full(b, 0, short.type)), full(b, math.inf, loss.type), full(b, 0.0, loss.type))
    loss = b.select(none, loss, nothing)
    if zero_infinity:
        loss = b.select(b.eq(loss, math.inf), loss, full(b, 0.0, loss.type))
    return loss


@row(aten._ctc_loss)
def _ctc_parts(
    b: Any, logp: Value, targets: Value, input_lengths: Any, target_lengths: Any, blank: int = 0, zero: bool = False
) -> tuple[Value | None, ...]:
    """The second result serves the gradient only."""
    return _ctc(b, logp, targets, input_lengths, target_lengths, blank, 0, zero), None


@row(aten.ctc_loss)
def _ctc(
    b: Any,
    logp: Value,
    targets: Value,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Value:
    single = logp.type.rank == 2  # one sequence without a batch axis
    if single:
        logp = reshape(b, logp, (logp.type.shape[0], 1, logp.type.shape[1]))
        targets = reshape(b, targets, (1, targets.type.shape[0])) if targets.type.rank == 1 else targets
        input_lengths, target_lengths = (
            reshape(b, x, (1,)) if isinstance(x, Value) else x for x in (input_lengths, target_lengths)
        )
    loss = ctc(b, logp, targets, input_lengths, target_lengths, blank, zero_infinity)
    if reduction == 1:
        length = b.max(_lengths(b, target_lengths), full(b, 1, loss.type.with_(i64)))
        loss = b.div(loss, cast(b, length, loss.type.dtype))
    if reduction == 0:
        return reshape(b, loss, ()) if single else loss
    return reduce_loss(b, loss, reduction)


# -- several labels for each row -----------------------------------------------------------------------


def _multilabel_margin(b: Any, x: Value, target: Value) -> tuple[Value, Value]:
    """The loss of each row, and which classes are labels. Labels end at the first -1."""
    n, classes = x.type.shape
    minus = b.eq(target, full(b, -1, target.type))
    valid = b.eq(b.cumsum(cast(b, minus, i64), axis=1), full(b, 0, target.type.with_(i64)))
    label = b.select(valid, full(b, 0, target.type), target)
    picked = b.take_along_axis(x, label, axis=1)
    wide = (n, classes, classes)  # row, label, class
    spread = lambda v, axis: b.broadcast_in_dim(v, shape=wide, broadcast_dimensions=(0, axis))
    is_label = b.and_(b.eq(spread(label, 1), iota(b, wide, 2, label.type.dtype)), spread(valid, 1))
    is_label = b.reduce_or(is_label, axes=(1,))
    gap = b.add(b.sub(full(b, 1.0, x.type.with_(shape=wide)), spread(picked, 1)), spread(x, 2))
    counts = b.and_(spread(valid, 1), b.not_(spread(is_label, 2)))
    zero = full(b, 0.0, gap.type)
    total = b.reduce_sum(b.select(counts, zero, b.max(gap, zero)), axes=(1, 2))
    return b.div(total, full(b, classes, total.type)), cast(b, is_label, x.type.dtype)


@row(aten.multilabel_margin_loss_forward)
def _multilabel_margin_forward(b: Any, x: Value, target: Value, reduction: int) -> Sequence[Value]:
    single = x.type.rank < 2
    if single:
        x, target = (reshape(b, v, (1, v.type.size)) for v in (x, target))
    loss, is_label = _multilabel_margin(b, x, target)
    is_label = reshape(b, is_label, b.out[1].shape)
    if reduction == 0:
        return (reshape(b, loss, ()) if single else loss), is_label
    return reduce_loss(b, loss, reduction), is_label


@row(aten.multilabel_margin_loss)
def _multilabel_margin_loss(b: Any, x: Value, target: Value, reduction: int = 1) -> Value:
    single = x.type.rank < 2
    if single:
        x, target = (reshape(b, v, (1, v.type.size)) for v in (x, target))
    loss = _multilabel_margin(b, x, target)[0]
    return (reshape(b, loss, ()) if single else loss) if reduction == 0 else reduce_loss(b, loss, reduction)
