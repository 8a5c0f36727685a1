"""``jax.numpy``: reductions, scans, statistics, sorting and sets."""

from __future__ import annotations

from . import Table, call, rows

_P = "jax.numpy"
_REDUCE = (
    call("f32[3,4]"),
    call("f32[3,4]", axis=0),
    call("f32[2,3,4]", axis=(0, -1), keepdims=True),
    call("i32[3,4]", axis=1),
    call("f64[3,4]"),
)
_MASKED = (call("f32[3,4]", where="bool[3,4]", initial=0.5),)
_NAN = (call("f32[3,4]n"), call("f32[3,4]n", axis=1), call("f32[3,4]n", axis=0, keepdims=True), call("i32[3,4]"))
_COMPLEX = (call("c64[3,4]"), call("c64[3,4]", axis=1))
_LINE = (call("f32[7]"), call("f32[3,4]", axis=0), call("i32[3,4]", axis=1))

TABLE: Table = {
    **rows(_P, "sum prod", *_REDUCE, *_MASKED, *_COMPLEX, call("bool[4]"), call("i8[5]", dtype="float32")),
    **rows(_P, "max min amax amin", *_REDUCE, *_MASKED, call("f32[3,4]n", axis=1)),
    **rows(_P, "mean", *_REDUCE, *_COMPLEX, call("f32[3,4]", where="bool[3,4]"), call("bf16[3,4]")),
    **rows(_P, "std var", *_REDUCE, *_COMPLEX, call("f32[3,4]", axis=1, ddof=1), call("f32[9]", where="bool[9]")),
    **rows(_P, "ptp", *_REDUCE),
    **rows(_P, "all any", *_REDUCE, call("bool[3,4]", axis=1), call("bool[3,4]", where="bool[3,4]")),
    **rows(_P, "count_nonzero", *_REDUCE),
    **rows(_P, "argmax argmin", call("f32[3,4]"), call("f32[3,4]", axis=1), call("i32[3,4]", axis=0, keepdims=True)),
    **rows(_P, "nanargmax nanargmin", call("f32[3,4]n"), call("f32[3,4]n", axis=1)),
    **rows(_P, "nansum nanprod nanmax nanmin nanmean nanstd nanvar nanmedian", *_NAN),
    **rows(_P, "nancumsum nancumprod", call("f32[3,4]n"), call("f32[3,4]n", axis=1)),
    **rows(_P, "cumsum cumprod", *_LINE, call("f32[3,4]"), call("c64[5]"), call("bool[5]")),
    **rows(_P, "cumulative_sum cumulative_prod", *_LINE, call("f32[5]", include_initial=True)),
    **rows(_P, "median", *_REDUCE),
    **rows(
        _P,
        "percentile nanpercentile",
        call("f32[9]", 30),
        call("f32[3,5]", "f32[2]+", axis=1),
        call("f32[3,5]", 60, axis=0, method="nearest", keepdims=True),
    ),
    **rows(
        _P,
        "quantile nanquantile",
        call("f32[9]", 0.3),
        call("f32[3,5]", "f32[2]u", axis=1),
        *(call("f32[3,5]", 0.6, axis=0, method=m) for m in ("lower", "higher", "midpoint")),
    ),
    **rows(
        _P,
        "average",
        call("f32[3,4]"),
        call("f32[3,4]", axis=1, weights="f32[4]+"),
        call("f32[5]", weights="f32[5]+", returned=True),
    ),
    **rows(_P, "cov corrcoef", call("f32[3,8]"), call("f32[8]", "f32[8]"), call("c64[2,6]")),
    **rows(_P, "diff", *_LINE, call("f32[9]", n=2), call("f32[4]", prepend="f32[2]", append="f32[1]")),
    **rows(_P, "ediff1d", call("f32[7]"), call("f32[7]", to_begin=1.0, to_end=2.0)),
    **rows(_P, "gradient", call("f32[7]"), call("f32[5,6]"), call("f32[5,6]", 0.5, axis=1), call("f32[6]", "f32[6]s")),
    **rows(_P, "trapezoid", call("f32[7]"), call("f32[3,7]", "f32[7]s"), call("f32[7,2]", dx=0.3, axis=0)),
    **rows(_P, "sort", *_LINE, call("f32[9]", descending=True), call("f32[8]n"), call("c64[6]")),
    **rows(_P, "argsort", *_LINE, call("f32[9]", descending=True), call("i32[12]<3", stable=True)),
    **rows(
        _P,
        "partition argpartition",
        call("f32[9]", 3).through(lambda f, x, k: f(x, k)[..., k]),
        call("f32[3,7]", 2).through(lambda f, x, k: f(x, k, axis=-1)[..., k]),
    ),
    **rows(_P, "lexsort", call(("i32[9]<3", "f32[9]")), call(("f32[3,4]", "i32[3,4]<2"), axis=0)),
    **rows(_P, "sort_complex", call("c64[7]"), call("f32[5]")),
    **rows(
        _P,
        "searchsorted",
        call("f32[9]s", "f32[4]"),
        call("f32[9]s", "f32[2,3]", side="right"),
        *(call("f32[9]s", "f32[4]", method=m) for m in ("scan_unrolled", "sort", "compare_all")),
        call("f32[9]", "f32[4]").through(lambda f, x, v: f(x, v, sorter=x.argsort())),
    ),
    **rows(_P, "digitize", call("f32[6]", "f32[4]s"), call("f32[6]", "f32[4]s", right=True)),
    **rows(_P, "bincount", call("i32[12]<5", length=6), call("i32[12]<5", "f32[12]", length=5)),
    **rows(
        _P,
        "histogram",
        call("f32[20]"),
        call("f32[20]", bins=5, range=(-1, 2), density=True),
        call("f32[20]", "f32[5]s", weights="f32[20]+"),
    ),
    **rows(_P, "histogram_bin_edges", call("f32[20]"), call("f32[20]", bins=4)),
    **rows(_P, "histogram2d", call("f32[20]", "f32[20]", bins=4)),
    **rows(_P, "histogramdd", call("f32[20,3]", bins=3)),
    **rows(
        _P,
        "unique",
        call("i32[12]<5", size=6),
        call("i32[12]<5", size=6, return_index=True, return_inverse=True, return_counts=True),
        call("i32[6,2]<2", axis=0, size=4),
    ),
    **rows(_P, "unique_all unique_counts unique_inverse unique_values", call("i32[12]<5", size=6)),
    **rows(_P, "union1d intersect1d setxor1d setdiff1d", call("i32[8]<6", "i32[6]<9", size=8, fill_value=-1)),
    **rows(
        _P,
        "intersect1d",
        call("i32[8]<6", "i32[6]<9", size=8),
        call("i32[8]p", "i32[6]p", size=6, assume_unique=True, return_indices=True),
    ),
    **rows(
        _P,
        "isin",
        call("i32[3,4]", "i32[5]"),
        call("i32[3,4]", "i32[5]", invert=True),
        call("f32[6]", "f32[3]", method="sort"),
    ),
    **rows(_P, "apply_along_axis", call("f32[3,4,2]").through(lambda f, x: f(lambda v: v.sum() * v, 1, x))),
    **rows(
        _P, "apply_over_axes", call("f32[3,4,2]").through(lambda f, x: f(lambda v, axis: v.sum(axis=axis), x, [0, 2]))
    ),
    **rows(_P, "nonzero flatnonzero argwhere", call("i32[9]<2", size=5), call("bool[3,4]", size=5, fill_value=-1)),
}
