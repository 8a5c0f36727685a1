"""JAX's own primitive harnesses: each captured, saved, loaded, run on an engine, held against the jitted original.

A case runs in the x64 mode that its dtypes need. Arguments come from a seeded generator. One capture
serves all engines of a case when the cases arrive engine by engine.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

import unigraph as ug
from unigraph import dtypes
from unigraph.tolerances import difference, tolerance

from . import NotApplicable

ENGINES = ("torch", "jax", "numpy", "onnx")

# Factors on the tolerance of one operation, by group, with the reason.
SCALES: Mapping[str, tuple[float, str]] = {
    "cumsum": (20, "JAX rounds 9 partial sums up to 4 in size to half precision; here they are kept in single"),
    "cumlogsumexp": (20, "likewise"),
    "reduce_window_add": (4, "likewise, 4 terms"),
    "triangular_solve": (4, "JAX solves 4 equations in half precision; here single precision is rounded once"),
    "conv_general_dilated": (10, "an element is a sum of up to 100 products, which may cancel"),
    "igamma": (10, "a series of up to 2000 terms"),
    "igammac": (10, "a continued fraction of up to 2000 terms"),
    "lgamma": (4, "values near the roots at 1 and 2 are differences of numbers near 1"),
}

_NUMBERS = (bool, int, float, complex)
_WIDE = re.compile(r"(?:float|int)64|complex128")


@cache
def _harnesses() -> dict[str, Any]:
    jax.config.update("jax_enable_x64", True)  # else the module leaves out whatever has 64 bits
    try:
        from jax._src.internal_test_util import test_harnesses
    finally:
        jax.config.update("jax_enable_x64", False)
    return {f"{h.group_name}/{h.name}": h for h in test_harnesses.all_harnesses if h.filter("cpu")}


def cases(per_group: int | None = None) -> Iterator[str]:
    """Names of cases, ``group/name``: all, or so many of each of the 132 groups (always the same ones)."""
    groups: dict[str, list[str]] = {}
    for name in _harnesses():
        groups.setdefault(group(name), []).append(name)
    for _, names in sorted(groups.items()):
        yield from sorted(sorted(names, key=lambda n: hashlib.sha1(n.encode()).digest())[:per_group])


def group(case: str) -> str:
    """The primitive a case is about."""
    return case.partition("/")[0]


def run(case: str, engine: str) -> str | None:
    """Why a case fails, or None. Whatever the importer or engine raises is raised; NotApplicable where
    JAX itself fails."""
    graph, arguments, expected = _captured(case)
    if isinstance(graph, Exception):
        raise graph
    actual = jax.tree_util.tree_leaves(ug.compile(graph, engine)(*arguments))
    return judge(case, arguments, [np.asarray(x) for x in actual], expected)


@lru_cache(maxsize=2)
def _captured(case: str) -> tuple[Any, list[Any], list[np.ndarray]]:
    """The graph as loaded from its file (or what kept it from being made), arguments, and JAX's results."""
    harness = _harnesses()[case]
    wide = bool(_WIDE.search(case)) or np.dtype(harness.dtype).name in ("float64", "complex128", "int64", "uint64")
    with jax.enable_x64(wide):
        seed = int.from_bytes(hashlib.sha1(case.encode()).digest()[:4])
        made = harness.dyn_args_maker(np.random.RandomState(seed))
        arguments = [
            x if isinstance(x, (bool, int, float, complex)) else np.asarray(jax.numpy.asarray(x)) for x in made
        ]
        try:
            expected = [np.asarray(x) for x in jax.tree_util.tree_leaves(jax.jit(harness.dyn_fun)(*arguments))]
        except Exception as error:  # JAX's limits are not ours
            raise NotApplicable(f"{type(error).__name__}: {error}"[:200]) from None
        try:
            graph: Any = ug.from_jax(harness.dyn_fun, *arguments)
            with tempfile.TemporaryDirectory() as folder:
                graph.save(Path(folder) / "case.ugraph")
                graph = ug.load(Path(folder) / "case.ugraph")
        except Exception as error:
            graph = error
    return graph, arguments, expected


# -- judging ------------------------------------------------------------------------------------------


