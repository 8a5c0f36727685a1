"""torch program -> graph: export it (or trace it where export cannot go), then walk the nodes.

What comes in: a module, a function of tensors, an FX GraphModule, an ExportedProgram or a ``.pt2`` file.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from unigraph import dims
from unigraph.errors import Gaps, InputError, UnigraphError, Unsupported
from unigraph.graph import Graph, Value
from unigraph.tree import Signature, flatten

from . import compat, load_rows
from .dynamic import Spec
from .meta import all_on_meta, with_data
from .rowbook import find
from .sizes import SYMBOLIC, Sizes, constraint
from .tensors import dtype_of, identity
from .walk import TorchBuilder, Walker

INPUT, PARAMETER, BUFFER, STATE, CONSTANT, FIXED = "input", "weight", "buffer", "state", "constant", "fixed"
_TASK = "from_torch"
_KINDS = {InputKind.PARAMETER: PARAMETER, InputKind.BUFFER: BUFFER, InputKind.CONSTANT_TENSOR: CONSTANT}


@dataclass(frozen=True)
class Source:
    """What a placeholder of the captured graph stands for."""

    kind: str
    name: str = ""
    tensor: torch.Tensor | None = None
    transient: bool = False  # in no checkpoint


@dataclass
class Captured:
    """A flat FX program with all that is needed to build a graph from it."""

    module: fx.GraphModule
    sources: list[Source]
    results: list[tuple[str, Any]]  # ("output", None), ("state", its name) or ("fixed", its value), as returned
    in_structure: Callable[[list[Any]], Any]  # leaves -> (args, kwargs)
    out_structure: Callable[[list[Any]], Any]
    arg_names: tuple[str, ...]
    ranges: Mapping[Any, tuple[Any, Any]]
    spec: Spec
    name: str
    unread: tuple[Source, ...] = ()  # what else the state_dict holds: tied names, tensors that nothing reads
    decompose: Callable[[Callable[[Any], bool]], Captured] | None = None
    guards: tuple[Any, ...] = ()
    questions: tuple[Any, ...] = ()  # conditions on values that branches of Python asked for


def from_torch(
    program: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: Any = None,
    branches: str = "refuse",
    max_paths: int = 64,
) -> Graph:
    """Capture a torch program as a graph.

    ``program`` is an ``nn.Module``, a function of tensors, an ``fx.GraphModule``, an
    ``ExportedProgram``, a TorchScript module, or the path of a ``.pt2`` or TorchScript file
    (exported programs and traced GraphModules need no arguments). A function's modules and optimizers,
    those of its enclosing scopes that it names, belong to the program: a training step that calls
    ``loss.backward()`` and ``optimizer.step()`` is captured with its parameters and the optimizer's
    tensors as states.

    ``args`` and ``kwargs`` are example inputs: nested structures of tensors. Their shapes hold for
    the graph except for axes named in ``dynamic``: ``{"x": ("batch", None)}`` by parameter name, or a
    sequence by position; an axis is None or an int (fixed), a name, or one of torch's own
    (``Dim("n")``, ``Dim.AUTO``, ``Dim.DYNAMIC``). Axes with one name have one size. Numbers and
    strings among the arguments are fixed at their values.

    Parameters and buffers keep their state_dict names and share memory with the module; buffers that
    the program updates become states; random operators draw from an added input ``key``.

    A Python branch on the values of tensors (``if x.sum() > 0``) is refused, or explored with
    ``branches="explore"``: the program then runs once for each combination of outcomes, at most
    ``max_paths`` times, and the runs are joined by ``cond`` edges. All outcomes must return one structure
    of tensors of one type each. Where the random numbers of torch decide, the key does.

    Raises UnsupportedError listing every operator that cannot be carried; UnigraphError for a branch
    on tensor values that is not or cannot be explored (more outcomes, results of different types, runs
    that differ though their answers do not) and for a program that changes its own inputs; InputError
    for arguments that do not fit.
    """
    if branches not in ("refuse", "explore"):
        raise InputError(f'branches is "refuse" or "explore", not {branches!r}')
    if max_paths < 1:
        raise InputError(f"max_paths is at least 1, not {max_paths}")
    from .programs import captured

    load_rows()
    compat.register_caches()
    compat.complete_fakes()
    args, kwargs = tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(kwargs or {})
    with compat.numbers_known(program), all_on_meta(program) as real:
        found = with_data(captured(program, args, kwargs, dynamic, branches, max_paths), real)
    return _lower(found)


# -- exported programs -------------------------------------------------------------------------------


def first_line(error: Exception) -> str:
    """What an error says, in short."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _from_exported(ep: ExportedProgram, spec: Spec, name: str) -> Captured:
    """Read an ExportedProgram; functionalise and decompose it only where that is needed."""

    def decompose(wanted: Callable[[Any], bool]) -> Captured:
        with warnings.catch_warnings(), compat.recurrent_whole():
            warnings.simplefilter("ignore")
            return _read_exported(ep.run_decompositions(compat.decompositions(wanted)), spec, name)

    captured = _read_exported(ep, spec, name)
    captured.decompose = decompose
    if _needs_functionalising(ep.graph_module):
        again = decompose(lambda op: find(op) is None)
        again.decompose = decompose
        return again
    return captured


