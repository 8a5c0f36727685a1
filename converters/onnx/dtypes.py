"""Element types in ONNX, and which ONNX operators ONNX Runtime can run on which of them.

The kernels table is what lets rows be written once: the emitter computes an operator that has no
kernel for a dtype in a wider dtype (its carrier) that holds every value exactly, and casts back.
"""

from __future__ import annotations

import onnx

from unigraph import dtypes
from unigraph.dtypes import DType
from unigraph.errors import Unsupported

_T = onnx.TensorProto
TO_ONNX: dict[str, int] = {
    "bool": _T.BOOL,
    "i2": _T.INT2,
    "i4": _T.INT4,
    "i8": _T.INT8,
    "i16": _T.INT16,
    "i32": _T.INT32,
    "i64": _T.INT64,
    "u2": _T.UINT2,
    "u4": _T.UINT4,
    "u8": _T.UINT8,
    "u16": _T.UINT16,
    "u32": _T.UINT32,
    "u64": _T.UINT64,
    "f4e2m1fn": _T.FLOAT4E2M1,
    "f8e8m0fnu": _T.FLOAT8E8M0,
    "f8e4m3fn": _T.FLOAT8E4M3FN,
    "f8e4m3fnuz": _T.FLOAT8E4M3FNUZ,
    "f8e5m2": _T.FLOAT8E5M2,
    "f8e5m2fnuz": _T.FLOAT8E5M2FNUZ,
    "bf16": _T.BFLOAT16,
    "f16": _T.FLOAT16,
    "f32": _T.FLOAT,
    "f64": _T.DOUBLE,
    "c64": _T.COMPLEX64,
    "c128": _T.COMPLEX128,
}
FROM_ONNX: dict[int, DType] = {number: dtypes.dtype(name) for name, number in TO_ONNX.items()}

# The first opset in which a dtype may stand in a model at all.
_SINCE = {
    "f8e4m3fn": 19,
    "f8e4m3fnuz": 19,
    "f8e5m2": 19,
    "f8e5m2fnuz": 19,
    "i4": 21,
    "u4": 21,
    "f4e2m1fn": 23,
    "f8e8m0fnu": 24,
    "i2": 25,
    "u2": 25,
}


def to_onnx_dtype(dtype: DType, opset: int) -> int:
    """The TensorProto element type for a dtype (a key is its uint32 words).

    Raises Unsupported when ONNX has no such type, or not yet in this opset.
    """
    name = "u32" if dtype.is_key else dtype.name
    number = TO_ONNX.get(name)
    if number is None:
        raise Unsupported(f"ONNX has no element type {name}", "convert to a type that ONNX has")
    if opset < _SINCE.get(name, 0):
        raise Unsupported(
            f"element type {name} needs opset {_SINCE[name]}", f"export with opset {_SINCE[name]} or newer"
        )
    return number


def words(text: str) -> frozenset[str]:
    """The set of words in a text."""
    return frozenset(text.split())


_INTS = words("i8 i16 i32 i64 u8 u16 u32 u64")
# f16 arithmetic goes through f32 with casts that are visible: the runtime's own leave out the rounding between
# two operators. Whole-layer operators take f16 as it is.
_FLOATS = words("f32 f64")
_SHORT = words("f32")
_HALF = words("f16")
_WIDE = words("i32 i64 f32 f64")
_ARITHMETIC = _INTS | _FLOATS
_MOVED = _ARITHMETIC | _HALF | words("bool")
_STORED = _MOVED | words("bf16")
_EXTREME = _WIDE | words("i8 u8 u32 u64")
F8 = words("f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz")

