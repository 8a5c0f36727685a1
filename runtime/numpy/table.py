"""The reference table: what every op means on NumPy arrays. Clear and right first, fast second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unigraph import dims
from unigraph.evaluate import Program, Row, Table
from unigraph.graph import Operation

from . import collective, contract, control, elementwise, index, linalg, movement, random, reduce, sort, special


class Region:
    """A region as rows see it: called with arrays, it gives a tuple of arrays."""

    def __init__(self, program: Program, symbols: Mapping[str, Any]):
        self.program, self.symbols = program, symbols
        # True: takes arrays of any one shape where its types say scalar.
        self.elementwise = all(op.op.is_pointwise for op in program.graph.all_edges())

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return self.program.run(args, symbols=self.symbols)

    def results(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Shape and NumPy dtype of each result, told without running."""
        found = []
        for t in self.program.graph.out_types:
            words = (t.dtype.key_words,) if t.dtype.is_key else ()
            found.append(((*(dims.evaluate(d, self.symbols) for d in t.shape), *words), t.dtype.numpy))
        return found


class NumpyTable(Table):
    """Rows over NumPy arrays; regions know whether they are elementwise."""

    name = "numpy"

    def region(self, program: Program, symbols: Mapping[str, Any]) -> Region:
        return Region(program, symbols)

    def call(self, operation: Operation, row: Row, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation.op in random.KEYED:
            kwargs = {**kwargs, "impl": operation.inputs[0].type.dtype.name[4:-1]}
        return row(*args, **kwargs)


TABLE = NumpyTable(
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
)
