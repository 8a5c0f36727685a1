"""Programs over torch: the exported module as a class of its own, line by line."""

from __future__ import annotations

import keyword
import math
import re
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx

from unigraph.converters.torch_fx.export import to_torch
from unigraph.errors import Gaps
from unigraph.graph import Graph
from unigraph.runtime.torch.custom import Derived
from unigraph.runtime.torch.dtypes import to_numpy
from unigraph.tree import DATACLASS, DICT, NAMEDTUPLE, TUPLE, Tree

from .bundle import Bundle
from .literals import INLINE
from .pieces import call, harmless, identifier, quoted

_LOAD = '''
def load_weights(path=WEIGHTS):
    """The tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = torch.frombuffer(bytearray(file.read() or b" "), dtype=torch.uint8)
    header.pop("__metadata__", None)
    weights = {{}}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        weights[name] = data[begin:end].clone().view(DTYPES[item["dtype"]]).reshape(item["shape"])
    return weights


def load(path=WEIGHTS):
    """The module with its weights."""
    module, weights = {name}(), load_weights(path)
{constants}    module.load_state_dict(weights)
    return module
'''


def write(graph: Graph, file: str) -> tuple[str, dict[str, Any]]:
    """The text of a standalone torch program, and the arrays of its weights file called ``file``.

    Raises UnsupportedError for what the generated code cannot name.
    """
    if graph.signature is not None:
        graph = graph.replace(signature=replace(graph.signature, out=_plain(graph.signature.out)))
    module = to_torch(graph)
    writer = _Writer()
    name = writer.add(module, identifier(graph.name or "Program"))
    writer.gaps.raise_if_any()
    state = module.state_dict()
    arrays: dict[str, Any] = {n: None if t.is_meta else to_numpy(t) for n, t in state.items()}
    constants = [n for n in writer.stored if n not in arrays]
    arrays |= {n: to_numpy(module.get_buffer(n)) for n in constants}
    usage = "load()" if arrays else f"{name}()"
    where = f"; weights are read from {harmless(file)}" if arrays else ""
    text = [
        f'"""{harmless(graph.name) or "A program"}, written by unigraph for PyTorch; it needs nothing of unigraph.',
        "",
    ]
    text += [f"``{usage}`` gives the module{where}.", '"""', ""]
    parts = [*writer.classes]
    if arrays:
        parts.append(_loading(name, constants))
        text += ["import json", "from pathlib import Path", ""]
    if writer.derived:
        writer.helpers.name_all(writer.names)
        parts = [*map(writer.helpers.render, parts), writer.helpers.text()]
    body = "\n\n\n".join(parts)
    body = re.sub(r"torch\._C\._nn\.(\w+)", _public, body).replace("torch.nn.functional.", "F.")
    imports = [line for word, line in _IMPORTS if re.search(rf"(?<![\w.\"]){word}", body)]
    head = [f"WEIGHTS = Path(__file__).with_name({quoted(file)})", _dtypes(arrays), ""] if arrays else []
    return "\n".join([*text, *imports, *writer.imports, "", *head, "", body, ""]), arrays


_IMPORTS = (
    (r"math\.", "import math"),
    (r"inf\b", "from math import inf"),
    (r"nan\b", "from math import nan"),
    (r"torch\.", "import torch"),
    (r"device\(", "from torch import device"),
    (r"F\.", "from torch.nn import functional as F"),
)
_KNOWN = {"inf", "nan", "NoneType", "torch", "device", "getattr", "fx_pytree", "pytree", "math"}


