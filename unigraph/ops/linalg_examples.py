"""Runnable examples of linear algebra; edges are told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..opdef import Example, array, example

NAN = float("nan")
_FAILED = [[NAN, 0], [NAN, NAN]]
_ALL = ("f32", "f64", "c64", "c128")


def _values(dtype: str, *shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    x = (np.arange(count) * 7 % 11 - 5) / 4 + np.arange(count) / 16
    return array(dtype, (x + (1j * x[::-1] if dtype[0] == "c" else 0)).reshape(shape))


def _definite(dtype: str, *batch: int) -> np.ndarray:
    x = _values(dtype, *batch, 3, 3)
    return (x @ x.conj().swapaxes(-1, -2) + 3 * np.eye(3)).astype(x.dtype)


def _cholesky() -> list[Example]:
    good, bad = [[4, 9], [2, 5]], [[1, 2], [2, 1]]
    lower = [[2, 0], [1, 2]]
    return [
        example(array("f32", good), out=array("f32", lower), note="the upper triangle is not read"),
        example(array("f32", bad), out=array("f32", _FAILED), note="not positive definite"),
        example(array("f64", [good, bad]), out=array("f64", [lower, _FAILED]), note="its neighbour is well"),
        example(array("f32", [[[9]]]), out=array("f32", [[[3]]])),
        example(array("f32", np.zeros((0, 3, 3))), out=array("f32", np.zeros((0, 3, 3))), note="empty batch"),
        *[example(_definite(d, 2)) for d in _ALL],
    ]


def _triangular_solve() -> list[Example]:
    a, b = array("f32", [[2, 7], [1, 4]]), array("f32", [[2], [5]])
    flags = (False, True)
    big = _values("f64", 20, 20) / 20 + 2 * np.eye(20)
    return [
        example(a, b, out=array("f32", [[1], [1]]), left_side=True, lower=True),
        example(a, b, out=array("f32", [[2], [3]]), left_side=True, lower=True, unit_diagonal=True),
        *[
            example(
                _values(d, 2, 3, 3) + array(d, 2 * np.eye(3)),
                _values(d, 2, 3, 3),
                left_side=left,
                lower=lower,
                transpose_a=turned,
                conjugate_a=d == "c64",
            )
            for d in ("f64", "c64")
            for left in flags
            for lower in flags
            for turned in flags
        ],
        example(big, _values("f64", 20, 2), left_side=True, lower=False, note="larger than a block"),
    ]


def _lu() -> list[Example]:
    x = array("f32", [[1, 2], [4, 4]])
    return [
        example(x, out=(array("f32", [[4, 4], [0.25, 1]]), array("i32", [1, 1]), array("i32", [1, 0]))),
        example(
            array("f32", np.zeros((2, 2))),
            out=(array("f32", np.zeros((2, 2))), array("i32", [0, 1]), array("i32", [0, 1])),
            note="singular",
        ),
        example(array("f64", np.sin(np.arange(24) ** 2).reshape(2, 4, 3)), note="tall"),
        example(_values("f64", 3, 4), note="wide"),
        *[example(_values(d, 3, 3)) for d in _ALL],
    ]


def _permutation() -> list[Example]:
    return [
        example(array("i32", [1, 2, 2]), out=array("i32", [1, 2, 0]), permutation_size=3),
        example(array("i32", [[2], [0]]), out=array("i32", [[2, 1, 0], [0, 1, 2]]), permutation_size=3),
    ]


def _cholesky_update() -> list[Example]:
    return [
        example(array("f32", [[3]]), array("f32", [4]), out=array("f32", [[5]])),
        example(array("f64", [[2, 1], [0, 1]]), array("f64", [0, 0]), out=array("f64", [[2, 1], [0, 1]])),
        example(array("f64", np.triu(_values("f64", 3, 3)) + 3 * np.eye(3)), _values("f64", 3)),
    ]


def _tridiagonal_solve() -> list[Example]:
    def one(d: str) -> Example:
        diagonals = [_values(d, 2, 4) + array(d, shift) for shift in (0, 4, 0)]
        return example(*diagonals, _values(d, 2, 4, 3))

    told = [array("f32", v) for v in ([9, 1, 1], [2, 2, 2], [1, 1, 9], [[3], [4], [3]])]
    return [
        example(*told, out=array("f32", [[1], [1], [1]]), note="the two corners are not read"),
        *[one(d) for d in ("f32", "f64")],
    ]


def _full_rank(dtype: str, *shape: int) -> np.ndarray:
    """Data whose reflectors are well determined: in a matrix that lacks rank the last is rounding noise."""
    return _values(dtype, *shape) + array(dtype, 2 * np.eye(shape[-2], shape[-1]))


def _qr() -> list[Example]:
    tall, wide = _full_rank("f64", 2, 4, 3), _full_rank("f64", 3, 4)
    return [example(x, full_matrices=f) for x in (tall, wide) for f in (False, True)] + [
        example(_full_rank(d, 3, 3), full_matrices=False) for d in ("f32", "c128")
    ]


def _reflectors(dtype: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """A packed matrix and the taus that make its reflectors unitary."""
    a = _values(dtype, m, n)
    taus = [2 / (1 + np.sum(np.abs(a[i + 1 :, i]) ** 2)) for i in range(k)]
    return a, array(dtype, taus)


def _geqrf() -> list[Example]:
    return [
        example(_full_rank(d, *s)) for d, s in (("f64", (2, 4, 3)), ("f64", (3, 4)), ("f32", (3, 3)), ("c128", (4, 3)))
    ]


def _householder_product() -> list[Example]:
    return [
        example(array("f32", [[5], [0]]), array("f32", [2]), out=array("f32", [[-1], [0]])),
        *[example(*_reflectors(d, 4, 3, k)) for d in ("f64", "c128") for k in (3, 2)],
    ]


def _ormqr() -> list[Example]:
    return [
        example(*_reflectors(d, 4, 3, 3), _values(d, *((4, 2) if left else (2, 4))), left=left, transpose=turned)
        for d in ("f64", "c128")
        for left in (True, False)
        for turned in (False, True)
    ]


def _eigh() -> list[Example]:
    return [
        example(array("f32", [[1, 9], [0, 2]]), out=(array("f32", [[1, 0], [0, 1]]), array("f32", [1, 2])), lower=True),
    ]


def _eig() -> list[Example]:
    x = array("f64", [[0, 1], [-1, 0]])
    values = [1j, -1j]
    return [
        example(
            array("f32", [[3]]),
            out=(array("c64", [3]), array("c64", [[1]]), array("c64", [[1]])),
            left=True,
            right=True,
        ),
        example(x, out=array("c128", values), left=False, right=False, note="values alone"),
        example(array("f64", [[NAN, 0], [0, 1]]), out=array("c128", [complex(NAN, NAN)] * 2), left=False, right=False),
    ]


def _svd() -> list[Example]:
    return [
        example(array("f32", [[3, 0], [0, -4]]), out=array("f32", [4, 3]), full_matrices=False, compute_uv=False),
        *[example(_values(d, 2, 3, 4), full_matrices=False, compute_uv=False) for d in _ALL],
    ]


def _schur() -> list[Example]:
    upper = [[1, 2], [0, 3]]
    return [
        example(array(d, upper), out=(array(d, upper), array(d, np.eye(2))), note="triangular already")
        for d in ("f64", "c128")
    ]


def _hessenberg() -> list[Example]:
    return [example(_values(d, *s)) for d, s in (("f64", (2, 4, 4)), ("c128", (4, 4)), ("f32", (3, 3)))]


def _tridiagonal() -> list[Example]:
    return [example(_definite(d, 2), lower=lower) for d in ("f64", "c128") for lower in (True, False)]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu": _lu,
    "lu_pivots_to_permutation": _permutation,
    "cholesky_update": _cholesky_update,
    "tridiagonal_solve": _tridiagonal_solve,
    "qr": _qr,
    "geqrf": _geqrf,
    "householder_product": _householder_product,
    "ormqr": _ormqr,
    "eigh": _eigh,
    "eig": _eig,
    "svd": _svd,
    "schur": _schur,
    "hessenberg": _hessenberg,
    "tridiagonal": _tridiagonal,
}
