"""Dtypes that NumPy cannot fold over well, carried in wider ones and brought back.

Floats shorter than f32 compute in f32 and round once; integers shorter than a byte compute in i32
and wrap. Also here: the value that a fold starts from, in every dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from unigraph.dtypes import BOOL, COMPLEX, FLOAT, INT, DType, dtype

from .elementwise import wrap_integer

Array = np.ndarray


def widen(x: Array) -> Array:
    """x in a dtype with full NumPy support; x itself where it has that already."""
    kind = dtype(x.dtype)
    if kind.is_float and kind.bits < 32:
        return x.astype(np.float32)
    return x.astype(np.int32) if kind.is_integer and kind.bits < 8 else x


def narrow(x: Any, kind: DType) -> Array:
    """x back in ``kind``: rounded to nearest even, or wrapped."""
    x = np.asarray(x)
    if x.dtype == kind.numpy:
        return x
    return wrap_integer(x, kind) if kind.is_integer and kind.bits < 8 else x.astype(kind.numpy)


def from_integers(x: Array, kind: DType) -> Array:
    """Integers converted to ``kind``; those that do not fit wrap around."""
    return wrap_integer(x, kind) if kind.is_integer and kind.bits < 8 else x.astype(kind.numpy)


@functools.cache
def lowest(kind: DType) -> Any:
    """The largest of nothing, as a Python number."""
    if kind.kind == BOOL:
        return False
    if kind.is_integer:
        return int(ml_dtypes.iinfo(kind.numpy).min)
    return -np.inf if has_infinity(kind) else float(ml_dtypes.finfo(kind.numpy).min)


@functools.cache
def highest(kind: DType) -> Any:
    """The smallest of nothing, as a Python number."""
    if kind.kind == BOOL:
        return True
    if kind.is_integer:
        return int(ml_dtypes.iinfo(kind.numpy).max)
    return np.inf if has_infinity(kind) else float(ml_dtypes.finfo(kind.numpy).max)


def has_infinity(kind: DType) -> bool:
    """True when the float or complex dtype can hold an infinity."""
    return kind.kind == COMPLEX or bool(np.isinf(np.asarray(np.inf, np.float32).astype(kind.numpy).astype(np.float32)))


def out_of_bounds_fill(kind: DType) -> Any:
    """What gather gives out of bounds when nothing else is asked: NaN, smallest, largest, True."""
    if kind.is_inexact:
        return np.nan
    return lowest(kind) if kind.kind == INT else highest(kind)


# The sign of a zero that a maximum or minimum gives: NumPy may return either zero. All elements of a
# fold that gives 0 lie on one side of it, so their sign bits folded by `and` (`or`) are its sign bit.
SIGN = {np.maximum: np.logical_and, np.minimum: np.logical_or}


def fold(ufunc: np.ufunc, x: Array, run: Callable[[np.ufunc, Array], Any]) -> Any:
    """``run(ufunc, x)``, where +0.0 beats -0.0 in a maximum, and -0.0 beats +0.0 in a minimum.

    ``run`` folds an array in any way (reduce, accumulate, over windows) with the ufunc it gets.
    """
    result = run(ufunc, x)
    if ufunc in SIGN and dtype(x.dtype).kind == FLOAT and np.any(np.equal(result, 0)):
        negative = run(SIGN[ufunc], np.signbit(x))
        result = np.where(np.equal(result, 0), np.where(negative, -0.0, 0.0).astype(x.dtype), result)
    return result
