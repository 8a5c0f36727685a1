"""Quantised programs: torch's quantize and dequantize operators, and linear layers over 8- and 4-bit weights.

`quantize` and `dequantize` of the graph divide by the scale where torch multiplies by its reciprocal, so an element
within rounding of the middle between two steps may come out one step apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from unigraph.dtypes import DType, f32, f64, i32, i64, u8
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, broadcast_to, cast, reshape

from .helpers import arrange, axis_of, full
from .rowbook import BY_LIBRARY, rows
from .tensors import array_of

aten = torch.ops.aten


def _scalar(b: Any, x: Any, dtype: DType) -> Value:
    """A scale or zero point: a number, or a tensor of one element."""
    if not isinstance(x, Value):
        return b.constant(x, dtype)
    return cast(b, reshape(b, x, ()), dtype)


def _clamped(b: Any, q: Value, low: Any, high: Any, dtype: DType) -> Value:
    """A range narrower than the dtype's, as symmetric quantisation has it."""
    if isinstance(low, Value) or isinstance(high, Value):
        low, high = (_scalar(b, x, dtype) for x in (low, high))
        return b.clamp(low, q, high)
    if not dtype.is_integer:
        return q
    info = np.iinfo(dtype.numpy)
    if low > info.min:
        q = b.max(q, full(b, low, q.type))
    return b.min(q, full(b, high, q.type)) if high < info.max else q


def _quantize_tensor(b: Any, x: Value, scale: Any, zero: Any, low: Any, high: Any, dtype: DType) -> Value:
    x = cast(b, x, f32)
    q = b.quantize(x, _scalar(b, scale, f32), _scalar(b, zero, dtype), dtype=dtype)
    return _clamped(b, q, low, high, dtype)


def _quantize_channel(
    b: Any, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, dtype: DType
) -> Value:
    if zeros.type.dtype.is_float:
        raise Unsupported("zero points that are no integers")
    axis = axis_of(axis, x.type.rank)
    q = b.quantize(cast(b, x, f32), cast(b, scales, f32), cast(b, zeros, dtype), axis=axis, dtype=dtype)
    return _clamped(b, q, low, high, dtype)


def _dequantize_tensor(
    b: Any, q: Value, scale: Any, zero: Any, low: Any, high: Any, dtype: DType, out_dtype: DType | None = None
) -> Value:
    return _dequantized(b, q, scale, zero, None, out_dtype or f32)


def _dequantize_channel(
    b: Any,
    q: Value,
    scales: Value,
    zeros: Value | None,
    axis: int,
    low: int,
    high: int,
    dtype: DType,
    out_dtype: DType | None = None,
) -> Value:
    return _dequantized(b, q, scales, zeros, axis_of(axis, q.type.rank), out_dtype or f32)


def _dequantized(b: Any, q: Value, scale: Any, zero: Any, axis: int | None, out: DType) -> Value:
    wide = f64 if out is f64 else f32
    if axis is None:
        scale, zero = _scalar(b, scale, wide), _scalar(b, zero, q.type.dtype)
    else:
        zero = full(b, 0, scale.type) if zero is None else zero
        if zero.type.dtype.is_float:
            centred = b.sub(cast(b, q, wide), along(b, cast(b, zero, wide), q.type.shape, (axis,)))
            return cast(b, b.mul(centred, along(b, cast(b, scale, wide), q.type.shape, (axis,))), out)
        scale, zero = cast(b, scale, wide), cast(b, zero, q.type.dtype)
    return b.dequantize(q, scale, zero, axis=axis, dtype=out)


