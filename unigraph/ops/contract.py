"""Contractions: dot products and convolutions. Their dimension numbers are those of jax.lax."""

from __future__ import annotations

from .. import dims
from ..dims import Dim
from ..dtypes import BOOL, COMPLEX, FLOAT, INT, UINT, DType
from ..opdef import Attr, family
from ..types import TensorType
from .shapes import distinct_axes, refuse, windows

NUMERIC = (INT, UINT, FLOAT, COMPLEX)
Ints = tuple[int, ...]

OUT_DTYPE = Attr("dtype", None, "dtype of the result and of the accumulation; None: that of the operands")


_op = family("contract", "contraction")


def _out_dtype(name: str, x: TensorType, y: TensorType, kinds: tuple[str, ...], out: DType | None) -> DType:
    """Constraints d1 to d3, which all contractions share: dtypes of the operands and of the result."""
    kind = x.dtype
    if kind.kind not in kinds:
        refuse(f"{name}_d1", f"takes {', '.join(kinds)}, not {kind}; convert first")
    if y.dtype is not kind:
        refuse(f"{name}_d2", f"operands must share a dtype: {x} and {y}; convert one")
    if out is None or out is kind:
        return kind
    group = {INT: (INT, FLOAT), UINT: (INT, UINT, FLOAT)}.get(kind.kind, (kind.kind,))
    if out.kind not in group or out.bits < kind.bits:
        refuse(f"{name}_d3", f"out_dtype must be a {' or '.join(group)} not narrower than {kind}, not {out}")
    return out


# -- dot products --------------------------------------------------------------------------------


def _same_sizes(label: str, what: str, x: TensorType, xs: Ints, y: TensorType, ys: Ints) -> None:
    if len(xs) != len(ys):
        refuse(label, f"as many {what} axes on the left as on the right: {xs} and {ys}")
    for a, b in zip(xs, ys):
        if not dims.compatible(x.shape[a], y.shape[b]):
            refuse(label, f"{what} axes must have the same size: axis {a} of {x} and axis {b} of {y}")


def _dot_general(
    x: TensorType,
    y: TensorType,
    lhs_contracting: Ints,
    rhs_contracting: Ints,
    lhs_batch: Ints = (),
    rhs_batch: Ints = (),
    out_dtype: DType | None = None,
) -> TensorType:
    kind = _out_dtype("dot_general", x, y, (BOOL, *NUMERIC), out_dtype)
    left, right = lhs_batch + lhs_contracting, rhs_batch + rhs_contracting
    distinct_axes("dot_general_c1", "batch and contracting axes of x", left, len(x.shape))
    distinct_axes("dot_general_c2", "batch and contracting axes of y", right, len(y.shape))
    _same_sizes("dot_general_c3", "contracting", x, lhs_contracting, y, rhs_contracting)
    _same_sizes("dot_general_c4", "batch", x, lhs_batch, y, rhs_batch)
    shape = [x.shape[a] for a in lhs_batch]
    shape += [n for a, n in enumerate(x.shape) if a not in left]
    shape += [n for a, n in enumerate(y.shape) if a not in right]
    return TensorType(kind, shape)


dot_general = _op(
    "dot_general",
    "x, y",
    _dot_general,
    "Sum of products over the contracting axes, for each place along the batch axes. The axes of the result are "
    "the batch axes in the order named, the other axes of x, the other axes of y. The sum of no products is 0. "
    "Products are added in out_dtype, floats shorter than f32 in f32 with one rounding at the end; integers wrap "
    "around; on bool, product and sum are `and` and `or`. The order of additions is not told.",
    {
        "lhs_contracting": Attr("ints", doc="axes of x summed over, each with its partner in rhs_contracting"),
        "rhs_contracting": Attr("ints", doc="axes of y summed over"),
        "lhs_batch": Attr("ints", (), "axes of x that run along with those in rhs_batch"),
        "rhs_batch": Attr("ints", (), "axes of y that run along with those in lhs_batch"),
        "out_dtype": OUT_DTYPE,
    },
)


def _ragged_dot(x: TensorType, w: TensorType, group_sizes: TensorType, out_dtype: DType | None = None) -> TensorType:
    kind = _out_dtype("ragged_dot", x, w, NUMERIC, out_dtype)
    if len(x.shape) != 2 or len(w.shape) != 3 or len(group_sizes.shape) != 1:
        refuse("ragged_dot_c1", f"takes x[m,k], w[g,k,n] and group_sizes[g], not {x}, {w}, {group_sizes}")
    if not dims.compatible(x.shape[1], w.shape[1]):
        refuse("ragged_dot_c2", f"x and w must have the same k: {x} and {w}")
    if not dims.compatible(w.shape[0], group_sizes.shape[0]):
        refuse("ragged_dot_c3", f"one group size for each matrix of w: {w} and {group_sizes}")
    if not group_sizes.dtype.is_integer:
        refuse("ragged_dot_c4", f"group sizes must be integers, not {group_sizes}")
    return TensorType(kind, (x.shape[0], w.shape[2]))


