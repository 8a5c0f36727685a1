"""Linear algebra on matrices in the last two axes, for each place along the leading ones.

Factorisations that are not unique are pinned by what LAPACK computes, up to the signs and phases of
vectors where its own versions differ.
"""

from __future__ import annotations

from .. import dims
from ..dims import Dim
from ..dtypes import COMPLEX, DType, c64, c128, f32, f64, i32
from ..opdef import Attr, family
from ..types import TensorType, same_shape
from .shapes import at_least_zero, at_most, refuse

INEXACT = (f32, f64, c64, c128)
Result = TensorType | tuple[TensorType, ...]


_op = family("linalg", "linalg")


def _matrix(name: str, x: TensorType) -> tuple[tuple[Dim, ...], Dim, Dim]:
    """Batch shape, rows and columns; constraints m1 and m2, which all ops here share."""
    if x.dtype not in INEXACT:
        refuse(f"{name}_m1", f"takes f32, f64, c64 or c128, not {x.dtype}; convert first")
    if len(x.shape) < 2:
        refuse(f"{name}_m2", f"takes matrices in the last two axes, not {x}")
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def _square(name: str, x: TensorType) -> tuple[tuple[Dim, ...], Dim]:
    """Batch shape and size; constraint m3 on top of those of any matrix."""
    batch, m, n = _matrix(name, x)
    if not dims.compatible(m, n):
        refuse(f"{name}_m3", f"takes square matrices, not {x}")
    return batch, n


def _shaped(label: str, what: str, t: TensorType, kind: DType, shape: tuple[Dim, ...]) -> None:
    if t.dtype is not kind or not same_shape(t.shape, shape):
        refuse(label, f"{what} must be {TensorType(kind, shape)}, not {t}")


def _complex(kind: DType) -> DType:
    return {f32: c64, f64: c128}.get(kind, kind)


# -- triangular factors and solves ---------------------------------------------------------------


def _cholesky(x: TensorType) -> TensorType:
    _square("cholesky", x)
    return x


cholesky = _op(
    "cholesky",
    "x",
    _cholesky,
    "Lower triangular L with L L^H = x and a positive diagonal; zeros above. Only the lower triangle of x is read. "
    "A matrix that is not positive definite gives NaN on and below the diagonal; its neighbours in the batch are "
    "not affected.",
)


