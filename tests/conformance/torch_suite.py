"""PyTorch's operator database: each sample captured, saved, loaded, run on an engine, judged against eager torch.

A case is ``dtype/operator`` over the first four samples of one OpInfo (fewer with the variable
UNIGRAPH_SAMPLES), those that can be judged: not random, not sparse, no error in eager torch. It passes when
all of them do. A result agrees when it is near eager torch, within `SCALES` times the tolerance of torch.testing
(ten times where the peers in the baselines were judged so). One that does not is held against eager torch in
double precision: it agrees when it is that near to the exact result, or no further from it than eager torch
itself, so that a better answer than torch's is no failure. Shapes and dtypes have no such allowance. Operators
that leave a sign or phase free are compared after the function that op_db itself applies before it compares
(``output_process_fn_grad``). Where torch leaves open which of equal elements comes first, other indices must
lead to the same elements (`UNORDERED`).

With ``--engine export`` the suite measures torch.export with its decompositions under the same judgement, without
any of unigraph: the bound of what there is to carry.
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

import numpy as np
import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

import unigraph as ug
from unigraph.runtime.torch.dtypes import from_numpy

from . import NotApplicable

ENGINES = ("torch", "numpy", "jax", "onnx")
BOUND = "export"  # no engine of unigraph
GAPS_COMPLETE = True  # every failure has a row in gaps/torch.toml
DTYPES = ("float32", "float64", "bfloat16", "int64", "bool", "complex64")
SAMPLE_COUNT = int(os.environ.get("UNIGRAPH_SAMPLES", "4"))
SEEDS = 4  # calls that must agree in every bit for a sample to count as deterministic
SCALES = {"bfloat16": 4.0, "float64": 1.0}  # by the dtype of the case
SCALE = 10.0  # of the others

# Operators that sort without being asked for a stable order: which of their results are indices.
UNORDERED = {"sort": 1, "argsort": 0, "topk": 1, "kthvalue": 1}

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

    def __init__(self, info: Any, sample: Any, scale: float = SCALE):
        self.scale = scale
        leaves, self.structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.leaves = [x.detach().resolve_conj().resolve_neg() if isinstance(x, torch.Tensor) else x for x in leaves]
        self.tensors = tuple(x for x in self.leaves if isinstance(x, torch.Tensor))
        self.op = info.op
        stable = "stable" in sample.kwargs and sample.kwargs["stable"]
        self.indices = None if stable else UNORDERED.get(str(info.name))
        self.settle: Callable[[Any], Any] = sample.output_process_fn_grad

    def __call__(self, *tensors: torch.Tensor) -> Any:
        given = iter([t.clone() for t in tensors])  # operators that write to their arguments write to these
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.op(*args, **kwargs)

    def expected(self) -> Any:
        return self(*self.tensors)

    def exact(self, like: Any) -> Any:
        """The results of the same call in double precision, rounded to the dtypes of ``like``."""
        results, structure = pytree.tree_flatten(self(*(t.to(_DOUBLE.get(t.dtype, t.dtype)) for t in self.tensors)))
        return pytree.tree_unflatten(
            [r.to(t.dtype) if isinstance(r, torch.Tensor) else r for r, t in zip(results, pytree.tree_leaves(like))],
            structure,
        )


def samples(case: str) -> Iterator[Sample]:
    """The samples of a case that can be judged, the same in every process."""
    dtype, _, name = case.partition("/")
    info = _infos()[name]
    torch.manual_seed(0)
    found = info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False)
    first = [Sample(info, given, SCALES.get(dtype, SCALE)) for given in islice(found, SAMPLE_COUNT)]
    yield from (sample for sample in first if left_out(sample) is None)


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


def program_of(sample: Sample) -> Callable[..., Any]:
    def program(*tensors: torch.Tensor) -> Any:
        return sample(*tensors)

    return program


def _capture(sample: Sample) -> ug.Graph:
    return ug.from_torch(program_of(sample), sample.tensors)


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.forward = function  # type: ignore[method-assign]


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised; NotApplicable for a
    case without a sample that can be judged."""
    if engine == BOUND:
        results = (_judge(sample, _exported(sample)) for sample in samples(case))
    else:
        results = (check(graph, engine, sample) for sample, graph in captured(case))
    index = None
    for index, reason in enumerate(results):
        if reason:
            return f"sample {index}: {reason}"
    if index is None:
        raise NotApplicable("no sample can be judged")
    return None


def _exported(sample: Sample) -> Any:
    exported = torch.export.export(_Module(program_of(sample)), sample.tensors)
    return exported.run_decompositions().module()(*sample.tensors)


def check(graph: ug.Graph | Exception, engine: str, sample: Sample) -> str | None:
    """Why one sample fails, or None. Raises the error that stands in for a graph."""
    if isinstance(graph, Exception):
        raise graph
    seed = 0 if any(v.role == "key" for v in graph.inputs) else None
    return _judge(sample, ug.compile(graph, engine)(*sample.tensors, seed=seed))


def as_tensor(x: Any) -> torch.Tensor:
    """A result of an engine that was given no tensor is NumPy's."""
    return x if isinstance(x, torch.Tensor) else from_numpy(np.asarray(x), writable=True)


def _judge(sample: Sample, actual: Any) -> str | None:
    got = [as_tensor(x) for x in pytree.tree_leaves(actual)]
    want = sample.expected()
    reason = _differ(sample, got, want)
    if reason and any(t.dtype in _DOUBLE for t in sample.tensors):
        with contextlib.suppress(RuntimeError):  # torch raises it for operators that have no double form
            if _differ(sample, got, sample.exact(want), eager=pytree.tree_leaves(want)) is None:
                return None
    return reason


_DOUBLE = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}


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
        if k == sample.indices and not torch.equal(got[k], w):
            if not _same_elements(sample, got[k], w):
                return f"output {k} leads to other elements"
            continue
        error = _error(got[k], w, sample.scale)
        if error > 1 and (eager is None or error > _error(eager[k], w, sample.scale)):
            return f"output {k} is off by {error:.3g} times the tolerance"
    return None


def _same_elements(sample: Sample, got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether indices lead to the same elements of the input along some axis, each index being used once."""
    x = sample.tensors[0]
    if not x.ndim or got.ndim != x.ndim:  # kthvalue without the axis: one index for each line
        axes = [a for a in range(x.ndim) if x.shape[:a] + x.shape[a + 1 :] == got.shape]
        return any(torch.equal(*(x.gather(a, i.unsqueeze(a)) for i in (got, wanted))) for a in axes)
    for axis in range(x.ndim):
        if all(g <= n for a, (g, n) in enumerate(zip(got.shape, x.shape)) if a != axis) and got.max() < x.shape[axis]:
            ordered = got.sort(axis).values
            once = bool((ordered.diff(dim=axis) != 0).all())
            if (once or x.shape[axis] == 1) and torch.equal(*(x.gather(axis, i) for i in (got, wanted))):
                return True
    return False


def _error(actual: Any, expected: Any, scale: float) -> float:
    """The largest difference, as a multiple of what is allowed there."""
    actual, expected = (torch.as_tensor(x).resolve_conj() for x in (actual, expected))
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return math.inf
    rtol, atol = (scale * t for t in default_tolerances(expected))
    if torch.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True):
        return 0.0
    kind = torch.complex128 if expected.is_complex() else torch.float64
    a, e = actual.to(kind), expected.to(kind)
    same = (a == e) | (a.isnan() & e.isnan())
    ratio = (a - e).abs() / (atol + rtol * e.abs())
    return float(ratio.nan_to_num(math.inf).masked_fill(same, 0.0).max())
