"""Sorting, the largest elements, and Fourier transforms."""

from __future__ import annotations

from .. import dims
from ..dims import Dim
from ..dtypes import FLOAT, INT, UINT, DType, c64, c128, f32, f64, i32
from ..opdef import Attr, family
from ..types import TensorType, same_shape
from .shapes import at_most, no_key, not_negative, one_axis, refuse

_op = family("sort")


def _sort(*xs: TensorType, axis: int, num_keys: int = 1, stable: bool = True) -> tuple[TensorType, ...]:
    if not xs:
        refuse("sort_c1", "needs at least one operand")
    no_key("sort_c2", *xs)
    first = xs[0]
    for x in xs[1:]:
        if not same_shape(x.shape, first.shape):
            refuse("sort_c3", f"operands must share a shape: {first} and {x}")
    one_axis("sort_c4", axis, len(first.shape))
    if not 1 <= num_keys <= len(xs):
        refuse("sort_c5", f"num_keys {num_keys} must lie in 1..{len(xs)}, the number of operands")
    return xs


sort = _op(
    "sort",
    "*xs",
    _sort,
    "The operands, all reordered alike along `axis` so that the first num_keys of them rise, compared in turn. "
    "-0.0 and +0.0 are equal, every NaN is equal to every other and comes last; False is below True; complex "
    "numbers compare by real, then imaginary part. With `stable`, equal elements keep their order; without, their "
    "order is not told.",
    {
        "axis": Attr("int", doc="the axis along which to sort"),
        "num_keys": Attr("int", 1, "how many operands, from the first, are compared"),
        "stable": Attr("bool", True, "whether equal elements keep their order"),
    },
    "sort tuple",
)


def _top_k(x: TensorType, k: Dim, axis: int = -1) -> tuple[TensorType, TensorType]:
    if x.dtype.kind not in (INT, UINT, FLOAT):
        refuse("top_k_c1", f"takes int, uint, float, not {x.dtype}; convert first")
    rank = len(x.shape)
    if not -rank <= axis < rank:
        refuse("top_k_c2", f"axis {axis} must lie in {-rank}..{rank - 1}")
    if not not_negative(k) or not at_most(k, x.shape[axis]):
        refuse("top_k_c3", f"k {dims.to_text(k)} must lie in 0..{dims.to_text(x.shape[axis])}, the size of the axis")
    shape = list(x.shape)
    shape[axis] = k
    return TensorType(x.dtype, shape), TensorType(i32, shape)


top_k = _op(
    "top_k",
    "x",
    _top_k,
    "The k largest elements along an axis, falling, and their positions (i32). NaN counts as largest; of equal "
    "elements the one at the lower position comes first. The order among +0.0 and -0.0, and where a NaN whose sign "
    "bit is set goes, are not told.",
    {"k": Attr("dim", doc="how many"), "axis": Attr("int", -1, "the axis; negative counts from the end")},
    "sort",
)

_KINDS = ("fft", "ifft", "rfft", "irfft")
_COMPLEX: dict[DType, DType] = {f32: c64, f64: c128}
_REAL: dict[DType, DType] = {c64: f32, c128: f64}


def _fft(x: TensorType, kind: str, lengths: tuple[Dim, ...]) -> TensorType:
    takes = _COMPLEX if kind == "rfft" else _REAL
    if x.dtype not in takes:
        refuse("fft_c1", f"{kind} takes {' or '.join(d.name for d in takes)}, not {x.dtype}; convert first")
    n = len(lengths)
    if not 1 <= n <= min(3, len(x.shape)):
        refuse("fft_c2", f"lengths {lengths} must name 1 to 3 of the last axes of {x}")
    last = dims.normal(dims.floordiv(lengths[-1], 2) + 1)
    expected = (*lengths[:-1], last if kind == "irfft" else lengths[-1])
    if not same_shape(x.shape[-n:], expected):
        refuse("fft_c3", f"the last axes of {x} must have sizes {expected} for {kind} of lengths {lengths}")
    if not all(type(size) is not int or size >= 1 for size in lengths):
        refuse("fft_c4", f"lengths {lengths} must be at least 1")
    if kind in ("fft", "ifft"):
        return x
    return TensorType(takes[x.dtype], (*x.shape[:-1], last if kind == "rfft" else lengths[-1]))


fft = _op(
    "fft",
    "x",
    _fft,
    "Discrete Fourier transform over the last len(lengths) axes. fft and rfft do not scale; ifft and irfft divide "
    "by the product of lengths. rfft takes reals and keeps the first n // 2 + 1 elements of the last axis; irfft "
    "undoes it, ignoring the imaginary part of the first element and, for an even length, of the last.",
    {
        "kind": Attr("str", doc="the transform", choices=_KINDS),
        "lengths": Attr("dims", doc="sizes in the time domain of the last axes"),
    },
    "fft",
)
