"""How closely results must agree, by dtype. The only place where a tolerance is stated."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import dtypes
from .dtypes import DType

# Relative and absolute tolerance of one operation, about a few units in the last place for the
# elementary functions and a short sum; integers, booleans and keys must be equal.
TOLERANCES: dict[str, tuple[float, float]] = {
    "f64": (1e-12, 1e-13),
    "c128": (1e-12, 1e-13),
    "f32": (2e-5, 1e-6),
    "c64": (2e-5, 1e-6),
    "f16": (2e-3, 1e-4),
    "bf16": (1.6e-2, 1e-3),
}
_COARSE = (0.25, 0.0625)  # f8 and f4: one step of a two- or three-bit mantissa


def tolerance(dtype: DType) -> tuple[float, float]:
    """(relative, absolute) tolerance for results of this dtype; zeros mean equality."""
    if dtype.name in TOLERANCES:
        return TOLERANCES[dtype.name]
    return _COARSE if dtype.is_float else (0.0, 0.0)


def difference(actual: Any, expected: Any, scale: float = 1.0) -> str | None:
    """Why ``actual`` is not ``expected`` (shape, dtype, value within tolerance), or None.

    NaN equals NaN, infinities must match, and so must the sign of a zero expected exactly.
    ``scale`` multiplies the tolerance for long computations (a stated number of operations).
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != expected.dtype:
        return f"dtype {actual.dtype}, expected {expected.dtype}"
    kind = dtypes.dtype(expected.dtype)
    rtol, atol = (scale * t for t in tolerance(kind))
    if not kind.is_inexact:
        wrong = actual != expected
    else:
        wide = np.complex128 if kind.is_complex else np.float64
        a, e = actual.astype(wide), expected.astype(wide)
        with np.errstate(all="ignore"):
            near = np.abs(a - e) <= atol + rtol * np.abs(e)
        wrong = ~(near | (a == e) | (np.isnan(a) & np.isnan(e)))
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{count} of {wrong.size} elements differ, first at {first}: {actual[first]!s}, expected {expected[first]!s}"
