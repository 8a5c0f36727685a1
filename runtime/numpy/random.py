"""Random keys and bits on NumPy, bit for bit those of jax.random and XLA.

A row whose first operand is a key gets its generator as ``impl`` from the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from unigraph.dtypes import DType, dtype
from unigraph.evaluate import Row
from unigraph.opdef import OpDef
from unigraph.ops import random as r

from .special import erf_inv

Array = np.ndarray
Ints = tuple[int, ...]

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)

# -- block ciphers -------------------------------------------------------------------------------

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011), elementwise on uint32, operands broadcast."""
    with np.errstate(over="ignore"):
        keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
        x0, x1 = np.asarray(x0 + k0), np.asarray(x1 + k1)
        for i in range(5):
            for turn in ROTATIONS[i % 2]:
                x0 = x0 + x1
                x1 = (x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))
                x1 = x1 ^ x0
            x0 = x0 + keys[(i + 1) % 3]
            x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return np.asarray(x0), np.asarray(x1)


def philox4x32(key: Sequence[int], counter: Sequence[Array]) -> list[Array]:
    """Philox-4x32 with 10 rounds (Salmon et al. 2011); words are uint64 arrays below 2^32."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0 = (second >> SHIFT) ^ c1 ^ np.uint64(k0)
        c2 = (first >> SHIFT) ^ c3 ^ np.uint64(k1)
        c1, c3 = second & LOW, first & LOW
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


# -- XLA's RngBitGenerator -----------------------------------------------------------------------


def rng_bit_generator(state: Array, shape: Ints, dtype: DType, algorithm: str) -> tuple[Array, Array]:
    """State: 64-bit key, 64-bit counter. 8 and 16 bits are the low parts of what 32 bits would be."""
    words = [int(v) for v in (state if state.dtype == np.uint32 else state.view(np.uint32))]
    generate = _three_fry if algorithm == "three_fry" else _philox
    counter = words[2] | words[3] << 32
    bits, used = generate(words[:2], counter, tuple(shape), dtype.bits == 64)
    counter = (counter + used) & 0xFFFFFFFFFFFFFFFF
    after = np.array([*words[:2], counter & 0xFFFFFFFF, counter >> 32], np.uint32)
    return (after if state.dtype == np.uint32 else after.view(np.uint64)), bits.astype(dtype.numpy)


def _philox(key: list[int], counter: int, shape: Ints, double: bool) -> tuple[Array, int]:
    """Bits, and by how much the counter moved: four words from each block, one after the other."""
    count = math.prod(shape)
    blocks = -(-count * (2 if double else 1) // 4)
    low = np.arange(blocks, dtype=np.uint64) + np.uint64(counter)
    # The counter of a block has 128 bits: the high half starts from the key and takes the carry.
    high = np.uint64(key[0] | key[1] << 32) + (low < np.uint64(counter)).astype(np.uint64)
    words = np.stack(philox4x32(key, (low & LOW, low >> SHIFT, high & LOW, high >> SHIFT)), axis=-1).reshape(-1)
    if double:
        pairs = words.reshape(-1, 2)
        words = pairs[:, 0] | pairs[:, 1] << SHIFT
    return words[:count].reshape(shape), blocks


def _three_fry(key: list[int], counter: int, shape: Ints, double: bool) -> tuple[Array, int]:
    """Two words from each block: the halves of 64 bits, or neighbours along one axis.

    XLA halves the first even axis, or else the first of the longest ones, rounding up.
    """
    axis, half = 0, shape
    if not double:
        shape_ = shape or (1,)
        even = [a for a, n in enumerate(shape_) if n % 2 == 0]
        axis = even[0] if even else shape_.index(max(shape_))
        half = (*shape_[:axis], -(-shape_[axis] // 2), *shape_[axis + 1 :])
    blocks = math.prod(half)
    place = np.arange(blocks, dtype=np.uint64) + np.uint64(counter)
    k0, k1 = np.array(key, np.uint32).reshape(2, 1)
    x0, x1 = threefry2x32(k0, k1, (place & LOW).astype(np.uint32), (place >> SHIFT).astype(np.uint32))
    if double:
        return (x0.astype(np.uint64) | x1.astype(np.uint64) << SHIFT).reshape(shape), blocks
    pairs = np.stack([x0.reshape(half), x1.reshape(half)], axis=axis + 1)
    joined = pairs.reshape((*half[:axis], 2 * half[axis], *half[axis + 1 :]))
    kept = joined[(slice(None),) * axis + (slice(0, (shape or (1,))[axis]),)]
    return kept.reshape(shape), blocks


# -- keys ----------------------------------------------------------------------------------------


def rng_seed(seed: Array, impl: str) -> Array:
    """High and low word; a narrow seed fills the low word with its sign, the high one with 0."""
    bits = np.asarray(seed)
    wide = bits.astype(np.int64) if dtype(bits.dtype).kind == "int" else bits.astype(np.uint64)
    unsigned = wide.astype(np.uint64)
    high = unsigned >> SHIFT if dtype(bits.dtype).bits == 64 else np.zeros_like(unsigned)
    half = np.stack([high, unsigned & LOW], axis=-1).astype(np.uint32)
    return half if impl == "threefry2x32" else np.concatenate([half, half], axis=-1)


def _spread(key: Array, rank: int) -> tuple[Array, Array]:
    """The two words of threefry keys, with ``rank`` more axes of size 1."""
    words = key.reshape((*key.shape[:-1], *(1,) * rank, key.shape[-1]))
    return words[..., 0], words[..., 1]


def _counters(shape: Ints) -> tuple[Array, Array]:
    """High and low words of 0, 1, 2, ... in an array of that shape."""
    place = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return (place >> SHIFT).astype(np.uint32), (place & LOW).astype(np.uint32)


def _threefry_split(key: Array, shape: Ints) -> Array:
    return np.stack(threefry2x32(*_spread(key, len(shape)), *_counters(shape)), axis=-1)


def _threefry_fold_in(key: Array, data: Array) -> Array:
    low = np.broadcast_to(data, key.shape[:-1]).astype(np.uint32)
    return np.stack(threefry2x32(key[..., 0], key[..., 1], np.zeros_like(low), low), axis=-1)


def _halves(key: Array) -> tuple[Array, Array]:
    """The two threefry keys that make up an rbg key."""
    return key[..., :2], key[..., 2:]


def _draw(key: Array, shape: Ints, kind: DType) -> Array:
    """Philox bits for each of an array of four-word keys."""
    flat = key.reshape(-1, 4)
    result = np.empty((len(flat), *shape), kind.numpy)
    for i, state in enumerate(flat):
        result[i] = rng_bit_generator(state, shape, kind, "default")[1]
    return result.reshape((*key.shape[:-1], *shape))


U32 = dtype("u32")


def rng_split(key: Array, shape: Ints, impl: str) -> Array:
    """threefry: block i for key i. rbg: both halves alike. unsafe_rbg: every tenth row of its own bits."""
    shape = tuple(shape)
    if impl == "threefry2x32":
        return _threefry_split(key, shape)
    if impl == "rbg":
        return np.concatenate([_threefry_split(h, shape) for h in _halves(key)], axis=-1)
    rows = _draw(key, (10 * math.prod(shape), 4), U32)[..., ::10, :]
    return rows.reshape((*key.shape[:-1], *shape, 4))


def rng_fold_in(key: Array, data: Array, impl: str) -> Array:
    """threefry: the block of the number. unsafe_rbg: xor with the tenth row of bits of the number's key."""
    if impl == "threefry2x32":
        return _threefry_fold_in(key, data)
    if impl == "rbg":
        return np.concatenate([_threefry_fold_in(h, data) for h in _halves(key)], axis=-1)
    return key ^ _draw(rng_seed(np.broadcast_to(data, key.shape[:-1]), impl), (10, 4), U32)[..., -1, :]


