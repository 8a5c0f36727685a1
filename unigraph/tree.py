"""Nested structures (pytrees) of inputs and outputs, so that a calling convention survives a file."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from keyword import iskeyword
from typing import Any

from .errors import InputError

LEAF, NONE, LIST, TUPLE, DICT, NAMEDTUPLE, DATACLASS = (
    "leaf",
    "none",
    "list",
    "tuple",
    "dict",
    "namedtuple",
    "dataclass",
)
KINDS = (LEAF, NONE, LIST, TUPLE, DICT, NAMEDTUPLE, DATACLASS)


@dataclasses.dataclass(frozen=True)
class Tree:
    """A structure without its leaves. ``keys`` are dict keys or field names, ``name`` a class name."""

    kind: str
    children: tuple[Tree, ...] = ()
    keys: tuple[str | int, ...] = ()
    name: str = ""

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return 1 if self.kind == LEAF else sum(c.leaves for c in self.children)

    def paths(self, prefix: str = "") -> list[str]:
        """A readable name for each leaf: ``0.image``, ``params.dense.kernel``."""
        if self.kind == LEAF:
            return [prefix]
        keys = self.keys or range(len(self.children))
        return [
            path
            for key, child in zip(keys, self.children, strict=True)
            for path in child.paths(f"{prefix}.{key}" if prefix else str(key))
        ]

    def __str__(self) -> str:
        if self.kind in (LEAF, NONE):
            return "*" if self.kind == LEAF else "None"
        if self.kind == LIST:
            return f"[{', '.join(map(str, self.children))}]"
        if self.kind == TUPLE:
            return f"({', '.join(map(str, self.children))}{',' if len(self.children) == 1 else ''})"
        body = ", ".join(f"{k}: {c}" for k, c in zip(self.keys, self.children, strict=True))
        return f"{self.name}{{{body}}}"


@dataclasses.dataclass(frozen=True)
class Signature:
    """The calling convention: ``args`` is a tuple tree, ``kwargs`` a dict tree, ``out`` any tree.

    ``arg_names`` are the parameter names of the positional arguments where known. Inputs of role
    ``key`` that randomness added stand after the leaves of ``args`` and ``kwargs``.
    """

    args: Tree
    kwargs: Tree
    out: Tree
    arg_names: tuple[str, ...] = ()


# Classes met in this process, so that a structure comes back as the very class it was.
_classes: dict[tuple[str, tuple[str | int, ...]], type] = {}

# Classes that only one framework can take apart: a function that gives keys (or none) and children.
_foreign: dict[type, Callable[[Any], tuple[tuple[str, ...], list[Any]]]] = {}


def register_class(cls: type, take_apart: Callable[[Any], tuple[tuple[str, ...], list[Any]]]) -> None:
    """Let `flatten` see a container class: as a dict of its named children, or without names a tuple.

    Such a structure comes back from `unflatten` as that dict or tuple.
    """
    _foreign[cls] = take_apart


def flatten(x: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Tree]:
    """The leaves of a nested structure, and the structure. Dicts keep sorted keys, as in JAX."""
    leaves: list[Any] = []
    return leaves, _flatten(x, leaves, is_leaf)


def _flatten(x: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> Tree:
    def walk(items: Any) -> tuple[Tree, ...]:
        return tuple(_flatten(i, leaves, is_leaf) for i in items)

    if is_leaf is not None and is_leaf(x):
        leaves.append(x)
        return Tree(LEAF)
    if x is None:
        return Tree(NONE)
    if type(x) in _foreign:
        names, children = _foreign[type(x)](x)
        return Tree(DICT if names else TUPLE, walk(children), names, type(x).__name__ if names else "")
    if isinstance(x, dict):
        keys = tuple(sorted(x, key=lambda k: (isinstance(k, str), k)))
        if not all(isinstance(k, (str, int)) for k in keys):
            raise InputError(f"dict keys must be strings or ints, got {[type(k).__name__ for k in x]}")
        return Tree(DICT, walk(x[k] for k in keys), keys)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return _classed(NAMEDTUPLE, type(x), tuple(x._fields), walk(x))
    if isinstance(x, (list, tuple)):
        return Tree(LIST if isinstance(x, list) else TUPLE, walk(x))
    if dataclasses.is_dataclass(x) and not isinstance(x, type) and not hasattr(x, "shape"):
        names = tuple(f.name for f in dataclasses.fields(x))
        return _classed(DATACLASS, type(x), names, walk(getattr(x, n) for n in names))
    leaves.append(x)
    return Tree(LEAF)


def _classed(kind: str, cls: type, fields: tuple[str, ...], children: tuple[Tree, ...]) -> Tree:
    _classes[cls.__name__, fields] = cls
    return Tree(kind, children, fields, cls.__name__)


def unflatten(tree: Tree, leaves: Any) -> Any:
    """The structure with leaves put back.

    A namedtuple or dataclass whose class was not met in this process comes back as a new
    namedtuple of the same name and fields (``rename`` keeps odd field names harmless).
    """
    iterator = iter(leaves)
    result = _unflatten(tree, iterator)
    if next(iterator, iterator) is not iterator:
        raise InputError(f"more leaves than the structure {tree} holds")
    return result


def _unflatten(tree: Tree, leaves: Any) -> Any:
    if tree.kind == LEAF:
        try:
            return next(leaves)
        except StopIteration:
            raise InputError("fewer leaves than the structure holds") from None
    if tree.kind == NONE:
        return None
    items = [_unflatten(c, leaves) for c in tree.children]
    if tree.kind == LIST:
        return items
    if tree.kind == TUPLE:
        return tuple(items)
    if tree.kind == DICT:
        return dict(zip(tree.keys, items, strict=True))
    known: Any = _classes.get((tree.name, tree.keys))
    if known is None:
        name = tree.name if tree.name.isidentifier() and not iskeyword(tree.name) else "Structure"
        return namedtuple(name, [str(k) for k in tree.keys], rename=True)(*items)  # type: ignore[misc]
    if tree.kind == DATACLASS:
        return known(**dict(zip(map(str, tree.keys), items, strict=True)))
    return known(*items)
