"""Linear algebra in the ONNX export: direct factorisations, one step of a Loop for each row or column.

Matrices are [B, m, n]: leading axes are merged into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph.dims import size_min
from unigraph.dtypes import i32, i64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import linalg as la

from .complex_handles import Complex, conj, real_part, square_size
from .emitter import Emitter
from .export_contract import product
from .export_elementwise import number, sign_bit
from .handles import Array


def merged(o: Emitter, x: Array, keep: int = 2) -> Array:
    """x with its leading axes merged into one."""
    lead = x.shape[: x.rank - keep]
    return o.reshape(x, (product(lead), *x.shape[x.rank - keep :]))


def split(o: Emitter, x: Array, like: Sequence[Any]) -> Array:
    """The leading axes back as they were."""
    return o.reshape(x, (*like, *x.shape[1:]))


def pick(o: Emitter, x: Array, i: Array, axis: int) -> Array:
    """Row or column number ``i`` (a scalar); the axis vanishes."""
    return o.Gather(x, i, axis=axis, shape=tuple(n for a, n in enumerate(x.shape) if a != axis))


def put(o: Emitter, x: Array, column: Array, i: Array, axis: int) -> Array:
    """x with one row or column replaced."""
    here = o.Equal(line(o, x, axis), i)
    return o.typed(o.Where(here, o.unsqueeze(column, [axis]), x), x.shape)


def line(o: Emitter, x: Array, axis: int) -> Array:
    """0, 1, 2, ... along one axis of x."""
    return o.unsqueeze(o.iota(x.shape[axis]), [a for a in range(x.rank) if a != axis])


def outer(o: Emitter, a: Array, b: Array) -> Array:
    return o.Mul(o.unsqueeze(a, [2]), o.unsqueeze(b, [1]))


def matvec(o: Emitter, a: Array, v: Array) -> Array:
    """a[B, m, n] times v[B, n]."""
    return o.squeeze(o.MatMul(a, o.unsqueeze(v, [2]), shape=(*a.shape[:2], 1)), [2])


def pivot_size(o: Emitter, x: Array) -> Array:
    """What pivots are chosen by: LAPACK takes the sum of the sizes of both parts of a complex number."""
    return o.Abs(x.re) + o.Abs(x.im) if isinstance(x, Complex) else o.Abs(x)


def flipped(o: Emitter, x: Array) -> Array:
    return o.transpose(x, (0, 2, 1))


def triangle(o: Emitter, x: Array, upper: bool, k: int = 0) -> Array:
    return o.Trilu(x, o.const(np.asarray(k, np.int64)), upper=int(upper))


def _empty(x: Array) -> bool:
    return any(type(n) is int and n == 0 for n in x.shape)


# -- triangular factors and solves ---------------------------------------------------------------


def _cholesky(o: Emitter, x: Array) -> Array:
    if _empty(x):
        return x
    a = merged(o, x)
    rows = o.iota(a.shape[1])

    def step(j: Array, factor: Array) -> list[Array]:
        row = pick(o, factor, j, 1)
        rest = o.Sub(pick(o, a, j, 2), matvec(o, factor, row))
        pivot = o.Sqrt(pick(o, rest, j, 1))
        column = o.Div(rest, o.unsqueeze(pivot, [1]))
        column = o.Where(o.unsqueeze(o.GreaterOrEqual(rows, j), [0]), column, number(o, 0, x.dtype))
        return [put(o, factor, o.typed(column, a.shape[:2]), j, 2)]

    (factor,) = o.loop(o.scalar(a.shape[1]), [o.full(0, x.dtype, a.shape)], step)
    # A pivot that is not positive leaves NaN or an infinity: then all of the matrix is NaN.
    finite = o.reduce("ReduceMax", o.cast(o.Or(o.IsNaN(factor), o.IsInf(factor)), i32), [1, 2], keepdims=True)
    diagonal = o.Where(
        o.unsqueeze(o.Equal(o.unsqueeze(rows, [1]), o.unsqueeze(rows, [0])), [0]), factor, number(o, 1, x.dtype)
    )
    low = o.reduce("ReduceMin", diagonal, [1, 2], keepdims=True)
    bad = o.Or(o.Greater(finite, 0), o.LessOrEqual(low, 0))
    factor = o.typed(o.Where(bad, number(o, np.nan, x.dtype), factor), a.shape)
    return split(o, triangle(o, factor, upper=False), x.shape[:-2])


def _triangular_solve(
    o: Emitter,
    a: Array,
    b: Array,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Array:
    if _empty(b):
        return b
    # x op(a) = b is op(a)^T x^T = b^T.
    transposed = transpose_a if left_side else not transpose_a
    matrix, right = merged(o, a), merged(o, b)
    right = right if left_side else flipped(o, right)
    matrix = triangle(o, matrix, upper=not lower)
    if transposed:
        matrix, lower = flipped(o, matrix), not lower
    solution = solve_triangular(o, matrix, right, lower, unit_diagonal)
    return split(o, solution if left_side else flipped(o, solution), b.shape[:-2])


def solve_triangular(o: Emitter, a: Array, b: Array, lower: bool, unit: bool = False) -> Array:
    """Substitution: forwards for a lower triangle, backwards for an upper one."""
    n = a.shape[1]
    last = o.Sub(o.scalar(n), 1)
    columns = o.iota(n)

    def step(i: Array, x: Array) -> list[Array]:
        at = i if lower else o.Sub(last, i)
        row = pick(o, a, at, 1)
        done = o.Less(columns, at) if lower else o.Greater(columns, at)
        coefficients = o.Where(o.unsqueeze(done, [0]), row, number(o, 0, a.dtype))
        known_part = o.MatMul(o.unsqueeze(o.typed(coefficients, row.shape), [1]), x, shape=(x.shape[0], 1, x.shape[2]))
        value = o.Sub(pick(o, b, at, 1), o.squeeze(known_part, [1]))
        if not unit:
            value = o.Div(value, o.unsqueeze(pick(o, row, at, 1), [1]))
        return [put(o, x, o.typed(value, (x.shape[0], x.shape[2])), at, 1)]

    (solution,) = o.loop(o.scalar(n), [o.full(0, b.dtype, b.shape)], step)
    return solution


def _lu(o: Emitter, x: Array) -> tuple[Array, Array, Array]:
    batch = x.shape[:-2]
    m, n = x.shape[-2:]
    k = size_min(m, n)
    if _empty(x):
        order = o.expand(o.iota(m, i32), (*batch, m))
        return x, o.full(0, i32, (*batch, k)), order
    a = merged(o, x)
    rows = o.iota(m)
    swaps = o.full(0, i32, (a.shape[0], k))
    order = o.expand(o.iota(m, i32), (a.shape[0], m))

    def step(j: Array, a: Array, swaps: Array, order: Array) -> list[Array]:
        column = pick(o, a, j, 2)
        below = o.unsqueeze(o.GreaterOrEqual(rows, j), [0])
        size = pivot_size(o, column)
        size = o.Where(below, size, number(o, -1, size.dtype))
        size = o.Where(o.And(below, o.IsNaN(column)), number(o, np.inf, size.dtype), size)
        pivot = o.ArgMax(size, axis=1, keepdims=1, shape=(a.shape[0], 1))
        swaps = put(o, swaps, o.squeeze(o.cast(pivot, i32), [1]), j, 1)
        rows2 = o.unsqueeze(rows, [0])
        source = o.Where(o.Equal(rows2, j), pivot, o.Where(o.Equal(rows2, pivot), j, rows2))
        source = o.typed(source, (a.shape[0], m))
        order = o.GatherElements(order, source, axis=1, shape=(a.shape[0], m))
        a = o.GatherElements(a, o.expand(o.unsqueeze(source, [2]), a.shape), axis=1, shape=a.shape)
        column = pick(o, a, j, 2)
        top = pick(o, a, j, 1)
        divisor = o.unsqueeze(pick(o, column, j, 1), [1])
        after = o.unsqueeze(o.Greater(rows, j), [0])
        nothing = number(o, 0, x.dtype)
        # A column of zeros has no pivot and stays as it is.
        multiples = o.Where(o.Equal(divisor, 0), column, o.Div(column, divisor))
        factors = o.typed(o.Where(after, multiples, nothing), column.shape)
        right = o.Where(o.unsqueeze(o.Greater(o.iota(n), j), [0]), top, nothing)
        a = o.Sub(a, outer(o, factors, o.typed(right, top.shape)))
        column = o.Where(after, multiples, column)
        return [put(o, o.typed(a, (swaps.shape[0], m, n)), o.typed(column, (swaps.shape[0], m)), j, 2), swaps, order]

    a, swaps, order = o.loop(o.scalar(k), [a, swaps, order], step)
    return split(o, a, batch), split(o, swaps, batch), split(o, order, batch)


def _lu_pivots_to_permutation(o: Emitter, pivots: Array, permutation_size: Any) -> Array:
    batch, k = pivots.shape[:-1], pivots.shape[-1]
    order = o.expand(o.iota(permutation_size), (product(batch), permutation_size))
    if _empty(pivots) or _empty(order):
        return o.cast(o.expand(o.iota(permutation_size), (*batch, permutation_size)), pivots.dtype)
    swaps = o.cast(merged(o, pivots, keep=1), i64)
    places = o.unsqueeze(o.iota(permutation_size), [0])

    def step(j: Array, order: Array) -> list[Array]:
        pivot = o.unsqueeze(pick(o, swaps, j, 1), [1])
        source = o.Where(o.Equal(places, j), pivot, o.Where(o.Equal(places, pivot), j, places))
        return [o.GatherElements(order, source, axis=1, shape=order.shape)]

    (order,) = o.loop(o.scalar(k), [order], step)
    return split(o, o.cast(order, pivots.dtype), batch)


# -- orthogonal factors --------------------------------------------------------------------------


def reflector(o: Emitter, column: Array, head: Array) -> tuple[Array, Array, Array]:
    """Of [B, m] columns: the tail of v below row ``head``, tau [B, 1], and what the element at head becomes."""
    rows = o.iota(column.shape[1])
    zero = number(o, 0, column.dtype)
    alpha = o.unsqueeze(pick(o, column, head, 1), [1])
    tail = o.typed(o.Where(o.unsqueeze(o.Greater(rows, head), [0]), column, zero), column.shape)
    # Scaled, so that squares neither overflow nor vanish.
    largest = o.reduce("ReduceMax", o.Abs(tail), [1], keepdims=True)
    flat = o.Equal(largest, 0)  # nothing below: the reflector is the identity
    if isinstance(alpha, Complex):
        flat = o.And(flat, o.Equal(alpha.im, 0))  # else it turns the head real
    one = number(o, 1, largest.dtype)
    scale = o.Where(flat, one, o.Max(largest, o.Abs(alpha)))
    parts, lead = o.Div(tail, scale), o.Div(alpha, scale)
    norm = o.Add(o.reduce("ReduceSum", square_size(o, parts), [1], keepdims=True), square_size(o, lead))
    length = o.Mul(o.Sqrt(norm), scale)
    beta = o.Where(sign_bit(o, real_part(alpha)), length, o.Neg(length))
    tau = o.Where(flat, zero, o.Div(o.Sub(beta, alpha), beta))
    beta = o.Where(flat, alpha, beta)
    vector = o.Where(flat, zero, o.Div(tail, o.Where(flat, one, o.Sub(alpha, beta))))
    return o.typed(vector, column.shape), tau, beta


def reflectors(o: Emitter, a: Array, count: Any) -> tuple[Array, Array]:
    """Householder reflectors of [B, m, n], packed as LAPACK's geqrf."""
    rows = o.iota(a.shape[1])
    taus = o.full(0, a.dtype, (a.shape[0], count))
    one = number(o, 1, a.dtype)

    def step(j: Array, a: Array, taus: Array) -> list[Array]:
        shape = (taus.shape[0], a.shape[1])
        column = pick(o, a, j, 2)
        vector, tau, beta = reflector(o, column, j)
        here = o.unsqueeze(o.Equal(rows, j), [0])
        changed = reflect(o, a, o.typed(o.Where(here, one, vector), shape), conj(tau))
        right = o.unsqueeze(o.Greater(o.iota(a.shape[2]), j), [0, 1])
        a = o.typed(o.Where(right, changed, a), (taus.shape[0], *a.shape[1:]))
        after = o.unsqueeze(o.Greater(rows, j), [0])
        column = o.typed(o.Where(here, beta, o.Where(after, vector, column)), shape)
        return [put(o, a, column, j, 2), put(o, taus, o.squeeze(o.typed(tau, (taus.shape[0], 1)), [1]), j, 1)]

    packed, taus = o.loop(o.scalar(count), [a, taus], step)
    return packed, taus


