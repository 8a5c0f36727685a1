"""What the steps share: reporting a row, timing, the largest difference."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug


def row(**fields: Any) -> None:
    """Report one row of the table to the parent process."""
    print("ROW " + json.dumps(fields), flush=True)


def largest_difference(a: Any, b: Any) -> float:
    """Largest absolute difference over two equal nested structures of arrays; infinite if shapes differ."""
    if isinstance(a, dict):
        return max(largest_difference(a[k], b[k]) for k in a) if set(a) == set(b) else float("inf")
    if isinstance(a, (list, tuple)):
        return max(map(largest_difference, a, b)) if len(a) == len(b) else float("inf")
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape or x.dtype != y.dtype or not np.all(np.isfinite(x)):
        return float("inf")
    return float(np.max(np.abs(x.astype(np.float64) - y.astype(np.float64)))) if x.size else 0.0


def milliseconds(function: Callable[[], Any], repeat: int = 3) -> float:
    """Median time of a call, after one that may compile."""
    function()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times))


def timed_load(path: Path) -> tuple[ug.Graph, dict[str, float]]:
    """A graph from its file, with the file's size (MB) and the load time (ms) for the table.

    Importing Python modules (sympy for symbolic sizes above all) is done before the clock starts.
    """
    import sympy  # noqa: F401

    import unigraph.file
    import unigraph.ops  # noqa: F401

    start = time.perf_counter()
    graph = ug.load(path)
    return graph, {"size": path.stat().st_size / 1e6, "load": 1000 * (time.perf_counter() - start)}


def main(steps: dict[str, Callable[..., None]]) -> None:
    """Run the step named on the command line: ``step [engine] folder``."""
    name, *rest = sys.argv[1:]
    steps[name](*rest[:-1], folder=Path(rest[-1]))
