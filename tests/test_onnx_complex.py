"""Complex numbers in the ONNX export: pairs of reals inside, a last axis of two at the interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import unigraph as ug
from unigraph.tolerances import difference

RNG = np.random.default_rng(3)


def noise(dtype: str, *shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def test_interface() -> None:
    b = ug.GraphBuilder("phase")
    x = b.input("x", "c64", ("n", 3))
    w = noise("complex64", 3)
    y = b.mul(x, b.broadcast_in_dim(b.weight("w", w), shape=x.type.shape, broadcast_dimensions=(1,)))
    model = ug.to_onnx(b.build((y, b.abs(y))))
    assert [d.dim_value or d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["n", 3, 2]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    given = noise("complex64", 4, 3)
    pair, size = session.run(None, {"x": given.view(np.float32).reshape(4, 3, 2)})
    assert difference(pair.view(np.complex64)[..., 0], given * w) is None
    assert difference(size, np.abs(given * w)) is None


@pytest.mark.parametrize("n", [6, 7, 8, 16])
@pytest.mark.parametrize("kind", ["fft", "ifft"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_transforms_are_exact_for_every_length(n: int, kind: str, dtype: str) -> None:
    """ONNX Runtime's own transform of f64 is exact to single precision only, save for powers of two."""
    x = noise(dtype, 2, n)
    b = ug.GraphBuilder()
    given = b.input("x", "c64" if dtype == "complex64" else "c128", x.shape)
    graph = b.build(b.fft(given, kind=kind, lengths=(n,)))
    expected = getattr(np.fft, kind)(x).astype(dtype)
    assert difference(np.asarray(ug.run(graph, x, engine="onnx")), expected, 4.0) is None


@pytest.mark.parametrize("rows, columns", [(4, 4), (5, 3), (3, 5)])
def test_singular_values_of_repeated_and_missing_rank(rows: int, columns: int) -> None:
    """Rank one: all but one singular value are 0, and still both factors must be unitary."""
    x = noise("complex128", rows, 1) @ noise("complex128", 1, columns)
    b = ug.GraphBuilder()
    outputs: Any = b.svd(b.input("x", "c128", x.shape), full_matrices=True, compute_uv=True)
    s, u, vt = (np.asarray(v) for v in ug.run(b.build(tuple(outputs)), x, engine="onnx"))
    k = min(rows, columns)
    for q in (u, vt.conj().T):
        np.testing.assert_allclose(q.conj().T @ q, np.eye(q.shape[1]), atol=1e-12)
    np.testing.assert_allclose(u[:, :k] * s @ vt[:k], x, atol=1e-12)
    np.testing.assert_allclose(s, np.linalg.svd(x, compute_uv=False), atol=1e-12)


def test_what_has_no_form_is_told() -> None:
    b = ug.GraphBuilder()
    graph = b.build(tuple(b.eig(b.input("x", "c64", (3, 3)), left=False, right=True)))
    with pytest.raises(ug.UnsupportedError, match="eig"):
        ug.to_onnx(graph)
