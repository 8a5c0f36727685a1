"""What a function holds besides its arguments: the modules and optimizers that its code names."""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from unigraph.errors import InputError

from . import compat


class Function(torch.nn.Module):
    """A function as a module.

    The modules that its code names are submodules under their names (a bound method's own is ``inner``),
    so that their parameters are inputs of the captured program; optimizers are attributes.
    """

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.nn.Module):
            self.inner = owner
        for name, held in held_by(function).items():
            if isinstance(held, (torch.nn.Module, Optimizer)) and held is not owner and not hasattr(self, name):
                setattr(self, name, held)
        self.forward = compat.as_forward(function)  # type: ignore[method-assign]


def held_by(function: Any) -> dict[str, Any]:
    """The variables of the enclosing scopes that a function's code names, those of functions in it included."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return {}
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or ())
    found = {name: _content(cell) for name, cell in cells}
    named = [name for part in _codes(code) for name in part.co_names if name not in found]
    found.update({name: function.__globals__[name] for name in named if name in function.__globals__})
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


class Optimizers:
    """The optimizers that a module holds as attributes; ``states`` are their state tensors by name."""

    def __init__(self, module: torch.nn.Module):
        names = {id(p): n for n, p in module.named_parameters(remove_duplicate=False)}
        self._found: list[_Optimizer] = []
        self.states: dict[str, torch.Tensor] = {}
        for prefix, optimizer in _optimizers_of(module):
            if any(id(p) not in names for group in optimizer.param_groups for p in group["params"]):
                raise InputError(
                    f"the optimizer {prefix!r} updates a parameter of no module that the program names: "
                    "hold its module as an attribute, or name it in the function"
                )
            entry = _Optimizer(optimizer, names, {})
            for parameter, values in compat.initial_state(optimizer).items():
                entry.state[names[id(parameter)]] = values
                for key, value in values.items():
                    if isinstance(value, torch.Tensor):
                        values[key] = name = _StateName(f"{prefix}.{names[id(parameter)]}.{key}")
                        self.states[name] = value
            self._found.append(entry)

    @contextmanager
    def updating(self, held: dict[str, torch.Tensor]) -> Iterator[None]:
        """A block in which the optimizers work on the tensors of ``held``, which gets their new states."""
        with ExitStack() as stack:
            for entry in self._found:
                stack.enter_context(entry.updating(held))
            yield


class _StateName(str):
    """The name of a state tensor, where the tensor stood."""


@dataclass
class _Optimizer:
    optimizer: Optimizer
    names: Mapping[int, str]  # of parameters, by identity
    state: dict[str, dict[str, Any]]  # by parameter name

    @contextmanager
    def updating(self, held: dict[str, torch.Tensor]) -> Iterator[None]:
        optimizer = self.optimizer
        groups, before = [g["params"] for g in optimizer.param_groups], optimizer.state
        working: Any = defaultdict(dict)
        for name, values in self.state.items():
            working[held[name]] = {k: held[v] if isinstance(v, _StateName) else v for k, v in values.items()}
        try:
            optimizer.state = working
            for group in optimizer.param_groups:
                group["params"] = [held[self.names[id(p)]] for p in group["params"]]
            yield
            for name, values in self.state.items():
                held.update({v: working[held[name]][k] for k, v in values.items() if isinstance(v, _StateName)})
        finally:
            optimizer.state = before
            for group, params in zip(optimizer.param_groups, groups):
                group["params"] = params


def has_optimizers(module: torch.nn.Module) -> bool:
    """True for a program that updates parameters by an optimizer of torch."""
    return bool(_optimizers_of(module))


def _optimizers_of(module: torch.nn.Module) -> list[tuple[str, Optimizer]]:
    found = []
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, Optimizer):
                found.append((f"{path}.{name}" if path else name, value))
    return found