def _needs_functionalising(module: fx.GraphModule) -> bool:
    """True when nodes write to memory or stand in an autocast block (whose casts only decomposing writes out)."""
    for part in module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for node in part.graph.nodes:
            target: Any = node.target
            if node.op != "call_function":
                continue
            if "autocast" in str(target):
                return True
            if isinstance(target, torch._ops.OpOverload):
                if target._schema.is_mutable and target is not torch.ops.aten.detach_.default:
                    return True
                if _writes_statistics(node):
                    return True
    return False


def _writes_statistics(node: fx.Node) -> bool:
    """Normalisation in training mode updates running statistics, which its schema does not say."""
    if node.target is torch.ops.aten.batch_norm.default:
        return bool(node.args[5])
    if node.target is torch.ops.aten.instance_norm.default:
        return bool(node.args[5]) and node.args[3] is not None
    return False


def _read_exported(ep: ExportedProgram, spec: Spec, name: str) -> Captured:
    signature = ep.graph_signature
    updated = {s.target for s in signature.output_specs if s.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")}
    sources = []
    for item in signature.input_specs:
        target = str(item.target).removeprefix("inner.")
        if item.kind is InputKind.USER_INPUT:
            fixed = isinstance(item.arg, ConstantArgument)
            sources.append(Source(FIXED if fixed else INPUT))
        elif item.kind in _KINDS:
            tensor = ep.state_dict.get(item.target)
            tensor = ep.constants.get(item.target) if tensor is None else tensor  # type: ignore[arg-type]
            kind = _KINDS[item.kind]
            if item.persistent is False:
                # A buffer that no checkpoint holds is part of the program, unless it is tied to one that is held.
                tied = [n for n, t in ep.state_dict.items() if identity(t) == identity(tensor)]
                target, kind = (tied[0].removeprefix("inner."), kind) if tied else (target, CONSTANT)
            written = item.target in updated
            sources.append(Source(STATE if written else kind, target, tensor, written and kind == CONSTANT))
        else:
            raise UnigraphError(
                f"the exported program takes a {item.kind.name.lower()} ({item.target}), which no graph holds"
            )
    results: list[tuple[str, Any]] = []
    for out in signature.output_specs:
        if out.kind is OutputKind.USER_OUTPUT:
            fixed = isinstance(out.arg, ConstantArgument)
            results.append(("fixed", out.arg.value) if fixed else ("output", None))  # type: ignore[union-attr]
        elif out.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            results.append(("state", str(out.target).removeprefix("inner.")))
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            raise UnigraphError(
                f"the program changes its input {out.target!r} in place; a graph has no effects: "
                "clone it first and return it"
            )
        else:
            raise UnigraphError(f"the exported program has a {out.kind.name.lower()} output, which no graph holds")
    in_spec, out_spec = ep.call_spec.in_spec, ep.call_spec.out_spec
    return Captured(
        ep.graph_module,
        sources,
        results,
        lambda leaves: compat.unflatten(leaves, in_spec),
        lambda leaves: compat.unflatten(leaves, out_spec),
        spec.arg_names,
        {s: (r.lower, r.upper) for s, r in ep.range_constraints.items()},
        spec,
        name,
        guards=compat.guards_of(ep),
        unread=_unread(ep.state_dict, {s.name for s in sources}),
    )


def _unread(state_dict: Mapping[str, torch.Tensor], read: Collection[str]) -> tuple[Source, ...]:
    """Entries of a state_dict that are no input of the captured program."""
    named = {n.removeprefix("inner."): t for n, t in state_dict.items() if isinstance(t, torch.Tensor)}
    kinds = {n: PARAMETER if isinstance(t, torch.nn.Parameter) else BUFFER for n, t in named.items()}
    return tuple(Source(kinds[n], n, t) for n, t in named.items() if n not in read)


def _from_annotated(module: fx.GraphModule) -> Captured:
    """A GraphModule whose nodes carry the values they were traced with (make_fx, AOT): no example inputs needed."""
    nodes = list(module.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    if any("val" not in n.meta for n in nodes if n.op in ("placeholder", "call_function")) or any(
        n.op in ("call_module", "call_method") for n in nodes
    ):
        raise InputError("this GraphModule carries no types: pass example arguments, from_torch(gm, (x,))")
    sources = [Source(INPUT if isinstance(n.meta["val"], torch.Tensor) else FIXED) for n in placeholders]
    # The structure returned, with a mark for each node, in the order in which the walk returns them.
    flat, tree = torch.utils._pytree.tree_flatten(nodes[-1].args[0], is_leaf=lambda x: isinstance(x, fx.Node))
    return Captured(
        module,
        sources,
        [("output", None)] * len(flat),
        lambda leaves: (tuple(leaves), {}),
        lambda leaves: torch.utils._pytree.tree_unflatten(leaves, tree),
        tuple(n.name for n in placeholders),
        {},
        Spec(arg_names=tuple(n.name for n in placeholders)),
        "graph",
    )


# -- lowering ----------------------------------------------------------------------------------------


def _lower(captured: Captured) -> Graph:
    graph, gaps, failed = _attempt(captured)
    if graph is not None:
        return graph
    # What has no row, and uses that a row refuses, torch's own decompositions may still take apart.
    if captured.decompose is not None:
        try:
            again = captured.decompose(lambda op: find(op) is None or op in failed)
        except Exception as error:
            gaps.raise_if_any()
            raise UnigraphError(f"torch cannot decompose {captured.name}: {first_line(error)}") from error
        graph, left, _ = _attempt(again)
        # Decomposed nodes have lost their place in the source; the first walk knows it.
        places = {gap.op: gap.where for gap in gaps.found.values()}
        for gap in left.found.values():
            gap.where = gap.where or places.get(gap.op, "")
        gaps = left
    if graph is None:
        gaps.raise_if_any()
        raise UnigraphError("capture failed without a reason")
    return graph


def _attempt(captured: Captured) -> tuple[Graph | None, Gaps, set[Any]]:
    gaps, failed = Gaps(_TASK), set[Any]()
    placeholders = [n for n in captured.module.graph.nodes if n.op == "placeholder"]
    names = _symbol_names(captured, placeholders)
    b = TorchBuilder(captured.name, Sizes(names, captured.questions))
    walker = Walker(b, gaps, failed)
    env: dict[fx.Node, Any] = {}
    signature_in = _inputs(b, captured, placeholders, env)
    states: dict[str, Value] = {}
    for node, source in zip(placeholders, captured.sources, strict=True):
        if source.kind in (PARAMETER, BUFFER, STATE, CONSTANT):
            assert source.tensor is not None, f"no data for {source.name}"
            env[node] = walker.weight(source.name, source.tensor, source.kind, source.transient)
            if source.kind == STATE:
                states[source.name] = env[node]
    for unread in captured.unread:
        assert unread.tensor is not None
        walker.also_called(unread.name, unread.tensor, unread.kind)
    returned = walker.walk(captured.module, env)
    if not gaps.found:
        _check_sizes(b, gaps)
    if gaps.found:
        return None, gaps, failed
    b.scope = b.source = ""
    outputs = _outputs(b, captured, returned, states)
    args_tree, kwargs_tree = signature_in
    leaves, out_tree = flatten(outputs, lambda x: isinstance(x, Value))
    signature = Signature(args_tree, kwargs_tree, out_tree, captured.arg_names[: len(args_tree.children)])
    _constraints(b, captured)
    return b.build(tuple(leaves), signature), gaps, failed


def _check_sizes(b: TorchBuilder, gaps: Gaps) -> None:
    """Every size must come from an input's shape or from nonzero; one read from a tensor's values is a gap."""
    known = set().union(*(v.type.symbols() for v in b.sources))
    for edge in b.edges:
        for value in edge.outputs:
            unknown = value.type.symbols() - known
            if edge.op.name == "nonzero":
                known |= unknown
            elif unknown:
                hint = "make it an argument of the function, or derive it from a shape"
                gaps.add(edge.op.name, "a size computed from the values of a tensor", edge.where, hint)


def _symbol_names(captured: Captured, placeholders: list[fx.Node]) -> dict[str, Any]:
    """torch's symbol -> the user's name. Axes of one name may be different symbols: each becomes that name."""
    names: dict[str, Any] = {}
    inputs = [n for n, s in zip(placeholders, captured.sources, strict=True) if s.kind in (INPUT, FIXED)]
    for leaf, axis, name, where in captured.spec.named:
        if leaf >= len(inputs):
            continue
        size = inputs[leaf].meta["val"].shape[axis]
        if not isinstance(size, torch.SymInt) or size.node.expr.is_Integer:
            raise InputError(
                f"{where} was to be free ({name}), but the program fixes it at {size}"
                + ("; give an example of size 2 or more" if size in (0, 1) else "")
            )
        expression = size.node.expr
        if expression.is_Symbol:
            known = names.setdefault(expression.name, name)
            if known != name:
                raise InputError(f"{where} was to be {name}, but the program needs it equal to {known}")
    return {symbol: dims.normal(name) for symbol, name in names.items()}


def _constraints(b: TorchBuilder, captured: Captured) -> None:
    for symbol, (low, high) in captured.ranges.items():
        dim = b.sizes.names.get(getattr(symbol, "name", ""), None)
        if dim is None:
            if not getattr(symbol, "is_Symbol", False):
                continue
            dim = dims.symbol(symbol.name)
        if not getattr(dim, "is_Symbol", False):
            continue
        new = constraint(low, high)
        old = b.symbols.get(str(dim))
        if old is not None:
            tops = [m for m in (old.max, new.max) if m is not None]
            new = type(new)(max(old.min, new.min), min(tops) if tops else None)
        b.symbols[str(dim)] = new
    _guarded(b, captured)
    used: set[str] = set()
    for v in (*b.sources, *(v for edge in b.edges for v in edge.outputs)):
        used |= v.type.symbols()
    b.symbols = {k: v for k, v in b.symbols.items() if k in used}


_LOOKED_AT = 1024  # sizes that a condition is tried on


def _narrow(b: TorchBuilder, guard: Any) -> None:
    """Bound the one size that a condition is about (``int(h / 2) == 3``) where it holds for one run of sizes.

    Without it other sizes would run, with the numbers of those that were captured.
    """
    if len(guard.free_symbols) != 1:
        return
    (symbol,) = guard.free_symbols
    name = str(b.sizes.names.get(symbol.name, symbol.name))
    old = b.symbols.get(name)
    if old is None:
        return
    stop = old.min + _LOOKED_AT
    holds = [n for n in range(old.min, stop) if guard.subs(symbol, n) == True]  # noqa: E712 (a sympy truth)
    if holds and holds[-1] < stop - 1 and holds == list(range(holds[0], holds[-1] + 1)):
        top = holds[-1] if old.max is None else min(old.max, holds[-1])
        b.symbols[name] = replace(old, min=holds[0], max=top)


def _guarded(b: TorchBuilder, captured: Captured) -> None:
    """Python conditions on sizes: divisibility becomes a constraint; what no constraint can say is warned about."""
    others = []
    for guard in captured.guards:
        left, right = guard.args if len(guard.args) == 2 else (guard, None)
        if len(guard.free_symbols) == 1 and all(a.is_Symbol or a.is_number for a in guard.args):
            continue  # a bound: it is in the symbol's range already
        if type(guard).__name__ == "Equality" and (left.is_Symbol or getattr(right, "is_Symbol", False)):
            continue  # torch has put the one for the other: the types say it
        modulo = type(left).__name__ in ("Mod", "PythonMod") and left.args[0].is_Symbol and left.args[1].is_number
        if type(guard).__name__ == "Equality" and right == 0 and modulo:
            dim = b.sizes.names.get(left.args[0].name, dims.symbol(left.args[0].name))
            old = b.symbols.get(str(dim), constraint(0, None))
            b.symbols[str(dim)] = replace(old, multiple_of=math.lcm(old.multiple_of, int(left.args[1])))
        else:
            _narrow(b, guard)
            others.append(str(guard.xreplace({s: b.sizes.names.get(s.name, s) for s in guard.free_symbols})))
    if others:
        warnings.warn(f"{captured.name} was captured for sizes where {' and '.join(others)}", stacklevel=5)


class _Leaf:
    """Stands for a tensor input while the structure is read."""

    def __init__(self, node: fx.Node):
        self.node = node


_FIXED = object()


def _plain(x: Any) -> Any:
    """A structure of dicts, lists, tuples, namedtuples and dataclasses; fixed leaves at the end fall away."""
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items() if v is not _FIXED}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_plain(i) for i in x))
    if isinstance(x, (list, tuple)):
        items = list(x)
        while items and items[-1] is _FIXED:
            items.pop()
        return type(x)(None if i is _FIXED else _plain(i) for i in items)
    if x is None or isinstance(x, (_Leaf, Value, torch.Tensor)):
        return x
    children = compat.leaves_of_node(x)
    return [_plain(c) for c in children] if children is not None else x


