"""Split: one graph cut at named values into stages that run one after another."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import count

from ..dims import Constraint
from ..errors import InputError
from ..graph import INPUT, KEY, Graph, GraphLike, Operation, Value, as_graph
from ..tree import DICT, LEAF, TUPLE, Signature, Tree

_LEAF = Tree(LEAF)


def split(graph: GraphLike, at: str | Sequence[str]) -> tuple[Graph, ...]:
    """The stages of ``graph`` cut after the values of these names, in this order; one more than names.

    A stage computes what its value needs and earlier stages have not computed. Every stage but the
    last gives a dict, by name, of what later stages read; each is called with named inputs:

    >>> values = dict(x=x)
    >>> for stage in stages[:-1]:
    ...     values |= ug.run(stage, **{v.name: values[v.name] for v in stage.inputs})

    and the last one, called likewise, gives the outputs in the structure of the whole. A weight is held
    by each stage that reads it, a state by the stage that updates it. Values are equal bit for bit.

    Raises InputError for a name that is no produced value, and for a state that one stage reads and
    another updates.
    """
    graph = as_graph(graph)
    names = [at] if isinstance(at, str) else list(at)
    last = len(names)
    stage_of = _stages(graph, [_find(graph, name) for name in names])
    updating = _updating(graph, stage_of, last)
    called = _called(graph, _carried(graph, stage_of, last))
    edges: list[list[Operation]] = [[] for _ in range(last + 1)]
    for op in graph.edges:
        edges[stage_of[op]].append(op)
    states = [tuple(pair for pair in graph.states if updating[pair[0]] == i) for i in range(last + 1)]
    return tuple(_stage(graph, edges[i], called, states[i], i == last) for i in range(last + 1))


def _called(graph: Graph, carried: Sequence[Value]) -> dict[Value, str]:
    """A name for each value that crosses: values are immutable, so later stages read an input of that name."""
    taken = {v.name for v in graph.nodes}
    fresh = (name for i in count() if (name := f"cut_{i}") not in taken)
    return {v: v.name or next(fresh) for v in carried}


def _find(graph: Graph, name: str) -> Value:
    produced = {v.name: v for op in graph.edges for v in op.outputs if v.name}
    if name not in produced:
        close = difflib.get_close_matches(name, produced, 3) or list(produced)[:8]
        raise InputError(
            f"split: no produced value is called {name!r}; there are {', '.join(close) or 'no named ones'}"
        )
    return produced[name]


def _stages(graph: Graph, cuts: Sequence[Value]) -> dict[Operation, int]:
    """The number of the stage each operation runs in: the first whose value needs it."""
    stage: dict[Value, int] = {}
    for number, cut in enumerate(cuts):
        stage.setdefault(cut, number)
    result: dict[Operation, int] = {}
    for op in reversed(graph.edges):
        result[op] = min((stage[v] for v in op.outputs if v in stage), default=len(cuts))
        for v in op.inputs:
            stage[v] = min(stage.get(v, len(cuts)), result[op])
    return result


def _updating(graph: Graph, stage_of: dict[Operation, int], last: int) -> dict[Value, int]:
    """The stage that holds each state. Raises InputError when another one reads it."""
    made = {v: stage_of[op] for op in graph.edges for v in op.outputs}
    updating = {state: made.get(new, last) for state, new in graph.states}
    for op in graph.edges:
        for v in op.inputs:
            if updating.get(v, stage_of[op]) != stage_of[op]:
                raise InputError(
                    f"split: state {v.name!r} is read in stage {stage_of[op]} and updated in stage {updating[v]}; "
                    "cut before or after both"
                )
    return updating


def _carried(graph: Graph, stage_of: dict[Operation, int], last: int) -> list[Value]:
    """Values made in one stage and read in a later one."""
    made = {v: stage_of[op] for op in graph.edges for v in op.outputs}
    read = {v for op in graph.edges for v in op.inputs if v in made and made[v] < stage_of[op]}
    read |= {v for v in graph.outputs if v in made and made[v] < last}
    return [v for v in made if v in read]


def _stage(
    graph: Graph,
    edges: list[Operation],
    called: dict[Value, str],
    states: tuple[tuple[Value, Value], ...],
    last: bool,
) -> Graph:
    """One stage: some operations, what they read as inputs, what later ones read (or the outputs) as results."""
    here = {v for op in edges for v in op.outputs}
    read = {v for op in edges for v in op.inputs} | {v for pair in states for v in pair}
    read |= set(graph.outputs) if last else set()
    taken = {v: Value(v.type, name, KEY if v.type.dtype.is_key else INPUT) for v, name in called.items()}
    inputs = [v for v in graph.inputs if v in read] + [taken[v] for v in called if v in read - here]

    def now(v: Value) -> Value:
        return taken[v] if v in called and v not in here else v

    outputs = tuple(map(now, graph.outputs)) if last else tuple(v for v in called if v in here)
    if not last:
        out = Tree(DICT, (_LEAF,) * len(outputs), tuple(called[v] for v in outputs))
    else:
        out = graph.signature.out if graph.signature else Tree(TUPLE, (_LEAF,) * len(outputs))
    data = {v: a for v, a in graph.data.items() if v in read}
    given = set().union(*(v.type.symbols() for v in (*inputs, *data)))
    return graph.replace(
        inputs=tuple(inputs),
        outputs=outputs,
        edges=tuple([op.with_inputs(tuple(map(now, op.inputs))) for op in edges]),
        data=data,
        states=states,
        signature=Signature(Tree(TUPLE, (_LEAF,) * len(inputs)), Tree(DICT), out, tuple(v.name for v in inputs)),
        symbols={s: graph.symbols.get(s, Constraint()) for s in sorted(given)},
    )