def rng_bits(key: Array, shape: Ints, dtype: DType, impl: str) -> Array:
    """threefry with partitionable counters; Philox for the others."""
    shape = tuple(shape)
    if impl != "threefry2x32":
        return _draw(key, shape, dtype)
    high, low = threefry2x32(*_spread(key, len(shape)), *_counters(shape))
    if dtype.bits == 64:
        return high.astype(np.uint64) << SHIFT | low.astype(np.uint64)
    return (high ^ low).astype(dtype.numpy)


# -- gamma ---------------------------------------------------------------------------------------


def _uniform(key: Array, kind: DType, impl: str) -> Array:
    """One number in [0, 1) for each key: random mantissa bits under the exponent of 1, minus 1."""
    mantissa = {"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[kind.name]
    drawn = max(kind.bits, 8) if mantissa >= 8 else 8
    bits = rng_bits(key, (), dtype(f"u{drawn}"), impl).astype(dtype(f"u{kind.bits}").numpy)
    one = np.ones((), kind.numpy).view(bits.dtype)
    raw = (bits >> bits.dtype.type(drawn - mantissa)) | one
    return raw.view(kind.numpy) - np.ones((), kind.numpy)


def _normal(key: Array, kind: DType, impl: str) -> Array:
    """sqrt(2) erf_inv of a uniform number in (-1, 1)."""
    low = np.nextafter(np.asarray(-1, kind.numpy), np.asarray(0, kind.numpy))
    u = _uniform(key, kind, impl) * (np.asarray(1, kind.numpy) - low) + low
    return np.asarray(math.sqrt(2), kind.numpy) * erf_inv(np.maximum(low, u))


def random_gamma(key: Array, alpha: Array, log_space: bool, impl: str) -> Array:
    """Marsaglia and Tsang (2000); all elements at once, each with the keys that jax.random would use.

    Elements that accepted drop out of the loop; alpha below 1 draws at alpha + 1 and is scaled down.
    """
    rank = key.ndim - 1
    count = math.prod(alpha.shape[rank:])
    keys = rng_split(key.reshape(-1, key.shape[-1]), (count,), impl).reshape(-1, key.shape[-1])
    kind = dtype(alpha.dtype)
    flat = alpha.reshape(-1)
    one = flat.dtype.type(1)
    with np.errstate(all="ignore"):
        large = flat >= one
        d = np.where(large, flat, flat + one) - flat.dtype.type(1 / 3)
        c = flat.dtype.type(1 / 3) / np.sqrt(d)
        pair = rng_split(keys, (2,), impl)
        keys, boost_keys = pair[:, 0], pair[:, 1]
        v = _accepted(keys, d, c, kind, impl)
        u = _uniform(boost_keys, kind, impl)
        if log_space:
            log_u = np.log1p(-u)
            boost = np.where(large | (log_u == 0), flat.dtype.type(0), log_u * (one / flat))
            result = np.log(d) + np.log(v) + boost
        else:
            result = d * v * np.where(large, one, np.power(one - u, one / flat))
    return result.astype(alpha.dtype).reshape(alpha.shape)


def _accepted(keys: Array, d: Array, c: Array, kind: DType, impl: str) -> Array:
    """The cubes v = (1 + c x)^3 that the rejection method accepts."""
    result = np.ones_like(d)
    waiting = np.arange(len(d))
    squeeze, half = d.dtype.type(0.0331), d.dtype.type(0.5)
    one = d.dtype.type(1)
    while len(waiting):
        triple = rng_split(keys, (3,), impl)
        keys, x_keys, u_keys = triple[:, 0], triple[:, 1], triple[:, 2]
        x, v = _positive(x_keys, c[waiting], kind, impl)
        x, v = x * x, v * v * v
        u = _uniform(u_keys, kind, impl)
        rejected = (u >= one - squeeze * (x * x)) & (np.log(u) >= x * half + d[waiting] * ((one - v) + np.log(v)))
        result[waiting] = v
        waiting, keys = waiting[rejected], keys[rejected]
    return result


def _positive(keys: Array, c: Array, kind: DType, impl: str) -> tuple[Array, Array]:
    """Normal numbers x, drawn again until 1 + c x is positive, and that."""
    x, v = np.zeros_like(c), np.full_like(c, -1)
    waiting = np.arange(len(c))
    while len(waiting):
        pair = rng_split(keys, (2,), impl)
        keys = pair[:, 0]
        x[waiting] = _normal(pair[:, 1], kind, impl)
        v[waiting] = c.dtype.type(1) + x[waiting] * c[waiting]
        again = v[waiting] <= 0
        waiting, keys = waiting[again], keys[again]
    return x, v


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
