"""Runnable examples of the contractions; edges are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

_MATRIX: dict[str, Any] = {"lhs_contracting": (1,), "rhs_contracting": (0,)}


def _values(dtype: str, *shape: int) -> np.ndarray:
    """Small numbers without a pattern that would hide a wrong axis."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 7 % 11 - 5) / 4
    return array(dtype, values.reshape(shape) + (1j * values[::-1].reshape(shape) if dtype[0] == "c" else 0))


def _dot_general() -> list[Example]:
    a, b = [[1, 2, 3], [4, 5, 6]], [[1, 0], [0, 1], [1, 1]]
    product = [[4, 5], [10, 11]]
    return [
        *[
            example(array(d, a), array(d, b), out=array(d, product), **_MATRIX)
            for d in ("f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "u64", "c64", "c128")
        ],
        example(
            array("f32", np.zeros((2, 0))),
            array("f32", np.zeros((0, 3))),
            out=array("f32", np.zeros((2, 3))),
            **_MATRIX,
            note="the sum of no products is 0",
        ),
        example(
            array("i32", np.zeros((0, 2))),
            array("i32", np.zeros((2, 3))),
            out=array("i32", np.zeros((0, 3))),
            **_MATRIX,
        ),
        example(
            array("i8", [[100, 100]]),
            array("i8", [[2], [1]]),
            out=array("i8", [[44]]),
            **_MATRIX,
            note="integers wrap around",
        ),
        example(
            array("i8", [[100, 100]]), array("i8", [[2], [1]]), out=array("i32", [[300]]), out_dtype="i32", **_MATRIX
        ),
        example(
            array("u8", [[255, 255]]),
            array("u8", [[255], [255]]),
            out=array("u32", [[130050]]),
            out_dtype="u32",
            **_MATRIX,
        ),
        example(
            array("i64", [[2**62, 3]]),
            array("i64", [[1], [1]]),
            out=array("i64", [[2**62 + 3]]),
            **_MATRIX,
            note="exact",
        ),
        example(
            array("bf16", [[256] + [1] * 64]),
            array("bf16", [[1]] * 65),
            out=array("bf16", [[320]]),
            **_MATRIX,
            note="bf16 adds up in f32",
        ),
        example(
            array("bf16", [[256, 1]]), array("bf16", [[1], [1]]), out=array("f32", [[257]]), out_dtype="f32", **_MATRIX
        ),
        example(
            array("f16", [[60000, 60000]]),
            array("f16", [[1], [1]]),
            out=array("f32", [[120000]]),
            out_dtype="f32",
            **_MATRIX,
        ),
        example(
            array("bool", [[True, False]]),
            array("bool", [[True, False], [True, True]]),
            out=array("bool", [[True, False]]),
            **_MATRIX,
        ),
        example(
            array("f32", [1, 2]), array("f32", [3, 4]), out=array("f32", 11), lhs_contracting=(0,), rhs_contracting=(0,)
        ),
        example(
            array("f32", [1, 2]),
            array("f32", [3, 4, 5]),
            out=array("f32", [[3, 4, 5], [6, 8, 10]]),
            lhs_contracting=(),
            rhs_contracting=(),
            note="an outer product",
        ),
        example(
            array("f32", 2),
            array("f32", 3),
            out=array("f32", 6),
            lhs_contracting=(),
            rhs_contracting=(),
            note="scalars",
        ),
        example(
            array("f32", [[1, 2], [3, 4]]),
            array("f32", [[5, 6], [7, 8]]),
            out=array("f32", [17, 53]),
            lhs_contracting=(1,),
            rhs_contracting=(1,),
            lhs_batch=(0,),
            rhs_batch=(0,),
            note="batched vectors",
        ),
        example(
            _values("f32", 2, 3, 4, 5),
            _values("f32", 5, 3, 6, 2, 4),
            lhs_contracting=(2, 3),
            rhs_contracting=(4, 0),
            lhs_batch=(1, 0),
            rhs_batch=(1, 3),
            note="permuted axes",
        ),
        example(
            _values("f64", 3, 2, 4),
            _values("f64", 3, 4, 5),
            lhs_contracting=(2,),
            rhs_contracting=(1,),
            lhs_batch=(0,),
            rhs_batch=(0,),
        ),
    ]


def _conv(x: np.ndarray, w: np.ndarray, out: Any = None, note: str = "", **attrs: Any) -> Example:
    rank = x.ndim - 2
    plain = tuple(range(rank + 2))
    ones, zeros = (1,) * rank, (0,) * rank
    default = {"strides": ones, "low": zeros, "high": zeros, "lhs_dilation": ones, "rhs_dilation": ones}
    specs = {"lhs_spec": plain, "rhs_spec": plain, "out_spec": plain}
    return example(x, w, out=out, note=note, **{**default, **specs, **attrs})


def _line(
    x: list[float], w: list[float], out: list[float], note: str = "", dtype: str = "f32", **attrs: Any
) -> Example:
    return _conv(array(dtype, [[x]]), array(dtype, [[w]]), array(dtype, [[out]]), note, **attrs)


def _conv_general() -> list[Example]:
    x, w = _values("f32", 2, 3, 7, 8), _values("f32", 4, 3, 3, 2)
    return [
        _line([1, 2, 3, 4], [1, 10], [21, 32, 43], "the window is not reversed"),
        _line([1, 2, 3, 4], [1, 10], [10, 21, 32, 43, 4], low=(1,), high=(1,)),
        _line([1, 2, 3, 4, 5], [1, 10], [21, 43], strides=(2,)),
        _line([1, 2, 3, 4], [1, 10], [31, 42], "window spread out", rhs_dilation=(2,)),
        _line([1, 2, 3], [1, 10], [1, 20, 2, 30], "zeros between elements of x", lhs_dilation=(2,)),
        _line([1, 2, 3, 4], [1, 10], [32], "negative padding crops", low=(-1,), high=(-1,)),
        _line([1, 2], [1, 1, 1], [], "no window fits"),
        _conv(
            array("f32", np.zeros((1, 0, 3))),
            array("f32", np.zeros((2, 0, 2))),
            array("f32", np.zeros((1, 2, 2))),
            "no features",
        ),
        _conv(
            array("f32", np.zeros((0, 1, 3))),
            array("f32", np.ones((2, 1, 2))),
            array("f32", np.zeros((0, 2, 2))),
            "no batch",
        ),
        _conv(
            array("f32", [[[1, 2], [3, 4]]]),
            array("f32", [[[1, 1]], [[2, 2]]]),
            array("f32", [[[3], [14]]]),
            "groups",
            groups=2,
        ),
        _conv(
            array("f32", [[[1, 2]], [[3, 4]]]),
            array("f32", [[[1, 1]], [[2, 2]]]),
            array("f32", [[[3], [14]]]),
            "batch groups",
            batch_groups=2,
        ),
        _conv(array("f32", [[1, 2]]), array("f32", [[3, 4]]), array("f32", [[11]]), "no spatial axes"),
        _conv(array("i8", [[[100, 100]]]), array("i8", [[[1, 2]]]), array("i32", [[[300]]]), out_dtype="i32"),
        _conv(array("bf16", [[[256, 1]]]), array("bf16", [[[1, 1]]]), array("f32", [[[257]]]), out_dtype="f32"),
        _conv(x, w),
        _conv(x, w, strides=(2, 3), low=(1, 2), high=(0, 1)),
        _conv(x, w, low=(-1, -2), high=(3, 3), lhs_dilation=(2, 3), rhs_dilation=(3, 2), note="both dilations"),
        _conv(_values("f32", 2, 6, 7), _values("f32", 9, 2, 3), groups=3),
        _conv(_values("f32", 2, 6, 7), _values("f32", 6, 1, 3), groups=6, note="depthwise"),
        _conv(_values("f32", 6, 4, 7, 8), _values("f32", 9, 4, 3, 2), batch_groups=3),
        _conv(
            _values("f32", 7, 2, 8, 3),
            _values("f32", 3, 3, 2, 4),
            strides=(2, 1),
            lhs_spec=(1, 3, 0, 2),
            rhs_spec=(3, 0, 1, 2),
            out_spec=(2, 0, 3, 1),
            note="permuted specs",
        ),
        _conv(_values("f32", 2, 3, 4, 5, 6), _values("f32", 4, 3, 2, 3, 2), strides=(1, 2, 1), note="three axes"),
        *[_conv(_values(d, 2, 3, 7), _values(d, 4, 3, 3), low=(1,), high=(1,)) for d in ("f64", "f16", "bf16", "c64")],
    ]


def _ragged_dot() -> list[Example]:
    x = array("f32", [[1, 2], [3, 4], [5, 6], [7, 8]])
    w = array("f32", [[[1], [0]], [[0], [1]], [[1], [1]]])
    sizes = array("i32", [1, 0, 2])
    return [
        example(x, w, sizes, out=array("f32", [[1], [7], [11], [0]]), note="an empty group; a row of no group"),
        example(x.astype(np.int32), w.astype(np.int32), sizes, out=array("i32", [[1], [7], [11], [0]])),
        example(_values("f64", 6, 4), _values("f64", 3, 4, 5), array("i32", [2, 1, 3])),
    ]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "dot_general": _dot_general,
    "conv_general": _conv_general,
    "ragged_dot": _ragged_dot,
}
