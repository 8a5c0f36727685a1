"""Reading and writing at computed positions: gather, scatter, nonzero.

The dimension numbers are those of StableHLO and jax.lax: the last axis of `indices` holds index
vectors; each vector places a window in the operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dims
from ..dims import Dim
from ..dtypes import BOOL, bool_, i64
from ..opdef import Attr, family
from ..types import TensorType
from .shapes import at_most, distinct_axes, is_sorted, no_key, not_negative, refuse

COMBINERS = ("replace", "add", "sub", "mul", "min", "max")


_op = family("index", "index")


def _rising(label: str, what: str, axes: Sequence[int], rank: int) -> None:
    distinct_axes(label, what, axes, rank)
    if not is_sorted(axes):
        refuse(label, f"{what} {tuple(axes)} must rise")


def _indices(
    name: str, x: TensorType, indices: TensorType, index_map: tuple[int, ...], batching: tuple[int, ...]
) -> None:
    """What gather and scatter ask of the index vectors and the axes that they steer."""
    no_key(f"{name}_c1", x)
    if not indices.dtype.is_integer or not indices.shape:
        refuse(f"{name}_c2", f"indices must be integers with a last axis of index vectors, got {indices}")
    if not dims.compatible(indices.shape[-1], len(index_map)):
        refuse(f"{name}_c3", f"index vectors have {indices.shape[-1]} entries, but {len(index_map)} axes are steered")
    distinct_axes(f"{name}_c4", "steered axes", index_map, len(x.shape))
    if batching and not set(batching).isdisjoint(index_map):
        refuse(f"{name}_c4", f"steered axes {index_map} must not be batching axes {batching}")


def _batching(
    name: str,
    x: TensorType,
    indices: TensorType,
    removed: tuple[int, ...],
    batching: tuple[int, ...],
    indices_batching: tuple[int, ...],
) -> None:
    """What gather and scatter ask of batching axes and of axes that a window does not show."""
    rank = len(x.shape)
    _rising(f"{name}_c5", "collapsed or inserted axes", removed, rank)
    if not batching and not indices_batching:
        return
    _rising(f"{name}_c6", "operand_batching_dims", batching, rank)
    distinct_axes(f"{name}_c6", "batching axes of indices", indices_batching, len(indices.shape) - 1)
    if len(batching) != len(indices_batching) or not set(batching).isdisjoint(removed):
        refuse(f"{name}_c6", f"batching axes {batching} and {indices_batching} must pair up and must not be collapsed")
    for a, i in zip(batching, indices_batching):
        if not dims.compatible(x.shape[a], indices.shape[i]):
            refuse(f"{name}_c7", f"batching axis {a} of {x} and axis {i} of indices {indices} differ in size")


# -- gather --------------------------------------------------------------------------------------


def _gather(
    x: TensorType,
    indices: TensorType,
    offset_dims: tuple[int, ...],
    collapsed_slice_dims: tuple[int, ...],
    start_index_map: tuple[int, ...],
    slice_sizes: tuple[Dim, ...],
    operand_batching_dims: tuple[int, ...],
    start_indices_batching_dims: tuple[int, ...],
    mode: str,
    fill_value: Any,
) -> TensorType:
    _indices("gather", x, indices, start_index_map, operand_batching_dims)
    _batching("gather", x, indices, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims)
    rank = len(x.shape)
    hidden = collapsed_slice_dims + operand_batching_dims
    if len(slice_sizes) != rank or len(offset_dims) + len(hidden) != rank:
        refuse("gather_c8", f"slice_sizes {slice_sizes}, and offset_dims with the axes not shown, must cover {x}")
    _rising("gather_c9", "offset_dims", offset_dims, len(offset_dims) + len(indices.shape) - 1)
    # Nothing is read for no indices, so any window will do then (as in lax).
    if 0 not in indices.shape:
        for n, size in zip(x.shape, slice_sizes):
            if not (not_negative(size) and at_most(size, n)):
                refuse("gather_c10", f"slice_sizes {slice_sizes} must lie between 0 and the sizes of {x}")
    for a in hidden:
        if slice_sizes[a] != 1 and (slice_sizes[a] != 0 or a in collapsed_slice_dims):
            refuse("gather_c11", f"slice size {slice_sizes[a]} of collapsed or batching axis {a} must be 1")
    places = iter(indices.shape)
    window = iter([n for a, n in enumerate(slice_sizes) if a not in hidden])
    total = len(offset_dims) + len(indices.shape) - 1
    return TensorType(x.dtype, [next(window if a in offset_dims else places) for a in range(total)])


gather = _op(
    "gather",
    "x, indices",
    _gather,
    "Windows of size slice_sizes cut out of x, one for each index vector (along the last axis of indices). "
    "Entry j of a vector is the start along axis start_index_map[j]; other axes start at 0. Axes in "
    "collapsed_slice_dims have size 1 and vanish; the rest of a window stands at offset_dims of the result, "
    "the leading axes of indices at the others. Batching axes of x are paired with axes of indices and "
    "indexed by position there. Out of bounds means that the window does not lie inside x entirely: `clip` "
    "moves it inside, `fill` gives fill_value for the whole window, `promise` says that it does not happen "
    "(a table may do anything safe; the reference clips). A negative index is out of bounds.",
    {
        "offset_dims": Attr("ints", doc="result axes that hold windows, rising"),
        "collapsed_slice_dims": Attr("ints", doc="axes of x of window size 1 that vanish, rising"),
        "start_index_map": Attr("ints", doc="the axis of x that each entry of an index vector steers"),
        "slice_sizes": Attr("dims", doc="window size along each axis of x"),
        "operand_batching_dims": Attr("ints", (), "batching axes of x, rising"),
        "start_indices_batching_dims": Attr("ints", (), "the axis of indices for each batching axis of x"),
        "mode": Attr("str", "clip", "what happens out of bounds", ("clip", "fill", "promise")),
        "fill_value": Attr("scalar", None, "for mode fill; None: NaN, smallest signed, largest unsigned, True"),
    },
)

# -- scatter -------------------------------------------------------------------------------------


def _scatter(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    combiner: str,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    operand_batching_dims: tuple[int, ...],
    scatter_indices_batching_dims: tuple[int, ...],
    mode: str,
    unique_indices: bool,
) -> TensorType:
    _indices("scatter", x, indices, scatter_dims_to_operand_dims, operand_batching_dims)
    _batching("scatter", x, indices, inserted_window_dims, operand_batching_dims, scatter_indices_batching_dims)
    if updates.dtype is not x.dtype:
        refuse("scatter_c8", f"updates must have the dtype of x: {updates} and {x}")
    if combiner == "sub" and x.dtype.kind == BOOL:
        refuse("scatter_c9", "cannot subtract bools")
    rank = len(x.shape)
    hidden = inserted_window_dims + operand_batching_dims
    if len(update_window_dims) + len(hidden) != rank:
        refuse(
            "scatter_c10", f"update_window_dims {update_window_dims} with the axes not shown {hidden} must cover {x}"
        )
    if len(updates.shape) != len(update_window_dims) + len(indices.shape) - 1:
        refuse("scatter_c11", f"updates {updates} must have the axes of indices but the last, and those of a window")
    _rising("scatter_c12", "update_window_dims", update_window_dims, len(updates.shape))
    shown = [n for a, n in enumerate(x.shape) if a not in hidden]
    for a, n in zip(update_window_dims, shown):
        if not at_most(updates.shape[a], n):
            refuse("scatter_c13", f"window size {updates.shape[a]} of {updates} is larger than {n} of {x}")
    places = [n for a, n in enumerate(updates.shape) if a not in update_window_dims]
    for n, m in zip(places, indices.shape):
        if not dims.compatible(n, m):
            refuse("scatter_c14", f"updates {updates} must have a window for each index vector of {indices}")
    return x


scatter = _op(
    "scatter",
    "x, indices, updates",
    _scatter,
    "x with windows of updates combined into it, the mirror image of gather: window k stands in x where index "
    "vector k says. Windows that hit the same element are combined in row-major order of updates; for "
    "`replace` the last one wins. f16, bf16 and smaller floats are added in their own precision, one window "
    "after the other. A window that does not lie inside x entirely is dropped (`fill`), moved inside (`clip`) "
    "or promised not to occur (`promise`; dropped all the same). A negative index is out of bounds. On bool, "
    "add is `or` and mul is `and`; max and min pass NaN on. unique_indices promises that no element is hit twice.",
    {
        "combiner": Attr("str", doc="how an update meets what stands there", choices=COMBINERS),
        "update_window_dims": Attr("ints", doc="axes of updates that hold windows, rising"),
        "inserted_window_dims": Attr("ints", doc="axes of x that windows have not, rising"),
        "scatter_dims_to_operand_dims": Attr("ints", doc="the axis of x that each entry of an index vector steers"),
        "operand_batching_dims": Attr("ints", (), "batching axes of x, rising"),
        "scatter_indices_batching_dims": Attr("ints", (), "the axis of indices for each batching axis of x"),
        "mode": Attr("str", "fill", "what happens out of bounds; fill: dropped", ("fill", "clip", "promise")),
        "unique_indices": Attr("bool", False, "promise that no element is hit twice"),
    },
)

# -- nonzero -------------------------------------------------------------------------------------


def _nonzero(x: TensorType, symbol: str) -> TensorType:
    no_key("nonzero_c1", x)
    if not symbol.isidentifier():
        refuse("nonzero_c2", f"symbol names the number of elements found: a plain name, not {symbol!r}")
    if symbol in x.symbols():
        refuse("nonzero_c3", f"symbol {symbol!r} is taken by a size of {x}; the number found needs its own name")
    return TensorType(i64, (dims.symbol(symbol), len(x.shape)))


nonzero = _op(
    "nonzero",
    "x",
    _nonzero,
    "The positions of the elements that are not zero (or not False), one row each, in row-major order. NaN "
    "counts as not zero, -0.0 as zero. Their number is known only at run time: `symbol` names it. A scalar "
    "gives one or no rows of no entries.",
    {"symbol": Attr("str", doc="name of the new size")},
)

# -- sizes that are data ---------------------------------------------------------------------------


def _sized(sizes: TensorType, symbols: tuple[str, ...]) -> TensorType:
    if sizes.rank != 1 or not sizes.dtype.is_integer or sizes.shape[0] != len(symbols):
        refuse("sized_c1", f"sizes is a vector with one integer for each of {len(symbols)} symbols, not {sizes}")
    if len(set(symbols)) != len(symbols) or not all(s.isidentifier() for s in symbols):
        refuse("sized_c2", f"symbols are distinct plain names, not {', '.join(map(repr, symbols))}")
    return TensorType(bool_, tuple(dims.symbol(s) for s in symbols))


sized = _op(
    "sized",
    "sizes",
    _sized,
    "False, repeated to the sizes that a vector holds. Its use is its type: `symbols` name sizes known only at "
    "run time, and other operations may then speak of them (a shape computed from data). A negative size is an error.",
    {"symbols": Attr("strs", doc="names of the new sizes, one for each entry")},
)
