"""A small language of patterns: written as ordinary op calls, matched backwards from a root.

>>> def silu(p, x):
...     return p.mul(x, p.logistic(x))

A pattern knows nothing of types; a row's ``finish`` looks at what was found and either gives the
operands and attributes of the composite or the reason why it is not one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from .. import dims
from ..errors import TypeCheckError
from ..graph import Graph, Operation, Value
from ..opdef import OpDef, registry
from ..ops import elementwise as e
from ..ops import movement as m
from .rewrite import Rewriter, Rule, apply_rules

MAX_SPREADS = 8  # reshapes and broadcasts in a row that are looked through
MAX_TRACE = 16  # operations between a statistic and its use


@dataclass(eq=False)
class Node:
    """One place in a pattern: an op on nodes, a variable, a number, a spread, or a choice of nodes.

    A node that stands in several places means the same value in all of them.
    """

    op: OpDef | None = None
    operands: tuple[Node, ...] = ()
    name: str = ""
    number: float | None = None
    any_number: bool = False
    spread: bool = False
    choices: tuple[Node, ...] = ()

    @property
    def rank(self) -> int:
        """Order in which operands are tried: those that fail fastest come first."""
        return 0 if self.op else 1 if self.number is not None or self.any_number else 2 if self.choices else 3


class PatternBuilder:
    """Gives a pattern function its vocabulary: every op by name, and the methods here."""

    def __getattr__(self, name: str) -> Callable[..., Node]:
        op = registry().get(name.rstrip("_"))
        if op is None:
            raise AttributeError(f"no op is called {name!r}")
        return lambda *operands, name="": Node(op, tuple(operands), name)

    def variable(self, name: str) -> Node:
        """Any value, the same one wherever the variable stands."""
        return Node(name=name)

    def spread(self, x: Node, name: str = "") -> Node:
        """``x`` in another shape, through any chain of reshape and broadcast_in_dim (or none)."""
        return Node(operands=(x,), spread=True, name=name)

    def number(self, number: float) -> Node:
        """A constant of that value, spread or not."""
        return Node(number=number)

    def scalar(self, name: str) -> Node:
        """Any constant number, spread or not, found under ``name``."""
        return Node(name=name, any_number=True)

    def any(self, *choices: Node) -> Node:
        """One of several patterns, tried in order."""
        return Node(choices=choices)


PASS_THROUGH = frozenset((e.stop_gradient, e.copy))
_ELEMENTWISE = frozenset(("elementwise", "unary_composite"))
_SPREADING = frozenset((m.broadcast_in_dim, m.reshape))


@dataclass
class Match:
    """What a pattern found at an operation: the value of every node."""

    rewriter: Rewriter
    root: Operation
    bound: dict[Node, Value] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Value]:
        """Values of variables, spreads and named operations, by name."""
        return {node.name: value for node, value in self.bound.items() if node.name}

    def number(self, name: str) -> float:
        """The number found for ``scalar(name)``."""
        return float(complex(self.rewriter.splat(self.values[name])).real)

    def operation(self, name: str) -> Operation:
        """The operation found for the op node of that name."""
        found = self.rewriter.producer(self.values[name])
        return self.root if found is None else found


Goals = tuple["Node", Value, "Goals"] | None  # type: ignore[misc]


def match(r: Rewriter, pattern: Node, root: Operation, inputs: tuple[Value, ...]) -> Match | None:
    """The first way in which ``pattern`` fits the operation ``root``, or None."""
    found = Match(r, root)
    return found if any(_solve(found, goals) for goals in _orders(pattern, inputs, None)) else None


def _orders(node: Node, inputs: Sequence[Value], rest: Any) -> Iterator[Any]:
    """The goals that operands fit an op node's: two ways for a commutative op."""
    assert node.op is not None
    if len(inputs) != len(node.operands):
        return
    orders = [inputs]
    if len(inputs) == 2 and "commutative" in node.op.properties and inputs[0] is not inputs[1]:
        orders.append(inputs[::-1])
    for order in orders:
        goals = rest
        for child, value in sorted(zip(node.operands, order), key=lambda pair: -pair[0].rank):
            goals = (child, value, goals)
        yield goals


def _solve(found: Match, goals: Any) -> bool:
    """Whether all goals can be met together. Bindings are taken back where they cannot."""
    if goals is None:
        return True
    node, value, rest = goals
    if node.choices:
        return any(_solve(found, (choice, value, rest)) for choice in node.choices)
    r = found.rewriter
    op = None
    if node.op is not None:
        op = r.producer(value)
        while op is not None and op.op in PASS_THROUGH and op.op is not node.op:
            value = op.inputs[0]
            op = r.producer(value)
    known = found.bound.get(node)
    if known is not None:
        return known is value and _solve(found, rest)
    if node.op is not None and (op is None or op.op is not node.op):
        return False
    if (node.number is not None or node.any_number) and not _number_fits(node, value, r):
        return False
    found.bound[node] = value
    if node.spread:
        ahead: Iterator[Any] = ((node.operands[0], inner, rest) for inner in _unspread(r, value))
    elif op is not None:
        ahead = _orders(node, op.inputs, rest)
    else:
        ahead = iter((rest,))
    if any(_solve(found, goals) for goals in ahead):
        return True
    del found.bound[node]
    return False


