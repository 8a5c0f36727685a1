"""Lowering rows of reductions, running totals and windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unigraph.dtypes import dtype
from unigraph.graph import Value
from unigraph.ops import reduce as ops

from .lower import JaxprBuilder, Row

_REDUCTIONS = ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"]
_CUMULATIVE = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]
_WINDOWS = ["reduce_window_sum", "reduce_window_max", "reduce_window_min"]


def _reduction(name: str) -> Row:
    return lambda b, eqn, x: b.op(name, x, axes=eqn.params["axes"])


def _arg(name: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
        axis = eqn.params["axes"][0]
        return b.op(name, x, axis=axis, index_dtype=b.type_of(eqn.outvars[0]).dtype)

    return row


def _cumulative(name: str) -> Row:
    return lambda b, eqn, x: b.op(name, x, axis=eqn.params["axis"], reverse=bool(eqn.params["reverse"]))


def _reduce(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    body = b.combiner(eqn.params["jaxpr"])
    return b.run(ops.reduce, values, [body], axes=eqn.params["dimensions"])


def _ends(padding: Any) -> dict[str, Any]:
    return {"low": [p[0] for p in padding], "high": [p[1] for p in padding]}


def _geometry(p: Mapping[str, Any], dilations: bool = True) -> dict[str, Any]:
    geometry = {"window": p["window_dimensions"], "strides": p["window_strides"], **_ends(p["padding"])}
    if dilations:
        geometry.update(base_dilation=p["base_dilation"], window_dilation=p["window_dilation"])
    return geometry


def _window(name: str) -> Row:
    return lambda b, eqn, x: b.op(name, x, **_geometry(eqn.params))


def _reduce_window(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    body = b.combiner(eqn.params["jaxpr"], consts=eqn.params.get("consts", ()))
    return b.run(ops.reduce_window, values, [body], **_geometry(eqn.params))


def _chosen(p: Mapping[str, Any]) -> str:
    return "ge" if p["select_prim"].name == "ge" else "le"


def _select_and_scatter_add(b: JaxprBuilder, eqn: Any, source: Value, x: Value) -> Value:
    p = eqn.params
    geometry = _geometry(p, dilations=False)
    if x.type.dtype.kind == "bool":  # `or` is whether the sum is not 0
        wide = [b.cast(v, dtype("i32")) for v in (source, x)]
        return b.cast(b.op("select_and_scatter_add", *wide, select=_chosen(p), **geometry), x.type.dtype)
    return b.op("select_and_scatter_add", source, x, select=_chosen(p), **geometry)


def _select_and_gather_add(b: JaxprBuilder, eqn: Any, tangents: Value, x: Value) -> Value:
    p = eqn.params
    return b.op("select_and_gather_add", tangents, x, select=_chosen(p), **_geometry(p))


def _select_and_scatter(b: JaxprBuilder, eqn: Any, x: Value, source: Value, init: Value) -> Value:
    p = eqn.params
    select = b.combiner(p["select_jaxpr"], consts=p.get("select_consts", ()))
    scatter = b.combiner(p["scatter_jaxpr"], consts=p.get("scatter_consts", ()))
    return b.run(ops.select_and_scatter, (source, x, init), [select, scatter], **_geometry(p, dilations=False))[0]


ROWS: Mapping[str, Row] = {
    **{name: _reduction(name) for name in _REDUCTIONS},
    **{name: _cumulative(name) for name in _CUMULATIVE},
    **{name: _window(name) for name in _WINDOWS},
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "select_and_scatter_add": _select_and_scatter_add,
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter": _select_and_scatter,
}
