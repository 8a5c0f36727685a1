"""The torch table: every op as plain torch functions, eager or traced, on CPU or CUDA."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from unigraph.errors import Gaps
from unigraph.evaluate import Program, Row, Table, decomposition
from unigraph.graph import Graph, Operation
from unigraph.opdef import OpDef
from unigraph.types import TensorType

from . import collective, contract, control, elementwise, index, linalg, movement, nn, random, reduce, sort, special
from .dtypes import TO_TORCH, from_numpy


class TorchTable(Table):
    """Rows over torch tensors: differentiable, and traceable where no value decides what happens next."""

    name = "torch"

    def __init__(self, *parts: Mapping[OpDef, Row]):
        super().__init__(*parts)
        self._program = functools.lru_cache(maxsize=1024)(lambda graph: Program(graph, self))

    def constant(self, array: Any, type_: TensorType) -> Any:
        """A tensor over the memory of ``array``."""
        return from_numpy(array)

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation.op in random.KEYED:
            kwargs = {**kwargs, "impl": operation.inputs[0].type.dtype.name[4:-1]}
        result = row(*args, **kwargs)
        return self.decomposed(operation, args) if result is NotImplemented else result

    def decomposed(self, operation: Operation, args: list[Any]) -> Any:
        """A composite that torch's own function does not fit, run as what it stands for."""
        results = self._program(decomposition(operation)).run(args)
        single = len(operation.outputs) == 1 and "tuple" not in operation.op.properties
        return results[0] if single else results

    def region(self, program: Program, symbols: Mapping[str, Any]) -> Row:
        return control.Region(program, symbols)

    def _find_gaps(self, graph: Graph, gaps: Gaps, seen: set[Graph]) -> None:
        super()._find_gaps(graph, gaps, seen)
        for value in graph.nodes:
            if value.type.dtype not in TO_TORCH:
                gaps.add(f"values of {value.type.dtype}", f"torch {torch.__version__} has no such dtype", value.name)


PARTS = (
    elementwise.ROWS,
    special.ROWS,
    movement.ROWS,
    index.ROWS,
    reduce.ROWS,
    contract.ROWS,
    sort.ROWS,
    linalg.ROWS,
    random.ROWS,
    control.ROWS,
    collective.ROWS,
    nn.ROWS,
)
TABLE = TorchTable(*PARTS)
