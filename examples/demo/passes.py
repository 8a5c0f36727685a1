"""Passes on the MiniLM graph: prune to one output, fuse, reorder; what each did, and that results hold.

The graph was captured with its composites whole. To show fusion at work it is first written out as core
operations (decompose), as a graph from JAX or a decomposed export would be, and then raised again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import unigraph as ug

from .common import largest_difference, main, milliseconds, row, timed_load

SIZES = {"batch": 8, "seq": 128}


def run(folder: Path) -> None:
    """Apply the passes one after another; every graph must still give the original's embedding."""
    graph, _ = timed_load(folder / "minilm.ugraph")
    data = np.load(folder / "minilm.npz")
    inputs = {k: data[f"1.{k}"] for k in ("input_ids", "attention_mask")}
    expected = data["1.out.embedding"]
    steps = [
        ("prune to one output", lambda g: ug.passes.prune(g, outputs=["embedding"])),
        ("decompose", lambda g: ug.passes.decompose(g, keep={"attention"})),
        ("simplify and fold", lambda g: ug.passes.simplify(ug.passes.fold(ug.passes.simplify(g)))),
        ("fuse", ug.passes.fuse),
        ("siblings", ug.passes.siblings),
        ("reorder", lambda g: ug.passes.reorder(g, sizes=SIZES)),
    ]
    print(f"{'pass':<20} {'operations':>16} {'peak memory at batch 8 x 128':>32}  largest difference")
    for name, step in steps:
        new = step(graph)
        before, after = (ug.passes.peak_memory(g, sizes=SIZES) / 1e6 for g in (graph, new))
        result = np.asarray(ug.run(new, engine="torch", **inputs))
        difference = largest_difference(result, expected)
        print(
            f"{name:<20} {len(graph.edges):>6} -> {len(new.edges):<6} {before:>14.2f} -> {after:.2f} MB"
            f"        {difference:.2e}"
        )
        graph = new
    compiled = ug.compile(graph, "torch")
    path = folder / "minilm_optimized.ugraph"
    graph.save(path)
    graph, file = timed_load(path)
    ms = milliseconds(lambda: compiled(**inputs))
    row(model="MiniLM after passes", source="torch", engine="torch", difference=difference, ms=ms, **file)


if __name__ == "__main__":
    main({"run": run})
