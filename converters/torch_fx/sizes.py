"""torch's symbolic sizes as dims of the graph, and as scalar values where a program computes with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import torch

from unigraph import dims
from unigraph.dims import Constraint, Dim
from unigraph.dtypes import bool_
from unigraph.errors import Unsupported
from unigraph.graph import Value

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _fold(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(*parts: Any) -> Any:
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        return total

    return folded


def _power(base: Any, exponent: Any) -> Any:
    if type(exponent) is int and exponent >= 0:
        return base**exponent
    raise Unsupported(f"a size raised to the power {exponent}")


# Classes of torch.utils._sympy.functions and of sympy, by name: what each does with dims.
_AS_DIM: dict[str, Callable[..., Any]] = {
    "Add": _fold(lambda a, b: a + b),
    "Mul": _fold(lambda a, b: a * b),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": dims.floordiv,
    "CleanDiv": dims.floordiv,
    "CeilDiv": lambda a, b: -dims.floordiv(-a, b),
    "Mod": dims.mod,
    "PythonMod": dims.mod,
    "ModularIndexing": lambda a, b, m: dims.mod(dims.floordiv(a, b), m),
    "Max": dims.maximum,
    "Min": dims.minimum,
    "Identity": lambda a: a,
}

# Classes that round a real number to a size; sizes are not negative, so truncation is the floor.
_ROUNDED = ("CeilToInt", "FloorToInt", "TruncToInt")


class Sizes:
    """Converts sizes of one captured program.

    ``names`` maps torch's symbols to dims of the graph; a symbol without an entry keeps its name.
    """

    def __init__(self, names: Mapping[str, Dim] | None = None, questions: Sequence[Any] = ()):
        self.names: dict[str, Dim] = dict(names or {})
        self.questions = questions  # conditions that branches of Python asked for
        self.values: dict[str, Value] = {}  # unbacked symbols that an operation computed
        self._cache: dict[Any, Dim] = {}

    def dim(self, size: Any) -> Dim:
        """A size (int, SymInt) as a dim. Raises Unsupported for what dims cannot say."""
        if type(size) is int:
            return size
        expression = size.node.expr if isinstance(size, SYMBOLIC) else size
        if expression not in self._cache:
            self._cache[expression] = dims.normal(self._walk(expression))
        return self._cache[expression]

    def shape(self, shape: Any) -> tuple[Dim, ...]:
        return tuple([s if type(s) is int else self.dim(s) for s in shape])

    def _walk(self, e: Any) -> Any:
        if e.is_Symbol:
            if e.name in self.values:
                raise Unsupported(
                    f"a size {e.name} computed from the values of a tensor",
                    "make it an argument of the function, or derive it from a shape",
                )
            return self.names[e.name] if e.name in self.names else dims.symbol(e.name)
        if e.is_Integer:
            return int(e)
        name = type(e).__name__
        if name in _ROUNDED:
            n, d = self._ratio(e.args[0])
            return -dims.floordiv(-n, d) if name == "CeilToInt" else dims.floordiv(n, d)
        rule = _AS_DIM.get(name)
        if rule is None:
            raise Unsupported(f"the size expression {e} (uses {name})")
        return rule(*[self._walk(a) for a in e.args])

    def _ratio(self, e: Any) -> tuple[Any, Any]:
        """A real number computed from sizes as a quotient of dims: what a program then rounds to a size."""
        name = type(e).__name__
        if name in ("ToFloat", "Identity"):
            return self._ratio(e.args[0])
        if name == "Mul":
            parts = [self._ratio(a) for a in e.args]
            return math.prod(n for n, _ in parts), math.prod(d for _, d in parts)
        if name in ("IntTrueDiv", "FloatTrueDiv"):
            (a, b), (c, d) = map(self._ratio, e.args)
            return a * d, b * c
        if e.is_number and not e.is_Integer:
            # The shortest fraction that is this float: 0.6 is 3/5, so that 5 * 0.6 is 3 as it is in floats.
            fraction = Fraction(float(e)).limit_denominator(1 << 20)
            if float(fraction) != float(e) or fraction <= 0:
                raise Unsupported(f"a size scaled by {e}", "use a factor that is a simple fraction")
            return fraction.numerator, fraction.denominator
        return self._walk(e), 1

    @contextmanager
    def known(self, values: Mapping[str, Value]) -> Iterator[None]:
        """A block in which these symbols have these values, and no others have any that it gives them."""
        before = dict(self.values)
        self.values.update(values)
        try:
            yield
        finally:
            self.values.clear()
            self.values.update(before)

    def truth(self, b: Any, e: Any) -> Value:
        """A condition on numbers as a truth value of the graph."""
        name = type(e).__name__
        if name in ("And", "Or"):
            return _over(name.lower())(b, *[self.truth(b, a) for a in e.args])
        if name == "Not":
            return b.not_(self.truth(b, e.args[0]))
        if name in ("BooleanTrue", "BooleanFalse"):
            return b.constant(name == "BooleanTrue")
        if name not in _COMPARISONS:
            raise Unsupported(f"the condition {e} (uses {name})")
        known = self.values.get(getattr(e.args[0], "name", ""))
        if known is not None and known.type.dtype is bool_ and e.args[1].is_Integer and name == "Equality":
            return known if int(e.args[1]) == 1 else b.not_(known)  # torch asks whether the truth value is 1
        sides = [self._whole(b, a) for a in e.args]
        if None in sides:
            sides = [self._compute(b, a) for a in e.args]
        return b.apply(_op(_COMPARISONS[name]), sides, {})

    def _whole(self, b: Any, e: Any) -> Value | None:
        """A whole number computed as such; None where that needs more than sums and products."""
        if e.is_Symbol and e.name in self.values and self.values[e.name].type.dtype.kind in ("int", "uint", "bool"):
            return b.convert(self.values[e.name], dtype="i64")
        if e.is_Integer:
            return b.constant(int(e), "i64") if -(1 << 63) <= int(e) < 1 << 63 else None
        if e.is_Symbol and e.name not in self.values and e.is_integer:
            return b.size(self._walk(e))
        if type(e).__name__ in ("Add", "Mul"):
            parts = [self._whole(b, a) for a in e.args]
            return None if None in parts else _AS_VALUE[type(e).__name__](b, *parts)
        return None

    def value(self, b: Any, size: Any, dtype: Any) -> Value:
        """A symbolic number as a scalar value of the graph, computed where it is needed."""
        return b.convert(self._compute(b, size.node.expr), dtype=dtype)

    def _compute(self, b: Any, e: Any) -> Value:
        if e.is_Symbol and e.name in self.values:
            return b.convert(self.values[e.name], dtype="f64")
        try:
            return b.convert(b.size(self._walk(e)), dtype="f64")
        except (Unsupported, ValueError):
            pass
        if e.is_number:
            return b.constant(float(e), "f64")
        rule = _AS_VALUE.get(type(e).__name__)
        if rule is None:
            raise Unsupported(f"the number {e} computed from sizes (uses {type(e).__name__})")
        return rule(b, *[self._compute(b, a) for a in e.args])


_COMPARISONS = {
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
}


def _over(op: str) -> Callable[..., Value]:
    def apply(b: Any, *parts: Value) -> Value:
        total = parts[0]
        for part in parts[1:]:
            total = b.apply(_op(op), (total, part), {})
        return total

    return apply


def _op(name: str) -> Any:
    from unigraph.opdef import registry

    return registry()[name]


_UNARY = {
    "ToFloat": None,
    "Identity": None,
    "OpaqueUnaryFn_sqrt": "sqrt",
    "OpaqueUnaryFn_exp": "exp",
    "OpaqueUnaryFn_log": "log",
    "OpaqueUnaryFn_sin": "sin",
    "OpaqueUnaryFn_cos": "cos",
    "OpaqueUnaryFn_tanh": "tanh",
    "floor": "floor",
    "ceiling": "ceil",
    "FloorToInt": "floor",
    "CeilToInt": "ceil",
    "Abs": "abs",
    "log": "log",
    "exp": "exp",
}


def _apply(op: str | None) -> Callable[..., Value]:
    return lambda b, x: x if op is None else b.apply(_op(op), (x,), {})


def _truncate(b: Any, x: Value) -> Value:
    return b.select(b.lt(x, b.full_like(x, 0)), b.floor(x), b.ceil(x))


_AS_VALUE: dict[str, Callable[..., Value]] = {
    "Add": _over("add"),
    "Mul": _over("mul"),
    "Pow": _over("pow"),
    "FloatPow": _over("pow"),
    "PowByNatural": _over("pow"),
    "Max": _over("max"),
    "Min": _over("min"),
    "IntTrueDiv": _over("div"),
    "FloatTrueDiv": _over("div"),
    "FloorDiv": lambda b, x, y: b.floor(b.div(x, y)),
    "TruncToInt": _truncate,
    "TruncToFloat": _truncate,
    **{name: _apply(op) for name, op in _UNARY.items()},
}


def constraint(lower: Any, upper: Any) -> Constraint:
    """The promise about a symbol. A lower bound of 2 is only torch's 0/1 specialisation, as in torch itself."""
    low = int(lower) if getattr(lower, "is_Integer", isinstance(lower, int)) else 0
    high = int(upper) if getattr(upper, "is_Integer", isinstance(upper, int)) else None
    return Constraint(0 if low <= 2 else low, high if high is not None and high < 2**62 else None)
