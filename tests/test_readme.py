"""Every example in the README runs, in order, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
PYTHON = "\n".join(code for kind, code in BLOCKS if kind == "python")
SHELL = [line for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the Python examples have run."""
    for package in ("torch", "jax", "onnxruntime"):
        pytest.importorskip(package)
    path = tmp_path_factory.mktemp("readme")
    (path / "readme.py").write_text(PYTHON)
    run(["-W", "ignore", "readme.py"], path)
    return path


def run(arguments: list[str], path: Path) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(path)}
    done = subprocess.run([sys.executable, *arguments], cwd=path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_examples_run(folder: Path) -> None:
    assert (folder / "net.ugraph").exists()


@pytest.mark.parametrize("line", SHELL)
def test_shell_examples_run(line: str, folder: Path) -> None:
    program, *arguments = line.split()
    assert program == "unigraph"
    assert run(["-m", "unigraph.cli", *arguments], folder)


def test_make_commands_exist() -> None:
    """The README's make commands are targets of the Makefile, and CI calls the test command."""
    text = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^    make (\w+)", text, re.M)) <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert not [
        link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link and not (ROOT / link).exists()
    ]
