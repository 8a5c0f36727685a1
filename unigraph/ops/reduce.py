"""Reductions, cumulative ops and window ops: many elements become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dtypes import BOOL, COMPLEX, FLOAT, INT, UINT, DType, bool_, i32
from ..opdef import Attr, OpDef, family
from ..types import TensorType, same_shape
from .shapes import distinct_axes, no_key, one_axis, refuse, windows

if TYPE_CHECKING:
    from ..graph import Graph

NUMERIC = (INT, UINT, FLOAT, COMPLEX)
BITS = (BOOL, INT, UINT)
ANY = (BOOL, INT, UINT, FLOAT, COMPLEX)
REAL = (BOOL, INT, UINT, FLOAT)
INEXACT = (FLOAT, COMPLEX)


_op = family("reduce", "reduction")


def _takes(label: str, t: TensorType, kinds: tuple[str, ...]) -> None:
    if t.dtype.kind not in kinds:
        refuse(label, f"takes {', '.join(kinds)}, not {t.dtype}; convert first")


def _scalars(types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    return tuple([TensorType(t.dtype, ()) for t in types])


def _body(label: str, body: Graph, takes: tuple[TensorType, ...], gives: tuple[TensorType, ...]) -> None:
    if body.in_types != takes or body.out_types != gives:
        refuse(label, f"the body must map {takes} to {gives}, it maps {body.in_types} to {body.out_types}")


# -- whole axes ----------------------------------------------------------------------------------

AXES = {"axes": Attr("ints", doc="the axes to reduce; they vanish. None named: x itself")}


def _without(shape: tuple[Any, ...], axes: tuple[int, ...]) -> list[Any]:
    return [n for a, n in enumerate(shape) if a not in axes]


def _reducer(name: str, kinds: tuple[str, ...], doc: str) -> OpDef:
    c1, c2 = f"{name}_c1", f"{name}_c2"

    def infer(x: TensorType, axes: tuple[int, ...]) -> TensorType:
        _takes(c1, x, kinds)
        distinct_axes(c2, "axes", axes, len(x.shape))
        return TensorType(x.dtype, _without(x.shape, axes))

    return _op(name, "x", infer, doc, AXES, "axes")


reduce_sum = _reducer(
    "reduce_sum",
    NUMERIC,
    "Sum, in the dtype of x: integers wrap around; floats shorter than f32 are added up in f32 and rounded "
    "once. The sum of nothing is 0. The order of additions is not told.",
)
reduce_prod = _reducer(
    "reduce_prod",
    NUMERIC,
    "Product, in the dtype of x: integers wrap around; floats shorter than f32 are multiplied in f32 and "
    "rounded once. The product of nothing is 1.",
)
reduce_max = _reducer(
    "reduce_max",
    ANY,
    "Largest element; NaN if there is one; +0.0 beats -0.0; complex: lexicographic. The largest of nothing is "
    "-inf (the lowest value where the dtype has no infinity), the smallest integer, or False.",
)
reduce_min = _reducer(
    "reduce_min",
    ANY,
    "Smallest element; NaN if there is one; -0.0 beats +0.0; complex: lexicographic. The smallest of nothing "
    "is +inf (the highest value where the dtype has no infinity), the largest integer, or True.",
)
reduce_and = _reducer("reduce_and", BITS, "Bitwise (logical on bool) and; all bits set for nothing.")
reduce_or = _reducer("reduce_or", BITS, "Bitwise (logical on bool) or; 0 for nothing.")
reduce_xor = _reducer("reduce_xor", BITS, "Bitwise (logical on bool) exclusive or; 0 for nothing.")


def _arg(name: str, doc: str) -> OpDef:
    c1, c2, c3, c4 = (f"{name}_c{i}" for i in range(1, 5))

    def infer(x: TensorType, axis: int, index_dtype: DType) -> TensorType:
        _takes(c1, x, REAL)
        one_axis(c2, axis, len(x.shape))
        if x.shape[axis] == 0:
            refuse(c3, f"axis {axis} of {x} is empty: there is no position to give")
        if not index_dtype.is_integer:
            refuse(c4, f"index_dtype must be an integer dtype, not {index_dtype}")
        return TensorType(index_dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))

    attrs = {
        "axis": Attr("int", doc="the axis to search; it vanishes"),
        "index_dtype": Attr("dtype", i32, "dtype of the result"),
    }
    return _op(name, "x", infer, doc, attrs, "arg")


argmax = _arg(
    "argmax",
    "Position of the largest element along an axis, the first one of equals (-0.0 equals +0.0). NaN counts as "
    "largest: the first NaN wins.",
)
argmin = _arg(
    "argmin",
    "Position of the smallest element along an axis, the first one of equals (-0.0 equals +0.0). NaN counts as "
    "smallest: the first NaN wins.",
)


def _halves(name: str, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The arrays of ``operands_then_inits``, checked against their initial values."""
    n = len(types) // 2
    xs, inits = types[:n], types[n:]
    if not n or len(types) % 2:
        refuse(f"{name}_c1", f"needs as many initial values as operands, got {len(types)} in all")
    no_key(f"{name}_c2", *xs)
    for x, init in zip(xs, inits):
        if init.dtype is not x.dtype or init.shape:
            refuse(f"{name}_c3", f"the initial value of {x} must be a scalar {x.dtype}, got {init}")
        if x is not xs[0] and not same_shape(x.shape, xs[0].shape):
            refuse(f"{name}_c4", f"operands must share a shape: {xs[0]} and {x}")
    return xs


