"""Runnable examples of the elementwise ops; edges are told, plain float values are not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..opdef import Example, array, example

NAN, INF = float("nan"), float("inf")
_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, INF, -INF, NAN]
_I8 = [-128, -1, 0, 1, 127]


def _f32(*x: float) -> np.ndarray:
    return array("f32", x)


def _plain(low: float, high: float, dtypes: str = "f32 f64 bf16 f16") -> list[Example]:
    """Evenly spread values in each dtype, and a zero-size array."""
    points = np.linspace(low, high, 11)
    made = [example(array(d, points)) for d in dtypes.split()]
    return [*made, example(np.zeros((2, 0), np.float32), out=np.zeros((2, 0), np.float32), note="zero size")]


def _complex() -> Example:
    return example(array("c64", [0.5 + 0.25j, -1.5 + 2j, 2 - 1j, -0.25 - 0.5j]))


def _pairs(dtypes: str = "f32 f64 bf16 f16") -> list[Example]:
    x, y = np.linspace(-3, 4, 8), np.linspace(2.5, -1.5, 8)
    return [example(array(d, x), array(d, y)) for d in dtypes.split()]


def _told(dtype: str, x: list, y: list, out: list, out_dtype: str = "", note: str = "") -> Example:
    return example(array(dtype, x), array(dtype, y), out=array(out_dtype or dtype, out), note=note)


def _one(of: str, x: list, out: list, to: str = "", why: str = "", /, note: str = "", **attrs: Any) -> Example:
    return example(array(of, x), out=array(to or of, out), note=why or note, **attrs)


def _compare(name: str) -> list[Example]:
    ops = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    x, y = [NAN, 0.0, -INF, 1.0, 2.0, INF], [NAN, -0.0, INF, 2.0, 1.0, INF]
    u = [0, 1, 2**64 - 1, 2**63], [2**64 - 1, 1, 0, 2**63 - 1]
    f = ops[name]
    made = [
        _told("f32", x, y, f(np.array(x), np.array(y)).tolist(), "bool", "NaN compares with nothing; zeros are equal"),
        _told("bf16", x, y, f(np.array(x), np.array(y)).tolist(), "bool"),
        _told("u64", *u, f(np.array(u[0], np.uint64), np.array(u[1], np.uint64)).tolist(), "bool", "unsigned order"),
        _told("i8", [-128, 127, 0], [127, -128, 0], f(np.array([-128, 127, 0]), np.array([127, -128, 0])).tolist(), "bool"),
        _told("bool", [False, False, True, True], [False, True, False, True],
              f(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])).tolist(), "bool"),
    ]  # fmt: skip
    if name in ("eq", "ne"):
        equal = [True, False, False]
        made.append(
            _told(
                "c64",
                [1 + 1j, 1 + 2j, NAN],
                [1 + 1j, 1 + 3j, NAN],
                equal if name == "eq" else [not x for x in equal],
                "bool",
            )
        )
    else:
        made.append(
            _told(
                "c64",
                [1 + 1j, 1 + 2j, 2],
                [1 + 2j, 1 + 2j, 1 + 9j],
                {"lt": [1, 0, 0], "le": [1, 1, 0], "gt": [0, 0, 1], "ge": [0, 1, 1]}[name],
                "bool",
                "lexicographic",
            )
        )
    return made


def _total(outs: list[bool]) -> list[Example]:
    x = [-0.0, 0.0, NAN, 1.0, -INF]
    y = [0.0, 0.0, INF, NAN, -1.0]
    return [_told("f32", x, y, outs, "bool"), _told("f64", x, y, outs, "bool")]


_UNARY_RANGES = {
    "exp": (-3, 3), "exp2": (-3, 3), "expm1": (-1, 1), "sin": (-4, 4), "cos": (-4, 4), "tan": (-1.4, 1.4),
    "asin": (-1, 1), "acos": (-1, 1), "atan": (-4, 4), "sinh": (-3, 3), "cosh": (-3, 3), "tanh": (-3, 3),
    "asinh": (-3, 3), "acosh": (1, 4), "atanh": (-0.9, 0.9), "logistic": (-6, 6), "log": (0.1, 4), "log1p": (-0.9, 4),
    "sqrt": (0, 4), "rsqrt": (0.1, 4),
}  # fmt: skip
_EDGE_OUTPUTS = {
    "exp": ([INF, -INF, NAN, 1000.0, -1000.0], [INF, 0.0, NAN, INF, 0.0]),
    "expm1": ([INF, -INF, NAN, 0.0], [INF, -1.0, NAN, 0.0]),
    "log": ([0.0, -1.0, INF, NAN, 1.0], [-INF, NAN, INF, NAN, 0.0]),
    "log1p": ([-1.0, -2.0, INF, 0.0], [-INF, NAN, INF, 0.0]),
    "sqrt": ([-1.0, INF, NAN, 4.0], [NAN, INF, NAN, 2.0]),
    "rsqrt": ([0.0, INF, -1.0, 4.0], [INF, 0.0, NAN, 0.5]),
    "sin": ([INF, NAN, 0.0], [NAN, NAN, 0.0]),
    "cos": ([INF, NAN, 0.0], [NAN, NAN, 1.0]),
    "tan": ([INF, NAN, 0.0], [NAN, NAN, 0.0]),
    "asin": ([2.0, -2.0, NAN], [NAN, NAN, NAN]),
    "acos": ([2.0, 1.0, NAN], [NAN, 0.0, NAN]),
    "tanh": ([INF, -INF, NAN, 100.0], [1.0, -1.0, NAN, 1.0]),
    "sinh": ([INF, -INF, NAN], [INF, -INF, NAN]),
    "cosh": ([INF, -INF, NAN], [INF, INF, NAN]),
    "acosh": ([0.5, INF, 1.0], [NAN, INF, 0.0]),
    "atanh": ([1.0, -1.0, 2.0], [INF, -INF, NAN]),
    "logistic": ([INF, -INF, NAN, 200.0, -200.0], [1.0, 0.0, NAN, 1.0, 0.0]),
    "exp2": ([INF, -INF, NAN, 10.0], [INF, 0.0, NAN, 1024.0]),
    "cbrt": ([-8.0, 27.0, INF, NAN, 0.0], [-2.0, 3.0, INF, NAN, 0.0]),
    "erf": ([INF, -INF, NAN, 0.0], [1.0, -1.0, NAN, 0.0]),
    "erfc": ([INF, -INF, NAN, 0.0], [0.0, 2.0, NAN, 1.0]),
    "erf_inv": ([1.0, -1.0, 2.0, 0.0], [INF, -INF, NAN, 0.0]),
    "lgamma": ([1.0, 2.0, 0.0, -1.0, INF, NAN], [0.0, 0.0, INF, INF, INF, NAN]),
    "digamma": ([0.0, -1.0, NAN, INF], [NAN, NAN, NAN, INF]),
    "bessel_i0e": ([0.0, INF, NAN], [1.0, 0.0, NAN]),
    "bessel_i1e": ([0.0, INF, NAN], [0.0, 0.0, NAN]),
}
_FLOAT_RANGES = {
    "cbrt": (-4, 4), "erf": (-3, 3), "erfc": (-3, 5), "erf_inv": (-0.95, 0.95), "lgamma": (0.1, 8), "digamma": (0.1, 8),
    "bessel_i0e": (-12, 12), "bessel_i1e": (-12, 12),
}  # fmt: skip


def _unary(name: str) -> list[Example]:
    x, out = _EDGE_OUTPUTS.get(name, ([NAN], [NAN]))
    made = [*_plain(*{**_UNARY_RANGES, **_FLOAT_RANGES}[name]), _one("f32", x, out), _one("bf16", x, out)]
    return made if name in _FLOAT_RANGES else [*made, _complex()]


def _bits(f: Callable[..., np.ndarray], dtypes: str = "i8 u8 i32 u64 bool") -> list[Example]:
    made = []
    for d in dtypes.split():
        x = array(d, [0, 0, 1, 1] if d == "bool" else [0, 1, 5, 100])
        y = array(d, [0, 1, 0, 1] if d == "bool" else [3, 1, 12, 77])
        made.append(example(x, y, out=f(x, y)))
    return [
        *made,
        example(
            array("i4", [-8, 7, 3]),
            array("i4", [5, -1, 2]),
            out=f(np.array([-8, 7, 3], np.int8), np.array([5, -1, 2], np.int8)).astype(array("i4", 0).dtype),
        ),
    ]


_a, _b = [-7, 7, -7, 7, 5, -128, 0], [2, -2, -2, 2, 0, -1, 3]

EXAMPLES: dict[str, Callable[[], list[Example]]] = {
    "add": lambda: [
        *_pairs(), _told("i8", [127, -128], [1, -1], [-128, 127], note="wraps"), _told("u8", [255], [1], [0], note="wraps"),
        _told("i4", [7, -8], [1, -1], [-8, 7], note="wraps"), _told("i64", [2**63 - 1], [1], [-(2**63)], note="wraps"),
        _told("u64", [2**64 - 1], [2], [1], note="wraps"), _told("bool", [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1]),
        _told("c64", [1 + 2j], [0.5 - 1j], [1.5 + 1j]), _told("f32", [INF, NAN], [-INF, 1], [NAN, NAN]),
        _told("f8e4m3fn", [1.0, 2.0], [0.5, 0.25], [1.5, 2.25]), example(np.zeros((0, 3), np.int32), np.zeros((0, 3), np.int32)),
    ],
    "sub": lambda: [*_pairs(), _told("i8", [-128], [1], [127], note="wraps"), _told("u8", [0], [1], [255], note="wraps"), _told("u64", [0], [1], [2**64 - 1]), _told("c64", [1 + 2j], [0.5 - 1j], [0.5 + 3j])],
    "mul": lambda: [
        *_pairs(), _told("i8", [64, -128], [2, -1], [-128, -128], note="wraps"), _told("u16", [65535], [65535], [1], note="wraps"),
        _told("i64", [2**62], [4], [0], note="wraps"), _told("u64", [2**63], [3], [2**63], note="wraps"),
        _told("bool", [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]), _told("c64", [1 + 2j], [3 - 1j], [5 + 5j]), _told("f32", [0, INF], [INF, 2], [NAN, INF]),
    ],
    "div": lambda: [
        *_pairs(), _told("i8", _a, _b, [-3, -3, 3, 3, -1, -128, 0], note="toward zero; by zero gives -1; the least by -1 is itself"),
        _told("u8", [7, 255, 5], [2, 3, 0], [3, 85, 255], note="by zero gives the largest"), _told("i64", [-(2**63), 9], [-1, 0], [-(2**63), -1]),
        _told("u64", [2**64 - 1, 7], [2, 0], [2**63 - 1, 2**64 - 1]), _told("f32", [1, -1, 0, 1], [0, 0, 0, -0.0], [INF, -INF, NAN, -INF]),
        example(array("c64", [1 + 2j, 3j]), array("c64", [3 - 1j, 2])), _told("i4", [-8, 7, 3], [-1, 2, 0], [-8, 3, -1]),
    ],
    "rem": lambda: [
        _told("f32", [5.5, -5.5, 5.5, 1.0, INF], [2.0, 2.0, -2.0, INF, 2.0], [1.5, -1.5, 1.5, 1.0, NAN], note="sign of x"),
        _told("i8", _a, _b, [-1, 1, -1, 1, 5, 0, 0], note="by zero gives x"), _told("u8", [7, 5], [4, 0], [3, 5]),
        _told("u64", [2**64 - 1], [10], [5]), _told("bf16", [5.5], [2.0], [1.5]),
    ],
    "max": lambda: [_told("f32", [NAN, 1, -0.0, 0.0, INF], [1, NAN, 0.0, -0.0, 2], [NAN, NAN, 0.0, 0.0, INF], note="NaN wins"), _told("bf16", [NAN, 1], [1, 2], [NAN, 2]), _told("u64", [2**63, 1], [1, 2], [2**63, 2]), _told("i8", _I8, _I8[::-1], [127, 1, 0, 1, 127]), _told("bool", [0, 0, 1], [0, 1, 1], [0, 1, 1]), _told("c64", [1 + 1j, 2], [1 + 2j, 1 + 9j], [1 + 2j, 2])],
    "min": lambda: [_told("f32", [NAN, 1, -0.0, 0.0, INF], [1, NAN, 0.0, -0.0, 2], [NAN, NAN, -0.0, -0.0, 2], note="NaN wins"), _told("bf16", [NAN, 1], [1, 2], [NAN, 1]), _told("u64", [2**63, 1], [1, 2], [1, 1]), _told("i8", _I8, _I8[::-1], [-128, -1, 0, -1, -128]), _told("bool", [0, 0, 1], [0, 1, 1], [0, 0, 1]), _told("c64", [1 + 1j, 2], [1 + 2j, 1 + 9j], [1 + 1j, 1 + 9j])],
    "pow": lambda: [example(array(d, [0.5, 1.5, 2.0, 3.0]), array(d, [-2.0, 0.5, 3.0, 1.5])) for d in ("f32", "f64", "bf16")] + [_told("f32", [0, NAN, 1, -2, -2, 0], [0, 0, NAN, 3, 0.5, -1], [1, 1, 1, -8, NAN, INF]), example(array("c64", [1 + 1j, 2]), array("c64", [2, 0.5]))],
    "atan2": lambda: [*_pairs("f32 f64 bf16"), _told("f32", [0.0, -0.0, 0.0, INF], [1.0, 1.0, -1.0, INF], [0.0, -0.0, np.pi, np.pi / 4])],
    "nextafter": lambda: [_told("f32", [1.0, 0.0, 1.0, NAN], [2.0, 1.0, 1.0, 1.0], [1.0000001192092896, 1.401298464324817e-45, 1.0, NAN]), _told("f64", [1.0], [0.0], [0.9999999999999999]), _told("bf16", [1.0], [2.0], [1.0078125]), _told("f16", [1.0], [2.0], [1.0009765625])],
    "neg": lambda: [_one("f32", _EDGES, [-x for x in _EDGES]), _one("i8", _I8, [-128, 1, 0, -1, -127], note="the least wraps"), _one("u8", [0, 1, 255], [0, 255, 1]), _one("u64", [1], [2**64 - 1]), _one("c64", [1 - 2j], [-1 + 2j]), _one("bf16", [1.5], [-1.5])],
    "abs": lambda: [_one("f32", _EDGES, [0, 0, 1, 1, 0.5, 2.5, INF, INF, NAN]), _one("i8", _I8, [-128, 1, 0, 1, 127]), _one("u8", [0, 255], [0, 255]), _one("c64", [3 + 4j], [5.0], "f32"), _one("bf16", [-1.5], [1.5])],
    "sign": lambda: [_one("f32", _EDGES, [0.0, -0.0, 1, -1, 1, -1, 1, -1, NAN]), _one("i8", _I8, [-1, -1, 0, 1, 1]), _one("u64", [0, 2**63], [0, 1]), _one("c64", [3 + 4j, 0], [0.6 + 0.8j, 0]), _one("bf16", [-1.5], [-1])],
    "square": lambda: [*_plain(-2, 2), _one("i8", [12, -3], [-112, 9]), _one("c64", [1 + 2j], [-3 + 4j]), _one("u64", [2**32], [0])],
    "integer_pow": lambda: [_one("f32", [2.0, -2.0, NAN], [8.0, -8.0, NAN], y=3), _one("f32", [2.0, 0.0], [0.25, INF], y=-2), _one("f32", [0.0, NAN], [1.0, 1.0], y=0), _one("i8", [3, -2], [-13, -32], y=5), _one("bf16", [1.5], [2.25], y=2), _one("c64", [1 + 1j], [2j], y=2)],
    "ceil": lambda: [_one("f32", [1.5, -1.5, -0.5, INF, NAN], [2, -1, -0.0, INF, NAN]), _one("f64", [0.1], [1]), _one("bf16", [1.5], [2])],
    "floor": lambda: [_one("f32", [1.5, -1.5, -0.0, INF, NAN], [1, -2, -0.0, INF, NAN]), _one("f64", [-0.1], [-1]), _one("bf16", [1.5], [1])],
    "round": lambda: [_one(d, [0.5, 1.5, 2.5, -0.5, -1.5, 0.25], [0, 2, 2, -0.0, -2, 0], mode="even") for d in ("f32", "f64", "bf16", "f16")] + [_one(d, [0.5, 1.5, 2.5, -0.5, -1.5, 0.25], [1, 2, 3, -1, -2, 0], mode="away") for d in ("f32", "f64", "bf16")] + [_one("f32", [0.49999997, INF, NAN, 8388609.0], [0, INF, NAN, 8388609.0], mode="away")],
    "is_finite": lambda: [_one(d, _EDGES, [1, 1, 1, 1, 1, 1, 0, 0, 0], "bool") for d in ("f32", "f64", "bf16", "f16")],
    "reduce_precision": lambda: [_one("f32", [1.0, 1.2345678, 1e30, -0.0, NAN], [1.0, 1.234375, INF, -0.0, NAN], exponent_bits=5, mantissa_bits=10), _one("f64", [1.0, 1.0 + 2**-30], [1.0, 1.0], exponent_bits=8, mantissa_bits=23), _one("bf16", [1.0078125], [1.0], exponent_bits=8, mantissa_bits=3)],
    **{name: partial(_unary, name) for name in (*_UNARY_RANGES, *_FLOAT_RANGES)},
    "igamma": lambda: [example(array(d, [0.5, 1.0, 2.5, 10.0]), array(d, [0.25, 2.0, 2.5, 8.0])) for d in ("f32", "f64")] + [_told("f32", [1.0, -1.0], [0.0, 1.0], [0.0, NAN])],
    "igammac": lambda: [example(array(d, [0.5, 1.0, 2.5, 10.0]), array(d, [0.25, 2.0, 2.5, 8.0])) for d in ("f32", "f64")] + [_told("f32", [1.0, -1.0], [0.0, 1.0], [1.0, NAN])],
    "igamma_grad_a": lambda: [example(array(d, [0.5, 1.0, 2.5, 10.0]), array(d, [0.25, 2.0, 2.5, 8.0])) for d in ("f32", "f64")],
    "random_gamma_grad": lambda: [example(array(d, [0.5, 1.0, 2.5, 10.0]), array(d, [0.25, 2.0, 2.5, 8.0])) for d in ("f32", "f64")],
    "zeta": lambda: [example(array(d, [1.5, 2.0, 3.0, 6.0]), array(d, [1.0, 2.5, 0.5, 10.0])) for d in ("f32", "f64")] + [_told("f32", [1.0, 0.5], [2.0, 2.0], [INF, NAN])],
    "polygamma": lambda: [example(array(d, [0.0, 1.0, 2.0, 3.0]), array(d, [1.5, 2.0, 0.5, 4.0])) for d in ("f32", "f64")],
    "regularized_incomplete_beta": lambda: [example(array(d, [0.5, 2.0, 5.0, 1.0]), array(d, [1.5, 3.0, 0.5, 1.0]), array(d, [0.25, 0.6, 0.9, 0.5])) for d in ("f32", "f64")] + [example(_f32(2, 2), _f32(3, 3), _f32(0, 1), out=_f32(0, 1))],
    "and": lambda: _bits(np.bitwise_and),
    "or": lambda: _bits(np.bitwise_or),
    "xor": lambda: _bits(np.bitwise_xor),
    "not": lambda: [_one("i8", _I8, [127, 0, -1, -2, -128]), _one("u8", [0, 255, 1], [255, 0, 254]), _one("bool", [0, 1], [1, 0]), _one("u64", [0], [2**64 - 1]), _one("i4", [-8, 0], [7, -1])],
    "shift_left": lambda: [_told("i32", [1, 1, 1, -1, 3], [0, 31, 32, 1, -1], [1, -(2**31), 0, -2, 0], note="past the width gives 0"), _told("u8", [255, 1], [4, 8], [240, 0]), _told("u64", [1, 1], [63, 64], [2**63, 0]), _told("i4", [1, 1], [3, 4], [-8, 0])],
    "shift_right_logical": lambda: [_told("i32", [-1, -1, -1, 8, 8], [1, 31, 32, 2, -1], [2**31 - 1, 1, 0, 2, 0]), _told("u8", [255, 255], [4, 8], [15, 0]), _told("u64", [2**64 - 1], [63], [1]), _told("i8", [-128], [7], [1])],
    "shift_right_arithmetic": lambda: [_told("i32", [-8, -8, 8, -8, 8], [1, 32, 32, -1, -1], [-4, -1, 0, -1, 0], note="past the width gives the sign"), _told("u8", [240, 255], [4, 9], [255, 255]), _told("i64", [-(2**63)], [63], [-1])],
    "population_count": lambda: [_one("i8", _I8, [1, 8, 0, 1, 7]), _one("u32", [0, 2**32 - 1], [0, 32]), _one("i64", [-1, 5], [64, 2]), _one("u64", [2**64 - 1], [64])],
    "clz": lambda: [_one("i8", _I8, [0, 0, 8, 7, 1]), _one("u32", [0, 1, 2**31], [32, 31, 0]), _one("i64", [1, -1, 0], [63, 0, 64]), _one("u16", [255], [8])],
    "mulhi": lambda: [_told("u32", [2**32 - 1, 3], [2**32 - 1, 5], [2**32 - 2, 0]), _told("i32", [-(2**31), -1], [2, 1], [-1, -1]), _told("u64", [2**64 - 1], [2**64 - 1], [2**64 - 2]), _told("i64", [-(2**63), 2**62], [4, 4], [-2, 1]), _told("i8", [-128], [-128], [64])],
    **{name: partial(_compare, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "eq_to": lambda: _total([False, True, False, False, False]),
    "lt_to": lambda: _total([True, False, False, True, True]),
    "le_to": lambda: _total([True, True, False, True, True]),
    "select": lambda: [
        example(array("bool", [0, 1, 0]), _f32(1, 2, 3), _f32(10, NAN, 30), out=_f32(1, NAN, 3), note="False takes the first case"),
        example(array("bool", True), array("i64", [1, 2]), array("i64", [3, 4]), out=array("i64", [3, 4]), note="one choice for all"),
        example(array("i32", [0, 2, 9, -1]), *(array("f32", [k] * 4) for k in range(3)), out=_f32(0, 2, 2, 0), note="clamped"),
        example(array("i32", 1), *(array("bf16", [k, k]) for k in range(3)), out=array("bf16", [1, 1])),
        example(array("bool", [0, 1]), array("bool", [1, 1]), array("bool", [0, 0]), out=array("bool", [1, 0])),
        example(array("bool", [0, 1]), array("c64", [1j, 2]), array("c64", [3, 4j]), out=array("c64", [1j, 4j])),
    ],
    "clamp": lambda: [
        example(_f32(0.0)[0], _f32(-1, 0.5, 2, NAN), _f32(1.0)[0], out=_f32(0, 0.5, 1, NAN)),
        example(array("i32", [0, 5]), array("i32", [-3, 3]), array("i32", [2, 4]), out=array("i32", [0, 4]), note="high wins when bounds cross"),
        example(_f32(NAN)[0], _f32(1, 2), _f32(3.0)[0], out=_f32(NAN, NAN)), example(array("u8", 10), array("u8", [0, 20]), array("u8", 15), out=array("u8", [10, 15])),
        example(array("bf16", -1), array("bf16", [-2, 2]), array("bf16", 1), out=array("bf16", [-1, 1])),
    ],
    "convert": lambda: [
        _one("f32", [1.9, -1.9, NAN, 300.0, -300.0, INF], [1, -1, 0, 127, -128, 127], "i8", "saturates; NaN gives 0", dtype="i8"),
        _one("f32", [1.9, -1.9, 300.0], [1, 0, 255], "u8", dtype="u8"), _one("f32", [1e20, -1e20], [2**63 - 1, -(2**63)], "i64", dtype="i64"),
        _one("f64", [3e9, -3e9, 2.5], [2**31 - 1, -(2**31), 2], "i32", dtype="i32"), _one("i32", [300, -1, 255], [44, -1, -1], "i8", "wraps", dtype="i8"),
        _one("i8", [-1], [2**64 - 1], "u64", dtype="u64"), _one("u64", [2**64 - 1], [-1], "i32", dtype="i32"), _one("f32", [0.0, -0.0, NAN, 0.5], [0, 0, 1, 1], "bool", dtype="bool"),
        _one("bool", [0, 1], [0, 1], "bf16", dtype="bf16"), _one("f32", [1.00390625, 1.01171875], [1.0, 1.015625], "bf16", "halves to even", dtype="bf16"),
        _one("f64", [1e300, 1.0], [INF, 1.0], "f32", dtype="f32"), _one("f32", [70000.0, 1e-8], [INF, 0.0], "f16", dtype="f16"), _one("c64", [1 + 2j], [1.0], "f32", dtype="f32"),
        _one("f32", [1.5], [1.5], "c64", dtype="c64"), _one("u64", [2**63], [2.0**63], "f64", dtype="f64"), _one("f32", [7.6, -9.0], [7, -8], "i4", dtype="i4"), _one("i4", [-8, 7], [-8, 7], "i32", dtype="i32"),
        _one("f32", [1.0, 0.3, -2.0], [1.0, 0.3125, -2.0], "f8e4m3fn", dtype="f8e4m3fn"), _one("f8e5m2", [1.5, -0.25], [1.5, -0.25], "f32", dtype="f32"), _one("bf16", [1.5, NAN], [1, 0], "i32", dtype="i32"),
    ],
    "bitcast": lambda: [
        _one("f32", [1.0, -0.0], [0x3F800000, 0x80000000], "u32", dtype="u32"), _one("i32", [0x3F800000], [1.0], "f32", dtype="f32"), _one("u32", [0x04030201], [[1, 2, 3, 4]], "u8", "low byte first", dtype="u8"),
        _one("u8", [[1, 2], [3, 4]], [0x0201, 0x0403], "u16", dtype="u16"), _one("f64", [1.0], [0x3FF0000000000000], "i64", dtype="i64"), _one("bf16", [1.0], [0x3F80], "u16", dtype="u16"), _one("i8", [-1], [255], "u8", dtype="u8"),
        _one("u64", [2**63 + 5], [[5, 2**31]], "u32", dtype="u32"),
    ],
    "complex": lambda: [example(_f32(1, 0), _f32(2, -0.0), out=array("c64", [1 + 2j, 0])), example(array("f64", [1]), array("f64", [INF]))],
    "real": lambda: [_one("c64", [1 + 2j, -3j], [1, 0], "f32"), _one("c128", [1 + 2j], [1], "f64")],
    "imag": lambda: [_one("c64", [1 + 2j, -3j], [2, -3], "f32"), _one("c128", [1 + 2j], [2], "f64")],
    "conj": lambda: [_one("c64", [1 + 2j, -3j], [1 - 2j, 3j]), _one("c128", [1 + 2j], [1 - 2j])],
    "copy": lambda: [_one("f32", _EDGES, _EDGES), _one("i8", _I8, _I8)],
    "optimization_barrier": lambda: [example(_f32(1), array("i8", [2]), out=(_f32(1), array("i8", [2]))), example(_f32(1), out=_f32(1))],
    "stop_gradient": lambda: [_one("f32", _EDGES, _EDGES)],
}  # fmt: skip
