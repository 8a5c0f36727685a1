"""ONNX nodes of signal processing: Fourier transforms (computed in f64, as complex numbers), mel weights, TF-IDF."""

from __future__ import annotations

import itertools
import math

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.dtypes import DType, f32, f64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, cut, reshape

from .dtypes import FROM_ONNX
from .node import Node, RowBook, axis_of

rows = RowBook()


@rows("DFT")
def dft_attr(n: Node) -> Value:
    return _dft(n, n.attr("axis", 1))


@rows("DFT", since=20)
def dft(n: Node) -> Value:
    return _dft(n, int(n.scalar(2)) if n.has(2) else -2)


def _dft(n: Node, axis: int) -> Value:
    """Real and imaginary parts lie along the last axis; a length crops or pads."""
    x = n.value(0)
    axis = axis_of(axis, x.type.rank)
    inverse, onesided = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = x.type.shape[axis]
    length: Dim = size
    if n.has(1):
        (length,) = n.sizes(1)
    elif inverse and onesided:
        length = dims.normal(2 * (size - 1))
    # NumPy, which ONNX's definition follows, inverts f32 parts in c64.
    kind = x.type.dtype if inverse and not onesided and x.type.dtype is f32 else f64
    return _transformed(n, _complex(n, x, kind), axis, length, inverse, onesided, x.type.dtype)


def _complex(n: Node, x: Value, kind: DType = f64) -> Value:
    """The complex numbers whose parts lie along the last axis (one: real), computed with parts in ``kind``."""
    wide = cast(n.b, x, kind)
    rank, shape = x.type.rank, x.type.shape[:-1]
    parts = [reshape(n.b, cut(n.b, wide, rank - 1, i, i + 1), shape) for i in range(int(x.type.shape[-1]))]
    return n.b.complex(parts[0], parts[1] if len(parts) > 1 else n.b.full_like(parts[0], 0.0))


def _transformed(n: Node, z: Value, axis: int, length: Dim, inverse: bool, onesided: bool, kind: DType) -> Value:
    last = z.type.rank - 1
    order = [a for a in range(z.type.rank) if a != axis] + [axis]
    z = n.b.transpose(z, permutation=tuple(order)) if axis != last else z
    back = tuple(order.index(a) for a in range(z.type.rank))
    half = dims.normal(dims.floordiv(length, 2) + 1)
    z = _fitted(n, z, last, half if inverse and onesided else length)
    if inverse and onesided:
        y = n.b.fft(z, kind="irfft", lengths=(length,))
        y = n.b.transpose(y, permutation=back) if axis != last else y
        return cast(n.b, n.b.reshape(y, shape=(*y.type.shape, 1)), kind)
    y = n.b.fft(z, kind="ifft" if inverse else "fft", lengths=(length,))
    y = cut(n.b, y, last, 0, half) if onesided else y
    y = n.b.transpose(y, permutation=back) if axis != last else y
    parts = [n.b.reshape(p, shape=(*p.type.shape, 1)) for p in (n.b.real(y), n.b.imag(y))]
    return cast(n.b, n.b.concatenate(*parts, axis=y.type.rank), kind)


def _fitted(n: Node, z: Value, axis: int, length: Dim) -> Value:
    """Cropped or padded with zeros at the end of an axis."""
    size = z.type.shape[axis]
    if dims.equal(size, length):
        return z
    high = tuple(dims.normal(length - size) if a == axis else 0 for a in range(z.type.rank))
    return n.b.pad(z, n.b.constant(0, z.type.dtype), low=(0,) * z.type.rank, high=high)


@rows("STFT")
def stft(n: Node) -> Value:
    """Frames every ``frame_step`` samples, under a window, transformed."""
    x = n.value(0)
    step = int(n.scalar(1))
    window = n.optional(2)
    width = int(n.scalar(3)) if n.has(3) else int(window.type.shape[0]) if window is not None else x.type.shape[1]
    if not dims.is_static(width):
        raise Unsupported("STFT over frames of a symbolic length")
    frames = dims.normal(dims.floordiv(x.type.shape[1] - width, step) + 1)
    shape = (frames, width)
    start = n.b.mul(n.b.iota(dtype="i64", shape=shape, axis=0), step)
    index = n.b.add(start, n.b.iota(dtype="i64", shape=shape, axis=1))
    z = n.b.take(_complex(n, x), index, axis=1, mode="clip")
    if window is not None:
        wide = cast(n.b, window, f64)
        z = n.b.mul(z, along(n.b, n.b.complex(wide, n.b.full_like(wide, 0.0)), z.type.shape, (2,)))
    return _transformed(n, z, 2, width, False, bool(n.attr("onesided", 1)), x.type.dtype)


