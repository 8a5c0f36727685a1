"""PyTorch programs to graphs and back."""

from __future__ import annotations

import importlib
from typing import Any

_FAMILIES = (
    "elementwise",
    "activation",
    "movement",
    "index",
    "reduce",
    "contract",
    "nn",
    "random",
    "linalg",
    "prims",
    "control",
)
# Loaded when asked for: the importer and the exporter do not need each other.
_PUBLIC = {"from_torch": ".capture", "to_torch": ".export", "lower_torch": ".rowbook"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name], __name__), name)


def load_rows() -> None:
    """Register all built-in lowering rows (a list one can read: one module for each family of operators)."""
    for family in _FAMILIES:
        importlib.import_module(f"{__name__}.rows_{family}")