def reflect(o: Emitter, a: Array, vector: Array, tau: Array) -> Array:
    """(I - tau v v^H) a."""
    row = o.MatMul(o.unsqueeze(conj(vector), [1]), a, shape=(a.shape[0], 1, a.shape[2]))
    return o.Sub(a, o.Mul(o.Mul(o.unsqueeze(vector, [2]), o.unsqueeze(tau, [1])), row))


def apply_reflectors(o: Emitter, packed: Array, taus: Array, c: Array, transpose: bool) -> Array:
    """H_0 H_1 ... c, or the adjoint product times c."""
    count = taus.shape[1]
    rows = o.iota(packed.shape[1])
    last = o.Sub(o.scalar(count), 1)
    zero, one = number(o, 0, c.dtype), number(o, 1, c.dtype)

    def step(i: Array, c: Array) -> list[Array]:
        j = i if transpose else o.Sub(last, i)
        column = pick(o, packed, j, 2)
        tail = o.Where(o.unsqueeze(o.Greater(rows, j), [0]), column, zero)
        vector = o.Where(o.unsqueeze(o.Equal(rows, j), [0]), one, tail)
        tau = o.unsqueeze(pick(o, taus, j, 1), [1])
        tau = conj(tau) if transpose else tau
        return [o.typed(reflect(o, c, o.typed(vector, column.shape), tau), c.shape)]

    (result,) = o.loop(o.scalar(count), [c], step)
    return result


