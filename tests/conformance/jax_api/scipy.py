"""``jax.scipy``: special functions, linear algebra, signals, images, interpolation, solvers."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Table, call, rows
from .numpy_algebra import _values_first, _values_last

_S, _L, _G = "jax.scipy.special", "jax.scipy.linalg", "jax.scipy.signal"
_ONE = (call("f32[3,4]"), call("f64[5]"))
_POSITIVE = (call("f32[3,4]+"), call("f64[5]+"))
_PROBABLE = (call("f32[3,4]u"), call("f64[5]u"))
_TWO = (call("f32[3,4]+", "f32[4]+"), call("f64[5]+", "f64[5]+"))
_SERIES = "a series of many terms"

TABLE: Table = {
    **rows(
        _S,
        "dawsn erf erfc erfcx expit expn fresnel gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr loggamma ndtr sici",
        *_ONE,
    ),
    **rows(_S, "expn", call(2, "f32[4]+"), call("i32[4]+", "f32[4]+")),
    **rows(_S, "digamma exp1 expi entr spence factorial", *_POSITIVE),
    **rows(_S, "erfinv logit ndtri", *_PROBABLE),
    **rows(_S, "wofz", call("c64[5]"), call("f32[4]")),
    **rows(_S, "bernoulli", call(8)),
    **rows(_S, "bessel_jn", call("f32[4]+", v=3, n_iter=30).scaled(10, _SERIES)),
    **rows(_S, "beta betaln comb kl_div rel_entr xlogy xlog1py poch", *_TWO),
    **rows(_S, "boxcox boxcox1p", *_TWO),
    **rows(_S, "owens_t", call("f32[3,4]", "f32[4]")),
    **rows(_S, "zeta", call("f32[3,4]h", "f32[4]+")),
    **rows(_S, "polygamma", call(2, "f32[4]+"), call("i32[4]+", "f32[4]+")),
    **rows(_S, "gammainc gammaincc", *(c.scaled(10, _SERIES) for c in _TWO)),
    **rows(_S, "betainc", call("f32[4]+", "f32[4]+", "f32[4]u").scaled(10, _SERIES)),
    **rows(_S, "hyp1f1", call("f32[4]+", "f32[4]+", "f32[4]").scaled(10, _SERIES)),
    **rows(_S, "hyp2f1", call("f32[4]u", "f32[4]u", "f32[4]h", "f32[4]u").scaled(10, _SERIES)),
    **rows(_S, "multigammaln", call("f32[4]+", 2).through(lambda f, x, d: f(x + d, d))),
    **rows(_S, "softmax log_softmax", call("f32[3,4]"), call("f32[3,4]", axis=0)),
    **rows(
        _S,
        "logsumexp",
        call("f32[3,4]"),
        call("f32[3,4]", axis=0, keepdims=True),
        call("f32[3,4]", b="f32[3,4]", return_sign=True),
    ),
    **rows(_S, "sph_harm_y", call("i32[4]<3", "i32[4]<2", "f32[4]u", "f32[4]u", n_max=4)),
    # -- linear algebra
    **rows(_L, "block_diag", call("f32[2,3]", "f32[1,2]", "i32[2,2]")),
    **rows(
        _L,
        "cho_factor",
        call("f32[4,4]m", lower=True).through(
            lambda f, x, lower: np.tril(np.ones((4, 4), np.float32)) * f(x, lower)[0]
        ),
    ),
    **rows(_L, "cho_solve", call("f32[4,4]l", "f32[4,2]").through(lambda f, c, b: f((c, True), b))),
    **rows(
        _L,
        "cholesky",
        call("f32[4,4]m"),
        call("f32[4,4]m", lower=True).judged("cholesky"),
        call("c64[2,3,3]m", lower=True).judged("cholesky"),
    ),
    **rows(_L, "circulant", call("f32[4]")),
    **rows(_L, "companion fiedler_companion", call("f32[4]h")),
    **rows(_L, "convolution_matrix", call("f32[3]", 5), call("f32[3]", 5, mode="same")),
    **rows(_L, "det inv", call("f32[4,4]d"), call("c64[3,3]d")),
    **rows(_L, "dft", call(5), call(4, scale="sqrtn")),
    **rows(_L, "hadamard", call(8)),
    **rows(_L, "helmert hilbert invhilbert pascal invpascal", call(5)),
    **rows(_L, "fiedler", call("f32[4]")),
    **rows(_L, "hankel toeplitz", call("f32[4]"), call("f32[4]", "f32[3]")),
    **rows(_L, "leslie", call("f32[4]", "f32[3]")),
    **rows(
        _L,
        "eigh",
        *(call(x).through(_values_last).judged("eigh") for x in ("f32[4,4]m", "c64[3,3]m")),
        call("f32[4,4]m", eigvals_only=True),
    ),
    **rows(_L, "eigh_tridiagonal", call("f32[6]", "f32[5]"), call("f32[6]", "f32[5]", select="i", select_range=(1, 3))),
    **rows(
        _L,
        "expm",
        call("f32[3,3]"),
        call("f32[2,3,3]d").through(lambda f, x: f(x / 20)),
        call("f32[3,3]", upper_triangular=True),
    ),
    **rows(_L, "expm_frechet", call("f32[3,3]u", "f32[3,3]")),
    **rows(
        _L,
        "funm",
        call("f32[4,4]d")
        .through(lambda f, x: f(x, lambda t: t * t, disp=False)[0])
        .scaled(50, "a Schur form, a recurrence over its upper triangle"),
    ),
    **rows(_L, "hessenberg", call("f32[4,4]"), call("f32[4,4]", calc_q=True)),
    **rows(_L, "lu", call("f32[4,4]"), call("f32[3,5]", permute_l=True), call("c64[4,3]")),
    **rows(_L, "lu_factor", call("f32[4,4]"), call("c64[3,3]")),
    **rows(
        _L,
        "lu_solve",
        call("f32[4,4]d", "i32[4]<1", "f32[4]").through(
            lambda f, lu, p, b: f((lu, p + np.arange(4, dtype=np.int32)), b)
        ),
    ),
    **rows(_L, "polar", call("f32[4,3]"), call("f32[3,3]d", method="svd"), call("f32[3,4]", side="left", method="svd")),
    **rows(
        _L,
        "qr",
        call("f32[4,3]", mode="economic").judged("qr"),
        call("f32[4,3]").judged("qr"),
        call("f32[4,3]", mode="r").through(lambda f, x, mode: abs(f(x, mode=mode)[0])),
    ),
    **rows(_L, "qr_multiply", call("f32[4,3]", "f32[2,4]").through(lambda f, a, c: (lambda p, r: p @ r)(*f(a, c)))),
    **rows(
        _L,
        "rsf2csf",
        call("f32[4,4]u", "f32[4,4]").through(lambda f, t, z: f(np.triu(np.ones((4, 4), np.float32)) * t, z)),
    ),
    **rows(_L, "schur", call("f32[4,4]").through(lambda f, x: (lambda t, z: (z @ t @ z.T, z.T @ z))(*f(x)))),
    **rows(
        _L,
        "solve",
        call("f32[4,4]d", "f32[4]"),
        call("f32[4,4]m", "f32[4,2]", assume_a="pos"),
        call("f32[4,4]l", "f32[4]", lower=True),
    ),
    **rows(_L, "solve_sylvester", call("f32[3,3]d", "f32[2,2]d", "f32[3,2]")),
    **rows(
        _L,
        "solve_triangular",
        call("f32[4,4]l", "f32[4]", lower=True),
        call("f32[4,4]l", "f32[4,2]", trans=1, lower=True),
        call("c64[3,3]l", "c64[3]", lower=True, unit_diagonal=True),
    ),
    **rows(_L, "sqrtm", call("f32[4,4]m").scaled(50, "a Schur form, a recurrence over its upper triangle")),
    **rows(
        _L,
        "svd",
        *(
            call(x, full_matrices=m).through(_values_first).judged("svd")
            for x in ("f32[4,3]", "c64[3,4]")
            for m in (False, True)
        ),
        call("f32[4,3]", compute_uv=False),
    ),
    # -- signals, images, transforms, interpolation, clusters, rotations
    **rows(
        _G,
        "convolve correlate fftconvolve",
        *(call("f32[8]", "f32[3]", mode=m) for m in ("full", "same", "valid")),
        call("f32[4,5]", "f32[2,3]"),
    ),
    **rows(_G, "convolve2d correlate2d", *(call("f32[5,6]", "f32[3,2]", mode=m) for m in ("full", "same", "valid"))),
    **rows(_G, "detrend", call("f32[9]"), call("f32[2,9]", type="constant"), call("f32[9]", bp=(4,))),
    **rows(_G, "stft", call("f32[64]", nperseg=16), call("f32[2,64]", nperseg=16, noverlap=4, window="hann")),
    **rows(_G, "istft", call("c64[9,9]", nperseg=16)),
    **rows(_G, "csd", call("f32[64]", "f32[64]", nperseg=16)),
    **rows(_G, "welch", call("f32[64]", nperseg=16), call("f32[2,64]", nperseg=32, scaling="spectrum")),
    **rows(
        "jax.scipy.ndimage",
        "map_coordinates",
        *(
            call("f32[5,6]", ["f32[7]+", "f32[7]+"], o, m)
            for o in (0, 1)
            for m in ("constant", "nearest", "wrap", "mirror", "reflect")
        ),
    ),
    **rows("jax.scipy.fft", "dct idct", call("f32[8]"), call("f32[3,8]", axis=0, norm="ortho"), call("f32[8]", n=6)),
    **rows("jax.scipy.fft", "dctn idctn", call("f32[4,6]"), call("f32[2,4,6]", axes=(1, 2), norm="ortho")),
    **rows(
        "jax.scipy.interpolate",
        "RegularGridInterpolator",
        *(
            call("f32[5]s", "f32[4]s", "f32[5,4]", "f32[7,2]", method=m, bounds_error=False, fill_value=v).through(
                lambda f, x, y, v, at, **o: f((x, y), v, **o)(at)
            )
            for m, v in (("linear", None), ("nearest", -1.0))
        ),
    ),
    **rows("jax.scipy.integrate", "trapezoid", call("f32[7]"), call("f32[3,7]", "f32[7]s")),
    **rows("jax.scipy.cluster.vq", "vq", call("f32[8,2]", "f32[3,2]")),
    **rows(
        "jax.scipy.spatial.transform",
        "Rotation",
        call("f32[5,3]", "f32[5,3]").through(lambda f, r, v: f.from_rotvec(r).apply(v)),
    ),
    **rows("jax.scipy.spatial.transform", "Slerp", call("f32[4,3]").through(lambda f, r: _slerp(f, r))),
    # -- solvers
    **rows(
        "jax.scipy.optimize",
        "minimize",
        call("f32[3]").through(lambda f, x: f(lambda v: ((v - 1) ** 2).sum(), x, method="BFGS").x),
    ),
    **rows(
        "jax.scipy.sparse.linalg",
        "cg",
        call("f32[5,5]m", "f32[5]")
        .through(lambda f, a, b: f(lambda v: a @ v, b)[0])
        .scaled(20, "an iteration until 1e-5"),
    ),
    **rows(
        "jax.scipy.sparse.linalg",
        "bicgstab gmres",
        call("f32[5,5]d", "f32[5]")
        .through(lambda f, a, b: f(lambda v: a @ v, b)[0])
        .scaled(20, "an iteration until 1e-5"),
    ),
}


def _slerp(f: Any, vectors: Any) -> Any:
    import jax.numpy as jnp
    from jax.scipy.spatial.transform import Rotation

    return f.init(jnp.arange(4.0), Rotation.from_rotvec(vectors))(jnp.array([0.5, 1.25, 2.0])).as_quat()
