"""Every op example on the JAX table, eagerly and under jit, against what it must give."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.converters.jaxpr.compat import enable_x64
from unigraph.evaluate import Program
from unigraph.opdef import registry
from unigraph.runtime.jax.table import TABLE

from . import harness

# The engine tests run every example; here a few of each op show that its row traces, jits and agrees.
FEW = 3
# Ops whose sizes depend on data, which no trace can hold.
SIZED = ("nonzero", "sized")
NAMES = [f"{op.name}.{i}" for op in registry().values() for i in range(min(FEW, len(op.examples)))]


def _gap(name: str) -> str | None:
    gaps = harness.gaps("jax")
    return gaps.get(name) or gaps.get(name.rsplit(".", 1)[0])


@pytest.mark.parametrize("name", NAMES)
def test_example_under_jit(name: str) -> None:
    if reason := _gap(name):
        pytest.skip(reason)
    op, example = harness.by_name()[name]
    with enable_x64():
        program = Program(harness.example_graph(op, example), TABLE)
        inputs = [jnp.asarray(x) for x in example.inputs]
        actual = program.run(inputs) if op.name in SIZED else jax.jit(lambda *xs: program.run(xs))(*inputs)
    reason = harness.compare([np.asarray(x) for x in actual], harness.reference(name))
    assert reason is None, f"{name}: {reason}"


def test_constant_that_does_not_fit_is_refused() -> None:
    b = GraphBuilder()
    x = b.input("x", "i64", ())
    graph = b.build(b.add(x, b.constant(1 << 40)))
    with pytest.raises(Exception, match="jax_enable_x64"):
        Program(graph, TABLE)
