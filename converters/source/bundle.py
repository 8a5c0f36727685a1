"""Bundles the source of functions: definitions and everything they refer to, as one readable text.

Nothing is written twice: the rows of a runtime table are the meaning of the ops, so a standalone
program gets their very source. References are found in the syntax trees of the modules, comments and
layout survive, annotations go.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import keyword
import math
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unigraph.dtypes import DType
from unigraph.errors import Unsupported
from unigraph.opdef import OpDef, registry

from .syntax import Module, Names, find_code, parameters

# Libraries a standalone program may import, and the line that does it. Their members are looked up in this order.
LIBRARIES: Mapping[str, str] = {
    "numpy": "import numpy as np",
    "numpy.linalg": "import numpy as np",
    "numpy.fft": "import numpy as np",
    "jax.lax": "from jax import lax",
    "jax.numpy": "import jax.numpy as jnp",
    "jax.lax.linalg": "from jax.lax import linalg",
    "jax.nn": "import jax",
    "jax.random": "import jax",
    "jax.scipy.special": "from jax.scipy import special",
    "jax": "import jax",
    "ml_dtypes": "import ml_dtypes",
    "math": "import math",
    "operator": "import operator",
    "functools": "import functools",
    "itertools": "import itertools",
}
_ALIAS = {
    "numpy": "np",
    "jax.numpy": "jnp",
    "jax.lax": "lax",
    "jax.lax.linalg": "linalg",
    "jax.scipy.special": "special",
}
_ALIAS |= {"numpy.linalg": "np.linalg", "numpy.fft": "np.fft"}
_MARK = re.compile("\0([0-9]+)\0")
_NOISE = re.compile(r"[ \t]+# (?:type: ignore|noqa|fmt:).*$", re.MULTILINE)
_HEAD = re.compile(r"^( *def [^\n(]+)\(\n([^()]*?),?\n *\):", re.MULTILINE)


@dataclass(eq=False)
class Definition:
    """A piece of text that binds names; ``\\0n\\0`` in it stands for reference number n."""

    names: tuple[str, ...]
    text: str = ""
    local: set[str] = field(default_factory=set)  # names that would capture a reference
    at_once: list[Definition] = field(default_factory=list)  # what must stand before it
    when_called: list[Definition] = field(default_factory=list)
    calling: bool = False  # while it is read: references are of the second kind


class Bundle:
    """Definitions collected for one program."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}  # name -> import line
        self.final: dict[tuple[Definition, str], str] = {}
        self._definitions: list[Definition] = []
        self._statements: dict[tuple[str, int], Definition] = {}
        self._made: dict[int, tuple[Any, tuple[Definition, str]]] = {}
        self._references: list[tuple[Definition, str]] = []
        self._numbers: dict[tuple[Definition, str], int] = {}
        self._wishes: dict[tuple[Definition, str], str] = {}
        self._users: dict[tuple[Definition, str], list[Definition]] = {}
        self._current: list[Definition] = []
        self._making: list[str] = []  # names of the functions being remade, innermost last

    # -- collecting ------------------------------------------------------------------------------

    def add(self, thing: Any, wish: str = "") -> str:
        """Text that means ``thing``, with marks that `render` turns into names.

        ``wish`` is the name it would like. Raises Unsupported for what has no source.
        """
        return self._expression(thing, wish)

    def render(self, text: str) -> str:
        """``text`` with names for marks; call `name_all` first."""
        return _MARK.sub(lambda m: self.final[self._references[int(m[1])]], text)

    def name_all(self, reserved: Iterable[str] = ()) -> None:
        """Choose a name for every definition: none clashes, none is captured by a local one."""
        taken = {*self.imports, *keyword.kwlist, *dir(builtins), *reserved}
        for reference in self._references:
            if reference in self.final:
                continue
            captured = set().union(*(u.local for u in self._users.get(reference, ())))
            wish = base = self._wishes.get(reference) or reference[1]
            number = 1
            while wish in taken or wish in captured:
                wish = f"{base}_" if number == 1 else f"{base}_{number}"
                number += 1
            taken.add(wish)
            self.final[reference] = wish

    def text(self) -> str:
        """All definitions, each after what it needs when it runs."""
        parts = [_folded(self.render(d.text).strip("\n")) for d in _ordered(self._definitions)]
        lines = []
        for before, part in zip(["", *parts], parts):
            block = "\n" in part or "\n" in before
            lines.append(("\n\n" if block else "") + part if before else part)
        return "\n".join(lines)

    # -- expressions -----------------------------------------------------------------------------

    def _expression(self, x: Any, wish: str = "") -> str:
        if x is None or x is Ellipsis or isinstance(x, (bool, int, str, bytes, float, complex, np.generic)):
            return self._literal(x)
        if isinstance(x, (tuple, list)):
            inner = ", ".join(map(self._expression, x)) + ("," if isinstance(x, tuple) and len(x) == 1 else "")
            return f"({inner})" if isinstance(x, tuple) else f"[{inner}]"
        if isinstance(x, dict):
            return "{" + ", ".join(f"{self._expression(k)}: {self._expression(v)}" for k, v in x.items()) + "}"
        if isinstance(x, types.ModuleType):
            return self._library(x)
        if isinstance(x, np.dtype):
            return f"np.dtype({self._expression(x.type)})"
        if isinstance(x, DType):
            return self._global("unigraph.dtypes", next(k for k, v in _globals("unigraph.dtypes").items() if v is x))
        if isinstance(x, functools.partial):
            self._import("functools", "import functools")
            given = [self._expression(a) for a in x.args] + [
                f"{k}={self._expression(v)}" for k, v in x.keywords.items()
            ]
            return f"functools.partial({', '.join([self._expression(x.func), *given])})"
        home = getattr(x, "__globals__", {}).get("__name__", "") or getattr(x, "__module__", "") or ""
        if not home.startswith("unigraph"):
            return self._member(x)
        found = next((k for k, v in _globals(home).items() if v is x and Module.of(home).statement(k)), None)
        if found is not None:
            return self._global(home, found, wish)
        if isinstance(x, types.FunctionType):
            return self._made_function(x, wish)
        raise Unsupported(f"{x!r} has no source of its own")

    def _literal(self, x: Any) -> str:
        if isinstance(x, np.generic):
            self._import("np", "import numpy as np")
            return f"{self._expression(type(x))}({self._literal(x.item())})"
        return f'float("{x}")' if isinstance(x, float) and not math.isfinite(x) else repr(x)

    def _import(self, name: str, line: str) -> None:
        if self.imports.setdefault(name, line) != line:
            raise Unsupported(f"two libraries are called {name!r}: {line} and {self.imports[name]}")

    def _library(self, module: types.ModuleType) -> str:
        name = module.__name__
        if name.startswith("unigraph"):
            raise Unsupported(f"module {name} itself is used as a value")
        line = LIBRARIES.get(name)
        if line is None:
            parent, _, last = name.rpartition(".")
            line = f"from {parent} import {last}" if parent else f"import {name}"
            self._import(last, line)
            return last
        alias = _ALIAS.get(name, name)
        self._import(line.split()[-1].split(".")[0], line)
        return alias

    def _member(self, x: Any) -> str:
        """A function, class or object of a library."""
        name = getattr(x, "__name__", "") or getattr(x, "name", "")
        if getattr(builtins, name, None) is x:
            return name
        for library in LIBRARIES:
            module = sys.modules.get(library)
            if module is not None and name and getattr(module, name, None) is x:
                return f"{self._library(module)}.{name}"
        for library in LIBRARIES:
            module = sys.modules.get(library)
            for key, value in vars(module).items() if module is not None else ():
                if value is x and key[0] != "_" and module is not None:
                    return f"{self._library(module)}.{key}"
        home = getattr(x, "__module__", "")
        if name and getattr(sys.modules.get(home), name, None) is x:
            self._import(name, f"from {home} import {name}")
            return name
        raise Unsupported(f"{x!r} cannot be named in source text")

    # -- definitions -----------------------------------------------------------------------------

    def _mark(self, definition: Definition, name: str, wish: str = "") -> str:
        reference = definition, name
        number = self._numbers.setdefault(reference, len(self._references))
        if number == len(self._references):
            self._references.append(reference)
        if wish:
            self._wishes.setdefault(reference, wish)
        if self._current:
            user = self._current[-1]
            self._users.setdefault(reference, []).append(user)
            if user is not definition:
                (user.when_called if user.calling else user.at_once).append(definition)
        return f"\0{number}\0"

    def _global(self, home: str, name: str, wish: str = "") -> str:
        """What a global name of one of our modules means."""
        module = Module.of(home)
        value = _globals(home).get(name, _globals)
        if value is _globals:
            return name  # a builtin
        statement = module.statement(name)
        if statement is None:
            origin = module.origin(name)
            if isinstance(value, types.ModuleType) or origin is None:
                return self._expression(value, wish)
            source, original = origin
            if source.startswith("unigraph"):
                return self._global(source, original, wish)
            self._import(name, f"from {source} import {original}" + (f" as {name}" if name != original else ""))
            return name
        key = home, statement.lineno
        definition = self._statements.get(key)
        if definition is None:
            definition = self._statements[key] = Definition(module.names(statement))
            mark = self._mark(definition, name, wish)
            self._current.append(definition)
            if _by_value(home, statement):
                definition.text = f"{mark} = {self._expression(value)}"
            else:
                self._rewrite(definition, module, statement)
            self._current.pop()
            self._definitions.append(definition)
        return self._mark(definition, name, wish)

    def _rewrite(
        self, definition: Definition, module: Module, node: ast.AST, inner: Iterable[str] = (), called: bool = False
    ) -> None:
        """The text of a node, its global names marked; those in ``inner`` are its own.

        ``called`` says that all of it runs only in a call of the definition.
        """
        names = Names(module, node)
        definition.local |= (names.bound - set(definition.names)) | set(inner)
        edits = list(names.edits)
        for start, stop, name, rest, deferred in names.loads:
            definition.calling = called or deferred
            if name in definition.names:
                edits.append((start, stop, ".".join([self._mark(definition, name), *rest])))
            elif name not in inner and name in _globals(module.name):
                edits.append((start, stop, self._path(module.name, name, rest)))
        definition.calling = False
        for start, stop, name in names.stores:
            if name in definition.names:
                edits.append((start, stop, self._mark(definition, name)))
        definition.text += _HEAD.sub(_one_line, _NOISE.sub("", module.text(node, edits)))

    def _path(self, home: str, name: str, rest: tuple[str, ...]) -> str:
        """A global name with the attributes read from it: those of our own modules are looked through."""
        value, done = _globals(home)[name], 0
        while isinstance(value, types.ModuleType) and value.__name__.startswith("unigraph") and done < len(rest):
            source, attribute = value.__name__, rest[done]
            value, done = getattr(value, attribute), done + 1
            home, name = source, attribute
        if done:
            return ".".join([self._global(home, name), *rest[done:]])
        return ".".join([self._global(home, name), *rest])

    def _made_function(self, function: types.FunctionType, wish: str) -> str:
        """A lambda or a closure: its factory called again, or its own text inside a new factory."""
        known = self._made.get(id(function))
        if known is not None:
            return self._mark(*known[1])
        module = Module.of(function.__globals__["__name__"])
        node, factory = find_code(module, function.__code__)
        cells = dict(zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__ or ())))
        own = function.__code__.co_name if isinstance(node, ast.FunctionDef) else "function"
        name = wish or "_".join([*self._making[-1:], own])
        definition = Definition((name,))
        mark = self._mark(definition, name, wish)
        self._made[id(function)] = function, (definition, name)
        self._current.append(definition)
        self._making.append(name)
        parameters = _remade_by(factory, node, set(cells)) if cells else None
        if parameters is not None:
            assert factory is not None
            given = [(p, self._expression(cells[p]), by_name) for p, by_name in parameters]
            arguments = [f"{p}={text}" if by_name else text for p, text, by_name in given]
            maker = self._global(module.name, factory.name)
            definition.text = f"{mark} = {maker}({', '.join(arguments)})"
        elif cells:
            self._new_factory(definition, mark, module, node, cells)
        else:
            self._plain(definition, mark, module, node)
        self._making.pop()
        self._current.pop()
        self._definitions.append(definition)
        return mark

    def _plain(self, definition: Definition, mark: str, module: Module, node: ast.AST) -> None:
        if isinstance(node, ast.Lambda):
            self._rewrite(definition, module, node.args)
            head, definition.text = definition.text, ""
            self._rewrite(definition, module, node.body, [a.arg for a in parameters(node.args)], called=True)
            definition.text = f"def {mark}({head}):\n    return {definition.text}"
            return
        assert isinstance(node, ast.FunctionDef)
        self._rewrite(definition, module, node)
        definition.text = re.sub(rf"^def {node.name}\b", f"def {mark}", definition.text, count=1)

    def _new_factory(
        self, definition: Definition, mark: str, module: Module, node: ast.AST, cells: Mapping[str, Any]
    ) -> None:
        arguments = ", ".join(map(self._expression, cells.values()))
        maker = Definition((f"_make_{definition.names[0]}",))
        made = self._mark(maker, maker.names[0])
        self._current.append(maker)
        self._rewrite(maker, module, node, cells, called=True)
        body = maker.text
        if isinstance(node, ast.Lambda):
            body = f"return {body}"
        else:
            assert isinstance(node, ast.FunctionDef)
            body = f"{body.rstrip()}\n\nreturn {node.name}"
        indented = "\n".join(f"    {line}" if line.strip() else "" for line in body.splitlines())
        maker.text = f"def {made}({', '.join(cells)}):\n{indented}"
        self._current.pop()
        self._definitions.append(maker)
        definition.text = f"{mark} = {made}({arguments})"


