"""From a traceable function and example arguments to a graph."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from unigraph.dims import Constraint
from unigraph.errors import InputError
from unigraph.graph import Graph, Value
from unigraph.tree import DICT, LEAF, NONE, TUPLE, Signature, Tree
from unigraph.types import TensorType

from . import compat
from .lower import Capture, JaxprBuilder
from .rows import ROWS
from .structure import is_array, leaf_names, structure


def from_jax(
    fn: Callable[..., Any],
    *args: Any,
    weights: int | Iterable[int] = (),
    dynamic: Mapping[str | int, Any] | Sequence[Any] | None = None,
    **kwargs: Any,
) -> Graph:
    """The graph of ``fn(*args, **kwargs)``: any function of pytrees that JAX can trace.

    Arguments are arrays of any framework with ``__array__``, numbers, ``jax.ShapeDtypeStruct``, or
    pytrees of them; leaves that are none of these (strings, functions) are fixed in the graph.

    - ``weights``: positions of the arguments that hold parameters. Their leaves become weights named
      by path (``params.dense.kernel``) and leave the signature. Arrays that ``fn`` closes over become
      weights ``closure.N``; if ``fn`` is itself a pytree (an Equinox module), its arrays become
      weights named by path.
    - ``dynamic``: free sizes, by argument name or position: ``{"x": ("batch", None)}``. An entry is a
      shape tuple of names, expressions (``"2*n"``, ``"floordiv(n, 2)"``), ints or None (as given), or a pytree of such
      tuples for a structured argument. Sizes are at least 1, as in ``jax.export``; ``"n >= 2"`` and ``"n <= 512"``
      are names with a bound, which a program that compares sizes may need.
    - typed keys (``jax.random.key``) become inputs of role ``key``; raw ``uint32`` keys stay arrays. A
      typed key among the weights (the random stream of a module) becomes a key input beyond the
      signature if it is used.

    Functions with rules of ``jax.custom_jvp`` or ``custom_vjp`` stay whole, and their rules with them (for
    derivatives of first and second order); a rule that cannot be carried is left out with a warning.
    ``jax.checkpoint`` stays a ``remat`` edge. Debug prints are left out with a warning.
    64-bit types are kept when x64 is on, as JAX traces them. Raises UnsupportedError listing every
    operation that cannot be carried, InputError for arguments that make no sense, and whatever
    tracing ``fn`` raises.
    """
    weight_args = {weights} if isinstance(weights, int) else set(weights)
    wrong = [i for i in weight_args if not 0 <= i < len(args)]
    if wrong:
        raise InputError(f"weights={wrong[0]} is no positional argument: there are {len(args)}")
    names = _argument_names(fn, len(args))
    capture = Arguments(fn, args, kwargs, weight_args, names)
    capture.make_dynamic(dynamic)
    name = getattr(fn, "__name__", "") or type(fn).__name__
    return capture.graph(name if name.isidentifier() else "")


_BOUNDED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<sign>>=|<=)\s*(?P<number>[0-9]+)\s*")


def _argument_names(fn: Any, count: int) -> list[str]:
    """Names of the positional arguments where the function tells, else ``x0``, ``x1``..."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [
        p.name
        for p in parameters
        if p.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [plain[i] if i < len(plain) else f"x{i}" for i in range(count)]


class _Leaf:
    """One leaf of the arguments: its name, what is passed to the trace, and what becomes of it."""

    __slots__ = ("is_hidden_key", "is_weight", "name", "spec", "value")

    def __init__(self, name: str, value: Any, is_weight: bool):
        self.name, self.value, self.is_weight = name, value, is_weight
        self.is_hidden_key = is_weight and compat.is_key(value)
        self.spec = value if isinstance(value, (bool, int, float, complex)) else _spec(value)


def _spec(x: Any) -> Any:
    if isinstance(x, (jax.Array, jax.ShapeDtypeStruct)):
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))
    array = np.asarray(x)
    return jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))


