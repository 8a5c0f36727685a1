"""Names of torch that are not public, or that some versions lack: those that capture and export of programs need.

What the engine needs too stands in runtime/torch/compat.py; a new torch version is met in these two files.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree

from unigraph.runtime.torch.compat import fake_mode

DATA_DEPENDENT: tuple[type[Exception], ...] = (GuardOnDataDependentSymNode,)


def is_data_dependent(error: BaseException) -> bool:
    """True when capture stopped because Python asked for the value of a tensor."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if isinstance(seen, DATA_DEPENDENT) or "data-dependent" in text or "get value out of a tracing tensor" in text:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def uses_functorch(ep: Any) -> bool:
    """True when an export holds torch.func transforms, which it does not carry: it is full of fake tensors then."""
    from torch._subclasses.fake_tensor import FakeTensor

    def fake(t: Any) -> bool:
        return isinstance(t, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(t)

    if any(isinstance(t, torch.Tensor) and fake(t) for t in ep.constants.values()):
        return True
    return any(
        getattr(node.target, "__module__", "") == "torch._functorch.predispatch"
        for node in ep.graph.nodes
        if node.op == "call_function"
    )


def as_forward(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a plain function whose code is called ``forward``: only such frames are put into stack traces."""
    if isinstance(function, types.MethodType):
        return types.MethodType(as_forward(function.__func__), function.__self__)
    if not isinstance(function, types.FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    copy = types.FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    return copy


@contextmanager
def numbers_known(program: Any) -> Iterator[None]:
    """Let Python read whole numbers that the program itself holds: its one-element integer buffers that no
    checkpoint has (the strides and paddings of Mimi and EnCodec). To torch they are as unknown as an input."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = getattr(program, "__self__", program)
    held = {
        id(t)
        for part in (module.modules() if isinstance(module, torch.nn.Module) else ())
        for t in (part._buffers.get(name) for name in part._non_persistent_buffers_set)
        if t is not None and t.numel() == 1 and not t.is_meta and not (t.is_floating_point() or t.is_complex())
    }
    plain = FakeTensorMode.from_tensor

    def from_tensor(mode: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        fake = plain(mode, tensor, *args, **kwargs)
        if id(tensor) in held and fake.constant is None:
            fake.constant = tensor.detach().clone()
            mode.fake_tensor_converter.add_constant_storage_mapping(fake)  # a write to it makes it unknown
        return fake

    if not held:
        yield
        return
    FakeTensorMode.from_tensor = from_tensor  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        FakeTensorMode.from_tensor = plain  # type: ignore[method-assign]


def operators_left(**rows: Any) -> dict[Any, Any]:
    """Rows by name of aten operators that torch drops (cholesky and qr in 2.14): those that it still has."""
    return {getattr(torch.ops.aten, name): row for name, row in rows.items() if hasattr(torch.ops.aten, name)}


@contextmanager
def recurrent_whole() -> Iterator[None]:
    """A block in which lstm, gru and rnn tell the shapes of their results instead of being written out step by step.

    Written out, a capture would hold for one length of the sequence only.
    """
    from torch._decomp import meta_table

    aten = torch.ops.aten
    operators: Any = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    before = [dict(op.py_kernels) for op in operators]

    def results(
        x: Any, start: Any, weights: Any, biases: bool, layers: int, drop: float, train: bool, *ways: bool
    ) -> Any:
        states = list(start) if isinstance(start, (list, tuple)) else [start]
        width = states[0].shape[-1] * (2 if ways[0] else 1)
        return (x.new_empty((*x.shape[:2], width)), *map(torch.empty_like, states))

    try:
        for op in operators:
            op.py_kernels.update(dict.fromkeys(op.py_kernels, results))
            meta_table[op] = results
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in zip(operators, before):
            op.py_kernels.clear()
            meta_table.pop(op, None)
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


@contextmanager
def transforms_undone() -> Iterator[None]:
    """Take away the torch.func levels that a failed capture leaves behind: they would change all later torch calls."""
    functorch = torch._C._functorch
    depth, level = functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level
    try:
        yield
    finally:
        # torch may have entered one level more than Python knows of; leaving one that is not there is an error.
        for entered in range(forward_ad._current_level + 1, level, -1):
            with suppress(RuntimeError):
                torch._C._exit_dual_level(entered)
        forward_ad._current_level = level
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@lru_cache(maxsize=1)
def _all_decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table
    from torch._export.utils import _collect_all_valid_cia_ops, _get_decomp_for_cia, _is_preservable_cia_op

    table: dict[Any, Callable[..., Any]] = {
        op: function
        for op, function in decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable
    }
    # Composite operators come apart as they do in eager mode.
    table.update({op: _get_decomp_for_cia(op) for op in _collect_all_valid_cia_ops() if _is_preservable_cia_op(op)})
    return table


def decompositions(wanted: Callable[[Any], bool]) -> dict[Any, Callable[..., Any]]:
    """torch's decompositions of the operators for which ``wanted`` holds."""
    return {op: f for op, f in {**_all_decompositions(), **_quantised()}.items() if wanted(op)}


# Operators of quantised programs that torch defines by plain tensor code, without asking for values.
_QUANTISED = (
    "quantize_per_token",
    "dequantize_per_token",
    "choose_qparams_per_token",
    "choose_qparams_per_token_asymmetric",
    "dequantize_per_channel_group",
)


def _quantised() -> dict[Any, Callable[..., Any]]:
    """Their decompositions, once torch has defined them (with torch.ao.quantization)."""
    module = sys.modules.get("torch.ao.quantization.fx._decomposed")
    library = torch.ops.quantized_decomposed
    return {getattr(library, n).default: getattr(module, n) for n in _QUANTISED if hasattr(module, n)}


@lru_cache(maxsize=1)
def complete_fakes() -> None:
    """Tell torch the result shapes of operators whose abstract form it lacks, so that export goes through them."""
    from torch._subclasses.fake_impls import register_op_impl

    aten = torch.ops.aten

    @register_op_impl([aten._ctc_loss.default, aten._ctc_loss.Tensor])  # type: ignore[untyped-decorator]
    def _(mode: Any, op: Any, log_probs: Any, targets: Any, *rest: Any, **options: Any) -> Any:
        batch = log_probs.shape[1:-1]
        # The second result serves the gradient only; its last size is a bound (that of the longest target).
        width = 2 * targets.shape[-1] + 1
        return log_probs.new_empty(batch), log_probs.new_empty((*batch, log_probs.shape[0], width))


def register_caches() -> None:
    """Let pytrees see into the key-value caches of transformers, when a program uses that package."""
    if "transformers" not in sys.modules:
        return
    with suppress(ImportError, AttributeError):
        from transformers.integrations.executorch import register_dynamic_cache_export_support

        register_dynamic_cache_export_support()


def unflatten(leaves: list[Any], spec: Any) -> Any:
    """The structure of a spec; classes beyond list, tuple, dict and dataclass (caches) become lists."""
    return pytree.tree_unflatten(leaves, _plain_spec(spec))


def _plain_spec(spec: Any) -> Any:
    if spec.is_leaf():
        return spec
    children = [_plain_spec(c) for c in spec.children()]
    known = spec.type is type(None) or issubclass(spec.type, (list, tuple, dict)) or is_dataclass(spec.type)
    return pytree.TreeSpec(spec.type, spec.context, children) if known else pytree.TreeSpec(list, None, children)


def leaves_of_node(x: Any) -> list[Any] | None:
    """The children of an object of a registered pytree class, or None."""
    node = pytree.SUPPORTED_NODES.get(type(x))
    return None if node is None else list(node.flatten_fn(x)[0])


def fake_inputs(tensors: list[torch.Tensor], dynamic: list[set[int]]) -> tuple[list[torch.Tensor], Any]:
    """Fake tensors in one mode; the named axes of each get symbolic sizes. Also gives the shape environment."""
    mode = fake_mode()
    result: list[torch.Tensor] = []
    for tensor, axes in zip(tensors, dynamic, strict=True):
        kinds = [DimDynamic.DYNAMIC if a in axes else DimDynamic.STATIC for a in range(tensor.ndim)]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)  # type: ignore[arg-type]
        result.append(mode.from_tensor(tensor, symbolic_context=context))
    return result, mode.shape_env


def guards_of(ep: Any) -> tuple[Any, ...]:
    """What the program asked of its symbolic sizes in Python (``x.shape[0] % 2 == 0``), as sympy relations."""
    for node in ep.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return tuple(dict.fromkeys(g.expr for g in size.node.shape_env.guards))
    return ()


def ranges_of(env: Any) -> dict[Any, tuple[Any, Any]]:
    """Lower and upper bound of each symbol of a shape environment."""
    table = env.var_to_range if hasattr(env, "var_to_range") else {}
    return {symbol: (r.lower, r.upper) for symbol, r in table.items()}
