"""The command line: every command prints for a person, or JSON with ``--json``; errors exit with 1."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError, UnigraphError
from .graph import Graph

Result = tuple[str, Any]  # what to print for a person, what to print as JSON


# -- files -----------------------------------------------------------------------------------------


def read(path: str, options: argparse.Namespace | None = None) -> Graph:
    """A graph from ``.ugraph``, ``.onnx``, ``.pt2``, text (``.txt``) or ``module.py:function``.

    Raises InputError for another extension, and what the converter raises.
    """
    import unigraph as ug

    file, _, name = path.partition(":") if ".py:" in path else (path, "", "")
    suffix = Path(file).suffix
    if not Path(file).exists():
        raise InputError(f"there is no file {file!r}")
    if suffix == ".ugraph":
        return ug.load(file, weights=getattr(options, "weights", None))
    if suffix == ".onnx":
        return ug.from_onnx(file)
    if suffix == ".pt2":
        return ug.from_torch(file)
    if suffix == ".txt":
        return ug.parse(Path(file).read_text())
    if suffix == ".py":
        return read_python(file, name, getattr(options, "input", None) or [], getattr(options, "framework", "auto"))
    raise InputError(f"cannot read {path!r}: give .ugraph, .onnx, .pt2, .txt or module.py:function")


def write(graph: Graph, path: str) -> None:
    """Write a graph by extension: ``.ugraph``, ``.onnx``, ``.pt2``, ``.py`` (source) or ``.txt``."""
    import unigraph as ug

    suffix = Path(path).suffix
    if suffix == ".ugraph":
        ug.save(graph, path)
    elif suffix == ".onnx":
        from .converters.onnx import save_onnx

        save_onnx(graph, path)
    elif suffix == ".pt2":
        from .converters.torch_fx.export import save_pt2

        save_pt2(graph, path)
    elif suffix == ".py":
        ug.to_source(graph, path=path)
    elif suffix == ".txt":
        from .file import atomic

        with atomic(path) as file:
            file.write(graph.text(full=True).encode())
    else:
        raise InputError(f"cannot write {path!r}: give .ugraph, .onnx, .pt2, .py or .txt")


def read_python(file: str, name: str, inputs: Sequence[str], framework: str) -> Graph:
    """Capture an object of a Python file (which is run, as it is the user's own program).

    ``name`` is a torch module, a function of arrays, or a function without parameters that returns
    a graph or ``(program, args)`` or ``(program, args, options)``. ``inputs`` are types such as
    ``f32[batch,3]`` for a program that needs example inputs; named sizes stay free.
    Raises InputError when the file has no such object or inputs are missing.
    """
    import inspect
    import runpy

    import unigraph as ug

    if not name:
        raise InputError(f"say which object of {file} to capture: {file}:function")
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        found = runpy.run_path(file)
    finally:
        sys.path.pop(0)
    if name not in found:
        raise InputError(f"{file} defines no {name!r}; it defines {', '.join(k for k in found if k[0] != '_')}")
    program = found[name]
    args, options = example_inputs(inputs)
    if not inputs and inspect.isfunction(program) and not inspect.signature(program).parameters:
        made = program()
        if isinstance(made, Graph):
            return made
        if not isinstance(made, tuple) or len(made) not in (2, 3):
            raise InputError(f"{file}:{name}() must return a graph, (program, args) or (program, args, options)")
        program, args, options = (*made, {}) if len(made) == 2 else made
    elif not inputs:
        raise InputError(f"{file}:{name} needs example inputs: --input 'f32[batch,3]' for each")
    if framework == "auto":
        framework = guess_framework(program, found)
    capture: Callable[..., Graph] = {"torch": ug.from_torch, "jax": ug.from_jax}[framework]
    if framework == "torch":
        return capture(program, _as_torch(args), **options)
    return capture(program, *args, **options)


def guess_framework(program: Any, found: Mapping[str, Any]) -> str:
    """``torch`` for torch modules, else by what the file imports. Raises InputError when both or none."""
    if any(c.__module__.startswith("torch.") for c in type(program).__mro__):
        return "torch"
    used = {getattr(v, "__name__", "").split(".")[0] for v in found.values() if type(v) is type(sys)}
    frameworks = used & {"torch", "jax"}
    if len(frameworks) != 1:
        raise InputError("cannot tell the framework of this function: give --framework torch or --framework jax")
    return frameworks.pop()


def _as_torch(args: Any) -> Any:
    import torch

    if isinstance(args, (tuple, list)):
        return tuple(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in args)
    return args


def example_inputs(texts: Sequence[str]) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
    """Arrays of ones for types such as ``f32[batch,3]``, and ``dynamic`` naming their free sizes."""
    from .dtypes import dtype

    arrays, dynamic, sizes = [], [], {}
    for text in texts:
        kind, _, rest = text.partition("[")
        dims = [d.strip() for d in rest.rstrip("]").split(",") if d.strip()]
        shape = tuple(int(d) if d.isdigit() else sizes.setdefault(d, 3 + len(sizes)) for d in dims)
        arrays.append(np.ones(shape, dtype(kind).numpy))
        dynamic.append(tuple(None if d.isdigit() else d for d in dims))
    return tuple(arrays), ({"dynamic": tuple(dynamic)} if sizes else {})


def given_inputs(texts: Sequence[str]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Inputs from ``x.npy``, ``x=x.npy`` or ``all.npz``: positional ones and named ones.

    Raises InputError for a file that is missing or not an array file.
    """
    args: list[np.ndarray] = []
    named: dict[str, np.ndarray] = {}
    for text in texts:
        name, _, path = text.rpartition("=")
        try:
            data = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read input {path!r}: {error}") from None
        if isinstance(data, np.ndarray):
            if name:
                named[name] = data
            else:
                args.append(data)
        else:
            named.update({k: data[k] for k in data.files})
    return args, named


# -- commands --------------------------------------------------------------------------------------


def cmd_export(o: argparse.Namespace) -> Result:
    graph = read(o.program, o)
    write(graph, o.output)
    return f"{graph!r}\nwritten to {o.output}", _summary(graph, o.output)


def cmd_convert(o: argparse.Namespace) -> Result:
    graph = read(o.source, o)
    write(graph, o.target)
    return f"{o.source} -> {o.target}\n{graph!r}", _summary(graph, o.target)


def cmd_run(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    args, named = given_inputs(o.input or [])
    start = time.perf_counter()
    result = ug.run(graph, *args, engine=o.engine, device=o.device, seed=o.seed, keep=o.keep or None, **named)
    seconds = time.perf_counter() - start
    result, kept = result if o.keep else (result, {})
    from .tree import flatten

    leaves, tree = flatten(result)
    names = [p or "output" for p in tree.paths()]
    outputs = {**dict(zip(names, map(np.asarray, leaves))), **{k: np.asarray(v) for k, v in kept.items()}}
    if o.output:
        from .file import atomic

        with atomic(o.output) as file:
            np.savez(file, **{k.replace("/", "_"): v for k, v in outputs.items()})
    lines = [
        f"{name}: {a.dtype}{list(a.shape)}\n{np.array2string(a, threshold=20, precision=6)}"
        for name, a in outputs.items()
    ]
    data = {name: {"dtype": str(a.dtype), "shape": list(a.shape), "data": _plain(a)} for name, a in outputs.items()}
    if o.output:
        lines.append(f"written to {o.output}")
    return "\n".join(lines), {"engine": o.engine, "seconds": seconds, "outputs": data}


def cmd_show(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    if o.stats:
        figures = ug.stats(graph)
        return str(figures), figures.to_dict()
    if o.dot:
        from .dot import to_dot

        text = to_dot(graph)
        return text, {"dot": text}
    text = graph.text(full=o.full)
    return text, {"text": text}


def cmd_check(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    ug.check(graph)
    return f"{o.graph} is well formed: {graph!r}", {"ok": True, **_summary(graph, o.graph)}


def cmd_optimize(o: argparse.Namespace) -> Result:
    import unigraph as ug

    graph = read(o.graph, o)
    if o.outputs:
        graph = ug.passes.prune(graph, outputs=[int(x) if x.lstrip("-").isdigit() else x for x in o.outputs])
    graph, reports = ug.optimize(graph, level=o.level, explain=True)
    write(graph, o.output)
    lines = [*map(str, reports), f"written to {o.output}"]
    data = [{"pass": r.name, "operations": r.operations, "peak_bytes": r.peak, "notes": r.notes} for r in reports]
    return "\n".join(lines), {"passes": data, **_summary(graph, o.output)}


def cmd_diff(o: argparse.Namespace) -> Result:
    import unigraph as ug

    a, b = read(o.a, o), read(o.b or o.a, o)
    args, named = given_inputs(o.input or [])
    found = ug.diff((a, o.engine_a), (b, o.engine_b), named or args, seed=o.seed or 0)
    lines = [str(found), *(f"  {p}" for p in found.parts[1 : o.limit])]
    data = {"compared": found.compared, "largest": found.largest, "parts": [vars(p) for p in found.parts]}
    if found.parts:
        raise Differs("\n".join(lines), data)
    return "\n".join(lines), data


def cmd_ops(o: argparse.Namespace) -> Result:
    from .opdef import REQUIRED, registry

    ops = registry()
    if o.name:
        if o.name not in ops:
            raise InputError(f"there is no op {o.name!r}; `unigraph ops` lists them")
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


def cmd_doctor(o: argparse.Namespace) -> Result:
    import importlib.metadata
    import platform

    from .runtime.engines import available

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


# -- the parser ------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="unigraph", description="Capture, convert, inspect and run graphs of numerical programs."
    )
    parser.add_argument("--version", action="version", version=f"unigraph {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], Result], text: str, example: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="print JSON for a machine")
        sub.set_defaults(run=run)
        return sub

    def inputs(sub: argparse.ArgumentParser, text: str) -> None:
        sub.add_argument("--input", "-i", action="append", metavar="INPUT", help=text)

    arrays = "x.npy, name=x.npy or all.npz; repeat for several"
    sub = command(
        "export",
        cmd_export,
        "capture a Python program into a file",
        "unigraph export model.py:net -i 'f32[batch,3]' -o m.ugraph",
    )
    sub.add_argument("program", help="module.py:function (a program, or a function that returns program and inputs)")
    sub.add_argument("--output", "-o", required=True, help="the file to write")
    sub.add_argument("--framework", choices=["auto", "torch", "jax"], default="auto")
    inputs(sub, "a type such as 'f32[batch,3]'; repeat for several")

    sub = command(
        "convert", cmd_convert, "convert between files, by extension", "unigraph convert model.onnx model.ugraph"
    )
    sub.add_argument("source", help=".ugraph, .onnx, .pt2, .txt or module.py:function")
    sub.add_argument("target", help=".ugraph, .onnx, .pt2, .py or .txt")

    sub = command(
        "run", cmd_run, "run a graph on arrays", "unigraph run m.ugraph --input x.npy --engine torch -o out.npz"
    )
    sub.add_argument("graph")
    inputs(sub, arrays)
    sub.add_argument("--engine", default="auto", help="auto, numpy, torch, jax or onnx")
    sub.add_argument("--device", help="cpu, cuda, cuda:N or tpu")
    sub.add_argument("--seed", type=int, help="seed of the random keys")
    sub.add_argument(
        "--keep", action="append", metavar="NAME", help="also give this intermediate value; repeat for several"
    )
    sub.add_argument("--weights", help="safetensors file (or glob) to bind by name")
    sub.add_argument("--output", "-o", help="write the results to this .npz file")

    sub = command("show", cmd_show, "print a graph", "unigraph show m.ugraph --stats")
    sub.add_argument("graph")
    sub.add_argument("--stats", action="store_true", help="counts, parameters, memory")
    sub.add_argument("--dot", action="store_true", help="Graphviz DOT")
    sub.add_argument("--full", action="store_true", help="with all data, so that it parses back completely")

    sub = command(
        "check", cmd_check, "check a file: structure, and every type inferred anew", "unigraph check m.ugraph"
    )
    sub.add_argument("graph")

    sub = command("optimize", cmd_optimize, "run the passes", "unigraph optimize m.ugraph -o fast.ugraph --level 3")
    sub.add_argument("graph")
    sub.add_argument("--output", "-o", required=True, help="the file to write")
    sub.add_argument("--level", type=int, default=2, choices=range(4))
    sub.add_argument("--outputs", action="append", metavar="NAME", help="keep only this output; repeat for several")

    sub = command(
        "diff",
        cmd_diff,
        "find the first value at which two graphs or engines part ways",
        "unigraph diff m.ugraph --engine-b torch -i x.npy",
    )
    sub.add_argument("a")
    sub.add_argument("b", nargs="?", help="the other graph (default: the same one)")
    inputs(sub, arrays)
    sub.add_argument("--engine-a", default="numpy")
    sub.add_argument("--engine-b", default="numpy")
    sub.add_argument("--seed", type=int, help="seed of the random keys")
    sub.add_argument("--limit", type=int, default=5, help="how many differing values to list")

    sub = command("ops", cmd_ops, "list the ops, or explain one", "unigraph ops pad")
    sub.add_argument("name", nargs="?")

    command("doctor", cmd_doctor, "tell what is installed and which engines and devices work", "unigraph doctor")
    return parser


def _version() -> str:
    from unigraph import __version__

    return __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for an error, 2 for wrong usage."""
    options = _parser().parse_args(argv)
    try:
        text, data = options.run(options)
    except Differs as error:
        print(json.dumps(error.data) if options.json else error)
        return 1
    except (UnigraphError, OSError, ImportError) as error:
        print(json.dumps({"error": str(error)}) if options.json else f"unigraph: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    print(json.dumps(data) if options.json else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
