"""Nodes whose operands are all known at import are computed at once: conditions, scales and sizes come to be known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unigraph.builder import GraphBuilder
from unigraph.errors import UnigraphError
from unigraph.evaluate import Program
from unigraph.graph import CONSTANT, Value
from unigraph.runtime.numpy.table import TABLE

from .import_sizes import MAX_ELEMENTS
from .node import Node, Operand, Sizes

MAX_EDGES = 64  # operations a node may stand for and still be computed here


def is_known(b: GraphBuilder, x: Operand) -> bool:
    """Whether an operand is a small array known at import (or absent)."""
    if isinstance(x, Sizes):
        return x.is_static
    if isinstance(x, Value):
        return x.role == CONSTANT and x.type.is_static and int(math.prod(x.type.shape)) <= MAX_ELEMENTS
    return x is None


def folded(n: Node, row: Callable[[Node], Any]) -> list[Operand] | None:
    """What a node gives, as constants; None when it is no computation on known arrays."""
    present = [x for x in n.inputs if x is not None]
    if not present or not all(is_known(n.b, x) for x in present) or any(hasattr(a, "node") for a in n.attrs.values()):
        return None
    scratch = GraphBuilder("fold")
    inputs = [scratch.constant(n.b.array(x)) if isinstance(x, Value) else x for x in n.inputs]
    importer = n.importer
    before, importer.b = importer.b, scratch
    keys = len(importer.key_uses)
    try:
        inner = Node(scratch, n.op_type, n.opset, inputs, n.attrs, n.outputs, importer, n.env)
        result = row(inner)
        results = list(result) if isinstance(result, tuple) else [result]
        if len(importer.key_uses) != keys or not _small(scratch, results):
            return None
        values = [x for x in results if isinstance(x, Value)]
        arrays = Program(scratch.build(tuple(values)), TABLE).run([]) if values else ()
    except UnigraphError:
        return None  # lowered again where errors are reported
    finally:
        importer.b = before
        del importer.key_uses[keys:]
    known = iter(arrays)
    return [importer.held_constant(np.asarray(next(known))) if isinstance(x, Value) else x for x in results]


def _small(b: GraphBuilder, results: Sequence[Operand]) -> bool:
    if any(isinstance(x, list) for x in results) or len(b.edges) > MAX_EDGES:
        return False
    types = [v.type for op in b.edges for v in op.outputs]
    if any(op.regions for op in b.edges):
        return False
    return all(t.is_static and math.prod(t.shape) <= 4 * MAX_ELEMENTS for t in types)
