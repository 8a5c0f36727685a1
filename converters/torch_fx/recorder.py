"""Records the torch functions that a program calls on fake tensors into an fx graph.

Rows of the torch table run as they are; what they call in public (``torch.add``, ``x.permute``,
``F.softmax``) becomes a node, what they merely ask (shapes, dtypes, devices) does not. Traced sizes
in arguments become size nodes, devices the device of an input.
"""

from __future__ import annotations

import builtins
import inspect
import operator
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from unigraph.errors import EngineError
from unigraph.runtime.torch.compat import real_tensors, size_expression
from unigraph.runtime.torch.dtypes import from_numpy, is_weak

Tensor = torch.Tensor

_FACTORIES = frozenset({torch.arange, torch.full, torch.zeros, torch.ones, torch.empty, torch.eye})
# Functions that take a Python number where a tensor stands, by operand; results keep the tensor's dtype.
_BOTH = (0, 1)
_LITERALS: Mapping[Any, tuple[int, ...]] = {
    torch.add: _BOTH, torch.sub: _BOTH, torch.mul: _BOTH, torch.div: _BOTH, torch.pow: (1,), torch.fmod: (1,),
    torch.eq: (1,), torch.ne: (1,), torch.lt: (1,), torch.le: (1,), torch.gt: (1,), torch.ge: (1,),
    torch.where: (1, 2), torch.bitwise_and: (1,), torch.bitwise_or: (1,), torch.bitwise_xor: (1,),
}  # fmt: skip
_NUMBER: Mapping[str, Callable[[Any], Any]] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_SPREADS = frozenset({"expand", "reshape", "__getitem__", "permute"})
_NUMBERS = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    | {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}
)


def _recurrent(x: Tensor, start: Any, *rest: Any) -> tuple[Tensor, ...]:
    """Stand-ins for the results of torch.lstm and its kin, which take no traced sizes."""
    states = start if isinstance(start, tuple) else (start,)
    return (x.new_empty((*x.shape[:2], states[0].shape[-1])), *(torch.empty_like(h) for h in states))


