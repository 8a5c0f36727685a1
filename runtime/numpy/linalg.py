"""Linear algebra on NumPy: numpy.linalg where it has the routine, the textbook algorithm where not.

Everything works on any number of leading axes. Matrices too strange to factor give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import linalg as a

from .reflectors import geqrf, hessenberg, householder_product, ormqr, tridiagonal
from .schur import schur

Array = np.ndarray

# Triangular systems up to this size are solved row by row, larger ones by halves.
SMALL = 16


def _h(x: Array) -> Array:
    """Conjugate transpose."""
    return x.conj().swapaxes(-1, -2)


def _quiet(f: Row) -> Row:
    def row(*args: Array, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **attrs)

    return row


def _or_nan(f: Callable[..., tuple[Array, ...]], x: Array, types: tuple[tuple[Any, tuple[int, ...]], ...]) -> Any:
    """f(x), or matrix by matrix with NaN for those on which f fails; ``types`` of one matrix's results."""
    try:
        return f(x)
    except np.linalg.LinAlgError:
        batch = x.shape[:-2]
        results = tuple(np.full((*batch, *shape), np.nan, kind) for kind, shape in types)
        for i in np.ndindex(batch):
            try:
                for result, part in zip(results, f(x[i])):
                    result[i] = part
            except np.linalg.LinAlgError:
                pass
        return results


# -- triangular factors and solves ---------------------------------------------------------------


def cholesky(x: Array) -> Array:
    """numpy.linalg, which reads the lower triangle only."""
    shape = x.shape[-2:]
    return np.tril(_or_nan(lambda m: (np.linalg.cholesky(m),), x, ((x.dtype, shape),))[0])


