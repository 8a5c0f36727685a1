"""Linear algebra and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import c64, c128, i32, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from . import compat
from .helpers import arrange, axis_of, common_shape, full, in_single, keep, move_axis, operand
from .rowbook import row, rows
from .rows_reduce import vector_norm

aten = torch.ops.aten


def turned(b: Any, x: Value) -> Value:
    rank = x.type.rank
    return b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def adjoint_of(b: Any, x: Value) -> Value:
    y = turned(b, x)
    return b.conj(y) if x.type.dtype.is_complex else y


def identity_like(b: Any, x: Value) -> Value:
    rank = x.type.rank
    same = b.eq(*(b.iota(dtype=i64, shape=x.type.shape, axis=rank - k) for k in (2, 1)))
    return cast(b, same, x.type.dtype)


def _cholesky(b: Any, x: Value, upper: bool = False) -> Value:
    lower = b.cholesky(adjoint_of(b, x) if upper else x)
    return adjoint_of(b, lower) if upper else lower


def _cholesky_ex(b: Any, x: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    return _cholesky(b, x, upper), full(b, 0, b.out[1])


def _batched(b: Any, x: Value, y: Value) -> tuple[Value, Value]:
    """Two matrices with their batch axes made the same."""
    lead = common_shape((x.type.shape[:-2], y.type.shape[:-2]))
    return broadcast_to(b, x, (*lead, *x.type.shape[-2:])), broadcast_to(b, y, (*lead, *y.type.shape[-2:]))


def _solve_triangular(
    b: Any, a: Value, y: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    a, y = _batched(b, a, y)
    return b.triangular_solve(a, y, left_side=left, lower=not upper, unit_diagonal=unitriangular)


def _triangular_solve(
    b: Any, y: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:
    a, y = _batched(b, a, y)
    x = b.triangular_solve(a, y, left_side=True, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular)
    return x, a


def solve(b: Any, a: Value, y: Value) -> Value:
    """x with a @ x = y, by LU."""
    a, y = _batched(b, a, y)
    lu, _, order = b.lu(a)
    y = _rows_in_order(b, y, order)
    y = b.triangular_solve(lu, y, left_side=True, lower=True, unit_diagonal=True)
    return b.triangular_solve(lu, y, left_side=True, lower=False)


def _rows_in_order(b: Any, y: Value, order: Value) -> Value:
    index = broadcast_to(b, reshape(b, order, (*order.type.shape, 1)), y.type.shape)
    return b.take_along_axis(y, index, axis=y.type.rank - 2)


def _solve_ex(b: Any, a: Value, y: Value, *, left: bool = True, check_errors: bool = False) -> Any:
    vector = y.type.rank == 1 or (y.type.rank == a.type.rank - 1 and y.type.shape == a.type.shape[:-1])
    if vector:
        y = reshape(b, y, (*y.type.shape, 1))
    x = solve(b, a, y) if left else turned(b, solve(b, turned(b, a), turned(b, y)))
    return reshape(b, x, x.type.shape[:-1]) if vector else x


def _inverse(b: Any, x: Value) -> Value:
    return solve(b, x, identity_like(b, x))


def _tensor_inverse(b: Any, x: Value, ind: int = 2) -> Value:
    """The inverse of x as a map from its last axes to its first ``ind``."""
    left, right = x.type.shape[:ind], x.type.shape[ind:]
    flat = reshape(b, x, (dims.product(left), dims.product(right)))
    return reshape(b, _inverse(b, flat), (*right, *left))


def _factored(b: Any, x: Value) -> tuple[Value, Value]:
    """The diagonal of U, and whether an odd number of rows changed places."""
    lu, pivots, _ = b.lu(x)
    diagonal = _diagonal(b, lu)
    axis = diagonal.type.rank - 1
    position = b.iota(dtype=i32, shape=pivots.type.shape, axis=axis)
    swaps = b.reduce_sum(cast(b, b.ne(pivots, position), i32), axes=(axis,))
    return diagonal, b.ne(b.and_(swaps, full(b, 1, swaps.type)), 0)


def _log_determinant(b: Any, x: Value) -> tuple[Value, Value]:
    """Sign and log |det|."""
    diagonal, odd = _factored(b, x)
    axis = diagonal.type.rank - 1
    sign = b.reduce_prod(b.sign(diagonal), axes=(axis,))
    sign = b.select(odd, sign, b.neg(sign))
    return sign, b.reduce_sum(b.log(b.abs(diagonal)), axes=(axis,))


def _diagonal(b: Any, x: Value) -> Value:
    rank = x.type.rank
    masked = b.mul(x, identity_like(b, x))
    return b.reduce_sum(masked, axes=(rank - 2,))


def _determinant(b: Any, x: Value) -> Value:
    diagonal, odd = _factored(b, x)
    value = b.reduce_prod(diagonal, axes=(diagonal.type.rank - 1,))
    return b.select(odd, value, b.neg(value))


def _logdet(b: Any, x: Value) -> Value:
    sign, log = _log_determinant(b, x)
    return b.select(b.lt(sign, 0.0), log, full(b, float("nan"), log.type))


def _eigh(b: Any, x: Value, uplo: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    v, w = b.eigh(x, lower=uplo.upper() == "L")
    return w, v if compute_v else full(b, 0, b.out[1])


def _svd(b: Any, x: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    s, u, vt = b.svd(x, full_matrices=full_matrices, compute_uv=True)
    return u, s, vt


def _singular_values(b: Any, x: Value, *, driver: Any = None) -> Value:
    return b.svd(x, full_matrices=False, compute_uv=False)[0]


def _qr(b: Any, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    q, r = b.qr(x, full_matrices=mode == "complete")
    return (full(b, 0, b.out[0]), r) if mode == "r" else (q, r)


def _eig(b: Any, x: Value) -> tuple[Value, Value]:
    w, v = b.eig(x, left=False, right=True)
    return w, v


def _lu_factor(b: Any, x: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, ...]:
    if not pivot:
        raise Unsupported("LU without pivoting")
    lu, pivots, _ = b.lu(x)
    result: tuple[Value, ...] = (lu, b.add(pivots, 1))
    return (*result, full(b, 0, b.out[2])) if len(b.out) == 3 else result


def _lu(b: Any, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    if not pivot:
        raise Unsupported("LU without pivoting")
    lu, _, order = b.lu(x)
    return _unpacked(b, lu, order)


def _cholesky_solve(b: Any, y: Value, factor: Value, upper: bool = False) -> Value:
    factor, y = _batched(b, factor, y)
    lower = adjoint_of(b, factor) if upper else factor
    y = b.triangular_solve(lower, y, left_side=True, lower=True)
    return b.triangular_solve(
        lower, y, left_side=True, lower=True, transpose_a=True, conjugate_a=lower.type.dtype.is_complex
    )


def _lu_solve(b: Any, factor: Value, pivots: Value, y: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    """Solves A x = y (x A = y from the right; A^H with ``adjoint``) where ``factor`` packs L and U of A."""
    if not left:  # x A = y is A^H x^H = y^H
        return adjoint_of(b, _lu_solve(b, factor, pivots, adjoint_of(b, y), adjoint=not adjoint))
    factor, y = _batched(b, factor, y)
    order = b.lu_pivots_to_permutation(b.sub(pivots, 1), permutation_size=factor.type.shape[-1])
    order = broadcast_to(b, order, (*y.type.shape[:-2], order.type.shape[-1]))
    if adjoint:
        conjugate = factor.type.dtype.is_complex
        back = {"left_side": True, "transpose_a": True, "conjugate_a": conjugate}
        y = b.triangular_solve(factor, y, lower=False, **back)
        y = b.triangular_solve(factor, y, lower=True, unit_diagonal=True, **back)
        axis = order.type.rank - 1
        place = b.iota(dtype=i32, shape=order.type.shape, axis=axis)
        return _rows_in_order(b, y, b.sort(order, place, axis=axis, num_keys=1, stable=True)[1])
    y = _rows_in_order(b, y, order)
    y = b.triangular_solve(factor, y, left_side=True, lower=True, unit_diagonal=True)
    return b.triangular_solve(factor, y, left_side=True, lower=False)


def _unpacked(b: Any, factor: Value, order: Value) -> tuple[Value, Value, Value]:
    """(P, L, U) from a packed factorisation and its row order."""
    m, n = factor.type.shape[-2:]
    k = dims.minimum(m, n)
    lower = cut(b, b.tril(factor, diagonal=-1), factor.type.rank - 1, 0, k)
    lower = b.add(lower, identity_like(b, lower))
    upper = cut(b, b.triu(factor, diagonal=0), factor.type.rank - 2, 0, k)
    wide = (*order.type.shape, order.type.shape[-1])
    last = len(wide) - 1
    columns = broadcast_to(b, reshape(b, order, (*order.type.shape[:-1], 1, order.type.shape[-1])), wide)
    permutation = b.eq(b.iota(dtype=i32, shape=wide, axis=last - 1), columns)
    return cast(b, permutation, factor.type.dtype), lower, upper


def _lu_unpack(b: Any, factor: Value, pivots: Value, data: bool = True, unpack: bool = True) -> tuple[Any, ...]:
    order = b.lu_pivots_to_permutation(b.sub(pivots, 1), permutation_size=factor.type.shape[-2])
    return _unpacked(b, factor, order)


def _pinv(b: Any, x: Value, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Value:
    """V diag(1/s) U^H with small singular values left out; ``hermitian`` reads the lower triangle only."""
    if hermitian:
        below = b.tril(x, diagonal=-1)
        diagonal = b.mul(x, identity_like(b, x))
        if x.type.dtype.is_complex:  # whose imaginary part counts as zero
            diagonal = cast(b, b.real(diagonal), x.type.dtype)
        x = b.add(b.add(below, diagonal), adjoint_of(b, below))
    s, u, vt = b.svd(x, full_matrices=False, compute_uv=True)
    real = s.type.dtype
    if rtol is None and atol is None:
        width = operand(b, dims.maximum(*x.type.shape[-2:]), real)
        rtol = b.mul(width, {"f32": 2.0**-23, "f64": 2.0**-52}[real.name])
    largest = keep(b, b.reduce_max(s, axes=(s.type.rank - 1,)), s, (s.type.rank - 1,))
    limit = full(b, 0.0, largest.type)
    for tolerance, unit in ((atol, None), (rtol, largest)):
        if tolerance is not None:
            part = operand(b, tolerance, real)
            part = reshape(b, part, (*part.type.shape, 1)) if part.type.rank else part
            part = broadcast_to(b, part, largest.type.shape)
            limit = b.max(limit, part if unit is None else b.mul(part, unit))
    used = b.gt(s, broadcast_to(b, limit, s.type.shape))
    inverse = b.select(used, full(b, 0.0, s.type), b.div(full(b, 1.0, s.type), s))
    v = adjoint_of(b, vt)
    scale = broadcast_to(
        b, reshape(b, cast(b, inverse, x.type.dtype), (*s.type.shape[:-1], 1, s.type.shape[-1])), v.type.shape
    )
    return b.matmul(b.mul(v, scale), adjoint_of(b, u))


def _matrix_power(b: Any, x: Value, n: int) -> Value:
    if n < 0:
        x, n = _inverse(b, x), -n
    result, base = None, x
    while n:
        if n & 1:
            result = base if result is None else b.matmul(result, base)
        n >>= 1
        if n:
            base = b.matmul(base, base)
    return identity_like(b, x) if result is None else result


def _matrix_norm(
    b: Any, x: Value, order: Any = "fro", axes: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Value:
    x = x if dtype is None else cast(b, x, dtype)
    rank = x.type.rank
    first, second = (axis_of(a, rank) for a in axes)
    if order == "fro":
        return vector_norm(b, x, 2.0, [first, second], keepdim)
    moved = move_axis(b, move_axis(b, x, first, rank - 1), second - (second > first), rank - 1)
    if order in (1, -1, float("inf"), -float("inf")):
        axis = rank - 2 if abs(order) == 1 else rank - 1
        sums = b.reduce_sum(b.abs(moved), axes=(axis,))
        result = (b.reduce_max if order > 0 else b.reduce_min)(sums, axes=(rank - 2,))
    else:
        s = _singular_values(b, moved)
        last = s.type.rank - 1
        if order == "nuc":
            result = b.reduce_sum(s, axes=(last,))
        else:
            result = (b.reduce_max if order > 0 else b.reduce_min)(s, axes=(last,))
    return keep(b, result, x, (first, second)) if keepdim else result


def _cross(b: Any, x: Value, y: Value, dim: int = -1) -> Value:
    x, y = arrange(b, x, y)
    axis = axis_of(dim, x.type.rank)

    def rolled(v: Value, by: int) -> Value:
        return b.concatenate(cut(b, v, axis, by, 3), cut(b, v, axis, 0, by), axis=axis)

    return b.sub(b.mul(rolled(x, 1), rolled(y, 2)), b.mul(rolled(x, 2), rolled(y, 1)))


def _matrix_exp(b: Any, x: Value) -> Value:
    """Scaling and squaring: Taylor's series of x / 2^s, whose norm is below a limit, squared s times."""
    if dims.equal(x.type.shape[-1], 0):
        return x
    rank = x.type.rank
    norm = b.reduce_max(b.reduce_sum(b.abs(x), axes=(rank - 2,)), axes=(rank - 2,))
    # s = max(0, ceil(log2(norm / limit))); a norm that is not a number squares nothing.
    limit = _LIMIT[norm.type.dtype.name]
    times = b.ceil(b.div(b.log(b.div(b.max(norm, full(b, limit, norm.type)), limit)), math.log(2.0)))
    times = b.select(b.eq(norm, norm), full(b, 0.0, norm.type), times)
    over = tuple(range(rank - 2))
    scale = b.exp(b.mul(times, -math.log(2.0)))
    small = b.mul(x, cast(b, b.broadcast_in_dim(scale, shape=x.type.shape, broadcast_dimensions=over), x.type.dtype))
    one = identity_like(b, x)
    total = one
    for k in range(_TAYLOR, 0, -1):  # Horner's rule: 1 + x/1 (1 + x/2 (1 + ...))
        total = b.add(one, b.mul(b.matmul(small, total), 1.0 / k))
    count = cast(b, times, i32)

    def more(c: Any, count: Value, k: Value, y: Value) -> Value:
        left = c.gt(count, c.broadcast_in_dim(k, shape=count.type.shape, broadcast_dimensions=()))
        return c.reduce_or(left, axes=tuple(range(count.type.rank)))

    def square(c: Any, count: Value, k: Value, y: Value) -> tuple[Value, Value]:
        left = c.gt(count, c.broadcast_in_dim(k, shape=count.type.shape, broadcast_dimensions=()))
        chosen = c.broadcast_in_dim(left, shape=y.type.shape, broadcast_dimensions=over)
        return c.add(k, 1), c.select(chosen, y, c.matmul(y, y))

    start = b.constant(0, i32)
    return b.while_(count, count, start, total, cond_consts=1, body_consts=1, cond=more, body=square)[1]


