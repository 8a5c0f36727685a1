"""Sorting, the largest elements, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import sort as s

from .dtypes import bits, from_order, is_weak, to_order, unbits

Tensor = torch.Tensor


def _keys(x: Tensor) -> list[Tensor]:
    """What is compared, most significant first: complex numbers go by real, then by imaginary part."""
    return [x.real, x.imag] if x.is_complex() else [to_order(x)]


def _take(x: Tensor, order: Tensor, axis: int) -> Tensor:
    return unbits(torch.gather(bits(x), axis, order), x.dtype)


def sort(*xs: Tensor, axis: int, num_keys: int = 1, stable: bool = True) -> tuple[Tensor, ...]:
    """Several keys are sorted one after the other, the least significant first: each sort is stable."""
    if xs[0].ndim == 0:
        return xs
    if len(xs) == 1 and not xs[0].is_complex():
        ordered = torch.sort(to_order(xs[0]), dim=axis, stable=stable)
        return (from_order(ordered.values, xs[0].dtype) if is_weak(xs[0].dtype) else ordered.values,)
    keys = [k for x in xs[:num_keys] for k in _keys(x)]
    order = torch.sort(keys[-1], dim=axis, stable=True).indices
    for key in reversed(keys[:-1]):
        order = torch.gather(order, axis, torch.sort(torch.gather(key, axis, order), dim=axis, stable=True).indices)
    return tuple(_take(x, order, axis) for x in xs)


def top_k(x: Tensor, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """By a stable sort: torch.topk leaves the order of equals open."""
    order = torch.sort(to_order(x), dim=axis, descending=True, stable=True).indices.narrow(axis, 0, k)
    return _take(x, order, axis), order.to(torch.int32)


_FFT = {"fft": torch.fft.fftn, "ifft": torch.fft.ifftn, "rfft": torch.fft.rfftn, "irfft": torch.fft.irfftn}


def fft(x: Tensor, kind: str, lengths: tuple[int, ...]) -> Tensor:
    axes = tuple(range(-len(lengths), 0))
    if x.numel():
        return _FFT[kind](x, s=lengths, dim=axes)
    # MKL refuses an empty batch: one element of it tells dtype and sizes.
    row = _FFT[kind](x.new_zeros(x.shape[-len(lengths) :]), s=lengths, dim=axes)
    return row.new_zeros((*x.shape[: -len(lengths)], *row.shape))


ROWS: Mapping[OpDef, Row] = {s.sort: sort, s.top_k: top_k, s.fft: fft}
