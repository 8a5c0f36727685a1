"""``jax.numpy``: products, polynomials, interpolation; ``.fft`` and ``.linalg``."""

from __future__ import annotations

from typing import Any

from . import Table, call, rows

_P, _F, _L = "jax.numpy", "jax.numpy.fft", "jax.numpy.linalg"
_CANCEL = "results are sums that cancel"
_TRANSFORM = (call("f32[8]"), call("c64[3,6]"), call("f32[3,7]", n=5, axis=0), call("c64[8]", n=10, norm="ortho"))
_BOX = (call("f32[4,6]"), call("c64[2,4,6]", axes=(0, 2)), call("c64[4,6]", s=(3, 8), norm="forward"))
_SQUARE = (call("f32[4,4]d"), call("c64[2,3,3]d"), call("f64[3,3]d"))
_GENERAL = (call("f32[4,3]"), call("c64[2,3,4]"))


def _values_last(f: Any, x: Any, **options: Any) -> Any:
    return tuple(f(x, **options))[::-1]


def _values_first(f: Any, x: Any, **options: Any) -> Any:
    u, s, vt = f(x, **options)
    return s, u, vt


TABLE: Table = {
    **rows(
        _P,
        "dot",
        call("f32[3,4]", "f32[4,2]"),
        call("f32[4]", "f32[4]"),
        call("f32[2,3,4]", "f32[4]"),
        call(2.0, "i32[3]"),
    ),
    **rows(
        _P,
        "matmul",
        call("f32[3,4]", "f32[4,2]"),
        call("f32[2,1,3,4]", "f32[5,4,2]"),
        call("i32[4]", "i32[4,3]"),
        call("c64[3]", "c64[3]"),
    ),
    **rows(_P, "vdot", call("f32[4]", "f32[4]"), call("c64[2,2]", "c64[2,2]")),
    **rows(_P, "inner", call("f32[3,4]", "f32[2,4]"), call("f32[4]", "i32[4]")),
    **rows(_P, "outer", call("f32[3]", "f32[4]"), call("f32[2,2]", "i32[3]")),
    **rows(_P, "kron", call("f32[2,3]", "f32[3,2]"), call("f32[2]", "i32[3,2]")),
    **rows(_P, "cross", call("f32[3]", "f32[3]"), call("f32[4,3]", "f32[3]"), call("f32[3,5]", "f32[3,5]", axis=0)),
    **rows(_P, "vecdot", call("f32[3,4]", "f32[4]"), call("c64[3,4]", "c64[3,4]", axis=0)),
    **rows(_P, "matvec", call("f32[5,3,4]", "f32[4]"), call("c64[3,4]", "c64[2,4]")),
    **rows(_P, "vecmat", call("f32[3]", "f32[5,3,4]"), call("c64[2,3]", "c64[3,4]")),
    **rows(
        _P,
        "tensordot",
        call("f32[2,3,4]", "f32[3,4,5]"),
        call("f32[2,3]", "f32[3,2]", axes=((0, 1), (1, 0))),
        call("f32[2]", "f32[3]", axes=0),
    ),
    **rows(
        _P,
        "einsum",
        call("ij,jk->ik", "f32[3,4]", "f32[4,2]"),
        call("...ij,...jk", "f32[2,3,4]", "f32[4,5]"),
        call("ii->i", "f32[3,3]"),
        call("ij,jk,kl->il", "f32[2,3]", "f32[3,4]", "f32[4,2]"),
        call("bij->b", "i32[2,3,4]"),
        call("i,j", "c64[3]", "c64[2]"),
    ),
    **rows(_P, "trace", call("f32[3,4]"), call("i32[2,3,4]", offset=1, axis1=1, axis2=2)),
    **rows(
        _P,
        "convolve correlate",
        *(call("f32[7]", "f32[3]", mode=m) for m in ("full", "same", "valid")),
        call("c64[5]", "c64[3]"),
        call("i32[5]", "i32[2]"),
    ),
    **rows(
        _P,
        "interp",
        call("f32[5]", "f32[6]s", "f32[6]"),
        call("f32[5]", "f32[6]s", "f32[6]", left=-9.0, right=9.0),
        call("f32[5]", "f32[6]s", "f32[6]", period=2.0),
    ),
    **rows(_P, "poly", call("f32[4]"), call("f32[3,3]m").scaled(20, _CANCEL)),
    **rows(_P, "polyadd polysub polymul", call("f32[4]", "f32[2]"), call("i32[3]", "i32[3]")),
    **rows(_P, "polydiv", call("f32[5]", "f32[2]h")),
    **rows(_P, "polyder", call("f32[5]"), call("f32[5]", m=2)),
    **rows(_P, "polyint", call("f32[5]"), call("f32[4]", m=2, k="f32[2]")),
    **rows(_P, "polyval", call("f32[4]", "f32[3,2]"), call("f32[40]u", "f32[3]u"), call("f32[4]", "f32[3]", unroll=2)),
    **rows(
        _P,
        "polyfit",
        call("f32[8]s", "f32[8]", 2).scaled(20, "a least squares solution"),
        call("f32[8]s", "f32[8]", 1, w="f32[8]+").scaled(20, "a least squares solution"),
    ),
    **rows(
        _P,
        "roots",
        call("f32[4]h")
        .through(lambda f, p: _sorted_pairs(f(p, strip_zeros=False)))
        .scaled(50, "roots move by the root of the rounding error"),
    ),
    # -- fft
    **rows(_F, "fft ifft", *(c.judged("fft") for c in _TRANSFORM)),
    **rows(_F, "fft2 ifft2", call("f32[4,6]").judged("fft"), call("c64[2,4,6]", axes=(0, 2)).judged("fft")),
    **rows(_F, "fftn ifftn", *(c.judged("fft") for c in _BOX)),
    **rows(
        _F,
        "rfft ihfft",
        *(c.judged("fft") for c in (call("f32[8]"), call("f32[3,7]", axis=0), call("f32[8]", n=5, norm="ortho"))),
    ),
    **rows(
        _F,
        "irfft hfft",
        *(c.judged("fft") for c in (call("c64[5]"), call("c64[4,3]", axis=0), call("c64[5]", n=7, norm="ortho"))),
    ),
    **rows(_F, "rfft2 rfftn", *(c.judged("fft") for c in (call("f32[4,6]"), call("f32[2,4,6]", axes=(0, 1))))),
    **rows(_F, "irfft2 irfftn", *(c.judged("fft") for c in (call("c64[4,4]"), call("c64[4,4]", s=(4, 5))))),
    **rows(_F, "fftfreq rfftfreq", call(7), call(8, d=0.5)),
    **rows(_F, "fftshift ifftshift", call("f32[7]"), call("f32[3,4]", axes=1)),
    # -- linalg
    **rows(_L, "det slogdet", *_SQUARE),
    **rows(_L, "inv", *_SQUARE),
    **rows(
        _L,
        "cholesky",
        call("f32[4,4]m").judged("cholesky"),
        call("c64[2,3,3]m").judged("cholesky"),
        call("f32[3,3]m", upper=True),
    ),
    **rows(
        _L,
        "qr",
        *(c.judged("qr") for c in _GENERAL),
        call("f32[4,3]", mode="complete").judged("qr"),
        call("f32[4,3]", mode="r").through(lambda f, x, mode: abs(f(x, mode=mode))),
    ),
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
    **rows(_L, "svdvals", *_GENERAL),
    **rows(_L, "eigh", *(call(x).through(_values_last).judged("eigh") for x in ("f32[4,4]m", "c64[2,3,3]m"))),
    **rows(_L, "eigvalsh", call("f32[4,4]m"), call("c64[2,3,3]m")),
    **rows(_L, "eig", *(call(x).judged("eig") for x in ("f32[4,4]", "c64[2,3,3]"))),
    **rows(_L, "eigvals", *(call(x).judged("eig") for x in ("f32[4,4]", "c64[2,3,3]"))),
    **rows(_L, "solve", call("f32[4,4]d", "f32[4]"), call("c64[2,3,3]d", "c64[2,3,2]"), call("f32[3,3]d", "f32[3,2]")),
    **rows(
        _L,
        "lstsq",
        call("f32[6,3]", "f32[6]").scaled(20, "a least squares solution"),
        call("f32[6,3]", "f32[6,2]").scaled(20, "a least squares solution"),
    ),
    **rows(
        _L,
        "pinv",
        call("f32[4,3]").scaled(10, "inverse singular values"),
        call("c64[2,3,4]").scaled(10, "inverse singular values"),
        call("f32[3,3]m", hermitian=True).scaled(10, "inverse singular values"),
    ),
    **rows(_L, "matrix_power", call("f32[3,3]", 3), call("f32[3,3]d", -2), call("f32[3,3]", 0)),
    **rows(_L, "matrix_rank", call("f32[4,3]"), call("c64[2,3,4]")),
    **rows(_L, "cond", call("f32[4,4]d"), call("f32[4,3]"), call("f32[3,3]d", p=1), call("f32[3,3]d", p="fro")),
    **rows(
        _L,
        "norm",
        call("f32[4]"),
        call("c64[3,4]"),
        *(call("f32[3,4]", ord=o) for o in ("fro", "nuc", 1, -1, 2, -2)),
        call("f32[3,4]", ord=3, axis=1, keepdims=True),
        call("f32[5]", ord=float("inf")),
        call("f32[2,3,4]", axis=(0, 2)),
    ),
    **rows(_L, "matrix_norm", call("f32[3,4]"), call("c64[2,3,4]", ord="nuc"), call("f32[3,4]", ord=2, keepdims=True)),
    **rows(
        _L,
        "vector_norm",
        call("f32[3,4]"),
        call("c64[3,4]", axis=1, ord=1),
        call("f32[3,4]", axis=0, ord=0, keepdims=True),
    ),
    **rows(_L, "cross", call("f32[4,3]", "f32[4,3]")),
    **rows(_L, "diagonal trace", call("f32[2,3,4]"), call("i32[3,4]", offset=1)),
    **rows(_L, "matmul", call("f32[3,4]", "f32[4,2]")),
    **rows(_L, "matrix_transpose", call("f32[2,3,4]")),
    **rows(_L, "multi_dot", call(["f32[2,3]", "f32[3,4]", "f32[4,2]"]), call(["f32[3]", "f32[3,4]", "f32[4]"])),
    **rows(_L, "outer", call("f32[3]", "c64[4]")),
    **rows(_L, "tensordot", call("f32[2,3,4]", "f32[3,4,5]"), call("f32[2,3]", "f32[4,2]", axes=((0,), (1,)))),
    **rows(_L, "vecdot", call("f32[3,4]", "f32[3,4]"), call("c64[3,4]", "c64[3,4]")),
    **rows(_L, "tensorinv", call("f32[6,6]d").through(lambda f, x: f(x.reshape(2, 3, 6)))),
    **rows(_L, "tensorsolve", call("f32[6,6]d", "f32[2,3]").through(lambda f, a, b: f(a.reshape(2, 3, 6), b))),
}


def _sorted_pairs(values: Any) -> Any:
    """Complex numbers in order of their real part, then of the size of their imaginary part, without its sign."""
    import jax.numpy as jnp

    return jnp.sort(values.real), jnp.sort(abs(values.imag))
