"""How a person writes the common operations in JAX: infix arithmetic, methods, jnp by name.

A phrase stands for a row where both give the same numbers on the operands' types. It takes operands as
text that knows how tightly it binds, so that phrases nest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unigraph import dims
from unigraph.dtypes import DType
from unigraph.graph import Operation
from unigraph.opdef import OpDef, registry
from unigraph.ops import contract, elementwise, movement, nn_activation, reduce

R = registry()
ATOM, POWER, UNARY, PRODUCT, SUM, BITS, COMPARISON = 9, 8, 7, 6, 5, 4, 3


@dataclass(frozen=True)
class Text:
    """An expression. ``binds`` is how tightly its outermost operator does; ``typed`` is the form of a bare number
    that has a dtype."""

    text: str
    binds: int = ATOM
    typed: str = ""

    def within(self, binds: int) -> str:
        """The text as an operand of an operator that binds this tightly."""
        return self.text if self.binds >= binds else f"({self.text})"

    @property
    def array(self) -> str:
        """The text where only an array will do."""
        return self.typed or self.text


Say = Callable[[Any], str]  # an attribute as text, sizes by name
Write = Callable[[Operation, Sequence[Text], Say], Text]


@dataclass(frozen=True)
class Phrase:
    """When the words fit (seen from types and attributes alone), and the words.

    ``spreads`` says that operands may be smaller arrays that broadcast, and one of them a bare number.
    """

    fits: Callable[[Operation], bool]
    write: Write
    spreads: bool = False


# -- which operands are plain enough -------------------------------------------------------------------


def _kinds(*kinds: str) -> Callable[[Operation], bool]:
    """All operands have dtypes of these kinds, in formats that NumPy's operators know."""

    def fits(op: Operation) -> bool:
        return all(v.type.dtype.kind in kinds and _common(v.type.dtype) for v in op.inputs)

    return fits


def _common(dtype: DType) -> bool:
    return dtype.bits >= (16 if dtype.kind == "float" else 8)


_NUMBERS = _kinds("int", "uint", "float", "complex")
_REAL = _kinds("int", "uint", "float")
_FLOATS = _kinds("float", "complex")
_ANY = _kinds("bool", "int", "uint", "float", "complex")


def short(dtype: DType) -> bool:
    """True for a dtype that JAX has whatever its settings."""
    return _common(dtype) and dtype.bits <= (64 if dtype.kind == "complex" else 32) and not dtype.is_key


def jax_name(dtype: DType) -> str:
    """``jnp.float32``."""
    return "jnp.bool_" if dtype.name == "bool" else f"jnp.{dtype.numpy.name}"


# -- words ------------------------------------------------------------------------------------------------


def _infix(sign: str, binds: int, fits: Callable[[Operation], bool]) -> Phrase:
    def write(op: Operation, args: Sequence[Text], say: Say) -> Text:
        x, y = args
        # Comparisons and bits do not chain; elsewhere the left operand may be of the same kind.
        left = x.within(binds if binds in (SUM, PRODUCT) else ATOM)
        return Text(f"{left} {sign} {y.within(binds + 1 if binds in (SUM, PRODUCT) else ATOM)}", binds)

    return Phrase(fits, write, spreads=True)


def _named(function: str, fits: Callable[[Operation], bool], spreads: bool = False) -> Phrase:
    """A call; a bare number may stand where operands are spread, if another one is an array."""

    def write(op: Operation, args: Sequence[Text], say: Say) -> Text:
        given = [a.text if spreads else a.array for a in args]
        return Text(f"{function}({', '.join(given)})")

    return Phrase(fits, write, spreads)


def _negative(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"-{args[0].within(UNARY)}", UNARY)


def _inverted(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"~{args[0].within(UNARY)}", UNARY)


def _power(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"{args[0].within(ATOM)}**{op.attrs['y']}", POWER)


def _where(op: Operation, args: Sequence[Text], say: Say) -> Text:
    which, no, yes = args
    first = yes.array if no.typed else yes.text  # two bare numbers would leave the dtype open
    return Text(f"jnp.where({which.text}, {first}, {no.text})")


def _is_where(op: Operation) -> bool:
    which, *cases = op.inputs
    return len(cases) == 2 and which.type.dtype.kind == "bool" and all(_common(c.type.dtype) for c in cases)


def _astype(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"{args[0].array if args[0].typed else args[0].within(ATOM)}.astype({jax_name(op.attrs['dtype'])})")


def _is_astype(op: Operation) -> bool:
    old, new = op.inputs[0].type.dtype, op.attrs["dtype"]
    exact = old.is_complex <= new.is_complex and not (old.is_float and new.is_integer)
    return exact and short(new) and _common(old) and not old.is_key


