"""Names of torch that are not public, or that some versions lack: those that capture and export of programs need.

What the engine needs too stands in runtime/torch/compat.py; a new torch version is met in these two files.
"""

from __future__ import annotations

import inspect
import io
import logging
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any

import sympy
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    StatelessSymbolicContext,
)
from torch.utils import _pytree as pytree

from unigraph.errors import InputError
from unigraph.runtime.torch.compat import fake_mode

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
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


@contextmanager
def quiet() -> Iterator[None]:
    """A block in which torch's capture logs nothing: what fails is told in one error."""
    loggers = [logging.getLogger(n) for n in list(logging.root.manager.loggerDict) if n == "torch" or n[:6] == "torch."]
    before = [(logger, logger.disabled) for logger in loggers]
    written = io.StringIO()
    try:
        for logger in loggers:
            logger.disabled = True
        with redirect_stderr(written):  # a failing export prints half a graph there
            yield
        print(written.getvalue(), end="", file=sys.stderr)
    finally:
        for logger, disabled in before:
            logger.disabled = disabled


def converted_script(script: Any, args: tuple[Any, ...]) -> torch.export.ExportedProgram:
    """A TorchScript module or function as torch's own converter exports it."""
    from torch._export.converter import TS2EPConverter

    return TS2EPConverter(script, args).convert()


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
    """Fake tensors in one mode; the named axes of each get symbolic sizes. Also gives the mode."""
    mode = fake_mode()
    result: list[torch.Tensor] = []
    for tensor, axes in zip(tensors, dynamic, strict=True):
        kinds = [DimDynamic.DYNAMIC if a in axes else DimDynamic.STATIC for a in range(tensor.ndim)]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)  # type: ignore[arg-type]
        result.append(mode.from_tensor(tensor, symbolic_context=context))
    return result, mode


def trace(program: Callable[..., Any], table: dict[Any, Callable[..., Any]], inputs: list[Any], mode: Any) -> Any:
    """A make_fx trace under a fake mode, in which reading a tensor's value gives an unknown number, not an error."""
    from torch.fx.experimental.proxy_tensor import make_fx

    options: dict[str, Any] = {"record_stack_traces": True, "_error_on_data_dependent_ops": False}
    with mode:  # tensors that the program makes have no values either
        return make_fx(program, decomposition_table=table, **options)(*inputs)


@contextmanager
def asking(answer: Callable[[Any], bool | None], env: Any) -> Iterator[None]:
    """A block in which ``answer`` is asked where torch cannot tell a condition on sizes or read numbers.

    None from it leaves torch's own error.
    """
    plain = env.evaluate_expr

    def evaluate(expression: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(expression, *args, **kwargs)
        except DATA_DEPENDENT:
            found = answer(expression)
            if found is None:
                raise
            return found

    env.evaluate_expr = evaluate
    try:
        yield
    finally:
        del env.evaluate_expr


def current_tracer() -> Any:
    """What writes the running trace, or None outside of one."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode = get_proxy_mode()
    return None if mode is None else mode.tracer


def readings(graph: torch.fx.Graph) -> dict[str, torch.fx.Node]:
    """The tensor behind each number that a trace has read from one, by the number's symbol."""
    found: dict[str, torch.fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten._local_scalar_dense.default):
        value = node.meta.get("val")
        for symbol in value.node.expr.free_symbols if isinstance(value, SYMBOLIC) else ():
            found.setdefault(symbol.name, node.args[0])
    return found


def is_condition(expression: Any) -> bool:
    """True for what is true or false, False for a number."""
    return isinstance(expression, sympy.logic.boolalg.Boolean) and not expression.is_Symbol


def reading(number: int, like: Any) -> Any:
    """A symbol for the number read first, second, ... in a question."""
    return sympy.Symbol(f"read{number}", integer=like.is_integer, real=True)


def note(tracer: Any, target: Any, args: tuple[Any, ...], place: str) -> None:
    """Write a call that gives one truth value into a trace, after what is there."""
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    node = tracer.graph.call_function(target, args)
    with disable_proxy_modes_tracing():
        node.meta["val"] = args[0][0].meta["val"].new_empty((), dtype=torch.bool)
    node.meta["stack_trace"] = place


def initial_state(optimizer: torch.optim.Optimizer) -> dict[Any, dict[str, Any]]:
    """The state of each parameter, made where the optimizer would make it in its first step. It stays as it was.

    Raises InputError for an optimizer whose first step differs from the others.
    """
    before = optimizer.state
    state: dict[Any, dict[str, Any]] = {p: dict(before.get(p, {})) for g in optimizer.param_groups for p in g["params"]}
    optimizer.state = defaultdict(dict, state)
    gradients = {p: p.grad for p in state}
    begin = getattr(optimizer, "_init_group", None)
    name = type(optimizer).__name__
    if begin is None:
        raise InputError(f"the optimizer {name} makes its state while it steps: take one step before the capture")
    try:
        for parameter in state:
            parameter.grad = torch.zeros_like(parameter)
        for group in optimizer.param_groups:
            begin(group, *([] for _ in range(len(inspect.signature(begin).parameters) - 1)))
            if group.get("momentum") and isinstance(optimizer, torch.optim.SGD):
                for parameter in group["params"]:
                    if optimizer.state[parameter].get("momentum_buffer") is not None:
                        continue
                    if group["dampening"]:
                        raise InputError("the first step of SGD with dampening differs: take it before the capture")
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return {p: dict(optimizer.state[p]) for p in state}
    finally:
        optimizer.state = before
        for parameter, gradient in gradients.items():
            parameter.grad = gradient


def guards_in(env: Any) -> tuple[Any, ...]:
    """The conditions on sizes that a shape environment has noted."""
    return tuple(dict.fromkeys(g.expr for g in env.guards))


def guards_of(ep: Any) -> tuple[Any, ...]:
    """What the program asked of its symbolic sizes in Python (``x.shape[0] % 2 == 0``), as sympy relations."""
    for node in ep.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt):
                return guards_in(size.node.shape_env)
    return ()


def ranges_of(env: Any) -> dict[Any, tuple[Any, Any]]:
    """Lower and upper bound of each symbol of a shape environment."""
    table = env.var_to_range if hasattr(env, "var_to_range") else {}
    return {symbol: (r.lower, r.upper) for symbol, r in table.items()}
