"""All rows of the ONNX export."""

from __future__ import annotations

from unigraph.evaluate import Row
from unigraph.opdef import OpDef

from . import (
    export_collective,
    export_contract,
    export_control,
    export_elementwise,
    export_generator,
    export_index,
    export_linalg,
    export_movement,
    export_nn,
    export_random,
    export_reduce,
    export_series,
    export_sort,
    export_special,
    export_spectral,
)

PARTS = (
    export_elementwise,
    export_special,
    export_series,
    export_movement,
    export_index,
    export_reduce,
    export_contract,
    export_sort,
    export_control,
    export_random,
    export_generator,
    export_linalg,
    export_spectral,
    export_collective,
    export_nn,
)
ROWS: dict[OpDef, Row] = {op: row for part in PARTS for op, row in part.ROWS.items()}