def _quantize_group(
    b: Any, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: DType, group_size: int = 128
) -> Value:
    """Each row in groups of columns, a scale for each group; the zero point is added before rounding."""
    size = x.type.shape[-1] if scales.type.shape[-1] == 1 else group_size
    grouped = reshape(b, x, (x.type.shape[0], x.type.shape[1] // size, size))
    scales, zeros = (reshape(b, v, (*grouped.type.shape[:-1], 1)) for v in (scales, zeros))
    scaled = b.add(*arrange(b, b.mul(*arrange(b, grouped, b.div(full(b, 1.0, scales.type), scales))), zeros))
    q = b.round(scaled, mode="even")
    q = b.clamp(full(b, low, q.type), q, full(b, high, q.type))
    return reshape(b, b.convert(q, dtype=dtype), x.type.shape)


def _qparams(symmetric: bool) -> Any:
    """The scale and zero point that cover the values of a tensor and 0, as one-element f64 and i64."""

    def choose(b: Any, x: Value, low: int, high: int, eps: float, dtype: DType) -> tuple[Value, Value]:
        axes = tuple(range(x.type.rank))
        bottom = b.min(b.reduce_min(x, axes=axes), 0.0)
        top = b.max(b.reduce_max(x, axes=axes), 0.0)
        kind = x.type.dtype
        least = full(b, eps, bottom.type)
        if symmetric:
            scale = b.max(b.div(b.max(b.neg(bottom), top), full(b, (high - low) / 2, bottom.type)), least)
            zero = b.constant(128 if dtype is u8 else 0, i64)
        else:
            scale = b.max(b.div(b.sub(top, bottom), full(b, float(high - low), bottom.type)), least)
            steps = b.convert(b.round(b.div(bottom, scale), mode="even"), dtype=i32)
            zero = b.sub(b.constant(low, i32), steps)
            zero = b.convert(b.clamp(b.constant(low, i32), zero, b.constant(high, i32)), dtype=i64)
        assert scale.type.dtype is kind
        return reshape(b, b.convert(scale, dtype=f64), (1,)), reshape(b, zero, (1,))

    return choose


def _fake(b: Any, x: Value, scale: Any, zero: Any, low: int, high: int, axis: int | None = None) -> Any:
    """x quantised and back, and where it was in range (what its gradient goes through)."""
    wide = cast(b, x, f32)
    if axis is None:
        scale, zero = (broadcast_to(b, _scalar(b, v, f32), wide.type.shape) for v in (scale, zero))
    else:
        scale, zero = (along(b, cast(b, v, f32), wide.type.shape, (axis_of(axis, x.type.rank),)) for v in (scale, zero))
    q = b.add(b.round(b.mul(wide, b.div(b.full_like(scale, 1.0), scale)), mode="even"), zero)
    low_, high_ = full(b, float(low), q.type), full(b, float(high), q.type)
    inside = b.and_(b.ge(q, low_), b.le(q, high_))
    return cast(b, b.mul(b.sub(b.clamp(low_, q, high_), zero), scale), x.type.dtype), inside


def _fake_channel(b: Any, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int) -> Any:
    return _fake(b, x, scale, zero, low, high, axis)


def _fake_switched(b: Any, x: Value, scale: Value, zero: Value, enabled: Value, low: int, high: int) -> Any:
    """`_fake` where a flag that the module holds says so."""
    y, inside = _fake(b, x, scale, zero, low, high)
    on = b.ne(reshape(b, enabled, ()), full(b, 0, reshape(b, enabled, ()).type))
    on = broadcast_to(b, on, x.type.shape)
    return b.select(on, x, y), b.or_(inside, b.not_(on))


# -- dynamic quantisation --------------------------------------------------------------------------------

_LEAST_SCALE = 6.1e-5  # smaller ones are raised to it: their reciprocal would leave the half-precision range


def _linear_dynamic(b: Any, x: Value, packed: Any, reduce_range: bool = False) -> Value:
    """A linear layer of 8-bit weights whose input is quantised over its own range, to 7 bits with reduce_range."""
    if x.type.dtype is not f32:
        raise Unsupported(f"dynamic quantisation of {x.type}")
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    high = 127 if reduce_range else 255
    axes = tuple(range(x.type.rank))
    bottom, top = b.min(b.reduce_min(x, axes=axes), 0.0), b.max(b.reduce_max(x, axes=axes), 0.0)
    scale = b.div(b.sub(top, bottom), full(b, float(high), bottom.type))
    scale = b.select(b.eq(scale, 0.0), scale, full(b, 0.1, scale.type))
    zero = b.round(b.neg(b.div(bottom, scale)), mode="even")
    zero = b.convert(b.clamp(full(b, 0.0, zero.type), zero, full(b, float(high), zero.type)), dtype=u8)
    scale = b.max(scale, _LEAST_SCALE)
    q = _clamped(b, b.quantize(x, scale, zero, dtype=u8), 0, high, u8)
    return _affine(b, b.dequantize(q, scale, zero, dtype=f32), _weight_of(b, weight), bias)


def _linear_half(b: Any, x: Value, packed: Any) -> Value:
    """Weights kept in half precision, the product in f32."""
    weight, bias = torch.ops.quantized.linear_unpack_fp16(packed)
    return _affine(b, x, b.convert(_held(b, "weight", weight.to(torch.float16)), dtype=f32), bias)


def _affine(b: Any, x: Value, weight: Value, bias: Any) -> Value:
    return b.linear(x, weight) if bias is None else b.linear(x, weight, _held(b, "bias", bias))


def _weight_of(b: Any, weight: torch.Tensor) -> Value:
    """A packed weight as its whole numbers, with a scale and a zero point or one of each for every row."""
    q = _held(b, "weight", weight.int_repr())
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        scale, zero = weight.q_per_channel_scales().float(), weight.q_per_channel_zero_points().to(torch.int8)
        axis = weight.q_per_channel_axis()
        return b.dequantize(q, _held(b, "weight_scale", scale), _held(b, "weight_zero_point", zero), axis=axis)
    scale, zero = torch.tensor(weight.q_scale()), torch.tensor(weight.q_zero_point(), dtype=torch.int8)
    return b.dequantize(q, _held(b, "weight_scale", scale), _held(b, "weight_zero_point", zero))


def _held(b: Any, name: str, tensor: torch.Tensor) -> Value:
    """A buffer (a bias: a weight) named after the module that reads the packed parameters."""
    path = f"{b.scope}.{name}" if b.scope else name
    found = next((v for v in b.sources if v.name == path), None)  # the layer is called a second time
    make = b.weight if name == "bias" else b.buffer
    return found if found is not None else make(path, array_of(tensor.detach()))


# -- weights in few bits -------------------------------------------------------------------------------


def _wide_product(b: Any, x: Value, weight: Value) -> Value:
    """x [m, k] times weight [n, k], added up in f32."""
    return b.dot_general(cast(b, x, f32), weight, lhs_contracting=(1,), rhs_contracting=(1,))


def _int8_linear(b: Any, x: Value, weight: Value, scales: Value) -> Value:
    y = _wide_product(b, x, b.convert(weight, dtype=f32))
    return cast(b, b.mul(y, broadcast_to(b, cast(b, scales, f32), y.type.shape)), x.type.dtype)


def _int4_linear(b: Any, x: Value, packed: Value, group_size: int, scales_and_zeros: Value) -> Value:
    """x [m, k] times 4-bit weights (q - 8) * scale + zero with one pair for each group of columns and row."""
    n, k = packed.type.shape[0], 2 * packed.type.shape[1]
    q = b.convert(_unpack(b, packed), dtype=f32)
    pairs = b.transpose(cast(b, scales_and_zeros, f32), permutation=(2, 1, 0))  # [2, n, groups]
    groups = k // group_size
    halves = [reshape(b, b.slice(pairs, start=(i, 0, 0), limit=(i + 1, n, groups)), (n, groups, 1)) for i in (0, 1)]
    q = b.sub(reshape(b, q, (n, groups, group_size)), 8.0)
    scale, zero = (broadcast_to(b, h, q.type.shape) for h in halves)
    weight = reshape(b, b.add(b.mul(q, scale), zero), (n, k))
    return cast(b, _wide_product(b, x, weight), x.type.dtype)


def _blocks(n: int) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """How the 4-bit packing of this machine lays rows out: (first row, blocks, rows of a block, their order).

    Within a block, each column gives one run of nibbles, the lower one of a byte first; ``order`` says which
    row of the block each nibble is of.
    """
    order = _row_of_nibble(n)
    for size in (64, 32, 16):
        if size <= n and _repeats(order, size):
            whole = n // size
            found = [(0, whole, size, order[:size])]
            break
    else:
        size, whole, found = n, 0, []
    rest = n - whole * size
    if rest:
        start = whole * size * _PROBED
        last = tuple(r - whole * size for r in order[start : start + rest])
        found.append((whole * size, 1, rest, last))
    if any(sorted(rows_) != list(range(size)) for _, _, size, rows_ in found):
        raise Unsupported("4-bit weights packed in a way that is not known")
    return found


_PROBED = 32  # columns


def _repeats(order: tuple[int, ...], size: int) -> bool:
    first = order[:size]
    return sorted(first) == list(range(size)) and order[: size * _PROBED] == first * _PROBED


@lru_cache(maxsize=64)
def _row_of_nibble(n: int) -> tuple[int, ...]:
    """Which row each nibble of a packed matrix of n rows holds: found by packing the digits of row numbers."""
    rows_ = torch.arange(n, dtype=torch.int32)
    found = torch.zeros(n * _PROBED, dtype=torch.int64)
    for digit in range(0, max(n - 1, 1).bit_length(), 4):
        values = ((rows_ >> digit) & 15)[:, None].expand(n, _PROBED).contiguous()
        packed = aten._convert_weight_to_int4pack_for_cpu(values, 2).reshape(-1).to(torch.int64)
        found += torch.stack([packed & 15, packed >> 4], 1).reshape(-1) << digit
    return tuple(found.tolist())


def _unpack(b: Any, packed: Value) -> Value:
    """The 4-bit numbers [n, k] in a matrix packed by ``_convert_weight_to_int4pack_for_cpu``, as u8."""
    n, k = _fixed(packed, "packed 4-bit weights")
    k *= 2
    flat = reshape(b, packed, (n * k // 2,))
    low = b.and_(flat, full(b, 15, flat.type))
    high = b.shift_right_logical(flat, full(b, 4, flat.type))
    pair = [reshape(b, v, (n * k // 2, 1)) for v in (low, high)]
    nibbles = reshape(b, b.concatenate(*pair, axis=1), (n * k,))
    parts = []
    for first, count, size, order in _blocks(n):
        part = b.slice(nibbles, start=(first * k,), limit=((first + count * size) * k,))
        part = reshape(b, part, (count, k, size))
        inverse = np.argsort(np.asarray(order)).astype(np.int32)
        part = b.take(part, b.constant(inverse), axis=2)
        parts.append(reshape(b, b.transpose(part, permutation=(0, 2, 1)), (count * size, k)))
    return parts[0] if len(parts) == 1 else b.concatenate(*parts, axis=0)


def _pack(b: Any, weight: Value, inner_k_tiles: int) -> Value:
    """What ``_convert_weight_to_int4pack_for_cpu`` gives on this machine."""
    n, k = _fixed(weight, "4-bit weights")
    weight = cast(b, weight, u8)
    parts = []
    for first, count, size, order in _blocks(n):
        part = b.slice(weight, start=(first, 0), limit=(first + count * size, k))
        part = b.transpose(reshape(b, part, (count, size, k)), permutation=(0, 2, 1))
        part = b.take(part, b.constant(np.asarray(order, np.int32)), axis=2)
        parts.append(reshape(b, part, (count * size * k,)))
    nibbles = parts[0] if len(parts) == 1 else b.concatenate(*parts, axis=0)
    pairs = reshape(b, nibbles, (n * k // 2, 2))
    low, high = (b.slice(pairs, start=(0, i), limit=(n * k // 2, i + 1)) for i in (0, 1))
    both = b.or_(low, b.shift_left(high, full(b, 4, high.type)))
    return reshape(b, both, (n, k // 2))


def _fixed(x: Value, what: str) -> tuple[int, int]:
    if x.type.rank != 2 or not x.type.is_static:
        raise Unsupported(f"{what} of type {x.type}")
    n, k = x.type.shape
    return int(n), int(k)


rows(
    {
        aten._weight_int8pack_mm: _int8_linear,
        aten._weight_int4pack_mm_for_cpu: _int4_linear,
        aten._convert_weight_to_int4pack_for_cpu: _pack,
        aten.fake_quantize_per_tensor_affine: lambda *args: _fake(*args)[0],
        aten.fake_quantize_per_tensor_affine_cachemask: _fake,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams: _fake_switched,
        aten.fake_quantize_per_channel_affine: lambda *args: _fake_channel(*args)[0],
        aten.fake_quantize_per_channel_affine_cachemask: _fake_channel,
    }
)

BY_LIBRARY["quantized"] = {
    "linear_dynamic": _linear_dynamic,
    "linear_relu_dynamic": lambda b, x, packed, reduce_range=False: b.relu(_linear_dynamic(b, x, packed, reduce_range)),
    "linear_dynamic_fp16": _linear_half,
    "linear_relu_dynamic_fp16": lambda b, x, packed: b.relu(_linear_half(b, x, packed)),
}
# torch defines this library when torch.ao.quantization is imported: these rows go by name.
BY_LIBRARY["quantized_decomposed"] = {
    "quantize_per_tensor": _quantize_tensor,
    "dequantize_per_tensor": _dequantize_tensor,
    "quantize_per_channel": _quantize_channel,
    "dequantize_per_channel": _dequantize_channel,
    "quantize_per_channel_group": _quantize_group,
    "choose_qparams": _qparams(symmetric=False),
    "choose_qparams_symmetric": _qparams(symmetric=True),
    "convert_element_type": lambda b, x, dtype: cast(b, x, dtype),
}
