"""torch dtypes and tensors as the graph holds them: the same memory, never a copy where one is avoidable."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unigraph import dtypes
from unigraph.dtypes import DType
from unigraph.errors import Unsupported

_PAIRS = {
    "bool": dtypes.bool_,
    "int8": dtypes.i8,
    "int16": dtypes.i16,
    "int32": dtypes.i32,
    "int64": dtypes.i64,
    "uint8": dtypes.u8,
    "uint16": dtypes.u16,
    "uint32": dtypes.u32,
    "uint64": dtypes.u64,
    "float16": dtypes.f16,
    "bfloat16": dtypes.bf16,
    "float32": dtypes.f32,
    "float64": dtypes.f64,
    "complex64": dtypes.c64,
    "complex128": dtypes.c128,
    "float8_e4m3fn": dtypes.f8e4m3fn,
    "float8_e4m3fnuz": dtypes.f8e4m3fnuz,
    "float8_e5m2": dtypes.f8e5m2,
    "float8_e5m2fnuz": dtypes.f8e5m2fnuz,
    "float8_e8m0fnu": dtypes.f8e8m0fnu,
}
FROM_TORCH: dict[torch.dtype, DType] = {getattr(torch, n): d for n, d in _PAIRS.items() if hasattr(torch, n)}
TO_TORCH: dict[DType, torch.dtype] = {d: t for t, d in FROM_TORCH.items()}
# Types that torch cannot hand to NumPy travel as unsigned integers of the same width.
_CARRIER = {8: torch.uint8, 16: torch.int16}


def dtype_of(t: torch.dtype) -> DType:
    """The element type of the graph. Raises Unsupported for quantised and sub-byte types."""
    try:
        return FROM_TORCH[t]
    except KeyError:
        raise Unsupported(f"tensors of {t} have no place in a graph") from None


def array_of(tensor: torch.Tensor) -> np.ndarray | None:
    """A NumPy view of the tensor's memory; None on the meta device and for fake tensors.

    Other devices and layouts that NumPy has no view for are copied.
    """
    if tensor.is_meta or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return None
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        raise Unsupported(f"a {tensor.layout} tensor among the weights", "call .to_dense() on it first")
    tensor = tensor.resolve_conj().resolve_neg().cpu()
    kind = dtype_of(tensor.dtype)
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.view(_CARRIER[kind.bits]).numpy().view(kind.numpy)


def identity(tensor: torch.Tensor) -> Any:
    """Equal for two names of one tensor (tied weights)."""
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return id(tensor)
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.device)