def identity(o: Emitter, batch: Any, m: Any, n: Any, kind: Any) -> Array:
    """Ones on the diagonal of [batch, m, n]."""
    same = o.Equal(o.unsqueeze(o.iota(m), [1]), o.unsqueeze(o.iota(n), [0]))
    return o.expand(o.cast(o.typed(same, (m, n)), kind), (batch, m, n))


def _geqrf(o: Emitter, x: Array) -> tuple[Array, Array]:
    k = size_min(*x.shape[-2:])
    if _empty(x):
        return x, o.full(0, x.dtype, (*x.shape[:-2], k))
    packed, taus = reflectors(o, merged(o, x), k)
    return split(o, packed, x.shape[:-2]), split(o, taus, x.shape[:-2])


def _qr(o: Emitter, x: Array, full_matrices: bool) -> tuple[Array, Array]:
    m, n = x.shape[-2:]
    k = m if full_matrices else size_min(m, n)
    batch = product(x.shape[:-2])
    if _empty(x):
        return o.reshape(identity(o, batch, m, k, x.dtype), (*x.shape[:-2], m, k)), o.full(
            0, x.dtype, (*x.shape[:-2], k, n)
        )
    packed, taus = reflectors(o, merged(o, x), size_min(m, n))
    q = apply_reflectors(o, packed, taus, identity(o, batch, m, k, x.dtype), transpose=False)
    r = triangle(o, o.slice(packed, [0], [k], [1]), upper=True)
    return split(o, q, x.shape[:-2]), split(o, r, x.shape[:-2])


