"""The trace that agentsim writes for Perfetto: slices that say what they are. Other traces are not read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._events import Events
from agentsim.importers._json_values import json_values, text
from agentsim.importers._values import FURTHEST_S, seconds
from agentsim.importers.base import objects
from agentsim.recorded import RecordedSession

_MARKS = b'"traceEvents"', b'"agentsim.trace/1"'
_PER_S = 1e6


@dataclass(frozen=True)
class Perfetto:
    """The importer of this format."""

    name: str = "perfetto"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the note of who wrote it."""
        return head.lstrip()[:1] == b"{" and all(mark in head for mark in _MARKS)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield a session a task; slices that only tell what a call is made of are passed over."""
        events = Events(self.name)
        for _, value in json_values(path, events.odd):
            if not isinstance(value, dict):
                raise ImportFormatError(f"{path}:1: no object with traceEvents")
            for item in objects(value.get("traceEvents")):
                facts = item.get("args")
                if item.get("ph") == "X" and isinstance(facts, dict) and "kind" in facts:
                    _add(events, item, facts)
        yield from events.sessions(path)


def _add(events: Events, item: dict[str, Any], facts: dict[str, Any]) -> None:
    start_s = seconds(item.get("ts"), _PER_S, FURTHEST_S)
    length_s = seconds(item.get("dur"), _PER_S)
    end_s = None if start_s is None or length_s is None else start_s + length_s
    events.add(text(item.get("pid")), start_s, end_s, {**facts, "name": item.get("name")})


PLUGIN = Perfetto()
