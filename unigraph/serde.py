"""Graph <-> protobuf. The only module that touches the generated code.

`encode` gives the bytes of ``graph.pb``, `decode` reads them, trusting nothing: every index, count,
name, dtype, shape and depth is checked before it is used.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, EncodeError

from . import dims
from .dims import Constraint
from .dtypes import dtype
from .errors import FormatError, GraphError, UnigraphError
from .evaluate import decomposition
from .graph import CONSTANT, HELD, NAMED, PRODUCED, ROLES, STATE, Graph, Operation, Value
from .opdef import OPSET_VERSION, OpDef, registry
from .safetensors import MAX_RANK, as_bytes, nbytes, storage
from .schema import ugraph_pb2 as pb
from .tree import KINDS, LEAF, Signature, Tree
from .types import TensorType, shown

FORMAT_VERSION = 1
INLINE = 4096  # bytes; larger constants lie beside the graph, where they can be mapped
MAX_DEPTH = 24  # of regions within regions; protobuf itself stops at 100 nested messages
MAX_TREE = 32  # of structures within structures
MAX_EXPANDED = 1 << 26  # operations, counting a function's once per use: functions that use functions
#                          twice each would otherwise grow without bound from a small file
MAX_GRAPH = 1 << 31  # bytes; protobuf's own limit
_MAX_SIZE = 1 << 62

_MODEL_FIELDS = [f.name for f in pb.Model.DESCRIPTOR.fields if f.name != "graph"]
_GRAPH_FIELDS = [f.name for f in pb.Graph.DESCRIPTOR.fields]


@dataclass(frozen=True, slots=True)
class Ref:
    """Where the data of a value lies: an archive entry or, if external, a file in the same folder."""

    entry: str
    tensor: str
    external: bool = False


def is_builtin(op: OpDef) -> bool:
    """True for ops that every installation has, False for composites made by users."""
    return op.family != "user"


# -- graph -> protobuf ----------------------------------------------------------------------------


@dataclass
class Encoded:
    """The bytes of ``graph.pb`` and the constants that are too large to stand in it, in order."""

    data: bytes
    constants: dict[Ref, tuple[Value, Any]] = field(default_factory=dict)


def encode(
    graph: Graph, refs: Mapping[Value, Ref | None] | None = None, constants: str = "", producer: str = ""
) -> Encoded:
    """The protobuf form of ``graph``.

    ``refs`` says where weights and states lie (None: nowhere); those it does not name are stored
    inline. Constants above INLINE bytes go to the archive entry ``constants`` if one is named.
    Raises GraphError for a value that is not of the graph, FormatError for what has no place in a file.
    """
    encoder = _Encoder(refs or {}, constants)
    model = encoder.model
    try:
        if graph.extra:
            model.MergeFromString(graph.extra)
        model.format_version, model.opset_version, model.producer = FORMAT_VERSION, OPSET_VERSION, producer
        encoder.graph(graph, model.graph, 0)
        model.strings.extend(encoder.strings)
        return Encoded(model.SerializeToString(deterministic=True), encoder.constants)
    except UnigraphError:
        raise
    except (ValueError, OverflowError, DecodeError, EncodeError) as error:  # strings that are no text, huge numbers
        raise FormatError(f"the graph cannot be written: {error}", "graph.pb") from error


class _Encoder:
    def __init__(self, refs: Mapping[Value, Ref | None], entry: str):
        self.refs, self.entry = refs, entry
        self.model = pb.Model()
        self.strings: dict[str, int] = {"": 0}
        self.types: dict[TensorType, int] = {}
        self.functions: dict[Any, int] = {}
        self.constants: dict[Ref, tuple[Value, Any]] = {}

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def dim(self, size: Any, message: Any) -> None:
        if type(size) is int:
            message.size = size
        else:
            message.expression = self.string(dims.to_text(size))

    def type(self, type_: TensorType) -> int:
        index = self.types.get(type_)
        if index is None:
            index = self.types[type_] = len(self.types)
            message = self.model.types.add(dtype=self.string(type_.dtype.name))
            for size in type_.shape:
                self.dim(size, message.shape.add())
        return index

    def graph(self, graph: Graph, message: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise FormatError(f"regions are nested deeper than {MAX_DEPTH}", graph.name)
        if depth and graph.extra:
            message.MergeFromString(graph.extra)
        message.name = graph.name
        add, of_type, string = message.nodes.add, self.type, self.string
        ids: dict[Value, int] = {}
        for i, value in enumerate(graph.nodes):
            ids[value] = i
            node = add(type=of_type(value.type), name=string(value.name), role=_ROLE_NUMBER[value.role])
            if value.role not in _DATALESS:
                self.data(value, graph.data.get(value), node, value.role == CONSTANT or value.name in graph.transient)
        try:
            for operation in graph.edges:
                self.operation(operation, message.edges.add(), ids, depth)
            message.inputs.extend([ids[v] for v in graph.inputs])
            message.outputs.extend([ids[v] for v in graph.outputs])
            for state, new in graph.states:
                message.states.add(state=ids[state], update=ids[new])
        except KeyError as error:
            raise GraphError(f"graph {graph.name!r}: {error.args[0]!r} is not a value of the graph") from None
        if graph.signature is not None:
            self.signature(graph.signature, message.signature)
        for alias, held in graph.aliases.items():
            message.aliases.add(name=alias, value=held)
        message.transient.extend(sorted(graph.transient))
        for name, c in graph.symbols.items():
            message.symbols.add(name=name, min=c.min, max=c.max, multiple_of=c.multiple_of)

    def data(self, value: Value, array: Any, node: Any, own: bool) -> None:
        """Write data or where it lies; what is the program's ``own`` is in the archive whatever the weights are."""
        if value in self.refs:
            ref = self.refs[value]
        elif array is None:
            if value.role == CONSTANT:
                raise GraphError(f"{value!r} has no data: a constant is part of the program")
            ref = None
        else:
            array = np.asarray(array)
            dtype_, shape = storage(value.type)
            if array.shape != shape or array.dtype != dtype_.numpy:
                raise GraphError(f"{value!r} holds {shown(array.dtype, array.shape)}, not {shown(dtype_, shape)}")
            if not self.entry or array.nbytes <= INLINE or not own:
                node.raw = as_bytes(array).tobytes()
                return
            ref = Ref(self.entry, f"constant.{len(self.constants)}")
            self.constants[ref] = value, array
        if ref is not None:
            node.ref.entry, node.ref.tensor = self.string(ref.entry), self.string(ref.tensor)
            node.ref.external = ref.external

    def operation(self, operation: Operation, message: Any, ids: Mapping[Value, int], depth: int) -> None:
        op, string = operation.op, self.string
        message.op = string(op.name)
        message.inputs.extend([ids[v] for v in operation.inputs])
        message.outputs.extend([ids[v] for v in operation.outputs])
        for name, value in operation.attrs.items():
            attribute = message.attributes.add(name=string(name))
            if value is None:
                attribute.none = True
            else:
                _WRITE[op.attrs[name].kind](self, attribute, value)
        for region in operation.regions:
            self.graph(region, message.regions.add(), depth + 1)
        if operation.scope:
            message.scope = string(operation.scope)
        if operation.source:
            message.source = string(operation.source)
        if not is_builtin(op):
            message.function = 1 + self.function(operation)

    def function(self, operation: Operation) -> int:
        body = decomposition(operation)  # cached by the op, so that equal uses share one graph
        key = operation.op, body
        if key not in self.functions:
            message = pb.Function(name=self.string(operation.op.name))
            self.graph(body, message.body, 0)
            self.functions[key] = len(self.functions)
            self.model.functions.append(message)
        return self.functions[key]

    def signature(self, signature: Signature, message: Any) -> None:
        self.tree(signature.args, message.args, 0)
        self.tree(signature.kwargs, message.kwargs, 0)
        self.tree(signature.out, message.out, 0)
        message.arg_names.extend(signature.arg_names)

    def tree(self, tree: Tree, message: Any, depth: int) -> None:
        if depth > MAX_TREE:
            raise FormatError(f"the structure of inputs or outputs is nested deeper than {MAX_TREE}", "signature")
        message.kind, message.name = KINDS.index(tree.kind), tree.name
        for child in tree.children:
            self.tree(child, message.children.add(), depth + 1)
        for key in tree.keys:
            message.keys.add(**{"text" if isinstance(key, str) else "integer": key})


