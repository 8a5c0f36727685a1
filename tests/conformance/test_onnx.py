"""The ``simple`` and ``pytorch-operator`` cases of ONNX's backend suite, on every engine, and back to ONNX."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from . import onnx_suite
from .gaps import known


@pytest.mark.parametrize("engine", onnx_suite.ENGINES)
@pytest.mark.parametrize("case", list(onnx_suite.cases(("simple", "pytorch-operator"))))
def test_case(case: str, engine: str) -> None:
    reason = known("onnx", engine, case)
    try:
        problem = onnx_suite.run(case, engine)
    except Exception as error:
        if reason:
            return
        raise AssertionError(f"{case} on {engine}: {error}") from error
    if reason:
        assert problem, f"{case} passes on {engine}: take it out of gaps/onnx.toml (reason given: {reason})"
    else:
        assert problem is None, f"{case} on {engine}: {problem}"