class _Writer:
    """Classes of a module and of the modules inside it."""

    def __init__(self) -> None:
        self.classes: list[str] = []
        self.imports: list[str] = []
        self.stored: list[str] = []  # paths of constants that the weights file holds
        self.gaps = Gaps("conversion to torch source")
        self.helpers, self.derived = Bundle(), ""  # the class of functions with rules of their own
        self.names: set[str] = {"load", "load_weights", "torch", "F", *keyword.kwlist}

    def add(self, module: fx.GraphModule, wish: str, prefix: str = "") -> str:
        """Write the class of ``module``; inner classes follow it. Returns its name."""
        name, number = wish, 1
        while name in self.names:
            number += 1
            name = f"{wish}{number}"
        self.names.add(name)
        place = len(self.classes)
        self.classes.append("")
        made = list(self._members(module, prefix))
        lines = [f"class {name}(torch.nn.Module):"]
        if made:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [f"        {line}" for line in made]
            lines.append("")
        lines += [f"    {line}".rstrip() for line in self._forward(module)]
        self.classes[place] = "\n".join(lines)
        return name

    def _members(self, module: fx.GraphModule, prefix: str) -> Iterator[str]:
        seen: dict[int, str] = {}
        inside: list[str] = []  # paths within modules that have a class of their own
        for path, inner in module.named_modules():
            if any(path == p or path.startswith(f"{p}.") for p in inside):
                continue
            owner = _reach(path)
            if isinstance(inner, fx.GraphModule) and inner is not module:
                inside.append(path)
                yield _attach(path, self._made(inner, path, prefix))
                continue
            if isinstance(inner, Derived):
                inside.append(path)
                parts = [(n, m) for n, m in inner.named_children() if isinstance(m, fx.GraphModule)]
                given = [self._made(m, f"{path}.{n}", prefix) for n, m in parts]
                counts = {"operands": inner.operands, "results": inner.results, "constants": inner.constants}
                given += [f"{k}={v}" for k, v in counts.items() if v or k != "constants"]
                self.derived = self.derived or self.helpers.add(Derived)
                lines = call(self.derived, given)
                yield from _attach(path, "\n".join(lines)).splitlines()
                continue
            if path:
                yield _attach(path, "torch.nn.Module()")
            for name, parameter in inner.named_parameters(recurse=False, remove_duplicate=False):
                full = f"{path}.{name}" if path else name
                twin = seen.setdefault(id(parameter), full)
                made = f"torch.nn.Parameter({_empty(parameter)})"
                if twin != full:
                    made = f'self.get_parameter("{twin}")'
                yield f'{owner}.register_parameter("{name}", {made})'
            for name, buffer in inner.named_buffers(recurse=False, remove_duplicate=False):
                constant = name in inner._non_persistent_buffers_set
                text = _values(buffer) if constant else None
                full = f"{prefix}{path}.{name}" if path else f"{prefix}{name}"
                twin = seen.setdefault(id(buffer), full.removeprefix(prefix))
                if twin != full.removeprefix(prefix):
                    text = f'self.get_buffer("{twin}")'
                elif constant and text is None:
                    self.stored.append(full)
                end = ", persistent=False" if constant else ""
                yield f'{owner}.register_buffer("{name}", {text or _empty(buffer)}{end})'

    def _made(self, module: fx.GraphModule, path: str, prefix: str) -> str:
        """Text that makes a module with a class of its own."""
        words = [w for w in re.split(r"\W|_", path) if w]
        wish = identifier("".join(w[:1].upper() + w[1:] for w in words))
        return f"{self.add(module, wish, f'{prefix}{path}.')}()"

    def _forward(self, module: fx.GraphModule) -> Iterator[str]:
        code = module.graph.python_code("self")
        for name, thing in code.globals.items():
            used = re.search(rf"(?<![\w.]){re.escape(name)}\b", code.src)
            if name not in _KNOWN and used:
                if isinstance(thing, types.ModuleType) and not thing.__name__.startswith("unigraph"):
                    line = f"import {thing.__name__}" + (f" as {name}" if name != thing.__name__ else "")
                    self.imports += [line] if line not in self.imports else []
                else:
                    self.gaps.add(name, f"the module calls {thing!r}, which source text cannot name")
        order = {n: i for i, n in enumerate(module.graph.nodes)}
        scopes: dict[str, str] = {}
        for node in reversed(module.graph.nodes):  # a weight is read where it is used
            first = min(node.users, key=order.__getitem__, default=None)
            scopes[node.name] = node.meta.get("scope") or (
                scopes[first.name] if first and node.op == "get_attr" else ""
            )
        # A graph module reads even what nothing uses, to keep it as a member; here it is one anyway.
        unread = {n.name for n in module.graph.nodes if n.op == "get_attr" and not n.users}
        scope, begins = "", True
        for line in code.src.strip("\n").splitlines():
            # The early release of each value would hide what is computed.
            line = re.sub(r";  (?:\w+ = )+None$", "", line).rstrip()
            line = re.sub(r"([(\[] ?|, )(\w+) = ", r"\1\2=", line)
            found = re.match(r"    (\w+)(?: : [^=]+)? = ", line)
            if found and found[1] in unread:
                continue
            now = scopes.get(found[1], "") if found else ""
            if now and now != scope:
                if not begins:
                    yield ""
                yield f"    # {harmless(now)}"
                scope = now
            if line:
                begins = line.startswith("def ")
                yield line


