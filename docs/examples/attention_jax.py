"""attention_block, written by unigraph for JAX; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from attention_jax.safetensors.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

WEIGHTS = Path(__file__).with_name("attention_jax.safetensors")
DTYPES = {"F32": np.float32}


def load_weights(path=WEIGHTS):
    """The arrays of a safetensors file by name."""
    data = np.asarray(np.memmap(path, np.uint8, "c"))
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    weights = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        array = data[start + begin : start + end].view(DTYPES[item["dtype"]]).reshape(item["shape"])
        weights[name] = jnp.asarray(array)
    return weights


def main(weights, x):
    """x: f32[batch,seq,8]

    Gives f32[batch,seq,8].
    """
    x = jnp.asarray(x)
    batch = x.shape[0]
    seq = x.shape[1]

    # norm
    layer_norm_out = layer_norm(x, weights["norm.weight"], weights["norm.bias"])

    # attention
    h = linear(layer_norm_out, weights["query.weight"])
    reshape_out = reshape(h, shape=(batch, seq, 2, 4))
    transpose_out = lax.transpose(reshape_out, permutation=(0, 2, 1, 3))
    h_2 = linear(layer_norm_out, weights["key.weight"])
    reshape_out_2 = reshape(h_2, shape=(batch, seq, 2, 4))
    transpose_out_2 = lax.transpose(reshape_out_2, permutation=(0, 2, 1, 3))
    h_3 = linear(layer_norm_out, weights["value.weight"])
    reshape_out_3 = reshape(h_3, shape=(batch, seq, 2, 4))
    transpose_out_3 = lax.transpose(reshape_out_3, permutation=(0, 2, 1, 3))
    attention_out = attention(transpose_out, transpose_out_2, transpose_out_3)
    transpose_out_4 = lax.transpose(attention_out, permutation=(0, 2, 1, 3))
    reshape_out_4 = reshape(transpose_out_4, shape=(batch, seq, 8))

    # out
    h_4 = linear_2(reshape_out_4, weights["out.weight"], weights["out.bias"])

    add_out = add(x, h_4)
    return add_out


def layer_norm(x, weight, bias):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the trailing axes. Here normalized_rank=1, epsilon=1e-05."""
    batch = x.shape[0]
    seq = x.shape[1]
    reduce_sum_out = reduce_sum(x, axes=(2,))
    spread = lax.broadcast_in_dim(jnp.array(8.0, jnp.float32), shape=(batch, seq), broadcast_dimensions=())
    div_out = lax.div(reduce_sum_out, spread)
    spread_2 = lax.broadcast_in_dim(div_out, shape=(batch, seq, 8), broadcast_dimensions=(0, 1))
    sub_out = lax.sub(x, spread_2)
    mul_out = mul(sub_out, sub_out)
    reduce_sum_out_2 = reduce_sum(mul_out, axes=(2,))
    spread_3 = lax.broadcast_in_dim(jnp.array(8.0, jnp.float32), shape=(batch, seq), broadcast_dimensions=())
    div_out_2 = lax.div(reduce_sum_out_2, spread_3)
    spread_4 = lax.broadcast_in_dim(jnp.array(1e-05, jnp.float32), shape=(batch, seq), broadcast_dimensions=())
    add_out = add(div_out_2, spread_4)
    rsqrt_out = lax.rsqrt(add_out)
    spread_5 = lax.broadcast_in_dim(rsqrt_out, shape=(batch, seq, 8), broadcast_dimensions=(0, 1))
    mul_out_2 = mul(sub_out, spread_5)
    spread_6 = lax.broadcast_in_dim(weight, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    mul_out_3 = mul(mul_out_2, spread_6)
    spread_7 = lax.broadcast_in_dim(bias, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    add_out_2 = add(mul_out_3, spread_7)
    return add_out_2


def linear(x, weight):
    """x weight^T + bias over the last axis of x."""
    product = dot_general(x, weight, lhs_contracting=(2,), rhs_contracting=(1,))
    return product


def attention(q, k, v):
    """softmax(q k^T * scale) v. Here is_causal=True."""
    batch = q.shape[0]
    seq = q.shape[2]
    product = dot_general(q, k, lhs_contracting=(3,), rhs_contracting=(3,), lhs_batch=(0, 1), rhs_batch=(0, 1))
    spread = lax.broadcast_in_dim(jnp.array(0.5, jnp.float32), shape=(batch, 2, seq, seq), broadcast_dimensions=())
    mul_out = mul(product, spread)
    iota_out = iota(dtype=i32, shape=(seq, seq), axis=0)
    iota_out_2 = iota(dtype=i32, shape=(seq, seq), axis=1)
    ge_out = ge(iota_out, iota_out_2)
    spread_2 = lax.broadcast_in_dim(ge_out, shape=(batch, 2, seq, seq), broadcast_dimensions=(2, 3))
    spread_3 = lax.broadcast_in_dim(
        jnp.array(float("-inf"), jnp.float32), shape=(batch, 2, seq, seq), broadcast_dimensions=()
    )
    select_out = select(spread_2, spread_3, mul_out)
    reduce_max_out = lax.reduce_max(select_out, axes=(3,))
    spread_4 = lax.broadcast_in_dim(
        jnp.array(float("-inf"), jnp.float32), shape=(batch, 2, seq), broadcast_dimensions=()
    )
    eq_out = lax.eq(reduce_max_out, spread_4)
    spread_5 = lax.broadcast_in_dim(jnp.array(0.0, jnp.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    select_out_2 = select(eq_out, reduce_max_out, spread_5)
    spread_6 = lax.broadcast_in_dim(select_out_2, shape=(batch, 2, seq, seq), broadcast_dimensions=(0, 1, 2))
    sub_out = lax.sub(select_out, spread_6)
    exp_out = lax.exp(sub_out)
    reduce_sum_out = reduce_sum(exp_out, axes=(3,))
    spread_7 = lax.broadcast_in_dim(jnp.array(0.0, jnp.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    eq_out_2 = lax.eq(reduce_sum_out, spread_7)
    spread_8 = lax.broadcast_in_dim(jnp.array(1.0, jnp.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    select_out_3 = select(eq_out_2, reduce_sum_out, spread_8)
    spread_9 = lax.broadcast_in_dim(select_out_3, shape=(batch, 2, seq, seq), broadcast_dimensions=(0, 1, 2))
    div_out = lax.div(exp_out, spread_9)
    product_2 = dot_general(
        div_out, v, lhs_contracting=(3,), rhs_contracting=(2,), lhs_batch=(0, 1), rhs_batch=(0, 1)
    )
    return product_2


def linear_2(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    batch = x.shape[0]
    seq = x.shape[1]
    product = dot_general(x, weight, lhs_contracting=(2,), rhs_contracting=(1,))
    spread = lax.broadcast_in_dim(bias, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    add_out = add(product, spread)
    return add_out


def _wide(function):
    """Floats of 16 bits and less are summed in f32 and rounded once."""

    def row(x, *args, **attrs):
        if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4:
            return function(x.astype(jnp.float32), *args, **attrs).astype(x.dtype)
        return function(x, *args, **attrs)

    return row


reduce_sum = _wide(lax.reduce_sum)


def mul(x, y):
    return lax.bitwise_and(x, y) if x.dtype == jnp.bool_ else lax.mul(x, y)


def add(x, y):
    return lax.bitwise_or(x, y) if x.dtype == jnp.bool_ else lax.add(x, y)


_PRECISION = lax.Precision.HIGHEST


def to_jax(dtype):
    """The jax dtype: 64-bit types are narrowed where x64 is off."""
    return jax.dtypes.canonicalize_dtype(dtype.numpy)


def _numpy(dtype):
    return None if dtype is None else to_jax(dtype)


def dot_general(
    x,
    y,
    lhs_contracting,
    rhs_contracting,
    lhs_batch=(),
    rhs_batch=(),
    out_dtype=None,
):
    numbers = ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))
    return lax.dot_general(x, y, numbers, precision=_PRECISION, preferred_element_type=_numpy(out_dtype))


def reshape(x, shape):
    return lax.reshape(x, shape)


BOOL, INT, UINT, FLOAT, COMPLEX, KEY = "bool", "int", "uint", "float", "complex", "key"


class DType:
    """An element type. Interned: equal types are the same object.

    ``numpy`` is the storage type; a key is stored as ``key_words`` trailing uint32 words.
    """

    __slots__ = ("bits", "key_words", "kind", "name", "numpy")

    def __init__(self, name, kind, bits, numpy, key_words=0):
        self.name, self.kind, self.bits = name, kind, bits
        self.numpy = np.dtype(numpy)
        self.key_words = key_words

    def __repr__(self):
        return self.name

    def __reduce__(self):
        return dtype, (self.name,)

    @property
    def is_integer(self):
        """True for signed and unsigned integers (not bool)."""
        return self.kind in (INT, UINT)

    @property
    def is_float(self):
        return self.kind == FLOAT

    @property
    def is_complex(self):
        return self.kind == COMPLEX

    @property
    def is_inexact(self):
        return self.kind in (FLOAT, COMPLEX)

    @property
    def is_key(self):
        return self.kind == KEY

    @property
    def real(self):
        """The type of the real part: f32 for c64, f64 for c128, itself otherwise."""
        return {"c64": f32, "c128": f64}.get(self.name, self)


def dtype(x):
    """The element type meant by ``x``: a DType, its name, a NumPy type or its name.

    Raises TypeError when nothing of that name is known.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        found = _BY_NAME.get(x) or _BY_NUMPY_NAME.get(x)
        if found is None:
            raise TypeError(f"unknown dtype {x!r}; known: {', '.join(d.name for d in ALL)}")
        return found
    if x in _BY_PYTHON:
        return _BY_PYTHON[x]
    found = _BY_NUMPY.get(np.dtype(x))
    if found is None:
        raise TypeError(f"NumPy dtype {np.dtype(x)} has no place in a graph")
    return found


i2 = DType("i2", INT, 2, ml_dtypes.int2)
i4 = DType("i4", INT, 4, ml_dtypes.int4)
i8 = DType("i8", INT, 8, np.int8)
i16 = DType("i16", INT, 16, np.int16)
i32 = DType("i32", INT, 32, np.int32)
i64 = DType("i64", INT, 64, np.int64)
u2 = DType("u2", UINT, 2, ml_dtypes.uint2)
u4 = DType("u4", UINT, 4, ml_dtypes.uint4)
u8 = DType("u8", UINT, 8, np.uint8)
u16 = DType("u16", UINT, 16, np.uint16)
u32 = DType("u32", UINT, 32, np.uint32)
u64 = DType("u64", UINT, 64, np.uint64)
f4e2m1fn = DType("f4e2m1fn", FLOAT, 4, ml_dtypes.float4_e2m1fn)
f8e3m4 = DType("f8e3m4", FLOAT, 8, ml_dtypes.float8_e3m4)
f8e4m3 = DType("f8e4m3", FLOAT, 8, ml_dtypes.float8_e4m3)
f8e4m3b11fnuz = DType("f8e4m3b11fnuz", FLOAT, 8, ml_dtypes.float8_e4m3b11fnuz)
f8e4m3fn = DType("f8e4m3fn", FLOAT, 8, ml_dtypes.float8_e4m3fn)
f8e4m3fnuz = DType("f8e4m3fnuz", FLOAT, 8, ml_dtypes.float8_e4m3fnuz)
f8e5m2 = DType("f8e5m2", FLOAT, 8, ml_dtypes.float8_e5m2)
f8e5m2fnuz = DType("f8e5m2fnuz", FLOAT, 8, ml_dtypes.float8_e5m2fnuz)
f8e8m0fnu = DType("f8e8m0fnu", FLOAT, 8, ml_dtypes.float8_e8m0fnu)
bf16 = DType("bf16", FLOAT, 16, ml_dtypes.bfloat16)
f16 = DType("f16", FLOAT, 16, np.float16)
f32 = DType("f32", FLOAT, 32, np.float32)
f64 = DType("f64", FLOAT, 64, np.float64)
c64 = DType("c64", COMPLEX, 64, np.complex64)
c128 = DType("c128", COMPLEX, 128, np.complex128)


def _key(impl, words):
    return DType(f"key<{impl}>", KEY, 32 * words, np.uint32, words)


threefry = _key("threefry2x32", 2)
rbg = _key("rbg", 4)
unsafe_rbg = _key("unsafe_rbg", 4)
bool_ = DType("bool", BOOL, 8, np.bool_)


ALL = (bool_, i2, i4, i8, i16, i32, i64, u2, u4, u8, u16, u32, u64, f4e2m1fn, f8e3m4, f8e4m3, f8e4m3b11fnuz, f8e4m3fn,
    f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu, bf16, f16, f32, f64, c64, c128, threefry, rbg, unsafe_rbg)


_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY_NAME = {d.numpy.name: d for d in ALL if not d.is_key}
_BY_PYTHON = {bool: bool_, int: i64, float: f64, complex: c128}
_BY_NUMPY = {d.numpy: d for d in ALL if not d.is_key}


def iota(dtype, shape, axis):
    if dtype.kind == "bool":
        return lax.broadcasted_iota(jnp.int32, shape, axis) != 0
    return lax.broadcasted_iota(to_jax(dtype), shape, axis)


def _ordered(strict, compare):
    """``compare``, lexicographic on complex numbers."""

    def row(x, y):
        if not jnp.issubdtype(x.dtype, jnp.complexfloating):
            return compare(x, y)
        a, b = lax.real(x), lax.real(y)
        return strict(a, b) | ((a == b) & compare(lax.imag(x), lax.imag(y)))

    return row


ge = _ordered(lax.gt, lax.ge)


def select(which, *cases):
    if which.dtype != jnp.bool_ and len(cases) > 1:
        which = lax.clamp(jnp.int32(0), which, jnp.int32(len(cases) - 1))
        if len(cases) == 2:
            which = which == 1
    if 0 < which.ndim < cases[0].ndim:  # keys, which have their words as one more axis
        which = lax.broadcast_in_dim(which, cases[0].shape, tuple(range(which.ndim)))
    # A lone case needs no choice, and lax takes none.
    return lax.select_n(which, *cases) if len(cases) > 1 else cases[0]
