"""Complex numbers in the ONNX export: ONNX computes with none, so a value is a pair of real ones.

At the interface a complex tensor is a real one with a last axis of two, as ONNX's own DFT has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unigraph.dtypes import DType, c64, c128, f32, f64
from unigraph.evaluate import Row
from unigraph.graph import Operation
from unigraph.types import TensorType

from .emitter import Emitter
from .handles import Array

PARTS: Mapping[DType, DType] = {c64: f32, c128: f64}
WHOLES: Mapping[DType, DType] = {part: whole for whole, part in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex value: two arrays of one shape."""

    re: Array
    im: Array

    @property
    def o(self) -> Emitter:
        return self.re.o

    @property
    def dtype(self) -> DType:
        return WHOLES[self.re.dtype]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.re.shape

    @property
    def rank(self) -> int:
        return self.re.rank

    @property
    def turned(self) -> Complex:
        """The product with the imaginary unit."""
        return Complex(-self.im, self.re)

    @property
    def conjugate(self) -> Complex:
        return Complex(self.re, -self.im)

    def each(self, f: Callable[..., Array], *options: Any) -> Complex:
        """``f`` of both parts."""
        return Complex(f(self.re, *options), f(self.im, *options))

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)


def real_type(type_: TensorType) -> TensorType:
    """The type of each part of a complex value; a real type as it is."""
    return TensorType(PARTS[type_.dtype], type_.shape) if type_.dtype.is_complex else type_


def joined_type(type_: TensorType) -> TensorType:
    """The real tensor that carries a complex value over the interface."""
    return TensorType(PARTS[type_.dtype], (*type_.shape, 2))


def constant(o: Emitter, array: np.ndarray) -> Complex:
    # asarray, not ascontiguousarray: that one makes scalars vectors.
    return Complex(o.const(np.asarray(array.real, order="C")), o.const(np.asarray(array.imag, order="C")))


def parted(o: Emitter, x: Array) -> Complex:
    """A real tensor with a last axis of two as a pair."""
    return Complex(*(o.Gather(x, o.const(i), axis=x.rank - 1, shape=x.shape[:-1]) for i in (0, 1)))


def joined(o: Emitter, x: Complex) -> Array:
    """A pair as a real tensor with a last axis of two."""
    return o.concat([o.unsqueeze(p, [x.rank]) for p in (x.re, x.im)], x.rank)


@dataclass(frozen=True, slots=True)
class _Typed:
    type: TensorType


class PartOperation:
    """An operation as a row for reals sees it that works on one part."""

    def __init__(self, operation: Operation):
        self.op, self.regions, self.where = operation.op, operation.regions, operation.where
        self.gives_complex = tuple(v.type.dtype.is_complex for v in operation.outputs)
        self.inputs = tuple(_Typed(real_type(v.type)) for v in operation.inputs)
        self.outputs = tuple(_Typed(real_type(v.type)) for v in operation.outputs)
        self.attrs = part_attrs(operation.attrs)


def part_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with complex dtypes replaced by those of their parts."""
    return {k: PARTS.get(v, v) if isinstance(v, DType) else v for k, v in attrs.items()}


def on_parts(row: Row) -> Row:
    """The row of an op that treats real and imaginary part alike, from its row for reals."""

    def both(o: Emitter, *args: Any, **attrs: Any) -> Any:
        attrs = part_attrs(attrs)
        fill = attrs.get("fill_value")
        results = []
        for name in ("re", "im"):
            if isinstance(fill, complex):
                attrs["fill_value"] = fill.real if name == "re" else fill.imag
            results.append(row(o, *(getattr(a, name) if isinstance(a, Complex) else a for a in args), **attrs))
        return Complex(*results)

    return both


def bilinear(row: Row) -> Row:
    """The row of a product of two operands, from its row for reals."""

    def product(o: Emitter, x: Complex, y: Complex, *rest: Any, **attrs: Any) -> Complex:
        attrs = part_attrs(attrs)

        def real(a: Array, b: Array) -> Array:
            return row(o, a, b, *rest, **attrs)

        return Complex(real(x.re, y.re) - real(x.im, y.im), real(x.re, y.im) + real(x.im, y.re))

    return product


def choose(o: Emitter, which: Array, yes: Complex, no: Complex) -> Complex:
    return Complex(o.Where(which, yes.re, no.re), o.Where(which, yes.im, no.im))


def conj(x: Any) -> Any:
    """The conjugate; a real value is its own."""
    return x.conjugate if isinstance(x, Complex) else x


def real_part(x: Any) -> Array:
    return x.re if isinstance(x, Complex) else x


def square_size(o: Any, x: Any) -> Array:
    """The square of the absolute value."""
    return x.re * x.re + x.im * x.im if isinstance(x, Complex) else o.Mul(x, x)


def any_complex(types: Sequence[TensorType]) -> bool:
    return any(t.dtype.is_complex for t in types)


def from_real(o: Emitter, x: Array) -> Complex:
    return Complex(x, o.expand(o.const(0, x.dtype), x.shape))


def magnitude(x: Complex) -> Array:
    """The absolute value, without overflow on the way."""
    o = x.o
    a, b = o.Abs(x.re), o.Abs(x.im)
    large, small = o.Max(a, b), o.Min(a, b)
    plain = o.Or(o.Equal(large, 0), o.IsInf(large))
    ratio = small / o.Where(plain, o.const(1, a.dtype), large)
    return o.Where(plain, large, large * o.Sqrt(ratio * ratio + 1))


def divide(x: Complex, y: Complex) -> Complex:
    o = x.o
    size = o.Max(o.Abs(y.re), o.Abs(y.im))
    size = o.Where(o.Or(o.Equal(size, 0), o.IsInf(size)), o.const(1, size.dtype), size)
    scaled = Complex(y.re / size, y.im / size)
    norm = (scaled.re * scaled.re + scaled.im * scaled.im) * size
    product = x * scaled.conjugate
    return Complex(product.re / norm, product.im / norm)
