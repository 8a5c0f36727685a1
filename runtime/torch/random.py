"""Random keys and bits, bit for bit those of jax.random and XLA.

Words are computed as i32 (and 64-bit words as i64): sums wrap around alike, and torch has no u32
arithmetic. A row whose first operand is a key is told its generator as ``impl`` by the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from unigraph.dtypes import DType, dtype
from unigraph.errors import EngineError
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import random as r

from .compat import is_traced
from .dtypes import bits, from_torch, narrow, to_torch, unbits, widen
from .elementwise import logical_right

Tensor = torch.Tensor
Sizes = tuple[int, ...]
Loop = Callable[..., tuple[Tensor, ...]]  # (again, step, *carry) -> the carry for which ``again`` no longer holds

MASK = 0xFFFFFFFF
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# -- block ciphers -------------------------------------------------------------------------------


def _threefry(k0: Tensor, k1: Tensor, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) on the words behind i32, operands broadcast."""
    keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x0, x1 = x0 + k0, x1 + k1
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << turn) | ((x1 >> (32 - turn)) & ((1 << turn) - 1))
            x1 = x1 ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + (i + 1)
    return x0, x1


def threefry2x32(k0: Tensor, k1: Tensor, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    y0, y1 = _threefry(bits(k0), bits(k1), bits(x0), bits(x1))
    return y0.view(torch.uint32), y1.view(torch.uint32)


def _philox(key: tuple[Tensor, Tensor], counter: list[Tensor]) -> list[Tensor]:
    """Philox-4x32 with 10 rounds (Salmon et al. 2011); words are i64 below 2**32."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0 = logical_right(second, 32) ^ c1 ^ k0
        c2 = logical_right(first, 32) ^ c3 ^ k1
        c1, c3 = second & MASK, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [c0, c1, c2, c3]


# -- XLA's RngBitGenerator -----------------------------------------------------------------------


def rng_bit_generator(state: Tensor, shape: Sizes, dtype: DType, algorithm: str) -> tuple[Tensor, Tensor]:
    """State: 64-bit key, 64-bit counter. 8 and 16 bits are the low parts of what 32 bits would be."""
    words = state if state.dtype is torch.uint32 else state.view(torch.uint32)
    k0, k1, low, high = (widen(words)[i] for i in range(4))
    counter = low | (high << 32)
    make = _three_fry_bits if algorithm == "three_fry" else _philox_bits
    drawn, used = make(k0, k1, counter, tuple(shape), dtype.bits == 64)
    after = counter + used
    joined = torch.stack([k0, k1, after & MASK, logical_right(after, 32)]).to(torch.uint32)
    return (joined if state.dtype is torch.uint32 else joined.view(torch.uint64)), _cut(drawn, dtype)


def _cut(drawn: Tensor, kind: DType) -> Tensor:
    """The low bits of i64 words as an unsigned dtype of that width (or a signed one)."""
    return narrow(drawn, to_torch(kind))


def _philox_bits(k0: Tensor, k1: Tensor, counter: Tensor, shape: Sizes, double: bool) -> tuple[Tensor, Any]:
    """Bits, and by how much the counter moved: four words from each block, one after the other."""
    count = math.prod(shape)
    blocks = -(-count * (2 if double else 1) // 4)
    low = torch.arange(blocks, device=k0.device) + counter
    # The counter of a block has 128 bits: the high half starts from the key and takes the carry.
    least = -(1 << 63)
    high = (k0 | (k1 << 32)) + ((low ^ least) < (counter ^ least)).to(torch.int64)
    block = [low & MASK, logical_right(low, 32), high & MASK, logical_right(high, 32)]
    words = torch.stack(_philox((k0, k1), block), -1).reshape(-1)
    if double:
        pairs = words.reshape(-1, 2)
        words = pairs[:, 0] | (pairs[:, 1] << 32)
    return words[:count].reshape(shape), blocks


def _three_fry_bits(k0: Tensor, k1: Tensor, counter: Tensor, shape: Sizes, double: bool) -> tuple[Tensor, Any]:
    """Two words from each block: the halves of 64 bits, or neighbours along one axis.

    XLA halves the first even axis, or else the first of the longest ones, rounding up.
    """
    axis, half, shape_ = 0, shape, shape or (1,)
    if not double:
        even = [a for a, n in enumerate(shape_) if n % 2 == 0]
        axis = even[0] if even else shape_.index(max(shape_))
        half = (*shape_[:axis], -(-shape_[axis] // 2), *shape_[axis + 1 :])
    blocks = math.prod(half)
    place = torch.arange(blocks, device=k0.device) + counter
    x0, x1 = _threefry(
        k0.to(torch.int32), k1.to(torch.int32), place.to(torch.int32), logical_right(place, 32).to(torch.int32)
    )
    w0, w1 = x0.to(torch.int64) & MASK, x1.to(torch.int64) & MASK
    if double:
        return (w0 | (w1 << 32)).reshape(shape), blocks
    pairs = torch.stack([w0.reshape(half), w1.reshape(half)], axis + 1)
    return pairs.flatten(axis, axis + 1).narrow(axis, 0, shape_[axis]).reshape(shape), blocks


# -- keys ----------------------------------------------------------------------------------------


def rng_seed(seed: Tensor, impl: str) -> Tensor:
    """High and low word; a narrow seed fills the low word with its sign, the high one with 0."""
    wide = widen(seed).to(torch.int64)
    high = logical_right(wide, 32) if from_torch(seed.dtype).bits == 64 else torch.zeros_like(wide)
    half = torch.stack([high, wide & MASK], -1).to(torch.uint32)
    return half if impl == "threefry2x32" else _join(half, half)


def _join(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([bits(a), bits(b)], -1).view(torch.uint32)


def _spread(key: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The two words of threefry keys, with ``rank`` more axes of size 1."""
    words = bits(key)
    first, second = words[..., 0], words[..., 1]
    if rank and key.ndim > 1:
        shape = (*key.shape[:-1], *(1,) * rank)
        return first.reshape(shape), second.reshape(shape)
    return first, second


def _counters(shape: Sizes, device: torch.device) -> tuple[Tensor, Tensor]:
    """High and low words of 0, 1, 2, ... in an array of that shape."""
    count = math.prod(shape)
    place = torch.arange(count, device=device).reshape(shape)
    return logical_right(place, 32).to(torch.int32), place.to(torch.int32)


def _draw64(key: Tensor, shape: Sizes) -> tuple[Tensor, Tensor]:
    return _threefry(*_spread(key, len(shape)), *_counters(shape, key.device))


def _split(key: Tensor, shape: Sizes) -> Tensor:
    return torch.stack(_draw64(key, shape), -1).view(torch.uint32)


def _fold_in(key: Tensor, data: Tensor) -> Tensor:
    low = bits(data).expand(key.shape[:-1])
    return torch.stack(_threefry(*_spread(key, 0), torch.zeros_like(low), low), -1).view(torch.uint32)


def _draw(key: Tensor, shape: Sizes, kind: DType) -> Tensor:
    """Philox bits for each of an array of four-word keys."""
    if key.ndim == 1:
        return rng_bit_generator(key, shape, kind, "default")[1]
    flat = bits(key).reshape(-1, 4)
    drawn = [bits(rng_bit_generator(state.view(torch.uint32), shape, kind, "default")[1]) for state in flat]
    return unbits(torch.stack(drawn).reshape(*key.shape[:-1], *shape), to_torch(kind))


U32 = dtype("u32")


def rng_split(key: Tensor, shape: Sizes, impl: str) -> Tensor:
    """threefry: block i for key i. rbg: both halves alike. unsafe_rbg: every tenth row of its own bits."""
    shape = tuple(shape)
    if impl == "threefry2x32":
        return _split(key, shape)
    if impl == "rbg":
        return _join(_split(key[..., :2], shape), _split(key[..., 2:], shape))
    rows = bits(_draw(key, (10 * math.prod(shape), 4), U32))[..., ::10, :]
    return rows.reshape(*key.shape[:-1], *shape, 4).view(torch.uint32)


def rng_fold_in(key: Tensor, data: Tensor, impl: str) -> Tensor:
    """threefry: the block of the number. unsafe_rbg: xor with the tenth row of bits of the number's key."""
    if impl == "threefry2x32":
        return _fold_in(key, data)
    if impl == "rbg":
        return _join(_fold_in(key[..., :2], data), _fold_in(key[..., 2:], data))
    seeds = rng_seed(bits(data).expand(key.shape[:-1]).view(torch.uint32), impl)
    return (bits(key) ^ bits(_draw(seeds, (10, 4), U32))[..., -1, :]).view(torch.uint32)


def rng_bits(key: Tensor, shape: Sizes, dtype: DType, impl: str) -> Tensor:
    """threefry with partitionable counters; Philox for the others."""
    shape = tuple(shape)
    if impl != "threefry2x32":
        return _draw(key, shape, dtype)
    high, low = _draw64(key, shape)
    if dtype.bits == 64:
        return ((high.to(torch.int64) << 32) | (low.to(torch.int64) & MASK)).view(torch.uint64)
    mixed = high ^ low
    return mixed.view(torch.uint32) if dtype.bits == 32 else mixed.to(to_torch(dtype))


# -- gamma ---------------------------------------------------------------------------------------

# Bits of the mantissa, the integer of that width, bits that are drawn, the bits of 1.
_FLOATS = {
    torch.float64: (52, torch.int64, 64, 0x3FF0000000000000),
    torch.float32: (23, torch.int32, 32, 0x3F800000),
    torch.float16: (10, torch.int16, 16, 0x3C00),
    torch.bfloat16: (7, torch.int16, 8, 0x3F80),
}


def _uniform(key: Tensor, t: torch.dtype, impl: str) -> Tensor:
    """One number in [0, 1) for each key: random mantissa bits under the exponent of 1, minus 1."""
    mantissa, integer, drawn, one = _FLOATS[t]
    raw = rng_bits(key, (), dtype(f"u{drawn}"), impl)
    whole = bits(raw) if drawn == 64 else widen(raw).to(torch.int64)
    return (logical_right(whole, drawn - mantissa) | one).to(integer).view(t) - 1


def _normal(key: Tensor, t: torch.dtype, impl: str) -> Tensor:
    """sqrt(2) erf_inv of a uniform number in (-1, 1)."""
    low = -1 + torch.finfo(t).eps / 2
    u = _uniform(key, t, impl) * torch.full((), 1 - low, dtype=t, device=key.device) + low
    wide = u.clamp(min=low).to(torch.float64 if t is torch.float64 else torch.float32)
    return math.sqrt(2) * torch.erfinv(wide).to(t)


def random_gamma(key: Tensor, alpha: Tensor, log_space: bool, impl: str, loop: Loop | None = None) -> Tensor:
    """Marsaglia and Tsang (2000); all elements at once, each with the keys that jax.random would use.

    Elements that accepted stay as they are; alpha below 1 draws at alpha + 1 and is scaled down.
    The rejection loop asks for values: where torch traces, ``loop`` must be one that torch can carry.
    """
    if loop is None and is_traced(alpha):
        raise EngineError("random_gamma loops until all elements accept, which torch cannot trace; run it eagerly")
    rank = key.ndim - 1
    words, count, t = key.shape[-1], math.prod(alpha.shape[rank:]), alpha.dtype
    flat = alpha.reshape(-1)
    keys = rng_split(key.reshape(-1, words), (count,), impl).reshape(-1, words)
    large = flat >= 1
    d = torch.where(large, flat, flat + 1) - 1 / 3
    c = (1 / 3) / torch.sqrt(d)
    pair = rng_split(keys, (2,), impl)
    v = _accepted(pair[:, 0].clone(), d, c, impl, loop or _repeated)
    u = _uniform(pair[:, 1], t, impl)
    if log_space:
        log_u = torch.log1p(-u)
        boost = torch.where(large | (log_u == 0), 0, log_u / flat)
        result = torch.log(d) + torch.log(v) + boost
    else:
        result = d * v * torch.where(large, 1, torch.pow(1 - u, 1 / flat))
    return result.to(t).reshape(alpha.shape)


def _pick(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return unbits(torch.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), bits(new), bits(old)), new.dtype)


