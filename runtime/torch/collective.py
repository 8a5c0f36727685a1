"""Collectives on one device: each is the identity in the shape it promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from unigraph.errors import EngineError
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import collective as c

Tensor = torch.Tensor


def _alone(function: Callable[..., Any]) -> Row:
    def row(*operands: Tensor, axis_name: str, axis_size: int, **attrs: Any) -> Any:
        if axis_size != 1:
            raise EngineError(f"axis {axis_name!r} spans {axis_size} devices; this engine runs on one")
        return function(*operands, **attrs)

    return row


def _gather(x: Tensor, axis: int, tiled: bool) -> Tensor:
    return x if tiled else x.unsqueeze(axis)


def _scatter(x: Tensor, axis: int, tiled: bool) -> Tensor:
    return x if tiled else x.squeeze(axis)


def _exchange(x: Tensor, split_axis: int, concat_axis: int, tiled: bool) -> Tensor:
    return x if tiled else x.squeeze(split_axis).unsqueeze(concat_axis)


def _permute(x: Tensor, sources: tuple[int, ...], targets: tuple[int, ...]) -> Tensor:
    return x if (0, 0) in zip(sources, targets, strict=True) else torch.zeros_like(x)


ROWS: Mapping[OpDef, Row] = {
    c.all_reduce: _alone(lambda x, combiner: x),
    c.all_gather: _alone(_gather),
    c.reduce_scatter: _alone(_scatter),
    c.all_to_all: _alone(_exchange),
    c.collective_permute: _alone(_permute),
    c.axis_index: _alone(lambda: torch.full((), 0, dtype=torch.int32)),
}