_ROLE_NUMBER = {role: number for number, role in enumerate(ROLES)}
_DATALESS = frozenset(ROLES) - set(HELD)


def _write_integer(encoder: _Encoder, message: Any, value: int) -> None:
    if value < 1 << 63:
        message.integer = value
    else:
        message.unsigned = value


def _write_scalar(encoder: _Encoder, message: Any, value: Any) -> None:
    if isinstance(value, bool):
        message.boolean = value
    elif isinstance(value, int):
        _write_integer(encoder, message, value)
    elif isinstance(value, float):
        message.real = value
    else:
        message.complex.re, message.complex.im = value.real, value.imag


def _write_dims(encoder: _Encoder, message: Any, value: tuple[Any, ...]) -> None:
    if all(type(d) is int for d in value):
        _items(message.integers, value)
    else:
        message.dims.SetInParent()
        for d in value:
            encoder.dim(d, message.dims.items.add())


def _items(message: Any, value: Iterable[Any]) -> None:
    message.SetInParent()
    message.items.extend(value)


_WRITE: Mapping[str, Callable[[_Encoder, Any, Any], None]] = {
    "bool": lambda e, m, v: setattr(m, "boolean", v),
    "int": _write_integer,
    "float": lambda e, m, v: setattr(m, "real", v),
    "scalar": _write_scalar,
    "str": lambda e, m, v: setattr(m, "text", e.string(v)),
    "dtype": lambda e, m, v: setattr(m, "dtype", e.string(v.name)),
    "dim": lambda e, m, v: e.dim(v, m.dim),
    "bools": lambda e, m, v: _items(m.booleans, v),
    "ints": lambda e, m, v: _items(m.integers, v),
    "floats": lambda e, m, v: _items(m.reals, v),
    "strs": lambda e, m, v: _items(m.texts, map(e.string, v)),
    "dims": _write_dims,
}


