"""XLA's stateful bit generators in the ONNX export, bit for bit: Philox in u64 operators, and Threefry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from unigraph.dtypes import DType, u32, u64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import random as r

from .emitter import Emitter
from .export_elementwise import number
from .export_random import threefry
from .handles import Array

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)  # Philox-4x32 (Salmon et al. 2011)
STEPS = (0x9E3779B9, 0xBB67AE85)  # of its keys


def _high(o: Emitter, x: Array) -> Array:
    return o.BitShift(x, number(o, 32, u64), direction="RIGHT")


def _low(o: Emitter, x: Array) -> Array:
    return o.BitwiseAnd(x, number(o, LOW, u64))


def _raised(o: Emitter, x: Array) -> Array:
    return o.BitShift(x, number(o, 32, u64), direction="LEFT")


def philox(o: Emitter, key: Sequence[Array], counter: Sequence[Array]) -> list[Array]:
    """Ten rounds of Philox-4x32 on u64 arrays that hold 32 bits."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        first, second = o.Mul(c0, number(o, MULTIPLIERS[0], u64)), o.Mul(c2, number(o, MULTIPLIERS[1], u64))
        c0, c1, c2, c3 = (
            o.BitwiseXor(o.BitwiseXor(_high(o, second), c1), k0),
            _low(o, second),
            o.BitwiseXor(o.BitwiseXor(_high(o, first), c3), k1),
            _low(o, first),
        )
        k0, k1 = (_low(o, o.Add(k, number(o, step, u64))) for k, step in zip((k0, k1), STEPS))
    return [c0, c1, c2, c3]


def _philox_bits(
    o: Emitter, key: Sequence[Array], counter: Array, shape: Sequence[int], double: bool
) -> tuple[Array, int]:
    """Bits, and by how much the counter moves: four words from each block, one after the other."""
    count = math.prod(shape)
    blocks = -(-count * (2 if double else 1) // 4)
    low = o.typed(o.Add(o.cast(o.iota(blocks), u64), counter), (blocks,))
    # The counter of a block has 128 bits: the high half starts from the key and takes the carry.
    carry = o.cast(o.Less(low, counter), u64)
    high = o.Add(o.BitwiseOr(key[0], _raised(o, key[1])), carry)
    parts = philox(o, key, [_low(o, low), _high(o, low), _low(o, high), _high(o, high)])
    stacked = o.concat([o.unsqueeze(o.typed(p, (blocks,)), [1]) for p in parts], 1)
    if double:
        pairs = o.reshape(stacked, (2 * blocks, 2))
        first, second = (o.squeeze(o.slice(pairs, [i], [i + 1], [1]), [1]) for i in (0, 1))
        flat = o.BitwiseOr(first, _raised(o, second))
    else:
        flat = o.reshape(stacked, (4 * blocks,))
    return o.reshape(o.slice(flat, [0], [count], [0]), shape), blocks


def _threefry_bits(
    o: Emitter, key: Sequence[Array], counter: Array, shape: Sequence[int], double: bool
) -> tuple[Array, int]:
    """Two words from each block: the halves of 64 bits, or neighbours along one axis.

    XLA halves the first even axis, or else the first of the longest ones, rounding up.
    """
    whole = list(shape) or [1]
    axis = next((a for a, n in enumerate(whole) if n % 2 == 0), whole.index(max(whole)))
    half = list(whole) if double else [*whole[:axis], -(-whole[axis] // 2), *whole[axis + 1 :]]
    blocks = math.prod(half)
    place = o.typed(o.Add(o.cast(o.iota(blocks), u64), counter), (blocks,))
    k0, k1 = (o.cast(k, u32) for k in key)
    drawn = threefry(o, k0, k1, o.cast(_low(o, place), u32), o.cast(_high(o, place), u32))
    x0, x1 = (o.cast(o.typed(x, (blocks,)), u64) for x in drawn)
    if double:
        return o.reshape(o.BitwiseOr(x0, _raised(o, x1)), shape), blocks
    pairs = o.concat([o.unsqueeze(o.reshape(x, half), [axis + 1]) for x in (x0, x1)], axis + 1)
    joined = o.reshape(pairs, [*half[:axis], 2 * half[axis], *half[axis + 1 :]])
    return o.reshape(o.slice(joined, [0], [whole[axis]], [axis]), shape), blocks


def _rng_bit_generator(
    o: Emitter, state: Array, shape: Sequence[Any], dtype: DType, algorithm: str
) -> tuple[Array, Array]:
    if not all(type(n) is int for n in shape):
        raise Unsupported("a stateful generator of a size that only the run tells", "give a static shape")
    parts = [o.squeeze(o.slice(state, [i], [i + 1], [0]), [0]) for i in range(state.shape[0])]
    if state.dtype is u64:
        parts = [half for p in parts for half in (_low(o, p), _high(o, p))]
    words = [o.cast(p, u64) for p in parts]
    counter = o.BitwiseOr(words[2], _raised(o, words[3]))
    generate = _threefry_bits if algorithm == "three_fry" else _philox_bits
    bits, used = generate(o, words[:2], counter, tuple(shape), dtype.bits == 64)
    after = o.Add(counter, number(o, used, u64))
    if state.dtype is u64:
        new = [o.BitwiseOr(words[0], _raised(o, words[1])), after]
    else:
        new = [o.cast(w, u32) for w in (words[0], words[1], _low(o, after), _high(o, after))]
    result = o.concat([o.reshape(w, (1,)) for w in new], 0)
    return result, (bits if dtype is u64 else o.cast(_low(o, bits), dtype))


ROWS: dict[OpDef, Row] = {r.rng_bit_generator: _rng_bit_generator}
