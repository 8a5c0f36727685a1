"""Composites for which torch has a function of the same meaning.

A row gives NotImplemented where torch's function would mean something else (another dtype, odd
padding, a missing bias): the table then runs the composite's decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import nn_activation as na
from unigraph.ops import nn_contract as nc
from unigraph.ops import nn_loss as nl
from unigraph.ops import nn_misc as nm
from unigraph.ops import nn_norm as nn_
from unigraph.ops import nn_pool as np_
from unigraph.ops import nn_recurrent as nr
from unigraph.ops import nn_resize as ns

from .contract import convolve
from .dtypes import SHORT
from .elementwise import moved

Tensor = torch.Tensor
Ints = tuple[int, ...]
FLOATS = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
NATIVE = FLOATS | {torch.complex64, torch.complex128, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}


def floats(f: Callable[..., Any]) -> Row:
    """``f`` for operands that share one of torch's everyday float dtypes."""

    @functools.wraps(f)
    def row(*args: Tensor | None, **attrs: Any) -> Any:
        given = [a.dtype for a in args if a is not None and a.dtype not in _INDEX]
        return f(*args, **attrs) if len(set(given)) == 1 and given[0] in FLOATS else NotImplemented

    return row


_INDEX = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool})


def in_single(f: Callable[..., Any]) -> Row:
    """As `floats`, with short floats computed in f32, where torch would round in between."""

    @functools.wraps(f)
    def row(*args: Tensor | None, **attrs: Any) -> Any:
        x = args[0]
        assert x is not None
        if x.dtype not in SHORT:
            return floats(f)(*args, **attrs)
        wide = (a if a is None or a.dtype in _INDEX else a.to(torch.float32) for a in args)
        result = floats(f)(*wide, **attrs)
        return result if result is NotImplemented else result.to(x.dtype)

    return row


# -- activations ---------------------------------------------------------------------------------


def _relu(x: Tensor) -> Tensor:
    return F.relu(x) if x.dtype in FLOATS else NotImplemented


def _hardsigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    if alpha == 1 / 6 and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(x * alpha + beta, 0.0, 1.0)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return F.prelu(x, weight) if weight.ndim == 1 and x.ndim > 1 else NotImplemented


def _gelu(x: Tensor, approximate: str) -> Tensor:
    return F.gelu(x, approximate=approximate)


def _softplus(x: Tensor, beta: float, threshold: float) -> Tensor:
    return F.softplus(x, beta, threshold)


_ACTIVATIONS: dict[OpDef, Row] = {
    na.relu6: floats(F.relu6),
    na.hardtanh: floats(lambda x, low, high: F.hardtanh(x, low, high)),
    na.hardshrink: floats(lambda x, lambd: F.hardshrink(x, lambd)),
    na.softshrink: floats(lambda x, lambd: F.softshrink(x, lambd)),
    na.threshold: floats(lambda x, threshold, value: F.threshold(x, threshold, value)),
    na.hardsigmoid: in_single(_hardsigmoid),
    na.hardswish: floats(F.hardswish),
    na.leaky_relu: floats(lambda x, negative_slope: F.leaky_relu(x, negative_slope)),
    na.prelu: floats(_prelu),
    na.silu: floats(F.silu),
    na.quick_gelu: in_single(lambda x: x * torch.sigmoid(1.702 * x)),
    na.gelu: floats(_gelu),
    na.mish: floats(F.mish),
    na.softplus: floats(_softplus),
    na.softsign: in_single(F.softsign),
    na.log_sigmoid: floats(F.logsigmoid),
    na.tanhshrink: in_single(F.tanhshrink),
    na.elu: floats(lambda x, alpha: F.elu(x, alpha)),
    na.celu: floats(lambda x, alpha: F.celu(x, alpha)),
    na.selu: floats(F.selu),
    na.glu: floats(lambda x, axis: F.glu(x, axis)),
    na.softmax: floats(lambda x, axis: F.softmax(x, dim=axis)),
    na.log_softmax: floats(lambda x, axis: F.log_softmax(x, dim=axis)),
    na.relu: _relu,
}

