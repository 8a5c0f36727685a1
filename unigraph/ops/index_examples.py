"""Runnable examples of gather, scatter and nonzero, out-of-bounds and repeated indices above all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")
_LINE = array("f32", [10, 11, 12, 13])
_GRID = np.arange(12, dtype=np.int32).reshape(3, 4)


def _rows(dtype: str, *indices: int) -> np.ndarray:
    """Index vectors of one entry."""
    return array(dtype, [[i] for i in indices])


def _pick(x: np.ndarray, indices: np.ndarray, out: Any, note: str = "", **attrs: Any) -> Example:
    """Single elements of an array of rank 1."""
    numbers = {"offset_dims": (), "collapsed_slice_dims": (0,), "start_index_map": (0,), "slice_sizes": (1,)}
    return example(x, indices, out=out, note=note, **{**numbers, **attrs})


def _fills() -> list[Example]:
    """What stands out of bounds in each kind of dtype when nothing else is asked."""
    known: dict[str, Any] = {
        "f32": NAN, "f64": NAN, "bf16": NAN, "f16": NAN, "c64": NAN, "i8": -128, "i32": -(2**31), "i64": -(2**63),
        "u8": 255, "u32": 2**32 - 1, "u64": 2**64 - 1, "bool": True,
    }  # fmt: skip
    return [
        _pick(array(d, [0, 1]), _rows("i32", 1, 2), array(d, [1, fill]), "default fill", mode="fill")
        for d, fill in known.items()
    ]


def _gather() -> list[Example]:
    far = _rows("i32", 3, 4, -1, 2**31 - 1, -(2**31))
    table: dict[str, Any] = {
        "offset_dims": (1,),
        "collapsed_slice_dims": (0,),
        "start_index_map": (0,),
        "slice_sizes": (1, 4),
    }
    block: dict[str, Any] = {
        "offset_dims": (1, 2),
        "collapsed_slice_dims": (),
        "start_index_map": (0, 1),
        "slice_sizes": (2, 2),
    }
    corner = array("i32", [[0, 1], [2, 2], [1, 3], [-1, 0]])
    batch: dict[str, Any] = {
        "offset_dims": (), "collapsed_slice_dims": (1,), "start_index_map": (1,), "slice_sizes": (1, 1),
        "operand_batching_dims": (0,), "start_indices_batching_dims": (0,),
    }  # fmt: skip
    return [
        _pick(_LINE, _rows("i32", 2, 0, 2), array("f32", [12, 10, 12])),
        _pick(_LINE, far, array("f32", [13, 13, 10, 13, 10]), "clip moves windows inside; -1 is not the last", mode="clip"),
        _pick(_LINE, far, array("f32", [13, NAN, NAN, NAN, NAN]), "fill gives NaN; -1 is out of bounds", mode="fill"),
        _pick(_LINE, far, array("f32", [13, 7, 7, 7, 7]), "fill with a value", mode="fill", fill_value=7),
        _pick(_LINE, _rows("i32", 1, 3), array("f32", [11, 13]), "promised to be inside", mode="promise"),
        _pick(_LINE, _rows("u8", 255, 1), array("f32", [13, 11]), "unsigned indices", mode="clip"),
        _pick(_LINE, _rows("u64", 2**64 - 1, 1), array("f32", [NAN, 11]), "a large unsigned index is not -1", mode="fill"),
        _pick(_LINE, _rows("i64", 2**40, 1), array("f32", [13, 11]), "a 64-bit index is not cut to 32 bits", mode="clip"),
        *_fills(),
        example(_GRID, _rows("i32", 2, 0), **table, out=_GRID[[2, 0]], note="rows of a table"),
        example(_GRID, _rows("i32", 2, 9), **table, mode="fill", out=array("i32", [_GRID[2], [-(2**31)] * 4])),
        example(_GRID, array("i32", [[[1], [0]]]), **{**table, "offset_dims": (2,)}, out=_GRID[[[1, 0]]]),
        example(_GRID, _rows("i32", 2, 0), **{**table, "offset_dims": (0,)}, out=_GRID[[2, 0]].T, note="windows stand first"),
        example(
            _GRID, corner, **block, mode="clip",
            out=np.stack([_GRID[0:2, 1:3], _GRID[1:3, 2:4], _GRID[1:3, 2:4], _GRID[0:2, 0:2]]),
            note="a window that sticks out is moved inside as a whole",
        ),
        example(
            _GRID, corner, **block, mode="fill", fill_value=-1,
            out=np.stack([_GRID[0:2, 1:3], *[np.full((2, 2), -1, np.int32)] * 3]),
            note="a window that sticks out is filled as a whole",
        ),
        example(_GRID, array("i32", [[1], [3], [0]]), **batch, out=array("i32", [1, 7, 8]), note="batching axes"),
        example(_GRID, array("i32", [[1], [4], [-1]]), **batch, mode="fill", fill_value=0, out=array("i32", [1, 0, 0])),
        example(
            _GRID, array("i32", [[3, 2], [1, 0]]), offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(1, 0),
            slice_sizes=(1, 1), out=array("i32", [11, 1]), note="start_index_map names the axis of each entry",
        ),
        example(_GRID, np.zeros((2, 0), np.int32), offset_dims=(1, 2), collapsed_slice_dims=(), start_index_map=(), slice_sizes=(1, 2), out=np.stack([_GRID[:1, :2]] * 2), note="index vectors of no entries"),
        example(_GRID, np.zeros((0, 1), np.int32), **table, out=np.zeros((0, 4), np.int32), note="no index vectors"),
        example(np.zeros((3, 0), np.float32), _rows("i32", 1), **{**table, "slice_sizes": (1, 0)}, out=np.zeros((1, 0), np.float32), note="rows of size 0"),
    ]  # fmt: skip


def _put(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, out: Any, note: str = "", **attrs: Any) -> Example:
    """Single elements of an array of rank 1."""
    numbers = {"update_window_dims": (), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)}
    return example(x, indices, updates, out=out, note=note, **{"combiner": "add", **numbers, **attrs})


def _twice(dtype: str, combiner: str, x: list[Any], updates: list[Any], out: list[Any], note: str = "") -> Example:
    """Updates that all hit element 1."""
    return _put(
        array(dtype, x),
        _rows("i32", *[1] * len(updates)),
        array(dtype, updates),
        array(dtype, out),
        note,
        combiner=combiner,
    )


def _scatter() -> list[Example]:
    four = array("f32", [1, 2, 3, 4])
    far = _rows("i32", 3, 4, -1, 0)
    rows: dict[str, Any] = {
        "update_window_dims": (1,),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
    }
    block: dict[str, Any] = {
        "update_window_dims": (1, 2),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (0, 1),
    }
    batch: dict[str, Any] = {
        "update_window_dims": (), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,),
        "operand_batching_dims": (0,), "scatter_indices_batching_dims": (0,),
    }  # fmt: skip
    ones = np.ones((3, 2, 2), np.int32)
    return [
        _put(_LINE, _rows("i32", 2, 0), four[:2], array("f32", [2, 11, 1, 13]), combiner="replace", unique_indices=True),
        _put(_LINE, far, four, array("f32", [14, 11, 12, 14]), "fill drops what is out of bounds; -1 is", mode="fill"),
        _put(_LINE, far, four, array("f32", [17, 11, 12, 16]), "clip moves windows inside", mode="clip"),
        _put(_LINE, _rows("i32", 2), four[:1], array("f32", [10, 11, 13, 13]), "promised to be inside", mode="promise"),
        _put(_LINE, _rows("i32", 9), four[:1], _LINE, "a broken promise", mode="promise"),
        _put(_LINE, _rows("u64", 2**64 - 1), four[:1], _LINE, "a large unsigned index is not -1", mode="fill"),
        _put(_LINE, _rows("i32", 7, 9), four[:2], _LINE, "all dropped", combiner="replace", mode="fill"),
        _twice("f32", "add", [1, 1, 1], [2, 3, 4], [1, 10, 1], "repeated indices add up"),
        _twice("i32", "sub", [1, 1, 1], [2, 3, 4], [1, -8, 1]),
        _twice("i32", "mul", [1, 2, 1], [2, 3, 4], [1, 48, 1]),
        _twice("i32", "max", [1, 2, 1], [2, 7, 4], [1, 7, 1]),
        _twice("i32", "min", [1, 2, 1], [2, -7, 4], [1, -7, 1]),
        _twice("f32", "replace", [1, 2, 1], [2, 7, 4], [1, 4, 1], "the last one wins"),
        _twice("i8", "add", [0, 127, 0], [1, 1], [0, -127, 0], "integers wrap around"),
        _twice("u8", "sub", [0, 0, 0], [1], [0, 255, 0]),
        _twice("i8", "mul", [0, 64, 0], [2, 3], [0, -128, 0]),
        _twice("i4", "add", [0, 7, 0], [1], [0, -8, 0]),
        _twice("u64", "max", [0, 2**63, 0], [2**64 - 1], [0, 2**64 - 1, 0], "unsigned order"),
        _twice("bool", "add", [False, False, True], [False, True], [False, True, True], "add is `or` on bool"),
        _twice("bool", "mul", [True, True, True], [True, False], [True, False, True], "mul is `and` on bool"),
        _twice("bool", "replace", [True, True, True], [False], [True, False, True]),
        _twice("bf16", "add", [0, 256, 0], [1, 1], [0, 256, 0], "each sum is rounded to bf16: 256 + 1 is 256"),
        _twice("f16", "add", [0, 2048, 0], [1, 1], [0, 2048, 0], "each sum is rounded to f16"),
        _twice("c64", "add", [0, 1j, 0], [1, 2j], [0, 1 + 3j, 0]),
        _twice("c64", "mul", [0, 1j, 0], [1j, 2], [0, -2, 0]),
        _twice("f32", "max", [0, 1, 0], [NAN, 2], [0, NAN, 0], "NaN stays"),
        _twice("f32", "min", [0, 1, 0], [2, NAN], [0, NAN, 0]),
        _twice("f32", "max", [0, -INF, 0], [-INF, INF], [0, INF, 0]),
        _twice("f32", "add", [0, -0.0, 0], [-0.0], [0, -0.0, 0], "-0.0 + -0.0 is -0.0"),
        _twice("f32", "max", [0, -0.0, 0], [0.0], [0, 0.0, 0], "+0.0 beats -0.0"),
        _twice("f32", "min", [0, 0.0, 0], [-0.0], [0, -0.0, 0], "-0.0 beats +0.0"),
        example(_GRID, _rows("i32", 2, 0, 2), np.ones((3, 4), np.int32), combiner="add", **rows, out=_GRID + array("i32", [[1], [0], [2]]), note="rows"),
        example(_GRID, array("i32", [[0, 1], [1, 2], [2, 3]]), ones, combiner="add", **block, out=_GRID + array("i32", [[0, 1, 1, 0], [0, 1, 2, 1], [0, 0, 1, 1]]), note="a window that sticks out is dropped as a whole"),
        example(_GRID, array("i32", [[2, 3]]), ones[:1], combiner="add", **block, mode="clip", out=_GRID + array("i32", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]), note="or moved inside as a whole"),
        example(_GRID, array("i32", [[1], [4], [0]]), array("i32", [100, 200, 300]), combiner="add", **batch, out=array("i32", [[0, 101, 2, 3], [4, 5, 6, 7], [308, 9, 10, 11]]), note="batching axes"),
        example(_GRID, np.zeros((0, 1), np.int32), np.zeros((0, 4), np.int32), combiner="add", **rows, out=_GRID, note="no index vectors"),
        example(np.zeros((3, 0), np.float32), _rows("i32", 1), np.zeros((1, 0), np.float32), combiner="add", **rows, out=np.zeros((3, 0), np.float32), note="zero size"),
    ]  # fmt: skip


def _nonzero() -> list[Example]:
    def one(x: np.ndarray, *rows: list[int], note: str = "") -> Example:
        return example(x, symbol="found", out=array("i64", rows).reshape(len(rows), x.ndim), note=note)

    return [
        one(array("f32", [[1, 0], [-0.0, NAN]]), [0, 0], [1, 1], note="NaN counts, -0.0 does not"),
        one(array("bool", [False, True, True]), [1], [2]),
        one(array("c64", [0, 1j, 1]), [1], [2]),
        one(array("bf16", [0, 1e-38, 2]), [1], [2]),
        one(array("i4", [-8, 0, 7]), [0], [2]),
        one(array("i32", [0, 0]), note="none found"),
        one(np.zeros((0, 3), np.float32), note="zero size"),
        one(array("i32", 3), [], note="a scalar that is not zero: one row of no entries"),
        one(array("i32", 0), note="a scalar that is zero: no rows"),
    ]


def _sized() -> list[Example]:
    return [
        example(array("i64", [2, 3]), symbols=("rows", "columns"), out=np.zeros((2, 3), bool)),
        example(array("i32", [0]), symbols=("none",), out=np.zeros((0,), bool), note="zero size"),
        example(np.zeros((0,), np.int64), symbols=(), out=np.zeros((), bool), note="no sizes: a scalar"),
    ]


EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "gather": _gather,
    "scatter": _scatter,
    "nonzero": _nonzero,
    "sized": _sized,
}