def _bitcast(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"lax.bitcast_convert_type({args[0].array}, {jax_name(op.attrs['dtype'])})")


def _is_bitcast(op: Operation) -> bool:
    return short(op.attrs["dtype"]) and not op.inputs[0].type.dtype.is_key


def _size(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"jnp.asarray({say(op.attrs['dim'])}, {jax_name(op.attrs['dtype'])})")


def _method(name: str, attr: str) -> Phrase:
    def write(op: Operation, args: Sequence[Text], say: Say) -> Text:
        return Text(f"{args[0].within(ATOM)}.{name}({', '.join(map(say, op.attrs[attr]))})")

    return Phrase(lambda op: not op.inputs[0].type.dtype.is_key and bool(op.attrs[attr]), write)


def _transposed(op: Operation, args: Sequence[Text], say: Say) -> Text:
    x, order = args[0].within(ATOM), op.attrs["permutation"]
    return Text(f"{x}.T" if order == (1, 0) else f"{x}.transpose({', '.join(map(str, order))})")


def _index(op: Operation, args: Sequence[Text], say: Say) -> Text:
    """``x[2:, ::3]``; whole axes at the end go without saying."""
    shape, a = op.inputs[0].type.shape, op.attrs
    parts = []
    for size, start, limit, stride in zip(shape, a["start"], a["limit"], a["strides"] or (1,) * len(shape)):
        first = "" if start == 0 else say(start)
        last = "" if dims.equal(limit, size) else say(limit)
        parts.append(f"{first}:{last}" + (f":{stride}" if stride != 1 else ""))
    while len(parts) > 1 and parts[-1] == ":":
        parts.pop()
    return Text(f"{args[0].within(ATOM)}[{', '.join(parts)}]")


def _joined(op: Operation, args: Sequence[Text], say: Say) -> Text:
    return Text(f"jnp.concatenate([{', '.join(a.array for a in args)}], axis={op.attrs['axis']})")


def _range(op: Operation, args: Sequence[Text], say: Say) -> Text:
    dtype, shape = jax_name(op.attrs["dtype"]), op.attrs["shape"]
    if len(shape) == 1:
        return Text(f"jnp.arange({say(shape[0])}, dtype={dtype})")
    return Text(f"lax.broadcasted_iota({dtype}, {say(shape)}, {op.attrs['axis']})")


def _spread(op: Operation, args: Sequence[Text], say: Say) -> Text:
    x, shape = args[0], say(op.attrs["shape"])
    if x.typed:
        return Text(f"jnp.full({shape}, {x.text}, {jax_name(op.inputs[0].type.dtype)})")
    return Text(aligned(op, x) if _adds_ones(op) else f"jnp.broadcast_to({aligned(op, x)}, {shape})")


def _adds_ones(op: Operation) -> bool:
    """True for a broadcast whose new axes have size 1, and whose old ones stay."""
    old = dict(zip(op.attrs["broadcast_dimensions"], op.inputs[0].type.shape))
    return all(dims.equal(old.get(axis, 1), size) for axis, size in enumerate(op.attrs["shape"]))


def _fits_spread(op: Operation) -> bool:
    x = op.inputs[0].type
    return not x.dtype.is_key and list(op.attrs["broadcast_dimensions"]) == sorted(op.attrs["broadcast_dimensions"])


def aligned(op: Operation, x: Text) -> str:
    """The operand of a ``broadcast_in_dim`` with the axes that broadcasting needs: ``x[:, None]``."""
    rank, places = len(op.attrs["shape"]), op.attrs["broadcast_dimensions"]
    index = [":" if axis in places else "None" for axis in range(min(places, default=rank), rank)]
    if "None" not in index:
        return x.text if x.binds == ATOM else f"({x.text})"
    if index.count("None") == 1 and index[-1] == "None" and len(index) > 2:
        index = ["...", "None"]
    return f"{x.within(ATOM)}[{', '.join(index)}]"


def _total(op: Operation, args: Sequence[Text], say: Say) -> Text:
    axes = op.attrs["axes"]
    where = "" if len(axes) == op.inputs[0].type.rank else f"axis={axes[0] if len(axes) == 1 else axes}"
    return Text(f"{args[0].within(ATOM)}.sum({where})")


def _is_total(op: Operation) -> bool:
    dtype = op.inputs[0].type.dtype
    return dtype.is_inexact and dtype.bits >= 32 and bool(op.attrs["axes"])


def _extreme(function: str) -> Write:
    return lambda op, args, say: Text(f"{function}({args[0].array}, axes={op.attrs['axes']})")


