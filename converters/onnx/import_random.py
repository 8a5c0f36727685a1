"""ONNX nodes that draw at random: each takes its own key, made from the one key the graph then takes.

A ``seed`` attribute is left to the caller, who passes the key: the streams of other runtimes cannot be
had bit for bit.
"""

from __future__ import annotations

from typing import Any

from unigraph.dtypes import DType, dtype, f32
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, reshape

from .dtypes import FROM_ONNX
from .node import Node, RowBook

rows = RowBook()


def _target(n: Node, default: DType) -> DType:
    return FROM_ONNX[n.attr("dtype")] if n.attr("dtype") is not None else default


def _drawn(n: Node, shape: tuple[Any, ...], kind: DType) -> Value:
    """Numbers of the distribution that the op type names."""
    own = kind if kind.bits >= 32 else f32
    if n.op_type.startswith("RandomNormal"):
        x = n.b.random_normal(n.importer.key(), shape=shape, dtype=own)
        x = n.b.add(n.b.mul(x, n.attr("scale", 1.0)), n.attr("mean", 0.0))
    else:
        low, high = n.attr("low", 0.0), n.attr("high", 1.0)
        x = n.b.random_uniform(n.importer.key(), shape=shape, dtype=own, low=low, high=high)
    return cast(n.b, x, kind)


@rows("RandomNormal", "RandomUniform")
def random(n: Node) -> Value:
    return _drawn(n, tuple(n.attr("shape")), _target(n, f32))


@rows("RandomNormalLike", "RandomUniformLike")
def random_like(n: Node) -> Value:
    x = n.value(0)
    kind = x.type.dtype if x.type.dtype.is_float else f32
    return _drawn(n, x.type.shape, _target(n, kind))


@rows("Bernoulli")
def bernoulli(n: Node) -> Value:
    """1 with the probability that each element of the input tells."""
    p = n.value(0)
    own = p.type.dtype if p.type.dtype.bits >= 32 else f32
    u = n.b.random_uniform(n.importer.key(), shape=p.type.shape, dtype=own, low=0.0, high=1.0)
    return n.b.convert(n.b.lt(u, cast(n.b, p, own)), dtype=_target(n, p.type.dtype))


@rows("Multinomial")
def multinomial(n: Node) -> Value:
    """Classes drawn by logits, as the largest of logits plus Gumbel noise."""
    logits = n.value(0)
    batch, classes = logits.type.shape
    count = n.attr("sample_size", 1)
    shape = (batch, count, classes)
    wide = cast(n.b, logits, f32 if logits.type.dtype.bits < 32 else logits.type.dtype)
    noise = n.b.random_gumbel(n.importer.key(), shape=shape, dtype=wide.type.dtype)
    found = n.b.argmax(n.b.add(along(n.b, wide, shape, (0, 2)), noise), axis=2, index_dtype="i64")
    return cast(n.b, found, _target(n, dtype("i32")))


@rows("Dropout")
def dropout(n: Node) -> Any:
    """Identity, unless the training flag is set: then elements are dropped by the graph's key."""
    x = n.value(0)
    if n.opset >= 12:
        training = n.importer.training or (n.has(2) and bool(n.scalar(2)))
    else:
        training = n.importer.training or (n.opset < 7 and not n.attr("is_test", 0))
    if n.opset >= 12:
        ratio = n.value(1) if n.has(1) else n.b.constant(0.5, f32)
    else:
        ratio = n.b.constant(n.attr("ratio", 0.5), f32)
    if not training or (n.b.array(ratio) is not None and not n.b.array(ratio)):
        return (x, n.b.full(True, "bool", x.type.shape)) if n.outputs > 1 else x
    rate = reshape(n.b, cast(n.b, ratio, f32), ())
    spread = along(n.b, rate, x.type.shape, ())
    kept = n.b.ge(n.b.random_uniform(n.importer.key(), shape=x.type.shape, dtype=f32, low=0.0, high=1.0), spread)
    scale = cast(n.b, n.b.div(1.0, n.b.sub(n.b.full_like(spread, 1.0), spread)), x.type.dtype)
    y = n.b.select(kept, n.b.full_like(x, 0.0), n.b.mul(x, scale))
    return (y, kept) if n.outputs > 1 else y
