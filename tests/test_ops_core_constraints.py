"""Each constraint of contraction, sort, linear algebra, random, control and collective ops, broken once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from unigraph.builder import GraphBuilder
from unigraph.errors import TypeCheckError

FAMILIES = ("contract", "sort", "linalg", "random", "control", "collective")
OPS = Path(__file__).parents[1] / "unigraph" / "ops"
CONV = {k: (1,) for k in ("strides", "lhs_dilation", "rhs_dilation")}
CONV |= {"low": (0,), "high": (0,)} | {k: (0, 1, 2) for k in ("lhs_spec", "rhs_spec", "out_spec")}
DOT = {"lhs_contracting": (1,), "rhs_contracting": (0,)}
SOLVE = {"left_side": True, "lower": True}
BITS = {"shape": (2,), "dtype": "u32", "algorithm": "philox"}
AXIS = {"axis_name": "d", "axis_size": 2}
KEY, SCALAR = "key<threefry2x32>", ()


def same(b: Any, *xs: Any) -> Any:
    return xs


def never(b: Any, *xs: Any) -> Any:
    return b.constant(False)


def last(b: Any, *xs: Any) -> Any:
    return xs[-1]


def as_graph(*types: Any) -> Any:
    """The identity on these types, as a graph that does not follow the operands."""
    b = GraphBuilder()
    return b.build(tuple(b.input(f"x{i}", d, s) for i, (d, s) in enumerate(types)))


F, N, B = ("f32", ()), ("i32", ()), ("bool", ())
VJP = {"body": same, "fwd": same, "bwd": last, "num_residuals": 0}
# label, op, operand types, attributes and regions
CASES: list[tuple[str, str, list[Any], dict[str, Any]]] = [
    ("dot_general_d1", "dot_general", [(KEY, (2, 2)), (KEY, (2, 2))], DOT),
    ("dot_general_d2", "dot_general", [("f32", (2, 3)), ("f64", (3, 2))], DOT),
    ("dot_general_d3", "dot_general", [("f32", (2, 3)), ("f32", (3, 2))], {**DOT, "out_dtype": "f16"}),
    ("dot_general_c1", "dot_general", [("f32", (2, 3)), ("f32", (3, 2))], {**DOT, "lhs_contracting": (2,)}),
    (
        "dot_general_c2",
        "dot_general",
        [("f32", (2, 3)), ("f32", (3, 2))],
        {**DOT, "lhs_batch": (0,), "rhs_batch": (0,)},
    ),
    ("dot_general_c3", "dot_general", [("f32", (2, 3)), ("f32", (4, 2))], DOT),
    (
        "dot_general_c4",
        "dot_general",
        [("f32", (2, 3)), ("f32", (3, 5))],
        {**DOT, "lhs_batch": (0,), "rhs_batch": (1,)},
    ),
    ("ragged_dot_c1", "ragged_dot", [("f32", (2, 3)), ("f32", (3, 2)), ("i32", (1,))], {}),
    ("ragged_dot_c2", "ragged_dot", [("f32", (2, 3)), ("f32", (1, 4, 2)), ("i32", (1,))], {}),
    ("ragged_dot_c3", "ragged_dot", [("f32", (2, 3)), ("f32", (1, 3, 2)), ("i32", (2,))], {}),
    ("ragged_dot_c4", "ragged_dot", [("f32", (2, 3)), ("f32", (1, 3, 2)), ("f32", (1,))], {}),
    ("conv_general_c1", "conv_general", [("f32", (1,)), ("f32", (1,))], CONV),
    ("conv_general_c2", "conv_general", [("f32", (1, 1, 3)), ("f32", (1, 1, 2))], {**CONV, "lhs_spec": (0, 0, 1)}),
    ("conv_general_c3", "conv_general", [("f32", (1, 1, 3)), ("f32", (1, 1, 2))], {**CONV, "low": ()}),
    ("conv_general_c4", "conv_general", [("f32", (1, 1, 3)), ("f32", (1, 1, 2))], {**CONV, "strides": (0,)}),
    (
        "conv_general_c5",
        "conv_general",
        [("f32", (2, 2, 3)), ("f32", (2, 1, 2))],
        {**CONV, "groups": 2, "batch_groups": 2},
    ),
    ("conv_general_c6", "conv_general", [("f32", (1, 3, 3)), ("f32", (2, 1, 2))], {**CONV, "groups": 2}),
    ("conv_general_c7", "conv_general", [("f32", (1, 3, 3)), ("f32", (2, 1, 2))], CONV),
    ("conv_general_c8", "conv_general", [("f32", (1, 2, 3)), ("f32", (3, 1, 2))], {**CONV, "groups": 2}),
    ("conv_general_c9", "conv_general", [("f32", (3, 1, 3)), ("f32", (2, 1, 2))], {**CONV, "batch_groups": 2}),
    ("conv_general_c10", "conv_general", [("f32", (1, 1, 3)), ("f32", (1, 1, 0))], CONV),
    ("sort_c1", "sort", [], {"axis": 0}),
    ("sort_c2", "sort", [(KEY, (2,))], {"axis": 0}),
    ("sort_c3", "sort", [("f32", (2,)), ("f32", (3,))], {"axis": 0}),
    ("sort_c4", "sort", [("f32", (2,))], {"axis": 1}),
    ("sort_c5", "sort", [("f32", (2,))], {"axis": 0, "num_keys": 2}),
    ("top_k_c1", "top_k", [("c64", (2,))], {"k": 1}),
    ("top_k_c2", "top_k", [("f32", (2,))], {"k": 1, "axis": 1}),
    ("top_k_c3", "top_k", [("f32", (2,))], {"k": 3}),
    ("fft_c1", "fft", [("f32", (4,))], {"kind": "fft", "lengths": (4,)}),
    ("fft_c2", "fft", [("c64", (4,))], {"kind": "fft", "lengths": (4, 4)}),
    ("fft_c3", "fft", [("c64", (4,))], {"kind": "irfft", "lengths": (5,)}),
    ("fft_c4", "fft", [("c64", (0,))], {"kind": "fft", "lengths": (0,)}),
    ("cholesky_m1", "cholesky", [("i32", (2, 2))], {}),
    ("cholesky_m2", "cholesky", [("f32", (2,))], {}),
    ("cholesky_m3", "cholesky", [("f32", (2, 3))], {}),
    ("triangular_solve_c1", "triangular_solve", [("f32", (2, 2)), ("f64", (2, 2))], SOLVE),
    ("triangular_solve_c2", "triangular_solve", [("f32", (2, 2)), ("f32", (1, 2, 2))], SOLVE),
    ("triangular_solve_c3", "triangular_solve", [("f32", (2, 2)), ("f32", (3, 2))], SOLVE),
    ("lu_pivots_to_permutation_c1", "lu_pivots_to_permutation", [("f32", (2,))], {"permutation_size": 2}),
    ("lu_pivots_to_permutation_c2", "lu_pivots_to_permutation", [("i32", (3,))], {"permutation_size": 2}),
    ("cholesky_update_c1", "cholesky_update", [("f32", (2, 2)), ("f32", (3,))], {}),
    ("cholesky_update_c2", "cholesky_update", [("c64", (2, 2)), ("c64", (2,))], {}),
    ("tridiagonal_solve_c1", "tridiagonal_solve", [("f32", (2,)), ("f32", (3,)), ("f32", (3,)), ("f32", (3, 1))], {}),
    ("householder_product_c1", "householder_product", [("f32", (2, 3)), ("f32", (2,))], {}),
    ("householder_product_c2", "householder_product", [("f32", (3, 2)), ("f32", (3,))], {}),
    ("ormqr_c1", "ormqr", [("f32", (3, 2)), ("f32", (3,)), ("f32", (3, 1))], {}),
    ("ormqr_c2", "ormqr", [("f32", (3, 2)), ("f32", (2,)), ("f64", (3, 1))], {}),
    ("ormqr_c3", "ormqr", [("f32", (3, 2)), ("f32", (2,)), ("f32", (2, 1))], {}),
    ("tridiagonal_c1", "tridiagonal", [("f32", (0, 0))], {"lower": True}),
    ("rng_seed_c1", "rng_seed", [F], {"impl": "rbg"}),
    ("rng_wrap_c1", "rng_wrap", [("u32", (3,))], {"impl": "threefry2x32"}),
    ("rng_unwrap_c1", "rng_unwrap", [("u32", (2,))], {}),
    ("rng_split_c1", "rng_split", [("u32", (2,))], {"shape": (2,)}),
    ("rng_split_c2", "rng_split", [(KEY, ())], {"shape": (-1,)}),
    ("rng_fold_in_c1", "rng_fold_in", [("u32", (2,)), ("u32", ())], {}),
    ("rng_fold_in_c2", "rng_fold_in", [(KEY, ()), ("i32", ())], {}),
    ("rng_bits_c1", "rng_bits", [("u32", (2,))], {"shape": (2,), "dtype": "u32"}),
    ("rng_bits_c2", "rng_bits", [(KEY, ())], {"shape": (-2,), "dtype": "u32"}),
    ("threefry2x32_c1", "threefry2x32", [("i32", ())] * 4, {}),
    ("threefry2x32_c2", "threefry2x32", [("u32", (2,)), *[("u32", ())] * 3], {}),
    ("rng_bit_generator_c1", "rng_bit_generator", [("u32", (2,))], BITS),
    ("rng_bit_generator_c2", "rng_bit_generator", [("u32", (4,))], {**BITS, "shape": (-1,)}),
    ("random_gamma_c1", "random_gamma", [("u32", (2,)), F], {"log_space": False}),
    ("random_gamma_c2", "random_gamma", [(KEY, ()), N], {"log_space": False}),
    ("random_gamma_c3", "random_gamma", [(KEY, (2,)), F], {"log_space": False}),
    ("cond_c1", "cond", [N, F], {"branches": []}),
    ("cond_c2", "cond", [B, F], {"branches": [same]}),
    ("cond_c3", "cond", [N, F], {"branches": [as_graph(N)]}),
    ("cond_c4", "cond", [N, F], {"branches": [same, never]}),
    ("while_c1", "while", [F], {"cond": never, "body": same, "cond_consts": 2}),
    ("while_c2", "while", [F], {"cond": as_graph(N), "body": same}),
    ("while_c3", "while", [F], {"cond": same, "body": same}),
    ("while_c4", "while", [F], {"cond": never, "body": as_graph(N)}),
    ("while_c5", "while", [F], {"cond": never, "body": never}),
    ("scan_c1", "scan", [F], {"body": same, "length": 1, "num_consts": 1, "num_carry": 1}),
    ("scan_c2", "scan", [("f32", (2,))], {"body": same, "length": 1, "num_consts": 0, "num_carry": 0}),
    ("scan_c3", "scan", [F], {"body": same, "length": -1, "num_consts": 0, "num_carry": 1}),
    ("scan_c4", "scan", [F], {"body": as_graph(N), "length": 1, "num_consts": 0, "num_carry": 1}),
    ("scan_c5", "scan", [F], {"body": never, "length": 1, "num_consts": 0, "num_carry": 1}),
    ("call_c1", "call", [F], {"body": as_graph(N)}),
    ("remat_c1", "remat", [F], {"body": as_graph(N)}),
    ("custom_jvp_c1", "custom_jvp", [F], {"body": same, "jvp": as_graph(F, F), "vjp": same, "num_consts": 2}),
    ("custom_jvp_c2", "custom_jvp", [F], {"body": as_graph(N), "jvp": last, "vjp": last}),
    ("custom_jvp_c3", "custom_jvp", [F], {"body": same, "jvp": as_graph(F), "vjp": last}),
    ("custom_jvp_c4", "custom_jvp", [F], {"body": same, "jvp": same, "vjp": last}),
    ("custom_jvp_c5", "custom_jvp", [F], {"body": same, "jvp": last, "vjp": as_graph(F)}),
    ("custom_jvp_c6", "custom_jvp", [F], {"body": same, "jvp": last, "vjp": same}),
    ("custom_vjp_c1", "custom_vjp", [F], {**VJP, "num_consts": 2}),
    ("custom_vjp_c2", "custom_vjp", [F], {**VJP, "body": as_graph(N), "bwd": as_graph(F)}),
    ("custom_vjp_c3", "custom_vjp", [F], {**VJP, "fwd": as_graph(N)}),
    ("custom_vjp_c4", "custom_vjp", [F], {**VJP, "num_residuals": 1}),
    ("custom_vjp_c5", "custom_vjp", [F], {**VJP, "fwd": never}),
    ("custom_vjp_c6", "custom_vjp", [F], {**VJP, "bwd": as_graph(N)}),
    ("custom_vjp_c7", "custom_vjp", [F], {**VJP, "bwd": never}),
    ("all_reduce_c1", "all_reduce", [(KEY, ())], {**AXIS, "combiner": "add"}),
    ("all_reduce_c2", "all_reduce", [F], {**AXIS, "axis_size": 0, "combiner": "add"}),
    ("all_gather_c3", "all_gather", [("f32", (2,))], {**AXIS, "axis": 2, "tiled": False}),
    ("reduce_scatter_c3", "reduce_scatter", [("f32", (3,))], {**AXIS, "axis": 0, "tiled": True}),
    ("all_to_all_c3", "all_to_all", [("f32", (3,))], {**AXIS, "split_axis": 0, "concat_axis": 0, "tiled": True}),
    ("all_to_all_c4", "all_to_all", [("f32", (2,))], {**AXIS, "split_axis": 0, "concat_axis": 1, "tiled": True}),
    ("collective_permute_c3", "collective_permute", [F], {**AXIS, "sources": (0,), "targets": ()}),
    ("collective_permute_c4", "collective_permute", [F], {**AXIS, "sources": (0,), "targets": (2,)}),
]


@pytest.mark.parametrize(("label", "op", "operands", "options"), CASES, ids=[c[0] for c in CASES])
def test_constraint(label: str, op: str, operands: list[Any], options: dict[str, Any]) -> None:
    b = GraphBuilder()
    values = [b.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(operands)]
    with pytest.raises(TypeCheckError) as caught:
        getattr(b, op)(*values, **options)
    assert caught.value.label == label
    assert op in str(caught.value) or not operands


def test_every_label_is_provoked() -> None:
    written = {m for f in FAMILIES for m in re.findall(r'"([a-z0-9_]+_[cm]\d+)"', (OPS / f"{f}.py").read_text())}
    assert written <= {case[0] for case in CASES}
