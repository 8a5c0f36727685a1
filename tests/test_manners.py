"""What a caller meets everywhere: paths in place of graphs, one notation, messages that help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph.errors import FormatError, GraphError, InputError, TextError
from unigraph.graph import Graph
from unigraph.tolerances import difference
from unigraph.types import shown

PASSES = ("prune", "simplify", "fold", "fuse", "reorder", "siblings", "cast", "decompose", "specialize", "unroll")
FUNCTIONS = ("stats", "check", "optimize", "compile", "run", "to_source", "grad", "value_and_grad", "hessian", "jvp")
FRAMEWORKS = ("to_torch", "to_jax", "to_onnx", "vmap", "checkpoint")


def loss(size: Any = 3) -> Graph:
    b = ug.GraphBuilder("loss")
    x = b.input("x", "f32", (size,))
    w = b.weight("w", np.full(1, 2, np.float32))
    spread = b.broadcast_in_dim(b.reshape(w, shape=()), shape=(size,), broadcast_dimensions=())
    return b.build(b.reduce_sum(b.mul(x, b.tanh(spread)), axes=(0,)))


@pytest.mark.parametrize("name", (*FUNCTIONS, *FRAMEWORKS, *(f"passes.{p}" for p in PASSES)))
def test_a_path_stands_for_its_graph(name: str, tmp_path: Path) -> None:
    module = {
        "grad": "jax",
        "value_and_grad": "jax",
        "hessian": "jax",
        "jvp": "jax",
        "vmap": "jax",
        "checkpoint": "jax",
    }
    pytest.importorskip(module.get(name, name.removeprefix("to_") if name in FRAMEWORKS else "numpy"))
    loss().save(tmp_path / "g.ugraph")
    function: Any = (
        getattr(ug.passes, name.removeprefix("passes.")) if name.startswith("passes.") else getattr(ug, name)
    )
    more = (np.ones(3, np.float32),) if name == "run" else ()
    for path in (tmp_path / "g.ugraph", str(tmp_path / "g.ugraph")):
        found, expected = function(path, *more), function(loss(), *more)
        assert type(found).__name__ == type(expected).__name__
        if isinstance(found, Graph):
            assert str(found) == str(expected)
    with pytest.raises(InputError, match=r"expected a graph or the path of a \.ugraph file, got int"):
        function(3, *more)
    with pytest.raises(FileNotFoundError):
        function(tmp_path / "nothing.ugraph", *more)


def test_a_path_is_saved_and_compared(tmp_path: Path) -> None:
    loss().save(tmp_path / "g.ugraph")
    ug.save(tmp_path / "g.ugraph", tmp_path / "h.ugraph")
    assert (tmp_path / "g.ugraph").read_bytes() == (tmp_path / "h.ugraph").read_bytes()
    assert ug.diff(tmp_path / "g.ugraph", loss(), [np.ones(3, np.float32)]).same
    with pytest.raises(InputError, match="expected a graph"):
        ug.diff(None, loss())  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "reader"), ((".onnx", "from_onnx"), (".pt2", "from_torch"), (".safetensors", "load")))
def test_other_formats_are_named(name: str, reader: str, tmp_path: Path) -> None:
    (tmp_path / f"m{name}").write_bytes(bytes(200))
    with pytest.raises(FormatError, match=rf"read it with ug\.{reader}\("):
        ug.stats(tmp_path / f"m{name}")


def test_only_public_names_are_listed() -> None:
    assert {n for n in dir(ug) if not n.startswith("__")} == {*ug.__all__, "ops"}


def test_types_are_written_in_one_way() -> None:
    assert (
        shown(np.dtype(np.float32), (2, 8)) == shown("f32", (2, 8)) == str(ug.TensorType("f32", (2, 8))) == "f32[2,8]"
    )
    assert shown(np.dtype(object), ()) == "object[]"
    with pytest.raises(InputError, match=r"must be f32\[1\], got f64\[3\]"):
        loss().bind({"w": np.zeros(3)})
    with pytest.raises(InputError, match=r"must be f32\[3\] .*got f32\[2,8\]"):
        ug.run(loss(), np.zeros((2, 8), np.float32))
    assert difference(np.float32(1), np.float32(2)).endswith("first at (): 1.0, expected 2.0")  # type: ignore[union-attr]


def test_near_names_are_offered() -> None:
    b = ug.GraphBuilder()
    with pytest.raises(AttributeError, match="did you mean softmax"):
        b.softmx  # noqa: B018
    with pytest.raises(TextError, match="did you mean tanh"):
        ug.parse("input %x: f32[2]\n%y = tanhh(%x)\nreturn %y")
    with pytest.raises(InputError, match="did you mean softmax"):
        ug.passes.cast(loss(), keep=["sofmax"])
    with pytest.raises(AttributeError, match="no op is called 'qqqqqq'; `unigraph ops`"):
        b.qqqqqq  # noqa: B018


def test_counts_agree_with_their_nouns() -> None:
    assert repr(loss()) == "<Graph loss: 1 input, 5 operations, 1 output, 1 weight>"
    with pytest.raises(InputError, match="2 positional inputs given, 1 expected"):
        ug.run(loss(), 1, 2)
    with pytest.raises(GraphError):
        ug.check(loss().replace(outputs=(loss().outputs[0],)))


def test_the_report_is_a_table_of_the_figures_of_stats() -> None:
    graph, reports = ug.optimize(loss("n"), explain=True)
    lines = [line for line in str(reports).splitlines() if not line.startswith("    ")]
    assert len({line.index("->") for line in lines[1:]}) == len({line.rindex("->") for line in lines[1:]}) == 1
    assert lines[0].index("operations") == lines[1].index("5")
    assert reports[0].peak[0] == ug.stats(loss("n")).peak_bytes
    assert reports[-1].peak[1] == ug.stats(graph).peak_bytes == ug.passes.peak_memory(graph)
