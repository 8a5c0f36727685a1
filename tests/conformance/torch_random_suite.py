"""PyTorch's random operators: the same numbers on every engine for one key, distributed as eager torch's are.

A case is an operator of op_db some sample of which gives other numbers with another seed. Its first such
sample in float32 is captured, saved, loaded and run. For one key an engine must give what the NumPy engine
gives, in shape, dtype and value. Over `DRAWS` keys, features of each draw (means, squares, products of
neighbours of the squashed elements, and single elements) must have the means that eager torch gives them,
by Welch's test at `SIGMAS` standard errors: the draws are independent, whatever hangs together within one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import unigraph as ug

from . import NotApplicable
from .torch_suite import SAMPLE_COUNT, Sample, _differ, _infos, as_tensor, program_of

ENGINES = ("torch", "numpy", "jax", "onnx")
NAMES = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "normal.in_place", "normal.number_mean", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "uniform",
)  # fmt: skip
DRAWS = 400
ELEMENTS = 8  # single elements that are watched
SIGMAS = 6.0


def cases() -> Iterator[str]:
    """Names of operators."""
    yield from NAMES


def group(case: str) -> str:
    """All cases are of one kind."""
    return "random"


@lru_cache(maxsize=1)
def _captured(case: str) -> tuple[Sample, ug.Graph | Exception]:
    torch.manual_seed(0)
    found = _infos()[case].sample_inputs("cpu", torch.float32, requires_grad=False)
    for sample in (Sample(_infos()[case], given) for given in islice(found, SAMPLE_COUNT)):
        if not _is_random(sample):
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "case.ugraph"
                ug.from_torch(program_of(sample), sample.tensors).save(path)
                return sample, ug.load(path)
        except Exception as error:
            return sample, error
    raise NotApplicable("no sample is random")


def _is_random(sample: Sample) -> bool:
    """Whether another seed gives other numbers."""
    draws = []
    for seed in range(4):
        torch.manual_seed(seed)
        draws.append(torch.cat([x.flatten().double() for x in _tensors(sample.expected())] or [torch.zeros(0)]))
    return any(not torch.equal(draws[0].nan_to_num(), d.nan_to_num()) for d in draws[1:])


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Raises NotApplicable for an operator without a random sample."""
    sample, graph = _captured(case)
    if isinstance(graph, Exception):
        raise graph
    reference = _draw(graph, "numpy", sample, 7)
    reason = _differ(sample, _draw(graph, engine, sample, 7), reference)
    if reason:
        return f"for one key: {reason}"
    if not any(v.role == "key" for v in graph.inputs):
        return "the graph takes no key"
    return _statistics(graph, sample) if engine == "numpy" else None


def _draw(graph: ug.Graph, engine: str, sample: Sample, seed: int) -> list[torch.Tensor]:
    return [as_tensor(x) for x in pytree.tree_leaves(_compiled(graph, engine)(*sample.tensors, seed=seed))]


@lru_cache(maxsize=2)
def _compiled(graph: ug.Graph, engine: str) -> Any:
    return ug.compile(graph, engine)


def _tensors(results: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def _statistics(graph: ug.Graph, sample: Sample) -> str | None:
    """Why draws are not distributed as torch's, or None. Engines agree for a key, so that one speaks for all."""
    torch.manual_seed(1)
    wanted = [_tensors(sample.expected()) for _ in range(DRAWS)]
    got = [_draw(graph, "numpy", sample, seed) for seed in range(DRAWS)]
    for k, first in enumerate(wanted[0]):
        if not first.numel():
            continue
        sizes = first.double().abs().nan_to_num(0, 0, 0)
        scale = float(sizes[sizes > 0].median()) if sizes.any() else 1.0
        w, g = (np.stack([_features(draw[k], scale) for draw in draws]) for draws in (wanted, got))
        error = np.sqrt((w.var(0) + g.var(0)) / DRAWS) + 1e-4
        distance = np.abs(w.mean(0) - g.mean(0)) / error
        if distance.max() > SIGMAS:
            return f"output {k}: feature {int(distance.argmax())} is {distance.max():.1f} standard errors away"
    return None


def _features(x: torch.Tensor, scale: float) -> np.ndarray:
    """Bounded features of a draw: heavy tails have no mean, their arctangents do."""
    y = np.arctan(x.double().nan_to_num(0.0).flatten().numpy() / scale)
    neighbours = y[1:] * y[:-1] if y.size > 1 else y
    common = [y.mean(), (y**2).mean(), np.abs(y).mean(), neighbours.mean(), (y == 0).mean()]
    return np.array([*common, *y[:ELEMENTS]])
