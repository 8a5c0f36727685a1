"""Ops that move, repeat, cut and join elements; no arithmetic is done on them."""

from __future__ import annotations

from .. import dims
from ..dims import Dim
from ..dtypes import BOOL, KEY, DType
from ..opdef import Attr, family
from ..types import TensorType, same_shape
from .shapes import at_most, dilated, distinct_axes, is_sorted, no_key, not_negative, one_axis, refuse

_op = family("movement", "movement")


def _sizes(label: str, shape: tuple[Dim, ...]) -> None:
    for n in shape:
        if not not_negative(n):
            refuse(label, f"sizes {shape} must not be negative")


# -- shape ---------------------------------------------------------------------------------------


def _broadcast_in_dim(x: TensorType, shape: tuple[Dim, ...], broadcast_dimensions: tuple[int, ...]) -> TensorType:
    no_key("broadcast_in_dim_c1", x)
    _sizes("broadcast_in_dim_c2", shape)
    if len(broadcast_dimensions) != len(x.shape):
        refuse("broadcast_in_dim_c3", f"broadcast_dimensions {broadcast_dimensions} must name one axis for each of {x}")
    distinct_axes("broadcast_in_dim_c4", "broadcast_dimensions", broadcast_dimensions, len(shape))
    if not is_sorted(broadcast_dimensions):
        refuse("broadcast_in_dim_c4", f"broadcast_dimensions {broadcast_dimensions} must rise; transpose first")
    for n, d in zip(x.shape, broadcast_dimensions):
        if n != 1 and not dims.compatible(n, shape[d]):
            refuse("broadcast_in_dim_c5", f"size {n} of {x} must be 1 or {shape[d]}, the size of result axis {d}")
    return TensorType(x.dtype, shape)


broadcast_in_dim = _op(
    "broadcast_in_dim",
    "x",
    _broadcast_in_dim,
    "x repeated to `shape`: axis i of x becomes axis broadcast_dimensions[i] of the result; an axis of "
    "size 1 is repeated, all other result axes are new. A size may be 0.",
    {
        "shape": Attr("dims", doc="sizes of the result"),
        "broadcast_dimensions": Attr("ints", doc="the result axis of each axis of x, rising"),
    },
)


def _reshape(x: TensorType, shape: tuple[Dim, ...]) -> TensorType:
    no_key("reshape_c1", x)
    _sizes("reshape_c2", shape)
    if not dims.compatible(dims.product(x.shape), dims.product(shape)):
        refuse("reshape_c3", f"{x} has {x.size} elements, {shape} holds {dims.product(shape)}")
    return TensorType(x.dtype, shape)


reshape = _op(
    "reshape",
    "x",
    _reshape,
    "The elements of x in row-major order under another shape of as many elements. No size is -1: "
    "importers work out what it stands for.",
    {"shape": Attr("dims", doc="sizes of the result")},
)


def _transpose(x: TensorType, permutation: tuple[int, ...]) -> TensorType:
    no_key("transpose_c1", x)
    if sorted(permutation) != list(range(len(x.shape))):
        refuse("transpose_c2", f"permutation {permutation} must name each axis of {x} once")
    return TensorType(x.dtype, [x.shape[p] for p in permutation])


transpose = _op(
    "transpose",
    "x",
    _transpose,
    "Axis i of the result is axis permutation[i] of x.",
    {"permutation": Attr("ints", doc="an axis of x for each axis of the result")},
)


def _reverse(x: TensorType, dimensions: tuple[int, ...]) -> TensorType:
    no_key("reverse_c1", x)
    distinct_axes("reverse_c2", "dimensions", dimensions, len(x.shape))
    return x


reverse = _op(
    "reverse",
    "x",
    _reverse,
    "x with the order of the elements turned round along the given axes.",
    {"dimensions": Attr("ints", doc="the axes to turn round")},
)


# -- cutting -------------------------------------------------------------------------------------


def _slice(
    x: TensorType, start: tuple[Dim, ...], limit: tuple[Dim, ...], strides: tuple[int, ...] | None
) -> TensorType:
    no_key("slice_c1", x)
    rank = len(x.shape)
    if len(start) != rank or len(limit) != rank or (strides is not None and len(strides) != rank):
        refuse("slice_c2", f"start, limit and strides need one entry for each axis of {x}")
    for n, lo, hi in zip(x.shape, start, limit):
        if not (not_negative(lo) and at_most(lo, hi) and at_most(hi, n)):
            refuse("slice_c3", f"must hold 0 <= start <= limit <= size, got {lo}, {hi} and {n}")
    if strides is None:
        return TensorType(x.dtype, [hi - lo for lo, hi in zip(start, limit)])
    if rank and min(strides) < 1:
        refuse("slice_c4", f"strides {strides} must be at least 1; use reverse for negative ones")
    return TensorType(x.dtype, [dims.floordiv(hi - lo + s - 1, s) for lo, hi, s in zip(start, limit, strides)])


slice = _op(
    "slice",
    "x",
    _slice,
    "Elements start, start + stride, ... below limit along each axis. Bounds lie inside x: nothing is "
    "clamped, nothing counts from the end. start == limit gives size 0.",
    {
        "start": Attr("dims", doc="first element along each axis"),
        "limit": Attr("dims", doc="one past the last element along each axis"),
        "strides": Attr("ints", None, "step along each axis, at least 1; None: all 1"),
    },
)


def _starts(name: str, x: TensorType, starts: tuple[TensorType, ...]) -> None:
    if len(starts) != len(x.shape):
        refuse(f"{name}_c2", f"needs a start for each axis of {x}, got {len(starts)}")
    for s in starts:
        if s.shape or not s.dtype.is_integer:
            refuse(f"{name}_c3", f"starts must be integer scalars, got {s}")


