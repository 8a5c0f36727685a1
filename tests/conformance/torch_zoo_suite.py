"""Architectures of transformers (tests/zoo/torch): each captured, saved, loaded, run on an engine, held against
eager torch.

The graph runs on other values than it was captured with, so that nothing read from the example can pass. An output
agrees when its largest error is at most 1e-4 of the larger of one and the largest expected value; integers and
truths are equal. NumPy, which interprets every convolution and attention, runs every third architecture.

The column ``export`` is torch.export alone under the same judgement: what there is to carry.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import unigraph as ug
from tests.zoo import torch as zoo
from unigraph.runtime.torch.dtypes import from_numpy

from . import NotApplicable

ENGINES = ("torch", "jax", "onnx", "numpy")
BOUND = "export"  # run with ``--engine export``
LISTED = True  # docs/conformance.md names each failure
TOLERANCE = 1e-4
NUMPY_EVERY = 3
EXAMPLE, OTHER = 1, 2  # seeds of arguments

logging.getLogger("torch").setLevel(logging.ERROR)
transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def cases() -> Iterator[str]:
    """``kind/name`` of every architecture."""
    for kind, rows in zoo.KINDS.items():
        yield from (f"{kind}/{name}" for name in rows)


def group(case: str) -> str:
    """The kind of architecture."""
    return case.partition("/")[0]


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised."""
    name = case.partition("/")[2]
    if engine == "numpy" and list(zoo.ROWS).index(name) % NUMPY_EVERY:
        raise NotApplicable("NumPy runs every third architecture")
    given = zoo.inputs(name, OTHER)
    if engine == BOUND:
        module = zoo.model(name)
        exported = torch.export.export(module, (), zoo.inputs(name, EXAMPLE)).module()
        return judge(exported(**given), _eager(module, given))
    graph, expected = captured(name)
    if isinstance(graph, Exception):
        raise graph
    seed = 0 if any(v.role == "key" for v in graph.inputs) else None
    return judge(ug.compile(graph, engine)(**given, seed=seed), expected)


@lru_cache(maxsize=1)
def captured(name: str) -> tuple[Any, Any]:
    """The graph as its file says (or what kept it from being made), and what eager torch gives for other values."""
    module = zoo.model(name)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ug.from_torch(module, kwargs=zoo.inputs(name, EXAMPLE)).save(Path(folder) / "model.ugraph")
            graph: Any = ug.load(Path(folder) / "model.ugraph")
        except Exception as error:  # whatever the importer raises is the result
            graph = error
    return graph, _eager(module, zoo.inputs(name, OTHER))


def _eager(module: Any, given: dict[str, Any]) -> Any:
    with torch.no_grad():
        return module(**given)


def judge(actual: Any, expected: Any) -> str | None:
    """Why results are not the expected ones, or None."""
    got, want = ([_tensor(x) for x in _leaves(side)] for side in (actual, expected))
    if len(got) != len(want):
        return f"{len(got)} outputs, expected {len(want)}"
    for index, (a, e) in enumerate(zip(got, want, strict=True)):
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"output {index} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
        if not e.dtype.is_floating_point:
            if not torch.equal(a, e):
                return f"output {index} has other integers"
            continue
        error = float((a - e).abs().nan_to_num(np.inf).max()) if e.numel() else 0.0
        allowed = TOLERANCE * max(1.0, float(e.abs().max()) if e.numel() else 0.0)
        if not error <= allowed:
            return f"output {index} is off by {error:.3g}, allowed {allowed:.3g}"
    return None


def _tensor(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else from_numpy(np.asarray(x), writable=True)


def _leaves(x: Any) -> list[Any]:
    """The tensors and numbers of a result, by name where there are names."""
    if isinstance(x, Mapping):
        return [leaf for _, part in sorted(x.items()) for leaf in _leaves(part)]
    if isinstance(x, (list, tuple)):
        return [leaf for part in x for leaf in _leaves(part)]
    return [] if x is None else [x]
