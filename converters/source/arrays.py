"""Programs over NumPy and JAX: the whole text around the main function."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from unigraph import dtypes
from unigraph.errors import InputError
from unigraph.graph import CONSTANT, Graph
from unigraph.safetensors import BY_NAME, NAME_OF

from . import loops
from .literals import jax_constant, numpy_constant, numpy_dtype
from .phrases import phrase
from .pieces import harmless, quoted
from .program import Dialect, Program

_LOAD = '''
def load_weights(path=WEIGHTS):
    """The arrays of a safetensors file by name{note}."""
    data = np.asarray(np.memmap(path, np.uint8, "c"))
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    header.pop("__metadata__", None)
    weights = {{}}
    for name, item in header.items():
        begin, end = item["data_offsets"]
        array = data[start + begin : start + end].view(DTYPES[item["dtype"]]).reshape(item["shape"])
        weights[name] = {array}
    return weights
'''


def dialect(target: str) -> Dialect:
    """The table and the wording of ``numpy`` or ``jax``."""
    table = importlib.import_module(f"unigraph.runtime.{target}.table").TABLE
    keyed = importlib.import_module(f"unigraph.runtime.{target}.random").KEYED
    numpy = ("np", "import numpy as np")
    if target == "numpy":
        return Dialect(table, keyed, (numpy,), numpy_constant, "", regions=True)
    libraries = ("jax", "import jax"), ("jnp", "import jax.numpy as jnp"), ("lax", "from jax import lax"), numpy
    return Dialect(table, keyed, libraries, jax_constant, "jnp.asarray", phrase=phrase, writers=loops.WRITERS)


def write(graph: Graph, target: str, file: str) -> tuple[str, dict[str, Any]]:
    """The text of a standalone program, and the arrays of its weights file called ``file``."""
    program = Program(graph, dialect(target))
    main = program.main()
    composites = program.composite_texts
    held = {v.name: a for v, a in graph.data.items() if v.role != CONSTANT}
    arrays = {**held, **{n: np.asarray(a) for n, a in program.stored.items()}}
    libraries = {"numpy": "NumPy", "jax": "JAX"}[target]
    text = [
        f'"""{harmless(graph.name) or "A program"}, written by unigraph for {libraries}; it needs nothing of unigraph.',
        "",
    ]
    reading = f"Call ``main(load_weights(), ...)``; weights are read from {harmless(file)}."
    text += [reading if program.takes_weights else "Call ``main(...)``.", '"""']
    helpers = program.bundle.text()
    imports = {**program.bundle.imports}
    loading: list[str] = []
    if program.takes_weights:
        loading = _loading(target, file, arrays)
        imports |= {"json": "import json", "Path": "from pathlib import Path"}
    parts = ["\n".join(loading).strip("\n"), main, *composites, helpers]
    body = "\n\n\n".join(filter(None, parts))
    if "ml_dtypes." in body:
        imports["ml_dtypes"] = "import ml_dtypes"
    if "precision=HIGHEST" in body:
        imports["lax"] = "from jax import lax"
        head = "# Accelerators would otherwise multiply in a shorter format.\nHIGHEST = lax.Precision.HIGHEST\n"
        body = head + ("\n\n" if body.startswith("def ") else "") + body
    used = [line for name, line in imports.items() if re.search(rf"(?<![\w.\"]){name}[.(\n]", body)]
    gap = ["", ""] if body.startswith("def ") else [""]
    return "\n".join([*text, "", *_sorted(used), *gap, body.rstrip(), ""]), arrays


_STANDARD = ("functools", "itertools", "json", "math", "operator", "pathlib", "collections")


def _sorted(lines: list[str]) -> list[str]:
    """Import lines, the standard library first."""

    def own(line: str) -> bool:
        return line.split()[1].split(".")[0] in _STANDARD

    unique = sorted(set(lines), key=lambda x: (x.startswith("from"), x))
    first, second = [x for x in unique if own(x)], [x for x in unique if not own(x)]
    return [*first, *([""] if first and second else []), *second]


def _loading(target: str, file: str, arrays: Mapping[str, Any]) -> list[str]:
    """Where the weights lie, and the function that reads them."""
    kinds = sorted({NAME_OF[dtypes.dtype(np.asarray(a).dtype)] for a in arrays.values() if a is not None})
    table = ", ".join(f'"{k}": {numpy_dtype(BY_NAME[k])}' for k in kinds)
    reader = _LOAD.format(
        note=" (mapped, not read)" if target == "numpy" else "",
        array="array" if target == "numpy" else "jnp.asarray(array)",
    )
    return [f"WEIGHTS = Path(__file__).with_name({quoted(file)})", f"DTYPES = {{{table}}}", "", reader]


def check_bound(graph: Graph) -> None:
    """Raise InputError when a weight has no data to write."""
    missing = [v.name for v, a in graph.data.items() if a is None]
    if missing:
        raise InputError(
            f"{len(missing)} weights hold no data, the first is {missing[0]!r}: "
            "load them with weights=... or graph.bind(...)"
        )
