"""What a lowering row sees of an ONNX node: operands as values or sizes, attributes with defaults.

Integer tensors that are known at import, or made of symbolic sizes, travel as `Sizes`: that is how
chains of Shape, Gather, Concat and Reshape resolve to symbolic expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unigraph import dims
from unigraph.builder import GraphBuilder
from unigraph.dims import Dim
from unigraph.dtypes import DType, dtype
from unigraph.errors import Unsupported
from unigraph.graph import Value

if TYPE_CHECKING:
    from .importer import Importer


@dataclass(frozen=True)
class Sizes:
    """An integer tensor whose elements are known sizes: ints or symbolic expressions."""

    array: np.ndarray  # of dtype object
    dtype: DType

    @classmethod
    def of(cls, elements: Any, dtype_: Any = "i64") -> Sizes:
        """From a nested sequence (or one element)."""
        array = np.empty(np.shape(elements), object)
        array[...] = elements
        return cls(array, dtype(dtype_))

    @property
    def is_static(self) -> bool:
        return all(dims.is_static(d) for d in self.array.flat)

    def numpy(self) -> np.ndarray:
        """The elements as integers; only for static ones."""
        return self.array.astype(np.int64).astype(self.dtype.numpy)

    def value(self, b: GraphBuilder) -> Value:
        """The tensor as a value of the graph."""
        if self.is_static:
            return b.constant(self.numpy())
        parts = [b.reshape(b.size(d, self.dtype), shape=(1,)) for d in self.array.flat]
        flat = b.concatenate(*parts, axis=0) if len(parts) > 1 else parts[0]
        return b.reshape(flat, shape=self.array.shape) if self.array.shape != (len(parts),) else flat


# A tensor, sizes, a sequence (a list), or an absent optional.
Operand = Value | Sizes | list | None


class Node:
    """One ONNX node about to be lowered; ``env`` holds every named value so far, for subgraphs."""

    def __init__(
        self,
        b: GraphBuilder,
        op_type: str,
        opset: int,
        inputs: Sequence[Operand],
        attrs: dict[str, Any],
        outputs: int,
        importer: Importer,
        env: dict[str, Operand],
    ):
        self.b, self.op_type, self.opset = b, op_type, opset
        self.inputs, self.attrs, self.outputs = list(inputs), attrs, outputs
        self.importer, self.env = importer, env

    def has(self, i: int) -> bool:
        """Whether input ``i`` is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """Input ``i`` as a value. Raises Unsupported when it is absent or a sequence."""
        x = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(x, Sizes):
            x = self.inputs[i] = x.value(self.b)
        if not isinstance(x, Value):
            raise Unsupported(
                f"{self.op_type}: input {i} must be a tensor, not {'a sequence' if isinstance(x, list) else 'absent'}"
            )
        return x

    def values(self) -> list[Value]:
        """All inputs as values."""
        return [self.value(i) for i in range(len(self.inputs))]

    def optional(self, i: int) -> Value | None:
        """Input ``i`` as a value, or None when absent."""
        return self.value(i) if self.has(i) else None

    def rank(self, i: int) -> int:
        """The rank of input ``i``."""
        x = self.inputs[i]
        return x.array.ndim if isinstance(x, Sizes) else self.value(i).type.rank

    def sizes(self, i: int) -> tuple[Dim, ...]:
        """Input ``i``, an integer tensor of rank 0 or 1, as sizes.

        A vector of known length that depends on data becomes sizes known only at run time.
        Raises Unsupported when the length is not known either.
        """
        x = self.inputs[i]
        known = self.known_sizes(i)
        if known is not None:
            return known
        if isinstance(x, Value) and x.type.dtype.is_integer and x.type.is_static and x.type.rank <= 1:
            return self.sized(x)
        raise self.depends(i, "decides a shape")

    def known_sizes(self, i: int) -> tuple[Dim, ...] | None:
        """Input ``i`` as sizes known at import (ints or expressions), or None."""
        x = self.inputs[i]
        if isinstance(x, Sizes):
            return tuple(x.array.reshape(-1))
        array = self.b.array(x) if isinstance(x, Value) else None
        return None if array is None else tuple(int(n) for n in array.reshape(-1))

    def depends(self, i: int, what: str = "must be constant") -> Unsupported:
        """The error for an input that must be known at import, naming the model inputs that would make it so."""
        x = self.inputs[i] if i < len(self.inputs) else None
        names = self.importer.origins(x) if isinstance(x, Value) else []
        hint = (
            f"fix the input with from_onnx(path, values={{{', '.join(f'{name!r}: ...' for name in names)}}})"
            if names
            else "fix the shapes with from_onnx(path, shapes={...})"
        )
        return Unsupported(f"{self.op_type}: input {i} {what}, and depends on data", hint)

    def sized(self, x: Value) -> tuple[Dim, ...]:
        """The elements of an integer vector (or scalar) as sizes known only at run time."""
        flat = x if x.type.rank else self.b.reshape(x, shape=(1,))
        first = len(self.importer.data_sizes)
        names = tuple(f"u{first + j}" for j in range(int(flat.type.shape[0])))
        self.importer.data_sizes.extend(names)
        return tuple(self.b.sized(flat, symbols=names).type.shape)

    def ints(self, i: int) -> tuple[int, ...]:
        """Input ``i`` as plain integers (axes, pads, repeats)."""
        found = self.known_sizes(i)
        if found is None:
            raise self.depends(i)
        if not all(map(dims.is_static, found)):
            raise Unsupported(
                f"{self.op_type}: input {i} must be constant, got {[dims.to_text(d) for d in found]}",
                "fix the shapes with from_onnx(path, shapes={...})",
            )
        return tuple(int(d) for d in found)

    def array(self, i: int) -> np.ndarray:
        """Input ``i`` as an array known at import. Raises Unsupported when it is not."""
        x = self.inputs[i]
        if isinstance(x, Sizes) and x.is_static:
            return x.numpy()
        array = self.b.array(x) if isinstance(x, Value) else None
        if array is None:
            raise self.depends(i)
        return array

    def is_known(self, i: int) -> bool:
        """Whether input ``i`` is an array known at import."""
        x = self.inputs[i]
        return x.is_static if isinstance(x, Sizes) else isinstance(x, Value) and self.b.array(x) is not None

    def scalar(self, i: int) -> Any:
        """Input ``i``, a constant of one element, as a Python number."""
        return self.array(i).reshape(-1)[0].item()

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute, or ``default``. Byte strings come as text."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def axis(self, name: str, default: int, rank: int) -> int:
        """An axis attribute counted from the front."""
        return axis_of(self.attr(name, default), rank)