def _inputs(
    b: TorchBuilder, captured: Captured, placeholders: list[fx.Node], env: dict[fx.Node, Any]
) -> tuple[Any, Any]:
    """Make the graph's inputs in the order of their structure; returns the trees of args and kwargs."""
    leaves: list[Any] = []
    for node, source in zip(placeholders, captured.sources, strict=True):
        if source.kind == INPUT:
            leaves.append(_Leaf(node))
        elif source.kind == FIXED:
            env[node] = node.meta.get("val")
            leaves.append(None if node.meta.get("val") is None else _FIXED)
    args, kwargs = captured.in_structure(leaves)
    taken = {s.name for s in captured.sources if s.kind != INPUT}
    trees = []
    for part, top in ((args, captured.arg_names), (kwargs, ())):
        found, tree = flatten(_plain(part), lambda x: isinstance(x, _Leaf))
        trees.append(tree)
        for leaf, path in zip(found, tree.paths(), strict=True):
            head, _, rest = path.partition(".")
            if top and head.isdigit() and int(head) < len(top):
                path = f"{top[int(head)]}.{rest}" if rest else top[int(head)]
            elif head.isdigit() and part is args:
                path = f"x{path}"
            while path in taken:
                path += "_"
            taken.add(path)
            value = leaf.node.meta["val"]
            env[leaf.node] = b.input(path, dtype_of(value.dtype), b.sizes.shape(value.shape))
    return trees[0], trees[1]


