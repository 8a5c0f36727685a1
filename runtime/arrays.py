"""Arrays of any framework: what kind they are, and the way to NumPy and back without copies.

A framework is looked up in ``sys.modules`` only: an array of a framework exists only once the
framework has been imported.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unigraph import dtypes
from unigraph.dtypes import DType
from unigraph.errors import EngineError, InputError
from unigraph.types import TensorType

NUMPY, TORCH, JAX, PYTHON = "numpy", "torch", "jax", "python"
_NUMBERS = (bool, int, float, complex)


def kind_of(x: Any) -> str:
    """The framework an array belongs to; ``python`` for numbers and nested lists of numbers.

    Raises InputError for anything else.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return NUMPY
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(x, torch.Tensor):
        return TORCH
    if jax is not None and isinstance(x, jax.Array):
        return JAX
    if isinstance(x, (*_NUMBERS, list, tuple)):
        return PYTHON
    if hasattr(x, "__array__"):
        return NUMPY
    raise InputError(f"{type(x).__name__} is not an array: give NumPy, torch or JAX arrays, or numbers")


def is_array(x: Any) -> bool:
    """True for arrays and numbers, False for containers, None and anything else."""
    return isinstance(x, _NUMBERS) or (not isinstance(x, (list, tuple)) and hasattr(x, "dtype"))


def key_impl(x: Any) -> str:
    """The kind of a typed JAX key, such as ``threefry2x32``; empty for any other array."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(x, jax.Array) or not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return ""
    return str(jax.random.key_impl(x))


def dtype_of(x: Any, kind: str) -> DType:
    """The graph dtype of an array of this kind. Raises InputError for one that has no place in a graph."""
    try:
        if kind == TORCH:
            from .torch.dtypes import from_torch

            return from_torch(x.dtype)
        return dtypes.dtype(x.dtype)
    except (TypeError, EngineError):
        raise InputError(f"arrays of {x.dtype} have no place in a graph; convert it first") from None


def to_numpy(x: Any, type_: TensorType | None = None) -> np.ndarray:
    """``x`` as a NumPy array, sharing memory where it can; numbers take the dtype of ``type_``.

    Raises InputError for numbers that the dtype does not hold, and for traced JAX values.
    """
    kind = kind_of(x)
    if kind == TORCH:
        from .torch.dtypes import to_numpy as torch_to_numpy

        return torch_to_numpy(x)
    if kind == JAX:
        return _from_jax(x)
    if kind == PYTHON and type_ is not None:
        return _from_python(x, type_)
    array = np.asarray(x)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def from_numpy(x: np.ndarray, kind: str) -> Any:
    """A NumPy array as an array of ``kind`` that nobody else can change under it."""
    if kind == TORCH:
        from .torch.dtypes import from_numpy as torch_from_numpy

        return torch_from_numpy(x, writable=True)
    if kind == JAX:
        from .jax.engine import from_numpy as jax_from_numpy

        return jax_from_numpy(x)
    return writable(x)


def writable(x: np.ndarray) -> np.ndarray:
    """``x``, or a copy of it when it is read-only or some of its elements share one place."""
    broadcast = 0 in x.strides and any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True))
    return x if x.flags.writeable and not broadcast else np.array(x, copy=True, order="C")


def memory(x: np.ndarray) -> int:
    """What two arrays share when one may change the other: the identity of the array that owns the memory."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return id(x)


def _from_jax(x: Any) -> np.ndarray:
    jax = sys.modules["jax"]
    try:
        return np.asarray(jax.random.key_data(x) if key_impl(x) else x)
    except jax.errors.TracerArrayConversionError:
        raise InputError(
            "a traced value has no data yet: inside jit, grad or vmap use the function that unigraph.to_jax gives"
        ) from None


def _from_python(x: Any, type_: TensorType) -> np.ndarray:
    """Numbers in the declared dtype, if that loses nothing of their kind and range."""
    try:
        plain = np.asarray(x)
    except ValueError as error:
        raise InputError(f"nested lists of numbers must form an array: {error}") from None
    target = type_.dtype
    rank = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}.get(plain.dtype.kind, 9)
    allowed = {dtypes.BOOL: 0, dtypes.INT: 1, dtypes.UINT: 1, dtypes.FLOAT: 2, dtypes.COMPLEX: 3}.get(target.kind, -1)
    if rank > allowed and plain.size:
        raise InputError(f"the Python value {x!r} is no {target.kind}")
    with np.errstate(all="ignore"):
        cast = plain.astype(target.numpy)
    if target.is_integer and not np.array_equal(cast.astype(object), plain.astype(object)):
        raise InputError(f"the Python value {x!r} does not fit in {target}")
    return cast
