"""Products: matmul and its kin, linear, attention, convolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unigraph import dims
from unigraph.dtypes import bf16, bool_, f16, f32
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, reshape

from .helpers import full, in_single, result_dtype
from .rowbook import row, rows

aten = torch.ops.aten


def _scaled(b: Any, x: Value, factor: Any) -> Value:
    return x if factor == 1 else b.mul(x, full(b, factor, x.type))


def product(b: Any, x: Value, y: Value) -> Value:
    """matmul; integers and bools work too."""
    if x.type.dtype is bool_:
        raise Unsupported("matmul of bools")
    return b.matmul(x, y)


def _addmm(b: Any, c: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if x.type.dtype in (f16, bf16) and (beta != 0 or alpha != 1):
        # The product stays in single precision until all is added up.
        lead = tuple(range(x.type.rank - 2))
        last, first = (x.type.rank - 1,), (len(lead),)
        wide = b.dot_general(
            x, y, lhs_contracting=last, rhs_contracting=first, lhs_batch=lead, rhs_batch=lead, out_dtype=f32
        )
        return cast(b, _added(b, cast(b, c, f32), wide, beta, alpha), x.type.dtype)
    return _added(b, c, product(b, x, y), beta, alpha)


def _added(b: Any, c: Value, total: Value, beta: Any, alpha: Any) -> Value:
    total = _scaled(b, total, alpha)
    return total if beta == 0 else b.add(_scaled(b, broadcast_to(b, c, total.type.shape), beta), total)


def _linear(b: Any, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if weight.type.rank == 1:
        result = b.matmul(x, weight)
        return result if bias is None else b.add(result, broadcast_to(b, bias, result.type.shape))
    return b.linear(x, weight) if bias is None else b.linear(x, weight, bias)


def _outer(b: Any, x: Value, y: Value) -> Value:
    dtype = result_dtype(x, y)
    shape = (x.type.shape[0], y.type.shape[0])
    return b.mul(
        b.broadcast_in_dim(cast(b, x, dtype), shape=shape, broadcast_dimensions=(0,)),
        b.broadcast_in_dim(cast(b, y, dtype), shape=shape, broadcast_dimensions=(1,)),
    )


def _einsum(b: Any, equation: str, operands: Sequence[Value], path: Any = None) -> Value:
    if "..." in equation:
        equation = _spell_out(equation, [o.type.rank for o in operands])
    return b.einsum(*operands, equation=equation.replace(" ", ""))


def _spell_out(equation: str, ranks: Sequence[int]) -> str:
    """Replace ``...`` by letters."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    used = set(equation)
    terms = left.split(",")
    missing = [rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True)]
    longest = max((m for t, m in zip(terms, missing) if "..." in t), default=0)
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in used][:longest]
    terms = [t.replace("...", "".join(spare[longest - m :]) if m else "") for t, m in zip(terms, missing)]
    if not arrow:
        counts = "".join(terms)
        right = "..." + "".join(sorted(c for c in set(counts) - set(spare) if counts.count(c) == 1))
    return f"{','.join(terms)}->{right.replace('...', ''.join(spare))}"


def _tensordot(b: Any, x: Value, y: Value, dims_x: Sequence[int], dims_y: Sequence[int]) -> Value:
    rank_x, rank_y = x.type.rank, y.type.rank
    return b.dot_general(
        x,
        y,
        lhs_contracting=tuple(d % rank_x for d in dims_x),
        rhs_contracting=tuple(d % rank_y for d in dims_y),
    )


def _dot(b: Any, x: Value, y: Value) -> Value:
    return b.matmul(x, y)


def _vdot(b: Any, x: Value, y: Value) -> Value:
    return b.matmul(b.conj(x) if x.type.dtype.is_complex else x, y)


def _reduced(inner: Callable[..., Value]) -> Callable[..., Value]:
    """addbmm: a batch of products summed."""

    def apply(b: Any, c: Value, x: Value, y: Value, beta: Any = 1, alpha: Any = 1) -> Value:
        return _added(b, c, b.reduce_sum(inner(b, x, y), axes=(0,)), beta, alpha)

    return in_single(apply)


rows(
    {
        aten.mm: product,
        aten.bmm: product,
        aten.mv: product,
        aten.matmul: product,
        aten.linalg_matmul: product,
        aten.dot: _dot,
        aten.inner: lambda b, x, y: _inner(b, x, y),
        aten.vdot: _vdot,
        aten.addmm: _addmm,
        aten.addmv: _addmm,
        aten.baddbmm: _addmm,
        aten.addbmm: _reduced(product),
        aten.addr: in_single(lambda b, c, x, y, beta=1, alpha=1: _added(b, c, _outer(b, x, y), beta, alpha)),
        aten.outer: _outer,
        aten.ger: _outer,
        aten.linear: _linear,
        aten.einsum: _einsum,
        aten.tensordot: _tensordot,
        aten.bilinear: lambda b, x, y, w, bias=None: _bilinear(b, x, y, w, bias),
        aten.kron: lambda b, x, y: _kron(b, x, y),
    }
)


