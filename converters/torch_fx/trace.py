"""The way around torch.export: a make_fx trace of the path that the example arguments take.

It follows what export does not carry: gradients taken inside the program, optimizers, torch.func.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.func import functional_call, functionalize
from torch.utils import _pytree as pytree

from unigraph.errors import UnigraphError

from . import compat
from .capture import (
    _FIXED,
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    STATE,
    Captured,
    Source,
    _needs_functionalising,
    _unread,
)
from .closures import Optimizers
from .dynamic import Spec
from .rewrites import rewriting
from .rowbook import find

Wanted = Callable[[Any], bool]  # which operators torch's decompositions take apart


@dataclass
class Trace:
    """One run as an FX graph that returns the final value of all that is held, then the results."""

    graph: fx.GraphModule
    structure: Any  # of the results
    env: Any  # what torch knows of the sizes


class Tracer:
    """A program with its example arguments, to be traced once or several times.

    Parameters, buffers, optimizer states and tensor arguments are inputs of a trace; the rest is fixed.
    """

    def __init__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], spec: Spec, name: str
    ):
        self.module, self.spec, self.name = module, spec, name
        self.parameters, self.buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self.checkpoint = module.state_dict(keep_vars=True)
        self.optimizers = Optimizers(module)
        self.held = {**self.parameters, **self.buffers, **self.optimizers.states}
        self.leaves, self.structure = pytree.tree_flatten((args, dict(kwargs)))
        self.where = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

    def run(self, wanted: Wanted, watch: Callable[[Any], Any] | None = None) -> Trace:
        """One trace. ``watch`` is given the shape environment and makes a context around the program's run."""
        free: dict[int, set[int]] = {}
        for leaf, axis, *_rest in self.spec.named:
            free.setdefault(leaf, set()).add(axis)
        given = [*self.held.values(), *(self.leaves[i] for i in self.where)]
        fakes, mode = compat.fake_inputs(given, [set() for _ in self.held] + [free.get(i, set()) for i in self.where])
        structure: list[Any] = []

        def program(*tensors: Any) -> list[Any]:
            # The program may write to what is held: it gets copies, whose last state is an extra result.
            held = {n: _copy(t) for n, t in zip(self.held, tensors)}
            filled = list(self.leaves)
            for i, t in zip(self.where, tensors[len(self.held) :]):
                filled[i] = t
            args, kwargs = pytree.tree_unflatten(filled, self.structure)
            own = {n: held[n] for n in (*self.parameters, *self.buffers)}
            with self.optimizers.updating(held):
                result = functional_call(self.module, own, args, kwargs)
            flat, tree = pytree.tree_flatten(result)
            structure[:] = [tree]
            return [*{**held, **own}.values(), *flat]

        table = compat.decompositions(wanted)
        with _packed_calls(self.module, fakes) as calls, compat.transforms_undone():
            with rewriting(), watch(mode.shape_env) if watch else nullcontext():
                graph = compat.trace(program, table, fakes, mode)
            if _needs_functionalising(graph):
                with fx.traceback.preserve_node_meta():
                    graph = compat.trace(functionalize(fx.Interpreter(graph).run), table, fakes, mode)
        _place_packed(graph, calls)
        return Trace(graph, structure[0], mode.shape_env)

    def captured(self, trace: Trace, **known: Any) -> Captured:
        """A trace with all that a graph needs to know of it."""
        graph = trace.graph
        graph.graph.eliminate_dead_code()
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        output = next(n for n in graph.graph.nodes if n.op == "output")
        returned = list(output.args[0])
        changed = [n for n, node, given in zip(self.held, returned, placeholders) if _differs(node, given)]
        kept = [r for n, r in zip(self.held, returned) if n in changed] + returned[len(self.held) :]
        output.args = (kept,)
        _refuse_shared(changed, self.held)
        sources = [self._source(n, t, n in changed) for n, t in self.held.items()]
        by_leaf = {i: k for k, i in enumerate(self.where)}
        tree = trace.structure
        return Captured(
            graph,
            sources + [Source(INPUT) for _ in self.where],
            [("state", n.removeprefix("inner.")) for n in changed] + [("output", None)] * (len(kept) - len(changed)),
            _placed(self.structure, self.leaves, by_leaf),
            lambda items: pytree.tree_unflatten(items, tree),
            self.spec.arg_names,
            compat.ranges_of(trace.env),
            Spec(
                named=[(by_leaf[leaf], *rest) for leaf, *rest in self.spec.named],  # type: ignore[misc]
                arg_names=self.spec.arg_names,
            ),
            self.name,
            unread=_unread(self.checkpoint, {s.name for s in sources}),
            guards=compat.guards_in(trace.env),
            **known,
        )

    def _source(self, name: str, tensor: torch.Tensor, changed: bool) -> Source:
        transient = name in self.buffers and name not in self.checkpoint
        kind = STATE if changed else PARAMETER if name in self.parameters else CONSTANT if transient else BUFFER
        return Source(kind, name.removeprefix("inner."), tensor, transient and changed)


