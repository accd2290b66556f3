"""What is done is kept at once, a line of JSON for each point, so that a kill costs only points under way.

The first line says what was swept. A last line that a kill has torn is dropped when the file is opened.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from agentsim.errors import InputError, OutputError

SCHEMA = "agentsim.sweep-journal/1"
NOT_DONE = -1


class Journal:
    """The rows of a sweep that are done, by number of the point; they stay in the file, not in memory."""

    def __init__(self, path: str, file: BinaryIO, size: int) -> None:
        self.path, self.count = path, 0
        self._file = file
        self._places = array("q", [NOT_DONE]) * size

    @classmethod
    def open(
        cls, path: str, definition: Mapping[str, Any], size: int, restart: bool, only_read: bool
    ) -> Journal:
        """Go on with the journal at a path, or begin it; only to read it, another may write meanwhile.

        Raises `InputError` where it is of another sweep, saying what has changed, or another process
        writes to it; `OutputError` where it cannot be written.
        """
        wanted = json.loads(json.dumps(definition))
        try:
            file = open(path, "rb" if only_read else "a+b", buffering=0)  # noqa: SIM115  (it stays open with the journal)
        except OSError as bad:
            raise OutputError(f"{path}: cannot write there ({(bad.strerror or str(bad)).lower()})") from None
        try:
            journal = cls(path, file, size)
            if only_read:
                journal._resume(wanted, with_errors=True)
            else:
                _lock(file, path)
                journal._begin(wanted, restart)
        except BaseException:
            file.close()
            raise
        return journal

    def _begin(self, wanted: dict[str, Any], restart: bool) -> None:
        if restart and _is_journal(self._file):
            self._file.truncate(0)
        if os.fstat(self._file.fileno()).st_size == 0:
            self._append({"schema": SCHEMA, "sweep": wanted})
        else:
            self._file.truncate(self._resume(wanted, with_errors=False))

    def _resume(self, wanted: dict[str, Any], with_errors: bool) -> int:
        """Find the rows that are there; return where the last whole one ends.

        A point that ended in an error is not done: it is tried again, and its new row is the one that counts.
        """
        if not _is_journal(self._file):
            raise InputError(f"{self.path}: is not the journal of a sweep; choose another -o")
        self._file.seek(0)
        place = 0
        for number, line in enumerate(self._lines(), 1):
            if place == 0:
                _same(wanted, self._entry(line, number, sweep=dict)["sweep"], self.path)
            else:
                entry = self._entry(line, number, point=int, status=str)
                if with_errors or entry["status"] != "error":
                    self._note(entry["point"], place)
            place += len(line)
        return place

    def _entry(self, line: bytes, number: int, **needed: type) -> dict[str, Any]:
        """Return what a line holds. Raises `InputError` where it is none that a sweep writes."""
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        known = isinstance(entry, dict) and all(type(entry.get(key)) is kind for key, kind in needed.items())
        if not known or not 0 <= entry.get("point", 0) < len(self._places):
            raise InputError(f"{self.path}:{number}: damaged; take --restart to begin anew, or another -o")
        found: dict[str, Any] = entry
        return found

    def _lines(self) -> Iterator[bytes]:
        """Yield whole lines; the torn end of a file is none."""
        with open(self._file.fileno(), "rb", closefd=False) as reader:
            for line in reader:
                if line.endswith(b"\n"):
                    yield line

    def _note(self, index: int, place: int) -> None:
        self.count += self._places[index] == NOT_DONE
        self._places[index] = place

    def _append(self, entry: Mapping[str, Any]) -> int:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        place = self._file.seek(0, os.SEEK_END)
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(28, "no space left on device")
        except OSError as bad:
            self._file.truncate(place)
            raise OutputError(f"{self.path}: cannot write there ({str(bad.strerror).lower()})") from None
        return place

    def add(self, index: int, row: Mapping[str, Any]) -> None:
        """Keep the row of a point: it is in the file when this returns."""
        self._note(index, self._append({"point": index, **row}))

    def __contains__(self, index: int) -> bool:
        return self._places[index] != NOT_DONE

    def missing(self) -> Iterator[int]:
        """Yield the points that are not done, in order."""
        return (index for index, place in enumerate(self._places) if place == NOT_DONE)

    def row(self, index: int) -> dict[str, Any]:
        """Return the row of a point that is done."""
        self._file.seek(self._places[index])
        with open(self._file.fileno(), "rb", closefd=False) as reader:
            row: dict[str, Any] = json.loads(reader.readline())
        return row

    def close(self) -> None:
        """Let go of the file; what is in it stays."""
        self._file.close()


def _is_journal(file: BinaryIO) -> bool:
    file.seek(0)
    head = b'{"schema":"' + SCHEMA.encode() + b'"'
    return file.read(len(head)) == head


def _lock(file: BinaryIO, path: str) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system; two sweeps into one file are the user's to avoid
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path}: another sweep is writing there") from None
    except OSError:  # a file system without locks
        return


def _same(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str) -> None:
    changes = list(_changes(found, wanted, ""))
    if changes:
        more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
        told = "; ".join(changes[:3]) + more
        raise InputError(
            f"{path}: the sweep has changed: {told}. Take --restart to begin anew, or another -o"
        )


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    """Yield what differs between two pieces of plain data, and what it was and is."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            inner = f"{path}.{key}" if path else str(key)
            yield from _changes(before.get(key), after.get(key), inner)
        if list(before) != list(after) and sorted(before) == sorted(after):
            yield f"{path}: the order of the axes is another"
    elif before != after:
        name = path.removeprefix("files.")
        yield f"{name} has changed" if name != path else f"{path} was {_short(before)}, is {_short(after)}"


def _short(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
