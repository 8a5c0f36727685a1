"""Lowering rows of elementwise primitives, and of those that mean nothing but their operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unigraph.dtypes import dtype
from unigraph.graph import Value
from unigraph.ops import elementwise as ops

from . import compat
from .lower import JaxprBuilder, Row
from .rows_movement import with_keys

# Primitives whose op has the same name; operands are spread to the output's shape.
_SAME = (
    "add sub mul div rem atan2 nextafter neg abs sign square ceil floor is_finite exp exp2 expm1 log "
    "log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh logistic cbrt erf erfc erf_inv "
    "lgamma digamma bessel_i0e bessel_i1e igamma igammac igamma_grad_a random_gamma_grad zeta polygamma "
    "regularized_incomplete_beta shift_left shift_right_logical shift_right_arithmetic population_count clz mulhi "
    "and or xor not eq ne lt le gt ge eq_to lt_to le_to complex real imag stop_gradient"
)

# Primitives that only say something about placement, naming or sharing.
_IDENTITIES = (
    "copy copy_p name pvary pcast reshard mesh_cast sharding_constraint layout_constraint pin unpin stage "
    "reduced_vary_cast_p vary_unreduced_cast_p random_clone with_memory_space_constraint device_put pbroadcast"
)


def elementwise(name: str) -> Row:
    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> Value:
        shape = b.type_of(eqn.outvars[0]).shape
        return b.op(name, *b.spread(shape, values))

    return row


def _with(name: str, **read: str) -> Row:
    """A unary row that passes parameters on under the op's own attribute names."""

    def row(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
        return b.op(name, x, **{attr: eqn.params[param] for attr, param in read.items()})

    return row


def _mul(b: JaxprBuilder, eqn: Any, *values: Value) -> Value:
    out = b.type_of(eqn.outvars[0])
    return b.op("mul", *b.spread(out.shape, [b.cast(v, out.dtype) for v in values]))


def _extremum(name: str, beyond: str) -> Row:
    plain = elementwise(name)

    def row(b: JaxprBuilder, eqn: Any, x: Value, y: Value) -> Value:
        out = b.type_of(eqn.outvars[0])
        if not out.dtype.is_complex:
            return plain(b, eqn, x, y)
        # JAX compares lexicographically and takes the second where that fails, for NaN too.
        x, y = b.spread(out.shape, (x, y))
        return b.op("select", b.op(beyond, x, y), y, x)

    return row


def _pow(b: JaxprBuilder, eqn: Any, x: Value, y: Value) -> Value:
    out = b.type_of(eqn.outvars[0])
    return b.op("pow", *b.spread(out.shape, (x, b.cast(y, out.dtype))))


def _round(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.op("round", x, mode="away" if int(eqn.params["rounding_method"]) == 0 else "even")


def _convert(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.cast(x, b.type_of(eqn.outvars[0]).dtype)


def _bitcast(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    kind = b.type_of(eqn.outvars[0]).dtype
    return x if x.type.dtype is kind else b.op("bitcast", x, dtype=kind)


def _conj(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    if not x.type.dtype.is_complex:
        x = b.op("complex", x, b.full_like(x, 0))
    return b.op("conj", x)


def _select(b: JaxprBuilder, eqn: Any, which: Value, *cases: Value) -> Value:
    if which.type.dtype.name not in ("bool", "i32"):
        which = b.cast(which, dtype("i32"))
    return b.op("select", which, *cases)


def _clamp(b: JaxprBuilder, eqn: Any, low: Value, x: Value, high: Value) -> Value:
    return b.op("clamp", low, x, high)


def _identity(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    return values


def _barrier(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
    # Keys cannot be copied about by an engine's barrier; nothing is lost by passing them by.
    plain = [v for v in values if not v.type.dtype.is_key]
    held = iter(b.run(ops.optimization_barrier, plain, ()) if plain else ())
    return tuple(v if v.type.dtype.is_key else next(held) for v in values)


def _dim_as_value(b: JaxprBuilder, eqn: Any) -> Value:
    return b.size(compat.dim(eqn.params["dim"]), b.type_of(eqn.outvars[0]).dtype)


def _dimension_size(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    return b.size(x.type.shape[eqn.params["dimension"]], b.type_of(eqn.outvars[0]).dtype)


def _log2(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    log, scale = b.op("log", x), 1.4426950408889634
    if not x.type.dtype.is_complex:
        return b.op("mul", log, b.full_like(log, scale))
    parts = (b.op("real", log), b.op("imag", log))
    return b.op("complex", *(b.op("mul", part, b.full_like(part, scale)) for part in parts))


def _one_minus_square(b: JaxprBuilder, eqn: Any, x: Value) -> Value:
    one = b.full_like(x, 1)
    return b.op("mul", b.op("add", one, x), b.op("sub", one, x))


def _polynomial(b: JaxprBuilder, eqn: Any, x: Value, *coefficients: Value) -> Value:
    """Horner's rule; the constant term comes first."""
    x, *coefficients = b.spread(b.type_of(eqn.outvars[0]).shape, (x, *coefficients))  # type: ignore[assignment]
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = b.op("add", b.op("mul", total, x), c)
    return total


ROWS: Mapping[str, Callable[..., Any]] = {
    **{name: elementwise(name) for name in _SAME.split()},
    **dict.fromkeys(_IDENTITIES.split(), _identity),
    "max": _extremum("max", "gt"),
    "min": _extremum("min", "lt"),
    "add_any": elementwise("add"),
    "mul": _mul,
    "pow": _pow,
    "integer_pow": _with("integer_pow", y="y"),
    "reduce_precision": _with("reduce_precision", exponent_bits="exponent_bits", mantissa_bits="mantissa_bits"),
    "round": _round,
    "log2": _log2,
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "conj": _conj,
    "select_n": with_keys("select_n", _select),
    "clamp": _clamp,
    "optimization_barrier": _barrier,
    "tie": lambda b, eqn, x, y: y,
    "dim_as_value": _dim_as_value,
    "dimension_size": _dimension_size,
}