ragged_dot = _op(
    "ragged_dot",
    "x, w, group_sizes",
    _ragged_dot,
    "The rows of x come in consecutive groups of the given sizes; the rows of group i are multiplied by matrix i "
    "of w. Rows after the last group give 0. Accumulation is that of dot_general.",
    {"out_dtype": OUT_DTYPE},
)

# -- convolution ---------------------------------------------------------------------------------


def _permutation(label: str, spec: Ints, rank: int) -> None:
    if sorted(spec) != list(range(rank)):
        refuse(label, f"a spec must name each of the {rank} axes once, not {spec}")


def _divides(label: str, what: str, size: Dim, by: int) -> None:
    if type(size) is int and size % by:
        refuse(label, f"{what} {size} must be a multiple of {by}")


def _conv_general(
    x: TensorType,
    w: TensorType,
    strides: Ints,
    low: Ints,
    high: Ints,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    lhs_spec: Ints,
    rhs_spec: Ints,
    out_spec: Ints,
    groups: int = 1,
    batch_groups: int = 1,
    out_dtype: DType | None = None,
) -> TensorType:
    kind = _out_dtype("conv_general", x, w, NUMERIC, out_dtype)
    rank = len(x.shape)
    if rank < 2 or len(w.shape) != rank:
        refuse("conv_general_c1", f"x and w must have the same rank, at least 2: {x} and {w}")
    for spec in (lhs_spec, rhs_spec, out_spec):
        _permutation("conv_general_c2", spec, rank)
    if any(len(v) != rank - 2 for v in (strides, low, high, lhs_dilation, rhs_dilation)):
        refuse("conv_general_c3", f"strides, padding and dilations need one entry for each of {rank - 2} spatial axes")
    if min((*strides, *lhs_dilation, *rhs_dilation), default=1) < 1:
        refuse("conv_general_c4", "strides and dilations must be at least 1")
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        refuse("conv_general_c5", f"groups {groups} and batch_groups {batch_groups}: at least 1, only one of them more")
    n, c, *space = (x.shape[a] for a in lhs_spec)
    o, i, *window = (w.shape[a] for a in rhs_spec)
    _divides("conv_general_c6", "features of x", c, groups)
    if not dims.compatible(c, dims.normal(i * groups)):
        refuse("conv_general_c7", f"w must take features of x / groups = {c} / {groups} features, it takes {i}")
    _divides("conv_general_c8", "output features of w", o, groups * batch_groups)
    _divides("conv_general_c9", "batch of x", n, batch_groups)
    if any(type(k) is int and k < 1 for k in window):
        refuse("conv_general_c10", f"the window of w {tuple(window)} must not be empty")
    spatial = windows(tuple(space), window, strides, low, high, lhs_dilation, rhs_dilation)
    if batch_groups > 1:
        n = dims.floordiv(n, batch_groups)
    shape: list[Dim] = [0] * rank
    for axis, size in zip(out_spec, (n, o, *spatial)):
        shape[axis] = size
    return TensorType(kind, shape)


_SPEC = "axis of batch, of features, of each spatial dimension in {}"
conv_general = _op(
    "conv_general",
    "x, w",
    _conv_general,
    "Cross-correlation of x with the windows of w: element by element products of a window and the part of x that "
    "it lies on, summed over window and input features. x is dilated with zeros (lhs_dilation), then padded with "
    "zeros or, where padding is negative, cropped; the window is spread out (rhs_dilation) and moved by strides. A "
    "spatial axis on which no window fits has size 0. With `groups`, features of x and output features of w are "
    "split into that many parts that meet in pairs; with `batch_groups` the batch of x is split instead. "
    "Accumulation is that of dot_general.",
    {
        "strides": Attr("ints", doc="step between places of the window, along each spatial axis"),
        "low": Attr("ints", doc="padding before the first element along each spatial axis; negative crops"),
        "high": Attr("ints", doc="padding after the last element along each spatial axis; negative crops"),
        "lhs_dilation": Attr("ints", doc="step between elements of x (holes are 0)"),
        "rhs_dilation": Attr("ints", doc="step between elements of the window"),
        "lhs_spec": Attr("ints", doc=_SPEC.format("x")),
        "rhs_spec": Attr("ints", doc="axis of output features, of input features, of each window dimension in w"),
        "out_spec": Attr("ints", doc=_SPEC.format("the result")),
        "groups": Attr("int", 1, "number of feature groups"),
        "batch_groups": Attr("int", 1, "number of batch groups"),
        "out_dtype": OUT_DTYPE,
    },
)
