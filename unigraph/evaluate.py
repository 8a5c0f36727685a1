"""The one evaluator. A table gives every op a meaning; what comes out depends only on the table.

NumPy functions make it the reference runtime, torch functions the torch engine, functions that
record themselves an exporter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import dims
from .errors import EngineError, Gaps, InputError, UnigraphError
from .graph import CONSTANT, Graph, Operation, Value
from .opdef import OpDef
from .types import TensorType

Row = Callable[..., Any]


class Table:
    """Meaning of every op in one framework: op object -> plain function.

    A row is called as ``row(*operands, **attributes, **regions)`` and returns one array, or a tuple
    for an op with several outputs; a region arrives as a callable ``region(*arrays) -> tuple``.
    Keys are their uint32 data with trailing words. Symbolic sizes in attributes arrive resolved.
    A composite without a row, or whose row returns NotImplemented, runs as its decomposition.
    """

    name = ""
    derives = False  # True where results can be differentiated: rows then get the rules of ``ruled`` ops, else None

    def __init__(self, *parts: Mapping[OpDef, Row], gaps: Mapping[OpDef, str] | None = None):
        self.rows: dict[OpDef, Row] = {}
        self.gaps: dict[OpDef, str] = dict(gaps or {})
        for part in parts:
            twice = self.rows.keys() & part.keys()
            if twice:
                raise ValueError(f"table {self.name}: two rows for {sorted(o.name for o in twice)}")
            self.rows.update(part)

    def constant(self, array: Any, type_: TensorType) -> Any:
        """The framework's form of a NumPy array held by the graph."""
        return array

    def shape(self, x: Any) -> Sequence[Any]:
        """Run-time sizes of a value (traced sizes where the framework has them)."""
        return tuple(x.shape)

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Apply one row; exporters override this to attach names and places."""
        return row(*args, **kwargs)

    def composite(
        self, operation: Operation, program: Program, args: list[Any], symbols: Mapping[str, Any]
    ) -> Iterable[Any]:
        """Run the decomposition of a composite without a row; exporters override this as they do `call`."""
        return program.run(args, symbols=symbols)

    def region(self, program: Program, symbols: Mapping[str, Any]) -> Row:
        """The callable that a row gets for a region."""
        return lambda *args: program.run(args, symbols=symbols)

    def regions_of(self, operation: Operation) -> tuple[Graph, ...]:
        """The regions that running ``operation`` may need."""
        needed = self.derives or "ruled" not in operation.op.properties
        return operation.regions if needed else operation.regions[:1]

    def edges_of(self, graph: Graph) -> Iterator[Operation]:
        """Every operation that running ``graph`` may need, those inside regions included."""
        for op in graph.edges:
            yield op
            for region in self.regions_of(op):
                yield from self.edges_of(region)

    def check(self, graph: Graph, task: str) -> None:
        """Raise UnsupportedError listing every op of ``graph`` that has no meaning here."""
        gaps = Gaps(task)
        self._find_gaps(graph, gaps, set())
        gaps.raise_if_any()

    def _find_gaps(self, graph: Graph, gaps: Gaps, seen: set[Graph]) -> None:
        for op in self.edges_of(graph):
            if op.op in self.rows:
                continue
            if op.op.is_composite:
                inner = decomposition(op)
                if inner not in seen:
                    seen.add(inner)
                    self._find_gaps(inner, gaps, seen)
            else:
                gaps.add(op.op.name, self.gaps.get(op.op, f"no row in the {self.name} table"), op.where)


def decomposition(op: Operation) -> Graph:
    """The graph that a composite operation stands for."""
    return op.op.decomposition(tuple(v.type for v in op.inputs), tuple(op.attrs.items()))


class _Step:
    """One prepared operation: where operands lie, what to call, what dies afterwards."""

    __slots__ = (
        "binds",
        "free",
        "inner",
        "inputs",
        "kwargs",
        "operation",
        "outputs",
        "regions",
        "row",
        "rules",
        "single",
        "sized",
        "uneven",
    )

    def __init__(self, operation: Operation, slots: Mapping[Value, int], table: Table):
        self.operation = operation
        self.row = table.rows.get(operation.op)
        # A composite without a row runs as its decomposition.
        self.inner = Program(decomposition(operation), table) if self.row is None else None
        self.inputs = tuple(slots[v] for v in operation.inputs)
        self.outputs = tuple(slots[v] for v in operation.outputs)
        self.kwargs: dict[str, Any] = dict(operation.attrs)
        # Attributes that hold symbolic sizes: resolved at every call.
        self.sized = [k for k, v in self.kwargs.items() if _symbolic(v)]
        self.regions = [Program(r, table) for r in table.regions_of(operation)]
        self.rules = (None,) * (len(operation.regions) - len(self.regions))
        self.free: tuple[int, ...] = ()
        self.single = operation.op.gives_one(len(operation.outputs))
        self.binds: tuple[tuple[int, TensorType], ...] = ()
        # Operands whose sizes are equal only if symbols say so: looked at in every call, because a
        # framework would broadcast where they are not.
        shapes = {v.type.shape for v in operation.inputs if v.type.rank}
        self.uneven = len(shapes) > 1 and not _EVEN.isdisjoint(operation.op.properties)

    def decomposed(self, table: Table) -> Program:
        """The decomposition, prepared when first needed."""
        if self.inner is None:
            self.inner = Program(decomposition(self.operation), table)
        return self.inner


# Words of ops whose operands (those that are not scalars) share one shape.
_EVEN = frozenset(("elementwise", "select", "clamp"))


def _symbolic(x: Any) -> bool:
    return any(map(_symbolic, x)) if type(x) is tuple else hasattr(x, "free_symbols")


def _resolve(x: Any, env: Mapping[str, Any]) -> Any:
    if type(x) is tuple:
        return tuple(_resolve(i, env) for i in x)
    return dims.evaluate(x, env) if hasattr(x, "free_symbols") else x


class Program:
    """A graph prepared for one table: flat steps over numbered slots, dead values freed at once."""

    def __init__(self, graph: Graph, table: Table):
        table.check(graph, f"{table.name} table")
        self.graph, self.table = graph, table
        slots: dict[Value, int] = {v: i for i, v in enumerate(graph.nodes)}
        self._size = len(slots)
        self._inputs = [(slots[v], v) for v in graph.inputs]
        self._data = [(slots[v], v) for v in graph.data]
        self._results = tuple(slots[v] for v in graph.results)
        self.constants = {v: table.constant(a, v.type) for v, a in graph.data.items() if v.role == CONSTANT}
        self._symbolic = any(not v.type.is_static for v in graph.nodes)
        self._steps = self._prepare(slots)

    def _prepare(self, slots: Mapping[Value, int]) -> list[_Step]:
        steps = []
        bound = set().union(*(v.type.symbols() for v in self.graph.inputs)) if self._symbolic else set()
        last: dict[int, _Step] = {}
        for operation in self.graph.edges:
            step = _Step(operation, slots, self.table)
            if self._symbolic:
                fresh = [v for v in operation.outputs if v.type.symbols() - bound]
                step.binds = tuple((slots[v], v.type) for v in fresh)
                bound.update(*(v.type.symbols() for v in fresh))
            steps.append(step)
            for slot in (*step.inputs, *step.outputs):
                last[slot] = step
        keep = {*self._results, *(s for s, _ in self._data)}
        dying: dict[_Step, list[int]] = {}
        for slot, step in last.items():
            if slot not in keep:
                dying.setdefault(step, []).append(slot)
        for step, slots_ in dying.items():
            step.free = tuple(slots_)
        return steps

    def run(
        self, inputs: Iterable[Any], data: Mapping[Value, Any] | None = None, symbols: Mapping[str, Any] | None = None
    ) -> tuple[Any, ...]:
        """The results (outputs, then new states) for these inputs.

        ``data`` gives the framework's arrays for weights and states; ``symbols`` the sizes already
        known to a caller (regions and decompositions inherit them).
        Raises InputError for a size that contradicts the declared types, EngineError naming the
        operation when a row fails.
        """
        env: list[Any] = [None] * self._size
        table = self.table
        sizes: dict[str, Any] = dict(symbols or {})
        for (slot, value), given in zip(self._inputs, inputs, strict=True):
            env[slot] = given
            if self._symbolic and not value.type.is_static:
                dims.bind(value.type.shape, self._sizes(given, value.type), sizes, f"input {value.name!r}")
        for slot, value in self._data:
            held = self.constants.get(value) if data is None or value not in data else data[value]
            if held is None:
                raise InputError(f"weight {value.name!r} holds no data: load the graph with weights=...")
            env[slot] = held
        step = None
        try:
            for step in self._steps:
                args = [env[i] for i in step.inputs]
                kwargs = step.kwargs
                if step.sized or step.regions:
                    kwargs = dict(kwargs)
                    for key in step.sized:
                        kwargs[key] = _resolve(kwargs[key], sizes)
                    if step.regions:
                        regions = tuple(table.region(r, sizes) for r in step.regions)
                        kwargs.update(step.operation.op.region_kwargs((*regions, *step.rules)))
                if step.uneven:
                    self._same_shapes(step.operation, args)
                result: Any = NotImplemented
                if step.row is not None:
                    result = table.call(step.operation, step.row, args, kwargs)
                if result is NotImplemented:
                    result = tuple(table.composite(step.operation, step.decomposed(table), args, sizes))
                elif step.single:
                    result = (result,)
                for slot, item in zip(step.outputs, result, strict=True):
                    env[slot] = item
                for slot, type_ in step.binds:
                    dims.bind(type_.shape, self._sizes(env[slot], type_), sizes, f"result of {step.operation.op.name}")
                for slot in step.free:
                    env[slot] = None
        except UnigraphError:
            raise
        except Exception as error:
            raise _located(error, step.operation if step else None, table.name) from error
        return tuple([env[i] for i in self._results])

    def _same_shapes(self, operation: Operation, args: Sequence[Any]) -> None:
        """Raise InputError when operands that must share a shape do not, now that sizes are known."""
        shapes = [self._sizes(x, v.type) for x, v in zip(args, operation.inputs) if v.type.rank]
        known = {tuple(s) for s in shapes if all(type(n) is int for n in s)}
        if len(known) > 1:
            given = " and ".join(str(list(s)) for s in sorted(known))
            raise InputError(f"{operation!r} needs operands of one shape; these sizes make them {given}")

    def _sizes(self, x: Any, type_: TensorType) -> Sequence[Any]:
        shape = tuple(self.table.shape(x))
        return shape[: type_.rank]  # a key's data has its words as one more axis


def _located(error: Exception, operation: Operation | None, table: str) -> Exception:
    where = f"{operation!r}" if operation is not None else "the inputs"
    return EngineError(f"{table} engine failed on {where}: {type(error).__name__}: {error}")


def evaluate(
    graph: Graph, table: Table, inputs: Iterable[Any], data: Mapping[Value, Any] | None = None
) -> tuple[Any, ...]:
    """The results of ``graph`` under ``table``; see `Program.run`."""
    if data is None:
        data = load_data(graph, table)
    return Program(graph, table).run(inputs, data)


def load_data(graph: Graph, table: Table) -> dict[Value, Any]:
    """Weights and states in the framework's form (constants are the program's own)."""
    return {v: table.constant(a, v.type) for v, a in graph.data.items() if a is not None and v.role != CONSTANT}
