"""attention_block, written by unigraph for NumPy; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from attention_numpy.safetensors.
"""

import functools
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np

WEIGHTS = Path(__file__).with_name("attention_numpy.safetensors")
DTYPES = {"F32": np.float32}


def load_weights(path=WEIGHTS):
    """The arrays of a safetensors file by name (mapped, not read)."""
    data = np.asarray(np.memmap(path, np.uint8, "c"))
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    weights = {}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        array = data[start + begin : start + end].view(DTYPES[item["dtype"]]).reshape(item["shape"])
        weights[name] = array
    return weights


def main(weights, x):
    """x: f32[batch,seq,8]

    Gives f32[batch,seq,8].
    """
    batch = x.shape[0]
    seq = x.shape[1]

    # norm
    layer_norm_out = layer_norm(x, weights["norm.weight"], weights["norm.bias"])

    # attention
    h = linear(layer_norm_out, weights["query.weight"])
    reshape_out = reshape(h, shape=(batch, seq, 2, 4))
    transpose_out = transpose(reshape_out, permutation=(0, 2, 1, 3))
    h_2 = linear(layer_norm_out, weights["key.weight"])
    reshape_out_2 = reshape(h_2, shape=(batch, seq, 2, 4))
    transpose_out_2 = transpose(reshape_out_2, permutation=(0, 2, 1, 3))
    h_3 = linear(layer_norm_out, weights["value.weight"])
    reshape_out_3 = reshape(h_3, shape=(batch, seq, 2, 4))
    transpose_out_3 = transpose(reshape_out_3, permutation=(0, 2, 1, 3))
    attention_out = attention(transpose_out, transpose_out_2, transpose_out_3)
    transpose_out_4 = transpose(attention_out, permutation=(0, 2, 1, 3))
    reshape_out_4 = reshape(transpose_out_4, shape=(batch, seq, 8))

    # out
    h_4 = linear_2(reshape_out_4, weights["out.weight"], weights["out.bias"])

    return add(x, h_4)


