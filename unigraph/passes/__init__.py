"""Passes: functions Graph -> Graph. Each is a small file; `optimize` runs them in levels.

``ug.passes.prune(g, outputs=["logits"])`` calls one by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from ..errors import GraphError
from ..graph import Graph, GraphLike, as_graph
from ..stats import bytes_text, stats
from .cast import cast as cast
from .decompose import decompose as decompose
from .fold import fold as fold
from .fuse import fuse as fuse
from .lift import lift as lift
from .prune import prune as prune
from .quantize import quantize as quantize
from .reorder import peak_memory as peak_memory
from .reorder import reorder as reorder
from .siblings import siblings as siblings
from .simplify import simplify as simplify
from .specialize import specialize as specialize
from .split import split as split
from .unroll import unroll as unroll


@dataclass(frozen=True)
class Pass:
    """A pass and its contract: whether values stay equal bit for bit, or within rounding."""

    name: str
    run: Callable[..., Graph]
    exact: bool = True


@dataclass
class Report:
    """What one pass did: operations and peak memory (bytes; free sizes as in `stats`) before and after."""

    name: str
    operations: tuple[int, int]
    peak: tuple[int, int]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return str(Reports([self]))


class Reports(list[Report]):
    """The reports of several passes; prints as a table, notes below their pass."""

    def __str__(self) -> str:
        counts = _changes([(f"{a:,}", f"{b:,}") for a, b in (r.operations for r in self)])
        peaks = _changes([(bytes_text(p), bytes_text(q)) for p, q in (r.peak for r in self)])
        rows = [("pass", "operations", "peak memory"), *zip((r.name for r in self), counts, peaks)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = []
        for row, report in zip(rows, (None, *self)):
            name, count, peak = (text.ljust(w) for text, w in zip(row, widths))
            lines.append(f"{name}  {count}  {peak}".rstrip())
            lines += [f"    {note}" for note in (report.notes if report else ())]
        return "\n".join(lines)


def _changes(pairs: list[tuple[str, str]]) -> list[str]:
    """``before -> after`` with the arrows below each other."""
    before, after = (max((len(p[i]) for p in pairs), default=0) for i in (0, 1))
    return [f"{a:>{before}} -> {b:>{after}}" for a, b in pairs]


PRUNE, SIMPLIFY, FOLD, LIFT = Pass("prune", prune), Pass("simplify", simplify), Pass("fold", fold), Pass("lift", lift)
FUSE, SIBLINGS, REORDER = (
    Pass("fuse", fuse, exact=False),
    Pass("siblings", siblings, exact=False),
    Pass("reorder", reorder),
)

# Each level holds the one before it. Levels 0 and 1 keep every bit; 2 raises composites; 3 also
# joins sibling products, which changes the shape of the program more than a reader may like.
# Simplifying again cancels the transposes between raised composites.
EXACT = (PRUNE, SIMPLIFY, FOLD, LIFT, SIMPLIFY, PRUNE)
LEVELS: dict[int, tuple[Pass, ...]] = {
    0: (),
    1: EXACT,
    2: (*EXACT, FUSE, SIMPLIFY, PRUNE, REORDER),
    3: (*EXACT, FUSE, SIMPLIFY, PRUNE, SIBLINGS, SIMPLIFY, PRUNE, REORDER),
}


@overload
def optimize(graph: GraphLike, level: int = 2, explain: Literal[False] = False) -> Graph: ...
@overload
def optimize(graph: GraphLike, level: int = 2, *, explain: Literal[True]) -> tuple[Graph, Reports]: ...
def optimize(graph: GraphLike, level: int = 2, explain: bool = False) -> Any:
    """The graph after the passes of a level (0 to 3); with ``explain``, also a report of each pass.

    Inputs, outputs, weights' names and the calling convention stay. Levels 0 and 1 keep results bit
    for bit, 2 and 3 within rounding. Raises ValueError for another level.
    """
    graph = as_graph(graph)
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(str, LEVELS))}, not {level!r}")
    reports = Reports()
    peak = stats(graph).peak_bytes if explain else 0
    for step in LEVELS[level]:
        notes: list[str] = []
        new = _held(graph, step, notes)
        if explain:
            before, peak = peak, peak if new is graph else stats(new).peak_bytes
            reports.append(Report(step.name, (len(graph.edges), len(new.edges)), (before, peak), notes))
        graph = new
    return (graph, reports) if explain else graph


def _held(graph: Graph, step: Pass, notes: list[str]) -> Graph:
    """One pass, held to its contract: the interface of the graph must not change."""
    new = step.run(graph, report=notes.append) if step is FUSE else step.run(graph)
    if new.in_types != graph.in_types or new.out_types != graph.out_types or len(new.states) != len(graph.states):
        raise GraphError(f"pass {step.name} changed the interface of the graph: this is a defect of the pass")
    return new
