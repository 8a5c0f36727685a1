"""The ZIP container of a ``.ugraph`` file: stored entries, Zip64, data aligned for mapping.

The reader trusts nothing: every offset, size, name and flag is checked against the file before use,
and entries that are compressed, encrypted, overlapping or oddly named are refused.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from .errors import FormatError

PAGE = 4096
MAX_ENTRIES = 100_000
MAX_NAME = 1024

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64_MAGIC, _LOCATOR_MAGIC = b"PK\x06\x06", b"PK\x06\x07"
_MASK16, _MASK32 = 0xFFFF, 0xFFFFFFFF
_ZIP64, _PADDING = 0x0001, 0xD935  # extra-field ids; the second is the one Android's zipalign uses
_DATE = (1980 - 1980) << 9 | 1 << 5 | 1  # fixed, so that the same graph gives the same bytes
_UTF8 = 1 << 11
_KNOWN_FLAGS = _UTF8 | 1 << 3  # bit 3: sizes follow the data; harmless, the directory has them


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored entry: where its data lies in the file."""

    name: str
    offset: int
    size: int
    crc: int


class ArchiveWriter:
    """Writes entries one after the other into a seekable binary file, never holding one whole."""

    def __init__(self, file: IO[bytes], progress: Callable[[int], None] = lambda n: None):
        self._file, self._progress = file, progress
        self._directory: list[tuple[bytes, int, int, int, bool]] = []

    def add(
        self, name: str, chunks: Iterable[bytes | memoryview], size: int, align: int = 1, small: bool = False
    ) -> None:
        """Store one entry of ``size`` bytes whose data starts at a multiple of ``align``.

        ``small`` leaves the Zip64 field out, as the type marker at the start of a file needs.
        Raises FormatError when the chunks do not add up to ``size``.
        """
        raw = name.encode()
        start = self._file.tell()
        extra = b"" if small else struct.pack("<HHQQ", _ZIP64, 16, size, size)
        gap = -(start + _LOCAL.size + len(raw) + len(extra)) % align
        if gap:
            gap += align if gap < 4 else 0
            extra += struct.pack("<HH", _PADDING, gap - 4) + bytes(gap - 4)

        def header(crc: int) -> bytes:
            length = size if small else _MASK32
            version = 20 if small else 45
            fields = (_LOCAL_MAGIC, version, _UTF8, 0, 0, _DATE, crc, length, length, len(raw), len(extra))
            return _LOCAL.pack(*fields) + raw + extra

        self._file.write(header(0))
        crc = total = 0
        for chunk in chunks:
            view = memoryview(chunk)
            crc = zlib.crc32(view, crc)
            total += view.nbytes
            self._write(view)
            self._progress(view.nbytes)
        if total != size:
            raise FormatError(f"{total} bytes were written where {size} were promised", name)
        end = self._file.tell()
        self._file.seek(start)
        self._file.write(header(crc))
        self._file.seek(end)
        self._directory.append((raw, start, size, crc, small))

    def _write(self, view: memoryview) -> None:
        # Long runs of zeros become holes: a sparse array stays sparse on disk.
        if (
            view.nbytes >= PAGE
            and not any(view[: PAGE // 64])
            and not np.bitwise_or.reduce(np.frombuffer(view, np.uint8))
        ):
            self._file.seek(view.nbytes, os.SEEK_CUR)
        else:
            self._file.write(view)

    def close(self) -> None:
        """Write the directory of entries; the file itself stays open."""
        start = self._file.tell()
        for raw, offset, size, crc, small in self._directory:
            extra = b"" if small else struct.pack("<HHQQQ", _ZIP64, 24, size, size, offset)
            length, place = (size, offset) if small else (_MASK32, _MASK32)
            version = 20 if small else 45
            fields = (_CENTRAL_MAGIC, version, version, _UTF8, 0, 0, _DATE, crc, length, length)
            self._file.write(_CENTRAL.pack(*fields, len(raw), len(extra), 0, 0, 0, 0, place) + raw + extra)
        size, count, end = self._file.tell() - start, len(self._directory), self._file.tell()
        self._file.write(_END64.pack(_END64_MAGIC, _END64.size - 12, 45, 45, 0, 0, count, count, size, start))
        self._file.write(_LOCATOR.pack(_LOCATOR_MAGIC, 0, end, 1))
        self._file.write(_END.pack(_END_MAGIC, 0, 0, min(count, _MASK16), min(count, _MASK16), _MASK32, _MASK32, 0))


def map_file(path: Any) -> np.ndarray:
    """The bytes of a file as an array mapped copy-on-write: writing to it never changes the file.

    Raises FormatError for an empty file, OSError when it cannot be opened.
    """
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError("the file is empty", str(path))
        if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
            # Without NORESERVE the kernel refuses to map files larger than memory for writing.
            flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
            mapped = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        else:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return np.frombuffer(mapped, np.uint8)


def read_directory(data: np.ndarray, where: str = "archive") -> dict[str, Entry]:
    """The entries of an archive, by name, with every field checked.

    Raises FormatError naming the entry and what is wrong with it.
    """
    if data.size < 4 or bytes(data[:4]) != _LOCAL_MAGIC:
        raise FormatError("this is not a unigraph file: it does not start as a ZIP archive", where)
    start, end, count = _find_directory(data, where)
    entries: dict[str, Entry] = {}
    position = start
    for _ in range(count):
        entry, position = _read_entry(data, position, start, end, where)
        if entry.name in entries:
            raise FormatError("two entries have this name", f"{where}: {entry.name}")
        entries[entry.name] = entry
    if position != end:
        raise FormatError(f"the directory of entries ends at {position}, not at {end}", where)
    _refuse_overlap(entries.values(), where)
    return entries


def verify(data: np.ndarray, entry: Entry) -> None:
    """Raise FormatError unless the entry's data has its checksum."""
    crc = 0
    for chunk in blocks(data[entry.offset : entry.offset + entry.size]):
        crc = zlib.crc32(chunk, crc)
    if crc != entry.crc:
        raise FormatError(f"the checksum is {crc:08x}, {entry.crc:08x} was promised: the file is damaged", entry.name)


def blocks(data: np.ndarray, size: int = 1 << 22) -> Iterator[memoryview]:
    """A flat byte array in pieces."""
    view = memoryview(data)  # type: ignore[arg-type]
    for start in range(0, view.nbytes, size):
        yield view[start : start + size]


def _unpack(form: struct.Struct, data: np.ndarray, offset: int, magic: bytes, where: str) -> tuple[Any, ...]:
    if offset < 0 or offset + form.size > data.size:
        raise FormatError(
            f"offset {offset} lies outside the file of {data.size} bytes: it is cut short or damaged", where
        )
    fields = form.unpack(bytes(data[offset : offset + form.size]))
    if fields[0] != magic:
        raise FormatError(f"no record {magic!r} at offset {offset}: the file is cut short or damaged", where)
    return fields


def _find_directory(data: np.ndarray, where: str) -> tuple[int, int, int]:
    tail = data.size - _END.size
    _, disk, first, here, count, size, start, comment = _unpack(_END, data, tail, _END_MAGIC, where)
    if comment or disk or first or here != count:
        raise FormatError("archives with a comment or of several disks are refused", where)
    end = tail
    if _MASK32 in (size, start) or count == _MASK16:
        locator = tail - _LOCATOR.size
        _, disk, end, disks = _unpack(_LOCATOR, data, locator, _LOCATOR_MAGIC, where)
        _, length, _, _, disk2, first, here, count, size, start = _unpack(_END64, data, end, _END64_MAGIC, where)
        if disk or disk2 or first or disks != 1 or here != count or end + length + 12 != locator:
            raise FormatError("the Zip64 records contradict each other", where)
    if start + size != end:
        raise FormatError(f"the directory at {start} of {size} bytes does not end at {end}", where)
    if count > MAX_ENTRIES or count * _CENTRAL.size > size:
        raise FormatError(f"{count} entries cannot stand in a directory of {size} bytes", where)
    return start, end, count


def _read_entry(data: np.ndarray, position: int, start: int, end: int, where: str) -> tuple[Entry, int]:
    fields = _unpack(_CENTRAL, data, position, _CENTRAL_MAGIC, where)
    _, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment, disk, _, _, offset = fields
    tail = position + _CENTRAL.size
    after = tail + name_size + extra_size + comment
    if after > end:
        raise FormatError(f"the directory entry at {position} runs over its end", where)
    name = _name(bytes(data[tail : tail + name_size]), where)
    where = f"{where}: {name}"
    if _MASK32 in (size, packed, offset):
        extra = bytes(data[tail + name_size : tail + name_size + extra_size])
        size, packed, offset = _zip64(extra, size, packed, offset, where)
    if method or size != packed:
        raise FormatError("the entry is compressed; entries must be stored as they are (zip -0)", where)
    if flags & ~_KNOWN_FLAGS or disk:
        raise FormatError("the entry is encrypted or uses an unknown ZIP feature", where)
    local = _unpack(_LOCAL, data, offset, _LOCAL_MAGIC, where)
    if local[3] or local[2] & ~_KNOWN_FLAGS:
        raise FormatError("the entry's own header contradicts the directory", where)
    begin = offset + _LOCAL.size
    first = begin + local[9] + local[10]
    if first + size > start:
        raise FormatError(f"{size} bytes at {first} do not fit before the directory at {start}", where)
    if bytes(data[begin : begin + local[9]]) != name.encode():
        raise FormatError("the entry's own header bears another name", where)
    return Entry(name, first, size, crc), after


def _zip64(extra: bytes, size: int, packed: int, offset: int, where: str) -> tuple[int, int, int]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        body = extra[position + 4 : position + 4 + length]
        position += 4 + length
        if kind != _ZIP64:
            continue
        wanted = [v == _MASK32 for v in (size, packed, offset)]
        if len(body) < 8 * sum(wanted):
            break
        numbers = iter(struct.unpack_from(f"<{sum(wanted)}Q", body))
        size, packed, offset = (next(numbers) if w else v for w, v in zip(wanted, (size, packed, offset)))
        return size, packed, offset
    raise FormatError("a Zip64 size is announced but missing", where)


def _name(raw: bytes, where: str) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise FormatError(f"the entry name {raw[:40]!r} is not UTF-8", where) from None
    parts = name.removesuffix("/").split("/")
    if not name or len(name) > MAX_NAME or not name.isprintable() or "\\" in name or ":" in name:
        raise FormatError(f"the entry name {name[:80]!r} is not allowed", where)
    if any(p in ("", ".", "..") for p in parts):
        raise FormatError(f"the entry name {name[:80]!r} leads out of the archive", where)
    return name


def _refuse_overlap(entries: Iterable[Entry], where: str) -> None:
    last, end = "", 0
    for entry in sorted(entries, key=lambda e: (e.offset, e.size)):
        if entry.offset < end and entry.size:
            raise FormatError(f"the entry overlaps {last!r}", f"{where}: {entry.name}")
        last, end = entry.name, max(end, entry.offset + entry.size)
