"""Giving weights and states their data, by name."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError
from .graph import NAMED, Graph, Value
from .safetensors import load_file, storage

_SHOWN = 50  # problems listed in full


def mismatch(value: Value, array: Any) -> str | None:
    """Why ``array`` cannot be the data of ``value``, or None when it can."""
    if not isinstance(array, np.ndarray):
        return f"is not a NumPy array but {type(array).__name__}"
    if not value.type.is_static:
        return f"is declared as {value.type}, whose size is not fixed"
    dtype, shape = storage(value.type)
    if array.shape != shape or array.dtype != dtype.numpy:
        return f"must be {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}"
    return None


def bind(graph: Graph, arrays: Any, *, complete: bool = False) -> Graph:
    """A copy of ``graph`` whose weights and states of those names hold these arrays: a dict, or
    anything else that `gather` takes.

    With ``complete`` every weight and state must have data afterwards. Raises InputError that lists
    every missing, unexpected and mismatched name at once.
    """
    arrays = gather(arrays)
    known = {v.name: v for v in graph.data if v.role in NAMED}
    data = dict(graph.data)
    problems = []
    for name, array in arrays.items():
        value = known.get(name)
        if value is None:
            problems.append(f"unexpected: {name!r}")
            continue
        if not isinstance(array, np.ndarray):
            array = np.asarray(array)
        wrong = mismatch(value, array)
        if wrong:
            problems.append(f"mismatched: {name!r} {wrong}")
        data[value] = array
    if complete:
        problems += [f"missing: {n!r} ({v.type})" for n, v in known.items() if data[v] is None and n not in arrays]
    if problems:
        rest = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        listed = "".join(f"\n  {p}" for p in problems[:_SHOWN])
        raise InputError(f"weights do not fit graph {graph.name!r}: {len(problems)} problem(s){listed}{rest}")
    return graph.replace(data=data)


def gather(weights: Any) -> dict[str, Any]:
    """Arrays by name from a dict, a safetensors path, a pattern, or a list of those.

    Raises InputError when nothing matches or a name stands in two files.
    """
    if isinstance(weights, Mapping):
        return dict(weights)
    if isinstance(weights, (str, os.PathLike)):
        text = os.fspath(weights)
        paths = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not paths:
            raise InputError(f"no file matches weights={text!r}")
        if len(paths) == 1:
            return dict(load_file(paths[0]))
        return gather([Path(p) for p in paths])
    if not isinstance(weights, Iterable):
        raise InputError(f"weights must be a path, a pattern, a list of those or a dict, not {type(weights).__name__}")
    result: dict[str, Any] = {}
    for item in weights:
        found = gather(item)
        twice = result.keys() & found.keys()
        if twice:
            raise InputError(f"the weight {min(twice)!r} stands in two files")
        result.update(found)
    return result
