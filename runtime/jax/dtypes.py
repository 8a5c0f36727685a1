"""Graph dtypes as jax dtypes, under the user's x64 setting."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import EngineError


def to_jax(dtype: DType) -> Any:
    """The jax dtype: 64-bit types are narrowed where x64 is off."""
    return jax.dtypes.canonicalize_dtype(dtype.numpy)


def narrows(dtype: DType) -> bool:
    """True when the present x64 setting shortens this dtype."""
    return bool(to_jax(dtype) != dtype.numpy)


def fit(array: Any, what: str) -> Any:
    """A NumPy array in the dtype that the x64 setting leaves it.

    Raises EngineError when an integer does not survive: the program's meaning would change.
    """
    array = np.asarray(array)
    target = jax.dtypes.canonicalize_dtype(array.dtype)
    if target == array.dtype:
        return array
    narrow = array.astype(target)
    if array.dtype.kind in "iu" and not np.array_equal(narrow.astype(array.dtype), array):
        raise EngineError(
            f"{what} holds {array.dtype} numbers that do not fit 32 bits: "
            "switch 64-bit types on with jax.config.update('jax_enable_x64', True)"
        )
    return narrow
