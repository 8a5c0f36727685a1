"""Runnable examples of the movement ops: whatever they do to elements is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN = float("nan")
_GRID = np.arange(6, dtype=np.float32).reshape(2, 3)
_EMPTY = np.zeros((2, 0), np.float32)
# One array of each group of dtypes; none of these ops looks at the values.
_SOME = ("bool", "i4", "i8", "u64", "bf16", "f16", "f8e4m3fn", "c64")


def _count(dtype: str, *shape: int) -> np.ndarray:
    """0, 1, 0, 1, ... in any dtype."""
    return array(dtype, (np.arange(np.prod(shape)) % 2).reshape(shape))


def _in_all(function: Callable[[np.ndarray], np.ndarray], *shape: int, **attrs: Any) -> list[Example]:
    return [example(x, out=function(x), **attrs) for x in (_count(d, *shape) for d in _SOME)]


def _broadcast() -> list[Example]:
    row = array("f32", [1, 2, 3])
    return [
        example(row, shape=(2, 3), broadcast_dimensions=(1,), out=np.stack([row, row]), note="a new leading axis"),
        example(row, shape=(3, 2), broadcast_dimensions=(0,), out=np.stack([row, row], 1), note="a new last axis"),
        example(_GRID[:, :1], shape=(2, 3), broadcast_dimensions=(0, 1), out=array("f32", [[0] * 3, [3] * 3])),
        example(array("i64", 7), shape=(2, 2), broadcast_dimensions=(), out=np.full((2, 2), 7, np.int64)),
        example(row, shape=(0, 3), broadcast_dimensions=(1,), out=np.zeros((0, 3), np.float32), note="zero size"),
        example(row[:1], shape=(0,), broadcast_dimensions=(0,), out=row[:0], note="one element repeated no times"),
        example(array("f32", NAN), shape=(), broadcast_dimensions=(), out=array("f32", NAN)),
        *_in_all(lambda x: np.stack([x, x]), 2, shape=(2, 2), broadcast_dimensions=(1,)),
    ]


def _reshape() -> list[Example]:
    return [
        example(_GRID, shape=(3, 2), out=_GRID.reshape(3, 2), note="row-major order stays"),
        example(_GRID, shape=(6,), out=_GRID.reshape(6)),
        example(_GRID[:1, :1], shape=(), out=_GRID[0, 0], note="one element to a scalar"),
        example(array("i32", 5), shape=(1, 1), out=array("i32", [[5]])),
        example(_EMPTY, shape=(0, 7), out=np.zeros((0, 7), np.float32), note="nothing fits any shape of nothing"),
        *_in_all(lambda x: x.reshape(1, 4), 2, 2, shape=(1, 4)),
    ]


def _transpose() -> list[Example]:
    cube = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    return [
        example(_GRID, permutation=(1, 0), out=_GRID.T),
        example(cube, permutation=(2, 0, 1), out=cube.transpose(2, 0, 1), note="result axis i is axis permutation[i]"),
        example(cube, permutation=(0, 1, 2), out=cube),
        example(array("f32", 1), permutation=(), out=array("f32", 1)),
        example(_EMPTY, permutation=(1, 0), out=_EMPTY.T, note="zero size"),
        *_in_all(np.transpose, 2, 3, permutation=(1, 0)),
    ]


def _reverse() -> list[Example]:
    return [
        example(_GRID, dimensions=(1,), out=_GRID[:, ::-1]),
        example(_GRID, dimensions=(0, 1), out=_GRID[::-1, ::-1]),
        example(_GRID, dimensions=(), out=_GRID, note="no axis: x itself"),
        example(_EMPTY, dimensions=(0, 1), out=_EMPTY, note="zero size"),
        *_in_all(np.flipud, 4, dimensions=(0,)),
    ]


def _slice() -> list[Example]:
    line = np.arange(10, dtype=np.int32)
    return [
        example(line, start=(2,), limit=(9,), strides=(3,), out=array("i32", [2, 5, 8])),
        example(line, start=(2,), limit=(8,), strides=(3,), out=array("i32", [2, 5]), note="limit is not reached"),
        example(line, start=(4,), limit=(4,), out=line[:0], note="start == limit gives nothing"),
        example(line, start=(10,), limit=(10,), strides=(2,), out=line[:0], note="at the very end"),
        example(line, start=(0,), limit=(10,), strides=(100,), out=line[:1], note="a stride beyond the end"),
        example(_GRID, start=(1, 0), limit=(2, 2), out=_GRID[1:2, :2]),
        example(_EMPTY, start=(0, 0), limit=(2, 0), strides=(2, 1), out=_EMPTY[:1], note="zero size"),
        example(array("f32", 1), start=(), limit=(), out=array("f32", 1), note="a scalar"),
        *_in_all(lambda x: x[1:4:2], 5, start=(1,), limit=(4,), strides=(2,)),
    ]


def _dynamic_slice() -> list[Example]:
    line = np.arange(6, dtype=np.float32)

    def cut(dtype: str, start: int, *want: int, note: str = "") -> Example:
        return example(line, array(dtype, start), sizes=(3,), out=array("f32", want), note=note)

    return [
        cut("i32", 1, 1, 2, 3),
        cut("i32", 5, 3, 4, 5, note="too far: moved back inside"),
        cut("i64", -1, 0, 1, 2, note="negative: clamped to 0, not counted from the end"),
        cut("i8", -128, 0, 1, 2, note="the smallest start"),
        cut("u64", 2**64 - 1, 3, 4, 5, note="the largest unsigned start is far outside, not -1"),
        example(_GRID, array("i32", 1), array("u8", 2), sizes=(1, 2), out=_GRID[1:, 1:], note="starts of two dtypes"),
        example(line, array("i32", 4), sizes=(0,), out=line[:0], note="nothing asked"),
        example(_EMPTY, array("i32", 4), array("i32", 4), sizes=(1, 0), out=_EMPTY[:1], note="zero size"),
        example(array("f32", 3), sizes=(), out=array("f32", 3), note="a scalar needs no start"),
    ]


def _dynamic_update_slice() -> list[Example]:
    line, new = np.arange(6, dtype=np.float32), array("f32", [-1, -2])

    def put(start: int, *want: int, note: str = "") -> Example:
        return example(line, new, array("i32", start), out=array("f32", want), note=note)

    return [
        put(1, 0, -1, -2, 3, 4, 5),
        put(5, 0, 1, 2, 3, -1, -2, note="too far: moved back inside"),
        put(-3, -1, -2, 2, 3, 4, 5, note="negative: clamped to 0"),
        example(line, new[:0], array("i32", 2), out=line, note="an update of size 0 changes nothing"),
        example(_GRID, array("f32", [[9]]), array("i32", 1), array("i64", 1), out=array("f32", [[0, 1, 2], [3, 9, 5]])),
        example(_EMPTY, _EMPTY[:1], array("i32", 1), array("i32", 0), out=_EMPTY, note="zero size"),
        example(array("i32", 3), array("i32", 4), out=array("i32", 4), note="a scalar is replaced"),
        *[
            example(_count(d, 4), _count(d, 2), array("i32", 1), out=array(d, [0, 0, 1, 1]), note=d)
            for d in ("bool", "bf16", "i4", "c64")
        ],
    ]


def _pad() -> list[Example]:
    line, nine = array("i32", [1, 2, 3]), array("i32", 9)

    def one(low: int, high: int, gap: int | None, want: list[int], note: str = "") -> Example:
        attrs: dict[str, Any] = {"low": (low,), "high": (high,), "interior": None if gap is None else (gap,)}
        return example(line, nine, out=array("i32", want), note=note, **attrs)

    return [
        one(1, 2, None, [9, 1, 2, 3, 9, 9]),
        one(0, 0, 2, [1, 9, 9, 2, 9, 9, 3], note="interior"),
        one(-1, 0, None, [2, 3], note="negative low crops"),
        one(0, -2, None, [1], note="negative high crops"),
        one(-1, -1, 1, [9, 2, 9], note="cropping comes after the interior padding"),
        one(-2, 3, 1, [2, 9, 3, 9, 9, 9], note="cropped before, padded after"),
        one(-3, 0, None, [], note="all cropped"),
        one(-4, 2, None, [9], note="cropped into the padding"),
        one(3, -5, None, [9], note="only padding is left"),
        one(2, -3, 3, [9, 9, 1, 9, 9, 9, 2, 9], note="interior with cropping"),
        example(
            line[:0],
            nine,
            low=(1,),
            high=(1,),
            interior=(3,),
            out=array("i32", [9, 9]),
            note="no neighbours, no interior",
        ),
        example(line[:1], nine, low=(0,), high=(0,), interior=(5,), out=line[:1], note="one element has no neighbours"),
        example(
            _GRID,
            array("f32", NAN),
            low=(0, 1),
            high=(1, 0),
            interior=(0, 0),
            out=array("f32", [[NAN, 0, 1, 2], [NAN, 3, 4, 5], [NAN] * 4]),
        ),
        example(array("f32", 1), array("f32", 2), low=(), high=(), out=array("f32", 1), note="a scalar"),
        *[
            example(_count(d, 2), array(d, 1), low=(1,), high=(0,), interior=(1,), out=array(d, [1, 0, 1, 1]), note=d)
            for d in _SOME
        ],
    ]


def _concatenate() -> list[Example]:
    return [
        example(_GRID, _GRID[:1], axis=0, out=array("f32", [[0, 1, 2], [3, 4, 5], [0, 1, 2]])),
        example(_GRID, _GRID[:, :1], _GRID[:, 1:], axis=1, out=array("f32", [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]])),
        example(_GRID, axis=1, out=_GRID, note="one operand"),
        example(_EMPTY, _GRID, _EMPTY, axis=1, out=_GRID, note="operands of size 0 add nothing"),
        example(_EMPTY, _EMPTY, axis=0, out=np.zeros((4, 0), np.float32), note="zero size"),
        *[example(_count(d, 2), _count(d, 1), axis=0, out=array(d, [0, 1, 0]), note=d) for d in _SOME],
    ]


def _iota() -> list[Example]:
    def one(dtype: str, size: int, want: list[Any], note: str = "") -> Example:
        return example(dtype=dtype, shape=(size,), axis=0, out=array(dtype, want), note=note)

    return [
        *[one(d, 4, [0, 1, 2, 3]) for d in ("i8", "i32", "i64", "u8", "u64", "i4", "f16", "bf16", "f32", "f64", "c64")],
        example(dtype="i32", shape=(2, 3), axis=1, out=array("i32", [[0, 1, 2]] * 2)),
        example(dtype="i32", shape=(2, 3), axis=0, out=array("i32", [[0] * 3, [1] * 3])),
        example(dtype="f32", shape=(0, 3), axis=1, out=np.zeros((0, 3), np.float32), note="zero size"),
        example(dtype="i8", shape=(300,), axis=0, out=np.arange(300).astype(np.int8), note="indices wrap around"),
        example(
            dtype="bf16", shape=(259,), axis=0, out=array("bf16", [*range(257), 256, 258]), note="257 rounds to even"
        ),
    ]


def _dim_size() -> list[Example]:
    return [
        example(dim=7, dtype="i64", out=array("i64", 7)),
        example(dim=0, dtype="i32", out=array("i32", 0)),
        example(dim=2**40, dtype="i64", out=array("i64", 2**40), note="more than 32 bits"),
    ]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "iota": _iota,
    "dim_size": _dim_size,
}
