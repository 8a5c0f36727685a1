"""Walks the nodes of a captured FX graph and calls the lowering row of each.

Sizes are never operations: a node that makes a SymInt is read off torch's own symbolic shapes.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import fx

from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.errors import Gaps, TypeCheckError, UnigraphError, Unsupported
from unigraph.graph import CONSTANT, Graph, Value
from unigraph.tree import Signature
from unigraph.types import TensorType, same_shape

from .helpers import Number
from .rowbook import find
from .sizes import SYMBOLIC, Sizes
from .tensors import array_of, dtype_of, identity

MAX_CONSTANT = 256  # elements; a larger lifted tensor becomes a named weight
# Arguments that say where or how a tensor lies in memory: nothing of it is in a graph.
_PLACEMENT = frozenset(
    ("device", "layout", "pin_memory", "memory_format", "generator", "non_blocking", "requires_grad")
)
# Operators whose only effect is a check at run time, or a mark in a profile.
_CHECKS = ("_assert", "sym_constrain", "_assert_tensor_metadata", "sym_storage_offset", "profiler::_record_function")
_TORCH = os.path.dirname(torch.__file__)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


class TorchBuilder(GraphBuilder):
    """A builder that also tells a row what torch inferred for the results (``out``) and hands out keys."""

    def __init__(self, name: str = "", sizes: Sizes | None = None):
        super().__init__(name)
        self.sizes = sizes or Sizes()
        self.out: tuple[TensorType | None, ...] = ()
        self.node: fx.Node | None = None  # the node being lowered, for rows that need its memory layout
        self.in_region = False
        self._key: Value | None = None
        self.drawn = False
        self._draws = count()  # one for the program and all its regions
        self._fresh = 0

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape torch gave the first result."""
        assert self.out and self.out[0] is not None
        return self.out[0].shape

    @property
    def dtype(self) -> Any:
        """The dtype torch gave the first result."""
        assert self.out and self.out[0] is not None
        return self.out[0].dtype

    def draw(self) -> Value:
        """A key for one random operator: the key input folded with a running number."""
        key = self.source_key()
        self.drawn = True
        return self.rng_fold_in(key, self.constant(next(self._draws), "u32"))

    def source_key(self) -> Value:
        """The key that all draws come from. Raises Unsupported in a region that is lent none."""
        if self._key is None:
            if self.in_region:
                raise Unsupported("a random operator inside a loop", "draw before it and pass the numbers in")
            name = "key"
            while self.is_taken(name):
                name += "_"
            self._key = self.key(name)
        return self._key

    def within(self, name: str = "") -> TorchBuilder:
        """A builder of a region of this program."""
        inner = TorchBuilder(name, self.sizes)
        inner.in_region, inner._draws = True, self._draws
        inner.scope, inner.source = self.scope, self.source
        return inner

    def lend_key(self) -> None:
        """Give a region a key as its last input, to draw from."""
        self._key = self.key("key")

    def fresh(self, stem: str) -> str:
        """A new name: of a size that torch does not show, or of a value that stands in for a missing one."""
        self._fresh += 1
        return f"{stem}{self._fresh}"


def scope_of(node: fx.Node) -> str:
    """The path of the module that the node belongs to."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(next(reversed(stack.values()))[0])
    path = path.replace("L['self']", "").replace("L__self__", "").replace("._modules", "")
    path = re.sub(r"\['([^']*)'\]", r".\1", path).replace("slf.", "")
    return path.strip(".").removeprefix("inner.") if path.strip(".") != "inner" else ""


def source_of(node: fx.Node) -> str:
    """``file.py:12`` of the innermost Python frame that torch remembered and that is not torch's own."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return ""
    frames = _FRAME.findall(trace)
    frames = [f for f in frames if not f[0].startswith(_TORCH)] or frames
    return f"{os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""


def target_name(target: Any) -> str:
    """``aten::add.Tensor`` or the plain name of a function."""
    if isinstance(target, torch._ops.OpOverload):
        return target.name()
    if isinstance(target, torch._ops.OperatorBase):
        return str(target)
    return getattr(target, "__name__", str(target))


