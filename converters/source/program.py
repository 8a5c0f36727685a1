"""Writes a graph as the text of a Python program over NumPy or JAX: one line for each operation."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.dtypes import DType
from unigraph.errors import Gaps, Unsupported
from unigraph.evaluate import Table, decomposition
from unigraph.graph import CONSTANT, Graph, Operation, Value
from unigraph.opdef import OpDef
from unigraph.ops.movement import broadcast_in_dim
from unigraph.runtime.call import signature_of
from unigraph.tree import LEAF, NONE, TUPLE
from unigraph.types import TensorType

from .bundle import Bundle
from .literals import array_text, number_text, numpy_dtype
from .phrases import ATOM, UNARY, Phrase, Text, aligned
from .pieces import (
    WIDTH,
    call,
    defaults_of,
    define,
    float_text,
    harmless,
    holds_sizes,
    identifier,
    leaves_of,
    output_text,
    quoted,
    reserved,
    result_name,
    sentence,
    short_name,
    tuple_text,
)

NESTED = 60  # characters of an expression that may stand inside another


@dataclass(frozen=True)
class Dialect:
    """What differs between programs of the array libraries."""

    table: Table
    keyed: frozenset[OpDef]  # rows that want to know the kind of their key
    imports: tuple[tuple[str, str], ...]
    constant: Callable[[np.ndarray], str]
    argument: str  # applied to each input
    regions: bool = False  # regions tell their result types and whether they are elementwise
    phrase: Callable[[Operation], Phrase | None] = lambda op: None  # what is said without a row
    writers: Mapping[OpDef, Callable[[Body, Operation], None]] = field(default_factory=dict)  # of control flow


class Program:
    """One program in the making: `main` is its text, ``stored`` the constants too big for it."""

    def __init__(self, graph: Graph, dialect: Dialect):
        self.graph, self.dialect = graph, dialect
        self.bundle = Bundle()
        for name, line in dialect.imports:
            self.bundle.imports[name] = line
        self.rows: dict[OpDef, str] = {}
        self.dtypes: dict[DType, str] = {}
        self.stored: dict[str, np.ndarray] = {}
        self.stored_names: dict[int, str] = {}
        self.composites: dict[str, str] = {}  # text without its name -> name
        self.composite_texts: list[str] = []
        self._composite_of: dict[Graph, tuple[str, list[str]]] = {}
        self._held = {v.name for v in graph.data}
        self._collect()
        own = ("main", "load_weights", "WEIGHTS", "HIGHEST", *(["weights"] if self.takes_weights else []))
        self.globals = {*self.bundle.imports, *self.bundle.final.values(), *own}

    # -- what the program needs ------------------------------------------------------------------

    def _collect(self) -> None:
        table, gaps, seen = self.dialect.table, Gaps("conversion to source"), set()
        table.check(self.graph, "conversion to source")

        def walk(graph: Graph) -> None:
            if graph in seen:
                return
            seen.add(graph)
            for op in table.edges_of(graph):
                if self.dialect.phrase(op) or op.op in self.dialect.writers:
                    continue
                for value in op.attrs.values():
                    for item in value if type(value) is tuple else (value,):
                        if type(item) is DType:
                            self.dtypes.setdefault(item, self.bundle.add(item))
                if op.op not in table.rows:
                    walk(decomposition(op))
                elif op.op not in self.rows:
                    try:
                        self.rows[op.op] = self.bundle.add(table.rows[op.op], op.op.name)
                    except Unsupported as error:
                        gaps.add(op.op.name, error.reason, op.where, error.hint)

        walk(self.graph)
        gaps.raise_if_any()
        self.bundle.name_all(("main", "load_weights", "weights", "json", "Path", "WEIGHTS", "HIGHEST"))
        self.rows = {op: self.bundle.render(mark) for op, mark in self.rows.items()}
        self.dtypes = {d: self.bundle.render(mark) for d, mark in self.dtypes.items()}

    # -- text ------------------------------------------------------------------------------------

    def main(self) -> str:
        """The text of the main function."""
        graph, signature = self.graph, signature_of(self.graph)
        body = Body(self, graph)
        inputs = iter(graph.inputs)
        names = signature.arg_names
        tops = [(names[i] if i < len(names) else f"arg{i}", c) for i, c in enumerate(signature.args.children)]
        keyword_only = list(zip(map(str, signature.kwargs.keys), signature.kwargs.children))
        head, unpack = [], []
        unpacked: set[Value] = set()
        for number, (name, child) in enumerate((*tops, *keyword_only)):
            if number == len(tops) and keyword_only:
                head.append("*")
            if child.kind == LEAF:
                head.append(body.name(next(inputs), name))
                continue
            parameter = body.fresh(name)
            head.append(f"{parameter}=None" if child.kind == NONE else parameter)
            for path, label in leaves_of(child, parameter):
                value = next(inputs)
                made = f"{self.dialect.argument}({path})" if self.dialect.argument else path
                unpack.append(f"{body.name(value, value.name or label)} = {made}")
                unpacked.add(value)
        keys = [body.name(v) for v in inputs]
        position = head.index("*") if "*" in head else len(head)
        head[position:position] = keys
        if self.takes_weights:
            head.insert(0, "weights")
        body.lines += unpack
        if self.dialect.argument:
            body.lines += [
                f"{body.names[v]} = {self.dialect.argument}({body.names[v]})" for v in graph.inputs if v not in unpacked
            ]
        body.sizes(graph.inputs)
        body.operations()
        leaves = iter([body.use(v) for v in graph.outputs])
        if signature.out.kind == TUPLE and len(signature.out.children) > 1 and not graph.states:
            parts = [output_text(child, leaves) for child in signature.out.children]
            body.call("return ", parts)
        else:
            result = output_text(signature.out, leaves)
            if graph.states:
                states = ", ".join(f"{quoted(state.name)}: {body.use(new)}" for state, new in graph.states)
                result = f"{result}, {{{states}}}"
            body.lines.append(f"return {result}")
        takes = ", ".join(f"{body.names[v]}: {v.type}" for v in graph.inputs) or "No inputs"
        gives = ", ".join(str(v.type) for v in graph.outputs) or "nothing"
        gives += ", then the new states by name." if graph.states else "."
        doc = [*textwrap.wrap(f'"""{takes}', WIDTH), "", *textwrap.wrap(f"Gives {gives}", WIDTH), '"""']
        return define("main", head, [*doc, *body.lines])

    @property
    def takes_weights(self) -> bool:
        return any(v.role != CONSTANT for v in self.graph.data) or self._big_constants(self.graph, set())

    def _big_constants(self, graph: Graph, seen: set[Graph]) -> bool:
        if graph in seen:
            return False
        seen.add(graph)
        if any(v.role == CONSTANT and array_text(a) is None for v, a in graph.data.items()):
            return True
        table = self.dialect.table
        inner = [decomposition(op) for op in table.edges_of(graph) if op.op not in table.rows]
        regions = [r for op in graph.edges for r in table.regions_of(op)]
        return any(self._big_constants(g, seen) for g in (*inner, *regions))

    def store(self, value: Value, array: np.ndarray) -> str:
        """The name that a constant has among the weights."""
        name = self.stored_names.get(id(array))
        if name is None:
            base, number = f"constants.{identifier(value.name or 'c')}", 1
            name = base
            while name in self._held or name in self.stored:
                number += 1
                name = f"{base}_{number}"
            self.stored_names[id(array)] = name
            self.stored[name] = array
        return name

    def composite(self, op: Operation) -> tuple[str, list[str]]:
        """A function for a composite without a row: its name, and the sizes that it must be told."""
        inner = decomposition(op)
        known = self._composite_of.get(inner)
        if known is not None:
            return known
        body = Body(self, inner)
        head = [body.name(v) for v in inner.inputs]
        body.sizes(inner.inputs)
        told = sorted(body.wanted() - body.bound.keys())
        for name in told:
            body.bound[name] = body.fresh(name)
        body.operations()
        results = [body.use(v) for v in inner.outputs]
        single = op.op.gives_one(len(op.outputs))
        body.lines.append(f"return {results[0] if single else tuple_text(results)}")
        attributes = ", ".join(
            f"{k}={self.literal(v, {})}" for k, v in op.attrs.items() if v is not None and not holds_sizes(v)
        )
        if self._reads_weights(body):
            head.insert(0, "weights")
        head += [body.bound[n] for n in told]
        lines = [f'"""{sentence(op.op)}{f" Here {attributes}." if attributes else ""}"""', *body.lines]
        text = define("\0", head, lines)
        name = self.composites.get(text, "")
        if not name:
            number, name = 1, identifier(op.op.name)
            while name in self.globals or reserved(name):
                number += 1
                name = f"{identifier(op.op.name)}_{number}"
            self.globals.add(name)
            self.composites[text] = name
            self.composite_texts.append(text.replace("\0", name))
        self._composite_of[inner] = name, told
        return name, told

    @staticmethod
    def _reads_weights(body: Body) -> bool:
        return any('weights["' in line for line in body.lines)

    def literal(self, x: Any, sizes: Mapping[str, str]) -> str:
        """An attribute as Python text; ``sizes`` names the symbols."""
        if type(x) is tuple:
            inner = ", ".join(self.literal(i, sizes) for i in x)
            return f"({inner},)" if len(x) == 1 else f"({inner})"
        if type(x) is DType:
            return self.dtypes[x]
        if hasattr(x, "free_symbols"):
            return re.sub(r"[A-Za-z_]\w*", lambda m: sizes.get(m[0], m[0]), dims.to_text(x))
        if isinstance(x, complex):
            return f"complex({float_text(x.real)}, {float_text(x.imag)})"
        if isinstance(x, str):
            return quoted(x)
        return float_text(x) if isinstance(x, float) else repr(x)


class Body:
    """The lines of one function, and its names."""

    def __init__(self, program: Program, graph: Graph, outer: Body | None = None):
        self.program, self.graph = program, graph
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set(outer.taken) if outer else set()
        self.bound: dict[str, str] = dict(outer.bound) if outer else {}  # symbol -> name of its size
        self.scope: str | None = None
        self.pending: dict[Value, Text] = {}  # written where they are read
        self.results = set(graph.results)
        self._wanted: set[str] | None = None

    def nested(self, region: Graph) -> Body:
        """The body of a function inside this one."""
        return Body(self.program, region, self)

    def fresh(self, wish: str) -> str:
        """A new local name."""
        name = base = identifier(wish)
        number = 1
        while name in self.taken or name in self.program.globals or reserved(name):
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def name(self, value: Value, wish: str = "") -> str:
        """The name given to a value where it is made."""
        self.names[value] = name = self.fresh(wish or short_name(value.name))
        return name

    def use(self, value: Value) -> str:
        """Text that gives a value."""
        name = self.names.get(value)
        if name is not None:
            return name
        array = self.graph.data[value]
        if value.role != CONSTANT:
            return f"weights[{quoted(value.name)}]"
        if array_text(array) is None:
            return f"weights[{quoted(self.program.store(value, array))}]"
        return self.program.dialect.constant(np.asarray(array))

    # -- sizes -----------------------------------------------------------------------------------

    def wanted(self) -> set[str]:
        """Symbols whose sizes the lines of this function need."""
        if self._wanted is None:
            self._wanted = set(self._symbols(self.graph, set()))
        return self._wanted

    def _symbols(self, graph: Graph, seen: set[Graph]) -> Iterator[str]:
        if graph in seen:
            return
        seen.add(graph)
        for op in self.program.dialect.table.edges_of(graph):
            for value in op.attrs.values():
                for item in value if type(value) is tuple else (value,):
                    if hasattr(item, "free_symbols"):
                        yield from dims.symbols_of(item)
            if op.op not in self.program.dialect.table.rows:
                yield from self._symbols(decomposition(op), seen)
            for region in self.program.dialect.table.regions_of(op):
                if self.program.dialect.regions:
                    yield from set().union(*(v.type.symbols() for v in region.outputs))

    def sizes(self, values: Iterable[Value]) -> None:
        """Lines that take the sizes of symbols from arrays; equations in one unknown are solved."""
        values = list(values)
        for linear in (False, True):
            for value in values:
                for axis, dim in enumerate(value.type.shape):
                    unknown = set(dims.symbols_of(dim)) - self.bound.keys()
                    if len(unknown) == 1 and (linear or getattr(dim, "is_Symbol", False)) and unknown & self.wanted():
                        self._size(value, axis, dim, unknown.pop())

    def _size(self, value: Value, axis: int, dim: Any, symbol: str) -> None:
        size = f"{self.names[value]}.shape[{axis}]"
        unknown = dims.symbol(symbol)
        if not dim.is_Symbol:
            slope = dim.diff(unknown)
            if not dim.is_polynomial(unknown) or unknown in slope.free_symbols:
                return
            offset, size = dim.subs(unknown, 0), size
            if offset != 0:
                size = f"({size} - ({self.program.literal(dims.normal(offset), self.bound)}))"
            if slope != 1:
                size = f"{size} // ({self.program.literal(dims.normal(slope), self.bound)})"
        self.bound[symbol] = name = self.fresh(symbol)
        self.lines.append(f"{name} = {size}")

    # -- operations ------------------------------------------------------------------------------

    def operations(self) -> None:
        for op in self.graph.edges:
            if self._spreads(op):
                self._spread(op)
                continue
            if op.scope != self.scope and (op.scope or self.scope):
                self.lines += ["", f"# {harmless(op.scope)}"] if op.scope else [""]
            self.scope = op.scope
            self._operation(op)
            fresh = [v for v in op.outputs if v.type.symbols() - self.bound.keys()]
            self.sizes(fresh)

    def _operation(self, op: Operation) -> None:
        program = self.program
        phrase = program.dialect.phrase(op)
        if phrase is not None:
            self._phrase(op, phrase)
            return
        writer = program.dialect.writers.get(op.op)
        if writer is not None:
            writer(self, op)
            return
        arguments = [self.use(v) for v in op.inputs]
        row = program.dialect.table.rows.get(op.op)
        if row is None:
            function, told = program.composite(op)
            missing = [n for n in told if n not in self.bound]
            if missing:
                raise Unsupported(f"the size {missing[0]} is not known where {op.op.name} needs it")
            arguments += [f"{n}={self.bound[n]}" for n in told]
            if function in self._with_weights():
                arguments.insert(0, "weights")
        else:
            function = program.rows[op.op]
            defaults = defaults_of(row)
            for key, value in op.attrs.items():
                if key not in defaults or type(defaults[key]) is not type(value) or defaults[key] != value:
                    arguments.append(f"{key}={program.literal(value, self.bound)}")
            if op.op in program.dialect.keyed:
                arguments.append(f'impl="{op.inputs[0].type.dtype.name[4:-1]}"')
            arguments += self._regions(op)
        single = op.op.gives_one(len(op.outputs))
        used = [self.name(v, short_name(v.name) if v.name else result_name(op)) for v in op.outputs]
        target = "" if not used else used[0] if single else ", ".join(used) if len(used) > 1 else f"({used[0]},)"
        self.lines += call(f"{target} = {function}" if target else function, arguments)

    # -- phrases ---------------------------------------------------------------------------------

    def _spreads(self, op: Operation) -> bool:
        """True for a broadcast that its readers do by themselves."""
        if op.op is not broadcast_in_dim or self.program.dialect.phrase(op) is None or op.outputs[0] in self.results:
            return False
        readers = self.graph.uses[op.outputs[0]]
        return bool(readers) and all(map(self._has_whole_operand, readers))

    def _has_whole_operand(self, reader: Operation) -> bool:
        """True for a phrase that broadcasts, with an operand that is an array of the full shape."""
        phrase = self.program.dialect.phrase(reader)
        made = [self.graph.producers.get(v) for v in reader.inputs]
        whole = [p is None or p.op is not broadcast_in_dim for p in made]
        return phrase is not None and phrase.spreads and any(whole)

    def _spread(self, op: Operation) -> None:
        (value,), (result,) = op.inputs, op.outputs
        number = self._number(value)
        if number is not None:
            self.pending[result] = number
            return
        once = len(self.graph.uses[result]) == 1
        self.pending[result] = Text(aligned(op, self._term(value) if once else self._settled(value)))

    def _phrase(self, op: Operation, phrase: Phrase) -> None:
        """One operation in words: part of the line of its only reader, or a line of its own."""
        (result,) = op.outputs
        readers = self.graph.uses[result]
        text = phrase.write(op, self._operands(op, phrase), self._say)
        nested = result not in self.results and len(readers) == 1 and readers[0].scope == op.scope
        if nested and len(text.text) <= NESTED and self.program.dialect.phrase(readers[0]):
            if not result.type.symbols() - self.bound.keys():
                self.pending[result] = text
                return
        if len(text.text) > WIDTH - 16:
            for v in op.inputs:
                if v in self.pending and self.graph.producers[v].op is not broadcast_in_dim:
                    self._settled(v)
            text = phrase.write(op, self._operands(op, phrase), self._say)
        self._line(result, text)

    def call(self, function: str, arguments: Sequence[str]) -> None:
        """A line that is a call, or several where it is long."""
        self.lines += call(function, arguments)

    def _line(self, value: Value, text: Text) -> None:
        op = self.graph.producers[value]
        self.lines.append(
            f"{self.name(value, short_name(value.name) if value.name else result_name(op))} = {text.text}"
        )

    def _say(self, x: Any) -> str:
        return self.program.literal(x, self.bound)

    def _operands(self, op: Operation, phrase: Phrase) -> list[Text]:
        numbers = [self._number(v) for v in op.inputs]
        if phrase.spreads and not all(n or self._is_number(v) for n, v in zip(numbers, op.inputs)):
            return [n or self._term(v) for n, v in zip(numbers, op.inputs)]
        if op.op is broadcast_in_dim:
            return [numbers[0] or self._term(op.inputs[0])]
        return [Text(self._term(v).array) if self._is_number(v) else self._term(v) for v in op.inputs]

    def _is_number(self, value: Value) -> bool:
        return bool(value in self.pending and self.pending[value].typed)

    def _number(self, value: Value) -> Text | None:
        """A scalar constant as a bare number."""
        if value.role != CONSTANT or value.type.rank:
            return None
        array = np.asarray(self.graph.data[value])
        text = number_text(array)
        if text is None:
            return None
        return Text(text, UNARY if text.startswith("-") else ATOM, self.program.dialect.constant(array))

    def _term(self, value: Value) -> Text:
        """A value as an operand of a phrase."""
        pending = self.pending.get(value)
        return pending if pending is not None else Text(self.use(value))

    def _settled(self, value: Value) -> Text:
        """A value under a name of its own."""
        pending = self.pending.pop(value, None)
        if pending is not None:
            self._line(value, pending)
        return self._term(value)

    def _with_weights(self) -> set[str]:
        return {n for text, n in self.program.composites.items() if text.startswith("def \0(weights")}

    def _regions(self, op: Operation) -> list[str]:
        """Nested functions for the regions, and how they are passed."""
        regions = self.program.dialect.table.regions_of(op)
        if not regions:
            return []
        keys = op.op.region_kwargs(tuple(range(len(op.regions))))
        single = {v: k for k, v in keys.items() if type(v) is int}
        names = []
        for number, region in enumerate(regions):
            wish = single.get(number) or f"branch_{number}"
            name = self.fresh(wish)
            names.append(name)
            body = Body(self.program, region, self)
            head = [body.name(v) for v in region.inputs]
            body.sizes(region.inputs)
            body.operations()
            body.lines.append(f"return {tuple_text([body.use(v) for v in region.outputs])}")
            self.lines += ["", *define(name, head, body.lines).splitlines(), ""]
            if self.program.dialect.regions:
                self.lines += self._told(op, name, region)
        texts = {
            k: names[v] if type(v) is int else tuple_text([names[i] for i in v])
            for k, v in keys.items()
            if type(v) is not int or v < len(names)
        }
        return [f"{k}={text}" for k, text in texts.items()]

    def _told(self, op: Operation, name: str, region: Graph) -> list[str]:
        """What NumPy rows ask of a region besides its results."""
        lines = []
        if op.op.family == "reduce" and all(o.op.is_pointwise for o in region.all_edges()):
            lines.append(f"{name}.elementwise = True")
        length = op.attrs.get("length", 1)
        if length == 0 or hasattr(length, "free_symbols"):
            types = [f"({self._shape(v.type)}, {numpy_dtype(v.type.dtype)})" for v in region.outputs]
            lines.append(f"{name}.results = lambda: [{', '.join(types)}]")
        return lines

    def _shape(self, type_: TensorType) -> str:
        words = (type_.dtype.key_words,) if type_.dtype.is_key else ()
        return self.program.literal((*type_.shape, *words), self.bound)