# -- protobuf -> graph ----------------------------------------------------------------------------

Fetch = Callable[[Ref, Value], Any]


def decode(data: bytes, fetch: Fetch | None = None, where: str = "graph.pb") -> Graph:
    """The graph in these bytes. ``fetch(ref, value)`` gives the data that lies elsewhere, or None.

    Raises FormatError naming the field for anything malformed, and for operations or versions that
    this version of unigraph does not know.
    """
    with _no_collection():
        return _decode(data, fetch, where)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing built here is garbage: looking for some, over and over, would cost as much as the work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(data: bytes, fetch: Fetch | None, where: str) -> Graph:
    model = pb.Model()
    try:
        model.ParseFromString(data)
    except (DecodeError, struct.error, ValueError) as error:
        raise FormatError(f"not a valid graph: {error}", where) from None
    if not 1 <= model.format_version <= FORMAT_VERSION:
        raise FormatError(
            f"format version {model.format_version}; this unigraph reads up to {FORMAT_VERSION}: install a newer one",
            where,
        )
    decoder = _Decoder(model, fetch, where)
    decoder.refuse_unknown()
    decoder.read_types()
    decoder.read_functions()
    graph = decoder.graph(model.graph, where, 0)
    extra = _unknown_fields(model)
    return graph.replace(extra=extra) if extra else graph


