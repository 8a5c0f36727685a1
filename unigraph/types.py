"""The type of a value: element type and shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import dims
from .dims import Dim
from .dtypes import DType, dtype


class TensorType:
    """``f32[batch,384]``: a DType and a tuple of dims (ints or sympy expressions)."""

    __slots__ = ("_hash", "dtype", "shape")

    def __init__(self, dtype_: Any, shape: Iterable[Any] = ()):
        self.dtype: DType = dtype_ if type(dtype_) is DType else dtype(dtype_)
        self.shape: tuple[Dim, ...] = tuple(d if type(d) is int else dims.normal(d) for d in shape)
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TensorType) and self.dtype is other.dtype and self.shape == other.shape
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.dtype.name, self.shape))
        return self._hash

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(dims.to_text, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return dims.product(self.shape)

    @property
    def is_static(self) -> bool:
        return all(type(d) is int for d in self.shape)

    @property
    def nbytes(self) -> Dim:
        """Bytes held by a NumPy array of this type (a key counts its words)."""
        return self.size * self.dtype.numpy.itemsize * max(1, self.dtype.key_words)

    def with_(self, dtype_: Any = None, shape: Iterable[Any] | None = None) -> TensorType:
        """The same type with another dtype or shape."""
        return TensorType(self.dtype if dtype_ is None else dtype_, self.shape if shape is None else shape)

    def symbols(self) -> frozenset[str]:
        """Names of the symbols in the shape."""
        return frozenset().union(*map(dims.symbols_of, self.shape))

    def substitute(self, sizes: Mapping[str, Any]) -> TensorType:
        """The type with symbols replaced by sizes."""
        return self if self.is_static else TensorType(self.dtype, (dims.substitute(d, sizes) for d in self.shape))


def shown(dtype_: Any, shape: Iterable[Any]) -> str:
    """``f32[2,4]`` for an element type of any framework (its own name where the graph has none) and a shape."""
    try:
        name = dtype(str(dtype_) if not isinstance(dtype_, (DType, str)) else dtype_).name
    except TypeError:
        name = str(dtype_)
    return f"{name}[{','.join(map(dims.to_text, shape))}]"


def same_shape(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    """True unless the shapes can never be the same."""
    a, b = tuple(a), tuple(b)
    return a == b or (len(a) == len(b) and all(map(dims.compatible, a, b)))
