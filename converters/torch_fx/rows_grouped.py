"""Products of groups of rows, each group with a matrix of its own: mixtures of experts."""

from __future__ import annotations

from typing import Any

import torch

from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast

from .rowbook import BY_LIBRARY, rows


def _sizes(b: Any, ends: Value) -> Value:
    """How many rows each group has, from where each ends."""
    zero = b.constant(0, ends.type.dtype)
    return b.sub(ends, b.pad(ends, zero, low=(1,), high=(-1,)))


def _grouped(b: Any, x: Value, weight: Value, ends: Value) -> Value:
    return b.ragged_dot(x, weight, _sizes(b, ends))


def _grouped_mm(
    b: Any, x: Value, y: Value, ends: Value | None = None, bias: Value | None = None, dtype: Any = None
) -> Value:
    ranks = (x.type.rank, y.type.rank)
    if ends is None and ranks == (3, 3):
        result = b.matmul(x, y)
    elif ends is not None and ranks == (2, 3):
        result = _grouped(b, x, y, ends)
    else:
        raise Unsupported(
            f"grouped_mm of a {ranks[0]}-d with a {ranks[1]}-d operand", "group the rows of the first operand"
        )
    if bias is not None:
        result = b.add(result, broadcast_to(b, bias, result.type.shape))
    return result if dtype is None else cast(b, result, dtype)


rows({torch.ops.aten._grouped_mm: _grouped_mm})
# What transformers calls while it is being traced.
BY_LIBRARY["transformers"] = {"grouped_mm_fallback": _grouped}
