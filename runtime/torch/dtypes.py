"""DType and torch.dtype, NumPy arrays and tensors over the same memory, and dtypes torch is weak in.

torch hardly computes in u16, u32, u64, f8 and integers shorter than a byte. Rows take one of three
roads through a dtype it knows: the same bits (`bits`), a wider value (`widen`), or a value of the
same order (`to_order`). Each gives x itself for the dtypes that need nothing, so that plain programs
stay plain.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch

from unigraph import dtypes
from unigraph.dtypes import DType, dtype
from unigraph.errors import EngineError

from .compat import torch_dtype

Tensor = torch.Tensor

_NAMES = {
    "bool": "bool", "i2": "int2", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u2": "uint2", "u4": "uint4", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
TO_TORCH: dict[DType, torch.dtype] = {
    dtype(name): found for name, torch_name in _NAMES.items() if (found := torch_dtype(torch_name)) is not None
}
FROM_TORCH: dict[torch.dtype, DType] = {t: d for d, t in TO_TORCH.items()}
TO_TORCH.update({d: torch.uint32 for d in dtypes.ALL if d.is_key})


def to_torch(d: DType) -> torch.dtype:
    """The torch dtype that holds ``d``. Raises EngineError when torch has none."""
    found = TO_TORCH.get(d)
    if found is None:
        raise EngineError(f"torch has no dtype for {d}; convert to f8e4m3fn, f8e5m2 or a wider type first")
    return found


def from_torch(t: torch.dtype) -> DType:
    """The graph dtype of a torch dtype. Raises EngineError for quantised types."""
    found = FROM_TORCH.get(t)
    if found is None:
        raise EngineError(f"{t} has no place in a graph")
    return found


# -- memory --------------------------------------------------------------------------------------

# What a tensor of these dtypes is in NumPy's eyes, for torch cannot hand them over itself.
_CARRIER = {torch.bfloat16: torch.int16}
_CARRIER.update({t: torch.uint8 for t, d in FROM_TORCH.items() if d.is_float and d.bits == 8})


def from_numpy(x: np.ndarray, writable: bool = False) -> Tensor:
    """A tensor over the memory of ``x``; one that others write to only when the memory allows it.

    Copied where torch has no view: negative strides, integers shorter than a byte, and read-only
    memory if the tensor is to be ``writable``.
    """
    x = np.asarray(x)
    if not x.dtype.isnative or any(s < 0 or s % x.itemsize for s in x.strides):
        x = np.array(x, dtype=x.dtype.newbyteorder("="), order="C")
    kind = dtype(x.dtype)
    target = to_torch(kind)
    if kind.bits < 8 and kind.is_integer:
        # NumPy keeps four bits without their sign, torch rows want the value in a byte.
        return torch.from_numpy(x.astype(np.int8 if kind.kind == "int" else np.uint8)).view(target)
    if writable and not x.flags.writeable:
        x = x.copy()
    carrier = _CARRIER.get(target)
    if carrier is not None:
        x = x.view(np.int16 if carrier is torch.int16 else np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only memory: no row writes into an operand
        tensor = torch.from_numpy(x)
    return tensor if carrier is None else tensor.view(target)


def to_numpy(x: Tensor) -> np.ndarray:
    """The NumPy array over the memory of ``x`` (copied from another device)."""
    x = on_device(x.detach(), torch.device("cpu"))
    kind = from_torch(x.dtype)
    if kind.bits < 8 and kind.is_integer:
        return x.view(torch.int8 if kind.kind == "int" else torch.uint8).numpy().astype(kind.numpy)
    carrier = _CARRIER.get(x.dtype)
    if carrier is not None:
        return x.view(carrier).numpy().view(kind.numpy)
    return x.resolve_conj().resolve_neg().numpy() if kind.is_complex else x.resolve_neg().numpy()


# -- three roads ---------------------------------------------------------------------------------

_TINY = {t: d for t, d in FROM_TORCH.items() if d.is_integer and d.bits < 8}
_F8 = {t: d for t, d in FROM_TORCH.items() if d.is_float and d.bits == 8}
_BITS: dict[torch.dtype, torch.dtype] = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    **{t: torch.int8 if d.kind == "int" else torch.uint8 for t, d in _TINY.items()},
    **{t: torch.uint8 for t in _F8},
}
_WIDER: dict[torch.dtype, torch.dtype] = {
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    **{t: torch.float32 for t in _F8},
}
_LEAST64 = -(1 << 63)
SHORT = frozenset({torch.float16, torch.bfloat16})


def bits(x: Tensor) -> Tensor:
    """The same bits under a dtype that torch moves and, for integers, adds and multiplies."""
    target = _BITS.get(x.dtype)
    return x if target is None else x.view(target)


def unbits(x: Tensor, t: torch.dtype) -> Tensor:
    """The inverse of `bits`."""
    return x if x.dtype is t else x.view(t)


def widen(x: Tensor) -> Tensor:
    """The same values under a dtype that torch computes in (u64: the same bits as i64)."""
    t = x.dtype
    if t in _TINY:
        return x.view(_BITS[t]).to(torch.int32)
    if t is torch.uint64:
        return x.view(torch.int64)
    target = _WIDER.get(t)
    return x if target is None else x.to(target)


def narrow(x: Tensor, t: torch.dtype) -> Tensor:
    """Back from `widen`: integers wrap, floats round to nearest even."""
    if x.dtype is t:
        return x
    if t in _TINY:
        kind = _TINY[t]
        if kind.kind == "uint":
            return (x & ((1 << kind.bits) - 1)).to(torch.uint8).view(t)
        return ((x.to(torch.int64) << (64 - kind.bits)) >> (64 - kind.bits)).to(torch.int8).view(t)
    if t is torch.uint64 and x.dtype is torch.int64:
        return x.view(t)
    return x.to(t)


def to_order(x: Tensor) -> Tensor:
    """Values that compare as those of ``x`` do, under a dtype that torch compares and sorts."""
    if x.dtype is torch.uint64:
        return x.view(torch.int64) ^ _LEAST64
    return widen(x)


def from_order(x: Tensor, t: torch.dtype) -> Tensor:
    """The inverse of `to_order`."""
    if t is torch.uint64:
        return (x ^ _LEAST64).view(t)
    return narrow(x, t)


def on_device(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on a device; itself where it is there (torch copies no integers shorter than a byte)."""
    return x if x.device == device else unbits(bits(x).to(device), x.dtype)


