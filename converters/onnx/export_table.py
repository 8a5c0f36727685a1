"""All rows of the ONNX export."""

from __future__ import annotations

from unigraph.evaluate import Row
from unigraph.opdef import OpDef

from . import export_elementwise

PARTS = (export_elementwise,)
ROWS: dict[OpDef, Row] = {op: row for part in PARTS for op, row in part.ROWS.items()}
