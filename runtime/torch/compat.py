"""Names of torch that are not public, or that some versions lack: those that running and tracing a table need.

What only capture and export of programs need stands in converters/torch_fx/compat.py, which builds on this
module; no other module of unigraph uses such names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext


def torch_dtype(name: str) -> torch.dtype | None:
    """The torch dtype of that name, or None in a version without it."""
    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else None


def is_traced(x: torch.Tensor) -> bool:
    """True for a tensor without values: asking for one would stop a trace."""
    return isinstance(x, FakeTensor) or x.is_meta or torch.compiler.is_compiling()


@cache
def has_byte_products() -> bool:
    """True where the CPU adds up products of bytes in 32 bits. Without VNNI instructions torch may add pairs in
    16 bits, which can overflow."""
    return bool(torch.cpu._is_vnni_supported())


def byte_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x i8[m, k] @ y i8[k, n] in i32."""
    return torch._int_mm(x, y)


@contextmanager
def real_tensors() -> Iterator[None]:
    """Inside, tensors hold values again, and nothing is recorded, whatever modes are active."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@contextmanager
def unrecorded() -> Iterator[None]:
    """Inside, no mode sees calls of torch functions; tensors stay as they are."""
    with torch._C.DisableTorchFunction():
        yield


def higher_order(name: str) -> Any:
    """The operator ``cond``, ``while_loop`` or ``scan`` as a graph calls it. It runs eagerly without a compiler."""
    import torch._higher_order_ops

    return getattr(torch.ops.higher_order, name)


def fake_mode() -> FakeTensorMode:
    """A mode whose tensors have sizes but no values."""
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def symbolic_size(mode: FakeTensorMode, hint: int) -> Any:
    """A new traced size that behaves like ``hint`` where a decision is forced."""
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])  # type: ignore[arg-type]
    return mode.from_tensor(torch.empty(hint, device="meta"), symbolic_context=context).shape[0]


def size_expression(size: torch.SymInt) -> Any:
    """The sympy expression behind a traced size."""
    return size.node.expr


def assumptions(mode: FakeTensorMode, sizes: Sequence[tuple[str, Any]]) -> list[str]:
    """What a trace took for granted about its symbolic sizes, in words of their names.

    Bounds of single sizes are left out: breaking one is an error at run time, not a wrong result.
    """
    import sympy

    known = {size_expression(size): sympy.Symbol(name) for name, size in sizes}
    found = [guard.expr for guard in mode.shape_env.guards] if mode.shape_env is not None else []
    bounds = (sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)
    telling = [e for e in found if not (isinstance(e, bounds) and all(a.is_Symbol or a.is_number for a in e.args))]
    return sorted({str(e.xreplace(known)) for e in telling})
