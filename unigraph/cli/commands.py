"""The commands: each gives what to print for a person, and the same as data for JSON."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import EngineError, InputError, UnigraphError
from ..graph import Graph
from ..types import shown
from .files import given_inputs, given_sizes, made_inputs, read, write

Result = tuple[str, Any]  # what to print for a person, what to print as JSON


def export(o: argparse.Namespace) -> Result:
    graph = read(o.program, o)
    write(graph, o.output)
    return f"{graph!r}\nwritten to {o.output}", _summary(graph, o.output)


def convert(o: argparse.Namespace) -> Result:
    graph = read(o.source, o)
    write(graph, o.target, o.library)
    return f"{o.source} -> {o.target}\n{graph!r}", _summary(graph, o.target)


def run(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    args, named = given_inputs(o.input or [])
    start = time.perf_counter()
    if o.keep:
        engine = o.engine
        result, kept = ug.run(graph, *args, engine=engine, device=o.device, seed=o.seed, keep=o.keep, **named)
    else:
        compiled = ug.compile(graph, o.engine, o.device)
        result, kept = compiled(*args, seed=o.seed, **named), {}
        engine = compiled.engine  # the one that "auto" has chosen
    seconds = time.perf_counter() - start
    from ..tree import flatten

    leaves, tree = flatten(result)
    names = [p or "output" for p in tree.paths()]
    outputs = {**dict(zip(names, map(np.asarray, leaves))), **{k: np.asarray(v) for k, v in kept.items()}}
    if o.output:
        from ..file import atomic

        with atomic(o.output) as file:
            named_outputs: dict[str, Any] = {k.replace("/", "_"): v for k, v in outputs.items()}
            np.savez(file, **named_outputs)
    lines = [
        f"{name}: {shown(a.dtype, a.shape)}\n{np.array2string(a, threshold=20, precision=6)}"
        for name, a in outputs.items()
    ]
    data = {name: {"dtype": str(a.dtype), "shape": list(a.shape), "data": _plain(a)} for name, a in outputs.items()}
    if o.output:
        lines.append(f"written to {o.output}")
    return "\n".join(lines), {"engine": engine, "seconds": seconds, "outputs": data}


def tune(o: argparse.Namespace) -> Result:
    """Measure every way to run the graph; what auto takes from then on."""
    return _measured(o, None)


def bench(o: argparse.Namespace) -> Result:
    """Measure the engines asked for, all without more; nothing is remembered."""
    from ..runtime.engines import ENGINES

    return _measured(o, o.engine or tuple(ENGINES))


def _measured(o: argparse.Namespace, engines: Sequence[str] | None) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    args, named = given_inputs(o.input or [])
    if not args and not named:
        named = made_inputs(graph, given_sizes(o.size or []))
    elif o.size:
        raise InputError("give --input or --size, not both")
    tuning = ug.tune(graph, *args, budget=o.budget, device=o.device, engines=engines, **named)
    if tuning.best is None:
        raise EngineError(f"nothing can run {o.graph} here:\n{tuning}")
    return str(tuning), tuning.to_dict()


def show(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    if o.stats:
        figures = ug.stats(graph)
        return str(figures), figures.to_dict()
    if o.dot:
        from ..dot import to_dot

        text = to_dot(graph)
        return text, {"dot": text}
    text = graph.text(full=o.full)
    return text, {"text": text}


def check(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    ug.check(graph)
    return f"{o.graph} is well formed: {graph!r}", {"ok": True, **_summary(graph, o.graph)}


def optimize(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    if o.outputs:
        graph = ug.passes.prune(graph, outputs=[int(x) if x.lstrip("-").isdigit() else x for x in o.outputs])
    graph, reports = ug.optimize(graph, level=o.level, explain=True)
    write(graph, o.output)
    lines = [*map(str, reports), f"written to {o.output}"]
    data = [{"pass": r.name, "operations": r.operations, "peak_bytes": r.peak, "notes": r.notes} for r in reports]
    return "\n".join(lines), {"passes": data, **_summary(graph, o.output)}


def diff(o: argparse.Namespace) -> Result:
    import unigraph as ug

    a, b = read(o.a, o), read(o.b or o.a, o)
    args, named = given_inputs(o.input or [])
    found = ug.diff((a, o.engine_a), (b, o.engine_b), named or args, seed=o.seed or 0)
    lines = [str(found), *(f"  {p}" for p in found.parts[1 : o.limit])]
    data = {"compared": found.compared, "largest": found.largest, "parts": [vars(p) for p in found.parts]}
    if found.parts:
        raise Differs("\n".join(lines), data)
    return "\n".join(lines), data


def ops(o: argparse.Namespace) -> Result:
    from ..opdef import REQUIRED, registry, unknown_op

    ops = registry()
    if o.name:
        if o.name not in ops:
            raise InputError(unknown_op(o.name))
        op = ops[o.name]
        attrs = {
            k: {"kind": a.kind, "doc": a.doc} | ({} if a.default is REQUIRED else {"default": repr(a.default)})
            for k, a in op.attrs.items()
        }
        lines = [f"{op.name}({', '.join(op.operands)})   [{op.family}]", "", op.doc, ""]
        lines += [
            f"  {k}: {a['kind']}{' = ' + a['default'] if 'default' in a else ''}  {a['doc']}" for k, a in attrs.items()
        ]
        return "\n".join(lines), {
            "name": op.name,
            "operands": op.operands,
            "family": op.family,
            "doc": op.doc,
            "attrs": attrs,
        }
    families: dict[str, list[str]] = {}
    for op in ops.values():
        families.setdefault(op.family, []).append(op.name)
    lines = [f"{family} ({len(names)}): {', '.join(names)}" for family, names in families.items()]
    return "\n".join([*lines, f"{len(ops)} ops"]), families


def doctor(o: argparse.Namespace) -> Result:
    import importlib.metadata
    import platform

    from ..runtime.engines import available

    packages = ("unigraph", "numpy", "protobuf", "ml_dtypes", "sympy", "torch", "jax", "jaxlib", "onnx", "onnxruntime")
    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    engines = {name: d if isinstance(d, list) else str(d).splitlines()[0] for name, d in available().items()}
    lines = [f"Python {platform.python_version()} on {platform.platform()}", ""]
    lines += [f"{name:<12} {version or 'not installed'}" for name, version in versions.items()]
    lines += ["", *(f"{name:<12} {', '.join(d) if isinstance(d, list) else d}" for name, d in engines.items())]
    return "\n".join(lines), {"python": platform.python_version(), "packages": versions, "engines": engines}


class Differs(UnigraphError):
    """Two sides of ``diff`` part ways: printed in full, exit status 1."""

    def __init__(self, text: str, data: Any):
        self.data = data
        super().__init__(text)


def _summary(graph: Graph, path: str) -> dict[str, Any]:
    return {
        "path": path,
        "inputs": {v.name: str(v.type) for v in graph.inputs},
        "outputs": [str(v.type) for v in graph.outputs],
        "operations": len(graph.edges),
        "weights": len(graph.weights),
    }


def _plain(a: np.ndarray) -> Any:
    """An array as JSON: numbers up to 1000 elements, nothing beyond (use --output for those)."""
    if a.size > 1000:
        return None
    return (
        np.vectorize(str, otypes=[object])(a).tolist()
        if a.dtype.kind == "c"
        else a.astype(a.dtype if a.dtype.kind in "biuf" else np.float64).tolist()
    )