def _pairs(*types: TensorType, **attrs: Any) -> tuple[TensorType, ...]:
    """Input types of a combining body: the accumulated scalars, then the new ones."""
    return 2 * _scalars(types[: len(types) // 2])


def _reduce(*types: TensorType, axes: tuple[int, ...], body: Graph) -> tuple[TensorType, ...]:
    xs = _halves("reduce", types)
    distinct_axes("reduce_c5", "axes", axes, len(xs[0].shape))
    _body("reduce_c6", body, 2 * _scalars(xs), _scalars(xs))
    return tuple([TensorType(x.dtype, _without(xs[0].shape, axes)) for x in xs])


reduce = _op(
    "reduce",
    "*operands_then_inits",
    _reduce,
    "Several arrays reduced together by a body (n accumulated scalars, n new scalars) -> n scalars, starting "
    "from the initial values. The body is taken to be associative with the initial values as identity: the "
    "order and the grouping are not told. Nothing to reduce gives the initial values.",
    AXES,
    "axes tuple",
    {"body": _pairs},
)

# -- running along one axis ----------------------------------------------------------------------


def _cumulative(name: str, kinds: tuple[str, ...], doc: str) -> OpDef:
    c1, c2 = f"{name}_c1", f"{name}_c2"

    def infer(x: TensorType, axis: int, reverse: bool) -> TensorType:
        _takes(c1, x, kinds)
        one_axis(c2, axis, len(x.shape))
        return x

    attrs = {"axis": Attr("int", doc="the axis to run along"), "reverse": Attr("bool", False, "run from the end")}
    return _op(name, "x", infer, doc, attrs, "cumulative")


cumsum = _cumulative(
    "cumsum",
    NUMERIC,
    "Sum of this element and all before it (after it when reverse). Integers wrap around; floats shorter than "
    "f32 are added in f32 and each result is rounded.",
)
cumprod = _cumulative(
    "cumprod",
    NUMERIC,
    "Product of this element and all before it (after it when reverse). Integers wrap around; floats shorter "
    "than f32 are multiplied in f32 and each result is rounded.",
)
cummax = _cumulative(
    "cummax", ANY, "Largest of this element and all before it (after it when reverse); NaN stays, once met."
)
cummin = _cumulative(
    "cummin", ANY, "Smallest of this element and all before it (after it when reverse); NaN stays, once met."
)
cumlogsumexp = _cumulative(
    "cumlogsumexp",
    INEXACT,
    "log of the sum of exp of this element and all before it (after it when reverse), without overflow; -inf "
    "adds nothing, so a run of -inf gives -inf.",
)

# -- windows -------------------------------------------------------------------------------------

WINDOW = {
    "window": Attr("ints", doc="window size along each axis"),
    "strides": Attr("ints", doc="step of the window along each axis"),
    "low": Attr("ints", doc="padding before the first element along each axis; negative crops"),
    "high": Attr("ints", doc="padding after the last element along each axis; negative crops"),
}
DILATED_WINDOW = {
    **WINDOW,
    "base_dilation": Attr("ints", None, "step between elements of x (holes are padding); None: all 1"),
    "window_dilation": Attr("ints", None, "step between elements of a window; None: all 1"),
}

Ints = tuple[int, ...]


def _window(
    name: str,
    x: TensorType,
    window: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> tuple[Any, ...]:
    """Sizes of what a window op gives for each place of its window on x."""
    rank = len(x.shape)
    given = (window, strides, low, high, base_dilation, window_dilation)
    if any(v is not None and len(v) != rank for v in given):
        refuse(f"{name}_w1", f"window attributes need one entry for each axis of {x}")
    if rank and min(map(min, [v for v in (window, strides, base_dilation, window_dilation) if v is not None])) < 1:
        refuse(f"{name}_w2", "window, strides and dilations must be at least 1")
    return windows(x.shape, window, strides, low, high, base_dilation, window_dilation)


def _window_reducer(name: str, kinds: tuple[str, ...], doc: str) -> OpDef:
    c1 = f"{name}_c1"

    def infer(x: TensorType, **attrs: Any) -> TensorType:
        _takes(c1, x, kinds)
        return TensorType(x.dtype, _window(name, x, **attrs))

    doc += " A window that lies in padding entirely gives that value; where no window fits the result is empty."
    return _op(name, "x", infer, doc, DILATED_WINDOW, "window")


reduce_window_sum = _window_reducer(
    "reduce_window_sum", NUMERIC, "Sum of each window, as in reduce_sum. Padding and holes are 0."
)
reduce_window_prod = _window_reducer(
    "reduce_window_prod", NUMERIC, "Product of each window, as in reduce_prod. Padding and holes are 1."
)
reduce_window_max = _window_reducer(
    "reduce_window_max",
    ANY,
    "Largest element of each window, as in reduce_max. Padding and holes are the largest of nothing.",
)
reduce_window_min = _window_reducer(
    "reduce_window_min",
    ANY,
    "Smallest element of each window, as in reduce_min. Padding and holes are the smallest of nothing.",
)


def _reduce_window(*types: TensorType, body: Graph, **attrs: Any) -> tuple[TensorType, ...]:
    xs = _halves("reduce_window", types)
    _body("reduce_window_c5", body, 2 * _scalars(xs), _scalars(xs))
    shape = _window("reduce_window", xs[0], **attrs)
    return tuple([TensorType(x.dtype, shape) for x in xs])


reduce_window = _op(
    "reduce_window",
    "*operands_then_inits",
    _reduce_window,
    "Several arrays reduced together over windows by a body (n accumulated scalars, n new scalars) -> n "
    "scalars. Padding and holes hold the initial values, and every window starts from them; the order inside a "
    "window is not told.",
    DILATED_WINDOW,
    "window tuple",
    {"body": _pairs},
)

SELECT = {"select": Attr("str", doc="ge: the largest element of a window, le: the smallest", choices=("ge", "le"))}


def _select_and_scatter_add(source: TensorType, x: TensorType, select: str, **attrs: Any) -> TensorType:
    _takes("select_and_scatter_add_c1", x, NUMERIC)
    shape = _window("select_and_scatter_add", x, **attrs)
    if source.dtype is not x.dtype:
        refuse("select_and_scatter_add_c2", f"source must have the dtype of x: {source} and {x}")
    if not same_shape(source.shape, shape):
        refuse("select_and_scatter_add_c3", f"source {source} must have an element for each window place {shape}")
    return x


select_and_scatter_add = _op(
    "select_and_scatter_add",
    "source, x",
    _select_and_scatter_add,
    "The gradient of a max (min) pool: each element of source is added to where the window at its place has "
    "its selected element of x, all else is 0. Of equal elements the first (row-major) is selected. Going "
    "through a window, the element held gives way unless held >= next (ge) or held <= next (le), so a NaN takes "
    "its place and the element after it takes it back. Padding is never selected: a window that lies in padding "
    "entirely adds nothing. Floats shorter than f32 are added in their own precision.",
    {**SELECT, **WINDOW},
    "window",
)


def _select_and_gather_add(tangents: TensorType, x: TensorType, select: str, **attrs: Any) -> TensorType:
    _takes("select_and_gather_add_c1", x, (FLOAT,))
    if tangents.dtype is not x.dtype or not same_shape(tangents.shape, x.shape):
        refuse("select_and_gather_add_c2", f"tangents must have the type of x: {tangents} and {x}")
    return TensorType(x.dtype, _window("select_and_gather_add", x, **attrs))


select_and_gather_add = _op(
    "select_and_gather_add",
    "tangents, x",
    _select_and_gather_add,
    "The tangent of a max (min) pool: for each window, the element of tangents where the window has its "
    "selected element of x, chosen as in select_and_scatter_add but starting from -inf (+inf) with tangent 0, "
    "which is also what padding and holes hold.",
    {**SELECT, **DILATED_WINDOW},
    "window",
)


def _select_and_scatter(
    source: TensorType, x: TensorType, init: TensorType, select: Graph, scatter: Graph, **attrs: Any
) -> TensorType:
    no_key("select_and_scatter_c1", x)
    if init.dtype is not source.dtype or init.shape or source.dtype is not x.dtype:
        refuse(
            "select_and_scatter_c2", f"source and the scalar init must have the dtype of x: {source}, {init} and {x}"
        )
    shape = _window("select_and_scatter", x, **attrs)
    if not same_shape(source.shape, shape):
        refuse("select_and_scatter_c3", f"source {source} must have an element for each window place {shape}")
    pair = 2 * _scalars((x,))
    _body("select_and_scatter_c4", select, pair, (TensorType(bool_, ()),))
    _body("select_and_scatter_c5", scatter, pair, pair[:1])
    return x


def _pair(source: TensorType, x: TensorType, init: TensorType, **attrs: Any) -> tuple[TensorType, ...]:
    return 2 * _scalars((x,))


select_and_scatter = _op(
    "select_and_scatter",
    "source, x, init",
    _select_and_scatter,
    "Each window of x selects one of its elements: going through the window in row-major order, the element "
    "held so far stays while select(held, next) is True. Elements of source are combined by `scatter` where "
    "their window selected, starting from init. Padding is never selected: a window that lies in padding "
    "entirely adds nothing.",
    WINDOW,
    "window",
    {"select": _pair, "scatter": _pair},
)