def _ordered(definitions: Iterable[Definition]) -> list[Definition]:
    """Each after what it needs at once, and, where they do not need each other, after what that calls."""
    order: list[Definition] = []
    done: set[Definition] = set()
    begun: set[Definition] = set()

    def place(definition: Definition) -> bool:
        if definition in done or definition in begun:
            return definition in done
        begun.add(definition)
        ready = all([place(d) for d in definition.at_once])
        begun.discard(definition)
        if ready and definition not in done:
            done.add(definition)
            order.append(definition)
            waiting.extend(d for d in definition.when_called if not place(d))
        return ready

    waiting = list(definitions)
    while waiting:
        before, round_, waiting = len(done), waiting, []
        for definition in round_:
            place(definition)
        waiting = [d for d in dict.fromkeys((*round_, *waiting)) if d not in done]
        if len(done) == before and waiting:
            raise Unsupported(f"{waiting[0].names[0]} needs itself")
    return order


def _folded(text: str) -> str:
    """A long table on one line, over several."""
    if "\n" in text or len(text) <= 120:
        return text
    return "\n".join(textwrap.wrap(text, 120, subsequent_indent="    ", break_long_words=False))


def _one_line(head: re.Match[str]) -> str:
    """Parameters on one line again, now that annotations are gone."""
    text = f"{head[1]}({' '.join(head[2].split())}):"
    return text if len(text) <= 120 else head[0]


