"""The rows that `agentsim run --export csv` writes: one an event, times in seconds."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from agentsim.errors import ImportFormatError
from agentsim.importers._events import UNUSABLE, Events
from agentsim.importers._values import FURTHEST_S, seconds
from agentsim.importers.base import lines_of
from agentsim.recorded import RecordedSession

_MARK = b"task,lane,kind,name,start_s,end_s,"


@dataclass(frozen=True)
class Csv:
    """The importer of this format."""

    name: str = "csv"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the names of its columns."""
        return head.startswith(_MARK)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield a session a task."""
        events = Events(self.name)
        lines = (line for _, line in lines_of(path))
        header = next(lines, "").rstrip("\r\n").split(",")
        if not {"task", "lane", "kind", "start_s", "end_s"} <= set(header):
            raise ImportFormatError(f"{path}:1: the columns are not those of agentsim's events")
        try:
            for row in csv.DictReader(lines, header, restkey="more", restval=""):
                start_s, end_s = (seconds(row[key], longest_s=FURTHEST_S) for key in ("start_s", "end_s"))
                events.add(row["task"], start_s, end_s, row)
        except csv.Error:
            events.odd[UNUSABLE] += 1
        yield from events.sessions(path)


PLUGIN = Csv()
