"""Element types: their names in graphs and files, and the NumPy types that hold them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BOOL, INT, UINT, FLOAT, COMPLEX, KEY = "bool", "int", "uint", "float", "complex", "key"


class DType:
    """An element type. Interned: equal types are the same object.

    ``numpy`` is the storage type; a key is stored as ``key_words`` trailing uint32 words.
    """

    __slots__ = ("bits", "key_words", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, bits: int, numpy: Any, key_words: int = 0):
        self.name, self.kind, self.bits = name, kind, bits
        self.numpy = np.dtype(numpy)
        self.key_words = key_words

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers (not bool)."""
        return self.kind in (INT, UINT)

    @property
    def is_float(self) -> bool:
        return self.kind == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind == COMPLEX

    @property
    def is_inexact(self) -> bool:
        return self.kind in (FLOAT, COMPLEX)

    @property
    def is_key(self) -> bool:
        return self.kind == KEY

    @property
    def real(self) -> DType:
        """The type of the real part: f32 for c64, f64 for c128, itself otherwise."""
        return {"c64": f32, "c128": f64}.get(self.name, self)


def _key(impl: str, words: int) -> DType:
    return DType(f"key<{impl}>", KEY, 32 * words, np.uint32, words)


bool_ = DType("bool", BOOL, 8, np.bool_)
i2 = DType("i2", INT, 2, ml_dtypes.int2)
i4 = DType("i4", INT, 4, ml_dtypes.int4)
i8 = DType("i8", INT, 8, np.int8)
i16 = DType("i16", INT, 16, np.int16)
i32 = DType("i32", INT, 32, np.int32)
i64 = DType("i64", INT, 64, np.int64)
u2 = DType("u2", UINT, 2, ml_dtypes.uint2)
u4 = DType("u4", UINT, 4, ml_dtypes.uint4)
u8 = DType("u8", UINT, 8, np.uint8)
u16 = DType("u16", UINT, 16, np.uint16)
u32 = DType("u32", UINT, 32, np.uint32)
u64 = DType("u64", UINT, 64, np.uint64)
f4e2m1fn = DType("f4e2m1fn", FLOAT, 4, ml_dtypes.float4_e2m1fn)
f8e3m4 = DType("f8e3m4", FLOAT, 8, ml_dtypes.float8_e3m4)
f8e4m3 = DType("f8e4m3", FLOAT, 8, ml_dtypes.float8_e4m3)
f8e4m3b11fnuz = DType("f8e4m3b11fnuz", FLOAT, 8, ml_dtypes.float8_e4m3b11fnuz)
f8e4m3fn = DType("f8e4m3fn", FLOAT, 8, ml_dtypes.float8_e4m3fn)
f8e4m3fnuz = DType("f8e4m3fnuz", FLOAT, 8, ml_dtypes.float8_e4m3fnuz)
f8e5m2 = DType("f8e5m2", FLOAT, 8, ml_dtypes.float8_e5m2)
f8e5m2fnuz = DType("f8e5m2fnuz", FLOAT, 8, ml_dtypes.float8_e5m2fnuz)
f8e8m0fnu = DType("f8e8m0fnu", FLOAT, 8, ml_dtypes.float8_e8m0fnu)
bf16 = DType("bf16", FLOAT, 16, ml_dtypes.bfloat16)
f16 = DType("f16", FLOAT, 16, np.float16)
f32 = DType("f32", FLOAT, 32, np.float32)
f64 = DType("f64", FLOAT, 64, np.float64)
c64 = DType("c64", COMPLEX, 64, np.complex64)
c128 = DType("c128", COMPLEX, 128, np.complex128)
threefry = _key("threefry2x32", 2)
rbg = _key("rbg", 4)
unsafe_rbg = _key("unsafe_rbg", 4)

ALL: tuple[DType, ...] = tuple(v for v in list(globals().values()) if isinstance(v, DType))
_BY_NAME: dict[Any, DType] = {d.name: d for d in ALL}
_BY_NUMPY: dict[np.dtype, DType] = {d.numpy: d for d in ALL if not d.is_key}
_BY_NUMPY_NAME: dict[str, DType] = {d.numpy.name: d for d in ALL if not d.is_key}
_BY_PYTHON: dict[Any, DType] = {bool: bool_, int: i64, float: f64, complex: c128}


def dtype(x: Any) -> DType:
    """The element type meant by ``x``: a DType, its name, a NumPy type or its name.

    Raises TypeError when nothing of that name is known.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        found = _BY_NAME.get(x) or _BY_NUMPY_NAME.get(x)
        if found is None:
            raise TypeError(f"unknown dtype {x!r}; known: {', '.join(d.name for d in ALL)}")
        return found
    if x in _BY_PYTHON:
        return _BY_PYTHON[x]
    found = _BY_NUMPY.get(np.dtype(x))
    if found is None:
        raise TypeError(f"NumPy dtype {np.dtype(x)} has no place in a graph")
    return found
