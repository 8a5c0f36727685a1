"""Runnable examples of reductions, cumulative ops and window ops; edges are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")
_FLOATS = ("f32", "f64", "f16", "bf16")
_PLAIN = np.linspace(-2.5, 3.0, 12).reshape(3, 4)


def _told(dtype: str, x: Any, out: Any, note: str = "", **attrs: Any) -> Example:
    return example(array(dtype, x), out=array(dtype, out), note=note, **attrs)


# -- whole axes ----------------------------------------------------------------------------------


def _sizes(dtype: str, start: Any) -> list[Example]:
    """Nothing reduced, and nothing to reduce."""
    return [
        _told(dtype, np.zeros((2, 0)), [start] * 2, "the value of nothing", axes=(1,)),
        _told(dtype, np.zeros((0, 3)), start, "the value of nothing", axes=(0, 1)),
        _told(dtype, np.zeros((2, 0)), [], "zero size stays", axes=(0,)),
        _told(dtype, [1, 0, 1], [1, 0, 1], "no axes: x itself", axes=()),
        _told(dtype, 1, 1, "a scalar", axes=()),
    ]


def _line(dtype: str, x: list[Any], out: Any, note: str = "") -> Example:
    return _told(dtype, x, out, note, axes=(0,))


def _plain_axes() -> list[Example]:
    return [example(array(d, _PLAIN), axes=axes) for d in _FLOATS for axes in ((0,), (1,), (0, 1))]


def _sum() -> list[Example]:
    return [
        *_plain_axes(),
        *_sizes("f32", 0),
        *_sizes("i32", 0),
        _line("i8", [127, 1], -128, "integers wrap around"),
        _line("u8", [255, 2], 1),
        _line("u64", [2**63, 2**63 + 1], 1),
        _line("i64", [2**62, 2**62], -(2**63)),
        _line("i4", [7, 1], -8),
        _line("bf16", [256] + [1] * 64, 320, "bf16 adds up in f32: no 1 is lost"),
        _line("f16", [2048] + [1] * 64, 2112, "f16 adds up in f32"),
        _line("f16", [60000, 60000, -60000], 60000, "no overflow on the way"),
        _line("f8e4m3fn", [16] + [1] * 16, 32),
        _line("f32", [INF, 1], INF),
        _line("f32", [INF, -INF], NAN),
        _line("f32", [NAN, 1], NAN),
        _line("c64", [1 + 2j, 3 - 1j], 4 + 1j),
        _line("c128", [1 + 2j, 3 - 1j], 4 + 1j),
    ]


def _prod() -> list[Example]:
    return [
        *_plain_axes(),
        *_sizes("f32", 1),
        *_sizes("i32", 1),
        _line("i8", [64, 2], -128, "integers wrap around"),
        _line("u8", [16, 17], 16),
        _line("i64", [2**62, 2], -(2**63)),
        _line("i4", [4, 3], -4),
        _line("f16", [60000, 2, 0.5], 60000, "f16 multiplies in f32: no overflow on the way"),
        _line("bf16", [3, 5, 7], 105),
        _line("f32", [0, INF], NAN),
        _line("f32", [NAN, 0], NAN),
        _line("c64", [1j, 1j, 2], -2),
    ]


def _extremes(largest: bool) -> list[Example]:
    sign = 1 if largest else -1
    extreme = max if largest else min
    start: dict[str, Any] = {
        "f32": -INF, "f64": -INF, "bf16": -INF, "f16": -INF, "f8e4m3fn": -448, "f8e5m2": -INF, "i8": -128, "i32": -(2**31),
        "i64": -(2**63), "u8": 0, "u64": 0, "i4": -8, "bool": False,
    }  # fmt: skip
    end: dict[str, Any] = {
        "i8": 127, "i32": 2**31 - 1, "i64": 2**63 - 1, "u8": 255, "u64": 2**64 - 1, "i4": 7, "bool": True,
    }  # fmt: skip
    nothing = start if largest else {d: end.get(d, -v) for d, v in start.items()}
    return [
        *_plain_axes(),
        *[_told(d, np.zeros((2, 0)), [v] * 2, "the value of nothing", axes=(1,)) for d, v in nothing.items()],
        *_sizes("i32", nothing["i32"]),
        _line("f32", [1, NAN, 3], NAN, "NaN wins"),
        _line("f32", [NAN, sign * INF], NAN),
        _line("bf16", [1, NAN, 3], NAN),
        _line("f16", [NAN, 1], NAN),
        _told("f32", [[1, 2], [NAN, 4]], [2 if largest else 1, NAN], axes=(1,)),
        _line("f32", [-0.0, 0.0, -0.0], 0.0 if largest else -0.0, "the zeros are ordered"),
        _line("f32", [0.0, -0.0], 0.0 if largest else -0.0),
        _line("f64", [-0.0, -0.0], -0.0),
        _line("f32", [-INF, -INF], -INF),
        _line("i8", [-128, 127, 3], extreme(-128, 127)),
        _line("u64", [2**64 - 1, 1], extreme(2**64 - 1, 1), "unsigned order"),
        _line("i4", [-8, 7], extreme(-8, 7)),
        _line("bool", [False, True], largest),
        _line(
            "c64",
            [1 + 5j, 2 - 1j, 2 + 1j, 1 - 5j],
            2 + 1j if largest else 1 - 5j,
            "complex: by real, then imaginary part",
        ),
    ]


def _bits(name: str) -> list[Example]:
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name]
    start = {"i32": -1, "u8": 255, "u64": 2**64 - 1, "bool": True, "i4": -1, "u4": 15}
    rows = np.array([[12, 10, 7], [1, 1, 1], [0, 5, 9]])
    return [
        *[
            example(rows.astype(d), axes=(1,), out=function.reduce(rows, axis=1).astype(d))
            for d in ("int32", "uint8", "int64")
        ],
        example(rows > 4, axes=(0,), out=function.reduce(rows > 4, axis=0)),
        example(rows > 4, axes=(0, 1), out=function.reduce(rows > 4, axis=None)),
        *[
            _told(d, np.zeros((2, 0)), [v if name == "and" else 0] * 2, "the value of nothing", axes=(1,))
            for d, v in start.items()
        ],
        *_sizes("bool", name == "and"),
        _line("i8", [-1, 6], {"and": 6, "or": -1, "xor": -7}[name], "all bits of -1 are set"),
        _line("i4", [-8, 7], {"and": 0, "or": -1, "xor": -1}[name]),
    ]


def _arg(largest: bool) -> list[Example]:
    def one(dtype: str, x: list[Any], high: int, low: int, note: str = "") -> Example:
        return example(array(dtype, x), axis=0, out=array("i32", high if largest else low), note=note)

    return [
        *[example(array(d, _PLAIN), axis=axis) for d in _FLOATS for axis in (0, 1)],
        one("f32", [1, 3, 3, 1], 1, 0, "the first of equals"),
        one("f32", [1, NAN, 3, NAN], 1, 1, "the first NaN"),
        one("f32", [NAN, -INF, INF], 0, 0),
        one("bf16", [1, NAN, 3], 1, 1),
        one("f32", [-0.0, 0.0], 0, 0, "the zeros are equal"),
        one("f32", [0.0, -0.0], 0, 0),
        one("f32", [-INF, -INF], 0, 0),
        one("i8", [5, -128, 127], 2, 1),
        one("u64", [2**64 - 1, 0, 2**63], 0, 1, "unsigned order"),
        one("bool", [False, True, True], 1, 0),
        one("f32", [7], 0, 0),
        example(
            array("f32", [[1, 2], [4, 3]]), axis=1, index_dtype="i64", out=array("i64", [1, 0] if largest else [0, 1])
        ),
        example(array("i32", [1, 2]), axis=0, index_dtype="u8", out=array("u8", 1 if largest else 0)),
        example(np.zeros((0, 3), np.float32), axis=1, out=array("i32", []), note="no lines to search"),
    ]


# -- with a body ---------------------------------------------------------------------------------


def _add_body(b: Any, x: Any, y: Any) -> Any:
    return b.add(x, y)


def _max_with_index(b: Any, x: Any, i: Any, y: Any, j: Any) -> Any:
    keep = b.or_(b.gt(x, y), b.and_(b.eq(x, y), b.lt(i, j)))
    return b.select(keep, y, x), b.select(keep, j, i)


def _whole_body(b: Any, x: Any, y: Any) -> Any:
    """A maximum that is not elementwise: it joins its scalars and reduces them."""
    pair = b.concatenate(b.reshape(x, shape=(1,)), b.reshape(y, shape=(1,)), axis=0)
    return b.reduce_max(pair, axes=(0,))


def _reduce() -> list[Example]:
    x = array("f32", [[3, 1, 3], [-1, 5, 0]])
    places = np.broadcast_to(np.arange(3, dtype=np.int32), (2, 3)).copy()
    adding: dict[str, Any] = {"regions": {"body": _add_body}}
    arg: dict[str, Any] = {"regions": {"body": _max_with_index}}
    low = array("f32", -INF), array("i32", 2**31 - 1)
    return [
        example(x, array("f32", 0), axes=(1,), **adding, out=array("f32", [7, 4])),
        example(x, array("f32", 0), axes=(0, 1), **adding, out=array("f32", 11)),
        example(x, array("f32", 0), axes=(), **adding, out=x, note="no axes"),
        example(
            np.zeros((2, 0), np.float32),
            array("f32", 0),
            axes=(1,),
            **adding,
            out=array("f32", [0, 0]),
            note="nothing gives the initial value",
        ),
        example(
            array("i8", [127, 1, 1]),
            array("i8", 0),
            axes=(0,),
            **adding,
            out=array("i8", -127),
            note="integers wrap around",
        ),
        example(
            x,
            places,
            *low,
            axes=(1,),
            **arg,
            out=(array("f32", [3, 5]), array("i32", [0, 1])),
            note="two arrays at once",
        ),
        example(
            x[:, :0],
            places[:, :0],
            *low,
            axes=(1,),
            **arg,
            out=(array("f32", [-INF] * 2), array("i32", [2**31 - 1] * 2)),
            note="nothing",
        ),
        example(
            x,
            array("f32", -INF),
            axes=(1,),
            regions={"body": _whole_body},
            out=array("f32", [3, 5]),
            note="a body that is not elementwise",
        ),
    ]


# -- running along one axis ----------------------------------------------------------------------


def _run(dtype: str, x: list[Any], out: list[Any], note: str = "", reverse: bool = False) -> Example:
    return _told(dtype, x, out, note, axis=0, reverse=reverse)


def _running() -> list[Example]:
    return [
        *[
            example(array(d, _PLAIN), axis=a, reverse=r)
            for d in _FLOATS
            for a, r in ((0, False), (1, False), (1, True))
        ],
        _told("f32", np.zeros((2, 0)), np.zeros((2, 0)), "zero size", axis=1),
        _told("f32", np.zeros((0, 2)), np.zeros((0, 2)), "zero size", axis=1, reverse=True),
        _run("f32", [3], [3], "one element stays"),
    ]


def _cumsum() -> list[Example]:
    return [
        *_running(),
        _run("i32", [1, 2, 3], [1, 3, 6]),
        _run("i32", [1, 2, 3], [6, 5, 3], "from the end", reverse=True),
        _run("i8", [100, 100, 100], [100, -56, 44], "integers wrap around"),
        _run("u8", [200, 100], [200, 44]),
        _run("f32", [1, NAN, 2], [1, NAN, NAN], "NaN stays"),
        _run("f32", [INF, -INF, 1], [INF, NAN, NAN]),
        _run("c64", [1, 1j, 1], [1, 1 + 1j, 2 + 1j]),
        _run("bf16", [256, 1, 1], [256, 256, 258], "bf16 adds up in f32, each result is rounded"),
    ]


def _cumprod() -> list[Example]:
    return [
        *_running(),
        _run("i32", [1, 2, 3], [1, 2, 6]),
        _run("i32", [1, 2, 3], [6, 6, 3], "from the end", reverse=True),
        _run("i8", [16, 8, 3], [16, -128, -128], "integers wrap around"),
        _run("f32", [2, 0, NAN], [2, 0, NAN]),
        _run("c64", [1j, 1j, 1j], [1j, -1, -1j]),
    ]


def _cumextreme(largest: bool) -> list[Example]:
    def one(
        dtype: str, x: list[Any], high: list[Any], low: list[Any], note: str = "", reverse: bool = False
    ) -> Example:
        return _run(dtype, x, high if largest else low, note, reverse)

    return [
        *_running(),
        one("i32", [1, 3, 2], [1, 3, 3], [1, 1, 1]),
        one("i32", [1, 3, 2], [3, 3, 2], [1, 2, 2], "from the end", reverse=True),
        one("f32", [1, NAN, 2], [1, NAN, NAN], [1, NAN, NAN], "NaN stays, once met"),
        one("f32", [1, NAN, 2], [NAN, NAN, 2], [NAN, NAN, 2], reverse=True),
        one("bf16", [1, NAN, 2], [1, NAN, NAN], [1, NAN, NAN]),
        one("f32", [-0.0, 0.0, -0.0], [-0.0, 0.0, 0.0], [-0.0, -0.0, -0.0], "the zeros are ordered"),
        one("f32", [-INF, INF], [-INF, INF], [-INF, -INF]),
        one("u64", [1, 2**64 - 1], [1, 2**64 - 1], [1, 1], "unsigned order"),
        one("i4", [-8, 7], [-8, 7], [-8, -8]),
        one("bool", [False, True], [False, True], [False, False]),
        one("c64", [1 + 1j, 1 - 1j, 2], [1 + 1j, 1 + 1j, 2], [1 + 1j, 1 - 1j, 1 - 1j], "by real, then imaginary part"),
    ]


def _cumlogsumexp() -> list[Example]:
    two = float(np.log(2.0))
    return [
        *_running(),
        _run("f32", [-INF, -INF, 0, 0], [-INF, -INF, 0, two], "-inf adds nothing"),
        _run("f32", [0, 0, -INF], [two, 0, -INF], "from the end", reverse=True),
        _run("f32", [1000, 1000], [1000, 1000 + two], "no overflow"),
        _run("f64", [-1000, -1000], [-1000, -1000 + two], "no underflow"),
        _run("f32", [INF, 0], [INF, INF]),
        _run("f32", [0, NAN, 0], [0, NAN, NAN], "NaN stays"),
        example(array("c64", [1 + 1j, 2 - 1j, -1 + 0.5j]), axis=0),
    ]


# -- windows -------------------------------------------------------------------------------------


def _w(rank: int, **given: Any) -> dict[str, Any]:
    """Window attributes with the plain values filled in."""
    plain = {"strides": (1,) * rank, "low": (0,) * rank, "high": (0,) * rank}
    return {**plain, **given}


def _windows() -> list[Example]:
    image = np.arange(1, 25).reshape(1, 4, 6, 1) / 4.0
    shapes = [
        _w(4, window=(1, 2, 2, 1), strides=(1, 2, 2, 1)),
        _w(4, window=(1, 3, 3, 1), strides=(1, 2, 1, 1), low=(0, 1, 1, 0), high=(0, 1, 1, 0)),
        _w(4, window=(1, 2, 3, 1), window_dilation=(1, 2, 2, 1)),
        _w(4, window=(1, 3, 2, 1), base_dilation=(1, 2, 3, 1), low=(0, 0, 2, 0), high=(0, 1, 0, 0)),
    ]
    return [example(array(d, image), **w) for d in ("f32", "bf16") for w in shapes] + [
        example(array("f64", image), **shapes[1])
    ]


def _pool(dtype: str, x: list[Any], out: list[Any], note: str = "", **given: Any) -> Example:
    return _told(dtype, x, out, note, **_w(1, **given))


def _folds(padding: Any, fold: Callable[[list[Any]], Any]) -> list[Example]:
    """What every window op does, told for i32 by a plain fold over lists."""
    x = [5, 2, 7, 1, 3]

    def places(*windows: list[int]) -> list[int]:
        return [fold([padding, *w]) for w in windows]

    return [
        *_windows(),
        _pool("i32", x, places([5, 2], [7, 1]), "what is left over is dropped", window=(2,), strides=(2,)),
        _pool("i32", x, places([5], [2, 7], [1, 3]), "padded before", window=(2,), strides=(2,), low=(1,)),
        _pool("i32", x, places([], [5], [5, 2]), "a window in padding only", window=(2,), low=(2,), high=(-3,)),
        _pool("i32", x, places([2, 7], [7, 1]), "negative padding crops", window=(2,), low=(-1,), high=(-1,)),
        _pool("i32", x, places([5, 7], [2, 1], [7, 3]), "dilated windows", window=(2,), window_dilation=(2,)),
        _pool("i32", x[:3], places([5], [2], [2], [7]), "holes in x", window=(2,), base_dilation=(2,)),
        _pool("i32", x[:2], places([5], [], [2]), "a window in a hole", window=(1,), base_dilation=(2,)),
        _pool("i32", x[:2], [], "the window does not fit", window=(3,)),
        _pool("i32", [], places([], []), "padding only", window=(1,), low=(1,), high=(1,)),
        _told("f32", np.zeros((2, 0)), np.zeros((2, 0)), "zero size", **_w(2, window=(1, 1))),
        _told("f32", 3, 3, "a scalar", **_w(0, window=())),
    ]


def _window_sum() -> list[Example]:
    return [
        *_folds(0, lambda xs: sum(xs)),
        _pool("i8", [100, 100, -1], [-56, 99], "integers wrap around", window=(2,)),
        _pool("f32", [1, NAN, 2, 3], [NAN, NAN, 5], window=(2,)),
        _pool("bf16", [256] + [1] * 4, [260], "bf16 adds up in f32", window=(5,)),
        _pool("c64", [1, 1j, 2], [1 + 1j, 2 + 1j], window=(2,)),
    ]


def _window_prod() -> list[Example]:
    return [
        *_folds(1, lambda xs: int(np.prod(xs))),
        _pool("i8", [64, 2, 3], [-128, 6], "integers wrap around", window=(2,)),
        _pool("f16", [60000, 2, 0.5], [60000], "f16 multiplies in f32", window=(3,)),
    ]


def _window_extreme(largest: bool) -> list[Example]:
    nothing = -INF if largest else INF
    return [
        *_folds(-(2**31) if largest else 2**31 - 1, max if largest else min),
        _pool("f32", [1, 2], [nothing, 1, 2], "padding is the value of nothing", window=(1,), low=(1,)),
        _pool(
            "f8e4m3fn",
            [1],
            [-448 if largest else 448, 1],
            "the lowest (highest) where there is no infinity",
            window=(1,),
            low=(1,),
        ),
        _pool("f32", [1, NAN, 2, 3], [NAN, NAN, 3 if largest else 2], "NaN wins", window=(2,)),
        _pool(
            "f32",
            [-0.0, 0.0, -0.0, -0.0],
            [0.0, 0.0, -0.0] if largest else [-0.0, -0.0, -0.0],
            "the zeros are ordered",
            window=(2,),
        ),
        _pool("u64", [1, 2**64 - 1], [2**64 - 1 if largest else 1], "unsigned order", window=(2,)),
        _pool("bool", [False, True], [largest], window=(2,)),
    ]


def _reduce_window() -> list[Example]:
    x = array("f32", [3, 1, 3, 5, 0])
    adding: dict[str, Any] = {"regions": {"body": _add_body}}
    zero = array("f32", 0)
    low = array("f32", -INF), array("i32", -1)
    return [
        example(x, zero, **_w(1, window=(2,)), **adding, out=array("f32", [4, 4, 8, 5])),
        example(x, zero, **_w(1, window=(2,), strides=(2,), low=(1,), high=(2,)), **adding, out=array("f32", [3, 4, 5, 0])),
        example(x, zero, **_w(1, window=(2,), window_dilation=(3,)), **adding, out=array("f32", [8, 1])),
        example(x[:2], zero, **_w(1, window=(2,), base_dilation=(2,)), **adding, out=array("f32", [3, 1])),
        example(x[:1], zero, **_w(1, window=(2,)), **adding, out=array("f32", []), note="the window does not fit"),
        example(
            x, np.arange(5, dtype=np.int32), *low, **_w(1, window=(3,), low=(1,)), regions={"body": _max_with_index},
            out=(array("f32", [3, 3, 5, 5]), array("i32", [0, 0, 3, 3])), note="two arrays at once",
        ),
        example(x, array("f32", -INF), **_w(1, window=(2,)), regions={"body": _whole_body}, out=array("f32", [3, 3, 5, 5])),
    ]  # fmt: skip


def _select_and_scatter_add() -> list[Example]:
    def one(
        select: str, source: list[Any], x: list[Any], out: list[Any], note: str = "", dtype: str = "f32", **given: Any
    ) -> Example:
        attrs = _w(1, select=select, **given)
        return example(array(dtype, source), array(dtype, x), out=array(dtype, out), note=note, **attrs)

    image = array("f32", [[1, 5, 2], [4, 3, 9], [8, 7, 6]])
    return [
        one("ge", [10, 20], [1, 3, 4, 2], [0, 10, 20, 0], window=(2,), strides=(2,)),
        one("le", [10, 20], [1, 3, 4, 2], [10, 0, 0, 20], window=(2,), strides=(2,)),
        one("ge", [10, 20, 30], [1, 3, 4, 2], [0, 10, 50, 0], "chosen twice: added up", window=(2,)),
        one("ge", [10, 20], [3, 3, 5, 5], [10, 0, 20, 0], "the first of equals", window=(2,), strides=(2,)),
        one("ge", [10, 20], [-INF, -INF, 5, 5], [10, 0, 20, 0], "the first of -inf too", window=(2,), strides=(2,)),
        one("ge", [10, 20], [-0.0, 0.0, 1, 2], [10, 0, 0, 20], "the zeros are equal", window=(2,), strides=(2,)),
        one("ge", [10], [1, NAN], [0, 10], "NaN takes the place", window=(2,)),
        one("ge", [10], [NAN, 1], [0, 10], "and the next element takes it back", window=(2,)),
        one("ge", [10, 20, 30], [-1, -3, -4, -2], [10, 20, 0, 30], "padding is never selected", window=(2,), strides=(2,), low=(1,), high=(1,)),
        one("ge", [10, 20], [-1], [20], "a window in padding only adds nothing", window=(1,), low=(1,)),
        one("ge", [], [1], [0], "the window does not fit", window=(2,)),
        one("ge", [10, 20], [1, 3, 4, 2], [0, 10, 20, 0], dtype="bf16", window=(2,), strides=(2,)),
        one("ge", [10, 20], [1, 3, 4, 2], [0, 10, 20, 0], dtype="i32", window=(2,), strides=(2,)),
        example(
            array("f32", [[1, 2], [3, 4]]), image, **_w(2, select="ge", window=(2, 2)),
            out=array("f32", [[0, 1, 0], [0, 0, 6], [3, 0, 0]]), note="two axes",
        ),
    ]  # fmt: skip


def _select_and_gather_add() -> list[Example]:
    def one(
        select: str, tangents: list[Any], x: list[Any], out: list[Any], note: str = "", dtype: str = "f32", **given: Any
    ) -> Example:
        attrs = _w(1, select=select, **given)
        return example(array(dtype, tangents), array(dtype, x), out=array(dtype, out), note=note, **attrs)

    t = [10, 20, 30, 40]
    return [
        one("ge", t, [1, 3, 4, 2], [20, 30], window=(2,), strides=(2,)),
        one("le", t, [1, 3, 4, 2], [10, 40], window=(2,), strides=(2,)),
        one("ge", t, [3, 3, 5, 5], [10, 30], "the first of equals", window=(2,), strides=(2,)),
        one("ge", t, [-1, -3, -4, -2], [10, 20, 40], "padding loses", window=(2,), strides=(2,), low=(1,), high=(1,)),
        one("ge", t, [1, 3, 4, 2], [0, 10, 20, 30, 40], "padding only: tangent 0", window=(1,), low=(1,)),
        one("ge", t, [-INF, -INF, 4, 2], [0, 30], "-inf does not beat the start", window=(2,), strides=(2,)),
        one("ge", t, [1, 3, 4, 2], [30, 20], "dilated windows", window=(2,), window_dilation=(2,)),
        one("ge", t[:2], [1, 3], [10, 20], "holes in x", window=(2,), base_dilation=(2,)),
        one("ge", t, [1, 3, 4, 2], [20, 30], dtype="bf16", window=(2,), strides=(2,)),
        one("ge", t[:1], [1], [], "the window does not fit", window=(2,)),
    ]


def _select_and_scatter() -> list[Example]:
    regions = {"select": lambda b, x, y: b.ge(x, y), "scatter": _add_body}
    keeping = {"select": lambda b, x, y: b.le(x, y), "scatter": lambda b, x, y: b.max(x, y)}
    x = array("f32", [1, 3, 4, 2])
    return [
        example(array("f32", [10, 20]), x, array("f32", 0), **_w(1, window=(2,), strides=(2,)), regions=regions, out=array("f32", [0, 10, 20, 0])),
        example(array("f32", [10, 20, 30]), x, array("f32", 1), **_w(1, window=(2,)), regions=regions, out=array("f32", [1, 11, 51, 1]), note="starts from init"),
        example(array("f32", [10, 30, 20]), x, array("f32", 0), **_w(1, window=(2,)), regions=keeping, out=array("f32", [10, 30, 0, 20]), note="the smallest, combined by max"),
        example(array("f32", [10, 20, 30]), x, array("f32", 0), **_w(1, window=(2,), strides=(2,), low=(1,), high=(1,)), regions=regions, out=array("f32", [10, 0, 20, 30]), note="padding is never selected"),
        example(array("i32", []), array("i32", [1]), array("i32", 5), **_w(1, window=(2,)), regions=regions, out=array("i32", [5]), note="the window does not fit"),
    ]  # fmt: skip


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "reduce_sum": _sum,
    "reduce_prod": _prod,
    "reduce_max": lambda: _extremes(True),
    "reduce_min": lambda: _extremes(False),
    "reduce_and": lambda: _bits("and"),
    "reduce_or": lambda: _bits("or"),
    "reduce_xor": lambda: _bits("xor"),
    "argmax": lambda: _arg(True),
    "argmin": lambda: _arg(False),
    "reduce": _reduce,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "cummax": lambda: _cumextreme(True),
    "cummin": lambda: _cumextreme(False),
    "cumlogsumexp": _cumlogsumexp,
    "reduce_window_sum": _window_sum,
    "reduce_window_prod": _window_prod,
    "reduce_window_max": lambda: _window_extreme(True),
    "reduce_window_min": lambda: _window_extreme(False),
    "reduce_window": _reduce_window,
    "select_and_scatter_add": _select_and_scatter_add,
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter": _select_and_scatter,
}
