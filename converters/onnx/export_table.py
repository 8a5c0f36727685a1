"""All rows of the ONNX export."""

from __future__ import annotations

from unigraph.evaluate import Row
from unigraph.opdef import OpDef

from . import export_elementwise, export_special

PARTS = (export_elementwise, export_special)
ROWS: dict[OpDef, Row] = {op: row for part in PARTS for op, row in part.ROWS.items()}