def _product(op: Operation, args: Sequence[Text], say: Say) -> Text:
    """``matmul`` where it is one, else ``einsum``: axes of the result are batch, left, right."""
    a, (x, y) = op.attrs, op.inputs
    ranks = x.type.rank, y.type.rank
    left, right = (t.within(ATOM) for t in args)
    if not a["lhs_batch"] and ranks[1] == 2 and ranks[0] and a["lhs_contracting"] == (ranks[0] - 1,):
        turned = right if a["rhs_contracting"] == (0,) else f"{right}.T"
        return Text(f"jnp.matmul({left}, {turned}, precision=HIGHEST)")
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    xs, ys = [""] * ranks[0], [""] * ranks[1]
    batch = []
    for i, j in zip(a["lhs_batch"], a["rhs_batch"]):
        xs[i] = ys[j] = next(letters)
        batch.append(xs[i])
    free = []
    for names, contracted in ((xs, a["lhs_contracting"]), (ys, a["rhs_contracting"])):
        for i in range(len(names)):
            if not names[i] and i not in contracted:
                names[i] = next(letters)
                free.append(names[i])
    for i, j in zip(a["lhs_contracting"], a["rhs_contracting"]):
        xs[i] = ys[j] = next(letters)
    equation = f"{''.join(xs)},{''.join(ys)}->{''.join(batch + free)}"
    return Text(f'jnp.einsum("{equation}", {left}, {right}, precision=HIGHEST)')


def _is_product(op: Operation) -> bool:
    return op.attrs["out_dtype"] in (None, op.inputs[0].type.dtype) and _FLOATS(op)


_LAX = ("rsqrt", "cbrt", "erf", "erfc", "erf_inv", "lgamma", "digamma")
_UNARY = "exp exp2 log log1p expm1 sqrt sin cos tan sinh cosh tanh floor ceil square sign"
_FAITHFUL = _kinds("float")


def _floats_of(least: int) -> Callable[[Operation], bool]:
    return lambda op: _FAITHFUL(op) and op.inputs[0].type.dtype.bits >= least


PHRASES: Mapping[OpDef, Phrase] = {
    elementwise.add: _infix("+", SUM, _NUMBERS),
    R["sub"]: _infix("-", SUM, _NUMBERS),
    elementwise.mul: _infix("*", PRODUCT, _NUMBERS),
    R["div"]: _infix("/", PRODUCT, _FLOATS),
    **{
        R[name]: _infix(sign, COMPARISON, _REAL)
        for name, sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items()
    },
    elementwise.and_: _infix("&", BITS, _kinds("bool", "int", "uint")),
    elementwise.or_: _infix("|", BITS, _kinds("bool", "int", "uint")),
    elementwise.xor: _infix("^", BITS, _kinds("bool", "int", "uint")),
    elementwise.not_: Phrase(_kinds("bool", "int", "uint"), _inverted),
    R["neg"]: Phrase(_NUMBERS, _negative),
    R["integer_pow"]: Phrase(_NUMBERS, _power),
    R["max"]: _named("jnp.maximum", _REAL, spreads=True),
    R["min"]: _named("jnp.minimum", _REAL, spreads=True),
    **{R[name]: _named(f"jnp.{name}", _floats_of(32)) for name in _UNARY.split()},
    elementwise.abs: _named("jnp.abs", _REAL),
    **{R[name]: _named(f"lax.{name}", _floats_of(16)) for name in _LAX},
    reduce.reduce_max: Phrase(_ANY, _extreme("lax.reduce_max")),
    reduce.reduce_min: Phrase(_ANY, _extreme("lax.reduce_min")),
    R["logistic"]: _named("jax.nn.sigmoid", _FAITHFUL),
    nn_activation.relu: _named("jax.nn.relu", _FAITHFUL),
    elementwise.select: Phrase(_is_where, _where, spreads=True),
    elementwise.convert: Phrase(_is_astype, _astype),
    elementwise.bitcast: Phrase(_is_bitcast, _bitcast),
    movement.dim_size: Phrase(lambda op: short(op.attrs["dtype"]), _size),
    elementwise.stop_gradient: _named("lax.stop_gradient", _ANY),
    movement.reshape: _method("reshape", "shape"),
    movement.transpose: Phrase(lambda op: not op.inputs[0].type.dtype.is_key, _transposed),
    movement.slice: Phrase(lambda op: bool(op.attrs["start"]) and not op.inputs[0].type.dtype.is_key, _index),
    movement.concatenate: Phrase(_ANY, _joined),
    movement.iota: Phrase(lambda op: op.attrs["dtype"].kind != "bool" and short(op.attrs["dtype"]), _range),
    movement.broadcast_in_dim: Phrase(_fits_spread, _spread),
    reduce.reduce_sum: Phrase(_is_total, _total),
    contract.dot_general: Phrase(_is_product, _product),
}


def phrase(op: Operation) -> Phrase | None:
    """The phrase for an operation, if the words fit."""
    found = PHRASES.get(op.op)
    return found if found is not None and found.fits(op) else None