# -- statistics and rearrangements ---------------------------------------------------------------


def _over(f: Callable[..., Tensor], may_be_complex: bool = True) -> Row:
    """A statistic over axes. torch takes no axes for all of them."""

    def row(x: Tensor, axes: Ints, keepdims: bool, **attrs: Any) -> Tensor:
        fits = x.dtype in FLOATS or (may_be_complex and x.is_complex())
        return f(x, axes, keepdim=keepdims, **attrs) if fits and axes else NotImplemented

    return row


def _clip(x: Tensor, low: float | None, high: float | None) -> Tensor:
    if x.dtype not in FLOATS or (low is None and high is None):
        return NotImplemented
    return torch.clamp(x, low, high)


def _embedding(weight: Tensor, indices: Tensor, padding_index: int | None) -> Tensor:
    if weight.ndim != 2 or weight.dtype not in NATIVE or indices.dtype not in _INDEX or weight.shape[0] == 0:
        return NotImplemented
    return F.embedding(indices.to(torch.int64).clamp(0, weight.shape[0] - 1), weight, padding_index)


def _triangle(f: Callable[..., Tensor]) -> Row:
    return lambda x, diagonal: f(x, diagonal) if x.dtype in NATIVE or x.dtype is torch.bool else NotImplemented


def _repeat(x: Tensor, repeats: int, axis: int) -> Tensor:
    return torch.repeat_interleave(x, repeats, axis)


_MISC: dict[OpDef, Row] = {
    nm.mean: _over(torch.mean),
    nm.var: _over(torch.var),
    nm.std: _over(torch.std),
    na.logsumexp: _over(torch.logsumexp, may_be_complex=False),
    nm.clip: _clip,
    nm.embedding: _embedding,
    nm.tril: _triangle(torch.tril),
    nm.triu: _triangle(torch.triu),
    nm.roll: moved(lambda x, shifts, axes: torch.roll(x, shifts, axes)),
    nm.tile: moved(lambda x, repeats: torch.tile(x, repeats)),
    nm.repeat: moved(_repeat),
}

# -- normalisation -------------------------------------------------------------------------------


def _layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, normalized_rank: int, epsilon: float
) -> Tensor:
    return F.layer_norm(x, x.shape[-normalized_rank:], weight, bias, epsilon)


def _rms_norm(x: Tensor, weight: Tensor | None = None, *, normalized_rank: int, epsilon: float) -> Tensor:
    return F.rms_norm(x, x.shape[-normalized_rank:], weight, epsilon)


def _group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, num_groups: int, epsilon: float
) -> Tensor:
    return torch.group_norm(x, num_groups, weight, bias, epsilon)


def _instance_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, epsilon: float) -> Tensor:
    return torch.group_norm(x, x.shape[1], weight, bias, epsilon) if isinstance(x.shape[1], int) else NotImplemented


def _batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int,
    epsilon: float,
) -> Tensor:
    if axis != 1:
        return NotImplemented
    mean, variance, weight, bias = map(_dense, (mean, variance, weight, bias))
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, epsilon)


def _dense(x: Any) -> Any:
    """The derivative of torch's batch norm reads past the end of a vector that is one number repeated."""
    return x if x is None or x.is_contiguous() else x.contiguous()


def _batch_norm_train(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    axis: int,
    epsilon: float,
    momentum: float,
) -> tuple[Tensor, Tensor, Tensor]:
    same = {t.dtype for t in (x, mean, variance, weight, bias) if t is not None}
    if axis != 1 or len(same) > 1 or x.dtype not in FLOATS - SHORT or any(n == 0 for n in x.shape):
        return NotImplemented
    axes = (0, *range(2, x.ndim))
    y = torch.batch_norm(x, _dense(weight), _dense(bias), None, None, True, 0.0, epsilon, True)
    spread, centre = torch.var_mean(x, axes, correction=1)
    return y, torch.lerp(mean, centre, momentum), torch.lerp(variance, spread, momentum)


