"""Where the lowering rows are registered: torch operator -> function that calls the builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Row = Callable[..., Any]
F = TypeVar("F", bound=Row)

BY_TARGET: dict[Any, Row] = {}  # an overload, an overload packet or a plain function
BY_NAME: dict[str, Row] = {}  # "library::op" or "library::op.overload", for operators of users
BY_LIBRARY: dict[str, Mapping[str, Row]] = {}  # library -> op, for libraries that may not be loaded


def rows(table: Mapping[Any, Row]) -> None:
    """Register a table of rows. A packet stands for all its overloads that have no row of their own.

    Raises ValueError when a target has a row already.
    """
    for target, function in table.items():
        if target in BY_TARGET:
            raise ValueError(f"two lowering rows for {target}")
        BY_TARGET[target] = function


def row(*targets: Any) -> Callable[[F], F]:
    """Decorator form of `rows`."""

    def register(function: F) -> F:
        rows(dict.fromkeys(targets, function))
        return function

    return register


def lower_torch(name: str) -> Callable[[F], F]:
    """Say what a torch operator means: ``@lower_torch("mylib::op")`` over ``row(b, *args, **kwargs)``.

    ``b`` is the builder; tensors arrive as graph values, sizes as dims, dtypes as graph dtypes. The
    row returns the value (or a tuple of values) of the operator. ``"mylib::op"`` covers all overloads,
    ``"mylib::op.overload"`` one; a row given here goes before a built-in one.
    Raises ValueError for a name without a library.
    """
    if "::" not in name:
        raise ValueError(f"an operator is named 'library::op', not {name!r}")

    def register(function: F) -> F:
        BY_NAME[name] = function
        return function

    return register


def find(target: Any) -> Row | None:
    """The row of an operator, or None."""
    packet = getattr(target, "overloadpacket", None)
    if BY_NAME and packet is not None:
        library = target.namespace
        full = f"{library}::{packet.__name__}"
        overload = target._overloadname
        found = BY_NAME.get(f"{full}.{overload}") or BY_NAME.get(full)
        if found is not None:
            return found
    found = BY_TARGET.get(target)
    if packet is not None and target.namespace in BY_LIBRARY:
        return BY_LIBRARY[target.namespace].get(packet.__name__)
    if found is None and packet is not None and not target._schema.is_mutable:
        found = BY_TARGET.get(packet)
    return found
