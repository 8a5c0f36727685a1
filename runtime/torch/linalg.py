"""Linear algebra rows: torch.linalg, and LAPACK's reductions by Householder reflectors where it has none."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import linalg as a

from .reduce import static

Tensor = torch.Tensor


def cholesky(x: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(x)
    return torch.where((info == 0)[..., None, None], factor, torch.nan).tril()


def triangular_solve(
    a: Tensor,
    b: Tensor,
    left_side: bool,
    lower: bool,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Tensor:
    a = a.conj() if conjugate_a else a
    a = a.mT if transpose_a else a
    return torch.linalg.solve_triangular(a, b, upper=lower == transpose_a, left=left_side, unitriangular=unit_diagonal)


def lu(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, _ = torch.linalg.lu_factor_ex(x)
    pivots = pivots - 1
    return packed, pivots, lu_pivots_to_permutation(pivots, x.shape[-2])


def lu_pivots_to_permutation(pivots: Tensor, permutation_size: int) -> Tensor:
    """The swaps one after the other, each for the whole batch."""
    places = torch.arange(permutation_size, device=pivots.device)
    order = places.to(pivots.dtype).expand(*pivots.shape[:-1], permutation_size)
    for k in range(static(pivots.shape[-1], "lu_pivots_to_permutation")):
        other = pivots[..., k : k + 1].to(torch.int64)
        here, there = order[..., k : k + 1], torch.gather(order, -1, other)
        order = torch.where(places == other, here, torch.where(places == k, there, order))
    return order


def tridiagonal_solve(dl: Tensor, d: Tensor, du: Tensor, b: Tensor) -> Tensor:
    """LAPACK's gtsv, step by step: swaps a row with the next where that one's pivot is larger.

    A dense solve would do but for matrices that are singular up to rounding (inverse iteration makes them): there the
    last pivot, and with it the whole solution, is rounding error, which another order of operations makes zero.
    """
    n = d.shape[-1]
    if type(n) is not int:
        matrix = torch.diag_embed(d) + torch.diag_embed(dl[..., 1:], -1) + torch.diag_embed(du[..., :-1], 1)
        return torch.linalg.solve(matrix, b)
    rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # pivot, the two elements right of it, right-hand side
    nothing = torch.zeros_like(d[..., :1])
    main, up, x = d[..., :1], du[..., :1], b[..., 0, :]
    for i in range(n - 1):
        low, below, x_below = dl[..., i + 1 : i + 2], d[..., i + 1 : i + 2], b[..., i + 1, :]
        after = du[..., i + 1 : i + 2] if i + 2 < n else nothing
        swap = _size(low) > _size(main)
        pivot, right, far = (torch.where(swap, *p) for p in ((low, main), (below, up), (after, nothing)))
        factor = torch.where(swap, main, low) / pivot
        top, bottom = torch.where(swap, x_below, x), torch.where(swap, x, x_below)
        rows.append((pivot, right, far, top))
        main = torch.where(swap, up, below) - factor * right
        up, x = torch.where(swap, -factor * far, after), bottom - factor * top
    rows.append((main, nothing, nothing, x))
    solved: list[Tensor] = []
    for i in reversed(range(n)):
        pivot, right, far, x = rows[i]
        x = x - right * solved[-1] if solved else x
        x = x - far * solved[-2] if len(solved) > 1 else x
        solved.append(x / pivot)
    return torch.stack(solved[::-1], -2)


def _size(x: Tensor) -> Tensor:
    """What LAPACK compares pivots by."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def cholesky_update(r: Tensor, w: Tensor) -> Tensor:
    """Givens rotations bring w to zero, element by element."""
    rows: list[Tensor] = []
    for k in range(static(r.shape[-1], "cholesky_update")):
        row = r[..., k, :]
        x, y = row[..., k : k + 1], w[..., k : k + 1]
        size = torch.hypot(x, y)
        safe = torch.where(size == 0, 1, size)
        cosine, sine = torch.where(size == 0, 1, x / safe), y / safe
        rows.append(cosine * row + sine * w)
        w = cosine * w - sine * row
    return torch.stack(rows, -2).triu() if rows else r


# -- orthogonal factors --------------------------------------------------------------------------


def qr(x: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor]:
    q, r = torch.linalg.qr(x, mode="complete" if full_matrices else "reduced")
    return q, r


