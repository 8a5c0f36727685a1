"""The torch table: derivatives against JAX, memory shared with NumPy, tracing.

Every example of every op runs on it in `test_ops`, and on CUDA in `test_cuda`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from unigraph.builder import GraphBuilder
from unigraph.dtypes import ALL, dtype
from unigraph.errors import EngineError, UnsupportedError
from unigraph.evaluate import Program
from unigraph.opdef import registry
from unigraph.runtime.torch.dtypes import TO_TORCH, from_numpy, to_numpy, to_torch
from unigraph.runtime.torch.table import TABLE

from .op_checks import random_array


def test_every_core_op_has_a_row() -> None:
    bare = [op.name for op in registry().values() if not op.is_composite and op not in TABLE.rows]
    assert not bare


# -- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [d.name for d in TO_TORCH if not d.is_key])
def test_arrays_come_back(kind: str) -> None:
    x = random_array(kind, (3, 4))
    back = to_numpy(from_numpy(x))
    assert back.dtype == x.dtype
    if dtype(kind).bits >= 8:
        assert np.shares_memory(x, back)
        np.testing.assert_array_equal(back.view(np.uint8), x.view(np.uint8))
    else:
        np.testing.assert_array_equal(back.astype(np.int32), x.astype(np.int32))


def test_read_only_memory_is_shared_quietly_and_copied_to_be_written(recwarn: Any) -> None:
    x = np.zeros(3, np.float32)
    x.flags.writeable = False
    assert from_numpy(x).data_ptr() == x.__array_interface__["data"][0]
    from_numpy(x, writable=True).add_(1)
    assert not x.any() and not recwarn.list


def test_odd_layouts_are_copied() -> None:
    x = np.arange(6, dtype=">i4").reshape(2, 3)[:, ::-1]
    np.testing.assert_array_equal(to_numpy(from_numpy(x)), x)


def test_dtypes_without_a_torch_type_are_refused() -> None:
    missing = [d for d in ALL if d not in TO_TORCH]
    assert missing
    with pytest.raises(EngineError, match=missing[0].name):
        to_torch(missing[0])
    b = GraphBuilder()
    with pytest.raises(UnsupportedError, match=missing[0].name):
        Program(b.build(b.neg(b.input("x", missing[0]))), TABLE)


# -- exotic integers over their whole range -------------------------------------------------------

INTEGERS = ("i4", "u4", "u8", "u16", "u32", "u64", "i64")
BINARY = [
    *("add", "sub", "mul", "mulhi", "div", "rem", "max", "min", "and", "or", "xor", "lt", "le", "eq"),
    *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", BINARY)
def test_integers_against_numpy(name: str, kind: str) -> None:
    x, y = random_array(kind, (200,), 1), random_array(kind, (200,), 2)
    if name.startswith("shift"):
        y = (y.astype(np.int64) % (dtype(kind).bits + 2)).astype(y.dtype)
    _against_numpy(name, x, y)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", ["sort", "top_k", "reduce_max", "reduce_sum", "argmin", "cummax", "cumsum"])
def test_folds_of_integers_against_numpy(name: str, kind: str) -> None:
    attrs: dict[str, Any] = {"axis": 0} if name in ("sort", "argmin", "cummax", "cumsum") else {"axes": (0,)}
    _against_numpy(name, random_array(kind, (50, 3), 1), **({"k": 2} if name == "top_k" else attrs))


def _against_numpy(name: str, *inputs: np.ndarray, **attrs: Any) -> None:
    from unigraph.runtime.numpy.table import TABLE as NUMPY

    b = GraphBuilder()
    values = [b.input(f"x{i}", dtype(x.dtype), x.shape) for i, x in enumerate(inputs)]
    result = b.apply(registry()[name], values, attrs)
    graph = b.build(result if isinstance(result, tuple) else (result,))
    ours = [to_numpy(x) for x in Program(graph, TABLE).run(list(map(from_numpy, inputs)))]
    for a, e in zip(ours, Program(graph, NUMPY).run(inputs), strict=True):
        assert a.dtype == e.dtype
        if dtype(a.dtype).is_float:  # NumPy finds no NaN in the floats of ml_dtypes
            a, e = a.astype(np.float64), e.astype(np.float64)
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("source", ["f32", "f64", "bf16", "f16", "f8e4m3fn", "u64", "i64", "u32", "i4", "bool"])
@pytest.mark.parametrize("target", ["i4", "u8", "i32", "u32", "i64", "u64", "f16", "bf16", "f8e5m2", "f64", "bool"])
def test_convert_against_numpy(source: str, target: str) -> None:
    x = random_array(source, (100,), 3)
    if dtype(source).is_float:
        edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, 2.0**63, 2.0**64, -(2.0**63), 127.5, -1.5]
        with np.errstate(all="ignore"):
            x = np.concatenate([x, np.array(edges).astype(x.dtype)])
    _against_numpy("convert", x, dtype=target)


# -- derivatives ---------------------------------------------------------------------------------

_POSITIVE = ["log", "log1p", "sqrt", "rsqrt", "pow", "digamma", "lgamma", "acosh", "cbrt"]
_SKIP_UNARY = {
    "is_finite",
    "not",
    "population_count",
    "clz",
    "real",
    "imag",
    "conj",
    "convert",
    "sign",
    "stop_gradient",
}


def _gradients(
    name: str, inputs: list[np.ndarray], attrs: dict[str, Any], regions: dict[str, Any] | None = None
) -> None:
    """d sum(w * op(x)) / dx by autograd on this table and by jax.grad on the JAX table."""
    jax = pytest.importorskip("jax")
    from unigraph.converters.jaxpr.compat import enable_x64
    from unigraph.runtime.jax.table import TABLE as JAX

    b = GraphBuilder()
    values = [b.input(f"x{i}", dtype(x.dtype), x.shape) for i, x in enumerate(inputs)]
    result = b.apply(registry()[name], values, {**attrs, **(regions or {})})
    graph = b.build(result if isinstance(result, tuple) else (result,))
    places = [i for i, x in enumerate(inputs) if x.dtype.kind == "f"]
    tensors = [from_numpy(x.copy()).requires_grad_(i in places) for i, x in enumerate(inputs)]
    outputs = Program(graph, TABLE).run(tensors)
    weights = [random_array("f64", tuple(o.shape), 7) for o in outputs]
    loss = sum((o * from_numpy(w)).sum() for o, w in zip(outputs, weights) if o.is_floating_point())
    loss.backward()
    with enable_x64():
        program = Program(graph, JAX)

        def f(*xs: Any) -> Any:
            full = list(inputs)
            for i, x in zip(places, xs, strict=True):
                full[i] = x
            results = program.run([jax.numpy.asarray(x) for x in full])
            return sum((o * w).sum() for o, w in zip(results, weights) if o.dtype.kind == "f")

        expected = jax.grad(f, argnums=tuple(range(len(places))))(*(inputs[i] for i in places))
        for i, e in zip(places, expected, strict=True):
            ours = np.zeros(inputs[i].shape) if tensors[i].grad is None else to_numpy(tensors[i].grad)
            np.testing.assert_allclose(ours, np.asarray(e), rtol=1e-9, atol=1e-10)


UNARY = [
    op.name
    for op in registry().values()
    if op.family == "elementwise" and len(op.operands) == 1 and not op.attrs and op.name not in _SKIP_UNARY
    and "identity" not in op.properties
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_gradient_of_unary(name: str) -> None:
    x = np.linspace(0.15, 0.85, 7)
    x = x + 1 if name == "acosh" else x if name in _POSITIVE or name == "erf_inv" else x - 0.52
    _gradients(name, [x], {})


_X, _Y = np.linspace(-2, 3, 12).reshape(3, 4) ** 2 + 0.3, np.linspace(1, -1.7, 12).reshape(3, 4)
_I = np.array([[0], [2], [0], [7]])
_IMAGE, _KERNEL = random_array("f64", (2, 4, 5, 6), 1), random_array("f64", (6, 2, 3, 2), 2)
_SQUARE = random_array("f64", (2, 4, 4), 3)
_WINDOW = {"window": (1, 2, 2), "strides": (1, 2, 1), "low": (0, 1, 0), "high": (0, 0, 1)}
_CONV = {
    "strides": (2, 1), "low": (1, -1), "high": (0, 2), "lhs_dilation": (1, 2), "rhs_dilation": (2, 1),
    "lhs_spec": (0, 1, 2, 3), "rhs_spec": (0, 1, 2, 3), "out_spec": (0, 1, 2, 3), "groups": 2,
}  # fmt: skip
GRADIENTS: dict[str, tuple[str, list[np.ndarray], dict[str, Any]]] = {
    "div": ("div", [_X, _Y], {}),
    "pow": ("pow", [_X, _Y], {}),
    "atan2": ("atan2", [_X, _Y], {}),
    "rem": ("rem", [_X, _Y], {}),
    "max": ("max", [_X, _Y], {}),
    "select": ("select", [_X > _Y, _X, _Y], {}),
    "integer_pow": ("integer_pow", [_Y], {"y": 3}),
    "reduce_precision": ("reduce_precision", [_Y], {"exponent_bits": 8, "mantissa_bits": 30}),
    "broadcast": ("broadcast_in_dim", [_X], {"shape": (3, 2, 4), "broadcast_dimensions": (0, 2)}),
    "slice": ("slice", [_X], {"start": (0, 1), "limit": (3, 4), "strides": (2, 1)}),
    "pad": ("pad", [_X, np.float64(2.0)], {"low": (1, -1), "high": (0, 2), "interior": (1, 0)}),
    "dynamic_slice": ("dynamic_slice", [_X, np.int32(2), np.int32(-1)], {"sizes": (2, 3)}),
    "dynamic_update_slice": ("dynamic_update_slice", [_X, _Y[:2, :3], np.int32(2), np.int32(1)], {}),
    "gather": ("gather", [_X, _I], {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,),
                                   "slice_sizes": (1, 4), "mode": "fill", "fill_value": 0.0}),
    **{f"scatter_{c}": ("scatter", [_X, _I, random_array("f64", (4, 4), 5)],
                        {"combiner": c, "update_window_dims": (1,), "inserted_window_dims": (0,),
                         "scatter_dims_to_operand_dims": (0,)}) for c in ("add", "sub")},
    "reduce_sum": ("reduce_sum", [_X], {"axes": (0,)}),
    "reduce_prod": ("reduce_prod", [_X], {"axes": (0, 1)}),
    "reduce_max": ("reduce_max", [_Y], {"axes": (1,)}),
    "cumsum": ("cumsum", [_X], {"axis": 0, "reverse": True}),
    "cumprod": ("cumprod", [_X], {"axis": 1}),
    "cummax": ("cummax", [_Y], {"axis": 0}),
    "cumlogsumexp": ("cumlogsumexp", [_Y], {"axis": 0}),
    "reduce_window_sum": ("reduce_window_sum", [_SQUARE], _WINDOW),
    "reduce_window_max": ("reduce_window_max", [_SQUARE], _WINDOW),
    "select_and_gather_add": ("select_and_gather_add", [_SQUARE, _SQUARE + 1], {"select": "ge", **_WINDOW}),
    "dot_general": ("dot_general", [_SQUARE, _SQUARE[::-1].copy()], {"lhs_contracting": (1,), "rhs_contracting": (2,),
                                                                "lhs_batch": (0,), "rhs_batch": (0,)}),
    "conv_general": ("conv_general", [_IMAGE, _KERNEL], _CONV),
    "sort": ("sort", [_Y, _X], {"axis": 0, "num_keys": 1}),
    "top_k": ("top_k", [_Y], {"k": 2}),
    "triangular_solve": ("triangular_solve", [_SQUARE + 3 * np.eye(4), random_array("f64", (2, 4, 3), 6)],
                         {"left_side": True, "lower": True}),
    "layer_norm": ("layer_norm", [_X, _Y[0], _Y[1]], {"normalized_rank": 1}),
    "softmax": ("softmax", [_X], {"axis": 0}),
    "gelu": ("gelu", [_Y], {}),
    "attention": ("attention", [_SQUARE[None], _SQUARE[None] + 1, _SQUARE[None] * 2], {"is_causal": True}),
    "cross_entropy": ("cross_entropy", [_X, np.array([1, 3, -100])], {}),
    "lstm": ("lstm", [random_array("f64", s) for s in ((3, 2, 4), (2, 5), (2, 5), (20, 4), (20, 5))], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradient(case: str) -> None:
    name, inputs, attrs = GRADIENTS[case]
    _gradients(name, [np.asarray(x) for x in inputs], attrs)


def test_gradient_through_control_flow() -> None:
    x, xs = np.float64(0.7), np.linspace(0.2, 1.0, 5)
    _gradients("cond", [np.asarray(True), x], {}, {"branches": [lambda r, v: r.sin(v), lambda r, v: r.exp(v)]})
    attrs = {"length": 5, "num_consts": 0, "num_carry": 1}

    def body(r: GraphBuilder, h: Any, v: Any) -> Any:
        h = r.tanh(r.mul(h, v))
        return h, r.square(h)

    _gradients("scan", [x, xs], attrs, {"body": body})
    _gradients("remat", [x], {}, {"body": lambda r, v: r.sin(v)})


# -- bf16, randomness, tracing -------------------------------------------------------------------


def test_short_floats_add_up_in_f32() -> None:
    x = np.full(4096, 1.0, ml_dtypes.bfloat16)
    _against_numpy("reduce_sum", x, axes=(0,))
    b = GraphBuilder()
    v = b.input("x", "bf16", (4096,))
    (result,) = Program(b.build((b.reduce_sum(v, axes=(0,)),)), TABLE).run([from_numpy(x)])
    assert float(result) == 4096.0


def test_traces_with_symbolic_sizes() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    b = GraphBuilder()
    x = b.input("x", "f32", ("n", 4))
    graph = b.build((b.softmax(b.layer_norm(x, normalized_rank=1), axis=0), b.cumsum(x, axis=0)))
    program = Program(graph, TABLE)
    traced = make_fx(lambda v: program.run([v]), tracing_mode="symbolic")(torch.ones(5, 4))
    for n in (2, 9):
        v = torch.randn(n, 4)
        for a, e in zip(traced(v), program.run([v]), strict=True):
            torch.testing.assert_close(a, e)


def test_fast_row_falls_back_to_the_decomposition() -> None:
    _against_numpy("relu", np.array([-1, 0, 3], np.int32))
    _against_numpy("clip", np.array([0, 200, 255], np.uint64), low=3, high=210)
