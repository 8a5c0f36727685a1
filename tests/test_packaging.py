"""What a wheel and an sdist hold, and that an installed wheel runs without this folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import unigraph as ug

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = ("unigraph", "schema", "runtime", "converters")
PACKAGES = set(PROJECT["tool"]["setuptools"]["packages"])

pytest.importorskip("setuptools", reason="the build backend setuptools is not installed", minversion="77")
pytest.importorskip("build", reason="the package build is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """The sdist and the wheel, built from a copy so that this folder stays as it is."""
    source = tmp_path_factory.mktemp("source")
    for name in (*SOURCES, "pyproject.toml", "README.md", "LICENSE"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(path, source / name)
    out = source / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


def wanted() -> set[str]:
    """Files of the package by their names in an installation."""
    found = set()
    for name in SOURCES:
        for path in (ROOT / name).rglob("*"):
            if path.suffix in (".py", ".pyi", ".proto") or path.name == "py.typed":
                inner = path.relative_to(ROOT).as_posix()
                found.add(inner if name == "unigraph" else f"unigraph/{inner}")
    return found


def test_the_list_of_packages_is_complete():
    have = {str(Path(name).parent).replace("/", ".") for name in wanted() if name.endswith("/__init__.py")}
    assert have == PACKAGES


def test_the_wheel_holds_the_packages_and_nothing_else(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    inside = {n for n in names if ".dist-info/" not in n}
    assert {n.split("/")[0] for n in inside} == {"unigraph"}
    assert {n for n in wanted() if not n.endswith(".pyi")} <= inside
    assert {"unigraph/py.typed", "unigraph/schema/ugraph.proto", "unigraph/schema/ugraph_pb2.py"} <= inside
    assert inside <= wanted()
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert "Requires-Dist: numpy" in metadata and 'extra == "torch"' in metadata


def test_the_sdist_holds_the_sources(built):
    with tarfile.open(built["sdist"]) as sdist:
        names = {n.split("/", 1)[1] for n in sdist.getnames() if "/" in n}
    assert {"pyproject.toml", "README.md", "LICENSE", "schema/ugraph.proto", "unigraph/py.typed"} <= names
    assert {p.relative_to(ROOT).as_posix() for name in SOURCES for p in (ROOT / name).rglob("*.py")} <= names


def test_an_installed_wheel_runs(built, tmp_path):
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--quiet",
        "--target",
        str(site),
        str(built["wheel"]),
    ]
    done = subprocess.run([*command, "--no-index", "--disable-pip-version-check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    b = ug.GraphBuilder("small")
    x = b.input("x", "f32", ("batch", 2))
    b.build(b.relu(b.linear(x, b.weight("w", np.eye(2, dtype=np.float32))))).save(tmp_path / "m.ugraph")
    code = """
import sys, numpy as np, unigraph as ug
assert ug.__file__.startswith(sys.argv[1]), ug.__file__
out = ug.run("m.ugraph", np.array([[1, -1]], np.float32), engine="numpy")
assert out.tolist() == [[1, 0]], out
assert "relu" in ug.to_source(ug.load("m.ugraph"), "numpy")
import unigraph.schema, unigraph.runtime.numpy, unigraph.converters.onnx, unigraph.cli
assert all(m.__file__.startswith(sys.argv[1]) for n, m in sys.modules.items() if n.split(".")[0] == "unigraph")
"""
    # -S -E would hide NumPy too: the target folder comes first on the path instead.
    env = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", code, str(site)], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=120
    )
    assert run.returncode == 0, run.stderr
    script = site / "bin" / "unigraph"
    assert script.exists()
    shown = subprocess.run(
        [sys.executable, str(script), "check", "m.ugraph"], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert shown.returncode == 0 and "well formed" in shown.stdout, shown.stderr


def test_build_products_are_not_committed():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wrong = [n for n in listed if ".egg-info" in n or n.startswith(("build/", "dist/")) or "__pycache__" in n]
    assert wrong == []
