"""Graph to ONNX: the graph is interpreted over ONNX builder values.

>>> model = to_onnx(graph)
>>> save_onnx(graph, "model.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unigraph import dims, dtypes
from unigraph.dtypes import DType
from unigraph.errors import Gaps, InputError, Unsupported
from unigraph.evaluate import Program, Row, Table, decomposition
from unigraph.graph import CONSTANT, STATE, Graph, GraphLike, Operation, as_graph
from unigraph.opdef import registry
from unigraph.types import TensorType

from .complex_handles import Complex, PartOperation, any_complex, constant, joined, joined_type, parted, real_type
from .dtypes import DEFAULT, F8, NEWEST, OLDEST, to_onnx_dtype
from .emitter import Emitter
from .export_complex import ROWS as COMPLEX_ROWS
from .export_gaps import GAPS
from .export_table import ROWS
from .handles import Array, NeedsOpset, Size

EXTERNAL_ABOVE = 1_500_000_000  # bytes of weights; a protobuf message ends at 2 GiB
CHECKED_BELOW = 256_000_000  # bytes of weights up to which the checker runs at once

# NumPy and ONNX Runtime's Python interface share no form of these; at the interface they travel in a wider type.
_NOT_IN_NUMPY = {"bf16": "f32", "i4": "i8", "u4": "u8"} | dict.fromkeys(F8, "f32")


def physical(type_: TensorType) -> TensorType:
    """The tensor that holds a value of this type: a key is its uint32 words, a complex number its two parts."""
    if type_.dtype.is_key:
        return TensorType(dtypes.u32, (*type_.shape, type_.dtype.key_words))
    return joined_type(type_) if type_.dtype.is_complex else type_


class OnnxTable(Table):
    """The rows for one export: they add nodes to its emitter; what they refuse is collected."""

    name = "onnx"

    def __init__(self, o: Emitter, gaps: Gaps):
        super().__init__(ROWS, gaps=GAPS)
        self.o, self.found = o, gaps
        o.rows, o.complex_rows, o.decompose = self.rows, COMPLEX_ROWS, self._decompose
        self.symbols: dict[str, Any] = {}  # sizes known so far, for rows that fall back to a decomposition
        self.opset_needed = 0
        for op in registry().values():
            if op not in self.rows and not op.is_composite:
                self.rows[op] = _refusal(self.gaps.get(op, "no ONNX row"))

    def check(self, graph: Graph, task: str) -> None:
        """Nothing: refusals are rows here, so that they are collected with those that depend on dtypes."""

    def constant(self, array: Any, type_: TensorType) -> Any:
        if type_.dtype.is_complex:
            return constant(self.o, np.asarray(array))
        return self.o.const(np.asarray(array), physical(type_).dtype)

    def shape(self, x: Array) -> tuple[Any, ...]:
        return x.shape

    def composite(
        self, operation: Operation, program: Program, args: list[Any], symbols: Mapping[str, Any]
    ) -> Iterable[Any]:
        before, self.o.scope = self.o.scope, operation.scope or self.o.scope
        try:
            return program.run(args, symbols=symbols)
        finally:
            self.o.scope = before

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        o = self.o
        types = [v.type if v.type.dtype.is_complex else physical(v.type) for v in operation.outputs]
        before, outer, o.scope, o.operation = o.scope, o.operation, operation.scope or o.scope, operation
        try:
            if any_complex([v.type for v in (*operation.inputs, *operation.outputs)]):
                result = self._complex(operation, args, kwargs)
            else:
                result = row(o, *args, **kwargs)
            results = result if isinstance(result, tuple) else (result,)
            typed = tuple(self._typed(r, t, operation) for r, t in zip(results, types, strict=True))
            for x, t in zip(typed, types):
                self.bind(x, t)
            return typed if isinstance(result, tuple) else typed[0]
        except Unsupported as refusal:
            self.refuse(operation.op.name, refusal, operation.where or o.scope)
            stand_ins = tuple(self._stand_in(t) for t in types)
            single = operation.op.gives_one(len(types))
            return stand_ins[0] if single else stand_ins
        finally:
            o.scope, o.operation = before, outer

    def _complex(self, operation: Operation, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operation on complex numbers."""
        row = COMPLEX_ROWS.get(operation.op)
        if row is None and operation.op.is_composite:
            return self._decompose(args)
        if row is None:
            reason = self.gaps.get(operation.op, "of complex numbers, of which ONNX has none")
            raise Unsupported(reason, "compute with real and imaginary parts")
        self.o.operation = PartOperation(operation)
        return row(self.o, *args, **kwargs)

    def _decompose(self, args: Sequence[Any]) -> Any:
        """What the composite whose row runs means, written out."""
        operation = self.o.operation
        results = Program(decomposition(operation), self).run(args, symbols=self.symbols)
        return results[0] if operation.op.gives_one(len(operation.outputs)) else results

    def refuse(self, name: str, refusal: Unsupported, where: str) -> None:
        if isinstance(refusal, NeedsOpset):
            self.opset_needed = max(self.opset_needed, refusal.opset)
        self.found.add(name, refusal.reason, where, refusal.hint)

    def _typed(self, x: Any, type_: TensorType, operation: Operation) -> Any:
        if isinstance(x, Complex):
            return x.each(self._typed, real_type(type_), operation)
        if x.dtype is not type_.dtype:
            raise TypeError(f"the ONNX row of {operation.op.name} made {x.dtype} for {type_}")
        return self.o.typed(x, type_.shape)

    def bind(self, x: Any, type_: TensorType) -> None:
        """Remember the run-time sizes of symbols that stand bare in a type."""
        for size, dim in zip(x.shape, type_.shape):
            if not isinstance(dim, int) and dim.is_Symbol and len(self.o.frames) == 1:
                self.symbols.setdefault(dim.name, size)

    def _stand_in(self, type_: TensorType) -> Any:
        """What the rest of the graph is looked through with after a refusal; never part of a model."""
        o = self.o
        if type_.dtype.is_complex:
            return Complex(self._stand_in(real_type(type_)), self._stand_in(real_type(type_)))
        shape = tuple(d if type(d) is int else Size(o, lambda: o.const([1])) for d in type_.shape)
        return Array(o, o.fresh("refused"), type_.dtype, shape)


