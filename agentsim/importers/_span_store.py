"""Spans by trace, in little room until their session is due: traces stand mixed, so all are read first."""

from __future__ import annotations

from dataclasses import fields
from marshal import dumps, loads
from operator import attrgetter

from agentsim.importers._span_attributes import Usage
from agentsim.importers._span_trees import Span

LOOSE = 50_000
"""So many spans are kept as they are; those of more are packed, in a fourth of the room."""

_fields_of = attrgetter(*(field.name for field in fields(Span) if field.init))
_USAGE = [field.name for field in fields(Span)].index("usage")


class SpanStore:
    """Takes spans in any order and gives back those of a trace, in the order in which they came."""

    def __init__(self) -> None:
        self._loose: dict[str, list[Span]] = {}
        self._packed: dict[str, list[bytes]] = {}
        self._sessions: dict[str, str] = {}
        self._count = 0

    def add(self, span: Span) -> None:
        """Take one span."""
        trace, loose = span.trace, self._loose
        if trace not in self._sessions or (span.session and not self._sessions[trace]):
            self._sessions[trace] = span.session
        if trace in loose:
            loose[trace].append(span)
        else:
            loose[trace] = [span]
        self._count += 1
        if self._count > LOOSE:
            self._pack()

    def by_session(self) -> dict[str, list[str]]:
        """Return the traces of each session, in order of appearance: of a conversation, else each its own."""
        sessions: dict[str, list[str]] = {}
        for trace, session in self._sessions.items():
            sessions.setdefault(session or trace or "unnamed", []).append(trace)
        return sessions

    def pop(self, trace: str) -> list[Span]:
        """Return the spans of a trace, and forget them."""
        packed = [_span(row) for part in self._packed.pop(trace, ()) for row in loads(part)]
        return packed + self._loose.pop(trace, [])

    def _pack(self) -> None:
        for trace, spans in self._loose.items():
            self._packed.setdefault(trace, []).append(dumps(list(map(_row, spans))))
        self._loose, self._count = {}, 0


def _row(span: Span) -> tuple[object, ...]:
    row = _fields_of(span)
    return row if span.usage is None else (*row[:_USAGE], tuple(span.usage), *row[_USAGE + 1 :])


def _span(row: tuple[object, ...]) -> Span:
    span = Span(*row)  # type: ignore[arg-type]  # as `_row` took them
    if span.usage is not None:
        span.usage = Usage(*span.usage)
    return span