def _unknown_fields(model: Any) -> bytes:
    """What is left of a message once every known field of the model and its graph is cleared."""
    for name in _MODEL_FIELDS:
        model.ClearField(name)
    for name in _GRAPH_FIELDS:
        model.graph.ClearField(name)
    if not model.graph.ByteSize():
        model.ClearField("graph")
    return model.SerializeToString(deterministic=True)


class _Decoder:
    def __init__(self, model: Any, fetch: Fetch | None, where: str):
        self.model, self.fetch, self.where = model, fetch, where
        self.strings: list[str] = list(model.strings)
        self.types: list[TensorType] = []
        self.functions: list[Graph] = []
        self.sizes: list[int] = []  # operations in each function, expanded
        self.expanded = 0
        self.ops: dict[int, OpDef] = {}
        if not self.strings or self.strings[0]:
            raise FormatError("the string table must start with the empty string", f"{where} strings")

    def string(self, index: int, where: str) -> str:
        try:
            return self.strings[index]
        except IndexError:
            raise FormatError(f"no string {index} in a table of {len(self.strings)}", where) from None

    def refuse_unknown(self) -> None:
        """Look at the names of all operations first, so that one error names all that are unknown."""
        known = registry()
        unknown: dict[str, int] = {}
        stack = [(self.model.graph, 0), *((f.body, 0) for f in self.model.functions)]
        while stack:
            graph, depth = stack.pop()
            if depth > MAX_DEPTH:
                raise FormatError(f"regions are nested deeper than {MAX_DEPTH}", self.where)
            for message in graph.edges:
                if message.op not in self.ops:
                    name = self.string(message.op, f"{self.where} edges")
                    if name in known:
                        self.ops[message.op] = known[name]
                    elif not message.function:
                        unknown[name] = unknown.get(name, 0) + 1
                stack.extend((r, depth + 1) for r in message.regions)
        newer = self.model.opset_version > OPSET_VERSION
        if unknown or newer:
            names = ", ".join(f"{n[:80]!r} (x{c})" for n, c in sorted(unknown.items())[:50])
            raise FormatError(
                f"the file uses opset {self.model.opset_version}, this unigraph knows {OPSET_VERSION}"
                + (f"; unknown operations: {names}" if unknown else "")
                + "; install a newer unigraph, or the package that defines these operations",
                self.where,
            )

    def dim(self, message: Any, where: str) -> Any:
        if message.WhichOneof("dim") == "expression":
            try:
                return dims.parse(self.string(message.expression, where))
            except UnigraphError:
                raise
            except Exception as error:
                raise FormatError(str(error), where) from None
        if not -_MAX_SIZE < message.size < _MAX_SIZE:
            raise FormatError(f"size {message.size} is out of range", where)
        return message.size

    def read_types(self) -> None:
        for i, message in enumerate(self.model.types):
            where = f"{self.where} types[{i}]"
            if len(message.shape) > MAX_RANK:
                raise FormatError(f"rank {len(message.shape)} is above {MAX_RANK}", where)
            shape = tuple(self.dim(d, where) for d in message.shape)
            if any(type(d) is int and d < 0 for d in shape):
                raise FormatError(f"negative size in shape {list(shape)}", where)
            try:
                self.types.append(TensorType(dtype(self.string(message.dtype, where)), shape))
            except TypeError as error:
                raise FormatError(str(error), where) from None

    def read_functions(self) -> None:
        for i, message in enumerate(self.model.functions):
            before = self.expanded
            self.functions.append(self.graph(message.body, f"{self.where} functions[{i}]", 0))
            self.sizes.append(self.expanded - before)

    def graph(self, message: Any, where: str, depth: int) -> Graph:
        try:
            return self._graph(message, where, depth)
        except UnigraphError:
            raise
        except (IndexError, KeyError) as error:
            raise FormatError(f"an index is out of range ({error})", where) from None

    def _graph(self, message: Any, where: str, depth: int) -> Graph:
        values, data = self.nodes(message, where)
        defined = bytearray(len(values))
        inputs = tuple([values[i] for i in message.inputs])
        for i in message.inputs:
            if defined[i] or values[i].role in (PRODUCED, *HELD):
                raise FormatError(f"node {i} is no input, or an input twice", f"{where} inputs")
            defined[i] = 1
        for i, value in enumerate(values):
            if value in data:
                defined[i] = 1
        edges = []
        for index, edge in enumerate(message.edges):
            ids = edge.inputs
            for i in ids:
                if not defined[i]:
                    raise FormatError(
                        f"{self.strings[edge.op][:80]} reads node {i} before it is made", f"{where} edges[{index}]"
                    )
            edges.append(self.operation(edge, values, where, index, depth))
            for i in edge.outputs:
                if defined[i] or values[i].role:
                    raise FormatError(f"node {i} is made twice", f"{where} edges[{index}]")
                defined[i] = 1
        if not all(defined):
            raise FormatError(f"node {defined.index(0)} is never made", f"{where} nodes")
        signature = self.signature(message.signature, where) if message.HasField("signature") else None
        graph = Graph(
            inputs,
            tuple([values[i] for i in message.outputs]),
            tuple(edges),
            data,
            tuple((values[s.state], values[s.update]) for s in message.states),
            signature,
            self.symbols(message.symbols, where),
            message.name,
            aliases=self.aliases(message.aliases, data, where),
            transient=frozenset(message.transient) & {v.name for v in data if v.role == STATE},
        )
        if depth:
            for name in _GRAPH_FIELDS:
                message.ClearField(name)
            if message.ByteSize():
                graph = graph.replace(extra=message.SerializeToString(deterministic=True))
        return graph

    def nodes(self, message: Any, where: str) -> tuple[list[Value], dict[Value, Any]]:
        types, strings = self.types, self.strings
        values: list[Value] = []
        data: dict[Value, Any] = {}
        for i, node in enumerate(message.nodes):
            try:
                value = Value(types[node.type], strings[node.name], ROLES[node.role])
            except IndexError:
                raise FormatError("type, name or role is out of range", f"{where} nodes[{i}]") from None
            values.append(value)
            if value.role not in _DATALESS:
                data[value] = self.data(node, value, f"{where} nodes[{i}] {value.name}")
        return values, data

    def data(self, node: Any, value: Value, where: str) -> Any:
        kind = node.WhichOneof("data")
        if kind is None:
            if value.role == CONSTANT:
                raise FormatError("a constant without data", where)
            return None
        if kind == "ref":
            ref = Ref(self.string(node.ref.entry, where), self.string(node.ref.tensor, where), node.ref.external)
            return self.fetch(ref, value) if self.fetch else None
        dtype_, shape = storage(value.type)
        if len(node.raw) != nbytes(dtype_, shape):
            raise FormatError(
                f"{len(node.raw)} bytes of data for {value.type}, which takes {nbytes(dtype_, shape)}", where
            )
        return np.frombuffer(bytearray(node.raw), np.uint8).view(dtype_.numpy).reshape(shape)

    def operation(self, message: Any, values: list[Value], where: str, index: int, depth: int) -> Operation:
        strings = self.strings
        inputs = tuple([values[i] for i in message.inputs])
        outputs = tuple([values[i] for i in message.outputs])
        op = self.ops.get(message.op)
        regions: tuple[Graph, ...] = ()
        self.expanded += 1
        if op is None:
            op, attrs, regions = self.call(message, f"{where} edges[{index}]")
        else:
            attrs = self.attributes(message, op, where, index) if message.attributes or op.attrs else {}
            if message.regions:
                place = f"{where} edges[{index}] {op.name} regions"
                regions = tuple([self.graph(r, f"{place}[{k}]", depth + 1) for k, r in enumerate(message.regions)])
        return Operation(op, inputs, outputs, attrs, regions, strings[message.scope], strings[message.source])

    def call(self, message: Any, where: str) -> tuple[OpDef, dict[str, Any], tuple[Graph, ...]]:
        """A composite that this process does not know, as a call of the body that came with the file."""
        number = message.function - 1
        if not 0 <= number < len(self.functions):
            raise FormatError(f"no function {number} before this one", where)
        self.expanded += self.sizes[number]
        if self.expanded > MAX_EXPANDED:
            raise FormatError(f"functions expand to more than {MAX_EXPANDED} operations", where)
        call = registry()["call"]
        return call, call.normalize({"name": self.strings[message.op]}), (self.functions[number],)

    def attributes(self, message: Any, op: OpDef, where: str, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            for attribute in message.attributes:
                kind = attribute.WhichOneof("value")
                name = self.strings[attribute.name]
                if kind is None or name in found:
                    raise FormatError(f"attribute {name[:80]!r} stands twice or has no value")
                found[name] = _READ[kind](self, getattr(attribute, kind))
            return op.normalize(found)
        except Exception as error:
            raise FormatError(f"{error}", f"{where} edges[{index}] {op.name}") from None

    def symbols(self, messages: Any, where: str) -> dict[str, Constraint]:
        result: dict[str, Constraint] = {}
        for m in messages:
            if not m.name.isidentifier() or m.name in result:
                raise FormatError(f"symbol name {m.name[:80]!r} is not allowed or stands twice", f"{where} symbols")
            result[m.name] = Constraint(m.min, m.max if m.HasField("max") else None, m.multiple_of)
        return result

    def aliases(self, messages: Any, data: Mapping[Value, Any], where: str) -> dict[str, str]:
        """Further names; one of a value that is gone (an older unigraph may have dropped it) means nothing."""
        held = {v.name for v in data if v.role in NAMED}
        result: dict[str, str] = {}
        for m in messages:
            if m.name in result:
                raise FormatError(f"the name {m.name[:80]!r} stands twice", f"{where} aliases")
            if m.value in held:
                result[m.name] = m.value
        return result

    def signature(self, message: Any, where: str) -> Signature:
        where = f"{where} signature"
        args, kwargs, out = (self.tree(t, where, 0) for t in (message.args, message.kwargs, message.out))
        return Signature(args, kwargs, out, tuple(message.arg_names))

    def tree(self, message: Any, where: str, depth: int) -> Tree:
        if depth > MAX_TREE:
            raise FormatError(f"nested deeper than {MAX_TREE}", where)
        kind = KINDS[message.kind]
        children = tuple(self.tree(c, where, depth + 1) for c in message.children)
        keys = tuple(k.text if k.WhichOneof("key") == "text" else k.integer for k in message.keys)
        keyed = kind not in (LEAF, "none", "list", "tuple")
        if len(keys) != (len(children) if keyed else 0) or len(set(keys)) != len(keys):
            raise FormatError("keys and children do not match, or a key stands twice", where)
        if kind in (LEAF, "none") and children:
            raise FormatError(f"a {kind} has children", where)
        if message.name and kind not in ("namedtuple", "dataclass"):
            raise FormatError(f"a {kind} has no class name", where)
        return Tree(kind, children, keys, message.name)


_READ: Mapping[str, Callable[[_Decoder, Any], Any]] = {
    "none": lambda d, v: None,
    "boolean": lambda d, v: v,
    "integer": lambda d, v: v,
    "unsigned": lambda d, v: v,
    "real": lambda d, v: v,
    "complex": lambda d, v: complex(v.re, v.im),
    "text": lambda d, v: d.strings[v],
    "dtype": lambda d, v: d.strings[v],
    "dim": lambda d, v: d.dim(v, "dim"),
    "booleans": lambda d, v: tuple(v.items),
    "integers": lambda d, v: tuple(v.items),
    "reals": lambda d, v: tuple(v.items),
    "texts": lambda d, v: tuple([d.strings[i] for i in v.items]),
    "dims": lambda d, v: tuple([d.dim(i, "dims") for i in v.items]),
}
