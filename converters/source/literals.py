"""Data as program text: dtypes, and small arrays that come back with the very same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from unigraph.dtypes import DType, dtype

INLINE = 16  # elements of a constant that may stand in the text


def numpy_dtype(kind: DType) -> str:
    """The NumPy name of a dtype."""
    name = kind.numpy.name
    if hasattr(np, name):
        return "np.bool_" if name == "bool" else f"np.{name}"
    return f"ml_dtypes.{name}"


def array_text(array: Any) -> str | None:
    """The elements of a small array as text that gives the very same bits; None where there is none."""
    array = np.asarray(array)
    if array.size > INLINE or not array.size:
        return None if array.size else str(array.tolist()) if array.ndim == 1 else None
    if array.dtype.kind == "c":
        return None
    items = [_element(x) for x in array.reshape(-1)]
    if any(i is None for i in items):
        return None

    def nest(shape: tuple[int, ...], flat: list[Any]) -> str:
        if not shape:
            return flat[0]
        step = len(flat) // shape[0]
        return "[" + ", ".join(nest(shape[1:], flat[i * step : (i + 1) * step]) for i in range(shape[0])) + "]"

    return nest(array.shape, items)


def _element(x: Any) -> str | None:
    if x.dtype.kind in "biu":
        return repr(x.item())
    for text in (str(x), repr(float(x))):
        try:
            again = np.array(float(text), x.dtype)
        except ValueError:
            continue
        if again.tobytes() == x.tobytes():
            return text if np.isfinite(float(text)) else f'float("{text}")'
    return None


def number_text(array: np.ndarray) -> str | None:
    """A scalar as a bare number of Python, if JAX takes it for the same whatever its settings; None otherwise."""
    kind = dtype(array.dtype)
    if not (kind.is_float and kind.bits >= 16) and not (kind.is_integer and 8 <= kind.bits <= 32):
        return None
    text = array_text(array)
    return {'float("inf")': "jnp.inf", 'float("-inf")': "-jnp.inf", 'float("nan")': "jnp.nan"}.get(text or "", text)


def numpy_constant(array: np.ndarray) -> str:
    """A small array as NumPy text."""
    return f"np.array({array_text(array)}, {numpy_dtype(dtype(array.dtype))})"


def jax_constant(array: np.ndarray) -> str:
    """A small array as JAX text; 64 bits pass through NumPy, since JAX may have them switched off."""
    name = array.dtype.name
    if array.dtype.itemsize == 8 or not (hasattr(np, name) or name == "bfloat16"):
        return f"jnp.asarray({numpy_constant(array)})"
    return f"jnp.array({array_text(array)}, jnp.{'bool_' if name == 'bool' else name})"