def _householder_product(o: Emitter, a: Array, taus: Array) -> Array:
    if _empty(a):
        return a
    packed = merged(o, a)
    eye = identity(o, packed.shape[0], a.shape[-2], a.shape[-1], a.dtype)
    if _empty(taus):
        return split(o, eye, a.shape[:-2])
    return split(o, apply_reflectors(o, packed, merged(o, taus, keep=1), eye, transpose=False), a.shape[:-2])


def _ormqr(o: Emitter, a: Array, taus: Array, c: Array, left: bool, transpose: bool) -> Array:
    if _empty(c) or _empty(taus):
        return c
    packed, t, right = merged(o, a), merged(o, taus, keep=1), merged(o, c)
    if left:
        return split(o, apply_reflectors(o, packed, t, right, transpose), c.shape[:-2])
    # c Q is (Q^H c^H)^H.
    turned = apply_reflectors(o, packed, t, conj(flipped(o, right)), not transpose)
    return split(o, conj(flipped(o, turned)), c.shape[:-2])


def _cholesky_update(o: Emitter, r: Array, w: Array) -> Array:
    """R' is the triangle of a QR factorisation of R with w^T below; the diagonal keeps its signs."""
    if _empty(r):
        return r
    n = r.shape[-1]
    stacked = o.concat([triangle(o, merged(o, r), upper=True), o.unsqueeze(merged(o, w, keep=1), [1])], 1)
    packed, _ = reflectors(o, stacked, n)
    new = triangle(o, o.slice(packed, [0], [n], [1]), upper=True)
    eye = identity(o, product(r.shape[:-2]), n, n, r.dtype)

    def negative(x: Array) -> Array:
        return o.unsqueeze(o.Less(o.reduce("ReduceSum", o.typed(o.Mul(x, eye), eye.shape), [2]), 0), [2])

    flip = o.Xor(negative(merged(o, r)), negative(new))
    return split(o, o.typed(o.Where(flip, o.Neg(new), new), new.shape), r.shape[:-2])


