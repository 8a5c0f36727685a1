"""Reads the text form of a graph; the language is described in `unigraph.text`."""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import dims
from .check import check, same
from .dims import Constraint
from .errors import TextError, UnigraphError
from .graph import HELD, INPUT, KEY, Graph, Operation, Value
from .opdef import REQUIRED, OpDef, registry, unknown_op
from .safetensors import nbytes, storage
from .text import CLASSED, PLAIN_NAME, PLAIN_WORD, elements, plain_signature, region_labels
from .tree import DICT, LEAF, LIST, NONE, TUPLE, Signature, Tree
from .types import TensorType

MAX_DEPTH = 32

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|nan)(?![\w.])")
_INTEGER = re.compile(r"-?\d+(?![\w.])")
_VALUE = re.compile(r"%(?=[\w\"$])")
_DTYPE = re.compile(r"\w+(?:<\w+>)?")
_BASE64 = re.compile(r'base64"([A-Za-z0-9+/=\s]*)"')
_BITS = re.compile(r"bits\(0x([0-9a-fA-F]{16})\)")
_OPENING, _CLOSING = "([", ")]"
_SOURCES = (INPUT, KEY, *HELD)


def read(text: str) -> Graph:
    """The graph written as ``text``. Raises TextError with line and column."""
    reader = _Reader(text)
    try:
        graph = reader.document()
    except TextError:
        raise
    except (UnigraphError, RecursionError, ValueError) as error:
        raise reader.error(str(error)) from error
    try:
        check(graph, constants=False)
    except UnigraphError as error:
        raise TextError(f"the graph is not well formed: {error}") from error
    return graph


