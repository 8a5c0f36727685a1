"""An emitter over complex numbers, so that a row written for reals serves both.

What moves elements is done to both parts; arithmetic is that of complex numbers; conditions, indices
and sizes stay real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import DType
from unigraph.evaluate import Row

from .complex_handles import PARTS, Complex, choose, constant, divide, from_real, magnitude
from .dtypes import words
from .emitter import Emitter
from .handles import Array

# Done to each part; other operands are shared.
_MOVES = words(
    "expand reshape transpose slice squeeze unsqueeze flip typed concat Gather GatherElements Pad Trilu Neg Identity"
)


class ComplexEmitter:
    """The namespace of an `Emitter` for operands of which some are `Complex`."""

    def __init__(self, o: Emitter):
        self.o = o

    def __getattr__(self, name: str) -> Any:
        plain = getattr(self.o, name)
        if name not in _MOVES:
            return plain

        def move(*args: Any, **options: Any) -> Any:
            if not any(map(_holds, args)):
                return plain(*args, **options)
            return Complex(*(plain(*(_part(a, p) for a in args), **options) for p in ("re", "im")))

        return move

    # -- values ------------------------------------------------------------------------------------

    def const(self, data: Any, dtype: DType | None = None) -> Any:
        if dtype is not None and dtype.is_complex:
            return constant(self.o, np.asarray(data, dtype.numpy))
        return self.o.const(data, dtype)

    def full(self, value: Any, dtype: DType, shape: Sequence[Any]) -> Any:
        return self.expand(self.const(np.asarray(value), dtype), shape)

    def cast(self, x: Any, dtype: DType) -> Any:
        if isinstance(x, Complex):
            return x.each(lambda p: self.o.cast(p, PARTS[dtype]))
        return from_real(self.o, self.o.cast(x, PARTS[dtype])) if dtype.is_complex else self.o.cast(x, dtype)

    def _pair(self, x: Any, y: Any) -> tuple[Complex, Complex]:
        like = x if isinstance(x, Complex) else y
        lifted = [self._lift(v, like.dtype) for v in (x, y)]
        return lifted[0], lifted[1]

    def _lift(self, x: Any, dtype: DType) -> Complex:
        if isinstance(x, Complex):
            return x
        return from_real(self.o, x) if isinstance(x, Array) else self.const(x, dtype)

    # -- arithmetic --------------------------------------------------------------------------------

    def _both(self, name: str, x: Any, y: Any, f: Callable[[Complex, Complex], Any], **options: Any) -> Any:
        if not isinstance(x, Complex) and not isinstance(y, Complex):
            return getattr(self.o, name)(x, y, **options)
        return f(*self._pair(x, y))

    def Add(self, x: Any, y: Any) -> Any:
        return self._both("Add", x, y, lambda a, b: a + b)

    def Sub(self, x: Any, y: Any) -> Any:
        return self._both("Sub", x, y, lambda a, b: a - b)

    def Mul(self, x: Any, y: Any) -> Any:
        if isinstance(x, Array) and isinstance(y, Complex):
            return y.each(lambda p: self.o.Mul(p, x))
        return self._both("Mul", x, y, lambda a, b: a * b)

    def Div(self, x: Any, y: Any) -> Any:
        return self._both("Div", x, y, divide)

    def Equal(self, x: Any, y: Any) -> Any:
        return self._both("Equal", x, y, lambda a, b: self.o.And(self.o.Equal(a.re, b.re), self.o.Equal(a.im, b.im)))

    def MatMul(self, x: Any, y: Any, shape: Sequence[Any]) -> Any:
        def product(a: Complex, b: Complex) -> Complex:
            def real(p: Array, q: Array) -> Array:
                return self.o.MatMul(p, q, shape=shape)

            return Complex(real(a.re, b.re) - real(a.im, b.im), real(a.re, b.im) + real(a.im, b.re))

        return self._both("MatMul", x, y, product, shape=shape)

    def Where(self, which: Array, yes: Any, no: Any) -> Any:
        if not isinstance(yes, Complex) and not isinstance(no, Complex):
            return self.o.Where(which, yes, no)
        return choose(self.o, which, *self._pair(yes, no))

    def Abs(self, x: Any) -> Array:
        return magnitude(x) if isinstance(x, Complex) else self.o.Abs(x)

    def IsNaN(self, x: Any) -> Array:
        return self.o.Or(self.o.IsNaN(x.re), self.o.IsNaN(x.im)) if isinstance(x, Complex) else self.o.IsNaN(x)

    def IsInf(self, x: Any) -> Array:
        return self.o.Or(self.o.IsInf(x.re), self.o.IsInf(x.im)) if isinstance(x, Complex) else self.o.IsInf(x)

    def reduce(self, op_type: str, x: Any, axes: Sequence[int], keepdims: bool = False) -> Any:
        if isinstance(x, Complex):
            assert op_type == "ReduceSum", "complex numbers are reduced by sums alone"
            return x.each(lambda p: self.o.reduce(op_type, p, axes, keepdims))
        return self.o.reduce(op_type, x, axes, keepdims)

    # -- control -----------------------------------------------------------------------------------

    def loop(
        self,
        count: Any,
        carry: Sequence[Any],
        step: Callable[..., Sequence[Any]],
        stacked: int = 0,
        condition: Callable[..., Array] | None = None,
    ) -> tuple[Any, ...]:
        """`Emitter.loop` with both parts of complex values carried; what is stacked are the last results."""
        kinds = [isinstance(x, Complex) for x in carry]
        piled = self.o.operation.gives_complex[-stacked:] if stacked else ()

        def on_parts(i: Array, *state: Array) -> list[Array]:
            return flat(step(i, *wholes(kinds, state)))

        def goes_on(*state: Array) -> Array:
            assert condition is not None
            return condition(*wholes(kinds, state))

        results = self.o.loop(count, flat(carry), on_parts, stacked + sum(piled), condition and goes_on)
        return tuple(wholes([*kinds, *piled], results))


def _holds(x: Any) -> bool:
    return isinstance(x, Complex) or (isinstance(x, (list, tuple)) and any(isinstance(i, Complex) for i in x))


def _part(x: Any, part: str) -> Any:
    if isinstance(x, (list, tuple)):
        return [_part(i, part) for i in x]
    return getattr(x, part) if isinstance(x, Complex) else x


def flat(xs: Sequence[Any]) -> list[Array]:
    """The parts of all values, one after the other."""
    return [p for x in xs for p in _parts(x)]


def _parts(x: Any) -> tuple[Array, ...]:
    return (x.re, x.im) if isinstance(x, Complex) else (x,)


def wholes(kinds: Sequence[bool], parts: Sequence[Array]) -> list[Any]:
    """Values from their parts; ``kinds`` tells which are complex."""
    rest = iter(parts)
    return [Complex(next(rest), next(rest)) if pair else next(rest) for pair in kinds]


def over_complex(row: Row) -> Row:
    """A row for reals run with complex arithmetic."""
    return lambda o, *args, **attrs: row(ComplexEmitter(o), *args, **attrs)
