"""A small language of patterns: written as ordinary op calls, matched backwards from a root.

>>> def silu(p, x):
...     return p.mul(x, p.logistic(x))

A pattern knows nothing of types; a row's ``finish`` looks at what was found and either gives the
operands and attributes of the composite or the reason why it is not one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import TypeCheckError
from ..graph import Graph, Operation, Value
from ..opdef import OpDef, registry
from ..ops import elementwise as e
from ..ops import movement as m
from .rewrite import Rewriter, apply_rules


@dataclass(eq=False)
class Node:
    """One place in a pattern: an op on nodes, a variable, or a number."""

    op: OpDef | None = None
    operands: tuple[Node, ...] = ()
    name: str = ""
    number: float | None = None
    spread: bool = False


class PatternBuilder:
    """Gives a pattern function its vocabulary: every op by name, ``spread``, ``number``, ``scalar``."""

    def __getattr__(self, name: str) -> Callable[..., Node]:
        op = registry().get(name.rstrip("_"))
        if op is None:
            raise AttributeError(f"no op is called {name!r}")
        return lambda *operands, name="": Node(op, tuple(operands), name)

    def variable(self, name: str) -> Node:
        """Any value, the same one wherever the variable stands."""
        return Node(name=name)

    def spread(self, x: Node) -> Node:
        """``x`` broadcast to another shape, through any chain of reshape and broadcast_in_dim (or none)."""
        return Node(operands=(x,), spread=True)

    def number(self, number: float) -> Node:
        """A constant of that value, spread or not."""
        return Node(number=number)

    def scalar(self, name: str) -> Node:
        """Any constant number, spread or not, found under ``name``."""
        return Node(name=name, number=float("nan"))


_PASS_THROUGH = (e.stop_gradient, e.copy)
_SPREADING = (m.broadcast_in_dim, m.reshape)


@dataclass
class Match:
    """What a pattern found: values of variables, numbers of scalars, operations of named nodes."""

    rewriter: Rewriter
    root: Operation
    values: dict[str, Value] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    operations: dict[str, Operation] = field(default_factory=dict)

    def copy(self) -> Match:
        return Match(self.rewriter, self.root, dict(self.values), dict(self.numbers), dict(self.operations))


def match(r: Rewriter, pattern: Node, root: Operation, inputs: tuple[Value, ...]) -> Match | None:
    """The first way in which ``pattern`` fits the operation ``root``, or None."""
    found = Match(r, root)
    if pattern.name:
        found.operations[pattern.name] = root
    return _operands(pattern, inputs, found)


def _operands(node: Node, inputs: tuple[Value, ...], found: Match) -> Match | None:
    assert node.op is not None
    orders = [inputs]
    if "commutative" in node.op.properties and len(inputs) == 2:
        orders.append(inputs[::-1])
    if len(inputs) != len(node.operands):
        return None
    for order in orders:
        attempt: Match | None = found.copy() if len(orders) > 1 else found
        for child, value in zip(node.operands, order):
            attempt = _fits(child, value, attempt) if attempt is not None else None
        if attempt is not None:
            return attempt
    return None


def _fits(node: Node, value: Value, found: Match) -> Match | None:
    r = found.rewriter
    if node.spread:
        return _spread(node.operands[0], value, found)
    if node.number is not None:
        return _number(node, value, found)
    if node.op is None:
        known = found.values.setdefault(node.name, value)
        return found if known is value else None
    op = r.producer(value)
    while op is not None and op.op in _PASS_THROUGH and op.op is not node.op:
        value = op.inputs[0]
        op = r.producer(value)
    if op is None or op.op is not node.op:
        return None
    if node.name:
        found.operations[node.name] = op
    return _operands(node, op.inputs, found)


def _spread(inner: Node, value: Value, found: Match) -> Match | None:
    """Try the value itself, then each value it is a reshape or broadcast of, outermost first."""
    while True:
        attempt = _fits(inner, value, found.copy())
        if attempt is not None:
            return attempt
        op = found.rewriter.producer(value)
        if op is None or op.op not in (*_SPREADING, *_PASS_THROUGH):
            return None
        value = op.inputs[0]


def _number(node: Node, value: Value, found: Match) -> Match | None:
    number = found.rewriter.splat(value)
    if number is None:
        return None
    number = complex(number).real
    if node.name:
        found.numbers[node.name] = number
        return found
    assert node.number is not None
    close = abs(number - node.number) <= 1e-2 * abs(node.number) if value.type.dtype.bits < 32 else abs(number - node.number) <= 1e-6 * max(1e-30, abs(node.number))
    return found if close else None


# What a row makes of a match: operands and attributes of the composite, or why it is none.
Finish = Callable[[Match], tuple[tuple[Value, ...], Mapping[str, Any]] | str]


@dataclass
class Row:
    """A fusion: the composite, its pattern (one function), and the last word on attributes."""

    composite: str
    pattern: Callable[..., Node]
    finish: Finish

    def __post_init__(self) -> None:
        code = self.pattern.__code__
        names = code.co_varnames[1 : code.co_argcount]
        p = PatternBuilder()
        self.root = self.pattern(p, *(p.variable(n) for n in names))
        assert self.root.op is not None


def fuse_with(graph: Graph, rows: list[Row]) -> tuple[Graph, dict[str, int], dict[str, int]]:
    """One sweep: roots that match become composites.

    Returns the graph, how many of each composite were raised, and the reasons for declining.
    """
    by_root: dict[OpDef, list[Row]] = {}
    for row in rows:
        assert row.root.op is not None
        by_root.setdefault(row.root.op, []).append(row)
    raised: dict[str, int] = {}
    declined: dict[str, int] = {}

    def raise_composite(r: Rewriter, op: Operation, inputs: tuple[Value, ...]) -> Value | None:
        """A composite's pattern -> the composite."""
        for row in by_root.get(op.op, ()):
            found = match(r, row.root, op, inputs)
            if found is None:
                continue
            outcome = row.finish(found)
            if isinstance(outcome, str):
                reason = f"{row.composite} at {op.where or 'top'}: {outcome}"
                declined[reason] = declined.get(reason, 0) + 1
                continue
            try:
                result = r.emit(registry()[row.composite], *outcome)
            except TypeCheckError as error:
                declined[f"{row.composite} at {op.where or 'top'}: {error}"] = 1
                continue
            if result.type != op.outputs[0].type:
                continue
            raised[row.composite] = raised.get(row.composite, 0) + 1
            return result
        return None

    return apply_rules(graph, {}, [raise_composite])[0], raised, declined
