"""Unroll: a loop of known length becomes plain DAG."""

from __future__ import annotations

from ..errors import InputError
from ..graph import Graph, Operation, Value
from ..ops import control
from ..ops import movement as m
from .rewrite import Rewriter


def unroll(graph: Graph, max_length: int = 64) -> Graph:
    """The graph with every ``scan`` of at most ``max_length`` steps, and every ``call``, written out.

    Longer and symbolic loops, and ``while`` (whose length is not known), stay. Values are equal bit
    for bit. Raises InputError for a negative ``max_length``.
    """
    if max_length < 0:
        raise InputError(f"max_length must not be negative, got {max_length}")
    r = Rewriter(graph)
    changed = False
    for op in graph.edges:
        inputs = [r.now(v) for v in op.inputs]
        r.scope, r.source = op.scope, op.source
        if op.op is control.scan and type(op.attrs["length"]) is int and op.attrs["length"] <= max_length:
            outputs = _scan(r, op, inputs, unroll(op.regions[0], max_length))
        elif op.op is control.call:
            outputs = list(r.inline(unroll(op.regions[0], max_length), inputs))
        else:
            r.replay(op)
            continue
        changed = True
        r.env.update(zip(op.outputs, outputs, strict=True))
    return r.finish() if changed else graph


def _scan(r: Rewriter, op: Operation, inputs: list[Value], body: Graph) -> list[Value]:
    a = op.attrs
    split = a["num_consts"] + a["num_carry"]
    consts, carry, xs = inputs[: a["num_consts"]], inputs[a["num_consts"] : split], inputs[split:]
    steps = range(a["length"])
    rows: list[tuple[Value, ...]] = []
    for index in reversed(steps) if a["reverse"] else steps:
        slices = [_row(r, x, index) for x in xs]
        results = r.inline(body, [*consts, *carry, *slices])
        carry = list(results[: a["num_carry"]])
        rows.append(results[a["num_carry"] :])
    if a["reverse"]:
        rows.reverse()
    stacked = [_stack(r, [row[i] for row in rows], v) for i, v in enumerate(op.outputs[a["num_carry"] :])]
    return [*carry, *stacked]


def _row(r: Rewriter, x: Value, index: int) -> Value:
    shape = x.type.shape
    start, limit = (index, *(0 for _ in shape[1:])), (index + 1, *shape[1:])
    return r.emit(m.reshape, [r.emit(m.slice, [x], {"start": start, "limit": limit})], {"shape": shape[1:]})


def _stack(r: Rewriter, rows: list[Value], like: Value) -> Value:
    if not rows:
        return r.full(0, like.type.dtype, like.type.shape)
    parts = [r.emit(m.reshape, [row], {"shape": (1, *row.type.shape)}) for row in rows]
    return r.emit(m.concatenate, parts, {"axis": 0})
