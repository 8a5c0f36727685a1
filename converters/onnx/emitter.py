"""What the ONNX export rows compute with: handles of values in a growing model.

A row is written ``o.Add(x, y)``; the emitter adds the node, works out dtype and shape of its result,
computes in a carrier dtype where ONNX Runtime lacks a kernel, and never adds the same node twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unigraph import dtypes
from unigraph.dtypes import DType, bool_, f64, i64

from .dtypes import FROM_ONNX, SINCE, carrier, to_onnx_dtype, words
from .handles import Array, NeedsOpset, Shape, Size


@dataclass
class Frame:
    """One graph under construction: the main graph or a sub-graph of If or Loop."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    seen: dict[Any, tuple[str, ...]] = field(default_factory=dict)


# Operators whose operands broadcast: a compact operand may stand in for its expansion.
_BROADCAST = words(
    "Add Sub Mul Div Mod Pow Max Min And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift Equal Less "
    "LessOrEqual Greater GreaterOrEqual Where"
)
_SAME = words(
    "Neg Abs Sign Ceil Floor Round Exp Log Sqrt Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh "
    "Atanh Sigmoid Erf IsNaN IsInf Not BitwiseNot Cast Clip Identity Softmax LogSoftmax Relu HardSwish Mish Softplus "
    "Softsign Gelu Selu Elu LeakyRelu Celu HardSigmoid CumSum Trilu ScatterND ScatterElements PRelu BitCast "
    "QuantizeLinear DequantizeLinear LayerNormalization RMSNormalization BatchNormalization InstanceNormalization "
    "GroupNormalization"
)
_TO_BOOL = words("Equal Less LessOrEqual Greater GreaterOrEqual IsNaN IsInf")
_TO_I64 = words("Shape Size ArgMax ArgMin NonZero")


