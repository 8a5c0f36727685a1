"""Collectives in the ONNX export: on one device each is a reshaping; ONNX knows no second one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph.dtypes import i32
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import collective as c

from .emitter import Emitter
from .handles import Array


def alone(row: Callable[..., Array]) -> Row:
    """A row for an axis of one device; refuses more."""

    def guarded(o: Emitter, *xs: Array, axis_name: str, axis_size: int, **attrs: Any) -> Array:
        if axis_size != 1:
            raise Unsupported(f"axis {axis_name!r} has {axis_size} devices; an ONNX model runs on one")
        return row(o, *xs, **attrs)

    return guarded


def _all_gather(o: Emitter, x: Array, axis: int, tiled: bool) -> Array:
    return x if tiled else o.unsqueeze(x, [axis])


def _reduce_scatter(o: Emitter, x: Array, axis: int, tiled: bool) -> Array:
    return x if tiled else o.squeeze(x, [axis])


def _all_to_all(o: Emitter, x: Array, split_axis: int, concat_axis: int, tiled: bool) -> Array:
    return x if tiled else o.unsqueeze(o.squeeze(x, [split_axis]), [concat_axis])


def _permute(o: Emitter, x: Array, sources: Sequence[int], targets: Sequence[int]) -> Array:
    return x if targets else o.full(0, x.dtype, x.shape)


ROWS: dict[OpDef, Row] = {
    c.all_reduce: alone(lambda o, x, combiner: x),
    c.all_gather: alone(_all_gather),
    c.reduce_scatter: alone(_reduce_scatter),
    c.all_to_all: alone(_all_to_all),
    c.collective_permute: alone(_permute),
    c.axis_index: alone(lambda o: o.const(np.asarray(0, np.int32), i32)),
}