def _outputs(b: TorchBuilder, captured: Captured, returned: Any, states: Mapping[str, Value]) -> Any:
    leaves: list[Any] = []
    items = torch.utils._pytree.tree_leaves(returned, is_leaf=lambda x: isinstance(x, Value))
    for (kind, detail), item in zip(captured.results, items, strict=True):
        if kind == "state":
            b.update(states[detail], item)
        elif kind == "fixed":
            leaves.append(detail)
        else:
            leaves.append(item)
    for name, state in states.items():
        if not b.is_updated(state):
            raise UnigraphError(f"state {name} was to be updated but is not")
    structure = _plain(captured.out_structure([_Result(i) for i in leaves]))
    return _values(b, structure)


@dataclass(frozen=True, eq=False)
class _Result:
    item: Any


def _values(b: TorchBuilder, x: Any) -> Any:
    """Put the graph's values into the output structure; sizes and numbers become constants or size values."""
    if isinstance(x, _Result):
        item = x.item
        if item is None or isinstance(item, Value):
            return item
        if isinstance(item, SYMBOLIC):
            return b.sizes.value(b, item, "f64" if isinstance(item, torch.SymFloat) else "i64")
        if isinstance(item, (bool, int, float, complex)):
            return b.constant(item)
        if dims.is_static(item) or hasattr(item, "free_symbols"):
            return b.size(item)
        value = getattr(item, "value", None)
        if isinstance(value, Value):
            return value
        raise Unsupported(f"an output of type {type(item).__name__}", "return tensors, numbers or None")
    if isinstance(x, dict):
        return {k: _values(b, v) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_values(b, i) for i in x))
    if isinstance(x, (list, tuple)):
        return type(x)(_values(b, i) for i in x)
    return x