def layer_norm(x, weight, bias):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the trailing axes. Here normalized_rank=1, epsilon=1e-05."""
    batch = x.shape[0]
    seq = x.shape[1]
    reduce_sum_out = reduce_sum(x, axes=(2,))
    spread = broadcast_in_dim(np.array(8.0, np.float32), shape=(batch, seq), broadcast_dimensions=())
    div_out = div(reduce_sum_out, spread)
    spread_2 = broadcast_in_dim(div_out, shape=(batch, seq, 8), broadcast_dimensions=(0, 1))
    sub_out = sub(x, spread_2)
    mul_out = mul(sub_out, sub_out)
    reduce_sum_out_2 = reduce_sum(mul_out, axes=(2,))
    spread_3 = broadcast_in_dim(np.array(8.0, np.float32), shape=(batch, seq), broadcast_dimensions=())
    div_out_2 = div(reduce_sum_out_2, spread_3)
    spread_4 = broadcast_in_dim(np.array(1e-05, np.float32), shape=(batch, seq), broadcast_dimensions=())
    add_out = add(div_out_2, spread_4)
    rsqrt_out = rsqrt(add_out)
    spread_5 = broadcast_in_dim(rsqrt_out, shape=(batch, seq, 8), broadcast_dimensions=(0, 1))
    mul_out_2 = mul(sub_out, spread_5)
    spread_6 = broadcast_in_dim(weight, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    mul_out_3 = mul(mul_out_2, spread_6)
    spread_7 = broadcast_in_dim(bias, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    return add(mul_out_3, spread_7)


def linear(x, weight):
    """x weight^T + bias over the last axis of x."""
    return dot_general(x, weight, lhs_contracting=(2,), rhs_contracting=(1,))


def attention(q, k, v):
    """softmax(q k^T * scale) v. Here is_causal=True."""
    batch = q.shape[0]
    seq = q.shape[2]
    product = dot_general(q, k, lhs_contracting=(3,), rhs_contracting=(3,), lhs_batch=(0, 1), rhs_batch=(0, 1))
    spread = broadcast_in_dim(np.array(0.5, np.float32), shape=(batch, 2, seq, seq), broadcast_dimensions=())
    mul_out = mul(product, spread)
    iota_out = iota(dtype=i32, shape=(seq, seq), axis=0)
    iota_out_2 = iota(dtype=i32, shape=(seq, seq), axis=1)
    ge_out = ge(iota_out, iota_out_2)
    spread_2 = broadcast_in_dim(ge_out, shape=(batch, 2, seq, seq), broadcast_dimensions=(2, 3))
    spread_3 = broadcast_in_dim(
        np.array(float("-inf"), np.float32), shape=(batch, 2, seq, seq), broadcast_dimensions=()
    )
    select_out = select(spread_2, spread_3, mul_out)
    reduce_max_out = reduce_max(select_out, axes=(3,))
    spread_4 = broadcast_in_dim(np.array(float("-inf"), np.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    eq_out = eq(reduce_max_out, spread_4)
    spread_5 = broadcast_in_dim(np.array(0.0, np.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    select_out_2 = select(eq_out, reduce_max_out, spread_5)
    spread_6 = broadcast_in_dim(select_out_2, shape=(batch, 2, seq, seq), broadcast_dimensions=(0, 1, 2))
    sub_out = sub(select_out, spread_6)
    exp_out = exp(sub_out)
    reduce_sum_out = reduce_sum(exp_out, axes=(3,))
    spread_7 = broadcast_in_dim(np.array(0.0, np.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    eq_out_2 = eq(reduce_sum_out, spread_7)
    spread_8 = broadcast_in_dim(np.array(1.0, np.float32), shape=(batch, 2, seq), broadcast_dimensions=())
    select_out_3 = select(eq_out_2, reduce_sum_out, spread_8)
    spread_9 = broadcast_in_dim(select_out_3, shape=(batch, 2, seq, seq), broadcast_dimensions=(0, 1, 2))
    div_out = div(exp_out, spread_9)
    product_2 = dot_general(
        div_out, v, lhs_contracting=(3,), rhs_contracting=(2,), lhs_batch=(0, 1), rhs_batch=(0, 1)
    )
    return product_2


def linear_2(x, weight, bias):
    """x weight^T + bias over the last axis of x."""
    batch = x.shape[0]
    seq = x.shape[1]
    product = dot_general(x, weight, lhs_contracting=(2,), rhs_contracting=(1,))
    spread = broadcast_in_dim(bias, shape=(batch, seq, 8), broadcast_dimensions=(2,))
    return add(product, spread)


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


bool_ = DType("bool", BOOL, 8, np.bool_)
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
f64 = DType("f64", FLOAT, 64, np.float64)
c64 = DType("c64", COMPLEX, 64, np.complex64)
c128 = DType("c128", COMPLEX, 128, np.complex128)


def _key(impl, words):
    return DType(f"key<{impl}>", KEY, 32 * words, np.uint32, words)


threefry = _key("threefry2x32", 2)
rbg = _key("rbg", 4)
unsafe_rbg = _key("unsafe_rbg", 4)
_BY_PYTHON = {bool: bool_, int: i64, float: f64, complex: c128}
f32 = DType("f32", FLOAT, 32, np.float32)


ALL = (bool_, i2, i4, i8, i16, i32, i64, u2, u4, u8, u16, u32, u64, f4e2m1fn, f8e3m4, f8e4m3, f8e4m3b11fnuz, f8e4m3fn,
    f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu, bf16, f16, f32, f64, c64, c128, threefry, rbg, unsafe_rbg)


_BY_NAME = {d.name: d for d in ALL}
_BY_NUMPY_NAME = {d.numpy.name: d for d in ALL if not d.is_key}
_BY_NUMPY = {d.numpy: d for d in ALL if not d.is_key}


def widen(x):
    """x in a dtype with full NumPy support; x itself where it has that already."""
    kind = dtype(x.dtype)
    if kind.is_float and kind.bits < 32:
        return x.astype(np.float32)
    return x.astype(np.int32) if kind.is_integer and kind.bits < 8 else x


def has_infinity(kind):
    """True when the float or complex dtype can hold an infinity."""
    return kind.kind == COMPLEX or bool(np.isinf(np.asarray(np.inf, np.float32).astype(kind.numpy).astype(np.float32)))


@functools.cache
def lowest(kind):
    """The largest of nothing, as a Python number."""
    if kind.kind == BOOL:
        return False
    if kind.is_integer:
        return int(ml_dtypes.iinfo(kind.numpy).min)
    return -np.inf if has_infinity(kind) else float(ml_dtypes.finfo(kind.numpy).min)


@functools.cache
def highest(kind):
    """The smallest of nothing, as a Python number."""
    if kind.kind == BOOL:
        return True
    if kind.is_integer:
        return int(ml_dtypes.iinfo(kind.numpy).max)
    return np.inf if has_infinity(kind) else float(ml_dtypes.finfo(kind.numpy).max)


START = {
    np.add: lambda kind: 0,
    np.multiply: lambda kind: 1,
    np.maximum: lowest,
    np.minimum: highest,
    np.bitwise_and: lambda kind: True if kind.kind == "bool" else highest(kind) if kind.kind == "uint" else -1,
    np.bitwise_or: lambda kind: 0,
    np.bitwise_xor: lambda kind: 0,
}


def wrap_integer(x, kind):
    """Integers reduced to the bits of a type shorter than a byte."""
    span = 1 << kind.bits
    low = x & (span - 1)
    if kind.kind == "int":
        low = np.where(low >= span // 2, low - span, low)
    return low.astype(np.int8 if kind.kind == "int" else np.uint8).astype(kind.numpy)


def narrow(x, kind):
    """x back in ``kind``: rounded to nearest even, or wrapped."""
    x = np.asarray(x)
    if x.dtype == kind.numpy:
        return x
    return wrap_integer(x, kind) if kind.is_integer and kind.bits < 8 else x.astype(kind.numpy)


SIGN = {np.maximum: np.logical_and, np.minimum: np.logical_or}


def fold(ufunc, x, run):
    """``run(ufunc, x)``, where +0.0 beats -0.0 in a maximum, and -0.0 beats +0.0 in a minimum.

    ``run`` folds an array in any way (reduce, accumulate, over windows) with the ufunc it gets.
    """
    result = run(ufunc, x)
    if ufunc in SIGN and dtype(x.dtype).kind == FLOAT and np.any(np.equal(result, 0)):
        negative = run(SIGN[ufunc], np.signbit(x))
        result = np.where(np.equal(result, 0), np.where(negative, -0.0, 0.0).astype(x.dtype), result)
    return result


def _make_reduce_sum_row(ufunc):
    def row(x, axes):
        kind = dtype(x.dtype)
        wide = widen(x)
        if wide.size == 0:
            shape = [n for a, n in enumerate(x.shape) if a not in axes]
            return np.full(shape, START[ufunc](kind), wide.dtype).astype(x.dtype)

        def run(f, values):
            return np.asarray(f.reduce(values, axis=axes, dtype=values.dtype))

        return narrow(fold(ufunc, wide, run), kind)

    return row


reduce_sum_row = _make_reduce_sum_row(np.add)


def _quiet(f):
    def row(*args, **attrs):
        with np.errstate(all="ignore"):
            return f(*args, **attrs)

    return row


reduce_sum = _quiet(reduce_sum_row)


def broadcast_in_dim(x, shape, broadcast_dimensions):
    aligned = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape):
        aligned[axis] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _div(x, y):
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    # C division: toward zero; x / 0 is all bits set (-1 or the largest), min / -1 wraps to min.
    zero = y == 0
    y = np.where(zero, np.ones_like(y), y)
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // y).astype(x.dtype)
    flip = y == -1
    quotient = np.floor_divide(x, np.where(flip, np.ones_like(y), y))
    inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & ~flip
    quotient = np.where(flip, np.negative(x), quotient + inexact.astype(x.dtype))
    return np.where(zero, np.full_like(x, -1), quotient)


def wide(f):
    """``f`` computed in a dtype that NumPy handles well, and cast back to the operands' dtype."""

    @functools.wraps(f)
    def row(*args, **attrs):
        kind = dtype(args[0].dtype)
        with np.errstate(all="ignore"):
            if kind.is_float and kind.bits < 32:
                return f(*(a.astype(np.float32) for a in args), **attrs).astype(kind.numpy)
            if kind.is_integer and kind.bits < 8:
                return wrap_integer(np.asarray(f(*(a.astype(np.int32) for a in args), **attrs)), kind)
            return np.asarray(f(*args, **attrs), dtype=kind.numpy)

    return row


