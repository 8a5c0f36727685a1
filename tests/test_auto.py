"""The choice among engines: ``auto``, ``tune``, and the engine that torch compiles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import unigraph as ug
from unigraph.graph import Graph
from unigraph.runtime import auto, measure
from unigraph.runtime.engines import ENGINES, Compiled

from .test_runtime import PACKAGES, WANTED, X, Y, affine, cache

__all__ = ["cache"]  # the fixture: a cache folder for each test


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The engines that auto prepared, in order."""
    for package in PACKAGES.values():
        pytest.importorskip(package)
    made: list[str] = []

    def record(graph: Graph, name: str, device: str | None) -> Compiled:
        made.append(name)
        return Compiled(graph, name, device)

    monkeypatch.setattr(measure, "Compiled", record)
    yield made


def test_auto_measures_once(measured: list[str], cache: Path) -> None:
    f = ug.compile(affine())
    assert f.engine == "auto"
    np.testing.assert_allclose(f(X, Y), WANTED, rtol=1e-5)
    f(X, Y)
    tried = list(map(str, measure.QUICK))
    assert [f"{name}{'+3' if i in (3, 4, 5) else ''}" for i, name in enumerate(measured)] == tried
    (winner,) = json.loads(cache.read_text()).values()
    assert f.engine in ENGINES and winner in tried and winner.startswith(f.engine)
    again = ug.compile(affine())  # an equal graph, as in another process
    again(X, Y)
    assert measured[len(tried) :] == [f.engine]
    np.testing.assert_allclose(ug.run(affine(), X[:2], Y[:2]), WANTED[:2], rtol=1e-5)
    assert len(json.loads(cache.read_text())) == 2  # other shapes, another choice


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"a": 3}', "\x00\xff"])
def test_auto_survives_a_corrupt_cache(content: str, measured: list[str], cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(content)
    np.testing.assert_allclose(ug.run(affine(), X, Y), WANTED, rtol=1e-5)
    assert len(json.loads(cache.read_text())) >= 1


def test_auto_without_a_cache_folder(measured: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    np.testing.assert_allclose(ug.run(affine(), X, Y), WANTED, rtol=1e-5)


def test_auto_passes_over_engines_that_fail(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def only_numpy(graph: Graph, name: str, device: str | None) -> Compiled:
        if name != "numpy":
            raise RuntimeError("broken")
        return Compiled(graph, name, device)

    monkeypatch.setattr(measure, "Compiled", only_numpy)
    f = ug.compile(affine())
    f(X, Y)
    assert f.engine == "numpy"
    known = json.loads(cache.read_text())
    cache.write_text(json.dumps({k: "torch" for k in known}))  # remembered, but broken since
    f = ug.compile(affine())
    f(X, Y)
    assert f.engine == "numpy" and set(json.loads(cache.read_text()).values()) == {"numpy"}


def test_auto_reports_every_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Graph, name: str, device: str | None) -> Compiled:
        raise RuntimeError(f"{name} is broken")

    monkeypatch.setattr(measure, "Compiled", broken)
    with pytest.raises(ug.EngineError, match=r"(?s)no engine can run.*torch: torch is broken.*numpy: numpy is broken"):
        ug.run(affine(), X, Y)


def test_the_digest_tells_graphs_apart() -> None:
    def scaled(by: float, weight: float) -> Graph:
        b = ug.GraphBuilder("scaled")
        x, w = b.input("x", "f32", (4,)), b.weight("w", np.full(4, weight, np.float32))
        return b.build(b.mul(b.mul(x, w), b.constant(np.full(4, by, np.float32))))

    assert auto.digest(scaled(1, 1)) == auto.digest(scaled(1, 2)) != auto.digest(scaled(2, 1))


# -- tune ----------------------------------------------------------------------------------------------


def test_tune_measures_everything_and_auto_takes_the_winner(measured: list[str], cache: Path) -> None:
    tuning = ug.tune(affine(), X, Y)
    assert [str(row.candidate) for row in tuning.rows if row.reason] == []
    assert sorted(str(row.candidate) for row in tuning.rows) == sorted(map(str, measure.ALL))
    assert set(measured) == set(ENGINES)
    seconds = [row.seconds for row in tuning.rows]
    assert tuning.best is tuning.rows[0] and min(seconds) == seconds[0] > 0
    assert all(row.first > 0 and row.memory >= 0 for row in tuning.rows)
    table = str(tuning)
    assert len(table.splitlines()) == 1 + len(measure.ALL) and "█" in table and "torch.compile" in table
    assert tuning.to_dict()[0]["calls_per_second"] == pytest.approx(1 / seconds[0])
    assert list(json.loads(cache.read_text()).values()) == [str(tuning.best.candidate)]
    del measured[:]
    f = ug.compile(affine())
    np.testing.assert_allclose(f(X, Y), WANTED, rtol=1e-5)
    assert measured == [tuning.best.candidate.engine] == [f.engine]


def test_tune_of_some_engines_remembers_nothing(measured: list[str], cache: Path) -> None:
    tuning = ug.tune(affine(), engines=["numpy", "onnx"], x=X, y=Y)
    assert {row.candidate.engine for row in tuning.rows} == {"numpy", "onnx"} == set(measured)
    assert not cache.exists()
    with pytest.raises(ug.EngineError, match="no engine 'abacus'"):
        ug.tune(affine(), X, Y, engines=["abacus"])
    with pytest.raises(ug.InputError, match="x"):
        ug.tune(affine(), X[:, :2], Y)


def test_tune_keeps_to_its_budget(measured: list[str]) -> None:
    tuning = ug.tune(affine(), X, Y, budget=0)
    assert len(measured) == 1 and "not measured" in str(tuning)
    assert tuning.best and tuning.best.candidate.engine == measured[0]
    assert {"candidate", "reason"} == tuning.to_dict()[-1].keys()


def test_candidates_as_text() -> None:
    assert all(measure.Candidate.parse(str(c)) == c for c in measure.ALL)
    assert [measure.Candidate.parse(t) for t in ("", "abacus", "torch+9", "torch+")] == [None] * 3 + [
        measure.Candidate("torch")
    ]


# -- torch.compile -------------------------------------------------------------------------------------


def test_the_compiled_engine() -> None:
    pytest.importorskip("torch")
    f = ug.compile(affine(), "torch.compile")
    for rows in (4, 2, 8):
        np.testing.assert_allclose(
            f(np.ones((rows, 3), np.float32), Y[:1].repeat(rows, 0)), WANTED[:1].repeat(rows, 0), rtol=1e-5
        )
    with pytest.raises(ug.InputError, match="batch"):
        f(np.ones((5, 3), np.float32), np.ones((5, 2), np.float32))
    with pytest.raises(ug.EngineError, match="abacus"):
        ug.compile(affine(), "torch.compile", "abacus")


def test_the_compiled_engine_carries_states() -> None:
    pytest.importorskip("torch")
    b = ug.GraphBuilder("counter")
    x = b.input("x", "f32", (3,))
    total = b.state("total", np.zeros(3, np.float32))
    b.update(total, b.add(total, x))
    w = b.weight("w", np.arange(3, dtype=np.float32))
    f = ug.compile(b.build((b.mul(x, w), w)), "torch.compile")
    given = np.ones(3, np.float32)
    (_, weight), _ = f.step(given)
    _, states = f.step(given)
    _, states = f.step(given, states=states)
    np.testing.assert_array_equal(states["total"], [2, 2, 2])
    weight += 1  # a copy: the next call has the weight as it was
    np.testing.assert_array_equal(f(given)[1], [0, 1, 2])


def test_threads_share_the_compiled_engine() -> None:
    pytest.importorskip("torch")
    f = ug.compile(affine(), "torch.compile")

    def work(i: int) -> bool:
        return np.allclose(f(X * i, Y), np.tanh(np.arctanh(WANTED) * i), atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))
