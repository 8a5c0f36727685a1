"""Arrays of any framework: what kind they are, and the way to NumPy and back without copies.

A framework is looked up in ``sys.modules`` only: an array of a framework exists only once the
framework has been imported.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unigraph import dtypes
from unigraph.errors import InputError
from unigraph.types import TensorType

NUMPY, TORCH, JAX, PYTHON = "numpy", "torch", "jax", "python"


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
    if isinstance(x, (bool, int, float, complex, list, tuple)):
        return PYTHON
    if hasattr(x, "__array__"):
        return NUMPY
    raise InputError(f"{type(x).__name__} is not an array: give NumPy, torch or JAX arrays, or numbers")


def is_array(x: Any) -> bool:
    """True for arrays and numbers (leaves of an input structure), False for containers."""
    return not isinstance(x, (list, tuple, dict)) and x is not None


def to_numpy(x: Any, type_: TensorType | None = None) -> np.ndarray:
    """``x`` as a NumPy array, sharing memory where it can; numbers take the dtype of ``type_``."""
    kind = kind_of(x)
    if kind == TORCH:
        from .torch.dtypes import to_numpy as torch_to_numpy

        return torch_to_numpy(x)
    if kind == JAX and _is_typed_key(x):
        return np.asarray(sys.modules["jax"].random.key_data(x))
    if kind == PYTHON and type_ is not None:
        return _from_python(x, type_)
    return np.asarray(x)


def from_numpy(x: np.ndarray, kind: str) -> Any:
    """A NumPy array as an array of ``kind``, sharing memory where it can."""
    if kind == TORCH:
        from .torch.dtypes import from_numpy as torch_from_numpy

        return torch_from_numpy(x)
    if kind == JAX:
        from .jax.engine import from_numpy as jax_from_numpy

        return jax_from_numpy(x)
    return x


def _is_typed_key(x: Any) -> bool:
    jax = sys.modules["jax"]
    return bool(jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key))


def _from_python(x: Any, type_: TensorType) -> np.ndarray:
    """Numbers in the declared dtype, if that loses nothing of their kind."""
    plain = np.asarray(x)
    target = type_.dtype
    rank = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}.get(plain.dtype.kind, 9)
    allowed = {dtypes.BOOL: 0, dtypes.INT: 1, dtypes.UINT: 1, dtypes.FLOAT: 2, dtypes.COMPLEX: 3}.get(target.kind, -1)
    if rank > allowed:
        raise InputError(f"expected {type_}, got the Python value {x!r}")
    return plain.astype(target.numpy)
