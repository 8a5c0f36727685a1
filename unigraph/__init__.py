"""A framework-agnostic graph for machine-learning and numerical programs.

Names load on first use, so that ``import unigraph`` costs nothing and needs no framework.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Every public name, and the module it lives in.
_PUBLIC = {
    "from_torch": "unigraph.converters.torch_fx.capture",
    "to_torch": "unigraph.converters.torch_fx.export",
    "lower_torch": "unigraph.converters.torch_fx.rowbook",
    "from_jax": "unigraph.converters.jaxpr",
    "to_jax": "unigraph.converters.jaxpr",
    "lower_jax": "unigraph.converters.jaxpr",
    "from_onnx": "unigraph.converters.onnx",
    "to_onnx": "unigraph.converters.onnx",
    "to_source": "unigraph.converters.source",
    "grad": "unigraph.converters.transforms",
    "value_and_grad": "unigraph.converters.transforms",
    "jvp": "unigraph.converters.transforms",
    "vmap": "unigraph.converters.transforms",
    "hessian": "unigraph.converters.transforms",
    "checkpoint": "unigraph.converters.transforms",
    "load": "unigraph.file",
    "save": "unigraph.file",
    "run": "unigraph.runtime.engines",
    "compile": "unigraph.runtime.engines",
    "tune": "unigraph.runtime.auto",
    "diff": "unigraph.runtime.diff",
    "optimize": "unigraph.passes",
    "check": "unigraph.check",
    "stats": "unigraph.stats",
    "parse": "unigraph.text",
    "composite": "unigraph.opdef",
    "GraphBuilder": "unigraph.builder",
    "Graph": "unigraph.graph",
    "Value": "unigraph.graph",
    "Operation": "unigraph.graph",
    "TensorType": "unigraph.types",
    "DType": "unigraph.dtypes",
    "Constraint": "unigraph.dims",
    "UnigraphError": "unigraph.errors",
    "TypeCheckError": "unigraph.errors",
    "GraphError": "unigraph.errors",
    "InputError": "unigraph.errors",
    "FormatError": "unigraph.errors",
    "TextError": "unigraph.errors",
    "EngineError": "unigraph.errors",
    "UnsupportedError": "unigraph.errors",
    "MissingPackageError": "unigraph.errors",
}
_MODULES = ("passes", "errors", "ops")

__all__ = [*_PUBLIC, "errors", "passes"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"unigraph.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'unigraph' has no attribute {name!r}")
    from unigraph.errors import importing

    found = getattr(importing(_PUBLIC[name], f"unigraph.{name}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, "__doc__", "__version__", "ops"})


class _Package(ModuleType):
    """Keeps ``unigraph.check`` the function: importing the module of that name would hide it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PUBLIC or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if TYPE_CHECKING:
    from unigraph.builder import GraphBuilder as GraphBuilder
    from unigraph.check import check as check
    from unigraph.converters.jaxpr import from_jax as from_jax
    from unigraph.converters.jaxpr import lower_jax as lower_jax
    from unigraph.converters.jaxpr import to_jax as to_jax
    from unigraph.converters.onnx import from_onnx as from_onnx
    from unigraph.converters.onnx import to_onnx as to_onnx
    from unigraph.converters.source import to_source as to_source
    from unigraph.converters.torch_fx.capture import from_torch as from_torch
    from unigraph.converters.torch_fx.export import to_torch as to_torch
    from unigraph.converters.torch_fx.rowbook import lower_torch as lower_torch
    from unigraph.converters.transforms import checkpoint as checkpoint
    from unigraph.converters.transforms import grad as grad
    from unigraph.converters.transforms import hessian as hessian
    from unigraph.converters.transforms import jvp as jvp
    from unigraph.converters.transforms import value_and_grad as value_and_grad
    from unigraph.converters.transforms import vmap as vmap
    from unigraph.dims import Constraint as Constraint
    from unigraph.dtypes import DType as DType
    from unigraph.errors import EngineError as EngineError
    from unigraph.errors import FormatError as FormatError
    from unigraph.errors import GraphError as GraphError
    from unigraph.errors import InputError as InputError
    from unigraph.errors import MissingPackageError as MissingPackageError
    from unigraph.errors import TextError as TextError
    from unigraph.errors import TypeCheckError as TypeCheckError
    from unigraph.errors import UnigraphError as UnigraphError
    from unigraph.errors import UnsupportedError as UnsupportedError
    from unigraph.file import load as load
    from unigraph.file import save as save
    from unigraph.graph import Graph as Graph
    from unigraph.graph import Operation as Operation
    from unigraph.graph import Value as Value
    from unigraph.opdef import composite as composite
    from unigraph.passes import optimize as optimize
    from unigraph.runtime.auto import tune as tune
    from unigraph.runtime.diff import diff as diff
    from unigraph.runtime.engines import compile as compile
    from unigraph.runtime.engines import run as run
    from unigraph.stats import stats as stats
    from unigraph.text import parse as parse
    from unigraph.types import TensorType as TensorType