def _normalize(x: Tensor, p: float, axis: int, epsilon: float) -> Tensor:
    return F.normalize(x, p, axis, epsilon)


_NORMS: dict[OpDef, Row] = {
    nn_.layer_norm: floats(_layer_norm),
    nn_.rms_norm: in_single(_rms_norm),
    nn_.group_norm: floats(_group_norm),
    nn_.instance_norm: floats(_instance_norm),
    nn_.batch_norm: floats(_batch_norm),
    nn_.batch_norm_train: _batch_norm_train,
    nn_.normalize: in_single(_normalize),
}

# -- products ------------------------------------------------------------------------------------


def _products(f: Callable[..., Any]) -> Row:
    def row(*args: Tensor, **attrs: Any) -> Tensor:
        plain = all(a is None or a.dtype in FLOATS or a.is_complex() for a in args)
        return f(*args, **attrs) if plain else NotImplemented

    return row


def _conv(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    low: Ints,
    high: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    return convolve(x, w, bias, strides, low, high, dilation, groups)


_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _conv_transpose(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints,
    low: Ints,
    high: Ints,
    output_padding: Ints,
    dilation: Ints,
    groups: int,
) -> Tensor:
    f = _TRANSPOSED.get(len(strides))
    fits = all(o < max(s, d) for o, s, d in zip(output_padding, strides, dilation))
    if f is None or low != high or min(low) < 0 or not fits:
        return NotImplemented
    return f(x, w, bias, strides, low, output_padding, groups, dilation)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, scale: float | None, is_causal: bool
) -> Tensor:
    kinds = {q.dtype, k.dtype, v.dtype} | ({mask.dtype} if mask is not None and mask.dtype is not torch.bool else set())
    if len(kinds) > 1 or q.dtype not in FLOATS or q.ndim < 3 or (is_causal and mask is not None):
        return NotImplemented
    shared = bool(q.shape[-3] != k.shape[-3])
    if shared:
        if q.ndim != 4:
            return NotImplemented
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale, enable_gqa=True)
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale=scale)


_PRODUCTS: dict[OpDef, Row] = {
    nc.matmul: _products(torch.matmul),
    nc.linear: _products(F.linear),
    nc.einsum: _products(lambda *xs, equation: torch.einsum(equation, *xs)),
    nc.conv: _products(_conv),
    nc.conv_transpose: _products(_conv_transpose),
    nc.attention: _attention,
}

# -- pools and resizing --------------------------------------------------------------------------

_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
_ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def _even(kernel: Ints, low: Ints, high: Ints) -> bool:
    """True for padding that torch's pools take: the same on both sides, at most half a window."""
    return low == high and all(0 <= 2 * p <= k for p, k in zip(low, kernel)) and len(kernel) in _MAX


def _max_pool(x: Tensor, kernel: Ints, strides: Ints, low: Ints, high: Ints, dilation: Ints) -> Tensor:
    return _MAX[len(kernel)](x, kernel, strides, low, dilation) if _even(kernel, low, high) else NotImplemented


def _avg_pool(
    x: Tensor,
    kernel: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    count_include_pad: bool,
    divisor: int | None,
    ceil_extra: Ints | None,
) -> Tensor:
    if not _even(kernel, low, high) or any(ceil_extra or ()):
        return NotImplemented
    if len(kernel) == 1:
        return F.avg_pool1d(x, kernel, strides, low, False, count_include_pad) if divisor is None else NotImplemented
    pool = F.avg_pool2d if len(kernel) == 2 else F.avg_pool3d
    return pool(x, kernel, strides, low, False, count_include_pad, divisor)


def _adaptive(pools: dict[int, Callable[..., Any]]) -> Row:
    def row(x: Tensor, output_size: Ints) -> Tensor:
        fits = len(output_size) in pools and all(isinstance(n, int) and n > 0 for n in output_size)
        return pools[len(output_size)](x, output_size) if fits else NotImplemented

    return floats(row)


