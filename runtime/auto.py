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

from unigraph.errors import EngineError, UnigraphError
from unigraph.graph import Graph

from . import arrays, call
from .engines import ENGINES, Compiled

ROUNDS = 3  # timed calls for each engine after its first, which may compile


def choose(graph: Graph, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Compiled:
    """The fastest engine that runs this graph here, prepared.

    Raises EngineError holding each engine's own reason when none can.
    """
    key = _key(graph, device, args, kwargs)
    known = _read().get(key)
    if known in ENGINES:
        try:
            return Compiled(graph, known, device)
        except UnigraphError:
            pass  # e.g. the framework was removed since: measure again
    timings: dict[str, float] = {}
    prepared: dict[str, Compiled] = {}
    reasons: list[str] = []
    for name in ENGINES:
        _progress(f"auto: measuring {name}")
        try:
            compiled = Compiled(graph, name, device)
            compiled.flat(args, kwargs, seed=0)
            timings[name] = min(_timed(compiled, args, kwargs) for _ in range(ROUNDS))
            prepared[name] = compiled
        except Exception as error:  # an engine that fails on this graph is simply not a candidate
            reasons.append(f"{name}: {error}")
    _progress("")
    if not timings:
        raise EngineError("no engine can run this graph here:\n  " + "\n  ".join(reasons))
    winner = min(timings, key=timings.__getitem__)
    _remember(key, winner)
    return prepared[winner]


def _timed(compiled: Compiled, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    for result in compiled.flat(args, kwargs, seed=0):
        arrays.to_numpy(result)  # waits for asynchronous devices
    return time.perf_counter() - start


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def _key(graph: Graph, device: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    leaves, _ = call.flatten_call(graph, args, kwargs, seed=0)
    shapes = [tuple(getattr(x, "shape", ())) for x in leaves]
    versions = [f"{name}={_version(name)}" for name in ("torch", "jax", "onnxruntime", "numpy")]
    machine = [platform.machine(), platform.processor(), str(os.cpu_count()), device or "cpu"]
    text = graph.text() + repr((shapes, versions, machine))
    return hashlib.sha256(text.encode()).hexdigest()


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
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(key: str, winner: str) -> None:
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump({**_read(), key: winner}, file)
        os.replace(file.name, path)
    except OSError:
        pass  # no cache folder: measure again next time
