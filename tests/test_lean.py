"""With NumPy, protobuf and ml_dtypes alone a file loads, shows and runs; what is missing is named.

The lean environment is this one with an import hook that hides every other package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unigraph as ug

# Refuses to import anything but the standard library, the three dependencies and the package itself.
HOOK = """
import importlib.abc, sys
class Lean(importlib.abc.MetaPathFinder):
    kept = {"numpy", "google", "ml_dtypes", "unigraph", *sys.stdlib_module_names}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.kept and not name.startswith(("__editable__", "_")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Lean())
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    b = ug.GraphBuilder("mlp")
    x = b.input("x", "f32", (2, 3))
    w = b.weight("w", np.arange(12, dtype=np.float32).reshape(4, 3))
    graph = b.build(b.softmax(b.gelu(b.linear(x, w), approximate="tanh"), axis=-1))
    path = tmp_path_factory.mktemp("lean") / "mlp.ugraph"
    graph.save(path)
    return path


def lean(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HOOK + code], capture_output=True, text=True, cwd=folder, env={**os.environ}
    )


def test_loads_shows_and_runs(file: Path) -> None:
    code = """
import numpy as np, unigraph as ug
g = ug.load("mlp.ugraph")
assert "linear" in str(g) and ug.stats(g).operations == 3
ug.check(g)
for engine in ("numpy", "auto"):
    y = ug.run(g, np.ones((2, 3), np.float32), engine=engine)
    assert y.shape == (2, 4) and np.allclose(y.sum(-1), 1)
ug.optimize(g, level=3)
print("fine")
"""
    done = lean(code, file.parent)
    assert done.stdout.strip() == "fine", done.stderr


def test_command_line(file: Path) -> None:
    code = (
        "import sys; from unigraph.cli import main\n"
        "sys.exit(main(['show', 'mlp.ugraph', '--stats']) or main(['doctor']))"
    )
    done = lean(code, file.parent)
    assert done.returncode == 0, done.stderr
    assert "torch" in done.stdout and "not installed" in done.stdout


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("ug.from_torch", "torch"),
        ("ug.to_torch", "torch"),
        ("ug.from_jax", "jax"),
        ("ug.to_onnx", "onnx"),
        ("ug.run(ug.load('mlp.ugraph'), 1, engine='torch')", "torch"),
        ("ug.run(ug.load('mlp.ugraph'), 1, engine='jax')", "jax"),
        ("ug.run(ug.load('mlp.ugraph'), 1, engine='onnx')", "onnx"),
        ("ug.GraphBuilder().input('x', 'f32', ('batch',))", "symbolic"),
    ],
)
def test_missing_package_names_the_extra(code: str, extra: str, file: Path) -> None:
    done = lean(f"import unigraph as ug\n{code}", file.parent)
    assert done.returncode == 1
    assert f"pip install 'unigraph[{extra}]'" in done.stderr.splitlines()[-1]
