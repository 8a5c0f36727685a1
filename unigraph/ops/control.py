"""Control flow. Regions are closed graphs: whatever they use is an operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import dims
from ..dims import Dim
from ..dtypes import bool_, i32
from ..opdef import Attr, OpDef, family
from ..types import TensorType
from .shapes import not_negative, refuse

if TYPE_CHECKING:
    from ..graph import Graph

Types = tuple[TensorType, ...]


_control = family("control", "control tuple")


def _op(
    name: str,
    operands: str,
    infer: Callable[..., Types],
    doc: str,
    attrs: dict[str, Attr],
    regions: dict[str, Callable[..., Types]],
) -> OpDef:
    return _control(name, operands, infer, doc, attrs, regions=regions)


def _same(a: TensorType, b: TensorType) -> bool:
    return a == b or (a.dtype is b.dtype and len(a.shape) == len(b.shape) and all(map(dims.equal, a.shape, b.shape)))


def _match(label: str, what: str, given: Sequence[TensorType], wanted: Sequence[TensorType]) -> None:
    if len(given) != len(wanted) or not all(map(_same, given, wanted)):
        refuse(label, f"{what} must be ({', '.join(map(str, wanted))}), not ({', '.join(map(str, given))})")


def _after_first(which: TensorType, *operands: TensorType, **attrs: Any) -> Types:
    return operands


def _cond(which: TensorType, *operands: TensorType, branches: tuple[Graph, ...]) -> Types:
    if not branches:
        refuse("cond_c1", "needs at least one branch")
    if which.shape or which.dtype not in (bool_, i32) or (which.dtype is bool_ and len(branches) != 2):
        refuse("cond_c2", f"which must be a scalar i32, or a scalar bool for two branches: {which}")
    for i, branch in enumerate(branches):
        _match("cond_c3", f"inputs of branch {i}", branch.in_types, operands)
        _match("cond_c4", f"outputs of branch {i}", branch.out_types, branches[0].out_types)
    return branches[0].out_types


cond = _op(
    "cond",
    "which, *operands",
    _cond,
    "Branch number `which` applied to the operands; the others do not run. A bool chooses branch 0 when False and "
    "branch 1 when True; an i32 out of range is clamped.",
    {},
    {"*branches": _after_first},
)


def _loop_parts(operands: Types, cond_consts: int, body_consts: int) -> tuple[Types, Types, Types]:
    """Types of what only the condition reads, what only the body reads, and what is carried."""
    if cond_consts < 0 or body_consts < 0 or cond_consts + body_consts > len(operands):
        refuse("while_c1", f"{cond_consts} + {body_consts} constants among {len(operands)} operands")
    both = cond_consts + body_consts
    return operands[:cond_consts], operands[cond_consts:both], operands[both:]


def _cond_types(*operands: TensorType, cond_consts: int = 0, body_consts: int = 0) -> Types:
    for_cond, _, carry = _loop_parts(operands, cond_consts, body_consts)
    return for_cond + carry


def _body_types(*operands: TensorType, cond_consts: int = 0, body_consts: int = 0) -> Types:
    _, for_body, carry = _loop_parts(operands, cond_consts, body_consts)
    return for_body + carry


def _while(*operands: TensorType, cond: Graph, body: Graph, cond_consts: int = 0, body_consts: int = 0) -> Types:
    for_cond, for_body, carry = _loop_parts(operands, cond_consts, body_consts)
    _match("while_c2", "inputs of cond", cond.in_types, for_cond + carry)
    _match("while_c3", "outputs of cond", cond.out_types, (TensorType(bool_, ()),))
    _match("while_c4", "inputs of body", body.in_types, for_body + carry)
    _match("while_c5", "outputs of body", body.out_types, carry)
    return carry


while_ = _op(
    "while",
    "*operands",
    _while,
    "As long as cond(its constants, carry) is True, body(its constants, carry) gives the next carry. Operands are "
    "the constants of cond, those of body, the first carry; the last carry comes out.",
    {
        "cond_consts": Attr("int", 0, "number of operands that only cond reads"),
        "body_consts": Attr("int", 0, "number of operands after those that only body reads"),
    },
    {"cond": _cond_types, "body": _body_types},
)


def _scan_parts(operands: Types, num_consts: int, num_carry: int) -> tuple[Types, Types, Types]:
    if num_consts < 0 or num_carry < 0 or num_consts + num_carry > len(operands):
        refuse("scan_c1", f"{num_consts} constants and {num_carry} carried among {len(operands)} operands")
    both = num_consts + num_carry
    return operands[:num_consts], operands[num_consts:both], operands[both:]


def _scan_types(*operands: TensorType, length: Dim, num_consts: int, num_carry: int, reverse: bool = False) -> Types:
    consts, carry, xs = _scan_parts(operands, num_consts, num_carry)
    for x in xs:
        if not x.shape or not dims.compatible(x.shape[0], length):
            refuse("scan_c2", f"the first axis of {x} must have size length = {dims.to_text(length)}")
    return (*consts, *carry, *[TensorType(x.dtype, x.shape[1:]) for x in xs])


def _scan(
    *operands: TensorType, length: Dim, num_consts: int, num_carry: int, body: Graph, reverse: bool = False
) -> Types:
    takes = _scan_types(*operands, length=length, num_consts=num_consts, num_carry=num_carry)
    if not not_negative(length):
        refuse("scan_c3", f"length {length} must not be negative")
    carry = operands[num_consts : num_consts + num_carry]
    _match("scan_c4", "inputs of body", body.in_types, takes)
    gives = body.out_types
    _match("scan_c5", "the carried outputs of body", gives[:num_carry], carry)
    return (*carry, *[TensorType(y.dtype, (length, *y.shape)) for y in gives[num_carry:]])


scan = _op(
    "scan",
    "*operands",
    _scan,
    "A loop over the first axis: step i calls body(constants, carry, element i of each x) -> (carry, element i of "
    "each y). Operands are the constants, the first carry, the xs; outputs are the last carry and the ys, stacked. "
    "With `reverse` steps go from the last element to the first, and element i of the ys still belongs to element "
    "i of the xs. With length 0 the carry comes out as it went in, and the ys are empty.",
    {
        "length": Attr("dim", doc="number of steps"),
        "num_consts": Attr("int", doc="number of operands that every step reads"),
        "num_carry": Attr("int", doc="number of operands after those that go from step to step"),
        "reverse": Attr("bool", False, "go from the last element to the first"),
    },
    {"body": _scan_types},
)


def _plain(name: str) -> Callable[..., Types]:
    def infer(*operands: TensorType, body: Graph, **attrs: Any) -> Types:
        _match(f"{name}_c1", "inputs of body", body.in_types, operands)
        return body.out_types

    return infer


def _operands(*operands: TensorType, **attrs: Any) -> Types:
    return operands


call = _op(
    "call",
    "*operands",
    _plain("call"),
    "body applied to the operands; a function kept whole.",
    {"name": Attr("str", "", "what the function is called")},
    {"body": _operands},
)
remat = _op(
    "remat",
    "*operands",
    _plain("remat"),
    "body applied to the operands; differentiation computes its inner values again instead of keeping them.",
    {},
    {"body": _operands},
)


# -- functions with derivative rules of their own ----------------------------------------------------

_CONSTS = Attr("int", 0, "number of leading operands that the rules take for fixed")


def _inexact(types: Sequence[TensorType]) -> Types:
    return tuple(t for t in types if t.dtype.is_inexact)


def _moving(operands: Types, num_consts: int) -> Types:
    return _inexact(operands[max(num_consts, 0) :])


def _jvp_types(*operands: TensorType, num_consts: int = 0, **other: Any) -> Types:
    return (*operands, *_moving(operands, num_consts))


def _vjp_types(*operands: TensorType, regions: Sequence[Graph], **other: Any) -> Types:
    return (*operands, *_inexact(regions[0].out_types))


def _bwd_types(*operands: TensorType, regions: Sequence[Graph], num_consts: int = 0, **other: Any) -> Types:
    body, fwd = regions[:2]
    kept = fwd.out_types[len(body.outputs) :]
    return (*operands[: max(num_consts, 0)], *kept, *_inexact(body.out_types))


def _custom_jvp(*operands: TensorType, body: Graph, jvp: Graph, vjp: Graph, num_consts: int = 0, **other: Any) -> Types:
    moving, outs = _moving(operands, num_consts), body.out_types
    if not 0 <= num_consts <= len(operands):
        refuse("custom_jvp_c1", f"{num_consts} constants among {len(operands)} operands")
    _match("custom_jvp_c2", "inputs of body", body.in_types, operands)
    _match("custom_jvp_c3", "inputs of jvp", jvp.in_types, (*operands, *moving))
    _match("custom_jvp_c4", "outputs of jvp", jvp.out_types, _inexact(outs))
    _match("custom_jvp_c5", "inputs of vjp", vjp.in_types, (*operands, *_inexact(outs)))
    _match("custom_jvp_c6", "outputs of vjp", vjp.out_types, moving)
    return outs


def _custom_vjp(
    *operands: TensorType, body: Graph, fwd: Graph, bwd: Graph, num_residuals: int, num_consts: int = 0, **other: Any
) -> Types:
    moving, outs = _moving(operands, num_consts), body.out_types
    if not 0 <= num_consts <= len(operands):
        refuse("custom_vjp_c1", f"{num_consts} constants among {len(operands)} operands")
    _match("custom_vjp_c2", "inputs of body", body.in_types, operands)
    _match("custom_vjp_c3", "inputs of fwd", fwd.in_types, operands)
    if len(fwd.outputs) != len(outs) + num_residuals:
        given = f"{len(fwd.outputs)} outputs, not {len(outs)} results and {num_residuals} residuals"
        refuse("custom_vjp_c4", f"fwd has {given}")
    _match("custom_vjp_c5", "the first outputs of fwd", fwd.out_types[: len(outs)], outs)
    takes = _bwd_types(*operands, regions=(body, fwd), num_consts=num_consts)
    _match("custom_vjp_c6", "inputs of bwd", bwd.in_types, takes)
    _match("custom_vjp_c7", "outputs of bwd", bwd.out_types, moving)
    return outs


_NAME = Attr("str", "", "what the function is called")

custom_jvp = _control(
    "custom_jvp",
    "*operands",
    _custom_jvp,
    "body applied to the operands, with derivative rules of its own. `jvp` takes the operands and a tangent for each "
    "float or complex operand after the constants, and gives a tangent for each float or complex result; "
    "`vjp`, its transpose, takes the operands and cotangents of such results and gives those of such operands "
    "(linear as in JAX: nothing is conjugated). Running only needs body.",
    {"num_consts": _CONSTS, "name": _NAME},
    "ruled",
    {"body": _operands, "jvp": _jvp_types, "vjp": _vjp_types},
)
custom_vjp = _control(
    "custom_vjp",
    "*operands",
    _custom_vjp,
    "body applied to the operands, with a rule of its own for reverse differentiation. `fwd` takes the operands and "
    "gives the results of body and then residuals, which the rule keeps; `bwd` takes the constants, the residuals and "
    "a cotangent for each float or complex result, and gives one for each float or complex operand after the constants "
    "(linear as in JAX: nothing is conjugated). Running only needs body.",
    {"num_residuals": Attr("int", doc="number of residuals"), "num_consts": _CONSTS, "name": _NAME},
    "ruled",
    {"body": _operands, "fwd": _operands, "bwd": _bwd_types},
)
