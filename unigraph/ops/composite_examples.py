"""Runnable examples of the composites."""

from __future__ import annotations

from collections.abc import Callable

from ..opdef import Example

EXAMPLES: dict[str, Callable[[], list[Example]]] = {}
