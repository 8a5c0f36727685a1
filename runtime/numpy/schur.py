"""Schur form by the shifted QR algorithm, one matrix at a time."""

from __future__ import annotations

import numpy as np

from unigraph.errors import Unsupported

from .reflectors import hessenberg, householder_product

Array = np.ndarray

# QR steps allowed for each eigenvalue, as in LAPACK.
STEPS = 30


def schur(x: Array, vectors: bool = True) -> tuple[Array, ...]:
    """Complex matrices, and real ones whose eigenvalues all are real (these stay real)."""
    t = np.empty_like(x)
    q = np.empty_like(x)
    for i in np.ndindex(x.shape[:-2]):
        t[i], q[i] = _schur(x[i])
    return (t, q) if vectors else (t,)


def _hessenberg(x: Array) -> tuple[Array, Array]:
    """H and Q with x = Q H Q^H, and zeros below the subdiagonal of H."""
    n = len(x)
    packed, taus = hessenberg(x)
    q = np.eye(n, dtype=x.dtype)
    if n > 1:
        q[1:, 1:] = householder_product(packed[1:, :-1], taus)
    return np.triu(packed, -1), q


def _schur(x: Array) -> tuple[Array, Array]:
    if not np.all(np.isfinite(x)):
        return np.full_like(x, np.nan), np.full_like(x, np.nan)
    h, q = _hessenberg(x)
    real = not np.iscomplexobj(x)
    tiny = np.finfo(x.dtype).eps
    last, steps = len(x) - 1, 0
    while last > 0:
        first = last
        while first > 0:
            near = abs(h[first, first]) + abs(h[first - 1, first - 1])
            if abs(h[first, first - 1]) <= tiny * (near or np.abs(h).max()):
                h[first, first - 1] = 0
                break
            first -= 1
        if first == last:
            last, steps = last - 1, 0
            continue
        steps += 1
        if steps > STEPS * 10:
            return np.full_like(x, np.nan), np.full_like(x, np.nan)
        _step(h, q, first, last, _shift(h, last, steps, real))
    return np.triu(h), q


def _shift(h: Array, last: int, steps: int, real: bool) -> complex:
    """Wilkinson's: the eigenvalue of the last 2 by 2 block nearer to its corner; now and then another."""
    if steps % 10 == 0:
        return h[last, last] + abs(h[last, last - 1])
    a, b, c, d = h[last - 1, last - 1], h[last - 1, last], h[last, last - 1], h[last, last]
    middle, square = (a + d) / 2, ((a - d) / 2) ** 2 + b * c
    if real and square < 0:
        raise Unsupported(
            "the NumPy rows give the Schur form of a real matrix only where its eigenvalues are real",
            "convert the matrix to complex, or use engine='jax'",
        )
    root = np.sqrt(square)
    return min(middle + root, middle - root, key=lambda s: abs(s - d))


def _step(h: Array, q: Array, first: int, last: int, shift: complex) -> None:
    """One implicit QR step: a bulge chased down by rotations."""
    x, y = h[first, first] - shift, h[first + 1, first]
    for k in range(first, last):
        length = np.hypot(abs(x), abs(y))
        c, s = (x / length, y / length) if length else (1.0, 0.0)
        turn = np.array([[np.conj(c), np.conj(s)], [-s, c]], h.dtype)
        start = max(k - 1, first)
        h[k : k + 2, start:] = turn @ h[k : k + 2, start:]
        stop = min(k + 2, last) + 1
        h[:stop, k : k + 2] = h[:stop, k : k + 2] @ turn.conj().T
        q[:, k : k + 2] = q[:, k : k + 2] @ turn.conj().T
        if k + 2 <= last:
            x, y = h[k + 1, k], h[k + 2, k]
