"""Fast rows of composites: only those whose result equals the decomposition's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unigraph.opdef import OpDef

ROWS: Mapping[OpDef, Callable[..., Any]] = {}