def traced(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], spec: Spec, name: str
) -> Captured:
    """Trace one call. Raises what the program raises, and torch's own error for a branch on values."""
    tracer = Tracer(module, args, kwargs, spec, name)

    def decompose(wanted: Wanted) -> Captured:
        return tracer.captured(tracer.run(wanted))

    return tracer.captured(tracer.run(lambda op: find(op) is None), decompose=decompose)


def _copy(t: torch.Tensor) -> torch.Tensor:
    """A copy that the program may write to, and a leaf for gradients where the original was one."""
    return t.detach().clone().requires_grad_() if t.requires_grad else t.clone()


@contextmanager
def _packed_calls(module: torch.nn.Module, fakes: list[Any]) -> Iterator[list[str]]:
    """The paths of modules over packed parameters (which a trace knows by number only), call by call."""
    calls: list[str] = []
    packed = [(n, m) for n, m in module.named_modules() if hasattr(m, "_packed_params") and hasattr(m, "weight")]
    if packed and fakes:
        fakes[0].fake_mode.cache_enabled = False  # torch cannot compare packed parameters, which would be keys
    hooks = [m.register_forward_pre_hook(partial(lambda n, *_: calls.append(n), n)) for n, m in packed]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _place_packed(graph: fx.GraphModule, calls: list[str]) -> None:
    """Give each node that reads packed parameters the path of its module."""
    nodes = [n for n in graph.graph.nodes if getattr(n.target, "namespace", "") == "quantized"]
    if len(nodes) == len(calls):
        for node, path in zip(nodes, calls):
            node.meta["nn_module_stack"] = {path: (path, torch.nn.Module)}


def _refuse_shared(changed: list[str], held: Mapping[str, torch.Tensor]) -> None:
    """The trace gives each tensor memory of its own: another view of a buffer that is written would stay behind."""
    place = {n: t.untyped_storage().data_ptr() for n, t in held.items() if not t.is_meta and t.numel()}
    for name in changed:
        other = next((n for n in place if n != name and place[n] == place.get(name)), None)
        if other is not None:
            raise UnigraphError(
                f"the program writes {name!r}, which shares memory with {other!r}: make them one tensor"
            )


_COPIES = (torch.ops.aten.clone.default, torch.ops.aten.alias.default, torch.ops.aten.detach.default)


def _differs(node: Any, given: Any) -> bool:
    """False when the final value is only the copy of what was given."""
    while node is not given and getattr(node, "target", None) in _COPIES:
        node = node.args[0]
    return node is not given


def _placed(structure: Any, leaves: list[Any], by_leaf: Mapping[int, int]) -> Callable[[list[Any]], Any]:
    def place(given: list[Any]) -> Any:
        filled = [given[by_leaf[i]] if i in by_leaf else (None if x is None else _FIXED) for i, x in enumerate(leaves)]
        return pytree.tree_unflatten(filled, structure)

    return place
