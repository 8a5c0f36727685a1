"""The record of an op: signature, typed attributes, inference, meaning, examples. All in one place.

Families live in ``unigraph/ops``; this file is what they are written with.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dims, dtypes
from .errors import GraphError, TypeCheckError
from .types import TensorType

if TYPE_CHECKING:
    from .graph import Graph

OPSET_VERSION = 1
MAX_DECOMPOSITION = 20_000  # operations that one composite may stand for
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


def _bool(x: Any) -> bool:
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    raise TypeError(f"expected a bool, got {x!r}")


def _int(x: Any) -> int:
    if isinstance(x, (bool, np.bool_)) or not hasattr(x, "__index__"):
        raise TypeError(f"expected an int, got {x!r}")
    return int(x.__index__())


def _float(x: Any) -> float:
    return float(x)


def _str(x: Any) -> str:
    if isinstance(x, str):
        return x
    raise TypeError(f"expected a string, got {x!r}")


def _scalar(x: Any) -> bool | int | float | complex:
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, (bool, int, float, complex)):
        return x
    raise TypeError(f"expected a number, got {x!r}")


def _many(one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda xs: tuple(one(x) for x in xs)


# The kinds an attribute can have, each with the function that brings a value to normal form.
ATTR_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "scalar": _scalar,
    "str": _str,
    "dtype": dtypes.dtype,
    "dim": dims.normal,
    "bools": _many(_bool),
    "ints": _many(_int),
    "floats": _many(_float),
    "strs": _many(_str),
    "dims": _many(dims.normal),
}


@dataclass(frozen=True, slots=True)
class Attr:
    """One attribute: its kind (a key of ATTR_KINDS), default, allowed values and a line of meaning.

    An attribute whose default is None may be None.
    """

    kind: str
    default: Any = REQUIRED
    doc: str = ""
    choices: tuple[Any, ...] = ()

    def normalize(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        value = ATTR_KINDS[self.kind](value)
        if self.choices and value not in self.choices:
            raise TypeError(f"must be one of {', '.join(map(str, self.choices))}; got {value!r}")
        return value


@dataclass(frozen=True, eq=False)
class Example:
    """One runnable example: arrays in, attributes, and what must come out.

    ``outputs`` None means: whatever the NumPy table gives is right (used for float ops whose value
    needs no telling); edges are always told. ``regions`` maps a region's name to a builder
    function ``(b, *values) -> values`` (or a list of them).
    """

    inputs: tuple[np.ndarray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[np.ndarray, ...] | None = None
    regions: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    key_impl: str = ""  # set: input number key_index is the uint32 data of a key of this kind
    key_index: int = 0


def array(dtype: Any, data: Any) -> np.ndarray:
    """A NumPy array of a graph dtype: ``array("bf16", [1, 2])``."""
    return np.asarray(data, dtype=dtypes.dtype(dtype).numpy)


def example(
    *inputs: Any, out: Any = None, note: str = "", regions: Any = None, key_impl: str = "", **attrs: Any
) -> Example:
    """Shorthand for `Example`; ``out`` is one array or a tuple of them."""
    outputs = None if out is None else tuple(np.asarray(o) for o in (out if isinstance(out, tuple) else (out,)))
    return Example(tuple(np.asarray(i) for i in inputs), attrs, outputs, regions or {}, note, key_impl)


_POINTWISE = frozenset(("elementwise", "select", "clamp", "identity"))  # property words


class OpDef:
    """An op. Compared by identity; made only by `define` and `composite`.

    ``operands`` are names; a trailing ``*xs`` takes any number, trailing ``name?`` are optional.
    ``infer(*types, **attrs, **regions)`` gives the output type, or a tuple of types for an op with
    several outputs. ``regions`` maps each region's name to a function of the operand types and
    attributes (of a ``ruled`` op also of ``regions``, those before it) that gives the region's input types; a name
    ``*branches`` holds several.
    ``decompose`` (composites only) is the builder function that is the op's meaning.
    """

    def __init__(
        self,
        name: str,
        operands: str,
        attrs: Mapping[str, Attr],
        infer: Callable[..., Any],
        doc: str,
        examples: Callable[[], list[Example]] | None = None,
        regions: Mapping[str, Callable[..., Any]] | None = None,
        properties: frozenset[str] = frozenset(),
        decompose: Callable[..., Any] | None = None,
        family: str = "",
    ):
        self.name, self.attrs, self.infer, self.doc = name, dict(attrs), infer, doc
        self.operands = tuple(o.strip() for o in operands.split(",") if o.strip())
        self.variadic = bool(self.operands) and self.operands[-1].startswith("*")
        self.max_operands = 1 << 30 if self.variadic else len(self.operands)
        self.min_operands = sum(not o.endswith("?") and not o.startswith("*") for o in self.operands)
        self.region_types = dict(regions or {})
        self.properties, self.decompose, self.family = properties, decompose, family
        self._examples = examples
        self._defaults = {k: a.default for k, a in self.attrs.items() if a.default is not REQUIRED}
        self.decomposition = lru_cache(maxsize=1024)(self._decomposition)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def is_composite(self) -> bool:
        return self.decompose is not None

    @property
    def is_pointwise(self) -> bool:
        """True when each element of the result depends on one element of each operand: the row takes arrays
        of any one shape, also where a region's types say scalar."""
        return not _POINTWISE.isdisjoint(self.properties)

    def gives_one(self, outputs: int) -> bool:
        """True when builder and rows give the one output bare: never for ops whose number of outputs varies."""
        return outputs == 1 and "tuple" not in self.properties

    @property
    def examples(self) -> list[Example]:
        """The runnable examples (made when asked for, so that importing stays cheap)."""
        return self._examples() if self._examples else []

    def normalize(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """``attrs`` in normal form with defaults filled in, in the record's order.

        Raises TypeCheckError for an unknown, missing or ill-typed attribute.
        """
        if not self.attrs:
            if attrs:
                raise TypeCheckError(f"{self.name} has no attribute {next(iter(attrs))!r}: it takes none")
            return {}
        result = {}
        for key, spec in self.attrs.items():
            value = attrs.get(key, spec.default)
            if value is REQUIRED:
                raise TypeCheckError(f"{self.name} needs attribute {key!r} ({spec.kind}: {spec.doc})")
            try:
                result[key] = spec.normalize(value)
            except (TypeError, ValueError) as error:
                raise TypeCheckError(f"{self.name}: attribute {key!r} ({spec.kind}): {error}") from None
        if len(attrs) != len(result) or any(k not in result for k in attrs):
            extra = [k for k in attrs if k not in self.attrs]
            if extra:
                raise TypeCheckError(f"{self.name} has no attribute {extra[0]!r}; it has {', '.join(self.attrs)}")
        return result

    def region_kwargs(self, regions: tuple[Any, ...]) -> dict[str, Any]:
        """Regions (or what stands for them) by name; ``*branches`` becomes a tuple ``branches``."""
        if not self.region_types:
            return {}
        names = list(self.region_types)
        if names[-1].startswith("*"):
            fixed = len(names) - 1
            return {**dict(zip(names[:-1], regions)), names[-1][1:]: tuple(regions[fixed:])}
        return dict(zip(names, regions, strict=True))

    def infer_types(
        self, types: tuple[TensorType, ...], attrs: Mapping[str, Any], regions: tuple[Graph, ...] = ()
    ) -> Any:
        """Output type, or tuple of types, of this op on operands of these types.

        Raises TypeCheckError with the label of the violated constraint.
        """
        n = len(types)
        if n < self.min_operands or n > self.max_operands:
            raise TypeCheckError(f"{self.name}({', '.join(self.operands)}) got {n} operands")
        if regions or self.region_types:
            return self.infer(*types, **attrs, **self.region_kwargs(regions))
        return self.infer(*types, **attrs)

    def _decomposition(self, types: tuple[TensorType, ...], attrs: tuple[tuple[str, Any], ...]) -> Graph:
        """The meaning of a composite on operands of these types, as a graph of other ops."""
        from .builder import GraphBuilder

        assert self.decompose is not None
        # An attribute from a file must not make a decomposition grow without end.
        b = GraphBuilder(self.name, limit=MAX_DECOMPOSITION)
        names = [o.strip("?*") for o in self.operands]
        values = [
            b.input(names[i] if i < len(names) and not self.variadic else f"x{i}", t.dtype, t.shape)
            for i, t in enumerate(types)
        ]
        result = self.decompose(b, *values, **dict(attrs))
        return b.build(result if isinstance(result, tuple) else (result,), single=not isinstance(result, tuple))


_registry: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an op to the language. Raises GraphError when the name is taken."""
    if op.name in _registry:
        raise GraphError(f"an op called {op.name!r} exists already")
    _registry[op.name] = op
    return op


def unknown_op(name: str) -> str:
    """A message for a name that no op has, with the names nearest to it."""
    close = difflib.get_close_matches(name, registry(), 3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"no op is called {name!r}; {hint}`unigraph ops` lists them"


def registry() -> Mapping[str, OpDef]:
    """All ops by name."""
    from . import ops  # noqa: F401  the families register themselves

    return _registry


def define(
    name: str,
    operands: str,
    infer: Callable[..., Any],
    doc: str,
    *,
    attrs: Mapping[str, Attr] | None = None,
    examples: Callable[[], list[Example]] | None = None,
    regions: Mapping[str, Callable[..., Any]] | None = None,
    properties: str = "",
    family: str = "",
) -> OpDef:
    """Make a core op and register it.

    ``properties`` are words that passes and engines read, often as sets: ``elementwise`` (Python scalars as
    operands become constants), ``commutative``, ``identity`` (the operands themselves), ``tuple`` (rows always
    give a tuple, see `OpDef.gives_one`), ``ruled`` (regions after the first are derivative rules), and the kind of
    op, such as ``unary`` or ``reduction``.
    """
    words = frozenset(properties.split())
    return register(OpDef(name, operands, attrs or {}, infer, doc, examples, regions, words, None, family))


def family(name: str, properties: str = "") -> Callable[..., OpDef]:
    """`define` for the ops of one family, with words that describe them all.

    Their examples stand in ``unigraph/ops/<name>_examples.py``, read when asked for.
    """

    def make(
        op: str,
        operands: str,
        infer: Callable[..., Any],
        doc: str,
        attrs: Mapping[str, Attr] | None = None,
        words: str = "",
        regions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> OpDef:
        examples = lambda: family_examples(name)[op]()
        words = f"{properties} {words}"
        return define(
            op, operands, infer, doc, attrs=attrs, examples=examples, regions=regions, properties=words, family=name
        )

    return make


def family_examples(name: str) -> Mapping[str, Callable[[], list[Example]]]:
    """The examples of a family: op name -> function that makes them."""
    module = importlib.import_module(f"{__package__}.ops.{name}_examples")
    found: Mapping[str, Callable[[], list[Example]]] = module.EXAMPLES
    return found


def define_composite(
    name: str,
    operands: str,
    function: Callable[..., Any],
    doc: str,
    *,
    attrs: Mapping[str, Attr] | None = None,
    examples: Callable[[], list[Example]] | None = None,
    properties: str = "",
    family: str = "composite",
) -> OpDef:
    """Make a composite: ``function(b, *values, **attrs)`` is its meaning, and gives its types."""

    def infer(*types: TensorType, **attributes: Any) -> Any:
        graph = op.decomposition(types, tuple(attributes.items()))
        single = graph.signature is not None and graph.signature.out.kind == "leaf"
        return graph.outputs[0].type if single else graph.out_types

    op = OpDef(name, operands, attrs or {}, infer, doc, examples, None, frozenset(properties.split()), function, family)
    return register(op)


_ANNOTATIONS = {"bool": "bool", "int": "int", "float": "float", "str": "str", "tuple": "ints"}


def composite(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: make a builder function an op of the language, under the function's name.

    Positional parameters after the builder are operands (default None: optional); keyword-only ones
    are attributes, typed by their annotation (bool, int, float, str, tuple of ints, or the name of
    an attribute kind as a string). The function comes back unchanged; call the op as a builder
    method. A file that uses it carries its decomposition, so it loads anywhere.

    >>> @ug.composite
    ... def scaled_tanh(b, x, *, scale: float = 1.0):
    ...     "tanh(scale * x)."
    ...     return b.tanh(b.mul(x, scale))

    Raises GraphError when an op of that name exists, TypeError for an attribute without a kind.
    """
    operands, attrs = [], {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            operands.append(f"*{parameter.name}")
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            operands.append(parameter.name + ("" if parameter.default is parameter.empty else "?"))
        else:
            annotation = getattr(parameter.annotation, "__name__", parameter.annotation)
            kind = _ANNOTATIONS.get(annotation, annotation)
            if kind not in ATTR_KINDS:
                raise TypeError(
                    f"attribute {parameter.name!r} of {function.__name__} needs a type: {', '.join(ATTR_KINDS)}"
                )
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            attrs[parameter.name] = Attr(kind, default)
    doc = inspect.getdoc(function) or ""
    define_composite(function.__name__, ", ".join(operands), function, doc, attrs=attrs, family="user")
    return function


def require(condition: Any, label: str, message: str) -> None:
    """Raise TypeCheckError with the constraint's label unless the condition holds."""
    if not condition:
        raise TypeCheckError(message, label)
