"""How the record of a composite is made: one builder function says all of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..opdef import Attr, OpDef, define_composite, family_examples


def op(properties: str = "", /, **attrs: Attr) -> Callable[[Callable[..., Any]], OpDef]:
    """Decorator: the record of the composite that a builder function means.

    Positional parameters after the builder are operands (with a default: optional), the docstring
    is the record's text, ``attrs`` are the keyword-only parameters in order.
    """

    def make(function: Callable[..., Any]) -> OpDef:
        name = function.__name__
        parameters = list(inspect.signature(function).parameters.values())[1:]
        star = inspect.Parameter.VAR_POSITIONAL
        operands = [
            f"{'*' if p.kind is star else ''}{p.name}{'' if p.default is p.empty else '?'}"
            for p in parameters
            if p.kind is not p.KEYWORD_ONLY
        ]
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        assert keywords == list(attrs), f"{name}: attributes {list(attrs)}, parameters {keywords}"
        doc = " ".join((inspect.getdoc(function) or "").split())
        return define_composite(
            name,
            ", ".join(operands),
            function,
            doc,
            attrs=attrs,
            examples=lambda: family_examples("composite")[name](),
            properties=properties,
        )

    return make
