"""From an ONNX model to a graph: walk the nodes, call a row for each, report every gap at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from unigraph.builder import GraphBuilder
from unigraph.dims import Dim
from unigraph.dtypes import DType
from unigraph.errors import FormatError, Gaps, InputError, TypeCheckError, Unsupported
from unigraph.graph import INPUT, Graph, Value
from unigraph.tree import DICT, LEAF, LIST, NONE, TUPLE, Signature, Tree, flatten
from unigraph.types import TensorType

from . import (
    import_control,
    import_elementwise,
    import_microsoft,
    import_ml,
    import_movement,
    import_nn,
    import_quant,
    import_random,
    import_recurrent,
    import_reduce,
    import_resize,
    import_sample,
    import_select,
    import_sequence,
    import_signal,
    import_training,
    import_trees,
)
from .dtypes import FROM_ONNX
from .import_fold import folded
from .import_sizes import MAX_ELEMENTS, on_sizes
from .node import Node, Operand, Row, Sizes
from .reader import array, attributes, read

BOOKS = (
    import_elementwise.rows,
    import_movement.rows,
    import_reduce.rows,
    import_nn.rows,
    import_control.rows,
    import_sequence.rows,
    import_resize.rows,
    import_sample.rows,
    import_recurrent.rows,
    import_quant.rows,
    import_random.rows,
    import_select.rows,
    import_signal.rows,
    import_microsoft.rows,
    import_ml.rows,
    import_trees.rows,
    import_training.rows,
)


def from_onnx(
    model_or_path: Any,
    *,
    shapes: Mapping[str, Sequence[Any] | None] | None = None,
    values: Mapping[str, Any] | None = None,
    training: bool = False,
) -> Graph:
    """A graph from an ONNX model: a path, its bytes, or a ModelProto (opset 1 and up).

    Inputs keep their names; named dims become symbolic sizes, unnamed ones get a name from input
    and axis. ``shapes`` replaces the declared shape of an input by name (ints or names); for a sequence
    it lists the shapes of its items, for an optional that is absent it is None. ``values`` fixes inputs:
    they are constants of the graph then, which a model needs whose input decides a rank or an axis.
    Floating initializers become weights under their names, running statistics of BatchNormalization buffers.
    The graph returns a tuple in output order (bare arrays; sequences as lists). Nodes that draw at random
    (dropout in training mode too) add one input, a key.

    ``training`` puts BatchNormalization and Dropout into training mode, whatever the nodes say: the former
    norms by its batch, and its running statistics are states that a call updates; the latter drops. Names stay,
    so ``from_onnx(path).bind(trained)`` is the model for inference with what was trained.

    Raises FormatError for a broken model, InputError for a wrong name in ``shapes`` or ``values``, and
    UnsupportedError listing every node that cannot be carried.
    """
    model, folder = read(model_or_path)
    return Importer(model, folder, training).run(shapes or {}, values or {})


_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values())


class Importer:
    """The walk over one model: an environment of named values, a builder, and the gaps found."""

    def __init__(self, model: onnx.ModelProto, folder: str, training: bool = False):
        self.model, self.folder, self.training = model, folder, training
        self.statistics = import_nn.statistics(model.graph)
        self.b = self.top = GraphBuilder(model.graph.name)
        self.root_key: Value | None = None
        self.gaps = Gaps(f"importing {model.graph.name or 'an ONNX model'}")
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.key_uses: list[None] = []  # one for each node that draws at random
        self.active: list[tuple[str, str]] = []  # functions being walked, outermost first
        self.data_sizes: list[str] = []  # names of sizes known only at run time
        self.updated: set[str] = set()  # running statistics that a node has updated
        self.functions = {(f.domain, f.name): f for f in model.functions}

    def run(self, shapes: Mapping[str, Sequence[Any] | None], values: Mapping[str, Any]) -> Graph:
        graph = self.model.graph
        env: dict[str, Operand] = {"": None}
        held = {t.name for t in graph.initializer}
        args, names = self._inputs(graph, env, held, shapes, values)
        self._initializers(graph, env)
        self.walk(graph.node, env)
        outputs = [self.output(o.name, env) for o in graph.output]
        self.gaps.raise_if_any()
        for proto, x in zip(graph.output, outputs):
            if isinstance(x, Value):
                self.b.label(x, proto.name)
        leaves, out = flatten(tuple(outputs), lambda x: isinstance(x, Value))
        signature = Signature(Tree(TUPLE, tuple(args)), Tree(DICT), out, tuple(names))
        return self.b.build(tuple(leaves), signature=signature)

    # -- sources ---------------------------------------------------------------------------------

    def _inputs(
        self,
        graph: onnx.GraphProto,
        env: dict[str, Operand],
        held: set[str],
        shapes: Mapping[str, Any],
        values: Mapping[str, Any],
    ) -> tuple[list[Tree], list[str]]:
        """Add the inputs to ``env``; the structure and the name of each that the caller passes."""
        names = [i.name for i in graph.input if i.name not in held]
        for what, given in (("shapes", shapes), ("values", values)):
            unknown = [name for name in given if name not in names]
            if unknown:
                raise InputError(f"{what}: there is no input {unknown[0]!r}; the model takes {', '.join(names)}")
        args, passed = [], []
        for proto in graph.input:
            if proto.name in held:
                continue
            if proto.name in env:
                raise FormatError("two inputs have this name", f"input {proto.name!r}")
            if proto.name in values:
                env[proto.name] = self._fixed(proto, values[proto.name])
                continue
            env[proto.name], tree = self._input(proto, proto.type, shapes)
            args.append(tree)
            passed.append(proto.name)
        return args, passed

    def _input(
        self, proto: onnx.ValueInfoProto, type_: onnx.TypeProto, shapes: Mapping[str, Any]
    ) -> tuple[Operand, Tree]:
        """An input and its structure: a tensor, or a sequence or optional whose structure ``shapes`` tells."""
        where = f"input {proto.name!r}"
        kind = type_.WhichOneof("value")
        if kind == "optional_type":
            if proto.name not in shapes:
                raise FormatError("is optional: give its shape, or None, with from_onnx(path, shapes={...})", where)
            if shapes[proto.name] is None:
                return None, Tree(NONE)
            return self._input(proto, type_.optional_type.elem_type, shapes)
        if kind == "sequence_type":
            item = type_.sequence_type.elem_type.tensor_type
            if proto.name not in shapes:
                raise FormatError(
                    "is a sequence: give the shapes of its items with from_onnx(path, shapes={...})", where
                )
            items = [
                self.b.input(f"{proto.name}_{i}", self._dtype(item, where), shape)
                for i, shape in enumerate(shapes[proto.name])
            ]
            return items, Tree(LIST, tuple(Tree(LEAF) for _ in items))
        if kind != "tensor_type":
            raise FormatError(f"a {kind or 'value without type'} cannot be passed in", where)
        return self.b.input(proto.name, self._dtype(type_.tensor_type, where), self._shape(proto, shapes)), Tree(LEAF)

    def _dtype(self, type_: onnx.TypeProto.Tensor, where: str) -> DType:
        kind = FROM_ONNX.get(type_.elem_type)
        if kind is None:
            name = onnx.TensorProto.DataType.Name(type_.elem_type) if type_.elem_type in _ELEMENT_TYPES else "unknown"
            raise FormatError(f"tensors of element type {name} cannot be passed in", where)
        return kind

    def _fixed(self, proto: onnx.ValueInfoProto, given: Any) -> Operand:
        """An input that is a constant from now on."""
        kind = self._dtype(proto.type.tensor_type, f"input {proto.name!r}")
        data = np.asarray(given).astype(kind.numpy)
        return self.held_constant(data)

    def origins(self, x: Value) -> list[str]:
        """Names of the model's inputs that a value is computed from."""
        made = {out: op for op in self.b.edges for out in op.outputs}
        found, seen, left = [], set(), [x]
        while left:
            value = left.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.role == INPUT:
                found.append(value.name)
            elif value in made:
                left.extend(made[value].inputs)
        return sorted(found)

    def _shape(self, proto: onnx.ValueInfoProto, shapes: Mapping[str, Any]) -> list[Dim | str]:
        type_ = proto.type.optional_type.elem_type if proto.type.HasField("optional_type") else proto.type
        declared = type_.tensor_type.shape.dim
        if proto.name in shapes:
            given = list(shapes[proto.name])
            if type_.tensor_type.HasField("shape") and len(given) != len(declared):
                raise InputError(f"shapes: input {proto.name!r} has rank {len(declared)}, got {given}")
            return given
        if not type_.tensor_type.HasField("shape"):
            raise FormatError("has no shape: give it with from_onnx(path, shapes={...})", f"input {proto.name!r}")
        found: list[Dim | str] = []
        for axis, d in enumerate(declared):
            if d.HasField("dim_value"):
                if d.dim_value < 0:
                    raise FormatError(f"negative size on axis {axis}", f"input {proto.name!r}")
                found.append(d.dim_value)
            else:
                name = d.dim_param or f"{proto.name}_{axis}"
                found.append(
                    "".join(c if c.isalnum() or c == "_" else "_" for c in name).lstrip("0123456789") or f"d{axis}"
                )
        return found

    def _initializers(self, graph: onnx.GraphProto, env: dict[str, Operand]) -> None:
        for tensor in graph.initializer:
            if tensor.name in env:
                raise FormatError("defined twice", f"initializer {tensor.name!r}")
            env[tensor.name] = self._held(tensor.name, array(tensor, self.folder))
        for sparse in graph.sparse_initializer:
            self.gaps.add("sparse initializer", "sparse tensors are not carried", sparse.values.name)

    def _held(self, name: str, data: np.ndarray) -> Operand:
        """Floating tensors of rank 1 and more are weights, or buffers or states when they are running
        statistics; small integers are sizes; the rest constants."""
        if data.dtype in (np.int64, np.int32) and data.size <= MAX_ELEMENTS:
            return Sizes.of(data.astype(object), data.dtype)
        if name in self.statistics:
            return self.b.state(name, data) if self.training else self.b.buffer(name, data)
        if data.ndim and (data.dtype.kind in "fc" or data.dtype.kind == "V" or data.size > MAX_ELEMENTS):
            return self.b.weight(name, data)
        return self.b.constant(data)

    def held_constant(self, data: np.ndarray) -> Operand:
        """An initializer of a subgraph: a constant, as weights belong to the whole graph."""
        small = data.dtype in (np.int64, np.int32) and data.size <= MAX_ELEMENTS
        return Sizes.of(data.astype(object), data.dtype) if small else self.b.constant(data)

    def key(self) -> Value:
        """A fresh random key for one node, made from the key that the graph then takes."""
        self.key_uses.append(None)
        if self.b is not self.top:
            raise Unsupported("random numbers inside a subgraph", "draw them outside")
        if self.root_key is None:
            self.root_key = self.b.key("key")
        count = self.b.constant(np.uint32(len(self.key_uses) - 1))
        return self.b.rng_fold_in(self.root_key, count)

    def output(self, name: str, env: Mapping[str, Operand]) -> Any:
        if name not in env:
            raise FormatError("no node gives it", f"output {name!r}")
        x = env[name]
        return x.value(self.b) if isinstance(x, Sizes) else x

    # -- nodes -----------------------------------------------------------------------------------

    def walk(self, nodes: Sequence[onnx.NodeProto], env: dict[str, Operand]) -> None:
        """Lower nodes in order, adding what they give to ``env``."""
        for node in nodes:
            missing = [i for i in node.input if i not in env]
            if missing:
                raise FormatError(
                    f"reads {missing[0]!r}, which nothing before it gives", f"node {node.name or node.op_type!r}"
                )
            place = node.name or (node.output[0] if node.output else node.op_type)
            scope = "/".join(place.strip("/").split("/")[:-1]).replace("/", ".")
            with self.b.at(scope=scope or None):
                results = self._lower(node, [env[i] for i in node.input], env, place)
            for name, x in zip(node.output, results):
                if not name:
                    continue
                if name in env and env[name] is not None:
                    raise FormatError("given by two nodes", f"value {name!r}")
                env[name] = x
                if isinstance(x, Value):
                    self.b.label(x, name)

    def _lower(
        self, node: onnx.NodeProto, inputs: list[Operand], env: dict[str, Operand], place: str
    ) -> Sequence[Operand]:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opsets.get(domain, 1)
        count = max((i + 1 for i, name in enumerate(node.output) if name), default=0)
        n = Node(self.b, node.op_type, opset, inputs, attributes(node, self.folder), count, self, env)
        try:
            sizes = on_sizes(n) if not domain else None
            if sizes is not None:
                return [sizes]
            row = self._row(domain, node.op_type, opset)
            if row is not None:
                known = folded(n, row)
                if known is not None:
                    return known
                result = row(n)
                return result if isinstance(result, tuple) else [result]
            return self._by_function(node, domain, opset, n)
        except Unsupported as gap:
            self.gaps.add(node.op_type if not domain else f"{domain}:{node.op_type}", gap.reason, place, gap.hint)
        except TypeCheckError as error:
            self.gaps.add(node.op_type, str(error), place, "the model itself may be broken: run onnx.checker on it")
        return self._stand_ins(node)

    def _row(self, domain: str, op_type: str, opset: int) -> Row | None:
        if (domain, op_type) in self.functions:
            return None
        for book in BOOKS:
            row = book.find(domain, op_type, opset)
            if row is not None:
                return row
        return None

    def _stand_ins(self, node: onnx.NodeProto) -> Sequence[Operand]:
        """Values of the declared type in place of a node that failed, so that the walk finds every gap.

        Raises UnsupportedError at once when the model declares no type for them.
        """
        declared = {v.name: v for v in (*self.model.graph.value_info, *self.model.graph.output)}
        if not declared.keys() >= {o for o in node.output if o}:
            inferred = onnx.shape_inference.infer_shapes(self.model)
            declared = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
        made: list[Operand] = []
        for name in node.output:
            info = declared.get(name)
            kind = FROM_ONNX.get(info.type.tensor_type.elem_type) if info is not None else None
            if info is None or kind is None or not info.type.tensor_type.HasField("shape"):
                self._count_rest(node)
                self.gaps.raise_if_any()
            assert info is not None
            type_ = TensorType(kind, self._shape(info, {}))
            made.append(self.b.full(0, type_.dtype, type_.shape))
        return made

    def _count_rest(self, failed: onnx.NodeProto) -> None:
        """Name the op types of the whole model that have neither row nor function."""
        for node in self.model.graph.node:
            domain = "" if node.domain == "ai.onnx" else node.domain
            opset = self.opsets.get(domain, 1)
            if (
                node is not failed
                and self._row(domain, node.op_type, opset) is None
                and self._function(node, domain, opset, None) is None
            ):
                self.gaps.add(node.op_type, "no row", node.name)

    # -- functions -------------------------------------------------------------------------------

    def _function(self, node: onnx.NodeProto, domain: str, opset: int, n: Node | None) -> onnx.FunctionProto | None:
        """The function that gives a node its meaning: the model's own, or the one in ONNX's schema."""
        own = self.functions.get((node.domain, node.op_type))
        if own is not None:
            return own
        try:
            schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        if n is None:
            return onnx.FunctionProto()
        types = []
        for i, x in enumerate(n.inputs):
            t = n.value(i).type if x is not None else None
            proto = (
                onnx.TypeProto()
                if t is None
                else onnx.helper.make_tensor_type_proto(_onnx_kind(t), [d if type(d) is int else None for d in t.shape])
            )
            types.append(proto.SerializeToString())
        body = schema.get_context_dependent_function(node.SerializeToString(), types)
        if not body:
            return None
        function = onnx.FunctionProto()
        function.ParseFromString(body)
        return function

    def _by_function(self, node: onnx.NodeProto, domain: str, opset: int, n: Node) -> Sequence[Operand]:
        function = self._function(node, domain, opset, n)
        if function is None:
            raise Unsupported("there is no row for it, and ONNX defines no function for it")
        env: dict[str, Operand] = {"": None}
        for i, name in enumerate(function.input):
            env[name] = n.inputs[i] if i < len(n.inputs) else None
        defaults = {**_schema_defaults(node, opset, domain), **{a.name: a for a in function.attribute_proto}}
        given = {**defaults, **{a.name: a for a in node.attribute}}
        name = node.domain, node.op_type
        if name in self.active:
            raise FormatError("calls itself", f"function {node.op_type!r}")
        self.active.append(name)
        before = self.opsets
        self.opsets = {**before, **{o.domain: o.version for o in function.opset_import}}
        try:
            self.walk([_with_attributes(inner, given) for inner in function.node], env)
        finally:
            self.opsets = before
            self.active.pop()
        return [env.get(name) for name in function.output]


def _onnx_kind(t: TensorType) -> int:
    return next(number for number, kind in FROM_ONNX.items() if kind is t.dtype)


def _schema_defaults(node: onnx.NodeProto, opset: int, domain: str) -> dict[str, onnx.AttributeProto]:
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return {}
    return {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}


def _with_attributes(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function body with references to the function's attributes filled in."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    filled = onnx.NodeProto()
    filled.CopyFrom(node)
    del filled.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            filled.attribute.append(a)
        elif a.ref_attr_name in given:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given[a.ref_attr_name])
            copy.name = a.name
            filled.attribute.append(copy)
    return filled
