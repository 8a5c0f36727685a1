"""All lowering rows, by primitive name."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    rows_contract,
    rows_control,
    rows_custom,
    rows_elementwise,
    rows_index,
    rows_movement,
    rows_random,
    rows_reduce,
)
from .lower import Row

_PARTS = (
    rows_elementwise.ROWS,
    rows_movement.ROWS,
    rows_index.ROWS,
    rows_reduce.ROWS,
    rows_contract.ROWS,
    rows_random.ROWS,
    rows_control.ROWS,
    rows_custom.ROWS,
)

ROWS: Mapping[str, Row] = {name: row for part in _PARTS for name, row in part.items()}
assert len(ROWS) == sum(map(len, _PARTS)), "two rows for one primitive"
