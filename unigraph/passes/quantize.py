"""Quantize: weights of products held in 8 bits, one scale for each output channel."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..dtypes import f32, i8
from ..errors import InputError
from ..graph import BUFFER, CONSTANT, WEIGHT, Graph, GraphLike, Operation, Value, as_graph
from ..opdef import OpDef
from ..ops import contract, nn_contract, nn_misc
from ..ops import movement as m
from ..ops.nn_quant import dequantize, quantized_linear
from ..types import TensorType
from .rewrite import Rewriter

MODES = ("weight", "dynamic")
SMALL = 1024  # numbers; the scales and the extra work of a smaller weight are not worth it


def quantize(graph: GraphLike, mode: str = "weight", skip: Collection[str] = (), min_size: int = SMALL) -> Graph:
    """The graph with f32 weights of at least ``min_size`` numbers held as i8, symmetric, one scale per channel.

    ``mode="weight"`` (linear, conv, matmul, dot_general, embedding): a quarter of the memory and file; the
    weight is scaled back to f32 where it is read. ``mode="dynamic"``: linear layers moreover quantise
    their input as it comes and multiply in whole numbers (`quantized_linear`); other weights stay.
    A weight keeps its name, its scales are called ``NAME_scale``; both become buffers, as they are not
    trained. ``skip`` names weights to leave alone, for instance of a sensitive last layer. Raise the graph
    first (``ug.optimize``), so that products of a foreign program are linear layers.

    Results change by the rounding of 8 bits. Raises InputError for another mode, an unknown name in
    ``skip``, and a weight without data.
    """
    graph = as_graph(graph)
    if mode not in MODES:
        raise InputError(f"quantize: mode must be one of {', '.join(MODES)}, not {mode!r}")
    unknown = sorted(set(skip) - graph.weights.keys())
    if unknown:
        raise InputError(f"quantize: skip={unknown[0]!r} is no weight of the graph")
    chosen = _chosen(graph, mode, skip, min_size)
    if not chosen:
        return graph
    r = Rewriter(graph)
    held = {v: _held(r, v, axis) for v, axis in chosen.items()}
    for op in graph.edges:
        r.scope, r.source = op.scope, op.source
        found = _weight_of(graph, op)
        if found is None or found[0] not in held:
            if not _is_transposed(op, held):
                r.replay(op)
            continue
        weight, axis, turned = found
        new = (
            _dynamic(r, op, *held[weight], turned)
            if mode == "dynamic"
            else _weight_only(r, op, *held[weight], axis, turned)
        )
        r.env[op.outputs[0]] = r.label(new, op.outputs[0].name)
    data = {v: a for v, a in r._data.items() if v not in held}
    return r.finish(data=data)


# Which operand of an op is its weight, and along which axis of it the output channels lie.
Layout = Callable[[Operation], "tuple[int, int] | None"]


def _dot_layout(op: Operation) -> tuple[int, int] | None:
    y, a = op.inputs[1], op.attrs
    free = [i for i in range(y.type.rank) if i not in (*a["rhs_contracting"], *a["rhs_batch"])]
    return (1, free[0]) if y.type.rank == 2 and len(free) == 1 and not a["rhs_batch"] else None


LAYOUTS: dict[OpDef, Layout] = {
    nn_contract.linear: lambda op: (1, 0) if op.inputs[1].type.rank == 2 else None,
    nn_contract.conv: lambda op: (1, 0),
    nn_contract.matmul: lambda op: (1, 1) if op.inputs[1].type.rank == 2 else None,
    contract.dot_general: _dot_layout,
    nn_misc.embedding: lambda op: (0, 0) if op.inputs[0].type.rank == 2 else None,
}


def _weight_of(graph: Graph, op: Operation) -> tuple[Value, int, bool] | None:
    """The stored weight of an operation, the axis of its channels, and whether it is read transposed."""
    layout = LAYOUTS.get(op.op)
    found = layout(op) if layout else None
    if found is None:
        return None
    value, axis = op.inputs[found[0]], found[1]
    made = graph.producers.get(value)
    if made is not None and made.op is m.transpose and made.attrs["permutation"] == (1, 0):
        return made.inputs[0], 1 - axis, True
    return value, axis, False


def _is_transposed(op: Operation, held: Collection[Value]) -> bool:
    """Whether an operation only turns a weight that is now read in 8 bits."""
    return op.op is m.transpose and op.inputs[0] in held


def _chosen(graph: Graph, mode: str, skip: Collection[str], min_size: int) -> dict[Value, int]:
    """Weights that every reader takes as its weight along one axis, and that axis."""
    axes: dict[Value, set[int | None]] = {}
    for op in graph.edges:
        found = _weight_of(graph, op)
        if found is not None and mode == "dynamic" and op.op is not nn_contract.linear:
            found = None
        for v in op.inputs:
            made = graph.producers.get(v)
            source = made.inputs[0] if made is not None and made.op is m.transpose else v
            if op.op is m.transpose and op.attrs["permutation"] == (1, 0) and v is source:
                continue  # its readers count
            axes.setdefault(source, set()).add(found[1] if found and found[0] is source else None)
    results = set(graph.results)
    chosen: dict[Value, int] = {}
    for v, array in graph.data.items():
        fits = v.role in (WEIGHT, BUFFER, CONSTANT) and v.type.dtype is f32 and v.type.rank >= 2
        found_axes = axes.get(v, set())
        (axis,) = found_axes if len(found_axes) == 1 else (None,)
        if not fits or v.name in skip or v in results or axis is None or int(v.type.size) < min_size:
            continue
        if array is None:
            raise InputError(f"quantize: weight {v.name!r} holds no data; load the graph with weights=...")
        chosen[v] = axis
    return chosen


def _held(r: Rewriter, weight: Value, axis: int) -> tuple[Value, Value]:
    """The 8-bit form of a weight, and its scales."""
    array = np.asarray(r.old.data[weight])
    others = tuple(i for i in range(array.ndim) if i != axis)
    scale = np.max(np.abs(array), axis=others, keepdims=True).astype(np.float32) / np.float32(127)
    scale = np.where(scale > 0, scale, np.float32(1))
    q = np.clip(np.rint(array / scale), -127, 127).astype(np.int8)
    flat = np.ascontiguousarray(scale.reshape(-1))
    if weight.role == CONSTANT:
        return r.constant(q), r.constant(flat)
    q_value = Value(TensorType(i8, q.shape), weight.name, BUFFER)  # the name is that of the value it replaces
    r._data[q_value] = q
    r._known.add(q_value)
    return q_value, r.buffer(f"{weight.name}_scale", flat)


def _weight_only(r: Rewriter, op: Operation, q: Value, scale: Value, axis: int, turned: bool) -> Any:
    zero = r.full(0, i8, scale.type.shape)
    layout = LAYOUTS[op.op](op)
    assert layout is not None
    place = layout[0]
    weight = r.emit(dequantize, [q, scale, zero], {"axis": axis, "dtype": f32})
    if turned:
        weight = r.emit(m.transpose, [weight], {"permutation": (1, 0)})
    inputs = list(r.inputs_of(op))
    inputs[place] = weight
    return r.emit(op.op, inputs, op.attrs)


def _dynamic(r: Rewriter, op: Operation, q: Value, scale: Value, turned: bool) -> Any:
    x, _, *bias = r.inputs_of(op)
    if turned:
        q = r.emit(m.transpose, [q], {"permutation": (1, 0)})
    return r.emit(quantized_linear, [x, q, scale, *bias])
