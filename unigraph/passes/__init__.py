"""Passes: functions Graph -> Graph. Each is a small file; `optimize` runs them in levels.

``ug.passes.prune(g, outputs=["logits"])`` calls one by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from ..errors import GraphError
from ..graph import Graph
from .fold import fold as fold
from .fuse import fuse as fuse
from .prune import prune as prune
from .reorder import peak_memory as peak_memory
from .reorder import reorder as reorder
from .siblings import siblings as siblings
from .simplify import simplify as simplify
from .unroll import unroll as unroll


@dataclass(frozen=True)
class Pass:
    """A pass and its contract: whether values stay equal bit for bit, or within rounding."""

    name: str
    run: Callable[..., Graph]
    exact: bool = True


@dataclass
class Report:
    """What one pass did: operations and peak memory (bytes, symbols at their hints) before and after."""

    name: str
    operations: tuple[int, int]
    peak: tuple[int, int]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        (a, b), (p, q) = self.operations, self.peak
        line = f"{self.name:<10} operations {a} -> {b}, peak memory {p / 1e6:.2f} -> {q / 1e6:.2f} MB"
        return "\n".join([line, *(f"    {n}" for n in self.notes)])


PRUNE, SIMPLIFY, FOLD = Pass("prune", prune), Pass("simplify", simplify), Pass("fold", fold)
FUSE, SIBLINGS, REORDER = Pass("fuse", fuse, exact=False), Pass("siblings", siblings, exact=False), Pass("reorder", reorder)

# Each level holds the one before it. Levels 0 and 1 keep every bit; 2 raises composites; 3 also
# joins sibling products, which changes the shape of the program more than a reader may like.
LEVELS: dict[int, tuple[Pass, ...]] = {
    0: (),
    1: (PRUNE, SIMPLIFY, FOLD, SIMPLIFY, PRUNE),
    2: (PRUNE, SIMPLIFY, FOLD, SIMPLIFY, PRUNE, FUSE, PRUNE, REORDER),
    3: (PRUNE, SIMPLIFY, FOLD, SIMPLIFY, PRUNE, FUSE, SIBLINGS, SIMPLIFY, PRUNE, REORDER),
}


@overload
def optimize(graph: Graph, level: int = 2, explain: Literal[False] = False) -> Graph: ...
@overload
def optimize(graph: Graph, level: int = 2, *, explain: Literal[True]) -> tuple[Graph, list[Report]]: ...
def optimize(graph: Graph, level: int = 2, explain: bool = False) -> Any:
    """The graph after the passes of a level (0 to 3); with ``explain``, also a report of each pass.

    Inputs, outputs, weights' names and the calling convention stay. Levels 0 and 1 keep results bit
    for bit, 2 and 3 within rounding. Raises ValueError for another level.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(str, LEVELS))}, not {level!r}")
    reports = []
    for step in LEVELS[level]:
        notes: list[str] = []
        new = _held(graph, step, notes)
        if explain:
            reports.append(_report(step, graph, new, notes))
        graph = new
    return (graph, reports) if explain else graph


def _held(graph: Graph, step: Pass, notes: list[str]) -> Graph:
    """One pass, held to its contract: the interface of the graph must not change."""
    new = step.run(graph, report=notes.append) if step is FUSE else step.run(graph)
    if new.in_types != graph.in_types or new.out_types != graph.out_types or len(new.states) != len(graph.states):
        raise GraphError(f"pass {step.name} changed the interface of the graph: this is a defect of the pass")
    return new


def _report(step: Pass, old: Graph, new: Graph, notes: list[str]) -> Report:
    return Report(step.name, (len(old.edges), len(new.edges)), (peak_memory(old), peak_memory(new)), notes)
