"""Factorisations that are not unique, checked by what they promise: products, orthogonality, order."""

from __future__ import annotations

import numpy as np
import pytest

from unigraph.errors import Unsupported
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


def test_schur_of_real_with_real_eigenvalues() -> None:
    x = _matrix("f8", 8, 8)
    x = x + x.T
    t, q = schur.schur(x)
    _near(q @ t @ q.T, x)
    with pytest.raises(Unsupported, match="eigenvalues are real"):
        schur.schur(np.array([[0.0, 1.0], [-1.0, 0.0]]))