_TAYLOR = 18  # terms of the series, enough for norms up to these limits
_LIMIT = {"f32": 3.0, "f64": 1.0}


rows(
    {
        aten.linalg_matrix_exp: in_single(_matrix_exp),
        aten.matrix_exp: in_single(_matrix_exp),
        aten.linalg_cholesky: lambda b, x, upper=False: _cholesky(b, x, upper),
        **compat.operators_left(
            cholesky=_cholesky, qr=lambda b, x, some=True: _qr(b, x, "reduced" if some else "complete")
        ),
        aten.linalg_cholesky_ex: _cholesky_ex,
        aten.cholesky_solve: _cholesky_solve,
        aten.cholesky_inverse: lambda b, x, upper=False: _cholesky_solve(b, identity_like(b, x), x, upper),
        aten.linalg_solve_triangular: _solve_triangular,
        aten.triangular_solve: _triangular_solve,
        aten.linalg_solve: _solve_ex,
        aten.linalg_solve_ex: lambda b, a, y, **k: (_solve_ex(b, a, y, **k), full(b, 0, b.out[1])),
        aten.linalg_inv: _inverse,
        aten.inverse: _inverse,
        aten.linalg_tensorinv: _tensor_inverse,
        aten.linalg_inv_ex: lambda b, x, check_errors=False: (_inverse(b, x), full(b, 0, b.out[1])),
        aten.linalg_det: _determinant,
        aten.det: _determinant,
        aten._linalg_det: lambda b, x: (_determinant(b, x), None, None),
        aten._linalg_slogdet: lambda b, x: (*_log_determinant(b, x), None, None),
        aten._linalg_solve_ex: lambda b, a, y, **k: (_solve_ex(b, a, y, **k), None, None, full(b, 0, b.out[3])),
        aten.linalg_slogdet: _log_determinant,
        aten.slogdet: _log_determinant,
        aten.logdet: _logdet,
        aten.linalg_eigh: lambda b, x, UPLO="L": _eigh(b, x, UPLO),
        aten._linalg_eigh: _eigh,
        aten.linalg_eigvalsh: lambda b, x, UPLO="L": _eigh(b, x, UPLO)[0],
        aten.linalg_eig: _eig,
        aten.linalg_eigvals: lambda b, x: b.eig(x, left=False, right=False)[0],
        aten.linalg_svd: lambda b, x, full_matrices=True, **k: _svd(b, x, full_matrices),
        aten._linalg_svd: _svd,
        aten.linalg_svdvals: _singular_values,
        aten.linalg_qr: _qr,
        aten.linalg_lu_factor: _lu_factor,
        aten.linalg_lu_factor_ex: _lu_factor,
        aten.linalg_lu: _lu,
        aten.linalg_householder_product: lambda b, a, tau: b.householder_product(a, tau),
        aten.orgqr: lambda b, a, tau: b.householder_product(a, tau),
        aten.geqrf: lambda b, x: tuple(b.geqrf(x)),
        aten.linalg_lu_solve: _lu_solve,
        aten.lu_unpack: _lu_unpack,
        aten.linalg_pinv.atol_rtol_tensor: _pinv,
        aten.linalg_pinv.atol_rtol_float: _pinv,
        aten.ormqr: lambda b, a, tau, c, left=True, transpose=False: b.ormqr(a, tau, c, left=left, transpose=transpose),
        aten.linalg_matrix_power: _matrix_power,
        aten.matrix_power: _matrix_power,
        aten.linalg_matrix_norm: _matrix_norm,
        aten.linalg_cross: lambda b, x, y, *, dim=-1: _cross(b, x, y, dim),
        aten.trace: lambda b, x: _trace(b, x),
    }
)


