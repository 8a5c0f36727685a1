"""The fallback: a make_fx trace of the path that the example arguments take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.func import functional_call, functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from unigraph.errors import UnigraphError

from . import compat
from .capture import _FIXED, BUFFER, CONSTANT, INPUT, PARAMETER, STATE, Captured, Source, _unread
from .dynamic import Spec
from .rewrites import rewriting
from .rowbook import find


def traced(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], spec: Spec, name: str
) -> Captured:
    """Trace one call. Parameters, buffers and tensor arguments are inputs of the trace; the rest is fixed."""
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    free: dict[int, set[int]] = {}
    for leaf, axis, *_rest in spec.named:
        free.setdefault(leaf, set()).add(axis)
    held = [*parameters.values(), *buffers.values()]
    fakes, env = compat.fake_inputs(
        [*held, *(leaves[i] for i in where)], [set() for _ in held] + [free.get(i, set()) for i in where]
    )
    out_spec: list[Any] = []

    def run(*tensors: Any) -> list[Any]:
        given = list(tensors)
        weights = dict(zip(parameters, given))
        # The program may write to its buffers: it gets copies, whose last state is an extra result.
        state = {n: t.clone() for n, t in zip(buffers, given[len(parameters) :])}
        filled = list(leaves)
        for i, t in zip(where, given[len(held) :]):
            filled[i] = t
        call_args, call_kwargs = pytree.tree_unflatten(filled, structure)
        result = functional_call(module, {**weights, **state}, call_args, call_kwargs)
        flat, tree = pytree.tree_flatten(result)
        out_spec[:] = [tree]
        return [*state.values(), *flat]

    table = compat.decompositions(lambda op: find(op) is None)
    with _packed_calls(module, fakes) as calls, rewriting():
        graph = make_fx(functionalize(run), decomposition_table=table, record_stack_traces=True)(*fakes)
    _place_packed(graph, calls)
    graph.graph.eliminate_dead_code()
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.graph.nodes if n.op == "output")
    returned = list(output.args[0])
    changed: list[str] = [
        n for n, node, given in zip(buffers, returned, placeholders[len(parameters) :]) if _differs(node, given)
    ]
    kept = [r for n, r in zip(buffers, returned) if n in changed] + returned[len(buffers) :]
    output.args = (kept,)
    _refuse_shared(changed, {**parameters, **buffers})
    saved = module.state_dict(keep_vars=True)
    held_sources = [Source(PARAMETER, n.removeprefix("inner."), t) for n, t in parameters.items()] + [
        Source(*_buffer_kind(n, n in changed, n in saved), t, n in changed and n not in saved)
        for n, t in buffers.items()
    ]
    by_leaf = {i: k for k, i in enumerate(where)}
    tree = out_spec[0]
    return Captured(
        graph,
        held_sources + [Source(INPUT) for _ in where],
        [("state", n.removeprefix("inner.")) for n in changed] + [("output", None)] * (len(kept) - len(changed)),
        _placed(structure, leaves, by_leaf),
        lambda items: pytree.tree_unflatten(items, tree),
        spec.arg_names,
        compat.ranges_of(env),
        Spec(named=[(by_leaf[leaf], *rest) for leaf, *rest in spec.named], arg_names=spec.arg_names),  # type: ignore[misc]
        name,
        unread=_unread(saved, {s.name for s in held_sources}),
    )


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


def _place_packed(graph: torch.fx.GraphModule, calls: list[str]) -> None:
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
                f"the program writes the buffer {name!r}, which shares memory with {other!r}: make them one tensor"
            )


def _buffer_kind(name: str, changed: bool, saved: bool) -> tuple[str, str]:
    """A buffer that no checkpoint holds is part of the program."""
    return STATE if changed else BUFFER if saved else CONSTANT, name.removeprefix("inner.")


def _differs(node: Any, given: Any) -> bool:
    """False when the final buffer is only the copy of what was given."""
    while node is not given and getattr(node, "target", None) in (
        torch.ops.aten.clone.default,
        torch.ops.aten.alias.default,
    ):
        node = node.args[0]
    return node is not given


def _placed(structure: Any, leaves: list[Any], by_leaf: Mapping[int, int]) -> Callable[[list[Any]], Any]:
    def place(given: list[Any]) -> Any:
        filled = [given[by_leaf[i]] if i in by_leaf else (None if x is None else _FIXED) for i, x in enumerate(leaves)]
        return pytree.tree_unflatten(filled, structure)

    return place
