"""Factorisations that are not unique, checked by what they promise: products, orthogonality, order."""

from __future__ import annotations

import numpy as np
import pytest

from unigraph.runtime.numpy import linalg, schur

RANDOM = np.random.default_rng(7)


def _matrix(kind: str, *shape: int) -> np.ndarray:
    x = RANDOM.standard_normal(shape)
    return (x + 1j * RANDOM.standard_normal(shape) if kind[0] == "c" else x).astype(kind)


def _h(x: np.ndarray) -> np.ndarray:
    return x.conj().swapaxes(-1, -2)


def _near(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("kind", ["f8", "c16"])
@pytest.mark.parametrize("lower", [True, False])
def test_eigh(kind: str, lower: bool) -> None:
    x = _matrix(kind, 2, 5, 5)
    x = x + _h(x)
    v, w = linalg.eigh(np.tril(x) if lower else np.triu(x), lower)
    _near((v * w[..., None, :]) @ _h(v), x)
    assert (np.diff(w) >= 0).all()


@pytest.mark.parametrize("kind", ["f8", "c16"])
def test_eig(kind: str) -> None:
    x = _matrix(kind, 2, 5, 5)
    w, vl, vr = linalg.eig(x, left=True, right=True)
    _near(x @ vr, vr * w[..., None, :])
    _near(_h(vl) @ x, w[..., :, None] * _h(vl))
    _near(np.linalg.norm(vl, axis=-2), np.ones((2, 5)))


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 5), (5, 3)])
def test_svd(full: bool, shape: tuple[int, ...]) -> None:
    x = _matrix("c16", *shape)
    s, u, vt = linalg.svd(x, full_matrices=full, compute_uv=True)
    k = s.shape[-1]
    _near((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], x)


@pytest.mark.parametrize("size", [0, 1, 2, 9, 30])
def test_schur_of_complex(size: int) -> None:
    x = _matrix("c16", 2, size, size)
    t, q = schur.schur(x)
    _near(q @ t @ _h(q), x)
    _near(q @ _h(q), np.broadcast_to(np.eye(size), x.shape))
    assert not np.tril(t, -1).any()


REAL = {
    "any": lambda n: np.random.default_rng(n).standard_normal((n, n)),
    "symmetric": lambda n: _symmetric(n),
    "skew": lambda n: np.triu(_symmetric(n), 1) - np.triu(_symmetric(n), 1).T,
    "cycle": lambda n: np.roll(np.eye(n), 1, 0),
    "defective": lambda n: np.eye(n) + np.eye(n, k=1),
    "blocks": lambda n: np.kron(np.eye(n), np.array([[1.0, 2.0], [-3.0, 1.0]])),
    "zero": lambda n: np.zeros((n, n)),
}


def _symmetric(n: int) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal((n, n))
    return x + x.T


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("kind", REAL)
def test_schur_of_real(kind: str, size: int) -> None:
    x = REAL[kind](size)
    t, q = schur.schur(x)
    assert t.dtype == x.dtype and not np.tril(t, -2).any()
    _near(q @ t @ q.T, x)
    _near(q @ q.T, np.eye(len(x)))
    below = np.diag(t, -1)
    assert not (below[1:] * below[:-1]).any()  # blocks of 2 by 2, apart from each other
    for k in np.flatnonzero(below):
        assert t[k, k] == t[k + 1, k + 1] and t[k, k + 1] * t[k + 1, k] < 0
    if kind == "symmetric":
        assert not below.any()


def test_schur_of_what_is_not_finite() -> None:
    assert all(np.isnan(part).all() for part in schur.schur(np.array([[1.0, np.inf], [0.0, 1.0]])))
