"""The text form of a graph: one line per operation, for people, and read back by `parse`.

    graph affine {
      symbol batch min=1
      input %x: f32[batch,3]
      weight %dense.w: f32[3,2]
      constant %0: f32[] = 2.0
      %1: f32[batch,2] = dot_general(%x, %dense.w, lhs_contracting=[1], rhs_contracting=[0]) @ dense, net.py:7
      return %1
    }

Types of results, the ``graph … {`` line, symbols and ``@ scope, source`` may be left out when writing
by hand. ``#`` starts a comment. A value without a name is a number; a name that is not plain is
quoted; ``%7 as "name"`` is a value whose name stands elsewhere too. ``= ...`` is data left out.
``alias %b = %a`` says that the weight ``%a`` is also called ``b``, ``transient %s`` that no checkpoint
holds the state ``%s``.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import dims
from .dims import Constraint
from .errors import GraphError
from .graph import CONSTANT, Graph, Operation, Value
from .opdef import OpDef
from .safetensors import as_bytes, storage
from .tree import DATACLASS, DICT, LEAF, LIST, NAMEDTUPLE, NONE, TUPLE, Signature, Tree

SMALL = 16  # elements written out
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.$/\-]*")
PLAIN_WORD = re.compile(r"[A-Za-z0-9_.$/:<>\[\]+\-]+")


def to_text(graph: Graph, full: bool = False) -> str:
    """``graph`` as text. With ``full`` all data is in it, so that `parse` gives the same graph;
    otherwise weights and long constants show their types only."""
    head = f"graph {_word(graph.name, PLAIN_NAME)} {{" if graph.name else "graph {"
    return "\n".join([head, *("  " + line for line in _body(graph, full, True)), "}"]) + "\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _word(text: str, plain: re.Pattern[str]) -> str:
    return text if plain.fullmatch(text) else _quote(text)


def _body(graph: Graph, full: bool, outer: bool) -> Iterator[str]:
    names = _names(graph)
    # The symbols of a region go without saying when they are those that `parse` would find itself.
    said = {} if not outer and _plain_symbols(graph) else graph.symbols
    for name, constraint in said.items():
        yield f"symbol {name}{_constraint(constraint)}"
    for value in graph.inputs:
        yield f"{value.role} {names[value]}: {value.type}"
    for value, array in graph.data.items():
        yield f"{value.role} {names[value]}: {value.type}{_data(value, array, full)}"
    for alias, name in graph.aliases.items():
        yield f"alias %{_word(alias, PLAIN_NAME)} = %{_word(name, PLAIN_NAME)}"
    for name in sorted(graph.transient):
        yield f"transient %{_word(name, PLAIN_NAME)}"
    if graph.extra:
        yield f'extra base64"{base64.b64encode(graph.extra).decode()}"'
    if not _plain_signature(graph):
        yield f"signature {_signature(graph.signature)}"
    for operation in graph.edges:
        yield from _operation(operation, names, full)
    for state, new in graph.states:
        yield f"update {_use(names, state)} = {_use(names, new)}"
    outputs = ", ".join(_use(names, v) for v in graph.outputs)
    bare = graph.signature is not None and graph.signature.out.kind == LEAF
    yield f"return {outputs}" if bare else f"return ({outputs}{',' if len(graph.outputs) == 1 else ''})"


def _plain_symbols(graph: Graph) -> bool:
    found: set[str] = set().union(*(v.type.symbols() for v in (*graph.inputs, *graph.data)))
    return list(graph.symbols.items()) == [(s, Constraint()) for s in sorted(found)]


def _names(graph: Graph) -> dict[Value, str]:
    """How each value is written where it is made: ``%name``, ``%7`` or ``%7 as "name"``."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    number = 0
    for value in graph.nodes:
        if value.name and value.name not in taken:
            taken.add(value.name)
            names[value] = f"%{_word(value.name, PLAIN_NAME)}"
        else:
            names[value] = f"%{number} as {_quote(value.name)}" if value.name else f"%{number}"
            number += 1
    return names


def _use(names: Mapping[Value, str], value: Value) -> str:
    try:
        name = names[value]
    except KeyError:
        raise GraphError(f"{value!r} is not a value of the graph that uses it") from None
    return name.partition(" as ")[0] if name[1].isdigit() else name


def _constraint(c: Constraint) -> str:
    parts = [
        f" min={c.min}" if c.min else "",
        f" max={c.max}" if c.max is not None else "",
        f" multiple_of={c.multiple_of}" if c.multiple_of != 1 else "",
    ]
    return "".join(parts)


def _operation(operation: Operation, names: Mapping[Value, str], full: bool) -> Iterator[str]:
    outputs = ", ".join(f"{names[v]}: {v.type}" for v in operation.outputs) or "()"
    specs = operation.op.attrs
    arguments = [_use(names, v) for v in operation.inputs]
    arguments += [f"{k}={attribute_text(specs[k].kind, v)}" for k, v in operation.attrs.items()]
    line = f"{outputs} = {operation.op.name}({', '.join(arguments)}){_place(operation)}"
    if not operation.regions:
        yield line
        return
    yield line + " {"
    for label, region in zip(region_labels(operation.op, len(operation.regions)), operation.regions):
        title = label if region.name == label else f"{label} as {_quote(region.name)}"
        yield f"  {title} {{"
        yield from ("    " + inner for inner in _body(region, full, False))
        yield "  }"
    yield "}"


