"""Random operators: draws from the key input, one folded key for each operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from unigraph.dtypes import i32, i64
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import broadcast_to, cast, reshape

from .helpers import full, operand
from .rowbook import row, rows

aten = torch.ops.aten


def _work(dtype: Any) -> Any:
    if not dtype.is_float:
        raise Unsupported(f"random numbers of {dtype}", "draw floats and convert")
    return dtype


def uniform(b: Any, shape: Any, dtype: Any) -> Value:
    return b.random_uniform(b.draw(), shape=shape, dtype=_work(dtype))


def normal(b: Any, shape: Any, dtype: Any) -> Value:
    return b.random_normal(b.draw(), shape=shape, dtype=_work(dtype))


def _drawn(function: Callable[..., Value]) -> Callable[..., Value]:
    return lambda b, *args, **kwargs: function(b, b.shape, b.dtype)


def randint(b: Any, low: int, high: int) -> Value:
    dtype = b.dtype
    work = dtype if dtype in (i32, i64) else i64
    return cast(b, b.random_randint(b.draw(), shape=b.shape, dtype=work, low=low, high=high), dtype)


def _randint(b: Any, *args: Any, **kwargs: Any) -> Value:
    low, high = (0, args[0]) if len(args) == 2 else (args[0], args[1])
    return randint(b, low, high)


def _randint_like(b: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    low, high = (0, args[0]) if len(args) == 1 else (args[0], args[1])
    return randint(b, low, high)


def _bernoulli(b: Any, x: Value, p: Any = None) -> Value:
    chance = x if p is None else (p if isinstance(p, Value) else full(b, p, x.type.with_("f32")))
    chance = broadcast_to(b, chance, x.type.shape)
    draw = uniform(b, x.type.shape, chance.type.dtype)
    return cast(b, b.lt(draw, chance), x.type.dtype)


def _normal_scaled(b: Any, mean: Any, std: Any, *rest: Any, **kwargs: Any) -> Value:
    z = normal(b, b.shape, b.dtype)
    spread = broadcast_to(b, operand(b, std, b.dtype), b.shape)
    return b.add(b.mul(z, spread), broadcast_to(b, operand(b, mean, b.dtype), b.shape))


def _exponential(b: Any, x: Value, rate: float = 1.0, **kwargs: Any) -> Value:
    draws = b.random_exponential(b.draw(), shape=x.type.shape, dtype=_work(x.type.dtype))
    return draws if rate == 1 else b.div(draws, full(b, rate, draws.type))


def _between(b: Any, x: Value, low: float = 0.0, high: float = 1.0, **kwargs: Any) -> Value:
    return b.random_uniform(b.draw(), shape=x.type.shape, dtype=_work(x.type.dtype), low=float(low), high=float(high))


@row(aten.randperm)
def _randperm(b: Any, n: Any, **kwargs: Any) -> Value:
    shape = b.shape
    position = b.iota(dtype=i64, shape=shape, axis=0)
    bits = b.rng_bits(b.draw(), shape=shape, dtype="u32")
    return cast(b, b.sort(bits, position, axis=0, num_keys=1, stable=True)[1], b.dtype)


@row(aten.multinomial)
def _multinomial(b: Any, p: Value, count: int, replacement: bool = False, **kwargs: Any) -> Value:
    """Gumbel noise: the largest scores without replacement, one maximum for each draw with it."""
    logits = b.log(p)
    axis = p.type.rank - 1
    if not replacement:
        noise = b.random_gumbel(b.draw(), shape=p.type.shape, dtype=p.type.dtype)
        return cast(b, b.top_k(b.add(logits, noise), k=count, axis=axis)[1], i64)
    shape = (*p.type.shape[:-1], count, p.type.shape[-1])
    noise = b.random_gumbel(b.draw(), shape=shape, dtype=p.type.dtype)
    wide = broadcast_to(b, reshape(b, logits, (*p.type.shape[:-1], 1, p.type.shape[-1])), shape)
    return b.argmax(b.add(wide, noise), axis=axis + 1, index_dtype=i64)


rows(
    {
        aten.rand: _drawn(uniform),
        aten.rand_like: _drawn(uniform),
        aten.randn: _drawn(normal),
        aten.randn_like: _drawn(normal),
        aten.randint: _randint,
        aten.randint_like: _randint_like,
        aten.bernoulli: _bernoulli,
        aten.normal: _normal_scaled,
        aten.normal_functional: lambda b, x, mean=0.0, std=1.0, **k: _normal_scaled(b, mean, std),
        aten.uniform: _between,
        aten.exponential: _exponential,
        aten.cauchy: lambda b, x, median=0.0, sigma=1.0, **k: b.add(
            b.mul(b.tan(b.mul(b.sub(uniform(b, x.type.shape, x.type.dtype), 0.5), math.pi)), full(b, sigma, x.type)),
            full(b, median, x.type),
        ),
        aten.log_normal: lambda b, x, mean=1.0, std=2.0, **k: b.exp(_normal_scaled(b, mean, std)),
        aten._standard_gamma: lambda b, alpha, *a: (
            b.random_gamma(b.draw(), alpha, log_space=False)
            if not alpha.type.rank
            else b.random_gamma(b.rng_split(b.draw(), shape=alpha.type.shape), alpha, log_space=False)
        ),
    }
)
