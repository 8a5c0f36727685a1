"""Random keys and bits, bit for bit those of jax.random (with partitionable threefry, its default).

A key value stands for uint32 words: 2 for threefry2x32, 4 for rbg and unsafe_rbg.
"""

from __future__ import annotations

from .. import dims
from ..dims import Dim
from ..dtypes import FLOAT, KEY, DType, dtype, u8, u16, u32, u64
from ..opdef import Attr, family
from ..types import TensorType, same_shape
from .shapes import not_negative, refuse

IMPLS = ("threefry2x32", "rbg", "unsafe_rbg")
ALGORITHMS = ("default", "philox", "three_fry")
WORDS = (u8, u16, u32, u64)


_op = family("random", "random")


IMPL = Attr("str", doc="the generator of the key", choices=IMPLS)
SHAPE = Attr("dims", doc="shape of the result, after that of the key")


def _key(label: str, t: TensorType) -> None:
    if t.dtype.kind != KEY:
        refuse(label, f"takes a key, not {t}; use rng_seed or rng_wrap")


def _sizes(label: str, shape: tuple[Dim, ...]) -> None:
    if not all(map(not_negative, shape)):
        refuse(label, f"shape {shape} must not be negative")


# -- keys ----------------------------------------------------------------------------------------


def _rng_seed(seed: TensorType, impl: str) -> TensorType:
    if not seed.dtype.is_integer:
        refuse("rng_seed_c1", f"the seed must be an integer, not {seed}")
    return TensorType(f"key<{impl}>", seed.shape)


rng_seed = _op(
    "rng_seed",
    "seed",
    _rng_seed,
    "The key of a seed (of each seed, for an array). threefry2x32: the high and the low 32 bits of the seed; a "
    "seed of at most 32 bits has high word 0 and its sign fills the low word. rbg and unsafe_rbg: that twice.",
    {"impl": IMPL},
)


def _rng_wrap(data: TensorType, impl: str) -> TensorType:
    kind = dtype(f"key<{impl}>")
    if data.dtype is not u32 or not data.shape or not dims.compatible(data.shape[-1], kind.key_words):
        refuse("rng_wrap_c1", f"{impl} takes u32[..., {kind.key_words}], not {data}")
    return TensorType(kind, data.shape[:-1])


rng_wrap = _op("rng_wrap", "data", _rng_wrap, "Words (the last axis) taken as keys.", {"impl": IMPL})


def _rng_unwrap(key: TensorType) -> TensorType:
    _key("rng_unwrap_c1", key)
    return TensorType(u32, (*key.shape, key.dtype.key_words))


rng_unwrap = _op("rng_unwrap", "key", _rng_unwrap, "The words of keys, as a new last axis.")


def _rng_split(key: TensorType, shape: tuple[Dim, ...]) -> TensorType:
    _key("rng_split_c1", key)
    _sizes("rng_split_c2", shape)
    return TensorType(key.dtype, (*key.shape, *shape))


rng_split = _op(
    "rng_split",
    "key",
    _rng_split,
    "New keys, `shape` of them from each key, as jax.random.split.",
    {"shape": SHAPE},
)


def _rng_fold_in(key: TensorType, data: TensorType) -> TensorType:
    _key("rng_fold_in_c1", key)
    if data.dtype is not u32 or (data.shape and not same_shape(data.shape, key.shape)):
        refuse("rng_fold_in_c2", f"data must be a u32 scalar, or one for each key: {data} and {key}")
    return key


rng_fold_in = _op("rng_fold_in", "key, data", _rng_fold_in, "A new key from a key and a number, as jax.random.fold_in.")

# -- bits ----------------------------------------------------------------------------------------


def _rng_bits(key: TensorType, shape: tuple[Dim, ...], dtype: DType) -> TensorType:
    _key("rng_bits_c1", key)
    _sizes("rng_bits_c2", shape)
    return TensorType(dtype, (*key.shape, *shape))


rng_bits = _op(
    "rng_bits",
    "key",
    _rng_bits,
    "Uniform random bits, `shape` of them for each key, as jax.random.bits. threefry2x32 with partitionable layout: "
    "element i is made from counter i alone, so a prefix of a longer draw is a shorter draw.",
    {"shape": SHAPE, "dtype": Attr("dtype", doc="u8, u16, u32 or u64", choices=WORDS)},
)


def _threefry2x32(k0: TensorType, k1: TensorType, x0: TensorType, x1: TensorType) -> tuple[TensorType, TensorType]:
    for t in (k0, k1, x0, x1):
        if t.dtype is not u32:
            refuse("threefry2x32_c1", f"takes u32, not {t}")
        if not same_shape(t.shape, k0.shape):
            refuse("threefry2x32_c2", f"operands must share a shape: {k0} and {t}; use broadcast_in_dim")
    return k0, k0


threefry2x32 = _op(
    "threefry2x32",
    "k0, k1, x0, x1",
    _threefry2x32,
    "The Threefry block cipher with 20 rounds, elementwise: key words k0, k1, counter words x0, x1, two words out "
    "(Salmon et al. 2011).",
)


def _rng_bit_generator(
    state: TensorType, shape: tuple[Dim, ...], dtype: DType, algorithm: str
) -> tuple[TensorType, TensorType]:
    if (state.dtype, state.shape) not in ((u32, (4,)), (u64, (2,))):
        refuse("rng_bit_generator_c1", f"state must be u32[4] or u64[2], not {state}")
    _sizes("rng_bit_generator_c2", shape)
    return state, TensorType(dtype, shape)


rng_bit_generator = _op(
    "rng_bit_generator",
    "state",
    _rng_bit_generator,
    "The next state and random bits, as XLA's RngBitGenerator. A state is a 64-bit key followed by a 64-bit "
    "counter, low words first. Whatever is `default` depends on the device; the NumPy, CPU and GPU one is philox.",
    {
        "shape": Attr("dims", doc="shape of the bits"),
        "dtype": Attr("dtype", doc="u8, u16, u32 or u64", choices=WORDS),
        "algorithm": Attr("str", doc="the generator", choices=ALGORITHMS),
    },
)


def _random_gamma(key: TensorType, alpha: TensorType, log_space: bool) -> TensorType:
    _key("random_gamma_c1", key)
    if alpha.dtype.kind != FLOAT:
        refuse("random_gamma_c2", f"alpha must be a float, not {alpha}")
    if len(alpha.shape) < len(key.shape) or not same_shape(alpha.shape[: len(key.shape)], key.shape):
        refuse("random_gamma_c3", f"the shape of alpha must begin with that of the key: {alpha} and {key}")
    return alpha


random_gamma = _op(
    "random_gamma",
    "key, alpha",
    _random_gamma,
    "Gamma(alpha, 1) samples (Marsaglia and Tsang 2000), one for each alpha; their logarithm with log_space, "
    "which keeps samples of small alpha from becoming 0.",
    {"log_space": Attr("bool", doc="give the logarithm of the sample")},
)