def _unspread(r: Rewriter, value: Value) -> Iterator[Value]:
    """The value itself, then each value it is a reshape or broadcast of, outermost first."""
    yield value
    for _ in range(MAX_SPREADS):
        op = r.producer(value)
        if op is None or (op.op not in _SPREADING and op.op not in PASS_THROUGH):
            return
        value = op.inputs[0]
        yield value


def _number_fits(node: Node, value: Value, r: Rewriter) -> bool:
    number = r.splat(value)
    if number is None:
        return False
    if node.any_number:
        return True
    number, wanted = complex(number), node.number
    assert wanted is not None
    return number == wanted or (
        np.isfinite(wanted) and abs(number - wanted) <= _precision(value.type.dtype.numpy) * abs(wanted)
    )


def _precision(dtype: np.dtype) -> float:
    """How far a constant may be from the number it stands for, relatively."""
    try:
        return 4 * float(ml_dtypes.finfo(dtype).eps)
    except ValueError:
        return 0.0


# -- where the axes of a statistic go --------------------------------------------------------------


def trace(r: Rewriter, value: Value, source: Value, steps: int = MAX_TRACE) -> tuple[int | None, ...] | None:
    """For each axis of ``source`` the axis of ``value`` along which it lies (None: it has size 1).

    Looks through broadcasts, reshapes that only add or drop axes of size 1, and elementwise
    operations. None when ``value`` is not made from ``source`` in that way.
    """
    if value is source:
        return tuple(range(value.type.rank))
    op = r.producer(value) if steps else None
    if op is None:
        return None
    moved: Sequence[int | None]
    if op.op is m.broadcast_in_dim:
        moved = op.attrs["broadcast_dimensions"]
    elif op.op is m.reshape:
        found = _reshaped(op.inputs[0].type.shape, value.type.shape)
        if found is None:
            return None
        moved = found
    elif op.op in PASS_THROUGH or not _ELEMENTWISE.isdisjoint(op.op.properties):
        moved = range(value.type.rank)
    else:
        return None
    for operand in op.inputs:
        if len(op.inputs) > 1 and r.splat(operand) is not None:
            continue
        inner = trace(r, operand, source, steps - 1)
        if inner is not None:
            sizes = operand.type.shape
            return tuple(None if a is None or sizes[a] == 1 else moved[a] for a in inner)
    return None


def _reshaped(old: Sequence[dims.Dim], new: Sequence[dims.Dim]) -> tuple[int | None, ...] | None:
    """Where each axis of ``old`` lies in ``new``, if only axes of size 1 differ."""
    targets = [a for a, n in enumerate(new) if n != 1]
    sources = [a for a, n in enumerate(old) if n != 1]
    if [old[a] for a in sources] != [new[a] for a in targets]:
        return None
    places = dict(zip(sources, targets))
    return tuple(places.get(a) for a in range(len(old)))


def lies_along(r: Rewriter, value: Value, source: Value, axes: Sequence[int]) -> bool:
    """Whether ``value`` is made from ``source`` with its axes at ``axes`` (those of size 1 anywhere)."""
    where = trace(r, value, source)
    return where is not None and len(where) == len(axes) and all(w is None or w == a for w, a in zip(where, axes))


# -- rows ------------------------------------------------------------------------------------------

# What a row makes of a match: operands and attributes of its composite, a value that it has built,
# or the reason why it is none.
Outcome = tuple[tuple[Value, ...], Mapping[str, Any]] | Value | str
Finish = Callable[[Match], Outcome]


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
        root = self.pattern(p, *(p.variable(n) for n in names))
        self.roots = root.choices or (root,)
        assert all(node.op is not None for node in self.roots)


def fuse_with(graph: Graph, rows: Sequence[Row]) -> tuple[Graph, dict[str, int], dict[str, int]]:
    """One sweep: roots that match become composites.

    Returns the graph, how many of each composite were raised, and the reasons for declining.
    """
    raised: dict[str, int] = {}
    declined: dict[str, int] = {}

    def rule(row: Row, root: Node) -> Rule:
        def raise_composite(r: Rewriter, op: Operation, inputs: tuple[Value, ...]) -> Value | None:
            """A composite's pattern -> the composite."""
            found = match(r, root, op, inputs)
            if found is None:
                return None
            try:
                outcome = row.finish(found)
                if isinstance(outcome, tuple):
                    outcome = r.emit(registry()[row.composite], *outcome)
            except TypeCheckError as error:
                outcome = str(error)
            if isinstance(outcome, Value) and outcome.type == op.outputs[0].type:
                raised[row.composite] = raised.get(row.composite, 0) + 1
                return outcome
            if isinstance(outcome, Value):
                outcome = f"gives {outcome.type}, not {op.outputs[0].type}"
            reason = f"{row.composite} at {op.where or 'top'}: {outcome}"
            declined[reason] = declined.get(reason, 0) + 1
            return None

        return raise_composite

    rules: dict[OpDef, list[Rule]] = {}
    for row in rows:
        for root in row.roots:
            assert root.op is not None
            rules.setdefault(root.op, []).append(rule(row, root))
    return apply_rules(graph, rules)[0], raised, declined
