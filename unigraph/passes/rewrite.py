"""What passes are written with: a builder that replays a graph, and local rules as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..builder import GraphBuilder
from ..graph import Graph, Operation, Value
from ..opdef import OpDef
from ..ops import movement


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

    def now(self, value: Value) -> Value:
        """The new graph's value for a value of the old graph."""
        return self.env.get(value, value)

    def replay(self, op: Operation) -> None:
        """Keep an operation, reading the new values of its operands; its outputs stay the same."""
        env = self.env
        if env:
            inputs = tuple([env.get(v, v) for v in op.inputs])
            if inputs != op.inputs:
                op = op.with_inputs(inputs)
        self._edges.append(op)
        self._known.update(op.outputs)
        for v in op.outputs:
            self.made[v] = op
        self._seen = len(self._edges)

    def producer(self, value: Value) -> Operation | None:
        """The operation of the new graph that makes ``value``, or None for inputs and data."""
        while self._seen < len(self._edges):
            op = self._edges[self._seen]
            self._seen += 1
            for v in op.outputs:
                self.made[v] = op
        return self.made.get(value)

    def splat(self, value: Value) -> Any:
        """The one number a value consists of (a scalar constant, spread or not), or None."""
        op = self.producer(value)
        while op is not None and op.op in (movement.broadcast_in_dim, movement.reshape):
            value = op.inputs[0]
            op = self.producer(value)
        array = self.array(value)
        if array is None or not array.size or (array.size > 1 and (array.size > 4096 or np.any(array != array.flat[0]))):
            return None
        return array.flat[0]

    def finish(self, **changes: Any) -> Graph:
        """The new graph."""
        old = self.old
        outputs = tuple(self.now(v) for v in old.outputs)
        states = tuple((s, self.now(new)) for s, new in old.states)
        return old.replace(**{"edges": tuple(self._edges), "data": dict(self._data), "outputs": outputs, "states": states, **changes})


# A rule looks at one operation (operands already new) and returns the values that replace its
# outputs, or None when it does not apply.
Rule = Callable[[Rewriter, Operation, tuple[Value, ...]], Value | tuple[Value, ...] | None]


def apply_rules(graph: Graph, rules: Mapping[OpDef, Sequence[Rule]], any_op: Sequence[Rule] = ()) -> tuple[Graph, dict[str, int]]:
    """One forward sweep: the first rule that applies replaces an operation. Linear in the graph.

    Returns the new graph and how often each rule applied. Regions are swept too.
    """
    counts: dict[str, int] = {}
    r = Rewriter(graph)
    for op in graph.edges:
        op = _with_regions(op, lambda region: apply_rules(region, rules, any_op), counts)
        inputs = tuple([r.now(v) for v in op.inputs])
        r.scope, r.source = op.scope, op.source
        for rule in (*rules.get(op.op, ()), *any_op):
            result = rule(r, op, inputs)
            if result is None:
                continue
            results = (result,) if isinstance(result, Value) else result
            if any(new.type != old.type for new, old in zip(results, op.outputs, strict=True)):
                continue  # equal only up to what is known of symbolic sizes: leave it
            counts[rule.__name__] = counts.get(rule.__name__, 0) + 1
            r.env.update(zip(op.outputs, results))
            break
        else:
            r.replay(op)
    return (r.finish() if counts else graph), counts


def _with_regions(op: Operation, sweep: Callable[[Graph], tuple[Graph, dict[str, int]]], counts: dict[str, int]) -> Operation:
    if not op.regions:
        return op
    regions = []
    for region in op.regions:
        new, found = sweep(region)
        regions.append(new)
        for name, n in found.items():
            counts[name] = counts.get(name, 0) + n
    if all(a is b for a, b in zip(regions, op.regions)):
        return op
    return Operation(op.op, op.inputs, op.outputs, op.attrs, tuple(regions), op.scope, op.source)
