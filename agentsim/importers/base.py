"""The importer contract, the choice of an importer by content, and strict reading of log files.

An importer module exposes `PLUGIN`, an `Importer`. It yields one session at a time and holds no more;
whatever it cannot read is an `ImportFormatError` that starts with `file:line:`.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import IO, Any, NoReturn, Protocol, cast, runtime_checkable

from agentsim import plugins
from agentsim.errors import ImportFormatError, suggestion, unknown_name
from agentsim.recorded import RecordedSession

HEAD_BYTES = 64 * 2**10
MAX_LINE_BYTES = 256 * 2**20

_GZIP = b"\x1f\x8b"
_BUFFER_BYTES = 256 * 2**10
_BLOCK_BYTES = 128 * 2**10
_ZSTD = b"\x28\xb5\x2f\xfd"
BOM = b"\xef\xbb\xbf"


@runtime_checkable
class Importer(Protocol):
    """Reads one log format."""

    name: str
    """The format's name, such as `sessions`: that of the module."""

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell whether a log is of this format.

        `head` is its first 64 KiB, unpacked and without byte order mark; empty for a folder. Never raises.
        """
        ...

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions of a log in file order. Raises `ImportFormatError`, also midway."""
        ...


@runtime_checkable
class PartAware(Protocol):
    """An importer of a format that spreads a session over several files."""

    def main_file_of(self, path: str) -> str | None:
        """Return the file that `path` is read with, or None where it is read on its own."""
        ...


@runtime_checkable
class TextAware(Protocol):
    """An importer of a format that holds what was said and not only how much of it."""

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield the same sessions as `sessions`, with the texts that the log has of them."""
        ...


def sessions_of(importer: Importer, path: str, keep_text: bool = False) -> Iterator[RecordedSession]:
    """Return the sessions of a log; their texts come with them only where asked for, if the log has any."""
    if keep_text and isinstance(importer, TextAware):
        return importer.sessions_with_text(path)
    return importer.sessions(path)


def open_sessions(path: str, format: str | None = None, keep_text: bool = False) -> Iterator[RecordedSession]:
    """Return the sessions of a log, read by the importer called `format`, or by the one that fits.

    The choice is made at once, the sessions are read as they are asked for.
    """
    return sessions_of(importer_of(path, format), path, keep_text)


def importer_of(path: str, format: str | None = None) -> Importer:
    """Return the importer called `format`, or the only one that recognises the log."""
    known = plugins.names("importers")
    if format is not None and format not in known:
        if format.replace("-", "_") not in known:
            raise unknown_name("log format", format, known)
        format = format.replace("-", "_")
    head = head_of(path)
    if format is not None:
        return _loaded(format)
    return _only([i for i in map(_loaded, known) if i.recognises(path, head)], path, known)


def _loaded(name: str) -> Importer:
    importer: Importer = plugins.load("importers", name)
    return importer


def _only(fitting: list[Importer], path: str, known: list[str]) -> Importer:
    if not fitting:
        raise ImportFormatError(f"{path}:1: not a log of a known format. Known: {', '.join(known)}")
    if len(fitting) > 1:
        names = ", ".join(i.name for i in fitting)
        raise ImportFormatError(f"{path}:1: could be of several formats ({names}); name one")
    return fitting[0]


def head_of(path: str) -> bytes:
    """Return the first 64 KiB of a log, unpacked and without byte order mark; empty for a folder."""
    if os.path.isdir(path):
        return b""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for, and read only once
            raise ImportFormatError(f"{path}: not a plain file")
        with open(path, "rb") as file:
            raw = file.read(HEAD_BYTES)
    except OSError as bad:
        raise _unreadable(path, bad) from None
    head = _unpacked(raw) if raw.startswith(_GZIP) else raw
    if raw.startswith(_ZSTD):
        head = _zstd_head(path)
    if not raw.strip():
        raise ImportFormatError(f"{path}:1: the file is empty")
    return head.removeprefix(BOM)


_tell: ContextVar[Callable[[int], None] | None] = ContextVar("bytes read", default=None)


@contextmanager
def telling_bytes(tell: Callable[[int], None]) -> Iterator[None]:
    """Call `tell` with the number of bytes that are read of any log meanwhile, as they lie on the disk."""
    before = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(before)


class _Told(io.FileIO):
    """A file that tells how much of it was read."""

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        if size and (tell := _tell.get()) is not None:
            tell(size)
        return size


def _zstd(file: IO[bytes], path: str) -> IO[bytes]:
    """Return the contents of a file packed with zstd, by Python's own reader or by that of `zstandard`."""
    try:
        unpacked = import_module("compression.zstd").open(file)
    except ImportError:
        try:
            reader = (
                import_module("zstandard").ZstdDecompressor().stream_reader(file, read_across_frames=True)
            )
        except ImportError:
            file.close()
            raise ImportFormatError(f"{path}:1: packed with zstd; {_NO_ZSTD}") from None
        unpacked = io.BufferedReader(reader)
    return cast(IO[bytes], unpacked)


_NO_ZSTD = "'pip install agentsim[zstd]' reads it, and so does Python 3.14; or unpack it first ('zstd -d')"


