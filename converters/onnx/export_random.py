"""Random keys and bits in the ONNX export: the Threefry cipher in u32 operators, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unigraph.dtypes import DType, u32, u64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import random as r

from .emitter import Emitter
from .export_contract import product
from .export_elementwise import number
from .handles import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # of the key schedule (Salmon et al. 2011)


def _rotate(o: Emitter, x: Array, by: int) -> Array:
    left = o.BitShift(x, number(o, by, u32), direction="LEFT")
    return o.BitwiseOr(left, o.BitShift(x, number(o, 32 - by, u32), direction="RIGHT"))


def threefry(o: Emitter, k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Twenty rounds; operands broadcast."""
    keys = (k0, k1, o.BitwiseXor(o.BitwiseXor(k0, k1), number(o, PARITY, u32)))
    x0, x1 = o.Add(x0, k0), o.Add(x1, k1)
    for block in range(5):
        for by in ROTATIONS[block % 2]:
            x0 = o.Add(x0, x1)
            x1 = o.BitwiseXor(_rotate(o, x1, by), x0)
        x0 = o.Add(x0, keys[(block + 1) % 3])
        x1 = o.Add(o.Add(x1, keys[(block + 2) % 3]), number(o, block + 1, u32))
    return x0, x1


def words(o: Emitter, key: Array) -> list[Array]:
    """The words of keys, each with the shape of the keys."""
    axis = key.rank - 1
    return [o.squeeze(o.slice(key, [i], [i + 1], [axis]), [axis]) for i in range(key.shape[axis])]


def _stack(o: Emitter, parts: Sequence[Array]) -> Array:
    return o.concat([o.unsqueeze(p, [p.rank]) for p in parts], parts[0].rank)


def _halves(o: Emitter, value: Array) -> tuple[Array, Array]:
    """The high and the low 32 bits of an integer; what is not there is 0."""
    if value.dtype.bits < 64:
        low = o.cast(value, u32)
        return o.expand(number(o, 0, u32), low.shape), low
    bits = o.cast(value, u64)
    return o.cast(o.BitShift(bits, number(o, 32, u64), direction="RIGHT"), u32), o.cast(bits, u32)


def _counters(o: Emitter, shape: Sequence[Any], rank: int) -> tuple[Array, Array]:
    """High and low words of 0, 1, 2, ... over ``shape``, behind ``rank`` axes of keys."""
    count = product(shape)
    index = o.reshape(o.iota(count), (*(1,) * rank, *shape))
    high, low = _halves(o, index)
    if type(count) is int and count <= 1 << 32:
        high = number(o, 0, u32)
    return high, low


def _threefry_only(key: Array, what: str) -> None:
    if key.shape[-1] != 2:
        raise Unsupported(f"{what} of an rbg key draws from the generator of XLA's device", "use a threefry2x32 key")


def _draw(o: Emitter, key: Array, shape: Sequence[Any]) -> tuple[Array, Array]:
    """Two words for each key and each place of ``shape``."""
    rank = key.rank - 1
    k0, k1 = (o.unsqueeze(w, list(range(rank, rank + len(shape)))) for w in words(o, key))
    y0, y1 = threefry(o, k0, k1, *_counters(o, shape, rank))
    full = (*key.shape[:-1], *shape)
    return o.typed(y0, _known(full)), o.typed(y1, _known(full))


def _known(shape: Sequence[Any]) -> list[Any]:
    return [n if type(n) is int else None for n in shape]


def _rng_seed(o: Emitter, seed: Array, impl: str) -> Array:
    pair = _halves(o, seed)
    return _stack(o, pair if impl == "threefry2x32" else pair + pair)


def _rng_split(o: Emitter, key: Array, shape: Sequence[Any]) -> Array:
    if key.shape[-1] == 2:
        return _stack(o, _draw(o, key, shape))
    if o.operation.inputs[0].type.dtype.name != "key<rbg>":
        _threefry_only(key, "a split")
    # An rbg key is two threefry keys, split alike.
    last = key.rank - 1
    parts = [_stack(o, _draw(o, o.slice(key, [i], [i + 2], [last]), shape)) for i in (0, 2)]
    return o.concat(parts, parts[0].rank - 1)


def _rng_fold_in(o: Emitter, key: Array, data: Array) -> Array:
    if key.shape[-1] != 2 and o.operation.inputs[0].type.dtype.name != "key<rbg>":
        _threefry_only(key, "fold_in")
    parts = words(o, key)
    folded: list[Array] = []
    for k0, k1 in zip(parts[::2], parts[1::2]):
        folded += threefry(o, k0, k1, number(o, 0, u32), data)
    return _stack(o, [o.typed(p, _known(key.shape[:-1])) for p in folded])


def _rng_bits(o: Emitter, key: Array, shape: Sequence[Any], dtype: DType) -> Array:
    _threefry_only(key, "bits")
    if any(type(n) is int and n == 0 for n in (*key.shape, *shape)):
        return o.full(0, dtype, (*key.shape[:-1], *shape))
    high, low = _draw(o, key, shape)
    if dtype is u64:
        raised = o.BitShift(o.cast(high, u64), number(o, 32, u64), direction="LEFT")
        return o.BitwiseOr(raised, o.cast(low, u64))
    return o.cast(o.BitwiseXor(high, low), dtype)


ROWS: dict[OpDef, Row] = {
    r.rng_seed: _rng_seed,
    r.rng_wrap: lambda o, data, impl: data,
    r.rng_unwrap: lambda o, key: key,
    r.rng_split: _rng_split,
    r.rng_fold_in: _rng_fold_in,
    r.rng_bits: _rng_bits,
    r.threefry2x32: threefry,
}
