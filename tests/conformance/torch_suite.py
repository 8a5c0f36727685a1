"""PyTorch's operator database: each sample captured, saved, loaded, run on an engine, judged against eager torch.

A case is ``dtype/operator`` over the first samples of one OpInfo: `SAMPLES` of them in float32 (the variable
UNIGRAPH_SAMPLES asks for up to four), one in the other dtypes. Values are judged as the peers in the
baselines were: within `SCALE` times the tolerances of torch.testing, of eager torch in the sample's own
precision or in double precision (where eager itself is further off). Operators that leave a sign or phase
free are compared after the function that op_db itself applies before it compares
(``output_process_fn_grad``).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

import unigraph as ug

ENGINES = ("torch", "numpy", "jax", "onnx")
DTYPES = ("float32", "int64", "bool", "complex64")
FIRST = 4  # samples of an operator that are looked at in float32
SAMPLES = int(os.environ.get("UNIGRAPH_SAMPLES", "1"))
SEEDS = 4  # calls that must agree in every bit for a sample to count as deterministic
SCALE = 10.0

# op_db seeds random operators before each call, which would hide that they are random.
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
logging.getLogger("torch").setLevel(logging.ERROR)


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


@lru_cache(maxsize=1)
def _infos() -> dict[str, Any]:
    return {name_of(info): info for info in database.op_db}


@lru_cache(maxsize=1)
def _left_out() -> dict[str, dict[str, str]]:
    """Operators that are no cases: random, uninitialised, without a tensor as result; by dtype or for all."""
    return tomllib.loads((Path(__file__).parent / "torch_left_out.toml").read_text())


def cases(dtypes: tuple[str, ...] = DTYPES) -> Iterator[str]:
    """Names of all cases, ``dtype/operator``."""
    for dtype in dtypes:
        left_out = {*_left_out()["all"], *_left_out().get(dtype, {})}
        for name, info in sorted(_infos().items()):
            if name not in left_out and getattr(torch, dtype) in info.supported_dtypes("cpu"):
                yield f"{dtype}/{name}"


def group(case: str) -> str:
    """The dtype of a case."""
    return case.partition("/")[0]


class Sample:
    """One call of an operator as a function of its tensors alone."""

    def __init__(self, info: Any, sample: Any):
        leaves, self.structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.leaves = [x.detach().resolve_conj().resolve_neg() if isinstance(x, torch.Tensor) else x for x in leaves]
        self.tensors = tuple(x for x in self.leaves if isinstance(x, torch.Tensor))
        self.op = info.op
        self.settle: Callable[[Any], Any] = sample.output_process_fn_grad

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter([t.clone() for t in tensors])  # operators that write to their arguments write to these
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.op(*args, **kwargs)

    def expected(self) -> Any:
        return self(*self.tensors)

    def doubled(self) -> Any:
        """The results of the same call in double precision."""
        return self(*(t.to(_DOUBLE.get(t.dtype, t.dtype)) for t in self.tensors))


def samples(case: str) -> Iterator[Sample]:
    """The samples of a case that can be judged, the same in every process."""
    dtype, _, name = case.partition("/")
    info = _infos()[name]
    torch.manual_seed(0)
    found = info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False)
    first = [Sample(info, given) for given in islice(found, FIRST if dtype == "float32" else 1)]
    judged = (sample for sample in first if left_out(sample) is None)
    yield from islice(judged, SAMPLES)


def left_out(sample: Sample) -> str | None:
    """Why a sample cannot be judged (random, sparse, fails in eager torch...), or None."""
    results = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        try:
            result = sample.expected()
        except Exception as error:  # whatever torch raises: the sample is of no use
            return f"fails in eager torch: {str(error).splitlines()[0][:80]}"
        results.append([x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)])
    first, *others = results
    if not first:
        return "gives no tensor"
    if any(t.layout is not torch.strided for t in (*first, *sample.tensors)):
        return "sparse tensors"
    same = all(a.shape == b.shape and torch.equal(_bits(a), _bits(b)) for other in others for a, b in zip(first, other))
    return None if same else "random"


def _bits(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().resolve_conj()
    x = x.to(torch.complex64) if x.dtype is torch.complex32 else x
    return x.nan_to_num() if x.dtype.is_floating_point or x.dtype.is_complex else x


@lru_cache(maxsize=1)
def captured(case: str) -> tuple[tuple[Sample, ug.Graph | Exception], ...]:
    """Each sample with its graph as its file says, or with why it has none. All engines share the last capture."""
    found: list[tuple[Sample, ug.Graph | Exception]] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index, sample in enumerate(samples(case)):
            path = Path(folder) / f"{index}.ugraph"
            try:
                _capture(sample).save(path)
                found.append((sample, ug.load(path)))
            except Exception as error:  # whatever the importer raises is the result of this sample
                found.append((sample, error))
    return tuple(found)


def _capture(sample: Sample) -> ug.Graph:
    def program(*tensors: torch.Tensor) -> Any:
        return sample(*tensors)

    return ug.from_torch(program, sample.tensors)


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised."""
    for index, (sample, graph) in enumerate(captured(case)):
        if isinstance(graph, Exception):
            raise graph
        reason = check(graph, engine, sample)
        if reason:
            return f"sample {index}: {reason}"
    return None


