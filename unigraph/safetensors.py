"""Reading and writing the safetensors layout: a length, a JSON header, the data of all tensors.

Files hold valid safetensors for every dtype the format knows. The remaining dtypes get names of
their own (``UG_…``), which other readers refuse rather than misread.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dtypes
from .archive import PAGE, blocks, map_file
from .dtypes import DType
from .errors import FormatError
from .types import TensorType, shown

MAX_HEADER = 100 << 20  # the limit of the reference implementation
MAX_RANK = 64
ALIGN = 64

_STANDARD: Mapping[str, DType] = {
    "BOOL": dtypes.bool_,
    "U8": dtypes.u8,
    "I8": dtypes.i8,
    "U16": dtypes.u16,
    "I16": dtypes.i16,
    "U32": dtypes.u32,
    "I32": dtypes.i32,
    "U64": dtypes.u64,
    "I64": dtypes.i64,
    "F16": dtypes.f16,
    "BF16": dtypes.bf16,
    "F32": dtypes.f32,
    "F64": dtypes.f64,
    "C64": dtypes.c64,
    "F8_E4M3": dtypes.f8e4m3fn,
    "F8_E5M2": dtypes.f8e5m2,
    "F8_E8M0": dtypes.f8e8m0fnu,
    "F8_E4M3FNUZ": dtypes.f8e4m3fnuz,
    "F8_E5M2FNUZ": dtypes.f8e5m2fnuz,
}
_KNOWN = set(_STANDARD.values())
BY_NAME: Mapping[str, DType] = {
    **_STANDARD,
    **{f"UG_{d.name.upper()}": d for d in dtypes.ALL if d not in _KNOWN and not d.is_key},
}
NAME_OF: Mapping[DType, str] = {d: name for name, d in BY_NAME.items()}


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where one tensor lies: element type, shape, and byte range counted from the start of the file."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int


def storage(type_: TensorType) -> tuple[DType, tuple[int, ...]]:
    """The element type and shape of the array that holds a value of this type.

    A key is held as uint32 words on one more axis. Raises FormatError for a symbolic shape.
    """
    if not type_.is_static:
        raise FormatError(f"data of type {type_} has no fixed size")
    if type_.dtype.is_key:
        return dtypes.u32, (*type_.shape, type_.dtype.key_words)
    return type_.dtype, type_.shape


def nbytes(dtype: DType, shape: Sequence[int]) -> int:
    return math.prod(shape) * dtype.numpy.itemsize


def as_bytes(array: Any) -> np.ndarray:
    """The elements of an array as flat bytes in row-major order (a view where the memory allows)."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def arrange(tensors: Mapping[str, tuple[DType, tuple[int, ...]]]) -> tuple[bytes, list[str]]:
    """The header (padded so that data starts on a page) and the order of the tensors.

    Readers refuse gaps between tensors. Those of a size that keeps the next one aligned come first,
    the rest by falling element size, so that each is aligned as well as the format permits.
    """
    order = sorted(tensors, key=lambda n: _rank(*tensors[n]))
    header: dict[str, Any] = {}
    position = 0
    for name in order:
        dtype, shape = tensors[name]
        end = position + nbytes(dtype, shape)
        header[name] = {"dtype": NAME_OF[dtype], "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % PAGE)
    return struct.pack("<Q", len(text)) + text, order


def _rank(dtype: DType, shape: tuple[int, ...]) -> tuple[bool, int]:
    ragged = nbytes(dtype, shape) % ALIGN != 0
    return ragged, -dtype.numpy.itemsize if ragged else 0


def stream(header: bytes, arrays: Iterable[Any]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file, tensor by tensor in pieces."""
    yield header
    for array in arrays:
        yield from blocks(as_bytes(array))


def read_header(data: np.ndarray, start: int, size: int, where: str) -> dict[str, Tensor]:
    """The tensors of the safetensors file that lies at ``data[start:start + size]``.

    Raises FormatError for anything that contradicts the layout.
    """
    if size < 8:
        raise FormatError("too short to be a safetensors file", where)
    (length,) = struct.unpack("<Q", bytes(data[start : start + 8]))
    if length > MAX_HEADER or 8 + length > size:
        raise FormatError(f"a header of {length} bytes does not fit into {size}", where)
    try:
        header = json.loads(bytes(data[start + 8 : start + 8 + length]).decode(), object_pairs_hook=_unique)
    except FormatError as error:
        raise FormatError(str(error), where) from None
    except (ValueError, RecursionError):
        raise FormatError("the header is not JSON", where) from None
    if not isinstance(header, dict):
        raise FormatError("the header is not a JSON object", where)
    header.pop("__metadata__", None)
    base, room = start + 8 + length, size - 8 - length
    tensors = {name: _tensor(item, base, room, f"{where}: {name}") for name, item in header.items()}
    expected = base
    for name, tensor in sorted(tensors.items(), key=lambda t: (t[1].start, t[1].stop)):
        if tensor.start != expected:
            raise FormatError("the tensor overlaps another one or leaves a gap", f"{where}: {name}")
        expected = tensor.stop
    if expected != start + size:
        raise FormatError(f"{start + size - expected} bytes belong to no tensor", where)
    return tensors


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [k for k, _ in pairs]
        twice = next(n for n in names if names.count(n) > 1)
        raise FormatError(f"the name {twice[:80]!r} stands twice in the header")
    return result


def _sizes(x: Any, limit: int) -> tuple[int, ...] | None:
    good = isinstance(x, list) and len(x) <= limit and all(type(i) is int and 0 <= i < 1 << 62 for i in x)
    return tuple(x) if good else None


def _tensor(item: Any, base: int, room: int, where: str) -> Tensor:
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError("expected dtype, shape and data_offsets", where)
    dtype = BY_NAME.get(item["dtype"]) if isinstance(item["dtype"], str) else None
    if dtype is None:
        raise FormatError(f"unknown dtype {str(item['dtype'])[:40]!r}", where)
    shape, offsets = _sizes(item["shape"], MAX_RANK), _sizes(item["data_offsets"], 2)
    if shape is None:
        raise FormatError("the shape is not a list of sizes", where)
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1] or offsets[1] > room:
        raise FormatError(f"the data_offsets do not lie within the {room} bytes of data", where)
    if offsets[1] - offsets[0] != nbytes(dtype, shape):
        raise FormatError(
            f"{shown(dtype, shape)} takes {nbytes(dtype, shape)} bytes, not {offsets[1] - offsets[0]}", where
        )
    return Tensor(dtype, shape, base + offsets[0], base + offsets[1])


def view(data: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The array that lies there; it shares the memory of ``data``."""
    return data[tensor.start : tensor.stop].view(tensor.dtype.numpy).reshape(tensor.shape)


def load_file(path: Any) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file, mapped copy-on-write rather than read.

    Raises FormatError for a damaged file, OSError when it cannot be opened.
    """
    data = map_file(path)
    return {name: view(data, t) for name, t in read_header(data, 0, data.size, str(path)).items()}


def save_file(arrays: Mapping[str, Any], path: Any) -> None:
    """Write arrays as a safetensors file, atomically."""
    from .file import atomic

    header, order = arrange({n: (dtypes.dtype(a.dtype), tuple(a.shape)) for n, a in arrays.items()})
    with atomic(path) as file:
        for chunk in stream(header, (arrays[n] for n in order)):
            file.write(chunk)
