"""From the arguments of a call to a flat list of checked arrays, and back to the output structure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unigraph import dims
from unigraph.errors import InputError
from unigraph.graph import KEY, Graph, Value, counted
from unigraph.tree import DICT, LEAF, NONE, TUPLE, Signature, Tree, flatten, unflatten

from .arrays import JAX, NUMPY, PYTHON, TORCH, dtype_of, key_impl, kind_of, to_numpy
from .keys import bind_sizes, fresh_words, key_data, seeded

SHOWN = 16  # inputs listed in a message


def signature_of(graph: Graph) -> Signature:
    """The graph's calling convention; a flat one by input names when it carries none."""
    if graph.signature is not None:
        return graph.signature
    leaf = Tree(LEAF)
    args = Tree(TUPLE, (leaf,) * len(graph.inputs))
    out = Tree(TUPLE, (leaf,) * len(graph.outputs))
    return Signature(args, Tree(DICT), out, tuple(v.name for v in graph.inputs))


@dataclass(frozen=True, slots=True)
class _Repeat:
    """The arrays of a call whose inputs were right: one with the like of them needs no second look."""

    positional: int
    names: tuple[str, ...]
    order: tuple[int, ...]
    like: Sequence[tuple[type[Any], Any, Any]]
    kind: str

    def again(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """The graph's inputs, or None for a call that is not alike."""
        if len(args) != self.positional or tuple(kwargs) != self.names:
            return None
        given: list[Any] = [*args, *kwargs.values()]
        for x, (type_, dtype, shape) in zip(given, self.like):
            if type(x) is not type_ or x.dtype != dtype or x.shape != shape:
                return None
            if self.kind == TORCH and (x.requires_grad or str(x.layout) != "torch.strided"):
                return None
        return [given[i] for i in self.order]


class Plan:
    """How a graph is called, worked out once: which inputs belong to which argument."""

    def __init__(self, graph: Graph, signature: Signature | None = None):
        self.graph = graph
        self.signature = signature = signature or signature_of(graph)
        self.by_value_name = {v.name: v for v in graph.inputs}
        inputs = iter(graph.inputs)
        names = [*signature.arg_names, *map(str, range(len(signature.arg_names), len(signature.args.children)))]
        self.positions = [
            (name, child, tuple(next(inputs) for _ in range(child.leaves)))
            for name, child in zip(names, signature.args.children)
        ]
        self.by_name = {str(slot[0]): slot for slot in self.positions}
        for key, child in zip(signature.kwargs.keys, signature.kwargs.children, strict=True):
            self.by_name[str(key)] = (str(key), child, tuple(next(inputs) for _ in range(child.leaves)))
        # The common case: every argument is one array.
        self.plain = all(child.kind == LEAF for _, child, _ in self.positions)
        self.symbolic = [v for v in graph.inputs if not v.type.is_static]
        self.flat = all(child.kind == LEAF for _, child, _ in self.by_name.values())
        self.keyed = any(v.role == KEY for v in graph.inputs)
        self._before: _Repeat | None = None
        # Where sizes are computed from symbols, symbols that stand alone are bound first.
        self.computed = any(type(d) is not int and not d.is_Symbol for v in self.symbolic for d in v.type.shape)

    def match(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Value, Any]:
        """Inputs found by position, by argument name and by input name; those not given are absent.

        Raises InputError for too many, unknown and repeated inputs, and for another structure.
        """
        if len(args) > len(self.positions):
            raise InputError(
                f"{counted(len(args), 'positional input')} given, {len(self.positions)} expected; "
                f"the graph takes {describe(self.graph)}"
            )
        result: dict[Value, Any] = {}
        if self.plain:
            for (_, _, values), arg in zip(self.positions, args):
                result[values[0]] = arg
        else:
            for slot, arg in zip(self.positions, args):
                _take(slot, arg, result)
        for name, arg in kwargs.items():
            if name in self.by_name:
                _take(self.by_name[name], arg, result)
            elif name in self.by_value_name:
                _take((name, Tree(LEAF), (self.by_value_name[name],)), arg, result)
            else:
                close = difflib.get_close_matches(name, [*self.by_name, *self.by_value_name], 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise InputError(f"there is no input {name!r}; {hint}The graph takes {describe(self.graph)}")
        return result

    def inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int | None = None) -> tuple[list[Any], str]:
        """The graph's inputs in order, and the framework kind that results should have.

        Each is a NumPy, torch or JAX array of the declared dtype and shape. Keys that are not given
        are made from ``seed`` (from fresh entropy without one). Raises InputError saying which
        input is wrong, what was expected and what was given.
        """
        before = self._before  # another thread may put its own there
        if before is not None:
            repeated = before.again(args, kwargs)
            if repeated is not None:
                return repeated, before.kind
        leaves, kind = self._inputs(args, kwargs, seed)
        self._before = self._repeatable(args, kwargs, leaves, kind)
        return leaves, kind

    def _repeatable(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any], kind: str
    ) -> _Repeat | None:
        """What to compare the next call with, when each argument of this one was an input as it stands."""
        given = [*args, *kwargs.values()]
        if not self.flat or len(given) != len(leaves) or self.keyed:
            return None
        places = self.match(range(len(args)), dict(zip(kwargs, range(len(args), len(given)))))
        order = [places[v] for v in self.graph.inputs]
        if any(given[i] is not x or kind_of(x) != kind or not hasattr(x, "dtype") for i, x in zip(order, leaves)):
            return None
        return _Repeat(len(args), tuple(kwargs), tuple(order), [(type(x), x.dtype, x.shape) for x in given], kind)

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int | None) -> tuple[list[Any], str]:
        given = self.match(args, kwargs)
        kind = key_kind = ""
        leaves: list[Any] = []
        sizes: dict[str, Any] = {}
        absent = []
        for value in self.graph.inputs:
            x = given.get(value)
            if value.role == KEY:
                data = _key(x, value, seed)
                key_kind = key_kind or (JAX if key_impl(x) else "")
                bind_sizes(value, data, sizes)
                leaves.append(data)
            elif x is None:
                absent.append(value)
            else:
                own, array = checked(value, x)
                kind = kind or (own if own != PYTHON else "")
                leaves.append(array)
        if absent:
            listed = ", ".join(f"{v.name!r} ({v.type})" for v in absent[:SHOWN])
            verb = "is" if len(absent) == 1 else "are"
            raise InputError(f"input {listed} {verb} missing; the graph takes {describe(self.graph)}")
        if self.symbolic:
            self._bind(leaves, sizes)
        return leaves, kind or key_kind or NUMPY

    def _bind(self, leaves: Sequence[Any], sizes: dict[str, Any]) -> None:
        given = dict(zip(self.graph.inputs, leaves, strict=True))
        shapes = [(v, tuple(given[v].shape)[: v.type.rank]) for v in self.symbolic]
        value: Value | None = None
        try:
            if self.computed:
                for value, shape in shapes:
                    bare = [d if type(d) is not int and d.is_Symbol else n for d, n in zip(value.type.shape, shape)]
                    dims.bind(bare, shape, sizes, "")
            for value, shape in shapes:
                dims.bind(value.type.shape, shape, sizes, "")
        except InputError as error:
            assert value is not None
            problem = str(error).removeprefix(": ")
            raise InputError(f"input {value.name!r} must be {value.type}, got {list(shape)}: {problem}") from None
        check_constraints(self.graph, sizes)


