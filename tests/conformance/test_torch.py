"""A few cases of PyTorch's operator database on every engine, one or two of each kind of judgement."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from . import torch_random_suite, torch_suite
from .gaps import known

CASES = (
    "float32/nn.functional.ctc_loss",  # no abstract form in torch
    "float32/cov",  # a rewritten function
    "float32/linalg.svd",  # free signs
    "float32/fft.fft2",
    "float64/scatter_reduce.prod",
    "bfloat16/addcmul",  # rounded once
    "bfloat16/topk",  # equal elements in any order
    "int64/searchsorted",
    "bool/special.zeta",
    "complex64/full_like",
)
RANDOM = ("multinomial", "nn.functional.dropout2d")


def passes(suite, case, engine):
    assert known("torch", engine, case) is None
    return suite.run(case, engine)


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    assert {e: passes(torch_suite, case, e) for e in torch_suite.ENGINES} == dict.fromkeys(torch_suite.ENGINES)


@pytest.mark.parametrize("case", RANDOM)
def test_random(case):
    assert {e: passes(torch_random_suite, case, e) for e in torch_suite.ENGINES} == dict.fromkeys(torch_suite.ENGINES)


def test_a_difference_is_found():
    """Other numbers, another distribution and other indices are no passes."""
    sample = next(torch_suite.samples("float32/sort"))
    values, indices = sample.expected()
    assert torch_suite._differ(sample, [values, indices], (values, indices)) is None
    assert torch_suite._differ(sample, [values + 1e-3, indices], (values, indices)) is not None
    assert torch_suite._differ(sample, [values, indices.flip(-1)], (values, indices)) is not None
    dropped, graph = torch_random_suite._captured("nn.functional.dropout")
    assert torch_random_suite._statistics(graph, dropped) is None
    plain = dropped.op
    dropped.op = lambda *args, **kwargs: plain(*args, **kwargs) * 1.2
    assert torch_random_suite._statistics(graph, dropped) is not None
