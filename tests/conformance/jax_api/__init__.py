"""Calls of JAX's public functions: for each name the arguments of a few calls, as data.

A string such as ``"f32[3,4]"`` anywhere among the arguments is an array that is generated (see ``arrays``);
everything else is passed as it stands, so it is static to the traced function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call of a function. ``body(function, *arguments, **options)`` replaces the plain call, ``judge`` names a
    judge of ``jax_suite`` for decompositions, ``factor`` multiplies the tolerance for the stated reason, and
    ``refusal`` is what the refusal of a function that no graph can hold must say."""

    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    body: Callable[..., Any] | None = None
    judge: str = ""
    factor: float = 1.0
    reason: str = ""
    refusal: str = ""

    def through(self, body: Callable[..., Any]) -> Call:
        """The same with another body."""
        return replace(self, body=body)

    def judged(self, judge: str) -> Call:
        """The same, its results judged by what they give multiplied out."""
        return replace(self, judge=judge)

    def scaled(self, factor: float, reason: str) -> Call:
        """The same with a multiple of the tolerance, for a reason."""
        return replace(self, factor=factor, reason=reason)

    def refused(self, message: str) -> Call:
        """The same, which must be refused with this message."""
        return replace(self, refusal=message)


Table = dict[str, tuple[Call, ...]]


def call(*arguments: Any, **options: Any) -> Call:
    """A plain call."""
    return Call(arguments, options)


def rows(prefix: str, names: str, *calls: Call) -> Table:
    """The same calls for several functions of a namespace; names are separated by blanks."""
    return {f"{prefix}.{name}": calls for name in names.split()}
