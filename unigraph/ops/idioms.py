"""What composites and importers write again and again with strict ops: axes, broadcasting, precision, means.

Each function adds the operations it needs to the builder ``b`` and none where the value is already as wanted.
Bad operands are refused with TypeCheckError, labelled with the name of the op that asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import dims
from ..dims import Dim
from ..dtypes import DType, f32
from ..opdef import Attr, require

if TYPE_CHECKING:
    from ..builder import GraphBuilder
    from ..graph import Value
else:
    GraphBuilder = Value = Any

REDUCTION = Attr("str", "mean", "what is done with the losses of the elements", ("mean", "sum", "none"))


# -- axes and shapes -----------------------------------------------------------------------------


def axis_of(name: str, axis: int, rank: int) -> int:
    """``axis`` counted from the front; negative axes count from the end."""
    require(-rank <= axis < rank, f"{name}_axis", f"axis {axis} must lie in {-rank}..{rank - 1}")
    return axis % rank


def axes_of(name: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, rising."""
    found = sorted(axis_of(name, a, rank) for a in axes)
    require(len(set(found)) == len(found), f"{name}_axis", f"axes {tuple(axes)} must be distinct")
    return tuple(found)


def without(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    """``shape`` with the given axes taken away."""
    return tuple(n for a, n in enumerate(shape) if a not in axes)


def ones_at(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    """``shape`` with size 1 at the given axes."""
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def broadcast_shapes(name: str, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape to which NumPy would broadcast these. A size that is not surely 1 is taken as it is."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for a, n in enumerate(shape, rank - len(shape)):
            if dims.is_static(result[a]) and result[a] == 1:
                result[a] = n
            else:
                fits = (dims.is_static(n) and n == 1) or dims.compatible(n, result[a])
                require(fits, f"{name}_broadcast", f"sizes {n} and {result[a]} do not broadcast")
    return tuple(result)


def same_shape_required(name: str, x: Value, y: Value) -> None:
    """Refuse operands of different shapes or dtypes."""
    same = x.type.rank == y.type.rank and all(map(dims.compatible, x.type.shape, y.type.shape))
    require(same, f"{name}_shape", f"operands must share a shape: {x.type} and {y.type}; broadcast one")
    require(
        x.type.dtype is y.type.dtype,
        f"{name}_dtype",
        f"operands must share a dtype: {x.type} and {y.type}; convert one",
    )


def broadcast_to(b: GraphBuilder, x: Value, shape: Sequence[Dim]) -> Value:
    """``x`` broadcast to ``shape`` as NumPy does it: axes are matched from the end."""
    if x.type.shape == tuple(shape):
        return x
    return along(b, x, shape, range(len(shape) - x.type.rank, len(shape)))


def along(b: GraphBuilder, x: Value, shape: Sequence[Dim], axes: Iterable[int]) -> Value:
    """``x`` repeated to ``shape``; its axes become the given ones."""
    if x.type.shape == tuple(shape):
        return x
    return b.broadcast_in_dim(x, shape=tuple(shape), broadcast_dimensions=tuple(axes))


def back(b: GraphBuilder, reduced: Value, shape: Sequence[Dim], axes: Sequence[int]) -> Value:
    """A value reduced over ``axes`` repeated to the shape it had before."""
    return along(b, reduced, shape, [a for a in range(len(shape)) if a not in axes])


def keep(b: GraphBuilder, reduced: Value, shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> Value:
    """A value reduced over ``axes``, with size 1 in their places if ``keepdims``."""
    return reshape(b, reduced, ones_at(shape, axes)) if keepdims else reduced


def reshape(b: GraphBuilder, x: Value, shape: Sequence[Dim]) -> Value:
    """``x`` under another shape; itself if it has it already."""
    return x if x.type.shape == tuple(shape) else b.reshape(x, shape=tuple(shape))


def transpose(b: GraphBuilder, x: Value, permutation: Sequence[int]) -> Value:
    """``x`` with its axes permuted; itself if they stay."""
    permutation = tuple(permutation)
    return x if permutation == tuple(range(len(permutation))) else b.transpose(x, permutation=permutation)


def cut(b: GraphBuilder, x: Value, axis: int, start: Dim, limit: Dim, stride: int = 1) -> Value:
    """The elements ``start:limit:stride`` of ``x`` along one axis; itself if these are all."""
    shape = x.type.shape
    if start == 0 and stride == 1 and dims.equal(limit, shape[axis]):
        return x
    return b.slice(
        x,
        start=tuple(start if a == axis else 0 for a in range(len(shape))),
        limit=tuple(limit if a == axis else n for a, n in enumerate(shape)),
        strides=None if stride == 1 else tuple(stride if a == axis else 1 for a in range(len(shape))),
    )


def split(b: GraphBuilder, x: Value, axis: int, parts: int) -> list[Value]:
    """``x`` cut into equal parts along one axis."""
    size = dims.floordiv(x.type.shape[axis], parts)
    return [cut(b, x, axis, dims.normal(i * size), dims.normal((i + 1) * size)) for i in range(parts)]


# -- dtypes --------------------------------------------------------------------------------------


def cast(b: GraphBuilder, x: Value, dtype: DType) -> Value:
    """``x`` in ``dtype``; itself if it is that already."""
    return x if x.type.dtype is dtype else b.convert(x, dtype=dtype)


def wide_dtype(dtype: DType) -> DType:
    """The dtype in which sums over ``dtype`` are kept: f32 for shorter floats."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


def wide(b: GraphBuilder, x: Value) -> Value:
    """``x`` in the dtype in which statistics are computed."""
    return cast(b, x, wide_dtype(x.type.dtype))


def float_required(name: str, *values: Value) -> None:
    """Refuse operands that are not real floats."""
    for x in values:
        require(x.type.dtype.is_float, f"{name}_dtype", f"takes a float, not {x.type}; convert first")


def where(b: GraphBuilder, condition: Value, x: Any, y: Any) -> Value:
    """``x`` where the condition holds, else ``y``; one of the two may be a number."""
    model = x if hasattr(x, "type") else y
    x, y = (v if hasattr(v, "type") else b.full_like(model, v) for v in (x, y))
    return b.select(condition, y, x)


# -- counts and means ----------------------------------------------------------------------------


def count(b: GraphBuilder, shape: Sequence[Dim], axes: Sequence[int], dtype: DType) -> Value:
    """Number of elements along ``axes``, as a scalar of ``dtype``."""
    size = dims.product(shape[a] for a in axes)
    return b.constant(size, dtype) if dims.is_static(size) else b.convert(b.size(size), dtype=dtype)


def mean_of(b: GraphBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Mean over ``axes`` (they vanish), in the dtype of ``x``: widen it before."""
    total = b.reduce_sum(x, axes=tuple(axes))
    return b.div(total, broadcast_to(b, count(b, x.type.shape, axes, x.type.dtype), total.type.shape))


def moments(b: GraphBuilder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """(mean, biased variance, x - mean) over ``axes``, two passes, in the dtype of ``x``."""
    mean = mean_of(b, x, axes)
    centred = b.sub(x, back(b, mean, x.type.shape, axes))
    return mean, mean_of(b, b.mul(centred, centred), axes), centred


def reduced(b: GraphBuilder, losses: Value, reduction: str, dtype: DType) -> Value:
    """The losses of all elements under a reduction of `REDUCTION`, in ``dtype``."""
    axes = tuple(range(losses.type.rank))
    if reduction == "mean":
        losses = mean_of(b, losses, axes)
    elif reduction == "sum":
        losses = b.reduce_sum(losses, axes=axes)
    return cast(b, losses, dtype)
