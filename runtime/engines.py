"""Engines: ways to run a graph. ``compile`` prepares one, ``run`` is the one-liner.

Each engine module offers ``Engine(graph, device)`` with ``run(list of arrays) -> list`` over its own
arrays, ``native`` (the array kind it works on), and ``devices()``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unigraph.dtypes import dtype
from unigraph.errors import EngineError, InputError, importing
from unigraph.graph import KEY, Graph

from . import arrays, call

# Where each engine lives; the ONNX engine stands with the exporter it needs.
ENGINES: Mapping[str, str] = {
    "numpy": "unigraph.runtime.numpy.engine",
    "torch": "unigraph.runtime.torch.engine",
    "jax": "unigraph.runtime.jax.engine",
    "onnx": "unigraph.converters.onnx.session",
}


class Engine(Protocol):
    """What an engine module's ``Engine`` class is."""

    native: str

    def __init__(self, graph: Graph, device: str | None = None): ...

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Results (outputs, then new states) for flat inputs of the native kind."""
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


class Compiled:
    """A graph prepared for one engine: call it like the captured program. Safe to share by threads.

    Results have the captured output structure, as arrays of the kind that went in.
    """

    def __init__(self, graph: Graph, engine: str, device: str | None = None):
        self.graph, self.engine, self.device = graph, engine, device
        module = engine_module(engine)
        self._engine: Engine = module.Engine(graph, device)

    def __call__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        """The outputs. Raises InputError for wrong inputs, EngineError when the engine fails."""
        return call.unflatten_outputs(self.graph, self.flat(args, kwargs, seed)[: len(self.graph.outputs)])

    def step(self, *args: Any, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """The outputs, and the new value of each state by name."""
        results = self.flat(args, kwargs, seed)
        n = len(self.graph.outputs)
        states = {state.name: x for (state, _), x in zip(self.graph.states, results[n:], strict=True)}
        return call.unflatten_outputs(self.graph, results[:n]), states

    def flat(self, args: Sequence[Any], kwargs: Mapping[str, Any], seed: int | None = None) -> list[Any]:
        """All results in order (outputs, then states), in the kind of the inputs."""
        leaves, kind = call.flatten_call(self.graph, args, kwargs, seed)
        native = self._engine.native
        sizes: dict[str, Any] = {}
        prepared = []
        for value, x in zip(self.graph.inputs, leaves, strict=True):
            if value.role == KEY:
                prepared.append(arrays.from_numpy(x, native))
                continue
            own = arrays.kind_of(x)
            if own != native:
                x = arrays.to_numpy(x, value.type)
                call.check_array(value, dtype(x.dtype), x.shape, sizes, self.graph)
                x = arrays.from_numpy(x, native)
            else:
                x = np.asarray(x) if native == arrays.NUMPY else x
                call.check_array(value, self._dtype(x), tuple(x.shape), sizes, self.graph)
            prepared.append(x)
        call.check_constraints(self.graph, sizes)
        results = self._engine.run(prepared)
        if kind == native:
            return list(results)
        return [arrays.from_numpy(arrays.to_numpy(r), kind) for r in results]

    def _dtype(self, x: Any) -> Any:
        if self._engine.native == arrays.TORCH:
            from .torch.dtypes import from_torch

            return from_torch(x.dtype)
        return dtype(x.dtype)


class AutoCompiled:
    """The fastest engine for a graph, found by measuring at the first call with given shapes."""

    engine = "auto"

    def __init__(self, graph: Graph, device: str | None = None):
        self.graph, self.device = graph, device
        self._chosen: Compiled | None = None
        self._lock = threading.Lock()

    def _choose(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Compiled:
        from .auto import choose

        with self._lock:
            if self._chosen is None:
                self._chosen = choose(self.graph, self.device, args, kwargs)
            return self._chosen

    def __call__(self, *args: Any, seed: int | None = None, **kwargs: Any) -> Any:
        return (self._chosen or self._choose(args, kwargs))(*args, seed=seed, **kwargs)

    def step(self, *args: Any, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        return (self._chosen or self._choose(args, kwargs)).step(*args, seed=seed, **kwargs)


def compile(graph: Graph, engine: str = "auto", device: str | None = None) -> Compiled | AutoCompiled:
    """A callable that runs ``graph`` on ``engine`` (auto, numpy, torch, jax, onnx) and ``device``.

    ``device`` is ``cpu``, ``cuda``, ``cuda:N`` or ``tpu``. Raises EngineError when the engine or
    device is not there, UnsupportedError naming every operation the engine cannot run, and
    InputError when a weight holds no data.
    """
    unbound = [name for name, array in graph.weights.items() if array is None]
    if unbound:
        raise InputError(
            f"{len(unbound)} weights hold no data (first {unbound[0]!r}): load the graph with weights=... or graph.bind(...)"
        )
    return AutoCompiled(graph, device) if engine == "auto" else Compiled(graph, engine, device)


def run(
    graph: Graph | str | Path,
    *inputs: Any,
    engine: str = "auto",
    device: str | None = None,
    seed: int | None = None,
    weights: Any = None,
    keep: Sequence[str] | None = None,
    **named_inputs: Any,
) -> Any:
    """Run a graph, or the file at a path, once.

    ``weights`` are bound by name first (arrays, or paths of safetensors files). With ``keep`` the
    result is ``(outputs, {name: array})`` with the named intermediate values. Raises what `compile`
    and a call of its result raise.
    """
    if not isinstance(graph, Graph):
        from unigraph.file import load

        graph = load(graph, weights=weights)
    elif weights is not None:
        graph = graph.bind(weights)
    if keep is None:
        return compile(graph, engine, device)(*inputs, seed=seed, **named_inputs)
    kept = [graph.value(name) for name in keep]
    wider = graph.replace(outputs=(*graph.outputs, *kept), states=())
    compiled = compile(wider, "numpy" if engine == "auto" else engine, device)
    assert isinstance(compiled, Compiled)
    results = compiled.flat(inputs, named_inputs, seed)
    n = len(graph.outputs)
    return call.unflatten_outputs(graph, results[:n]), dict(zip(keep, results[n:], strict=True))
