"""Statistics, look-ups by index, and rearrangements that programs name as one step."""

from __future__ import annotations

import math

from .. import dims
from ..dims import Dim
from ..dtypes import DType, f32, i32
from ..opdef import Attr, require
from .composite import op
from .idioms import (
    GraphBuilder,
    Value,
    along,
    axes_of,
    axis_of,
    back,
    broadcast_shapes,
    broadcast_to,
    cast,
    count,
    cut,
    keep,
    mean_of,
    reshape,
    where,
    wide,
)

AXES = Attr("ints", doc="the axes over which it is taken")
KEEP = Attr("bool", False, "keep them with size 1")
CORRECTION = Attr("float", 0.0, "subtracted from the number of elements in the divisor")

# -- statistics ----------------------------------------------------------------------------------


@op(axes=AXES, keepdims=KEEP)
def mean(b: GraphBuilder, x: Value, *, axes: tuple[int, ...], keepdims: bool) -> Value:
    """Arithmetic mean over axes, of floats or complex numbers, added up in f32 or wider. Over nothing it
    is NaN; over no axes it is x.
    """
    require(x.type.dtype.is_inexact, "mean_dtype", f"takes a float or complex, not {x.type}; convert first")
    axes = axes_of("mean", axes, x.type.rank)
    result = keep(b, mean_of(b, wide(b, x), axes), x.type.shape, axes, keepdims)
    return cast(b, result, x.type.dtype)


def _variance(b: GraphBuilder, name: str, x: Value, axes: tuple[int, ...], correction: float, keepdims: bool) -> Value:
    """The variance in f32 or wider."""
    require(x.type.dtype.is_inexact, f"{name}_dtype", f"takes a float or complex, not {x.type}; convert first")
    axes = axes_of(name, axes, x.type.rank)
    y, shape = wide(b, x), x.type.shape
    centred = b.sub(y, back(b, mean_of(b, y, axes), shape, axes))
    square = b.real(b.mul(centred, b.conj(centred))) if x.type.dtype.is_complex else b.mul(centred, centred)
    total = b.reduce_sum(square, axes=axes)
    size = b.max(b.sub(count(b, shape, axes, total.type.dtype), correction), 0.0)
    return keep(b, b.div(total, broadcast_to(b, size, total.type.shape)), shape, axes, keepdims)


@op(axes=AXES, correction=CORRECTION, keepdims=KEEP)
def var(b: GraphBuilder, x: Value, *, axes: tuple[int, ...], correction: float, keepdims: bool) -> Value:
    """Variance over axes: the sum of |x - mean|^2 divided by max(n - correction, 0), in two passes, added up
    in f32 or wider. Real for complex x.
    """
    return cast(b, _variance(b, "var", x, axes, correction, keepdims), x.type.dtype.real)


@op(axes=AXES, correction=CORRECTION, keepdims=KEEP)
def std(b: GraphBuilder, x: Value, *, axes: tuple[int, ...], correction: float, keepdims: bool) -> Value:
    """Square root of var."""
    return cast(b, b.sqrt(_variance(b, "std", x, axes, correction, keepdims)), x.type.dtype.real)


def _bound(value: float, dtype: DType) -> float | int:
    """A bound that an integer dtype can hold; refuses fractions."""
    if not dtype.is_integer or not math.isfinite(value):
        return value
    require(value == int(value), "clip_bound", f"bound {value} is no whole number, x is {dtype}; convert x first")
    bits, signed = dtype.bits, dtype.kind == "int"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(int(value), low), high)


@op(
    "unary_composite",
    low=Attr("scalar", None, "lower bound; None: none"),
    high=Attr("scalar", None, "upper bound; None: none"),
)
def clip(b: GraphBuilder, x: Value, *, low: float | None, high: float | None) -> Value:
    """min(max(x, low), high); NaN stays NaN, and high wins when it is below low."""
    kind = x.type.dtype
    require(kind.is_integer or kind.is_float, "clip_dtype", f"takes an integer or a float, not {x.type}")
    if low is not None and not (kind.is_integer and low == -math.inf):
        x = b.max(x, _bound(low, kind))
    if high is not None and not (kind.is_integer and high == math.inf):
        x = b.min(x, _bound(high, kind))
    return x


# -- look-ups ------------------------------------------------------------------------------------


def _indices(name: str, indices: Value) -> None:
    require(indices.type.dtype.is_integer, f"{name}_indices", f"indices must be integers, got {indices.type}")


