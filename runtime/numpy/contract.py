"""Dot products and convolutions on NumPy: everything becomes one batched matrix product."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from unigraph.dtypes import BOOL, DType, dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import contract as c
from unigraph.ops.shapes import windows

from .wide import from_integers

Array = np.ndarray
Ints = tuple[int, ...]

# Patches of a convolution are copied out in portions of about this many elements.
PORTION = 1 << 24


def matrix_product(x: Array, y: Array, out: DType) -> Array:
    """x[..., m, k] @ y[..., k, n], added up in ``out`` (floats shorter than f32 in f32)."""
    kind = dtype(x.dtype)
    with np.errstate(all="ignore"):
        if kind.kind == BOOL:
            # Counts of True pairs; f32 loses none that would bring a count back to 0.
            return np.matmul(x.astype(np.float32), y.astype(np.float32)) > 0
        if kind.is_integer and out.is_integer:
            return from_integers(_integer_product(x, y, kind), out)
        wide = np.dtype(np.float32) if out.is_float and out.bits < 32 else out.numpy
        return np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False)).astype(out.numpy, copy=False)


def _integer_product(x: Array, y: Array, kind: DType) -> Array:
    """The product modulo 2^64; by BLAS where every partial sum is exact in f64."""
    if 2 * kind.bits + max(x.shape[-1], 1).bit_length() <= 53:
        return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)
    wide = np.uint64 if kind.kind == "uint" else np.int64
    return np.matmul(x.astype(wide), y.astype(wide))


def dot_general(
    x: Array,
    y: Array,
    lhs_contracting: Ints,
    rhs_contracting: Ints,
    lhs_batch: Ints = (),
    rhs_batch: Ints = (),
    out_dtype: DType | None = None,
) -> Array:
    """Axes in the order batch, free, contracting; each group folded into one."""
    left = [a for a in range(x.ndim) if a not in lhs_batch + lhs_contracting]
    right = [a for a in range(y.ndim) if a not in rhs_batch + rhs_contracting]
    batch = [x.shape[a] for a in lhs_batch]
    rows, columns = [x.shape[a] for a in left], [y.shape[a] for a in right]
    depth = math.prod(x.shape[a] for a in lhs_contracting)
    b, m, n = math.prod(batch), math.prod(rows), math.prod(columns)
    x = x.transpose((*lhs_batch, *left, *lhs_contracting)).reshape(b, m, depth)
    y = y.transpose((*rhs_batch, *rhs_contracting, *right)).reshape(b, depth, n)
    return matrix_product(x, y, out_dtype or dtype(x.dtype)).reshape((*batch, *rows, *columns))


def ragged_dot(x: Array, w: Array, group_sizes: Array, out_dtype: DType | None = None) -> Array:
    """One matrix product for each group of rows."""
    out = out_dtype or dtype(x.dtype)
    result = np.zeros((x.shape[0], w.shape[2]), out.numpy)
    start = 0
    for matrix, size in zip(w, group_sizes):
        stop = min(start + int(size), x.shape[0])
        result[start:stop] = matrix_product(x[start:stop], matrix, out)
        start = stop
    return result


def _dilate_and_pad(x: Array, dilation: Ints, low: Ints, high: Ints) -> Array:
    """Zeros between elements of the last axes and around them; negative padding crops."""
    lead = x.ndim - len(dilation)
    for axis, (by, lo, hi) in enumerate(zip(dilation, low, high), lead):
        if by > 1:
            n = x.shape[axis]
            spread = np.zeros((*x.shape[:axis], max(0, (n - 1) * by + 1), *x.shape[axis + 1 :]), x.dtype)
            spread[(slice(None),) * axis + (slice(None, None, by),)] = x
            x = spread
        if lo > 0 or hi > 0:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (max(lo, 0), max(hi, 0))
            x = np.pad(x, widths)
        crop = slice(max(-lo, 0), x.shape[axis] - max(-hi, 0))
        x = x[(slice(None),) * axis + (crop,)]
    return x


def conv_general(
    x: Array,
    w: Array,
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
) -> Array:
    """Patches x[group, n, *places, features and window] times w[group, features and window, outputs]."""
    out = out_dtype or dtype(x.dtype)
    x, w = x.transpose(lhs_spec), w.transpose(rhs_spec)
    (n, features, *space), (outputs, taken, *window) = x.shape, w.shape
    places = windows(tuple(space), window, strides, low, high, lhs_dilation, rhs_dilation)
    parts = groups * batch_groups
    n //= batch_groups
    if groups > 1:
        x = x.reshape(n, groups, features // groups, *space).swapaxes(0, 1)
    else:
        x = x.reshape(batch_groups, n, features, *space)
    matrices = w.reshape(parts, outputs // parts, taken * math.prod(window)).swapaxes(1, 2)
    if 0 in (*places, n, outputs, taken):
        y = np.zeros((parts, n, *places, outputs // parts), out.numpy)
    else:
        x = _dilate_and_pad(x, lhs_dilation, low, high)
        y = _convolve(x, matrices, tuple(window), strides, rhs_dilation, places, out)
    # y[part, n, *places, o] -> [n, part and o, *places], then the order asked for.
    rank = len(places)
    y = y.transpose(1, 0, rank + 2, *range(2, rank + 2)).reshape(n, outputs, *places)
    return y.transpose(np.argsort(out_spec))


def _convolve(
    x: Array, matrices: Array, window: Ints, strides: Ints, dilation: Ints, places: Ints, out: DType
) -> Array:
    """y[part, n, *places, o] of padded x[part, n, features, *space]."""
    rank = len(window)
    parts, n, features = x.shape[:3]
    spread = tuple((k - 1) * d + 1 for k, d in zip(window, dilation))
    view = sliding_window_view(x, spread, axis=tuple(range(3, 3 + rank))) if rank else x
    steps = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilation)
    view = view[(slice(None),) * 3 + steps]
    # [part, n, *places, features, *window]
    view = view.transpose(0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    count, depth = math.prod(places), features * math.prod(window)
    step = max(1, PORTION // max(1, parts * count * depth))
    portions = [
        matrix_product(view[:, i : i + step].reshape(parts, -1, depth), matrices, out) for i in range(0, n, step)
    ]
    portions = [p.reshape(parts, -1, count, p.shape[-1]) for p in portions]
    return np.concatenate(portions, axis=1).reshape(parts, n, *places, matrices.shape[-1])


ROWS: Mapping[OpDef, Row] = {
    c.dot_general: dot_general,
    c.ragged_dot: ragged_dot,
    c.conv_general: conv_general,
}
