"""Is a graph well formed? One linear walk that re-infers every type.

The rule of each op is the one the builder uses; nothing about types is said twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import dims
from .binding import mismatch
from .errors import GraphError, TypeCheckError, UnigraphError
from .graph import CONSTANT, HELD, INPUT, KEY, NAMED, PRODUCED, STATE, Graph, GraphLike, Operation, Value, as_graph
from .types import TensorType

MAX_DEPTH = 64


def check(graph: GraphLike, *, constants: bool = True) -> None:
    """Refuse ``graph`` unless it is well formed. ``constants`` False lets constants be without data.

    Raises GraphError: a value used before it is made, made twice or of another graph, a wrong role, data
    that does not fit, a name used twice, a state without update, a signature that does not fit.
    TypeCheckError: a type that differs from what the op infers. Both name the operation, its scope
    and its source.
    """
    graph = as_graph(graph)
    _check(graph, f"graph {graph.name!r}" if graph.name else "graph", 0, set(), constants)


def _check(graph: Graph, where: str, depth: int, seen: set[int], constants: bool) -> None:
    if id(graph) in seen:  # regions may be shared; each is checked once
        return
    seen.add(id(graph))
    if depth > MAX_DEPTH:
        raise GraphError(f"{where}: regions are nested deeper than {MAX_DEPTH}")
    defined = _sources(graph, where, depth, constants)
    for index, operation in enumerate(graph.edges):
        for value in operation.inputs:
            if value not in defined:
                raise _misplaced(graph, operation, value, index, where)
        _types(operation, where, index)
        for region in operation.regions:
            _check(region, f"region of {_place(operation, where, index)}", depth + 1, seen, constants)
        for value in operation.outputs:
            if value in defined or value.role != PRODUCED:
                raise GraphError(f"{_place(operation, where, index)}: makes {value!r}, which exists already")
            defined.add(value)
    _ends(graph, where, defined)
    if not depth:
        _symbols(graph, where)


def _place(operation: Operation, where: str, index: int) -> str:
    at = f" at {operation.where}" if operation.where else ""
    return f"{where}: operation {index}, {operation.op.name}{at}"


def _sources(graph: Graph, where: str, depth: int, constants: bool) -> set[Value]:
    names: set[str] = set()
    for value in graph.inputs:
        if value.role not in (INPUT, KEY):
            raise GraphError(f"{where}: {value!r} is an input but has the role {value.role or 'produced'!r}")
        if (value.role == KEY) != value.type.dtype.is_key:
            raise GraphError(f"{where}: {value!r} must have the role key if, and only if, its type is a key")
    for value, array in graph.data.items():
        if value.role not in ((CONSTANT,) if depth else HELD):
            raise GraphError(f"{where}: {value!r} cannot hold data here (a region may hold constants only)")
        if array is None:
            if value.role == CONSTANT and constants:
                raise GraphError(f"{where}: {value!r} has no data")
            continue
        wrong = mismatch(value, array)
        if wrong:
            raise GraphError(f"{where}: the data of {value!r} {wrong}")
    defined = {*graph.inputs, *graph.data}
    if len(defined) != len(graph.inputs) + len(graph.data):
        raise GraphError(f"{where}: an input stands twice")
    for value in defined:
        if value.role != CONSTANT:
            if not value.name or value.name in names:
                raise GraphError(f"{where}: two inputs or weights are called {value.name!r}, or one has no name")
            names.add(value.name)
    _aliases(graph, where, depth, names)
    return defined


def _aliases(graph: Graph, where: str, depth: int, names: set[str]) -> None:
    held = {v.name for v in graph.data if v.role in NAMED}
    unknown = graph.transient - {v.name for v in graph.data if v.role == STATE}
    if unknown:
        raise GraphError(f"{where}: {min(unknown)!r} is called transient but is no state")
    for alias, name in graph.aliases.items():
        if depth or not alias or alias in names or name not in held:
            raise GraphError(f"{where}: {alias!r} cannot be a further name of {name!r}: it must be new, that a weight")


def _misplaced(graph: Graph, operation: Operation, value: Value, index: int, where: str) -> GraphError:
    later = any(value in op.outputs for op in graph.edges[index:])
    reason = "before it is made" if later else "of another graph (a region gets outer values as operands)"
    return GraphError(f"{_place(operation, where, index)}: reads {value!r} {reason}")


def _types(operation: Operation, where: str, index: int) -> None:
    op = operation.op
    try:
        if op.attrs or operation.attrs:
            if op.normalize(operation.attrs) != operation.attrs:
                raise TypeCheckError("attributes are not in normal form")
        if op.region_types or operation.regions:
            _region_count(operation)
        result = op.infer_types(tuple([v.type for v in operation.inputs]), operation.attrs, operation.regions)
    except TypeCheckError as error:
        raise _labelled(f"{_place(operation, where, index)}: {error}", error.label) from None
    except UnigraphError:
        raise
    except Exception as error:
        message = f"{_place(operation, where, index)}: no type can be inferred: {type(error).__name__}: {error}"
        raise TypeCheckError(message) from error
    outputs = operation.outputs
    if type(result) is TensorType:
        if len(outputs) == 1 and (outputs[0].type is result or same(outputs[0].type, result)):
            return
        result = (result,)
    elif len(result) == len(outputs) and all(map(same, [v.type for v in outputs], result)):
        return
    raise TypeCheckError(
        f"{_place(operation, where, index)}: gives {_list(result)}, the graph says {_list(v.type for v in outputs)}"
    )


def _labelled(message: str, label: str) -> TypeCheckError:
    error = TypeCheckError(message)
    error.label = label
    return error


def _list(types: Iterable[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"


def same(a: TensorType, b: TensorType) -> bool:
    """True when the types are equal for all values of their symbols."""
    if a == b:
        return True
    return a.dtype is b.dtype and len(a.shape) == len(b.shape) and all(map(dims.equal, a.shape, b.shape))


def _region_count(operation: Operation) -> None:
    names, count = list(operation.op.region_types), len(operation.regions)
    many = bool(names) and names[-1].startswith("*")
    if count < len(names) - many or (count > len(names) and not many):
        raise TypeCheckError(f"{operation.op.name} has regions {', '.join(names) or 'none'}; got {count}")


def _ends(graph: Graph, where: str, defined: set[Value]) -> None:
    for value in graph.results:
        if value not in defined:
            raise GraphError(f"{where}: the result {value!r} is not a value of the graph")
    updated = {state for state, _ in graph.states}
    for state, new in graph.states:
        if state.role != STATE or state not in graph.data:
            raise GraphError(f"{where}: {state!r} is updated but is not a state")
        if not same(state.type, new.type):
            raise TypeCheckError(f"{where}: state {state.name!r} is {state.type}, its update is {new.type}")
    if len(updated) != len(graph.states):
        raise GraphError(f"{where}: a state is updated twice")
    for value in graph.data:
        if value.role == STATE and value not in updated:
            raise GraphError(f"{where}: state {value.name!r} is never updated; make it a weight")
    s = graph.signature
    if s is None:
        return
    given = s.args.leaves + s.kwargs.leaves
    if given > len(graph.inputs) or any(v.role != KEY for v in graph.inputs[given:]):
        raise GraphError(f"{where}: the signature has {given} leaves for {len(graph.inputs)} inputs")
    if s.out.leaves != len(graph.outputs):
        raise GraphError(
            f"{where}: the signature has {s.out.leaves} output leaves, the graph {len(graph.outputs)} outputs"
        )


def _symbols(graph: Graph, where: str) -> None:
    for name, c in graph.symbols.items():
        if not name.isidentifier() or c.multiple_of < 1 or c.min < 0 or (c.max is not None and c.max < c.min):
            raise GraphError(f"{where}: the constraint of symbol {name!r} cannot hold: {c}")
    for value in (*graph.inputs, *graph.data):
        unknown = value.type.symbols() - graph.symbols.keys() if not value.type.is_static else ()
        if unknown:
            raise GraphError(f"{where}: {value!r} uses the symbol {min(unknown)!r}, which is not declared")
