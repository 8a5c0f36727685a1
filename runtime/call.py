"""From the arguments of a call to a flat list of checked arrays, and back to the output structure."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from unigraph import dims, dtypes
from unigraph.errors import InputError
from unigraph.graph import KEY, Graph, Value
from unigraph.tree import DICT, LEAF, TUPLE, Signature, Tree, flatten, unflatten

from .arrays import NUMPY, PYTHON, kind_of
from .keys import key_data, seed_words


def signature_of(graph: Graph) -> Signature:
    """The graph's calling convention; a flat one by input names when it carries none."""
    if graph.signature is not None:
        return graph.signature
    leaf = Tree(LEAF)
    args = Tree(TUPLE, (leaf,) * len(graph.inputs))
    out = Tree(TUPLE, (leaf,) * len(graph.outputs))
    return Signature(args, Tree(DICT), out, tuple(v.name for v in graph.inputs))


def flatten_call(
    graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int | None = None
) -> tuple[list[Any], str]:
    """The graph's inputs in order, and the framework kind that results should have.

    Arguments follow the captured signature; any of them, and any input by its own name, may be
    given by name. Keys that randomness added are made from ``seed`` (fresh entropy without one).
    Raises InputError saying which input is wrong, what was expected and what was given.
    """
    signature = signature_of(graph)
    given = match_inputs(graph, signature, args, dict(kwargs))
    kind = ""
    leaves: list[Any] = []
    for value in graph.inputs:
        x = given.get(value)
        if value.role == KEY:
            leaves.append(_key(x, value, seed))
            continue
        if x is None:
            raise InputError(f"input {value.name!r} ({value.type}) is missing; the graph takes {describe(graph)}")
        own = kind_of(x)
        kind = kind or (own if own != PYTHON else "")
        leaves.append(x)
    return leaves, kind or NUMPY


def _key(x: Any, value: Value, seed: int | None) -> Any:
    if x is None:
        return seed_words(secrets.randbits(63) if seed is None else seed, value.type.dtype)
    return key_data(x, value)


def match_inputs(graph: Graph, signature: Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[Value, Any]:
    """Inputs found by position, by argument name and by input name."""
    values = {v.name: v for v in graph.inputs}
    slots = _slots(graph, signature)
    names = signature.arg_names
    positions = len(signature.args.children)
    if len(args) > positions:
        raise InputError(f"{len(args)} positional inputs given, the graph takes {describe(graph)}")
    result: dict[Value, Any] = {}
    for index, arg in enumerate(args):
        _match(signature.args.children[index], arg, slots["args", index], names[index] if index < len(names) else str(index), result)
    for name, arg in kwargs.items():
        index = names.index(name) if name in names else -1
        if index >= 0:
            if index < len(args):
                raise InputError(f"input {name!r} is given twice, by position and by name")
            _match(signature.args.children[index], arg, slots["args", index], name, result)
        elif name in signature.kwargs.keys:
            child = signature.kwargs.children[signature.kwargs.keys.index(name)]
            _match(child, arg, slots["kwargs", name], name, result)
        elif name in values:
            result[values[name]] = arg
        else:
            raise InputError(f"there is no input {name!r}; the graph takes {describe(graph)}")
    return result


def _slots(graph: Graph, signature: Signature) -> dict[tuple[str, Any], tuple[Value, ...]]:
    """Which graph inputs belong to each argument."""
    inputs = iter(graph.inputs)
    slots: dict[tuple[str, Any], tuple[Value, ...]] = {}
    for index, child in enumerate(signature.args.children):
        slots["args", index] = tuple(next(inputs) for _ in range(child.leaves))
    for key, child in zip(signature.kwargs.keys, signature.kwargs.children):
        slots["kwargs", key] = tuple(next(inputs) for _ in range(child.leaves))
    return slots


def _match(tree: Tree, arg: Any, values: tuple[Value, ...], name: str, result: dict[Value, Any]) -> None:
    if tree.kind == LEAF:
        result[values[0]] = arg
        return
    leaves, given = flatten(arg)
    if given != tree:
        raise InputError(f"input {name!r} must have the structure {tree}, got {given}")
    result.update(zip(values, leaves, strict=True))


def describe(graph: Graph) -> str:
    """The inputs for a message: ``x: f32[batch,3], key: key<threefry2x32>[]``."""
    return ", ".join(f"{v.name}: {v.type}" for v in graph.inputs) or "no inputs"


def check_array(value: Value, dtype: Any, shape: Sequence[int], sizes: dict[str, Any], graph: Graph) -> None:
    """Raise InputError unless an array of this dtype and shape fits the input's type."""
    wanted = value.type
    given = f"{dtype}[{','.join(map(str, shape))}]"
    if dtype is not wanted.dtype:
        raise InputError(f"input {value.name!r} must be {wanted}, got {given}; convert it first")
    if len(shape) != wanted.rank:
        raise InputError(f"input {value.name!r} must be {wanted} (rank {wanted.rank}), got {given} (rank {len(shape)})")
    dims.bind(wanted.shape, shape, sizes, f"input {value.name!r}")


def check_constraints(graph: Graph, sizes: Mapping[str, Any]) -> None:
    """Raise InputError when a symbolic size breaks its constraint."""
    for name, constraint in graph.symbols.items():
        size = sizes.get(name)
        problem = constraint.check(size) if type(size) is int else None
        if problem:
            where = next(
                (f" (input {v.name!r} axis {i})" for v in graph.inputs for i, d in enumerate(v.type.shape) if name in dims.symbols_of(d)),
                "",
            )
            raise InputError(f"size {name} = {size}{where} {problem}")


def unflatten_outputs(graph: Graph, leaves: Sequence[Any]) -> Any:
    """The outputs in the captured program's structure."""
    return unflatten(signature_of(graph).out, leaves)


def array_dtype(x: Any) -> dtypes.DType:
    """The graph dtype of a NumPy array."""
    return dtypes.dtype(x.dtype)
