"""Composites for which torch has a function of the same meaning."""

from __future__ import annotations

from unigraph.evaluate import Row
from unigraph.opdef import OpDef

ROWS: dict[OpDef, Row] = {}
