"""A CSV of measurements, packed with gzip or not, read strictly: a bad cell is an error with its line."""

from __future__ import annotations

import csv
import gzip
import math
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, cast

from agentsim.errors import InputError, suggestion

MAX_CELL = 10_000
"""Characters; a longer cell holds something else than a measurement."""
_GZIP = b"\x1f\x8b"


class Row:
    """One row's cells by column, and where it stands."""

    __slots__ = ("_cells", "line", "path")

    def __init__(self, path: str, line: int, cells: dict[str, str]) -> None:
        self.path, self.line, self._cells = path, line, cells

    def text(self, column: str) -> str:
        """Return a cell in characters that can be shown, without blanks around it; empty: not given."""
        return "".join(filter(str.isprintable, self._cells.get(column, ""))).strip()

    def with_cells(self, cells: dict[str, str]) -> Row:
        """Return the row with some cells set, or others added."""
        return Row(self.path, self.line, {**self._cells, **cells})

    def number(self, column: str) -> float | None:
        """Return a finite number >= 0, or None where the cell is empty."""
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self._wrong(column, "a number") from None
        if not math.isfinite(value) or value < 0:
            raise self._wrong(column, "a number of at least 0")
        return value

    def count(self, column: str) -> int | None:
        """Return a whole number >= 0, or None where the cell is empty."""
        value = self.number(column)
        if value is not None and value != int(value):
            raise self._wrong(column, "a whole number")
        return None if value is None else int(value)

    def _wrong(self, column: str, wanted: str) -> InputError:
        shown = self.text(column)[:40]
        return InputError(f"{self.path}:{self.line}: {column} is '{shown}'; it takes {wanted}, or nothing")


def read_table(path: str, *kinds: Sequence[str]) -> tuple[int, list[Row]]:
    """Return which of `kinds` (each a set of columns) the file has first, and its rows.

    Raises `InputError` with file and line: no such file, no rows, a missing column, a row of another
    length, no text, a damaged gzip file.
    """
    _refuse(path)
    try:
        with _opened(path) as file:
            return _read(path, csv.reader(_lines(path, file), strict=True), kinds)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path}: the gzip file is cut off or damaged") from None
    except OSError as bad:
        raise InputError(f"{path}: {(bad.strerror or str(bad)).lower()}") from None


def _refuse(path: str) -> None:
    if not os.path.exists(path):
        near = os.listdir(os.path.dirname(path) or ".") if os.path.isdir(os.path.dirname(path) or ".") else []
        raise InputError(f"{path}: no such file{suggestion(os.path.basename(path), near)}")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError(f"{path}: not a file; it takes a CSV of measured runs")


def _opened(path: str) -> IO[bytes]:
    with open(path, "rb") as file:
        packed = file.read(2) == _GZIP
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else open(path, "rb")


def _lines(path: str, file: IO[bytes]) -> Iterator[str]:
    for number, raw in enumerate(file, 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8").replace("\0", "")
        except UnicodeDecodeError:
            raise InputError(f"{path}:{number}: not text in UTF-8") from None


def _read(path: str, reader: Iterable[list[str]], kinds: tuple[Sequence[str], ...]) -> tuple[int, list[Row]]:
    rows, kind = [], 0
    head: list[str] | None = None
    lines = iter(reader)
    while True:
        try:
            cells = next(lines)
        except StopIteration:
            break
        except csv.Error as bad:
            raise InputError(f"{path}:{_line(reader)}: not a CSV row: {bad}") from None
        if not any(map(str.strip, cells)):
            continue
        if head is None:
            head = [cell.strip() for cell in cells]
            kind = _kind(path, _line(reader), head, kinds)
        else:
            rows.append(_row(path, _line(reader), head, cells))
    if not rows:
        raise InputError(f"{path}:1: no rows; it takes a CSV with a heading and one measured run a line")
    return kind, rows


def _line(reader: Iterable[list[str]]) -> int:
    return int(getattr(reader, "line_num", 0))


def _kind(path: str, line: int, head: list[str], kinds: tuple[Sequence[str], ...]) -> int:
    """Return the kind whose columns are all there; of those missing, name the kind that is nearest."""
    twice = next((name for name in head if name and head.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}:{line}: column '{twice[:40]}' stands there twice")
    missing = [[name for name in kind if name not in head] for kind in kinds]
    best = min(range(len(kinds)), key=lambda i: len(missing[i]))
    if not missing[best]:
        return best
    name = missing[best][0]
    near = suggestion(name, [h for h in head if h not in kinds[best]])
    raise InputError(f"{path}:{line}: no column '{name}'{near or ';'} needed: {', '.join(kinds[best])}")


def _row(path: str, line: int, head: list[str], cells: list[str]) -> Row:
    if len(cells) != len(head):
        raise InputError(f"{path}:{line}: {len(cells)} cells; the heading has {len(head)} columns")
    if max(map(len, cells)) > MAX_CELL:
        raise InputError(f"{path}:{line}: a cell of over {MAX_CELL:,} characters")
    return Row(path, line, dict(zip(head, cells, strict=True)))
