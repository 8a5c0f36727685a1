"""Higher-order operators: branches and loops become regions, wrappers are walked in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from unigraph.dtypes import bool_
from unigraph.errors import Unsupported
from unigraph.graph import Value
from unigraph.ops.idioms import cast, reshape

from .rowbook import rows

hop = torch.ops.higher_order


def walking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a row that takes the walker instead of the builder."""
    function.walks = True  # type: ignore[attr-defined]
    return function


def tensors(operands: Sequence[Any], what: str) -> list[Value]:
    for o in operands:
        if not isinstance(o, Value):
            raise Unsupported(f"{what} over {type(o).__name__} operands", "pass tensors into it")
    return list(operands)


@walking
def _cond(walker: Any, predicate: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> tuple[Value, ...]:
    b = walker.b
    if isinstance(predicate, bool):
        return walker.inline(yes if predicate else no, list(operands))
    if not isinstance(predicate, Value):
        raise Unsupported("torch.cond on a size", "compare it before and pass a tensor")
    values = tensors(operands, "torch.cond")
    types = [v.type for v in values]
    which = reshape(b, cast(b, predicate, bool_), ())
    return b.cond(which, *values, branches=[walker.region(m, types) for m in (no, yes)])


@walking
def _while(
    walker: Any, condition: Any, body: Any, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Value, ...]:
    b = walker.b
    carry, constants = tensors(carried, "torch.while_loop"), tensors(extra, "torch.while_loop")
    # torch passes (carry, constants), the graph's loop takes the constants first.
    types = [v.type for v in (*carry, *constants)]
    turn = _constants_first(len(carry), len(constants))
    cond_region = turn(walker, walker.region(condition, types))
    body_region = turn(walker, walker.region(body, types))
    n = len(constants)
    return b.while_(*constants, *constants, *carry, cond_consts=n, body_consts=n, cond=cond_region, body=body_region)


def _constants_first(carried: int, constants: int) -> Callable[[Any, Any], Any]:
    """Reorder a region's inputs from (carry, constants) to (constants, carry)."""

    def turn(walker: Any, region: Any) -> Any:
        order = (*range(carried, carried + constants), *range(carried))
        return region.replace(inputs=tuple(region.inputs[i] for i in order))

    return turn


@walking
def _scan(
    walker: Any, body: Any, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Value, ...]:
    b = walker.b
    carry, rows_, constants = (tensors(o, "scan") for o in (init, xs, extra))
    if not rows_:
        raise Unsupported("a scan over nothing")
    slices = [v.type.with_(shape=v.type.shape[1:]) for v in rows_]
    region = walker.region(body, [*(v.type for v in carry), *slices, *(v.type for v in constants)])
    order = (*range(len(carry) + len(rows_), len(region.inputs)), *range(len(carry) + len(rows_)))
    region = region.replace(inputs=tuple(region.inputs[i] for i in order))
    return b.scan(
        *constants,
        *carry,
        *rows_,
        length=rows_[0].type.shape[0],
        num_consts=len(constants),
        num_carry=len(carry),
        body=region,
    )


@walking
def _map(walker: Any, body: Any, xs: Sequence[Any], extra: Sequence[Any] = ()) -> tuple[Value, ...]:
    return _scan(walker, body, (), xs, extra)


@walking
def _grad_mode(walker: Any, enabled: bool, module: Any, *operands: Any) -> Any:
    return walker.inline(module, operands)


@walking
def _checkpoint(walker: Any, module: Any, *operands: Any, **options: Any) -> Any:
    return walker.inline(module, operands)


rows(
    {
        hop.cond: _cond,
        hop.while_loop: _while,
        hop.scan: _scan,
        hop.map_impl: _map,
        hop.wrap_with_set_grad_enabled: _grad_mode,
        hop.wrap_activation_checkpoint: _checkpoint,
        hop.tag_activation_checkpoint: _checkpoint,
    }
)
