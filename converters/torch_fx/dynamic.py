"""The ``dynamic`` argument: free axes by name, in our form or torch's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from unigraph.errors import InputError


@dataclass
class Spec:
    """What was asked for: torch's ``dynamic_shapes``, the named axes, the parameter names.

    ``named`` holds (leaf number among all argument leaves, axis, name, place for messages).
    """

    shapes: Any = None
    named: list[tuple[int, int, str, str]] = field(default_factory=list)
    arg_names: tuple[str, ...] = ()


def read_spec(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any) -> Spec:
    """Check ``dynamic`` against the arguments. Raises InputError for a name or an axis that is not there."""
    names = _parameter_names(forward, args)
    spec = Spec(arg_names=names)
    if dynamic is None:
        return spec
    by_name = _by_name(dynamic, names, args, kwargs)
    leaf = 0
    shapes: list[Any] = []
    for name, value in (*zip(names, args), *kwargs.items()):
        built, leaf = _build(by_name.get(name), value, leaf, name, spec)
        shapes.append(built)
    positional = tuple(shapes[: len(args)])
    if kwargs or not args:
        spec.shapes = _for_signature(forward, names, positional, dict(zip(kwargs, shapes[len(args) :])))
    else:
        spec.shapes = _for_signature(forward, names, positional, {})
    return spec


def _for_signature(forward: Any, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch wants a dict by parameter name; what ``*args`` swallowed stands in a tuple under its name."""
    parameters = _signature(forward)
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    keyword = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    result: dict[str, Any] = dict(zip(plain, args))
    if variadic and len(args) > len(plain):
        result[variadic] = tuple(args[len(plain) :])
    known = {p.name for p in parameters}
    extra = {k: v for k, v in kwargs.items() if k not in known}
    result.update({k: v for k, v in kwargs.items() if k in known})
    if extra and keyword:
        result[keyword] = extra
    return result


def _signature(forward: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _parameter_names(forward: Any, args: tuple[Any, ...]) -> tuple[str, ...]:
    plain = [p.name for p in _signature(forward) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in _signature(forward) if p.kind is p.VAR_POSITIONAL), "x")
    return tuple(plain[i] if i < len(plain) else f"{variadic}{i - len(plain)}" for i in range(len(args)))


def _by_name(dynamic: Any, names: tuple[str, ...], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(dynamic, Mapping):
        unknown = [k for k in dynamic if k not in (*names, *kwargs)]
        if unknown:
            raise InputError(f"dynamic names {unknown[0]!r}, but the arguments are {', '.join((*names, *kwargs))}")
        return dict(dynamic)
    if not isinstance(dynamic, (tuple, list)):
        raise InputError(f"dynamic is a dict by parameter name or a sequence by position, not {dynamic!r}")
    everything = (*names, *kwargs)
    if len(dynamic) > len(everything):
        raise InputError(f"dynamic has {len(dynamic)} entries for {len(everything)} arguments")
    return dict(zip(everything, dynamic))


def _build(spec: Any, value: Any, leaf: int, where: str, out: Spec) -> tuple[Any, int]:
    """torch's form of one argument's spec; named axes are noted in ``out``."""
    if isinstance(value, torch.Tensor):
        return _axes(spec, value, leaf, where, out), leaf + 1
    if isinstance(value, Mapping):
        # Leaves are numbered in torch's own order of dict keys: as inserted.
        built = {}
        for key, item in value.items():
            inner = spec.get(key) if isinstance(spec, Mapping) else None
            built[key], leaf = _build(inner, item, leaf, f"{where}.{key}", out)
        return built, leaf
    if isinstance(value, (list, tuple)):
        items = []
        for i, item in enumerate(value):
            inner = spec[i] if isinstance(spec, (list, tuple)) and i < len(spec) else None
            one, leaf = _build(inner, item, leaf, f"{where}.{i}", out)
            items.append(one)
        return type(value)(items) if not hasattr(value, "_fields") else type(value)(*items), leaf
    return None, leaf + len(pytree.tree_leaves(value))


def _axes(spec: Any, tensor: torch.Tensor, leaf: int, where: str, out: Spec) -> Any:
    if spec is None:
        return None
    if not isinstance(spec, Mapping):
        if not isinstance(spec, (tuple, list)) or len(spec) != tensor.ndim:
            raise InputError(f"dynamic for {where} needs one entry for each of its {tensor.ndim} axes, got {spec!r}")
        spec = dict(enumerate(spec))
    axes: dict[int, Any] = {}
    for axis, item in spec.items():
        if not -tensor.ndim <= axis < tensor.ndim:
            raise InputError(f"dynamic for {where} names axis {axis}, but it has {tensor.ndim}")
        axis %= tensor.ndim
        if item is None or isinstance(item, int):
            if isinstance(item, int) and item != tensor.shape[axis]:
                raise InputError(
                    f"dynamic fixes axis {axis} of {where} at {item}, but the example has {tensor.shape[axis]}"
                )
            continue
        if isinstance(item, str):
            # AUTO lets torch find out what the program needs of the axis; the name is put on afterwards.
            axes[axis] = Dim.AUTO
            out.named.append((leaf, axis, item, f"axis {axis} of {where}"))
        else:
            axes[axis] = item
            name = getattr(item, "__name__", "")
            if name and type(item).__name__ == "Dim":
                out.named.append((leaf, axis, name, f"axis {axis} of {where}"))
    return axes or None
