"""Movement ops: what they refuse, symbolic sizes, their examples, and agreement with jax.lax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unigraph.builder import GraphBuilder
from unigraph.dims import symbol
from unigraph.evaluate import evaluate
from unigraph.opdef import registry
from unigraph.runtime.numpy.table import TABLE

from .op_checks import assert_same, check_examples, infer, random_array, refuses, run

KEY = "key<threefry2x32>[2]"
OPS = [op.name for op in registry().values() if op.family == "movement"]

REFUSED: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("broadcast_in_dim_c1", (KEY,), {"shape": (2, 2), "broadcast_dimensions": (0,)}),
    ("broadcast_in_dim_c2", ("f32[2]",), {"shape": (-1, 2), "broadcast_dimensions": (1,)}),
    ("broadcast_in_dim_c3", ("f32[2]",), {"shape": (2, 2), "broadcast_dimensions": ()}),
    ("broadcast_in_dim_c4", ("f32[2]",), {"shape": (2, 2), "broadcast_dimensions": (2,)}),
    ("broadcast_in_dim_c4", ("f32[2,2]",), {"shape": (2, 2), "broadcast_dimensions": (0, 0)}),
    ("broadcast_in_dim_c4", ("f32[2,2]",), {"shape": (2, 2), "broadcast_dimensions": (1, 0)}),
    ("broadcast_in_dim_c5", ("f32[2]",), {"shape": (2, 3), "broadcast_dimensions": (1,)}),
    ("reshape_c1", (KEY,), {"shape": (2, 1)}),
    ("reshape_c2", ("f32[2]",), {"shape": (-2, -1)}),
    ("reshape_c3", ("f32[2]",), {"shape": (3,)}),
    ("reshape_c3", ("f32[n+1]",), {"shape": ("n",)}),
    ("transpose_c1", (KEY,), {"permutation": (0,)}),
    ("transpose_c2", ("f32[2,3]",), {"permutation": (0, 0)}),
    ("transpose_c2", ("f32[2,3]",), {"permutation": (0,)}),
    ("reverse_c1", (KEY,), {"dimensions": (0,)}),
    ("reverse_c2", ("f32[2]",), {"dimensions": (1,)}),
    ("reverse_c2", ("f32[2]",), {"dimensions": (0, 0)}),
    ("slice_c1", (KEY,), {"start": (0,), "limit": (1,)}),
    ("slice_c2", ("f32[2,3]",), {"start": (0,), "limit": (1,)}),
    ("slice_c3", ("f32[3]",), {"start": (-1,), "limit": (1,)}),
    ("slice_c3", ("f32[3]",), {"start": (2,), "limit": (1,)}),
    ("slice_c3", ("f32[3]",), {"start": (0,), "limit": (4,)}),
    ("slice_c3", ("f32[n]",), {"start": (0,), "limit": ("n+1",)}),
    ("slice_c4", ("f32[3]",), {"start": (0,), "limit": (3,), "strides": (0,)}),
    ("dynamic_slice_c1", (KEY, "i32"), {"sizes": (1,)}),
    ("dynamic_slice_c2", ("f32[3]",), {"sizes": (1,)}),
    ("dynamic_slice_c3", ("f32[3]", "f32"), {"sizes": (1,)}),
    ("dynamic_slice_c3", ("f32[3]", "i32[1]"), {"sizes": (1,)}),
    ("dynamic_slice_c4", ("f32[3]", "i32"), {"sizes": ()}),
    ("dynamic_slice_c5", ("f32[3]", "i32"), {"sizes": (4,)}),
    ("dynamic_slice_c5", ("f32[3]", "i32"), {"sizes": (-1,)}),
    ("dynamic_update_slice_c1", (KEY, KEY, "i32"), {}),
    ("dynamic_update_slice_c2", ("f32[3]", "f32[1]"), {}),
    ("dynamic_update_slice_c3", ("f32[3]", "f32[1]", "bool"), {}),
    ("dynamic_update_slice_c4", ("f32[3]", "f64[1]", "i32"), {}),
    ("dynamic_update_slice_c4", ("f32[3]", "f32", "i32"), {}),
    ("dynamic_update_slice_c5", ("f32[3]", "f32[4]", "i32"), {}),
    ("pad_c1", (KEY, KEY), {"low": (0,), "high": (0,)}),
    ("pad_c2", ("f32[2]", "f64"), {"low": (0,), "high": (0,)}),
    ("pad_c2", ("f32[2]", "f32[1]"), {"low": (0,), "high": (0,)}),
    ("pad_c3", ("f32[2]", "f32"), {"low": (0,), "high": (0, 0)}),
    ("pad_c4", ("f32[2]", "f32"), {"low": (0,), "high": (0,), "interior": (-1,)}),
    ("pad_c5", ("f32[2]", "f32"), {"low": (-1,), "high": (-2,)}),
    ("concatenate_c1", (), {"axis": 0}),
    ("concatenate_c2", (KEY, KEY), {"axis": 0}),
    ("concatenate_c3", ("f32[2]",), {"axis": 1}),
    ("concatenate_c3", ("f32[2]",), {"axis": -1}),
    ("concatenate_c4", ("f32[2]", "f64[2]"), {"axis": 0}),
    ("concatenate_c5", ("f32[2,2]", "f32[2,3]"), {"axis": 0}),
    ("concatenate_c5", ("f32[2]", "f32[2,3]"), {"axis": 0}),
    ("iota_c1", (), {"dtype": "bool", "shape": (2,), "axis": 0}),
    ("iota_c2", (), {"dtype": "f32", "shape": (-2,), "axis": 0}),
    ("iota_c3", (), {"dtype": "f32", "shape": (2,), "axis": 1}),
    ("dim_size_c1", (), {"dtype": "f32", "dim": 2}),
]


@pytest.mark.parametrize("label, types, attrs", REFUSED)
def test_refuses(label: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    refuses(label, label.rpartition("_")[0], *types, **attrs)


@pytest.mark.parametrize("name", OPS)
def test_examples(name: str) -> None:
    check_examples(registry()[name])


def test_symbolic_sizes() -> None:
    grid = "f32[b,n,4]"
    assert infer("broadcast_in_dim", "f32[n]", shape=("b", "n"), broadcast_dimensions=(1,)) == "f32[b,n]"
    assert infer("reshape", grid, shape=("b*n", 4)) == "f32[b*n,4]"
    assert (
        infer("slice", grid, start=(0, 1, 0), limit=("b", "n", 4), strides=(2, 1, 3)) == "f32[(b + 1) // 2,n + (-1),2]"
    )
    assert (
        infer("pad", grid, "f32", low=(1, 0, 0), high=(1, 0, 0), interior=(0, 1, 0))
        == "f32[b + 2,max(0, 2*n + (-1)),4]"
    )
    assert infer("concatenate", grid, "f32[b,3,4]", axis=1) == "f32[b,n + 3,4]"
    assert infer("transpose", grid, permutation=(2, 0, 1)) == "f32[4,b,n]"
    assert infer("dynamic_slice", grid, "i32", "i32", "i32", sizes=("b", 1, 4)) == "f32[b,1,4]"
    assert infer("dim_size", dim=symbol("b") * 2, dtype="i32") == "i32[]"


def test_symbolic_sizes_run() -> None:
    """Sizes in attributes reach the rows as the sizes of the arrays given."""
    b = GraphBuilder()
    x = b.input("x", "f32", ("b", "n"))
    tail = b.slice(x, start=(0, 1), limit=("b", "n"), strides=(1, 2))
    wide = b.broadcast_in_dim(b.iota(dtype="i32", shape=("n",), axis=0), shape=("b", "n"), broadcast_dimensions=(1,))
    flat = b.reshape(
        b.pad(x, b.constant(0.0, "f32"), low=(0, "n"), high=(0, "-n"), interior=(1, 0)), shape=("2*b*n - n",)
    )
    g = b.build((tail, wide, flat, b.dim_size(dim="b*n", dtype="i64")))
    data = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    results = evaluate(g, TABLE, [data])
    assert [r.tolist() for r in results] == [[[2], [5]], [[0, 1, 2]] * 2, [0.0] * 9, 6]


@pytest.mark.parametrize("kind", ["bool", "i4", "i8", "i64", "u8", "u64", "f8e5m2", "bf16", "f16", "f32", "c128"])
def test_like_lax(kind: str) -> None:
    jax = pytest.importorskip("jax")
    lax = jax.lax
    x = random_array(kind, (3, 4, 5))
    with jax.enable_x64(True):
        y = jax.numpy.asarray(x)
        pads = dict(low=(1, -1, 0), high=(0, 2, -3), interior=(0, 2, 1))
        pairs = [
            (run("pad", x, x[0, 0, 0], **pads), lax.pad(y, y[0, 0, 0], list(zip(*pads.values())))),
            (
                run("slice", x, start=(0, 1, 0), limit=(3, 4, 5), strides=(1, 2, 3)),
                lax.slice(y, (0, 1, 0), (3, 4, 5), (1, 2, 3)),
            ),
            (run("reverse", x, dimensions=(0, 2)), lax.rev(y, (0, 2))),
            (
                run("dynamic_update_slice", x, x[:2, :2, :2], np.int32(9), np.int32(-4), np.int32(1)),
                lax.dynamic_update_slice(y, y[:2, :2, :2], (9, -4, 1)),
            ),
            (
                run("dynamic_slice", x, np.int8(-9), np.uint64(2**63), np.int64(1), sizes=(2, 2, 2)),
                lax.dynamic_slice(y, (0, 2, 1), (2, 2, 2)),
            ),
            (
                run("broadcast_in_dim", x[:, :1, 0], shape=(3, 2, 4), broadcast_dimensions=(0, 2)),
                lax.broadcast_in_dim(y[:, :1, 0], (3, 2, 4), (0, 2)),
            ),
        ]
        if kind != "bool":
            pairs.append((run("iota", dtype=kind, shape=(2, 20), axis=1), lax.broadcasted_iota(x.dtype, (2, 20), 1)))
        for ours, theirs in pairs:
            assert_same(ours, theirs)
