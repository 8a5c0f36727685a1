"""Functions whose own definition looks at values where it need not, written without: export goes through them.

What looks at values is a check, which a graph does not make, or a choice that follows from shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import combinations, combinations_with_replacement
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Tensor = torch.Tensor


def rewriting(strict: bool = False) -> AbstractContextManager[Any]:
    """A block in which the functions below stand in for torch's; not where Dynamo reads the code itself (strict)."""
    return nullcontext() if strict else _Rewriting()


class _Rewriting(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _OWN.get(func, func)(*args, **(kwargs or {}))


def _combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """torch selects rows of a mesh by a mask; which ones follows from the length."""
    choose = combinations_with_replacement if with_replacement else combinations
    chosen = list(choose(range(x.shape[0]), r))
    if not chosen or not r:
        return x.new_empty((0, r) if r else (0,))
    return x[torch.tensor(chosen, dtype=torch.int64, device=x.device)]


def _cov(x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """torch looks whether the divisor is positive, warns and clears it if not."""
    x = x.reshape(1, -1) if x.ndim < 2 else x
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        mean = x.sum(1) / x.shape[1]
        divisor: Any = max(x.shape[1] - correction, 0)
    else:
        total = weights.sum()
        mean = (x * weights).sum(1) / total
        extra = correction if aweights is None else correction * (weights * aweights).sum() / total
        divisor = (total - extra).clamp_min(0)
    x = x - mean[:, None]
    product = (x if weights is None else x * weights) @ x.T.conj()
    return (product / divisor).squeeze()


def _corrcoef(x: Tensor) -> Tensor:
    c = _cov(x)
    if c.ndim == 0:
        return c / c
    spread = (c.diag().real if c.is_complex() else c.diag()).sqrt()
    c = c / spread[:, None] / spread[None]
    return torch.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1)) if c.is_complex() else c.clamp(-1, 1)


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """torch raises an error where a variance is negative; here it counts as ``eps``."""
    variance = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if variance.shape != input.shape and variance.shape == input.shape[:-1]:
        variance = variance.unsqueeze(-1)
    variance = variance.clone()
    with torch.no_grad():
        variance.clamp_(min=eps)
    loss = 0.5 * (torch.log(variance) + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _narrow(x: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """torch reads a start out of a tensor; its elements can be looked up instead."""
    if not isinstance(start, Tensor):
        return torch.narrow(x, dim, start, length)
    start = torch.where(start < 0, start + x.shape[dim], start)
    return x.index_select(dim, start.reshape(()) + torch.arange(length, device=x.device))


def _equal(x: Tensor, y: Tensor) -> Any:
    """torch gives a Python truth value at once; here it is one that a branch can ask for."""
    if x.shape != y.shape:
        return False
    return (x == y).all().item()


def _allclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return torch.isclose(x, y, rtol, atol, equal_nan).all().item()


_aten = torch.ops.aten
_OWN: Mapping[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.combinations, _aten.combinations, _aten.combinations.default), _combinations),
    **dict.fromkeys((torch.cov, Tensor.cov, _aten.cov, _aten.cov.default), _cov),
    **dict.fromkeys((torch.corrcoef, Tensor.corrcoef, _aten.corrcoef, _aten.corrcoef.default), _corrcoef),
    **dict.fromkeys((torch.narrow, Tensor.narrow), _narrow),
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    **dict.fromkeys((torch.equal, Tensor.equal), _equal),
    **dict.fromkeys((torch.allclose, Tensor.allclose), _allclose),
}
