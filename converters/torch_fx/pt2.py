"""Graphs as ``.pt2`` archives, the files of ``torch.export``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.export import Dim

from unigraph import dims, tree
from unigraph.dims import Constraint
from unigraph.errors import EngineError, InputError
from unigraph.file import atomic
from unigraph.graph import Graph, Value
from unigraph.runtime.call import signature_of
from unigraph.runtime.torch.dtypes import to_torch as torch_dtype

from .export import to_torch


def save_pt2(graph: Graph, path: Any) -> None:
    """Write the graph as an exported program that ``torch.export.load`` reads; atomic.

    Symbolic sizes become dynamic dimensions of the same names. Random keys are inputs like the others.
    Raises UnsupportedError listing the operations without a torch meaning, InputError when a weight
    holds no data, EngineError when torch.export refuses the program.
    """
    missing = [v.name for v, a in graph.data.items() if a is None]
    if missing:
        raise InputError(f"weight {missing[0]!r} holds no data: load the graph with weights=... or graph.bind(...)")
    module = to_torch(graph)
    args, kwargs, shapes = _example_call(graph, [str(n.target) for n in module.graph.nodes if n.op == "placeholder"])
    try:
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise EngineError(f"torch.export refuses the program: {type(error).__name__}: {error}") from error
    with atomic(path) as file:
        torch.export.save(program, file)


def _example_call(graph: Graph, names: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Arguments to trace with, and for each the dimensions that stay free."""
    signature = signature_of(graph)
    sizes, free = _sizes(graph)
    values = iter(graph.inputs)
    children = [*signature.args.children, *signature.kwargs.children]
    given: list[Any] = []
    shapes: list[Any] = []
    for child in children:
        leaves = [next(values) for _ in range(child.leaves)]
        given.append(tree.unflatten(child, [_tensor(v, sizes) for v in leaves]))
        shapes.append(tree.unflatten(child, [_dynamic(v, free) for v in leaves]))
    for key in values:
        given.append(_tensor(key, sizes))
        shapes.append(_dynamic(key, free))
    count = len(signature.args.children) if signature.kwargs.children else len(given)
    kwargs = dict(zip(names[count:], given[count:], strict=True))
    return tuple(given[:count]), kwargs, dict(zip(names, shapes, strict=True))


def _sizes(graph: Graph) -> tuple[dict[str, int], dict[str, Any]]:
    """A size to trace with and a dynamic dimension for each symbol of the inputs."""
    sizes: dict[str, int] = {}
    free: dict[str, Any] = {}
    for name in sorted(set().union(*(v.type.symbols() for v in graph.inputs))):
        bound = graph.symbols.get(name) or Constraint()
        step = bound.multiple_of
        # Distinct sizes above one: torch takes 0 and 1 for fixed, and equal ones for the same.
        size = -(-max(bound.min, 5 + 2 * len(sizes)) // step) * step
        sizes[name] = size if bound.max is None else max(bound.min, min(size, bound.max // step * step))
        low, high = -(-bound.min // step), None if bound.max is None else bound.max // step
        free[name] = Dim(name, min=low, max=high) if step == 1 else step * Dim(f"{name}_{step}", min=low, max=high)
    return sizes, free


def _tensor(value: Value, sizes: dict[str, int]) -> torch.Tensor:
    shape = [int(dims.evaluate(d, sizes)) for d in value.type.shape]
    words = [value.type.dtype.key_words] if value.type.dtype.is_key else []
    return torch.zeros((*shape, *words), dtype=torch_dtype(value.type.dtype))


def _dynamic(value: Value, free: dict[str, Any]) -> dict[int, Any]:
    return dict(_axes(value, free))


def _axes(value: Value, free: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    for axis, dim in enumerate(value.type.shape):
        if dims.is_static(dim):
            continue
        # An expression over symbols follows from the trace itself.
        yield axis, free[dim.name] if dim.is_Symbol else Dim.AUTO