def _place(operation: Operation) -> str:
    if not operation.scope and not operation.source:
        return ""
    scope = _word(operation.scope, PLAIN_WORD)
    return f" @ {scope}, {_word(operation.source, PLAIN_WORD)}" if operation.source else f" @ {scope}"


def region_labels(op: OpDef, count: int) -> list[str]:
    """The label of each of ``count`` regions: the record's names, the last repeated for ``*branches``."""
    labels = [n.lstrip("*") for n in op.region_types] or ["region"]
    return [*labels, *[labels[-1]] * count][:count]


# -- literals --------------------------------------------------------------------------------------


def scalar_text(x: Any) -> str:
    """A bool, int, float or complex number; exact, NaN payloads included."""
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return str(x)
    if isinstance(x, complex):
        return f"complex({scalar_text(x.real)}, {scalar_text(x.imag)})"
    if math.isnan(x) and struct.pack(">d", x) != struct.pack(">d", math.nan):
        return f"bits(0x{struct.pack('>d', x).hex()})"
    return repr(float(x))


def _dim(x: Any) -> str:
    text = dims.to_text(x)
    return f"({text})" if text in ("none", "true", "false") else text


def _list_of(one: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda xs: f"[{', '.join(map(one, xs))}]"


_ATTRIBUTE: Mapping[str, Callable[[Any], str]] = {
    "bool": scalar_text,
    "int": scalar_text,
    "float": scalar_text,
    "scalar": scalar_text,
    "str": _quote,
    "dtype": str,
    "dim": _dim,
    "bools": _list_of(scalar_text),
    "ints": _list_of(scalar_text),
    "floats": _list_of(scalar_text),
    "strs": _list_of(_quote),
    "dims": _list_of(_dim),
}


def attribute_text(kind: str, value: Any) -> str:
    return "none" if value is None else _ATTRIBUTE[kind](value)


def _data(value: Value, array: Any, full: bool) -> str:
    if array is None:
        return " = ..." if value.role == CONSTANT else ""
    array = np.asarray(array)
    if not full and (value.role != CONSTANT or array.size > SMALL):
        return " = ..." if value.role == CONSTANT else ""
    if array.size <= SMALL and not value.type.dtype.is_key:
        items = [element_text(x) for x in array.reshape(-1)]
        if np.array_equal(as_bytes(elements(items, value)), as_bytes(array)):
            return f" = {items[0]}" if array.ndim == 0 else f" = [{', '.join(items)}]"
    return f' = base64"{base64.b64encode(as_bytes(array).tobytes()).decode()}"'


def element_text(x: Any) -> str:
    """One array element, as short as its type allows."""
    if isinstance(x, np.complexfloating):
        return f"complex({element_text(x.real)}, {element_text(x.imag)})"
    if isinstance(x, (np.bool_, np.integer)):
        return scalar_text(x.item())
    text = str(x)
    return text if re.fullmatch(r"-?\d+", text) is None or x.dtype.name.startswith(("int", "uint")) else f"{text}.0"


def elements(items: list[Any], value: Value) -> np.ndarray:
    """The array of a value whose elements are these numbers or their text, in row-major order.

    Raises ValueError when they do not fit.
    """
    dtype, shape = storage(value.type)
    numbers = [_number(i) if isinstance(i, str) else i for i in items]
    if not numbers:
        return np.zeros(shape, dtype.numpy)
    with np.errstate(all="ignore"):
        if dtype.is_integer:
            wide = np.array(numbers, np.uint64 if dtype.kind == "uint" else np.int64)
        else:
            wide = np.array(numbers)
        return wide.astype(dtype.numpy).reshape(shape)


def _number(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("complex("):
        return complex(*map(float, text[8:-1].split(",")))
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


# -- signatures ------------------------------------------------------------------------------------


def plain_signature(graph: Graph, bare: bool) -> Signature:
    """The signature that goes without saying: each input an argument, the outputs bare or a tuple."""
    leaf = Tree(LEAF)
    args = Tree(TUPLE, (leaf,) * len(graph.inputs))
    out = leaf if bare else Tree(TUPLE, (leaf,) * len(graph.outputs))
    return Signature(args, Tree(DICT), out, tuple(v.name for v in graph.inputs))


def _plain_signature(graph: Graph) -> bool:
    s = graph.signature
    return s is not None and s == plain_signature(graph, s.out.kind == LEAF)


def _signature(s: Signature | None) -> str:
    if s is None:
        return "none"
    names = ", ".join(map(_quote, s.arg_names))
    return f"args={_tree(s.args)} kwargs={_tree(s.kwargs)} out={_tree(s.out)} names=[{names}]"


def _tree(tree: Tree) -> str:
    parts = [_tree(c) for c in tree.children]
    if tree.kind in (LEAF, NONE):
        return "*" if tree.kind == LEAF else "none"
    if tree.kind == LIST:
        return f"[{', '.join(parts)}]"
    if tree.kind == TUPLE:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    keys = [_quote(k) if isinstance(k, str) else str(k) for k in tree.keys]
    body = "{" + ", ".join(f"{k}: {p}" for k, p in zip(keys, parts)) + "}"
    return body if tree.kind == DICT else f"{tree.kind} {_quote(tree.name)} {body}"


CLASSED = (NAMEDTUPLE, DATACLASS)


def parse(text: str) -> Graph:
    """The graph written as ``text``; types are inferred where left out and checked where given.

    Raises TextError with line and column.
    """
    from .textreader import read

    return read(text)
