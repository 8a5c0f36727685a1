"""What passes are written with: a builder that replays a graph, and local rules as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..builder import GraphBuilder
from ..graph import Graph, Operation, Value
from ..opdef import OpDef
from ..ops import movement

_SPREADING = (movement.broadcast_in_dim, movement.reshape)
_UNKNOWN: Any = object()


class Rewriter(GraphBuilder):
    """Builds the new form of ``graph``: same inputs and data, edges replayed or replaced one by one.

    ``env`` maps replaced values of the old graph to values of the new one; everything else is
    shared between the two graphs, as values and operations are immutable.
    """

    def __init__(self, graph: Graph):
        super().__init__(graph.name, graph.symbols)
        self.old = graph
        self.env: dict[Value, Value] = {}
        self._inputs = list(graph.inputs)
        self._data = dict(graph.data)
        self._known = {*graph.inputs, *graph.data}
        self._names = {v.name for v in self._known if v.name}
        self.made: dict[Value, Operation] = {}
        self._seen = 0
        self._numbers: dict[Value, Any] = {}

    def now(self, value: Value) -> Value:
        """The new graph's value for a value of the old graph."""
        return self.env.get(value, value)

    def inputs_of(self, op: Operation) -> tuple[Value, ...]:
        """The operands of an operation of the old graph, in the new one."""
        env = self.env
        return tuple([env.get(v, v) for v in op.inputs]) if env else op.inputs

    def replay(self, op: Operation, inputs: tuple[Value, ...] | None = None) -> None:
        """Keep an operation, reading the new values of its operands; its outputs stay the same."""
        if inputs is None:
            inputs = self.inputs_of(op)
        if inputs != op.inputs:
            op = op.with_inputs(inputs)
        self._edges.append(op)
        self._known.update(op.outputs)
        for v in op.outputs:
            self.made[v] = op
        if self._seen == len(self._edges) - 1:
            self._seen += 1

    def mark(self) -> int:
        """A point to which `undo` can come back."""
        return len(self._edges)

    def undo(self, mark: int) -> None:
        """Take back the operations added since ``mark``: nothing kept may read them."""
        del self._edges[mark:]
        self._seen = min(self._seen, mark)

    def producer(self, value: Value) -> Operation | None:
        """The operation of the new graph that makes ``value``, or None for inputs and data."""
        while self._seen < len(self._edges):
            op = self._edges[self._seen]
            self._seen += 1
            for v in op.outputs:
                self.made[v] = op
        return self.made.get(value)

    def splat(self, value: Value) -> Any:
        """The one number a value consists of (a constant, spread or not), or None.

        The number is a NumPy scalar; all elements have its very bits.
        """
        found = self._numbers.get(value, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        passed = [value]
        op = self.producer(value)
        while op is not None and op.op in _SPREADING and found is _UNKNOWN:
            passed.append(op.inputs[0])
            op = self.producer(passed[-1])
            found = self._numbers.get(passed[-1], _UNKNOWN)
        if found is _UNKNOWN:
            found = self._one_number(passed[-1])
        self._numbers.update(dict.fromkeys(passed, found))
        return found

    def _one_number(self, value: Value) -> Any:
        array = self.array(value)
        if array is None or not 0 < array.size <= 4096 or value.type.dtype.is_key:
            return None
        if array.size > 1:
            raw = array.tobytes()
            if raw != raw[: array.itemsize] * array.size:
                return None
        return array.reshape(-1)[0]

    def finish(self, **changes: Any) -> Graph:
        """The new graph."""
        old = self.old
        outputs = tuple(self.now(v) for v in old.outputs)
        states = tuple((s, self.now(new)) for s, new in old.states)
        fields = {"edges": tuple(self._edges), "data": dict(self._data), "outputs": outputs, "states": states}
        return old.replace(**{**fields, **changes})


# A rule looks at one operation (operands already new) and returns the values that replace its
# outputs, or None when it does not apply.
Rule = Callable[[Rewriter, Operation, tuple[Value, ...]], Value | tuple[Value, ...] | None]
Sweep = Callable[[Graph], Graph]


def apply_rules(
    graph: Graph, rules: Mapping[OpDef, Sequence[Rule]], any_op: Sequence[Rule] = ()
) -> tuple[Graph, dict[str, int]]:
    """One forward sweep: the first rule that applies replaces an operation. Linear in the graph.

    Returns the new graph and how often each rule applied. Regions are swept too, shared ones once.
    """
    counts: dict[str, int] = {}
    rows = {op: (*found, *any_op) for op, found in rules.items()}

    def sweep(graph: Graph) -> Graph:
        r = Rewriter(graph)
        changed = False
        for op in graph.edges:
            if op.regions:
                op, before = with_regions(op, inside), op
                changed = changed or op is not before
            inputs = r.inputs_of(op)
            found = rows.get(op.op, any_op)
            if found and _replaced(r, op, inputs, found, counts):
                changed = True
            else:
                r.replay(op, inputs)
        return r.finish() if changed else graph

    inside = once(sweep)
    return sweep(graph), counts


def _replaced(
    r: Rewriter, op: Operation, inputs: tuple[Value, ...], rules: Sequence[Rule], counts: dict[str, int]
) -> bool:
    """Whether a rule replaced the operation."""
    r.scope, r.source = op.scope, op.source
    for rule in rules:
        mark = r.mark()
        result = rule(r, op, inputs)
        results = (result,) if isinstance(result, Value) else result
        # Types that are equal only up to what is known of symbolic sizes: leave the operation.
        if results is None or any(new.type != old.type for new, old in zip(results, op.outputs, strict=True)):
            r.undo(mark)
            continue
        counts[rule.__name__] = counts.get(rule.__name__, 0) + 1
        r.env.update(zip(op.outputs, results))
        for new, old in zip(results, op.outputs):
            if old.name and any(new in made.outputs for made in r._edges[mark:]):
                r.label(new, old.name)  # a value that a person named keeps its name
        return True
    return False


def once(sweep: Sweep) -> Sweep:
    """``sweep`` that does each graph once, so that shared regions stay shared."""
    done: dict[int, tuple[Graph, Graph]] = {}

    def swept(graph: Graph) -> Graph:
        if id(graph) not in done:
            done[id(graph)] = graph, sweep(graph)  # the old graph is held, so that its id stays its own
        return done[id(graph)][1]

    return swept


def with_regions(op: Operation, sweep: Sweep) -> Operation:
    """The operation with its regions swept; itself when none of them changed."""
    regions = tuple([sweep(region) for region in op.regions])
    if all(a is b for a, b in zip(regions, op.regions)):
        return op
    return Operation(op.op, op.inputs, op.outputs, op.attrs, regions, op.scope, op.source)
