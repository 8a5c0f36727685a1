"""Modules on torch's meta device: an architecture whose parameters have no memory, bound to a checkpoint later.

Buffers that no checkpoint holds (frequencies of rotary embeddings) may be real all the same: they are traced as
the rest is and keep their data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .capture import Captured, Source


@contextmanager
def all_on_meta(program: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Where a parameter has no memory, put what is real on the meta device too, for as long as the program is traced.

    ``program`` is a module, a method of one, or anything else, which is left alone. Gives the real tensors by name.
    """
    module = getattr(program, "__self__", program)
    real: dict[str, torch.Tensor] = {}
    if not isinstance(module, torch.nn.Module) or not any(p.is_meta for p in module.parameters()):
        yield real
        return
    swapped: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    for path, part in module.named_modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is None or tensor.is_meta:
                    continue
                real[f"{path}.{name}".strip(".")] = tensor
                swapped.append((held, name, tensor))
                empty = tensor.detach().to("meta")
                is_parameter = isinstance(tensor, torch.nn.Parameter)
                held[name] = torch.nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
    try:
        yield real
    finally:
        for held, name, tensor in swapped:
            held[name] = tensor


def with_data(captured: Captured, real: Mapping[str, torch.Tensor]) -> Captured:
    """The captured program with the tensors that were real."""
    if not real:
        return captured

    def restored(source: Source) -> Source:
        return replace(source, tensor=real.get(source.name, source.tensor))

    decompose = captured.decompose
    return replace(
        captured,
        sources=[restored(s) for s in captured.sources],
        unread=tuple(restored(s) for s in captured.unread),
        decompose=None if decompose is None else lambda wanted: with_data(decompose(wanted), real),
    )
