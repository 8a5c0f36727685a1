"""Symmetric eigenvalues and singular values in the ONNX export, by Jacobi rotations in f64.

A sweep is a Loop over all pairs of columns; sweeps repeat until no pair needs turning. The number of
columns must be known. A complex element off the diagonal is turned real before the rotation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph.dims import size_min
from unigraph.dtypes import DType, bool_, c128, f64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import linalg as la

from .complex_handles import PARTS, Complex, conj, real_part, square_size
from .emitter import Emitter
from .export_contract import product
from .export_elementwise import number
from .export_linalg import (
    apply_reflectors,
    flipped,
    identity,
    merged,
    pick,
    put,
    reflectors,
    split,
    triangle,
)
from .export_series import any_of
from .handles import Array

MAX_SWEEPS = 60  # quadratic convergence needs about ten
EPSILON = 2.0**-52


def _known(n: Any) -> int:
    if type(n) is not int:
        raise Unsupported("rotations need the number of columns to be known", "give the matrix a static size")
    return n


def _wide(kind: DType) -> DType:
    """The dtype to rotate in."""
    return c128 if kind.is_complex else f64


def _real(kind: DType) -> DType:
    return PARTS.get(kind, kind)


def _angle(o: Emitter, low: Array, high: Array, cross: Array) -> tuple[Array, Array]:
    """Cosine and sine, both [B, 1], that turn the symmetric [[low, cross], [cross, high]] diagonal."""
    zeta = (high - low) / (cross * 2.0)
    size = 1.0 / (o.Abs(zeta) + o.Sqrt(zeta * zeta + 1.0))
    tangent = o.Where(o.Equal(cross, 0), number(o, 0.0, f64), o.Where(zeta < 0, -size, size))
    cosine = 1.0 / o.Sqrt(tangent * tangent + 1.0)
    return o.unsqueeze(cosine, [1]), o.unsqueeze(cosine * tangent, [1])


def _turn(o: Emitter, x: Array, p: Array, q: Array, cosine: Array, sine: Array, axis: int) -> Array:
    """x[B, m, n] with two rows or columns rotated."""
    first, second = pick(o, x, p, axis), pick(o, x, q, axis)
    shape = first.shape
    x = put(o, x, o.typed(o.Sub(o.Mul(cosine, first), o.Mul(sine, second)), shape), p, axis)
    return put(o, x, o.typed(o.Add(o.Mul(sine, first), o.Mul(cosine, second)), shape), q, axis)


def _phase(o: Emitter, cross: Array) -> Array | None:
    """The number [B, 1] of size 1 that a complex ``cross`` has beside its size; None for a real one."""
    if not isinstance(cross, Complex):
        return None
    size = o.Abs(cross)
    zero = o.Equal(size, 0)
    unit = o.Where(zero, number(o, 1.0, cross.dtype), o.Div(cross, o.Where(zero, number(o, 1.0, f64), size)))
    return o.unsqueeze(unit, [1])


def _scaled(o: Emitter, x: Array, i: Array, factor: Array | None, axis: int) -> Array:
    """x[B, m, n] with one row or column multiplied."""
    if factor is None:
        return x
    old = pick(o, x, i, axis)
    return put(o, x, o.typed(o.Mul(old, factor), old.shape), i, axis)


def _sweeps(
    o: Emitter, n: int, start: Sequence[Array], rotate: Callable[..., tuple[list[Array], Array]]
) -> list[Array]:
    """Apply ``rotate(p, q, *state)``, which also tells where it turned anything, to all pairs until none did."""
    if n < 2:
        return list(start)
    pairs = o.const(np.array(list(itertools.combinations(range(n), 2)), np.int64))
    first, second = (o.squeeze(o.slice(pairs, [i], [i + 1], [1]), [1]) for i in (0, 1))
    false = o.const(np.asarray(False), bool_)

    def one(i: Array, *state: Array) -> list[Array]:
        p, q = (o.Gather(v, i, axis=0, shape=()) for v in (first, second))
        new, turned = rotate(p, q, *state[:-1])
        return [*new, o.Or(state[-1], any_of(o, turned))]

    def sweep(i: Array, *state: Array) -> list[Array]:
        return list(o.loop(o.const(n * (n - 1) // 2), [*state[:-1], false], one))

    more = o.const(np.asarray(True), bool_)
    return list(o.loop(o.const(MAX_SWEEPS), [*start, more], sweep, condition=lambda *state: state[-1]))[:-1]


def _ordered(o: Emitter, x: Array, order: Array) -> Array:
    """Columns of x[B, m, n] in the given order [B, n]."""
    return o.GatherElements(x, o.expand(o.unsqueeze(order, [1]), x.shape), axis=2, shape=x.shape)


def _sorted(o: Emitter, x: Array, largest: bool) -> tuple[Array, Array]:
    n = x.shape[1]
    values, order = o.TopK(
        x, [n], axis=1, largest=int(largest), outputs=2, dtype=[f64, o.const(0).dtype], shape=x.shape
    )
    return values, order


def _nan_spread(o: Emitter, x: Array) -> Array:
    """Per matrix [B, 1, 1]: NaN where it holds NaN or an infinity, else 0."""
    bad = o.cast(o.Or(o.IsNaN(x), o.IsInf(x)), f64)
    return o.Where(o.reduce("ReduceMax", bad, [1, 2], keepdims=True) > 0, number(o, np.nan, f64), number(o, 0.0, f64))


def _eigh(o: Emitter, x: Array, lower: bool) -> tuple[Array, Array]:
    n = _known(x.shape[-1])
    if 0 in x.shape:
        return x, o.full(0, _real(x.dtype), x.shape[:-1])
    kind, eye = _wide(x.dtype), identity(o, product(x.shape[:-2]), n, n, f64)
    a = triangle(o, o.cast(merged(o, x), kind), upper=not lower)
    nan = _nan_spread(o, a)
    # Whatever imaginary part the diagonal has drops out.
    both = o.Sub(o.Add(a, conj(flipped(o, a))), o.Mul(eye, o.cast(real_part(a), kind)))
    a = o.typed(o.Where(o.IsNaN(nan), o.cast(eye, kind), both), a.shape)

    def rotate(p: Array, q: Array, a: Array, v: Array) -> tuple[list[Array], Array]:
        row, other = pick(o, a, p, 1), pick(o, a, q, 1)
        low, high = real_part(pick(o, row, p, 1)), real_part(pick(o, other, q, 1))
        cross = pick(o, row, q, 1)
        turned = o.Abs(cross) > o.Sqrt(o.Abs(low * high)) * EPSILON
        # Beside zeros on the diagonal, what is small against the whole matrix is done too.
        largest = o.reduce("ReduceMax", o.Abs(a), [1, 2])
        turned = o.And(turned, o.Abs(cross) > largest * (EPSILON * EPSILON))
        phase = _phase(o, cross)
        a = _scaled(o, _scaled(o, a, q, phase, 1), q, conj(phase), 2)
        v = _scaled(o, v, q, conj(phase), 2)
        size = cross if phase is None else o.Abs(cross)
        cosine, sine = _angle(o, low, high, o.Where(turned, size, number(o, 0.0, f64)))
        a = _turn(o, _turn(o, a, p, q, cosine, sine, 1), p, q, cosine, sine, 2)
        return [a, _turn(o, v, p, q, cosine, sine, 2)], turned

    a, v = _sweeps(o, n, [a, o.cast(eye, kind)], rotate)
    values, order = _sorted(o, o.reduce("ReduceSum", real_part(a) * eye, [2]), largest=False)
    vectors, values = o.Add(_ordered(o, v, order), nan), values + o.squeeze(nan, [2])
    return split(o, o.cast(o.typed(vectors, v.shape), x.dtype), x.shape[:-2]), split(
        o, o.cast(o.typed(values, (v.shape[0], n)), _real(x.dtype)), x.shape[:-2]
    )


def _svd(o: Emitter, x: Array, full_matrices: bool, compute_uv: bool) -> tuple[Array, ...]:
    m, n = (_known(s) for s in x.shape[-2:])
    batch, k = x.shape[:-2], size_min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    if 0 in x.shape:
        s = o.full(0, _real(x.dtype), (*batch, k))
        eyes = [identity(o, 1, h, w, x.dtype) for h, w in ((m, rows), (columns, n))]
        return (s, *(o.expand(o.squeeze(e, [0]), (*batch, *e.shape[1:])) for e in eyes)) if compute_uv else (s,)
    a = o.cast(merged(o, x), _wide(x.dtype))
    nan = _nan_spread(o, a)
    a = o.typed(o.Where(o.IsNaN(nan), number(o, 0.0, a.dtype), a), a.shape)
    wide = m < n
    u, s, v = _tall(o, conj(flipped(o, a)) if wide else a, full_matrices, compute_uv)
    results = [o.typed(s + o.squeeze(nan, [2]), s.shape)]
    if compute_uv:
        left, right = (v, u) if wide else (u, v)
        results += [o.typed(o.Add(t, nan), t.shape) for t in (left, conj(flipped(o, right)))]
    kinds = (_real(x.dtype), x.dtype, x.dtype)
    return tuple(split(o, o.cast(t, kind), batch) for t, kind in zip(results, kinds))


def _tall(o: Emitter, a: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array]:
    """U, s and V of matrices with at least as many rows as columns, by rotating columns until they are orthogonal."""
    batch, m, n = a.shape

    def rotate(p: Array, q: Array, w: Array, v: Array) -> tuple[list[Array], Array]:
        first, second = pick(o, w, p, 2), pick(o, w, q, 2)
        low, high = (o.reduce("ReduceSum", square_size(o, c), [1]) for c in (first, second))
        cross = o.reduce("ReduceSum", o.Mul(conj(first), second), [1])
        turned = o.Abs(cross) > o.Sqrt(low * high) * (4 * EPSILON)
        phase = _phase(o, cross)
        w, v = (_scaled(o, t, q, conj(phase), 2) for t in (w, v))
        size = cross if phase is None else o.Abs(cross)
        cosine, sine = _angle(o, low, high, o.Where(turned, size, number(o, 0.0, f64)))
        return [_turn(o, t, p, q, cosine, sine, 2) for t in (w, v)], turned

    # Scaled, so that squares neither overflow nor vanish.
    scale = o.reduce("ReduceMax", o.Abs(a), [1, 2], keepdims=True)
    scale = o.Where(o.Equal(scale, 0), number(o, 1.0, f64), scale)
    w, v = _sweeps(o, n, [o.typed(o.Div(a, scale), a.shape), identity(o, batch, n, n, a.dtype)], rotate)
    lengths, order = _sorted(o, o.Sqrt(o.reduce("ReduceSum", square_size(o, w), [1])), largest=True)
    s = o.typed(lengths * o.squeeze(scale, [2]), (batch, n))
    if not vectors:
        return a, s, v
    w, v = _ordered(o, w, order), _ordered(o, v, order)
    # Q of the rotated columns is U, also where a singular value is 0; R tells the signs.
    packed, taus = reflectors(o, w, n)
    u = apply_reflectors(o, packed, taus, identity(o, batch, m, m if full else n, a.dtype), transpose=False)
    diagonal = o.reduce("ReduceSum", real_part(packed) * identity(o, batch, m, n, f64), [1])
    signs = o.Where(o.unsqueeze(diagonal, [1]) < 0, number(o, -1.0, f64), number(o, 1.0, f64))
    if full and m > n:
        signs = o.concat([o.typed(signs, (batch, 1, n)), o.full(1.0, f64, (batch, 1, m - n))], 2)
    return o.typed(o.Mul(signs, u), u.shape), s, v


ROWS: dict[OpDef, Row] = {la.eigh: _eigh, la.svd: _svd}