def _globals(home: str) -> Mapping[str, Any]:
    return vars(importlib.import_module(home))


def _by_value(home: str, statement: ast.stmt) -> bool:
    """An assignment that looks into the tables or the registry, which a program does not carry."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    for node in ast.walk(statement.value):
        if isinstance(node, ast.Name):
            value = _globals(home).get(node.id)
            keys = next(iter(value), None) if isinstance(value, dict) else None
            ours = isinstance(value, types.ModuleType) and value.__name__.startswith("unigraph.ops")
            if node.id == "globals" or value is registry or ours or isinstance(value, OpDef) or isinstance(keys, OpDef):
                return True
    return False


def _remade_by(factory: ast.FunctionDef | None, node: ast.AST, cells: set[str]) -> list[tuple[str, bool]] | None:
    """Parameters (and whether by keyword) to call ``factory`` with so that it makes this closure again.

    None when it does more than define the function from its parameters.
    """
    if factory is None or factory.args.vararg or factory.args.kwarg or factory.decorator_list:
        return None
    body = [s for s in factory.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    last = body[-1]
    if not isinstance(last, ast.Return):
        return None
    direct = last.value is node and len(body) == 1
    named = isinstance(node, ast.FunctionDef) and isinstance(last.value, ast.Name) and last.value.id == node.name
    if not direct and not (named and body[:-1] == [node]):
        return None
    parameters = [(a.arg, False) for a in (*factory.args.posonlyargs, *factory.args.args)]
    parameters += [(a.arg, True) for a in factory.args.kwonlyargs]
    return parameters if {p for p, _ in parameters} == cells else None
