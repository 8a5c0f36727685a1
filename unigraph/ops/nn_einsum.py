"""How an einsum equation is read and carried out: one dot_general for each further operand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .. import dims
from ..dims import Dim
from ..opdef import require
from .idioms import GraphBuilder, Value, along, reshape, transpose, where


class Labelled(NamedTuple):
    """A value whose axes are named: letters, or negative numbers for the axes of an ellipsis."""

    value: Value
    labels: tuple[str | int, ...]


def contract(b: GraphBuilder, xs: Sequence[Value], equation: str) -> Value:
    """The value of an einsum equation over ``xs``.

    Raises TypeCheckError for an equation that does not fit the operands.
    """
    terms, output = read(equation, [x.type.rank for x in xs])
    sizes: dict[str | int, Dim] = {}
    for x, labels in zip(xs, terms):
        for label, n in zip(labels, x.type.shape):
            known = sizes.get(label, 1)
            if dims.is_static(known) and known == 1:
                sizes[label] = n
            else:
                fits = (dims.is_static(n) and n == 1) or dims.compatible(n, known)
                require(fits, "einsum_size", f"axis {label!r} of {equation!r} has the sizes {known} and {n}")
    ready = [_single(b, x, labels, sizes) for x, labels in zip(xs, terms)]
    total = ready[0]
    for i, other in enumerate(ready[1:], 1):
        needed = {*output, *(label for later in ready[i + 1 :] for label in later.labels)}
        total = _join(b, total, other, needed)
    total = _summed(b, total, set(output))
    order = [label for label in output if label in total.labels]
    value = transpose(b, total.value, [total.labels.index(label) for label in order])
    # A letter whose every size is 1 may have been dropped on the way.
    return reshape(b, value, [sizes[label] for label in output])


def read(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str | int, ...]], tuple[str | int, ...]]:
    """The axis labels of the operands and of the output."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    require(len(parts) == len(ranks), "einsum_operands", f"{equation!r} names {len(parts)} operands, got {len(ranks)}")
    terms = [_labels(equation, part, rank) for part, rank in zip(parts, ranks)]
    widest = max((sum(isinstance(label, int) for label in t) for t in terms), default=0)
    if arrow:
        output = _labels(equation, right, len(right.replace("...", "")) + (widest if "..." in right else 0))
        require(len(set(output)) == len(output), "einsum_output", f"the output of {equation!r} names an axis twice")
    else:
        times = Counter(label for t in terms for label in t)
        once = sorted(label for label, k in times.items() if isinstance(label, str) and k == 1)
        output = (*range(-widest, 0), *once)
    known = {label for t in terms for label in t}
    require(set(output) <= known, "einsum_output", f"the output of {equation!r} names an axis that no operand has")
    return terms, output


def _labels(equation: str, part: str, rank: int) -> tuple[str | int, ...]:
    before, dots, after = part.partition("...")
    require(
        (before + after).isalpha() or not before + after,
        "einsum_equation",
        f"{equation!r} is not an equation of letters, commas and one ->",
    )
    hidden = rank - len(before) - len(after)
    require(
        hidden == 0 or (dots and hidden > 0),
        "einsum_rank",
        f"{part!r} of {equation!r} does not name the {rank} axes of its operand",
    )
    return (*before, *range(-hidden, 0), *after)


def _single(b: GraphBuilder, x: Value, labels: Sequence[str | int], sizes: dict[str | int, Dim]) -> Labelled:
    """An operand with each label once and without the axes of size 1 that are broadcast."""
    shape = x.type.shape
    stretched = [a for a, n in enumerate(shape) if dims.is_static(n) and n == 1 and not dims.equal(sizes[labels[a]], 1)]
    x = reshape(b, x, [n for a, n in enumerate(shape) if a not in stretched])
    names = [label for a, label in enumerate(labels) if a not in stretched]
    for label in [label for label, k in Counter(names).items() if k > 1]:
        while names.count(label) > 1:
            first = names.index(label)
            second = names.index(label, first + 1)
            n = x.type.shape[first]
            # The diagonal as a masked sum: exact, and NaN off the diagonal does not spread.
            rows, columns = (b.iota(dtype="i32", shape=(n, n), axis=a) for a in (0, 1))
            on = along(b, b.eq(rows, columns), x.type.shape, (first, second))
            x = b.reduce_sum(where(b, on, x, 0), axes=(first,))
            names.pop(first)
    return Labelled(x, tuple(names))


def _summed(b: GraphBuilder, x: Labelled, needed: set[str | int]) -> Labelled:
    """``x`` summed over the axes that nothing needs any more."""
    axes = tuple(a for a, label in enumerate(x.labels) if label not in needed)
    if not axes:
        return x
    return Labelled(b.reduce_sum(x.value, axes=axes), tuple(label for label in x.labels if label in needed))


def _join(b: GraphBuilder, x: Labelled, y: Labelled, needed: set[str | int]) -> Labelled:
    """Product of two operands, summed over shared axes that nothing else needs."""
    x = _summed(b, x, needed | set(y.labels))
    y = _summed(b, y, needed | set(x.labels))
    shared = [label for label in x.labels if label in y.labels]
    batch = [label for label in shared if label in needed]
    summed = [label for label in shared if label not in needed]
    value = b.dot_general(
        x.value,
        y.value,
        lhs_contracting=tuple(x.labels.index(label) for label in summed),
        rhs_contracting=tuple(y.labels.index(label) for label in summed),
        lhs_batch=tuple(x.labels.index(label) for label in batch),
        rhs_batch=tuple(y.labels.index(label) for label in batch),
    )
    free = [label for label in (*x.labels, *y.labels) if label not in shared]
    return Labelled(value, (*batch, *free))
