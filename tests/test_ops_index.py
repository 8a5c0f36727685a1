"""gather, scatter and nonzero: what they refuse, symbolic sizes, examples, agreement with jax.lax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.evaluate import evaluate
from unigraph.opdef import registry
from unigraph.runtime.numpy.table import TABLE

from .op_checks import assert_same, check_examples, infer, random_array, refuses, run

KEY = "key<threefry2x32>[4]"
OPS = [op.name for op in registry().values() if op.family == "index"]

ROWS = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "slice_sizes": (1, 3)}
BATCH = {
    "offset_dims": (),
    "collapsed_slice_dims": (1,),
    "start_index_map": (1,),
    "slice_sizes": (1, 1),
    "operand_batching_dims": (0,),
    "start_indices_batching_dims": (0,),
}
GATHER: list[tuple[str, tuple[str, str], dict[str, Any]]] = [
    ("gather_c1", (KEY, "i32[2,1]"), {**ROWS, "offset_dims": (), "slice_sizes": (1,)}),
    ("gather_c2", ("f32[4,3]", "f32[2,1]"), ROWS),
    ("gather_c2", ("f32[4,3]", "i32"), ROWS),
    ("gather_c3", ("f32[4,3]", "i32[2,2]"), ROWS),
    ("gather_c4", ("f32[4,3]", "i32[2,1]"), {**ROWS, "start_index_map": (2,)}),
    ("gather_c4", ("f32[4,3]", "i32[2,2]"), {**ROWS, "start_index_map": (0, 0)}),
    ("gather_c4", ("f32[4,3]", "i32[4,1]"), {**BATCH, "start_index_map": (0,)}),
    ("gather_c5", ("f32[4,3]", "i32[2,1]"), {**ROWS, "collapsed_slice_dims": (5,)}),
    ("gather_c5", ("f32[4,3]", "i32[2,1]"), {**ROWS, "collapsed_slice_dims": (1, 0), "offset_dims": ()}),
    ("gather_c6", ("f32[4,3]", "i32[4,1]"), {**BATCH, "operand_batching_dims": (2,)}),
    ("gather_c6", ("f32[4,3]", "i32[4,1]"), {**BATCH, "start_indices_batching_dims": (1,)}),
    ("gather_c6", ("f32[4,3]", "i32[4,1]"), {**BATCH, "start_indices_batching_dims": ()}),
    ("gather_c6", ("f32[4,3]", "i32[4,1]"), {**BATCH, "collapsed_slice_dims": (0,)}),
    ("gather_c7", ("f32[4,3]", "i32[5,1]"), BATCH),
    ("gather_c8", ("f32[4,3]", "i32[2,1]"), {**ROWS, "slice_sizes": (1,)}),
    ("gather_c8", ("f32[4,3]", "i32[2,1]"), {**ROWS, "offset_dims": ()}),
    ("gather_c9", ("f32[4,3]", "i32[2,1]"), {**ROWS, "offset_dims": (2,)}),
    ("gather_c10", ("f32[4,3]", "i32[2,1]"), {**ROWS, "slice_sizes": (1, 4)}),
    ("gather_c10", ("f32[4,3]", "i32[2,1]"), {**ROWS, "slice_sizes": (1, -1)}),
    ("gather_c11", ("f32[4,3]", "i32[2,1]"), {**ROWS, "slice_sizes": (2, 3)}),
    ("gather_c11", ("f32[4,3]", "i32[4,1]"), {**BATCH, "slice_sizes": (2, 1)}),
]

PUT = {
    "combiner": "add",
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
}
PUT_BATCH = {
    "combiner": "add",
    "update_window_dims": (),
    "inserted_window_dims": (1,),
    "scatter_dims_to_operand_dims": (1,),
    "operand_batching_dims": (0,),
    "scatter_indices_batching_dims": (0,),
}
SCATTER: list[tuple[str, tuple[str, str, str], dict[str, Any]]] = [
    ("scatter_c1", (KEY, "i32[2,1]", KEY), {**PUT, "update_window_dims": ()}),
    ("scatter_c2", ("f32[4,3]", "bool[2,1]", "f32[2,3]"), PUT),
    ("scatter_c3", ("f32[4,3]", "i32[2,2]", "f32[2,3]"), PUT),
    ("scatter_c4", ("f32[4,3]", "i32[2,1]", "f32[2,3]"), {**PUT, "scatter_dims_to_operand_dims": (2,)}),
    ("scatter_c5", ("f32[4,3]", "i32[2,1]", "f32[2,3]"), {**PUT, "inserted_window_dims": (2,)}),
    ("scatter_c6", ("f32[4,3]", "i32[4,1]", "f32[4]"), {**PUT_BATCH, "scatter_indices_batching_dims": (0, 0)}),
    ("scatter_c7", ("f32[4,3]", "i32[5,1]", "f32[5]"), PUT_BATCH),
    ("scatter_c8", ("f32[4,3]", "i32[2,1]", "f64[2,3]"), PUT),
    ("scatter_c9", ("bool[4,3]", "i32[2,1]", "bool[2,3]"), {**PUT, "combiner": "sub"}),
    ("scatter_c10", ("f32[4,3]", "i32[2,1]", "f32[2,3]"), {**PUT, "inserted_window_dims": ()}),
    ("scatter_c11", ("f32[4,3]", "i32[2,1]", "f32[3]"), PUT),
    ("scatter_c12", ("f32[4,3]", "i32[2,1]", "f32[2,3]"), {**PUT, "update_window_dims": (2,)}),
    ("scatter_c13", ("f32[4,3]", "i32[2,1]", "f32[2,4]"), PUT),
    ("scatter_c14", ("f32[4,3]", "i32[2,1]", "f32[3,3]"), PUT),
]
NONZERO: list[tuple[str, tuple[str], dict[str, Any]]] = [
    ("nonzero_c1", (KEY,), {"symbol": "k"}),
    ("nonzero_c2", ("f32[2]",), {"symbol": "2k"}),
    ("nonzero_c3", ("f32[n]",), {"symbol": "n"}),
]


@pytest.mark.parametrize("label, types, attrs", [*GATHER, *SCATTER, *NONZERO])
def test_refuses(label: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    refuses(label, label.rpartition("_")[0], *types, **attrs)


@pytest.mark.parametrize("name", OPS)
def test_examples(name: str) -> None:
    check_examples(registry()[name])


def test_symbolic_sizes() -> None:
    assert (
        infer("gather", "f32[v,d]", "i32[b,t,1]", **{**ROWS, "offset_dims": (2,), "slice_sizes": (1, "d")})
        == "f32[b,t,d]"
    )
    assert infer("gather", "f32[b,v]", "i32[b,1]", **BATCH) == "f32[b]"
    assert infer("scatter", "f32[v,d]", "i32[b,1]", "f32[b,d]", **PUT) == "f32[v,d]"
    assert infer("nonzero", "f32[b,3]", symbol="found") == "i64[found,2]"


def test_the_number_found_is_known_to_later_operations() -> None:
    b = GraphBuilder()
    x = b.input("x", "f32", ("n",))
    found = b.nonzero(x, symbol="found")
    g = b.build((b.reshape(found, shape=("found",)), b.dim_size(dim="2*found", dtype="i64")))
    where, twice = evaluate(g, TABLE, [np.array([0, 3, 0, 4], np.float32)])
    assert where.tolist() == [1, 3] and twice == 4


KINDS = ["bool", "i4", "i8", "i64", "u8", "u64", "f8e5m2", "bf16", "f16", "f32", "f64", "c64"]
COMBINERS = ("replace", "add", "sub", "mul", "min", "max")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_random_dimension_numbers_like_lax(mode: str, seed: int) -> None:
    """Random windows, batching axes and indices, many of them out of bounds or repeated."""
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(KINDS))
    rank = int(rng.integers(2, 5))
    shape = rng.integers(1, 5, rank)
    axes = rng.permutation(rank).tolist()
    batch = sorted(axes[: rng.integers(0, 2)])
    rest = [a for a in axes if a not in batch]
    steered = [rest[i] for i in rng.permutation(len(rest))[: rng.integers(1, len(rest) + 1)]]
    hidden = sorted(rest[: rng.integers(0, len(rest))])
    sizes = [1 if a in (*batch, *hidden) else int(rng.integers(1, shape[a] + 1)) for a in range(rank)]
    places = [int(shape[a]) for a in batch] + [int(n) for n in rng.integers(1, 5, rng.integers(0, 3))]
    indices = rng.integers(-2, 6, (*places, len(steered))).astype(rng.choice(["int8", "int32", "int64"]))
    shown = [a for a in range(rank) if a not in (*batch, *hidden)]
    offsets = sorted(rng.permutation(len(places) + len(shown))[: len(shown)].tolist())
    spots, window = iter(places), iter([sizes[a] for a in shown])
    total = [next(window if i in offsets else spots) for i in range(len(places) + len(shown))]
    x, updates = random_array(kind, tuple(shape), seed), random_array(kind, tuple(total), seed + 1)
    paired = tuple(range(len(batch)))

    with jax.enable_x64(True):
        numbers = jax.lax.GatherDimensionNumbers(tuple(offsets), tuple(hidden), tuple(steered), tuple(batch), paired)
        theirs = jax.lax.gather(jax.numpy.asarray(x), indices, numbers, tuple(sizes), mode=mode)
        ours = run(
            "gather", x, indices, offset_dims=offsets, collapsed_slice_dims=hidden, start_index_map=steered,
            slice_sizes=sizes, operand_batching_dims=batch, start_indices_batching_dims=paired, mode=mode,
        )  # fmt: skip
        assert_same(ours, theirs)

        put = jax.lax.ScatterDimensionNumbers(tuple(offsets), tuple(hidden), tuple(steered), tuple(batch), paired)
        for combiner in COMBINERS:
            if kind == "bool" and combiner in ("add", "sub", "mul"):
                continue  # lax refuses them
            function = jax.lax.scatter if combiner == "replace" else getattr(jax.lax, f"scatter_{combiner}")
            theirs = function(jax.numpy.asarray(x), indices, jax.numpy.asarray(updates), put, mode=mode)
            ours = run(
                "scatter", x, indices, updates, combiner=combiner, update_window_dims=offsets,
                inserted_window_dims=hidden, scatter_dims_to_operand_dims=steered, operand_batching_dims=batch,
                scatter_indices_batching_dims=paired, mode=mode,
            )  # fmt: skip
            if kind == "c64" and combiner == "mul":  # XLA contracts multiply and add
                np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5)
            else:
                assert_same(ours, theirs, combiner)
