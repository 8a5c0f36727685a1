"""Products: matmul where the axes lie as it wants them, einsum otherwise; convolutions as torch's."""

from __future__ import annotations

import string
from collections.abc import Mapping

import torch
import torch.nn.functional as F

from unigraph.dtypes import DType, i32
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import contract as c

from .compat import byte_product, has_byte_products
from .dtypes import bits, from_torch, narrow, to_torch, widen
from .elementwise import convert
from .movement import transpose

Tensor = torch.Tensor
Ints = tuple[int, ...]


def _operands(x: Tensor, y: Tensor, out_dtype: DType | None) -> tuple[Tensor, Tensor, torch.dtype, bool]:
    """Operands as torch multiplies them, the result's dtype, and whether the bits are what counts."""
    target = to_torch(out_dtype) if out_dtype is not None else x.dtype
    kind = from_torch(target)
    if out_dtype is not None and (x.dtype is not target or y.dtype is not target):
        x, y = convert(x, out_dtype), convert(y, out_dtype)
    if kind.is_integer and kind.bits >= 8:
        return bits(x), bits(y), target, True
    return widen(x), widen(y), target, False


def _result(x: Tensor, t: torch.dtype, as_bits: bool) -> Tensor:
    if x.dtype is t:
        return x
    return x.view(t) if as_bits else narrow(x, t)


def dot_general(
    x: Tensor,
    y: Tensor,
    lhs_contracting: Ints,
    rhs_contracting: Ints,
    lhs_batch: Ints = (),
    rhs_batch: Ints = (),
    out_dtype: DType | None = None,
) -> Tensor:
    axes = (lhs_contracting, rhs_contracting, lhs_batch, rhs_batch)
    if x.dtype is torch.bool:  # counts of pairs that are both True
        return _einsum(x.to(torch.float32), y.to(torch.float32), *axes) > 0
    if x.dtype is y.dtype is torch.int8 and out_dtype is i32:
        product = _byte_product(x, y, *axes)
        if product is not None:
            return product
    a, b, t, as_bits = _operands(x, y, out_dtype)
    if as_bits and a.device.type != "cpu":
        return _result(_integer_product(a, b, *axes), t, as_bits)
    product = _matmul(a, b, *axes)
    return _result(_einsum(a, b, *axes) if product is None else product, t, as_bits)


def _byte_product(x: Tensor, y: Tensor, lc: Ints, rc: Ints, lb: Ints, rb: Ints) -> Tensor | None:
    """A linear layer of bytes by the processor's own instructions; None for another product or machine."""
    plain = lc == (x.ndim - 1,) and not lb and y.ndim == 2 and x.ndim >= 2
    if not plain or x.device.type != "cpu" or not has_byte_products() or 0 in (*x.shape, *y.shape):
        return None
    rows = x.reshape(-1, x.shape[-1])
    product = byte_product(rows, y if rc == (0,) else y.t())
    return product.reshape(*x.shape[:-1], product.shape[-1])


def _matmul(x: Tensor, y: Tensor, lc: Ints, rc: Ints, lb: Ints, rb: Ints) -> Tensor | None:
    """torch.matmul for one contracted axis at the end of x and, of y, among its last two; else None."""
    n = len(lb)
    leading = tuple(range(n))
    if len(lc) != 1 or lb != leading or rb != leading or lc[0] != x.ndim - 1:
        return None
    if (n and x.ndim != n + 2) or y.ndim != n + 2:
        return None
    if rc[0] == y.ndim - 2:
        return torch.matmul(x, y)
    return torch.matmul(x, y.transpose(-1, -2)) if rc[0] == y.ndim - 1 else None


def _labels(x: Tensor, y: Tensor, lc: Ints, rc: Ints, lb: Ints, rb: Ints) -> tuple[list[str], list[str], list[str]]:
    """A letter for each axis of x and y, and those of the result: batch, then the free axes of each."""
    letters = iter(string.ascii_lowercase + string.ascii_uppercase)
    left = [next(letters) for _ in range(x.ndim)]
    right = [""] * y.ndim
    for i, j in zip((*lb, *lc), (*rb, *rc)):
        right[j] = left[i]
    right = [letter or next(letters) for letter in right]
    out = [left[i] for i in lb]
    out += [left[i] for i in range(x.ndim) if i not in (*lb, *lc)]
    out += [right[j] for j in range(y.ndim) if j not in (*rb, *rc)]
    return left, right, out


def _einsum(x: Tensor, y: Tensor, *axes: Ints) -> Tensor:
    left, right, out = map("".join, _labels(x, y, *axes))
    return torch.einsum(f"{left},{right}->{out}", x, y)


def _integer_product(x: Tensor, y: Tensor, *axes: Ints) -> Tensor:
    """By multiplying and adding up: CUDA has no integer matmul."""
    left, right, out = _labels(x, y, *axes)
    summed = [letter for letter in left if letter not in out]
    every = out + summed

    def aligned(v: Tensor, letters: list[str]) -> Tensor:
        v = v.permute([letters.index(letter) for letter in every if letter in letters])
        return v[tuple(slice(None) if letter in letters else None for letter in every)]

    product = aligned(x, left) * aligned(y, right)
    return product.sum(tuple(range(len(out), len(every))), dtype=product.dtype) if summed else product