# What the CPU provider of ONNX Runtime has (1.22 and newer; found by loading one-node models).
# An operator that is not listed takes what its row gives it.
KERNELS: dict[str, frozenset[str]] = {
    **dict.fromkeys(words("Add Sub Mul Div Mod Less LessOrEqual Greater GreaterOrEqual Sum"), _ARITHMETIC),
    "Equal": _ARITHMETIC | words("bool"),
    "Pow": _WIDE,
    "Neg": _FLOATS | words("i8 i16 i32 i64"),
    **dict.fromkeys(["Abs", "Sign"], _ARITHMETIC),
    **dict.fromkeys(["Max", "Min", "Clip"], _EXTREME),
    "Where": words("i8 i32 i64 u8 u32 f16 f32 f64"),
    **dict.fromkeys(words("Ceil Floor Round Exp Log Sqrt Reciprocal Sin Cos Tanh Sigmoid"), _FLOATS),
    **dict.fromkeys(["IsNaN"], _FLOATS),
    **dict.fromkeys(["IsInf"], words("f32 f64")),
    **dict.fromkeys(words("Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf"), _SHORT),
    **dict.fromkeys(words("HardSwish Mish Softplus Softsign Gelu Selu Elu LeakyRelu HardSigmoid"), _SHORT | _HALF),
    "Relu": words("i8 i32 f16 f32 f64"),
    "Celu": words("f32"),
    "PRelu": _FLOATS,
    **dict.fromkeys(["And", "Or", "Xor", "Not"], words("bool")),
    **dict.fromkeys(words("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot"), _INTS),
    "BitShift": words("u8 u16 u32 u64"),
    "Identity": _STORED,
    "Transpose": _STORED,
    "Reshape": _STORED,
    **dict.fromkeys(words("Squeeze Unsqueeze Slice Concat Gather GatherND GatherElements"), _STORED),
    **dict.fromkeys(words("ScatterND ScatterElements"), _STORED),
    **dict.fromkeys(["Expand", "Tile"], _MOVED),
    "Pad": words("bool i8 i32 i64 u8 u32 u64 f16 f32 f64"),
    "Trilu": words("bool i32 i64 f16 f32 f64"),
    "Range": words("i16 i32 i64 f32 f64"),
    **dict.fromkeys(["ReduceSum", "ReduceProd", "ReduceMean", "CumSum"], _WIDE),
    **dict.fromkeys(["ReduceMax", "ReduceMin", "ArgMax", "ArgMin"], words("i8 u8") | _WIDE),
    "TopK": words("i8 i16 u8") | _WIDE,
    "MatMul": _WIDE | _HALF,  # the kernels registered for u32 and u64 fail on empty operands
    "Gemm": _FLOATS | _HALF,
    "Einsum": _WIDE,
    **dict.fromkeys(["Conv", "ConvTranspose", "AveragePool", "InstanceNormalization"], _SHORT | _HALF),
    "MaxPool": words("i8 u8") | _FLOATS | _HALF,
    **dict.fromkeys(["LSTM", "GRU", "RNN"], words("f32")),
    **dict.fromkeys(["Softmax", "LogSoftmax", "BatchNormalization", "GroupNormalization"], _FLOATS | _HALF),
    **dict.fromkeys(["LayerNormalization", "RMSNormalization", "Attention"], _FLOATS | _HALF),
    "RotaryEmbedding": _SHORT | _HALF,
    "Resize": words("i8 i32 u8 f16 f32"),
    "DFT": words("f32 f64"),
}

# Where a dtype without a kernel is computed instead: types that hold each of its values exactly. A cast
# back to a shorter integer keeps the low bits, which is what wrap-around asks for.
CARRIERS: dict[str, tuple[str, ...]] = {
    "bool": ("u8", "i32"),
    "i4": ("i8", "i32", "i64"),
    "u4": ("u8", "i32", "i64"),
    "i8": ("i32", "i64"),
    "u8": ("i32", "i64"),
    "i16": ("i32", "i64"),
    "u16": ("i32", "i64"),
    "i32": ("i64",),
    "u32": ("i64",),
    "bf16": ("f32",),
    "f16": ("f32",),
    "f32": ("f64",),
    **dict.fromkeys(F8, ("f32",)),
}

# u64 in i64 keeps the bits, not the order: only for operators that do not look at the value.
BITWISE_CARRIER = {"u64": "i64"}
BLIND = words("Where ReduceSum ReduceProd CumSum Add Sub Mul MatMul")

# Operators newer than the oldest opset that can be asked for.
SINCE: dict[str, int] = {
    "BitwiseAnd": 18,
    "BitwiseOr": 18,
    "BitwiseXor": 18,
    "BitwiseNot": 18,
    "Mish": 18,
    "Gelu": 20,
    "GroupNormalization": 21,
    "RMSNormalization": 23,
    "Attention": 23,
    "RotaryEmbedding": 23,
    "BitCast": 26,
    "CumProd": 26,
}
OLDEST, DEFAULT, NEWEST = 17, 23, 26


def carrier(op_type: str, dtype: DType) -> DType:
    """The dtype to run ``op_type`` in for operands of ``dtype``: itself where there is a kernel.

    Raises Unsupported when no dtype holds the values and has a kernel.
    """
    have = KERNELS.get(op_type)
    if have is None or dtype.name in have:
        return dtype
    for name in CARRIERS.get(dtype.name, ()):
        if name in have:
            return dtypes.dtype(name)
    if dtype.name in BITWISE_CARRIER and op_type in BLIND:
        return dtypes.dtype(BITWISE_CARRIER[dtype.name])
    raise Unsupported(f"ONNX Runtime has no {op_type} for {dtype.name}, and no wider type to compute it in")
