"""Unroll: a loop of known length becomes plain DAG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import InputError
from ..graph import Graph, GraphLike, Operation, Value, as_graph
from ..ops import control, index
from ..ops import movement as m
from ..ops import random as rng
from .rewrite import Rewriter, Sweep, once, with_regions

Written = Callable[[Sequence[Value]], list[Value]]  # operands -> results of one copy of a body


def unroll(graph: GraphLike, max_length: int = 64) -> Graph:
    """The graph with every ``scan`` of at most ``max_length`` steps, and every ``call``, written out.

    Longer and symbolic loops, and ``while`` (whose length is not known), stay; so does a body that
    makes sizes of its own (``nonzero``). Values are equal bit for bit. Raises InputError for a
    negative ``max_length``.
    """
    graph = as_graph(graph)
    if max_length < 0:
        raise InputError(f"max_length must not be negative, got {max_length}")

    def sweep(graph: Graph) -> Graph:
        return _unrolled(graph, max_length, inside)

    inside = once(sweep)
    return sweep(graph)


def _unrolled(graph: Graph, max_length: int, inside: Sweep) -> Graph:
    r = Rewriter(graph)
    changed = False
    for op in graph.edges:
        if not op.regions:
            r.replay(op)
            continue
        new = with_regions(op, inside)
        r.scope, r.source = op.scope, op.source
        if _can_be_written(new, max_length):
            inputs = list(r.inputs_of(op))
            body = _writer(r, new.regions[0])
            outputs = _scan(r, new, inputs, body) if op.op is control.scan else body(inputs)
            r.env.update(zip(op.outputs, outputs, strict=True))
            changed = True
        else:
            r.replay(new)
            changed = changed or new is not op
    return r.finish() if changed else graph


def _can_be_written(op: Operation, max_length: int) -> bool:
    if op.op is control.scan:
        length = op.attrs["length"]
        if type(length) is not int or length > max_length:
            return False
    elif op.op is not control.call:
        return False
    return all(inner.op is not index.nonzero for inner in op.regions[0].all_edges())


def _writer(r: Rewriter, body: Graph) -> Written:
    """Copies ``body`` into the new graph each time it is called; its constants are stored once."""
    data = {v: r.constant(a, v.type.dtype) for v, a in body.data.items()}
    place = r.scope

    def write(inputs: Sequence[Value]) -> list[Value]:
        env = {**data, **dict(zip(body.inputs, inputs, strict=True))}
        for op in body.edges:
            outputs = tuple(Value(v.type) for v in op.outputs)
            env.update(zip(op.outputs, outputs))
            operands = tuple(env[v] for v in op.inputs)
            scope = op.scope or place
            r.replay(Operation(op.op, operands, outputs, op.attrs, op.regions, scope, op.source), operands)
        return [env[v] for v in body.outputs]

    return write


def _scan(r: Rewriter, op: Operation, inputs: list[Value], body: Written) -> list[Value]:
    a = op.attrs
    split = a["num_consts"] + a["num_carry"]
    consts, carry, xs = inputs[: a["num_consts"]], inputs[a["num_consts"] : split], inputs[split:]
    steps = range(a["length"])
    rows: list[list[Value]] = []
    for step in reversed(steps) if a["reverse"] else steps:
        results = body([*consts, *carry, *(_row(r, x, step) for x in xs)])
        carry = results[: a["num_carry"]]
        rows.append(results[a["num_carry"] :])
    if a["reverse"]:
        rows.reverse()
    stacked = [_stack(r, [row[i] for row in rows], v) for i, v in enumerate(op.outputs[a["num_carry"] :])]
    return [*carry, *stacked]


def _row(r: Rewriter, x: Value, index: int) -> Value:
    if x.type.dtype.is_key:  # keys move as their words
        return _wrap(r, _row(r, r.emit(rng.rng_unwrap, [x]), index), x)
    shape = x.type.shape
    start, limit = (index, *(0 for _ in shape[1:])), (index + 1, *shape[1:])
    return r.emit(m.reshape, [r.emit(m.slice, [x], {"start": start, "limit": limit})], {"shape": shape[1:]})


def _stack(r: Rewriter, rows: list[Value], like: Value) -> Value:
    if like.type.dtype.is_key:
        words = like.type.dtype.key_words
        if not rows:
            return _wrap(r, r.full(0, "u32", (*like.type.shape, words)), like)
        parts = [r.emit(rng.rng_unwrap, [row]) for row in rows]
        return _wrap(r, r.emit(m.concatenate, [_lifted(r, part) for part in parts], {"axis": 0}), like)
    if not rows:
        return r.full(0, like.type.dtype, like.type.shape)
    return r.emit(m.concatenate, [_lifted(r, row) for row in rows], {"axis": 0})


def _lifted(r: Rewriter, x: Value) -> Value:
    return r.emit(m.reshape, [x], {"shape": (1, *x.type.shape)})


def _wrap(r: Rewriter, words: Value, like: Value) -> Value:
    impl = like.type.dtype.name.removeprefix("key<").removesuffix(">")
    return r.emit(rng.rng_wrap, [words], {"impl": impl})
