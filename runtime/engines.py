"""Engines: ways to run a graph. ``compile`` prepares one, ``run`` is the one-liner.

Each engine module offers a class ``Engine`` (see the protocol below) and ``devices()``.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from unigraph.errors import EngineError, InputError, importing
from unigraph.graph import STATE, Graph, GraphLike, Value, as_graph

from . import arrays, call

COMPILER = "torch.compile"  # takes seconds to minutes to prepare

# Where each engine lives; those that need an exporter stand with it.
ENGINES: Mapping[str, str] = {
    "numpy": "unigraph.runtime.numpy.engine",
    "torch": "unigraph.runtime.torch.engine",
    "jax": "unigraph.runtime.jax.engine",
    "onnx": "unigraph.converters.onnx.session",
    COMPILER: "unigraph.converters.torch_fx.compiled",
}


class Engine(Protocol):
    """What an engine module's ``Engine`` class is.

    It works on arrays of the kind ``native``; ``take`` makes one from a NumPy array.
    """

    native: str

    def __init__(self, graph: Graph, device: str | None = None): ...

    def take(self, x: np.ndarray) -> Any:
        """A NumPy array in the form that `run` works on."""
        ...

    def run(self, inputs: Sequence[Any], states: Mapping[Value, Any] | None = None) -> Sequence[Any]:
        """Results (outputs, then new states) for flat inputs; ``states`` replaces the graph's own.

        A result shares no memory with the graph's weights.
        """
        ...


def engine_module(name: str) -> Any:
    """The module of an engine. Raises EngineError for an unknown name, MissingPackageError when
    its framework is not installed."""
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; choose auto, {', '.join(ENGINES)}")
    return importing(ENGINES[name], f"the {name} engine")


def available() -> dict[str, Any]:
    """Each engine's devices, or the error that keeps it from running here."""
    found: dict[str, Any] = {}
    for name in ENGINES:
        try:
            found[name] = engine_module(name).devices()
        except Exception as error:  # a broken installation is a finding, whatever it raises
            found[name] = error
    return found


