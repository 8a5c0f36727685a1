"""Tensors of a captured program as the data of a graph: the same memory where NumPy can see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unigraph.dtypes import DType
from unigraph.errors import Unsupported
from unigraph.runtime.torch.dtypes import FROM_TORCH, to_numpy


def dtype_of(t: torch.dtype) -> DType:
    """The element type of the graph. Raises Unsupported for quantised types."""
    try:
        return FROM_TORCH[t]
    except KeyError:
        raise Unsupported(f"tensors of {t} have no place in a graph") from None


def array_of(tensor: torch.Tensor) -> np.ndarray | None:
    """A NumPy view of the tensor's memory; None on the meta device and for fake tensors.

    Copied from other devices. Raises Unsupported for layouts and dtypes that NumPy has no view for.
    """
    if tensor.is_meta or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return None
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a {tensor.layout} tensor among the weights", "call .to_dense() on it first")
    dtype_of(tensor.dtype)
    return to_numpy(tensor)


def identity(tensor: torch.Tensor) -> Any:
    """Equal for two names of one tensor (tied weights)."""
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return id(tensor)
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.device)
