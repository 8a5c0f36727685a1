"""The labelled constraints of an op, read from the source of its type rule.

A rule refuses with ``refuse(label, message)`` or ``require(condition, label, message)``, or through a
helper of `unigraph.ops` that does; labels may be built from the op's name. The walk follows such
helpers with the strings they are given.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from unigraph.opdef import OpDef

_LABEL = re.compile(r"([a-z0-9_]+)_([cm])(\d+)")  # m: constraints of every matrix
_DEPTH = 6


def constraints(op: OpDef) -> dict[str, str]:
    """Each label of ``op`` with what must hold, in order of the labels."""
    rule = op.decompose if op.is_composite else op.infer
    found: dict[str, str] = {}
    if isinstance(rule, FunctionType):
        for label, message in _walk(rule, {}, _DEPTH):
            if message:
                found.setdefault(label, message)
    named = {k: _LABEL.fullmatch(k) for k in found}
    own = [(m[2] == "c", int(m[3]), k) for k, m in named.items() if m and m[1] == op.name]
    return {k: found[k] for _, _, k in sorted(own)}


def _walk(function: FunctionType, known: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    if depth == 0:
        return
    tree = _tree(function)
    if tree is None:
        return
    scope = inspect.getclosurevars(function)
    functions = {**scope.globals, **scope.nonlocals}
    strings = {k: v for k, v in functions.items() if _is_text(v)} | dict(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            strings |= _assigned(node.targets[0], _value(node.value, strings))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        values = [_value(a, strings) for a in node.args]
        target = functions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        label = next((v for v in values if isinstance(v, str) and _LABEL.fullmatch(v)), None)
        if isinstance(target, FunctionType) and target.__name__ in ("refuse", "require"):
            if label is not None:
                yield label, _message(node.args[values.index(label) + 1 :], strings)
        elif isinstance(target, FunctionType) and target.__module__.startswith("unigraph.ops"):
            names = list(inspect.signature(target).parameters)
            given = {n: v for n, v in zip(names, values) if _is_text(v)}
            given |= {k.arg: v for k in node.keywords if k.arg and _is_text(v := _value(k.value, strings))}
            yield from _walk(target, given, depth - 1)
            if label is not None:
                yield label, " ".join((inspect.getdoc(target) or "").partition("\n\n")[0].split()).rstrip(".")


def _tree(function: FunctionType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a rule made in an expression has no source of its own
        return None


def _value(node: ast.AST, strings: Mapping[str, Any]) -> Any:
    """The string, or strings, that an expression of known strings gives; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return strings.get(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(_value(e, strings) for e in node.elts)
    if isinstance(node, ast.JoinedStr):
        parts = [_value(p.value if isinstance(p, ast.FormattedValue) else p, strings) for p in node.values]
        return None if any(p is None for p in parts) else "".join(map(str, parts))
    if isinstance(node, ast.GeneratorExp) and len(node.generators) == 1:
        loop = node.generators[0]
        if isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call):
            bounds = [_value(a, strings) for a in loop.iter.args]
            if all(isinstance(b, int) for b in bounds):
                return tuple(_value(node.elt, {**strings, loop.target.id: i}) for i in range(*bounds))
    return None


def _assigned(target: ast.AST, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name) and isinstance(value, str):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, tuple):
        pairs = zip(target.elts, value)
        return {t.id: v for t, v in pairs if isinstance(t, ast.Name) and isinstance(v, str)}
    return {}


def _is_text(x: Any) -> bool:
    return isinstance(x, str) or (isinstance(x, tuple) and bool(x) and all(isinstance(i, str) for i in x))


def _message(rest: list[ast.expr], strings: Mapping[str, Any]) -> str:
    """What the rule says when it refuses, with the parts that are filled in left as names."""
    for node in rest:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(
                str(p.value) if isinstance(p, ast.Constant) else _hole(p.value, strings)
                for p in node.values
                if isinstance(p, (ast.Constant, ast.FormattedValue))
            )
    return ""


def _hole(node: ast.expr, strings: Mapping[str, Any]) -> str:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        items = _value(node.args[0], strings)
        if _is_text(items):
            return ", ".join(items)
        if isinstance(node.args[0], ast.Call):  # ", ".join(map(str, types))
            return f"`{ast.unparse(node.args[0].args[-1])}`"
    known = _value(node, strings)
    if isinstance(known, str):
        return known
    text = ast.unparse(node)
    return f"`{text}`" if len(text) <= 40 else "..."