def _refusal(reason: str) -> Row:
    def row(o: Emitter, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(reason)

    return row


def to_onnx(graph: GraphLike, opset: int | None = None) -> onnx.ModelProto:
    """The graph as an ONNX model.

    Inputs and outputs keep their names and symbolic sizes; a key is a uint32 tensor whose last axis
    holds its words, a complex tensor a real one whose last axis holds real and imaginary part; a state
    ``s`` is an input ``s`` and an output ``s_out``. Weights are initializers under their own names, and a
    node's name begins with the scope of its operation. ``opset`` is 17 to 26; by default 23, or the newest
    where an operation needs one of its operators.
    Raises UnsupportedError listing everything that ONNX cannot express, InputError for an unbound weight.
    """
    graph = as_graph(graph)
    return _Export(graph, opset).model


def save_onnx(graph: GraphLike, path: Any, opset: int | None = None, external: bool | None = None) -> None:
    """Write the graph as an ONNX file.

    ``external`` puts the weights into a second file ``<name>.data`` beside it; by default that happens above
    1.5 GB of weights, since a protobuf file cannot exceed 2 GiB.
    Raises as `to_onnx` does.
    """
    graph = as_graph(graph)
    model = to_onnx(graph, opset)
    path = os.fspath(path)
    if external is None:
        external = weight_bytes(model) > EXTERNAL_ABOVE
    if not external:
        onnx.save_model(model, path)
        return
    data = os.path.basename(path) + ".data"
    beside = os.path.join(os.path.dirname(path), data)
    if os.path.exists(beside):  # onnx appends to a data file that it finds
        os.remove(beside)
    onnx.save_model(
        model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=data, size_threshold=1024
    )


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of data in the initializers of a model."""
    return sum(len(t.raw_data) for t in model.graph.initializer)


class _Export:
    """One graph on its way to a model; ``plain`` keeps to dtypes that NumPy can hand to ONNX Runtime."""

    def __init__(self, graph: Graph, opset: int | None, plain: bool = False):
        if opset is not None and not OLDEST <= opset <= NEWEST:
            raise InputError(f"opset must be {OLDEST} to {NEWEST}, not {opset}")
        self.graph, self.plain = graph, plain
        unbound = [v.name for v, a in graph.data.items() if a is None]
        if unbound:
            raise InputError(f"weight {unbound[0]!r} holds no data: load the graph with weights=...")
        needed = self._build(opset or DEFAULT)
        if needed and opset is None:
            self._build(needed)
        self.gaps.raise_if_any()
        self.model = self._model()
        if weight_bytes(self.model) < CHECKED_BELOW:
            onnx.checker.check_model(self.model, full_check=True)

    def _build(self, opset: int) -> int:
        """Interpret the graph; the opset that refused operators would need, or 0."""
        graph, self.opset = self.graph, opset
        self.gaps = Gaps(f"export to ONNX (opset {opset})")
        self.o = o = Emitter(opset)
        table = OnnxTable(o, self.gaps)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        states = [s for s, _ in graph.states]
        for v in (*graph.inputs, *graph.data):
            if v.role != CONSTANT:
                o.fresh(v.name)
        handles = {}
        for v in (*graph.inputs, *states):
            try:
                handles[v] = self._input(v.name, physical(v.type))
                handles[v] = self._whole(handles[v], v.type)
                table.bind(handles[v], v.type)
            except Unsupported as refusal:
                table.refuse(f"input {v.name}", refusal, "")
                handles[v] = self._whole(table._stand_in(physical(v.type)), v.type)
        data = {s: handles[s] for s in states}
        for v, array in graph.data.items():
            if v.role not in (CONSTANT, STATE):
                try:
                    data[v] = self._weight(v.name, array, v.type)
                except Unsupported as refusal:
                    table.refuse(f"weight {v.name}", refusal, "")
                    data[v] = self._whole(table._stand_in(physical(v.type)), v.type)
        results = Program(graph, table).run([handles[v] for v in graph.inputs], data)
        if self.gaps.found:
            return table.opset_needed
        wanted = output_names(graph)
        wanted += [f"{s.name}_out" for s in states]
        self.renamed: dict[str, str] = {}
        for name, handle, value in zip(wanted, results, graph.results, strict=True):
            whole = joined(o, handle) if isinstance(handle, Complex) else handle
            self._output(name, whole, physical(value.type))
        return 0

    def _dims(self, type_: TensorType) -> list[Any]:
        return [d if type(d) is int else dims.to_text(d) for d in type_.shape]

    def _interface(self, dtype: DType) -> DType:
        return dtypes.dtype(_NOT_IN_NUMPY.get(dtype.name, dtype.name)) if self.plain else dtype

    def _whole(self, x: Array, type_: TensorType) -> Any:
        """A value from the tensor that holds it."""
        return parted(self.o, x) if type_.dtype.is_complex else x

    def _weight(self, name: str, array: Any, type_: TensorType) -> Any:
        if type_.dtype.is_complex:
            pair = np.ascontiguousarray(array).view(real_type(type_).dtype.numpy)
            array = pair.reshape(*np.shape(array), 2)
        return self._whole(self.o.weight(name, array, physical(type_).dtype), type_)

    def _input(self, name: str, type_: TensorType) -> Array:
        o, dtype = self.o, self._interface(type_.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, to_onnx_dtype(dtype, self.opset), self._dims(type_)))
        return o.typed(o.cast(Array(o, name, dtype, None), type_.dtype), type_.shape)

    def _output(self, name: str, x: Array, type_: TensorType) -> None:
        """The producing node gets the output's name where it can; an Identity elsewhere."""
        o = self.o
        x = o.cast(x, self._interface(type_.dtype))
        name = o.fresh(name)
        if x.name in o.frames[0].made and x.name not in self.renamed:
            self.renamed[x.name] = name
        else:
            source = self.renamed.get(o._name_of(x), x.name)
            o.frames[0].nodes.append(helper.make_node("Identity", [source], [name], name=f"{name}/Identity"))
        self.outputs.append(helper.make_tensor_value_info(name, to_onnx_dtype(x.dtype, self.opset), self._dims(type_)))

    def _model(self) -> onnx.ModelProto:
        o = self.o
        rename(o.frames[0].nodes, self.renamed)
        nodes, used = alive(o.frames[0].nodes, {i.name for i in self.outputs})
        weights = [t for name, t in o.initializers.items() if name in used]
        body = helper.make_graph(nodes, self.graph.name or "graph", self.inputs, self.outputs, weights)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(
            body, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports), producer_name="unigraph"
        )


def output_names(graph: Graph) -> list[str]:
    """Names of the outputs: their own, or their place in the output structure (``output_0``, ``logits``)."""
    paths = graph.signature.out.paths() if graph.signature is not None else []
    if len(paths) != len(graph.outputs):
        paths = [str(i) for i in range(len(graph.outputs))]
    plain = [p if p[:1].isalpha() else f"output_{p}" if p else "output" for p in paths]
    return [v.name or name for v, name in zip(graph.outputs, plain, strict=True)]


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def rename(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> None:
    """Rename values in nodes, what sub-graphs read from outside included."""
    for node in nodes:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                if name in names:
                    field[i] = names[name]
        for graph in subgraphs(node):
            rename(graph.node, names)


def alive(nodes: list[onnx.NodeProto], wanted: set[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that the wanted values depend on, in order, and every name that they read."""
    used, kept = set(wanted), []
    for node in reversed(nodes):
        if used.isdisjoint(node.output):
            continue
        kept.append(node)
        used.update(node.input)
        for graph in subgraphs(node):
            inner, names = alive(list(graph.node), {i.name for i in graph.output})
            del graph.node[:]
            graph.node.extend(inner)
            used.update(names)
    return kept[::-1], used