class _Callable:
    """What every compiled graph offers: a call, and a step that gives new states."""

    graph: Graph

    def flat(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        seed: int | None = None,
        states: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """All results in order (outputs, then states), in the kind of the inputs."""
        raise NotImplementedError

    def __call__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        """The outputs. States keep the values they have in the graph; see `step`.

        ``seed`` makes the keys that are not given. Raises InputError for wrong inputs, EngineError
        naming the operation when the engine fails.
        """
        return call.unflatten_outputs(self.graph, self.flat(args, kwargs, seed)[: len(self.graph.outputs)])

    def step(
        self, *args: Any, seed: int | None = None, states: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The outputs, and the new value of each state by name: give these as ``states`` to the next step.

        Raises InputError for wrong inputs or states, EngineError when the engine fails.
        """
        results = self.flat(args, kwargs, seed, states)
        n = len(self.graph.outputs)
        new = {state.name: x for (state, _), x in zip(self.graph.states, results[n:], strict=True)}
        return call.unflatten_outputs(self.graph, results[:n]), new


class Compiled(_Callable):
    """A graph prepared for one engine: call it like the captured program. Safe to share by threads.

    Results have the captured output structure, as arrays of the kind that went in.
    """

    def __init__(self, graph: Graph, engine: str, device: str | None = None):
        self.graph, self.engine, self.device = graph, engine, device
        self._engine: Engine = engine_module(engine).Engine(graph, device)
        self._plan = call.Plan(graph)
        self._states = {v.name: v for v in graph.data if v.role == STATE}

    def flat(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        seed: int | None = None,
        states: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """All results in order (outputs, then states), in the kind of the inputs."""
        if seed is not None and "seed" in self._plan.by_value_name:
            kwargs, seed = {**kwargs, "seed": seed}, None
        leaves, kind = self._plan.inputs(args, kwargs, seed)
        native = self._engine.native
        ready = kind == native and not self._plan.keyed  # keys made from a seed are NumPy's
        prepared = leaves if ready else [self._native(x) for x in leaves]
        if states:
            results = self._engine.run(
                prepared, {self._state(n): self._native(self._checked(n, x)) for n, x in states.items()}
            )
        else:
            results = self._engine.run(prepared)
        if kind == native and kind != arrays.JAX:
            return list(results)
        return [self._give(x, v, kind) for x, v in zip(results, self.graph.results, strict=True)]

    def _native(self, x: Any) -> Any:
        if arrays.kind_of(x) == self._engine.native and not isinstance(x, np.ndarray):
            return x
        return self._engine.take(arrays.to_numpy(x))

    def _give(self, x: Any, value: Value, kind: str) -> Any:
        """A result in the framework of the inputs; a key as a typed key for those who gave JAX arrays."""
        if kind != self._engine.native:
            x = arrays.from_numpy(arrays.to_numpy(x), kind)
        if kind == arrays.JAX and value.type.dtype.is_key:
            from .jax.engine import wrap_key

            return wrap_key(x, value.type.dtype)
        return x

    def _state(self, name: str) -> Value:
        name = self.graph.aliases.get(name, name)
        if name not in self._states:
            raise InputError(f"there is no state {name!r}; the graph has {', '.join(self._states) or 'none'}")
        return self._states[name]

    def _checked(self, name: str, x: Any) -> Any:
        value = self._state(name)
        return call.key_data(x, value) if value.type.dtype.is_key else call.checked(value, x)[1]


class AutoCompiled(_Callable):
    """The fastest engine for a graph, found by measuring at the first call, remembered for the next process."""

    def __init__(self, graph: Graph, device: str | None = None):
        self.graph, self.device = graph, device
        self._chosen: Compiled | None = None
        self._lock = threading.Lock()

    @property
    def engine(self) -> str:
        """The chosen engine's name; ``auto`` before the first call."""
        return self._chosen.engine if self._chosen else "auto"

    def flat(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        seed: int | None = None,
        states: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """All results in order (outputs, then states), in the kind of the inputs."""
        if self._chosen is None:
            from .auto import choose

            with self._lock:
                if self._chosen is None:
                    self._chosen = choose(self.graph, self.device, args, kwargs)
        return self._chosen.flat(args, kwargs, seed, states)


def compile(graph: GraphLike, engine: str = "auto", device: str | None = None) -> Compiled | AutoCompiled:
    """A callable that runs ``graph`` on ``engine`` (auto, numpy, torch, jax, onnx, torch.compile) and ``device``.

    It takes the inputs of the captured program, in their structure, by position or by name, any
    input also by its own name, and gives the outputs in theirs, as arrays of the kind that went in
    (NumPy, torch or JAX). ``device`` is ``cpu``, ``cuda``, ``cuda:N`` or ``tpu``; torch and JAX arrays
    stay there. ``auto`` measures the engines at the first call, with and without the passes of level 3, and
    remembers the fastest; `tune` tries torch.compile too, which takes longer to prepare.
    ``.step(..., states=...)`` gives the outputs and the new states.

    Raises EngineError when the engine or device is not there, MissingPackageError when the engine's
    framework is not installed, UnsupportedError naming every operation the engine cannot run, and
    InputError when weights hold no data. A call raises InputError for wrong inputs and EngineError
    naming operation, scope and source when one fails.
    """
    graph = as_graph(graph)
    unbound = [v.name for v, array in graph.data.items() if array is None]
    if unbound:
        rest = f" and {len(unbound) - call.SHOWN} more" if len(unbound) > call.SHOWN else ""
        raise InputError(
            f"{len(unbound)} weight(s) hold no data: {', '.join(map(repr, unbound[: call.SHOWN]))}{rest}; "
            "load the graph with weights=... or use graph.bind(...)"
        )
    return AutoCompiled(graph, device) if engine == "auto" else Compiled(graph, engine, device)


def run(
    graph: GraphLike,
    *inputs: Any,
    engine: str = "auto",
    device: str | None = None,
    seed: int | None = None,
    weights: Any = None,
    keep: Sequence[str] | None = None,
    **named_inputs: Any,
) -> Any:
    """Run a graph, or the file at a path, once. For more calls, `compile` it.

    ``seed`` makes the random keys that are not given (fresh entropy without one). ``weights`` are
    bound by name first (a dict of arrays, or paths of safetensors files). With ``keep`` the result is
    ``(outputs, {name: array})`` with the named intermediate values.

    Raises InputError for wrong inputs, weights and names, and what `compile` and `load` raise.
    """
    if isinstance(graph, (str, os.PathLike)) and weights is not None:
        from unigraph.file import load

        graph, weights = load(graph, weights=weights), None
    graph = as_graph(graph)
    if weights is not None:
        graph = graph.bind(weights)
    if keep is None:
        return compile(graph, engine, device)(*inputs, seed=seed, **named_inputs)
    kept = [_named(graph, name) for name in keep]
    wider = graph.replace(outputs=(*graph.outputs, *kept), states=())
    results = compile(wider, engine, device).flat(inputs, named_inputs, seed)
    n = len(graph.outputs)
    return call.unflatten_outputs(graph, results[:n]), dict(zip(keep, results[n:], strict=True))


def _named(graph: Graph, name: str) -> Value:
    try:
        return graph.value(name)
    except KeyError:
        names = [v.name for v in graph.nodes if v.name]
        close = difflib.get_close_matches(name, names, 3) or names[: call.SHOWN]
        raise InputError(
            f"keep: no value is called {name!r}; there are {', '.join(close) or 'no named values'}"
        ) from None
