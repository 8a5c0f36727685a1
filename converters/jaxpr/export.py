"""From a graph to a pure JAX function and its parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unigraph.errors import InputError
from unigraph.evaluate import Program
from unigraph.graph import KEY, NAMED, Graph, GraphLike, Value, as_graph
from unigraph.runtime import call
from unigraph.runtime.jax.dtypes import narrows
from unigraph.runtime.jax.dtypes import to_jax as jax_dtype
from unigraph.runtime.jax.table import TABLE
from unigraph.runtime.keys import seed_words
from unigraph.types import shown

from . import compat


def to_jax(graph: GraphLike) -> tuple[Callable[..., Any], dict[str, Any]]:
    """``(fn, params)``: ``fn(params, *args, **kwargs)`` computes the graph with its own signature.

    ``params`` maps the name of each weight (and state) to its array; a weight without data is a
    ``jax.ShapeDtypeStruct`` to be replaced. A tied weight stands there once, so that its gradient is the
    sum over its uses; ``fn`` takes it under any of its names. ``fn`` is pure: it jits, differentiates,
    vmaps and exports with symbolic sizes. A graph with states gives ``(result, new_states)``, the states by name.

    A key that randomness added is a keyword (``key=``); keys of the signature stay where they are. A
    key is a typed JAX key, its uint32 words, or an integer seed. Where x64 is off, 64-bit values are
    narrowed, and the first call says which. Raises UnsupportedError for operations without a JAX
    meaning; ``fn`` raises InputError for wrong arguments and EngineError when narrowing would change a
    constant.
    """
    graph = as_graph(graph)
    function = _Function(graph)

    def fn(params: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return function(params, args, kwargs)

    fn.__name__ = fn.__qualname__ = graph.name if graph.name.isidentifier() else "graph"
    fn.__doc__ = f"{fn.__name__}({call.describe(graph)}) with params by weight name."
    return fn, function.params()


class _Function:
    """The graph prepared once for each x64 setting that it is called under."""

    def __init__(self, graph: Graph):
        self.graph = graph
        # What nothing reads is no parameter: jax.grad would stumble over its integers.
        read = {v for op in graph.edges for v in op.inputs} | set(graph.results) | {s for s, _ in graph.states}
        self.held = [v for v in graph.data if v.role in NAMED and v in read]
        self._programs: dict[bool, Program] = {}
        TABLE.check(graph, "conversion to JAX")

    def params(self) -> dict[str, Any]:
        return {v.name: _param(v, self.graph.data[v]) for v in self.held}

    def program(self) -> Program:
        wide = compat.x64_enabled()
        found = self._programs.get(wide)
        if found is None:
            if not wide:
                _warn_narrowing(self.graph)
            found = self._programs[wide] = Program(self.graph, TABLE)
        return found

    def __call__(self, params: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        graph = self.graph
        given = call.match_inputs(graph, call.signature_of(graph), args, kwargs)
        if graph.aliases:
            params = {**{graph.aliases.get(n, n): x for n, x in params.items()}, **params}
        missing = [v.name for v in self.held if v.name not in params]
        if missing:
            raise InputError(f"params lacks {len(missing)} weights, the first is {missing[0]!r}")
        data = {v: _checked(v, params[v.name], graph) for v in self.held}
        results = self.program().run([_input(v, given.get(v), graph) for v in graph.inputs], data)
        n = len(graph.outputs)
        leaves = [_output(v, x) for v, x in zip(graph.outputs, results, strict=False)]
        out = call.unflatten_outputs(graph, leaves)
        if not graph.states:
            return out
        return out, {state.name: x for (state, _), x in zip(graph.states, results[n:], strict=True)}


def _param(value: Value, array: Any) -> Any:
    if array is None:
        return jax.ShapeDtypeStruct(value.type.shape, jax_dtype(value.type.dtype))
    return jnp.asarray(array, jax_dtype(value.type.dtype))


def _input(value: Value, x: Any, graph: Graph) -> Any:
    if x is None:
        raise InputError(f"input {value.name!r} ({value.type}) is missing; the graph takes {call.describe(graph)}")
    return _key_words(value, x) if value.role == KEY else _checked(value, x, graph)


def _checked(value: Value, x: Any, graph: Graph) -> Any:
    """``x`` as a jax array of the declared type (numbers take its dtype)."""
    wanted = jax_dtype(value.type.dtype)
    if isinstance(x, (bool, int, float, complex)):
        return jnp.asarray(x, wanted)
    if not isinstance(x, jax.Array):
        x = np.asarray(x)
        if x.dtype == value.type.dtype.numpy:
            x = x.astype(wanted, copy=False)
    if x.dtype != wanted:
        raise InputError(f"{value.role} {value.name!r} must be {value.type}, got {shown(x.dtype, x.shape)}; convert it")
    call.check_array(value, value.type.dtype, tuple(x.shape), {})
    return jnp.asarray(x)


def _key_words(value: Value, x: Any) -> Any:
    dtype = value.type.dtype
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return jnp.asarray(seed_words(int(x), dtype))
    if compat.is_key(x):
        impl = compat.key_impl(x.dtype)
        if f"key<{impl}>" != dtype.name:
            raise InputError(f"input {value.name!r} is a {dtype.name}, got a key of kind {impl}")
        x = jax.random.key_data(x)
    x = jnp.asarray(x)
    if x.dtype != jnp.uint32 or x.ndim != value.type.rank + 1 or x.shape[-1] != dtype.key_words:
        raise InputError(
            f"input {value.name!r} is a random key {value.type}: give a JAX key, its uint32 words (..., "
            f"{dtype.key_words}) or an integer seed, not {shown(x.dtype, x.shape)}"
        )
    return x


def _output(value: Value, x: Any) -> Any:
    if value.type.dtype.is_key:
        return jax.random.wrap_key_data(x, impl=value.type.dtype.name[4:-1])
    return x


def _warn_narrowing(graph: Graph) -> None:
    wide = [v for v in graph.nodes if not v.type.dtype.is_key and narrows(v.type.dtype)]
    if not wide:
        return
    named = [f"{v.role} {v.name!r} ({v.type})" for v in wide if v.name] or [f"an intermediate value ({wide[0].type})"]
    more = f" and {len(wide) - min(len(named), 5)} more" if len(wide) > min(len(named), 5) else ""
    warnings.warn(
        f"jax_enable_x64 is off, so 64-bit values become 32-bit: {', '.join(named[:5])}{more}; "
        "switch it on to keep them",
        stacklevel=5,
    )