class Emitter:
    """Namespace of all ONNX operators over `Array` handles, and the model being built."""

    def __init__(self, opset: int):
        self.opset = opset
        self.scope = ""
        self.operation: Any = None  # the one whose row runs: its symbolic types tell more than run-time sizes
        self.rows: Any = {}  # the table's, for bodies that rows apply to whole arrays
        self.complex_rows: Any = {}
        self.decompose: Callable[[Sequence[Any]], Any]  # the current composite, written out
        self.frames: list[Frame] = [Frame()]
        self.initializers: dict[str, onnx.TensorProto] = {}
        self._constants: dict[Any, str] = {}
        self._turned: dict[str, tuple[Array, Sequence[int]]] = {}  # see `cast`
        self._names: set[str] = set()
        self._count = 0

    # -- names and constants -----------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that nothing else in the model has."""
        name = stem
        while name in self._names or not name:
            self._count += 1
            name = f"{stem}_{self._count}"
        self._names.add(name)
        return name

    def const(self, data: Any, dtype: DType | None = None) -> Array:
        """A constant; it enters the model where a node reads it."""
        array = np.asarray(data)
        if dtype is None:
            dtype = i64 if array.dtype.kind == "i" and not isinstance(data, np.ndarray) else dtypes.dtype(array.dtype)
        array = array.astype(dtype.numpy, copy=False)
        return Array(self, "", dtype, array.shape, array)

    def weight(self, name: str, array: Any, dtype: DType) -> Array:
        """An initializer under its own name."""
        array = np.asarray(array)
        self._names.add(name)
        self.initializers[name] = self.tensor(array, name, dtype)
        return Array(self, name, dtype, array.shape, array if array.size == 1 else None)

    def tensor(self, array: np.ndarray, name: str, dtype: DType) -> onnx.TensorProto:
        number = to_onnx_dtype(dtype, self.opset)
        if dtype.bits >= 8:
            tensor = onnx.TensorProto(data_type=number, name=name, dims=array.shape)
            tensor.raw_data = np.ascontiguousarray(array).tobytes()
            return tensor
        return numpy_helper.from_array(array, name)

    def _name_of(self, x: Array) -> str:
        if x.name:
            return x.name
        assert x.value is not None
        data = np.ascontiguousarray(x.value)
        key = (
            x.dtype.name,
            x.value.shape,
            data.tobytes() if data.nbytes <= 64 else hashlib.sha256(data.view(np.uint8).data).digest(),
        )
        if key not in self._constants:
            name = self.fresh(f"const_{len(self._constants)}")
            self._constants[key] = name
            self.initializers[name] = self.tensor(x.value, name, x.dtype)
        x.name = self._constants[key]
        return x.name

    # -- sizes -------------------------------------------------------------------------------------

    def vector(self, items: Iterable[Any]) -> Array:
        """Ints and Sizes as an int64 vector; constant where all are ints."""
        runs: list[Any] = []
        for item in items:
            if type(item) is int and runs and isinstance(runs[-1], list):
                runs[-1].append(item)
            else:
                runs.append([item] if type(item) is int else item)
        parts = [self.const(np.array(r, np.int64)) if isinstance(r, list) else r.vector for r in runs]
        if not parts:
            return self.const(np.zeros(0, np.int64))
        if len(parts) == 1:
            return parts[0]
        return self.Concat(*parts, axis=0, shape=(sum(p.shape[0] for p in parts),))

    def scalar(self, item: Any, dtype: DType = i64) -> Array:
        """An int or Size as a scalar."""
        if type(item) is int:
            return self.const(np.asarray(item, np.int64).astype(dtype.numpy))
        return self.cast(self.Squeeze(item.vector, self.const([0]), shape=()), dtype)

    def size_of(self, x: Array, axis: int) -> Size:
        """The run-time size of one axis."""
        return Size(self, lambda: self.Shape(x, start=axis, end=axis + 1, shape=(1,)))

    def typed(self, x: Array, dims: Sequence[Any]) -> Array:
        """The handle with a full shape: ints where ``dims`` has them, run-time sizes elsewhere."""
        known = x.shape_ if x.shape_ is not None and len(x.shape_) == len(dims) else (None,) * len(dims)
        shape = tuple(
            d if type(d) is int else k if isinstance(k, Size) else self.size_of(x, i)
            for i, (d, k) in enumerate(zip(dims, known, strict=True))
        )
        return Array(self, x.name, x.dtype, shape, x.value, x.compact)

    # -- nodes -------------------------------------------------------------------------------------

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def emit(*inputs: Any, **options: Any) -> Any:
            return self.emit(op_type, inputs, **options)

        return emit

    def need(self, op_type: str) -> None:
        """Raise NeedsOpset where the chosen opset does not have an operator yet."""
        since = SINCE.get(op_type, 0)
        if self.opset < since:
            raise NeedsOpset(f"the ONNX operator {op_type}", since)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Any],
        *,
        outputs: int = 1,
        dtype: DType | Sequence[DType] | None = None,
        shape: Sequence[Any] | None = None,
        shapes: Sequence[Any] | None = None,
        **attrs: Any,
    ) -> Any:
        """Add a node and return its result (a tuple for ``outputs`` above 1).

        Python numbers among the operands become constants of the dtype of the arrays. ``dtype`` and
        ``shape`` say what the operator's own rule does not. Raises Unsupported for an operator newer than
        the opset, or a dtype that cannot be computed with.
        """
        self.need(op_type)
        operands = self._coerce(op_type, inputs)
        skip = 1 if op_type == "Where" else 0
        model = next((x for x in operands[skip:] if x is not None), None)
        if op_type in _BROADCAST:
            operands = self._compacted(operands)
        run = model.dtype if model is not None else i64
        if model is not None and op_type != "Cast":
            run = carrier(op_type, model.dtype)
            if run is not model.dtype:
                operands = [
                    self.cast(x, run) if x is not None and i >= skip and x.dtype is model.dtype else x
                    for i, x in enumerate(operands)
                ]
        names = self._node(op_type, operands, outputs, attrs)
        if shapes is None:
            shapes = [self._shape(op_type, operands) if shape is None else shape] * outputs
        if dtype is None:
            dtype = bool_ if op_type in _TO_BOOL else i64 if op_type in _TO_I64 else run
        kinds: list[DType] = [dtype] * outputs if isinstance(dtype, DType) else list(dtype)
        results = [Array(self, n, d, s) for n, d, s in zip(names, kinds, shapes, strict=True)]
        if model is not None and run is not model.dtype:
            results = [self.cast(r, model.dtype) if r.dtype is run else r for r in results]
        return results[0] if outputs == 1 else tuple(results)

    def _coerce(self, op_type: str, inputs: Sequence[Any]) -> list[Array | None]:
        skip = 1 if op_type == "Where" else 0
        kind = next((x.dtype for x in inputs[skip:] if isinstance(x, Array)), None)
        result: list[Array | None] = []
        for x in inputs:
            if x is None or isinstance(x, Array):
                result.append(x)
            elif isinstance(x, np.ndarray):
                result.append(self.const(x))
            elif isinstance(x, (tuple, list)):
                result.append(self.vector(x))
            else:
                result.append(self.const(np.asarray(x), kind))
        return result

    def _compacted(self, operands: list[Array | None]) -> list[Array | None]:
        """Operands with expansions replaced by what they expand, as long as one has the full shape."""
        whole = [x for x in operands if x is not None and x.compact is None and x.shape_ is not None]

        def covered(x: Array) -> bool:
            return any(
                w.rank == x.rank
                and all(a == b if type(a) is type(b) is int else a != 1 for a, b in zip(w.shape, x.shape))
                for w in whole
            )

        return [x.compact if x is not None and x.compact is not None and covered(x) else x for x in operands]

    def _shape(self, op_type: str, operands: Sequence[Array | None]) -> Shape | None:
        if op_type in _SAME:
            return operands[0].shape_ if operands and operands[0] is not None else None
        if op_type not in _BROADCAST:
            return None
        shapes = [x.shape_ for x in operands if x is not None]
        if any(s is None for s in shapes):
            return None
        rank = max(len(s) for s in shapes if s is not None)
        result: list[Any] = [1] * rank
        for s in shapes:
            for axis, n in enumerate(s or (), rank - len(s or ())):
                if type(n) is int and n == 1:
                    continue
                if type(result[axis]) is int and (result[axis] == 1 or type(n) is not int):
                    result[axis] = n if result[axis] == 1 else result[axis]
                elif type(n) is int:
                    result[axis] = n
        return tuple(result)

    def _node(
        self, op_type: str, operands: Sequence[Array | None], outputs: int, attrs: dict[str, Any]
    ) -> tuple[str, ...]:
        names = ["" if x is None else self._name_of(x) for x in operands]
        while names and not names[-1]:
            names.pop()
        attrs = {k: v for k, v in attrs.items() if v is not None}
        pure = not any(isinstance(v, onnx.GraphProto) for v in attrs.values())
        key = (op_type, tuple(names), outputs, repr(sorted(attrs.items()))) if pure else None
        if key is not None:
            for frame in self.frames:
                if key in frame.seen:
                    return frame.seen[key]
        self._count += 1
        stem = f"{self.scope}/{op_type}_{self._count}" if self.scope else f"{op_type}_{self._count}"
        made = tuple(self.fresh(stem if i == 0 else f"{stem}:{i}") for i in range(outputs))
        frame = self.frames[-1]
        frame.nodes.append(helper.make_node(op_type, names, list(made), name=made[0], **attrs))
        frame.made.update(made)
        if key is not None:
            frame.seen[key] = made
        return made

    # -- common helpers ----------------------------------------------------------------------------

    def cast(self, x: Array, dtype: DType) -> Array:
        """x in another dtype by the operator's own rule (low bits, or nearest float)."""
        if x.dtype is dtype:
            return x
        if x.value is not None and x.value.size <= 4096 and not (x.dtype.is_float and dtype.is_integer):
            with np.errstate(all="ignore"):
                return self.const(x.value.astype(dtype.numpy))
        if x.name in self._turned:
            # ONNX Runtime's fusion of Transpose, Cast and MatMul crashes where the transpose takes the first
            # axis among the last two: the cast goes first.
            source, permutation = self._turned[x.name]
            return self.transpose(self.cast(source, dtype), permutation)
        number = to_onnx_dtype(dtype, self.opset)
        saturate = 0 if dtype.name.startswith("f8") else None
        result = self.Cast(x, to=number, saturate=saturate, dtype=dtype)
        if x.compact is not None:
            result.compact = self.cast(x.compact, dtype)
        return result

    def reshape(self, x: Array, shape: Sequence[Any]) -> Array:
        """x under another shape; one run-time size is left for ONNX to work out."""
        shape = tuple(shape)
        if x.value is not None and all(type(n) is int for n in shape):
            return self.const(x.value.reshape(shape), x.dtype)
        if x.shape_ == shape:
            return x
        open_ = [i for i, n in enumerate(shape) if type(n) is not int]
        if len(open_) == 1 and 0 not in shape:
            target = self.const(np.array([-1 if i in open_ else n for i, n in enumerate(shape)], np.int64))
        else:
            target = self.vector(shape)
        # A size of zero must mean zero; without allowzero it would mean "as in the operand".
        return self.Reshape(x, target, allowzero=1 if open_ or 0 in shape else None, shape=shape)

    def expand(self, x: Array, shape: Sequence[Any]) -> Array:
        """x repeated to ``shape`` by ONNX broadcasting; keeps x at hand for operators that broadcast."""
        shape = tuple(shape)
        if x.shape_ == shape:
            return x
        if 0 in shape:  # ONNX Runtime expands 1 to 0 as if it were 1: cut to nothing instead
            x = self.unsqueeze(x, list(range(len(shape) - x.rank)))
            empty = [a for a, n in enumerate(shape) if type(n) is int and n == 0]
            x = self.slice(x, [0] * len(empty), [0] * len(empty), empty)
            return self.Expand(x, self.vector(shape), shape=shape)
        result = self.Expand(x, self.vector(shape), shape=shape)
        result.compact = x
        return result

    def full(self, value: Any, dtype: DType, shape: Sequence[Any]) -> Array:
        return self.expand(self.const(np.asarray(value), dtype), shape)

    def unsqueeze(self, x: Array, axes: Sequence[int]) -> Array:
        """x with new axes of size 1 at these places of the result."""
        if not axes:
            return x
        rank = x.rank + len(axes)
        rest = iter(x.shape)
        shape = tuple(1 if i in axes else next(rest) for i in range(rank))
        if x.value is not None:
            return self.const(x.value.reshape(shape), x.dtype)
        return self.Unsqueeze(x, self.const(np.array(sorted(axes), np.int64)), shape=shape)

    def squeeze(self, x: Array, axes: Sequence[int]) -> Array:
        if not axes:
            return x
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        return self.Squeeze(x, self.const(np.array(sorted(axes), np.int64)), shape=shape)

    def transpose(self, x: Array, permutation: Sequence[int]) -> Array:
        if tuple(permutation) == tuple(range(x.rank)):
            return x
        result = self.Transpose(x, perm=list(permutation), shape=tuple(x.shape[p] for p in permutation))
        if 2 < x.rank <= list(permutation).index(0) + 2:
            self._turned[result.name] = (x, permutation)
        return result

    def concat(self, xs: Sequence[Array], axis: int) -> Array:
        if len(xs) == 1:
            return xs[0]
        total = xs[0].shape[axis]
        for x in xs[1:]:
            total = total + x.shape[axis]
        shape = (*xs[0].shape[:axis], total, *xs[0].shape[axis + 1 :])
        return self.Concat(*xs, axis=axis, shape=shape)

    def slice(
        self,
        x: Array,
        starts: Sequence[Any],
        ends: Sequence[Any],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Array:
        """Slice with bounds inside x (ints or Sizes)."""
        steps = steps or [1] * len(axes)
        shape = list(x.shape)
        for a, lo, hi, s in zip(axes, starts, ends, steps, strict=True):
            shape[a] = (hi - lo + s - 1) // s
        return self.Slice(
            x, self.vector(starts), self.vector(ends), self.const(np.array(axes, np.int64)),
            None if set(steps) <= {1} else self.const(np.array(steps, np.int64)), shape=shape,
        )  # fmt: skip

    def flip(self, x: Array, axes: Sequence[int]) -> Array:
        """x with the order along these axes turned round."""
        if not axes:
            return x
        ends = self.const(np.full(len(axes), np.iinfo(np.int64).min, np.int64))
        minus = self.const(np.full(len(axes), -1, np.int64))
        return self.Slice(x, minus, ends, self.const(np.array(axes, np.int64)), minus, shape=x.shape)

    def reduce(self, op_type: str, x: Array, axes: Sequence[int], keepdims: bool = False) -> Array:
        """A Reduce* operator; axes became an operand in opset 18 (13 for ReduceSum)."""
        if not axes:
            return x
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
        axes = sorted(axes)
        if self.opset >= 18 or op_type == "ReduceSum":
            return self.emit(op_type, (x, self.const(np.array(axes, np.int64))), keepdims=int(keepdims), shape=shape)
        return self.emit(op_type, (x,), axes=list(axes), keepdims=int(keepdims), shape=shape)

    def where(self, condition: Array, yes: Any, no: Any) -> Array:
        return self.Where(condition, yes, no)

    def all_of(self, *conditions: Array) -> Array:
        result = conditions[0]
        for c in conditions[1:]:
            result = self.And(result, c)
        return result

    def any_of(self, *conditions: Array) -> Array:
        result = conditions[0]
        for c in conditions[1:]:
            result = self.Or(result, c)
        return result

    def iota(self, n: Any, dtype: DType = i64) -> Array:
        """0, 1, ... n-1 as a vector."""
        if type(n) is int:
            return self.const(np.arange(n).astype(dtype.numpy), dtype)
        return self.cast(self.Range(self.const(0), self.scalar(n), self.const(1), shape=(n,)), dtype)

    # -- sub-graphs --------------------------------------------------------------------------------

    @contextmanager
    def frame(self) -> Any:
        """A sub-graph under construction; it may read everything around it."""
        frame = Frame()
        self.frames.append(frame)
        try:
            yield frame
        finally:
            self.frames.pop()

    def subgraph(self, name: str, inputs: Sequence[Array], function: Callable[..., Sequence[Array]]) -> onnx.GraphProto:
        """The graph attribute in which ``function(*inputs)`` is computed; inputs are fresh handles."""
        with self.frame() as frame:
            results: list[Array] = []
            for r in function(*inputs):
                # An output must be made inside, and be named once.
                if (r.name or "") not in frame.made or r.name in {x.name for x in results}:
                    r = Array(self, *self._fresh_identity(r))
                results.append(r)
            takes, gives = ([self.info(x) for x in xs] for xs in (inputs, results))
            return helper.make_graph(frame.nodes, self.fresh(name), takes, gives)

    def loop(
        self,
        count: Array | None,
        carry: Sequence[Array],
        step: Callable[..., Sequence[Array]],
        stacked: int = 0,
        condition: Callable[..., Array] | None = None,
    ) -> tuple[Array, ...]:
        """A Loop: ``step(i, *carry)`` gives the new carry, then ``stacked`` values that pile up along a new axis.

        It runs ``count`` times (None: without end), and while ``condition(*carry)`` holds where there is one.
        """
        go = self.const(np.asarray(True)) if condition is None else condition(*carry)
        i = Array(self, self.fresh("i"), i64, ())
        running = Array(self, self.fresh("running"), bool_, ())
        inside = [
            self.placeholder(f"carry_{k}", c.dtype, [n if type(n) is int else None for n in c.shape])
            for k, c in enumerate(carry)
        ]

        def body(i: Array, running: Array, *state: Array) -> list[Array]:
            results = list(step(i, *state))
            new = results[: len(carry)]
            return [running if condition is None else condition(*new), *results]

        graph = self.subgraph("loop", [i, running, *inside], body)
        kinds = [FROM_ONNX[out.type.tensor_type.elem_type] for out in graph.output[1:]]
        shapes = [*(c.shape for c in carry), *[None] * stacked]
        result = self.emit("Loop", (count, go, *carry), outputs=len(kinds), dtype=kinds, shapes=shapes, body=graph)
        return result if isinstance(result, tuple) else (result,)

    def _fresh_identity(self, x: Array) -> tuple[str, DType, Shape | None]:
        self._count += 1
        name = self.fresh(f"{self.scope}/Identity_{self._count}" if self.scope else f"Identity_{self._count}")
        frame = self.frames[-1]
        frame.nodes.append(helper.make_node("Identity", [self._name_of(x)], [name], name=name))
        frame.made.add(name)
        return name, x.dtype, x.shape_

    def placeholder(self, stem: str, dtype: DType, shape: Sequence[Any]) -> Array:
        """A handle for an input of a sub-graph; shape entries that are not ints are read at run time."""
        return self.typed(Array(self, self.fresh(stem), dtype, None), shape)

    def info(self, x: Array) -> onnx.ValueInfoProto:
        """The declared type of a sub-graph's input or output: run-time sizes stay open."""
        shape = None if x.shape_ is None else [n if type(n) is int else None for n in x.shape_]
        return helper.make_tensor_value_info(x.name, to_onnx_dtype(x.dtype, self.opset), shape)

    def wide(self, x: Array) -> tuple[Array, DType]:
        """x in f64 for functions composed of several steps, and the dtype to come back to."""
        return self.cast(x, f64), x.dtype
