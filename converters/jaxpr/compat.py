"""The one place that touches what JAX does not promise to keep: private modules and version differences."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import dtypes as jax_dtypes
from jax.extend import core as jax_core

try:
    from jax._src import source_info_util as _source_info
except ImportError:  # moved or gone: graphs then carry no source lines
    _source_info = None  # type: ignore[assignment]

from unigraph import dims as sizes
from unigraph.dtypes import DType, bool_, dtype
from unigraph.types import TensorType

Literal = jax_core.Literal
# What tracing raises when a program asks something of a symbolic size that its bounds do not decide.
InconclusiveSize: type[Exception] = importlib.import_module("jax._src.core").InconclusiveDimensionOperation


def unclosed(jaxpr: Any) -> tuple[Any, tuple[Any, ...]]:
    """The equations and the constants of a jaxpr, closed or not (newer versions merge the two classes)."""
    consts = tuple(getattr(jaxpr, "consts", ()))
    return getattr(jaxpr, "jaxpr", jaxpr), consts


_x64_home = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
_x64_scope: Any = _x64_home.enable_x64


@contextmanager
def enable_x64() -> Iterator[None]:
    """A scope in which 64-bit types are kept."""
    with _x64_scope(True):
        yield


def x64_enabled() -> bool:
    return bool(jax_dtypes.canonicalize_dtype(np.float64) == np.float64)


# -- types ---------------------------------------------------------------------------------------


def is_key(x: Any) -> bool:
    """True for a typed key array, its abstract value or its dtype."""
    kind = getattr(x, "dtype", x)
    return hasattr(kind, "type") and jax_dtypes.issubdtype(kind, jax_dtypes.prng_key)


@lru_cache(maxsize=256)
def element_type(jax_dtype: Any) -> DType:
    """The graph dtype of a jax dtype; a key dtype keeps the kind of its generator.

    Raises TypeError for a dtype (or a kind of key) that has no place in a graph.
    """
    if is_key(jax_dtype):
        return dtype(f"key<{key_impl(jax_dtype)}>")
    if jax_dtype == jax_dtypes.float0:
        return bool_
    return dtype(np.dtype(jax_dtype))


def key_impl(key_dtype: Any) -> str:
    """The generator's name: ``threefry2x32``, ``rbg`` or ``unsafe_rbg``."""
    return impl_name(key_dtype._impl)


def key_dtype(kind: DType) -> Any:
    """The jax dtype of keys of a graph dtype."""
    impl = kind.name[4:-1]
    return jax.eval_shape(lambda: jax.random.key(0, impl=impl)).dtype


def impl_name(impl: Any) -> str:
    return str(getattr(impl, "name", impl))


class TypeReader:
    """Abstract values to graph types, remembered."""

    def __init__(self) -> None:
        self._types: dict[Any, TensorType] = {}

    def __call__(self, aval: Any) -> TensorType:
        key = (aval.dtype, aval.shape)
        found = self._types.get(key)
        if found is None:
            found = TensorType(element_type(aval.dtype), map(dim, aval.shape))
            self._types[key] = found
        return found


# -- symbolic sizes -------------------------------------------------------------------------------


def is_symbolic(size: Any) -> bool:
    return hasattr(size, "_sorted_terms")


def dim(size: Any) -> Any:
    """A size of jax (an int, or an expression of ``jax.export.symbolic_shape``) as a size of the graph."""
    if type(size) is int:
        return size
    return _expression(size) if is_symbolic(size) else int(size)


@lru_cache(maxsize=4096)
def _expression(size: Any) -> Any:
    total: Any = 0
    for term, count in size._sorted_terms:
        product: Any = int(count)
        for factor, power in term._factors:
            for _ in range(int(power)):
                product = product * _factor(factor)
        total = total + product
    return sizes.normal(total)


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "floordiv": sizes.floordiv,
    "mod": sizes.mod,
    "max": sizes.maximum,
    "min": sizes.minimum,
}


def _factor(factor: Any) -> Any:
    if factor.var is not None:
        return sizes.symbol(factor.var)
    return _OPERATIONS[factor.operation](*map(dim, factor.operands))


def dims(shape: Any) -> tuple[Any, ...]:
    return tuple(map(dim, shape))


# -- places ---------------------------------------------------------------------------------------


# Our own frames, which lie between JAX and the user's function.
_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = frozenset({_HERE, os.path.dirname(_HERE)})


class Places:
    """Scope and source line of equations, remembered per name stack and per traceback."""

    def __init__(self) -> None:
        self._scopes: dict[Any, str] = {}
        self._sources: dict[Any, str] = {}

    def scope(self, eqn: Any) -> str:
        stack = eqn.source_info.name_stack
        found = self._scopes.get(stack)
        if found is None:
            found = self._scopes[stack] = str(stack).replace("/", ".")
        return found

    def source(self, eqn: Any) -> str:
        """``file.py:12`` of the innermost frame outside jax, or an empty string."""
        traceback = eqn.source_info.traceback
        if traceback is None or _source_info is None:
            return ""
        found = self._sources.get(traceback)
        if found is None:
            frames = _source_info.user_frames(traceback)
            frame = next((f for f in frames if os.path.dirname(f.file_name) not in _OWN), None)
            found = f"{os.path.basename(frame.file_name)}:{frame.start_line}" if frame else ""
            self._sources[traceback] = found
        return found


def function_name(eqn: Any) -> str:
    """The name of the function that an equation calls, or "" where nobody gave it one."""
    if "_prim" in eqn.params:
        return type(eqn.params["_prim"]).__name__
    plain, _ = unclosed(eqn.params["call_jaxpr"])
    name = str(getattr(getattr(plain, "debug_info", None), "func_name", ""))
    return name if name.isidentifier() else ""


def rebind(eqn: Any, operands: Any) -> Any:
    """What an equation gives for these operands: a list, also of one."""
    out = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return out if eqn.primitive.multiple_results else [out]


def over_arrays(jaxpr: Any, consts: Any, aval: Any) -> Any:
    """The jaxpr of a function of scalars (its first argument counts), mapped over arrays like ``aval``."""
    plain, closed = unclosed(jaxpr)

    def function(x: Any) -> Any:
        return jax.core.eval_jaxpr(plain, closed or consts, x, x)[0]

    for _ in aval.shape:
        function = jax.vmap(function)
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a scan every step reads, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(list(consts)), len(list(carry))


def expanded(eqn: Any) -> Any:
    """What a primitive written in Python (``jax.experimental.hijax``) stands for, as a jaxpr."""
    primitive = eqn.params["_prim"]

    def function(*flat: Any) -> list[Any]:
        return jax.tree_util.tree_leaves(primitive.expand(*jax.tree_util.tree_unflatten(primitive.in_tree, flat)))

    return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars))


# -- structures -----------------------------------------------------------------------------------


def key_name(entry: Any) -> str | int:
    """The plain name of one step of a pytree path: a dict key, an index or a field name."""
    for field in ("key", "idx", "name"):
        found = getattr(entry, field, None)
        if found is not None:
            return found if isinstance(found, int) else str(found)
    return str(entry).strip("[]'.")


def gather_mode(mode: Any) -> str:
    """``clip``, ``fill`` or ``promise``."""
    name = jax.lax.GatherScatterMode.from_any(mode).name if mode is not None else "FILL_OR_DROP"
    return {"CLIP": "clip", "FILL_OR_DROP": "fill", "PROMISE_IN_BOUNDS": "promise", "ONE_HOT": "fill"}[name]
