"""Shape arithmetic that several type rules share; every function takes symbolic sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

from .. import dims
from ..dims import Dim
from ..dtypes import KEY
from ..errors import TypeCheckError
from ..types import TensorType

Dims = tuple[Dim, ...]


def refuse(label: str, message: str) -> NoReturn:
    """Raise TypeCheckError for the constraint ``label``.

    Type rules write ``if wrong: refuse(...)`` so that a message is only made when it is needed.
    """
    raise TypeCheckError(message, label)


def no_key(label: str, *types: TensorType) -> None:
    """Refuse keys: their data has axes that these ops must not see."""
    for t in types:
        if t.dtype.kind == KEY:
            refuse(label, f"keys cannot be moved ({t}); use rng_unwrap, move the words, then rng_wrap")


def distinct_axes(label: str, what: str, axes: Sequence[int], rank: int) -> None:
    """Refuse axes that are negative, too large or named twice."""
    for a in axes:
        if not 0 <= a < rank:
            refuse(label, f"{what} {tuple(axes)} must lie in 0..{rank - 1}")
    if len(set(axes)) != len(axes):
        refuse(label, f"{what} {tuple(axes)} must be distinct")


def one_axis(label: str, axis: int, rank: int) -> None:
    """Refuse an axis outside 0..rank-1."""
    if not 0 <= axis < rank:
        refuse(label, f"axis {axis} must lie in 0..{rank - 1}")


def is_sorted(axes: Sequence[int]) -> bool:
    """True when the axes rise strictly."""
    return all(a < b for a, b in pairwise(axes))


def at_most(a: Dim, b: Dim) -> bool:
    """False only when ``a > b`` is certain."""
    if type(a) is int and type(b) is int:
        return a <= b
    difference: Any = dims.normal(b - a)
    return difference >= 0 if type(difference) is int else difference.is_negative is not True


def not_negative(dim: Any) -> bool:
    """False only when ``dim`` is certainly below zero."""
    return dim >= 0 if type(dim) is int else dim.is_negative is not True


def at_least_zero(dim: Any) -> Dim:
    """max(dim, 0), left bare where the symbols cannot make it negative."""
    if type(dim) is int:
        return max(dim, 0)
    return dim if dim.is_nonnegative else dims.maximum(dim, 0)


def dilated(size: Dim, by: int) -> Dim:
    """Size after ``by - 1`` holes between neighbours; nothing stays nothing."""
    return size if by == 1 else at_least_zero(dims.normal((size - 1) * by + 1))


def window_count(size: Dim, window: int, stride: int) -> Dim:
    """Number of places where a window of that extent fits into ``size`` elements."""
    if type(size) is int:
        return (size - window) // stride + 1 if size >= window else 0
    room: Any = dims.normal(size - window + stride)
    count = dims.floordiv(room, stride)
    return count if type(count) is int or room.is_nonnegative else dims.maximum(count, 0)


def windows(
    shape: Dims,
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Dims:
    """Number of window places along each axis of a padded, dilated array."""
    ones = (1,) * len(shape)
    return tuple(
        window_count(dims.normal(dilated(n, bd) + lo + hi), (w - 1) * wd + 1, s)
        for n, w, s, lo, hi, bd, wd in zip(
            shape, window, strides, low, high, base_dilation or ones, window_dilation or ones, strict=True
        )
    )