_CONVS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _spread(x: Tensor, dilation: Ints) -> Tensor:
    """Zeros between neighbours along the spatial axes."""
    for axis, d in enumerate(dilation, 2):
        if d > 1:
            x = F.pad(x.unsqueeze(axis + 1), (0, 0) * (x.ndim - axis - 1) + (0, d - 1)).flatten(axis, axis + 1)
            x = x.narrow(axis, 0, x.shape[axis] - (d - 1))
    return x


def convolve(
    x: Tensor, w: Tensor, bias: Tensor | None, strides: Ints, low: Ints, high: Ints, dilation: Ints, groups: int
) -> Tensor:
    """A convolution of x[N,C,*S] with w[O,C/groups,*K], cross-correlating as all frameworks do."""
    rank = len(strides)
    if rank == 0:
        return convolve(x.unsqueeze(-1), w.unsqueeze(-1), bias, (1,), (0,), (0,), (1,), groups).squeeze(-1)
    if low == high and all(p >= 0 for p in low):
        padding = low
    else:
        padding = (0,) * rank
        x = F.pad(x, [p for pair in zip(reversed(low), reversed(high)) for p in pair])
    counts = _counts(x, w, strides, padding, dilation)
    if any(isinstance(n, int) and n == 0 for n in (*counts, *x.shape[:2])):
        empty = x.new_zeros((x.shape[0], w.shape[0], *counts))
        return empty if bias is None else empty + bias.reshape(-1, *(1,) * rank)
    if rank > 3:
        return _convolve_deep(x, w, bias, strides, padding, dilation, groups)
    return _CONVS[rank](x, w, bias, strides, padding, dilation, groups)


def _counts(x: Tensor, w: Tensor, strides: Ints, padding: Ints, dilation: Ints) -> list[int]:
    """Places of the window along each spatial axis."""
    counts = []
    for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], strides, padding, dilation):
        room = n + 2 * p - (k - 1) * d - 1
        counts.append(0 if isinstance(room, int) and room < 0 else room // s + 1)
    return counts


def _convolve_deep(
    x: Tensor, w: Tensor, bias: Tensor | None, strides: Ints, padding: Ints, dilation: Ints, groups: int
) -> Tensor:
    """More than three spatial axes: a sum over the positions of the kernel along the first one."""
    x = F.pad(x, (0, 0) * (x.ndim - 3) + (padding[0],) * 2)
    count = (x.shape[2] - (w.shape[2] - 1) * dilation[0] - 1) // strides[0] + 1
    total = None
    for k in range(w.shape[2]):
        begin = k * dilation[0]
        part = x[:, :, begin : begin + (count - 1) * strides[0] + 1 : strides[0]].movedim(2, 1)
        flat = part.flatten(0, 1)
        y = convolve(flat, w[:, :, k], None, strides[1:], padding[1:], padding[1:], dilation[1:], groups)
        y = y.unflatten(0, (x.shape[0], count)).movedim(1, 2)
        total = y if total is None else total + y
    assert total is not None
    return total if bias is None else total + bias.reshape(-1, *(1,) * (total.ndim - 2))


def conv_general(
    x: Tensor,
    w: Tensor,
    strides: Ints,
    low: Ints,
    high: Ints,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    lhs_spec: Ints,
    rhs_spec: Ints,
    out_spec: Ints,
    groups: int = 1,
    batch_groups: int = 1,
    out_dtype: DType | None = None,
) -> Tensor:
    target = to_torch(out_dtype) if out_dtype is not None else x.dtype
    if from_torch(target).is_integer:
        # torch convolves no integers: f64 is exact as long as sums stay below 2**53.
        a, b = widen(x).to(torch.float64), widen(w).to(torch.float64)
    else:
        a, b, _, _ = _operands(x, w, out_dtype)
    a = _spread(transpose(a, lhs_spec), lhs_dilation)
    b = transpose(b, rhs_spec)
    if batch_groups > 1:
        # Each part of the batch meets its own kernels: parts side by side are groups of features.
        parts = a.unflatten(0, (batch_groups, -1)).movedim(0, 1)
        a, groups = parts.flatten(1, 2), batch_groups
    y = convolve(a, b, None, strides, low, high, rhs_dilation, groups)
    y = transpose(y, tuple(sorted(range(len(out_spec)), key=lambda a: out_spec[a])))
    if from_torch(target).is_integer:
        return narrow(y.to(torch.int64), target)
    return narrow(y, target)


def ragged_dot(x: Tensor, w: Tensor, group_sizes: Tensor, out_dtype: DType | None = None) -> Tensor:
    """Rows of each group times the matrix of that group; rows past all groups are zero."""
    a, b, t, as_bits = _operands(x, w, out_dtype)
    ends = torch.cumsum(widen(group_sizes).to(torch.int64), 0)
    rows = torch.arange(x.shape[0], device=x.device).unsqueeze(-1)
    inside = (rows < ends) & (rows >= ends - widen(group_sizes))
    spread = torch.where(inside.unsqueeze(-1), a.unsqueeze(1), 0)
    return _result(_einsum(spread, b, (1, 2), (0, 1), (), ()), t, as_bits)


ROWS: Mapping[OpDef, Row] = {c.dot_general: dot_general, c.conv_general: conv_general, c.ragged_dot: ragged_dot}
