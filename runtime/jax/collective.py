"""Collectives on one device: each is the identity in the shape it promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from unigraph.errors import EngineError
from unigraph.opdef import OpDef
from unigraph.ops import collective as c


def _alone(function: Callable[..., Any]) -> Callable[..., Any]:
    def row(*operands: Any, axis_name: str, axis_size: int, **attrs: Any) -> Any:
        if axis_size != 1:
            raise EngineError(f"axis {axis_name!r} spans {axis_size} devices; this engine runs on one")
        return function(*operands, **attrs)

    return row


def _gather(x: Any, axis: int, tiled: bool) -> Any:
    return x if tiled else jnp.expand_dims(x, axis)


def _scatter(x: Any, axis: int, tiled: bool) -> Any:
    return x if tiled else jnp.squeeze(x, axis)


def _exchange(x: Any, split_axis: int, concat_axis: int, tiled: bool) -> Any:
    return x if tiled else jnp.expand_dims(jnp.squeeze(x, split_axis), concat_axis)


def _permute(x: Any, sources: Any, targets: Any) -> Any:
    return x if (0, 0) in zip(sources, targets, strict=True) else jnp.zeros_like(x)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    c.all_reduce: _alone(lambda x, combiner: x),
    c.all_gather: _alone(_gather),
    c.reduce_scatter: _alone(_scatter),
    c.all_to_all: _alone(_exchange),
    c.collective_permute: _alone(_permute),
    c.axis_index: _alone(lambda: jnp.int32(0)),
}
