"""network, written by unigraph for NumPy; it needs nothing of unigraph.

Call ``main(load_weights(), ...)``; weights are read from elman_numpy.safetensors.
"""

import functools
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np

WEIGHTS = Path(__file__).with_name("elman_numpy.safetensors")
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


def main(weights, xs):
    """xs: f32[time,3]

    Gives f32[4], f32[time,2].
    """
    time = xs.shape[0]
    spread = broadcast_in_dim(np.array(0.0, np.float32), shape=(4,), broadcast_dimensions=())

    def body(x0, x1, x2, x3, x4, x5):
        product = dot_general(x5, x0, lhs_contracting=(0,), rhs_contracting=(0,))
        product_2 = dot_general(x4, x1, lhs_contracting=(0,), rhs_contracting=(0,))
        add_out = add(product, product_2)
        add_out_2 = add(add_out, x2)
        tanh_out = tanh(add_out_2)
        product_3 = dot_general(tanh_out, x3, lhs_contracting=(0,), rhs_contracting=(0,))
        return (tanh_out, product_3)

    body.results = lambda: [((4,), np.float32), ((2,), np.float32)]
    scan_out, scan_out_2 = scan(
        weights["weights.inner"],
        weights["weights.hidden"],
        weights["weights.bias"],
        weights["weights.out"],
        spread,
        xs,
        length=time,
        num_consts=4,
        num_carry=1,
        body=body,
    )
    return (scan_out, scan_out_2)


def broadcast_in_dim(x, shape, broadcast_dimensions):
    aligned = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape):
        aligned[axis] = size
    return np.broadcast_to(x.reshape(aligned), shape)


def _no_steps(body, num_carry):
    """Empty results, shaped as the types of the body say."""
    return [np.empty((0, *shape), kind) for shape, kind in body.results()[num_carry:]]


def scan(*operands, length, num_consts, num_carry, reverse=False, body):
    """Results of the steps are written into arrays made at the first one."""
    consts, xs = operands[:num_consts], operands[num_consts + num_carry :]
    carry = operands[num_consts : num_consts + num_carry]
    ys = []
    for i in reversed(range(length)) if reverse else range(length):
        results = body(*consts, *carry, *(np.asarray(x[i]) for x in xs))
        carry = results[:num_carry]
        if not ys:
            ys = [np.empty((length, *np.shape(y)), y.dtype) for y in results[num_carry:]]
        for all_steps, y in zip(ys, results[num_carry:]):
            all_steps[i] = y
    return (*carry, *(ys if length else _no_steps(body, num_carry)))


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


def wrap_integer(x, kind):
    """Integers reduced to the bits of a type shorter than a byte."""
    span = 1 << kind.bits
    low = x & (span - 1)
    if kind.kind == "int":
        low = np.where(low >= span // 2, low - span, low)
    return low.astype(np.int8 if kind.kind == "int" else np.uint8).astype(kind.numpy)


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


add = wide(np.add)
tanh = wide(np.tanh)
