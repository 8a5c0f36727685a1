"""PyTorch programs to graphs and back."""

from __future__ import annotations

import importlib

_FAMILIES = (
    "elementwise",
    "special",
    "bessel",
    "polynomial",
    "activation",
    "loss",
    "movement",
    "creation",
    "index",
    "reduce",
    "groups",
    "contract",
    "grouped",
    "nn",
    "sampling",
    "random",
    "linalg",
    "prims",
    "quant",
    "control",
)


def load_rows() -> None:
    """Register all built-in lowering rows (a list one can read: one module for each family of operators)."""
    for family in _FAMILIES:
        importlib.import_module(f"{__name__}.rows_{family}")