def _unpacked(raw: bytes) -> bytes:
    """Return as much of a gzip stream as its beginning gives; nothing where it is damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, HEAD_BYTES)
    except zlib.error:
        return b""


def _zstd_head(path: str) -> bytes:
    with opened(path) as file:
        try:
            return file.read(HEAD_BYTES)
        except Exception as bad:
            raise damage_of(bad, path, 1) from None


def damage_of(bad: Exception, path: str, line: int) -> ImportFormatError:
    """Return the error for what broke the unpacking of a file; whatever else was raised is raised again."""
    if isinstance(bad, EOFError):
        return ImportFormatError(f"{path}:{line}: the packed file is cut off")
    if isinstance(bad, gzip.BadGzipFile | zlib.error) or type(bad).__name__ == "ZstdError":
        return ImportFormatError(f"{path}:{line}: the packed file is damaged: {bad}")
    if isinstance(bad, OSError):
        return _unreadable(path, bad)
    raise bad


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of a UTF-8 file, packed with gzip or not, split at line feeds only.

    Blank lines are left out. Raises `ImportFormatError`: missing, not UTF-8, cut off, a line over 256 MiB.
    """
    number = 0
    try:
        with opened(path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                text = _text(raw.removeprefix(BOM) if number == 1 else raw, f"{path}:{number}")
                if text.strip():
                    yield number, text
    except Exception as bad:  # what reads zstd has errors of its own
        raise damage_of(bad, path, number + 1) from None


def blocks_of(path: str) -> Generator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines) of a file that is not packed, a block after the other.

    Of a packed file nothing is yielded: what can be read of a damaged one ends at a line.
    """
    number = 1
    try:
        with opened(path) as file:
            while isinstance(file, io.BufferedReader) and (block := file.read(_BLOCK_BYTES)):
                block += b"" if block.endswith(b"\n") else file.readline(MAX_LINE_BYTES + 1)
                yield number, block.removeprefix(BOM) if number == 1 else block
                number += block.count(b"\n")
    except OSError as bad:
        raise damage_of(bad, path, number) from None


def lines_in(block: bytes, path: str, first: int) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of whole lines of which the first has the number `first`, as `lines_of`."""
    for number, raw in enumerate(block.split(b"\n"), first):
        text = _text(raw, f"{path}:{number}")
        if text.strip():
            yield number, text


def opened(path: str) -> IO[bytes]:
    """Open a file, packed with gzip or zstd or not at all, for its bytes."""
    with open(path, "rb") as file:
        start = file.read(4)
    plain = cast(IO[bytes], io.BufferedReader(_Told(path), _BUFFER_BYTES))
    if start == _ZSTD:
        return _zstd(plain, path)
    if start.startswith(_GZIP):
        packed = gzip.GzipFile(fileobj=plain)
        packed.myfileobj = plain  # type: ignore[assignment]  # which closes it as well
        return cast(IO[bytes], packed)
    return plain


def _text(raw: bytes, place: str) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise ImportFormatError(f"{place}: a line of over {MAX_LINE_BYTES // 2**20} MiB; none is read")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as bad:
        raise ImportFormatError(f"{place}: not text (byte {bad.start} of the line is not UTF-8)") from None


def _unreadable(path: str, bad: OSError) -> ImportFormatError:
    if isinstance(bad, FileNotFoundError):
        return ImportFormatError(f"{path}: no such file{_nearest(path)}")
    return ImportFormatError(f"{path}: {(bad.strerror or str(bad)).lower()}")


def _nearest(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        return suggestion(name, [other for other in os.listdir(folder or ".") if other != name])
    except OSError:
        return ""


def json_objects(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (`file:line`, object) of a JSON-lines file; every line must hold one object."""
    for number, text in lines_of(path):
        place = f"{path}:{number}"
        yield place, json_object(text, place)


def json_object(text: str, place: str) -> dict[str, Any]:
    """Return the JSON object that `text` holds, or raise `ImportFormatError` at `place`."""
    try:
        value = STRICT_JSON.decode(text)
    except RecursionError:
        raise ImportFormatError(f"{place}: not JSON that is read here: nested too deep") from None
    except ValueError as bad:
        raise ImportFormatError(f"{place}: not JSON: {bad}") from None
    if not isinstance(value, dict):
        raise ImportFormatError(f"{place}: {type(value).__name__} found where an object '{{…}}' is expected")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def decoded(text: str, decoder: json.JSONDecoder) -> Any:
    """Return what a decoder makes of text; of a row without anything around it in less time."""
    try:
        value, end = decoder.raw_decode(text)
    except ValueError:
        return decoder.decode(text)
    return value if not text[end:].strip(_JSON_SPACE) else decoder.decode(text)


_JSON_SPACE = " \t\n\r"
ANY_JSON = json.JSONDecoder()
STRICT_JSON = json.JSONDecoder(parse_constant=_no_number)
"""Raises `ValueError` for `NaN` and infinities, which are no JSON."""


def joined(lines: Iterable[tuple[int, str]], path: str) -> str:
    """Return numbered lines as one text, blank ones put back. Raises `ImportFormatError` over 256 MiB."""
    parts: list[str] = []
    last, size = 0, 0
    for number, line in lines:
        parts.append("\n" * (number - last - 1) + line)
        last, size = number, size + len(line)
        if size > MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES // 2**20} MiB"
            raise ImportFormatError(f"{path}:1: one JSON value of over {limit}; none is read")
    return "".join(parts)


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
