"""Core ops that ONNX cannot express, each with the reason. Data: the tests fail on an unexpected pass."""

from __future__ import annotations

from unigraph.opdef import OpDef
from unigraph.ops import elementwise as e

_COMPLEX = "ONNX has no complex tensors in arithmetic"
_SERIES = "ONNX has no such operator, and its series or continued fraction has no fixed length"

GAPS: dict[OpDef, str] = {
    e.complex_: _COMPLEX,
    e.real: _COMPLEX,
    e.imag: _COMPLEX,
    e.conj: _COMPLEX,
    e.igamma: _SERIES,
    e.igammac: _SERIES,
    e.igamma_grad_a: _SERIES,
    e.random_gamma_grad: _SERIES,
    e.regularized_incomplete_beta: _SERIES,
}