class Arguments:
    """The flattened call: leaves to trace, static leaves, and the way back."""

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], weight_args: set[int], names: list[str]):
        self.fn, self.args, self.kwargs, self.names = fn, args, kwargs, names
        self.weight_args = weight_args
        # A callable pytree (an Equinox module) is one more argument that holds weights.
        own = jax.tree_util.tree_leaves(fn)
        self.fn_is_tree = not (len(own) == 1 and own[0] is fn)
        whole = (fn if self.fn_is_tree else (), args, kwargs)
        flat, self.treedef = jax.tree_util.tree_flatten(whole)
        all_names = leaf_names(whole[0], "")
        marks = [True] * len(all_names)
        for i, arg in enumerate(args):
            found = leaf_names(arg, names[i])
            all_names += found
            marks += [i in weight_args] * len(found)
        for key in sorted(kwargs):
            found = leaf_names(kwargs[key], key)
            all_names += found
            marks += [False] * len(found)
        self.static: dict[int, Any] = {}
        self.leaves: list[_Leaf] = []
        self.slots: list[int] = []
        taken: set[str] = set()
        for slot, (x, name, mark) in enumerate(zip(flat, all_names, marks, strict=True)):
            if not is_array(x):
                self.static[slot] = x
                continue
            self.leaves.append(_Leaf(_unique(name or "weight", taken), x, mark))
            self.slots.append(slot)
        self.bounds: dict[str, tuple[int, int | None]] = {}  # of sizes by name: least and greatest

    def make_dynamic(self, dynamic: Mapping[str | int, Any] | Sequence[Any] | None) -> None:
        """Replace sizes in the specs by symbols."""
        if dynamic is None:
            return
        given = dict(dynamic) if isinstance(dynamic, Mapping) else dict(enumerate(dynamic))
        given = {which: self._without_bounds(shapes) for which, shapes in given.items()}
        promises = [f"{n} >= {low}" for n, (low, _) in self.bounds.items() if low > 1]
        promises += [f"{n} <= {high}" for n, (_, high) in self.bounds.items() if high is not None]
        scope = jax.export.SymbolicScope(promises)
        by_name = {leaf.name: leaf for leaf in self.leaves}
        for which, shapes in given.items():
            name = self._argument(which)
            if shapes is None:
                continue
            for path, shape in _shapes(shapes, name):
                leaves = (
                    [by_name[path]] if path in by_name else [x for n, x in by_name.items() if n.startswith(f"{path}.")]
                )
                if not leaves:
                    raise InputError(f"dynamic names {path!r}; the arguments are {', '.join(by_name)}")
                for leaf in leaves:
                    self._free(leaf, shape, scope)

    def _without_bounds(self, entry: Any) -> Any:
        """An entry of ``dynamic`` with sizes like ``"n >= 2"`` as plain names; their bounds are noted."""
        if isinstance(entry, Mapping):
            return {key: self._without_bounds(item) for key, item in entry.items()}
        if isinstance(entry, (list, tuple)):
            return type(entry)(map(self._without_bounds, entry))
        found = _BOUNDED.fullmatch(entry) if isinstance(entry, str) else None
        if found is None:
            return entry
        low, high = self.bounds.get(found["name"], (1, None))
        number = int(found["number"])
        self.bounds[found["name"]] = (max(low, number), high) if found["sign"] == ">=" else (low, number)
        return found["name"]

    def _argument(self, which: str | int) -> str:
        if isinstance(which, str):
            return which
        if not 0 <= which < len(self.names):
            raise InputError(f"dynamic names argument {which}; there are {len(self.names)}")
        return self.names[which]

    def _free(self, leaf: _Leaf, shape: Sequence[Any], scope: Any) -> None:
        if leaf.is_weight:
            raise InputError(f"{leaf.name!r} is a weight: its sizes are fixed")
        if isinstance(leaf.spec, (bool, int, float, complex)) or len(shape) != len(leaf.spec.shape):
            raise InputError(f"dynamic shape {tuple(shape)} does not fit {leaf.name!r}: {leaf.value!r}"[:300])
        text = ", ".join("_" if d is None else str(d) for d in shape)
        try:
            free = jax.export.symbolic_shape(text, scope=scope, like=leaf.spec.shape)
        except ValueError as error:
            raise InputError(f"dynamic shape {tuple(shape)} of {leaf.name!r}: {error}") from None
        leaf.spec = jax.ShapeDtypeStruct(free, leaf.spec.dtype)

    def trace(self) -> tuple[Any, Tree]:
        """The closed jaxpr of the flat function, and the structure of its result."""
        structures: list[Tree] = []

        def flat(*leaves: Any) -> list[Any]:
            slots = dict(self.static)
            slots.update(zip(self.slots, leaves, strict=True))
            own, args, kwargs = jax.tree_util.tree_unflatten(self.treedef, [slots[i] for i in range(len(slots))])
            result = (own if self.fn_is_tree else self.fn)(*args, **kwargs)
            structures.append(structure(result))
            return jax.tree_util.tree_leaves(result)

        try:
            jaxpr = jax.make_jaxpr(flat)(*(leaf.spec for leaf in self.leaves))
        except compat.InconclusiveSize as error:
            error.add_note('A bound may decide it: dynamic={"x": ("n >= 2", None)}. Or leave that size fixed.')
            raise
        return jaxpr, structures[-1]

    def graph(self, name: str) -> Graph:
        jaxpr, out = self.trace()
        shared = Capture(ROWS, f"capture of {name or 'a function'} from JAX")
        b = JaxprBuilder(shared, name)
        plain, _ = compat.unclosed(jaxpr)
        pairs = list(zip(self.leaves, plain.invars, strict=True))
        sources = {v: self._source(b, leaf, b.type_of(v)) for leaf, v in pairs if not leaf.is_hidden_key}
        # Keys inside weights (the random streams of a module) are drawn by the caller of each run.
        readers = (*(eqn.invars for eqn in plain.eqns), plain.outvars)
        used = {v for read in readers for v in read if not isinstance(v, compat.Literal)}
        for leaf, v in pairs:
            if leaf.is_hidden_key:
                type_ = b.type_of(v)
                sources[v] = b.input(leaf.name, type_.dtype, type_.shape) if v in used else b.placeholder(type_)
        inputs = [sources[v] for _, v in pairs]
        outputs = b.inline(jaxpr, inputs)
        shared.gaps.raise_if_any()
        if shared.lost_rules:
            lost = list(dict.fromkeys(shared.lost_rules))
            warnings.warn(
                f"derivative rules that cannot be carried, so that these functions will be differentiated as written: "
                f"{', '.join(lost)}; where that matters, capture the gradient itself: from_jax(jax.grad(fn), ...)",
                stacklevel=3,
            )
        if shared.prints:
            places = list(dict.fromkeys(filter(None, shared.prints)))
            warnings.warn(
                f"debug prints and callbacks are left out: {', '.join(places) or 'of unknown place'}", stacklevel=3
            )
        b.symbols.update({s: self._bound(s) for v in b.inputs for s in sorted(v.type.symbols())})
        return self.finish(b, outputs, out)

    def _bound(self, symbol: str) -> Constraint:
        low, high = self.bounds.get(symbol, (1, None))
        return Constraint(min=max(low, 1), max=high)

    def finish(self, b: JaxprBuilder, outputs: Sequence[Value], out: Tree) -> Graph:
        return b.build(list(outputs), signature=self._signature(out))

    def _source(self, b: JaxprBuilder, leaf: _Leaf, type_: TensorType) -> Value:
        if not leaf.is_weight:
            return b.input(leaf.name, type_.dtype, type_.shape)
        if isinstance(leaf.value, jax.ShapeDtypeStruct):
            return b.weight(leaf.name, type=type_)
        array = np.asarray(leaf.value)
        return b.weight(leaf.name, array if array.dtype == type_.dtype.numpy else array.astype(type_.dtype.numpy))

    def _signature(self, out: Tree) -> Signature:
        args, names = [], []
        for i, arg in enumerate(self.args):
            if i not in self.weight_args:
                args.append(_without_static(structure(arg), jax.tree_util.tree_leaves(arg)))
                names.append(self.names[i])
        keys = sorted(self.kwargs)
        kwargs = [_without_static(structure(self.kwargs[k]), jax.tree_util.tree_leaves(self.kwargs[k])) for k in keys]
        return Signature(Tree(TUPLE, tuple(args)), Tree(DICT, tuple(kwargs), tuple(keys)), out, tuple(names))