def _inner(b: Any, x: Value, y: Value) -> Value:
    if not x.type.rank or not y.type.rank:
        return b.mul(broadcast_to(b, x, b.shape), broadcast_to(b, y, b.shape))
    return b.dot_general(x, y, lhs_contracting=(x.type.rank - 1,), rhs_contracting=(y.type.rank - 1,))


def _bilinear(b: Any, x: Value, y: Value, w: Value, bias: Value | None) -> Value:
    """out[..., o] = sum of x[..., i] w[o, i, j] y[..., j]."""
    lead = x.type.shape[:-1]
    n = dims.product(lead)
    x, y = reshape(b, x, (n, x.type.shape[-1])), reshape(b, y, (n, y.type.shape[-1]))
    result = reshape(b, b.einsum(x, w, y, equation="ni,oij,nj->no"), b.shape)
    return result if bias is None else b.add(result, broadcast_to(b, bias, result.type.shape))


def _kron(b: Any, x: Value, y: Value) -> Value:
    dtype, rank = result_dtype(x, y), max(x.type.rank, y.type.rank)
    x, y = cast(b, x, dtype), cast(b, y, dtype)
    wide_x = (*(1,) * (rank - x.type.rank), *x.type.shape)
    wide_y = (*(1,) * (rank - y.type.rank), *y.type.shape)
    shape = tuple(d for pair in zip(wide_x, wide_y) for d in pair)
    left = reshape(b, x, tuple(d for n in wide_x for d in (n, 1)))
    right = reshape(b, y, tuple(d for n in wide_y for d in (1, n)))
    return reshape(b, b.mul(broadcast_to(b, left, shape), broadcast_to(b, right, shape)), b.shape)


# -- attention ---------------------------------------------------------------------------------------


@row(aten.scaled_dot_product_attention)
def _attention(
    b: Any,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    if dropout:
        return _attention_with_dropout(b, q, k, v, mask, dropout, is_causal, scale, enable_gqa)
    lead = q.type.shape[:-2]
    if k.type.shape[:-2] != lead and not enable_gqa:
        k, v = (broadcast_to(b, t, (*lead, *t.type.shape[-2:])) for t in (k, v))
    extra = [] if mask is None else [mask if mask.type.dtype is bool_ else cast(b, mask, q.type.dtype)]
    plain = q.type.rank < 3
    if plain:  # the composite wants a head axis
        q, k, v = (reshape(b, t, (1, *t.type.shape)) for t in (q, k, v))
    result = b.attention(q, k, v, *extra, scale=scale, is_causal=is_causal)
    return reshape(b, result, result.type.shape[1:]) if plain else result


def _attention_with_dropout(
    b: Any, q: Value, k: Value, v: Value, mask: Any, rate: float, causal: bool, scale: Any, grouped: bool
) -> Value:
    if grouped:
        raise Unsupported("attention dropout with grouped heads", "repeat the key and value heads first")
    if not isinstance(q.type.shape[-1], int):
        raise Unsupported("attention dropout with a free head size", "fix the last axis")
    factor = 1 / math.sqrt(q.type.shape[-1]) if scale is None else scale
    rank = k.type.rank
    turned = b.transpose(k, permutation=(*range(rank - 2), rank - 1, rank - 2))
    scores = _scaled(b, b.matmul(q, turned), factor)
    lowest = full(b, -math.inf, scores.type)
    if causal:
        t, s = (b.iota(dtype="i64", shape=scores.type.shape, axis=scores.type.rank - i) for i in (2, 1))
        scores = b.select(b.ge(t, s), lowest, scores)
    if mask is not None:
        wide = broadcast_to(b, mask, scores.type.shape)
        scores = b.select(wide, lowest, scores) if mask.type.dtype is bool_ else b.add(scores, wide)
    weights = b.softmax(scores, axis=scores.type.rank - 1)
    return b.matmul(b.dropout(weights, b.draw(), rate=float(rate)), v)


@row(aten._scaled_dot_product_flash_attention_for_cpu)
def _flash_cpu(
    b: Any,
    q: Value,
    k: Value,
    v: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out = _attention(b, q, k, v, attn_mask, dropout, is_causal, scale=scale)
    return out, None


@row(aten._scaled_dot_product_attention_math)
def _math_attention(
    b: Any,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Any, ...]:
    return _attention(b, q, k, v, mask, dropout, is_causal, scale=scale, enable_gqa=enable_gqa), None


# -- convolution -------------------------------------------------------------------------------------


def _many(x: Any, n: int) -> tuple[int, ...]:
    items = [x] if isinstance(x, int) else list(x)
    return tuple(items * n if len(items) == 1 else items)


def convolve(
    b: Any, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, groups: int
) -> Value:
    n = w.type.rank - 2
    single = x.type.rank == n + 1
    if single:
        x = reshape(b, x, (1, *x.type.shape))
    strides, dilations = _many(stride, n), _many(dilation, n)
    if isinstance(padding, str):
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, w.type.shape[2:])]
        low, high = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    else:
        low = high = _many(padding, n)
    operands = (x, w) if bias is None else (x, w, bias)
    if x.type.dtype.is_complex:
        raise Unsupported("convolution of complex numbers")
    y = b.conv(*operands, strides=strides, low=low, high=high, dilation=dilations, groups=groups)
    return reshape(b, y, y.type.shape[1:]) if single else y


