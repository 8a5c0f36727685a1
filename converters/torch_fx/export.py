"""From a graph to a GraphModule: an ordinary nn.Module whose code calls torch and nothing else."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx

from unigraph import dims, tree
from unigraph.errors import EngineError, InputError
from unigraph.evaluate import Program, Row
from unigraph.graph import KEY, NAMED, STATE, WEIGHT, Graph, GraphLike, Operation, Value, as_graph
from unigraph.ops.nn_norm import batch_norm
from unigraph.runtime.call import signature_of
from unigraph.runtime.torch.compat import assumptions, fake_mode, real_tensors, size_expression, symbolic_size
from unigraph.runtime.torch.dtypes import from_numpy
from unigraph.runtime.torch.dtypes import to_torch as torch_dtype
from unigraph.runtime.torch.table import PARTS, TorchTable
from unigraph.tree import DATACLASS, DICT, LEAF, NAMEDTUPLE, NONE, Tree
from unigraph.types import TensorType

from .export_control import Regions
from .recorder import Recorder

Tensor = torch.Tensor


def to_torch(graph: GraphLike) -> fx.GraphModule:
    """The graph as a ``torch.fx.GraphModule`` that needs only torch at run time.

    Weights of inexact dtype are parameters, others and states are buffers, under their names in the
    graph (so ``state_dict`` keys are those of the original); tied weights stay one tensor under all
    their names, a weight without data is on the meta device. Weights share memory with the graph (copy
    the module first to keep the graph as it is while it trains), states are copies. ``forward`` takes the
    captured signature, then the keys that randomness added (their words as uint32, int64 or int32), and
    gives the captured output structure; states are written back at its end. The module trains, compiles,
    exports and copies, except that torch has no derivative for ``while`` loops. Where torch had to decide
    something that depends on a symbolic size, a warning tells what the module takes for granted. A
    ``remat`` edge is a call of torch's checkpoint; a function with derivative rules of its own is a
    submodule around a ``torch.autograd.Function`` (a pickle of such a module needs unigraph to load).

    Raises UnsupportedError listing the operations without a torch meaning, EngineError for one that
    cannot be traced.
    """
    graph = as_graph(graph)
    return _Export(graph).module()


class _ExportTable(TorchTable):
    """The torch table, recording: constants are told to the recorder, nodes carry scopes."""

    def __init__(self, recorder: Recorder, mode: Any, fixed: Set[Value]):
        super().__init__(*PARTS)
        self.recorder, self.mode, self.fixed = recorder, mode, fixed
        self.rows.update(Regions(recorder).rows())

    def constant(self, array: Any, type_: TensorType) -> Any:
        array = np.asarray(array)
        with real_tensors():
            fake = self.mode.from_tensor(from_numpy(array), static_shapes=True)
        self.recorder.constants[id(fake)] = array
        self.recorder.alive.append(fake)
        return fake

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation.op is batch_norm and not self.fixed >= set(operation.inputs[1:3]):
            return NotImplemented  # torch's own has no derivative by its statistics
        before = self.recorder.scope
        self.recorder.scope = operation.scope or before
        try:
            return super().call(operation, row, args, kwargs)
        finally:
            self.recorder.scope = before

    def composite(
        self, operation: Operation, program: Program, args: list[Any], symbols: Mapping[str, Any]
    ) -> Iterable[Any]:
        before = self.recorder.scope
        self.recorder.scope = operation.scope or before
        try:
            return super().composite(operation, program, args, symbols)
        finally:
            self.recorder.scope = before


class _Export:
    """One conversion: placeholders, a recorded run over fake tensors, weights, outputs."""

    def __init__(self, graph: Graph):
        self.graph, self.signature = graph, signature_of(graph)
        self.mode, self.recorder = fake_mode(), Recorder()
        self.table = _ExportTable(
            self.recorder, self.mode, {v for v in graph.data if v.role != WEIGHT or self._is_statistic(v)}
        )
        self.program = Program(graph, self.table)
        self.frame, self.fx = self.recorder.frame, self.recorder.frame.graph
        self.sizes = self._symbols()
        self.names: set[str] = set()
        self.paths: dict[Value, str] = {}
        self.transient: dict[Value, str] = {}  # states outside the state_dict, and the modules that hold them
        self.fakes: dict[Value, Tensor] = {}

    def module(self) -> fx.GraphModule:
        inputs = self._inputs()
        self._weights()
        self._device(inputs)
        with self.mode, self.recorder:
            results = self.program.run(inputs, self.fakes, self.sizes)
        self._tell_assumptions()
        nodes = [self.recorder.node_of(x) for x in results]
        count = len(self.graph.outputs)
        output = self._output(self.signature.out, iter(nodes[:count]))
        for value in self.fakes:
            self.recorder.node_of(self.fakes[value])  # a weight that nothing reads stays in the module
        finish = self.fx.output(output)
        with self.fx.inserting_before(finish):
            for (state, _), node in zip(self.graph.states, nodes[count:], strict=True):
                self.fx.call_method("copy_", (self._held(state), self.fx.call_method("detach", (node,))))
        self._drop_unused()
        return fx.GraphModule(self.frame.root, self.fx, class_name=_identifier(self.graph.name or "GraphModule"))

    def _tell_assumptions(self) -> None:
        """Warn when torch decided something about a size that other sizes would decide otherwise."""
        assumed = assumptions(self.mode, list(self.sizes.items()))
        if assumed:
            warnings.warn(
                f"the torch module is right only for sizes with {', '.join(assumed)}; make those sizes static, or "
                "run the graph on the torch engine",
                stacklevel=5,
            )

    # -- what goes in ----------------------------------------------------------------------------

    def _symbols(self) -> dict[str, Any]:
        """A traced size for each symbol, all of different value and within its constraint."""
        sizes: dict[str, Any] = {}
        taken: set[int] = set()
        known = set().union(
            *(v.type.symbols() for v in self.graph.inputs), *(v.type.symbols() for v in self.graph.data)
        )
        for name in sorted(known):
            bound = self.graph.symbols.get(name) or dims.Constraint()
            hint = -(-max(bound.min, 5 + 2 * len(taken)) // bound.multiple_of) * bound.multiple_of
            while hint in taken and (bound.max is None or hint + bound.multiple_of <= bound.max):
                hint += bound.multiple_of
            hint = min(hint, bound.max) if bound.max is not None else hint
            taken.add(hint)
            sizes[name] = symbolic_size(self.mode, hint)
        return sizes

    def _fake(self, type_: TensorType) -> Tensor:
        shape = [dims.evaluate(d, self.sizes) for d in type_.shape]
        if type_.dtype.is_key:
            shape.append(type_.dtype.key_words)
        with self.mode:
            return torch.empty(shape, dtype=torch_dtype(type_.dtype))

    def _inputs(self) -> list[Tensor]:
        """Placeholders by the signature, and a fake tensor for each input of the graph."""
        values = iter(self.graph.inputs)
        fakes: list[Tensor] = []
        found: list[tuple[fx.Node, Value]] = []
        names = self.signature.arg_names
        children = [
            (names[i] if i < len(names) else f"arg{i}", child) for i, child in enumerate(self.signature.args.children)
        ]
        children += list(zip(map(str, self.signature.kwargs.keys), self.signature.kwargs.children))
        given = sum(child.leaves for _, child in children)
        keyed = self.graph.inputs[given:]
        # A None among the captured arguments may be left out if nothing follows that may not.
        optional = len(children)
        while not keyed and optional and children[optional - 1][1].kind == NONE:
            optional -= 1
        tops = [(self._placeholder(name, i >= optional), child) for i, (name, child) in enumerate(children)]
        keys = [self._placeholder(v.name) for v in keyed]
        for node, child in tops:
            found += [(leaf, next(values)) for leaf in self._leaves(node, child)]
        found += zip(keys, values)
        for node, value in found:
            fake = self._fake(value.type)
            if value.role == KEY:
                node = self.fx.call_method("to", (node, torch.uint32))
            self.recorder.bind(self.frame, node, fake)
            self._solve(node, value.type)
            fakes.append(fake)
        return fakes

    def _placeholder(self, name: str, optional: bool = False) -> fx.Node:
        options = {"default_value": None} if optional else {}
        return self.frame.placeholder(self._fresh(_identifier(name)), **options)

    def _fresh(self, name: str) -> str:
        number, result = 0, name
        while result in self.names:
            number += 1
            result = f"{name}_{number}"
        self.names.add(result)
        return result

    def _leaves(self, node: fx.Node, child: Tree) -> list[fx.Node]:
        """Nodes that take a nested argument apart."""
        if child.kind == LEAF:
            return [node]
        result: list[fx.Node] = []
        by_name = child.kind in (NAMEDTUPLE, DATACLASS)
        for i, part in enumerate(child.children):
            if part.kind == NONE:
                continue
            if by_name:
                inner = self.fx.call_function(builtins.getattr, (node, str(child.keys[i])))
            else:
                inner = self.fx.call_function(operator.getitem, (node, child.keys[i] if child.kind == DICT else i))
            result += self._leaves(inner, part)
        return result

    def _solve(self, node: fx.Node, type_: TensorType) -> None:
        """Symbols that stand in a linear expression of one input only: found from its size."""
        for axis, dim in enumerate(type_.shape):
            symbols = () if dims.is_static(dim) else tuple(dim.free_symbols)
            if len(symbols) != 1 or dim.is_Symbol or not dim.is_polynomial(symbols[0]):
                continue
            slope, offset = dim.diff(symbols[0]), dim.subs(symbols[0], 0)
            if not slope.is_Integer:
                continue
            target = size_expression(self.sizes[symbols[0].name])

            def origin(axis: int = axis, slope: int = int(slope), offset: int = int(offset)) -> fx.Node:
                size = self.fx.call_method("size", (node, axis))
                shifted = self.fx.call_function(operator.sub, (size, offset)) if offset else size
                return self.fx.call_function(operator.floordiv, (shifted, slope)) if slope != 1 else shifted

            self.frame.origins.setdefault(target, origin)

    def _device(self, inputs: Sequence[Tensor]) -> None:
        """What rows make from nothing goes where the first input, or else the first weight, is."""
        if inputs:
            self.recorder.device_from(self.frame, self.recorder.node_of(inputs[0]))
        elif self.fakes:
            self.recorder.device_from(self.frame, self.recorder.node_of(next(iter(self.fakes.values()))))

    # -- weights ---------------------------------------------------------------------------------

    def _weights(self) -> None:
        """Parameters and buffers in the module, and a fake tensor for each in the run."""
        tied: dict[Any, Tensor] = {}
        for value, array in self.graph.data.items():
            if value.role not in NAMED:
                continue
            if value.role == STATE and array is None:
                raise InputError(
                    f"state {value.name!r} holds no data: load the graph with weights=... or graph.bind(...)"
                )
            identity = _identity(array, value)
            held = tied.get(identity)
            if held is None:
                held = tied[identity] = _tensor(value, array, self._is_statistic(value))
            if value.name in self.graph.transient:
                self._hold_transient(value, held)
                continue
            path = self.paths[value] = _install(self.frame.root, value.name, held)
            for alias, name in self.graph.aliases.items():
                if name == value.name:
                    self.fx.get_attr(_install(self.frame.root, alias, held))  # read once, or copies would lose it
            fake = self.fakes[value] = self._fake(value.type)
            self.recorder.alive.append(fake)
            self.recorder.sources[id(fake)] = partial(self._read, path, value.role == STATE)

    def _hold_transient(self, value: Value, held: Tensor) -> None:
        """A state outside the state_dict: in a module of its own, which copies keep as it is."""
        holder = torch.nn.Module()
        holder.register_buffer("value", held, persistent=False)
        path = self.frame.store(_identifier(value.name), holder)
        self.transient[value] = path
        fake = self.fakes[value] = self._fake(value.type)
        self.recorder.alive.append(fake)
        self.recorder.sources[id(fake)] = lambda: self.fx.call_method("clone", (self._held(value),))

    def _held(self, state: Value) -> fx.Node:
        """The buffer of a state."""
        if state not in self.transient:
            return self.fx.get_attr(self.paths[state])
        return self.fx.call_function(builtins.getattr, (self.fx.get_attr(self.transient[state]), "value"))

    def _is_statistic(self, value: Value) -> bool:
        """True for the running statistics of a batch norm at inference, which torch does not differentiate."""
        uses = self.graph.uses[value]
        return bool(uses) and all(op.op is batch_norm and value in op.inputs[1:3] for op in uses)

    def _read(self, path: str, state: bool) -> fx.Node:
        """A state is copied: its buffer changes at the end, while a backward pass may still need it."""
        node = self.fx.get_attr(path)
        return self.fx.call_method("clone", (node,)) if state else node

    # -- what comes out --------------------------------------------------------------------------

    def _output(self, out: Tree, nodes: Any) -> Any:
        if out.kind == LEAF:
            return next(nodes)
        if out.kind == NONE:
            return None
        parts = [self._output(child, nodes) for child in out.children]
        if out.kind == DATACLASS:
            cls = tree._classes.get((out.name, out.keys))
            if cls is not None:
                return self.fx.call_function(cls, (), dict(zip(map(str, out.keys), parts)))
        shell = Tree(out.kind, tuple(Tree(LEAF) for _ in parts), out.keys, out.name)
        return tree.unflatten(shell, parts)

    def _drop_unused(self) -> None:
        """Dead nodes go; weights that nothing reads stay, or copies of the module would lose them."""
        for node in reversed(self.fx.nodes):
            if not node.users and node.op in ("call_function", "call_method", "call_module") and node.target != "copy_":
                self.fx.erase_node(node)


def _identifier(name: str) -> str:
    """``name`` as a Python identifier: nothing else from a file gets into code."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "x"
    plain = f"arg_{plain}" if plain[0].isdigit() else plain
    return f"{plain}_" if keyword.iskeyword(plain) or plain in ("self", "torch", "device", "inf", "nan") else plain


