"""What the command line reads and writes: graphs by file extension, programs of Python files, arrays."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph import Graph


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


def write(graph: Graph, path: str, library: str = "torch") -> None:
    """Write a graph by extension: ``.ugraph``, ``.onnx``, ``.pt2``, ``.py`` (source) or ``.txt``."""
    import unigraph as ug

    suffix = Path(path).suffix
    if suffix == ".ugraph":
        ug.save(graph, path)
    elif suffix == ".onnx":
        from ..converters.onnx import save_onnx

        save_onnx(graph, path)
    elif suffix == ".pt2":
        from ..converters.torch_fx.pt2 import save_pt2

        save_pt2(graph, path)
    elif suffix == ".py":
        ug.to_source(graph, library, path)
    elif suffix == ".txt":
        from ..file import atomic

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
    except Exception as error:
        raise InputError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if name not in found:
        raise InputError(f"{file} defines no {name!r}; it defines {', '.join(k for k in found if k[0] != '_')}")
    program = found[name]
    if not callable(program):
        raise InputError(f"{file}:{name} is of type {type(program).__name__}: give a module or a function")
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
    """Arrays of ones for types such as ``f32[batch,3]``, and ``dynamic`` naming their free sizes.

    Raises InputError for what is not a type.
    """
    from ..dtypes import dtype

    arrays: list[np.ndarray] = []
    dynamic: list[Any] = []
    sizes: dict[str, int] = {}
    for text in texts:
        found = re.fullmatch(r"([\w<>]+)\[((?:\s*\w+\s*(?:,|(?=\])))*)\]", text.strip())
        if not found:
            raise InputError(f"input {text!r} is not a type: give one such as 'f32[batch,3]'")
        kind, dims = found[1], [d.strip() for d in found[2].split(",") if d.strip()]
        shape = tuple(int(d) if d.isdigit() else sizes.setdefault(d, 3 + len(sizes)) for d in dims)
        try:
            arrays.append(np.ones(shape, dtype(kind).numpy))
        except TypeError as error:
            raise InputError(f"input {text!r}: {error}") from None
        dynamic.append(tuple(None if d.isdigit() else d for d in dims))
    return tuple(arrays), ({"dynamic": tuple(dynamic)} if sizes else {})


def made_inputs(graph: Graph, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a graph, by name: normal numbers, and zeros and ones for whole numbers.

    ``sizes`` gives free sizes; others are the least that the graph allows, but 1 at least. Keys are left out.
    Raises InputError for a size that the graph does not have.
    """
    from .. import dims
    from ..memory import least_sizes

    unknown = sizes.keys() - graph.symbols.keys()
    if unknown:
        raise InputError(f"no free size is called {', '.join(unknown)}; there are {', '.join(graph.symbols) or 'none'}")
    assumed = least_sizes(graph, sizes)
    rng = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {}
    for value in graph.inputs:
        kind = value.type.dtype
        if not kind.is_key:
            shape = tuple(int(dims.evaluate(d, assumed)) for d in value.type.shape)
            numbers = rng.standard_normal(shape) if kind.is_inexact else rng.integers(0, 2, shape)
            made[value.name] = np.asarray(numbers).astype(kind.numpy)
    return made


def given_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes from texts such as ``batch=8``. Raises InputError for another text."""
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not size.isdigit():
            raise InputError(f"size {text!r} is not of the form batch=8")
        sizes[name] = int(size)
    return sizes


def given_inputs(texts: Sequence[str]) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Inputs from ``x.npy``, ``x=x.npy`` or ``all.npz``: positional ones and named ones.

    Raises InputError for a file that is missing or not an array file.
    """
    args: list[np.ndarray] = []
    named: dict[str, np.ndarray] = {}
    for text in texts:
        name, _, path = text.rpartition("=")
        if Path(path).suffix not in (".npy", ".npz"):
            raise InputError(f"cannot read input {path!r}: give an .npy or .npz file")
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
