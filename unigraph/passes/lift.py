"""Lift: work that is the same in every step of a loop is done once, before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..graph import INPUT, KEY, Graph, GraphLike, Operation, Value, as_graph
from ..ops import control, index
from ..ops import movement as m
from ..tree import DICT, LEAF, TUPLE, Signature, Tree
from .prune import dead_code
from .rewrite import Rewriter, once, with_regions

# Cheap to make in every step, big to keep: they stay inside, and are copied where lifted work reads them.
SPREADING = frozenset((m.broadcast_in_dim, m.iota, m.reshape, m.dim_size))
BOUND = frozenset((index.nonzero, index.sized))  # they bring sizes of their own


def lift(graph: GraphLike) -> Graph:
    """The graph with invariant work of ``scan`` and ``while`` bodies moved before the loop.

    Invariant is what reads only the constants of a loop; a carried value that comes out of every step as
    it went in counts as a constant, and becomes one. Values are equal bit for bit; a loop that takes no
    step now computes what it used to leave out.
    """
    graph = as_graph(graph)
    return once(_lifted)(graph)


def _lifted(graph: Graph) -> Graph:
    if not any(op.regions for op in graph.edges):
        return graph
    r = Rewriter(graph)
    inside = once(_lifted)
    changed = False
    for op in graph.edges:
        new = with_regions(op, inside) if op.regions else op
        loop = _LOOPS.get(new.op)
        r.scope, r.source = op.scope, op.source
        results = loop(r, new) if loop else None
        if results is None:
            r.replay(new)
            changed = changed or new is not op
            continue
        changed = True
        for old, made in zip(op.outputs, results, strict=True):
            r.env[old] = r.label(made, old.name)
    return r.finish() if changed else graph


def _scan(r: Rewriter, op: Operation) -> list[Value] | None:
    a, body, operands = op.attrs, op.regions[0], r.inputs_of(op)
    consts, carried = a["num_consts"], a["num_carry"]
    still = _still(body, consts, carried)
    order = _fixed_first(len(operands), consts, still)
    moving = [i for i in range(len(body.outputs)) if i not in still]
    body = _arranged(body, order, moving)
    operands = tuple(operands[i] for i in order)
    fixed = consts + len(still)
    body, extra = _without_invariants(r, body, operands[:fixed])
    if not still and not extra:
        return None
    attrs = {**a, "num_consts": fixed + len(extra), "num_carry": carried - len(still)}
    made = r.emit(op.op, [*operands[:fixed], *extra, *operands[fixed:]], attrs, (body,))
    rest = iter(made)
    return [r.now(op.inputs[consts + i]) if i in still else next(rest) for i in range(len(op.outputs))]


def _while(r: Rewriter, op: Operation) -> list[Value] | None:
    a, (cond, body), operands = op.attrs, op.regions, r.inputs_of(op)
    of_cond, of_body = a["cond_consts"], a["body_consts"]
    carried = len(op.outputs)
    for_cond, for_body, carry = (
        operands[:of_cond],
        operands[of_cond : of_cond + of_body],
        operands[of_cond + of_body :],
    )
    still = _still(body, of_body, carried)
    moving = [i for i in range(carried) if i not in still]
    body = _arranged(body, _fixed_first(of_body + carried, of_body, still), moving)
    cond = _arranged(cond, _fixed_first(of_cond + carried, of_cond, still), [0])
    kept = [carry[i] for i in still]
    for_cond, for_body = (*for_cond, *kept), (*for_body, *kept)
    cond, more = _without_invariants(r, cond, for_cond)
    body, extra = _without_invariants(r, body, for_body)
    if not still and not extra and not more:
        return None
    attrs = {"cond_consts": len(for_cond) + len(more), "body_consts": len(for_body) + len(extra)}
    made = r.emit(op.op, [*for_cond, *more, *for_body, *extra, *(carry[i] for i in moving)], attrs, (cond, body))
    rest = iter(made)
    return [carry[i] if i in still else next(rest) for i in range(carried)]


_LOOPS = {control.scan: _scan, control.while_: _while}


def _still(body: Graph, consts: int, carried: int) -> list[int]:
    """Which carried values come out of a step as they went in."""
    return [i for i in range(carried) if body.outputs[i] is body.inputs[consts + i]]


def _fixed_first(count: int, consts: int, still: Collection[int]) -> list[int]:
    """Positions of a loop's operands with the carried values that stay still behind the constants."""
    kept = [consts + i for i in still]
    return [*range(consts), *kept, *(i for i in range(consts, count) if i not in kept)]


def _arranged(region: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    return _region(region, [region.inputs[i] for i in inputs], [region.outputs[i] for i in outputs])


def _region(region: Graph, inputs: Sequence[Value], outputs: Sequence[Value], **changes: object) -> Graph:
    leaf = Tree(LEAF)
    args, out = (Tree(TUPLE, (leaf,) * len(values)) for values in (inputs, outputs))
    signature = Signature(args, Tree(DICT), out, tuple(v.name for v in inputs))
    return region.replace(inputs=tuple(inputs), outputs=tuple(outputs), signature=signature, **changes)


def _without_invariants(r: Rewriter, region: Graph, fixed: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """The region with its invariant values as further inputs behind the fixed ones, and these values outside."""
    known = {*region.inputs[: len(fixed)], *region.data}
    invariant: list[Operation] = []
    for op in region.edges:
        if known.issuperset(op.inputs) and op.op not in BOUND:
            invariant.append(op)
            known.update(op.outputs)
    lifted = {op for op in invariant if op.op not in SPREADING}
    rest = [op for op in region.edges if op not in lifted]
    read = {v for op in rest for v in op.inputs} | set(region.outputs)
    wanted = [v for op in region.edges if op in lifted for v in op.outputs if v in read]
    if not wanted:
        return region, []
    env = _outside(r, region, dict(zip(region.inputs, fixed)), invariant, wanted)
    fresh = {v: Value(v.type, f"invariant{i}", KEY if v.type.dtype.is_key else INPUT) for i, v in enumerate(wanted)}
    inputs = (*region.inputs[: len(fixed)], *fresh.values(), *region.inputs[len(fixed) :])
    edges = tuple([op.with_inputs(tuple([fresh.get(v, v) for v in op.inputs])) for op in rest])
    outputs = [fresh.get(v, v) for v in region.outputs]
    return dead_code(_region(region, inputs, outputs, edges=edges)), [env[v] for v in wanted]


def _outside(
    r: Rewriter, region: Graph, env: Mapping[Value, Value], invariant: Sequence[Operation], wanted: Sequence[Value]
) -> Mapping[Value, Value]:
    """Copies of the invariant operations that ``wanted`` needs, before the loop."""
    needed = set(wanted)
    for op in reversed(invariant):
        if not needed.isdisjoint(op.outputs):
            needed.update(op.inputs)
    env = {**env, **{v: r.constant(a, v.type.dtype) for v, a in region.data.items() if v in needed}}
    place = r.scope
    for op in invariant:
        if needed.isdisjoint(op.outputs):
            continue
        outputs = tuple(Value(v.type) for v in op.outputs)
        operands = tuple(env[v] for v in op.inputs)
        r.replay(Operation(op.op, operands, outputs, op.attrs, op.regions, op.scope or place, op.source), operands)
        env.update(zip(op.outputs, outputs))
    return env