def triangular_solve(
    a: Array,
    b: Array,
    left_side: bool,
    lower: bool,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Brought to the form L x = b by transposing and by reversing both axes."""
    if conjugate_a:
        a = a.conj()
    # x op(a) = b is op(a)^T x^T = b^T.
    if transpose_a == left_side:
        a, lower = a.swapaxes(-1, -2), not lower
    if not left_side:
        b = b.swapaxes(-1, -2)
    if not lower:
        a, b = a[..., ::-1, ::-1], b[..., ::-1, :]
    x = _forward(a, b, unit_diagonal)
    if not lower:
        x = x[..., ::-1, :]
    return np.ascontiguousarray(x if left_side else x.swapaxes(-1, -2))


def _forward(low: Array, b: Array, unit: bool) -> Array:
    n = low.shape[-1]
    if n > SMALL:
        half = n // 2
        first = _forward(low[..., :half, :half], b[..., :half, :], unit)
        rest = b[..., half:, :] - low[..., half:, :half] @ first
        return np.concatenate([first, _forward(low[..., half:, half:], rest, unit)], axis=-2)
    x = b.copy()
    for i in range(n):
        if i:
            x[..., i, :] -= (low[..., i : i + 1, :i] @ x[..., :i, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= low[..., i, i, None]
    return x


def lu(x: Array) -> tuple[Array, Array, Array]:
    """Column by column, all matrices at once; the pivot is largest by |re| + |im|, as in LAPACK."""
    m, n = x.shape[-2:]
    batch = x.shape[:-2]
    count, steps = math.prod(batch), min(m, n)
    packed = x.reshape(count, m, n).copy()
    pivots = np.zeros((count, steps), np.int32)
    permutation = np.broadcast_to(np.arange(m, dtype=np.int32), (count, m)).copy()
    each = np.arange(count)
    for k in range(steps):
        column = packed[:, k:, k]
        chosen = k + np.argmax(np.abs(column.real) + np.abs(column.imag), axis=1)
        pivots[:, k] = chosen
        for rows in (packed, permutation):
            rows[each, k], rows[each, chosen] = rows[each, chosen].copy(), rows[each, k].copy()
        pivot = packed[:, k, k]
        packed[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)[:, None]
        packed[:, k + 1 :, k + 1 :] -= packed[:, k + 1 :, k, None] * packed[:, k, None, k + 1 :]
    return packed.reshape(x.shape), pivots.reshape(*batch, steps), permutation.reshape(*batch, m)


def lu_pivots_to_permutation(pivots: Array, permutation_size: int) -> Array:
    """The swaps, done in turn."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.broadcast_to(np.arange(permutation_size, dtype=pivots.dtype), (len(flat), permutation_size)).copy()
    each = np.arange(len(flat))
    for k in range(flat.shape[1]):
        order[each, k], order[each, flat[:, k]] = order[each, flat[:, k]].copy(), order[each, k].copy()
    return order.reshape(*pivots.shape[:-1], permutation_size)


def cholesky_update(r: Array, w: Array) -> Array:
    """One Givens rotation for each row folds w into R."""
    r, w = np.triu(r), w.copy()
    for k in range(r.shape[-1]):
        x, y = r[..., k, k], w[..., k]
        length = np.hypot(x, y)
        c = np.where(y == 0, 1, x / length)[..., None].astype(r.dtype)
        s = np.where(y == 0, 0, y / length)[..., None].astype(r.dtype)
        row = r[..., k, :].copy()
        r[..., k, :] = c * row + s * w
        w = c * w - s * row
    return np.triu(r)


def tridiagonal_solve(dl: Array, d: Array, du: Array, b: Array) -> Array:
    """LAPACK's gtsv: each step swaps its row with the next where that one's pivot is larger."""
    n = d.shape[-1]
    low, main, up, x = dl[..., 1:].copy(), d.copy(), du[..., :-1].copy(), b.copy()
    fill = np.zeros_like(up)
    for i in range(n - 1):
        swap = np.abs(low[..., i].real) + np.abs(low[..., i].imag) > np.abs(main[..., i].real) + np.abs(
            main[..., i].imag
        )
        after = up[..., i + 1] if i + 1 < n - 1 else np.zeros_like(main[..., i])
        pivot, right = np.where(swap, low[..., i], main[..., i]), np.where(swap, main[..., i + 1], up[..., i])
        far = np.where(swap, after, 0)
        below, below_right = np.where(swap, main[..., i], low[..., i]), np.where(swap, up[..., i], main[..., i + 1])
        factor = below / pivot
        top = np.where(swap[..., None], x[..., i + 1, :], x[..., i, :])
        bottom = np.where(swap[..., None], x[..., i, :], x[..., i + 1, :])
        main[..., i], up[..., i], fill[..., i] = pivot, right, far
        main[..., i + 1] = below_right - factor * right
        if i + 1 < n - 1:
            up[..., i + 1] = np.where(swap, -factor * far, after)
        x[..., i, :], x[..., i + 1, :] = top, bottom - factor[..., None] * top
    for i in reversed(range(n)):
        if i + 1 < n:
            x[..., i, :] -= up[..., i, None] * x[..., i + 1, :]
        if i + 2 < n:
            x[..., i, :] -= fill[..., i, None] * x[..., i + 2, :]
        x[..., i, :] /= main[..., i, None]
    return x


# -- factorisations of numpy.linalg --------------------------------------------------------------


def qr(x: Array, full_matrices: bool) -> tuple[Array, Array]:
    """LAPACK's own signs."""
    q, r = np.linalg.qr(x, mode="complete" if full_matrices else "reduced")
    return q, r


def eigh(x: Array, lower: bool = True) -> tuple[Array, Array]:
    """numpy.linalg with the results the other way round."""
    n = x.shape[-1]

    def run(m: Array) -> tuple[Array, Array]:
        w, v = np.linalg.eigh(m, UPLO="L" if lower else "U")
        return v, w

    return _or_nan(run, x, ((x.dtype, (n, n)), (x.real.dtype, (n,))))


def eig(x: Array, left: bool, right: bool) -> tuple[Array, ...]:
    """Right vectors by numpy.linalg; left ones are the columns of their inverse, conjugate transposed."""
    kind = np.result_type(x.dtype, np.complex64)
    n = x.shape[-1]

    def run(m: Array) -> tuple[Array, ...]:
        w, v = np.linalg.eig(m)
        both = (_left_vectors(m, w, v),) if left else ()
        return tuple(r.astype(kind) for r in (w, *both, *((v,) if right else ())))

    return _or_nan(run, x, ((kind, (n,)), *[(kind, (n, n))] * (left + right)))


def _left_vectors(x: Array, w: Array, v: Array) -> Array:
    """Where right vectors are nearly dependent: the left null vector of x - w, by its SVD."""
    if x.shape[-1] == 0:
        return v
    if np.all(np.linalg.cond(v) < 1e3 / np.sqrt(np.finfo(v.dtype).eps)):
        found = _h(np.linalg.inv(v))
        return found / np.linalg.norm(found, axis=-2, keepdims=True)
    shifted = x[..., None, :, :] - w[..., :, None, None] * np.eye(x.shape[-1], dtype=w.dtype)
    return np.linalg.svd(shifted)[0][..., :, -1].swapaxes(-1, -2)


def svd(x: Array, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    """numpy.linalg with the singular values first."""
    m, n = x.shape[-2:]
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)

    def run(matrix: Array) -> tuple[Array, ...]:
        if not compute_uv:
            return (np.linalg.svd(matrix, compute_uv=False),)
        u, s, vt = np.linalg.svd(matrix, full_matrices=full_matrices)
        return s, u, vt

    types = ((x.real.dtype, (k,)), (x.dtype, (m, rows)), (x.dtype, (columns, n)))
    return _or_nan(run, x, types if compute_uv else types[:1])


ROWS: Mapping[OpDef, Row] = {
    a.cholesky: _quiet(cholesky),
    a.triangular_solve: _quiet(triangular_solve),
    a.lu: _quiet(lu),
    a.lu_pivots_to_permutation: lu_pivots_to_permutation,
    a.cholesky_update: _quiet(cholesky_update),
    a.tridiagonal_solve: _quiet(tridiagonal_solve),
    a.qr: qr,
    a.geqrf: geqrf,
    a.householder_product: householder_product,
    a.ormqr: ormqr,
    a.hessenberg: _quiet(hessenberg),
    a.tridiagonal: _quiet(tridiagonal),
    a.eigh: eigh,
    a.eig: _quiet(eig),
    a.svd: svd,
    a.schur: _quiet(schur),
}
