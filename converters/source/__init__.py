"""Graphs as standalone Python source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unigraph.errors import InputError
from unigraph.graph import GraphLike, as_graph

from .arrays import check_bound
from .arrays import write as write_arrays

TARGETS = ("torch", "jax", "numpy")


def to_source(graph: GraphLike, target: str = "torch", path: Any = None) -> str:
    """The graph as a readable Python program that runs without unigraph.

    ``target`` is ``"torch"`` (a module class and ``load()``), ``"jax"`` or ``"numpy"`` (a function
    ``main(weights, *inputs)`` and ``load_weights()``; without weights ``main(*inputs)``). Random keys
    are uint32 arrays; a graph with states gives ``(result, new_states)`` on the latter two. With a
    ``path`` the text is written there and the weights, constants too long for text among them, to a
    ``.safetensors`` file beside it, each atomically. Without one the text expects ``weights.safetensors``.

    Returns the text. Raises UnsupportedError naming every op that cannot be written, InputError for an
    unknown target or, with a path, a weight without data.
    """
    graph = as_graph(graph)
    if target not in TARGETS:
        raise InputError(f"there is no source target {target!r}: give {', '.join(TARGETS)}")
    if path is not None:
        check_bound(graph)
    file = Path(path).with_suffix(".safetensors").name if path is not None else "weights.safetensors"
    if target == "torch":
        from .module import write

        text, arrays = write(graph, file)
    else:
        text, arrays = write_arrays(graph, target, file)
    if path is not None:
        from unigraph.file import atomic
        from unigraph.safetensors import save_file

        if arrays:
            save_file(arrays, Path(path).with_suffix(".safetensors"))
        with atomic(path) as out:
            out.write(text.encode())
    return text
