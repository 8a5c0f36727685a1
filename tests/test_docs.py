"""Generated documents are current, and say something about every op and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import unigraph as ug
from unigraph.opdef import registry

for package in ("torch", "jax", "onnx"):
    pytest.importorskip(package)

from docs import generate
from docs.constraints import constraints

DOCS = Path(__file__).parents[1] / "docs"
# Type rules that refuse nothing: any operand will do.
FREE = {"copy", "optimization_barrier", "stop_gradient"}


@pytest.mark.parametrize("name", ["opset.md", "api.md", "passes.md"])
def test_documents_are_current(name: str) -> None:
    assert (DOCS / name).read_text() == generate.documents()[name], "write them anew: python -m docs.generate"


def test_every_op_is_told() -> None:
    text = (DOCS / "opset.md").read_text()
    told = re.findall(r"^### (\w+)$", text, re.M)
    assert sorted(told) == sorted(op.name for op in registry().values() if op.family != "user")
    assert not [op.name for op in registry().values() if not op.doc]


def test_every_core_op_tells_its_constraints() -> None:
    bare = {op.name for op in registry().values() if not op.is_composite and not constraints(op)}
    assert bare == FREE


def test_every_public_name_is_told() -> None:
    text = (DOCS / "api.md").read_text()
    assert set(re.findall(r"^### (\w+)$", text, re.M)) == set(ug.__all__) - {"errors"}


@pytest.mark.parametrize(
    "name", [n for n in ug.__all__ if callable(getattr(ug, n)) and not isinstance(getattr(ug, n), type)]
)
def test_functions_say_what_they_raise(name: str) -> None:
    assert "Raises" in (getattr(ug, name).__doc__ or ""), f"the docstring of {name} does not say what it raises"


def test_links_lead_somewhere() -> None:
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        anchors = {a.lower().replace(" ", "-") for a in re.findall(r"^#+ (.+)$", text, re.M)}
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            place, _, anchor = link.partition("#")
            assert "://" in link or not place or (DOCS / place).exists(), f"{path.name}: {link}"
            assert place or anchor in anchors, f"{path.name}: {link}"
