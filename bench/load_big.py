"""Loading a file with 4 GB of weights: time and memory, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .table import Figures

GIGABYTES, WEIGHTS = 4, 64
SECONDS, MEGABYTES = 0.050, 50.0

_CHILD = """
import json, sys, time
import psutil
import unigraph as ug
from unigraph import check, file  # what the first load imports is not what a load costs
ug.load(sys.argv[2])
memory = psutil.Process().memory_info
before = memory().rss
start = time.perf_counter()
graph = ug.load(sys.argv[1])
seconds = time.perf_counter() - start
held = sum(a.nbytes for a in graph.weights.values())
print(json.dumps({"seconds": seconds, "megabytes": (memory().rss - before) / 1e6, "held": held}))
"""


def big_file(folder: Path) -> Path:
    """A valid file of zero weights: runs of zeros are holes on disk, so it takes almost no space."""
    from unigraph.builder import GraphBuilder

    b = GraphBuilder("big")
    width = 1 << 12
    rows = (GIGABYTES << 30) // WEIGHTS // width // 4
    x = b.input("x", "f32", (1, width))
    zero = np.broadcast_to(np.zeros(1, np.float32), (rows, width))
    total = None
    for i in range(WEIGHTS):
        # One row of zeros stands for all, so that making the file needs no memory either.
        w = b.weight(f"layer.{i}.weight", zero)
        y = b.linear(x, w)
        total = y if total is None else b.add(total, y)
    path = folder / "big.ugraph"
    b.build(total).save(path)
    return path


def small_file(folder: Path) -> Path:
    from unigraph.builder import GraphBuilder

    b = GraphBuilder("small")
    x = b.input("x", "f32", (1, 4))
    path = folder / "small.ugraph"
    b.build(b.linear(x, b.weight("w", np.zeros((4, 4), np.float32)))).save(path)
    return path


def run() -> Figures:
    """Milliseconds and megabytes of one load, the median of five processes."""
    figures = Figures(
        "Loading a big file",
        f"A file with {GIGABYTES} GiB of weights (sparse on disk) is loaded in a fresh process: time, and how much "
        f"more memory is resident afterwards. The bars are {SECONDS * 1e3:g} ms and {MEGABYTES:g} MB.",
        ("file", "on disk", "load", "more memory"),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, small = big_file(folder), small_file(folder)
        found = []
        for _ in range(5):
            result = subprocess.run(
                [sys.executable, "-c", _CHILD, str(path), str(small)], capture_output=True, text=True, check=True
            )
            found.append(json.loads(result.stdout))
        size, used = path.stat().st_size, path.stat().st_blocks * 512
    assert all(f["held"] == GIGABYTES << 30 for f in found)
    seconds = sorted(f["seconds"] for f in found)[2]
    memory = sorted(f["megabytes"] for f in found)[2]
    figures.rows.append((f"{size / 1e9:.2f} GB", f"{used / 1e6:.1f} MB", f"{seconds * 1e3:.1f} ms", f"{memory:.1f} MB"))
    figures.bar("load", seconds * 1e3, SECONDS * 1e3, " ms")
    figures.bar("memory", memory, MEGABYTES, " MB")
    return figures


if __name__ == "__main__":
    print(run())
