"""``jax.numpy``: functions of each element."""

from __future__ import annotations

from . import Table, call, rows

_P = "jax.numpy"
_REAL = (call("f32[3,4]"), call("i32[5]"), call("f64[6]"))
_COMPLEX = (call("c64[3,2]"),)
_REAL2 = (call("f32[3,4]", "f32[4]"), call("i32[3,1]", "f32[2]"), call("f32[3]", 2))
_INTEGER2 = (call("i32[3,4]", "i32[4]"), call("u8[5]", "u8[5]"), call("i32[4]", 3))

TABLE: Table = {
    **rows(_P, "abs absolute negative positive sign square conj conjugate real imag angle", *_REAL, *_COMPLEX),
    **rows(
        _P,
        "sin cos tan sinh cosh tanh arctan atan arcsinh asinh exp exp2 expm1 log log1p log2 log10 sqrt sinc rint",
        *_REAL,
        *_COMPLEX,
    ),
    **rows(_P, "arcsin asin arccos acos arctanh atanh", call("f32[3,4]u"), call("i32[5]"), *_COMPLEX),
    **rows(_P, "arccosh acosh", call("f32[3,4]h"), call("i32[5]+"), *_COMPLEX),
    **rows(_P, "cbrt deg2rad rad2deg degrees radians fabs i0 ceil floor trunc", *_REAL),
    **rows(_P, "reciprocal", call("f32[3,4]+"), call("c64[3]")),
    **rows(_P, "spacing", call("f32[3,4]"), call("f64[3]")),
    **rows(_P, "round around", *_REAL, call("f32[3,4]", decimals=2), call("i32[5]", decimals=-1)),
    **rows(_P, "isfinite isinf isnan iscomplex isreal logical_not", call("f32[3,4]n"), call("i32[5]"), *_COMPLEX),
    **rows(_P, "isneginf isposinf signbit", call("f32[3,4]n"), call("i32[5]")),
    **rows(_P, "bitwise_not bitwise_invert invert bitwise_count", call("i32[3,4]"), call("u8[5]")),
    **rows(_P, "frexp", call("f32[3,4]")),
    **rows(_P, "modf", call("f32[3,4]")),
    **rows(_P, "nan_to_num", call("f32[3,4]n"), call("f32[3,4]n", nan=2.0, posinf=1.0), call("i32[3]")),
    **rows(_P, "unwrap", call("f32[3,8]"), call("f32[8]", period=4.0), call("f32[8,2]", axis=0, discont=3.5)),
    **rows(_P, "add subtract multiply", *_REAL2, *_INTEGER2, call("c64[3]", "f32[2,3]"), call("bf16[4]", "i32[4]")),
    **rows(_P, "maximum minimum fmax fmin", *_REAL2, *_INTEGER2, call("f32[3,4]n", "f32[4]n")),
    **rows(_P, "divide true_divide", *_REAL2, call("i32[4]", "i32[4]+"), call("c64[3]", "c64[3]")),
    **rows(
        _P,
        "floor_divide mod remainder fmod divmod",
        call("f32[3,4]", "f32[4]"),
        call("i32[3,4]", "i32[4]+"),
        call("i32[5]", -3),
        call("u8[4]", "u8[4]+"),
    ),
    **rows(
        _P,
        "power pow",
        call("f32[3,4]+", "f32[4]"),
        call("f32[3]", 3),
        call("i32[4]", "i32[4]+"),
        call("i32[4]", 2),
        call("c64[3]", "c64[3]"),
        call("f32[4]", "i32[4]"),
        call("f32[4]+", 0.5),
    ),
    **rows(_P, "float_power", call("f32[3,4]+", "f32[4]"), call("i32[4]+", "i32[4]+")),
    **rows(_P, "arctan2 atan2 copysign hypot logaddexp logaddexp2 heaviside nextafter", *_REAL2[:2]),
    **rows(_P, "logaddexp logaddexp2", *_REAL2[:2], call("c64[3]", "c64[3]")),
    **rows(_P, "ldexp", call("f32[3,4]", "i32[4]")),
    **rows(
        _P,
        "equal not_equal greater greater_equal less less_equal",
        *_REAL2,
        *_INTEGER2,
        call("c64[3]", "c64[3]"),
        call("bool[4]", "bool[4]"),
    ),
    **rows(_P, "logical_and logical_or logical_xor", *_REAL2, call("bool[3,4]", "bool[4]")),
    **rows(_P, "bitwise_and bitwise_or bitwise_xor", *_INTEGER2, call("bool[4]", "bool[4]")),
    **rows(
        _P,
        "left_shift right_shift bitwise_left_shift bitwise_right_shift",
        call("i32[3,4]", "i32[4]<8"),
        call("u8[4]", "u8[4]<4"),
    ),
    **rows(_P, "gcd lcm", *_INTEGER2),
    **rows(_P, "isclose", call("f32[3,4]", "f32[4]"), call("f32[3]n", "f32[3]n", equal_nan=True)),
    **rows(_P, "allclose array_equal array_equiv", call("f32[3,4]", "f32[3,4]"), call("i32[4]<2", "i32[4]<2")),
    **rows(_P, "clip", call("f32[3,4]", -1, 1), call("i32[5]", min=0), call("f32[3,4]", "f32[4]", None)),
    **rows(
        _P,
        "where",
        call("bool[3,4]", "f32[4]", "f32[3,1]"),
        call("f32[4]", 1, 0.5),
        call("bool[6]", size=4),
        call("bool[2,3]", size=4, fill_value=-1),
    ),
    **rows(_P, "select", call(["bool[4]", "bool[4]"], ["f32[4]", "f32[4]"], 7.0)),
    **rows(
        _P, "piecewise", call("f32[8]").through(lambda f, x: f(x, [x < 0, x > 1], [lambda v: -v, 3.0, lambda v: v * v]))
    ),
    **rows(_P, "choose", call("i32[4]<3", ["f32[4]", "f32[4]", "f32[4]"], mode="clip")),
    **rows(
        _P,
        "vectorize",
        call("f32[3,4]", "f32[4]").through(lambda f, x, y: f(lambda a, b: a @ b, signature="(n),(n)->()")(x, y)),
    ),
    **rows(
        _P,
        "frompyfunc",
        call("f32[3,4]").through(lambda f, x: f(lambda a, b: a + b, 2, 1, identity=0).reduce(x, axis=1)),
    ),
}
