"""Giving weights and states their data, by name."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FormatError, InputError
from .graph import NAMED, Graph, Value
from .safetensors import as_bytes, load_file, storage
from .types import shown

_SHOWN = 50  # problems listed in full


def mismatch(value: Value, array: Any) -> str | None:
    """Why ``array`` cannot be the data of ``value``, or None when it can."""
    if not isinstance(array, np.ndarray):
        return f"is not a NumPy array but {type(array).__name__}"
    if not value.type.is_static:
        return f"is declared as {value.type}, whose size is not fixed"
    dtype, shape = storage(value.type)
    if array.shape != shape or array.dtype != dtype.numpy:
        return f"must be {shown(dtype, shape)}, got {shown(array.dtype, array.shape)}"
    return None


def bind(graph: Graph, arrays: Any, *, complete: bool = False) -> Graph:
    """A copy of ``graph`` whose weights and states of those names hold these arrays: a dict, or
    anything else that `gather` takes. A tied weight may come under any of its names, or under several
    with the same elements.

    With ``complete`` every weight and state must have data afterwards. Raises InputError that lists
    every missing, unexpected, mismatched and conflicting name at once.
    """
    arrays = gather(arrays)
    own = {v.name: v for v in graph.data if v.role in NAMED}
    known = {**own, **{alias: own[name] for alias, name in graph.aliases.items()}}
    bound: dict[Value, tuple[str, np.ndarray]] = {}
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
        elif value in bound and not _same_elements(array, bound[value][1]):
            problems.append(f"conflicting: {name!r} and {bound[value][0]!r} are one tied weight, given two values")
        bound.setdefault(value, (name, array))
        data[value] = array
    if complete:
        problems += [f"missing: {n!r} ({v.type})" for n, v in own.items() if data[v] is None and v not in bound]
    if problems:
        rest = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        listed = "".join(f"\n  {p}" for p in problems[:_SHOWN])
        raise InputError(f"weights do not fit graph {graph.name!r}: {len(problems)} problem(s){listed}{rest}")
    return graph.replace(data=data)


def _same_elements(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, so that NaN equals itself; arrays over one memory are not read."""
    if a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides:
        return True
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(as_bytes(a), as_bytes(b)))


def gather(weights: Any) -> dict[str, Any]:
    """Arrays by name from a dict, a safetensors path, a pattern, the index of a sharded checkpoint
    (``model.safetensors.index.json``), a folder with one of those, or a list of them.

    Raises InputError when nothing matches or a name stands in two files, FormatError for a bad index.
    """
    if isinstance(weights, Mapping):
        return dict(weights)
    if isinstance(weights, (str, os.PathLike)):
        text = os.fspath(weights)
        paths = [text] if os.path.exists(text) else sorted(glob.glob(text))
        if not paths:
            raise InputError(f"no file matches weights={text!r}")
        if len(paths) == 1 and os.path.isdir(paths[0]):
            return gather(_in_folder(Path(paths[0])))
        if len(paths) == 1 and paths[0].endswith(".json"):
            return _by_index(Path(paths[0]))
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


def _in_folder(folder: Path) -> list[Path]:
    """The index of the one sharded checkpoint in a folder, or all safetensors files there."""
    found = sorted(folder.glob("*.safetensors.index.json")) or sorted(folder.glob("*.safetensors"))
    if not found or (len(found) > 1 and found[0].suffix == ".json"):
        raise InputError(f"the folder {folder} holds {len(found) or 'no'} checkpoints: name one of its files")
    return found


def _by_index(path: Path) -> dict[str, Any]:
    """The tensors that an index names, each from its file in the same folder."""
    try:
        places = json.loads(path.read_text())["weight_map"]
        files = {name: str(file) for name, file in places.items()}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise FormatError("not the index of a sharded checkpoint: no weight_map in it", str(path)) from None
    tables: dict[str, dict[str, np.ndarray]] = {}
    for file in sorted(set(files.values())):
        if file != os.path.basename(file) or "\\" in file or not file.endswith(".safetensors"):
            raise FormatError(f"{file[:200]!r} is no .safetensors file in the same folder", str(path))
        if not (path.parent / file).is_file():
            raise InputError(f"{path} names {file!r}, which is not beside it")
        tables[file] = load_file(path.parent / file)
    absent = [name for name, file in files.items() if name not in tables[file]]
    if absent:
        raise FormatError(f"{files[absent[0]]} does not hold {absent[0]!r}", str(path))
    return {name: tables[file][name] for name, file in files.items()}
