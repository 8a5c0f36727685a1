"""Transforms of graphs: emitted to JAX, transformed there, captured again.

All of them keep weights (by name, with their data), states, symbolic sizes and 64-bit types. In the
new graph an original argument keeps its place and name; what a transform adds comes by keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from unigraph import dims
from unigraph.errors import InputError
from unigraph.graph import KEY, NAMED, WEIGHT, Graph, GraphLike, Value, as_graph
from unigraph.runtime import call
from unigraph.tree import unflatten

from .jaxpr import compat
from .jaxpr.capture import Recapture, symbolic_sizes
from .jaxpr.export import to_jax

Wrt = str | Iterable[str] | None


def grad(graph: GraphLike, wrt: Wrt = None, output: int = 0) -> Graph:
    """The graph of the gradient of one scalar output.

    ``wrt`` names weights or inputs: one name gives one array, several a dict by name, None all
    floating weights (all floating inputs when there are none). A tied weight counts once, whatever name
    of it is given. ``output`` is the position of the
    scalar among the outputs. Raises InputError for unknown names, dtypes that have no derivative, or
    an output that is no scalar float.
    """
    graph = as_graph(graph)
    return _differentiate(graph, wrt, output, _gradient(output), lambda g, aux: (g, aux[1]))


def value_and_grad(graph: GraphLike, wrt: Wrt = None, output: int = 0) -> Graph:
    """The graph of ``(outputs, gradient)``; see `grad`. The outputs keep their structure.

    Raises what `grad` raises.
    """
    graph = as_graph(graph)
    return _differentiate(graph, wrt, output, _gradient(output), lambda g, aux: ((aux[0], g), aux[1]))


def jvp(graph: GraphLike, wrt: Wrt = None) -> Graph:
    """The graph of ``(outputs, tangents of the outputs)``.

    ``wrt`` names what varies (None: all floating inputs). The new graph takes the directions as the
    keyword ``tangents``, a dict by name (an array when ``wrt`` is one name).

    Raises InputError for a name that is neither input nor weight, UnsupportedError for operations
    without a JAX meaning.
    """
    graph = as_graph(graph)
    f = _Called(graph)
    names, single = f.select(wrt, prefer=f.float_inputs() or f.float_weights())
    tangents = {n: f.spec(n) for n in names}

    def run(params: Any, leaves: Any, tangents: Any) -> Any:
        if single:
            tangents = {names[0]: tangents}
        x, rest = f.split(params, leaves, names)
        out, moved, states = jax.jvp(lambda x: f.result(x, rest), (x,), (tangents,), has_aux=True)
        return (out, moved), states

    return f.capture(run, {"tangents": tangents[names[0]] if single else tangents})


def hessian(graph: GraphLike, wrt: Wrt = None, output: int = 0) -> Graph:
    """The graph of second derivatives of one scalar output; see `grad`.

    One name gives one array (axes of the argument, twice); several give a dict of dicts by name.
    Raises what `grad` raises.
    """
    graph = as_graph(graph)

    def transform(f: _Called) -> Callable[..., Any]:
        def run(x: Any, rest: Any) -> Any:
            def scalar(x: Any) -> Any:
                return _with_aux(f, x, rest, output)[0]

            return jax.hessian(scalar)(x), f.result(x, rest)

        return run

    return _differentiate(graph, wrt, output, transform, lambda h, aux: (h, aux[1]))


def vmap(
    graph: GraphLike,
    in_axes: int | Mapping[str, int | None] | None = 0,
    out_axes: int = 0,
    size: int | str = "vmap_size",
) -> Graph:
    """The graph mapped over a new axis of its inputs; weights are shared.

    ``in_axes`` is the place of the axis in every input, or by input name (inputs not named have
    none). A key input that has an axis is an array of keys. ``size`` is the axis' size, or the name of
    a symbolic one. Raises InputError when no input has the axis, or for a graph with states.
    """
    graph = as_graph(graph)
    f = _Called(graph)
    if graph.states:
        raise InputError("a graph with states cannot be mapped: which element's state should be kept?")
    if isinstance(in_axes, Mapping):
        unknown = in_axes.keys() - {v.name for v in graph.inputs}
        if unknown:
            raise InputError(f"there is no input {sorted(unknown)[0]!r}; the graph takes {call.describe(graph)}")
        axes = [in_axes.get(v.name) for v in graph.inputs]
    else:
        axes = [in_axes] * len(graph.inputs)
    if all(a is None for a in axes):
        raise InputError("vmap needs an input with the new axis")
    count = f.fresh_size(size) if isinstance(size, str) else size

    def run(params: Any, leaves: Any) -> Any:
        return jax.vmap(lambda *xs: f(params, xs), in_axes=tuple(axes), out_axes=out_axes)(*leaves)

    return f.capture(run, axes=axes, size=count)


def checkpoint(graph: GraphLike) -> Graph:
    """The same graph as one rematerialised block: its intermediates are computed again in backward.

    Raises UnsupportedError for operations without a JAX meaning.
    """
    graph = as_graph(graph)
    f = _Called(graph)
    return f.capture(lambda params, leaves: jax.checkpoint(lambda p, xs: f(p, tuple(xs)))(params, list(leaves)))


class _Called:
    """A graph as a JAX function of ``(weights by name, flat inputs) -> (outputs, new states)``."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.function, _ = to_jax(graph)
        self.held = {v.name: v for v in graph.data if v.role in NAMED}
        self.inputs = {v.name: v for v in graph.inputs}
        self.sizes = symbolic_sizes(graph)
        signature = call.signature_of(graph)
        self.signature = signature
        self.given = signature.args.leaves + signature.kwargs.leaves

    def __call__(self, params: Any, leaves: Any) -> Any:
        """(outputs in their structure, new states by name)."""
        args, kwargs = self.structured(leaves)
        out = self.function(params, *args, **kwargs)
        return out if self.graph.states else (out, {})

    def structured(self, leaves: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Flat inputs as the call's arguments; keys beyond the signature by name."""
        n = self.signature.args.leaves
        args = unflatten(self.signature.args, leaves[:n])
        kwargs = dict(unflatten(self.signature.kwargs, leaves[n : self.given]))
        extra = self.graph.inputs[self.given :]
        kwargs.update((v.name, x) for v, x in zip(extra, leaves[self.given :], strict=True))
        return args, kwargs

    # -- what to differentiate ---------------------------------------------------------------------

    def float_weights(self) -> list[str]:
        return [n for n, v in self.held.items() if v.role == WEIGHT and v.type.dtype.is_inexact]

    def float_inputs(self) -> list[str]:
        return [n for n, v in self.inputs.items() if v.role != KEY and v.type.dtype.is_inexact]

    def select(self, wrt: Wrt, prefer: list[str]) -> tuple[list[str], bool]:
        """Names of what varies, and whether one bare name was asked for."""
        names = prefer if wrt is None else [wrt] if isinstance(wrt, str) else list(wrt)
        if not names:
            raise InputError("nothing to differentiate: the graph has no floating weights or inputs")
        names = list(dict.fromkeys(self.graph.aliases.get(n, n) for n in names))
        for name in names:
            value = self.held.get(name) or self.inputs.get(name)
            if value is None:
                known = ", ".join([*self.held, *self.inputs][:20])
                raise InputError(f"there is no weight or input {name!r}; there are {known}")
            if not value.type.dtype.is_inexact:
                raise InputError(f"{name!r} is {value.type}, which has no derivative")
        return names, isinstance(wrt, str)

    def split(self, params: Any, leaves: Any, names: list[str]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        """What varies by name, and the rest."""
        index = {v.name: i for i, v in enumerate(self.graph.inputs)}
        x = {n: params[n] if n in self.held else leaves[index[n]] for n in names}
        return x, (params, leaves)

    def result(self, x: Mapping[str, Any], rest: tuple[Any, Any]) -> Any:
        """`__call__` with what varies put back."""
        params, leaves = rest
        merged = {n: x.get(n, p) for n, p in params.items()}
        return self(merged, tuple(x.get(v.name, leaf) for v, leaf in zip(self.graph.inputs, leaves, strict=True)))

    # -- capture -------------------------------------------------------------------------------------

    def spec(self, name: str) -> Any:
        value = self.held.get(name) or self.inputs[name]
        return self._spec(value)

    def _spec(self, value: Value, axis: int | None = None, size: Any = None) -> Any:
        shape = [dims.evaluate(d, self.sizes) for d in value.type.shape]
        if axis is not None:
            shape.insert(axis if axis >= 0 else axis + len(shape) + 1, size)
        dtype = value.type.dtype
        return jax.ShapeDtypeStruct(tuple(shape), compat.key_dtype(dtype) if dtype.is_key else dtype.numpy)

    def fresh_size(self, name: str) -> Any:
        """A new symbolic size in the scope of the others."""
        if name in self.sizes:
            raise InputError(f"the graph already has a size {name!r}: give vmap another name with size=")
        scope = next((s.scope for s in self.sizes.values()), None) or jax.export.SymbolicScope()
        return jax.export.symbolic_shape(name, scope=scope)[0]

    def capture(
        self, run: Callable[..., Any], extra: Mapping[str, Any] | None = None, axes: Any = None, size: Any = None
    ) -> Graph:
        """The graph of ``run(weights, flat inputs, **extra) -> (result, new states)``, called as this one is."""
        places = axes or [None] * len(self.graph.inputs)
        with compat.enable_x64():
            specs = [self._spec(v, a, size) for v, a in zip(self.graph.inputs, places, strict=True)]
            args, kwargs = self.structured(specs)
            params = {n: self._held(v) for n, v in self.held.items()}

            def fn(params: Any, *args: Any, **kwargs: Any) -> Any:
                added = {k: kwargs.pop(k) for k in extra or ()}
                leaves = self._leaves(args, kwargs)
                out, states = run(params, leaves, *added.values())
                return out, [states[s.name] for s, _ in self.graph.states]

            names = list(self.signature.arg_names) or [f"x{i}" for i in range(len(args))]
            states = tuple(s.name for s, _ in self.graph.states)
            recapture = Recapture(fn, params, args, {**kwargs, **(extra or {})}, names, states)
            result = recapture.graph(self.graph.name)
        held = {v.name for v in result.data if v.role in NAMED}
        return result.replace(
            aliases={alias: name for alias, name in self.graph.aliases.items() if name in held},
            transient=self.graph.transient & held,
            symbols={**result.symbols, **{k: c for k, c in self.graph.symbols.items() if k in result.symbols}},
        )

    def _held(self, value: Value) -> Any:
        array = self.graph.data[value]
        return self._spec(value) if array is None else np.asarray(array)

    def _leaves(self, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        found = call.match_inputs(self.graph, self.signature, args, dict(kwargs))
        return tuple(found[v] for v in self.graph.inputs)


def _gradient(output: int) -> Callable[[_Called], Callable[..., Any]]:
    """What gives ``(gradient, (outputs, new states))`` of one output."""
    return lambda f: lambda x, rest: jax.grad(lambda x: _with_aux(f, x, rest, output), has_aux=True)(x)


def _with_aux(f: _Called, x: Any, rest: Any, output: int) -> tuple[Any, Any]:
    out, states = f.result(x, rest)
    return jax.tree_util.tree_leaves(out)[output], (out, states)


def _differentiate(
    graph: Graph,
    wrt: Wrt,
    output: int,
    transform: Callable[[_Called], Callable[..., Any]],
    arrange: Callable[[Any, Any], Any],
) -> Graph:
    f = _Called(graph)
    if not 0 <= output < len(graph.outputs):
        raise InputError(f"output {output} does not exist: the graph has {len(graph.outputs)}")
    type_ = graph.outputs[output].type
    if type_.rank or not type_.dtype.is_float:
        raise InputError(f"only a scalar float has a gradient; output {output} is {type_}")
    names, single = f.select(wrt, prefer=f.float_weights() or f.float_inputs())

    def run(params: Any, leaves: Any) -> Any:
        x, rest = f.split(params, leaves, names)
        g, aux = transform(f)(x, rest)
        return arrange(_bare(g, names[0]) if single else g, aux)

    return f.capture(run)


def _bare(g: Any, name: str) -> Any:
    """The only entry of a dict, or of a dict of dicts."""
    inner = g[name]
    return inner[name] if isinstance(inner, dict) else inner
