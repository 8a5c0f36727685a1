"""Tensors made from numbers and sizes: constants, ranges, identities, index tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unigraph.dtypes import i64
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast
from unigraph.types import TensorType

from .helpers import full, is_dim, operand, result_dtype
from .rowbook import row, rows

aten = torch.ops.aten


def _constant(number: Any) -> Callable[..., Value]:
    return lambda b, *args, **kwargs: full(b, number, TensorType(b.dtype, b.shape))


def _full(b: Any, shape: Any, value: Any, **kwargs: Any) -> Value:
    return full(b, value, TensorType(b.dtype, b.shape))


rows(
    {
        **{
            packet: _constant(0)
            for packet in (
                aten.zeros,
                aten.zeros_like,
                aten.new_zeros,
                aten.empty,
                aten.empty_like,
                aten.new_empty,
                aten.empty_strided,
                aten.new_empty_strided,
                aten.empty_permuted,
            )
        },
        **{packet: _constant(1) for packet in (aten.ones, aten.ones_like, aten.new_ones)},
        aten.full: _full,
        aten.full_like: _full,
        aten.new_full: lambda b, x, shape, value, **k: _full(b, shape, value),
        aten.scalar_tensor: lambda b, value, **k: operand(b, value, b.dtype),
    }
)


@row(aten.arange)
def _arange(b: Any, *args: Any, **kwargs: Any) -> Value:
    start, step = 0, 1
    if len(args) == 1:
        pass
    else:
        start = args[0]
        step = args[2] if len(args) > 2 else kwargs.get("step", 1)
    dtype, (length,) = b.dtype, b.shape
    if dtype.is_float and (isinstance(start, float) or isinstance(step, float)):
        # torch computes start + i * step in double (float32 results are rounded once).
        count = b.convert(b.iota(dtype=i64, shape=(length,), axis=0), dtype="f64")
        line = b.add(b.mul(count, full(b, step, count.type)), full(b, start, count.type))
        return cast(b, line, dtype)
    count = b.iota(dtype=dtype, shape=(length,), axis=0)
    if step != 1:
        count = b.mul(count, full(b, step, count.type))
    return count if start == 0 and not is_dim(start) else b.add(count, full(b, start, count.type))


@row(aten.linspace)
def _linspace(b: Any, start: Any, end: Any, steps: int, **kwargs: Any) -> Value:
    dtype = b.dtype
    work = dtype if dtype.is_inexact else result_dtype(1.0)
    line = TensorType(work, (steps,))
    low, high = operand(b, start, work), operand(b, end, work)
    if steps == 1:
        return cast(b, full(b, low, line), dtype)
    i = b.convert(b.iota(dtype=i64, shape=(steps,), axis=0), dtype=work)
    step = broadcast_to(b, b.div(b.sub(high, low), steps - 1), (steps,))
    # As torch: the second half is counted down from the end.
    up = b.add(full(b, low, line), b.mul(step, i))
    down = b.sub(full(b, high, line), b.mul(step, b.sub(full(b, steps - 1, line), i)))
    half = b.lt(i, full(b, float(steps // 2), line)) if not work.is_complex else b.lt(b.real(i), float(steps // 2))
    return cast(b, b.select(half, down, up), dtype)


@row(aten.eye)
def _eye(b: Any, *args: Any, **kwargs: Any) -> Value:
    shape = b.shape
    same = b.eq(b.iota(dtype=i64, shape=shape, axis=0), b.iota(dtype=i64, shape=shape, axis=1))
    return cast(b, same, b.dtype)


def _frequencies(half: bool) -> Callable[..., Value]:
    """Sample frequencies of a transform: whole multiples of 1 / (n d), the negative ones after the others."""

    def apply(b: Any, n: int, d: float = 1.0, **kwargs: Any) -> Value:
        count = b.iota(dtype=i64, shape=b.shape, axis=0)
        if not half:
            count = b.select(b.lt(count, full(b, (n + 1) // 2, count.type)), b.sub(count, n), count)
        return b.mul(cast(b, count, b.dtype), 1.0 / (n * d))

    return apply


rows({aten.fft_fftfreq: _frequencies(False), aten.fft_rfftfreq: _frequencies(True)})


def _triangle(keep_lower: bool) -> Callable[..., Value]:
    def apply(b: Any, rows_: int, columns: int, offset: int = 0, **kwargs: Any) -> Value:
        import numpy as np

        make = np.tril_indices if keep_lower else np.triu_indices
        return b.constant(np.stack(make(rows_, offset, columns)).astype(np.int64), b.dtype)

    return apply


rows({aten.tril_indices: _triangle(True), aten.triu_indices: _triangle(False)})