div = wide(_div)
sub = wide(np.subtract)
mul = wide(np.multiply)
add = wide(np.add)


def _rsqrt(x):
    return 1 / np.sqrt(x)


rsqrt = wide(_rsqrt)


def from_integers(x, kind):
    """Integers converted to ``kind``; those that do not fit wrap around."""
    return wrap_integer(x, kind) if kind.is_integer and kind.bits < 8 else x.astype(kind.numpy)


def _integer_product(x, y, kind):
    """The product modulo 2^64; by BLAS where every partial sum is exact in f64."""
    if 2 * kind.bits + max(x.shape[-1], 1).bit_length() <= 53:
        return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)
    wide = np.uint64 if kind.kind == "uint" else np.int64
    return np.matmul(x.astype(wide), y.astype(wide))


def matrix_product(x, y, out):
    """x[..., m, k] @ y[..., k, n], added up in ``out`` (floats shorter than f32 in f32)."""
    kind = dtype(x.dtype)
    with np.errstate(all="ignore"):
        if kind.kind == BOOL:
            # Counts of True pairs; f32 loses none that would bring a count back to 0.
            return np.matmul(x.astype(np.float32), y.astype(np.float32)) > 0
        if kind.is_integer and out.is_integer:
            return from_integers(_integer_product(x, y, kind), out)
        wide = np.dtype(np.float32) if out.is_float and out.bits < 32 else out.numpy
        return np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False)).astype(out.numpy, copy=False)


