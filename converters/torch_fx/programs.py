"""The kinds of programs that from_torch takes, and the ways to capture each."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from unigraph.errors import InputError, UnigraphError

from . import compat
from .capture import Captured, _from_annotated, _from_exported, first_line
from .closures import Function, has_optimizers
from .dynamic import Spec, read_spec
from .explore import explored
from .rewrites import rewriting
from .trace import traced

REFUSE, EXPLORE = "refuse", "explore"
Args = tuple[Any, ...]


def captured(program: Any, args: Args, kwargs: dict[str, Any], dynamic: Any, branches: str, max_paths: int) -> Captured:
    """Whatever ``program`` is, as a flat FX program. Raises what `from_torch` raises."""
    if isinstance(program, (str, os.PathLike)):
        program = _loaded(Path(program))
    if isinstance(program, ExportedProgram):
        return _from_exported(program, Spec(), "exported")
    if isinstance(program, fx.GraphModule) and not args and not kwargs:
        return _from_annotated(program)
    if isinstance(program, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _from_script(program, args, kwargs)
    if not callable(program):
        raise InputError(f"from_torch takes a module, function, GraphModule, ExportedProgram or path, not {program!r}")
    module = program if isinstance(program, torch.nn.Module) else Function(program)
    if _on_meta(module):
        args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), (args, kwargs))
    spec = read_spec(module.forward, args, kwargs, dynamic)
    name = getattr(program, "__name__", type(program).__name__)
    with compat.numbers_known(module):
        return _Ways(module, args, kwargs, spec, name, branches, max_paths).captured()


def _loaded(path: Path) -> Any:
    """An exported program (``.pt2``) or TorchScript module (``.pt``, ``.jit``) from a file."""
    if not path.exists():
        raise InputError(f"there is no file {path}")
    with compat.quiet():
        try:
            return torch.export.load(path)
        except Exception as exported:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return torch.jit.load(path, map_location="cpu")
            except Exception as error:
                raise InputError(
                    f"{path} holds neither an exported program ({first_line(exported)}) nor TorchScript: a file of "
                    "weights has no program; build the module, load them into it and pass it"
                ) from error


def _from_script(script: Any, args: Args, kwargs: Mapping[str, Any]) -> Captured:
    """TorchScript through torch's own converter."""
    name = getattr(script, "original_name", "") or getattr(script, "name", "") or "script"
    if not args and not kwargs:
        raise InputError("TorchScript carries no types: pass example arguments, from_torch(script, (x,))")
    if kwargs:
        raise InputError("torch's converter takes TorchScript with arguments by position only")
    try:
        with compat.quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = compat.converted_script(script, args)
    except Exception as error:
        raise UnigraphError(
            f"torch cannot convert the TorchScript {name} ({type(error).__name__}: {first_line(error)}): pass the "
            "nn.Module it was made from"
        ) from error
    return _from_exported(exported, Spec(), name)


class _Ways:
    """torch.export first, then a trace; branches on values as asked for."""

    def __init__(
        self,
        module: torch.nn.Module,
        args: Args,
        kwargs: Mapping[str, Any],
        spec: Spec,
        name: str,
        branches: str,
        max_paths: int,
    ):
        self.module, self.args, self.kwargs, self.spec, self.name = module, args, kwargs, spec, name
        self.branches, self.max_paths = branches, max_paths

    def captured(self) -> Captured:
        if has_optimizers(self.module):  # export knows nothing of their states
            return self._traced("")
        failures: list[Exception] = []
        for strict in (False, True):
            try:
                exported = self._export(strict)
            except Exception as error:
                if compat.is_data_dependent(error):
                    return self._explored(error)
                failures.append(error)
                continue
            if compat.uses_functorch(exported):
                break
            try:
                return _from_exported(exported, self.spec, self.name)
            except (RuntimeError, AssertionError) as error:  # buffers that share memory, of which one is written
                if isinstance(error, UnigraphError):
                    raise
                failures.append(error)
        reason = "it uses torch.func transforms" if not failures else first_line(failures[0])
        warnings.warn(
            f"torch.export cannot carry {self.name} ({reason}): capturing a trace of the path that the example "
            "arguments take; Python control flow is fixed at that path",
            stacklevel=5,
        )
        return self._traced(f"torch.export: {reason}. Trace: " if failures else "")

    def _export(self, strict: bool) -> ExportedProgram:
        whole = compat.recurrent_whole()
        with warnings.catch_warnings(), compat.quiet(), compat.transforms_undone(), whole, rewriting(strict):
            warnings.simplefilter("ignore")
            return torch.export.export(
                self.module, self.args, self.kwargs, dynamic_shapes=self.spec.shapes, strict=strict
            )

    def _traced(self, before: str) -> Captured:
        """A trace; ``before`` begins the message when it fails."""
        try:
            with compat.quiet():
                return traced(self.module, self.args, self.kwargs, self.spec, self.name)
        except UnigraphError:
            raise
        except Exception as error:
            if compat.is_data_dependent(error):
                return self._explored(error)
            raise UnigraphError(
                f"{self.name} cannot be captured. {before}{type(error).__name__}: {first_line(error)}"
            ) from error

    def _explored(self, error: Exception) -> Captured:
        """What is done about a branch on values. Raises UnigraphError where it is refused."""
        if self.branches == REFUSE:
            raise UnigraphError(
                f"the program branches on the values of a tensor{_place_of(error)}. "
                'With branches="refuse" (the default) that is not captured: write torch.cond or torch.where there, '
                'or ask for branches="explore"'
            ) from error
        try:
            with compat.quiet():
                return explored(self.module, self.args, self.kwargs, self.spec, self.name, self.max_paths)
        except UnigraphError:
            raise
        except Exception as found:
            raise UnigraphError(
                f"{self.name} cannot be explored{_place_of(found)}: {type(found).__name__}: {first_line(found)}"
            ) from found


def _on_meta(module: torch.nn.Module) -> bool:
    tensors = [*module.parameters(), *module.buffers()]
    return bool(tensors) and all(t.is_meta for t in tensors)


def _place_of(error: Exception) -> str:
    """`` at file.py:12: the line``, where an error came from the program."""
    places = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s+([^\n]+)', str(error)) or _user_frames(error)[-1:]
    return f" at {os.path.basename(places[-1][0])}:{places[-1][1]}: {places[-1][2].strip()}" if places else ""


def _user_frames(error: BaseException) -> list[tuple[str, str, str]]:
    frames = traceback.extract_tb(error.__traceback__)
    own = (os.path.dirname(torch.__file__), os.path.dirname(__file__))
    return [(f.filename, str(f.lineno), f.line or "") for f in frames if not f.filename.startswith(own)]