_RESULTS: Mapping[Any, Callable[..., Any]] = dict.fromkeys(
    (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent
)


class Frame:
    """One graph being written: the module that owns it, and which node stands for which tensor."""

    def __init__(self, lifts: Lifts | None = None):
        self.graph, self.root = fx.Graph(), torch.nn.Module()
        self.graph.on_generate_code(lambda _: _with_public_names)
        self.nodes: dict[int, fx.Node] = {}
        self.sizes: dict[Any, fx.Node | int] = {}
        self.origins: dict[Any, Callable[[], fx.Node]] = {}
        self.numbers: dict[fx.Node, Any] = {}
        self.device: fx.Node | None = None
        # The module that holds constants. It is read as a whole: a copy of a GraphModule would make
        # buffers read one by one persistent.
        self.constants: fx.Node | None = None
        self.last: fx.Node | None = None
        self.lifts = lifts

    def placeholder(self, name: str, **options: Any) -> fx.Node:
        """A new input after those there are."""
        if self.last is None:
            node = self.graph.placeholder(name, **options)
        else:
            with self.graph.inserting_after(self.last):
                node = self.graph.placeholder(name, **options)
        self.last = node
        return node

    def store(self, name: str, module: torch.nn.Module) -> str:
        """The path of a module stored under a name like ``name``."""
        number = 0
        while hasattr(self.root, f"{name}_{number}"):
            number += 1
        self.root.add_module(f"{name}_{number}", module)
        return f"{name}_{number}"


class Lifts:
    """What sibling regions read from around them: each gets an input for each of these."""

    def __init__(self, recorder: Recorder):
        self.recorder, self.parent = recorder, recorder.frame
        self.frames: list[Frame] = []
        self.things: list[Any] = []

    def open(self, operands: Sequence[Tensor]) -> Frame:
        """A frame whose inputs stand for ``operands``, then for what was lifted so far."""
        frame = Frame(self)
        for i, x in enumerate(operands):
            self.recorder.bind(frame, frame.placeholder(f"x{i}"), x)
        if operands and frame.last is not None:
            self.recorder.device_from(frame, frame.last)
        for number, thing in enumerate(self.things):
            self._enter(frame, number, thing)
        self.frames.append(frame)
        return frame

    def lift(self, thing: Any) -> None:
        self.things.append(thing)
        for frame in self.frames:
            self._enter(frame, len(self.things) - 1, thing)

    def _enter(self, frame: Frame, number: int, thing: Any) -> None:
        node = frame.placeholder(f"outer{number}")
        if isinstance(thing, Tensor):
            self.recorder.bind(frame, node, thing)
        else:
            frame.sizes[size_expression(thing)] = node

    def arguments(self) -> list[Any]:
        """The lifted things as the surrounding graph has them."""
        assert self.recorder.frame is self.parent
        return [self.recorder.argument(thing) for thing in self.things]


class Recorder(TorchFunctionMode):
    """While active, writes every torch call into the current frame."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = Frame()
        self.scope = ""
        self.alive: list[Any] = []  # ids stay unique as long as what they name lives
        self.sources: dict[int, Callable[[], fx.Node]] = {}
        self.constants: dict[int, Any] = {}

    # -- what calls become -----------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        result = _RESULTS.get(func, func)(*args, **kwargs)
        leaves = result if isinstance(result, (tuple, list)) else (result,)
        if args and result is args[0]:  # a conversion to the dtype it has already
            return result
        made = any(isinstance(r, Tensor) for r in leaves) and not isinstance(result, torch.Size)
        if made or func is Tensor.item:
            self.record(func, args, kwargs, result)
        return result

    def record(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        frame = self.frame
        op, target, args = _call_of(func, args)
        given = self._literals(target, [self.argument(a) for a in args], args, result)
        defaults = _defaults(func)
        named = {k: self.argument(v) for k, v in kwargs.items() if v is not None and defaults.get(k, kwargs) is not v}
        if func in _FACTORIES and named.get("device") is None and frame.device is not None:
            named["device"] = frame.device
        node = frame.graph.create_node(op, target, tuple(given), named, name=self._name(target))
        node.meta["scope"] = self.scope
        self.bind(frame, node, result)
        if args and isinstance(given[0], fx.Node) and given[0] in frame.numbers and _short(target) in _SPREADS:
            frame.numbers[node] = frame.numbers[given[0]]

    def _literals(self, target: Any, given: list[Any], args: Sequence[Any], result: Any) -> list[Any]:
        """Operands that are one repeated number as that number, where the function takes one."""
        places = _LITERALS.get(target)
        if places is None or len(given) < 2:
            return given
        plain = list(given)
        tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        for i in places:
            node = given[i] if i < len(given) else None
            others = [j for j in tensors if j != i and isinstance(plain[j], fx.Node)]
            if not isinstance(node, fx.Node) or node not in self.frame.numbers or args[i].dtype not in _NUMBERS:
                continue
            # The number must not decide dtype or shape of the result.
            if any(args[j].dtype is args[i].dtype and args[j].ndim == result.ndim for j in others):
                plain[i] = self.frame.numbers[node]
        return plain

    def _name(self, target: Any) -> str | None:
        words = [w for w in re.split(r"\W+", self.scope) if w]
        if not words:
            return None
        first = max(len(words) - 2, 0)
        while first and words[first].isdigit():
            first -= 1
        name = "_".join([*words[first:], _short(target)])
        return name if not name[0].isdigit() else f"_{name}"

    def bind(self, frame: Frame, node: fx.Node, result: Any) -> None:
        """Say that ``node`` stands for ``result``; parts of a tuple get nodes of their own."""
        if isinstance(result, Tensor):
            self.alive.append(result)
            frame.nodes[id(result)] = node
            for axis, size in enumerate(result.shape):
                if isinstance(size, torch.SymInt):
                    self.origin(frame, size_expression(size), node, axis)
        elif isinstance(result, torch.SymInt):
            frame.sizes[size_expression(result)] = node
        elif isinstance(result, (tuple, list)):
            for i, part in enumerate(result):
                if isinstance(part, (Tensor, torch.SymInt)):
                    self.bind(frame, frame.graph.call_function(operator.getitem, (node, i)), part)

    def origin(self, frame: Frame, expression: Any, node: fx.Node, axis: int) -> None:
        """A symbol can be had as the size of ``node`` along ``axis``."""
        if expression.is_Symbol and expression not in frame.sizes:
            frame.origins.setdefault(expression, lambda: frame.graph.call_method("size", (node, axis)))

    # -- what arguments become -------------------------------------------------------------------

    def argument(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return self.node_of(x)
        if isinstance(x, torch.SymInt):
            return self.size(x)
        if isinstance(x, torch.device):
            return x if self.frame.device is None else self.frame.device
        if isinstance(x, slice):
            return slice(*map(self.argument, (x.start, x.stop, x.step)))
        if isinstance(x, (tuple, torch.Size)):
            return tuple(map(self.argument, x))
        if isinstance(x, list):
            return list(map(self.argument, x))
        return x

    def node_of(self, x: Tensor) -> fx.Node:
        """The node of a tensor in the current frame; constants and what lies outside come in."""
        frame = self.frame
        found = frame.nodes.get(id(x))
        if found is not None:
            return found
        if id(x) in self.constants:
            node = self._constant(x, self.constants[id(x)])
            if node is not None:
                frame.nodes[id(x)] = node
                return node
        if frame.lifts is not None:
            frame.lifts.lift(x)
            return frame.nodes[id(x)]
        source = self.sources.get(id(x))
        if source is None:
            raise EngineError("a row made a tensor in a way that cannot be written into an fx graph")
        frame.nodes[id(x)] = source()
        return frame.nodes[id(x)]

    def _constant(self, x: Tensor, array: Any) -> fx.Node | None:
        """A number as a call of torch.full; an array as a buffer, outside of the state dict."""
        frame = self.frame
        if array.ndim == 0 and (not is_weak(x.dtype) or (array.dtype.kind == "u" and array < 1 << 63)):
            value = _NUMBER[array.dtype.kind if array.dtype.kind in _NUMBER else "f"](array)
            options: dict[str, Any] = {"dtype": x.dtype} | ({} if frame.device is None else {"device": frame.device})
            node = frame.graph.call_function(torch.full, ((), value), options)
            frame.numbers[node] = value
            return node
        if frame.lifts is not None:
            return None
        if frame.constants is None:
            name = "constants"
            while hasattr(frame.root, name):
                name += "_"
            frame.root.add_module(name, torch.nn.Module())
            frame.constants = frame.graph.get_attr(name)
        holder = frame.root.get_submodule(str(frame.constants.target))
        name = f"c{sum(1 for _ in holder.buffers())}"
        with real_tensors():
            holder.register_buffer(name, from_numpy(array, writable=True), persistent=False)
        return frame.graph.call_function(builtins.getattr, (frame.constants, name))

    def size(self, x: torch.SymInt) -> fx.Node | int:
        """A traced size as an int or as nodes that compute it."""
        return self._expression(size_expression(x), x)

    def _expression(self, expression: Any, x: torch.SymInt) -> fx.Node | int:
        frame = self.frame
        if expression.is_Integer:
            return int(expression)
        found = frame.sizes.get(expression)
        if found is not None:
            return found
        if expression.is_Symbol:
            origin = frame.origins.get(expression)
            if origin is None:
                if frame.lifts is None:
                    raise EngineError(f"size {expression} cannot be found from the inputs: use it bare in one of them")
                frame.lifts.lift(x if size_expression(x) == expression else _part(x, expression))
                return frame.sizes[expression]
            frame.sizes[expression] = node = origin()
            return node
        operation, pairwise = _size_operation(expression)
        parts = [self._expression(a, x) for a in expression.args]
        if not pairwise:
            result: Any = frame.graph.call_function(operation, tuple(parts))
        else:
            result = parts[0]
            for part in parts[1:]:
                result = frame.graph.call_function(operation, (result, part))
        frame.sizes[expression] = result
        return result

    def device_from(self, frame: Frame, node: fx.Node) -> None:
        """Tensors that rows make from nothing go where ``node`` is."""
        frame.device = frame.graph.create_node("call_function", builtins.getattr, (node, "device"), name="device")

    # -- regions ---------------------------------------------------------------------------------

    @contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        """Write into another frame for a while."""
        before, self.frame = self.frame, frame
        try:
            yield
        finally:
            self.frame = before

    def finish(self, frame: Frame, outputs: Any) -> fx.GraphModule:
        """A region's frame as a module that gives ``outputs``."""
        frame.graph.output(outputs)
        frame.graph.eliminate_dead_code()
        return fx.GraphModule(frame.root, frame.graph)


def _part(x: torch.SymInt, symbol: Any) -> Any:
    raise EngineError(f"a region reads the size {symbol}, which none of its operands has: pass one that has it")


_PRIVATE = re.compile(r"\btorch\._C\._nn\.(\w+)")


def _with_public_names(body: list[str]) -> list[str]:
    """Code in which torch.nn.functional's functions go by that name: fx knows only where they are made."""

    def public(match: re.Match[str]) -> str:
        name = match[1]
        same = getattr(torch.nn.functional, name, None) is getattr(torch._C._nn, name)
        return f"torch.nn.functional.{name}" if same else match[0]

    return [_PRIVATE.sub(public, line) for line in body]


def _short(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", "value")


@cache
def _defaults(func: Any) -> Mapping[str, Any]:
    """What torch's Python wrappers fill in by themselves, and code need not say."""
    if getattr(func, "__module__", "") != torch.nn.functional.__name__ or not isinstance(func, types.FunctionType):
        return {}
    return {name: p.default for name, p in inspect.signature(func).parameters.items() if p.default is not p.empty}


_REFLECTED = re.compile(r"__r(\w+)__")


def _call_of(func: Any, args: Sequence[Any]) -> tuple[str, Any, Sequence[Any]]:
    """How fx writes a call: node kind, target and arguments."""
    name = getattr(func, "__name__", "")
    if name == "__get__":  # a property such as x.mT
        return "call_function", builtins.getattr, [args[0], func.__self__.__name__]
    method = isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType))
    if not method and getattr(func, "__module__", "") != "torch._tensor":
        return "call_function", func, args
    if not name.startswith("__"):
        return "call_method", name, args
    plain = name.strip("_")
    if name == "__getitem__":
        return "call_function", operator.getitem, args
    reflected = _REFLECTED.fullmatch(name)
    if reflected and hasattr(operator, reflected[1]) and not hasattr(operator, plain):
        return "call_function", getattr(operator, reflected[1]), [args[1], args[0]]
    found = getattr(operator, name, None)
    return ("call_function", found, args) if found is not None else ("call_method", name, args)


def _size_operation(expression: Any) -> tuple[Callable[..., Any], bool]:
    """The function behind a node of a size expression, and whether it combines pairwise."""
    found = _SIZE_OPERATIONS.get(type(expression).__name__)
    if found is None:
        raise EngineError(f"size {expression} uses {type(expression).__name__}, which has no torch function")
    return found


_SIZE_OPERATIONS: Mapping[str, tuple[Callable[..., Any], bool]] = {
    "Add": (operator.add, True),
    "Mul": (operator.mul, True),
    "Pow": (operator.pow, False),
    "FloorDiv": (operator.floordiv, False),
    "CleanDiv": (operator.floordiv, False),
    "Mod": (operator.mod, False),
    "PythonMod": (operator.mod, False),
    "Max": (torch.sym_max, True),
    "Min": (torch.sym_min, True),
}