def is_weak(t: torch.dtype) -> bool:
    """True for the dtypes that need one of the three roads."""
    return t in _BITS


def wide_float(x: Tensor) -> Tensor:
    """Floats shorter than f32 as f32, all else as it is."""
    return x.to(torch.float32) if x.dtype in SHORT or x.dtype in _F8 else x


def lowest(t: torch.dtype) -> bool | int | float:
    """The largest of nothing."""
    return _extreme(t, "min")


def highest(t: torch.dtype) -> bool | int | float:
    """The smallest of nothing."""
    return _extreme(t, "max")


def _extreme(t: torch.dtype, which: str) -> bool | int | float:
    import ml_dtypes

    kind = from_torch(t)
    if kind.kind == dtypes.BOOL:
        return which == "max"
    if kind.is_integer:
        return int(getattr(ml_dtypes.iinfo(kind.numpy), which))
    infinity = np.asarray(np.inf, np.float32).astype(kind.numpy).astype(np.complex128)
    if np.isinf(infinity):
        return float("inf") if which == "max" else float("-inf")
    return float(getattr(ml_dtypes.finfo(kind.numpy), which))


def full(shape: tuple[int, ...], value: bool | int | float, like: Tensor) -> Tensor:
    """``value`` repeated, in the dtype and on the device of ``like``."""
    t = like.dtype
    if t in _TINY:
        return narrow(torch.full(shape, value, dtype=torch.int32, device=like.device), t)
    return torch.full(shape, value, dtype=t, device=like.device)
