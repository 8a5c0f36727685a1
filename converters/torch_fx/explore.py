"""Python branches on tensor values: the program is run once for each outcome, and the runs are joined.

Where Python asks a tensor for a truth value, the run is told an answer, and the question is noted in the trace.
Runs with the same answers so far must have done the same so far: that common part stands once, before
a branch. What both sides of a branch do alike at their end stands once too, behind it (see `join`).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from unigraph.errors import UnigraphError

from . import compat
from .capture import Captured
from .dynamic import Spec
from .join import Joiner, Path
from .rowbook import find
from .rows_control import DECIDE, Question
from .trace import Tracer, Wanted


def explored(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], spec: Spec, name: str, limit: int
) -> Captured:
    """Run a program for every outcome of its branches and join the runs.

    Raises UnigraphError past ``limit`` runs, when runs with the same answers differ, when the outcomes
    return different structures or types, and for a number that Python asks for (not a truth value).
    """
    tracer = Tracer(module, args, kwargs, spec, name)

    def label(i: int) -> str:
        held = list(tracer.held)
        return f"the state {held[i]!r}" if i < len(held) else f"output {i - len(held)}"

    def explore(wanted: Wanted) -> Captured:
        runs = _Runs(tracer, wanted, limit)
        trace = Joiner(runs.all(), label).trace()
        return tracer.captured(trace, questions=tuple(runs.questions), decompose=explore)

    return explore(lambda op: find(op) is None)


class _Runs:
    """All runs of a program, and the questions they were asked (each kind of question once)."""

    def __init__(self, tracer: Tracer, wanted: Wanted, limit: int):
        self.tracer, self.wanted, self.limit = tracer, wanted, limit
        self.questions: list[Question] = []

    def all(self) -> list[Path]:
        paths: list[Path] = []
        pending: list[tuple[bool, ...]] = [()]
        while pending:
            if len(paths) == self.limit:
                raise self._too_many(paths[-1].places)
            told = pending.pop()
            path = self._run(told)
            if path.answers[: len(told)] != told:
                raise UnigraphError(
                    f"{self.tracer.name} cannot be explored: a run with the answers of an earlier one asked "
                    f"{len(path.answers)} times, not {len(told)} or more; it depends on something besides its "
                    "inputs (Python's random numbers, time, a counter)"
                )
            paths.append(path)
            answers = path.answers
            pending += [(*answers[:i], not answers[i]) for i in range(len(told), len(answers))]
        return paths

    def _run(self, told: tuple[bool, ...]) -> Path:
        asker = _Asker(self, told)
        trace = self.tracer.run(self.wanted, partial(compat.asking, asker))
        return Path(trace, tuple(asker.answers), tuple(asker.places))

    def number_of(self, question: Question) -> int:
        if question not in self.questions:
            self.questions.append(question)
        return self.questions.index(question)

    def _too_many(self, places: tuple[str, ...]) -> UnigraphError:
        where = f" (the last at {places[-1]})" if places else ""
        return UnigraphError(
            f"{self.tracer.name} branches on tensor values in more than {self.limit} ways{where}: "
            "raise max_paths, or write torch.cond or torch.while_loop there"
        )


class _Asker:
    """Answers one run's questions: as told, then True."""

    def __init__(self, runs: _Runs, told: tuple[bool, ...]):
        self.runs, self.told = runs, told
        self.answers: list[bool] = []
        self.places: list[str] = []
        self._known: dict[Any, bool] = {}

    def __call__(self, condition: Any) -> bool | None:
        """The answer to a condition; None when it is about no number that was read from a tensor."""
        tracer = compat.current_tracer()
        if tracer is None:
            return None
        found = compat.readings(tracer.graph)
        symbols = sorted((s for s in condition.free_symbols if s.name in found), key=lambda s: s.name)
        if not symbols:
            return None
        frame = _frame()
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}" if frame else "an unknown place"
        if not compat.is_condition(condition):
            raise UnigraphError(
                f"Python asks for a number that a tensor holds at {place}: exploring follows conditions only. "
                "Keep it a tensor, or compare it"
            )
        reads = tuple(found[s.name] for s in symbols)
        stand_ins = tuple(compat.reading(i, s) for i, s in enumerate(symbols))
        question = Question(condition.xreplace(dict(zip(symbols, stand_ins))), stand_ins)
        if (question, reads) in self._known:
            return self._known[question, reads]
        number = len(self.answers)
        if number >= max(self.runs.limit, len(self.told)):
            raise self.runs._too_many((*self.places, place))
        answer = self.told[number] if number < len(self.told) else True
        compat.note(tracer, DECIDE, (list(reads), self.runs.number_of(question)), _trace(frame))
        self.answers.append(answer)
        self.places.append(place)
        self._known[question, reads] = answer
        return answer


def _frame() -> traceback.FrameSummary | None:
    """Where in the program the running question stands."""
    own = (os.path.dirname(torch.__file__), os.path.dirname(__file__))
    return next((f for f in reversed(traceback.extract_stack()) if not f.filename.startswith(own)), None)


def _trace(frame: traceback.FrameSummary | None) -> str:
    return "".join(traceback.format_list([frame])) if frame else ""