class Walker:
    """Lowers one graph module into a builder; regions and inlined sub-modules are walked recursively."""

    def __init__(self, b: TorchBuilder, gaps: Gaps, failed: set[Any]):
        self.b, self.gaps, self.failed = b, gaps, failed
        self._tensors: dict[Any, Value] = {}

    # -- tensors held by the program ------------------------------------------------------------------

    def weight(self, name: str, tensor: torch.Tensor, role: str, transient: bool = False) -> Value:
        """A parameter, buffer or constant tensor; tied ones are one value, which keeps every name."""
        # What no checkpoint holds is never the same value as what one does: it has no name to bind.
        key = role, identity(tensor)
        found = self._tensors.get(key)
        if found is not None:
            if found.role != CONSTANT and name and not self.b.is_taken(name):
                self.b.alias(name, found)
            return found
        type_ = TensorType(dtype_of(tensor.dtype), self.b.sizes.shape(tensor.shape))
        array = array_of(tensor)
        if role == "constant" and array is not None and array.size <= MAX_CONSTANT:
            value = self.b.constant(array.copy())
        elif role == "state":
            value = self.b.state(name, array, type_, transient=transient)
        else:
            value = (self.b.weight if role == "weight" else self.b.buffer)(name, array, type_)
        self._tensors[key] = value
        return value

    def _attribute(self, module: torch.nn.Module, name: str) -> Any:
        found: Any = module
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.nn.Module) or not isinstance(found, torch.Tensor):
            return found
        return self.weight(name, found, "weight" if isinstance(found, torch.nn.Parameter) else "constant")

    def also_called(self, name: str, tensor: torch.Tensor, role: str) -> None:
        """A name in the state_dict that the program does not read: a further name of what it does, or a weight."""
        for known in ("state", role):
            held = self._tensors.get((known, identity(tensor)))
            if held is not None and held.role != CONSTANT:
                self.b.alias(name, held)
                return
        self.weight(name, tensor, role)

    # -- the walk -------------------------------------------------------------------------------------

    def walk(self, module: fx.GraphModule, env: dict[fx.Node, Any]) -> Any:
        """Lower all nodes; ``env`` holds the placeholders. Returns what the output node returns."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                if node not in env:
                    raise UnigraphError(f"placeholder {node.name} was given no value")
            elif node.op == "output":
                return self._resolve(node.args[0], env)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, str(node.target))
            elif node.op == "call_function":
                self._call(node, env)
            else:
                self._gap(node, node.target, f"a {node.op} node", "pass example arguments so that it can be traced")
                env[node] = None
        raise UnigraphError("the captured graph has no output")

    def _gap(self, node: fx.Node, target: Any, reason: str, hint: str = "") -> None:
        scope, source = scope_of(node), source_of(node)
        where = f"{scope} ({source})" if scope and source else scope or source
        # A decomposition is reported under the operator that the program called.
        called = node.meta.get("original_aten") if getattr(target, "namespace", "") == "prims" else None
        self.gaps.add(target_name(called or target), reason, where, hint)
        self.failed.add(target)

    def _call(self, node: fx.Node, env: dict[fx.Node, Any]) -> None:
        expected = node.meta.get("val")
        if isinstance(expected, SYMBOLIC) and not _reads_tensor(node, expected):
            env[node] = expected
            return
        if any(env.get(n) is _LOST for n in node.all_input_nodes):
            env[node] = self._stand_in(expected)  # the gap that it follows from has been told
            return
        target: Any = node.target
        name = target_name(target)
        if target is operator.getitem:
            source = env[node.args[0]]  # type: ignore[index]
            env[node] = None if source is None else source[node.args[1]]
            return
        if any(c in name for c in _CHECKS):
            env[node] = None
            return
        if getattr(target, "__module__", "") in ("_operator", "math"):
            args = self._resolve(node.args, env)
            if not any(isinstance(a, (Value, Number)) for a in args):
                env[node] = target(*args)
                return
        row = find(target)
        b = self.b
        scope = scope_of(node)
        b.scope, b.source = scope or b.scope, source_of(node) or b.source
        try:
            b.out, b.node = self._types(expected), node
            args = self._resolve(node.args, env)
            kwargs = {k: self._resolve(v, env) for k, v in node.kwargs.items() if k not in _PLACEMENT}
            if row is None:
                return self._missing(node, env, expected)
            if getattr(row, "walks", False):
                env[node] = row(self, *args, **kwargs)
            else:
                env[node] = row(b, *args, **kwargs)
            if isinstance(expected, SYMBOLIC) and isinstance(env[node], Value):
                env[node] = self._number(env[node], expected)
            self._check(node, env[node])
        except Unsupported as error:
            self._gap(node, target, error.reason, error.hint)
            env[node] = self._stand_in(expected)
        except (TypeCheckError, TypeError, ValueError, AttributeError, KeyError, IndexError) as error:
            if os.environ.get("UNIGRAPH_DEBUG"):
                raise
            self._gap(node, target, f"its row failed: {type(error).__name__}: {str(error)[:300]}", _REPORT)
            env[node] = self._stand_in(expected)

    def _number(self, value: Value, expected: Any) -> Number:
        """A tensor's element read as a Python number: expressions of its symbol are computed from the value."""
        expression = expected.node.expr
        for symbol in getattr(expression, "free_symbols", ()):
            self.b.sizes.values[symbol.name] = value
        kind = torch.bool if isinstance(expected, torch.SymBool) else torch.int64
        return Number(value, torch.get_default_dtype() if isinstance(expected, torch.SymFloat) else kind)

    def _missing(self, node: fx.Node, env: dict[fx.Node, Any], expected: Any) -> None:
        library = getattr(node.target, "namespace", "aten")
        hint = "" if library in ("aten", "prims", "prim") else f'define it with @unigraph.lower_torch("{library}::...")'
        self._gap(node, node.target, "no lowering row", hint)
        env[node] = self._stand_in(expected)

    def _stand_in(self, expected: Any) -> Any:
        """Values of the right types, so that one pass over the program finds every gap."""
        try:
            types = self._types(expected)
        except Unsupported:
            return _LOST
        values = [t and self._placeholder(t) for t in types]
        return values[0] if isinstance(expected, torch.Tensor) else values

    def _placeholder(self, t: TensorType) -> Value:
        return self.b.weight(self.b.fresh("unsupported."), None, t)

    def _types(self, expected: Any) -> tuple[TensorType | None, ...]:
        items = expected if isinstance(expected, (tuple, list)) else (expected,)
        sizes = self.b.sizes
        return tuple(
            TensorType(dtype_of(t.dtype), sizes.shape(t.shape)) if isinstance(t, torch.Tensor) else None for t in items
        )

    def _check(self, node: fx.Node, result: Any) -> None:
        """Hold the row's result against the type torch inferred: never a silent difference."""
        results = result if isinstance(result, (tuple, list)) else (result,)
        for got, wanted in zip(results, self.b.out):
            if wanted is None or not isinstance(got, Value):
                continue
            if got.type.dtype is not wanted.dtype or not same_shape(got.type.shape, wanted.shape):
                raise Unsupported(f"its row gave {got.type} where torch has {wanted}", _REPORT)

    def _resolve(self, x: Any, env: Mapping[fx.Node, Any]) -> Any:
        if isinstance(x, fx.Node):
            return self._argument(env[x])
        if isinstance(x, (list, tuple)):
            return [self._resolve(i, env) for i in x]
        if isinstance(x, slice):
            return slice(*(self._resolve(i, env) for i in (x.start, x.stop, x.step)))
        if isinstance(x, dict):
            return {k: self._resolve(v, env) for k, v in x.items()}
        return self._argument(x)

    def _argument(self, x: Any) -> Any:
        if isinstance(x, torch.SymInt):
            try:
                return self.b.sizes.dim(x)
            except Unsupported:
                return Number(self.b.sizes.value(self.b, x, "i64"), torch.int64)
        if isinstance(x, torch.SymFloat):
            return Number(self.b.sizes.value(self.b, x, "f64"), torch.get_default_dtype())
        if isinstance(x, torch.dtype):
            return dtype_of(x)
        if isinstance(x, (torch.device, torch.layout, torch.memory_format)):
            return None
        return x

    # -- sub-programs ---------------------------------------------------------------------------------

    def inline(self, module: fx.GraphModule, args: Sequence[Any]) -> Any:
        """Lower a sub-module in place."""
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        return self.walk(module, dict(zip(placeholders, args, strict=True)))

    def region(self, module: fx.GraphModule, types: Sequence[TensorType], name: str = "") -> Graph:
        """A closed region from a sub-module whose placeholders are tensors of these types."""
        return self._region(self.b.within(name), module, types)

    def keyed_regions(
        self, modules: Sequence[fx.GraphModule], operands: Sequence[Value]
    ) -> tuple[list[Value], list[Graph]]:
        """Regions over the same operands, each walked once a call; with a key among them when one draws from it."""
        types, regions, drawn = [v.type for v in operands], [], False
        for module in modules:
            inner = self.b.within()
            regions.append(self._region(inner, module, types, keyed=True))
            drawn = drawn or inner.drawn
        if drawn:
            return [*operands, self.b.source_key()], regions
        return list(operands), [r.replace(inputs=r.inputs[:-1], signature=_flat_signature(r)) for r in regions]

    def _region(
        self, inner: TorchBuilder, module: fx.GraphModule, types: Sequence[TensorType], keyed: bool = False
    ) -> Graph:
        values = [inner.input(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)]
        if keyed:
            inner.lend_key()
        with self.b.sizes.known({}):
            result = Walker(inner, self.gaps, self.failed).inline(module, values)
            items = result if isinstance(result, (list, tuple)) else (result,)
            return inner.build(tuple(_leaf(i) for i in items))


def _flat_signature(region: Graph) -> Signature:
    """The signature of a region without its last input."""
    assert region.signature is not None
    args = region.signature.args
    children, names = args.children[:-1], region.signature.arg_names[:-1]
    return replace(region.signature, args=replace(args, children=children), arg_names=names)


_LOST = object()  # a result of which not even the type can be said, since an operation before it is a gap
_REPORT = "please report this as a fault of unigraph"


def _leaf(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported(f"a branch or loop body that returns {type(x).__name__}", "return tensors only")
    return x


def _reads_tensor(node: fx.Node, expected: Any) -> bool:
    """True for item() and its like: a number read from a tensor's values."""
    return any(s in str(node.target) for s in ("_local_scalar_dense", "item.default"))


def is_unbacked(dim: Any) -> bool:
    return dims.is_static(dim) is False and any(s.startswith("u") for s in dims.symbols_of(dim))