def _repeated(again: Callable[..., Any], step: Callable[..., Any], *carry: Tensor) -> tuple[Tensor, ...]:
    """A Python loop."""
    while bool(again(*carry)):
        carry = step(*carry)
    return carry


def _accepted(keys: Tensor, d: Tensor, c: Tensor, impl: str, loop: Loop) -> Tensor:
    """The cubes v = (1 + c x)^3 that the rejection method accepts.

    An attempt splits its key in three and draws normal numbers x from the second until 1 + c x is positive;
    one turn of the loop is one such draw for every element, of a new attempt where ``fresh``.
    """

    def again(*carry: Tensor) -> Tensor:
        return carry[4].any()

    def step(
        keys: Tensor, x_keys: Tensor, u_keys: Tensor, result: Tensor, waiting: Tensor, fresh: Tensor
    ) -> tuple[Tensor, ...]:
        triple = rng_split(keys, (3,), impl)
        keys, x_keys, u_keys = (_pick(fresh, triple[:, i], k) for i, k in enumerate((keys, x_keys, u_keys)))
        pair = rng_split(x_keys, (2,), impl)
        x = _normal(pair[:, 1], d.dtype, impl)
        v = 1 + x * c
        drawn = ~(v <= 0)
        x, v = x * x, v * v * v
        u = _uniform(u_keys, d.dtype, impl)
        rejected = (u >= 1 - 0.0331 * (x * x)) & (torch.log(u) >= x * 0.5 + d * ((1 - v) + torch.log(v)))
        result = torch.where(waiting & drawn, v, result)
        return keys, pair[:, 0], u_keys, result, waiting & (~drawn | rejected), drawn

    every = torch.ones_like(d, dtype=torch.bool)
    return loop(again, step, keys, keys.clone(), keys.clone(), torch.ones_like(d), every, every.clone())[3]


# Rows that are told the generator of their key.
KEYED = frozenset({r.rng_split, r.rng_fold_in, r.rng_bits, r.random_gamma})

ROWS: Mapping[OpDef, Row] = {
    r.rng_seed: rng_seed,
    r.rng_wrap: lambda data, impl: data,
    r.rng_unwrap: lambda key: key,
    r.rng_split: rng_split,
    r.rng_fold_in: rng_fold_in,
    r.rng_bits: rng_bits,
    r.threefry2x32: threefry2x32,
    r.rng_bit_generator: rng_bit_generator,
    r.random_gamma: random_gamma,
}
