"""Rows of the ONNX export that read and write at computed positions.

Every gather and scatter becomes one Gather or Scatter along the first axis of a matrix: the steered axes
of the operand are merged into rows, and index vectors into row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dtypes import bf16, bool_, f32, i64
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import index as x_ops

from .emitter import Emitter
from .export_elementwise import number
from .export_movement import along, index64, linear_index
from .export_reduce import extreme_value
from .handles import Array, NeedsOpset, Size


@dataclass
class _Windows:
    """Where windows stand: the operand's axes in rows (``lead``) and columns (``rest``), and row numbers.

    ``rows`` has the axes of indices but the last, then one axis for each of ``shown`` (lead axes that windows
    show). ``inside`` tells for each window whether it lies inside (None: always).
    """

    lead: list[int]
    rest: list[int]
    shown: list[int]
    rows: Array | None
    inside: Array | None


def _windows(
    o: Emitter,
    x: Array,
    indices: Array,
    index_map: Sequence[int],
    sizes: Sequence[Any],
    symbolic_sizes: Sequence[Any],
    hidden: Sequence[int],
    batching: Sequence[int],
    indices_batching: Sequence[int],
    test: bool,
) -> _Windows:
    known = o.operation.inputs[0].type.shape
    whole = [
        a for a in range(x.rank) if a not in batching and a not in hidden and dims.equal(known[a], symbolic_sizes[a])
    ]
    lead = [a for a in range(x.rank) if a not in whole]
    rest = [a for a in range(x.rank) if a in whole]
    shown = [a for a in lead if a not in hidden]
    places = indices.rank - 1
    rank = places + len(shown)
    indices = index64(o, indices)
    inside: Array | None = None
    coordinates = []
    for a in lead:
        place: Array = o.const(np.zeros((1,) * rank, np.int64))
        if a in batching:
            axis = indices_batching[list(batching).index(a)]
            place = along(o, o.iota(indices.shape[axis]), axis, rank)
        elif a in index_map:
            k = list(index_map).index(a)
            start = o.squeeze(o.slice(indices, [k], [k + 1], [places]), [places])
            room = o.scalar(x.shape[a] - sizes[a])
            if test:
                good = o.And(o.GreaterOrEqual(start, 0), o.LessOrEqual(start, room))
                inside = good if inside is None else o.And(inside, good)
            start = o.Max(o.Min(start, room), 0)
            place = o.unsqueeze(start, list(range(places, rank)))
        if a in shown:
            place = o.Add(place, along(o, o.iota(sizes[a]), places + shown.index(a), rank))
        coordinates.append(place)
    # An axis that is whole and steered cannot move: a start other than 0 is out of bounds.
    for k, a in enumerate(index_map):
        if test and a in rest:
            start = o.squeeze(o.slice(indices, [k], [k + 1], [places]), [places])
            good = o.Equal(start, 0)
            inside = good if inside is None else o.And(inside, good)
    rows = None
    if lead:
        full = (*indices.shape[:-1], *(sizes[a] for a in shown))
        rows = o.expand(linear_index(o, coordinates, [x.shape[a] for a in lead]), full)
    return _Windows(lead, rest, shown, rows, inside)


def _product(sizes: Sequence[Any]) -> Any:
    total: Any = 1
    for n in sizes:
        total = n * total
    return total


def _matrix(o: Emitter, x: Array, w: _Windows) -> Array:
    """x with the lead axes merged into the first and the others as they are."""
    y = o.transpose(x, (*w.lead, *w.rest))
    return o.reshape(y, (_product([x.shape[a] for a in w.lead]), *(x.shape[a] for a in w.rest)))


def _gather(
    o: Emitter,
    x: Array,
    indices: Array,
    offset_dims: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
    slice_sizes: Sequence[Any],
    operand_batching_dims: Sequence[int],
    start_indices_batching_dims: Sequence[int],
    mode: str,
    fill_value: Any,
) -> Array:
    out = o.operation.outputs[0].type
    if any(type(n) is int and n == 0 for n in out.shape):
        sizes = iter([n for a, n in enumerate(slice_sizes) if a not in (*collapsed_slice_dims, *operand_batching_dims)])
        spots = iter(indices.shape[:-1])
        return o.full(0, x.dtype, [next(sizes if a in offset_dims else spots) for a in range(out.rank)])
    hidden = (*collapsed_slice_dims, *operand_batching_dims)
    symbolic = o.operation.attrs["slice_sizes"]
    w = _windows(
        o, x, indices, start_index_map, slice_sizes, symbolic, hidden,
        operand_batching_dims, start_indices_batching_dims, mode == "fill",
    )  # fmt: skip
    places = indices.rank - 1
    if w.rows is None:
        result = o.expand(x, (*indices.shape[:-1], *x.shape))
    else:
        shape = (*w.rows.shape, *(x.shape[a] for a in w.rest))
        result = o.Gather(_matrix(o, x, w), w.rows, axis=0, shape=shape)
    # Axes now: places, shown lead axes, rest. The result wants window axes in the operand's order at offset_dims.
    order = [*w.shown, *w.rest]
    position = {a: places + i for i, a in enumerate(order)}
    window = iter([position[a] for a in sorted(order)])
    place = iter(range(places))
    result = o.transpose(result, [next(window if a in offset_dims else place) for a in range(result.rank)])
    if w.inside is None:
        return result
    if fill_value is None:
        fill = extreme_value(x.dtype, largest=x.dtype.kind == "uint")
        fill = np.nan if x.dtype.is_inexact else True if x.dtype is bool_ else fill
    else:
        fill = fill_value
    inside = o.unsqueeze(w.inside, list(offset_dims))
    return o.Where(inside, result, number(o, fill, x.dtype))


_REDUCTIONS = {"replace": "none", "add": "add", "sub": "add", "mul": "mul", "min": "min", "max": "max"}


def _scatter(
    o: Emitter,
    x: Array,
    indices: Array,
    updates: Array,
    combiner: str,
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    operand_batching_dims: Sequence[int],
    scatter_indices_batching_dims: Sequence[int],
    mode: str,
    unique_indices: bool,
) -> Array:
    if any(type(n) is int and n == 0 for n in (*updates.shape, *x.shape)):
        return x
    reduction = _REDUCTIONS[combiner]
    if reduction in ("min", "max") and o.opset < 18:
        raise NeedsOpset(f"scatter with {combiner}", 18)
    if x.dtype is bool_:
        logical = {"add": "max", "mul": "min"}.get(reduction, reduction)
        if logical in ("min", "max") and o.opset < 18:
            raise NeedsOpset("scatter on bool", 18)
        reduction = logical
    hidden = (*inserted_window_dims, *operand_batching_dims)
    shown = iter(update_window_dims)
    at = {a: next(shown) for a in range(x.rank) if a not in hidden}  # operand axis -> updates axis
    sizes = [updates.shape[at[a]] if a in at else 1 for a in range(x.rank)]
    declared = o.operation.inputs[2].type.shape
    symbolic = [declared[at[a]] if a in at else 1 for a in range(x.rank)]
    w = _windows(
        o, x, indices, scatter_dims_to_operand_dims, sizes, symbolic, hidden,
        operand_batching_dims, scatter_indices_batching_dims, mode != "clip",
    )  # fmt: skip
    if w.rows is None:  # every window is all of x: number the copies of x by a row of size 1
        w = _Windows([], w.rest, [], o.full(0, i64, indices.shape[:-1]), w.inside)
    assert w.rows is not None
    places = [a for a in range(updates.rank) if a not in update_window_dims]
    moved = o.transpose(updates, [*places, *(at[a] for a in (*w.shown, *w.rest))])
    columns = [x.shape[a] for a in w.rest]
    count, width = _product([x.shape[a] for a in w.lead]), _product(columns)
    rows = w.rows
    matrix = o.reshape(o.transpose(x, (*w.lead, *w.rest)), (count, width))
    if w.inside is not None:  # windows outside write to one more row, which is cut off afterwards
        good = o.unsqueeze(w.inside, list(range(w.inside.rank, rows.rank)))
        rows = o.Where(good, rows, o.scalar(count))
        matrix = o.concat([matrix, o.slice(matrix, [0], [1], [0])], 0)
    many = _product(rows.shape)
    index = o.reshape(rows, (many, 1))
    values = o.reshape(moved, (many, width))
    if combiner == "sub":
        values = o.Sub(number(o, 0, x.dtype), values)
    result = _combine(o, matrix, index, values, reduction, unique_indices)
    if w.inside is not None:
        result = o.slice(result, [0], [count], [0])
    result = o.reshape(result, [x.shape[a] for a in (*w.lead, *w.rest)])
    order = [*w.lead, *w.rest]
    return o.transpose(result, [order.index(a) for a in range(x.rank)])


def _combine(o: Emitter, matrix: Array, index: Array, values: Array, reduction: str, unique: bool) -> Array:
    if matrix.dtype is bool_ and reduction != "none":
        u8 = number(o, 0, o.const(np.zeros((), np.uint8)).dtype).dtype
        return o.cast(_combine(o, o.cast(matrix, u8), index, o.cast(values, u8), reduction, unique), bool_)
    options = {} if reduction == "none" else {"reduction": reduction}
    if reduction in ("add", "mul") and matrix.dtype.is_float and matrix.dtype.bits < 32:
        if not unique:
            return _one_by_one(o, matrix, index, values, "Add" if reduction == "add" else "Mul")
        single = o.cast(matrix, f32), o.cast(values, f32)
        return o.cast(_combine(o, single[0], index, single[1], reduction, unique), matrix.dtype)
    if reduction in ("min", "max") and matrix.dtype is bf16:  # ONNX Runtime has no such kernel
        single = o.cast(matrix, f32), o.cast(values, f32)
        return o.cast(_combine(o, single[0], index, single[1], reduction, unique), bf16)
    if unique and reduction == "none":
        return o.ScatterND(matrix, index, values, **options)
    # ScatterElements goes through the updates in order, so that the last of several wins.
    full = o.expand(index, (index.shape[0], matrix.shape[1]))
    result = o.ScatterElements(matrix, full, values, axis=0, **options)
    if reduction in ("min", "max") and matrix.dtype.is_float:
        # The runtime's comparison drops NaN: find out separately where one went in.
        met = o.ScatterElements(
            o.cast(o.IsNaN(matrix), f32), full, o.cast(o.IsNaN(values), f32), axis=0, reduction="max"
        )
        result = o.Where(o.Greater(met, 0), number(o, np.nan, matrix.dtype), result)
    return result


def _one_by_one(o: Emitter, matrix: Array, index: Array, values: Array, op_type: str) -> Array:
    """Rows combined one after the other, each result rounded to the short dtype."""
    width = matrix.shape[1]

    def step(i: Array, state: Array) -> list[Array]:
        at = o.Gather(index, i, axis=0, shape=(1,))
        row = o.emit(
            op_type,
            (
                o.Gather(state, at, axis=0, shape=(1, width)),
                o.Gather(values, o.reshape(i, (1,)), axis=0, shape=(1, width)),
            ),
        )
        return [o.ScatterND(state, o.reshape(at, (1, 1)), row)]

    return o.loop(o.scalar(index.shape[0]), [matrix], step)[0]


def _nonzero(o: Emitter, x: Array, symbol: str) -> Array:
    found = x if x.dtype is bool_ else o.Not(o.Equal(x, 0))
    if x.rank == 0:
        column = o.transpose(o.NonZero(o.reshape(found, (1,)), shape=(1, -1)), (1, 0))
        return o.slice(column, [0], [0], [1])
    table = o.NonZero(found)
    return o.Transpose(table, perm=[1, 0])


def _sized(o: Emitter, sizes: Array, symbols: Sequence[str]) -> Array:
    vector = index64(o, sizes)
    false = o.tensor(np.zeros(1, np.bool_), "", bool_)
    parts = [Size(o, lambda i=i: o.slice(vector, [i], [i + 1], [0])) for i in range(len(symbols))]  # type: ignore[misc]
    return o.ConstantOfShape(vector, value=false, dtype=bool_, shape=parts)


ROWS: dict[OpDef, Row] = {
    x_ops.gather: _gather,
    x_ops.scatter: _scatter,
    x_ops.nonzero: _nonzero,
    x_ops.sized: _sized,
}