def judge(case: str, arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray]) -> str | None:
    """Why results are not the expected ones, or None."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs, expected {len(expected)}"
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != e.shape or a.dtype != e.dtype:
            return f"output {index} is {a.dtype}{list(a.shape)}, expected {e.dtype}{list(e.shape)}"
    scale = SCALES.get(group(case), (1.0, ""))[0]
    special = JUDGES.get(group(case))
    if special is not None and not (special is _sorted and "isstable_True" in case):
        return special(arguments, actual, expected, scale)
    return equal(actual, expected, scale)


def equal(actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    """Why results are not within the tolerance, or None."""
    for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
        reason = difference(a, e, scale)
        if reason:
            return f"output {index}: {reason}"
    return None


Judge = Callable[[list[Any], list[np.ndarray], list[np.ndarray], float], "str | None"]


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(x, -1, -2))


def _near(what: str, left: np.ndarray, right: np.ndarray, like: np.ndarray, scale: float) -> str | None:
    """Whether two matrices agree as closely as a product of that size and dtype allows: the error of an
    element is measured by the largest one, since it is a sum over all of them."""
    relative, absolute = tolerance(dtypes.dtype(like.dtype))
    size = max(like.shape[-2:], default=1)
    bound = scale * np.sqrt(size) * (relative * np.max(np.abs(right), initial=0.0) + absolute)
    error = np.max(np.abs(left - right), initial=0.0)
    return None if error <= bound else f"{what} is off by {error}, allowed {bound}"


def _first(*reasons: str | None) -> str | None:
    return next((r for r in reasons if r), None)


def _orthonormal(what: str, columns: np.ndarray, scale: float) -> str | None:
    return _near(f"{what}^H {what}", _adjoint(columns) @ columns, np.eye(columns.shape[-1]), columns, scale)


def _qr(arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    (a,), (q, r) = arguments, actual
    return _first(
        _near("q r", q @ r, a, a, scale),
        _orthonormal("q", q, scale),
        _near("r below its diagonal", np.tril(r, -1), np.zeros_like(r), a, scale),
    )


def _svd(arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    a, s = arguments[0], actual[0]
    values = _near("s", s[..., None], expected[0][..., None], a, scale)
    if len(actual) == 1:
        return values
    u, vt = actual[1:]
    rank = s.shape[-1]
    return _first(
        values,
        _near("u s vt", u[..., :rank] * s[..., None, :] @ vt[..., :rank, :], a, a, scale),
        _orthonormal("u", u, scale),
        _orthonormal("v", _adjoint(vt), scale),
    )


def _eigh(arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    a, (v, w) = arguments[0], actual
    return _first(
        _near("w", w[..., None], expected[1][..., None], a, scale),
        _near("a v", a @ v, v * w[..., None, :], a, scale),
        _orthonormal("v", v, scale),
    )


def _eig(arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    a, w, vectors = arguments[0], actual[0], actual[1:]
    reason = _first(*(_same_set(x, y, a, scale) for x, y in zip(_rows(w), _rows(expected[0]), strict=True)))
    for v, told in zip(vectors, expected[1:], strict=True):
        # Left eigenvectors come first when there are two kinds; which kind a lone one is, JAX's tells.
        left = _residual(_adjoint(a), told, np.conj(expected[0])) < _residual(a, told, expected[0])
        matrix, values = (_adjoint(a), np.conj(w)) if left else (a, w)
        length = np.linalg.norm(v, axis=-2)
        reason = _first(
            reason,
            _near("a v", matrix @ v, v * values[..., None, :], v, scale),
            _near("the length of v", length[..., None], np.ones_like(length)[..., None], v, scale),
        )
    return reason


def _rows(w: np.ndarray) -> np.ndarray:
    return w.reshape(-1, w.shape[-1]) if w.size else w.reshape(0, 1)


def _residual(a: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    return float(np.max(np.abs(a @ v - v * w[..., None, :]), initial=0.0))


def _same_set(actual: np.ndarray, expected: np.ndarray, a: np.ndarray, scale: float) -> str | None:
    """Whether two lists hold the same numbers in any order."""
    left = list(actual)
    paired = [left.pop(int(np.argmin(np.abs(np.array(left) - e)))) for e in expected]
    return _near("w", np.array(paired)[:, None], expected[:, None], expected[:, None], scale)


def _cholesky(arguments: list[Any], actual: list[Any], expected: list[Any], scale: float) -> str | None:
    """JAX leaves the other triangle as its input happens to be. The condition of a 200 x 200 product decides
    how near two good factors are to each other, so those that differ are multiplied out."""
    a, factor = np.asarray(arguments[0]), np.tril(actual[0])
    if equal([factor], [np.tril(expected[0])], scale) is None:
        return None
    wide = factor.astype(np.complex128 if factor.dtype.kind == "c" else np.float64)
    return _near("l l^H", wide @ _adjoint(wide), a.astype(wide.dtype), factor, scale)


def _sums(arguments: list[Any], actual: list[Any], expected: list[Any], scale: float) -> str | None:
    """Each element is a sum over all of a line or box, so the largest one measures the error."""
    return _near("the transform", actual[0], expected[0], actual[0], scale)


def _sorted(arguments: list[Any], actual: list[Any], expected: list[Any], scale: float) -> str | None:
    """Without stability equal keys come in any order: the same rows must be there, by rising first key."""
    if equal(actual, expected, scale) is None or actual[0].ndim != 1:
        return equal(actual, expected, scale)
    rows = [sorted(zip(*(x.tolist() for x in side), strict=True)) for side in (actual, expected)]
    return _first(difference(actual[0], expected[0]), None if rows[0] == rows[1] else "other rows")


def _ties(arguments: list[Any], actual: list[np.ndarray], expected: list[np.ndarray], scale: float) -> str | None:
    """Values must be equal; among equal values any index will do."""
    values, indices = actual
    x = arguments[0]
    inside = (indices >= 0) & (indices < x.shape[-1])
    if not inside.all():
        return "an index lies outside"
    return _first(
        difference(values, expected[0]),
        difference(np.take_along_axis(x, indices, -1), values),
        None if all(len(set(row)) == len(row) for row in _rows(indices)) else "an index occurs twice",
    )


JUDGES: Mapping[str, Judge] = {
    "qr": _qr,
    "svd": _svd,
    "eigh": _eigh,
    "eig": _eig,
    "cholesky": _cholesky,
    "approx_top_k": _ties,
    "fft": _sums,
    "sort": _sorted,
}