def convolve_transposed(
    b: Any,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Value:
    n = w.type.rank - 2
    single = x.type.rank == n + 1
    if single:
        x = reshape(b, x, (1, *x.type.shape))
    pad = _many(padding, n)
    operands = (x, w) if bias is None else (x, w, bias)
    y = b.conv_transpose(
        *operands,
        strides=_many(stride, n),
        low=pad,
        high=pad,
        output_padding=_many(output_padding, n),
        dilation=_many(dilation, n),
        groups=groups,
    )
    return reshape(b, y, y.type.shape[1:]) if single else y


def _conv(
    b: Any, x: Value, w: Value, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Value:
    return convolve(b, x, w, bias, stride, padding, dilation, groups)


def _conv_transpose(
    b: Any,
    x: Value,
    w: Value,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Value:
    return convolve_transposed(b, x, w, bias, stride, padding, output_padding, groups, dilation)


def _convolution(
    b: Any,
    x: Value,
    w: Value,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *rest: Any,
) -> Value:
    if transposed:
        return convolve_transposed(b, x, w, bias, stride, padding, output_padding, groups, dilation)
    return convolve(b, x, w, bias, stride, padding, dilation, groups)


def _convolution_backward(
    b: Any,
    grad: Value,
    x: Value,
    w: Value,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Gradients in the input, the weight and the bias, as convolutions."""
    if transposed:
        raise Unsupported("the gradient of a transposed convolution")
    n = w.type.rank - 2
    strides, pads, dilations = _many(stride, n), _many(padding, n), _many(dilation, n)
    spatial = range(2, n + 2)
    grad_x = grad_w = grad_b = None
    if mask[0]:
        sizes = [x.type.shape[a] for a in spatial]
        # The input gradient is the transposed convolution, with what the stride cut off as output padding.
        reach = [
            (grad.type.shape[a] - 1) * s - 2 * p + d * (w.type.shape[a] - 1) + 1
            for a, s, p, d in zip(spatial, strides, pads, dilations)
        ]
        extra = tuple(int(z - r) for z, r in zip(sizes, reach))
        grad_x = b.conv_transpose(
            grad, w, strides=strides, low=pads, high=pads, output_padding=extra, dilation=dilations, groups=groups
        )
    if mask[1]:
        # Batch and channels change places: input [C,N,*] with kernel grad [O,N,*].
        spec = (1, 0, *spatial)
        high = tuple(
            int(d * (w.type.shape[a] - 1) + (grad.type.shape[a] - 1) * s + 1 - x.type.shape[a] - p)
            for a, s, p, d in zip(spatial, strides, pads, dilations)
        )
        grad_w = b.conv_general(
            x,
            grad,
            strides=dilations,
            low=pads,
            high=high,
            lhs_dilation=(1,) * n,
            rhs_dilation=strides,
            lhs_spec=spec,
            rhs_spec=spec,
            out_spec=spec,
            groups=1,
            batch_groups=groups,
        )
    if mask[2]:
        grad_b = b.reduce_sum(grad, axes=(0, *spatial))
    return grad_x, grad_w, grad_b


rows(
    {
        **{getattr(aten, f"conv{n}d"): _conv for n in (1, 2, 3)},
        aten.conv_transpose1d: _conv_transpose,
        aten.conv_transpose2d: _conv_transpose,
        aten.conv_transpose3d: _conv_transpose,
        aten.convolution: _convolution,
        aten._convolution: _convolution,
        aten.convolution_backward: _convolution_backward,
    }
)
