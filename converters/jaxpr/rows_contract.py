"""Lowering rows of contractions, sorting and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from unigraph.dtypes import DType, dtype
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops import sort as sort_ops

from . import compat
from .lower import JaxprBuilder, Row


def _common(b: JaxprBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """Operands of a mixed product in their common type."""
    if x.type.dtype is y.type.dtype:
        return x, y
    wide = compat.element_type(jnp.promote_types(x.type.dtype.numpy, y.type.dtype.numpy))
    return b.cast(x, wide), b.cast(y, wide)


def _out(b: JaxprBuilder, eqn: Any, x: Value) -> DType | None:
    out = b.type_of(eqn.outvars[0]).dtype
    return None if out is x.type.dtype else out


def _dot_general(b: JaxprBuilder, eqn: Any, x: Value, y: Value) -> Value:
    (lhs, rhs), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    wanted = b.type_of(eqn.outvars[0]).dtype
    if x.type.dtype is not y.type.dtype and wanted.bits >= 16:
        # As JAX lowers a mixed product on CPU and GPU.
        x, y = b.cast(x, wanted), b.cast(y, wanted)
    x, y = _common(b, x, y)
    if wanted.is_integer and wanted is not x.type.dtype and wanted.bits <= x.type.dtype.bits:
        # Integers wrap, so a narrow result needs only narrow operands.
        x, y = b.cast(x, wanted), b.cast(y, wanted)
    narrow = wanted.is_inexact and wanted.bits < x.type.dtype.bits
    out = b.op(
        "dot_general",
        x,
        y,
        lhs_contracting=lhs,
        rhs_contracting=rhs,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        out_dtype=None if narrow else _out(b, eqn, x),
    )
    return b.cast(out, wanted)


def _conv(b: JaxprBuilder, eqn: Any, x: Value, w: Value) -> Value:
    p = eqn.params
    numbers = p["dimension_numbers"]
    x, w = _common(b, x, w)
    return b.op(
        "conv_general",
        x,
        w,
        strides=p["window_strides"],
        low=[c[0] for c in p["padding"]],
        high=[c[1] for c in p["padding"]],
        lhs_dilation=p["lhs_dilation"],
        rhs_dilation=p["rhs_dilation"],
        lhs_spec=numbers.lhs_spec,
        rhs_spec=numbers.rhs_spec,
        out_spec=numbers.out_spec,
        groups=p["feature_group_count"],
        batch_groups=p["batch_group_count"],
        out_dtype=_out(b, eqn, x),
    )


def _ragged_dot(b: JaxprBuilder, eqn: Any, x: Value, w: Value, counts: Value, *offset: Value) -> Value:
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (lhs, rhs), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    plain = tuple(lhs) == (1,) and tuple(rhs) == (1,) and not lhs_batch and not rhs_batch
    plain = plain and tuple(numbers.lhs_ragged_dimensions) == (0,) and tuple(numbers.rhs_group_dimensions) == (0,)
    if not plain or offset or x.type.rank != 2 or w.type.rank != 3 or eqn.params.get("group_offset") is not None:
        raise Unsupported(
            "ragged_dot_general beyond [m,k] x [groups,k,n] with ragged rows",
            "transpose the operands to that form and call jax.lax.ragged_dot",
        )
    x, w = _common(b, x, w)
    return b.op("ragged_dot", x, w, counts, out_dtype=_out(b, eqn, x))


def _sort(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    p = eqn.params
    axis = p["dimension"]
    return b.run(sort_ops.sort, values, (), axis=axis, num_keys=p["num_keys"], stable=bool(p["is_stable"]))


def _top_k(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    axis = eqn.params.get("axis", -1) % x.type.rank
    kind = x.type.dtype
    if kind is dtype("bool"):
        x = b.cast(x, dtype("u8"))
    values, indices = b.op("top_k", x, k=compat.dim(eqn.params["k"]), axis=axis)
    return b.cast(values, kind), b.cast(indices, b.type_of(eqn.outvars[1]).dtype)


def _approx_top_k(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    """Exact: the approximation promises no more than a subset of this."""
    axis = eqn.params["reduction_dimension"] % x.type.rank
    size = b.type_of(eqn.outvars[0]).shape[axis]
    if eqn.params["is_max_k"]:
        values, indices = b.op("top_k", x, k=size, axis=axis)
        return values, indices
    count = b.op("iota", dtype="i32", shape=x.type.shape, axis=axis)
    both = b.run(sort_ops.sort, (x, count), (), axis=axis, num_keys=1, stable=True)
    limit = [size if i == axis else d for i, d in enumerate(x.type.shape)]
    return tuple(b.op("slice", v, start=[0] * x.type.rank, limit=limit) for v in both)


def _fft(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    kind = getattr(eqn.params["fft_type"], "name", str(eqn.params["fft_type"])).lower().removeprefix("fft_type.")
    return b.op("fft", x, kind=kind, lengths=compat.dims(eqn.params["fft_lengths"]))


def _cholesky(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.op("cholesky", x)


def _triangular_solve(b: JaxprBuilder, eqn: Any, a: Value, rhs: Value) -> Value:
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    narrow = a.type.dtype if a.type.dtype.bits < 32 else None  # LAPACK starts at f32
    if narrow:
        a, rhs = b.cast(a, dtype("f32")), b.cast(rhs, dtype("f32"))
    x = b.op("triangular_solve", a, rhs, **{n: bool(eqn.params[n]) for n in names})
    return b.cast(x, narrow or x.type.dtype)


def _plain(name: str, **read: str) -> Row:
    """A row whose op takes the same operands, and attributes under the given parameter names."""

    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> Any:
        return b.op(name, *values, **{attr: eqn.params[param] for attr, param in read.items()})

    return row


def _qr(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    if eqn.params.get("pivoting"):
        raise Unsupported("qr with column pivoting", "use pivoting=False")
    return b.op("qr", x, full_matrices=bool(eqn.params["full_matrices"]))


def _whole(eqn: Any, what: str) -> None:
    if eqn.params.get("subset_by_index") not in (None, (0, None)):
        rank = min(int(d) for d in eqn.invars[0].aval.shape[-2:])
        if tuple(eqn.params["subset_by_index"]) != (0, rank):
            raise Unsupported(f"{what} of a part of the spectrum", "compute all of it and slice")


def _eigh(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    _whole(eqn, "eigh")
    return b.op("eigh", x, lower=bool(eqn.params["lower"]))


def _svd(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    _whole(eqn, "svd")
    p = eqn.params
    out = b.op("svd", x, full_matrices=bool(p["full_matrices"]), compute_uv=bool(p["compute_uv"]))
    return out if isinstance(out, tuple) else (out,)


def _eig(b: JaxprBuilder, eqn: Any, x: Value) -> Any:
    p = eqn.params
    return b.op("eig", x, left=bool(p["compute_left_eigenvectors"]), right=bool(p["compute_right_eigenvectors"]))


def _schur(b: JaxprBuilder, eqn: Any, x: Value) -> Any:
    if eqn.params.get("sort_eig_vals"):
        raise Unsupported("schur with sorted eigenvalues", "sort after the decomposition")
    return b.op("schur", x, vectors=bool(eqn.params["compute_schur_vectors"]))


def _symmetric_product(b: JaxprBuilder, eqn: Any, a: Value, c: Value) -> Value:
    """alpha a a^T + beta c."""
    p = eqn.params
    rank = a.type.rank
    batch = tuple(range(rank - 2))
    last = (rank - 1,)
    product = b.op("dot_general", a, a, lhs_contracting=last, rhs_contracting=last, lhs_batch=batch, rhs_batch=batch)
    scaled = b.op("mul", product, b.full_like(product, p["alpha"]))
    return b.op("add", scaled, b.op("mul", c, b.full_like(c, p["beta"])))


ROWS: Mapping[str, Row] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _conv,
    "ragged_dot_general": _ragged_dot,
    "ragged_dot": _ragged_dot,
    "sort": _sort,
    "top_k": _top_k,
    "approx_top_k": _approx_top_k,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu": _plain("lu"),
    "lu_pivots_to_permutation": _plain("lu_pivots_to_permutation", permutation_size="permutation_size"),
    "qr": _qr,
    "geqrf": _plain("geqrf"),
    "householder_product": _plain("householder_product"),
    "ormqr": _plain("ormqr", left="left", transpose="transpose"),
    "eigh": _eigh,
    "eig": _eig,
    "svd": _svd,
    "schur": _schur,
    "hessenberg": _plain("hessenberg"),
    "tridiagonal": _plain("tridiagonal", lower="lower"),
    "tridiagonal_solve": _plain("tridiagonal_solve"),
    "cholesky_update": _plain("cholesky_update"),
    "symmetric_product": _symmetric_product,
}
