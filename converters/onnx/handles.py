"""Handles that export rows compute with: values of the growing model, and sizes known when it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import Unsupported

if TYPE_CHECKING:
    from .emitter import Emitter

Shape = tuple[Any, ...]  # ints and Sizes


class NeedsOpset(Unsupported):
    """A row needs an operator that came with a later opset."""

    def __init__(self, what: str, opset: int):
        super().__init__(f"{what} needs opset {opset}", f"export with opset {opset} or newer")
        self.opset = opset


class Size:
    """A size known when the model runs: an int64 vector of one element, made when it is asked for."""

    __slots__ = ("_make", "o")

    def __init__(self, o: Emitter, make: Callable[[], Array]):
        self.o, self._make = o, make

    @property
    def vector(self) -> Array:
        """The size as int64[1], in the sub-graph that is being built."""
        return self._make()

    def _with(self, other: Any, combine: Callable[[Array, Array], Array], swap: bool = False) -> Size:
        def make() -> Array:
            pair = self.vector, self.o.vector([other])
            return combine(*(pair[::-1] if swap else pair))

        return Size(self.o, make)

    def __add__(self, other: Any) -> Size:
        return self if type(other) is int and other == 0 else self._with(other, self.o.Add)

    def __sub__(self, other: Any) -> Size:
        return self if type(other) is int and other == 0 else self._with(other, self.o.Sub)

    def __rsub__(self, other: Any) -> Size:
        return self._with(other, self.o.Sub, swap=True)

    def __mul__(self, other: Any) -> Size:
        return self if type(other) is int and other == 1 else self._with(other, self.o.Mul)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return self * -1

    def __floordiv__(self, other: Any) -> Size:
        # Div truncates and Mod has the divisor's sign: what Mod leaves divides without a remainder.
        return self if type(other) is int and other == 1 else self._with(other, self._floor)

    def __rfloordiv__(self, other: Any) -> Size:
        return self._with(other, self._floor, swap=True)

    def _floor(self, a: Array, b: Array) -> Array:
        return self.o.Div(self.o.Sub(a, self.o.Mod(a, b)), b)

    def __mod__(self, other: Any) -> Size:
        return self._with(other, self.o.Mod)

    def __rmod__(self, other: Any) -> Size:
        return self._with(other, self.o.Mod, swap=True)

    def size_max(self, other: Any) -> Size:
        return self._with(other, self.o.Max)

    def size_min(self, other: Any) -> Size:
        return self._with(other, self.o.Min)


class Array:
    """A value of the model: its name, dtype and shape (None while a row has not said it).

    ``value`` is the data of a constant. ``compact`` is a smaller value that broadcasts to this one.
    """

    __slots__ = ("compact", "dtype", "name", "o", "shape_", "value")

    def __init__(
        self,
        o: Emitter,
        name: str,
        dtype: DType,
        shape: Sequence[Any] | None,
        value: np.ndarray | None = None,
        compact: Array | None = None,
    ):
        self.o, self.name, self.dtype = o, name, dtype
        self.shape_ = None if shape is None else tuple(shape)
        self.value, self.compact = value, compact

    def __repr__(self) -> str:
        return f"<onnx {self.name or 'constant'}: {self.dtype.name}{self.shape_}>"

    @property
    def shape(self) -> Shape:
        """Sizes: ints, and a `Size` where only the run tells."""
        if self.shape_ is None:
            raise ValueError(f"the row that made {self.name} must give its shape")
        return self.shape_

    def __add__(self, other: Any) -> Array:
        return self.o.Add(self, other)

    def __sub__(self, other: Any) -> Array:
        return self.o.Sub(self, other)

    def __mul__(self, other: Any) -> Array:
        return self.o.Mul(self, other)

    def __truediv__(self, other: Any) -> Array:
        return self.o.Div(self, other)

    def __rsub__(self, other: Any) -> Array:
        return self.o.Sub(self.o.const(other, self.dtype), self)

    def __rtruediv__(self, other: Any) -> Array:
        return self.o.Div(self.o.const(other, self.dtype), self)

    def __neg__(self) -> Array:
        return self.o.Neg(self)

    def __lt__(self, other: Any) -> Array:
        return self.o.Less(self, other)

    def __gt__(self, other: Any) -> Array:
        return self.o.Greater(self, other)

    def __le__(self, other: Any) -> Array:
        return self.o.LessOrEqual(self, other)

    def __ge__(self, other: Any) -> Array:
        return self.o.GreaterOrEqual(self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(type(n) is int for n in self.shape)

    @property
    def uniform(self) -> Any:
        """The number that every element is, as a Python scalar, or None where that is not known."""
        source = self if self.compact is None else self.compact
        return source.value.reshape(-1)[0] if source.value is not None and source.value.size == 1 else None