def _triangular_solve(
    a: TensorType,
    b: TensorType,
    left_side: bool,
    lower: bool,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> TensorType:
    batch, n = _square("triangular_solve", a)
    if b.dtype is not a.dtype:
        refuse("triangular_solve_c1", f"a and b must share a dtype: {a} and {b}")
    if len(b.shape) != len(a.shape) or not same_shape(b.shape[:-2], batch):
        refuse("triangular_solve_c2", f"a and b must share leading axes: {a} and {b}")
    if not dims.compatible(b.shape[-2 if left_side else -1], n):
        refuse("triangular_solve_c3", f"{'rows' if left_side else 'columns'} of b must fit a: {a} and {b}")
    return b


triangular_solve = _op(
    "triangular_solve",
    "a, b",
    _triangular_solve,
    "x with op(a) x = b (left_side) or x op(a) = b, where op transposes and conjugates as asked. Only the triangle "
    "named by `lower` (of a itself) is read, and with unit_diagonal not its diagonal either. A zero on the diagonal "
    "gives infinities and NaN.",
    {
        "left_side": Attr("bool", doc="a stands on the left of x"),
        "lower": Attr("bool", doc="read the lower triangle of a, or the upper"),
        "transpose_a": Attr("bool", False, "transpose a"),
        "conjugate_a": Attr("bool", False, "conjugate a"),
        "unit_diagonal": Attr("bool", False, "take the diagonal of a as ones"),
    },
)


def _lu(x: TensorType) -> Result:
    batch, m, n = _matrix("lu", x)
    return x, TensorType(i32, (*batch, dims.minimum(m, n))), TensorType(i32, (*batch, m))


lu = _op(
    "lu",
    "x",
    _lu,
    "LU factorisation with partial pivoting: rows of x taken in the order of the permutation equal L U. The first "
    "result packs both, L below the diagonal (its own diagonal is ones) and U on and above it. pivots[i] is the row "
    "that step i swapped with row i. A column without a pivot leaves its zeros.",
)


def _lu_pivots_to_permutation(pivots: TensorType, permutation_size: Dim) -> TensorType:
    if not pivots.dtype.is_integer:
        refuse("lu_pivots_to_permutation_c1", f"pivots must be integers, not {pivots}")
    if not pivots.shape or not at_most(pivots.shape[-1], permutation_size):
        refuse("lu_pivots_to_permutation_c2", f"{pivots} must hold at most {dims.to_text(permutation_size)} pivots")
    return pivots.with_(shape=(*pivots.shape[:-1], permutation_size))


lu_pivots_to_permutation = _op(
    "lu_pivots_to_permutation",
    "pivots",
    _lu_pivots_to_permutation,
    "0, 1, 2, ... after swapping elements i and pivots[i] for i = 0, 1, ... in turn.",
    {"permutation_size": Attr("dim", doc="length of the permutation")},
)


def _cholesky_update(r: TensorType, w: TensorType) -> TensorType:
    batch, n = _square("cholesky_update", r)
    _shaped("cholesky_update_c1", "w", w, r.dtype, (*batch, n))
    if r.dtype.kind == COMPLEX:
        refuse("cholesky_update_c2", f"takes f32 or f64, not {r.dtype}")
    return r


cholesky_update = _op(
    "cholesky_update",
    "r, w",
    _cholesky_update,
    "Upper triangular R' with R'^T R' = R^T R + w w^T, by Givens rotations; the diagonal may be negative where that "
    "of R is.",
)


def _tridiagonal_solve(dl: TensorType, d: TensorType, du: TensorType, b: TensorType) -> TensorType:
    batch, n, _ = _matrix("tridiagonal_solve", b)
    for what, t in (("dl", dl), ("d", d), ("du", du)):
        _shaped("tridiagonal_solve_c1", what, t, b.dtype, (*batch, n))
    return b


tridiagonal_solve = _op(
    "tridiagonal_solve",
    "dl, d, du, b",
    _tridiagonal_solve,
    "x with T x = b, where T has diagonal d, dl[i] left of d[i] (dl[0] is not read) and du[i] right of d[i] (the "
    "last is not read). Elimination swaps rows where that is needed for accuracy.",
)

# -- orthogonal factors --------------------------------------------------------------------------


def _qr(x: TensorType, full_matrices: bool) -> Result:
    batch, m, n = _matrix("qr", x)
    k = m if full_matrices else dims.minimum(m, n)
    return x.with_(shape=(*batch, m, k)), x.with_(shape=(*batch, k, n))


qr = _op(
    "qr",
    "x",
    _qr,
    "Q with orthonormal columns and upper triangular R, x = Q R, as LAPACK's Householder reflectors give them (the "
    "diagonal of R may be negative). With full_matrices Q is square.",
    {"full_matrices": Attr("bool", doc="all columns of Q, or as many as the smaller side of x")},
)


def _geqrf(x: TensorType) -> Result:
    batch, m, n = _matrix("geqrf", x)
    return x, x.with_(shape=(*batch, dims.minimum(m, n)))


geqrf = _op(
    "geqrf",
    "x",
    _geqrf,
    "QR as reflectors: R on and above the diagonal; below it, in column i, the tail of a vector v (whose element i "
    "is 1 and those before are 0) with reflector H_i = I - taus[i] v v^H, and Q = H_0 H_1 ...",
)


def _householder_product(a: TensorType, taus: TensorType) -> TensorType:
    _, m, n = _matrix("householder_product", a)
    if not at_most(n, m):
        refuse("householder_product_c1", f"a must not have more columns than rows: {a}")
    _taus("householder_product_c2", a, taus)
    return a


def _taus(label: str, a: TensorType, taus: TensorType) -> None:
    if taus.dtype is not a.dtype or len(taus.shape) != len(a.shape) - 1:
        refuse(label, f"taus must have the dtype of a and one axis fewer: {a} and {taus}")
    if not same_shape(taus.shape[:-1], a.shape[:-2]) or not at_most(taus.shape[-1], dims.minimum(*a.shape[-2:])):
        refuse(
            label, f"taus must have the leading axes of a, and at most one element for each reflector: {a} and {taus}"
        )


householder_product = _op(
    "householder_product",
    "a, taus",
    _householder_product,
    "The first columns (as many as a has) of H_0 H_1 ..., for reflectors held as geqrf gives them.",
)


def _ormqr(a: TensorType, taus: TensorType, c: TensorType, left: bool = True, transpose: bool = False) -> TensorType:
    batch, m, _ = _matrix("ormqr", a)
    _taus("ormqr_c1", a, taus)
    if c.dtype is not a.dtype or len(c.shape) != len(a.shape) or not same_shape(c.shape[:-2], batch):
        refuse("ormqr_c2", f"c must have the dtype and the leading axes of a: {a} and {c}")
    if not dims.compatible(c.shape[-2 if left else -1], m):
        refuse("ormqr_c3", f"{'rows' if left else 'columns'} of c must be as many as rows of a: {a} and {c}")
    return c


ormqr = _op(
    "ormqr",
    "a, taus, c",
    _ormqr,
    "Q c (left) or c Q for the square Q = H_0 H_1 ... of geqrf, or with Q^H instead of Q.",
    {
        "left": Attr("bool", True, "Q stands on the left of c"),
        "transpose": Attr("bool", False, "use Q^H"),
    },
)


def _hessenberg(x: TensorType) -> Result:
    batch, n = _square("hessenberg", x)
    return x, x.with_(shape=(*batch, at_least_zero(dims.normal(n - 1))))


hessenberg = _op(
    "hessenberg",
    "x",
    _hessenberg,
    "Q^H x Q on and above the first subdiagonal; below it, in column i, the tail of the vector of reflector i "
    "(whose element i + 1 is 1), as LAPACK's gehrd.",
)


def _tridiagonal(x: TensorType, lower: bool) -> Result:
    batch, n = _square("tridiagonal", x)
    if n == 0:
        refuse("tridiagonal_c1", "takes matrices of at least one row")
    less = (*batch, dims.normal(n - 1))
    return x, TensorType(x.dtype.real, (*batch, n)), TensorType(x.dtype.real, less), x.with_(shape=less)


tridiagonal = _op(
    "tridiagonal",
    "x",
    _tridiagonal,
    "Hermitian x made tridiagonal: x = Q T Q^H. Gives the packed matrix, the diagonal of T, its off-diagonal, and the "
    "taus of the reflectors, as LAPACK's sytrd/hetrd. Only the triangle named by `lower` is read; the packed matrix "
    "holds T and the reflectors in that triangle, the other one is that of x.",
    {"lower": Attr("bool", doc="read the lower triangle, or the upper")},
)

# -- eigenvalues and singular values -------------------------------------------------------------


def _eigh(x: TensorType, lower: bool = True) -> Result:
    batch, n = _square("eigh", x)
    return x, TensorType(x.dtype.real, (*batch, n))


eigh = _op(
    "eigh",
    "x",
    _eigh,
    "Orthonormal eigenvectors (columns) and eigenvalues, rising, of a Hermitian matrix, of which one triangle is "
    "read. The sign or phase of a vector, and the basis for equal eigenvalues, are not told.",
    {"lower": Attr("bool", True, "read the lower triangle, or the upper")},
)


def _eig(x: TensorType, left: bool, right: bool) -> Result:
    batch, n = _square("eig", x)
    kind = _complex(x.dtype)
    return (TensorType(kind, (*batch, n)), *[TensorType(kind, x.shape)] * (left + right))


eig = _op(
    "eig",
    "x",
    _eig,
    "Eigenvalues of any square matrix, then left eigenvectors (vl^H x = w vl^H) and right ones (x vr = vr w) as "
    "asked, in columns of length 1. All complex; the order of eigenvalues and the phase of a vector are not told. A "
    "matrix with a NaN or an infinity gives NaN.",
    {"left": Attr("bool", doc="give left eigenvectors"), "right": Attr("bool", doc="give right eigenvectors")},
    "tuple",
)


def _svd(x: TensorType, full_matrices: bool, compute_uv: bool) -> Result:
    batch, m, n = _matrix("svd", x)
    k = dims.minimum(m, n)
    s = TensorType(x.dtype.real, (*batch, k))
    if not compute_uv:
        return (s,)
    rows, columns = (m, n) if full_matrices else (k, k)
    return s, x.with_(shape=(*batch, m, rows)), x.with_(shape=(*batch, columns, n))


svd = _op(
    "svd",
    "x",
    _svd,
    "Singular values, falling, then U and V^H as asked, x = U diag(s) V^H. Signs or phases of vectors that go "
    "together, and the bases for equal values, are not told.",
    {
        "full_matrices": Attr("bool", doc="square U and V^H, or only the vectors that belong to singular values"),
        "compute_uv": Attr("bool", doc="give U and V^H"),
    },
    "tuple",
)


def _schur(x: TensorType, vectors: bool = True) -> Result:
    _square("schur", x)
    return (x, x) if vectors else (x,)


schur = _op(
    "schur",
    "x",
    _schur,
    "Schur form x = Q T Q^H with unitary Q: T is upper triangular for a complex x; for a real one it may have 2 by 2 "
    "blocks on its diagonal, each with a conjugate pair of eigenvalues and equal diagonal elements. The order of "
    "eigenvalues is not told.",
    {"vectors": Attr("bool", True, "give Q too")},
    "tuple",
)
