"""What is in a graph: operations, parameters, memory, depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from . import dims
from .graph import BUFFER, CONSTANT, STATE, WEIGHT, Graph, GraphLike, Operation, Value, as_graph
from .memory import least_sizes, peak_bytes, type_bytes, value_bytes


@dataclass
class Stats:
    """Figures of one graph.

    ``counts`` are operations by name, those inside regions included (once, however often a loop
    runs). ``parameters`` counts the elements of all weights. ``peak_bytes`` estimates the most memory
    that inputs and intermediate values take at once when run in order; weights, states and constants
    come on top. ``depth`` is the longest chain of operations. ``sizes`` are the sizes assumed.
    """

    name: str
    operations: int
    counts: dict[str, int]
    inputs: int
    outputs: int
    weights: int
    parameters: int
    weight_bytes: int
    state_bytes: int
    constant_bytes: int
    peak_bytes: int
    depth: int
    sizes: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [
            ("graph", self.name or "unnamed"),
            ("operations", f"{self.operations:,}"),
            ("depth", f"{self.depth:,}"),
            ("inputs, outputs", f"{self.inputs}, {self.outputs}"),
            ("weights", f"{self.weights:,} ({self.parameters:,} parameters, {bytes_text(self.weight_bytes)})"),
            ("states", bytes_text(self.state_bytes)),
            ("constants", bytes_text(self.constant_bytes)),
            ("peak of values", bytes_text(self.peak_bytes)),
        ]
        if self.sizes:
            rows.append(("with sizes", ", ".join(f"{k}={v}" for k, v in self.sizes.items())))
        width = max(len(label) for label, _ in rows)
        lines = [f"{label:<{width}}  {text}" for label, text in rows]
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        lines += ["", *(f"{count:>9,}  {name}" for name, count in ordered)]
        return "\n".join(lines)


def bytes_text(n: int) -> str:
    """``n`` bytes for people: ``1.5 MB``."""
    size = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@dataclass
class _Measure:
    counts: Counter[str]
    peak: int
    depth: int
    constants: int


def stats(graph: GraphLike, sizes: Mapping[str, int] | None = None) -> Stats:
    """The figures of ``graph``. Symbols not in ``sizes`` count with the least size they allow above 0.

    Linear in the number of operations. Raises nothing of its own for a well-formed graph.
    """
    graph = as_graph(graph)
    assumed = least_sizes(graph, sizes)
    measure = _measure(graph, assumed, {})
    weights = [v for v in graph.data if v.role in (WEIGHT, BUFFER)]
    return Stats(
        name=graph.name,
        operations=sum(measure.counts.values()),
        counts=dict(measure.counts),
        inputs=len(graph.inputs),
        outputs=len(graph.outputs),
        weights=len(weights),
        parameters=sum(_evaluate(v.type.size, assumed) for v in weights),
        weight_bytes=sum(type_bytes(v.type, assumed) for v in weights),
        state_bytes=sum(type_bytes(v.type, assumed) for v in graph.data if v.role == STATE),
        constant_bytes=measure.constants,
        peak_bytes=measure.peak,
        depth=measure.depth,
        sizes=dict(assumed),
    )


def _evaluate(size: Any, sizes: Mapping[str, int]) -> int:
    return size if type(size) is int else int(dims.evaluate(size, sizes))


def _measure(graph: Graph, sizes: Mapping[str, int], seen: dict[int, _Measure]) -> _Measure:
    if id(graph) in seen:  # a region used several times is measured once
        return seen[id(graph)]
    counts: Counter[str] = Counter()
    size = value_bytes(graph, sizes)
    constants = sum(size[v] for v in graph.data if v.role == CONSTANT)
    held: dict[Operation, int] = {}
    depth: dict[Value, int] = {}
    longest = 0
    for operation in graph.edges:
        counts[operation.op.name] += 1
        inside = 0
        for region in operation.regions:
            measure = _measure(region, sizes, seen)
            counts.update(measure.counts)
            held[operation] = max(held.get(operation, 0), measure.peak)
            inside = max(inside, measure.depth)
            constants += measure.constants
        level = 1 + inside + max((depth.get(v, 0) for v in operation.inputs), default=0)
        longest = max(longest, level)
        for value in operation.outputs:
            depth[value] = level
    seen[id(graph)] = _Measure(counts, peak_bytes(graph, graph.edges, size, held), longest, constants)
    return seen[id(graph)]
