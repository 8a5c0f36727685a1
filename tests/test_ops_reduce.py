"""Reductions, cumulative and window ops: refusals, symbolic sizes, examples, agreement with jax.lax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unigraph.dtypes import dtype
from unigraph.opdef import registry
from unigraph.tolerances import difference

from .op_checks import assert_same, check_examples, infer, random_array, refuses, run

KEY = "key<threefry2x32>[4]"
OPS = [op.name for op in registry().values() if op.family == "reduce"]
WINDOW = {"window": (2,), "strides": (1,), "low": (0,), "high": (0,)}


def _add(b: Any, x: Any, y: Any) -> Any:
    return b.add(x, y)


def _equal(b: Any, x: Any, y: Any) -> Any:
    return b.eq(x, y)


def _true(b: Any, x: Any, y: Any) -> Any:
    return b.constant(True)


ADD, EQUAL, NONE = {"body": _add}, {"body": _equal}, {"body": lambda b: b.constant(1.0)}
SELECT = {"select": _equal, "scatter": _add}
Case = tuple[str, tuple[str, ...], dict[str, Any]]

REFUSED: list[Case] = [
    *[(f"reduce_{op}_c1", (KEY,), {"axes": (0,)}) for op in ("max", "min", "and", "or", "xor")],
    *[(f"reduce_{op}_c1", ("bool[2]",), {"axes": (0,)}) for op in ("sum", "prod")],
    *[(f"reduce_{op}_c1", ("f32[2]",), {"axes": (0,)}) for op in ("and", "or", "xor")],
    *[(f"reduce_{op}_c2", ("i32[2]",), {"axes": (1,)}) for op in ("sum", "prod", "max", "min", "and", "or", "xor")],
    ("reduce_sum_c2", ("i32[2]",), {"axes": (-1,)}),
    ("reduce_sum_c2", ("i32[2]",), {"axes": (0, 0)}),
    *[(f"arg{op}_c1", ("c64[2]",), {"axis": 0}) for op in ("max", "min")],
    *[(f"arg{op}_c2", ("f32[2]",), {"axis": 1}) for op in ("max", "min")],
    *[(f"arg{op}_c3", ("f32[2,0]",), {"axis": 1}) for op in ("max", "min")],
    *[(f"arg{op}_c4", ("f32[2]",), {"axis": 0, "index_dtype": "f32"}) for op in ("max", "min")],
    ("reduce_c1", (), {"axes": (), "regions": NONE}),
    ("reduce_c1", ("f32[2]",), {"axes": (), "regions": NONE}),
    ("reduce_c2", (KEY, KEY), {"axes": (), "regions": {"body": lambda b, x, y: x}}),
    ("reduce_c3", ("f32[2]", "f64"), {"axes": (0,), "regions": ADD}),
    ("reduce_c3", ("f32[2]", "f32[2]"), {"axes": (0,), "regions": ADD}),
    (
        "reduce_c4",
        ("f32[2]", "f32[3]", "f32", "f32"),
        {"axes": (0,), "regions": {"body": lambda b, w, x, y, z: (w, x)}},
    ),
    ("reduce_c5", ("f32[2]", "f32"), {"axes": (1,), "regions": ADD}),
    ("reduce_c6", ("f32[2]", "f32"), {"axes": (0,), "regions": EQUAL}),
    *[(f"cum{op}_c1", ("bool[2]",), {"axis": 0}) for op in ("sum", "prod")],
    *[(f"cum{op}_c1", (KEY,), {"axis": 0}) for op in ("max", "min")],
    ("cumlogsumexp_c1", ("i32[2]",), {"axis": 0}),
    *[(f"cum{op}_c2", ("f32[2]",), {"axis": 1}) for op in ("sum", "prod", "max", "min", "logsumexp")],
    *[(f"reduce_window_{op}_c1", ("bool[4]",), WINDOW) for op in ("sum", "prod")],
    *[(f"reduce_window_{op}_c1", (KEY,), WINDOW) for op in ("max", "min")],
    *[(f"reduce_window_{op}_w1", ("f32[4]",), {**WINDOW, "low": (0, 0)}) for op in ("sum", "prod", "max", "min")],
    *[(f"reduce_window_{op}_w2", ("f32[4]",), {**WINDOW, "window": (0,)}) for op in ("sum", "prod", "max", "min")],
    ("reduce_window_sum_w2", ("f32[4]",), {**WINDOW, "strides": (0,)}),
    ("reduce_window_sum_w2", ("f32[4]",), {**WINDOW, "base_dilation": (0,)}),
    ("reduce_window_sum_w2", ("f32[4]",), {**WINDOW, "window_dilation": (-1,)}),
    ("reduce_window_c1", (), {**WINDOW, "regions": NONE}),
    ("reduce_window_c2", (KEY, KEY), {**WINDOW, "regions": {"body": lambda b, x, y: x}}),
    ("reduce_window_c3", ("f32[4]", "i32"), {**WINDOW, "regions": ADD}),
    (
        "reduce_window_c4",
        ("f32[2]", "f32[3]", "f32", "f32"),
        {**WINDOW, "regions": {"body": lambda b, w, x, y, z: (w, x)}},
    ),
    ("reduce_window_c5", ("f32[4]", "f32"), {**WINDOW, "regions": EQUAL}),
    ("reduce_window_w1", ("f32[4]", "f32"), {**WINDOW, "window": (), "regions": ADD}),
    ("reduce_window_w2", ("f32[4]", "f32"), {**WINDOW, "strides": (0,), "regions": ADD}),
    ("select_and_scatter_add_c1", ("bool[3]", "bool[4]"), {**WINDOW, "select": "ge"}),
    ("select_and_scatter_add_c2", ("f64[3]", "f32[4]"), {**WINDOW, "select": "ge"}),
    ("select_and_scatter_add_c3", ("f32[4]", "f32[4]"), {**WINDOW, "select": "ge"}),
    ("select_and_scatter_add_w1", ("f32[3]", "f32[4]"), {**WINDOW, "select": "ge", "high": ()}),
    ("select_and_scatter_add_w2", ("f32[3]", "f32[4]"), {**WINDOW, "select": "ge", "window": (0,)}),
    ("select_and_gather_add_c1", ("i32[4]", "i32[4]"), {**WINDOW, "select": "ge"}),
    ("select_and_gather_add_c2", ("f32[3]", "f32[4]"), {**WINDOW, "select": "ge"}),
    ("select_and_gather_add_w1", ("f32[4]", "f32[4]"), {**WINDOW, "select": "ge", "high": ()}),
    ("select_and_gather_add_w2", ("f32[4]", "f32[4]"), {**WINDOW, "select": "ge", "strides": (0,)}),
    ("select_and_scatter_c1", (KEY, KEY, KEY), {**WINDOW, "regions": {"select": _true, "scatter": lambda b, x, y: x}}),
    ("select_and_scatter_c2", ("f64[3]", "f32[4]", "f32"), {**WINDOW, "regions": SELECT}),
    ("select_and_scatter_c2", ("f32[3]", "f32[4]", "f32[1]"), {**WINDOW, "regions": SELECT}),
    ("select_and_scatter_c3", ("f32[2]", "f32[4]", "f32"), {**WINDOW, "regions": SELECT}),
    ("select_and_scatter_c4", ("f32[3]", "f32[4]", "f32"), {**WINDOW, "regions": {"select": _add, "scatter": _add}}),
    (
        "select_and_scatter_c5",
        ("f32[3]", "f32[4]", "f32"),
        {**WINDOW, "regions": {"select": _equal, "scatter": _equal}},
    ),
    ("select_and_scatter_w1", ("f32[3]", "f32[4]", "f32"), {**WINDOW, "high": (), "regions": SELECT}),
    ("select_and_scatter_w2", ("f32[3]", "f32[4]", "f32"), {**WINDOW, "strides": (0,), "regions": SELECT}),
]


@pytest.mark.parametrize("label, types, attrs", REFUSED)
def test_refuses(label: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    if label in ("reduce_c2", "reduce_window_c2", "select_and_scatter_c1"):
        types = tuple(t if i == 0 else t.removesuffix("[4]") for i, t in enumerate(types))
    refuses(label, label.rpartition("_")[0], *types, **attrs)


@pytest.mark.parametrize("name", OPS)
def test_examples(name: str) -> None:
    check_examples(registry()[name])


def test_symbolic_sizes() -> None:
    image = "f32[b,h,4]"
    three = {"window": (1, 3, 1), "strides": (1, 2, 1), "low": (0, 1, 0), "high": (0, 1, 0)}
    assert infer("reduce_sum", image, axes=(0, 2)) == "f32[h]"
    assert infer("argmax", image, axis=2) == "i32[b,h]"
    assert infer("argmin", image, axis=1, index_dtype="i64") == "i64[b,4]"
    assert infer("cumsum", image, axis=1) == image
    assert infer("reduce_window_max", image, **three) == "f32[b,(h + 1) // 2,4]"
    assert infer("reduce_window", image, "f32", **three, regions=ADD) == ("f32[b,(h + 1) // 2,4]",)
    assert infer("reduce", image, "f32", axes=(1,), regions=ADD) == ("f32[b,4]",)
    # Without padding h may be too small for any window.
    bare = {**three, "low": (0, 0, 0), "high": (0, 0, 0)}
    assert "max(" in infer("reduce_window_max", image, **bare)


KINDS = ["bool", "i4", "i8", "i64", "u8", "u64", "f8e5m2", "bf16", "f16", "f32", "f64", "c64"]
ARITHMETIC = ("sum", "prod", "max", "min")


def _same(ours: Any, theirs: Any, exact: bool, note: str) -> None:
    """Equal, or near enough where the order of additions is free."""
    if exact or not dtype(ours.dtype).is_inexact:
        assert_same(ours, theirs, note)
    else:
        reason = difference(ours, np.asarray(theirs), 4)
        assert reason is None, f"{note}: {reason}"


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_like_lax(kind: str) -> None:
    jax = pytest.importorskip("jax")
    x = random_array(kind, (3, 4, 5))
    with jax.enable_x64(True):
        y = jax.numpy.asarray(x)
        for name in ARITHMETIC[2 if kind == "bool" else 0 :]:
            lax_reduce, exact = getattr(jax.lax, f"reduce_{name}"), name in ("max", "min")
            for axes in ((1,), (0, 2)):
                _same(run(f"reduce_{name}", x, axes=axes), lax_reduce(y, axes), exact, name)
            _same(run(f"reduce_{name}", x[:, :0], axes=(1,)), lax_reduce(y[:, :0], (1,)), True, f"empty {name}")
            # lax has no cumulative ops on bool, and rounds f8 at every step.
            if kind == "bool" or (kind == "f8e5m2" and not exact):
                continue
            for reverse in (False, True):
                ours = run(f"cum{name}", x, axis=1, reverse=reverse)
                _same(ours, getattr(jax.lax, f"cum{name}")(y, 1, reverse), exact, f"cum{name}")
        if not dtype(kind).is_inexact and kind != "i4":  # lax refuses i4
            for name in ("and", "or", "xor"):
                assert_same(run(f"reduce_{name}", x, axes=(0, 2)), getattr(jax.lax, f"reduce_{name}")(y, (0, 2)), name)
        if not dtype(kind).is_complex:
            for name in ("argmax", "argmin"):
                ours = run(name, x, axis=2, index_dtype="i64")
                assert_same(ours, getattr(jax.lax, name)(y, 2, np.int64), name)
        if kind in ("f32", "f64", "c64"):
            _same(run("cumlogsumexp", x, axis=2), jax.lax.cumlogsumexp(y, 2), False, "cumlogsumexp")


@pytest.mark.parametrize("kind", ["i8", "u64", "bf16", "f16", "f32", "f64", "c64"])
def test_windows_like_lax(kind: str) -> None:
    jax = pytest.importorskip("jax")
    inner = pytest.importorskip("jax._src.lax.windowed_reductions")
    x = random_array(kind, (3, 6, 5))
    window, strides, low, high = (1, 2, 3), (1, 1, 2), (0, 1, 1), (0, 0, 2)
    base, spread = (1, 1, 2), (1, 2, 1)
    attrs = {"window": window, "strides": strides, "low": low, "high": high}
    dilated = {**attrs, "base_dilation": base, "window_dilation": spread}
    pads = tuple(zip(low, high))
    with jax.enable_x64(True):
        y = jax.numpy.asarray(x)
        lax = jax.lax
        for name, function, init in (
            ("sum", lax.add, 0), ("prod", lax.mul, 1), ("max", lax.max, None), ("min", lax.min, None),
        ):  # fmt: skip
            if kind == "c64" and init is None:
                continue
            start = lax.reduce_max(y[:0], (0, 1, 2)) if name == "max" else lax.reduce_min(y[:0], (0, 1, 2))
            start = start if init is None else np.asarray(init, x.dtype)
            theirs = lax.reduce_window(y, start, function, window, strides, pads, base, spread)
            _same(run(f"reduce_window_{name}", x, **dilated), theirs, init is None, name)
            op = {"sum": "add", "prod": "mul"}.get(name, name)
            body = {"body": lambda b, p, q, op=op: getattr(b, op)(p, q)}
            (ours,) = run("reduce_window", x, np.asarray(start), **dilated, regions=body)
            if kind not in ("bf16", "f16"):  # a body rounds at every step
                _same(ours, theirs, init is None, f"body {name}")
        if kind == "c64":
            return
        source = random_array(kind, tuple(run("reduce_window_max", x, **attrs).shape), 1)
        for select, primitive in (("ge", lax.ge_p), ("le", lax.le_p)):
            theirs = inner._select_and_scatter_add(jax.numpy.asarray(source), y, primitive, window, strides, pads)
            _same(run("select_and_scatter_add", source, x, select=select, **attrs), theirs, False, select)
            if kind in ("f32", "bf16"):
                theirs = inner._select_and_gather_add(y[::-1], y, primitive, window, strides, pads, base, spread)
                _same(run("select_and_gather_add", x[::-1], x, select=select, **dilated), theirs, True, select)


def test_nan_and_zeros_like_lax() -> None:
    jax = pytest.importorskip("jax")
    special = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], np.float32)
    x = np.random.default_rng(0).choice(special, (40, 6))
    y = jax.numpy.asarray(x)
    for name in ("reduce_max", "reduce_min"):
        assert_same(run(name, x, axes=(1,)), getattr(jax.lax, name)(y, (1,)), name)
    for name in ("argmax", "argmin"):
        assert_same(run(name, x, axis=1), getattr(jax.lax, name)(y, 1, np.int32), name)
    for name in ("cummax", "cummin", "cumsum", "cumprod", "cumlogsumexp"):
        _same(run(name, x, axis=1), getattr(jax.lax, name)(y, 1), name[3] == "m", name)


def test_a_body_need_not_be_elementwise() -> None:
    """Such a body is called for each element, and gives the same result."""

    def larger(b: Any, x: Any, y: Any) -> Any:
        pair = b.concatenate(b.reshape(x, shape=(1,)), b.reshape(y, shape=(1,)), axis=0)
        return b.reduce_max(pair, axes=(0,))

    x = random_array("f32", (3, 5))
    (ours,) = run("reduce", x, np.float32(-np.inf), axes=(1,), regions={"body": larger})
    assert_same(ours, x.max(1))
