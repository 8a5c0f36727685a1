"""Reads the source of our own modules: which names a piece binds and reads, and where they stand."""

from __future__ import annotations

import ast
import functools
import importlib
import textwrap
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from unigraph.errors import Unsupported

Edit = tuple[int, int, str]
Load = tuple[int, int, str, tuple[str, ...], bool]  # span, name, attributes read from it, only when called
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Module:
    """The syntax tree of one module, with byte offsets."""

    def __init__(self, name: str):
        self.name = name
        module = importlib.import_module(name)
        self.is_package = hasattr(module, "__path__")
        self.source = Path(str(module.__file__)).read_bytes()
        self.tree = ast.parse(self.source)
        self.starts = [0]
        for line in self.source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self._statements = {n: s for s in self.tree.body for n in self.names(s)}

    @staticmethod
    @functools.cache
    def of(name: str) -> Module:
        return Module(name)

    @staticmethod
    def names(statement: ast.stmt) -> tuple[str, ...]:
        """Global names that a top-level definition or assignment binds."""
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            return (statement.name,)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        return tuple(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))

    def statement(self, name: str) -> ast.stmt | None:
        """The top-level statement that defines a name here."""
        return self._statements.get(name)

    def origin(self, name: str) -> tuple[str, str] | None:
        """Module and name that ``from module import name`` takes a name from."""
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        for node in self.tree.body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if (alias.asname or alias.name) == name:
                    assert isinstance(node, ast.ImportFrom)
                    source = node.module or ""
                    if node.level:
                        base = package.split(".")
                        base = base[: len(base) - node.level + 1]
                        source = ".".join([*base, *([source] if source else [])])
                    return source, alias.name
        return None

    def start(self, node: ast.AST) -> int:
        return self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def stop(self, node: ast.AST) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST, edits: Iterable[Edit]) -> str:
        """The source of a node after replacements, without the indentation it had."""
        if isinstance(node, ast.arguments):
            parts = [*node.posonlyargs, *node.args, *node.kwonlyargs, *node.defaults, *filter(None, node.kw_defaults)]
            parts += [a for a in (node.vararg, node.kwarg) if a is not None]
            if not parts:
                return ""
            start, stop = min(map(self.start, parts)), max(map(self.stop, parts))
            while start and self.source[start - 1 : start] in (b"*", b" ", b",", b"\n"):
                start -= 1
        else:
            start, stop = self.start(node), self.stop(node)
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.decorator_list:
                if node in self.tree.body:
                    start = self.source.rindex(b"@", 0, self.start(node.decorator_list[0]))
        line = self.source.rfind(b"\n", 0, start) + 1
        position, pieces = start, [b" " * (start - line) if not isinstance(node, (ast.arguments, ast.expr)) else b""]
        for begin, end, new in sorted(set(edits)):
            if begin < position:
                continue  # within a decorator that is left out, or a path already replaced
            pieces += [self.source[position:begin], new.encode()]
            position = end
        pieces.append(self.source[position:stop])
        if isinstance(node, (ast.arguments, ast.expr)):
            return b"".join(pieces).decode().strip()
        return textwrap.dedent(b"".join(pieces).decode())


