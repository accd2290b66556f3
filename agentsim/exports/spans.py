"""One row a span, times in seconds."""

from __future__ import annotations

from collections.abc import Iterator

from agentsim.exports.base import Export, csv_line
from agentsim.result import Result, Span
from agentsim.units import to_s

_COLUMNS = ("id", "part", "name", "lane", "turn", "start_s", "end_s", "critical", "causes")


def render(result: Result) -> Iterator[str]:
    """Yield the lines of `spans.csv`."""
    yield csv_line(_COLUMNS)
    for span in result.spans:
        yield csv_line(_row(span))


def _row(span: Span) -> tuple[object, ...]:
    turn = "" if span.turn is None else span.turn
    causes = " ".join(map(str, span.causes))
    times = to_s(span.start_ns), to_s(span.end_ns)
    return (span.id, span.part.key, span.name, span.lane, turn, *times, int(span.critical), causes)


PLUGIN = Export("spans.csv", csv_line(_COLUMNS), render, in_folder=True)
