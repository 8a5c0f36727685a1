"""Pytrees of JAX as structures of the graph, and readable names for their leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from unigraph import tree as trees
from unigraph.tree import DATACLASS, DICT, LEAF, LIST, NAMEDTUPLE, NONE, TUPLE, Tree

from . import compat


def structure(x: Any) -> Tree:
    """The structure of a pytree, leaves in JAX's order.

    A node class that only JAX knows comes back as a dict of its named children, or as a tuple.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(x)
    return _node(treedef, [p for p, _ in paths], 0)


def _node(treedef: Any, paths: Sequence[Any], depth: int) -> Tree:
    data = treedef.node_data()
    if data is None:
        return Tree(LEAF) if treedef.num_leaves else Tree(NONE)
    cls = data[0]
    if cls is type(None):
        return Tree(NONE)
    children, names, start = [], [], 0
    for index, child in enumerate(treedef.children()):
        count = child.num_leaves
        names.append(compat.key_name(paths[start][depth]) if count else index)
        children.append(_node(child, paths[start : start + count], depth + 1))
        start += count
    if cls in (list, tuple):
        return Tree(LIST if cls is list else TUPLE, tuple(children))
    if issubclass(cls, dict):
        keys = list(data[1]) if cls is dict else _dict_keys(data[1], names)
        return Tree(DICT, tuple(children), tuple(keys))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return trees._classed(NAMEDTUPLE, cls, tuple(cls._fields), tuple(children))
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        fields = tuple(f.name for f in dataclasses.fields(cls))
        if fields == tuple(names):
            return trees._classed(DATACLASS, cls, fields, tuple(children))
    # A call of the graph has to take such an object apart in the same way.
    trees.register_class(cls, _take_apart)
    if _named(names):
        return Tree(DICT, tuple(children), tuple(names), cls.__name__)
    return Tree(TUPLE, tuple(children))


def _named(names: Sequence[Any]) -> bool:
    return bool(names) and all(isinstance(n, str) for n in names)


def _take_apart(x: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names (or none) and values of the children of a container that is registered with JAX."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    names = [compat.key_name(path[0]) for path, _ in pairs]
    return (tuple(map(str, names)) if _named(names) else ()), [child for _, child in pairs]


def _dict_keys(aux: Any, names: list[Any]) -> list[Any]:
    """Keys of a dict subclass: as its registration gives them, else from the paths."""
    keys = aux[1] if isinstance(aux, tuple) and len(aux) == 2 and not isinstance(aux[0], str) else aux
    return list(keys) if isinstance(keys, (list, tuple)) and len(keys) == len(names) else names


def leaf_names(x: Any, prefix: str) -> list[str]:
    """A name for each leaf: the argument's name and the path below it, ``params.dense.kernel``.

    A last step ``value`` that all leaves share (the variables of flax.nnx) says nothing and is left out.
    """
    paths, _ = jax.tree_util.tree_flatten_with_path(x)
    steps = [[p for p in (prefix, *(str(compat.key_name(k)) for k in path)) if p] for path, _ in paths]
    if len(steps) > 1 and all(len(s) > 1 and s[-1] == "value" for s in steps):
        steps = [s[:-1] for s in steps]
    return [".".join(s) for s in steps]


def is_array(x: Any) -> bool:
    """True for a leaf that can be traced: an array, a shape, a key or a number."""
    return isinstance(x, (np.ndarray, np.generic, jax.Array, jax.ShapeDtypeStruct, bool, int, float, complex)) or (
        hasattr(x, "shape") and hasattr(x, "dtype")
    )
