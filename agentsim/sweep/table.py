"""The files that a sweep writes: CSV, row by row in order, or Parquet, whole at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from agentsim.errors import InputError, OutputError
from agentsim.exports.base import csv_line

GROUP = 10_000
"""Rows of a Parquet row group."""
Row = Mapping[str, Any]


class Table(Protocol):
    """A file that takes rows in order."""

    def begin(self, rows: Iterable[Row]) -> None:
        """Put what is done already in place of what stands there."""

    def add(self, row: Row) -> None:
        """Take the next row."""

    def finish(self, rows: Iterable[Row]) -> None:
        """All rows are there: complete the file."""

    def close(self) -> None:
        """Let go of the file, complete or not."""


def table_at(path: str, columns: Sequence[str], kinds: Mapping[str, str]) -> Table:
    """Return the table for a file by its ending; `kinds` are the types of columns
    that do not hold real numbers.

    Raises `InputError` for another ending, or where what writes Parquet is not installed.
    """
    if path.endswith(".csv"):
        return CsvTable(path, columns)
    if not path.endswith(".parquet"):
        raise InputError(f"-o {path}: the name must end in .csv or .parquet")
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError(f"-o {path}: Parquet needs the package 'pyarrow': pip install pyarrow") from None
    return ParquetTable(path, columns, kinds)


class CsvTable:
    """Rows on disk as soon as they are known; each is written at once, so that none is torn by a kill."""

    def __init__(self, path: str, columns: Sequence[str]) -> None:
        self.path, self.columns = path, columns
        self._file: Any = None

    def begin(self, rows: Iterable[Row]) -> None:
        temporary = f"{self.path}.part"
        try:
            with open(temporary, "wb") as file:
                file.write(csv_line(self.columns).encode())
                file.writelines(self._line(row) for row in rows)
            os.replace(temporary, os.path.realpath(self.path))
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115  (open until `close`)
        except OSError as bad:
            raise _unwritable(self.path, bad) from None

    def _line(self, row: Row) -> bytes:
        return csv_line([_csv_cell(row.get(name)) for name in self.columns]).encode()

    def add(self, row: Row) -> None:
        try:
            self._file.write(self._line(row))
        except OSError as bad:
            raise _unwritable(self.path, bad) from None

    def finish(self, rows: Iterable[Row]) -> None:
        """Nothing is left to do: every row is there."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _csv_cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else value


class ParquetTable:
    """A column file: it can be read once it is complete, so that it is written at the end."""

    def __init__(self, path: str, columns: Sequence[str], kinds: Mapping[str, str]) -> None:
        self.path, self.columns, self.kinds = path, columns, kinds

    def begin(self, rows: Iterable[Row]) -> None:
        """Nothing yet: the journal keeps the rows."""

    def add(self, row: Row) -> None:
        """Nothing yet: the journal keeps the row."""

    def finish(self, rows: Iterable[Row]) -> None:
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.schema([(name, self.kinds.get(name, "float64")) for name in self.columns])
        temporary = f"{self.path}.part"
        try:
            with parquet.ParquetWriter(temporary, schema) as writer:
                for group in _groups(rows):
                    writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            os.replace(temporary, os.path.realpath(self.path))
        except OSError as bad:
            raise _unwritable(self.path, bad) from None
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)

    def close(self) -> None:
        """Nothing is open."""


def _groups(rows: Iterable[Row]) -> Iterator[list[dict[str, Any]]]:
    rest = iter(rows)
    while group := [dict(row) for row in islice(rest, GROUP)]:
        yield group


def _unwritable(path: str, bad: OSError) -> OutputError:
    return OutputError(f"{path}: cannot write there ({(bad.strerror or str(bad)).lower()})")