def _dynamic_slice(x: TensorType, *starts: TensorType, sizes: tuple[Dim, ...]) -> TensorType:
    no_key("dynamic_slice_c1", x)
    _starts("dynamic_slice", x, starts)
    if len(sizes) != len(x.shape):
        refuse("dynamic_slice_c4", f"sizes {sizes} need one entry for each axis of {x}")
    for n, size in zip(x.shape, sizes):
        if not (not_negative(size) and at_most(size, n)):
            refuse("dynamic_slice_c5", f"sizes {sizes} must lie between 0 and the sizes of {x}")
    return TensorType(x.dtype, sizes)


dynamic_slice = _op(
    "dynamic_slice",
    "x, *starts",
    _dynamic_slice,
    "A block of x whose first element is given at run time. A start is clamped to 0..size-sizes so that "
    "the block lies inside x; a negative start is clamped to 0, it does not count from the end.",
    {"sizes": Attr("dims", doc="sizes of the block")},
)


def _dynamic_update_slice(x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
    no_key("dynamic_update_slice_c1", x)
    _starts("dynamic_update_slice", x, starts)
    if update.dtype is not x.dtype or len(update.shape) != len(x.shape):
        refuse("dynamic_update_slice_c4", f"update {update} must have the dtype and rank of {x}")
    for n, size in zip(x.shape, update.shape):
        if not at_most(size, n):
            refuse("dynamic_update_slice_c5", f"update {update} must fit into {x}")
    return x


dynamic_update_slice = _op(
    "dynamic_update_slice",
    "x, update, *starts",
    _dynamic_update_slice,
    "x with a block replaced by update; starts are clamped as in dynamic_slice.",
    {},
)


# -- joining -------------------------------------------------------------------------------------


def _pad(
    x: TensorType, value: TensorType, low: tuple[Dim, ...], high: tuple[Dim, ...], interior: tuple[int, ...] | None
) -> TensorType:
    no_key("pad_c1", x)
    if value.dtype is not x.dtype or value.shape:
        refuse("pad_c2", f"the padding value must be a scalar {x.dtype}, got {value}")
    rank = len(x.shape)
    if len(low) != rank or len(high) != rank or (interior is not None and len(interior) != rank):
        refuse("pad_c3", f"low, high and interior need one entry for each axis of {x}")
    if interior is not None and rank and min(interior) < 0:
        refuse("pad_c4", f"interior {interior} must not be negative")
    shape = [
        n + lo + hi if not gap else dilated(n, gap + 1) + lo + hi
        for n, lo, hi, gap in zip(x.shape, low, high, interior or (0,) * rank)
    ]
    for n in shape:
        if not not_negative(n):
            refuse("pad_c5", f"the result would have the sizes {tuple(shape)}; crop less of {x}")
    return TensorType(x.dtype, shape)


pad = _op(
    "pad",
    "x, value",
    _pad,
    "x with `interior` copies of value between neighbours, then `low` before and `high` after, along each "
    "axis. A negative low or high crops instead (after the interior padding), but never below size 0.",
    {
        "low": Attr("dims", doc="elements before the first; negative crops"),
        "high": Attr("dims", doc="elements after the last; negative crops"),
        "interior": Attr("ints", None, "elements between neighbours, at least 0; None: all 0"),
    },
)


def _concatenate(*xs: TensorType, axis: int) -> TensorType:
    if not xs:
        refuse("concatenate_c1", "needs at least one operand")
    first = xs[0]
    no_key("concatenate_c2", first)
    one_axis("concatenate_c3", axis, len(first.shape))
    if len(xs) == 1:
        return first
    before, after = first.shape[:axis], first.shape[axis + 1 :]
    total = first.shape[axis]
    for x in xs[1:]:
        if x.dtype is not first.dtype:
            refuse("concatenate_c4", f"operands must share a dtype: {first} and {x}; convert one")
        if len(x.shape) != len(first.shape) or not (
            same_shape(x.shape[:axis], before) and same_shape(x.shape[axis + 1 :], after)
        ):
            refuse("concatenate_c5", f"operands may differ only in axis {axis}: {first} and {x}")
        total = total + x.shape[axis]
    return TensorType(first.dtype, (*before, total, *after))


concatenate = _op(
    "concatenate",
    "*xs",
    _concatenate,
    "The operands one after the other along an axis. Operands of size 0 along it add nothing.",
    {"axis": Attr("int", doc="the axis along which sizes add up")},
)


# -- made from sizes -----------------------------------------------------------------------------


def _iota(dtype: DType, shape: tuple[Dim, ...], axis: int) -> TensorType:
    if dtype.kind in (BOOL, KEY):
        refuse("iota_c1", f"takes a numeric dtype, not {dtype}")
    _sizes("iota_c2", shape)
    one_axis("iota_c3", axis, len(shape))
    return TensorType(dtype, shape)


iota = _op(
    "iota",
    "",
    _iota,
    "0, 1, 2, ... along one axis, the same along all others. Indices that the dtype cannot hold wrap "
    "around (integers) or round to nearest even (floats).",
    {
        "dtype": Attr("dtype", doc="dtype of the result"),
        "shape": Attr("dims", doc="sizes of the result"),
        "axis": Attr("int", doc="the axis along which to count"),
    },
)


def _dim_size(dim: Dim, dtype: DType) -> TensorType:
    if not dtype.is_integer:
        refuse("dim_size_c1", f"takes an integer dtype, not {dtype}")
    return TensorType(dtype, ())


dim_size = _op(
    "dim_size",
    "",
    _dim_size,
    "The run-time value of a size expression over the symbols of the graph, as a scalar.",
    {"dim": Attr("dim", doc="the size expression"), "dtype": Attr("dtype", doc="integer dtype of the result")},
)
