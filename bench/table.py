"""Small tables of figures, printed and written to the documents."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figures:
    """One benchmark's result: a title, what was measured (one sentence or two), rows, and what was missed."""

    title: str
    text: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def bar(self, what: str, figure: float, limit: float, unit: str = "") -> None:
        """Note a figure that should be below a limit."""
        if figure > limit:
            self.missed.append(f"{what}: {figure:.3g}{unit}, the bar is {limit:g}{unit}")

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.text, ""]
        lines += ["| " + " | ".join(self.columns) + " |"]
        lines += ["|" + "|".join(" --- " if i == 0 else " ---: " for i in range(len(self.columns))) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += ["", *(f"Missed: {m}." for m in self.missed)] if self.missed else []
        return "\n".join(lines).rstrip() + "\n"

    def __str__(self) -> str:
        table = [tuple(self.columns), *map(tuple, self.rows)]
        widths = [max(len(row[i]) for row in table) for i in range(len(self.columns))]
        lines = [self.title]
        lines += [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
            for row in table
        ]
        return "\n".join([*lines, *(f"MISSED {m}" for m in self.missed)])


def seconds(function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """(seconds by a clock, result) of one call, rubbish collected before."""
    gc.collect()
    start = clock()
    result = function()
    return clock() - start, result


def medians(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each contestant; they take turns, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for function in contestants.values():
        function()
    for _ in range(rounds):
        for name, function in contestants.items():
            times[name].append(seconds(function)[0])
    return {name: statistics.median(found) for name, found in times.items()}
