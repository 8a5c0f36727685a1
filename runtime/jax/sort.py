"""Sorting, the largest elements, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax import lax

from unigraph.opdef import OpDef
from unigraph.ops import sort as s

_KINDS = {
    "fft": lax.FftType.FFT,
    "ifft": lax.FftType.IFFT,
    "rfft": lax.FftType.RFFT,
    "irfft": lax.FftType.IRFFT,
}


def _sort(*xs: Any, axis: int, num_keys: int = 1, stable: bool = True) -> tuple[Any, ...]:
    return tuple(lax.sort(xs, dimension=axis, is_stable=stable, num_keys=num_keys))


def _top_k(x: Any, k: Any, axis: int = -1) -> tuple[Any, Any]:
    values, indices = lax.top_k(x, k, axis=axis)
    return values, indices


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    s.sort: _sort,
    s.top_k: _top_k,
    s.fft: lambda x, kind, lengths: lax.fft(x, _KINDS[kind], lengths),
}
