"""Layers: normalisation, pooling, padding, recurrent networks, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import bool_, f64, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, cut, reshape

from .helpers import full, in_single, operand
from .rowbook import row, rows

aten = torch.ops.aten


def present(*values: Value | None) -> list[Value]:
    """Trailing optional operands: those up to the last that is given."""
    return [v for v in values if v is not None]


# -- normalisation -----------------------------------------------------------------------------------


def _affine(b: Any, op: str, x: Value, weight: Value | None, bias: Value | None, **attrs: Any) -> Value:
    """A normalisation with optional weight and bias; a bias without weight gets a weight of ones."""
    if weight is None and bias is not None:
        weight = full(b, 1.0, bias.type)
    wide = x
    if x.type.dtype.name in ("f16", "bf16") and weight is not None and weight.type.dtype is not x.type.dtype:
        wide = cast(b, x, weight.type.dtype)
    return cast(b, getattr(b, op)(wide, *present(weight, bias), **attrs), x.type.dtype)


@row(aten.layer_norm)
def _layer_norm(
    b: Any, x: Value, shape: Sequence[Any], weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Value:
    return _affine(b, "layer_norm", x, weight, bias, normalized_rank=len(shape), epsilon=eps)


@row(aten.native_layer_norm)
def _native_layer_norm(b: Any, x: Value, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Value, Value, Value]:
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    wide = cast(b, x, b.out[1].dtype if b.out[1] is not None else x.type.dtype)
    mean = b.mean(wide, axes=axes, keepdims=True)
    variance = b.var(wide, axes=axes, correction=0.0, keepdims=True)
    rstd = b.rsqrt(b.add(variance, eps))
    return _layer_norm(b, x, shape, weight, bias, eps), mean, rstd


@row(aten.rms_norm, aten._fused_rms_norm)
def _rms_norm(b: Any, x: Value, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if eps is None:
        names = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
        eps = torch.finfo(names[x.type.dtype.name]).eps
    y = _affine(b, "rms_norm", x, weight, None, normalized_rank=len(shape), epsilon=eps)
    if len(b.out) == 1:
        return y
    axes = tuple(range(x.type.rank - len(shape), x.type.rank))
    return y, b.rsqrt(b.add(b.mean(b.square(x), axes=axes, keepdims=True), eps))


@row(aten.group_norm)
def _group_norm(
    b: Any, x: Value, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any
) -> Value:
    return _affine(b, "group_norm", x, weight, bias, num_groups=groups, epsilon=eps)


@row(aten.native_group_norm)
def _native_group_norm(
    b: Any, x: Value, weight: Any, bias: Any, n: Any, c: Any, hxw: Any, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    y = _group_norm(b, x, groups, weight, bias, eps)
    split = reshape(b, x, (n, groups, dims.floordiv(x.type.size, n * groups)))
    mean = b.mean(split, axes=(2,), keepdims=False)
    variance = b.var(split, axes=(2,), correction=0.0, keepdims=False)
    return y, mean, b.rsqrt(b.add(variance, eps))


def _normalised(b: Any, x: Value, mean: Value, variance: Value, weight: Any, bias: Any, eps: float) -> Value:
    if weight is None and bias is not None:
        weight = full(b, 1.0, bias.type)
    if mean.type.dtype is not x.type.dtype:
        wide = cast(b, x, mean.type.dtype)
        return cast(b, b.batch_norm(wide, mean, variance, *present(weight, bias), axis=1, epsilon=eps), x.type.dtype)
    return b.batch_norm(x, mean, variance, *present(weight, bias), axis=1, epsilon=eps)


def _statistics(b: Any, x: Value) -> tuple[Value, Value]:
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    return b.mean(x, axes=axes, keepdims=False), b.var(x, axes=axes, correction=0.0, keepdims=False)


@row(aten.batch_norm)
def _batch_norm(
    b: Any,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Value:
    if training or mean is None:
        mean, var = _statistics(b, x)
    return _normalised(b, x, mean, var, weight, bias, eps)


def _native_batch_norm(
    b: Any, x: Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Value | None, ...]:
    """(y, saved mean, saved rstd)."""
    if not training and mean is not None:
        empty = full(b, 0.0, mean.type.with_(shape=(0,)))
        return _normalised(b, x, mean, var, weight, bias, eps), empty, empty
    batch_mean, batch_var = _statistics(b, x)
    y = _normalised(b, x, batch_mean, batch_var, weight, bias, eps)
    return y, batch_mean, b.rsqrt(b.add(batch_var, eps))


def _batch_norm_functional(
    b: Any, x: Value, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Value | None, ...]:
    """(y, saved mean, saved rstd, new running mean, new running variance)."""
    if not training:
        return (*_native_batch_norm(b, x, weight, bias, mean, var, False, momentum, eps), mean, var)
    affine = present(weight, bias) if weight is not None or bias is None else (full(b, 1.0, mean.type), bias)
    y, new_mean, new_var = b.batch_norm_train(x, mean, var, *affine, axis=1, epsilon=eps, momentum=momentum)
    batch_mean, batch_var = _statistics(b, x)
    return y, batch_mean, b.rsqrt(b.add(batch_var, eps)), new_mean, new_var


rows(
    {
        aten._native_batch_norm_legit_functional: in_single(_batch_norm_functional),
        aten.native_batch_norm: lambda b, x, w, bias, mean, var, training, momentum, eps: _without_update(
            b, x, w, bias, mean, var, training, momentum, eps
        ),
        aten._native_batch_norm_legit_no_training: lambda b, x, w, bias, mean, var, momentum, eps: _native_batch_norm(
            b, x, w, bias, mean, var, False, momentum, eps
        ),
        aten._native_batch_norm_legit.no_stats: lambda b, x, w, bias, training, momentum, eps: _native_batch_norm(
            b, x, w, bias, None, None, True, momentum, eps
        ),
        aten._batch_norm_no_update: lambda b, x, w, bias, mean, var, momentum, eps: (
            *_native_batch_norm(b, x, w, bias, mean, var, False, momentum, eps),
            full(b, 0, b.out[3]),
        ),
    }
)


def _without_update(b: Any, x: Value, w: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: float) -> Any:
    """native_batch_norm also writes its statistics, which its schema does not say."""
    if training and mean is not None:
        raise Unsupported("native_batch_norm in training", "use torch.nn.functional.batch_norm")
    return _native_batch_norm(b, x, w, bias, mean, var, training, *rest)


@row(aten.instance_norm)
def _instance_norm(
    b: Any,
    x: Value,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Value:
    if not use_input:
        return _normalised(b, x, mean, var, weight, bias, eps)
    return _affine(b, "instance_norm", x, weight, bias, epsilon=eps)


# -- pooling -----------------------------------------------------------------------------------------


def spatial(x: Any, n: int, default: Any = None) -> tuple[int, ...]:
    if x is None or (isinstance(x, (list, tuple)) and not x):
        x = default
    items = [x] if isinstance(x, int) else list(x)
    return tuple(items * n if len(items) == 1 else items)


def with_batch(n: int) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Give an input without batch axis one, and take it away again."""

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        def apply(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
            if x.type.rank == n + 1:
                y = function(b, reshape(b, x, (1, *x.type.shape)), *args, **kwargs)
                return reshape(b, y, y.type.shape[1:])
            return function(b, x, *args, **kwargs)

        return apply

    return decorate


def _ceil_extra(size: Any, kernel: int, stride: int, pad: int, dilation: int = 1) -> int:
    """Further padding at the end that makes the last, partial window count."""
    if not isinstance(size, int):
        raise Unsupported("ceil_mode over an axis with a free size", "fix that axis or set ceil_mode=False")
    reach = dilation * (kernel - 1) + 1
    out = -(-(size + 2 * pad - reach) // stride) + 1
    if (out - 1) * stride >= size + pad:  # the last window must start inside the input or the left padding
        out -= 1
    return max(0, (out - 1) * stride + reach - size - 2 * pad)


def _max_pool(n: int) -> Callable[..., Value]:
    @with_batch(n)
    def apply(
        b: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Value:
        k = spatial(kernel, n)
        s, p, d = spatial(stride, n, k), spatial(padding, n), spatial(dilation, n)
        extra = [_ceil_extra(z, *a) if ceil_mode else 0 for z, *a in zip(x.type.shape[2:], k, s, p, d)]
        high = tuple(a + e for a, e in zip(p, extra))
        return b.max_pool(x, kernel=k, strides=s, low=p, high=high, dilation=d)

    return apply


def _avg_pool(n: int) -> Callable[..., Value]:
    @with_batch(n)
    def apply(
        b: Any,
        x: Value,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        k = spatial(kernel, n)
        s, p = spatial(stride, n, k), spatial(padding, n)
        extra = tuple(_ceil_extra(z, *a) if ceil_mode else 0 for z, *a in zip(x.type.shape[2:], k, s, p))
        high = tuple(a + e for a, e in zip(p, extra))
        options = {"ceil_extra": extra} if any(extra) else {}
        if x.type.dtype.is_integer:  # the sum of integers, divided toward zero; float64 holds both
            y = apply(b, cast(b, x, f64), kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
            return cast(b, y, x.type.dtype)
        return b.avg_pool(
            x,
            kernel=k,
            strides=s,
            low=p,
            high=high,
            count_include_pad=count_include_pad,
            divisor=divisor_override,
            **options,
        )

    return apply


def _windows(b: Any, x: Value, k: Any, s: Any, p: Any, d: Any, extra: Sequence[int], number: Any) -> list[Value]:
    """One strided slice of the padded input for each place in the window, in row-major order."""
    n = len(k)
    low, high = (0, 0, *p), (0, 0, *(a + e for a, e in zip(p, extra)))
    padded = b.pad(x, operand(b, number, x.type.dtype), low=low, high=high, interior=(0,) * (n + 2))
    out = b.shape[-n:]
    result = []
    for flat in range(math.prod(k)):
        place: list[int] = []
        for size in reversed(k):
            flat, r = divmod(flat, size)
            place.insert(0, r)
        part = padded
        for a in range(n):
            start = place[a] * d[a]
            part = cut(b, part, a + 2, start, start + (out[a] - 1) * s[a] + 1, s[a])
        result.append(part)
    return result


def max_pool_with_indices(n: int) -> Callable[..., tuple[Value, Value]]:
    """Max pooling that also tells the flat position of each maximum in the input plane."""

    def apply(
        b: Any, x: Value, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> tuple[Value, Value]:
        single = x.type.rank == n + 1
        if single:
            x = reshape(b, x, (1, *x.type.shape))
        k = spatial(kernel, n)
        s, p, d = spatial(stride, n, k), spatial(padding, n), spatial(dilation, n)
        extra = [_ceil_extra(z, *a) if ceil_mode else 0 for z, *a in zip(x.type.shape[2:], k, s, p, d)]
        from .rows_index import extreme

        position = plane_positions(b, x, n)
        lowest = extreme(x.type.dtype, False)
        values = _windows(b, x, k, s, p, d, extra, lowest)
        places = _windows(b, position, k, s, p, d, extra, 0)
        best, where = values[0], places[0]
        for v, place in zip(values[1:], places[1:]):
            better = b.gt(v, best)
            if x.type.dtype.is_float:
                better = b.or_(better, b.ne(v, v))
            best, where = b.select(better, best, v), b.select(better, where, place)
        return (
            (reshape(b, best, best.type.shape[1:]), reshape(b, where, where.type.shape[1:]))
            if single
            else (best, where)
        )

    return apply


def plane_positions(b: Any, x: Value, n: int) -> Value:
    spatial = x.type.shape[2:]
    flat = b.iota(dtype=i64, shape=(dims.product(spatial),), axis=0)
    plane = reshape(b, flat, spatial)
    return b.broadcast_in_dim(plane, shape=x.type.shape, broadcast_dimensions=tuple(range(2, n + 2)))


def _adaptive(op: str, n: int) -> Callable[..., Value]:
    @with_batch(n)
    def apply(b: Any, x: Value, size: Any) -> Value:
        sizes = tuple(x.type.shape[i + 2] if s is None else s for i, s in enumerate(spatial(size, n)))
        return getattr(b, op)(x, output_size=sizes)

    return apply


rows(
    {
        **{getattr(aten, f"max_pool{n}d"): _max_pool(n) for n in (1, 2, 3)},
        **{getattr(aten, f"avg_pool{n}d"): _avg_pool(n) for n in (1, 2, 3)},
        **{getattr(aten, f"max_pool{n}d_with_indices"): max_pool_with_indices(n) for n in (2, 3)},
        **{getattr(aten, f"adaptive_avg_pool{n}d"): _adaptive("adaptive_avg_pool", n) for n in (1, 2, 3)},
        aten._adaptive_avg_pool2d: _adaptive("adaptive_avg_pool", 2),
        aten._adaptive_avg_pool3d: _adaptive("adaptive_avg_pool", 3),
    }
)


# -- padding -----------------------------------------------------------------------------------------


def constant_pad(b: Any, x: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    rank = x.type.rank
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    number = operand(b, 0 if value is None else value, x.type.dtype)
    return b.pad(x, number, low=tuple(low), high=tuple(high), interior=(0,) * rank)


def _indexed_pad(index: Callable[[Any, Value, Any], Value]) -> Callable[..., Value]:
    """Reflection, replication and circular padding: each axis is read through a computed index."""

    def apply(b: Any, x: Value, pad: Sequence[Any], *rest: Any) -> Value:
        for i in range(len(pad) // 2):
            axis = x.type.rank - 1 - i
            low, high = pad[2 * i], pad[2 * i + 1]
            if low == 0 and high == 0:
                continue
            size = x.type.shape[axis]
            where = b.iota(dtype=i64, shape=(size + low + high,), axis=0)
            where = b.sub(where, full(b, low, where.type))
            x = b.take(x, index(b, where, size), axis=axis, mode="clip")
        return x

    return apply


def _reflect(b: Any, i: Value, size: Any) -> Value:
    i = b.abs(i)
    last = full(b, size - 1, i.type)
    return b.sub(last, b.abs(b.sub(last, i)))


def replicate(b: Any, i: Value, size: Any) -> Value:
    return b.min(b.max(i, full(b, 0, i.type)), full(b, size - 1, i.type))


def _circular(b: Any, i: Value, size: Any) -> Value:
    n = full(b, size, i.type)
    return b.rem(b.add(b.rem(i, n), n), n)


_MODES = {"reflect": _indexed_pad(_reflect), "replicate": _indexed_pad(replicate), "circular": _indexed_pad(_circular)}


@row(aten.pad)
def _pad(b: Any, x: Value, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    return constant_pad(b, x, pad, value) if mode == "constant" else _MODES[mode](b, x, pad)


rows(
    {
        aten.constant_pad_nd: constant_pad,
        **{getattr(aten, f"reflection_pad{n}d"): _MODES["reflect"] for n in (1, 2, 3)},
        **{getattr(aten, f"replication_pad{n}d"): _MODES["replicate"] for n in (1, 2, 3)},
        aten._pad_circular: _MODES["circular"],
    }
)


# -- recurrent ---------------------------------------------------------------------------------------


def _layers(
    b: Any, op: str, x: Value, states: Sequence[Value], weights: list[Value], has_biases: bool, layers: int,
    rate: float, train: bool, both_ways: bool, batch_first: bool, has_projection: bool = False, **attrs: Any,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """A stack of recurrent layers from the composite of one layer and direction; x is [T,N,I] or [N,T,I]."""
    if has_projection:
        raise Unsupported("an LSTM with projections (proj_size)")
    flat = x.type.rank == 2
    if flat:
        x, batch_first = reshape(b, x, (x.type.shape[0], 1, x.type.shape[1])), False
        states = [reshape(b, s, (s.type.shape[0], 1, s.type.shape[1])) for s in states]
    if batch_first:
        x = b.transpose(x, permutation=(1, 0, 2))
    directions, per = (2 if both_ways else 1), (4 if has_biases else 2)
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        outs = []
        for direction in range(directions):
            k = layer * directions + direction
            start = [_row(b, s, k) for s in states]
            ys, *ends = getattr(b, op)(x, *start, *weights[k * per : (k + 1) * per], reverse=direction == 1, **attrs)
            outs.append(ys)
            for kept, end in zip(finals, ends, strict=True):
                kept.append(reshape(b, end, (1, *end.type.shape)))
        x = outs[0] if len(outs) == 1 else b.concatenate(*outs, axis=2)
        if rate and train and layer + 1 < layers:
            x = b.dropout(x, b.draw(), rate=float(rate))
    ends_ = [k[0] if len(k) == 1 else b.concatenate(*k, axis=0) for k in finals]
    if batch_first:
        x = b.transpose(x, permutation=(1, 0, 2))
    if flat:
        x = reshape(b, x, (x.type.shape[0], x.type.shape[2]))
        ends_ = [reshape(b, e, (e.type.shape[0], e.type.shape[2])) for e in ends_]
    return x, ends_


def _row(b: Any, s: Value, k: int) -> Value:
    return reshape(b, cut(b, s, 0, k, k + 1), s.type.shape[1:])


@row(aten.lstm.input)
def _lstm(
    b: Any, x: Value, hx: list[Value], weights: list[Value], has_biases: bool, layers: int, rate: float, train: bool,
    both_ways: bool, batch_first: bool,
) -> tuple[Value, Value, Value]:  # fmt: skip
    if hx[0].type.shape[-1] != hx[1].type.shape[-1]:
        raise Unsupported("an LSTM with projections (proj_size)")
    y, (h, c) = _layers(b, "lstm", x, hx, weights, has_biases, layers, rate, train, both_ways, batch_first)
    return y, h, c


def _simple(op: str, **attrs: Any) -> Callable[..., tuple[Value, Value]]:
    def apply(
        b: Any, x: Value, hx: Value, weights: list[Value], has_biases: bool, layers: int, rate: float, train: bool,
        both_ways: bool, batch_first: bool,
    ) -> tuple[Value, Value]:  # fmt: skip
        y, (h,) = _layers(b, op, x, [hx], weights, has_biases, layers, rate, train, both_ways, batch_first, **attrs)
        return y, h

    return apply


rows(
    {
        aten.gru.input: _simple("gru"),
        aten.rnn_tanh.input: _simple("rnn", nonlinearity="tanh"),
        aten.rnn_relu.input: _simple("rnn", nonlinearity="relu"),
    }
)


# -- dropout -----------------------------------------------------------------------------------------


def _dropped(b: Any, x: Value, rate: float, train: bool, mask_shape: Any = None) -> Value:
    if not train or rate == 0:
        return x
    if rate == 1:
        return full(b, 0, x.type)
    if mask_shape is None:
        return b.dropout(x, b.draw(), rate=float(rate))
    ones = full(b, 1.0, x.type.with_(shape=mask_shape))
    return b.mul(x, broadcast_to(b, b.dropout(ones, b.draw(), rate=float(rate)), x.type.shape))


def _feature_dropout(b: Any, x: Value, rate: float, train: bool) -> Value:
    """Whole channels are dropped."""
    return _dropped(b, x, rate, train, tuple(d if a < 2 else 1 for a, d in enumerate(x.type.shape)))


@row(aten.native_dropout)
def _native_dropout(b: Any, x: Value, rate: float, train: bool | None = True) -> tuple[Value, Value]:
    if not train or rate == 0:
        return x, full(b, True, x.type.with_(bool_))
    kept = b.random_bernoulli(b.draw(), shape=x.type.shape, p=1.0 - rate)
    scaled = b.div(x, full(b, 1 - rate, x.type)) if rate < 1 else full(b, 0, x.type)
    return b.select(kept, full(b, 0, x.type), scaled), kept


rows(
    {
        aten.dropout: _dropped,
        aten.feature_dropout: _feature_dropout,
        aten.native_dropout_backward: lambda b, g, mask, scale: b.mul(
            b.mul(g, cast(b, mask, g.type.dtype)), full(b, scale, g.type)
        ),
    }
)