class _Reader:
    """A position in the text, and one method per construct. ``mark`` is where the last token began."""

    def __init__(self, text: str):
        self.text, self.position, self.mark = text, 0, 0
        self.ops = registry()
        self.depth = 0

    # -- tokens ------------------------------------------------------------------------------------

    def error(self, message: str, at: int | None = None) -> TextError:
        at = self.mark if at is None else at
        line = self.text.count("\n", 0, at) + 1
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        shown = self.text[start : end if end >= 0 else len(self.text)][:160]
        column = at - start + 1
        return TextError(f"line {line}, column {column}: {message}\n    {shown}\n    {' ' * min(column - 1, 160)}^")

    def space(self) -> None:
        found = _SPACE.match(self.text, self.position)
        self.position = self.mark = found.end() if found else self.position

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.space()
        found = pattern.match(self.text, self.position)
        if found:
            self.position = found.end()
        return found

    def need(self, pattern: re.Pattern[str], what: str) -> str:
        found = self.match(pattern)
        if not found:
            raise self.error(f"expected {what}, found {self.rest()}")
        return found[0]

    def rest(self) -> str:
        return repr(self.text[self.position : self.position + 20]) if self.position < len(self.text) else "the end"

    def take(self, symbol: str) -> bool:
        self.space()
        if not self.text.startswith(symbol, self.position):
            return False
        self.position += len(symbol)
        return True

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.error(f"expected {symbol!r}, found {self.rest()}")

    def word(self, name: str) -> bool:
        """Take this very word if it comes next."""
        self.space()
        found = _NAME.match(self.text, self.position)
        if not found or found[0] != name:
            return False
        self.position = found.end()
        return True

    def string(self) -> str:
        self.space()
        try:
            text, self.position = json.JSONDecoder().raw_decode(self.text, self.position)
        except (ValueError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise self.error(f"expected a quoted string, found {self.rest()}")
        return text

    def plain(self, pattern: re.Pattern[str], what: str) -> str:
        """A plain word, or any string in quotes."""
        self.space()
        return self.string() if self.text.startswith('"', self.position) else self.need(pattern, what)

    def items(self, close: str, one: Callable[[], Any]) -> list[Any]:
        """Items up to ``close``, with commas between and perhaps after them."""
        found = []
        while not self.take(close):
            found.append(one())
            if not self.take(","):
                self.expect(close)
                break
        return found

    def integer(self) -> int:
        return int(self.need(_INTEGER, "an integer"))

    # -- types and literals ------------------------------------------------------------------------

    def expression(self, ends: str) -> Any:
        """A size expression up to one of the characters ``ends`` outside brackets."""
        self.space()
        start, depth = self.position, 0
        while self.position < len(self.text):
            c = self.text[self.position]
            if depth == 0 and c in ends:
                break
            depth += (c in _OPENING) - (c in _CLOSING)
            self.position += 1
        try:
            return dims.parse(self.text[start : self.position])
        except ValueError as error:
            raise self.error(str(error), start) from None

    def type(self) -> TensorType:
        name = self.need(_DTYPE, "a type such as f32[2,3]")
        at = self.mark
        shape = self.items("]", lambda: self.expression(",]")) if self.take("[") else []
        try:
            return TensorType(name, shape)
        except TypeError as error:
            raise self.error(str(error), at) from None

    def number(self) -> bool | int | float | complex:
        if self.word("true"):
            return True
        if self.word("false"):
            return False
        if self.word("complex"):
            self.expect("(")
            re_, im = self.items(")", self.number)
            return complex(re_, im)
        bits = self.match(_BITS)
        if bits:
            return float(struct.unpack(">d", bytes.fromhex(bits[1]))[0])
        text = self.need(_NUMBER, "a number")
        return int(text) if _INTEGER.fullmatch(text) else float(text)

    def real(self) -> float:
        return float(self.number().real)

    def list_of(self, one: Callable[[], Any]) -> Callable[[], Any]:
        def many() -> tuple[Any, ...]:
            self.expect("[")
            return tuple(self.items("]", one))

        return many

    def attribute(self, op: OpDef, name: str, at: int) -> Any:
        spec = op.attrs.get(name)
        if spec is None:
            raise self.error(f"{op.name} has no attribute {name!r}; it has {', '.join(op.attrs) or 'none'}", at)
        if spec.default is None and self.word("none"):
            return None
        kinds: Mapping[str, Callable[[], Any]] = {
            "bool": self.number,
            "int": self.number,
            "float": self.real,
            "scalar": self.number,
            "str": self.string,
            "dtype": lambda: self.need(_DTYPE, "a dtype"),
            "dim": lambda: self.expression(",)"),
        }
        one = kinds[spec.kind.removesuffix("s")]
        if spec.kind == "dims":
            one = lambda: self.expression(",]")
        return one() if spec.kind in kinds else self.list_of(one)()

    def base64(self) -> bytes | None:
        found = self.match(_BASE64)
        if not found:
            return None
        try:
            return base64.b64decode(found[1], validate=False)
        except binascii.Error as error:
            raise self.error(f"bad base64: {error}") from None

    def data(self, value: Value) -> Any:
        if self.take("..."):
            return None
        at = self.mark
        try:
            raw = self.base64()
            if raw is not None:
                dtype, shape = storage(value.type)
                if len(raw) != nbytes(dtype, shape):
                    raise self.error(f"{len(raw)} bytes for {value.type}, which takes {nbytes(dtype, shape)}", at)
                return np.frombuffer(bytearray(raw), np.uint8).view(dtype.numpy).reshape(shape)
            numbers = list(self.list_of(self.number)()) if self.text.startswith("[", at) else [self.number()]
            if value.type.size != len(numbers):
                raise self.error(f"{len(numbers)} numbers for {value.type}", at)
            return elements(numbers, value)
        except (ValueError, OverflowError, TypeError) as error:
            if isinstance(error, TextError):
                raise
            raise self.error(f"no data of type {value.type}: {error}", at) from None

    # -- structures --------------------------------------------------------------------------------

    def tree(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")
        try:
            return self._tree()
        finally:
            self.depth -= 1

    def _tree(self) -> Tree:
        if self.take("*"):
            return Tree(LEAF)
        if self.word("none"):
            return Tree(NONE)
        if self.take("["):
            return Tree(LIST, tuple(self.items("]", self.tree)))
        if self.take("("):
            return Tree(TUPLE, tuple(self.items(")", self.tree)))
        kind, name = DICT, ""
        for candidate in CLASSED:
            if self.word(candidate):
                kind, name = candidate, self.string()
        self.expect("{")
        pairs = self.items("}", self.pair)
        return Tree(kind, tuple(t for _, t in pairs), tuple(k for k, _ in pairs), name)

    def pair(self) -> tuple[str | int, Tree]:
        self.space()
        key = self.string() if self.text.startswith('"', self.position) else self.integer()
        self.expect(":")
        return key, self.tree()

    def signature(self) -> Signature | None:
        if self.word("none"):
            return None
        trees = {}
        for part in ("args", "kwargs", "out"):
            if not self.word(part):
                raise self.error(f"expected {part}=, found {self.rest()}")
            self.expect("=")
            trees[part] = self.tree()
        names: list[str] = []
        if self.word("names"):
            self.expect("=")
            self.expect("[")
            names = self.items("]", self.string)
        return Signature(**trees, arg_names=tuple(names))

    # -- graphs ------------------------------------------------------------------------------------

    def document(self) -> Graph:
        if self.word("graph"):
            self.space()
            name = "" if self.text.startswith("{", self.position) else self.plain(PLAIN_NAME, "a name")
            self.expect("{")
            graph = _GraphReader(self).read(name, "}")
        else:
            graph = _GraphReader(self).read("", "")
        self.space()
        if self.position < len(self.text):
            raise self.error(f"expected the end, found {self.rest()}")
        return graph


class _GraphReader:
    """The statements of one graph or region, which sees its own values only."""

    def __init__(self, reader: _Reader):
        self.r = reader
        self.values: dict[str, Value] = {}
        self.inputs: list[Value] = []
        self.held: dict[Value, Any] = {}
        self.edges: list[Operation] = []
        self.states: list[tuple[Value, Value]] = []
        self.symbols: dict[str, Constraint] = {}
        self.aliases: dict[str, str] = {}
        self.transient: set[str] = set()
        self.extra = b""

    def read(self, name: str, close: str) -> Graph:
        r = self.r
        r.depth += 1
        if r.depth > MAX_DEPTH:
            raise r.error(f"regions are nested deeper than {MAX_DEPTH}")
        signature: Any = REQUIRED
        while not r.word("return"):
            if r.word("signature"):
                signature = r.signature()
            else:
                self.statement()
        outputs, bare = self.results(close)
        if close:
            r.expect(close)
        r.depth -= 1
        graph = Graph(
            tuple(self.inputs),
            outputs,
            tuple(self.edges),
            self.held,
            tuple(self.states),
            None,
            self.all_symbols(),
            name,
            self.extra,
            self.aliases,
            frozenset(self.transient),
        )
        return graph.replace(signature=plain_signature(graph, bare) if signature is REQUIRED else signature)

    def all_symbols(self) -> dict[str, Constraint]:
        found = set().union(*(v.type.symbols() for v in (*self.inputs, *self.held))) - self.symbols.keys()
        return {**self.symbols, **{s: Constraint() for s in sorted(found)}}

    def results(self, close: str) -> tuple[tuple[Value, ...], bool]:
        r = self.r
        if r.take("("):
            return tuple(r.items(")", self.use)), False
        r.space()
        if r.position == len(r.text) or (close and r.text.startswith(close, r.position)):
            return (), False
        outputs = [self.use()]
        while r.take(","):
            outputs.append(self.use())
        return tuple(outputs), len(outputs) == 1

    def statement(self) -> None:
        r = self.r
        r.space()
        if r.text.startswith(("%", "("), r.position):
            self.operation()
            return
        for role in _SOURCES:
            if r.word(role):
                self.source(role)
                return
        if r.word("symbol"):
            self.symbol()
        elif r.word("update"):
            state = self.use()
            r.expect("=")
            self.states.append((state, self.use()))
        elif r.word("alias"):
            self.alias()
        elif r.word("transient"):
            self.transient.add(self.use().name)
        elif r.word("extra"):
            self.extra = r.base64() or b""
        else:
            others = f"{', '.join(_SOURCES)}, symbol, alias, transient, update, signature or return"
            raise r.error(f"expected an operation, {others}, found {r.rest()}")

    def name(self) -> tuple[str, str]:
        """A reference such as ``%x`` or ``%7``: how it is called here, and the value's own name."""
        r = self.r
        r.need(_VALUE, "a value such as %x")
        at = r.mark
        if r.text.startswith('"', r.position):
            name = r.string()
            r.mark = at
            return f"%{name}", name
        number = re.compile(r"\d+(?![\w.$/\-])").match(r.text, r.position)
        found = number or PLAIN_NAME.match(r.text, r.position)
        if not found:
            raise r.error('a name that is not plain needs quotes: %"…"')
        r.position = found.end()
        return (found[0], "") if number else (f"%{found[0]}", found[0])

    def target(self) -> tuple[str, str]:
        key, name = self.name()
        if key in self.values:
            raise self.r.error(f"%{key.lstrip('%')} is made twice")
        if not name and self.r.word("as"):
            name = self.r.string()
        return key, name

    def use(self) -> Value:
        key, _ = self.name()
        value = self.values.get(key)
        if value is None:
            raise self.r.error(f"there is no value %{key.lstrip('%')} before this place")
        return value

    def source(self, role: str) -> None:
        r = self.r
        key, name = self.target()
        r.expect(":")
        type_ = r.type()
        if role == INPUT and type_.dtype.is_key:
            role = KEY
        value = self.values[key] = Value(type_, name, role)
        if role in (INPUT, KEY):
            self.inputs.append(value)
        else:
            self.held[value] = r.data(value) if r.take("=") else None

    def alias(self) -> None:
        r = self.r
        _, alias = self.name()
        if not alias or alias in self.aliases or f"%{alias}" in self.values:
            raise r.error("an alias is a new name of a weight")
        r.expect("=")
        self.aliases[alias] = self.use().name

    def symbol(self) -> None:
        r = self.r
        name = r.need(_NAME, "the name of a size")
        found: dict[str, int] = {}
        for part in ("min", "max", "multiple_of"):
            if r.word(part):
                r.expect("=")
                found[part] = r.integer()
        self.symbols[name] = Constraint(**found)

    def operation(self) -> None:
        r = self.r
        targets: list[tuple[str, str, TensorType | None]] = []
        if r.take("("):
            r.expect(")")
        else:
            targets.append(self.output())
            while r.take(","):
                targets.append(self.output())
        r.expect("=")
        name = r.need(_NAME, "the name of an op")
        at = r.mark
        op = r.ops.get(name)
        if op is None:
            raise r.error(unknown_op(name))
        r.expect("(")
        inputs: list[Value] = []
        attrs: dict[str, Any] = {}

        def argument() -> None:
            r.space()
            if r.text.startswith("%", r.position):
                inputs.append(self.use())
                return
            key, at = r.need(_NAME, "a value or an attribute"), r.mark
            if key in attrs:
                raise r.error(f"attribute {key!r} stands twice")
            r.expect("=")
            attrs[key] = r.attribute(op, key, at)

        r.items(")", argument)
        scope, source = self.place()
        regions = self.regions(op) if r.take("{") else ()
        self.finish(op, at, targets, tuple(inputs), attrs, regions, scope, source)

    def output(self) -> tuple[str, str, TensorType | None]:
        key, name = self.target()
        return key, name, self.r.type() if self.r.take(":") else None

    def place(self) -> tuple[str, str]:
        r = self.r
        if not r.take("@"):
            return "", ""
        scope = r.plain(PLAIN_WORD, "a scope")
        return scope, r.plain(PLAIN_WORD, "a source") if r.take(",") else ""

    def regions(self, op: OpDef) -> tuple[Graph, ...]:
        r = self.r
        found: list[Graph] = []
        while not r.take("}"):
            label = r.need(_NAME, "the name of a region")
            if label != region_labels(op, len(found) + 1)[-1]:
                raise r.error(f"{op.name} has regions {', '.join(op.region_types) or 'none'}, not {label!r} here")
            name = r.string() if r.word("as") else label
            r.expect("{")
            found.append(_GraphReader(r).read(name, "}"))
        return tuple(found)

    def finish(
        self,
        op: OpDef,
        at: int,
        targets: list[tuple[str, str, TensorType | None]],
        inputs: tuple[Value, ...],
        attrs: dict[str, Any],
        regions: tuple[Graph, ...],
        scope: str,
        source: str,
    ) -> None:
        try:
            normal = op.normalize(attrs)
            result = op.infer_types(tuple(v.type for v in inputs), normal, regions)
        except Exception as error:
            raise self.r.error(str(error), at) from error
        types = (result,) if type(result) is TensorType else tuple(result)
        if len(types) != len(targets):
            raise self.r.error(f"{op.name} gives {len(types)} values, {len(targets)} are named", at)
        outputs = []
        for (key, name, given), type_ in zip(targets, types):
            if given is not None and not same(given, type_):
                raise self.r.error(f"{op.name} gives {type_}, not {given}", at)
            if key in self.values:
                raise self.r.error(f"%{key.lstrip('%')} is made twice", at)
            value = self.values[key] = Value(given or type_, name)
            outputs.append(value)
        self.edges.append(Operation(op, inputs, tuple(outputs), normal, regions, scope, source))
