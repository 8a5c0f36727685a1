"""Functions with derivative rules of their own, as torch.autograd.Function.

The rules are written as JAX writes them: linear, without conjugation. torch's gradients are the
conjugates of JAX's cotangents, so complex ones are conjugated on the way in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
Function = Callable[..., Sequence[Tensor]]


class Derived(torch.nn.Module):
    """``body`` with the rule ``pull`` for its gradient, and perhaps ``push`` for its tangents.

    ``body(*operands)`` gives ``results`` results, then residuals for the rule;
    ``pull(*constants, *residuals, *gradients, *rest)`` gives a gradient for each float operand behind
    the constants (``pull(*operands, *gradients, *rest)`` where there is a ``push``);
    ``push(*operands, *tangents, *rest)`` gives a tangent for each float result. Operands from number
    ``operands`` on are the rest: what the functions read besides, without gradients.
    """

    def __init__(
        self,
        body: Function,
        pull: Function,
        push: Function | None = None,
        *,
        operands: int,
        results: int,
        constants: int = 0,
    ):
        super().__init__()
        self.body, self.pull, self.push = body, pull, push
        self.operands, self.results, self.constants = operands, results, constants

    def forward(self, *operands: Any) -> tuple[Tensor, ...]:
        compiling = torch.compiler.is_compiling()
        if compiling and not torch.is_grad_enabled():  # the compiler knows no function in the forward of another
            return tuple(self.body(*operands)[: self.results])
        function = _Ruled if self.push is None or compiling else _RuledBothWays
        return tuple(function.apply(self, *operands)[: self.results])

    def gradients(
        self, operands: Sequence[Any], residuals: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Any]:
        """One gradient for each operand, None where there is none."""
        plain, rest = operands[: self.operands], operands[self.operands :]
        given = [_conjugate(c) for c in cotangents if _moves(c)]
        if self.push is not None:
            moved = iter(self.pull(*plain, *given, *rest))
        else:
            moved = iter(self.pull(*plain[: self.constants], *residuals, *given, *rest))
        return [_conjugate(next(moved)) if self._moving(i, x) else None for i, x in enumerate(operands)]

    def _moving(self, i: int, x: Any) -> bool:
        return self.constants <= i < self.operands and _moves(x)

    def tangents(self, operands: Sequence[Any], given: Sequence[Tensor | None]) -> list[Tensor]:
        """One tangent for each float result."""
        plain, rest = operands[: self.operands], operands[self.operands :]
        moving = [
            torch.zeros_like(x) if t is None else t for i, (x, t) in enumerate(zip(plain, given)) if self._moving(i, x)
        ]
        assert self.push is not None
        return list(self.push(*plain, *moving, *rest))


def _moves(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _conjugate(x: Tensor) -> Tensor:
    return x.conj().resolve_conj() if x.is_complex() else x


class _Ruled(torch.autograd.Function):
    """`Derived`'s function: results, then residuals (which have no gradients of their own)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(derived: Derived, *operands: Any) -> tuple[Tensor, ...]:
        taken = {id(x) for x in operands}
        found = []
        for x in derived.body(*operands):
            found.append(x.detach().view_as(x) if id(x) in taken else x)  # a result of its own, as autograd wants
            taken.add(id(x))
        return tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        derived, *operands = inputs
        residuals = output[derived.results :]
        ctx.mark_non_differentiable(*residuals, *(x for x in output[: derived.results] if not _moves(x)))
        ctx.derived, ctx.count = derived, len(operands)
        ctx.tensors = [i for i, x in enumerate(operands) if isinstance(x, Tensor)]
        ctx.others = {i: x for i, x in enumerate(operands) if not isinstance(x, Tensor)}
        ctx.save_for_backward(*(operands[i] for i in ctx.tensors), *residuals)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        derived = ctx.derived
        operands, residuals = _saved(ctx)
        if residuals and torch.is_grad_enabled():  # they have no history: computed again, they get one
            residuals = derived.body(*operands)[derived.results :]
        return None, *derived.gradients(operands, residuals, cotangents[: derived.results])


def _saved(ctx: Any) -> tuple[list[Any], Sequence[Tensor]]:
    """The operands and the residuals of a call."""
    saved = ctx.saved_tensors
    known = {**dict(zip(ctx.tensors, saved)), **ctx.others}
    return [known[i] for i in range(ctx.count)], saved[len(ctx.tensors) :]


class _RuledBothWays(_Ruled):
    """With tangents as well. (torch's compiler refuses functions that have them.)"""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _Ruled.setup_context(ctx, inputs, output)
        ctx.floats = [_moves(x) for x in output]
        ctx.save_for_forward(*(x for x in inputs[1:] if isinstance(x, Tensor)))

    @staticmethod
    def jvp(ctx: Any, _: None, *given: Tensor | None) -> tuple[Tensor | None, ...]:
        derived = ctx.derived
        operands, _residuals = _saved(ctx)
        moved = iter(derived.tangents(operands, given))
        return tuple(next(moved) if moves else None for moves in ctx.floats)