class Names:
    """Names in a piece of syntax: global ones that it reads, ones that it binds, annotations to drop."""

    def __init__(self, module: Module, node: ast.AST):
        self.module = module
        self.loads: list[Load] = []
        self.stores: list[tuple[int, int, str]] = []
        self.edits: list[Edit] = []
        self.bound: set[str] = set()
        self._depth = 0
        self._visit(node, frozenset(), top=True)

    def _visit(self, node: ast.AST, bound: frozenset[str], top: bool = False) -> None:
        if isinstance(node, _SCOPES):
            self._function(node, bound, top)
        elif isinstance(node, ast.arguments):
            self._arguments(node, bound)
        elif isinstance(node, ast.ClassDef):
            if top:
                self._keyword_name(node, "class")
            for part in (*node.decorator_list, *node.bases, *node.keywords, *node.body):
                if not (isinstance(part, ast.AnnAssign) and part.value is None):
                    self._visit(part, bound)
        elif isinstance(node, _COMPREHENSIONS):
            own = frozenset(_stored(node))
            self.bound |= own
            for child in ast.iter_child_nodes(node):
                self._visit(child, bound | own)
        elif isinstance(node, ast.AnnAssign):
            if node.value is None:
                return
            self.edits.append((self.module.stop(node.target), self.module.stop(node.annotation), ""))
            self._visit(node.target, bound)
            self._visit(node.value, bound)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, bound)
        elif isinstance(node, ast.Name):
            self._name(node, bound, ())
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child, bound)

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, bound: frozenset[str], top: bool
    ) -> None:
        arguments = node.args
        self._arguments(arguments, bound)
        names = {a.arg for a in parameters(arguments)}
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        own = names | {n for part in body for n in _stored(part)}
        self.bound |= own
        if not isinstance(node, ast.Lambda):
            if top and node in self.module.tree.body:
                self._keyword_name(node, "def")
            # A function taken out of its factory leaves its decorators there.
            for decorator in node.decorator_list if not top or node in self.module.tree.body else ():
                self._visit(decorator, bound)
            if node.returns is not None:
                start = self.module.source.rindex(b"->", 0, self.module.start(node.returns))
                start = self.module.source.rindex(b")", 0, start) + 1
                self.edits.append((start, self.module.stop(node.returns), ""))
        self._depth += 1
        for part in body:
            self._visit(part, bound | own)
        self._depth -= 1

    def _arguments(self, arguments: ast.arguments, bound: frozenset[str]) -> None:
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip(reversed(plain), reversed(arguments.defaults)))
        defaults |= {a: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None}
        for argument in parameters(arguments):
            if argument.annotation is not None:
                stop = self.module.start(argument) + len(argument.arg.encode())
                default = defaults.get(argument)
                if default is None:
                    self.edits.append((stop, self.module.stop(argument.annotation), ""))
                else:
                    self.edits.append((stop, self.module.start(default), "="))
        for default in defaults.values():
            self._visit(default, bound)

    def _keyword_name(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, word: str) -> None:
        start = self.module.start(node) + len(word) + 1
        self.stores.append((start, start + len(node.name), node.name))

    def _attribute(self, node: ast.Attribute, bound: frozenset[str]) -> None:
        rest: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            rest.insert(0, inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            start, stop = self.module.start(node), self.module.stop(node)
            if self.module.source[start:stop].decode() == ".".join([inner.id, *rest]):
                self._name(inner, bound, tuple(rest), (start, stop))
                return
        self._visit(inner, bound)

    def _name(
        self, node: ast.Name, bound: frozenset[str], rest: tuple[str, ...], span: tuple[int, int] | None = None
    ) -> None:
        if node.id in bound:
            return
        start, stop = span or (self.module.start(node), self.module.stop(node))
        if not span and self.module.source[start:stop].decode() != node.id:
            raise Unsupported(
                f"a name in a formatted string on line {node.lineno} of {self.module.name} cannot be located"
            )
        if isinstance(node.ctx, ast.Load):
            self.loads.append((start, stop, node.id, rest, self._depth > 0))
        else:
            self.stores.append((start, stop, node.id))


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, the starred ones last."""
    extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _stored(node: ast.AST) -> Iterator[str]:
    """Names that code binds in its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((a.asname or a.name).split(".")[0] for a in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _stored(child)


def find_code(module: Module, code: types.CodeType) -> tuple[ast.AST, ast.FunctionDef | None]:
    """The definition or lambda that ``code`` was compiled from, and the top-level function around it.

    Raises Unsupported when it cannot be told apart from another.
    """
    wanted = ast.Lambda if code.co_name == "<lambda>" else ast.FunctionDef
    found = []
    for top in module.tree.body:
        for node in ast.walk(top):
            if type(node) is wanted and _compiled_from(node, code):
                outer = top if isinstance(top, ast.FunctionDef) and top is not node else None
                found.append((node, outer))
    if len(found) != 1:
        raise Unsupported(f"the source of {code.co_qualname} in {module.name} cannot be found")
    return found[0]


def _compiled_from(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.FunctionDef):
        return (
            node.name == code.co_name
            and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
        )
    assert isinstance(node, ast.Lambda)
    if node.lineno != code.co_firstlineno:
        return False
    places = list(code.co_positions())
    body = node.body
    begin, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    return any((p[0], p[2]) == begin and (p[1], p[3]) == last for p in places)
