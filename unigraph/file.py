"""The ``.ugraph`` file: saving streams and is atomic, loading maps and reads nothing but the graph.

Layout (a ZIP archive of stored entries): ``mimetype``, ``graph.pb``, ``weights/*.safetensors``.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import serde
from .archive import PAGE, ArchiveWriter, Entry, map_file, read_directory, verify
from .binding import bind, mismatch
from .errors import FormatError, GraphError, InputError, UnigraphError
from .graph import NAMED, Graph, GraphLike, Value, as_graph
from .safetensors import Tensor, arrange, nbytes, read_header, storage, stream, view
from .serde import Ref
from .types import shown

MIMETYPE = b"application/vnd.unigraph"
SHARD = 4 << 30  # bytes of weights in one entry
SHOW_PROGRESS = 256 << 20  # bytes; smaller files are written too fast for a bar
_GRAPH, _CONSTANTS = "graph.pb", "weights/constants.safetensors"


# -- saving ----------------------------------------------------------------------------------------


# Names under which a reader would expect something else, and what writes that.
_FOREIGN = {
    ".onnx": "ug.to_onnx",
    ".pt2": "unigraph convert",
    ".py": "ug.to_source",
    ".pt": "torch.save",
    ".pth": "torch.save",
    ".safetensors": "save(path, weights='name.safetensors')",
}


_READERS = {
    ".onnx": "ug.from_onnx(path)",
    ".pt2": "ug.from_torch(path)",
    ".safetensors": "ug.load(graph, weights=path)",
}


def save(graph: GraphLike, path: Any, *, weights: bool | str | os.PathLike[str] = True) -> None:
    """Write ``graph`` to ``path``, atomically: the file appears whole or not at all.

    ``weights`` True stores weights and states in the file, False stores their types only, a path
    stores them in a safetensors file (a bare name: in the same folder as ``path``). The same graph
    gives the same bytes.
    Raises GraphError for a graph that is not well formed, InputError for a path that names another
    format, OSError when the disk refuses.
    """
    graph, path = as_graph(graph), Path(path)
    if path.suffix in _FOREIGN:
        raise InputError(
            f"{path.name} would not be a {path.suffix} file: save as .ugraph, or use {_FOREIGN[path.suffix]}"
        )
    external = None if isinstance(weights, bool) else Path(weights)
    if external is not None and external.parent == Path("."):
        external = path.parent / external
    if external is not None and external.suffix != ".safetensors":
        raise InputError(f"weights must be True, False or the path of a .safetensors file, not {str(weights)!r}")
    shards = _shards(graph, external) if weights is not False else []
    refs: dict[Value, Ref | None] = {v: None for v in graph.data if v.role in NAMED and v.name not in graph.transient}
    for entry, held in shards:
        refs.update({v: Ref(entry, v.name, external is not None) for v, _ in held})
    encoded = serde.encode(graph, refs, _CONSTANTS, _producer())
    total = sum(nbytes(*storage(v.type)) for _, held in shards for v, _ in held)
    with _progress(path, total) as step:
        if external is not None:
            with atomic(external) as file:
                header, arrays = _plan({v.name: (v, a) for _, held in shards for v, a in held})
                for chunk in stream(header, arrays):
                    file.write(chunk)
                    step(len(chunk))
            shards = []
        with atomic(path) as file:
            archive = ArchiveWriter(file, step)
            archive.add("mimetype", [MIMETYPE], len(MIMETYPE), small=True)
            archive.add(_GRAPH, [encoded.data], len(encoded.data))
            tables = [(entry, {v.name: (v, a) for v, a in held}) for entry, held in shards]
            if encoded.constants:
                tables.append((_CONSTANTS, {ref.tensor: held for ref, held in encoded.constants.items()}))
            for entry, table in tables:
                header, arrays = _plan(table)
                size = len(header) + sum(nbytes(*storage(v.type)) for v, _ in table.values())
                archive.add(entry, stream(header, arrays), size, PAGE)
            archive.close()


def _producer() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"unigraph {version('unigraph')}"
    except PackageNotFoundError:
        return "unigraph"


def _shards(graph: Graph, external: Path | None) -> list[tuple[str, list[tuple[Value, Any]]]]:
    """Weights and states that have data, in entries of about SHARD bytes at most."""
    shards: list[tuple[str, list[tuple[Value, Any]]]] = []
    room = -1
    names: set[str] = set()
    for value, array in graph.data.items():
        if value.role not in NAMED or value.name in graph.transient:
            continue
        if value.name in names or value.name in ("", "__metadata__"):
            raise GraphError(f"the weight name {value.name!r} stands twice or is reserved")
        names.add(value.name)
        if array is None:
            continue
        wrong = mismatch(value, array if isinstance(array, np.ndarray) else np.asarray(array))
        if wrong:
            raise GraphError(f"the data of {value!r} {wrong}")
        size = nbytes(*storage(value.type))
        if not shards or (room < size and external is None):
            entry = external.name if external else f"weights/{len(shards) + 1:05d}.safetensors"
            shards.append((entry, []))
            room = SHARD
        room -= size
        shards[-1][1].append((value, array))
    return shards


def _plan(table: Mapping[str, tuple[Value, Any]]) -> tuple[bytes, Iterable[Any]]:
    header, order = arrange({name: storage(value.type) for name, (value, _) in table.items()})
    return header, (table[name][1] for name in order)


@contextmanager
def atomic(path: Any) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of ``path`` when the block ends well, and leaves no trace
    otherwise. Its data is on the disk before the name is."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _progress(path: Path, total: int) -> Iterator[Callable[[int], None]]:
    """Shows how much of a big file is written, on a terminal only."""
    if total < SHOW_PROGRESS or not sys.stderr.isatty():
        yield lambda n: None
        return
    done, shown, start = 0, 0.0, time.monotonic()

    def step(n: int) -> None:
        nonlocal done, shown
        done += n
        now = time.monotonic()
        if now - shown > 0.2:
            shown = now
            rate = done / max(now - start, 1e-9) / 1e6
            percent = min(100, 100 * done // total)
            sys.stderr.write(f"\r{path.name}: {percent}% of {total / 1e9:.2f} GB, {rate:.0f} MB/s ")
            sys.stderr.flush()

    try:
        yield step
    finally:
        sys.stderr.write("\r\x1b[K")


# -- loading ---------------------------------------------------------------------------------------

Weights = bool | str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any] | None


def load(path: Any, weights: Weights = None, *, check: bool = True) -> Graph:
    """The graph in a ``.ugraph`` file. Weights are mapped, not read; writing to one changes no file.

    ``weights`` None takes them from the file (or the safetensors file it names, in the same folder);
    a path, a pattern such as ``"model-*.safetensors"``, a ``model.safetensors.index.json``, a folder
    with one, a list of those or a dict of arrays gives weights and states by name (a tied weight by any
    of its names); False leaves them without data. ``check`` re-infers all types.
    Raises FormatError for a damaged, foreign or newer file, InputError listing every weight that is
    missing, unexpected or mismatched.
    """
    data = map_file(path)
    try:
        entries = read_directory(data, str(path))
        _refuse_foreign(data, entries, str(path))
    except FormatError as error:
        if Path(path).suffix not in _READERS:
            raise
        raise FormatError(f"{error}; read it with {_READERS[Path(path).suffix]}") from None
    entry = entries[_GRAPH]
    if entry.size >= serde.MAX_GRAPH:
        raise FormatError(f"{entry.size} bytes are more than a graph can take", f"{path}: {_GRAPH}")
    verify(data, entry)
    source = _Source(Path(path), data, entries, weights is None)
    graph = serde.decode(data[entry.offset : entry.offset + entry.size].tobytes(), source.fetch, f"{path}: {_GRAPH}")
    if check:
        _check(graph, str(path))
    if weights is None or weights is False:
        return graph
    return bind(graph, weights, complete=True)


def _check(graph: Graph, path: str) -> None:
    from .check import check

    try:
        check(graph)
    except UnigraphError as error:
        raise FormatError(f"the graph is not well formed: {error}", f"{path}: {_GRAPH}") from error


def _refuse_foreign(data: np.ndarray, entries: Mapping[str, Entry], path: str) -> None:
    marker = entries.get("mimetype")
    if marker is None or marker.size != len(MIMETYPE) or data[marker.offset :][: marker.size].tobytes() != MIMETYPE:
        raise FormatError("a ZIP archive, but not a unigraph file (its mimetype entry is missing or another)", path)
    if _GRAPH not in entries:
        raise FormatError(f"the entry {_GRAPH} is missing", path)


class _Source:
    """Finds the data that a file refers to; headers are read once."""

    def __init__(self, path: Path, data: np.ndarray, entries: Mapping[str, Entry], external: bool):
        self.path, self.data, self.entries, self.external = path, data, entries, external
        self.tables: dict[tuple[str, bool], tuple[np.ndarray, dict[str, Tensor]]] = {}

    def fetch(self, ref: Ref, value: Value) -> np.ndarray | None:
        if value.role in NAMED and not self.external and (ref.external or ref.entry != _CONSTANTS):
            return None
        key = ref.entry, ref.external
        if key not in self.tables:
            self.tables[key] = self._outside(ref) if ref.external else self._inside(ref)
        data, table = self.tables[key]
        where = f"{ref.entry}: {ref.tensor}"
        tensor = table.get(ref.tensor)
        if tensor is None:
            raise FormatError("the graph needs this tensor, which is missing", where)
        if (tensor.dtype, tensor.shape) != storage(value.type):
            raise FormatError(f"the tensor is {shown(tensor.dtype, tensor.shape)}, the graph says {value.type}", where)
        return view(data, tensor)

    def _inside(self, ref: Ref) -> tuple[np.ndarray, dict[str, Tensor]]:
        entry = self.entries.get(ref.entry)
        if entry is None:
            raise FormatError("the graph needs this entry, which is missing", f"{self.path}: {ref.entry[:200]}")
        return self.data, read_header(self.data, entry.offset, entry.size, f"{self.path}: {ref.entry}")

    def _outside(self, ref: Ref) -> tuple[np.ndarray, dict[str, Tensor]]:
        name = ref.entry
        if (
            not name
            or name != os.path.basename(name)
            or "\\" in name
            or ":" in name
            or not name.endswith(".safetensors")
        ):
            raise FormatError("external weights must be a .safetensors file in the same folder", f"{name[:200]!r}")
        place = self.path.parent / name
        if not place.is_file():
            raise InputError(
                f"the weights of {self.path} are kept in {name!r}, which is not beside it: "
                "load with weights=PATH, or weights=False for the graph alone"
            )
        data = map_file(place)
        return data, read_header(data, 0, data.size, str(place))
