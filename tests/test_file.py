"""Saving and loading: what goes in comes out, weights are mapped, bytes are the same twice."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import file, serde
from unigraph.archive import ArchiveWriter
from unigraph.builder import GraphBuilder
from unigraph.errors import FormatError, GraphError, InputError
from unigraph.graph import CONSTANT, Graph
from unigraph.opdef import _registry
from unigraph.safetensors import load_file, save_file

from .samples import CONSTANTS, chain, sample, user_composite


def same(a: Graph, b: Graph) -> bool:
    return serde.encode(a).data == serde.encode(b).data


def test_round_trip(tmp_path: Path) -> None:
    graph = sample()
    graph.save(tmp_path / "a.ugraph")
    loaded = ug.load(tmp_path / "a.ugraph")
    assert same(graph, loaded)
    assert loaded.signature == graph.signature and loaded.symbols == graph.symbols
    assert [op.where for op in loaded.edges] == [op.where for op in graph.edges]


def test_same_graph_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sample().save(tmp_path / name)
    ug.load(tmp_path / "a").save(tmp_path / "c")
    a, b, c = ((tmp_path / n).read_bytes() for n in "abc")
    assert a == b == c
    assert os.listdir(tmp_path).__len__() == 3, "a temporary file was left behind"


def test_saving_over_the_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "a.ugraph"
    sample().save(path)
    before = path.read_bytes()
    ug.load(path).save(path)
    assert path.read_bytes() == before


def test_ordinary_tools_read_it(tmp_path: Path) -> None:
    st = pytest.importorskip("safetensors", reason="safetensors is not installed")
    path = tmp_path / "a.ugraph"
    graph = sample()
    graph.save(path)
    archive = zipfile.ZipFile(path)
    assert archive.namelist() == ["mimetype", "graph.pb", "weights/00001.safetensors", "weights/constants.safetensors"]
    assert archive.testzip() is None
    assert path.read_bytes()[38:62] == file.MIMETYPE
    tensors = dict(st.deserialize(archive.read("weights/00001.safetensors")))
    for name, array in graph.weights.items():
        assert bytes(tensors[name]["data"]) == array.tobytes() and tuple(tensors[name]["shape"]) == array.shape
    for info in archive.infolist():
        assert info.compress_type == zipfile.ZIP_STORED and info.date_time == (1980, 1, 1, 0, 0, 0)


def test_weights_are_mapped_aligned_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a.ugraph"
    b = GraphBuilder()
    b.weight("w", np.ones((64, 16), np.float32))
    b.weight("odd", np.ones(3, np.int8))
    b.weight("v", np.ones(32, np.float64))
    b.build(()).save(path)
    before = path.read_bytes()
    weights = ug.load(path).weights
    for name in ("w", "v"):
        assert weights[name].ctypes.data % 64 == 0
    weights["w"][:] = 5
    assert weights["w"].flags.writeable and float(weights["w"].sum()) == 5 * 1024
    assert path.read_bytes() == before


def test_weights_elsewhere(tmp_path: Path) -> None:
    graph = sample()
    graph.save(tmp_path / "g.ugraph", weights="model-1.safetensors")
    assert (tmp_path / "model-1.safetensors").exists()
    assert same(ug.load(tmp_path / "g.ugraph"), graph)
    graph.save(tmp_path / "bare.ugraph", weights=False)
    bare = ug.load(tmp_path / "bare.ugraph")
    assert set(bare.weights.values()) == {None}
    assert all(a is not None for v, a in bare.data.items() if v.role == CONSTANT)
    arrays = load_file(tmp_path / "model-1.safetensors")
    for given in (
        tmp_path / "model-1.safetensors",
        str(tmp_path / "model-*.safetensors"),
        [tmp_path / "model-1.safetensors"],
        arrays,
    ):
        assert same(ug.load(tmp_path / "bare.ugraph", weights=given), graph)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-1\.safetensors"):
        ug.load(tmp_path / "g.ugraph")
    assert ug.load(tmp_path / "g.ugraph", weights=False).weights["big"] is None


def test_weights_never_there(tmp_path: Path) -> None:
    graph = sample(weights=False)
    graph.save(tmp_path / "g.ugraph")
    assert same(ug.load(tmp_path / "g.ugraph"), graph)


def test_binding_lists_every_problem() -> None:
    arrays = {"big": np.zeros(3), "nothing": np.zeros(1), "neither": np.zeros(1)}
    with pytest.raises(InputError) as caught:
        sample(weights=False).bind(arrays)
    message = str(caught.value)
    assert "unexpected: 'nothing'" in message and "unexpected: 'neither'" in message and "mismatched: 'big'" in message
    assert "missing" not in message
    bound = sample(weights=False).bind({"big": sample().weights["big"]})
    assert bound.weights["big"] is not None and bound.weights["enc.0/weight"] is None


def test_loading_with_weights_lists_every_problem(tmp_path: Path) -> None:
    sample(weights=False).save(tmp_path / "g.ugraph")
    with pytest.raises(InputError) as caught:
        ug.load(tmp_path / "g.ugraph", weights={"big": np.zeros(3), "more": np.zeros(1)})
    for text in ("5 problem", "missing: 'enc.0/weight'", "missing: '0 ", "mismatched: 'big'", "unexpected: 'more'"):
        assert text in str(caught.value)
    with pytest.raises(InputError, match="no file matches"):
        ug.load(tmp_path / "g.ugraph", weights=str(tmp_path / "x-*.safetensors"))


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    b = GraphBuilder()
    w = b.weight("w", np.ones(4, np.float32))
    graph = b.build((b.add(w, w), b.neg(w)))
    graph.save(tmp_path / "g")
    loaded = ug.load(tmp_path / "g")
    assert len(loaded.data) == 1
    assert loaded.edges[0].inputs[0] is loaded.edges[0].inputs[1] is loaded.edges[1].inputs[0]


def test_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "SHARD", 1000)
    b = GraphBuilder()
    for i in range(7):
        b.weight(f"w{i}", np.full(100, i, np.float32))
    graph = b.build(())
    graph.save(tmp_path / "g")
    assert len(zipfile.ZipFile(tmp_path / "g").namelist()) == 2 + 4
    assert same(ug.load(tmp_path / "g"), graph)


def test_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "g.ugraph"
    sample().save(path)
    before = path.read_bytes()
    graph = sample()
    wrong = graph.replace(data={**graph.data, graph.value("big"): np.zeros(7)})
    with pytest.raises(GraphError, match="big"):
        wrong.save(path)

    class Breaks:
        shape, dtype = (5,), np.dtype(np.int8)

        def __array__(self, *a: Any, **k: Any) -> np.ndarray:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls > 1:
                raise OSError("disk on fire")
            return np.zeros(5, np.int8)

    broken = graph.replace(data={**graph.data, graph.value('0 "odd"\n'): Breaks()})
    with pytest.raises(OSError, match="fire"):
        broken.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["g.ugraph"]


def test_big_sparse_file_loads_at_once(tmp_path: Path) -> None:
    hole = np.memmap(tmp_path / "hole", np.float32, "w+", shape=(64 << 20,))
    b = GraphBuilder()
    w = b.weight("w", hole)
    b.build(b.neg(w)).save(tmp_path / "g.ugraph")
    assert os.stat(tmp_path / "g.ugraph").st_blocks * 512 < 16 << 20, "zeros should have become a hole"
    start = time.perf_counter()
    graph = ug.load(tmp_path / "g.ugraph")
    assert time.perf_counter() - start < 0.5
    assert graph.weights["w"].shape == (64 << 20,) and graph.weights["w"][-1] == 0


def test_cost_per_operation() -> None:
    graph = chain(20_000)
    start = time.perf_counter()
    data = serde.encode(graph).data
    middle = time.perf_counter()
    serde.decode(data)
    end = time.perf_counter()
    ug.check(graph)
    checked = time.perf_counter()
    # Bounds are four times the promise, so that a busy machine does not fail the test.
    assert (middle - start) / 20_000 < 160e-6 and (end - middle) / 20_000 < 160e-6
    assert (checked - end) / 20_000 < 80e-6


def test_unknown_fields_survive(tmp_path: Path) -> None:
    from unigraph.schema import ugraph_pb2 as pb

    graph = sample()
    model = pb.Model.FromString(serde.encode(graph).data)
    region = next(e for e in model.graph.edges if e.regions).regions[0]
    new = b"\xfa\x3f\x05later"  # field 1023, five bytes
    for message in (model, model.graph, region):
        message.MergeFromString(new)
    loaded = serde.decode(model.SerializeToString())
    again = pb.Model.FromString(serde.encode(loaded.replace(name="renamed")).data)
    assert again.SerializeToString().count(b"later") == 3
    assert again.graph.name == "renamed"


def test_composites_of_users_load_anywhere(tmp_path: Path) -> None:
    op = user_composite()
    b = GraphBuilder()
    x = b.input("x", "f32", ("n",))
    y = b.emit(op, (x,), {"times": 3})
    graph = b.build(b.emit(op, (b.emit(op, (y,), {"times": 3}),), {"times": 2}))
    graph.save(tmp_path / "g.ugraph")
    assert same(ug.load(tmp_path / "g.ugraph"), graph)
    del _registry[op.name]
    try:
        loaded = ug.load(tmp_path / "g.ugraph")
    finally:
        _registry[op.name] = op
    assert [e.op.name for e in loaded.edges] == ["call"] * 3
    assert [len(e.regions[0].edges) for e in loaded.edges] == [3, 3, 2]
    assert loaded.edges[0].attrs["name"] == op.name
    assert loaded.edges[0].regions[0] is loaded.edges[1].regions[0]
    ug.check(loaded)


def test_safetensors_of_every_dtype(tmp_path: Path) -> None:
    arrays = {f"t{i}": np.asarray(a) for i, a in enumerate(CONSTANTS)}
    arrays["c128"] = np.ones((2, 3), np.complex128)
    save_file(arrays, tmp_path / "a.safetensors")
    loaded = load_file(tmp_path / "a.safetensors")
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype and loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


def test_safetensors_written_by_the_reference_library(tmp_path: Path) -> None:
    st = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    st.save_file({"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.int8)}, tmp_path / "a.safetensors", {"x": "y"})
    loaded = load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(loaded["a"], np.arange(6.0).reshape(2, 3))


def test_archive_refuses_a_wrong_length(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as out, pytest.raises(FormatError, match="promised"):
        ArchiveWriter(out).add("x", [b"abc"], 4)


def test_deep_regions_are_refused_when_saving(tmp_path: Path) -> None:
    from .samples import nested

    nested(serde.MAX_DEPTH - 2).save(tmp_path / "g")
    ug.load(tmp_path / "g")
    with pytest.raises(FormatError, match="deeper"):
        nested(serde.MAX_DEPTH + 2).save(tmp_path / "h")


@pytest.mark.parametrize("name", ["net.onnx", "net.pt2", "net.safetensors"])
def test_a_name_of_another_format_is_refused(name: str, tmp_path: Path) -> None:
    b = GraphBuilder()
    graph = b.build(b.add(b.input("x", "f32", (2,)), 1.0))
    with pytest.raises(InputError, match="save as"):
        graph.save(tmp_path / name)
    assert not (tmp_path / name).exists()
