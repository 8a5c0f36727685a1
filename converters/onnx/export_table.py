"""All rows of the ONNX export."""

from __future__ import annotations

from unigraph.evaluate import Row
from unigraph.opdef import OpDef

from . import export_elementwise, export_index, export_movement, export_reduce, export_special

PARTS = (export_elementwise, export_special, export_movement, export_index, export_reduce)
ROWS: dict[OpDef, Row] = {op: row for part in PARTS for op, row in part.ROWS.items()}
