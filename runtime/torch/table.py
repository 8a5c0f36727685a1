"""The torch table: every op as plain torch functions, eager or traced, on CPU or CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unigraph.errors import Gaps
from unigraph.evaluate import Program, Row, Table
from unigraph.graph import Graph, Operation
from unigraph.types import TensorType

from . import collective, contract, control, elementwise, index, linalg, movement, nn, random, reduce, sort, special
from .dtypes import TO_TORCH, from_numpy


class TorchTable(Table):
    """Rows over torch tensors: differentiable, and traceable where no value decides what happens next."""

    name = "torch"
    derives = True

    def constant(self, array: Any, type_: TensorType) -> Any:
        """A tensor over the memory of ``array``."""
        return from_numpy(array)

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation.op in random.KEYED:
            kwargs = {**kwargs, "impl": operation.inputs[0].type.dtype.name[4:-1]}
        return row(*args, **kwargs)

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
