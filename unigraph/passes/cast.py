"""Cast: mixed precision. Products run in a narrow float, what sums or exponentiates stays in f32.

The split follows torch.autocast: contractions are narrowed; operations that only move or bend numbers
run in whatever reaches them; everything else runs in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from ..dtypes import DType, dtype, f32
from ..errors import InputError
from ..graph import BUFFER, CONSTANT, WEIGHT, Graph, GraphLike, Operation, Value, as_graph
from ..opdef import registry, unknown_op
from ..ops import elementwise as e
from ..types import TensorType
from .rewrite import Rewriter, once, with_regions

_NARROWED = "dot_general conv_general ragged_dot matmul linear einsum conv conv_transpose attention"
# Operations that run in the narrow float when all their floats are narrow (or constants).
_FOLLOWING = """
    broadcast_in_dim reshape transpose reverse slice dynamic_slice dynamic_update_slice pad concatenate gather
    neg abs sign max min add sub mul select clamp copy stop_gradient tanh logistic
    relu relu6 hardtanh leaky_relu hardsigmoid hardswish silu gelu quick_gelu prelu glu clip threshold
    take take_along_axis embedding tril triu roll tile repeat max_pool pixel_shuffle pixel_unshuffle
    rotary_embedding dropout
"""
NARROWED, FOLLOWING = frozenset(_NARROWED.split()), frozenset(_FOLLOWING.split())


def cast(graph: GraphLike, to: str | DType = "bf16", keep: Collection[str] = (), weights: bool = False) -> Graph:
    """The graph in mixed precision: f32 products run in ``to`` (bf16 or f16), the interface stays f32.

    ``keep`` names ops that stay in f32 besides those that do anyway (norms, softmax, exponentials, sums,
    losses). With ``weights`` the weights that are only read in ``to`` are stored in it: half the
    memory and file, but no longer what training updates. Results are those of ``to``: about 3 digits
    for bf16, 4 for f16. Bodies of loops and branches are cast too, what they carry stays f32.

    Raises InputError for another dtype and for an unknown op in ``keep``.
    """
    graph = as_graph(graph)
    narrow = dtype(to)
    if narrow.name not in ("bf16", "f16"):
        raise InputError(f"cast: mixed precision is bf16 or f16, not {narrow}")
    unknown = sorted(set(keep) - registry().keys())
    if unknown:
        raise InputError(f"cast: keep: {unknown_op(unknown[0])}")

    def sweep(graph: Graph) -> Graph:
        return _Cast(graph, narrow, frozenset(keep)).run(inside)

    inside = once(sweep)
    graph = sweep(graph)
    return _stored_narrow(graph, narrow) if weights else graph


class _Cast(Rewriter):
    """One graph: ``env`` holds the value that stands for each old one, narrow or as it was."""

    def __init__(self, graph: Graph, narrow: DType, keep: frozenset[str]):
        super().__init__(graph)
        self.narrow, self.keep = narrow, keep
        self.casts: dict[tuple[Value, DType], Value] = {}

    def run(self, inside: Callable[[Graph], Graph]) -> Graph:
        for op in self.old.edges:
            self.scope, self.source = op.scope, op.source
            if self._runs_narrow(op):
                operands = [self.to(v, self.narrow) if v.type.dtype is f32 else self.now(v) for v in op.inputs]
                made = self.emit(op.op, operands, op.attrs, op.regions)
                for old, new in zip(op.outputs, (made,) if isinstance(made, Value) else made, strict=True):
                    self.env[old] = self.label(new, old.name)
            else:
                op = with_regions(op, inside) if op.regions else op
                self.replay(op, tuple([self.to(v, f32) if v.type.dtype is f32 else self.now(v) for v in op.inputs]))
        wide = [self.to(v, f32) if v.type.dtype is f32 else self.now(v) for v in self.old.results]
        n = len(self.old.outputs)
        states = tuple((s, new) for (s, _), new in zip(self.old.states, wide[n:], strict=True))
        return self.finish(edges=tuple(self.edges), outputs=tuple(wide[:n]), states=states)

    def to(self, value: Value, kind: DType) -> Value:
        """What stands for an old f32 value, in the asked precision; each is converted once."""
        value = self.now(value)
        if value.type.dtype is kind:
            return value
        found = self.casts.get((value, kind))
        if found is None:
            found = self.casts[value, kind] = self.emit(e.convert, [value], {"dtype": kind})
        return found

    def _runs_narrow(self, op: Operation) -> bool:
        floats = [v for v in op.inputs if v.type.dtype is f32]
        if not floats or op.op.name in self.keep:
            return False
        if op.op.name in NARROWED:
            return op.attrs.get("out_dtype") is None
        if op.op.name not in FOLLOWING:
            return False
        now = [self.now(v) for v in floats]
        return any(v.type.dtype is self.narrow for v in now) and all(
            v.type.dtype is self.narrow or self.splat(v) is not None for v in now
        )


def _stored_narrow(graph: Graph, narrow: DType) -> Graph:
    """Weights whose every reader converts them to ``narrow``, held in it."""
    kept = set(graph.results)
    env: dict[Value, Value] = {}
    data = {}
    for v, array in graph.data.items():
        readers = graph.uses[v] if v.role in (WEIGHT, BUFFER, CONSTANT) and v not in kept else ()
        if readers and all(op.op is e.convert and op.attrs["dtype"] is narrow for op in readers):
            new = Value(TensorType(narrow, v.type.shape), v.name, v.role)
            env.update({op.outputs[0]: new for op in readers})
            data[new] = None if array is None else np.asarray(array).astype(narrow.numpy)
        else:
            data[v] = array
    if not env:
        return graph
    edges = tuple(
        [op.with_inputs(tuple([env.get(v, v) for v in op.inputs])) for op in graph.edges if op.outputs[0] not in env]
    )
    outputs = tuple([env.get(v, v) for v in graph.outputs])
    return graph.replace(edges=edges, data=data, outputs=outputs)
