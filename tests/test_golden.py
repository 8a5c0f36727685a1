"""Files of every released format version load, check and give what they gave."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import unigraph as ug
from unigraph import serde
from unigraph.tolerances import difference

FILES = sorted((Path(__file__).parent / "golden").glob("v*.ugraph"))


def test_the_current_version_has_one() -> None:
    assert f"v{serde.FORMAT_VERSION}.ugraph" in {f.name for f in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden_file(path: Path, tmp_path: Path) -> None:
    graph = ug.load(path)
    assert {"layers.0.weight", "layers.0.bias", "layers.1.weight"} <= graph.weights.keys()
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = [stored[n] for n in sorted(n for n in stored if n.startswith("in"))]
        expected = [stored[n] for n in sorted(n for n in stored if n.startswith("out"))]
    actual = ug.compile(graph, "numpy").flat(inputs, {})
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        assert difference(np.asarray(a), e) is None
    # What was read can be written, and reads the same.
    graph.save(tmp_path / "again.ugraph")
    assert serde.encode(ug.load(tmp_path / "again.ugraph")).data == serde.encode(graph).data
    assert serde.encode(ug.parse(graph.text(full=True))).data == serde.encode(graph).data
