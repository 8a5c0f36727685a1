"""Runnable examples of the random ops; edges are told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ..opdef import Example

EXAMPLES: dict[str, Callable[[], list[Example]]] = defaultdict(lambda: list)
