"""JAX's public functions: each called on generated arguments, captured, saved, loaded, run on an engine, held against
its jitted self.

The functions are enumerated from the namespaces. Each has calls in a table of ``jax_api`` or a reason in
``jax_api/left_out.toml``; ``unknown`` lists those with neither, which is what a new version of JAX brings.
A name that stands for the same object as another is covered by it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib
import inspect
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

import unigraph as ug
from unigraph.errors import UnsupportedError

from . import NotApplicable
from .jax_api import Call, arrays
from .jax_suite import JUDGES, equal

ENGINES = ("torch", "jax", "numpy", "onnx")
LISTED = True  # docs/conformance.md names each failure
HERE = Path(__file__).parent / "jax_api"
MODULES = (
    "numpy_elementwise",
    "numpy_reduce",
    "numpy_shape",
    "numpy_algebra",
    "nn",
    "random",
    "scipy",
    "stats",
    "lax",
    "control",
)
NAMESPACES = (
    "jax.nn",
    "jax.nn.initializers",
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.random",
    "jax.lax",
    "jax.lax.linalg",
    "jax.ops",
    "jax.image",
    "jax.scipy.special",
    "jax.scipy.linalg",
    "jax.scipy.signal",
    "jax.scipy.ndimage",
    "jax.scipy.fft",
    "jax.scipy.interpolate",
    "jax.scipy.integrate",
    "jax.scipy.cluster.vq",
    "jax.scipy.optimize",
    "jax.scipy.sparse.linalg",
    "jax.scipy.spatial.transform",
    "jax.scipy.stats",
)


@cache
def functions() -> dict[str, Any]:
    """Every public callable of the namespaces by its full name, each object once. Modules of
    ``jax.scipy.stats`` are distributions and count as namespaces; types of numbers are none of functions."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for namespace in NAMESPACES:
        module = importlib.import_module(namespace)
        spaces = [(namespace, module)]
        if namespace == "jax.scipy.stats":
            spaces += [(f"{namespace}.{n}", m) for n, m in _public(module) if inspect.ismodule(m)]
        for prefix, space in spaces:
            for name, value in _public(space):
                if callable(value) and id(value) not in seen and not _is_dtype(value):
                    seen.add(id(value))
                    found[f"{prefix}.{name}"] = value
    return found


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names on their way out
        for name in dir(module):
            if not name.startswith("_"):
                try:
                    yield name, getattr(module, name)
                except AttributeError:  # gone, and the module says so
                    continue


def _is_dtype(value: Any) -> bool:
    return isinstance(value, type) and (hasattr(value, "dtype") or issubclass(value, np.generic))


@cache
def table() -> dict[str, tuple[Call, ...]]:
    """The calls of each function; those of names that this version of JAX lacks are left out."""
    rows: dict[str, tuple[Call, ...]] = {}
    for name in MODULES:
        rows.update(importlib.import_module(f"tests.conformance.jax_api.{name}").TABLE)
    return {name: calls for name, calls in rows.items() if _find(name) is not None}


@cache
def left_out() -> dict[str, str]:
    """The reason by pattern of name why a callable has no calls."""
    rows: dict[str, str] = tomllib.loads((HERE / "left_out.toml").read_text())["names"]
    return rows


def unknown() -> list[str]:
    """Functions with neither calls nor a reason."""
    covered = {id(_find(name)) for name in table()}
    return [
        name
        for name, value in functions().items()
        if id(value) not in covered and not any(fnmatch.fnmatchcase(name, pattern) for pattern in left_out())
    ]


@cache
def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


def cases() -> Iterator[str]:
    """``namespace/function/index`` of every call. Of several names for one object the first has the calls."""
    seen: set[int] = set()
    for name, calls in table().items():
        if id(_find(name)) not in seen:
            seen.add(id(_find(name)))
            namespace, _, function = name.rpartition(".")
            yield from (f"{namespace}/{function}/{index}" for index in range(len(calls)))


def group(case: str) -> str:
    """The namespace."""
    return case.partition("/")[0]


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised."""
    namespace, function, index = case.split("/")
    call = table()[f"{namespace}.{function}"][int(index)]
    graph, arguments, expected = captured(case)
    if call.refusal:
        return None if isinstance(graph, UnsupportedError) and call.refusal in str(graph) else f"not refused: {graph!r}"
    if isinstance(graph, Exception):
        raise graph
    actual = [np.asarray(x) for x in jax.tree_util.tree_leaves(ug.compile(graph, engine)(*arguments))]
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, expected {len(expected)}"
    for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != e.shape or a.dtype != e.dtype:
            return f"output {number} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
    if call.judge:
        return JUDGES[call.judge](arguments, actual, expected, call.factor)
    return equal(actual, expected, call.factor)


@lru_cache(maxsize=2)
def captured(case: str) -> tuple[Any, list[Any], list[np.ndarray]]:
    """The graph as loaded from its file (or what kept it from being made), arguments, and JAX's results."""
    namespace, name, index = case.split("/")
    call = table()[f"{namespace}.{name}"][int(index)]
    leaves, structure = jax.tree_util.tree_flatten((call.arguments, dict(call.options)))
    random = np.random.RandomState(int.from_bytes(hashlib.sha1(case.encode()).digest()[:4]))
    made = {i: arrays.make(leaf, random) for i, leaf in enumerate(leaves) if arrays.is_array(leaf)}
    function, body = _find(f"{namespace}.{name}"), call.body or (lambda f, *given, **options: f(*given, **options))

    def program(*given: Any) -> Any:
        filled = list(leaves)
        for place, value in zip(made, given, strict=True):
            filled[place] = value
        positional, options = jax.tree_util.tree_unflatten(structure, filled)
        return jax.tree_util.tree_map(_words, body(function, *positional, **options))

    arguments = list(made.values())
    with jax.enable_x64(any(map(arrays.is_wide, leaves))), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected: list[np.ndarray] = []
        if not call.refusal:
            try:
                expected = [np.asarray(x) for x in jax.tree_util.tree_leaves(jax.jit(program)(*arguments))]
            except Exception as error:
                raise NotApplicable(f"{type(error).__name__}: {error}"[:300]) from None
        try:
            graph: Any = ug.from_jax(program, *arguments)
            with tempfile.TemporaryDirectory() as folder:
                graph.save(Path(folder) / "case.ugraph")
                graph = ug.load(Path(folder) / "case.ugraph")
        except Exception as error:  # whatever the importer raises is the result
            graph = error
    return graph, arguments, expected


def _words(x: Any) -> Any:
    """Keys as their words, which NumPy can hold."""
    return jax.random.key_data(x) if hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
