"""What lowering rows share: torch's type promotion, its broadcasting and its ways to name axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unigraph.dims import Dim
from unigraph.dtypes import DType, bf16, bool_, f16, f32, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, ones_at, reshape, transpose
from unigraph.runtime.torch.dtypes import FROM_TORCH, TO_TORCH
from unigraph.types import TensorType

_WRAPPED = {bool: torch.bool, int: torch.int64, complex: torch.complex64}
_COMPLEX_OF = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True)
class Number:
    """A Python number that is only known at run time (computed from sizes): promotes like a literal."""

    value: Value
    torch_dtype: torch.dtype


def is_dim(x: Any) -> bool:
    """True for a symbolic size."""
    return hasattr(x, "free_symbols")


def default_float() -> DType:
    """torch's default floating dtype at the time of capture."""
    return FROM_TORCH[torch.get_default_dtype()]


# -- types -------------------------------------------------------------------------------------------


def result_dtype(*operands: Any) -> DType:
    """torch.result_type of values, Python numbers and sizes: numbers and 0-d tensors only raise the kind."""
    with_dims, zero_dim, wrapped = None, None, None
    for x in operands:
        if isinstance(x, Value):
            t = TO_TORCH[x.type.dtype]
            if x.type.rank:
                with_dims = _join(with_dims, t)
            else:
                zero_dim = _join(zero_dim, t)
        elif isinstance(x, Number):
            wrapped = _join(wrapped, x.torch_dtype)
        elif x is not None:
            t = torch.int64 if is_dim(x) else _WRAPPED.get(type(x)) or torch.get_default_dtype()
            wrapped = _join(wrapped, t)
    found = _over(with_dims, _over(zero_dim, wrapped))
    assert found is not None, "promotion of nothing"
    return FROM_TORCH[found]


def _join(a: torch.dtype | None, b: torch.dtype | None) -> torch.dtype | None:
    return b if a is None else a if b is None else torch.promote_types(a, b)


def _over(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """Combine two priority classes as TensorIterator does."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return _COMPLEX_OF.get(higher, higher) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def as_float(dtype: DType) -> DType:
    """The dtype in which a float function computes: integers and bools become the default float."""
    return dtype if dtype.is_inexact else default_float()


def operand(b: Any, x: Any, dtype: DType) -> Value:
    """A value, number or size as a value of ``dtype``."""
    if isinstance(x, (Value, Number)):
        return cast(b, x if isinstance(x, Value) else x.value, dtype)
    if is_dim(x):
        return b.size(x, dtype) if dtype.is_integer else b.convert(b.size(x), dtype=dtype)
    if not dtype.is_complex and isinstance(x, complex):
        raise Unsupported(f"the complex number {x} in a {dtype} operation")
    if dtype is bool_:
        x = bool(x)
    elif dtype.is_integer:
        bits = dtype.bits
        x = int(x) % (1 << bits)
        if dtype.kind == "int" and x >> (bits - 1):
            x -= 1 << bits
    return b.constant(x, dtype)


def promote(b: Any, *operands: Any, dtype: DType | None = None) -> tuple[Value, ...]:
    """The operands as values of their common dtype (or of ``dtype``), shapes untouched."""
    dtype = dtype or result_dtype(*operands)
    return tuple(operand(b, x, dtype) for x in operands)


def in_single(row: Callable[..., Any]) -> Callable[..., Any]:
    """A row of several steps that torch takes in single precision: half precision comes in and goes out, but is
    rounded once, at the end."""

    def apply(b: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(map(_is_half, (*args, *kwargs.values()))):
            return row(b, *args, **kwargs)
        out = b.out
        b.out = tuple(o.with_(f32) if o is not None and o.dtype in _HALF else o for o in out)
        try:
            result = row(b, *(widened(b, a) for a in args), **{k: widened(b, v) for k, v in kwargs.items()})
        finally:
            b.out = out
        if isinstance(result, Value):
            return cast(b, result, out[0].dtype)
        return tuple(cast(b, r, o.dtype) if isinstance(r, Value) and o else r for r, o in zip(result, out))

    return apply


def widened(b: Any, x: Any) -> Any:
    """A value of half precision in single; anything else as it is."""
    return b.convert(x, dtype=f32) if _is_half(x) else x


_HALF = (f16, bf16)


def _is_half(x: Any) -> bool:
    return isinstance(x, Value) and x.type.dtype in _HALF


# -- shapes ------------------------------------------------------------------------------------------


def common_shape(shapes: Iterable[Sequence[Dim]]) -> tuple[Dim, ...]:
    """The shape that all shapes broadcast to, aligned on the right."""
    shapes = list(shapes)
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        sizes = [s[axis] for s in shapes if len(s) >= -axis]
        one: Dim = 1
        for size in sizes:
            if one == 1 and type(one) is int:
                one = size
            elif type(size) is int and size != 1:
                one = size  # a static size says more than a symbol that must equal it
        result.append(one)
    return tuple(result)


def broadcast(b: Any, *values: Value) -> tuple[Value, ...]:
    """The values repeated to their common shape."""
    first = values[0].type.shape
    if all(v.type.shape == first for v in values):
        return values
    shape = common_shape(v.type.shape for v in values)
    return tuple(broadcast_to(b, v, shape) for v in values)


def arrange(b: Any, *operands: Any, dtype: DType | None = None) -> tuple[Value, ...]:
    """Promoted and broadcast operands, ready for an elementwise op."""
    return broadcast(b, *promote(b, *operands, dtype=dtype))


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis; a scalar counts as having one axis."""
    return axis + max(rank, 1) if axis < 0 else axis


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Non-negative sorted axes; None and an empty list mean all."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(rank))
    if isinstance(axes, int):
        axes = [axes]
    return tuple(sorted({axis_of(a, rank) for a in axes})) if rank else ()


def full(b: Any, number: Any, like: TensorType) -> Value:
    """One number repeated to a type."""
    return broadcast_to(b, operand(b, number, like.dtype), like.shape)


def keep(b: Any, x: Value, like: Value, axes: Sequence[int]) -> Value:
    """Put reduced axes back with size 1."""
    return reshape(b, x, ones_at(like.type.shape, axes))


def unsqueeze(b: Any, x: Value, axis: int) -> Value:
    shape = list(x.type.shape)
    axis = axis + len(shape) + 1 if axis < 0 else axis
    shape.insert(axis, 1)
    return b.reshape(x, shape=tuple(shape))


def move_axis(b: Any, x: Value, source: int, target: int) -> Value:
    order = [a for a in range(x.type.rank) if a != source]
    order.insert(target, source)
    return transpose(b, x, order)


def iota(b: Any, shape: Sequence[Dim], axis: int, dtype: DType = i64) -> Value:
    return b.iota(dtype=dtype, shape=tuple(shape), axis=axis)


def wrap_index(b: Any, index: Value, size: Dim) -> Value:
    """Negative indices count from the end."""
    if index.type.dtype.kind != "int":
        return index
    return b.select(b.lt(index, b.full_like(index, 0)), index, b.add(index, full(b, size, index.type)))
