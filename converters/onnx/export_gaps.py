"""Core ops that ONNX cannot express, each with the reason. Data: the tests fail on an unexpected pass."""

from __future__ import annotations

from unigraph.opdef import OpDef
from unigraph.ops import linalg as la
from unigraph.ops import random as r

_ITERATES = "ONNX has no such operator, and the algorithm iterates until it converges"
_REFLECTORS = "ONNX has no such operator, nor one for two-sided reflections"

GAPS: dict[OpDef, str] = {
    la.eig: _ITERATES,
    la.schur: _ITERATES,
    la.tridiagonal: _REFLECTORS,
    r.random_gamma: "sampling by rejection draws a number of times that ONNX cannot repeat bit for bit",
}
