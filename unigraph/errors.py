"""Every error a user can meet, in one place, so that each kind has one wording.

An error names the place (operation, scope, source line or file entry) and the next step.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from types import ModuleType


class UnigraphError(Exception):
    """Base of all errors raised on purpose by unigraph."""


class TypeCheckError(UnigraphError, TypeError):
    """An operation was given operands or attributes that its record does not allow.

    ``label`` is the violated constraint, such as ``pad_c2``: the same label stands in the op's
    documentation and in the test that provokes it.
    """

    def __init__(self, message: str, label: str = ""):
        self.label = label
        super().__init__(f"{message} [{label}]" if label else message)


class GraphError(UnigraphError, ValueError):
    """A graph is not well formed: a cycle, a value used before it exists, a foreign value."""


class InputError(UnigraphError, ValueError):
    """A graph was called with a wrong number, name, shape or dtype of inputs."""


class FormatError(UnigraphError, ValueError):
    """A file is not a valid unigraph file; ``where`` names the entry or field."""

    def __init__(self, message: str, where: str = ""):
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)


class TextError(UnigraphError, ValueError):
    """A text form of a graph could not be parsed; the message points at line and column."""


class MissingPackageError(UnigraphError, ImportError):
    """A framework is needed that is not installed; the message gives the command to install it."""


class EngineError(UnigraphError, RuntimeError):
    """An engine or device is not available here, or failed on an operation."""


class Unsupported(UnigraphError):
    """Raised by a lowering or table row that cannot carry one operation; holds the reason."""

    def __init__(self, reason: str, hint: str = ""):
        self.reason, self.hint = reason, hint
        super().__init__(f"{reason}; {hint}" if hint else reason)


@dataclass
class Gap:
    """One unsupported operation: what, why, how often, where first and what to do about it."""

    op: str
    reason: str
    hint: str = ""
    count: int = 1
    where: str = ""


@dataclass
class Gaps:
    """Collects everything that cannot be carried, so that it is reported at once."""

    task: str
    found: dict[tuple[str, str], Gap] = field(default_factory=dict)

    def add(self, op: str, reason: str, where: str = "", hint: str = "") -> None:
        gap = self.found.get((op, reason))
        if gap is None:
            self.found[op, reason] = Gap(op, reason, hint, 1, where)
        else:
            gap.count += 1

    def raise_if_any(self) -> None:
        if self.found:
            raise UnsupportedError(self.task, list(self.found.values()))


class UnsupportedError(UnigraphError, NotImplementedError):
    """A program holds operations that cannot be carried; ``gaps`` lists all of them."""

    def __init__(self, task: str, gaps: list[Gap]):
        self.task, self.gaps = task, gaps
        lines = [f"{task}: {len(gaps)} kind(s) of operation cannot be carried"]
        for gap in sorted(gaps, key=lambda g: (-g.count, g.op)):
            line = f"  {gap.op} (x{gap.count}): {gap.reason}"
            if gap.where:
                line += f"\n      first at {gap.where}"
            if gap.hint:
                line += f"\n      {gap.hint}"
            lines.append(line)
        super().__init__("\n".join(lines))


# The extra that installs each package.
EXTRAS = {
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "sympy": "symbolic",
}


def missing_package(package: str, purpose: str) -> MissingPackageError:
    """The error for a package that is not installed, with the command that installs it."""
    command = f"pip install 'unigraph[{EXTRAS[package]}]'"
    return MissingPackageError(f"{purpose} needs {package}, which is not installed: {command}")


def importing(module: str, purpose: str) -> ModuleType:
    """A module, imported. Raises MissingPackageError when it needs a framework that is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise missing_package(package, purpose) from None
