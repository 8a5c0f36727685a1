"""Rows of the ONNX export for complex operands or results, on pairs of reals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi
from typing import Any

import numpy as np

from unigraph.dtypes import DType, bool_, f64
from unigraph.errors import Unsupported
from unigraph.evaluate import Row
from unigraph.opdef import OpDef, registry
from unigraph.ops import contract as c
from unigraph.ops import control
from unigraph.ops import elementwise as e
from unigraph.ops import index as ix
from unigraph.ops import linalg as la
from unigraph.ops import movement as m
from unigraph.ops import reduce as r
from unigraph.ops import sort as s

from . import (
    export_contract,
    export_elementwise,
    export_index,
    export_linalg,
    export_movement,
    export_reduce,
    export_spectral,
)
from .complex_emitter import flat, over_complex, wholes
from .complex_handles import (
    PARTS,
    Complex,
    bilinear,
    choose,
    constant,
    divide,
    from_real,
    joined,
    magnitude,
    on_parts,
    parted,
)
from .emitter import Emitter
from .export_control import ROWS as CONTROL_ROWS
from .export_control import inlined
from .export_elementwise import convert, number
from .export_reduce import window_reducer
from .export_sort import ROWS as SORT_ROWS
from .handles import Array

REAL: dict[OpDef, Row] = {
    op: row
    for part in (
        *(export_elementwise, export_movement, export_index, export_reduce),
        *(export_contract, export_linalg, export_spectral),
    )
    for op, row in part.ROWS.items()
}


def _on_reals(name: str) -> Callable[..., Array]:
    """An elementwise op on real arrays."""
    row = REAL[registry()[name]]
    return lambda *xs, **attrs: row(xs[0].o, *xs, **attrs)


exp, expm1, log, log1p, sqrt = map(_on_reals, ("exp", "expm1", "log", "log1p", "sqrt"))
sin, cos, sinh, cosh, tanh, tan = map(_on_reals, ("sin", "cos", "sinh", "cosh", "tanh", "tan"))
atan2 = _on_reals("atan2")


def like(x: Complex, value: complex) -> Complex:
    """A constant that broadcasts to x."""
    kind = x.re.dtype
    return Complex(number(x.o, value.real, kind), number(x.o, value.imag, kind))


# -- arithmetic ----------------------------------------------------------------------------------


def _sign(o: Emitter, x: Complex) -> Complex:
    size = magnitude(x)
    zero = o.Equal(size, 0)
    size = o.Where(zero, number(o, 1, size.dtype), size)
    return Complex(x.re / size, x.im / size)


def _integer_pow(o: Emitter, x: Complex, y: int) -> Complex:
    result, square, left = None, x, abs(y)
    while left:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        square = square * square if left else square
    if result is None:
        return Complex(o.expand(number(o, 1, x.re.dtype), x.shape), o.expand(number(o, 0, x.re.dtype), x.shape))
    return result if y > 0 else divide(like(x, 1), result)


def _pow(o: Emitter, x: Complex, y: Any) -> Complex:
    y = y if isinstance(y, Complex) else from_real(o, convert(o, y, x.re.dtype))
    zero = o.And(o.Equal(x.re, 0), o.Equal(x.im, 0))
    nothing = o.And(o.Equal(y.re, 0), o.Equal(y.im, 0))
    general = _exp(o, y * _log(o, choose(o, zero, like(x, 1), x)))
    at_zero = choose(o, nothing, like(x, 1), like(x, 0))
    return choose(o, zero, at_zero, general)


# -- elementary functions ------------------------------------------------------------------------


def _exp(o: Emitter, x: Complex) -> Complex:
    size = exp(x.re)
    return Complex(size * cos(x.im), size * sin(x.im))


def _exp2(o: Emitter, x: Complex) -> Complex:
    return _exp(o, x * like(x, float(np.log(2.0))))


def _expm1(o: Emitter, x: Complex) -> Complex:
    half = sin(x.im * 0.5)
    return Complex(expm1(x.re) * cos(x.im) - half * half * 2.0, exp(x.re) * sin(x.im))


def _log(o: Emitter, x: Complex) -> Complex:
    return Complex(log(magnitude(x)), atan2(x.im, x.re))


def _log1p(o: Emitter, x: Complex) -> Complex:
    large = magnitude(x) > 0.5
    near = log1p(x.re * (x.re + 2.0) + x.im * x.im) * 0.5
    shifted = Complex(x.re + 1.0, x.im)
    return Complex(o.Where(large, log(magnitude(shifted)), near), atan2(x.im, shifted.re))


def _sqrt(o: Emitter, x: Complex) -> Complex:
    root = sqrt((magnitude(x) + o.Abs(x.re)) * 0.5)
    zero = o.Equal(root, 0)
    other = o.Abs(x.im) / (o.Where(zero, number(o, 1, root.dtype), root) * 2.0)
    right = o.GreaterOrEqual(x.re, 0)
    im = o.Where(right, other, root)
    # The result keeps the side of the cut that the imaginary part is on.
    return Complex(o.Where(right, root, other), o.Where(export_elementwise.sign_bit(o, x.im), -im, im))


def _rsqrt(o: Emitter, x: Complex) -> Complex:
    return divide(like(x, 1), _sqrt(o, x))


def _sin(o: Emitter, x: Complex) -> Complex:
    return Complex(sin(x.re) * cosh(x.im), cos(x.re) * sinh(x.im))


def _cos(o: Emitter, x: Complex) -> Complex:
    return Complex(cos(x.re) * cosh(x.im), -(sin(x.re) * sinh(x.im)))


def _sinh(o: Emitter, x: Complex) -> Complex:
    return Complex(sinh(x.re) * cos(x.im), cosh(x.re) * sin(x.im))


def _cosh(o: Emitter, x: Complex) -> Complex:
    return Complex(cosh(x.re) * cos(x.im), sinh(x.re) * sin(x.im))


def _tanh(o: Emitter, x: Complex) -> Complex:
    t, u = tanh(x.re), tan(x.im)
    below = t * t * (u * u) + 1.0
    # 1 - tanh^2 is 1 / cosh^2, which loses nothing for large numbers.
    slope = 1.0 / cosh(x.re)
    return Complex(t * (u * u + 1.0) / below, u * (slope * slope) / below)


def _through(f: Callable[[Emitter, Complex], Complex]) -> Callable[[Emitter, Complex], Complex]:
    """f(i x) / i: the circular function of a hyperbolic one."""
    return lambda o, x: -f(o, x.turned).turned


def _logistic(o: Emitter, x: Complex) -> Complex:
    half = _tanh(o, x.each(lambda p: p * 0.5))
    return Complex(half.re * 0.5 + 0.5, half.im * 0.5)


def _asinh(o: Emitter, x: Complex) -> Complex:
    # On the left half plane the sum cancels; the function is odd.
    left = x.re < 0
    y = choose(o, left, -x, x)
    result = _log(o, y + _sqrt(o, y * y + like(x, 1)))
    return choose(o, left, -result, result)


def _acos(o: Emitter, x: Complex) -> Complex:
    back = _through(_asinh)(o, x)
    return Complex(number(o, pi / 2, back.re.dtype) - back.re, -back.im)


def _acosh(o: Emitter, x: Complex) -> Complex:
    one = like(x, 1)
    return _log(o, x + _sqrt(o, x + one) * _sqrt(o, x - one))


def _atanh(o: Emitter, x: Complex) -> Complex:
    return (_log1p(o, x) - _log1p(o, -x)).each(lambda p: p * 0.5)


Combine = Callable[[Emitter, Complex, Complex], Complex]

# -- order ---------------------------------------------------------------------------------------


def _compare(name: str) -> Row:
    """By real part, then by imaginary part."""
    row = REAL[registry()[name]]

    def ordered(o: Emitter, x: Complex, y: Complex) -> Array:
        return o.Where(o.Equal(x.re, y.re), row(o, x.im, y.im), row(o, x.re, y.re))

    return ordered


def _eq(o: Emitter, x: Complex, y: Complex) -> Array:
    return o.And(o.Equal(x.re, y.re), o.Equal(x.im, y.im))


def _ne(o: Emitter, x: Complex, y: Complex) -> Array:
    return o.Not(_eq(o, x, y))


def _beats(compare: Row) -> Combine:
    """The one that comes first in an order, in which NaN comes before everything."""

    def row(o: Emitter, x: Complex, y: Complex) -> Complex:
        return choose(o, o.Or(_is_nan(x), o.And(o.Not(_is_nan(y)), compare(o, x, y))), x, y)

    return row


def _is_nan(x: Complex) -> Array:
    return x.o.Or(x.o.IsNaN(x.re), x.o.IsNaN(x.im))


_max, _min = _beats(_compare("gt")), _beats(_compare("lt"))


def _sort(o: Emitter, *xs: Any, axis: int, num_keys: int, stable: bool) -> tuple[Any, ...]:
    """Each complex key is two keys; payloads are two arrays."""
    flat = [p for x in xs for p in ((x.re, x.im) if isinstance(x, Complex) else (x,))]
    keys = num_keys + sum(isinstance(x, Complex) for x in xs[:num_keys])
    done = iter(SORT_ROWS[s.sort](o, *flat, axis=axis, num_keys=keys, stable=stable))
    return tuple(Complex(next(done), next(done)) if isinstance(x, Complex) else next(done) for x in xs)


# -- dtypes and parts ----------------------------------------------------------------------------


def _convert(o: Emitter, x: Any, dtype: DType) -> Any:
    if not isinstance(x, Complex):
        return from_real(o, convert(o, x, PARTS[dtype]))
    if dtype.is_complex:
        return x.each(lambda p: convert(o, p, PARTS[dtype]))
    if dtype is bool_:
        return o.Or(convert(o, x.re, bool_), convert(o, x.im, bool_))
    return convert(o, x.re, dtype)


def _iota(o: Emitter, dtype: DType, shape: Sequence[Any], axis: int) -> Complex:
    return from_real(o, REAL[m.iota](o, dtype=PARTS[dtype], shape=shape, axis=axis))


def _complex(o: Emitter, re: Array, im: Array) -> Complex:
    return Complex(re, im)


def _same(o: Emitter, *xs: Any) -> Any:
    return xs


# -- reductions ----------------------------------------------------------------------------------


_LOWEST = complex(-np.inf, -np.inf)


def _length(n: Any) -> int:
    if type(n) is not int:
        raise Unsupported("a complex reduction other than a sum needs a static size", "give the axis a static size")
    return n


def _cut(x: Complex, start: int, stop: int, axis: int = 0) -> Complex:
    return x.each(lambda p: p.o.slice(p, [start], [stop], [axis]))


def _concat(xs: Sequence[Complex], axis: int) -> Complex:
    o = xs[0].o
    return Complex(o.concat([x.re for x in xs], axis), o.concat([x.im for x in xs], axis))


def _fold(combine: Combine, identity: complex) -> Row:
    """A reduction by halves."""

    def row(o: Emitter, x: Complex, axes: Sequence[int]) -> Complex:
        kept = [a for a in range(x.rank) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        n = int(np.prod([_length(x.shape[a]) for a in axes], dtype=np.int64))
        if n == 0:
            return like(x, identity).each(lambda p: o.expand(p, shape))
        y = x.each(lambda p: o.reshape(o.transpose(p, (*axes, *kept)), (n, *shape)))
        while n > 1:
            half = n // 2
            left = combine(o, _cut(y, 0, half), _cut(y, half, 2 * half))
            rest = [_cut(y, 2 * half, n)] if n % 2 else []
            y = _concat([left, *rest], 0)
            n = half + n % 2
        return y.each(lambda p: o.squeeze(p, [0]))

    return row


def _cumulative(combine: Combine) -> Row:
    """Partial results by doubling distances."""

    def row(o: Emitter, x: Complex, axis: int, reverse: bool) -> Complex:
        n = _length(x.shape[axis])
        y = x.each(lambda p: o.flip(p, [axis])) if reverse else x
        step = 1
        while step < n:
            later = combine(o, _cut(y, 0, n - step, axis), _cut(y, step, n, axis))
            y = _concat([_cut(y, 0, step, axis), later], axis)
            step *= 2
        return y.each(lambda p: o.flip(p, [axis])) if reverse else y

    return row


def _product(o: Emitter, x: Complex, y: Complex) -> Complex:
    return x * y


# -- transforms and matrices ---------------------------------------------------------------------


MATRIX_BELOW = 1024  # up to this length a transform is a product with a matrix


def _line(o: Emitter, x: Complex, axis: int, inverse: bool = False) -> Complex:
    """The transform along one axis. ONNX Runtime's is exact to single precision only, even of f64, unless the
    length is a power of two."""
    n = x.shape[axis]
    if type(n) is int and n < MATRIX_BELOW and n & (n - 1):
        turns = np.outer(np.arange(n), np.arange(n)) % n * (2 * np.pi / n)
        matrix = constant(o, np.exp(turns * (1j if inverse else -1j)) / (n if inverse else 1))
        order = [a for a in range(x.rank) if a != axis] + [axis]
        rows = x.each(lambda p: o.transpose(p, order))

        def product(p: Array, q: Array) -> Array:
            return o.MatMul(p, q, shape=rows.shape)

        y = Complex(
            product(rows.re, matrix.re) - product(rows.im, matrix.im),
            product(rows.re, matrix.im) + product(rows.im, matrix.re),
        )
        return y.each(lambda p: o.transpose(o.typed(p, rows.shape), np.argsort(order).tolist()))
    o.need("DFT")
    pair, options = joined(o, x), {"inverse": int(inverse), "onesided": 0}
    if o.opset < 20:  # the axis became an operand
        return parted(o, o.DFT(pair, axis=axis, shape=pair.shape, **options))
    return parted(o, o.DFT(pair, None, o.const(axis), shape=pair.shape, **options))


def _fft(o: Emitter, x: Any, kind: str, lengths: Sequence[Any]) -> Any:
    part = x.re.dtype if isinstance(x, Complex) else x.dtype
    # In f64, rounded once.
    result = _transform(o, _cast(x, f64), kind, lengths)
    return _cast(result, part)


def _cast(x: Any, kind: DType) -> Any:
    return x.each(lambda p: p.o.cast(p, kind)) if isinstance(x, Complex) else x.o.cast(x, kind)


def _transform(o: Emitter, x: Any, kind: str, lengths: Sequence[Any]) -> Any:
    y = x if isinstance(x, Complex) else from_real(o, x)
    *others, last = range(x.rank - len(lengths), x.rank)
    if kind == "irfft":
        for axis in others:
            y = _line(o, y, axis, True)
        # The missing half of the last axis is the conjugate of the other half, mirrored.
        n = _length(lengths[-1])
        mirrored = _cut(y, 1, (n + 1) // 2, last).each(lambda p: o.flip(p, [last])).conjugate
        return _line(o, _concat([y, mirrored], last), last, True).re
    y = _line(o, y, last, kind == "ifft")
    if kind == "rfft":
        y = y.each(lambda p: o.slice(p, [0], [lengths[-1] // 2 + 1], [last]))
    for axis in others:
        y = _line(o, y, axis, kind == "ifft")
    return y


def _blocks(o: Emitter, x: Complex) -> Array:
    """Each element a + bi as the block [[a, -b], [b, a]]: products and inverses of matrices stay the same."""
    rows, columns = x.rank - 2, x.rank
    top = o.concat([o.unsqueeze(p, [columns]) for p in (x.re, -x.im)], columns)
    bottom = o.concat([o.unsqueeze(p, [columns]) for p in (x.im, x.re)], columns)
    pair = o.concat([o.unsqueeze(p, [rows + 1]) for p in (top, bottom)], rows + 1)
    return o.reshape(pair, (*x.shape[:-2], x.shape[-2] * 2, x.shape[-1] * 2))


def _from_blocks(o: Emitter, x: Array, shape: Sequence[Any]) -> Complex:
    pair = o.reshape(x, (*shape[:-1], 2, shape[-1], 2))
    pair = o.Gather(pair, o.const(0), axis=len(shape) + 1, shape=(*shape[:-1], 2, shape[-1]))
    return Complex(*(o.Gather(pair, o.const(i), axis=len(shape) - 1, shape=tuple(shape)) for i in (0, 1)))


def _cholesky(o: Emitter, x: Complex) -> Complex:
    # The factor's diagonal is real, so its blocks are lower triangular too, and the factor is unique.
    if any(type(n) is int and n == 0 for n in x.shape):
        return x
    return _from_blocks(o, REAL[la.cholesky](o, _blocks(o, x)), x.shape)


def _transposed(x: Complex) -> Complex:
    order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
    return x.each(lambda p: p.o.transpose(p, order))


def _triangular_solve(
    o: Emitter,
    a: Complex,
    b: Complex,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Complex:
    # x op(a) = b is op(a)^T x^T = b^T.
    a = a.conjugate if conjugate_a else a
    if not left_side:
        return _transposed(_triangular_solve(o, a, _transposed(b), True, lower, not transpose_a, False, unit_diagonal))
    size = o.iota(a.shape[-1])
    on = o.Equal(o.unsqueeze(size, [1]), o.unsqueeze(size, [0]))
    # The diagonal is divided out: blocks are triangular only where it is real.
    along, across = a.rank - 1, a.rank - 2
    diagonal = choose(o, on, a, like(a, 0)).each(lambda p: o.reduce("ReduceSum", o.typed(p, a.shape), [across]))
    if not unit_diagonal:
        a = divide(a, diagonal.each(lambda p: o.unsqueeze(p, [across])))
    a = choose(o, on, like(a, 1), a).each(lambda p: o.typed(p, b.shape[:-2] + (b.shape[-2],) * 2))
    column = diagonal.each(lambda p: o.unsqueeze(p, [along]))
    if transpose_a and not unit_diagonal:
        b = divide(b, column).each(lambda p: o.typed(p, b.shape))
    real = REAL[la.triangular_solve](
        o,
        _blocks(o, a.conjugate if transpose_a else a),  # transposing blocks conjugates
        _blocks(o, b),
        left_side=True,
        lower=lower,
        transpose_a=transpose_a,
        conjugate_a=False,
        unit_diagonal=True,
    )
    x = _from_blocks(o, real, b.shape)
    return x if transpose_a or unit_diagonal else divide(x, column)


_LINEAR = (
    *(e.add, e.sub, e.neg, e.select, e.copy, e.stop_gradient),
    *(m.broadcast_in_dim, m.reshape, m.transpose, m.reverse, m.slice, m.dynamic_slice, m.dynamic_update_slice),
    *(m.pad, m.concatenate, ix.gather, r.reduce_sum, r.cumsum, r.reduce_window_sum),
)


def _cond(o: Emitter, which: Array, *operands: Any, branches: Sequence[Callable[..., Any]]) -> tuple[Any, ...]:
    def parts(branch: Callable[..., Any]) -> Callable[..., list[Array]]:
        return lambda *xs: flat(branch(*xs))

    results = CONTROL_ROWS[control.cond](o, which, *operands, branches=[parts(b) for b in branches])
    return tuple(wholes(o.operation.gives_complex, results))


def _nonzero(o: Emitter, x: Complex, **attrs: Any) -> Any:
    return REAL[ix.nonzero](o, _convert(o, x, bool_), **attrs)


def _log_add_exp(o: Emitter, x: Complex, y: Complex) -> Complex:
    top = o.Max(x.re, y.re)
    top = o.Where(o.IsInf(top), o.const(0, top.dtype), top)
    total = _exp(o, Complex(x.re - top, x.im)) + _exp(o, Complex(y.re - top, y.im))
    done = _log(o, total)
    return Complex(done.re + top, done.im)


def _scatter(o: Emitter, *args: Any, combiner: str, **attrs: Any) -> Complex:
    if combiner not in ("replace", "add", "sub"):
        raise Unsupported(f"a complex scatter that combines by {combiner}", "gather, combine and scatter the result")
    return on_parts(REAL[ix.scatter])(o, *args, combiner=combiner, **attrs)


FUNCTIONS: dict[str, Row] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "sin": _sin,
    "cos": _cos,
    "tan": _through(_tanh),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "asin": _through(_asinh),
    "acos": _acos,
    "atan": _through(_atanh),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "logistic": _logistic,
    "eq": _eq,
    "ne": _ne,
}

ROWS: dict[OpDef, Row] = {
    **{op: on_parts(REAL[op]) for op in _LINEAR},
    **{op: bilinear(REAL[op]) for op in (c.dot_general, c.conv_general, c.ragged_dot)},
    **{registry()[name]: _compare(name) for name in ("lt", "le", "gt", "ge")},
    **{registry()[name]: row for name, row in FUNCTIONS.items()},
    e.mul: lambda o, x, y: x * y,
    e.square: lambda o, x: x * x,
    e.div: lambda o, x, y: divide(x, y),
    e.abs: lambda o, x: magnitude(x),
    e.sign: _sign,
    e.integer_pow: _integer_pow,
    e.pow: _pow,
    e.max: _max,
    e.min: _min,
    e.convert: _convert,
    e.complex_: _complex,
    e.real: lambda o, x: x.re,
    e.imag: lambda o, x: x.im,
    e.conj: lambda o, x: x.conjugate,
    e.optimization_barrier: _same,
    m.iota: _iota,
    m.dim_size: lambda o, x, **attrs: REAL[m.dim_size](o, x.re, **attrs),
    ix.scatter: _scatter,
    r.reduce_prod: _fold(_product, 1),
    r.reduce_max: _fold(_max, _LOWEST),
    r.reduce_min: _fold(_min, -_LOWEST),
    r.cumprod: _cumulative(_product),
    r.cumlogsumexp: _cumulative(_log_add_exp),
    ix.nonzero: _nonzero,
    r.cummax: _cumulative(_max),
    r.cummin: _cumulative(_min),
    s.sort: _sort,
    s.fft: _fft,
    la.cholesky: _cholesky,
    la.triangular_solve: _triangular_solve,
    r.reduce_window_prod: over_complex(window_reducer(_product, lambda kind: 1)),
    r.reduce_window_max: over_complex(window_reducer(_max, lambda kind: _LOWEST)),
    r.reduce_window_min: over_complex(window_reducer(_min, lambda kind: -_LOWEST)),
    r.reduce: over_complex(REAL[r.reduce]),
    r.reduce_window: over_complex(REAL[r.reduce_window]),
    la.lu: over_complex(REAL[la.lu]),
    la.qr: over_complex(REAL[la.qr]),
    la.geqrf: over_complex(REAL[la.geqrf]),
    la.householder_product: over_complex(REAL[la.householder_product]),
    la.ormqr: over_complex(REAL[la.ormqr]),
    la.eigh: over_complex(REAL[la.eigh]),
    la.svd: over_complex(REAL[la.svd]),
    la.hessenberg: over_complex(REAL[la.hessenberg]),
    control.cond: _cond,
    control.while_: over_complex(CONTROL_ROWS[control.while_]),
    control.scan: over_complex(CONTROL_ROWS[control.scan]),
    control.call: inlined,
    control.remat: inlined,
    control.custom_jvp: inlined,
    control.custom_vjp: inlined,
}
