"""Lowering rows of primitives that move elements; key arrays move as their words.

A key array has no movement ops of its own: its words are unwrapped, moved with one more trailing
axis, and wrapped again. How a parameter set grows by that axis stands in `_WORD_PARAMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from unigraph import dims as sizes
from unigraph.graph import Value

from . import compat
from .lower import JaxprBuilder, Row


def _broadcast(b: JaxprBuilder, eqn: Any, x: Value, *_: Value) -> Value:
    p = eqn.params
    return b.op("broadcast_in_dim", x, shape=compat.dims(p["shape"]), broadcast_dimensions=p["broadcast_dimensions"])


def _broadcast_to(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.broadcast_to(x, b.type_of(eqn.outvars[0]).shape)


def _reshape(b: JaxprBuilder, eqn: Any, x: Value, *_: Value) -> Value:
    order = eqn.params.get("dimensions")
    if order is not None and tuple(order) != tuple(range(x.type.rank)):
        x = b.op("transpose", x, permutation=order)
    return b.op("reshape", x, shape=compat.dims(eqn.params["new_sizes"]))


def _squeeze(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    drop = {d % x.type.rank for d in eqn.params["dimensions"]}
    return b.op("reshape", x, shape=[d for i, d in enumerate(x.type.shape) if i not in drop])


def _transpose(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.op("transpose", x, permutation=eqn.params["permutation"])


def _rev(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.op("reverse", x, dimensions=eqn.params["dimensions"])


def _slice(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    p = eqn.params
    return b.op(
        "slice",
        x,
        start=compat.dims(p["start_indices"]),
        limit=compat.dims(p["limit_indices"]),
        strides=p["strides"],
    )


def _dynamic_slice(b: JaxprBuilder, eqn: Any, x: Value, *starts: Value) -> Value:
    return b.op("dynamic_slice", x, *starts, sizes=compat.dims(eqn.params["slice_sizes"]))


def _dynamic_update_slice(b: JaxprBuilder, eqn: Any, x: Value, update: Value, *starts: Value) -> Value:
    return b.op("dynamic_update_slice", x, update, *starts)


def _pad(b: JaxprBuilder, eqn: Any, x: Value, value: Value) -> Value:
    config = eqn.params["padding_config"]
    return b.op(
        "pad",
        x,
        value,
        low=compat.dims(c[0] for c in config),
        high=compat.dims(c[1] for c in config),
        interior=[c[2] for c in config],
    )


def _concatenate(b: JaxprBuilder, eqn: Any, *xs: Value) -> Value:
    return xs[0] if len(xs) == 1 else b.op("concatenate", *xs, axis=eqn.params["dimension"])


def _iota(b: JaxprBuilder, eqn: Any, *_: Value) -> Value:
    out = b.type_of(eqn.outvars[0])
    return b.op("iota", dtype=out.dtype, shape=out.shape, axis=eqn.params["dimension"])


def _empty(b: JaxprBuilder, eqn: Any) -> Value:
    return b.placeholder(b.type_of(eqn.outvars[0]))


def _insert_axis(b: JaxprBuilder, x: Value, axis: int) -> Value:
    shape = x.type.shape
    return b.op("reshape", x, shape=(*shape[:axis], 1, *shape[axis:]))


def _stack(b: JaxprBuilder, eqn: Any, *xs: Value) -> Value:
    axis = eqn.params["axis"] % (xs[0].type.rank + 1)
    parts = [_insert_axis(b, x, axis) for x in xs]
    return parts[0] if len(parts) == 1 else b.op("concatenate", *parts, axis=axis)


def _cut(b: JaxprBuilder, x: Value, axis: int, start: Any, limit: Any) -> Value:
    low: list[Any] = [0] * x.type.rank
    high = list(x.type.shape)
    low[axis], high[axis] = start, limit
    return b.op("slice", x, start=low, limit=high)


def _unstack(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    axis = eqn.params["axis"] % x.type.rank
    rest = [d for i, d in enumerate(x.type.shape) if i != axis]
    return tuple(b.op("reshape", _cut(b, x, axis, i, i + 1), shape=rest) for i in range(len(eqn.outvars)))


def _split(b: JaxprBuilder, eqn: Any, x: Value) -> tuple[Value, ...]:
    axis, start, parts = eqn.params["axis"], 0, []
    for size in compat.dims(eqn.params["sizes"]):
        parts.append(_cut(b, x, axis, start, start + size))
        start = start + size
    return tuple(parts)


def _tile(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    reps = compat.dims(eqn.params["reps"])
    shape = x.type.shape
    double = [d for pair in zip(reps, shape, strict=True) for d in pair]
    spread = b.op("broadcast_in_dim", x, shape=double, broadcast_dimensions=range(1, 2 * len(shape), 2))
    return b.op("reshape", spread, shape=[sizes.normal(r * d) for r, d in zip(reps, shape, strict=True)])


def unwrap(b: JaxprBuilder, x: Value) -> Value:
    return b.op("rng_unwrap", x) if x.type.dtype.is_key else x


def wrap(b: JaxprBuilder, words: Value, like: Any) -> Value:
    """Words as keys of the kind of ``like`` (a graph dtype)."""
    return b.op("rng_wrap", words, impl=like.name[4:-1])


Grow = Callable[[Any, Any, int], Mapping[str, Any]]


def _grow_gather(p: Any, eqn: Any, words: int) -> Mapping[str, Any]:
    numbers = p["dimension_numbers"]
    last = len(eqn.outvars[0].aval.shape)
    return {
        "dimension_numbers": numbers._replace(offset_dims=(*numbers.offset_dims, last)),
        "slice_sizes": (*p["slice_sizes"], words),
        "mode": "clip" if compat.gather_mode(p["mode"]) == "clip" else p["mode"],
    }


def _grow_scatter(p: Any, eqn: Any, words: int) -> Mapping[str, Any]:
    numbers = p["dimension_numbers"]
    last = len(eqn.invars[2].aval.shape)
    return {"dimension_numbers": numbers._replace(update_window_dims=(*numbers.update_window_dims, last))}


# How parameters grow when every key gains a trailing axis of words.
_WORD_PARAMS: Mapping[str, Grow] = {
    "broadcast_in_dim": lambda p, eqn, words: {
        "shape": (*p["shape"], words),
        "broadcast_dimensions": (*p["broadcast_dimensions"], len(p["shape"])),
    },
    "reshape": lambda p, eqn, words: {"new_sizes": (*p["new_sizes"], words), "dimensions": None},
    "squeeze": lambda p, eqn, words: {"dimensions": tuple(d % len(eqn.invars[0].aval.shape) for d in p["dimensions"])},
    "transpose": lambda p, eqn, words: {"permutation": (*p["permutation"], len(p["permutation"]))},
    "rev": lambda p, eqn, words: {},
    "slice": lambda p, eqn, words: {
        "start_indices": (*p["start_indices"], 0),
        "limit_indices": (*p["limit_indices"], words),
        "strides": None if p["strides"] is None else (*p["strides"], 1),
    },
    "dynamic_slice": lambda p, eqn, words: {"slice_sizes": (*p["slice_sizes"], words)},
    "dynamic_update_slice": lambda p, eqn, words: {},
    "concatenate": lambda p, eqn, words: {},
    "stack": lambda p, eqn, words: {"axis": p["axis"] % (len(eqn.outvars[0].aval.shape))},
    "unstack": lambda p, eqn, words: {"axis": p["axis"] % (len(eqn.invars[0].aval.shape))},
    "split": lambda p, eqn, words: {},
    "tile": lambda p, eqn, words: {"reps": (*p["reps"], 1)},
    "gather": _grow_gather,
    "scatter": _grow_scatter,
    "select_n": lambda p, eqn, words: {},
}


def with_keys(name: str, row: Row) -> Row:
    """``row``, able to move key arrays too."""
    grow = _WORD_PARAMS[name]

    def keyed(b: JaxprBuilder, eqn: Any, *values: Value) -> Any:
        kinds = [v.type.dtype for v in values if v.type.dtype.is_key]
        if not kinds:
            return row(b, eqn, *values)
        kind = kinds[0]
        words = kind.key_words
        moved = [unwrap(b, v) for v in values]
        if name in ("dynamic_slice", "dynamic_update_slice"):
            starts = moved[1 if name == "dynamic_slice" else 2 :]
            moved.append(b.constant(0, starts[0].type.dtype if starts else "i32"))
        if name == "select_n" and moved[0].type.rank:
            which = moved[0]
            shape = (*which.type.shape, words)
            moved[0] = b.op("broadcast_in_dim", which, shape=shape, broadcast_dimensions=range(which.type.rank))
        grown = SimpleNamespace(
            params={**eqn.params, **grow(eqn.params, eqn, words)},
            outvars=eqn.outvars,
            invars=eqn.invars,
            primitive=eqn.primitive,
        )
        out = row(b, grown, *moved)
        return wrap(b, out, kind) if isinstance(out, Value) else tuple(wrap(b, o, kind) for o in out)

    return keyed


_MOVES: Mapping[str, Row] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "rev": _rev,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "concatenate": _concatenate,
    "stack": _stack,
    "unstack": _unstack,
    "split": _split,
    "tile": _tile,
}

ROWS: Mapping[str, Row] = {
    **{name: with_keys(name, row) for name, row in _MOVES.items()},
    "broadcast_to": _broadcast_to,
    "pad": _pad,
    "iota": _iota,
    "empty": _empty,
    "empty2": _empty,
}
