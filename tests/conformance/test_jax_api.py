"""JAX's public functions: all of them have calls or a reason, and a sample of the calls agrees.
``python -m tests.conformance jax_api`` runs all."""

from __future__ import annotations

import fnmatch
import hashlib

import pytest

from . import jax_api_suite as suite
from .gaps import known

SAMPLE = 16  # one function of so many


def test_every_public_function_has_calls_or_a_reason() -> None:
    # What a new version of JAX brings appears here: give it calls in tests/conformance/jax_api or a reason.
    assert suite.unknown() == []


def test_no_reason_covers_a_function_with_calls() -> None:
    assert [(n, p) for n in suite.table() for p in suite.left_out() if fnmatch.fnmatchcase(n, p)] == []


def test_a_namespace_is_enumerated_whole() -> None:
    names = suite.functions()
    assert {"jax.numpy.einsum", "jax.lax.scan", "jax.scipy.stats.norm.pdf", "jax.random.gamma"} <= set(names)
    assert not [n for n in names if n.endswith((".float32", ".ndarray", ".integer"))]
    assert len(names) > 900


def _sample() -> list[str]:
    first = (c for c in suite.cases() if c.endswith("/0"))
    return [c for c in first if int.from_bytes(hashlib.sha1(c.encode()).digest()[:4]) % SAMPLE == 0]


@pytest.mark.parametrize("case", _sample())
def test_a_sample_agrees(case: str) -> None:
    for engine in ("torch", "numpy"):
        if not known("jax_api", engine, case):
            assert suite.run(case, engine) is None, engine