def _tridiagonal_solve(o: Emitter, dl: Array, d: Array, du: Array, b: Array) -> Array:
    """The full matrix, factorised with row swaps, then substitution twice."""
    if _empty(b):
        return b
    n = b.shape[-2]
    row, column = o.unsqueeze(o.iota(n), [1]), o.unsqueeze(o.iota(n), [0])
    dense = None
    for band, offset in ((dl, -1), (d, 0), (du, 1)):
        here = o.Equal(o.Add(row, offset), column)
        part = o.Where(
            o.unsqueeze(o.typed(here, (n, n)), [0]), o.unsqueeze(merged(o, band, keep=1), [2]), number(o, 0, b.dtype)
        )
        dense = part if dense is None else o.Add(dense, part)
    assert dense is not None
    right = merged(o, b)
    factors, _, order = _lu(o, o.typed(dense, (right.shape[0], n, n)))
    index = o.expand(o.unsqueeze(o.cast(order, i64), [2]), right.shape)
    right = o.GatherElements(right, index, axis=1, shape=right.shape)
    forward = solve_triangular(o, triangle(o, factors, upper=False), right, lower=True, unit=True)
    return split(o, solve_triangular(o, triangle(o, factors, upper=True), forward, lower=False), b.shape[:-2])


def _hessenberg(o: Emitter, x: Array) -> tuple[Array, Array]:
    """Reflectors from both sides, each of which clears a column below the first subdiagonal."""
    n = x.shape[-1]
    if _empty(x) or (type(n) is int and n == 1):
        return x, o.full(0, x.dtype, (*x.shape[:-2], max(n - 1, 0) if type(n) is int else n - 1))
    a = merged(o, x)
    batch, rows = a.shape[0], o.iota(n)
    zero, one = number(o, 0, x.dtype), number(o, 1, x.dtype)

    def step(j: Array, a: Array, taus: Array) -> list[Array]:
        head = o.Add(j, 1)
        vector, tau, beta = reflector(o, pick(o, a, j, 2), head)
        full = o.typed(o.Where(o.unsqueeze(o.Equal(rows, head), [0]), one, vector), (batch, n))
        right = o.unsqueeze(o.Greater(rows, j), [0, 1])
        a = o.typed(o.Where(right, reflect(o, a, full, conj(tau)), a), (batch, n, n))
        # From the right: a - (a v) tau v^H.
        a = o.Sub(a, outer(o, o.Mul(matvec(o, a, full), tau), conj(full)))
        below = o.unsqueeze(o.Greater(rows, head), [0])
        column = o.Where(o.unsqueeze(o.Equal(rows, head), [0]), beta, o.Where(below, vector, pick(o, a, j, 2)))
        a = put(o, a, o.typed(column, (batch, n)), j, 2)
        return [a, put(o, taus, o.squeeze(o.typed(tau, (batch, 1)), [1]), j, 1)]

    a, taus = o.loop(o.scalar(n - 1), [a, o.expand(zero, (batch, n - 1))], step)
    return split(o, a, x.shape[:-2]), split(o, taus, x.shape[:-2])


ROWS: dict[OpDef, Row] = {
    la.cholesky: _cholesky,
    la.triangular_solve: _triangular_solve,
    la.lu: _lu,
    la.lu_pivots_to_permutation: _lu_pivots_to_permutation,
    la.cholesky_update: _cholesky_update,
    la.tridiagonal_solve: _tridiagonal_solve,
    la.hessenberg: _hessenberg,
    la.geqrf: _geqrf,
    la.qr: _qr,
    la.householder_product: _householder_product,
    la.ormqr: _ormqr,
}
