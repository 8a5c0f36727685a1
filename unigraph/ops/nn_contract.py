"""Products: matrix products, convolutions with bias, attention, einsum."""

from __future__ import annotations

from collections.abc import Sequence

from .. import dims
from ..dims import Dim
from ..opdef import Attr, require
from .composite import op
from .idioms import (
    GraphBuilder,
    Value,
    along,
    back,
    broadcast_shapes,
    broadcast_to,
    cast,
    cut,
    float_required,
    reshape,
    where,
    wide,
)
from .nn_einsum import contract

# -- matrix products -----------------------------------------------------------------------------


def _same_dtype(name: str, *values: Value | None) -> None:
    given = [v for v in values if v is not None]
    for v in given[1:]:
        same = v.type.dtype is given[0].type.dtype
        require(same, f"{name}_dtype", f"operands must share a dtype: {given[0].type} and {v.type}; convert one")


@op()
def matmul(b: GraphBuilder, x: Value, y: Value) -> Value:
    """Matrix product of the last two axes, as NumPy's matmul: leading axes are broadcast; a vector
    on the left is a row, on the right a column, whose axis then vanishes.
    """
    _same_dtype("matmul", x, y)
    require(x.type.rank and y.type.rank, "matmul_rank", f"operands must not be scalars: {x.type} and {y.type}")
    left, right = x.type.shape, y.type.shape
    contracted = right[-1] if len(right) == 1 else right[-2]
    require(dims.compatible(left[-1], contracted), "matmul_size", f"inner sizes differ: {x.type} and {y.type}")
    if len(right) <= 2:
        return b.dot_general(x, y, lhs_contracting=(len(left) - 1,), rhs_contracting=(0,))
    if len(left) == 1:
        return b.dot_general(x, y, lhs_contracting=(0,), rhs_contracting=(len(right) - 2,))
    batch = broadcast_shapes("matmul", left[:-2], right[:-2])
    x = broadcast_to(b, x, (*batch, *left[-2:]))
    y = broadcast_to(b, y, (*batch, *right[-2:]))
    axes, n = tuple(range(len(batch))), len(batch)
    return b.dot_general(x, y, lhs_contracting=(n + 1,), rhs_contracting=(n,), lhs_batch=axes, rhs_batch=axes)


