"""The Chrome trace-event format, which Perfetto opens: a track per agent, a slice per span.

Format: "Trace Event Format" (Chromium), complete events (`ph: X`), times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentsim.exports.base import Export
from agentsim.result import Result, Span
from agentsim.units import MICROSECOND_S, to_s


def render(result: Result) -> Iterator[str]:
    """Yield the pieces of `trace.json`."""
    lanes = {lane: index + 1 for index, lane in enumerate(dict.fromkeys(s.lane for s in result.spans))}
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    yield json.dumps(_named("process_name", 0, f"{result.workflow} on {result.deployment}"))
    for lane, number in lanes.items():
        yield ",\n" + json.dumps(_named("thread_name", number, lane))
    for span in result.spans:
        yield ",\n" + json.dumps(_slice(span, lanes[span.lane]))
    yield "\n]}\n"


def _named(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": thread, "name": kind, "args": {"name": name}}


def _slice(span: Span, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": thread,
        "name": span.name,
        "cat": span.part.key,
        "ts": to_s(span.start_ns) / MICROSECOND_S,
        "dur": to_s(span.end_ns - span.start_ns) / MICROSECOND_S,
        "args": {"critical": span.critical, "turn": span.turn},
    }


PLUGIN = Export("trace.json", render)
