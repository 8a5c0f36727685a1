"""The optimizer steps of ``ai.onnx.preview.training``: Adagrad, Adam and Momentum over any number of tensors."""

from __future__ import annotations

from collections.abc import Callable

from unigraph.dtypes import DType
from unigraph.graph import Value
from unigraph.ops.idioms import along, cast, reshape, where

from .node import Node, RowBook

rows = RowBook()
DOMAIN = "ai.onnx.preview.training"

Step = Callable[..., tuple[Value, ...]]


def _every(n: Node, states: int, step: Step) -> tuple[Value, ...]:
    """``step(rate, count, x, gradient, *states)`` for each tensor; results by kind, as the inputs."""
    rate, count = n.value(0), n.value(1)
    kinds = 2 + states
    tensors = [n.value(i) for i in range(2, len(n.inputs))]
    number = len(tensors) // kinds
    results = []
    for i in range(number):
        own = [tensors[k * number + i] for k in range(kinds)]
        results.append(step(_scalar(n, rate, own[0].type.dtype), _scalar(n, count, own[0].type.dtype), *own))
    return tuple(v for column in zip(*results) for v in column)


def _scalar(n: Node, x: Value, kind: DType) -> Value:
    return cast(n.b, reshape(n.b, x, ()), kind)


def _spread(n: Node, scalar: Value, like: Value) -> Value:
    return along(n.b, scalar, like.type.shape, ())


def _regularised(n: Node, x: Value, gradient: Value) -> Value:
    return n.b.add(n.b.mul(x, n.attr("norm_coefficient", 0.0)), gradient)


@rows("Adagrad", domain=DOMAIN)
def adagrad(n: Node) -> tuple[Value, ...]:
    def step(rate: Value, count: Value, x: Value, gradient: Value, h: Value) -> tuple[Value, ...]:
        decayed = n.b.div(rate, n.b.add(n.b.mul(count, n.attr("decay_factor", 0.0)), 1.0))
        g = _regularised(n, x, gradient)
        h = n.b.add(h, n.b.mul(g, g))
        bottom = n.b.add(n.b.sqrt(h), n.attr("epsilon", 0.0))
        return n.b.sub(x, n.b.div(n.b.mul(_spread(n, decayed, x), g), bottom)), h

    return _every(n, 1, step)


@rows("Adam", domain=DOMAIN)
def adam(n: Node) -> tuple[Value, ...]:
    alpha, beta = n.attr("alpha", 0.9), n.attr("beta", 0.999)

    def step(rate: Value, count: Value, x: Value, gradient: Value, v: Value, h: Value) -> tuple[Value, ...]:
        g = _regularised(n, x, gradient)
        v = n.b.add(n.b.mul(v, alpha), n.b.mul(g, 1 - alpha))
        h = n.b.add(n.b.mul(h, beta), n.b.mul(n.b.mul(g, g), 1 - beta))
        one = n.b.full_like(count, 1.0)
        gone = [n.b.sub(one, n.b.pow(n.b.full_like(count, c), count)) for c in (beta, alpha)]
        first = n.b.le(count, 0.0)
        corrected = n.b.mul(rate, n.b.div(n.b.sqrt(gone[0]), where(n.b, first, 1.0, gone[1])))
        adjusted = where(n.b, first, rate, corrected)
        moved = n.b.mul(_spread(n, adjusted, x), n.b.div(v, n.b.add(n.b.sqrt(h), n.attr("epsilon", 0.0))))
        return n.b.mul(n.b.sub(x, moved), 1 - n.attr("norm_coefficient_post", 0.0)), v, h

    return _every(n, 2, step)


@rows("Momentum", domain=DOMAIN)
def momentum(n: Node) -> tuple[Value, ...]:
    """The gradient counts fully in the first step; mode nesterov looks ahead."""
    alpha = n.attr("alpha")

    def step(rate: Value, count: Value, x: Value, gradient: Value, v: Value) -> tuple[Value, ...]:
        g = _regularised(n, x, gradient)
        beta = where(n.b, n.b.gt(count, 0.0), n.b.full_like(count, n.attr("beta")), 1.0)
        v = n.b.add(n.b.mul(v, alpha), n.b.mul(_spread(n, beta, g), g))
        direction = n.b.add(g, n.b.mul(v, alpha)) if n.attr("mode") == "nesterov" else v
        return n.b.sub(x, n.b.mul(_spread(n, rate, x), direction)), v

    return _every(n, 1, step)
