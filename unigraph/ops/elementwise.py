"""Elementwise ops: one element out for each element in, no broadcasting, no promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes import BOOL, COMPLEX, FLOAT, INT, KEY, UINT, DType, bool_
from ..opdef import Attr, OpDef, family, require
from ..types import TensorType, same_shape

NUMERIC = (INT, UINT, FLOAT, COMPLEX)
REAL = (INT, UINT, FLOAT)
INEXACT = (FLOAT, COMPLEX)
BITS = (BOOL, INT, UINT)
INTEGER = (INT, UINT)
ANY = (BOOL, INT, UINT, FLOAT, COMPLEX)

Rule = Callable[..., TensorType]


def _kinds(name: str, t: TensorType, kinds: tuple[str, ...]) -> None:
    if t.dtype.kind in kinds:
        return
    require(False, f"{name}_c1", f"takes {', '.join(kinds)}, not {t.dtype}; convert first")


def _same(name: str, *types: TensorType) -> None:
    first = types[0]
    for t in types[1:]:
        if t is first or (t.dtype is first.dtype and t.shape == first.shape):
            continue  # the usual case, before any message is made
        require(t.dtype is first.dtype, f"{name}_c2", f"operands must share a dtype: {first} and {t}; convert one")
        require(
            t.shape == first.shape or same_shape(t.shape, first.shape),
            f"{name}_c3",
            f"operands must share a shape: {first} and {t}; use broadcast_in_dim",
        )


def _like(name: str, kinds: tuple[str, ...], result: Callable[[DType], DType] | None = None) -> Rule:
    """The type rule of a family: same dtype and shape for all operands; ``result`` maps the dtype."""

    def infer(*types: TensorType, **attrs: Any) -> TensorType:
        first = types[0]
        _kinds(name, first, kinds)
        if len(types) > 1:
            _same(name, *types)
        return first if result is None else first.with_(result(first.dtype))

    return infer


_op = family("elementwise")


def _family(words: str) -> Callable[..., OpDef]:
    def make(
        name: str,
        kinds: tuple[str, ...],
        doc: str,
        operands: str = "x",
        attrs: dict[str, Attr] | None = None,
        result: Callable[[DType], DType] | None = None,
        also: str = "",
    ) -> OpDef:
        return _op(name, operands, _like(name, kinds, result), doc, attrs, f"elementwise {words} {also}")

    return make


unary, binary = _family("unary"), _family("binary")


def _binary(name: str, kinds: tuple[str, ...], doc: str, **options: Any) -> OpDef:
    return binary(name, kinds, doc, operands="x, y", **options)


# -- arithmetic ----------------------------------------------------------------------------------
add = _binary(
    "add", (*NUMERIC, BOOL), "x + y. Integers wrap around; on bool it is `or`.", also="commutative associative"
)
sub = _binary("sub", NUMERIC, "x - y. Integers wrap around.")
mul = _binary(
    "mul", (*NUMERIC, BOOL), "x * y. Integers wrap around; on bool it is `and`.", also="commutative associative"
)
div = _binary(
    "div",
    NUMERIC,
    "x / y. Integers round toward zero; x / 0 is -1 for signed integers and the largest value for "
    "unsigned; the smallest signed integer divided by -1 is itself.",
)
rem = _binary(
    "rem", REAL, "Remainder with the sign of x (C fmod). Integers: x rem 0 is x; the smallest value rem -1 is 0."
)
max = _binary(
    "max",
    (*NUMERIC, BOOL),
    "Larger of the two; NaN if either is NaN; +0.0 beats -0.0; complex: lexicographic.",
    also="commutative associative",
)
min = _binary(
    "min",
    (*NUMERIC, BOOL),
    "Smaller of the two; NaN if either is NaN; -0.0 beats +0.0; complex: lexicographic.",
    also="commutative associative",
)
pow = _binary("pow", INEXACT, "x to the power y, IEEE 754 pow: pow(x, 0) = 1 and pow(1, y) = 1 even for NaN.")
atan2 = _binary("atan2", INEXACT, "Angle of the point (y, x) given as atan2(x=ordinate, y=abscissa), in (-pi, pi].")
nextafter = _binary("nextafter", (FLOAT,), "The next representable number after x in the direction of y.")
neg = unary("neg", NUMERIC, "-x. The smallest signed integer is its own negative; unsigned wraps.")
abs = unary(
    "abs", NUMERIC, "Magnitude; real for complex. The smallest signed integer stays itself.", result=lambda d: d.real
)
sign = unary("sign", NUMERIC, "-1, 0 or 1; keeps -0.0 and NaN; x / |x| for complex (0 for 0).")
square = unary("square", NUMERIC, "x * x.")
integer_pow = unary(
    "integer_pow",
    NUMERIC,
    "x to a constant whole power y; negative y only for inexact types.",
    attrs={"y": Attr("int", doc="the power")},
)

# -- rounding ------------------------------------------------------------------------------------
ceil = unary("ceil", (FLOAT,), "Smallest whole number not below x.")
floor = unary("floor", (FLOAT,), "Largest whole number not above x.")
round = unary(
    "round",
    (FLOAT,),
    "Nearest whole number; halves go away from zero or to even.",
    attrs={"mode": Attr("str", "even", "where halves go", ("even", "away"))},
)
is_finite = unary("is_finite", (FLOAT,), "True unless x is NaN or infinite.", result=lambda d: bool_)
reduce_precision = unary(
    "reduce_precision",
    (FLOAT,),
    "x rounded (half to even) to a float with fewer exponent and mantissa bits; overflow gives infinity.",
    attrs={"exponent_bits": Attr("int", doc=">= 1"), "mantissa_bits": Attr("int", doc=">= 0, without the hidden bit")},
)

# -- powers, exponentials, logarithms ------------------------------------------------------------
_INEXACT_UNARY = {
    "exp": "e to the x.",
    "exp2": "2 to the x.",
    "expm1": "exp(x) - 1, exact near 0.",
    "log": "Natural logarithm; NaN below 0, -inf at 0 for reals.",
    "log1p": "log(1 + x), exact near 0.",
    "sqrt": "Square root; NaN below 0 for reals; sqrt(-0.0) is -0.0.",
    "rsqrt": "1 / sqrt(x); +inf at +0.0.",
    "sin": "Sine of x in radians.",
    "cos": "Cosine of x in radians.",
    "tan": "Tangent of x in radians.",
    "asin": "Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].",
    "acos": "Inverse cosine, in [0, pi]; NaN outside [-1, 1].",
    "atan": "Inverse tangent, in [-pi/2, pi/2].",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "tanh": "Hyperbolic tangent.",
    "asinh": "Inverse hyperbolic sine.",
    "acosh": "Inverse hyperbolic cosine; NaN below 1 for reals.",
    "atanh": "Inverse hyperbolic tangent; infinite at -1 and 1.",
    "logistic": "1 / (1 + exp(-x)), without overflow.",
}
_FLOAT_UNARY = {
    "cbrt": "Real cube root.",
    "erf": "Error function.",
    "erfc": "1 - erf(x), exact for large x.",
    "erf_inv": "Inverse error function; infinite at -1 and 1, NaN outside.",
    "lgamma": "log |gamma(x)|; +inf at 0 and negative whole numbers.",
    "digamma": "Derivative of lgamma; NaN at 0 and negative whole numbers.",
    "bessel_i0e": "exp(-|x|) I0(x), modified Bessel function of order 0.",
    "bessel_i1e": "exp(-|x|) I1(x), modified Bessel function of order 1.",
}
for _name, _doc in _INEXACT_UNARY.items():
    globals()[_name] = unary(_name, INEXACT, _doc)
for _name, _doc in _FLOAT_UNARY.items():
    globals()[_name] = unary(_name, (FLOAT,), _doc)

# -- special functions of several arguments ------------------------------------------------------
igamma = binary("igamma", (FLOAT,), "Regularised lower incomplete gamma function P(a, x).", operands="a, x")
igammac = binary(
    "igammac", (FLOAT,), "Regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x).", operands="a, x"
)
igamma_grad_a = binary("igamma_grad_a", (FLOAT,), "Derivative of igamma(a, x) in a.", operands="a, x")
random_gamma_grad = binary(
    "random_gamma_grad",
    (FLOAT,),
    "Derivative in a of a Gamma(a) sample x (implicit reparameterisation, Figurnov et al. 2018).",
    operands="a, x",
)
zeta = _binary("zeta", (FLOAT,), "Hurwitz zeta function, the sum over k >= 0 of (k + y)^-x.")
polygamma = binary(
    "polygamma", (FLOAT,), "m-th derivative of digamma at x; m is a whole number held in a float.", operands="m, x"
)
regularized_incomplete_beta = _family("ternary")(
    "regularized_incomplete_beta", (FLOAT,), "I_x(a, b), the regularised incomplete beta function.", operands="a, b, x"
)

# -- bits ----------------------------------------------------------------------------------------
and_ = _binary("and", BITS, "Bitwise (logical on bool) and.", also="commutative associative")
or_ = _binary("or", BITS, "Bitwise (logical on bool) or.", also="commutative associative")
xor = _binary("xor", BITS, "Bitwise (logical on bool) exclusive or.", also="commutative associative")
not_ = unary("not", BITS, "Bitwise (logical on bool) complement.")
shift_left = _binary("shift_left", INTEGER, "x << y; 0 when y is negative or at least the width.")
shift_right_logical = _binary(
    "shift_right_logical", INTEGER, "x >> y filling with zeros; 0 when y is negative or at least the width."
)
shift_right_arithmetic = _binary(
    "shift_right_arithmetic",
    INTEGER,
    "x >> y filling with the sign bit; all sign bits when y is negative or at least the width.",
)
population_count = unary("population_count", INTEGER, "Number of bits set.")
clz = unary("clz", INTEGER, "Number of leading zero bits; the width for 0.")
mulhi = _binary("mulhi", INTEGER, "High half of the double-width product.", also="commutative")

# -- comparison and choice -----------------------------------------------------------------------
_COMPARE = {
    "eq": ("x == y; NaN equals nothing.", ANY),
    "ne": ("x != y; NaN differs from everything.", ANY),
    "lt": ("x < y; False with NaN; complex: lexicographic.", ANY),
    "le": ("x <= y; False with NaN; complex: lexicographic.", ANY),
    "gt": ("x > y; False with NaN; complex: lexicographic.", ANY),
    "ge": ("x >= y; False with NaN; complex: lexicographic.", ANY),
    "eq_to": ("x == y in IEEE 754 total order (-NaN < -inf < -0.0 < +0.0 < +inf < +NaN).", (FLOAT,)),
    "lt_to": ("x < y in IEEE 754 total order.", (FLOAT,)),
    "le_to": ("x <= y in IEEE 754 total order.", (FLOAT,)),
}
for _name, (_doc, _kind) in _COMPARE.items():
    globals()[_name] = _binary(_name, _kind, _doc, result=lambda d: bool_, also="compare")


def _select(which: TensorType, *cases: TensorType) -> TensorType:
    require(cases, "select_c1", "needs at least one case")
    for case in cases[1:]:
        require(
            case.dtype is cases[0].dtype and same_shape(case.shape, cases[0].shape),
            "select_c2",
            f"cases must share a type: {cases[0]} and {case}",
        )
    wanted = "bool" if len(cases) <= 2 else "i32"
    require(
        which.dtype.name in (wanted, "i32"),
        "select_c3",
        f"which must be {wanted} for {len(cases)} cases, not {which.dtype}",
    )
    require(
        which.rank == 0 or same_shape(which.shape, cases[0].shape),
        "select_c4",
        f"which must be a scalar or shaped like the cases: {which} and {cases[0]}",
    )
    return cases[0]


select = _op(
    "select",
    "which, *cases",
    _select,
    "Case number `which`, elementwise: with two cases, False takes the first and True the second "
    "(the order of lax.select_n). `which` out of range is clamped.",
    words="select",
)


def _clamp(low: TensorType, x: TensorType, high: TensorType) -> TensorType:
    for bound in (low, high):
        require(bound.dtype is x.dtype, "clamp_c1", f"bounds must have the dtype of x: {bound} and {x}")
        require(
            bound.rank == 0 or same_shape(bound.shape, x.shape),
            "clamp_c2",
            f"bounds must be scalars or shaped like x: {bound} and {x}",
        )
    return x


clamp = _op(
    "clamp",
    "low, x, high",
    _clamp,
    "min(max(x, low), high), elementwise; NaN in any operand gives NaN.",
    words="clamp",
)

# -- types ---------------------------------------------------------------------------------------


def _convert(x: TensorType, dtype: DType) -> TensorType:
    require(x.dtype.kind != KEY and dtype.kind != KEY, "convert_c1", "keys do not convert; use rng_unwrap and rng_wrap")
    return x.with_(dtype)


convert = _op(
    "convert",
    "x",
    _convert,
    "x in another dtype. Float to integer truncates toward zero, saturates out of range, and NaN "
    "gives 0; integer to integer wraps; to bool is x != 0; complex to real drops the imaginary part; "
    "to a shorter float rounds half to even.",
    attrs={"dtype": Attr("dtype", doc="the new dtype")},
    words="elementwise unary",
)


def _bitcast(x: TensorType, dtype: DType) -> TensorType:
    require(x.dtype.kind != KEY and dtype.kind != KEY, "bitcast_c1", "keys do not bitcast; use rng_unwrap")
    old, new = x.dtype.bits, dtype.bits
    if old == new:
        return x.with_(dtype)
    if old > new:
        require(old % new == 0, "bitcast_c2", f"{x.dtype} does not split into {dtype}")
        return TensorType(dtype, (*x.shape, old // new))
    require(
        x.rank > 0 and x.shape[-1] == new // old and new % old == 0,
        "bitcast_c3",
        f"the last axis must be {new // old} to join {x} into {dtype}",
    )
    return TensorType(dtype, x.shape[:-1])


bitcast = _op(
    "bitcast",
    "x",
    _bitcast,
    "The same bits read as another dtype. A wider dtype takes the last axis away, a narrower one adds "
    "one; the least significant part comes first.",
    attrs={"dtype": Attr("dtype", doc="the new dtype")},
)

complex_ = _op(
    "complex",
    "re, im",
    _like("complex", (FLOAT,), lambda d: _to_complex(d)),
    "re + i im; f32 gives c64, f64 gives c128.",
    words="elementwise binary",
)
real = unary("real", (COMPLEX,), "Real part.", result=lambda d: d.real)
imag = unary("imag", (COMPLEX,), "Imaginary part.", result=lambda d: d.real)
conj = unary("conj", (COMPLEX,), "Complex conjugate.")


def _to_complex(d: DType) -> DType:
    from ..dtypes import c64, c128

    require(d.name in ("f32", "f64"), "complex_c4", f"parts must be f32 or f64, not {d}")
    return c64 if d.name == "f32" else c128


# -- values that only mark something --------------------------------------------------------------
copy = _op(
    "copy",
    "x",
    lambda x: x,
    "x itself; says that the result is not to share memory.",
    words="identity",
)
optimization_barrier = _op(
    "optimization_barrier",
    "*xs",
    lambda *xs: xs,
    "The operands themselves; passes move nothing across.",
    words="identity tuple",
)
stop_gradient = _op(
    "stop_gradient",
    "x",
    lambda x: x,
    "x itself, with derivative zero.",
    words="identity",
)
