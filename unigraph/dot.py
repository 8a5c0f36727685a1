"""A graph as Graphviz DOT: values are ellipses, operations boxes."""

from __future__ import annotations

from .graph import CONSTANT, PRODUCED, Graph, Value

_COLOURS = {
    "input": "lightblue",
    "key": "lightblue",
    "weight": "lightyellow",
    "buffer": "lightyellow",
    "state": "lightyellow",
    "constant": "white",
}


def to_dot(graph: Graph) -> str:
    """DOT text; render it with ``dot -Tsvg``. Region bodies are named in the box, not drawn."""
    names = {v: f"v{i}" for i, v in enumerate(graph.nodes)}
    lines = [f"digraph {_quoted(graph.name or 'graph')} {{", "  node [fontname=monospace fontsize=10];"]
    used = {v for op in graph.edges for v in op.inputs} | set(graph.results)
    for v in graph.nodes:
        if v in used or v.role == PRODUCED:
            lines.append(
                f"  {names[v]} [label={_quoted(_label(v))} style=filled fillcolor={_COLOURS.get(v.role, 'white')}];"
            )
    for i, op in enumerate(graph.edges):
        regions = "".join(f"\n{{{len(r.edges)} operations}}" for r in op.regions)
        scope = f"\n{op.scope}" if op.scope else ""
        lines.append(f"  o{i} [shape=box label={_quoted(op.op.name + scope + regions)}];")
        lines += [f"  {names[v]} -> o{i};" for v in op.inputs]
        lines += [f"  o{i} -> {names[v]};" for v in op.outputs]
    for i, v in enumerate(graph.outputs):
        lines += [f"  out{i} [shape=plaintext label={_quoted(f'output {i}')}];", f"  {names[v]} -> out{i};"]
    return "\n".join([*lines, "}"])


def _label(v: Value) -> str:
    name = v.name or (CONSTANT if v.role == CONSTANT else "")
    return f"{name}\n{v.type}" if name else str(v.type)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
