"""Control flow as a person writes it in JAX: nested functions that close over what stays the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from unigraph.dtypes import bool_
from unigraph.graph import Graph, Operation, Value
from unigraph.opdef import OpDef
from unigraph.ops import control as c

from .pieces import define

if TYPE_CHECKING:
    from .program import Body

Writer = Callable[["Body", Operation], None]


def _one_or_tuple(items: Sequence[str], nothing: str = "None") -> str:
    return nothing if not items else items[0] if len(items) == 1 else f"({', '.join(items)})"


def _bare(items: Sequence[str]) -> str:
    """Targets of an assignment."""
    return ", ".join(items)


def _targets(body: Body, values: Sequence[Value], wish: str) -> list[str]:
    return [body.name(v, wish) for v in values]


def _inner(body: Body, region: Graph, given: Mapping[Value, Value]) -> Body:
    """A nested function's body; inputs in ``given`` are read from around it."""
    inner = body.nested(region)
    for parameter, outer in given.items():
        inner.names[parameter] = body.use(outer)
    return inner


def _function(
    body: Body, inner: Body, name: str, parameters: Sequence[str], unpack: Sequence[str], result: str
) -> None:
    body.lines += ["", *define(name, parameters, [*unpack, *inner.lines, f"return {result}"]).splitlines(), ""]


def _packed(inner: Body, values: Sequence[Value], wish: str) -> tuple[str, list[str]]:
    """A parameter that holds some values, and the line that takes it apart."""
    if len(values) == 1:
        return inner.name(values[0], wish), []
    parameter = inner.fresh(wish if values else f"_{wish}")
    names = [inner.name(v, wish) for v in values]
    return parameter, [f"{_bare(names)} = {parameter}"] if names else []


def _scan(body: Body, op: Operation) -> None:
    region, a = op.regions[0], op.attrs
    first, last = a["num_consts"], a["num_consts"] + a["num_carry"]
    inner = _inner(body, region, dict(zip(region.inputs[:first], op.inputs[:first])))
    name = body.fresh("step")
    inner.taken.add(name)
    carry, unpack = _packed(inner, region.inputs[first:last], "carry")
    x, more = _packed(inner, region.inputs[last:], "x")
    inner.sizes(region.inputs)
    inner.operations()
    outs = [inner.use(v) for v in region.outputs]
    result = f"{_one_or_tuple(outs[: a['num_carry']])}, {_one_or_tuple(outs[a['num_carry'] :])}"
    _function(body, inner, name, [carry, x], [*unpack, *more], result)
    init, xs = ([body.use(v) for v in vs] for vs in (op.inputs[first:last], op.inputs[last:]))
    options = [] if xs else [f"length={body.program.literal(a['length'], body.bound)}"]
    options += ["reverse=True"] if a["reverse"] else []
    given = [name, _one_or_tuple(init), *([_one_or_tuple(xs)] if xs else ["None"]), *options]
    carried = _one_or_tuple(_targets(body, op.outputs[: a["num_carry"]], "carry"), "_")
    stacked = _one_or_tuple(_targets(body, op.outputs[a["num_carry"] :], "ys"), "_")
    body.call(f"{carried}, {stacked} = lax.scan", given)


def _while(body: Body, op: Operation) -> None:
    a, count = op.attrs, op.attrs["cond_consts"] + op.attrs["body_consts"]
    consts = op.inputs[: a["cond_consts"]], op.inputs[a["cond_consts"] : count]
    names = []
    for region, known, wish in zip(op.regions, consts, ("running", "step")):
        inner = _inner(body, region, dict(zip(region.inputs, known)))
        names.append(body.fresh(wish))
        inner.taken.add(names[-1])
        carry, unpack = _packed(inner, region.inputs[len(known) :], "carry")
        inner.sizes(region.inputs)
        inner.operations()
        _function(body, inner, names[-1], [carry], unpack, _one_or_tuple([inner.use(v) for v in region.outputs], "()"))
    init = _one_or_tuple([body.use(v) for v in op.inputs[count:]], "()")
    targets = _targets(body, op.outputs, "carry")
    body.call(f"{_bare(targets) or '_'} = lax.while_loop", [*names, init])


def _cond(body: Body, op: Operation) -> None:
    which, operands = op.inputs[0], op.inputs[1:]
    names = []
    for number, region in enumerate(op.regions):
        inner = _inner(body, region, dict(zip(region.inputs, operands)))
        wish = f"branch_{number}" if which.type.dtype is not bool_ else "yes" if number else "no"
        names.append(body.fresh(wish))
        inner.taken.add(names[-1])
        inner.sizes(region.inputs)
        inner.operations()
        _function(body, inner, names[-1], [], [], _one_or_tuple([inner.use(v) for v in region.outputs], "()"))
    targets = _bare(_targets(body, op.outputs, "chosen")) or "_"
    if which.type.dtype is bool_:
        body.call(f"{targets} = lax.cond", [body.use(which), names[1], names[0]])
    else:
        body.call(f"{targets} = lax.switch", [body.use(which), f"[{', '.join(names)}]"])


def _called(decorator: str, wish: str) -> Writer:
    """A function that is defined and called."""

    def write(body: Body, op: Operation) -> None:
        region = op.regions[0]
        inner = _inner(body, region, {})
        name = body.fresh(op.attrs.get("name") or wish)
        inner.taken.add(name)
        parameters = [inner.name(v) for v in region.inputs]
        inner.sizes(region.inputs)
        inner.operations()
        place = len(body.lines) + 1
        _function(body, inner, name, parameters, [], _one_or_tuple([inner.use(v) for v in region.outputs], "()"))
        if decorator:
            body.lines.insert(place, decorator)
        targets = _bare(_targets(body, op.outputs, "out")) or "_"
        body.call(f"{targets} = {name}", [body.use(v) for v in op.inputs])

    return write


WRITERS: Mapping[OpDef, Writer] = {
    c.scan: _scan,
    c.while_: _while,
    c.cond: _cond,
    c.call: _called("", "function"),
    c.remat: _called("@jax.checkpoint", "block"),
}
