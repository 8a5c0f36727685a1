"""Rows of composites whose decomposition gives the same numbers but another slope at its kinks.

XLA fuses a decomposition as well as anything written by hand, so speed asks for no row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from unigraph.opdef import OpDef
from unigraph.ops import nn_activation as n


def _hardtanh(x: Any, low: float, high: float) -> Any:
    # max and min would halve the slope at the bounds; there it is 0.
    bottom, top = jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)
    return jnp.where(x <= bottom, bottom, jnp.where(x >= top, top, x))


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    n.relu: jax.nn.relu,
    n.relu6: lambda x: _hardtanh(x, 0, 6),
    n.hardtanh: _hardtanh,
}
