"""The ``com.microsoft`` operators that exported and optimised transformers use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dims import Dim
from unigraph.dtypes import f32
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, cut, reshape

from .import_elementwise import to_shape
from .node import Node, RowBook

rows = RowBook()
DOMAIN = "com.microsoft"


# -- products and activations ------------------------------------------------------------------------


@rows("FusedMatMul", domain=DOMAIN)
def fused_matmul(n: Node) -> Value:
    """alpha A B with the last two axes swapped first where asked for."""
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        raise Unsupported("FusedMatMul with transposed batch axes")
    a, b = (_swapped(n, n.value(i)) if n.attr(name, 0) else n.value(i) for i, name in ((0, "transA"), (1, "transB")))
    product = n.b.matmul(a, b)
    alpha = n.attr("alpha", 1.0)
    return product if alpha == 1 else n.b.mul(product, alpha)


def _swapped(n: Node, x: Value) -> Value:
    if x.type.rank < 2:
        return x
    order = [*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2]
    return n.b.transpose(x, permutation=tuple(order))


@rows("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(n: Node) -> Value:
    """A times the transpose of a weight packed in blocks along K: low bits first, one scale for each block."""
    bits, size, k, count = n.attr("bits", 4), n.attr("block_size"), n.attr("K"), n.attr("N")
    if n.has(4) or bits not in (2, 4, 8):
        raise Unsupported(f"MatMulNBits with {'g_idx' if n.has(4) else f'{bits} bits'}")
    x, scales = n.value(0), n.value(2)
    blocks = -(-k // size)
    wide = (count, blocks, size)
    weight = n.b.convert(n.b.reshape(_unpacked(n, n.value(1), bits), shape=wide), dtype="f32")
    if not n.has(3):
        zero = n.b.full(float(1 << (bits - 1)), "f32", wide)
    else:
        given = n.value(3)
        if given.type.dtype.is_float:
            points = n.b.reshape(given, shape=(count, blocks))
        else:
            packed = n.b.reshape(given, shape=(count, -(-blocks * bits // 8)))
            points = cut(n.b, _unpacked(n, packed, bits), 1, 0, blocks)
        zero = along(n.b, cast(n.b, points, f32), wide, (0, 1))
    scale = along(n.b, cast(n.b, n.b.reshape(scales, shape=(count, blocks)), f32), wide, (0, 1))
    whole = n.b.reshape(n.b.mul(n.b.sub(weight, zero), scale), shape=(count, blocks * size))
    whole = cast(n.b, cut(n.b, whole, 1, 0, k), x.type.dtype)
    return n.b.linear(x, whole, *([n.value(5)] if n.has(5) else []))


def _unpacked(n: Node, x: Value, bits: int) -> Value:
    """The small numbers in the bytes of the last axis, low bits first."""
    if bits == 8:
        return x
    parts = []
    for shift in range(0, 8, bits):
        moved = n.b.shift_right_logical(x, shift) if shift else x
        parts.append(n.b.reshape(n.b.and_(moved, (1 << bits) - 1), shape=(*x.type.shape, 1)))
    joined = n.b.concatenate(*parts, axis=x.type.rank)
    last = dims.normal(x.type.shape[-1] * len(parts))
    return n.b.reshape(joined, shape=(*x.type.shape[:-1], last))


def _biased(n: Node, x: Value, i: int) -> Value:
    return n.b.add(x, to_shape(n, n.value(i), x.type.shape)) if n.has(i) else x


@rows("Gelu", "BiasGelu", domain=DOMAIN)
def gelu(n: Node) -> Value:
    return n.b.gelu(_biased(n, n.value(0), 1), approximate="none")


@rows("FastGelu", domain=DOMAIN)
def fast_gelu(n: Node) -> Value:
    return n.b.gelu(_biased(n, n.value(0), 1), approximate="tanh")


@rows("QuickGelu", domain=DOMAIN)
def quick_gelu(n: Node) -> Value:
    x = n.value(0)
    return n.b.mul(x, n.b.logistic(n.b.mul(x, float(n.attr("alpha", 1.702)))))


# -- norms -------------------------------------------------------------------------------------------


@rows("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(n: Node) -> tuple[Value | None, ...]:
    """Layer norm of input + skip + bias; that sum is output 3."""
    total = _biased(n, n.b.add(n.value(0), to_shape(n, n.value(1), n.value(0).type.shape)), 4)
    weights = [n.value(i) for i in (2, 3) if n.has(i)]
    y = n.b.layer_norm(total, *weights, normalized_rank=1, epsilon=n.attr("epsilon", 1e-12))
    return (y, None, None, total)[: max(n.outputs, 1)]


@rows("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_norm(n: Node) -> tuple[Value | None, ...]:
    total = _biased(n, n.b.add(n.value(0), to_shape(n, n.value(1), n.value(0).type.shape)), 3)
    y = n.b.rms_norm(total, n.value(2), normalized_rank=1, epsilon=n.attr("epsilon", 1e-12))
    return (y, None, None, total)[: max(n.outputs, 1)]


@rows("SimplifiedLayerNormalization")
@rows("SimplifiedLayerNormalization", domain=DOMAIN)
def rms_norm(n: Node) -> Value:
    x = n.value(0)
    rank = x.type.rank - n.axis("axis", -1, x.type.rank)
    return n.b.rms_norm(x, n.value(1), normalized_rank=rank, epsilon=n.attr("epsilon", 1e-5))


@rows("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(n: Node) -> tuple[Value | None, ...]:
    """Word, position and segment embeddings added up and normed; output 1 counts the mask."""
    ids = n.value(0)
    batch, length = ids.type.shape
    total = n.b.embedding(n.value(2), ids)
    if n.has(8):
        positions = n.b.embedding(n.value(3), n.value(8))
    else:
        positions = cut(n.b, n.value(3), 0, 0, length)
    total = n.b.add(total, to_shape(n, positions, total.type.shape))
    if n.has(4) and n.has(1):
        total = n.b.add(total, n.b.embedding(n.value(4), n.value(1)))
    y = n.b.layer_norm(total, n.value(5), n.value(6), normalized_rank=1, epsilon=n.attr("epsilon", 1e-12))
    counted = None
    if n.outputs > 1:
        mask = n.b.convert(n.value(7), dtype="i32") if n.has(7) else n.b.full(0, "i32", (batch, length))
        counted = n.b.reduce_sum(mask, axes=(1,))
    return (y, counted, total)[: max(n.outputs, 1)]


# -- attention ---------------------------------------------------------------------------------------


def _heads(n: Node, x: Value, count: int) -> Value:
    """[B, S, heads * size] as [B, heads, S, size]."""
    if x.type.rank == 4:
        return x
    batch, length, width = x.type.shape
    split = n.b.reshape(x, shape=(batch, length, count, dims.floordiv(width, count)))
    return n.b.transpose(split, permutation=(0, 2, 1, 3))


def _joined(n: Node, x: Value) -> Value:
    batch, heads, length, size = x.type.shape
    return n.b.reshape(n.b.transpose(x, permutation=(0, 2, 1, 3)), shape=(batch, length, dims.normal(heads * size)))


def _with_past(n: Node, past: Value | None, new: Value) -> Value:
    return new if past is None else n.b.concatenate(past, new, axis=2)


def _causal(n: Node, queries: Dim, keys: Dim, window: int = -1) -> Value:
    """True where key j may be seen by query i of the last ``queries`` positions, [queries, keys]."""
    shape = (queries, keys)
    offset = to_shape(n, n.b.size(dims.normal(keys - queries)), shape)
    query = n.b.add(n.b.iota(dtype="i64", shape=shape, axis=0), offset)
    key = n.b.iota(dtype="i64", shape=shape, axis=1)
    seen = n.b.le(key, query)
    return n.b.and_(seen, n.b.gt(key, n.b.sub(query, window))) if window > 0 else seen


def _as_bias(n: Node, seen: Value, low: float, kind: Any) -> Value:
    zero = n.b.full(0.0, kind, seen.type.shape)
    return n.b.select(seen, n.b.full_like(zero, low), zero)


def _key_mask(n: Node, mask: Value, batch: Dim, queries: Dim, keys: Dim) -> Value:
    """A mask of lengths [B], of keys [B, K] or of pairs [B, Q, K], as bool [B, 1, Q, K]."""
    shape = (batch, 1, queries, keys)
    if mask.type.rank == 1:
        key = n.b.iota(dtype="i64", shape=shape, axis=3)
        return n.b.lt(key, along(n.b, n.b.convert(mask, dtype="i64"), shape, (0,)))
    axes = {2: (0, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}[mask.type.rank]
    return along(n.b, n.b.ne(mask, 0), shape, axes)


def _attend(n: Node, q: Value, k: Value, v: Value, biases: Sequence[Value | None]) -> Value:
    shape = (q.type.shape[0], q.type.shape[1], q.type.shape[2], k.type.shape[2])
    total: Value | None = None
    for bias in biases:
        if bias is not None:
            wide = to_shape(n, cast(n.b, bias, q.type.dtype), shape)
            total = wide if total is None else n.b.add(total, wide)
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(int(q.type.shape[-1]))
    return n.b.attention(q, k, v, *([total] if total is not None else []), scale=scale, is_causal=False)


def _low(n: Node) -> float:
    return float(n.attr("mask_filter_value", -10000.0))


@rows("Attention", domain=DOMAIN)
def attention(n: Node) -> tuple[Value, ...]:
    """One product for queries, keys and values; output 1 holds past and new keys and values."""
    x, weight = n.value(0), n.value(1)
    heads, sizes = n.attr("num_heads"), n.attr("qkv_hidden_sizes")
    if n.attr("do_rotary", 0):
        raise Unsupported("Attention of com.microsoft with rotary positions")
    whole = n.b.matmul(x, weight)
    whole = _biased(n, whole, 2)
    width = int(weight.type.shape[1])
    ends = np.cumsum([0, *(sizes or [width // 3] * 3)]).tolist()
    q, k, v = (_heads(n, cut(n.b, whole, 2, ends[i], ends[i + 1]), heads) for i in range(3))
    if n.has(4):
        past = [reshape(n.b, cut(n.b, n.value(4), 0, i, i + 1), n.value(4).type.shape[1:]) for i in (0, 1)]
        k, v = _with_past(n, past[0], k), _with_past(n, past[1], v)
    batch, _, queries, _ = q.type.shape
    keys = k.type.shape[2]
    biases: list[Value | None] = [n.optional(5)]
    if n.has(3):
        biases.append(_as_bias(n, _key_mask(n, n.value(3), batch, queries, keys), _low(n), q.type.dtype))
    if n.attr("unidirectional", 0):
        biases.append(_as_bias(n, _causal(n, queries, keys), -3e38 if q.type.dtype is f32 else -6e4, q.type.dtype))
    y = _joined(n, _attend(n, q, k, v, biases))
    if n.outputs < 2:
        return (y,)
    return y, n.b.concatenate(*(n.b.reshape(p, shape=(1, *p.type.shape)) for p in (k, v)), axis=0)


@rows("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(n: Node) -> tuple[Value, ...]:
    """Attention over separate queries, keys and values, with a bias for all three and past keys and values."""
    heads = n.attr("num_heads")
    if not n.has(1) or not n.has(2):
        raise Unsupported("MultiHeadAttention over packed keys and values")
    parts = [n.value(i) for i in range(3)]
    if n.has(3):
        bias, start = n.value(3), 0
        for i, x in enumerate(parts):
            if x.type.rank != 3:
                raise Unsupported("MultiHeadAttention with a bias for keys that are split already")
            stop = start + int(x.type.shape[2])
            parts[i] = n.b.add(x, to_shape(n, cut(n.b, bias, 0, start, stop), x.type.shape))
            start = stop
    q, k, v = (_heads(n, x, heads) for x in parts)
    k, v = _with_past(n, n.optional(6), k), _with_past(n, n.optional(7), v)
    batch, _, queries, _ = q.type.shape
    keys = k.type.shape[2]
    biases: list[Value | None] = [n.optional(5)]
    if n.has(4):
        biases.append(_as_bias(n, _key_mask(n, n.value(4), batch, queries, keys), _low(n), q.type.dtype))
    if n.attr("unidirectional", 0):
        biases.append(_as_bias(n, _causal(n, queries, keys), -3e38 if q.type.dtype is f32 else -6e4, q.type.dtype))
    return (_joined(n, _attend(n, q, k, v, biases)), k, v)[: n.outputs]


@rows("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(n: Node) -> tuple[Value, ...]:
    """Causal attention with grouped heads; keys and values follow those of the past, which has no gaps."""
    heads, groups = n.attr("num_heads"), n.attr("kv_num_heads")
    if n.attr("softcap", 0.0) or n.attr("smooth_softmax", 0):
        raise Unsupported("GroupQueryAttention with softcap or smooth softmax")
    x = n.value(0)
    if n.has(1):
        parts = [x, n.value(1), n.value(2)]
    else:
        size = int(x.type.shape[2]) // (heads + 2 * groups)
        ends = np.cumsum([0, heads * size, groups * size, groups * size]).tolist()
        parts = [cut(n.b, x, 2, ends[i], ends[i + 1]) for i in range(3)]
    q, k, v = (_heads(n, p, c) for p, c in zip(parts, (heads, groups, groups)))
    batch, _, length, _ = q.type.shape
    if n.attr("do_rotary", 0):
        total = n.b.add(n.b.convert(n.value(5), dtype="i64"), 1)
        first = n.b.max(n.b.sub(total, to_shape(n, n.b.size(length), total.type.shape)), 0)
        steps = n.b.iota(dtype="i64", shape=(batch, length), axis=1)
        places = n.b.add(along(n.b, first, (batch, length), (0,)), steps) if n.has(3) else steps
        q, k = (_rotated(n, p, places, n.value(7), n.value(8), bool(n.attr("rotary_interleaved", 0))) for p in (q, k))
    k, v = _with_past(n, n.optional(3), k), _with_past(n, n.optional(4), v)
    seen = _causal(n, length, k.type.shape[2], n.attr("local_window_size", -1))
    y = _attend(n, q, k, v, [_as_bias(n, seen, -3e38 if q.type.dtype is f32 else -6e4, q.type.dtype)])
    return (_joined(n, y), k, v)[: n.outputs]


def _rotated(n: Node, x: Value, places: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [B, heads, S, size] turned by the angles at ``places`` [B, S]; what the caches do not cover stays."""
    turned = 2 * int(cos.type.shape[1])
    batch, _, length, size = x.type.shape
    shape = (batch, 1, length, cos.type.shape[1])
    tables = [n.b.reshape(n.b.take(t, places, axis=0, mode="clip"), shape=shape) for t in (cos, sin)]
    part = x if turned == size else cut(n.b, x, 3, 0, turned)
    wide = [to_shape(n, t, (*part.type.shape[:3], cos.type.shape[1])) for t in tables]
    y = n.b.rotary_embedding(part, *wide, interleaved=interleaved)
    return y if turned == size else n.b.concatenate(y, cut(n.b, x, 3, turned, size), axis=3)


@rows("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(n: Node) -> Value:
    """Positions are given for each element, or by where the first one stands."""
    x, places, cos, sin = n.values()[:4]
    size = 2 * int(cos.type.shape[1])
    heads = n.attr("num_heads", 0) or (int(x.type.shape[2]) // size if x.type.rank == 3 else 0)
    split = _heads(n, x, heads)
    batch, _, length, _ = split.type.shape
    if places.type.rank == 1:
        steps = n.b.iota(dtype="i64", shape=(batch, length), axis=1)
        places = n.b.add(along(n.b, reshape(n.b, n.b.convert(places, dtype="i64"), ()), (batch, length), ()), steps)
    y = _rotated(n, split, places, cos, sin, bool(n.attr("interleaved", 0)))
    y = n.b.mul(y, n.attr("scale")) if n.attr("scale", 1.0) != 1.0 else y
    return _joined(n, y) if x.type.rank == 3 else y
