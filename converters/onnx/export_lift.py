"""A body over scalars, applied to whole arrays: its operations are re-emitted at the array's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unigraph.dtypes import bool_
from unigraph.errors import Unsupported
from unigraph.graph import Graph
from unigraph.ops import movement

from .complex_handles import Complex, any_complex, constant
from .emitter import Emitter
from .handles import Array


def lifted(o: Emitter, body: Graph, xs: Sequence[Array], shape: Sequence[Any]) -> list[Array]:
    """The body's outputs for arrays of one shape in place of its scalars.

    Raises Unsupported where the body does more than elementwise arithmetic.
    """
    o = getattr(o, "o", o)  # what a complex emitter works on
    rows = o.rows
    env: dict[Any, Any] = dict(zip(body.inputs, xs, strict=True))
    for value, data in body.data.items():
        whole = constant(o, data) if value.type.dtype.is_complex else o.const(data, value.type.dtype)
        env[value] = whole.each(o.expand, shape) if isinstance(whole, Complex) else o.expand(whole, shape)
    outer = o.operation
    try:
        for op in body.edges:
            o.operation = op
            args = [env[v] for v in op.inputs]
            if op.op is movement.broadcast_in_dim or op.op is movement.reshape:
                if any(v.type.rank for v in (*op.inputs, *op.outputs)):
                    raise Unsupported(f"a combining body that uses {op.op.name}")
                results: Any = args[0]
            elif op.op.is_pointwise and any_complex([v.type for v in (*op.inputs, *op.outputs)]):
                results = o.complex_rows[op.op](o, *args, **op.attrs)
            elif op.op.is_pointwise and op.op in rows:
                results = rows[op.op](o, *args, **op.attrs)
            elif op.op.is_composite and op.op not in rows:
                from unigraph.evaluate import decomposition

                results = tuple(lifted(o, decomposition(op), args, shape))
            elif op.op.name == "cond":
                results = _choice(o, op.regions, args, shape)
            else:
                raise Unsupported(f"a combining body that uses {op.op.name}", "use elementwise ops in the body")
            o.operation = op
            results = results if isinstance(results, tuple) else (results,)
            env.update(zip(op.outputs, (_typed(o, y, shape) for y in results), strict=True))
    finally:
        o.operation = outer
    return [env[v] for v in body.outputs]


def _typed(o: Emitter, x: Any, shape: Sequence[Any]) -> Any:
    return x.each(o.typed, shape) if isinstance(x, Complex) else o.typed(x, shape)


def _choice(o: Emitter, branches: Sequence[Graph], args: Sequence[Array], shape: Sequence[Any]) -> tuple[Array, ...]:
    """A branch for each element: all are computed, then selected."""
    which, *operands = args
    cases = [lifted(o, b, operands, shape) for b in branches]
    results = []
    for parts in zip(*cases):
        chosen = parts[0]
        for number, part in enumerate(parts[1:], 1):
            chosen = o.Where(which if which.dtype is bool_ else o.GreaterOrEqual(which, number), part, chosen)
        results.append(chosen)
    return tuple(results)
