"""Householder reflectors H = I - tau v v^H in LAPACK's conventions, over any leading axes."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def _reflector(x: Array) -> tuple[Array, Array, Array]:
    """v (first element 1), tau and beta with H^H x = (beta, 0, ...), beta real, as LAPACK's larfg."""
    alpha = x[..., 0]
    tail = np.linalg.norm(x[..., 1:], axis=-1)
    nothing = (tail == 0) & (alpha.imag == 0)
    length = np.hypot(np.abs(alpha), tail)
    beta = np.where(nothing, alpha.real, -np.where(np.signbit(alpha.real), -length, length))
    safe = np.where(nothing, 1, beta)
    tau = np.where(nothing, 0, (safe - alpha) / safe).astype(x.dtype)
    v = x / np.where(nothing, 1, alpha - beta)[..., None]
    v[nothing] = 0
    v[..., 0] = 1
    return v, tau, beta.astype(x.real.dtype)


def _from_left(v: Array, tau: Array, c: Array) -> Array:
    """(I - tau v v^H) c."""
    return c - tau[..., None, None] * v[..., :, None] * (v[..., None, :].conj() @ c)


def _from_right(v: Array, tau: Array, c: Array) -> Array:
    """c (I - tau v v^H)."""
    return c - (c @ v[..., :, None]) * (tau[..., None, None] * v[..., None, :].conj())


def _vector(a: Array, i: int) -> Array:
    """The vector of reflector i, from below the diagonal of column i."""
    v = np.zeros_like(a[..., :, i])
    v[..., i] = 1
    v[..., i + 1 :] = a[..., i + 1 :, i]
    return v


def geqrf(x: Array) -> tuple[Array, Array]:
    """LAPACK's own, by way of NumPy, which hands the packed matrix out transposed."""
    packed, taus = np.linalg.qr(x, mode="raw")
    return np.ascontiguousarray(packed.swapaxes(-1, -2)), taus


def householder_product(a: Array, taus: Array) -> Array:
    """The reflectors applied to the columns of the identity, last one first."""
    m, n = a.shape[-2:]
    q = np.broadcast_to(np.eye(m, n, dtype=a.dtype), a.shape).copy()
    for i in reversed(range(taus.shape[-1])):
        q = _from_left(_vector(a, i), taus[..., i], q)
    return q


def ormqr(a: Array, taus: Array, c: Array, left: bool = True, transpose: bool = False) -> Array:
    """The reflectors one after the other; Q c and c Q^H take the last one first."""
    order = range(taus.shape[-1])
    for i in reversed(order) if left != transpose else order:
        tau = taus[..., i].conj() if transpose else taus[..., i]
        c = (_from_left if left else _from_right)(_vector(a, i), tau, c)
    return c.copy()


def hessenberg(x: Array) -> tuple[Array, Array]:
    """LAPACK's gehd2: reflector i clears column i below the subdiagonal, from both sides."""
    a = x.copy()
    n = a.shape[-1]
    taus = np.zeros((*a.shape[:-2], max(n - 1, 0)), a.dtype)
    for i in range(n - 1):
        v, tau, beta = _reflector(a[..., i + 1 :, i])
        a[..., :, i + 1 :] = _from_right(v, tau, a[..., :, i + 1 :])
        a[..., i + 1 :, i + 1 :] = _from_left(v, tau.conj(), a[..., i + 1 :, i + 1 :])
        a[..., i + 1, i] = beta
        a[..., i + 2 :, i] = v[..., 1:]
        taus[..., i] = tau
    return a, taus


def tridiagonal(x: Array, lower: bool) -> tuple[Array, Array, Array, Array]:
    """LAPACK's hetd2. The upper form is the lower one of the matrix with both axes reversed."""
    if not lower:
        packed, d, e, taus = tridiagonal(x[..., ::-1, ::-1], True)
        flipped = (packed[..., ::-1, ::-1], d[..., ::-1], e[..., ::-1], taus[..., ::-1])
        return tuple(np.ascontiguousarray(f) for f in flipped)  # type: ignore[return-value]
    n = x.shape[-1]
    below = np.tril(x, -1)
    diagonal = np.einsum("...ii->...i", x).real
    # Only the lower triangle counts; a Hermitian diagonal is real.
    a = below + below.conj().swapaxes(-1, -2) + diagonal[..., None] * np.eye(n, dtype=x.dtype)
    packed = x.copy()
    e = np.zeros((*x.shape[:-2], n - 1), x.real.dtype)
    taus = np.zeros((*x.shape[:-2], n - 1), x.dtype)
    for i in range(n - 1):
        v, tau, beta = _reflector(a[..., i + 1 :, i])
        a[..., i + 1 :, i + 1 :] = _from_left(v, tau.conj(), _from_right(v, tau, a[..., i + 1 :, i + 1 :]))
        e[..., i], taus[..., i] = beta, tau
        packed[..., i + 1, i] = beta
        packed[..., i + 2 :, i] = v[..., 1:]
    d = np.einsum("...ii->...i", a).real.copy()
    each = np.arange(n)
    packed[..., each, each] = d
    return packed, d, e, taus
