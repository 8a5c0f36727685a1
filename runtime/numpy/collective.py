"""Collectives on one device: each is a reshaping of its operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unigraph.errors import EngineError
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import collective as c

Array = np.ndarray


def _alone(function: Callable[..., Any]) -> Row:
    def row(*operands: Array, axis_name: str, axis_size: int, **attrs: Any) -> Any:
        if axis_size != 1:
            raise EngineError(f"axis {axis_name!r} spans {axis_size} devices; the numpy engine runs on one")
        return function(*operands, **attrs)

    return row


def _all_to_all(x: Array, split_axis: int, concat_axis: int, tiled: bool) -> Array:
    return x if tiled else np.expand_dims(np.squeeze(x, split_axis), concat_axis)


ROWS: Mapping[OpDef, Row] = {
    c.all_reduce: _alone(lambda x, combiner: x),
    c.all_gather: _alone(lambda x, axis, tiled: x if tiled else np.expand_dims(x, axis)),
    c.reduce_scatter: _alone(lambda x, axis, tiled: x if tiled else np.squeeze(x, axis)),
    c.all_to_all: _alone(_all_to_all),
    c.collective_permute: _alone(lambda x, sources, targets: x if sources else np.zeros_like(x)),
    c.axis_index: _alone(lambda: np.zeros((), np.int32)),
}