def geqrf(x: Tensor) -> tuple[Tensor, Tensor]:
    packed, taus = torch.geqrf(x)
    return packed, taus


def ormqr(a: Tensor, taus: Tensor, c: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Reflector by reflector, each for the whole batch (torch.ormqr wants matching shapes and has no slope)."""
    order = range(taus.shape[-1])
    for i in order if left == transpose else reversed(order):
        v = _vector(a[..., :, i], i)
        tau = taus[..., i]
        c = _reflect(c, v, tau.conj() if transpose else tau, left)
    return c


def _vector(column: Tensor, i: int) -> Tensor:
    """The reflector's vector: zeros, then 1 at place i, then what the column holds."""
    places = torch.arange(column.shape[-1], device=column.device)
    return torch.where(places == i, 1, torch.where(places > i, column, 0))


def _reflect(c: Tensor, v: Tensor, tau: Tensor, left: bool) -> Tensor:
    """(I - tau v v^H) c, or c (I - tau v v^H)."""
    tau = tau[..., None, None]
    column, row = v[..., :, None], v.conj()[..., None, :]
    return c - tau * column @ (row @ c) if left else c - (c @ column) @ (tau * row)


def _householder(x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """LAPACK's larfg on elements k, k+1, ... of x: the vector (1 at k), tau and the new element k.

    H^H x is (beta, 0, ...) for H = I - tau v v^H.
    """
    alpha, tail = x[..., k], x[..., k + 1 :]
    rest = (tail.real**2 + tail.imag**2 if x.is_complex() else tail**2).sum(-1)
    imag = alpha.imag**2 if x.is_complex() else torch.zeros_like(rest)
    real = alpha.real if x.is_complex() else alpha
    size = torch.sqrt(real**2 + imag + rest)
    trivial = (rest == 0) & (imag == 0)
    beta = torch.where(trivial, real, -torch.copysign(size, real))
    safe = torch.where(beta == 0, 1, beta)
    tau = torch.where(trivial, 0, (beta - alpha) / safe)
    scale = torch.where(trivial, 1, alpha - beta)
    v = torch.cat([torch.zeros_like(x[..., :k]), torch.ones_like(x[..., k : k + 1]), tail / scale[..., None]], -1)
    return v, tau, beta


def _pack(x: Tensor, v: Tensor, column: int, first: int) -> Tensor:
    """Column ``column`` of x with elements from ``first`` on taken from ``v``."""
    places = torch.arange(x.shape[-2], device=x.device)
    kept = torch.where(places >= first, v, x[..., :, column])
    return torch.cat([x[..., :, :column], kept[..., None], x[..., :, column + 1 :]], -1)


def hessenberg(x: Tensor) -> tuple[Tensor, Tensor]:
    """gehrd: reflectors from both sides, column after column."""
    n = static(x.shape[-1], "hessenberg")
    taus, vectors = [], []
    for i in range(n - 1):
        v, tau, _ = _householder(x[..., :, i], i + 1)
        x = _reflect(_reflect(x, v, tau.conj(), left=True), v, tau, left=False)
        taus.append(tau.to(x.dtype))
        vectors.append(v)
    for i, v in enumerate(vectors):
        x = _pack(x, v, i, i + 2)
    empty = x.new_zeros((*x.shape[:-2], max(n - 1, 0)))
    return x, torch.stack(taus, -1) if taus else empty


def tridiagonal(x: Tensor, lower: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sytrd, hetrd. The upper form is the lower one of the matrix turned round by 180 degrees."""
    if not lower:
        packed, d, e, taus = _tridiagonal(x.flip((-2, -1)))
        return torch.tril(x, -1) + torch.triu(packed.flip((-2, -1))), d.flip(-1), e.flip(-1), taus.flip(-1)
    packed, d, e, taus = _tridiagonal(x)
    return torch.tril(packed) + torch.triu(x, 1), d, e, taus


def _tridiagonal(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n = static(x.shape[-1], "tridiagonal")
    low = torch.tril(x, -1)
    diagonal = torch.diagonal(x, dim1=-2, dim2=-1).real if x.is_complex() else torch.diagonal(x, dim1=-2, dim2=-1)
    work = low + low.mH + torch.diag_embed(diagonal).to(x.dtype)
    taus, vectors, betas = [], [], []
    for i in range(n - 1):
        v, tau, beta = _householder(work[..., :, i], i + 1)
        work = _reflect(_reflect(work, v, tau.conj(), left=True), v, tau, left=False)
        taus.append(tau.to(x.dtype))
        vectors.append(v)
        betas.append(beta)
    found = torch.diagonal(work, dim1=-2, dim2=-1)
    found = found.real if x.is_complex() else found
    packed = work
    for i, v in enumerate(vectors):
        packed = _pack(packed, v, i, i + 2)
    none = x.new_zeros((*x.shape[:-2], 0))
    off = torch.stack(betas, -1) if betas else (none.real if x.is_complex() else none)
    return packed, found, off, torch.stack(taus, -1) if taus else none


# -- eigenvalues and singular values -------------------------------------------------------------


def eigh(x: Tensor, lower: bool = True) -> tuple[Tensor, Tensor]:
    w, v = torch.linalg.eigh(x, UPLO="L" if lower else "U")
    return v, w


def eig(x: Tensor, left: bool, right: bool) -> tuple[Tensor, ...]:
    """Left eigenvectors are those of x^H, put in the order of the right ones by the inverse of these."""
    bad = ~torch.isfinite(x).all(-1).all(-1)[..., None, None]
    w, vr = torch.linalg.eig(torch.where(bad, 0, x))
    results = [torch.where(bad[..., 0], torch.nan, w)]
    if left:
        vl = torch.linalg.pinv(vr).mH
        vl = vl / torch.linalg.vector_norm(vl, dim=-2, keepdim=True)
        results.append(torch.where(bad, torch.nan, vl))
    if right:
        results.append(torch.where(bad, torch.nan, vr))
    return tuple(results)


def svd(x: Tensor, full_matrices: bool, compute_uv: bool) -> tuple[Tensor, ...]:
    if not compute_uv:
        return (torch.linalg.svdvals(x),)
    u, s, vt = torch.linalg.svd(x, full_matrices=full_matrices)
    return s, u, vt


def schur(x: Tensor, vectors: bool = True) -> tuple[Tensor, ...]:
    """Q from the QR factorisation of a basis of nested invariant subspaces: the eigenvectors in order.

    A real matrix has a real basis: a conjugate pair of vectors gives its real and imaginary part, and
    the 2 by 2 block that belongs to it is turned until its diagonal elements are equal. A defective
    matrix has too few eigenvectors, and loses accuracy.
    """
    w, v = torch.linalg.eig(x)
    if x.is_complex():
        q = torch.linalg.qr(v).Q
        t = torch.triu(q.mH @ x @ q)
        return (t, q) if vectors else (t,)
    second = w.imag < 0  # of a conjugate pair: LAPACK gives the one above the real axis first
    basis = torch.where(second.unsqueeze(-2), -v.imag, v.real)
    q = torch.linalg.qr(basis).Q
    t = q.mT @ x @ q
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    for k in range(static(x.shape[-1], "schur") - 1):
        pair = second[..., k + 1]
        p, r = t[..., k, k], t[..., k + 1, k + 1]
        angle = 0.5 * torch.atan2(r - p, t[..., k, k + 1] + t[..., k + 1, k])
        angle = torch.where(pair, angle, 0)
        c, s = torch.cos(angle)[..., None, None], torch.sin(angle)[..., None, None]
        left, right = eye[k][:, None], eye[k + 1][:, None]
        turn = eye + (c - 1) * (left @ left.mT + right @ right.mT) + s * (right @ left.mT - left @ right.mT)
        t, q = turn.mT @ t @ turn, q @ turn
    below = torch.zeros_like(second[..., 1:]) | second[..., 1:]
    keep = torch.triu(torch.ones_like(t)).bool() | torch.diag_embed(below, -1).bool()
    t = torch.where(keep, t, 0)
    return (t, q) if vectors else (t,)


ROWS: Mapping[OpDef, Row] = {
    a.cholesky: cholesky,
    a.triangular_solve: triangular_solve,
    a.lu: lu,
    a.lu_pivots_to_permutation: lu_pivots_to_permutation,
    a.qr: qr,
    a.geqrf: geqrf,
    a.householder_product: torch.linalg.householder_product,
    a.ormqr: ormqr,
    a.eigh: eigh,
    a.eig: eig,
    a.svd: svd,
    a.schur: schur,
    a.hessenberg: hessenberg,
    a.tridiagonal: tridiagonal,
    a.tridiagonal_solve: tridiagonal_solve,
    a.cholesky_update: cholesky_update,
}