def check(graph: ug.Graph, engine: str, sample: Sample) -> str | None:
    """Why one sample fails, or None."""
    seed = 0 if any(v.role == "key" for v in graph.inputs) else None
    actual = ug.compile(graph, engine)(*sample.tensors, seed=seed)
    got = [torch.as_tensor(x) for x in pytree.tree_leaves(actual)]
    want = sample.expected()
    reason = _differ(sample, got, want)
    if reason and any(t.dtype in _DOUBLE for t in sample.tensors):
        with contextlib.suppress(RuntimeError):  # torch raises it for operators that have no double form
            exact = pytree.tree_map_only(torch.Tensor, lambda t: t.to(_SINGLE.get(t.dtype, t.dtype)), sample.doubled())
            if _differ(sample, got, exact, eager=pytree.tree_leaves(want)) is None:
                return None
    return reason


_DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_SINGLE = {wide: narrow for narrow, wide in _DOUBLE.items()}


def _differ(sample: Sample, got: list[Any], want: Any, eager: list[Any] | None = None) -> str | None:
    """Why the results are not those wanted. ``eager``: results whose own error counts as allowed."""
    wanted, structure = pytree.tree_flatten(want)
    if len(got) != len(wanted):
        return f"{len(got)} results, expected {len(wanted)}"
    if all(isinstance(w, torch.Tensor) for w in wanted):
        for k, (a, w) in enumerate(zip(got, wanted)):
            if a.dtype != w.dtype or a.shape != w.shape:
                return f"output {k} is {a.dtype}{list(a.shape)}, expected {w.dtype}{list(w.shape)}"

        def settled(leaves: list[Any]) -> list[Any]:
            return list(pytree.tree_leaves(sample.settle(pytree.tree_unflatten(leaves, structure))))

        got, wanted, eager = settled(got), settled(wanted), None if eager is None else settled(eager)
    for k, w in enumerate(wanted):
        error = _error(got[k], w)
        if error > 1 and (eager is None or error > _error(eager[k], w)):
            return f"output {k} is off by {error:.3g} times the tolerance"
    return None


def _error(actual: Any, expected: Any) -> float:
    """The largest difference, as a multiple of what is allowed there."""
    actual, expected = (torch.as_tensor(x).resolve_conj() for x in (actual, expected))
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return math.inf
    rtol, atol = (SCALE * t for t in default_tolerances(expected))
    if torch.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True):
        return 0.0
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, e = actual.to(kind), expected.to(kind)
    same = (a == e) | (a.isnan() & e.isnan())
    ratio = (a - e).abs() / (atol + rtol * e.abs())
    return float(ratio.nan_to_num(math.inf).masked_fill(same, 0.0).max())
