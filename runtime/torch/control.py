"""Control flow, eagerly: Python branches and loops around regions. Every op is differentiable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from unigraph import dims
from unigraph.evaluate import Program, Row
from unigraph.opdef import OpDef
from unigraph.ops import control as c

from .compat import is_traced
from .custom import Derived
from .dtypes import bits, to_torch, unbits

Tensor = torch.Tensor


class Region:
    """A region as rows see it: called with tensors, it gives a tuple of tensors."""

    def __init__(self, program: Program, symbols: Mapping[str, Any]):
        self.program, self.symbols = program, symbols
        # True: takes tensors of any one shape where its types say scalar.
        self.elementwise = all(op.op.is_pointwise for op in program.graph.all_edges())

    def __call__(self, *args: Tensor) -> tuple[Tensor, ...]:
        return self.program.run(args, symbols=self.symbols)

    def empty_results(self, first: int, length: Any, device: torch.device) -> list[Tensor]:
        """What stacking no results of this region gives, from result number ``first`` on."""
        made = []
        for t in self.program.graph.out_types[first:]:
            words = [t.dtype.key_words] if t.dtype.is_key else []
            shape = [length, *(dims.evaluate(d, self.symbols) for d in t.shape), *words]
            made.append(torch.empty(shape, dtype=to_torch(t.dtype), device=device))
        return made


Branch = Callable[..., tuple[Tensor, ...]]


def cond(which: Tensor, *operands: Tensor, branches: Sequence[Branch]) -> tuple[Tensor, ...]:
    """One branch runs."""
    return branches[min(max(int(which), 0), len(branches) - 1)](*operands)


def while_(
    *operands: Tensor, cond_consts: int = 0, body_consts: int = 0, cond: Branch, body: Branch
) -> tuple[Tensor, ...]:
    """A Python loop."""
    for_cond = operands[:cond_consts]
    for_body = operands[cond_consts : cond_consts + body_consts]
    carry: Sequence[Tensor] = operands[cond_consts + body_consts :]
    while bool(cond(*for_cond, *carry)[0]):
        carry = body(*for_body, *carry)
    return tuple(carry)


def stacked(xs: Sequence[Tensor]) -> Tensor:
    """Tensors of one type under a new first axis."""
    return unbits(torch.stack([bits(x) for x in xs]), xs[0].dtype)


def scan(
    *operands: Tensor, length: int, num_consts: int, num_carry: int, reverse: bool = False, body: Region
) -> tuple[Tensor, ...]:
    """A Python loop; the results of its steps are stacked."""
    consts, xs = operands[:num_consts], operands[num_consts + num_carry :]
    carry: Sequence[Tensor] = operands[num_consts : num_consts + num_carry]
    steps: list[Sequence[Tensor]] = []
    for i in reversed(range(length)) if reverse else range(length):
        results = body(*consts, *carry, *(x[i] for x in xs))
        carry, ys = results[:num_carry], results[num_carry:]
        steps.append(ys)
    if not steps:
        device = operands[0].device if operands else torch.get_default_device()
        return (*carry, *body.empty_results(num_carry, 0, device))
    if reverse:
        steps.reverse()
    return (*carry, *(stacked(column) for column in zip(*steps)))


def remat(*operands: Tensor, body: Branch) -> tuple[Tensor, ...]:
    """Intermediate values are computed again for the backward pass, where there is one."""
    if torch.is_grad_enabled() and any(x.requires_grad and not is_traced(x) for x in operands):
        # An early stop is an exception, which a program would take for a failure of its row.
        with set_checkpoint_early_stop(False):
            return tuple(checkpoint(body, *operands, use_reentrant=False))
    return body(*operands)


def custom_jvp(*operands: Tensor, body: Region, jvp: Branch, vjp: Branch, num_consts: int, name: str) -> Any:
    """Differentiated forwards and backwards by its own rules."""
    if not torch.is_grad_enabled():
        return body(*operands)
    results = len(body.program.graph.outputs)
    return Derived(body, vjp, jvp, operands=len(operands), results=results, constants=num_consts)(*operands)


def custom_vjp(
    *operands: Tensor, body: Region, fwd: Branch, bwd: Branch, num_residuals: int, num_consts: int, name: str
) -> Any:
    """Differentiated backwards by its own rule."""
    if not torch.is_grad_enabled():
        return body(*operands)
    results = len(body.program.graph.outputs)
    return Derived(fwd, bwd, operands=len(operands), results=results, constants=num_consts)(*operands)


ROWS: Mapping[OpDef, Row] = {
    c.cond: cond,
    c.while_: while_,
    c.scan: scan,
    c.call: lambda *operands, name, body: body(*operands),
    c.remat: remat,
    c.custom_jvp: custom_jvp,
    c.custom_vjp: custom_vjp,
}