_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _resize(
    x: Tensor,
    shape: Ints,
    mode: str,
    coordinates: str,
    nearest: str,
    cubic_coeff: float,
    antialias: bool,
    scales: tuple[float, ...] | None,
) -> Tensor:
    rank = len(shape)
    cubic = mode == "cubic" and rank == 2 and cubic_coeff == -0.75
    fits = coordinates in ("half_pixel", "align_corners") and (cubic or (mode == "linear" and rank <= 3))
    if not fits or antialias or scales is not None or any(n == 0 for n in (*shape, *x.shape)):
        return NotImplemented
    if any(isinstance(n, torch.SymInt) for n in shape):
        return NotImplemented  # torch's own operators take traced sizes by a factor only
    kind = "bicubic" if cubic else _LINEAR[rank]
    return F.interpolate(x, size=shape, mode=kind, align_corners=coordinates == "align_corners")


_POOLS: dict[OpDef, Row] = {
    np_.max_pool: floats(_max_pool),
    np_.avg_pool: floats(_avg_pool),
    np_.adaptive_avg_pool: _adaptive(_ADAPTIVE_AVG),
    np_.adaptive_max_pool: _adaptive(_ADAPTIVE_MAX),
    np_.pixel_shuffle: moved(lambda x, factor: F.pixel_shuffle(x, factor)),
    np_.pixel_unshuffle: moved(lambda x, factor: F.pixel_unshuffle(x, factor)),
    ns.resize: in_single(_resize),
}

# -- recurrences ---------------------------------------------------------------------------------


def _recurrence(f: Callable[..., Any], states: int) -> Row:
    """A cuDNN-backed recurrence over one layer in one direction."""

    def row(x: Tensor, *rest: Tensor, reverse: bool) -> Any:
        start, weights = rest[:states], rest[states:]
        if x.dtype not in (torch.float32, torch.float64) or len(weights) not in (2, 4) or x.shape[0] == 0:
            return NotImplemented
        first = tuple(h.unsqueeze(0) for h in start) if states > 1 else start[0].unsqueeze(0)
        x = torch.flip(x, (0,)) if reverse else x
        ys, *last = f(x, first, list(weights), len(weights) == 4, 1, 0.0, False, False, False)
        return (torch.flip(ys, (0,)) if reverse else ys, *(h.squeeze(0) for h in last))

    return row


def _rnn(x: Tensor, *rest: Tensor, nonlinearity: str, reverse: bool) -> Any:
    return _recurrence(torch.rnn_tanh if nonlinearity == "tanh" else torch.rnn_relu, 1)(x, *rest, reverse=reverse)


_RECURRENT: dict[OpDef, Row] = {nr.lstm: _recurrence(torch.lstm, 2), nr.gru: _recurrence(torch.gru, 1), nr.rnn: _rnn}

# -- losses --------------------------------------------------------------------------------------


def _cross_entropy(logits: Tensor, target: Tensor, reduction: str, ignore_index: int, label_smoothing: float) -> Tensor:
    return F.cross_entropy(
        logits,
        target.to(torch.int64),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def _nll_loss(log_probs: Tensor, target: Tensor, reduction: str, ignore_index: int) -> Tensor:
    return F.nll_loss(log_probs, target.to(torch.int64), ignore_index=ignore_index, reduction=reduction)


_LOSSES: dict[OpDef, Row] = {
    nl.cross_entropy: in_single(_cross_entropy),
    nl.nll_loss: in_single(_nll_loss),
    nl.mse_loss: in_single(F.mse_loss),
    nl.l1_loss: in_single(F.l1_loss),
    nl.smooth_l1_loss: in_single(F.smooth_l1_loss),
    nl.huber_loss: in_single(F.huber_loss),
    nl.bce_with_logits: in_single(F.binary_cross_entropy_with_logits),
    nl.kl_div: in_single(F.kl_div),
}

ROWS: dict[OpDef, Row] = {**_ACTIVATIONS, **_MISC, **_NORMS, **_PRODUCTS, **_POOLS, **_RECURRENT, **_LOSSES}
