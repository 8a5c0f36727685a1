"""``jax.lax``: operations on arrays; ``.linalg``."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import Table, call, rows
from .numpy_algebra import _values_first

_P, _L = "jax.lax", "jax.lax.linalg"
_ONE = (call("f32[3,4]"), call("f64[5]"))
_COMPLEX = (call("c64[3]"),)
_TWO = (call("f32[3,4]", "f32[3,4]"), call("f64[5]", "f64[5]"))
_SERIES = "a series of many terms"
_INTEGER2 = (call("i32[3,4]", "i32[3,4]"), call("u8[4]", "u8[4]"))
_LINE = (call("f32[3,4]", axis=0), call("f32[3,4]", axis=1, reverse=True), call("i32[6]"))
_SCATTER = lax.ScatterDimensionNumbers((1,), (0,), (0,))
_GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
_CONV = ("f32[2,3,8,9]", "f32[4,3,3,2]")


def _reducer(x: Any, y: Any) -> Any:
    return x + y + 0.5 * x * y


TABLE: Table = {
    **rows(_P, "abs neg sign sin cos tan sinh cosh tanh asinh atan exp exp2 expm1 logistic square", *_ONE, *_COMPLEX),
    **rows(_P, "abs neg sign square", *_ONE, *_COMPLEX, call("i32[5]")),
    **rows(_P, "erf erfc ceil floor bessel_i0e bessel_i1e lgamma cbrt", *_ONE),
    **rows(_P, "log log1p sqrt rsqrt reciprocal", call("f32[3,4]+"), call("f64[5]+"), *_COMPLEX),
    **rows(_P, "digamma", call("f32[3,4]+"), call("f64[5]+")),
    **rows(_P, "asin acos atanh", call("f32[3,4]u"), *_COMPLEX),
    **rows(_P, "acosh", call("f32[3,4]h"), *_COMPLEX),
    **rows(_P, "erf_inv", call("f32[3,4]u")),
    **rows(_P, "is_finite", call("f32[3,4]n")),
    **rows(_P, "round", *_ONE, call("f32[3,4]", lax.RoundingMethod.TO_NEAREST_EVEN)),
    **rows(_P, "bitwise_not population_count clz", call("i32[5]"), call("u8[4]")),
    **rows(_P, "real imag conj", call("c64[3,4]")),
    **rows(_P, "complex", *_TWO),
    **rows(_P, "add sub mul max min", *_TWO, *_INTEGER2, call("c64[3]", "c64[3]")),
    **rows(_P, "div rem", *_TWO, call("i32[3,4]", "i32[3,4]+")),
    **rows(_P, "eq ne lt le gt ge", *_TWO, *_INTEGER2),
    **rows(_P, "eq ne", *_TWO, call("c64[3]", "c64[3]"), call("bool[4]", "bool[4]")),
    **rows(_P, "atan2 nextafter", *_TWO),
    **rows(_P, "pow", call("f32[3,4]+", "f32[3,4]"), call("f32[4]", "i32[4]"), call("c64[3]", "c64[3]")),
    **rows(_P, "integer_pow", call("f32[3,4]", 3), call("f32[4]", -2), call("i32[4]", 2), call("c64[3]", 3)),
    **rows(_P, "bitwise_and bitwise_or bitwise_xor", *_INTEGER2, call("bool[4]", "bool[4]")),
    **rows(_P, "mulhi", call("i32[4]", "i32[4]"), call("u32[4]", "u32[4]")),
    **rows(
        _P,
        "shift_left shift_right_logical shift_right_arithmetic",
        call("i32[4]", "i32[4]<8"),
        call("u8[4]", "u8[4]<4"),
    ),
    **rows(_P, "igamma igammac igamma_grad_a random_gamma_grad", call("f32[4]+", "f32[4]+").scaled(10, _SERIES)),
    **rows(_P, "betainc", call("f32[4]+", "f32[4]+", "f32[4]u").scaled(10, _SERIES)),
    **rows(_P, "polygamma", call("f32[4]+", "f32[4]+").through(lambda f, m, x: f(jnp.ceil(m), x))),
    **rows(_P, "zeta", call("f32[4]h", "f32[4]+")),
    **rows(_P, "clamp", call(-1.0, "f32[3,4]", 1.0), call("f32[4]", "f32[4]", "f32[4]h")),
    **rows(_P, "select", call("bool[3,4]", "f32[3,4]", "f32[3,4]"), call("bool[]", "i32[4]", "i32[4]")),
    **rows(_P, "select_n", call("i32[4]<3", "f32[4]", "f32[4]", "f32[4]"), call("bool[4]", "f32[4]", "f32[4]")),
    **rows(_P, "reduce_precision", call("f32[3,4]", 5, 7)),
    **rows(
        _P, "convert_element_type", call("f32[4]", "int32"), call("i32[4]", "bfloat16"), call("f32[4]", "complex64")
    ),
    **rows(_P, "bitcast_convert_type", call("f32[4]", "int32"), call("f32[4]", "uint8"), call("u8[3,4]", "float32")),
    **rows(_P, "stop_gradient optimization_barrier", call("f32[3,4]")),
    # -- shapes
    **rows(_P, "broadcast", call("f32[3]", (2, 4))),
    **rows(_P, "broadcast_in_dim", call("f32[3,1]", (2, 3, 4), (1, 2))),
    **rows(_P, "broadcast_like", call("f32[3,1]", "f32[3,4]")),
    **rows(_P, "broadcast_to_rank", call("f32[3]", 3)),
    **rows(_P, "broadcasted_iota", call("int32", (3, 4), 1)),
    **rows(_P, "iota", call("float32", 5)),
    **rows(_P, "empty", call((3, 4), "float32").through(lambda f, s, d: f(s, d) * 0)),
    **rows(_P, "full", call((3, 4), 2.5), call((2,), "f32[]")),
    **rows(_P, "full_like", call("f32[3,4]", 2)),
    **rows(_P, "expand_dims", call("f32[3,4]", (0, 2))),
    **rows(_P, "squeeze", call("f32[1,3,1]", (0,))),
    **rows(_P, "reshape", call("f32[3,4]", (2, 6)), call("f32[3,4]", (12,), dimensions=(1, 0))),
    **rows(_P, "collapse", call("f32[2,3,4]", 0, 2)),
    **rows(_P, "transpose", call("f32[2,3,4]", (2, 0, 1))),
    **rows(_P, "rev", call("f32[3,4]", (1,))),
    **rows(_P, "tile", call("f32[3,4]", (2, 1))),
    **rows(_P, "stack", call(["f32[3,4]", "f32[3,4]"])),
    **rows(_P, "unstack", call("f32[3,4]")),
    **rows(_P, "split", call("f32[6,3]", (2, 4))),
    **rows(_P, "concatenate", call(["f32[3,4]", "f32[2,4]"], 0)),
    **rows(_P, "pad", call("f32[3,4]", 1.5, ((1, 2, 0), (0, -1, 1)))),
    **rows(_P, "slice", call("f32[5,6]", (1, 0), (4, 6), (1, 2))),
    **rows(_P, "slice_in_dim", call("f32[5,6]", 1, -1, 2, axis=1)),
    **rows(_P, "index_in_dim", call("f32[5,6]", -1, axis=1, keepdims=False)),
    **rows(_P, "index_take", call("f32[5,6]", ("i32[3]<5",), (0,))),
    **rows(_P, "dynamic_slice", call("f32[5,6]", ("i32[]", "i32[]"), (2, 3))),
    **rows(_P, "dynamic_slice_in_dim", call("f32[5,6]", "i32[]", 2, axis=1)),
    **rows(_P, "dynamic_index_in_dim", call("f32[5,6]", "i32[]", axis=1, keepdims=False)),
    **rows(_P, "dynamic_update_slice", call("f32[5,6]", "f32[2,3]", ("i32[]", "i32[]"))),
    **rows(_P, "dynamic_update_slice_in_dim", call("f32[5,6]", "f32[5,2]", "i32[]", 1)),
    **rows(_P, "dynamic_update_index_in_dim", call("f32[5,6]", "f32[5]", "i32[]", 1)),
    **rows(
        _P,
        "gather",
        call("f32[6,4]", "i32[3,1]<6", _GATHER, (1, 4)),
        *(call("f32[6,4]", "i32[3,1]", _GATHER, (1, 3), mode=m) for m in ("clip", "fill")),
    ),
    **rows(
        _P,
        "scatter scatter_add scatter_sub scatter_mul scatter_min scatter_max",
        *(
            call("f32[6,4]", "i32[3,1]<6", "f32[3,4]", _SCATTER, mode=m).through(
                lambda f, x, i, u, d, mode: f(x, i * 0 + np.array([[1], [4], [9]]), u, d, mode=mode)
            )
            for m in ("clip", "drop")
        ),
    ),
    **rows(_P, "scatter_add scatter_mul", call("f32[6,4]", "i32[3,1]<6", "f32[3,4]", _SCATTER)),
    **rows(_P, "scatter_apply", call("f32[6,4]", "i32[3,1]<6", jnp.sin, _SCATTER, update_shape=(3, 4))),
    # -- reductions, scans, sorting
    **rows(_P, "reduce_sum reduce_prod reduce_max reduce_min", call("f32[3,4]", (0,)), call("i32[3,4]", (0, 1))),
    **rows(_P, "reduce_and reduce_or reduce_xor", call("bool[3,4]", (1,)), call("i32[3,4]", (0,))),
    **rows(_P, "argmax argmin", call("f32[3,4]", 1, "int32"), call("i32[9]<3", 0, "int32")),
    **rows(_P, "cumsum cumprod cummax cummin", *_LINE),
    **rows(_P, "cumlogsumexp", *_LINE[:2]),
    **rows(
        _P,
        "reduce",
        *(call("f32[3,4]", 0.0, f, (1,)) for f in (lax.add, lax.max, _reducer)),
        call("f32[2,3,4]", 1.0, lax.mul, (0, 2)),
        call("f32[3,4]", "i32[3,4]").through(lambda f, x, i: f((x, i), (-jnp.inf, np.int32(0)), _largest_pair, (1,))),
    ),
    **rows(
        _P,
        "reduce_window",
        *(call("f32[6,7]", 0.0, f, (2, 3), (1, 2), p) for f in (lax.add, lax.max, _reducer) for p in ("VALID", "SAME")),
        call(
            "f32[6,7]", -np.inf, lax.max, (2, 3), (1, 2), ((1, 0), (0, 1)), base_dilation=(2, 1), window_dilation=(1, 2)
        ),
        call("i32[9]", np.int32(1), lax.mul, (3,), (2,), "VALID"),
    ),
    **rows(
        _P,
        "sort",
        call("f32[3,4]"),
        call(("i32[9]<3", "f32[9]"), num_keys=1),
        call(("i32[9]<3", "f32[9]"), num_keys=2),
        call("f32[3,4]", dimension=0),
    ),
    **rows(_P, "sort_key_val", call("i32[9]<4", "f32[9]")),
    **rows(_P, "top_k", call("f32[3,7]", 3), call("i32[9]<4", 5), call("f32[6,3]", 2, axis=0)),
    **rows(_P, "approx_max_k approx_min_k", call("f32[3,16]", 3)),
    # -- products
    **rows(_P, "dot", call("f32[3,4]", "f32[4,2]"), call("f32[4]", "f32[4]"), call("i32[2,3]", "i32[3]")),
    **rows(_P, "batch_matmul", call("f32[2,3,4]", "f32[2,4,5]")),
    **rows(
        _P,
        "dot_general",
        call("f32[2,3,4]", "f32[2,5,4]", (((2,), (2,)), ((0,), (0,)))),
        call("bf16[3,4]", "bf16[4,2]", (((1,), (0,)), ((), ())), preferred_element_type="float32"),
        call("i8[3,4]", "i8[4,2]", (((1,), (0,)), ((), ())), preferred_element_type="int32"),
        call("f32[3,4]", "f32[4,2]", (((1,), (0,)), ((), ())), precision="highest"),
    ),
    **rows(
        _P,
        "ragged_dot",
        call("f32[7,4]", "f32[3,4,5]", np.array([2, 0, 5], np.int32)),
        call("f32[7,4]", "f32[3,4,5]", "i32[3]<3"),
    ),
    **rows(
        _P,
        "ragged_dot_general",
        call(
            "f32[7,4]",
            "f32[3,4,5]",
            np.array([2, 0, 5], np.int32),
            lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0]),
        ),
        call(
            "f32[7,4]",
            "f32[7,5]",
            np.array([2, 0, 5], np.int32),
            lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], []),
        ),
    ),
    **rows(
        _P,
        "scaled_dot",
        call("f32[3,64]", "f32[64,5]").through(
            lambda f, a, b: f(
                a.astype(jnp.float8_e4m3fn),
                b.astype(jnp.float8_e4m3fn),
                lhs_scale=jnp.ones((3, 2), jnp.float8_e8m0fnu),
                rhs_scale=jnp.ones((2, 5), jnp.float8_e8m0fnu),
            )
        ),
    ),
    **rows(_P, "conv", call(*_CONV, (1, 2), "SAME"), call(*_CONV, (2, 1), "VALID")),
    **rows(_P, "conv_with_general_padding", call(*_CONV, (1, 1), ((1, 0), (0, 2)), (2, 1), (1, 2))),
    **rows(
        _P,
        "conv_general_dilated",
        call(*_CONV, (1, 1), "SAME"),
        call(
            "f32[2,8,9,4]",
            "f32[3,2,2,6]",
            (1, 1),
            "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=2,
        ),
        call("f32[4,3,8]", "f32[4,3,3]", (1,), "VALID", batch_group_count=2),
    ),
    **rows(_P, "conv_general_dilated_patches", call("f32[2,3,6,7]", (2, 3), (1, 2), "VALID")),
    **rows(_P, "conv_general_dilated_local", call("f32[2,3,6]", "f32[4,6,5]", (1,), "VALID", (2,))),
    **rows(
        _P,
        "conv_transpose",
        call("f32[2,6,3]", "f32[3,3,4]", (2,), "SAME"),
        call("f32[2,6,3]", "f32[3,4,3]", (2,), "VALID", transpose_kernel=True),
    ),
    **rows(
        _P,
        "fft",
        *(
            call(x, lax.FftType[k], n).judged("fft")
            for x, k, n in (
                ("c64[3,8]", "FFT", (8,)),
                ("c64[3,8]", "IFFT", (3, 8)),
                ("f32[3,8]", "RFFT", (8,)),
                ("c64[3,5]", "IRFFT", (8,)),
            )
        ),
    ),
    # -- random numbers
    **rows(
        _P, "rng_bit_generator", call("u32[4]", (3, 4)), call("u32[4]", (5,), "uint8"), call("u32[4]", (4,), "uint16")
    ),
    **rows(_P, "rng_uniform", call(0.0, 1.0, (3,)).refused("rng_uniform")),
    # -- linalg
    **rows(_L, "cholesky", call("f32[4,4]m").judged("cholesky"), call("c64[2,3,3]m").judged("cholesky")),
    **rows(_L, "cholesky_update", call("f32[4,4]l", "f32[4]u").through(lambda f, r, w: f(r.T, w))),
    **rows(_L, "eig", call("f32[4,4]").judged("eig"), call("c64[3,3]", compute_left_eigenvectors=False).judged("eig")),
    **rows(_L, "eigh", call("f32[4,4]m").judged("eigh"), call("c64[2,3,3]m", lower=False).judged("eigh")),
    **rows(_L, "hessenberg", call("f32[4,4]")),
    **rows(_L, "householder_product", call("f32[4,3]", "f32[3]")),
    **rows(
        _L,
        "ormqr",
        call("f32[4,3]", "f32[3]", "f32[4,2]"),
        call("f32[4,3]", "f32[3]", "f32[2,4]", left=False, transpose=True),
    ),
    **rows(_L, "lu", call("f32[4,4]"), call("c64[2,4,3]")),
    **rows(
        _L,
        "lu_pivots_to_permutation",
        call(np.array([2, 1, 2, 3], np.int32), 4),
        call("i32[2,3]<1", 3).through(lambda f, p, n: f(p + np.arange(3, dtype=np.int32), n)),
    ),
    **rows(_L, "qdwh", call("f32[4,3]").through(lambda f, x: f(x)[:2])),
    **rows(_L, "qr", call("f32[4,3]", full_matrices=False).judged("qr"), call("c64[2,3,3]").judged("qr")),
    **rows(_L, "schur", call("f32[4,4]").through(lambda f, x: (lambda t, z: (z @ t @ z.T, z.T @ z))(*f(x)))),
    **rows(
        _L,
        "svd",
        *(
            call(x, full_matrices=m).through(_values_first).judged("svd")
            for x in ("f32[4,3]", "c64[2,3,4]")
            for m in (False, True)
        ),
        call("f32[4,3]", compute_uv=False),
    ),
    **rows(_L, "symmetric_product", call("f32[4,3]", "f32[4,4]m"), call("f32[4,3]", "f32[4,4]m", alpha=2.0, beta=0.5)),
    **rows(
        _L,
        "triangular_solve",
        call("f32[4,4]l", "f32[4,2]", left_side=True, lower=True),
        call("c64[3,3]l", "c64[2,3]", lower=True, transpose_a=True, conjugate_a=True),
    ),
    **rows(_L, "tridiagonal", call("f32[4,4]m", lower=True).scaled(10, "reflections, one after the other")),
    **rows(
        _L,
        "tridiagonal_solve",
        call("f32[5]u", "f32[5]h", "f32[5]u", "f32[5,2]").through(
            lambda f, a, d, c, b: f(a * jnp.array([0.0, 1, 1, 1, 1]), d + 2, c * jnp.array([1.0, 1, 1, 1, 0]), b)
        ),
    ),
}


def _largest_pair(x: Any, y: Any) -> Any:
    first = (x[0] > y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))
    return jnp.where(first, x[0], y[0]), jnp.where(first, x[1], y[1])
