"""``engine="auto"``: measure the engines on this graph and these inputs once, remember the winner.

The choice is kept in a small JSON file in the user's cache folder, keyed by the graph's digest, the
input shapes, the device, the machine and the frameworks' versions; a file that cannot be read or
written is as good as none.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unigraph import serde
from unigraph.errors import EngineError
from unigraph.graph import CONSTANT, Graph

from . import arrays, call
from .engines import ENGINES, Compiled

ROUNDS = 3  # timed calls for each engine after its first, which may compile
REMEMBERED = 1000  # choices kept in the file
LARGE = 1 << 16  # bytes of a constant that the digest reads


def choose(graph: Graph, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Compiled:
    """The fastest engine that runs this graph here, prepared.

    Raises InputError for wrong inputs, EngineError holding each engine's own reason when none can run it.
    """
    leaves, _ = call.Plan(graph).inputs(args, kwargs, seed=0)
    key = _key(graph, device, [tuple(x.shape) for x in leaves])
    reasons: dict[str, str] = {}
    known = _read().get(key, "")
    if known in ENGINES:
        compiled, _ = _measure(graph, known, device, args, kwargs, 0, reasons)
        if compiled is not None:
            return compiled
    best, least = None, float("inf")
    for name in ENGINES:
        if name in reasons:
            continue
        _progress(f"auto: measuring {name}")
        compiled, seconds = _measure(graph, name, device, args, kwargs, ROUNDS, reasons)
        if compiled is not None and seconds < least:
            best, least = compiled, seconds
    _progress("")
    if best is None:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in reasons.items())
        raise EngineError(f"no engine can run this graph on {device or 'cpu'} here:{listed}")
    _remember(key, best.engine)
    return best


def _measure(
    graph: Graph,
    name: str,
    device: str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    rounds: int,
    reasons: dict[str, str],
) -> tuple[Compiled | None, float]:
    """A prepared engine and its seconds for a call; None, with the reason noted, when it fails."""
    try:
        compiled = Compiled(graph, name, device)
        compiled.flat(args, kwargs, seed=0)
        return compiled, min((_timed(compiled, args, kwargs) for _ in range(rounds)), default=0.0)
    except Exception as error:  # an engine that fails on this graph is simply not a candidate
        reasons[name] = str(error)
        return None, 0.0


def _timed(compiled: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    for result in compiled.flat(args, kwargs, seed=0):
        arrays.to_numpy(result)  # waits for asynchronous devices
    return time.perf_counter() - start


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def digest(graph: Graph) -> str:
    """What a graph computes, apart from the values of its weights, as a hash; worked out once for a graph."""
    found = graph.__dict__.get("_digest")
    if found is None:
        small = [v for v, a in graph.data.items() if v.role == CONSTANT and np.asarray(a).nbytes <= LARGE]
        refs = {v: None for v in graph.data.keys() - set(small)}
        found = hashlib.sha256(serde.encode(graph, refs).data).hexdigest()
        graph.__dict__["_digest"] = found  # beside the cached properties of this immutable object
    return str(found)


def _key(graph: Graph, device: str | None, shapes: Sequence[tuple[int, ...]]) -> str:
    versions = [f"{name}={_version(name)}" for name in ("unigraph", "torch", "jax", "onnxruntime", "numpy")]
    machine = [platform.machine(), platform.processor(), str(os.cpu_count()), device or "cpu"]
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