def _trace(b: Any, x: Value) -> Value:
    x = cast(b, x, b.dtype)
    same = b.eq(*(b.iota(dtype=i64, shape=x.type.shape, axis=a) for a in (0, 1)))
    return b.reduce_sum(b.select(same, full(b, 0, x.type), x), axes=(0, 1))


# -- Fourier -----------------------------------------------------------------------------------------


def _scale(b: Any, x: Value, axes: Sequence[int], normalization: int, sizes: Sequence[Any], inverse: bool) -> Value:
    """torch's normalisation (0: none, 1: by sqrt(n), 2: by n) over what the core op did (1/n when inverse)."""
    n = operand(b, dims.product(sizes[a] for a in axes), x.type.dtype.real)
    power = {0: 0.0, 1: -0.5, 2: -1.0}[normalization] + (1.0 if inverse else 0.0)
    if power == 0.0:
        return x
    factor = b.pow(n, b.constant(power, n.type.dtype))
    return b.mul(x, broadcast_to(b, cast(b, factor, x.type.dtype), x.type.shape))


def _over_axes(b: Any, x: Value, axes: Sequence[int], kind: str, lengths: Sequence[Any]) -> Value:
    """The transform over any axes: they are moved to the end and back; more than three in steps."""
    rank = x.type.rank
    order = [a for a in range(rank) if a not in axes] + list(axes)
    moved = b.transpose(x, permutation=tuple(order)) if order != list(range(rank)) else x
    moved = b.fft(moved, kind=kind, lengths=tuple(lengths))
    back = tuple(order.index(a) for a in range(rank))
    return b.transpose(moved, permutation=back) if back != tuple(range(rank)) else moved