def _identity(array: Any, value: Value) -> Any:
    """Equal for weights over the same memory."""
    if array is None:
        return value
    array = np.asarray(array)
    if not array.size:
        return value
    place = array.__array_interface__["data"][0]
    return place, array.shape, array.strides, value.type.dtype.name, value.role


def _tensor(value: Value, array: Any, fixed: bool) -> Tensor:
    type_ = value.type
    if array is None:
        if not type_.is_static:
            raise EngineError(f"weight {value.name!r} has the symbolic type {type_} and no data")
        tensor = torch.empty([int(d) for d in type_.shape], dtype=torch_dtype(type_.dtype), device="meta")
    else:
        array = np.asarray(array)  # a graph never changes: calls write to a copy of a state
        tensor = from_numpy(array.copy() if value.role == STATE else array, writable=True)
    trains = not fixed and value.role == WEIGHT and type_.dtype.is_inexact and type_.dtype.bits >= 16
    return torch.nn.Parameter(tensor) if trains else tensor


_TAKEN = frozenset(dir(fx.GraphModule))


def _install(root: torch.nn.Module, name: str, tensor: Tensor) -> str:
    """Put a tensor under a dotted name; the path it got, which differs where the name cannot be one."""
    parts = [_part(p) for p in name.split(".")]
    owner = root
    for i, part in enumerate(parts[:-1]):
        inner = getattr(owner, part, None)
        if inner is None:
            inner = torch.nn.Module()
            owner.add_module(part, inner)
        if not isinstance(inner, torch.nn.Module):  # a weight has that name
            parts = [*parts[:i], "_".join(parts[i:])]
            break
        owner = inner
    last = parts[-1]
    while hasattr(owner, last):
        last += "_"
    parts[-1] = last
    if isinstance(tensor, torch.nn.Parameter):
        owner.register_parameter(last, tensor)
    else:
        owner.register_buffer(last, tensor)
    return ".".join(parts)


def _part(name: str) -> str:
    """One component of a path, without characters that could leave a string in code."""
    plain = re.sub(r"[^\w\-/:+ ]", "_", name) or "_"
    return f"{plain}_" if plain in _TAKEN else plain
