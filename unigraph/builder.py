"""The only constructor of operations: it normalises attributes, infers types, refuses bad ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import dims
from .dims import Constraint
from .dtypes import dtype
from .errors import GraphError, TypeCheckError
from .graph import BUFFER, CONSTANT, INPUT, KEY, NAMED, PRODUCED, STATE, WEIGHT, Graph, Operation, Value
from .opdef import OpDef, registry, unknown_op
from .tree import DICT, LEAF, TUPLE, Signature, Tree, flatten
from .types import TensorType

Scalar = bool | int | float | complex


class GraphBuilder:
    """Builds a graph by hand or for an importer.

    >>> b = GraphBuilder("affine")
    >>> x = b.input("x", "f32", ("batch", 3))
    >>> w = b.weight("w", np.ones((3, 2), np.float32))
    >>> g = b.build(b.tanh(b.linear(x, w)))

    Every op of the language is a method: operands first, attributes by name, regions by name as
    functions ``(b, *values) -> values``. Elementwise ops take Python scalars, which become constants
    of the other operand's type. Nothing is broadcast or promoted implicitly.
    """

    def __init__(self, name: str = "", symbols: Mapping[str, Constraint] | None = None, limit: int = sys.maxsize):
        """``limit`` is the most operations that may be added; one more is a GraphError."""
        self.name = name
        self.limit = limit
        self.symbols: dict[str, Constraint] = dict(symbols or {})
        self.scope, self.source = "", ""
        self._inputs: list[Value] = []
        self._edges: list[Operation] = []
        self._data: dict[Value, Any] = {}
        self._states: dict[Value, Value | None] = {}
        self._aliases: dict[str, str] = {}
        self._transient: set[str] = set()
        self._known: set[Value] = set()
        self._names: set[str] = set()
        self._scalars: dict[tuple[str, bytes], Value] = {}

    # -- sources ---------------------------------------------------------------------------------

    def _source(self, name: str, type_: TensorType, role: str) -> Value:
        if role != CONSTANT:
            if not name:
                raise GraphError(f"a value of role {role} needs a name")
            if name in self._names:
                raise GraphError(f"two inputs or weights are called {name!r}")
            self._names.add(name)
        if any(type(d) is int and d < 0 for d in type_.shape):
            raise GraphError(f"{role} {name!r} has a negative size: {type_}")
        value = Value(type_, name, role)
        self._known.add(value)
        if role in (INPUT, KEY):
            self._inputs.append(value)
        return value

    def input(self, name: str, dtype_: Any, shape: Iterable[Any] = ()) -> Value:
        """A value that the caller passes. Dims are ints, symbol names or expressions."""
        type_ = TensorType(dtype_, shape)
        return self._source(name, type_, KEY if type_.dtype.is_key else INPUT)

    def key(self, name: str = "key", impl: str = "threefry2x32", shape: Iterable[Any] = ()) -> Value:
        """A random key that the caller passes (or makes from a seed)."""
        return self._source(name, TensorType(f"key<{impl}>", shape), KEY)

    def weight(self, name: str, array: Any = None, type: TensorType | None = None) -> Value:
        """A named parameter; without an array (but with a type) it is bound later."""
        return self._with_data(name, array, type, WEIGHT)

    def buffer(self, name: str, array: Any = None, type: TensorType | None = None) -> Value:
        """A named value like a weight, that training leaves alone."""
        return self._with_data(name, array, type, BUFFER)

    def state(self, name: str, array: Any = None, type: TensorType | None = None, *, transient: bool = False) -> Value:
        """A named value that calls update; see `update`. A ``transient`` one is in no checkpoint."""
        value = self._with_data(name, array, type, STATE)
        self._states[value] = None
        if transient:
            self._transient.add(name)
        return value

    def _with_data(self, name: str, array: Any, type_: TensorType | None, role: str) -> Value:
        if type_ is None:
            if array is None:
                raise GraphError(f"{role} {name!r} needs an array or a type")
            type_ = TensorType(dtype(array.dtype), array.shape)
        value = self._source(name, type_, role)
        self._data[value] = array
        return value

    def alias(self, name: str, value: Value) -> None:
        """Say that ``name`` is a further name of a weight, buffer or state (a tied weight)."""
        if value not in self._data or value.role not in NAMED:
            raise GraphError(f"alias {name!r}: {value!r} is no weight, buffer or state of this graph")
        if not name or name in self._names:
            raise GraphError(f"two inputs or weights are called {name!r}")
        self._names.add(name)
        self._aliases[name] = value.name

    def update(self, state: Value, new: Value) -> None:
        """Say that after a call ``state`` holds ``new`` (same type)."""
        if state not in self._states:
            raise GraphError(f"{state!r} is not a state of this graph")
        if new.type != state.type:
            raise TypeCheckError(f"state {state.name!r} is {state.type}, its update is {new.type}")
        self._states[state] = self._own(new, "update")

    def constant(self, data: Any, dtype_: Any = None) -> Value:
        """A constant array. Equal scalars are stored once."""
        array = np.asarray(data) if dtype_ is None else np.asarray(data, dtype=dtype(dtype_).numpy)
        type_ = TensorType(dtype(array.dtype), array.shape)
        if array.ndim == 0:
            key = (type_.dtype.name, array.tobytes())
            if key not in self._scalars:
                self._scalars[key] = self._constant(array, type_)
            return self._scalars[key]
        return self._constant(array, type_)

    def _constant(self, array: np.ndarray, type_: TensorType) -> Value:
        value = self._source("", type_, CONSTANT)
        self._data[value] = array
        return value

    def full(self, value: Scalar, dtype_: Any, shape: Iterable[Any] = ()) -> Value:
        """A constant of one repeated number (a scalar constant, broadcast)."""
        shape = tuple(shape)
        scalar = self.constant(value, dtype_)
        return self.broadcast_in_dim(scalar, shape=shape, broadcast_dimensions=()) if shape else scalar

    def full_like(self, x: Value, value: Scalar) -> Value:
        """``value`` repeated in the type of ``x``."""
        return self.full(value, x.type.dtype, x.type.shape)

    def size(self, dim: Any, dtype_: Any = "i64") -> Value:
        """A size as a scalar value: a constant when static, a ``dim_size`` operation otherwise."""
        dim = dims.normal(dim)
        return self.constant(dim, dtype_) if dims.is_static(dim) else self.dim_size(dim=dim, dtype=dtype_)

    # -- what is there so far --------------------------------------------------------------------

    @property
    def inputs(self) -> Sequence[Value]:
        """Inputs and keys, in order."""
        return self._inputs

    @property
    def sources(self) -> tuple[Value, ...]:
        """Inputs, keys, weights, states and constants."""
        return (*self._inputs, *self._data)

    @property
    def edges(self) -> Sequence[Operation]:
        """The operations, in order; `emit` adds to them."""
        return self._edges

    def is_taken(self, name: str) -> bool:
        """True when an input, weight, state or labelled value has this name."""
        return name in self._names

    def is_updated(self, state: Value) -> bool:
        """True when `update` was called for this state."""
        return self._states.get(state) is not None

    def array(self, value: Value) -> np.ndarray | None:
        """The data of a constant, or None for any other value."""
        return self._data[value] if value.role == CONSTANT else None

    def label(self, value: Value, name: str) -> Value:
        """Name a produced value, so that ``keep=`` and ``diff`` can point at it; a taken name is left alone."""
        if name and not value.name and name not in self._names and value.role == PRODUCED:
            self._names.add(name)
            object.__setattr__(value, "name", name)
        return value

    # -- operations ------------------------------------------------------------------------------

    def emit(
        self, op: OpDef, inputs: Sequence[Value], attrs: Mapping[str, Any] | None = None, regions: Sequence[Graph] = ()
    ) -> Any:
        """Add one operation; returns its output value, or a tuple for an op with several.

        Raises TypeCheckError naming op, scope, source and operand types.
        """
        inputs = tuple(inputs)
        known = self._known
        for value in inputs:
            if value not in known:
                self._own(value, op.name)
        types = tuple([v.type for v in inputs])
        try:
            attrs = op.normalize(attrs or {})
            result = op.infer_types(types, attrs, tuple(regions))
        except TypeCheckError as error:
            raise self._located(error, op, types) from None
        if len(self._edges) >= self.limit:
            raise GraphError(f"graph {self.name!r} grows beyond {self.limit} operations")
        single = type(result) is TensorType
        outputs = (Value(result),) if single else tuple([Value(t) for t in result])
        self._edges.append(Operation(op, inputs, outputs, attrs, tuple(regions), self.scope, self.source))
        known.update(outputs)
        return outputs[0] if single else outputs

    def _own(self, value: Any, what: str) -> Value:
        if value not in self._known:
            if not isinstance(value, Value):
                raise TypeCheckError(f"{what}: operands are values of the graph, got {type(value).__name__}")
            raise GraphError(f"{what}: {value!r} belongs to another graph (pass it into a region as an operand)")
        return value

    def _located(self, error: TypeCheckError, op: OpDef, types: Sequence[TensorType]) -> TypeCheckError:
        where = Operation(op, (), (), {}, (), self.scope, self.source).where
        message = f"{op.name}({', '.join(map(str, types))}){' at ' + where if where else ''}: {error.args[0]}"
        located = TypeCheckError(message)
        located.label = error.label
        return located

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = registry().get(name.rstrip("_") if name.endswith("_") else name)
        if op is None or name.startswith("__"):
            raise AttributeError(unknown_op(name))

        def apply(*operands: Any, **options: Any) -> Any:
            return self.apply(op, operands, options)

        return apply

    def apply(self, op: OpDef, operands: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """`emit` with Python scalars and region functions turned into values and graphs."""
        values = self._coerce(op, operands)
        if not op.region_types:
            return self.emit(op, values, options)
        attrs = {k: v for k, v in options.items() if k in op.attrs}
        given = {k: v for k, v in options.items() if k not in op.attrs}
        normal = op.normalize(attrs)
        regions: list[Graph] = []
        for name, region_types in op.region_types.items():
            plain = name.lstrip("*")
            if plain not in given:
                raise TypeCheckError(f"{op.name} needs a region {plain!r}: a function (b, *values) or a graph")
            functions = given.pop(plain)
            before = {"regions": tuple(regions)} if "ruled" in op.properties else {}
            types = region_types(*(v.type for v in values), **normal, **before)
            for f in functions if name.startswith("*") else [functions]:
                regions.append(f if isinstance(f, Graph) else self.region(f, types, name=plain))
        if given:
            raise TypeCheckError(f"{op.name} has no attribute or region {next(iter(given))!r}")
        return self.emit(op, values, attrs, regions)

    def _coerce(self, op: OpDef, operands: Sequence[Any]) -> list[Value]:
        values = [v for v in operands if v is not None]
        if all(isinstance(v, Value) for v in values):
            return values
        model = next((v for v in values if isinstance(v, Value)), None)
        if model is None or "elementwise" not in op.properties:
            bad = next(v for v in values if not isinstance(v, Value))
            raise TypeCheckError(f"{op.name}: operands are values of the graph, got {bad!r}")
        return [v if isinstance(v, Value) else self.full_like(model, v) for v in values]

    def region(self, function: Callable[..., Any], types: Iterable[TensorType], name: str = "") -> Graph:
        """A closed sub-graph made by ``function(b, *values)``; it sees nothing of this builder."""
        inner = GraphBuilder(name)
        inner.scope, inner.source = self.scope, self.source
        values = [inner.input(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
        result = function(inner, *values)
        return inner.build(tuple(result) if isinstance(result, (tuple, list)) else (result,))

    def inline(self, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Add a copy of all operations of ``graph`` here; returns its outputs."""
        env: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
        for value, array in graph.data.items():
            env[value] = (
                self.constant(array)
                if value.role == CONSTANT
                else self._with_data(value.name, array, value.type, value.role)
            )
        self._transient |= graph.transient
        for alias, name in graph.aliases.items():
            self.alias(alias, env[graph.value(name)])
        for op in graph.edges:
            result = self.emit(op.op, [env[v] for v in op.inputs], op.attrs, op.regions)
            env.update(zip(op.outputs, (result,) if isinstance(result, Value) else result, strict=True))
        return tuple(env[v] for v in graph.outputs)

    @contextmanager
    def at(self, scope: str | None = None, source: str | None = None) -> Iterator[None]:
        """Operations added inside carry this scope and source."""
        before = self.scope, self.source
        self.scope = before[0] if scope is None else scope
        self.source = before[1] if source is None else source
        try:
            yield
        finally:
            self.scope, self.source = before

    # -- the end ---------------------------------------------------------------------------------

    def build(self, outputs: Any, signature: Signature | None = None, single: bool | None = None) -> Graph:
        """The finished graph; ``outputs`` is a value or a nested structure of values.

        ``single`` overrides whether the graph returns its one output bare or in a tuple.
        """
        leaves, out = flatten(outputs, lambda x: isinstance(x, Value))
        if single is not None:
            out = Tree(LEAF) if single else Tree(TUPLE, tuple(Tree(LEAF) for _ in leaves))
        values = [self._own(v, "build") for v in leaves]
        if signature is None:
            args = Tree(TUPLE, tuple(Tree(LEAF) for _ in self._inputs))
            signature = Signature(args, Tree(DICT), out, tuple(v.name for v in self._inputs))
        missing = [s.name for s, new in self._states.items() if new is None]
        if missing:
            raise GraphError(f"state {missing[0]!r} is never updated; make it a weight or call update()")
        found = set().union(*(v.type.symbols() for v in (*self._inputs, *self._data))) - self.symbols.keys()
        return Graph(
            inputs=tuple(self._inputs),
            outputs=tuple(values),
            edges=tuple(self._edges),
            data=dict(self._data),
            states=tuple((s, new) for s, new in self._states.items() if new is not None),
            signature=signature,
            symbols={**self.symbols, **{s: Constraint() for s in sorted(found)}},
            name=self.name,
            aliases=dict(self._aliases),
            transient=frozenset(self._transient),
        )