def _key(x: Any, value: Value, seed: int | None) -> Any:
    if x is not None:
        return key_data(x, value)
    return fresh_words(value) if seed is None else seeded(seed, value)


Slot = tuple[str, Tree, tuple[Value, ...]]


def _take(slot: Slot, arg: Any, result: dict[Value, Any]) -> None:
    """Spread one argument over its inputs."""
    name, tree, values = slot
    if tree.kind == LEAF:
        leaves = [arg]
    else:
        leaves, given = flatten(arg, lambda x: not isinstance(x, (dict, list, tuple)) and hasattr(x, "shape"))
        place = parting(tree, given, name)
        if place:
            raise InputError(f"{place}; give {name!r} in the structure {_short(tree)}")
    for value, leaf in zip(values, leaves, strict=True):
        if value in result:
            raise InputError(f"input {value.name!r} is given twice; give it by position or by name")
        result[value] = leaf


def parting(wanted: Tree, given: Tree, path: str) -> str | None:
    """The first place where a structure is not the wanted one, or None."""
    if wanted.kind == LEAF and given.kind == LEAF:
        return None
    if wanted.kind != given.kind:
        named = {LEAF: "an array", NONE: "None"}
        expected, got = (named.get(t.kind, f"a {t.kind}{' ' + t.name if t.name else ''}") for t in (wanted, given))
        return f"input {path!r} must be {expected}, got {got}"
    if wanted.keys != given.keys:
        lacking = [k for k in wanted.keys if k not in given.keys]
        extra = [k for k in given.keys if k not in wanted.keys]
        problems = [f"lacks {lacking[0]!r}"] if lacking else []
        problems += [f"has an unexpected {extra[0]!r}"] if extra else []
        return f"input {path!r} {' and '.join(problems) or 'has its fields in another order'}"
    if len(wanted.children) != len(given.children):
        return f"input {path!r} must hold {len(wanted.children)} items, got {len(given.children)}"
    if wanted.kind != DICT and wanted.name != given.name:
        return f"input {path!r} must be a {wanted.name}, got a {given.name}"
    keys = wanted.keys or range(len(wanted.children))
    found = (parting(w, g, f"{path}.{k}") for k, w, g in zip(keys, wanted.children, given.children, strict=True))
    return next((f for f in found if f), None)