def _plain(tree: Tree) -> Tree:
    """Named structures of the output as tuples and dicts: the text knows no classes."""
    kind = {NAMEDTUPLE: TUPLE, DATACLASS: DICT}.get(tree.kind, tree.kind)
    children = tuple(map(_plain, tree.children))
    return Tree(kind, children, tree.keys if kind == DICT else ()) if kind != tree.kind or children else tree


def _reach(path: str) -> str:
    if not path:
        return "self"
    return f"self.{path}" if all(p.isidentifier() for p in path.split(".")) else f'self.get_submodule("{path}")'


def _attach(path: str, made: str) -> str:
    parent, _, name = path.rpartition(".")
    if name.isidentifier():
        return f"{_reach(parent)}.{name} = {made}"
    return f'{_reach(parent)}.add_module("{name}", {made})'


def _empty(tensor: torch.Tensor) -> str:
    kind = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    return f"torch.empty({tuple(tensor.shape) if tensor.ndim != 1 else f'({tensor.shape[0]},)'}{kind})"


def _values(tensor: torch.Tensor) -> str | None:
    """A small constant as text that gives the same bits; None when it is not small or not exact."""
    if tensor.numel() > INLINE or not tensor.numel() or tensor.is_complex() or tensor.dtype.itemsize < 2:
        return None
    values = tensor.tolist()
    flat = [values] if tensor.ndim == 0 else tensor.reshape(-1).tolist()
    if any(isinstance(v, float) and not math.isfinite(v) for v in flat):
        return None
    return f"torch.tensor({values}, dtype={tensor.dtype})"


def _public(match: re.Match[str]) -> str:
    """torch's public name of a function where it is the very same."""
    name = match[1]
    same = getattr(torch.nn.functional, name, None) is getattr(torch._C._nn, name, match)
    return f"F.{name}" if same else match[0]


def _dtypes(arrays: dict[str, Any]) -> str:
    """The table from names in the file to torch dtypes."""
    from unigraph.dtypes import dtype
    from unigraph.runtime.torch.dtypes import TO_TORCH
    from unigraph.safetensors import NAME_OF

    kinds = sorted({dtype(np.asarray(a).dtype) for a in arrays.values() if a is not None}, key=lambda d: d.name)
    lines = call("DTYPES = dict", [f"{NAME_OF[d]}={TO_TORCH[d]}" for d in kinds])
    return "\n".join(lines)


def _loading(name: str, constants: list[str]) -> str:
    lines = [f'    module.get_buffer("{c}").copy_(weights.pop("{c}"))\n' for c in constants]
    return _LOAD.format(name=name, constants="".join(lines)).strip("\n")
