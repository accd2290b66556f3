"""Runs what is missing of a sweep, anywhere, and keeps every row the moment it is known."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from agentsim import plugins
from agentsim.errors import InputError, OutputError
from agentsim.executors.base import Lost, Run
from agentsim.sweep.columns import RESULT, without_result
from agentsim.sweep.journal import Journal
from agentsim.sweep.load import Sweep
from agentsim.sweep.table import Table, table_at

JOURNAL = ".journal"
"""What is added to an output's name for the file beside it that keeps what is done."""
POINT = "point"
Step = Callable[[], None]
Row = dict[str, Any]
_KINDS = {POINT: "int64", "status": "string", "reason": "string", "lower_bound": "bool", "warnings": "string"}


@dataclass(frozen=True)
class Place:
    """Who does the work: an executor by name, and where in its own words."""

    executor: str
    where: str


class Running:
    """A sweep with its output: what is done of it, and what is missing. To be used as a context."""

    def __init__(self, sweep: Sweep, output: str, restart: bool = False, only_read: bool = False) -> None:
        self.sweep, self.output, self.restart, self.only_read = sweep, output, restart, only_read

    def __enter__(self) -> Running:
        space = self.sweep.space
        kinds = {axis.path: _kind(axis.values) for axis in space.axes}
        self.table: Table = table_at(self.output, self.columns, {**kinds, **_KINDS})
        path = self.output + JOURNAL
        if not os.path.exists(path):
            _refuse_others(self.output)
            if self.only_read:
                raise InputError(f"{self.output}: nothing of this sweep is there yet; run it without --plot")
        self.journal = Journal.open(path, self.sweep.definition, space.size, self.restart, self.only_read)
        return self

    def __exit__(self, *_: object) -> None:
        self.table.close()
        self.journal.close()
        if not self.journal.count and not self.only_read:  # it ended before the first point: nothing to keep
            for path in (self.output, self.output + JOURNAL):
                with suppress(OSError):
                    os.unlink(path)

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns: the point, the axes, the results."""
        return [POINT, *self.sweep.space.columns(0), *RESULT]

    @property
    def left(self) -> int:
        """How many points are to be run; none where the table is only read."""
        return 0 if self.only_read else self.sweep.space.size - self.journal.count

    def told(self) -> str:
        """Say what is kept of a sweep that has ended early, and how it goes on."""
        done = f"{self.journal.count:,} of {self.sweep.space.size:,} points are kept"
        return f"{done} in {self.output}{JOURNAL}; the same command goes on from there"

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are done, in order."""
        return (self.row(index) for index in range(self.sweep.space.size) if index in self.journal)

    def row(self, index: int) -> Row:
        """Return a row of the table."""
        return {POINT: index, **self.sweep.space.columns(index), **self.journal.row(index)}

    def run(self, place: Place, step: Step = lambda: None) -> None:
        """Compute what is missing; `step` is called after each point.

        The table takes rows in order, however they come, so that its bytes tell nothing of the place.
        Nothing happens where the table is only read.
        """
        if self.only_read:
            return
        follow = self._written()
        run: Run = plugins.load("executors", place.executor)
        with closing(run(self.sweep.work, self.journal.missing(), place.where)) as results:
            for index, found in results:
                lost = isinstance(found, Lost)
                self.journal.add(index, without_result("error", found.reason) if lost else found)
                follow()
                step()
        self.table.finish(self.rows())

    def _written(self) -> Callable[[], None]:
        """Write what is done from the first point on; return what writes the points that follow it."""
        size, following = self.sweep.space.size, 0
        while following < size and following in self.journal:
            following += 1
        self.table.begin(self.row(index) for index in range(following))

        def follow() -> None:
            nonlocal following
            while following < size and following in self.journal:
                self.table.add(self.row(following))
                following += 1

        return follow

    def statuses(self) -> Counter[str]:
        """Return how many of the points that are done ended how."""
        return Counter(str(row["status"]) for row in self.rows())


def _kind(values: tuple[Any, ...]) -> str:
    """Return the type of an axis's column: that of numbers only where all values are written as such."""
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return "string"
    return "int64" if all(isinstance(value, int) for value in values) else "float64"


def _refuse_others(path: str) -> None:
    if os.path.isdir(path):
        raise OutputError(f"{path}: is a folder; give the name of a file")
    if os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path)):
        raise OutputError(
            f"{path}: exists, and no {os.path.basename(path)}{JOURNAL} beside it tells that it "
            "is of this sweep; choose another -o"
        )
