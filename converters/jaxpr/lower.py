"""The walk over a jaxpr: each equation goes to the lowering row of its primitive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from unigraph.builder import GraphBuilder
from unigraph.dtypes import DType
from unigraph.errors import Gaps, TypeCheckError, Unsupported
from unigraph.graph import Graph, Value
from unigraph.opdef import OpDef, registry
from unigraph.ops import idioms
from unigraph.types import TensorType

from . import compat

Row = Callable[..., Any]

# Rows that users add for primitives of their own (or to override ours).
_user_rows: dict[str, Row] = {}

# An integer or bool array up to this many elements that a function closes over is part of the
# program (an index table, a mask), not a parameter.
SMALL_TABLE = 1024

# Derivative rules are kept for derivatives of the first and second order. The rule of f calls f, with its
# rule, so without an end they would go on for ever.
MOST_RULES = 2


def lower_jax(primitive: Any) -> Callable[[Row], Row]:
    """Decorator that teaches the importer a primitive.

    The row is called as ``row(b, eqn, *values)`` with the builder, the jaxpr equation and the graph
    values of its operands; it returns one value, or a tuple for several outputs, of exactly the
    types of ``eqn.outvars``. Raises nothing itself; a row raises `unigraph.errors.Unsupported` for a
    case it cannot carry.

    >>> @lower_jax(my_primitive_p)
    ... def _(b, eqn, x):
    ...     return b.mul(x, x)
    """

    def register(row: Row) -> Row:
        _user_rows[getattr(primitive, "name", primitive)] = row
        return row

    return register


class Capture:
    """What one capture shares among its builders: rows, gaps, places, and the mesh axes in scope."""

    def __init__(self, rows: Mapping[str, Row], task: str):
        self.rows: dict[str, Row] = {**rows, **_user_rows}
        self.gaps = Gaps(task)
        self.places = compat.Places()
        self.type = compat.TypeReader()
        self.axes: dict[str, int] = {}
        self.order = 0  # how many derivative rules we are inside of
        self.lost_rules: list[str] = []  # functions whose derivative rules could not be carried, and why
        self.prints: list[str] = []  # where debug prints are left out
        self.closures: dict[int, Any] = {}  # id -> array, so that ids stay valid

    def note_prints(self, jaxpr: Any) -> None:
        """Remember where debug prints are left out."""
        for eqn in jaxpr.eqns:
            if eqn.primitive.name in _PRINTS:
                self.prints.append(self.places.source(eqn) or self.places.scope(eqn))

    @contextmanager
    def within(self, order: int) -> Iterator[None]:
        """Inside, we are in this many derivative rules."""
        before, self.order = self.order, order
        try:
            yield
        finally:
            self.order = before


class JaxprBuilder(GraphBuilder):
    """A builder that can lower whole jaxprs into itself."""

    def __init__(self, capture: Capture, name: str = "", inner: bool = False):
        super().__init__(name)
        self.capture = capture
        self.inner = inner
        self._arrays: dict[int, Value] = {}

    # -- what rows need --------------------------------------------------------------------------

    def type_of(self, var: Any) -> TensorType:
        """The graph type of a jaxpr variable (or of its abstract value)."""
        return self.capture.type(getattr(var, "aval", var))

    def spread(self, shape: Sequence[Any], values: Iterable[Value]) -> list[Value]:
        """The values broadcast to ``shape``: scalars, and axes of size 1, as JAX's operations allow."""
        return [v if v.type.shape == shape else self.broadcast_to(v, shape) for v in values]

    def broadcast_to(self, x: Value, shape: Sequence[Any]) -> Value:
        return idioms.broadcast_to(self, x, shape)

    def cast(self, x: Value, dtype: DType) -> Value:
        return idioms.cast(self, x, dtype)

    def op(self, name: str, *operands: Value, **attrs: Any) -> Any:
        return self.emit(registry()[name], operands, attrs)

    def run(self, op: OpDef, operands: Sequence[Value], regions: Sequence[Graph], **attrs: Any) -> tuple[Value, ...]:
        """Emit an op with regions; always a tuple."""
        out = self.emit(op, operands, attrs, regions)
        return out if isinstance(out, tuple) else (out,)

    def closed_over(self, x: Any) -> Value:
        """A closed-over array: one weight for each array, a constant for scalars and small tables."""
        found = self._arrays.get(id(x))
        if found is None:
            found = self._arrays[id(x)] = self._closure(x)
            self.capture.closures[id(x)] = x
        return found

    def closed_values(self) -> Iterable[Value]:
        """The values that stand for closed-over arrays."""
        return self._arrays.values()

    def _closure(self, x: Any) -> Value:
        if compat.is_key(x):
            impl = compat.key_impl(x.dtype)
            return self.op("rng_wrap", self.constant(np.asarray(jax.random.key_data(x))), impl=impl)
        array = np.asarray(x)
        inexact = array.dtype.kind not in "biu"
        if self.inner or array.ndim == 0 or (not inexact and array.size <= SMALL_TABLE):
            return self.constant(array)
        count = sum(v.name.startswith("closure.") for v in self._data)
        return self.weight(f"closure.{count}", array)

    # -- jaxprs ----------------------------------------------------------------------------------

    def inline(self, jaxpr: Any, inputs: Sequence[Value], scope: str = "") -> tuple[Value, ...]:  # type: ignore[override]
        """Lower all equations of ``jaxpr`` here; returns its outputs. (A `Graph` is copied in.)"""
        if isinstance(jaxpr, Graph):
            return super().inline(jaxpr, inputs)
        if scope:
            with self.at(scope=f"{self.scope}.{scope}" if self.scope else scope):
                return self._walk(jaxpr, inputs)
        return self._walk(jaxpr, inputs)

    def inner_builder(self, arrays: Sequence[Any] = ()) -> JaxprBuilder:
        """The builder of a region at this place, whose first inputs stand for ``arrays`` (see `nested_arrays`)."""
        inner = JaxprBuilder(self.capture, inner=True)
        inner.scope, inner.source = self.scope, self.source
        for i, x in enumerate(arrays):
            array = np.asarray(x)
            inner._arrays[id(x)] = inner.input(f"c{i}", array.dtype, array.shape)
        return inner

    def subgraph(self, jaxpr: Any, arrays: Sequence[Any] = (), consts: Sequence[Any] = ()) -> Graph:
        """``jaxpr`` as a closed region whose first inputs stand for ``arrays``."""
        inner = self.inner_builder(arrays)
        plain, _ = compat.unclosed(jaxpr)
        types = [self.type_of(v) for v in plain.invars]
        values = [inner.input(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
        return inner.build(inner._walk(jaxpr, values, consts))

    def combiner(self, jaxpr: Any, consts: Sequence[Any] = ()) -> Graph:
        """A region that combines scalars. Engines run it on whole arrays, which derivative rules would hinder."""
        with self.capture.within(MOST_RULES):
            return self.subgraph(jaxpr, consts=consts)

    def nested_arrays(self, *jaxprs: Any) -> list[Any]:
        """Arrays that the jaxprs hold inside and that must not be buried in a region."""
        found: dict[int, Any] = {}
        for jaxpr in jaxprs:
            _collect(jaxpr, found)
        return list(found.values())

    def _walk(self, jaxpr: Any, inputs: Sequence[Value], extra: Sequence[Any] = ()) -> tuple[Value, ...]:
        plain, consts = compat.unclosed(jaxpr)
        env: dict[Any, Value] = dict(zip(plain.invars, inputs, strict=True))
        env.update((v, self.closed_over(c)) for v, c in zip(plain.constvars, consts or extra, strict=True))
        before = self.scope, self.source
        eqns = _live(plain)
        self.capture.note_prints(plain)
        factors = _factors(plain, eqns)
        for eqn in eqns:
            values = [self.read(env, v) for v in eqn.invars]
            if eqn.outvars and eqn.outvars[0] in factors and eqn.primitive.name == "stop_gradient":
                env[eqn.outvars[0]] = values[0]
                continue
            env.update(zip(eqn.outvars, self._equation(eqn, values, before[0])))
        self.scope, self.source = before
        return tuple(self.read(env, v) for v in plain.outvars)

    def read(self, env: Mapping[Any, Value], var: Any) -> Value:
        """The value of a variable, or of a literal."""
        if not isinstance(var, compat.Literal):
            return env[var]
        if np.ndim(var.val):
            return self.closed_over(var.val)
        return self.constant(np.asarray(var.val), self.type_of(var).dtype)

    def _equation(self, eqn: Any, values: Sequence[Value], prefix: str) -> Sequence[Value]:
        capture = self.capture
        name = eqn.primitive.name
        scope = capture.places.scope(eqn)
        self.scope = f"{prefix}.{scope}" if prefix and scope else prefix or scope
        self.source = capture.places.source(eqn)
        row = capture.rows.get(name)
        try:
            if row is None:
                raise Unsupported(
                    "no lowering for this primitive", "teach it with @unigraph.lower_jax(primitive), or rewrite it"
                )
            out = row(self, eqn, *values)
        except (Unsupported, TypeCheckError) as error:
            reason, hint = (error.reason, error.hint) if isinstance(error, Unsupported) else (str(error), "")
            where = f"{self.scope} ({self.source})" if self.scope and self.source else self.scope or self.source
            capture.gaps.add(name, reason, where, hint)
            return [self.placeholder(self.type_of(v)) for v in eqn.outvars]
        outputs = (out,) if isinstance(out, Value) else out
        for value, var in zip(outputs, eqn.outvars, strict=True):
            wanted = self.type_of(var)
            if value.type is not wanted and value.type != wanted:
                _check(name, value.type, wanted)
        return outputs

    def placeholder(self, type_: TensorType) -> Value:
        """Some value of that type, so that a walk can go on after a gap."""
        if type_.dtype.is_key:
            words = self.full(0, "u32", (*type_.shape, type_.dtype.key_words))
            return self.op("rng_wrap", words, impl=type_.dtype.name[4:-1])
        return self.full(0, type_.dtype, type_.shape)


def _check(name: str, found: TensorType, wanted: TensorType) -> None:
    from unigraph.types import same_shape

    if found.dtype is not wanted.dtype or not same_shape(found.shape, wanted.shape):
        raise TypeCheckError(f"the lowering of {name} gives {found} where the jaxpr says {wanted}", "from_jax_c1")


# Effects worth nothing to a graph, and those that a graph cannot have.
_SILENT = frozenset({"debug_callback", "debug_print", "inspect_sharding", "shape_assertion", "dce_sink"})
_PRINTS = frozenset({"debug_callback", "debug_print"})
_LOUD = frozenset({"io_callback", "pure_callback", "ffi_call", "unreachable"})


def _live(jaxpr: Any) -> list[Any]:
    """The equations that an output needs, in order (and those with effects that must be refused)."""
    needed = {v for v in jaxpr.outvars if not isinstance(v, compat.Literal)}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        if name in _SILENT:
            continue
        if name in _LOUD or not needed.isdisjoint(eqn.outvars) or _refs(eqn):
            kept.append(eqn)
            needed.update(v for v in eqn.invars if not isinstance(v, compat.Literal))
    return kept[::-1]


def _factors(jaxpr: Any, eqns: Sequence[Any]) -> set[Any]:
    """Variables that serve only to solve linear systems.

    JAX stops the gradient of a factorisation and differentiates the solve by a rule of its own. A graph
    keeps the solve alone, so the gradient has to pass through the factors: they must not be stopped.
    """
    if not any(e.primitive.name == "custom_linear_solve" for e in eqns):
        return set()
    elsewhere = {v for v in jaxpr.outvars if not isinstance(v, compat.Literal)}
    solving: set[Any] = set()
    for eqn in reversed(eqns):
        operands = [v for v in eqn.invars if not isinstance(v, compat.Literal)]
        if eqn.primitive.name == "custom_linear_solve":
            lengths = eqn.params["const_lengths"]
            first = lengths.matvec + lengths.vecmat
            within = slice(first, first + lengths.solve + lengths.transpose_solve)
            consts = {v for v in eqn.invars[within] if not isinstance(v, compat.Literal)}
            solving |= consts
            elsewhere.update(v for v in operands if v not in consts)
        elif elsewhere.isdisjoint(eqn.outvars) and not solving.isdisjoint(eqn.outvars):
            solving.update(operands)
        else:
            elsewhere.update(operands)
    return solving - elsewhere


def _refs(eqn: Any) -> bool:
    """True when the equation writes into a mutable reference."""
    return any(type(e).__name__ in ("WriteEffect", "AccumEffect") for e in getattr(eqn, "effects", ()))


def _collect(x: Any, found: dict[int, Any]) -> None:
    plain, consts = compat.unclosed(x)
    if not hasattr(plain, "eqns"):
        return
    found.update((id(c), c) for c in consts if np.ndim(c) and not compat.is_key(c))
    for eqn in plain.eqns:
        found.update((id(v.val), v.val) for v in eqn.invars if isinstance(v, compat.Literal) and np.ndim(v.val))
        for param in eqn.params.values():
            for item in param if isinstance(param, tuple) else (param,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    _collect(item, found)
