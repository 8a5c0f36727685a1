"""Schur form by the shifted QR algorithm, one matrix at a time.

Complex matrices by steps with one shift, real ones by steps with two (Francis 1961), which leave complex pairs of
eigenvalues as blocks of 2 by 2. Golub and Van Loan, Matrix Computations, section 7.5.
"""

from __future__ import annotations

import math

import numpy as np

from .reflectors import hessenberg, householder_product

Array = np.ndarray

# QR steps allowed for each eigenvalue, as in LAPACK.
STEPS = 30


def schur(x: Array, vectors: bool = True) -> tuple[Array, ...]:
    """Upper triangular for complex matrices. For real ones blocks of 2 by 2 stand on the diagonal, one for each
    complex pair of eigenvalues, with equal diagonal elements and the others of opposite sign, as in LAPACK."""
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
    broken = np.full_like(x, np.nan)
    if not np.all(np.isfinite(x)):
        return broken, broken
    h, q = _hessenberg(x)
    real = not np.iscomplexobj(x)
    last, steps = len(x) - 1, 0
    while last > 0:
        first = _deflate(h, last)
        if first == last or (real and first == last - 1):
            if first < last:
                _standardise(h, q, first)
            last, steps = first - 1, 0
            continue
        steps += 1
        if steps > STEPS * 10:
            return broken, broken
        if real:
            _double_step(h, q, first, last, *_double_shift(h, last, steps))
        else:
            _step(h, q, first, last, _shift(h, last, steps))
    return (np.triu(h, -1) if real else np.triu(h)), q


def _deflate(h: Array, last: int) -> int:
    """Where the block that ends at ``last`` begins: below a subdiagonal element as good as zero, made zero."""
    tiny = np.finfo(h.dtype).eps
    for first in range(last, 0, -1):
        near = abs(h[first, first]) + abs(h[first - 1, first - 1])
        if abs(h[first, first - 1]) <= tiny * (near or np.abs(h).max()):
            h[first, first - 1] = 0
            return first
    return 0


def _shift(h: Array, last: int, steps: int) -> complex:
    """Wilkinson's: the eigenvalue of the last 2 by 2 block nearer to its corner; now and then another."""
    if steps % 10 == 0:
        return h[last, last] + abs(h[last, last - 1])
    a, b, c, d = h[last - 1, last - 1], h[last - 1, last], h[last, last - 1], h[last, last]
    middle, root = (a + d) / 2, np.sqrt(((a - d) / 2) ** 2 + b * c)
    return min(middle + root, middle - root, key=lambda s: abs(s - d))


def _double_shift(h: Array, last: int, steps: int) -> tuple[float, float]:
    """Sum and product of two shifts: the eigenvalues of the last 2 by 2 block; now and then others."""
    a, b, c, d = h[last - 1, last - 1], h[last - 1, last], h[last, last - 1], h[last, last]
    if steps % 10 == 0:
        a = d = d + 0.75 * (abs(c) + abs(h[last - 1, last - 2]))
        b, c = -0.4375 * c, c
    return a + d, a * d - b * c


def _double_step(h: Array, q: Array, first: int, last: int, total: float, product: float) -> None:
    """One implicit QR step with two shifts: a bulge chased down by reflections."""
    a, b, c, d = h[first, first], h[first, first + 1], h[first + 1, first], h[first + 1, first + 1]
    column = np.array([a * (a - total) + b * c + product, c * (a + d - total), c * h[first + 2, first + 1]])
    for k in range(first, last):
        size = min(3, last - k + 1)
        if k > first:
            column = h[k : k + size, k - 1]
        scale = np.abs(column[:size]).max()
        if not scale:
            continue
        v = column[:size] / scale
        v[0] += math.copysign(float(np.linalg.norm(v)), v[0])
        share = 2 / (v @ v)
        rows, start, stop = slice(k, k + size), max(k - 1, first), min(k + 3, last) + 1
        h[rows, start:] -= np.outer(share * v, v @ h[rows, start:])
        h[:stop, rows] -= np.outer(h[:stop, rows] @ v, share * v)
        q[:, rows] -= np.outer(q[:, rows] @ v, share * v)
        if k > first:
            h[k + 1 : k + size, k - 1] = 0


def _standardise(h: Array, q: Array, k: int) -> None:
    """Rotate the block at ``k``: triangular if its eigenvalues are real, else with equal diagonal elements."""
    a, b, c, d = (float(v) for v in h[k : k + 2, k : k + 2].ravel())
    half = (a - d) / 2
    square = half * half + b * c
    if square >= 0:  # the first axis becomes an eigenvector
        x, y = half + math.copysign(math.sqrt(square), half), c
    else:
        sign = math.copysign(1.0, b + c)
        angle = math.atan2(-2 * half * sign, abs(b + c)) / 2
        x, y = math.cos(angle), math.sin(angle)
    length = math.hypot(x, y)
    turn = np.array([[x, y], [-y, x]], h.dtype) / h.dtype.type(length)
    h[k : k + 2, k:] = turn @ h[k : k + 2, k:]
    h[: k + 2, k : k + 2] = h[: k + 2, k : k + 2] @ turn.T
    q[:, k : k + 2] = q[:, k : k + 2] @ turn.T
    if square >= 0:
        h[k + 1, k] = 0
    else:
        h[k, k] = h[k + 1, k + 1] = (h[k, k] + h[k + 1, k + 1]) / 2


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
