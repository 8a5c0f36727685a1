"""The generated code is what the schema says, and the ledger names every field."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from unigraph.graph import ROLES
from unigraph.schema import ugraph_pb2 as pb
from unigraph.tree import KINDS

SCHEMA = Path(__file__).resolve().parent.parent / "schema"


def _generate(folder: Path) -> Path:
    spec = importlib.util.spec_from_file_location("generate", SCHEMA / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.generate(folder)


def _version(text: str) -> str:
    found = re.search(r"Protobuf Python Version: (\S+)", text)
    assert found
    return found[1]


def test_generated_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: the generated code is not compared")
    committed, fresh = (SCHEMA / "ugraph_pb2.py").read_text(), _generate(tmp_path).read_text()
    if _version(committed) == _version(fresh):
        assert committed == fresh, "run: python schema/generate.py"
    else:  # another compiler writes other boilerplate; the schema inside must be the same
        descriptors = [re.search(r"AddSerializedFile\((.*)\)\n", t) for t in (committed, fresh)]
        assert descriptors[0] and descriptors[1] and descriptors[0][1] == descriptors[1][1]


def test_lower_bound_of_protobuf_suits_the_generated_code() -> None:
    project = (SCHEMA.parent / "pyproject.toml").read_text()
    bound = re.search(r'"protobuf>=([\d.]+)', project)
    assert bound
    numbers = [tuple(map(int, v.split("."))) for v in (bound[1], _version((SCHEMA / "ugraph_pb2.py").read_text()))]
    assert numbers[0] >= numbers[1]


def test_ledger_names_every_field() -> None:
    rows = set(re.findall(r"^\| (\w+) \| (\w+) \| (\d+) \|", (SCHEMA / "CHANGES.md").read_text(), re.M))
    fields = set()
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        fields |= {(message.name, f.name, str(f.number)) for f in message.fields}
    assert rows == fields


def test_enums_follow_the_language() -> None:
    assert [r or "produced" for r in ROLES] == [name.lower() for name in pb.Role.DESCRIPTOR.values_by_name]
    assert list(KINDS) == [name.lower() for name in pb.Tree.Kind.DESCRIPTOR.values_by_name]
