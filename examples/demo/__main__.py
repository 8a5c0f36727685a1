"""``make demo``: real models through files and engines, each step in its own process.

Nothing survives a step but the files it wrote. The last thing printed is one table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENGINES = ("numpy", "torch", "jax", "onnx")
LIMIT = 1e-5  # largest difference allowed between a replay and the original, absolute

# What runs, in order: a line for the reader, and the command after ``python -m``.
STEPS: list[tuple[str, list[str]]] = [
    ("capture MiniLM from PyTorch", ["examples.demo.minilm", "capture"]),
    *((f"replay minilm.ugraph on {e}", ["examples.demo.minilm", "replay", e]) for e in ENGINES),
    ("to_torch: a trainable module again", ["examples.demo.minilm", "to_torch"]),
    ("to_jax: a pure function, differentiated", ["examples.demo.minilm", "to_jax"]),
    ("capture QLKNN from JAX", ["examples.demo.qlknn", "capture"]),
    *((f"replay qlknn.ugraph on {e}", ["examples.demo.qlknn", "replay", e]) for e in ENGINES),
    ("QLKNN as a PyTorch module", ["examples.demo.qlknn", "to_torch"]),
    ("QLKNN as an ONNX model in ONNX Runtime", ["examples.demo.qlknn", "to_onnx"]),
    ("import QLKNN's ONNX twin", ["examples.demo.qlknn", "twin"]),
    *((f"replay the twin on {e}", ["examples.demo.qlknn", "replay_twin", e]) for e in ENGINES),
    ("capture randomness, branches, a small network and dropout", ["examples.demo.random_branch", "capture"]),
    *((f"replay them on {e}", ["examples.demo.random_branch", "replay", e]) for e in ENGINES),
    ("passes on minilm.ugraph", ["examples.demo.passes", "run"]),
]


def run_step(command: list[str], folder: Path) -> list[dict[str, Any]]:
    """The table rows that one step reports; its own lines go straight to the terminal.

    Raises SystemExit with the step's output when it fails.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command, str(folder)], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        sys.exit(f"\nstep {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    rows = []
    for line in done.stdout.splitlines():
        if line.startswith("ROW "):
            rows.append(json.loads(line[4:]))
        else:
            print(f"      {line}", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    heads = ["model", "source", "engine", "largest difference", "ms", "file size", "load time"]
    keys = ["model", "source", "engine", "difference", "ms", "size", "load"]
    formats = {"difference": "{:.2e}", "ms": "{:.2f}", "size": "{:.2f} MB", "load": "{:.1f} ms"}
    cells = [[formats.get(k, "{}").format(r[k]) if r.get(k) is not None else "" for k in keys] for r in rows]
    widths = [max(len(h), *(len(c[i]) for c in cells)) for i, h in enumerate(heads)]
    lines = ["  ".join(h.ljust(w) for h, w in zip(heads, widths)), "  ".join("-" * w for w in widths)]
    lines += [
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in cells
    ]
    return "\n".join(lines)


def main() -> None:
    """Run every step, print the table, exit with 1 if any difference is above the limit."""
    folder = Path(tempfile.mkdtemp(prefix="unigraph-demo-")) if len(sys.argv) < 2 else Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for number, (title, command) in enumerate(STEPS, 1):
        began = time.perf_counter()
        print(f"[{number:2}/{len(STEPS)}] {title} ...", flush=True)
        rows += run_step(command, folder)
        print(f"        done in {time.perf_counter() - began:.1f} s", flush=True)
    print(f"\nAll steps done in {time.perf_counter() - start:.0f} s; files are in {folder}\n")
    print(table(rows))
    wrong = [r for r in rows if not r["difference"] <= r.get("limit", LIMIT)]
    for r in wrong:
        print(f"\nFAILED: {r['model']} on {r['engine']} differs by {r['difference']:.2e}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