@rows("MelWeightMatrix")
def mel_weights(n: Node) -> Value:
    """Triangles on the mel scale, [spectrogram bins, mel bins]; all inputs must be known."""
    bins, length, rate, low, high = (n.scalar(i) for i in range(5))
    count = length // 2 + 1
    ends = [2595 * math.log10(1 + f / 700) for f in (low, high)]
    mels = np.arange(bins + 2) * ((ends[1] - ends[0]) / (bins + 2)) + ends[0]
    points = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    place = np.arange(count)[:, None]
    first, centre, last = points[None, :-2], points[None, 1:-1], points[None, 2:]
    rising = np.where(centre == first, place == centre, (place - first) / np.maximum(centre - first, 1))
    falling = (last - place) / np.maximum(last - centre, 1)
    weights = np.where((place >= first) & (place <= centre), rising, 0.0)
    weights = np.where((place >= centre) & (place < last) & (last > centre), falling, weights)
    return n.b.constant(weights, FROM_ONNX[n.attr("output_datatype", 1)])


@rows("TfIdfVectorizer")
def tf_idf(n: Node) -> Value:
    """Counts of n-grams of integers, with gaps up to ``max_skip_count``, in columns ``ngram_indexes``."""
    pool = n.attr("pool_int64s")
    if not pool:
        raise Unsupported("TfIdfVectorizer over strings")
    x = n.value(0)
    flat = x.type.rank == 1
    x = n.b.convert(reshape(n.b, x, (1, *x.type.shape)) if flat else x, dtype="i64")
    batch, length = x.type.shape
    if not dims.is_static(length):
        raise Unsupported("TfIdfVectorizer over a symbolic length", "fix the shapes with from_onnx(path, shapes={...})")
    columns, starts = n.attr("ngram_indexes"), [*n.attr("ngram_counts"), len(pool)]
    width = max(columns) + 1
    total = n.b.full(0.0, "f32", (batch, width))
    first = 0
    for size, (begin, end) in enumerate(itertools.pairwise(starts), 1):
        grams = np.reshape(pool[begin:end], (-1, size))
        own = columns[first : first + len(grams)]
        first += len(grams)
        if not len(grams) or not n.attr("min_gram_length") <= size <= n.attr("max_gram_length"):
            continue
        for skip in range(1 if size == 1 else n.attr("max_skip_count") + 1):
            positions = length - (size - 1) * (skip + 1)
            if positions > 0:
                found = _counted(n, x, grams, skip + 1, positions)
                place = np.zeros((len(own), width), np.float32)
                place[np.arange(len(own)), own] = 1
                total = n.b.add(total, n.b.matmul(found, n.b.constant(place)))
    return reshape(n.b, _weighted(n, total), (width,)) if flat else _weighted(n, total)


def _counted(n: Node, x: Value, grams: np.ndarray, step: int, positions: int) -> Value:
    """How often each n-gram occurs with its items ``step`` apart, [batch, n-grams]."""
    shape = (x.type.shape[0], positions, len(grams))
    hit: Value | None = None
    for i in range(grams.shape[1]):
        item = along(n.b, cut(n.b, x, 1, i * step, i * step + positions), shape, (0, 1))
        same = n.b.eq(item, along(n.b, n.b.constant(grams[:, i].astype(np.int64)), shape, (2,)))
        hit = same if hit is None else n.b.and_(hit, same)
    assert hit is not None
    return n.b.reduce_sum(n.b.convert(hit, dtype="f32"), axes=(1,))


def _weighted(n: Node, counts: Value) -> Value:
    mode, weights = n.attr("mode"), n.attr("weights")
    if mode != "TF" and weights:
        wide = along(n.b, n.b.constant(np.asarray(weights, np.float32)), counts.type.shape, (1,))
    else:
        wide = n.b.full_like(counts, 1.0)
    if mode == "IDF":
        return n.b.select(n.b.gt(counts, 0.0), n.b.full_like(counts, 0.0), wide)
    return n.b.mul(counts, wide)
