"""The graph: values are nodes, operations are edges from input values to output values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .dims import Constraint
from .tree import Signature
from .types import TensorType

if TYPE_CHECKING:
    from .opdef import OpDef

INPUT, KEY, WEIGHT, BUFFER, STATE, CONSTANT, PRODUCED = "input", "key", "weight", "buffer", "state", "constant", ""
ROLES = (PRODUCED, INPUT, KEY, WEIGHT, STATE, CONSTANT, BUFFER)  # in the order of the file format
NAMED = (WEIGHT, BUFFER, STATE)  # held by the graph under a name of its own
HELD = (*NAMED, CONSTANT)


class Value:
    """A node. Compared by identity; immutable.

    ``role`` tells where it comes from: ``input`` and ``key`` are given by the caller; ``weight``
    (trained), ``buffer`` (named, not trained), ``state`` (replaced by calls) and ``constant`` carry data
    in the graph; ``""`` is produced by an operation.
    """

    __slots__ = ("name", "role", "type")
    type: TensorType
    name: str
    role: str

    def __init__(self, type: TensorType, name: str = "", role: str = PRODUCED):
        _set(self, "type", type)
        _set(self, "name", name)
        _set(self, "role", role)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Value is immutable: build a new graph instead of setting .{name}")

    def __repr__(self) -> str:
        return f"<{self.role or 'value'} %{self.name}: {self.type}>" if self.name else f"<value: {self.type}>"


class Operation:
    """An edge: one op applied to input values, giving output values. Immutable.

    ``attrs`` are typed by the op's record; ``regions`` are closed sub-graphs; ``scope`` is the
    module or name-stack path; ``source`` a short ``file:line``.
    """

    __slots__ = ("attrs", "inputs", "op", "outputs", "regions", "scope", "source")
    op: OpDef
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Graph, ...]
    scope: str
    source: str

    def __init__(
        self,
        op: OpDef,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        attrs: Mapping[str, Any],
        regions: tuple[Graph, ...] = (),
        scope: str = "",
        source: str = "",
    ):
        _set(self, "op", op)
        _set(self, "inputs", inputs)
        _set(self, "outputs", outputs)
        _set(self, "attrs", attrs)
        _set(self, "regions", regions)
        _set(self, "scope", scope)
        _set(self, "source", source)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an Operation is immutable: build a new graph instead of setting .{name}")

    def with_inputs(self, inputs: tuple[Value, ...]) -> Operation:
        """The same edge, same output values, reading other values."""
        return Operation(self.op, inputs, self.outputs, self.attrs, self.regions, self.scope, self.source)

    @property
    def where(self) -> str:
        """``scope (source)``, for messages."""
        return f"{self.scope} ({self.source})" if self.scope and self.source else self.scope or self.source

    def __repr__(self) -> str:
        ins = ", ".join(str(v.type) for v in self.inputs)
        outs = ", ".join(str(v.type) for v in self.outputs)
        return f"<{self.op.name}({ins}) -> {outs}{' at ' + self.where if self.where else ''}>"


_set = object.__setattr__


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An immutable, topologically ordered DAG in SSA form.

    ``inputs`` are what a caller passes (roles ``input`` and ``key``); ``data`` maps every weight,
    state and constant to its array, or to None while a weight is not bound. ``states`` pairs each
    state with the value that replaces it after a call. ``symbols`` holds the constraints of the
    symbolic sizes. ``aliases`` gives further names of weights, buffers and states (tied weights): what is
    bound under one holds for all, and `to_torch` has the one tensor under each. ``transient`` names the
    states that no checkpoint holds. ``extra`` keeps what a file held in fields that this version does
    not know, so that saving again loses nothing.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    edges: tuple[Operation, ...]
    data: Mapping[Value, Any] = field(default_factory=dict)
    states: tuple[tuple[Value, Value], ...] = ()
    signature: Signature | None = None
    symbols: Mapping[str, Constraint] = field(default_factory=dict)
    name: str = ""
    extra: bytes = b""
    aliases: Mapping[str, str] = field(default_factory=dict)
    transient: frozenset[str] = frozenset()

    @cached_property
    def nodes(self) -> tuple[Value, ...]:
        """All values: inputs, then those with data, then produced ones in order."""
        produced = (v for op in self.edges for v in op.outputs)
        return (*self.inputs, *self.data, *produced)

    @cached_property
    def producers(self) -> Mapping[Value, Operation]:
        """The operation that makes each produced value."""
        return {v: op for op in self.edges for v in op.outputs}

    @cached_property
    def uses(self) -> Mapping[Value, tuple[Operation, ...]]:
        """The operations that read each value, in order, once per reading operand."""
        found: dict[Value, list[Operation]] = {v: [] for v in self.nodes}
        for op in self.edges:
            for v in op.inputs:
                found[v].append(op)
        return {v: tuple(ops) for v, ops in found.items()}

    @property
    def results(self) -> tuple[Value, ...]:
        """Everything that must be kept alive: the outputs, then the new value of each state."""
        return (*self.outputs, *(new for _, new in self.states))

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Weights and buffers by name: arrays, or None where not bound."""
        return {v.name: a for v, a in self.data.items() if v.role in (WEIGHT, BUFFER)}

    @property
    def in_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def out_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.outputs)

    def value(self, name: str) -> Value:
        """The value called ``name``. Raises KeyError when there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"no value is called {name!r} in this graph") from None

    @cached_property
    def _by_name(self) -> dict[str, Value]:
        return {v.name: v for v in reversed(self.nodes) if v.name}

    def replace(self, **changes: Any) -> Graph:
        """A copy with some fields replaced. Further names go with the data they are names of."""
        if "data" in changes and (self.aliases or self.transient):
            held = {v.name for v in changes["data"] if v.role in NAMED}
            kept = {alias: name for alias, name in self.aliases.items() if name in held}
            changes = {"aliases": kept, "transient": self.transient & held, **changes}
        return replace(self, **changes)

    def bind(self, arrays: Mapping[str, Any]) -> Graph:
        """A copy whose weights and states of those names hold these arrays.

        Raises InputError naming every array of wrong name, shape or dtype.
        """
        from .binding import bind

        return bind(self, arrays)

    def all_edges(self) -> Iterator[Operation]:
        """Every operation, those inside regions included."""
        for op in self.edges:
            yield op
            for region in op.regions:
                yield from region.all_edges()

    def save(self, path: Any, **options: Any) -> None:
        """Write a ``.ugraph`` file; see `unigraph.save`."""
        from .file import save

        save(self, path, **options)

    def text(self, **options: Any) -> str:
        """The text form; see `unigraph.text.to_text`."""
        from .text import to_text

        return to_text(self, **options)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        parts = (
            (len(self.inputs), "input"),
            (len(self.edges), "operation"),
            (len(self.outputs), "output"),
            (len(self.weights), "weight"),
        )
        return f"<Graph {self.name or 'unnamed'}: {', '.join(counted(n, word) for n, word in parts)}>"


GraphLike = Graph | str | os.PathLike[str]  # a graph, or the path of a .ugraph file


def as_graph(x: Any) -> Graph:
    """The graph itself, or the one in the ``.ugraph`` file at a path.

    Raises InputError for anything else, and what `unigraph.load` raises.
    """
    if isinstance(x, Graph):
        return x
    if isinstance(x, (str, os.PathLike)):
        from .file import load

        return load(x)
    from .errors import InputError

    raise InputError(f"expected a graph or the path of a .ugraph file, got {type(x).__name__}")


def counted(n: int, word: str) -> str:
    """``1 input``, ``2 inputs``."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
