"""Files made or damaged to do harm are refused with an error that says where, and never anything else."""

from __future__ import annotations

import io
import json
import random
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unigraph as ug
from unigraph import serde
from unigraph.archive import ArchiveWriter
from unigraph.builder import GraphBuilder
from unigraph.errors import FormatError, UnigraphError
from unigraph.file import MIMETYPE
from unigraph.safetensors import load_file
from unigraph.schema import ugraph_pb2 as pb

from .samples import sample, user_composite


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "g.ugraph"
    sample().save(path)
    return path.read_bytes()


def attempt(path: Path, data: bytes) -> bool:
    """True when the file is refused as it should be; a graph that loads must be sound."""
    path.write_bytes(data)
    try:
        graph = ug.load(path)
        ug.check(graph)
        graph.text(full=True)
    except UnigraphError:
        return True
    return False


# -- damage ----------------------------------------------------------------------------------------


def test_truncation(good: bytes, tmp_path: Path) -> None:
    ends = {*range(0, 200), *range(0, len(good), 211), *range(len(good) - 300, len(good))}
    for end in ends:
        path = tmp_path / "g"
        path.write_bytes(good[:end])
        with pytest.raises(FormatError):
            ug.load(path)


def _start_of_graph(data: bytes) -> tuple[int, int]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    info = archive.getinfo("graph.pb")
    name, extra = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30])
    return info.header_offset + 30 + name + extra, info.file_size


def test_flipped_bytes(good: bytes, tmp_path: Path) -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 1, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        refused += attempt(tmp_path / "g", bytes(data))
    assert refused


def test_flipped_bytes_in_the_graph(tmp_path: Path) -> None:
    """Damage behind the checksum: the protobuf itself is mutated, inserted into and cut."""
    original = serde.encode(sample()).data
    rng = random.Random(2)
    refused = 0
    for _ in range(1500):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 4))):
            place = rng.randrange(len(data))
            change = rng.randrange(4)
            if change == 0:
                data[place] ^= 1 << rng.randrange(8)
            elif change == 1:
                data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif change == 2:
                data[place:place] = rng.randbytes(rng.randrange(1, 6))
            else:
                del data[place : place + rng.randrange(1, 6)]
        try:
            graph = serde.decode(bytes(data))
            ug.check(graph)
            graph.text(full=True)
        except UnigraphError:
            refused += 1
    assert refused > 500


def test_wrong_files(tmp_path: Path) -> None:
    for data in (b"", b"x", b"PK", b"hello world" * 100, zlib.compress(b"x" * 1000), bytes(5000)):
        path = tmp_path / "g"
        path.write_bytes(data)
        with pytest.raises(FormatError):
            ug.load(path)


# -- the archive -----------------------------------------------------------------------------------

Entries = dict[str, bytes]


def entries_of(data: bytes) -> Entries:
    archive = zipfile.ZipFile(io.BytesIO(data))
    return {n: archive.read(n) for n in archive.namelist()}


def write(path: Path, entries: list[tuple[str, bytes]]) -> Path:
    with open(path, "wb") as file:
        writer = ArchiveWriter(file)
        for name, data in entries:
            writer.add(name, [data], len(data), 4096 if name.startswith("weights") else 1, small=name == "mimetype")
        writer.close()
    return path


