"""Giving weights and states their data, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InputError
from .graph import STATE, WEIGHT, Graph, Value
from .safetensors import storage

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


def bind(graph: Graph, arrays: Mapping[str, Any], *, complete: bool = False) -> Graph:
    """A copy of ``graph`` whose weights and states of those names hold these arrays.

    With ``complete`` every weight and state must have data afterwards. Raises InputError that lists
    every missing, unexpected and mismatched name at once.
    """
    known = {v.name: v for v in graph.data if v.role in (WEIGHT, STATE)}
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