@op()
def linear(b: GraphBuilder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x weight^T + bias over the last axis of x; weight is [out, in] (or [in], which gives no out axis)."""
    _same_dtype("linear", x, weight, bias)
    require(x.type.rank >= 1, "linear_rank", f"x must not be a scalar: {x.type}")
    require(weight.type.rank in (1, 2), "linear_weight", f"weight must be [out, in] or [in], got {weight.type}")
    fits = dims.compatible(x.type.shape[-1], weight.type.shape[-1])
    require(fits, "linear_size", f"weight {weight.type} does not take the last axis of {x.type}")
    y = b.dot_general(x, weight, lhs_contracting=(x.type.rank - 1,), rhs_contracting=(weight.type.rank - 1,))
    if bias is None:
        return y
    require(
        bias.type.rank <= weight.type.rank - 1, "linear_bias", f"bias must be [out] of {weight.type}, got {bias.type}"
    )
    return b.add(y, broadcast_to(b, bias, y.type.shape))


@op(equation=Attr("str", doc="such as bij,bjk->bik; ... stands for broadcast axes"))
def einsum(b: GraphBuilder, *xs: Value, equation: str) -> Value:
    """Sum of products by Einstein's convention: each letter names an axis, letters not in the output are
    summed, a letter twice in one operand takes the diagonal, sizes of 1 are broadcast. Without -> the
    output has the letters that occur once, in alphabetical order. Operands are joined from the left.
    """
    _same_dtype("einsum", *xs)
    return contract(b, xs, equation)


# -- convolution ---------------------------------------------------------------------------------

_PADDING = {
    "strides": Attr("ints", doc="step along each spatial axis"),
    "low": Attr("ints", doc="padding before the first element of each spatial axis; negative crops"),
    "high": Attr("ints", doc="padding after the last element of each spatial axis; negative crops"),
}
_DILATION = Attr("ints", doc="step between kernel elements along each spatial axis")
_GROUPS = Attr("int", 1, "channels are split into so many independent groups")


def _window(name: str, x: Value, w: Value, per_axis: dict[str, tuple[int, ...]], groups: int) -> int:
    """Number of spatial axes; refuses what does not have as many entries."""
    spatial = x.type.rank - 2
    require(
        spatial >= 0 and w.type.rank == x.type.rank,
        f"{name}_rank",
        f"needs x [N, C, *S] and w of the same rank, got {x.type} and {w.type}",
    )
    for attribute, values in per_axis.items():
        require(
            len(values) == spatial,
            f"{name}_attrs",
            f"{attribute} {values} needs {spatial} entries, one for each spatial axis",
        )
        smallest = 1 if attribute in ("strides", "dilation") else 0 if attribute == "output_padding" else None
        require(
            smallest is None or all(v >= smallest for v in values),
            f"{name}_attrs",
            f"{attribute} {values} must be at least {smallest}",
        )
    require(groups >= 1, f"{name}_groups", f"groups {groups} must be at least 1")
    return spatial


def _channel_bias(b: GraphBuilder, name: str, y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    fits = bias.type.rank == 1 and dims.compatible(bias.type.shape[0], y.type.shape[1])
    require(fits, f"{name}_bias", f"bias {bias.type} needs one entry per channel of {y.type}")
    return b.add(y, along(b, bias, y.type.shape, (1,)))


@op(**_PADDING, dilation=_DILATION, groups=_GROUPS)
def conv(
    b: GraphBuilder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    strides: tuple[int, ...],
    low: tuple[int, ...],
    high: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Value:
    """Convolution (without flipping the kernel) of x [N, C, *S] by w [O, C/groups, *K], plus a bias per
    output channel. Any number of spatial axes.
    """
    _same_dtype("conv", x, w, bias)
    spatial = _window("conv", x, w, {"strides": strides, "low": low, "high": high, "dilation": dilation}, groups)
    fits = dims.compatible(x.type.shape[1], dims.normal(w.type.shape[1] * groups))
    require(fits, "conv_channels", f"w {w.type} in {groups} groups does not take the channels of {x.type}")
    spec = tuple(range(spatial + 2))
    y = b.conv_general(
        x,
        w,
        strides=strides,
        low=low,
        high=high,
        lhs_dilation=(1,) * spatial,
        rhs_dilation=dilation,
        lhs_spec=spec,
        rhs_spec=spec,
        out_spec=spec,
        groups=groups,
    )
    return _channel_bias(b, "conv", y, bias)


@op(
    **_PADDING,
    output_padding=Attr("ints", doc="elements added at the end of each spatial axis of the result"),
    dilation=_DILATION,
    groups=_GROUPS,
)
def conv_transpose(
    b: GraphBuilder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    strides: tuple[int, ...],
    low: tuple[int, ...],
    high: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Value:
    """Transpose (adjoint) of conv: x [N, C, *S] and w [C, O/groups, *K] give [N, O, *T] with
    T = (S - 1) * stride - low - high + dilation * (K - 1) + output_padding + 1, plus a bias per channel.
    """
    _same_dtype("conv_transpose", x, w, bias)
    given = {"strides": strides, "low": low, "high": high, "output_padding": output_padding, "dilation": dilation}
    spatial = _window("conv_transpose", x, w, given, groups)
    c, o, *kernel = w.type.shape
    fits = dims.compatible(x.type.shape[1], c) and dims.compatible(dims.mod(c, groups), 0)
    require(fits, "conv_transpose_channels", f"w {w.type} in {groups} groups does not take the channels of {x.type}")
    require(all(map(dims.is_static, kernel)), "conv_transpose_kernel", f"kernel sizes of {w.type} must be known")
    space = range(3, 3 + spatial)
    w = reshape(b, w, (groups, dims.floordiv(c, groups), o, *kernel))
    w = b.transpose(w, permutation=(0, 2, 1, *space))
    w = reshape(b, w, (dims.normal(o * groups), dims.floordiv(c, groups), *kernel))
    if spatial:
        w = b.reverse(w, dimensions=tuple(range(2, 2 + spatial)))
    reach = [d * (int(k) - 1) for d, k in zip(dilation, kernel)]
    spec = tuple(range(spatial + 2))
    y = b.conv_general(
        x,
        w,
        strides=(1,) * spatial,
        low=tuple(r - lo for r, lo in zip(reach, low)),
        high=tuple(r - hi + extra for r, hi, extra in zip(reach, high, output_padding)),
        lhs_dilation=strides,
        rhs_dilation=dilation,
        lhs_spec=spec,
        rhs_spec=spec,
        out_spec=spec,
        groups=groups,
    )
    return _channel_bias(b, "conv_transpose", y, bias)


# -- attention -----------------------------------------------------------------------------------


def _attention_shapes(q: Value, k: Value, v: Value) -> int:
    """How many query heads share a key head; refuses shapes that do not fit."""
    _same_dtype("attention", q, k, v)
    float_required("attention", q)
    rank = q.type.rank
    require(
        rank >= 2 and k.type.rank == rank == v.type.rank,
        "attention_rank",
        f"q, k and v must have one rank of at least 2: {q.type}, {k.type}, {v.type}",
    )
    require(
        dims.compatible(q.type.shape[-1], k.type.shape[-1]),
        "attention_size",
        f"q {q.type} and k {k.type} must share the last axis",
    )
    same = all(map(dims.compatible, k.type.shape[:-1], v.type.shape[:-1]))
    require(same, "attention_keys", f"k {k.type} and v {v.type} may differ in the last axis only")
    same = all(map(dims.compatible, q.type.shape[: max(rank - 3, 0)], k.type.shape[: max(rank - 3, 0)]))
    require(same, "attention_batch", f"q {q.type} and k {k.type} must share the leading axes")
    if rank == 2 or dims.equal(q.type.shape[-3], k.type.shape[-3]):
        return 1
    heads, key_heads = q.type.shape[-3], k.type.shape[-3]
    fits = dims.is_static(heads) and dims.is_static(key_heads) and key_heads and heads % key_heads == 0
    require(fits, "attention_heads", f"{heads} query heads must be a known multiple of {key_heads} key heads")
    return int(heads // key_heads)


def _masked(b: GraphBuilder, scores: Value, mask: Value | None, is_causal: bool) -> Value:
    """Scores [..., Hq, T, S] with what must not be attended to at -inf."""
    shape = scores.type.shape
    if is_causal:
        row = b.iota(dtype="i32", shape=shape[-2:], axis=0)
        column = b.iota(dtype="i32", shape=shape[-2:], axis=1)
        scores = where(b, broadcast_to(b, b.ge(row, column), shape), scores, -float("inf"))
    if mask is None:
        return scores
    require(mask.type.rank <= len(shape), "attention_mask", f"mask {mask.type} must broadcast to {shape}")
    if mask.type.dtype.name == "bool":
        return where(b, broadcast_to(b, mask, shape), scores, -float("inf"))
    require(mask.type.dtype.is_float, "attention_mask", f"mask must be bool or a float, got {mask.type}")
    return b.add(scores, broadcast_to(b, cast(b, mask, scores.type.dtype), shape))


def _safe_softmax(b: GraphBuilder, scores: Value) -> Value:
    """Softmax over the last axis; a row of -inf gives zeros."""
    shape = scores.type.shape
    axes = (len(shape) - 1,)
    top = b.reduce_max(scores, axes=axes)
    top = where(b, b.eq(top, -float("inf")), 0.0, top)
    e = b.exp(b.sub(scores, back(b, top, shape, axes)))
    total = b.reduce_sum(e, axes=axes)
    total = where(b, b.eq(total, 0.0), 1.0, total)
    return b.div(e, back(b, total, shape, axes))


@op(
    scale=Attr("float", None, "factor of the scores; None: 1 / sqrt(D)"),
    is_causal=Attr("bool", False, "query t sees keys 0..t only"),
)
def attention(
    b: GraphBuilder,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    *,
    scale: float | None,
    is_causal: bool,
) -> Value:
    """softmax(q k^T * scale) v (Vaswani et al. 2017) for q [..., Hq, T, D], k [..., Hkv, S, D] and
    v [..., Hkv, S, E]. Hq is a multiple of Hkv: neighbouring query heads share a key head (Ainslie et al.
    2023). A bool mask says what is attended to, a float mask is added; it broadcasts to [..., Hq, T, S].
    Causal masking is aligned at the top left. A row in which nothing is attended to gives zeros. Scores
    of short floats are computed in f32.
    """
    sharing = _attention_shapes(q, k, v)
    query, key, value = (wide(b, x) for x in (q, k, v))
    *lead, rows, size = q.type.shape
    if sharing > 1:
        query = reshape(b, query, (*lead[:-1], lead[-1] // sharing, sharing, rows, size))
    n = k.type.rank - 2  # batch axes of k and v
    axes = tuple(range(n))
    last = query.type.rank - 1
    scores = b.dot_general(
        query, key, lhs_contracting=(last,), rhs_contracting=(n + 1,), lhs_batch=axes, rhs_batch=axes
    )
    scores = reshape(b, scores, (*lead, rows, k.type.shape[-2]))
    if scale is not None:
        scores = b.mul(scores, scale)
    elif dims.is_static(size):
        scores = b.mul(scores, float(size) ** -0.5 if size else 1.0)
    else:
        root = b.rsqrt(b.convert(b.size(size), dtype=scores.type.dtype))
        scores = b.mul(scores, broadcast_to(b, root, scores.type.shape))
    weights = _safe_softmax(b, _masked(b, scores, mask, is_causal))
    if sharing > 1:
        weights = reshape(b, weights, (*query.type.shape[:-1], k.type.shape[-2]))
    result = b.dot_general(
        weights, value, lhs_contracting=(last,), rhs_contracting=(n,), lhs_batch=axes, rhs_batch=axes
    )
    return cast(b, reshape(b, result, (*lead, rows, v.type.shape[-1])), q.type.dtype)


def _pairs(b: GraphBuilder, x: Value, interleaved: bool) -> tuple[Value, Value]:
    """The two members of each rotated pair: neighbours, or element i and i + D/2."""
    axis, size = x.type.rank - 1, x.type.shape[-1]
    if interleaved:
        return cut(b, x, axis, 0, size, 2), cut(b, x, axis, 1, size, 2)
    half = dims.floordiv(size, 2)
    return cut(b, x, axis, 0, half), cut(b, x, axis, half, size)


def _joined(b: GraphBuilder, first: Value, second: Value, shape: Sequence[Dim], interleaved: bool) -> Value:
    """Undoes `_pairs`."""
    axis = len(shape) - 1
    if not interleaved:
        return b.concatenate(first, second, axis=axis)
    first, second = (reshape(b, v, (*v.type.shape, 1)) for v in (first, second))
    return reshape(b, b.concatenate(first, second, axis=axis + 1), shape)


@op(interleaved=Attr("bool", False, "pairs are neighbours; otherwise element i goes with i + D/2"))
def rotary_embedding(b: GraphBuilder, x: Value, cos: Value, sin: Value, *, interleaved: bool) -> Value:
    """Rotates pairs of elements along the last axis D by angles given as cosines and sines (Su et al.
    2021): (a, c) becomes (a cos - c sin, c cos + a sin). cos and sin broadcast to x with a last axis of
    D/2 (one angle per pair) or D (an angle for each member).
    """
    float_required("rotary_embedding", x)
    _same_dtype("rotary_embedding", x, cos, sin)
    shape, size = x.type.shape, x.type.shape[-1] if x.type.rank else 0
    require(
        x.type.rank and dims.compatible(dims.mod(size, 2), 0),
        "rotary_embedding_size",
        f"the last axis of {x.type} must be even",
    )
    require(
        1 <= cos.type.rank <= len(shape) and cos.type.shape == sin.type.shape,
        "rotary_embedding_angles",
        f"cos {cos.type} and sin {sin.type} must agree and broadcast to {x.type}",
    )
    first, second = _pairs(b, x, interleaved)
    if dims.equal(cos.type.shape[-1], size):
        turned = _joined(b, b.neg(second), first, shape, interleaved)
        cos, sin = broadcast_to(b, cos, shape), broadcast_to(b, sin, shape)
        return b.add(b.mul(x, cos), b.mul(turned, sin))
    require(
        dims.compatible(cos.type.shape[-1], first.type.shape[-1]),
        "rotary_embedding_angles",
        f"the last axis of cos {cos.type} must be half of that of {x.type}, or all of it",
    )
    cos, sin = broadcast_to(b, cos, first.type.shape), broadcast_to(b, sin, first.type.shape)
    left = b.sub(b.mul(first, cos), b.mul(second, sin))
    right = b.add(b.mul(second, cos), b.mul(first, sin))
    return _joined(b, left, right, shape, interleaved)
