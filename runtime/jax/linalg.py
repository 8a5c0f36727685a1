"""Linear algebra rows: ``jax.lax.linalg``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax.lax import linalg

from unigraph.opdef import OpDef
from unigraph.ops import linalg as a


def _geqrf(x: Any) -> tuple[Any, Any]:
    # NumPy's raw mode is LAPACK's geqrf in Fortran order.
    packed, taus = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(packed, -1, -2), taus


def _eigh(x: Any, lower: bool = True) -> tuple[Any, Any]:
    v, w = linalg.eigh(x, lower=lower, symmetrize_input=False)
    return v, w


def _svd(x: Any, full_matrices: bool, compute_uv: bool) -> tuple[Any, ...]:
    if not compute_uv:
        return (linalg.svd(x, full_matrices=full_matrices, compute_uv=False),)
    u, s, vt = linalg.svd(x, full_matrices=full_matrices, compute_uv=True)
    return s, u, vt


def _eig(x: Any, left: bool, right: bool) -> tuple[Any, ...]:
    return tuple(linalg.eig(x, compute_left_eigenvectors=left, compute_right_eigenvectors=right))


def _schur(x: Any, vectors: bool = True) -> tuple[Any, ...]:
    t, q = linalg.schur(x, compute_schur_vectors=vectors)
    return (t, q) if vectors else (t,)


def _tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any) -> Any:
    return linalg.tridiagonal_solve(dl, d, du, b)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    a.cholesky: lambda x: linalg.cholesky(x, symmetrize_input=False),
    a.triangular_solve: linalg.triangular_solve,
    a.lu: lambda x: tuple(linalg.lu(x)),
    a.lu_pivots_to_permutation: linalg.lu_pivots_to_permutation,
    a.qr: lambda x, full_matrices: tuple(linalg.qr(x, full_matrices=full_matrices)),
    a.geqrf: _geqrf,
    a.householder_product: linalg.householder_product,
    a.ormqr: linalg.ormqr,
    a.eigh: _eigh,
    a.eig: _eig,
    a.svd: _svd,
    a.schur: _schur,
    a.hessenberg: lambda x: tuple(linalg.hessenberg(x)),
    a.tridiagonal: lambda x, lower: tuple(linalg.tridiagonal(x, lower=lower)),
    a.tridiagonal_solve: _tridiagonal_solve,
    a.cholesky_update: linalg.cholesky_update,
}
