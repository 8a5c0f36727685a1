"""Measuring how fast each way to run a graph is, on this machine and for these inputs, all in one run."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unigraph.graph import Graph
from unigraph.stats import bytes_text

from . import arrays
from .engines import COMPILER, ENGINES, Compiled

LEVEL = 3  # of the passes that an optimized candidate runs
ROUNDS = 15  # timed calls of each candidate that is near the fastest, taking turns
LEAST = 3  # of them at least, however long they take
HOPELESS = 3.0  # times as slow as the fastest: not measured further
REFERENCE = "numpy"  # fast where a call is all overhead only
SMALL = 0.05  # seconds: where the fastest takes longer, the reference is not tried


@dataclass(frozen=True)
class Candidate:
    """A way to run a graph: an engine, and the level of the passes that run first."""

    engine: str
    level: int = 0

    def __str__(self) -> str:
        return f"{self.engine}+{self.level}" if self.level else self.engine

    @staticmethod
    def parse(text: str) -> Candidate | None:
        """The candidate that prints like this; None for another text."""
        engine, _, level = text.partition("+")
        known = engine in ENGINES and level in ("", str(LEVEL))
        return Candidate(engine, int(level or 0)) if known else None


# What takes milliseconds to prepare; NumPy comes last, when it may be out of the question.
QUICK = (
    *(Candidate(engine, level) for level in (0, LEVEL) for engine in ENGINES if engine not in (REFERENCE, COMPILER)),
    Candidate(REFERENCE),
)
ALL = (*QUICK, Candidate(COMPILER, LEVEL), Candidate(COMPILER))


@dataclass(frozen=True)
class Measured:
    """One candidate's figures: seconds of the first call (preparation included) and of a later one (the
    median), bytes of memory that the process grew by; or the reason why there are none."""

    candidate: Candidate
    first: float = 0.0
    seconds: float = 0.0
    memory: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Tuning:
    """The figures of all candidates, the fastest first, those without figures last."""

    rows: tuple[Measured, ...] = field(default=())

    @property
    def best(self) -> Measured | None:
        """The fastest, or None when nothing could run."""
        return self.rows[0] if self.rows and not self.rows[0].reason else None

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data: seconds, calls per second, bytes."""
        return [
            {"candidate": str(r.candidate), "reason": r.reason}
            if r.reason
            else {
                "candidate": str(r.candidate),
                "seconds": r.seconds,
                "calls_per_second": 1 / r.seconds,
                "first_call_seconds": r.first,
                "memory_bytes": r.memory,
            }
            for r in self.rows
        ]

    def __str__(self) -> str:
        lines = [f"{'':<16} {'a call':>10} {'calls/s':>9} {'first call':>10} {'memory':>10}"]
        slowest = max((r.seconds for r in self.rows), default=0.0)
        for r in self.rows:
            if r.reason:
                lines.append(f"{r.candidate!s:<16} {r.reason.splitlines()[0]}")
                continue
            bar = "█" * max(1, round(24 * r.seconds / slowest))
            lines.append(
                f"{r.candidate!s:<16} {_time(r.seconds):>10} {1 / r.seconds:>9.4g} {_time(r.first):>10} "
                f"{bytes_text(r.memory):>10}  {bar}"
            )
        return "\n".join(lines)


def measure(
    graph: Graph,
    device: str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    candidates: Sequence[Candidate] = QUICK,
    budget: float = 30.0,
) -> tuple[Tuning, Compiled | None]:
    """Figures of the candidates, and the fastest one, prepared; None when none can run.

    Each is prepared and called twice; those near the fastest then take turns. After ``budget``
    seconds no other candidate is begun, once one has been measured. Nothing is kept of the losers.
    """
    started = time.perf_counter()
    rows: dict[Candidate, Measured] = {}
    near: dict[Candidate, Compiled] = {}
    least = float("inf")
    optimized: Graph | None = None
    for candidate in candidates:
        if near and time.perf_counter() - started > budget:
            rows[candidate] = Measured(candidate, reason=f"not measured: the {budget:g} seconds were over")
            continue
        if near and candidate.engine == REFERENCE and least > SMALL:
            rows[candidate] = Measured(candidate, reason="not measured: the reference, and others take long already")
            continue
        _progress(f"measuring {candidate}")
        try:
            if candidate.level and optimized is None:
                optimized = _optimized(graph)
            source = optimized if optimized is not None and candidate.level else graph
            before, start = _resident(), time.perf_counter()
            compiled = Compiled(source, candidate.engine, device)
            _timed(compiled, args, kwargs)
            first = time.perf_counter() - start
            seconds = _timed(compiled, args, kwargs)
        except Exception as error:  # an engine that fails on this graph is simply not a candidate
            rows[candidate] = Measured(candidate, reason=str(error) or type(error).__name__)
            continue
        rows[candidate] = Measured(candidate, first, seconds, max(_resident() - before, 0))
        least = min(least, seconds)
        near[candidate] = compiled
        near = {c: f for c, f in near.items() if rows[c].seconds <= HOPELESS * least}
    times: dict[Candidate, list[float]] = {c: [] for c in near}
    _progress(f"comparing {', '.join(map(str, near))}")
    for done in range(ROUNDS if len(near) > 1 else LEAST):
        if done >= LEAST and time.perf_counter() - started > 2 * budget:
            break
        for candidate, compiled in near.items():
            times[candidate].append(_timed(compiled, args, kwargs))
    _progress("")
    for candidate, seconds_of in times.items():
        rows[candidate] = replace(rows[candidate], seconds=statistics.median(seconds_of))
    tuning = Tuning(tuple(sorted(rows.values(), key=lambda r: (bool(r.reason), r.candidate not in near, r.seconds))))
    return tuning, near[tuning.best.candidate] if tuning.best else None


def prepare(
    graph: Graph, candidate: Candidate, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Compiled | None:
    """A candidate prepared and called once; None when that fails."""
    try:
        compiled = Compiled(_optimized(graph) if candidate.level else graph, candidate.engine, device)
        compiled.flat(args, kwargs, seed=0)
    except Exception:  # an engine that fails on this graph is simply not a candidate
        return None
    return compiled


def _optimized(graph: Graph) -> Graph:
    from unigraph.passes import optimize

    return optimize(graph, LEVEL)


def _timed(compiled: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    for result in compiled.flat(args, kwargs, seed=0):
        arrays.to_numpy(result)  # waits for asynchronous devices
    return time.perf_counter() - start


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            import resource

            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-6:.4g} µs"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()