def refused(path: Path, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        ug.load(path)


def test_a_rewritten_archive_loads(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "g"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries_of(good).items():
            archive.writestr(name, data)
    assert ug.load(path).weights["big"].shape == (2048,)


def test_compressed_entries(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "g"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries_of(good).items():
            archive.writestr(name, data)
    refused(path, "compressed")


def test_bomb(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "g"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("mimetype"), MIMETYPE)
        archive.writestr("graph.pb", bytes(100 << 20))
    start = time.perf_counter()
    refused(path, "compressed")
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "weights/../../x", "a\\b", "C:x", "weights//x", "./x", "a\x00b", "\x1b[2J", "x" * 2000],
)
def test_path_tricks(good: bytes, tmp_path: Path, name: str) -> None:
    refused(write(tmp_path / "g", [*entries_of(good).items(), (name, b"x")]), "entry name")


def test_duplicate_entries(good: bytes, tmp_path: Path) -> None:
    items = list(entries_of(good).items())
    refused(write(tmp_path / "g", [*items, items[1]]), "two entries")


def test_missing_and_foreign_entries(good: bytes, tmp_path: Path) -> None:
    entries = entries_of(good)
    refused(write(tmp_path / "g", [("mimetype", MIMETYPE)]), "graph.pb is missing")
    refused(write(tmp_path / "g", [("graph.pb", entries["graph.pb"])]), "not a unigraph file")
    refused(write(tmp_path / "g", [("mimetype", b"application/epub+zip"), ("graph.pb", b"")]), "not a unigraph file")
    kept = [(n, d) for n, d in entries.items() if not n.startswith("weights/00001")]
    refused(write(tmp_path / "g", kept), "weights/00001.safetensors")


def test_checksum_of_the_graph(good: bytes, tmp_path: Path) -> None:
    start, size = _start_of_graph(good)
    data = bytearray(good)
    data[start + size // 2] ^= 1
    (tmp_path / "g").write_bytes(data)
    refused(tmp_path / "g", "checksum")


def test_sizes_and_offsets_beyond_the_file(good: bytes, tmp_path: Path) -> None:
    directory = good.index(b"PK\x01\x02")
    second = good.index(b"PK\x01\x02", directory + 4)
    extra = second + 46 + len("graph.pb") + 4
    for place in (extra, extra + 8, extra + 16):
        for value in (1, 1 << 40, (1 << 64) - 1, len(good)):
            data = bytearray(good)
            struct.pack_into("<Q", data, place, value)
            assert attempt(tmp_path / "g", bytes(data))


def test_overlapping_entries(good: bytes, tmp_path: Path) -> None:
    entries = entries_of(good)
    inner = write(tmp_path / "inner", [("graph.pb", entries["graph.pb"])]).read_bytes()
    path = tmp_path / "g"
    with open(path, "wb") as file:
        writer = ArchiveWriter(file)
        writer.add("mimetype", [MIMETYPE], len(MIMETYPE), small=True)
        at = file.tell() + 30 + len("hull") + 20
        writer.add("hull", [inner], len(inner))
        writer._directory.append((b"graph.pb", at, len(entries["graph.pb"]), zlib.crc32(entries["graph.pb"]), False))
        writer.close()
    refused(path, "overlaps")


# -- the weights -----------------------------------------------------------------------------------


def tensors(header: Any, data: bytes = bytes(64)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def item(dtype: Any = "F32", shape: Any = (16,), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BAD_TENSORS: dict[str, bytes] = {
    "short": b"abc",
    "header too long": struct.pack("<Q", 1 << 62) + bytes(64),
    "not json": tensors(b"{]"),
    "not utf8": tensors(b"\xff\xfe"),
    "nested json": tensors(b"[" * 100_000),
    "huge number": tensors(b'{"x":{"dtype":"F32","shape":[' + b"9" * 10_000 + b'],"data_offsets":[0,64]}}'),
    "a list": tensors([1]),
    "duplicate": tensors(b'{"x":' + json.dumps(item()).encode() + b',"x":' + json.dumps(item()).encode() + b"}"),
    "dtype": tensors({"x": item(dtype="OBJECT")}),
    "dtype type": tensors({"x": item(dtype=[1])}),
    "negative": tensors({"x": item(shape=[-16])}),
    "float": tensors({"x": item(shape=[16.0])}),
    "overflow": tensors({"x": item(shape=[1 << 61, 1 << 61, 16])}),
    "rank": tensors({"x": item(shape=[1] * 100)}),
    "beyond": tensors({"x": item(shape=[32], offsets=[0, 128])}),
    "backwards": tensors({"x": item(offsets=[64, 0])}),
    "three offsets": tensors({"x": item(offsets=[0, 64, 64])}),
    "size": tensors({"x": item(shape=[15])}),
    "overlap": tensors({"x": item(), "y": item()}),
    "gap": tensors({"x": item(shape=[8], offsets=[32, 64])}),
    "rest": tensors({"x": item(shape=[8], offsets=[0, 32])}),
    "keys": tensors({"x": {**item(), "more": 1}}),
}


@pytest.mark.parametrize("kind", BAD_TENSORS)
def test_bad_safetensors(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.safetensors").write_bytes(BAD_TENSORS[kind])
    with pytest.raises(FormatError):
        load_file(tmp_path / "x.safetensors")


def test_tensor_of_another_type(tmp_path: Path) -> None:
    b = GraphBuilder()
    b.weight("w", np.zeros(16, np.float32))
    b.build(()).save(tmp_path / "g")
    entries = entries_of((tmp_path / "g").read_bytes())
    for header in ({"w": item(shape=[4, 4])}, {"w": item(dtype="I32")}, {"v": item()}):
        entries["weights/00001.safetensors"] = tensors(header)
        refused(write(tmp_path / "h", list(entries.items())), "00001.safetensors")


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "", "passwd", "a\\b.safetensors"]
)
def test_external_weights_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    sample().save(tmp_path / "g", weights="m.safetensors")
    entries = entries_of((tmp_path / "g").read_bytes())
    model = pb.Model.FromString(entries["graph.pb"])
    index = list(model.strings).index("m.safetensors")
    model.strings[index] = name or "x"
    if not name:
        for node in model.graph.nodes:
            node.ref.entry = 0 if node.HasField("ref") and node.ref.external else node.ref.entry
    entries["graph.pb"] = model.SerializeToString()
    refused(write(tmp_path / "h", list(entries.items())), "same folder")


# -- the graph -------------------------------------------------------------------------------------


def node(role: int, **fields: Any) -> Callable[[pb.Model], pb.Value]:
    return lambda m: next(n for n in m.graph.nodes if n.role == role)


def _swap_edges(m: pb.Model) -> None:
    edges = list(m.graph.edges)
    del m.graph.edges[:]
    m.graph.edges.extend(reversed(edges))


def _cycle(m: pb.Model) -> None:
    m.graph.edges[0].inputs[0] = m.graph.edges[1].outputs[0]
    m.graph.edges[1].inputs[0] = m.graph.edges[0].outputs[0]


def _deep_regions(m: pb.Model) -> None:
    edge = next(e for e in m.graph.edges if e.regions)
    body = pb.Graph()
    body.CopyFrom(edge.regions[0])
    for _ in range(40):
        outer = pb.Graph()
        outer.edges.add(op=edge.op).regions.add().CopyFrom(body)
        body = outer
    edge.regions[0].CopyFrom(body)


def _deep_tree(m: pb.Model) -> None:
    tree = m.graph.signature.out
    for _ in range(60):
        tree.kind = pb.Tree.LIST
        tree = tree.children.add()


def _edit(path: str, value: Any) -> Callable[[pb.Model], None]:
    def change(m: pb.Model) -> None:
        target: Any = m
        *steps, last = path.split(".")
        for step in steps:
            target = target[int(step)] if step.isdigit() else getattr(target, step)
        if last.isdigit():
            target[int(last)] = value
        else:
            setattr(target, last, value)

    return change


def _expression(text: str) -> Callable[[pb.Model], None]:
    def change(m: pb.Model) -> None:
        m.strings.append(text)
        m.types.add(dtype=m.types[0].dtype).shape.add(expression=len(m.strings) - 1)

    return change


def _dtype(text: str) -> Callable[[pb.Model], None]:
    def change(m: pb.Model) -> None:
        m.strings.append(text)
        m.types[0].dtype = len(m.strings) - 1

    return change


BAD_GRAPHS: dict[str, tuple[Callable[[pb.Model], Any], str]] = {
    "newer format": (_edit("format_version", 99), "format version 99"),
    "no format": (_edit("format_version", 0), "format version 0"),
    "newer opset": (_edit("opset_version", 99), "opset 99"),
    "no strings": (lambda m: m.ClearField("strings"), "string table"),
    "value out of range": (_edit("graph.edges.0.inputs.0", 10**6), "out of range"),
    "output out of range": (_edit("graph.outputs.0", 10**6), "out of range"),
    "input out of range": (_edit("graph.inputs.0", 10**6), "out of range"),
    "input twice": (lambda m: m.graph.inputs.append(m.graph.inputs[0]), "input twice"),
    "state out of range": (_edit("graph.states.0.update", 10**6), "out of range"),
    "name out of range": (_edit("graph.nodes.0.name", 10**6), "out of range"),
    "type out of range": (_edit("graph.nodes.0.type", 10**6), "out of range"),
    "role out of range": (_edit("graph.nodes.0.role", 77), "out of range"),
    "scope out of range": (_edit("graph.edges.0.scope", 10**6), "out of range"),
    "op out of range": (_edit("graph.edges.0.op", 10**6), "no string"),
    "attribute name": (lambda m: _attribute(m)(name=10**6), "out of range"),
    "unknown attribute": (lambda m: _attribute(m)(name=1, integer=3), "no attribute"),
    "empty attribute": (lambda m: _attribute(m)(name=0), "no value"),
    "use before definition": (_swap_edges, "before it is made"),
    "cycle": (_cycle, "before it is made"),
    "made twice": (lambda m: m.graph.edges.add().CopyFrom(m.graph.edges[0]), "made twice"),
    "never made": (lambda m: m.graph.nodes.add(type=0), "never made"),
    "a constant made": (lambda m: m.graph.edges[0].outputs.append(m.graph.inputs[0]), "made twice"),
    "no operands": (lambda m: m.graph.edges[0].ClearField("inputs"), "operands"),
    "wrong result type": (lambda m: _edit("type", 2)(m.graph.nodes[m.graph.edges[0].outputs[0]]), "the graph says"),
    "no regions": (lambda m: next(e for e in m.graph.edges if e.regions).ClearField("regions"), "regions"),
    "regions without need": (lambda m: m.graph.edges[0].regions.add(), "regions"),
    "deep regions": (_deep_regions, "deeper|not a valid graph"),
    "deep tree": (_deep_tree, "deeper"),
    "tree kind": (_edit("graph.signature.out.kind", 99), "out of range"),
    "tree keys": (lambda m: m.graph.signature.args.keys.add(text="x"), "keys"),
    "signature leaves": (lambda m: m.graph.signature.args.children.add(), "signature"),
    "symbol twice": (lambda m: m.graph.symbols.add().CopyFrom(m.graph.symbols[0]), "symbol"),
    "symbol name": (_edit("graph.symbols.0.name", "__import__('os')"), "symbol"),
    "symbol constraint": (_edit("graph.symbols.0.multiple_of", 0), "constraint"),
    "symbol missing": (lambda m: m.graph.ClearField("symbols"), "not declared"),
    "unknown dtype": (_dtype("f33"), "unknown dtype"),
    "code as dtype": (_dtype("__import__('os').system('x')"), "unknown dtype"),
    "code as size": (_expression("__import__('os').system('x')"), "size expression"),
    "power as size": (_expression("9**9**9**9"), "size expression"),
    "product of sums": (_expression("*".join(["(a+b+c)"] * 60)), "too large"),
    "long size": (_expression("a" * 10_000), "too long"),
    "nested size": (_expression("(" * 3000 + "a" + ")" * 3000), "too long|size"),
    "deep size": (_expression("-" * 2000 + "a"), "size"),
    "division by zero": (_expression("a // 0"), "zero"),
    "many arguments": (_expression(f"max({','.join(['a', 'b'] * 500)})"), "too large"),
    "negative size": (lambda m: m.types.add(dtype=m.types[0].dtype).shape.add(size=-1), "negative"),
    "huge size": (lambda m: m.types.add(dtype=m.types[0].dtype).shape.add(size=(1 << 63) - 1), "out of range"),
    "huge rank": (lambda m: m.types.add(shape=[pb.Dim(size=1)] * 100), "rank"),
    "constant without data": (lambda m: node(pb.CONSTANT)(m).ClearField("raw"), "without data"),
    "short data": (lambda m: setattr(node(pb.CONSTANT)(m), "raw", b"x"), "bytes of data"),
    "name twice": (lambda m: setattr(_weights(m)[1], "name", _weights(m)[0].name), "called"),
    "state without update": (lambda m: m.graph.ClearField("states"), "never updated"),
}


def _attribute(m: pb.Model) -> Callable[..., Any]:
    edge = next(e for e in m.graph.edges if e.attributes)
    return edge.attributes.add


def _weights(m: pb.Model) -> list[Any]:
    return [n for n in m.graph.nodes if n.role == pb.WEIGHT]


@pytest.mark.parametrize("kind", BAD_GRAPHS)
def test_bad_graph(tmp_path: Path, kind: str) -> None:
    change, match = BAD_GRAPHS[kind]
    model = pb.Model.FromString(serde.encode(sample()).data)
    change(model)
    path = write(tmp_path / "g", [("mimetype", MIMETYPE), ("graph.pb", model.SerializeToString())])
    start = time.perf_counter()
    refused(path, match)
    assert time.perf_counter() - start < 5


def test_unknown_operations_are_all_named() -> None:
    model = pb.Model.FromString(serde.encode(sample()).data)
    for old, new in (("tanh", "tanh_of_tomorrow"), ("round", "eval")):
        model.strings[list(model.strings).index(old)] = new
    with pytest.raises(FormatError, match=r"'eval' \(x1\), 'tanh_of_tomorrow' \(x1\).*newer unigraph"):
        serde.decode(model.SerializeToString())


def test_a_function_refers_to_earlier_ones_only() -> None:
    op = user_composite()
    b = GraphBuilder()
    x = b.input("x", "f32", (2,))
    model = pb.Model.FromString(serde.encode(b.build(b.emit(op, (x,), {"times": 1}))).data)
    model.strings[list(model.strings).index(op.name)] = "somebody_elses"
    for function in (2, 7):
        model.functions[0].body.edges[0].function = function
        model.functions[0].body.edges[0].op = model.functions[0].name
        with pytest.raises(FormatError, match=r"no function|unknown"):
            serde.decode(model.SerializeToString())


def test_garbage_after_the_checksum(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(300):
        data = rng.randbytes(rng.randrange(300))
        path = write(tmp_path / "g", [("mimetype", MIMETYPE), ("graph.pb", data)])
        with pytest.raises(FormatError):
            ug.load(path)


def test_a_composite_does_not_grow_without_end(tmp_path: Path) -> None:
    op = user_composite()
    b = GraphBuilder()
    x = b.input("x", "f32", (2,))
    model = pb.Model.FromString(serde.encode(b.build(b.emit(op, (x,), {"times": 3}))).data)
    model.graph.edges[0].attributes[0].integer = 1 << 40
    start = time.perf_counter()
    refused(write(tmp_path / "g", [("mimetype", MIMETYPE), ("graph.pb", model.SerializeToString())]), "grows beyond")
    assert time.perf_counter() - start < 5


def test_functions_that_double_each_other_are_refused() -> None:
    op = user_composite()
    b = GraphBuilder()
    x = b.input("x", "f32", (2,))
    model = pb.Model.FromString(serde.encode(b.build(b.emit(op, (x,), {"times": 2}))).data)
    model.strings[list(model.strings).index(op.name)] = "somebody_elses"
    for level in range(1, 60):
        function = model.functions.add()
        function.CopyFrom(model.functions[0])
        for edge in function.body.edges:
            edge.ClearField("attributes")
            edge.op, edge.function = function.name, level
            del edge.inputs[1:]
    model.graph.edges[0].function = 60
    with pytest.raises(FormatError, match="expand to more"):
        serde.decode(model.SerializeToString())
