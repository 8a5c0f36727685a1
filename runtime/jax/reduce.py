"""Reductions, running totals and windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax

from unigraph.dtypes import DType
from unigraph.opdef import OpDef
from unigraph.ops import reduce as r

from .dtypes import to_jax


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Floats of 16 bits and less are summed in f32 and rounded once."""

    def row(x: Any, *args: Any, **attrs: Any) -> Any:
        if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4:
            return function(x.astype(jnp.float32), *args, **attrs).astype(x.dtype)
        return function(x, *args, **attrs)

    return row


def _bits(function: Callable[..., Any]) -> Callable[..., Any]:
    """XLA has no reduction of integers below a byte."""

    def row(x: Any, axes: Any) -> Any:
        small = jnp.iinfo(x.dtype).bits < 8 if x.dtype != jnp.bool_ else False
        return function(x.astype(jnp.int8), axes).astype(x.dtype) if small else function(x, axes)

    return row


def _arg(function: Callable[..., Any]) -> Callable[..., Any]:
    def row(x: Any, axis: int, index_dtype: DType) -> Any:
        return function(x, axis, to_jax(index_dtype))

    return row


def _reduce(*values: Any, axes: Any, body: Callable[..., Any]) -> tuple[Any, ...]:
    n = len(values) // 2
    operands, inits = values[:n], values[n:]
    return tuple(lax.reduce(operands, inits, lambda a, b: tuple(body(*a, *b)), axes))


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    def row(x: Any, axis: int, reverse: bool = False) -> Any:
        if x.dtype == jnp.bool_:
            return function(x.astype(jnp.uint8), axis, reverse) != 0
        return function(x, axis, reverse)

    return row


def _geometry(x: Any, window: Any, strides: Any, low: Any, high: Any, base: Any, dilation: Any) -> dict[str, Any]:
    ones = (1,) * x.ndim
    return {
        "window_dimensions": tuple(window),
        "window_strides": tuple(strides),
        "padding": tuple(zip(low, high, strict=True)),
        "base_dilation": tuple(base or ones),
        "window_dilation": tuple(dilation or ones),
    }


def _window(primitive: Any) -> Callable[..., Any]:
    def row(
        x: Any, window: Any, strides: Any, low: Any, high: Any, base_dilation: Any = None, window_dilation: Any = None
    ) -> Any:
        return primitive.bind(x, **_geometry(x, window, strides, low, high, base_dilation, window_dilation))

    return row


def _window_product(
    x: Any, window: Any, strides: Any, low: Any, high: Any, base_dilation: Any = None, window_dilation: Any = None
) -> Any:
    one = jnp.ones((), x.dtype)
    return lax.reduce_window(
        x, one, lax.mul, **_geometry(x, window, strides, low, high, base_dilation, window_dilation)
    )


def _reduce_window(
    *values: Any,
    window: Any,
    strides: Any,
    low: Any,
    high: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
    body: Callable[..., Any],
) -> tuple[Any, ...]:
    n = len(values) // 2
    operands, inits = values[:n], values[n:]
    geometry = _geometry(operands[0], window, strides, low, high, base_dilation, window_dilation)
    return tuple(lax.reduce_window(operands, inits, lambda a, b: tuple(body(*a, *b)), **geometry))


_SELECT = {"ge": lax.ge_p, "le": lax.le_p}


def _select_and_scatter_add(source: Any, x: Any, select: str, window: Any, strides: Any, low: Any, high: Any) -> Any:
    return lax.select_and_scatter_add_p.bind(
        source,
        x,
        select_prim=_SELECT[select],
        window_dimensions=tuple(window),
        window_strides=tuple(strides),
        padding=tuple(zip(low, high, strict=True)),
    )


def _select_and_gather_add(
    tangents: Any,
    x: Any,
    select: str,
    window: Any,
    strides: Any,
    low: Any,
    high: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
) -> Any:
    geometry = _geometry(x, window, strides, low, high, base_dilation, window_dilation)
    return lax.select_and_gather_add_p.bind(tangents, x, select_prim=_SELECT[select], **geometry)


def _select_and_scatter(
    source: Any,
    x: Any,
    init: Any,
    window: Any,
    strides: Any,
    low: Any,
    high: Any,
    select: Callable[..., Any],
    scatter: Callable[..., Any],
) -> Any:
    """Window by window, in order: ``select`` keeps one position of each, ``scatter`` adds its source there.

    Written with lax loops, because lax has the general form only as a primitive that wants jaxprs.
    """
    if not source.size:
        return jnp.full(x.shape, init)
    pads = tuple(zip(low, high, (0,) * x.ndim, strict=True))
    valid = lax.pad(jnp.ones(x.shape, bool), jnp.array(False), pads)
    padded = lax.pad(x, init, pads)
    counts = source.shape
    offsets = jnp.stack([g.ravel() for g in jnp.meshgrid(*map(jnp.arange, window), indexing="ij")], -1)
    total = jnp.full(padded.shape, init)

    def place(n: Any, total: Any) -> Any:
        position = jnp.stack(jnp.unravel_index(n, counts)) if counts else jnp.zeros((0,), int)
        cells = position * jnp.array(strides, position.dtype) + offsets

        def better(k: Any, best: Any) -> Any:
            at, found = best
            here = tuple(cells[k])
            take = valid[here] & (~found | ~select(padded[tuple(at)], padded[here])[0])
            return jnp.where(take, cells[k], at), found | valid[here]

        at, found = lax.fori_loop(0, len(offsets), better, (cells[0], jnp.array(False)))
        new = scatter(total[tuple(at)], source[tuple(position)])[0]
        return jnp.where(found, total.at[tuple(at)].set(new), total)

    total = lax.fori_loop(0, source.size, place, total)
    inverse = tuple((-lo, -hi, 0) for lo, hi in zip(low, high, strict=True))
    return lax.pad(total, init, inverse)


ROWS: Mapping[OpDef, Callable[..., Any]] = {
    r.reduce_sum: _wide(lax.reduce_sum),
    r.reduce_prod: _wide(lax.reduce_prod),
    r.reduce_max: lax.reduce_max,
    r.reduce_min: lax.reduce_min,
    r.reduce_and: _bits(lax.reduce_and),
    r.reduce_or: _bits(lax.reduce_or),
    r.reduce_xor: _bits(lax.reduce_xor),
    r.argmax: _arg(lax.argmax),
    r.argmin: _arg(lax.argmin),
    r.reduce: _reduce,
    r.cumsum: _wide(_cumulative(lax.cumsum)),
    r.cumprod: _wide(_cumulative(lax.cumprod)),
    r.cummax: _cumulative(lax.cummax),
    r.cummin: _cumulative(lax.cummin),
    r.cumlogsumexp: _wide(_cumulative(lax.cumlogsumexp)),
    r.reduce_window_sum: _wide(_window(lax.reduce_window_sum_p)),
    r.reduce_window_max: _window(lax.reduce_window_max_p),
    r.reduce_window_min: _window(lax.reduce_window_min_p),
    r.reduce_window_prod: _wide(_window_product),
    r.reduce_window: _reduce_window,
    r.select_and_scatter_add: _select_and_scatter_add,
    r.select_and_gather_add: _select_and_gather_add,
    r.select_and_scatter: _select_and_scatter,
}
