"""Dependencies point one way, importing is free, and no framework is loaded before it is needed."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What each layer may import of the others, at module level or inside functions.
ALLOWED = {
    "schema": set(),
    "unigraph": {"schema"},
    "runtime": {"schema", "unigraph"},
    "converters": {"schema", "unigraph", "runtime"},
}
# The top of the house, and the places that reach up on purpose when a function is called.
TOP = {"unigraph/cli/files.py", "unigraph/cli/commands.py", "unigraph/__init__.py"}
REACHES_UP = {"unigraph/passes/fold.py": "folding evaluates with the reference table"}


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "unigraph":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in ALLOWED else "unigraph"


def imports(path: Path) -> set[str]:
    """Full names of the project's modules that a file imports."""
    layer = path.relative_to(ROOT).parts[0]
    package = ["unigraph", *path.relative_to(ROOT).with_suffix("").parts]
    if layer == "unigraph":
        package = package[1:]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level] if node.level else []
            found.add(".".join([*base, *([node.module] if node.module else [])]))
    return {name for name in found if name.split(".")[0] == "unigraph"}


FILES = [p for layer in ALLOWED for p in sorted((ROOT / layer).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_dependencies_point_one_way(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    if name in TOP or name in REACHES_UP:
        return
    layer = path.relative_to(ROOT).parts[0]
    wrong = {m for m in imports(path) if layer_of(m) not in {layer, *ALLOWED[layer]}}
    assert not wrong, f"{name} imports {', '.join(sorted(wrong))}"


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_framework() -> None:
    heavy = {"torch", "jax", "onnx", "onnxruntime", "sympy", "transformers"}
    assert python(f"import sys, unigraph; print({heavy!r} & set(sys.modules))") == "set()"


def test_running_on_numpy_loads_no_framework() -> None:
    code = """
import sys, numpy as np, unigraph as ug
b = ug.GraphBuilder(); x = b.input("x", "f32", (3,)); g = b.build(b.softmax(x, axis=0))
ug.compile(g, "numpy")(np.ones(3, np.float32))
print({"torch", "jax", "onnx", "onnxruntime", "sympy"} & set(sys.modules))
"""
    assert python(code) == "set()"


def test_import_is_quick() -> None:
    """The budget is 150 ms; the interpreter's own start does not count. The median of five keeps noise out."""
    code = "import time; t = time.perf_counter(); import unigraph; print(time.perf_counter() - t)"
    assert statistics.median(float(python(code)) for _ in range(5)) < 0.150


def test_public_names_resolve() -> None:
    for package in ("torch", "jax", "onnx"):
        pytest.importorskip(package)
    import unigraph as ug

    assert all(callable(getattr(ug, name)) or name in ("errors", "passes") for name in ug.__all__)


def test_functions_are_not_hidden_by_modules_of_their_name() -> None:
    """Importing a module of the package must not replace a public function."""
    assert (
        python(
            "import unigraph.file, unigraph.runtime.engines, unigraph as ug\n"
            "print(callable(ug.check), callable(ug.stats))"
        )
        == "True True"
    )
