"""Lowering rows of functions with derivative rules of their own.

A rule is a Python function that JAX has not run yet. Differentiating the one equation, JAX runs it, and
what comes out is traced into the regions of a ``custom_jvp`` or ``custom_vjp`` edge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from unigraph.errors import Gaps
from unigraph.graph import Graph, Value
from unigraph.ops import control as ops

from . import compat
from .lower import MOST_RULES, Capture, JaxprBuilder, Row


class Rules:
    """One equation as a function of its operands that are no numbers, and its derivatives, traced."""

    def __init__(self, eqn: Any, closed_over: Collection[Any] = ()):
        self.eqn = eqn
        # What the function closes over comes first; it has no derivatives. JAX says how many such operands
        # there are only until it traces the equation again; then they are arrays from outside.
        count = eqn.params.get("num_consts", 0)
        closed = [i < count or v in closed_over for i, v in enumerate(eqn.invars) if _is_variable(v)]
        pairs = list(zip(filter(_is_variable, eqn.invars), closed))
        order = sorted(dict.fromkeys(pairs), key=lambda pair: not pair[1])
        self.variables, self.constants = [v for v, _ in order], sum(fixed for _, fixed in order)
        places = map(order.index, pairs)
        # For each operand of the equation: a number, or the place of its variable.
        self.operands = [(None, next(places)) if _is_variable(v) else (v, -1) for v in eqn.invars]
        self.specs = [_spec(v.aval) for v in self.variables]
        self.moving = [i for i, v in enumerate(self.variables) if i >= self.constants and _moves(v.aval)]
        self.results = [i for i, v in enumerate(eqn.outvars) if _moves(v.aval)]
        self.tangents = [self.specs[i] for i in self.moving]
        self.cotangents = [_spec(eqn.outvars[i].aval) for i in self.results]

    def function(self, xs: Sequence[Any], moved: Sequence[Any] = ()) -> list[Any]:
        """The results for operands ``xs``, those that move replaced by ``moved``."""
        given = list(xs)
        for i, x in zip(self.moving, moved):
            given[i] = x
        operands = [given[i] if number is None else number.val for number, i in self.operands]
        return list(compat.rebind(self.eqn, operands))

    def jvp(self) -> Any:
        """(operands, tangents) -> tangents of results."""

        def push(*flat: Any) -> list[Any]:
            xs, tangents = flat[: len(self.specs)], flat[len(self.specs) :]
            moving = tuple(xs[i] for i in self.moving)
            _, moved = jax.jvp(lambda *ms: self.function(xs, ms), moving, tuple(tangents))
            return [moved[i] for i in self.results]

        return jax.make_jaxpr(push)(*self.specs, *self.tangents)

    def vjp(self) -> Any:
        """(operands, cotangents) -> cotangents of operands."""

        def pull(*flat: Any) -> list[Any]:
            xs, cotangents = flat[: len(self.specs)], flat[len(self.specs) :]
            return list(self._vjp(xs)[1](list(cotangents)))

        return jax.make_jaxpr(pull)(*self.specs, *self.cotangents)

    def halves(self) -> tuple[Any, Any]:
        """operands -> (results, residuals), and (constants, residuals, cotangents) -> cotangents of operands."""
        kept: list[Any] = []

        def forward(*xs: Any) -> list[Any]:
            out, back, rest = self._vjp(xs)
            leaves, structure = jax.tree_util.tree_flatten(back)
            kept[:] = [structure, [_spec(jax.typeof(x)) for x in leaves]]
            found = {**dict(zip(self.results, out)), **rest}
            return [*(found[i] for i in range(len(self.eqn.outvars))), *leaves]

        first = jax.make_jaxpr(forward)(*self.specs)
        structure, residuals = kept

        def backward(*flat: Any) -> list[Any]:
            kept, cotangents = flat[self.constants : -len(self.cotangents)], flat[-len(self.cotangents) :]
            return list(jax.tree_util.tree_unflatten(structure, kept)(list(cotangents)))

        return first, jax.make_jaxpr(backward)(*self.specs[: self.constants], *residuals, *self.cotangents)

    def _vjp(self, xs: Sequence[Any]) -> Any:
        """Results that move, the function of their cotangents, and the other results by place."""

        def split(*ms: Any) -> tuple[list[Any], dict[int, Any]]:
            out = self.function(xs, ms)
            return [out[i] for i in self.results], {i: x for i, x in enumerate(out) if i not in self.results}

        return jax.vjp(split, *(xs[i] for i in self.moving), has_aux=True)


def _is_variable(v: Any) -> bool:
    return not isinstance(v, compat.Literal)


def _spec(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _moves(aval: Any) -> bool:
    return not compat.is_key(aval) and jax.dtypes.issubdtype(aval.dtype, jax.numpy.inexact)


def _row(kind: str) -> Row:
    op = {"jvp": ops.custom_jvp, "vjp": ops.custom_vjp}[kind]

    def row(b: JaxprBuilder, eqn: Any, *values: Value) -> tuple[Value, ...]:
        jaxpr = compat.expanded(eqn) if "_prim" in eqn.params else eqn.params["call_jaxpr"]
        if len(values) == 1 and (composite := _composite(jaxpr)):
            return (b.op(composite, values[0]),)
        known = set(b.closed_values())
        closed_over = {v for v, x in zip(eqn.invars, values) if x in known and _is_variable(v)}
        traced = _traced(b.capture, kind, eqn, closed_over)
        if traced is None:
            return b.inline(jaxpr, values)
        rules, jaxprs = traced
        given = {v: x for v, x in zip(eqn.invars, values) if _is_variable(v)}
        operands = [given[v] for v in rules.variables]
        inside = Inside(b, b.nested_arrays(jaxpr, *jaxprs), operands[: rules.constants])
        graphs = _rule_graphs(inside, eqn, jaxprs)
        if graphs is None:
            return b.inline(jaxpr, values)
        operands = [*inside.values, *(x for i, x in enumerate(operands) if i not in inside.same)]
        attrs = {"num_consts": len(operands) - len(rules.specs) + rules.constants, "name": compat.function_name(eqn)}
        if op is ops.custom_vjp:
            attrs["num_residuals"] = len(graphs[0].outputs) - len(eqn.outvars)
        return b.run(op, operands, (_body(inside, rules, jaxpr), *graphs), **attrs)

    return row


class Inside:
    """What regions see of the arrays around them: an input for each, and none twice."""

    def __init__(self, b: JaxprBuilder, arrays: Sequence[Any], constants: Sequence[Value]):
        self.b, self.arrays = b, arrays
        self.values = [b.closed_over(x) for x in arrays]
        # The place of a constant operand -> the array that it is.
        self.same = {i: arrays[self.values.index(x)] for i, x in enumerate(constants) if x in self.values}

    def start(self, avals: Sequence[Any]) -> tuple[JaxprBuilder, list[Value]]:
        """The builder of a region, and values for its operands, the constants first."""
        inner = self.b.inner_builder(self.arrays)
        types = [self.b.type_of(a) for a in avals]
        return inner, [
            inner.closed_over(self.same[i]) if i in self.same else inner.input(f"x{i}", t.dtype, t.shape)
            for i, t in enumerate(types)
        ]

    def region(self, jaxpr: Any) -> Graph:
        """A jaxpr as a region."""
        plain, _ = compat.unclosed(jaxpr)
        inner, values = self.start(plain.invars)
        return inner.build(inner.inline(jaxpr, values))


def _traced(capture: Capture, kind: str, eqn: Any, closed_over: set[Any]) -> tuple[Rules, Sequence[Any]] | None:
    """The rules of an equation as jaxprs; None where there is nothing to derive, or no end of it."""
    if capture.order >= MOST_RULES:
        return None
    rules = Rules(eqn, closed_over)
    if not rules.moving or not rules.results:
        return None
    try:
        return rules, (rules.jvp(), rules.vjp()) if kind == "jvp" else rules.halves()
    except Exception as error:  # the user's rule: it may raise anything, and the function runs without it
        capture.lost_rules.append(f"{compat.function_name(eqn)} ({type(error).__name__}: {str(error).splitlines()[0]})")
        return None


def _rule_graphs(inside: Inside, eqn: Any, jaxprs: Sequence[Any]) -> list[Graph] | None:
    """The rules as regions, or None when one of them holds something that a graph cannot."""
    capture = inside.b.capture
    gaps, capture.gaps = capture.gaps, Gaps("")
    try:
        with capture.within(capture.order + 1):
            graphs = [inside.region(j) for j in jaxprs]
        lost = [f"{gap.op}: {gap.reason}" for gap in capture.gaps.found.values()]
    finally:
        capture.gaps = gaps
    if lost:
        capture.lost_rules.append(f"{compat.function_name(eqn)} ({'; '.join(lost)})")
        return None
    return graphs


def _body(inside: Inside, rules: Rules, jaxpr: Any) -> Graph:
    """What runs. Its own functions need no rules: they would never be asked."""
    inner, inputs = inside.start(rules.variables)
    with inside.b.capture.within(MOST_RULES):
        given = [inputs[i] if number is None else inner.read({}, number) for number, i in rules.operands]
        return inner.build(inner.inline(jaxpr, given))


# -- functions of JAX that the language knows by name --------------------------------------------------


def _composite(jaxpr: Any) -> str:
    """``relu`` and ``relu6``, whose composites have JAX's slopes at the kinks; else ""."""
    plain, _ = compat.unclosed(jaxpr)
    names = tuple(eqn.primitive.name for eqn in plain.eqns)
    if names in (("jit",), ("pjit",)) and plain.eqns[0].params.get("name") in _KINKED:
        return _composite(plain.eqns[0].params["jaxpr"])
    for name, steps in _KINKED.items():
        if names == tuple(step for step, _ in steps):
            bounds = [eqn.invars[-1] for eqn in plain.eqns]
            if all(isinstance(v, compat.Literal) and v.val == n for v, (_, n) in zip(bounds, steps)):
                return name
    return ""


_KINKED = {"relu": (("max", 0),), "relu6": (("max", 0), ("min", 6))}

ROWS: Mapping[str, Row] = {
    "custom_jvp_call": _row("jvp"),
    "custom_vjp_call": _row("vjp"),
    "call_hi_primitive": _row("jvp"),
}