def axis_of(axis: int, rank: int) -> int:
    """``axis`` counted from the front. Raises Unsupported when out of range (a broken model)."""
    if not -rank <= axis < max(rank, 1):
        raise Unsupported(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0


Row = Callable[[Node], Any]


class RowBook:
    """Rows by op type, each from the opset version on in which its meaning begins.

    A version that only adds dtypes needs no entry: the newest meaning not newer than the model's
    opset serves.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[tuple[int, Row]]] = {}

    def add(self, op_type: str, row: Row, since: int = 1, domain: str = "") -> None:
        versions = self.rows.setdefault((domain, op_type), [])
        if any(v == since for v, _ in versions):
            raise ValueError(f"two rows for {domain}:{op_type} since {since}")
        versions.append((since, row))
        versions.sort(key=lambda item: item[0])

    def __call__(self, *op_types: str, since: int = 1, domain: str = "") -> Callable[[Row], Row]:
        """Decorator: the function is the row of these op types."""

        def register(row: Row) -> Row:
            for op_type in op_types:
                self.add(op_type, row, since, domain)
            return row

        return register

    def find(self, domain: str, op_type: str, opset: int) -> Row | None:
        """The row with the meaning of this opset, or None."""
        found = None
        for since, row in self.rows.get((domain, op_type), ()):
            if since <= opset:
                found = row
        return found
