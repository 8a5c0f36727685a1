"""Lowering rows of random keys and bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unigraph.dtypes import dtype
from unigraph.errors import Unsupported
from unigraph.graph import Value

from . import compat
from .lower import JaxprBuilder, Row
from .rows_movement import unwrap, wrap


def _impl(key: Value) -> str:
    return key.type.dtype.name[4:-1]


def _seed(b: JaxprBuilder, eqn: Any, seed: Value) -> Value:
    kind = b.type_of(eqn.outvars[0]).dtype
    impl = kind.name[4:-1]
    if seed.type.rank == 0:
        return b.op("rng_seed", seed, impl=impl)
    # Many seeds at once: the words of threefry_seed (high, low), twice for the four-word kinds.
    words = _seed_words(b, seed)
    axis = seed.type.rank
    parts = [b.op("reshape", w, shape=(*seed.type.shape, 1)) for w in words * (kind.key_words // 2)]
    return wrap(b, b.op("concatenate", *parts, axis=axis), kind)


def _seed_words(b: JaxprBuilder, seed: Value) -> list[Value]:
    u32 = dtype("u32")
    if seed.type.dtype.bits == 64:
        shifted = b.op("shift_right_logical", seed, b.full_like(seed, 32))
        return [b.cast(shifted, u32), b.cast(seed, u32)]
    return [b.full(0, u32, seed.type.shape), b.cast(seed, u32)]


def _wrap(b: JaxprBuilder, eqn: Any, data: Value) -> Value:
    return wrap(b, data, b.type_of(eqn.outvars[0]).dtype)


def _unwrap(b: JaxprBuilder, eqn: Any, key: Value) -> Value:
    return unwrap(b, key)


def _split(b: JaxprBuilder, eqn: Any, key: Value) -> Value:
    return b.op("rng_split", key, shape=compat.dims(eqn.params["shape"]))


def _fold_in(b: JaxprBuilder, eqn: Any, key: Value, data: Value) -> Value:
    data = b.cast(data, dtype("u32"))
    if key.type.rank == 0 and data.type.rank == 0:
        return b.op("rng_fold_in", key, data)
    if _impl(key) != "threefry2x32":
        raise Unsupported(f"fold_in over a batch of {_impl(key)} keys", "use threefry keys, or fold in a scan")
    # threefry's fold_in is one block: the key enciphers (0, data).
    shape = b.type_of(eqn.outvars[0]).shape
    words = unwrap(b, key)
    halves = [b.spread(shape, [_word(b, words, i)])[0] for i in (0, 1)]
    block = b.op("threefry2x32", *halves, b.full(0, "u32", shape), *b.spread(shape, [data]))
    parts = [b.op("reshape", w, shape=(*shape, 1)) for w in block]
    return wrap(b, b.op("concatenate", *parts, axis=len(shape)), key.type.dtype)


def _word(b: JaxprBuilder, words: Value, index: int) -> Value:
    shape = words.type.shape
    low = [0] * (len(shape) - 1)
    cut = b.op("slice", words, start=[*low, index], limit=[*shape[:-1], index + 1])
    return b.op("reshape", cut, shape=shape[:-1])


def _bits(b: JaxprBuilder, eqn: Any, key: Value) -> Value:
    p = eqn.params
    return b.op("rng_bits", key, shape=compat.dims(p["shape"]), dtype=b.type_of(eqn.outvars[0]).dtype)


def _gamma(b: JaxprBuilder, eqn: Any, key: Value, alpha: Value) -> Value:
    return b.op("random_gamma", key, alpha, log_space=bool(eqn.params["log_space"]))


def _threefry(b: JaxprBuilder, eqn: Any, *words: Value) -> Any:
    return b.op("threefry2x32", *b.spread(b.type_of(eqn.outvars[0]).shape, words))


def _generator(b: JaxprBuilder, eqn: Any, state: Value) -> Any:
    p = eqn.params
    algorithm = getattr(p["algorithm"], "name", str(p["algorithm"])).lower().removeprefix("rng_")
    out = b.type_of(eqn.outvars[1])
    return b.op("rng_bit_generator", state, shape=out.shape, dtype=out.dtype, algorithm=algorithm)


def _iota_2x32(b: JaxprBuilder, eqn: Any) -> tuple[Value, Value]:
    """The position of each element as two words, high and low."""
    shape = b.type_of(eqn.outvars[0]).shape
    if all(type(d) is int for d in shape) and math.prod(shape) <= 1 << 32:
        flat = b.op("iota", dtype="u32", shape=(math.prod(shape),), axis=0)
        return b.full(0, "u32", shape), b.op("reshape", flat, shape=shape)
    total = None
    for axis in range(len(shape)):
        stride = b.size(math.prod(shape[axis + 1 :]), "u64")
        step = b.op("mul", b.op("iota", dtype="u64", shape=shape, axis=axis), b.broadcast_to(stride, shape))
        total = step if total is None else b.op("add", total, step)
    assert total is not None
    high = b.op("shift_right_logical", total, b.full_like(total, 32))
    u32 = dtype("u32")
    return b.cast(high, u32), b.cast(total, u32)


ROWS: Mapping[str, Row] = {
    "random_seed": _seed,
    "random_wrap": _wrap,
    "random_unwrap": _unwrap,
    "to_edtype": _wrap,
    "from_edtype": _unwrap,
    "random_split": _split,
    "random_fold_in": _fold_in,
    "random_bits": _bits,
    "random_gamma": _gamma,
    "threefry2x32": _threefry,
    "rng_bit_generator": _generator,
    "iota_2x32_shape": _iota_2x32,
}
