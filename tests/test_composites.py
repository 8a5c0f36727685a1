"""Every composite's decomposition, on the reference table, against torch.nn.functional and jax.

Rows that a table may have for composites are left out: it is the decomposition that is tested. Each
case is run with known sizes in several dtypes, and again with a symbolic batch at two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.composite_cases import ACTIVATIONS, CASES, Case
from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.dtypes import dtype
from unigraph.errors import TypeCheckError
from unigraph.evaluate import Program
from unigraph.graph import Graph
from unigraph.opdef import registry
from unigraph.runtime.numpy.table import TABLE, NumpyTable
from unigraph.tolerances import difference

BARE = NumpyTable({op: row for op, row in TABLE.rows.items() if not op.is_composite})
SHORT = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}


def build(
    name: str, arrays: list[np.ndarray], attrs: dict[str, Any], shapes: list[tuple[Any, ...]] | None = None
) -> Graph:
    """A graph of one composite over inputs like ``arrays``, with symbolic ``shapes`` if given."""
    b = GraphBuilder(name)
    values = [b.input(f"x{i}", dtype(a.dtype), shapes[i] if shapes else a.shape) for i, a in enumerate(arrays)]
    result = b.apply(registry()[name], values, attrs)
    return b.build(result if isinstance(result, tuple) else (result,))


def run(name: str, arrays: list[np.ndarray], **attrs: Any) -> tuple[np.ndarray, ...]:
    return Program(build(name, arrays, attrs), BARE).run(arrays)


def to_torch(a: np.ndarray) -> torch.Tensor:
    if a.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(a.copy())


def to_numpy(t: torch.Tensor) -> np.ndarray:
    if t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return t.detach().numpy()


def agree(actual: tuple[np.ndarray, ...], expected: Any, rounds: float) -> None:
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected)):
        reason = difference(a, to_numpy(e) if isinstance(e, torch.Tensor) else e, rounds)
        assert reason is None, f"output {i}: {reason}"


IDS = [f"{c.name}-{i}" for i, c in enumerate(CASES)]


def _as(array: np.ndarray, kind: str) -> np.ndarray:
    return array.astype(dtype(kind).numpy) if array.dtype == np.float32 else array


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_against_torch(case: Case) -> None:
    for kind in case.dtypes:
        arrays = [_as(a, kind) for a in case.make(np.random.default_rng(0), 3)]
        agree(run(case.name, arrays, **case.attrs), case.torch(*map(to_torch, arrays)), case.rounds)


def _shapes(small: list[np.ndarray], large: list[np.ndarray]) -> list[tuple[Any, ...]]:
    """Shapes with the symbol ``batch`` wherever the two sizes 3 and 5 of it show."""
    return [
        tuple(s if s == t else dims.parse("batch") * (s // 3) for s, t in zip(a.shape, b.shape))
        for a, b in zip(small, large)
    ]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_symbolic_batch(case: Case) -> None:
    small, large = (case.make(np.random.default_rng(1), n) for n in (3, 5))
    shapes = _shapes(small, large)
    if all(all(map(dims.is_static, s)) for s in shapes):
        pytest.skip("no batch")
    program = Program(build(case.name, small, case.attrs, shapes), BARE)
    for arrays in (small, large):
        agree(program.run(arrays), case.torch(*map(to_torch, arrays)), case.rounds)


# -- random distributions, against jax.random ----------------------------------------------------

SEED = 7
_RANDOM: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    ("random_uniform", {}, lambda r, k, s, d: r.uniform(k, s, d)),
    ("random_uniform", {"low": -2.0, "high": 3.0}, lambda r, k, s, d: r.uniform(k, s, d, -2.0, 3.0)),
    ("random_normal", {}, lambda r, k, s, d: r.normal(k, s, d)),
    ("random_exponential", {}, lambda r, k, s, d: r.exponential(k, s, d)),
    ("random_gumbel", {}, lambda r, k, s, d: r.gumbel(k, s, d)),
    ("random_truncated_normal", {"low": -1.0, "high": 2.5}, lambda r, k, s, d: r.truncated_normal(k, -1.0, 2.5, s, d)),
]
# Uniform in [0, 1) is equal bit for bit. XLA contracts `u * width + low` to one rounding, NumPy has two, and
# logarithms and erf_inv may round otherwise too.
EXACT = ("random_uniform", {})


def _draw(name: str, shape: tuple[Any, ...], sizes: list[int] | None = None, **attrs: Any) -> list[np.ndarray]:
    """The draws of a distribution for key `SEED`: one for a known shape, else one for each batch size."""
    import jax

    words = np.asarray(jax.random.key_data(jax.random.key(SEED)))
    b = GraphBuilder(name)
    key = b.key()
    x = b.input("x", "f32", ("batch",)) if sizes else None
    graph = b.build((b.apply(registry()[name], [key], {"shape": shape, **attrs}),))
    program = Program(graph, BARE)
    if x is None:
        return [program.run([words])[0]]
    return [program.run([words, np.zeros(n, np.float32)])[0] for n in sizes]


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(("name", "attrs", "theirs"), _RANDOM, ids=[f"{r[0]}-{i}" for i, r in enumerate(_RANDOM)])
def test_random_against_jax(name: str, attrs: dict[str, Any], theirs: Callable[..., Any], kind: str) -> None:
    import jax

    with jax.enable_x64(True):
        expected = np.asarray(theirs(jax.random, jax.random.key(SEED), (5, 7), dtype(kind).numpy))
    (actual,) = _draw(name, (5, 7), dtype=kind, **attrs)
    if (name, attrs) == EXACT:
        np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))
    assert difference(actual, expected, 2) is None


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
def test_randint_against_jax(kind: str) -> None:
    import jax

    info = np.iinfo(dtype(kind).numpy)
    for low, high in [
        (0, 10),
        (3, 120),
        (5, 5),
        (9, 2),
        (info.min, info.max),
        (-5, 100),
        (7, int(info.max) + 1),
        (int(info.min), int(info.max) + 1),
    ]:
        if not -(2**63) <= low < 2**63 or not -(2**63) <= high < 2**63 or (kind[0] == "u" and low < 0):
            continue
        with jax.enable_x64(True):
            expected = np.asarray(jax.random.randint(jax.random.key(SEED), (40,), low, high, dtype(kind).numpy))
        (actual,) = _draw("random_randint", (40,), dtype=kind, low=int(low), high=int(high))
        np.testing.assert_array_equal(actual, expected, err_msg=f"{low}, {high}")


def test_bernoulli_and_dropout_against_jax() -> None:
    import jax

    key = jax.random.key(SEED)
    for p in (0.0, 0.3, 0.9, 1.0):
        (actual,) = _draw("random_bernoulli", (50,), p=p)
        np.testing.assert_array_equal(actual, np.asarray(jax.random.bernoulli(key, p, (50,))))
    b = GraphBuilder()
    x, k = b.input("x", "f32", ("batch", 4)), b.key()
    program = Program(b.build((b.dropout(x, k, rate=0.4),)), BARE)
    for n in (3, 6):
        data = np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)
        kept = np.asarray(jax.random.bernoulli(key, 1 - 0.4, (n, 4)))
        (actual,) = program.run([data, np.asarray(jax.random.key_data(key))])
        assert difference(actual, np.where(kept, data / np.float32(0.6), np.float32(0))) is None


def test_random_shapes_may_be_symbolic() -> None:
    import jax

    for n, actual in zip((3, 4), _draw("random_uniform", ("batch", 2), [3, 4], dtype="f32")):
        np.testing.assert_array_equal(actual, np.asarray(jax.random.uniform(jax.random.key(SEED), (n, 2), "float32")))


def test_keys_may_be_batched() -> None:
    import jax

    keys = jax.random.split(jax.random.key(SEED), 3)
    b = GraphBuilder()
    k = b.key(shape=(3,))
    graph = b.build(
        (b.random_normal(k, shape=(4,), dtype="f32"), b.random_randint(k, shape=(4,), dtype="i32", low=0, high=99))
    )
    normal_, whole_ = Program(graph, BARE).run([np.asarray(jax.random.key_data(keys))])
    assert difference(normal_, np.asarray(jax.vmap(lambda q: jax.random.normal(q, (4,)))(keys))) is None
    np.testing.assert_array_equal(whole_, np.asarray(jax.vmap(lambda q: jax.random.randint(q, (4,), 0, 99))(keys)))


# -- quantisation, against torch -----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "torch_kind"), [("i8", torch.qint8), ("u8", torch.quint8)])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_against_torch(kind: str, torch_kind: Any, axis: int | None) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((4, 4)) * 20).astype(np.float32)
    if axis is None:
        scale, zero = np.float32(0.25), np.int32(3)
        q = torch.quantize_per_tensor(to_torch(x), 0.25, 3, torch_kind)
    else:
        scale, zero = np.array([0.25, 0.5, 0.125, 1], np.float32), np.array([1, 0, 3, 5], np.int32)
        q = torch.quantize_per_channel(to_torch(x), to_torch(scale).double(), to_torch(zero), axis % 2, torch_kind)
    (ours,) = run("quantize", [x, np.asarray(scale), np.asarray(zero)], axis=axis, dtype=kind)
    np.testing.assert_array_equal(ours, q.int_repr().numpy())
    (real,) = run("dequantize", [ours, np.asarray(scale), np.asarray(zero)], axis=axis, dtype="f32")
    assert difference(real, q.dequantize().numpy()) is None


def test_quantize_narrow_kinds() -> None:
    x = np.array([-1000, -3.5, -0.5, 0.5, 1.5, 2.5, 1000, np.nan], np.float32)
    one, zero = np.float32(1), np.int32(0)
    (four,) = run("quantize", [x, np.asarray(one), np.asarray(zero)], dtype="i4")
    np.testing.assert_array_equal(four.astype(np.int8), [-8, -4, 0, 0, 2, 2, 7, 0])
    (eight,) = run("quantize", [x, np.asarray(one), np.asarray(zero)], dtype="f8e4m3fn")
    np.testing.assert_array_equal(eight.astype(np.float32), [-448, -3.5, -0.5, 0.5, 1.5, 2.5, 448, np.nan])
    (wide,) = run("quantize", [np.array([3e9, -3e9, 7], np.float32), np.asarray(one), np.asarray(zero)], dtype="i32")
    np.testing.assert_array_equal(wide, [2**31 - 1, -(2**31), 7])


# -- edges ---------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 88.0, -88.0, 0.5, -0.5, 1e-30], np.float32)
# gelu: torch's vector code gives NaN for +inf, its scalar code inf.
FINITE = [
    c
    for c in ACTIVATIONS
    if c.name not in {"gelu", "prelu", "glu", "softmax", "log_softmax", "logsumexp", "quick_gelu"}
]


@pytest.mark.parametrize("case", FINITE, ids=[f"{c.name}-{i}" for i, c in enumerate(FINITE)])
def test_activations_of_special_values(case: Case) -> None:
    x = np.tile(SPECIAL, 4)  # long enough for torch's vector code
    agree(run(case.name, [x], **case.attrs), case.torch(to_torch(x)), 2)


def test_masked_attention_rows_are_zero() -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 3, 4)).astype(np.float32)
    mask = np.ones((2, 3, 3), np.bool_)
    mask[0, 1] = False
    for m in (mask, np.where(mask, 0, -np.inf).astype(np.float32)):
        expected = F.scaled_dot_product_attention(*map(to_torch, (q, q, q)), attn_mask=to_torch(m))
        (y,) = run("attention", [q, q, q, m])
        agree((y,), expected, 4)
        assert not y[0, 1].any()


def test_softmax_of_infinite_rows_as_torch() -> None:
    inf = np.inf
    x = np.array([[-inf, -inf], [inf, 0], [np.nan, 0], [-inf, 3]], np.float32)
    agree(run("softmax", [x], axis=-1), F.softmax(to_torch(x), -1), 1)
    agree(run("log_softmax", [x], axis=-1), F.log_softmax(to_torch(x), -1), 1)
    agree(run("logsumexp", [x], axes=(1,)), torch.logsumexp(to_torch(x), 1), 1)


def test_losses_with_everything_ignored() -> None:
    x, t = np.ones((2, 3), np.float32), np.full(2, -100)
    for name in ("cross_entropy", "nll_loss"):
        (mean,), (total,) = (run(name, [x, t], reduction=r) for r in ("mean", "sum"))
        assert np.isnan(mean) and total == 0


def test_norms_of_empty_and_single_batches() -> None:
    x = np.zeros((0, 3, 4), np.float32)
    (y,) = run("layer_norm", [x], normalized_rank=1)
    assert y.shape == x.shape
    single = np.array([[1.0, 2.0]], np.float32)
    ones = np.ones(2, np.float32)
    y, _, variance = run("batch_norm_train", [single, ones, ones])
    assert not y.any() and np.isnan(variance).all()


# -- refusals ------------------------------------------------------------------------------------

f = lambda *shape: np.zeros(shape, np.float32)
i = lambda *shape: np.zeros(shape, np.int32)
REFUSED: list[tuple[str, list[np.ndarray], dict[str, Any], str]] = [
    ("gelu", [i(2)], {}, "gelu_dtype"),
    ("softmax", [f(2, 3)], {"axis": 2}, "softmax_axis"),
    ("softmax", [i(2, 3)], {"axis": 0}, "softmax_dtype"),
    ("glu", [f(3)], {"axis": 0}, "glu_size"),
    ("mean", [i(3)], {"axes": (0,)}, "mean_dtype"),
    ("mean", [f(3, 3)], {"axes": (0, -2)}, "mean_axis"),
    ("clip", [i(3)], {"low": 0.5}, "clip_bound"),
    ("layer_norm", [f(2, 3), f(2)], {"normalized_rank": 1}, "layer_norm_weight"),
    ("layer_norm", [f(2, 3)], {"normalized_rank": 3}, "layer_norm_rank"),
    ("group_norm", [f(2, 3, 4)], {"num_groups": 2}, "group_norm_groups"),
    ("batch_norm", [f(2, 3), f(2), f(2)], {}, "batch_norm_weight"),
    ("matmul", [f(2, 3), f(2, 3)], {}, "matmul_size"),
    ("matmul", [f(2, 3), i(3, 3)], {}, "matmul_dtype"),
    ("matmul", [f(2, 2, 3), f(3, 3, 3)], {}, "matmul_broadcast"),
    ("linear", [f(2, 3), f(2, 2)], {}, "linear_size"),
    ("einsum", [f(2, 3)], {"equation": "ij,jk->ik"}, "einsum_operands"),
    ("einsum", [f(2, 3)], {"equation": "ijk->i"}, "einsum_rank"),
    ("einsum", [f(2, 3)], {"equation": "ij->k"}, "einsum_output"),
    ("einsum", [f(2, 3)], {"equation": "ij->ii"}, "einsum_output"),
    ("einsum", [f(2, 3)], {"equation": "i1->i"}, "einsum_equation"),
    ("einsum", [f(2, 3), f(2, 3)], {"equation": "ij,jk->ik"}, "einsum_size"),
    ("attention", [f(2, 3, 4), f(2, 5, 3), f(2, 5, 3)], {}, "attention_size"),
    ("attention", [f(3, 3, 4), f(2, 5, 4), f(2, 5, 4)], {}, "attention_heads"),
    ("attention", [f(2, 3, 4), f(2, 5, 4), f(2, 4, 4)], {}, "attention_keys"),
    ("attention", [f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), i(3, 5)], {}, "attention_mask"),
    ("rotary_embedding", [f(2, 5), f(2, 2), f(2, 2)], {}, "rotary_embedding_size"),
    ("conv", [f(1, 2, 3), f(1, 3, 2)], {"strides": [1], "low": [0], "high": [0], "dilation": [1]}, "conv_channels"),
    ("conv", [f(1, 2, 3), f(1, 2, 2)], {"strides": [1, 1], "low": [0], "high": [0], "dilation": [1]}, "conv_attrs"),
    ("conv", [f(1, 2, 3), f(1, 2, 2)], {"strides": [0], "low": [0], "high": [0], "dilation": [1]}, "conv_attrs"),
    (
        "avg_pool",
        [f(1, 1, 4)],
        {"kernel": [2], "strides": [1], "low": [0], "high": [0], "ceil_extra": [1]},
        "avg_pool_extra",
    ),
    ("pixel_shuffle", [f(3, 2, 2)], {"factor": 2}, "pixel_shuffle_channels"),
    ("resize", [f(1, 1, 4)], {"shape": (2, 2), "mode": "linear"}, "resize_rank"),
    ("resize", [f(1, 1, 4)], {"shape": (2,), "mode": "nearest", "antialias": True}, "resize_antialias"),
    ("lstm", [f(2, 1, 3), f(1, 2), f(1, 2), f(8, 3), f(6, 2)], {}, "lstm_size"),
    ("cross_entropy", [f(2, 3), f(2)], {}, "cross_entropy_target"),
    ("nll_loss", [f(2, 3), i(3)], {}, "nll_loss_target"),
    ("mse_loss", [f(2), f(3)], {}, "mse_loss_shape"),
    ("quantize", [f(2), f(2), i(2)], {"dtype": "i8"}, "quantize_scale"),
    ("quantize", [f(2), f(), i()], {"dtype": "f32"}, "quantize_dtype"),
    ("take", [f(2), f(2)], {"axis": 0}, "take_indices"),
    ("take_along_axis", [f(2, 2), i(2)], {"axis": 0}, "take_along_axis_rank"),
    ("roll", [f(2)], {"shifts": (1, 2), "axes": (0,)}, "roll_axes"),
    ("tril", [f(2)], {}, "tril_rank"),
    ("random_uniform", [i(2)], {"shape": ()}, "random_uniform_key"),
    ("dropout", [f(2), i(2)], {"rate": 0.5}, "dropout_key"),
]


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "label"), REFUSED, ids=[f"{r[3]}-{k}" for k, r in enumerate(REFUSED)]
)
def test_refusals_carry_their_label(name: str, arrays: list[np.ndarray], attrs: dict[str, Any], label: str) -> None:
    with pytest.raises(TypeCheckError) as caught:
        build(name, arrays, attrs)
    assert caught.value.label == label


def test_every_composite_is_covered() -> None:
    tested = (
        {c.name for c in CASES}
        | {r[0] for r in _RANDOM}
        | {"random_randint", "random_bernoulli", "dropout", "quantize", "dequantize", "quantized_linear"}
    )
    assert {op.name for op in registry().values() if op.is_composite and op.family == "composite"} <= tested


# -- symbolic sizes other than the batch ---------------------------------------------------------

_SYMBOLIC: list[tuple[str, list[tuple[Any, ...]], dict[str, Any], Callable[[int], dict[str, Any]]]] = [
    ("resize", [(1, 2, "n", 3)], {"shape": ("2*n", 5), "mode": "linear"}, lambda n: {"shape": (2 * n, 5)}),
    ("resize", [(1, 2, "n")], {"shape": ("n + 3",), "mode": "nearest"}, lambda n: {"shape": (n + 3,)}),
    (
        "resize",
        [(1, 2, "3*n")],
        {"shape": ("n",), "mode": "cubic", "antialias": True},
        lambda n: {"shape": (n,)},
    ),
    ("attention", [(2, "n", 4), (2, "n", 4), (2, "n", 3)], {"is_causal": True}, lambda n: {}),
    ("attention", [(2, 3, "n"), (2, 4, "n"), (2, 4, 3)], {}, lambda n: {}),
    ("linear", [("n", 3), (2, 3), (2,)], {}, lambda n: {}),
    ("rms_norm", [(2, "n"), ("n",)], {"normalized_rank": 1, "epsilon": 1e-5}, lambda n: {}),
    ("group_norm", [(2, 4, "n")], {"num_groups": 2}, lambda n: {}),
    ("conv", [(1, 2, "n"), (3, 2, 3)], {"strides": (2,), "low": (1,), "high": (1,), "dilation": (1,)}, lambda n: {}),
    (
        "avg_pool",
        [(1, 2, "n")],
        {"kernel": (3,), "strides": (2,), "low": (1,), "high": (1,), "count_include_pad": False},
        lambda n: {},
    ),
    ("adaptive_max_pool", [(1, 2, "n")], {"output_size": (3,)}, lambda n: {}),
    ("softmax", [(2, "n")], {"axis": 1}, lambda n: {}),
    ("mean", [("n", "n")], {"axes": (0, 1)}, lambda n: {}),
    ("glu", [(2, "2*n")], {"axis": 1}, lambda n: {}),
    ("roll", [("n", 2)], {"shifts": (2,), "axes": (0,)}, lambda n: {}),
    ("lstm", [("n", 2, 3), (2, 2), (2, 2), (8, 3), (8, 2)], {}, lambda n: {}),
    ("pixel_shuffle", [(1, 4, "n", 2)], {"factor": 2}, lambda n: {}),
    ("einsum", [("n", 3), (3, "n")], {"equation": "ij,ji->i"}, lambda n: {}),
]


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "at"), _SYMBOLIC, ids=[f"{r[0]}-{k}" for k, r in enumerate(_SYMBOLIC)]
)
def test_symbolic_sizes(
    name: str, shapes: list[tuple[Any, ...]], attrs: dict[str, Any], at: Callable[[int], dict[str, Any]]
) -> None:
    """One graph with symbolic sizes gives at each size what a graph of known sizes gives."""
    program = None
    for n in (4, 7):
        rng = np.random.default_rng(n)
        sizes = [tuple(dims.evaluate(dims.normal(s), {"n": n}) for s in shape) for shape in shapes]
        arrays = [rng.standard_normal(s).astype(np.float32) for s in sizes]
        if program is None:
            program = Program(build(name, arrays, attrs, [tuple(map(dims.normal, s)) for s in shapes]), BARE)
        expected = run(name, arrays, **{**attrs, **at(n)})
        agree(program.run(arrays), expected, 4)