def _short(tree: Tree, limit: int = 400) -> str:
    text = str(tree)
    return text if len(text) <= limit else f"{text[:limit]}..."


def match_inputs(
    graph: Graph, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[Value, Any]:
    """`Plan.match` for one call."""
    return Plan(graph, signature).match(args, kwargs)


def describe(graph: Graph) -> str:
    """The inputs for a message: ``x: f32[batch,3], key: key<threefry2x32>[]``."""
    rest = f", and {len(graph.inputs) - SHOWN} more" if len(graph.inputs) > SHOWN else ""
    return ", ".join(f"{v.name}: {v.type}" for v in graph.inputs[:SHOWN]) + rest or "no inputs"


def checked(value: Value, x: Any) -> tuple[str, Any]:
    """The kind of an argument, and it as an array of the input's dtype, rank and fixed sizes.

    Raises InputError when it cannot be that.
    """
    try:
        kind = kind_of(x)
        if kind == TORCH:
            array = strided(x)
        elif kind == JAX and not key_impl(x):
            array = x
        else:
            array = to_numpy(x, value.type)
        dtype = dtype_of(array, NUMPY if kind == PYTHON else kind)
    except InputError as error:
        raise InputError(f"input {value.name!r} must be {value.type}: {error}") from None
    shape = tuple(array.shape)
    if dtype is not value.type.dtype or shape != value.type.shape:
        check_array(value, dtype, shape)
    return kind, array


def strided(x: Any) -> Any:
    """A torch tensor with plain memory, apart from any gradient. Raises InputError for a sparse one."""
    if str(x.layout) != "torch.strided":
        raise InputError(f"a tensor of layout {x.layout} was given; call .to_dense() first")
    return x.detach() if x.requires_grad else x


def check_array(value: Value, dtype: Any, shape: Sequence[int], sizes: dict[str, Any] | None = None) -> None:
    """Raise InputError unless an array of this dtype and shape fits the input's type; symbolic sizes are
    matched with ``sizes`` when these are given."""
    wanted = value.type
    given = f"{dtype}[{','.join(map(str, shape))}]"
    if dtype is not wanted.dtype:
        raise InputError(f"input {value.name!r} must be {wanted}, got {given}; convert it to {wanted.dtype} first")
    if len(shape) != wanted.rank:
        raise InputError(
            f"input {value.name!r} must be {wanted} (rank {wanted.rank}), got {given} (rank {len(shape)}); reshape it"
        )
    for axis, (dim, size) in enumerate(zip(wanted.shape, shape, strict=True)):
        if type(dim) is int and type(size) is int and dim != size:
            raise InputError(
                f"input {value.name!r} must be {wanted}, got {given}: axis {axis} must have size {dim}; "
                "capture with dynamic=... to leave it free"
            )
    if sizes is not None:
        dims.bind(wanted.shape, shape, sizes, f"input {value.name!r}")


def check_constraints(graph: Graph, sizes: Mapping[str, Any]) -> None:
    """Raise InputError when a symbolic size breaks its constraint."""
    for name, constraint in graph.symbols.items():
        size = sizes.get(name)
        problem = constraint.check(size) if type(size) is int else None
        if problem:
            raise InputError(f"size {name} = {size}{_place(name, graph.inputs)} {problem}; pad or cut that axis")


def _place(symbol: str, inputs: Iterable[Value]) -> str:
    """Where a symbolic size occurs first."""
    for value in inputs:
        for axis, dim in enumerate(value.type.shape):
            if symbol in dims.symbols_of(dim):
                return f" (input {value.name!r} axis {axis})"
    return ""


def unflatten_outputs(graph: Graph, leaves: Sequence[Any]) -> Any:
    """The outputs in the captured program's structure."""
    return unflatten(signature_of(graph).out, leaves)
