"""Runnable examples of the sort ops; edges are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")


def _sort() -> list[Example]:
    x = array("f32", [3, NAN, -0.0, 0.0, -INF, INF, 0.0, -0.0, 1])
    place = np.arange(9, dtype=np.int32)
    order = np.array([4, 2, 3, 6, 7, 8, 0, 5, 1])
    keys = [array("i32", [1, 0, 1, 0]), array("f32", [2, NAN, 1, 5])]
    by_two = [3, 1, 2, 0]
    grid = array("i32", [[3, 1, 2], [0, 5, 4]])
    return [
        example(x, place, out=(x[order], place[order]), axis=0, note="zeros of both signs tie, NaN comes last"),
        example(x.astype(array("bf16", 0).dtype), axis=0),
        example(
            *keys,
            place[:4],
            out=(keys[0][by_two], keys[1][by_two], place[by_two]),
            axis=0,
            num_keys=2,
            note="two keys: the second decides among equals of the first",
        ),
        example(
            keys[0],
            place[:4],
            out=(array("i32", [0, 0, 1, 1]), array("i32", [1, 3, 0, 2])),
            axis=0,
            note="stable: equal keys keep their order",
        ),
        example(grid, out=np.sort(grid, axis=0), axis=0),
        example(grid, out=np.sort(grid, axis=1), axis=1, stable=False),
        example(array("bool", [True, False, True]), out=array("bool", [False, True, True]), axis=0),
        example(array("u8", [255, 0, 128]), out=array("u8", [0, 128, 255]), axis=0, note="unsigned"),
        example(array("i64", [2**62 + 1, 2**62, -1]), out=array("i64", [-1, 2**62, 2**62 + 1]), axis=0, note="exact"),
        example(array("c64", [1 + 2j, 1 + 1j, -3j]), out=array("c64", [-3j, 1 + 1j, 1 + 2j]), axis=0),
        example(array("f32", np.zeros((0, 2))), out=array("f32", np.zeros((0, 2))), axis=0, note="nothing"),
        example(array("f32", np.zeros((2, 0))), out=array("f32", np.zeros((2, 0))), axis=0, note="nothing"),
    ]


def _top(dtype: str, x: Any, values: Any, places: Any, note: str = "", **attrs: Any) -> Example:
    return example(array(dtype, x), out=(array(dtype, values), array("i32", places)), note=note, **attrs)


def _top_k() -> list[Example]:
    return [
        _top("f32", [1, 3, 2], [3, 2], [1, 2], k=2),
        _top("i32", [1, 3, 3, 1, 3], [3, 3, 3, 1], [1, 2, 4, 0], "ties: the lower position first", k=4),
        _top("f32", [1, NAN, INF], [NAN, INF], [1, 2], "NaN counts as largest", k=2),
        _top("f32", [[1, 5], [4, 2], [3, 9]], [[4, 9]], [[1, 2]], "another axis", k=1, axis=0),
        _top("i8", [-128, 127], [127, -128], [1, 0], "all of them", k=2),
        _top("u8", [0, 255, 7], [255], [1], k=1),
        _top("bf16", [0.5, 2, 1], [2, 1, 0.5], [1, 2, 0], k=3),
        _top("f32", [1, 2], [], [], "none", k=0),
    ]


def _fft() -> list[Example]:
    wave = np.array([1, 2, -1, 0.5, 3])
    box = np.arange(24).reshape(2, 3, 4) - 5.5 + 1j * np.linspace(-1, 1, 24).reshape(2, 3, 4)
    return [
        example(array("c64", [1, 0, 0, 0]), out=array("c64", [1, 1, 1, 1]), kind="fft", lengths=(4,)),
        example(array("c64", [4, 0, 0, 0]), out=array("c64", [1, 1, 1, 1]), kind="ifft", lengths=(4,), note="scaled"),
        example(array("f32", [1, 1, 1]), out=array("c64", [3, 0]), kind="rfft", lengths=(3,), note="odd: 3 // 2 + 1"),
        example(array("c64", [3, 0]), out=array("f32", [1, 1, 1]), kind="irfft", lengths=(3,)),
        example(array("c64", [2 + 5j, 0]), out=array("f32", [1, 1]), kind="irfft", lengths=(2,), note="ignored imag"),
        example(array("f32", [7]), out=array("c64", [7]), kind="rfft", lengths=(1,)),
        *[example(array("c128", wave), kind=k, lengths=(5,)) for k in ("fft", "ifft")],
        example(array("f64", wave), kind="rfft", lengths=(5,)),
        example(array("c64", wave[:3]), kind="irfft", lengths=(5,)),
        example(array("c64", wave[:3]), kind="irfft", lengths=(4,)),
        example(array("c64", box), kind="fft", lengths=(3, 4)),
        example(array("c128", box), kind="ifft", lengths=(2, 3, 4)),
        example(array("f32", box.real), kind="rfft", lengths=(3, 4)),
        example(array("c64", box), kind="irfft", lengths=(3, 7), note="two axes, the last one odd"),
        example(array("c64", box), kind="fft", lengths=(4,), note="leading axes are a batch"),
    ]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {"sort": _sort, "top_k": _top_k, "fft": _fft}
