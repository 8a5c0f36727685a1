"""Every example of every op on every engine; a known gap that passes is an error too."""

from __future__ import annotations

import importlib.util

import pytest

from . import harness

NAMES = list(harness.by_name())


def _expected_gap(engine: str, name: str) -> str | None:
    known = harness.gaps(engine)
    return known.get(name) or known.get(name.rpartition(".")[0])


@pytest.mark.parametrize("engine", harness.ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_example(name: str, engine: str) -> None:
    package = {"torch": "torch", "jax": "jax", "onnx": "onnxruntime"}.get(engine)
    if package and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    op, example = harness.by_name()[name]
    known = _expected_gap(engine, name)
    try:
        reason = harness.compare(harness.run(op, example, engine), harness.reference(name))
    except Exception as error:
        if known:
            return
        raise AssertionError(f"{name} on {engine}: {type(error).__name__}: {error}") from error
    if known:
        assert reason, f"{name} passes on {engine}: remove it from tests/gaps/{engine}.toml (reason given: {known})"
    else:
        assert reason is None, f"{name} on {engine}: {reason} {example.note}"


def test_every_op_has_examples() -> None:
    bare = [op.name for op in harness.registry().values() if op.family != "user" and not op.examples]
    assert not bare


@pytest.mark.parametrize("engine", harness.ENGINES)
def test_gaps_name_known_ops(engine: str) -> None:
    names = {*harness.by_name(), *harness.registry()}
    assert not [g for g in harness.gaps(engine) if g not in names]