@row(aten._fft_c2c)
def fft_c2c(b: Any, x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Value:
    axes = [axis_of(a, x.type.rank) for a in dim]
    if not axes:
        return x
    kind = "fft" if forward else "ifft"
    y = x
    for start in range(0, len(axes), 3):
        part = axes[start : start + 3]
        y = _over_axes(b, y, part, kind, [x.type.shape[a] for a in part])
    return _scale(b, y, axes, normalization, x.type.shape, not forward)


@row(aten._fft_r2c)
def fft_r2c(b: Any, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    axes = [axis_of(a, x.type.rank) for a in dim]
    if not onesided:
        wide = cast(b, x, c128 if x.type.dtype.name == "f64" else c64)
        return fft_c2c(b, wide, dim, normalization, True)
    y = _over_axes(b, x, axes[-1:], "rfft", [x.type.shape[axes[-1]]])
    if len(axes) > 1:
        y = fft_c2c(b, y, axes[:-1], 0, True)
    return _scale(b, y, axes, normalization, x.type.shape, False)


@row(aten._fft_c2r)
def fft_c2r(b: Any, x: Value, dim: Sequence[int], normalization: int, last_size: Any) -> Value:
    axes = [axis_of(a, x.type.rank) for a in dim]
    y = fft_c2c(b, x, axes[:-1], 0, False) if len(axes) > 1 else x
    y = _over_axes(b, y, axes[-1:], "irfft", [last_size])
    # _fft_c2c left its part unscaled, irfft divided by the last length: undo that, then apply what was asked.
    y = _scale(b, y, axes[-1:], 0, y.type.shape, True)
    return _scale(b, y, axes, normalization, y.type.shape, False)
