"""``engine="auto"`` and ``tune``: measure the ways to run this graph on these inputs once, remember the winner.

The choice is kept in a small JSON file in the user's cache folder, keyed by the graph's digest, the
input shapes, the device, the machine, its threads and the frameworks' versions; a file that cannot be read or
written is as good as none.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unigraph import serde
from unigraph.errors import EngineError
from unigraph.graph import CONSTANT, Graph, GraphLike, as_graph

from . import call
from .engines import Compiled, engine_module
from .measure import ALL, QUICK, Candidate, Tuning, measure, prepare

REMEMBERED = 1000  # choices kept in the file
LARGE = 1 << 16  # bytes of a constant that the digest reads
BUDGET = 30.0  # seconds after which auto begins no other candidate


def choose(graph: Graph, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Compiled:
    """The fastest way to run this graph here, prepared.

    Raises InputError for wrong inputs, EngineError holding each candidate's own reason when none can run it.
    """
    key = _key(graph, device, args, kwargs)
    known = Candidate.parse(_read().get(key, ""))
    if known is not None:
        compiled = prepare(graph, known, device, args, kwargs)
        if compiled is not None:
            return compiled
    tuning, best = measure(graph, device, args, kwargs, [c for c in QUICK if c != known], BUDGET)
    if best is None:
        listed = "".join(f"\n  {row.candidate}: {row.reason}" for row in tuning.rows if not row.candidate.level)
        raise EngineError(f"no engine can run this graph on {device or 'cpu'} here:{listed}")
    _remember(key, str(tuning.rows[0].candidate))
    return best


def tune(
    graph: GraphLike,
    *inputs: Any,
    budget: float = 120.0,
    device: str | None = None,
    engines: Sequence[str] | None = None,
    **named_inputs: Any,
) -> Tuning:
    """Measure every way to run a graph on these inputs; ``auto`` takes the fastest from then on.

    The candidates are all engines (or ``engines``), torch.compile among them, each with and without the
    passes of level 3; those near the fastest take turns, and figures are medians. After ``budget``
    seconds no other candidate is begun. The result prints as a table, its ``best`` is the winner, and
    ``to_dict()`` gives plain data: seconds of a call and of the first one, calls per second, bytes.

    Raises InputError for wrong inputs and EngineError for an unknown engine. A candidate that fails stands
    in the table with its reason.
    """
    graph = as_graph(graph)
    for name in engines or ():
        engine_module(name)
    key = _key(graph, device, inputs, named_inputs)
    candidates = [c for c in ALL if engines is None or c.engine in engines]
    tuning, best = measure(graph, device, inputs, named_inputs, candidates, budget)
    if best is not None and engines is None:
        _remember(key, str(tuning.rows[0].candidate))
    return tuning


def digest(graph: Graph) -> str:
    """What a graph computes, apart from the values of its weights, as a hash; worked out once for a graph."""
    found = graph.__dict__.get("_digest")
    if found is None:
        small = [v for v, a in graph.data.items() if v.role == CONSTANT and np.asarray(a).nbytes <= LARGE]
        refs = {v: None for v in graph.data.keys() - set(small)}
        found = hashlib.sha256(serde.encode(graph, refs).data).hexdigest()
        graph.__dict__["_digest"] = found  # beside the cached properties of this immutable object
    return str(found)


def _key(graph: Graph, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Raises InputError for inputs that are not the graph's."""
    leaves, _ = call.Plan(graph).inputs(args, kwargs, seed=0)
    shapes = [tuple(x.shape) for x in leaves]
    versions = [f"{name}={_version(name)}" for name in ("unigraph", "torch", "jax", "onnxruntime", "numpy")]
    threads = [os.environ.get(name, "") for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = [platform.machine(), platform.processor(), str(usable), *threads, device or "cpu"]
    return hashlib.sha256((digest(graph) + repr((shapes, versions, machine))).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _path() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unigraph" / "auto.json"


def _read() -> dict[str, str]:
    try:
        known = json.loads(_path().read_text())
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return {}
    return {k: v for k, v in known.items() if isinstance(v, str)} if isinstance(known, dict) else {}


def _remember(key: str, winner: str) -> None:
    try:
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = dict([*_read().items(), (key, winner)][-REMEMBERED:])
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(kept, file)
        os.replace(file.name, path)
    except (OSError, RuntimeError):
        pass  # no cache folder: measure again next time
