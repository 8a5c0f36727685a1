"""Sizes: a dim is an int, or a sympy expression over named symbols (``batch``, ``2*seq + 1``).

sympy is imported only once a symbol occurs. Expressions are printed and parsed in the small
language of `parse` (names, integers, ``+ - * // %``, ``max``, ``min``); nothing is evaluated as code.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeAlias

from .errors import InputError, missing_package

# An int, or a sympy expression; sympy has no types, and may not be installed.
Dim: TypeAlias = Any

MAX_EXPRESSION = 4096  # characters; a longer size expression in a file is hostile
MAX_TERMS = 256  # terms after multiplying out, and nodes of the expression: more takes sympy too long


@dataclass(frozen=True, slots=True)
class Constraint:
    """What is promised of a symbol: ``min <= s <= max`` and ``s % multiple_of == 0``."""

    min: int = 0
    max: int | None = None
    multiple_of: int = 1

    def check(self, size: int) -> str | None:
        """Why ``size`` is not allowed, or None."""
        if size < self.min:
            return f"must be at least {self.min}"
        if self.max is not None and size > self.max:
            return f"must be at most {self.max}"
        if size % self.multiple_of:
            return f"must be a multiple of {self.multiple_of}"
        return None


def _sympy() -> Any:
    try:
        import sympy
    except ImportError:
        raise missing_package("sympy", "a graph with symbolic sizes") from None
    return sympy


@cache
def symbol(name: str) -> Any:
    """The symbol of that name: a non-negative integer."""
    if not name.isidentifier():
        raise ValueError(f"a symbolic size needs a plain name, not {name!r}")
    return _sympy().Symbol(name, integer=True, nonnegative=True)


def is_static(dim: Dim) -> bool:
    return type(dim) is int


def normal(dim: Any) -> Dim:
    """``dim`` as an int or a canonical expression; strings are parsed.

    Raises TypeError for anything that is not a size.
    """
    if type(dim) is int:
        return dim
    if isinstance(dim, str):
        return parse(dim)
    if hasattr(dim, "free_symbols"):
        dim = _sympy().expand(dim)
        return int(dim) if dim.is_Integer else dim
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{dim!r} is not a size: give an int, a name or an expression")
    return int(dim.__index__())


def equal(a: Dim, b: Dim) -> bool:
    """True when ``a`` and ``b`` are the same size for every value of their symbols."""
    if type(a) is int and type(b) is int:
        return a == b
    return a == b or normal(a - b) == 0


def compatible(a: Dim, b: Dim) -> bool:
    """False only when ``a`` and ``b`` can never be the same size."""
    if type(a) is int and type(b) is int:
        return a == b
    return a == b or normal(a - b) == 0 or not is_static(normal(a - b))


def floordiv(a: Dim, b: Dim) -> Dim:
    if type(a) is int and type(b) is int:
        return a // b
    return normal(_sympy().floor(_sympy().sympify(a) / b))


def mod(a: Dim, b: Dim) -> Dim:
    return a % b if type(a) is int and type(b) is int else normal(_sympy().Mod(a, b))


def maximum(*dims: Dim) -> Dim:
    return max(dims) if all(map(is_static, dims)) else normal(_sympy().Max(*dims))


def minimum(*dims: Dim) -> Dim:
    return min(dims) if all(map(is_static, dims)) else normal(_sympy().Min(*dims))


def product(dims: Iterable[Dim]) -> Dim:
    dims = tuple(dims)
    if all(map(is_static, dims)):
        return math.prod(dims)
    return normal(math.prod(dims))


def symbols_of(dim: Dim) -> frozenset[str]:
    """Names of the symbols that occur in ``dim``."""
    return frozenset() if type(dim) is int else frozenset(s.name for s in dim.free_symbols)


def substitute(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """``dim`` with symbols replaced by sizes; symbols without one stay."""
    if type(dim) is int:
        return dim
    return normal(dim.xreplace({s: _sympy().sympify(sizes[s.name]) for s in dim.free_symbols if s.name in sizes}))


def evaluate(dim: Dim, env: Mapping[str, Any]) -> Any:
    """The value of ``dim`` with symbols looked up in ``env``, computed with Python operators.

    The values may be ints or anything that overloads ``+ - * //`` and ``%`` (a traced size).
    Raises KeyError for a symbol that has no value.
    """
    if type(dim) is int:
        return dim
    return _compiled(dim)(env)


@lru_cache(maxsize=65536)
def _compiled(dim: Any) -> Callable[[Mapping[str, Any]], Any]:
    """A closure that computes ``dim``. Fractions are cleared first: (n + 1)/2 is (n + 1) // 2."""
    sp = _sympy()
    if dim.is_Symbol:
        name = dim.name
        return lambda env: env[name]
    if dim.is_Integer:
        number = int(dim)
        return lambda env: number
    if isinstance(dim, sp.Mod):
        left, right = map(_compiled, dim.args)
        return lambda env: left(env) % right(env)
    if isinstance(dim, (sp.Max, sp.Min)):
        parts = [_compiled(a) for a in dim.args]
        pick = size_max if isinstance(dim, sp.Max) else size_min
        return lambda env: _fold(pick, [p(env) for p in parts])
    inner = dim.args[0] if isinstance(dim, sp.floor) else dim
    numerator, denominator = sp.fraction(sp.together(inner))
    if denominator != 1:
        top, bottom = _compiled(sp.expand(numerator)), _compiled(denominator)
        return lambda env: top(env) // bottom(env)
    if isinstance(dim, sp.floor):
        return _compiled(inner)
    if dim.is_Pow:
        base, power = _compiled(dim.args[0]), int(dim.args[1])
        return lambda env: _fold(lambda a, b: a * b, [base(env)] * power)
    if dim.is_Add or dim.is_Mul:
        parts = [_compiled(a) for a in dim.args]
        combine = (lambda a, b: a + b) if dim.is_Add else (lambda a, b: a * b)
        return lambda env: _fold(combine, [p(env) for p in parts])
    raise ValueError(f"size expression {dim} uses {type(dim).__name__}, which has no meaning here")


