"""Writes the documents that are made from records and docstrings: ``python -m docs.generate``.

``docs/opset.md`` from the op records, ``docs/api.md`` from the public names, ``docs/passes.md`` from the
rules of the passes. A test compares the files with what this module makes.
"""

from __future__ import annotations

import inspect
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import unigraph as ug
from unigraph.dtypes import dtype
from unigraph.opdef import OPSET_VERSION, REQUIRED, Example, OpDef, registry

from .constraints import constraints

FOLDER = Path(__file__).parent
GAPS = FOLDER.parent / "tests" / "gaps"
ENGINES = ("numpy", "torch", "jax", "onnx")
SHOWN = 2  # examples of each op
MAX_ELEMENTS = 12  # of an array in an example

FAMILIES = {
    "elementwise": "Elementwise",
    "movement": "Moving and cutting",
    "index": "Gather and scatter",
    "reduce": "Reductions, cumulative ops and windows",
    "contract": "Contractions",
    "sort": "Sorting and Fourier transforms",
    "linalg": "Linear algebra",
    "random": "Random keys and bits",
    "control": "Control flow",
    "collective": "Collectives",
    "composite": "Composites",
}

HEAD = "<!-- Made by `python -m docs.generate`; change the source it is made from instead. -->"


def documents() -> dict[str, str]:
    """The text of every generated document, by file name."""
    return {"opset.md": opset(), "api.md": api(), "passes.md": passes()}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [
        list(head),
        ["---"] * len(head),
        *([cell.replace("|", "\\|").replace("\n", " ") for cell in r] for r in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- the opset ---------------------------------------------------------------------------------------


def opset() -> str:
    ops = [op for op in registry().values() if op.family != "user"]
    families = [*FAMILIES, *sorted({op.family for op in ops} - FAMILIES.keys())]
    core = sum(not op.is_composite for op in ops)
    parts = [
        HEAD,
        "# The opset",
        f"Version {OPSET_VERSION}: {core} core ops and {len(ops) - core} composites. Core ops have the meaning "
        "of the op of that name in `jax.lax` and StableHLO; a composite is one builder function of other ops, which "
        "is its meaning and what an engine without a row of its own runs.",
        "Ops never broadcast or promote: importers insert `broadcast_in_dim` and `convert`. An operand marked `?` "
        "may be left out, `*xs` takes any number. In attribute kinds, `dim` and `dims` may be symbolic. A label in "
        "brackets, such as `[pad_c2]`, ends the error message of the constraint it names.",
        "Engines: **row** means a function of its own, **parts** that it runs as its decomposition, **gap** that it "
        "cannot run, with the reason.",
    ]
    for family in families:
        members = [op for op in ops if op.family == family]
        if members:
            parts.append(f"## {FAMILIES.get(family, family.capitalize())}")
            parts.append(", ".join(f"[{op.name}](#{op.name})" for op in members))
            parts += [_op(op) for op in members]
    return "\n\n".join(parts) + "\n"


def _op(op: OpDef) -> str:
    attrs = ", ".join(k if a.default is REQUIRED else f"{k}={_default(a.default)}" for k, a in op.attrs.items())
    regions = ", ".join(f"{r} (region)" for r in op.region_types)
    signature = ", ".join(filter(None, [", ".join(op.operands), f"*, {attrs}" if attrs else "", regions]))
    parts = [f"### {op.name}", f"`{op.name}({signature})`", " ".join(op.doc.split())]
    if op.attrs:
        rows = []
        for key, a in op.attrs.items():
            allowed = f" One of {', '.join(map(repr, a.choices))}." if a.choices else ""
            default = "required" if a.default is REQUIRED else f"`{_default(a.default)}`"
            rows.append((f"`{key}`", a.kind, default, a.doc + allowed))
        parts.append(table(("Attribute", "Kind", "Default", "Meaning"), rows))
    found = constraints(op)
    if found:
        parts.append(
            "\n".join(
                [
                    "Constraints, by label, in the words of the error:",
                    "",
                    *(f"- `{label}`: {text}" for label, text in found.items()),
                ]
            )
        )
    shown = [line for line in map(lambda e: _example(op, e), op.examples) if line]
    if shown:
        parts.append("```\n" + "\n".join(shown[:SHOWN]) + "\n```")
    parts.append("Engines: " + "; ".join(_engine(op, name) for name in ENGINES) + ".")
    return "\n\n".join(parts)


def _default(x: Any) -> str:
    return repr(x)


def _example(op: OpDef, example: Example) -> str | None:
    """One line, for examples whose result is told and small."""
    told = example.outputs
    arrays = (*example.inputs, *(told or ()))
    if told is None or example.regions or any(a.size > MAX_ELEMENTS for a in arrays):
        return None
    attrs = [f"{k}={_plain(v)}" for k, v in example.attrs.items()]
    line = f"{op.name}({', '.join([*map(_array, example.inputs), *attrs])}) -> {', '.join(map(_array, told))}"
    return line if len(line) <= 300 else None


def _plain(x: Any) -> str:
    return x.name if hasattr(x, "key_words") else repr(x)


def _array(x: np.ndarray) -> str:
    kind = dtype(x.dtype)
    shape = f"[{','.join(map(str, x.shape))}]"
    wide = x.astype({"float": np.float64, "complex": np.complex128}.get(kind.kind, x.dtype))
    if kind.is_integer and kind.bits < 8:
        wide = x.astype(np.int64)

    def text(item: Any) -> str:
        if isinstance(item, list):
            return f"[{', '.join(map(text, item))}]"
        return f"{item:.5g}" if isinstance(item, (float, complex)) else str(item).lower()

    return f"{kind.name}{shape} {text(wide.tolist())}"


@cache
def _gaps(engine: str) -> Mapping[str, str]:
    path = GAPS / f"{engine}.toml"
    return tomllib.loads(path.read_text())["gaps"] if path.exists() else {}


@cache
def _rows(engine: str) -> Mapping[OpDef, Any]:
    if engine == "onnx":
        from unigraph.converters.onnx.export_table import ROWS

        return ROWS
    module = __import__(f"unigraph.runtime.{engine}.table", fromlist=["TABLE"])
    rows: Mapping[OpDef, Any] = module.TABLE.rows
    return rows


def _engine(op: OpDef, engine: str) -> str:
    known = _gaps(engine)
    if op.name in known:
        return f"{engine} **gap** ({known[op.name]})"
    how = "row" if op in _rows(engine) else "parts"
    partial = sorted({reason for name, reason in known.items() if re.fullmatch(rf"{re.escape(op.name)}\.\d+", name)})
    return f"{engine} {how}" + (f", except: {'; '.join(partial)}" if partial else "")


# -- public names --------------------------------------------------------------------------------------

GROUPS = {
    "Capture": ("from_torch", "from_jax", "from_onnx"),
    "Emit": ("to_torch", "to_jax", "to_onnx", "to_source"),
    "Files and text": ("load", "save", "parse"),
    "Run and compare": ("run", "compile", "diff"),
    "Inspect": ("check", "stats"),
    "Passes": ("optimize", "passes"),
    "Transforms": ("grad", "value_and_grad", "jvp", "vmap", "hessian", "checkpoint"),
    "Extend": ("composite", "lower_torch", "lower_jax"),
    "Build": ("GraphBuilder", "Graph", "Value", "Operation", "TensorType", "DType", "Constraint"),
}


def api() -> str:
    listed = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Errors": tuple(n for n in ug.__all__ if n.endswith("Error") and n not in listed)}
    rest = [n for n in ug.__all__ if n not in listed | set(groups["Errors"]) | {"errors"}]
    if rest:
        groups["Others"] = tuple(rest)
    parts = [
        HEAD,
        "# Public names",
        "`import unigraph as ug`; every name below is an attribute of `ug`. Nothing else is promised. "
        "Where a function takes a graph (`GraphLike`), the path of a `.ugraph` file does as well.",
    ]
    for title, names in groups.items():
        parts.append(f"## {title}")
        parts += [_public(name) for name in names]
    return "\n\n".join(parts) + "\n"


def _public(name: str) -> str:
    found = getattr(ug, name)
    if inspect.ismodule(found):
        members = [n for n, f in vars(found).items() if inspect.isfunction(f) and _is_pass(f)]
        parts = [f"### {name}", _doc(found)] + [_callable(f"passes.{n}", getattr(found, n), 4) for n in sorted(members)]
        return "\n\n".join(parts)
    if inspect.isclass(found):
        return _class(name, found)
    return _callable(name, found, 3)


def _is_pass(function: Any) -> bool:
    """A pass takes a graph first and gives one."""
    parameters = list(inspect.signature(function).parameters)
    own = str(function.__module__).startswith("unigraph.passes.")
    return own and parameters[:1] == ["graph"] and inspect.signature(function).return_annotation == "Graph"


def _callable(name: str, function: Any, level: int) -> str:
    return "\n\n".join([f"{'#' * level} {name}", f"```python\n{name}{_signature(function)}\n```", _doc(function)])


def _class(name: str, cls: type) -> str:
    parts = [f"### {name}"]
    if not issubclass(cls, Exception):
        parts.append(f"```python\n{name}{_signature(cls)}\n```")
    parts.append(_doc(cls))
    rows = []
    for key, member in vars(cls).items():
        if key.startswith("_"):
            continue
        doc = _first(member)
        if inspect.isfunction(member) and doc:
            rows.append((f"`{key}{_signature(member)}`".replace("(self, ", "(").replace("(self)", "()"), doc))
        elif isinstance(member, property) or hasattr(member, "func"):
            rows.append((f"`{key}`", doc))
    if rows and not issubclass(cls, Exception):
        parts.append(table(("Member", "Meaning"), rows))
    return "\n\n".join(p for p in parts if p)


def _first(x: Any) -> str:
    return " ".join((inspect.getdoc(x) or "").partition("\n\n")[0].split()).replace("``", "`")


class _Raw(str):
    """An annotation, printed as it was written."""

    def __repr__(self) -> str:
        return str(self)


def _signature(x: Any) -> str:
    try:
        found = inspect.signature(x)
    except (TypeError, ValueError):
        return ""

    def raw(annotation: Any) -> Any:
        return _Raw(annotation) if isinstance(annotation, str) else annotation

    parameters = [p.replace(annotation=raw(p.annotation)) for p in found.parameters.values()]
    result = found.return_annotation
    if result is None or result == "None" or inspect.isclass(x):
        result = inspect.Signature.empty
    return str(inspect.Signature(parameters, return_annotation=raw(result)))


def _doc(x: Any) -> str:
    """A docstring as Markdown: examples after ``>>>`` become code blocks, double quotes of code single."""
    parts = []
    for paragraph in (inspect.getdoc(x) or "").split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            code = "\n".join(line[4:] for line in paragraph.splitlines())
            parts.append(f"```python\n{code}\n```")
        else:
            parts.append(paragraph.replace("``", "`"))
    return "\n\n".join(parts)


# -- passes --------------------------------------------------------------------------------------------


def passes() -> str:
    from unigraph.passes import LEVELS
    from unigraph.passes.fuse import ROWS
    from unigraph.passes.simplify import RULES

    levels = {name: "" for level in LEVELS.values() for name in [p.name for p in level]}
    first = {n: min(k for k, level in LEVELS.items() if n in [p.name for p in level]) for n in levels}
    exact = {p.name: p.exact for level in LEVELS.values() for p in level}
    names = sorted(
        (n for n, f in vars(ug.passes).items() if inspect.isfunction(f) and _is_pass(f)),
        key=lambda n: (first.get(n, 9), n),
    )
    rows = [
        (
            f"`{n}`",
            str(first.get(n, "by name")),
            ("bit for bit" if exact[n] else "within rounding") if n in exact else "",
            _first(getattr(ug.passes, n)),
        )
        for n in names
    ]
    rules: dict[Any, list[str]] = {}
    for op, members in RULES.items():
        for rule in members:
            rules.setdefault(rule, []).append(op.name)
    simplify = [(", ".join(f"`{n}`" for n in ops), _first(rule)) for rule, ops in rules.items()]
    fuse = [(f"`{row.composite}`", _pattern(row.pattern)) for row in ROWS]
    parts = [
        HEAD,
        "# Passes",
        "A pass is a function from a graph to a graph. `ug.optimize(g, level)` runs those of a level and the levels "
        "below it; `ug.passes.NAME(g)` runs one. Values stay equal bit for bit, or within rounding where the table "
        "says so.",
        table(("Pass", "From level", "Values", "What it does"), rows),
        "Order at each level: "
        + "; ".join(f"{k}: {', '.join(p.name for p in level) or 'nothing'}" for k, level in LEVELS.items())
        + ".",
        "## simplify: before -> after",
        table(("Op", "Rule"), simplify),
        "## fuse: what each composite is raised from",
        "A pattern matches its composite's own decomposition and the forms that torch, JAX and ONNX exporters write; "
        "operands of commutative ops match in either order.",
        table(("After", "Before"), fuse),
    ]
    return "\n\n".join(parts) + "\n"


def _pattern(function: Any) -> str:
    doc = _first(function)
    if doc:
        return doc
    body = inspect.getsource(function).partition("return ")[2]
    return f"`{' '.join(body.split()).replace('p.', '')}`"


def main() -> None:
    """Write every document that has changed."""
    for name, text in documents().items():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