class Recapture(Arguments):
    """The capture of a transformed graph: ``fn(params, *args, **kwargs) -> (result, new states)``.

    Weights keep their bare names and data; those named in ``states`` are states again.
    """

    def __init__(
        self,
        fn: Any,
        params: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        names: list[str],
        states: tuple[str, ...],
    ):
        super().__init__(fn, (params, *args), kwargs, {0}, ["", *names])
        self.states = states
        self.held: dict[str, Value] = {}

    def _source(self, b: JaxprBuilder, leaf: _Leaf, type_: TensorType) -> Value:
        if not leaf.is_weight or leaf.name not in self.states:
            return super()._source(b, leaf, type_)
        unbound = isinstance(leaf.value, jax.ShapeDtypeStruct)
        self.held[leaf.name] = b.state(leaf.name, None if unbound else leaf.value, type_)
        return self.held[leaf.name]

    def finish(self, b: JaxprBuilder, outputs: Sequence[Value], out: Tree) -> Graph:
        n = len(outputs) - len(self.states)
        for name, new in zip(self.states, outputs[n:], strict=True):
            b.update(self.held[name], new)
        return b.build(list(outputs[:n]), signature=self._signature(out.children[0]))


def symbolic_sizes(graph: Graph) -> dict[str, Any]:
    """Sizes of ``jax.export`` for the symbols of a graph, with its constraints."""
    names = sorted(set().union(*(v.type.symbols() for v in graph.inputs)))
    if not names:
        return {}
    promises = []
    for name in names:
        promise = graph.symbols.get(name, Constraint())
        if promise.min > 1:
            promises.append(f"{name} >= {promise.min}")
        if promise.max is not None:
            promises.append(f"{name} <= {promise.max}")
        if promise.multiple_of > 1:
            promises.append(f"mod({name}, {promise.multiple_of}) == 0")
    return dict(zip(names, jax.export.symbolic_shape(", ".join(names), constraints=promises), strict=True))


def _without_static(tree: Tree, leaves: Sequence[Any]) -> Tree:
    """The structure with None where a leaf is fixed in the graph."""
    iterator = iter(leaves)

    def walk(node: Tree) -> Tree:
        if node.kind == LEAF:
            return node if is_array(next(iterator)) else Tree(NONE)
        return Tree(node.kind, tuple(walk(c) for c in node.children), node.keys, node.name)

    return walk(tree)


def _unique(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate


def _shapes(shapes: Any, path: str) -> list[tuple[str, Sequence[Any]]]:
    """Each shape in a ``dynamic`` entry with the path of the leaf it belongs to."""
    if isinstance(shapes, str):
        return [(path, shapes.split(","))]
    if isinstance(shapes, Mapping):
        return [found for key, item in shapes.items() for found in _shapes(item, f"{path}.{key}")]
    if isinstance(shapes, (list, tuple)) and shapes and all(isinstance(s, (list, tuple, Mapping)) for s in shapes):
        return [found for i, item in enumerate(shapes) for found in _shapes(item, f"{path}.{i}")]
    return [(path, tuple(shapes))]