def size_max(a: Any, b: Any) -> Any:
    """max of two run-time sizes; traced sizes may define ``size_max``."""
    return max(a, b) if type(a) is int and type(b) is int else _dispatch("size_max", max, a, b)


def size_min(a: Any, b: Any) -> Any:
    """min of two run-time sizes; traced sizes may define ``size_min``."""
    return min(a, b) if type(a) is int and type(b) is int else _dispatch("size_min", min, a, b)


def _dispatch(name: str, default: Callable[..., Any], a: Any, b: Any) -> Any:
    for x, y in ((a, b), (b, a)):
        if hasattr(x, name):
            return getattr(x, name)(y)
    return default(a, b)


def _fold(combine: Callable[[Any, Any], Any], items: list[Any]) -> Any:
    total = items[0]
    for item in items[1:]:
        total = combine(total, item)
    return total


def to_text(dim: Dim) -> str:
    """``dim`` in the language of `parse`."""
    return str(dim) if type(dim) is int else _text(dim, 0)


@lru_cache(maxsize=65536)
def _text(dim: Any, precedence: int) -> str:
    sp = _sympy()

    def wrap(text: str, own: int) -> str:
        return f"({text})" if own < precedence else text

    if dim.is_Symbol:
        return str(dim.name)
    if dim.is_Integer:
        return wrap(str(int(dim)), 3 if dim >= 0 else 0)
    if isinstance(dim, sp.Mod):
        return wrap(f"{_text(dim.args[0], 2)} % {_text(dim.args[1], 3)}", 2)
    if isinstance(dim, (sp.Max, sp.Min)):
        parts = sorted(_text(a, 0) for a in dim.args)
        return f"{'max' if isinstance(dim, sp.Max) else 'min'}({', '.join(parts)})"
    inner = dim.args[0] if isinstance(dim, sp.floor) else dim
    numerator, denominator = sp.fraction(sp.together(inner))
    if denominator != 1:
        return wrap(f"{_text(sp.expand(numerator), 2)} // {_text(denominator, 3)}", 2)
    if isinstance(dim, sp.floor):
        return _text(inner, precedence)
    if dim.is_Pow:
        return wrap("*".join([_text(dim.args[0], 3)] * int(dim.args[1])), 2)
    if dim.is_Add:
        return wrap(" + ".join(_text(a, 1) for a in dim.as_ordered_terms()), 1)
    if dim.is_Mul:
        return wrap("*".join(_text(a, 2 if i == 0 else 3) for i, a in enumerate(dim.as_ordered_factors())), 2)
    raise ValueError(f"size expression {dim} uses {type(dim).__name__}, which has no meaning here")


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def _terms(node: ast.AST, nodes: list[int], depth: int) -> int:
    """A bound on the number of terms that ``node`` has once multiplied out."""
    nodes[0] += 1
    if nodes[0] > MAX_TERMS or depth > 64:
        raise ValueError("size expression is too large")
    parts = [_terms(n, nodes, depth + 1) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return math.prod(parts) if product else sum(parts) or 1


@lru_cache(maxsize=65536)
def parse(text: str) -> Dim:
    """The dim written as ``text``, such as ``batch``, ``2*seq + 1`` or ``max(1, n // 2)``.

    Raises ValueError for anything outside that language.
    """
    if len(text) > MAX_EXPRESSION:
        raise ValueError("size expression is too long")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise ValueError(f"{text[:80]!r} is not a size expression") from error

    if _terms(tree, [0], 0) > MAX_TERMS:
        raise ValueError("size expression is too large when multiplied out")

    def walk(node: ast.AST, depth: int) -> Any:
        if depth > 64:
            raise ValueError("size expression is nested too deeply")
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value.bit_length() < 64:
            return node.value
        if isinstance(node, ast.Name):
            return symbol(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand, depth + 1)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = walk(node.left, depth + 1), walk(node.right, depth + 1)
            if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right == 0:
                raise ValueError(f"division by zero in size expression {text[:80]!r}")
            return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args and not node.keywords:
            if node.func.id in ("max", "min"):
                pick = maximum if node.func.id == "max" else minimum
                return pick(*(walk(a, depth + 1) for a in node.args))
        raise ValueError(f"{text[:80]!r} is not a size expression (names, integers, + - * // %, max, min)")

    return normal(walk(tree, 0))


def bind(expected: Iterable[Dim], actual: Iterable[Any], env: dict[str, Any], where: str) -> None:
    """Match declared dims with run-time sizes: new symbols are bound in ``env``, known ones checked.

    Raises InputError naming ``where``, the axis and what was expected.
    """
    for axis, (dim, size) in enumerate(zip(expected, actual, strict=True)):
        if type(dim) is int:
            if type(size) is int and size != dim:
                raise InputError(f"{where}: axis {axis} must have size {dim}, got {size}")
            continue
        unbound = [s for s in dim.free_symbols if s.name not in env]
        if not unbound:
            value = evaluate(dim, env)
            if type(value) is int and type(size) is int and value != size:
                known = ", ".join(f"{s.name}={env[s.name]}" for s in sorted(dim.free_symbols, key=str))
                raise InputError(f"{where}: axis {axis} must be {to_text(dim)} = {value} ({known}), got {size}")
        elif dim.is_Symbol:
            env[dim.name] = size
        elif len(unbound) == 1 and type(size) is int:
            env[unbound[0].name] = _solve(dim, unbound[0], env, size, f"{where}: axis {axis}")


def _solve(dim: Any, unknown: Any, env: Mapping[str, Any], size: int, where: str) -> int:
    """The value of ``unknown`` that makes the linear expression ``dim`` equal ``size``."""
    rest = substitute(dim, {k: v for k, v in env.items() if type(v) is int})
    slope = _sympy().diff(rest, unknown) if rest.is_polynomial(unknown) else None
    if slope is None or not slope.is_Integer:
        raise InputError(f"{where}: cannot find {unknown} from {to_text(dim)} = {size}; use it bare in some input")
    offset = size - int(rest.xreplace({unknown: _sympy().Integer(0)}))
    if offset % int(slope):
        raise InputError(f"{where}: no whole {unknown} makes {to_text(dim)} equal {size}")
    return offset // int(slope)