def dot_general(
    x,
    y,
    lhs_contracting,
    rhs_contracting,
    lhs_batch=(),
    rhs_batch=(),
    out_dtype=None,
):
    """Axes in the order batch, free, contracting; each group folded into one."""
    left = [a for a in range(x.ndim) if a not in lhs_batch + lhs_contracting]
    right = [a for a in range(y.ndim) if a not in rhs_batch + rhs_contracting]
    batch = [x.shape[a] for a in lhs_batch]
    rows, columns = [x.shape[a] for a in left], [y.shape[a] for a in right]
    depth = math.prod(x.shape[a] for a in lhs_contracting)
    b, m, n = math.prod(batch), math.prod(rows), math.prod(columns)
    x = x.transpose((*lhs_batch, *left, *lhs_contracting)).reshape(b, m, depth)
    y = y.transpose((*rhs_batch, *rhs_contracting, *right)).reshape(b, depth, n)
    return matrix_product(x, y, out_dtype or dtype(x.dtype)).reshape((*batch, *rows, *columns))


def reshape(x, shape):
    return x.reshape(shape)


def transpose(x, permutation):
    return x.transpose(permutation)


def iota(dtype, shape, axis):
    aligned = [1] * len(shape)
    aligned[axis] = shape[axis]
    counted = from_integers(np.arange(shape[axis]), dtype)
    return np.broadcast_to(counted.reshape(aligned), shape)


def compare(f, beyond=None):
    """A comparison; complex numbers compare by real part, then by imaginary part."""

    def row(x, y):
        if x.dtype.kind == "c" and beyond is not None:
            return np.where(x.real == y.real, f(x.imag, y.imag), beyond(x.real, y.real))
        kind = dtype(x.dtype)
        if kind.is_float and kind.bits < 32:
            x, y = x.astype(np.float32), y.astype(np.float32)
        elif kind.is_integer and kind.bits < 8:
            x, y = x.astype(np.int32), y.astype(np.int32)
        with np.errstate(all="ignore"):
            return np.asarray(f(x, y))

    return row


ge = compare(np.greater_equal, np.greater)


def select(which, *cases):
    if len(cases) == 1:
        return cases[0].copy()
    if which.dtype == np.bool_:
        return np.where(which, cases[1], cases[0])
    index = np.clip(which, 0, len(cases) - 1)
    if index.ndim == 0:
        return cases[int(index)].copy()
    result = cases[0]
    for number, case in enumerate(cases[1:], 1):
        result = np.where(index == number, case, result)
    return result


def _make_reduce_max_row(ufunc):
    def row(x, axes):
        kind = dtype(x.dtype)
        wide = widen(x)
        if wide.size == 0:
            shape = [n for a, n in enumerate(x.shape) if a not in axes]
            return np.full(shape, START[ufunc](kind), wide.dtype).astype(x.dtype)

        def run(f, values):
            return np.asarray(f.reduce(values, axis=axes, dtype=values.dtype))

        return narrow(fold(ufunc, wide, run), kind)

    return row


reduce_max_row = _make_reduce_max_row(np.maximum)
reduce_max = _quiet(reduce_max_row)
eq = compare(np.equal, None)
exp = wide(np.exp)