def _wrapped(b: GraphBuilder, indices: Value, size: Dim) -> Value:
    """Negative indices counted from the end."""
    if indices.type.dtype.kind == "uint":
        return indices
    if indices.type.dtype.bits < 32:
        indices = b.convert(indices, dtype=i32)  # so that index + size cannot wrap around
    total = broadcast_to(b, b.size(size, indices.type.dtype), indices.type.shape)
    return where(b, b.lt(indices, 0), b.add(indices, total), indices)


@op(
    axis=Attr("int", doc="the axis that is indexed"),
    mode=Attr("str", "clip", "what happens out of bounds", ("clip", "fill", "wrap")),
)
def take(b: GraphBuilder, x: Value, indices: Value, *, axis: int, mode: str) -> Value:
    """The slices of x at the given indices along an axis; the axes of indices stand in its place. `clip`
    takes the nearest (0 for a negative index), `wrap` counts modulo the size, `fill` counts negative
    indices from the end and gives NaN (smallest signed, largest unsigned, True) outside; as jax.numpy.take.
    """
    _indices("take", indices)
    axis = axis_of("take", axis, x.type.rank)
    size = x.type.shape[axis]
    if mode == "fill":
        indices = _wrapped(b, indices, size)
    elif mode == "wrap":
        if indices.type.dtype.bits < 32:
            indices = b.convert(indices, dtype=i32)
        total = broadcast_to(b, b.size(size, indices.type.dtype), indices.type.shape)
        remainder = b.rem(indices, total)
        indices = where(b, b.lt(remainder, 0), b.add(remainder, total), remainder)
    rank = indices.type.rank
    return b.gather(
        x,
        reshape(b, indices, (*indices.type.shape, 1)),
        offset_dims=(*range(axis), *range(axis + rank, x.type.rank + rank - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        slice_sizes=tuple(1 if a == axis else n for a, n in enumerate(x.type.shape)),
        mode="fill" if mode == "fill" else "clip",
    )


@op(axis=Attr("int", doc="the axis that is indexed"))
def take_along_axis(b: GraphBuilder, x: Value, indices: Value, *, axis: int) -> Value:
    """Element x[..., indices[..., i, ...], ...] for each index, x and indices having one rank and the same
    other sizes (1 is broadcast), as NumPy's. Negative indices count from the end; what then lies
    outside reads the nearest element.
    """
    _indices("take_along_axis", indices)
    rank = x.type.rank
    require(
        indices.type.rank == rank,
        "take_along_axis_rank",
        f"x and indices must have one rank: {x.type} and {indices.type}",
    )
    axis = axis_of("take_along_axis", axis, rank)
    others = tuple(a for a in range(rank) if a != axis)
    outer = broadcast_shapes("take_along_axis", *([v.type.shape[a] for a in others] for v in (x, indices)))

    def full(v: Value) -> Value:
        return broadcast_to(b, v, (*outer[:axis], v.type.shape[axis], *outer[axis:]))

    x, indices = full(x), full(_wrapped(b, indices, x.type.shape[axis]))
    return b.gather(
        x,
        reshape(b, indices, (*indices.type.shape, 1)),
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        slice_sizes=(1,) * rank,
        operand_batching_dims=others,
        start_indices_batching_dims=others,
        mode="clip",
    )


@op(padding_index=Attr("int", None, "a row that is read like any other, but takes no gradient"))
def embedding(b: GraphBuilder, weight: Value, indices: Value, *, padding_index: int | None) -> Value:
    """Rows of weight [V, *D] at the given indices: [*indices, *D]. Indices outside 0..V-1 read the nearest
    row.
    """
    _indices("embedding", indices)
    require(weight.type.rank >= 1, "embedding_weight", f"weight must have an axis of rows, got {weight.type}")
    rows = b.take(weight, indices, axis=0, mode="clip")
    if padding_index is None:
        return rows
    padding = along(b, b.eq(indices, padding_index), rows.type.shape, range(indices.type.rank))
    return b.select(padding, rows, b.stop_gradient(rows))


@op(
    depth=Attr("dim", doc="number of classes"),
    axis=Attr("int", -1, "where the axis of classes stands in the result"),
    dtype=Attr("dtype", f32, "dtype of the result"),
)
def one_hot(b: GraphBuilder, indices: Value, *, depth: Dim, axis: int, dtype: DType) -> Value:
    """1 where the class is the index, else 0, along a new axis. An index outside 0..depth-1 gives zeros."""
    _indices("one_hot", indices)
    axis = axis_of("one_hot", axis, indices.type.rank + 1)
    shape = (*indices.type.shape[:axis], depth, *indices.type.shape[axis:])
    kind = indices.type.dtype
    if kind.bits < 32:  # so that no class number wraps around
        indices, kind = b.convert(indices, dtype=i32), i32
    classes = b.iota(dtype=kind, shape=shape, axis=axis)
    return cast(b, b.eq(back(b, indices, shape, (axis,)), classes), dtype)


# -- rearrangements ------------------------------------------------------------------------------

DIAGONAL = Attr("int", 0, "0: the main diagonal; above it when positive")


def _triangle(b: GraphBuilder, name: str, x: Value, diagonal: int, upper: bool) -> Value:
    """x with zeros below (upper) or above the diagonal of its last two axes."""
    require(x.type.rank >= 2, f"{name}_rank", f"needs at least two axes, got {x.type}")
    shape = x.type.shape
    row = b.iota(dtype=i32, shape=shape[-2:], axis=0)
    column = b.iota(dtype=i32, shape=shape[-2:], axis=1)
    edge = b.add(row, diagonal) if diagonal else row
    inside = b.ge(column, edge) if upper else b.le(column, edge)
    return where(b, broadcast_to(b, inside, shape), x, 0)


@op(diagonal=DIAGONAL)
def tril(b: GraphBuilder, x: Value, *, diagonal: int) -> Value:
    """The lower triangle of the last two axes; 0 above the diagonal."""
    return _triangle(b, "tril", x, diagonal, upper=False)


@op(diagonal=DIAGONAL)
def triu(b: GraphBuilder, x: Value, *, diagonal: int) -> Value:
    """The upper triangle of the last two axes; 0 below the diagonal."""
    return _triangle(b, "triu", x, diagonal, upper=True)


@op(
    shifts=Attr("ints", doc="places by which elements move toward the end"),
    axes=Attr("ints", doc="the axis of each shift"),
)
def roll(b: GraphBuilder, x: Value, *, shifts: tuple[int, ...], axes: tuple[int, ...]) -> Value:
    """Elements moved along axes; what leaves at the end comes in at the front. An axis may be named
    several times. No axes and one shift: x is rolled as one row of all elements.
    """
    if not axes and len(shifts) == 1:
        flat = reshape(b, x, (x.type.size,))
        return reshape(b, _rolled(b, flat, shifts[0], 0), x.type.shape)
    require(len(shifts) == len(axes), "roll_axes", f"shifts {shifts} and axes {axes} must pair up")
    for shift, axis in zip(shifts, axes):
        x = _rolled(b, x, shift, axis_of("roll", axis, x.type.rank))
    return x


def _rolled(b: GraphBuilder, x: Value, shift: int, axis: int) -> Value:
    size = x.type.shape[axis]
    if dims.is_static(size) and (size == 0 or shift % size == 0):
        return x
    # A symbolic size may be 0, by which nothing can be divided.
    place = dims.mod(-shift, size if dims.is_static(size) else dims.maximum(size, 1))
    return b.concatenate(cut(b, x, axis, place, size), cut(b, x, axis, 0, place), axis=axis)


@op(repeats=Attr("ints", doc="how often x is repeated along each of the last axes"))
def tile(b: GraphBuilder, x: Value, *, repeats: tuple[int, ...]) -> Value:
    """x laid side by side, as numpy.tile: repeats are matched with axes from the end, missing ones are 1,
    further ones make new axes in front.
    """
    require(all(r >= 0 for r in repeats), "tile_repeats", f"repeats {repeats} must not be negative")
    rank = max(len(repeats), x.type.rank)
    times = (1,) * (rank - len(repeats)) + repeats
    shape = (1,) * (rank - x.type.rank) + x.type.shape
    x = reshape(b, x, shape)
    if set(times) <= {1}:
        return x
    paired = [n for pair in zip(times, shape) for n in pair]
    wide_ = along(b, x, paired, range(1, 2 * rank, 2))
    return reshape(b, wide_, [dims.normal(r * n) for r, n in zip(times, shape)])


@op(repeats=Attr("int", doc="how often each element comes"), axis=Attr("int", doc="the axis along which"))
def repeat(b: GraphBuilder, x: Value, *, repeats: int, axis: int) -> Value:
    """Each element repeated in place along an axis, as numpy.repeat."""
    require(repeats >= 0, "repeat_repeats", f"repeats {repeats} must not be negative")
    axis = axis_of("repeat", axis, x.type.rank)
    shape = x.type.shape
    spread = along(
        b, x, (*shape[: axis + 1], repeats, *shape[axis + 1 :]), [a + (a > axis) for a in range(x.type.rank)]
    )
    return reshape(b, spread, (*shape[:axis], dims.normal(repeats * shape[axis]), *shape[axis + 1 :]))
