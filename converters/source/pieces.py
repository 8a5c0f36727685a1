"""Pieces of program text: calls, definitions, names, structures."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from unigraph.evaluate import Row
from unigraph.graph import Operation
from unigraph.opdef import OpDef
from unigraph.tree import DATACLASS, DICT, LEAF, LIST, NONE, Tree

WIDTH = 112


def define(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    """The text of a function."""
    tidy: list[str] = []
    for line in _without_last_name(list(_without_unused_sizes(lines))):
        if line or (tidy and tidy[-1]):
            tidy.append(line)
    head = call(f"def {name}", parameters, ":")
    return "\n".join([*head, *(f"    {line}" if line else "" for line in tidy)])


def call(function: str, arguments: Sequence[str], end: str = "") -> list[str]:
    """A call on one line, or with arguments below each other where it gets long."""
    text = f"{function}({', '.join(arguments)}){end}"
    if len(text) <= WIDTH or not arguments:
        return [text]
    inner = ", ".join(arguments)
    if len(inner) <= WIDTH - 4:
        return [f"{function}(", f"    {inner}", f"){end}"]
    return [f"{function}(", *(f"    {a}," for a in arguments), f"){end}"]


def sentence(op: OpDef) -> str:
    """The first sentence of the op's documentation, or its first clause where that is long."""
    first = re.split(r"(?<=[a-z\])])(?<!et al)\.(?:\s|$)", op.doc.strip(), maxsplit=1)[0]
    if len(first) > 90:
        clause = re.match(r".{20,90}?(?=[:;,]| \()", first)
        first = clause[0] if clause else ""
    return f"{harmless(first).rstrip(' .')}." if first else f"The composite {harmless(op.name)}."


def _without_last_name(lines: list[str]) -> list[str]:
    """What is returned at once needs no name."""
    made = re.fullmatch(r"(\w+) = (.+[^(\[{])", lines[-2]) if len(lines) > 1 else None
    return [*lines[:-2], f"return {made[2]}"] if made and lines[-1] == f"return {made[1]}" else lines


def _without_unused_sizes(lines: Sequence[str]) -> list[str]:
    """Sizes that no line reads need not be taken."""
    kept: list[str] = []
    for line in reversed(lines):
        size = re.fullmatch(r"(\w+) = .*\.shape\[\d+\].*", line)
        if not size or any(re.search(rf"\b{size[1]}\b", later) for later in kept):
            kept.append(line)
    return kept[::-1]


def harmless(text: str) -> str:
    """Text from a graph for a comment or docstring: on one line, without an end to the string."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(plain.replace("\\", "/").replace('"', "'").split())


def quoted(key: str | int) -> str:
    """A dict key or string as Python text, in double quotes where that needs no escapes."""
    text = repr(key)
    return f'"{text[1:-1]}"' if isinstance(key, str) and text[0] == "'" and '"' not in text else text


def identifier(name: str) -> str:
    """``name`` as a Python identifier."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
    return f"x{plain}" if plain[0].isdigit() else plain


def reserved(name: str) -> bool:
    return keyword.iskeyword(name) or hasattr(builtins, name)


def short_name(name: str) -> str:
    """The telling end of a dotted value name."""
    return name.rpartition(".")[2] if not name.rpartition(".")[2].isdigit() else name


_RESULTS = {"dot_general": "product", "broadcast_in_dim": "spread", "convert": "converted", "linear": "h"}


def result_name(op: Operation) -> str:
    return _RESULTS.get(op.op.name, f"{op.op.name}_out")


def tuple_text(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def leaves_of(tree: Tree, path: str, label: str = "") -> Iterator[tuple[str, str]]:
    """Text that reaches each leaf of a nested argument, and a name for it."""
    if tree.kind == LEAF:
        yield path, label
        return
    for number, child in enumerate(tree.children):
        key = tree.keys[number] if tree.keys else number
        step = f".{key}" if tree.kind == DATACLASS else f"[{quoted(key)}]" if tree.kind == DICT else f"[{number}]"
        yield from leaves_of(child, path + step, f"{label or path}_{key}")


def output_text(tree: Tree, leaves: Iterator[str]) -> str:
    if tree.kind == LEAF:
        return next(leaves)
    if tree.kind == NONE:
        return "None"
    parts = [output_text(c, leaves) for c in tree.children]
    if tree.kind in (DICT, DATACLASS):
        return "{" + ", ".join(f"{quoted(k)}: {p}" for k, p in zip(tree.keys, parts)) + "}"
    return f"[{', '.join(parts)}]" if tree.kind == LIST else f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def float_text(x: float) -> str:
    return repr(x) if np.isfinite(x) else f'float("{x}")'


def holds_sizes(x: Any) -> bool:
    return hasattr(x, "free_symbols") or (type(x) is tuple and any(map(holds_sizes, x)))


def defaults_of(row: Row) -> dict[str, Any]:
    try:
        parameters = inspect.signature(row).parameters.values()
    except (TypeError, ValueError):
        return {}
    # Only those of our own: libraries may change theirs.
    if not getattr(row, "__module__", "").startswith("unigraph"):
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty}
