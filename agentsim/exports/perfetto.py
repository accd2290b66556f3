"""The Chrome trace-event format, which Perfetto opens: a process per task, tracks per agent, slices.

Every model call, tool call, file read and wait is a slice with its figures; what a call is made of lies
inside it. What one agent does side by side stands on tracks of its own, for slices of a track must nest.
A counter shows the context. The importer `perfetto` reads the slices back.

Format: "Trace Event Format" (Chromium), complete events (`ph: X`), times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentsim.exports._events import Event, Task, tasks_of, tracks_of
from agentsim.exports.base import Export
from agentsim.result import Result, Turn
from agentsim.units import MICROSECOND_S, to_s

_HEAD = '{"displayTimeUnit":"ms","otherData":{"format":"agentsim.trace/1"},"traceEvents":[\n'


def render(result: Result) -> Iterator[str]:
    """Yield the pieces of `trace.json`."""
    yield _HEAD
    comma = ""
    for number, task in enumerate(tasks_of(result), 1):
        for event in _task(task, number, f"{result.workflow} on {result.deployment}"):
            yield comma + json.dumps(event)
            comma = ",\n"
    yield "\n]}\n"


def _task(task: Task, number: int, title: str) -> Iterator[dict[str, Any]]:
    name = title if task.name == "1" else f"{title}, task {task.name}"
    yield _about("process_name", number, 0, {"name": name})
    thread = 0
    for lane in task.lanes:
        for index, track in enumerate(tracks_of(lane)):
            thread += 1
            label = lane.name if index == 0 else f"{lane.name} (side by side {index + 1})"
            yield _about("thread_name", number, thread, {"name": label})
            yield _about("thread_sort_index", number, thread, {"sort_index": thread})
            for event in track:
                yield from _slices(event, lane.name, number, thread)


def _slices(event: Event, lane: str, process: int, thread: int) -> Iterator[dict[str, Any]]:
    place = {"ph": "X", "pid": process, "tid": thread}
    facts: dict[str, Any] = {"kind": event.kind, "lane": lane}
    if event.turn is not None:
        facts |= _figures(event.turn)
    else:
        facts["critical"] = any(piece.critical for piece in event.pieces)
    if event.kind != "idle":
        yield {**place, "name": _label(event), "cat": event.kind, **_when(event), "args": facts}
    if event.turn is not None or len(event.pieces) > 1:
        for piece in event.pieces:
            inside = {"critical": piece.critical}
            yield {**place, "name": piece.name, "cat": piece.part.key, **_when(piece), "args": inside}
    if event.turn is not None:
        counter = {"ph": "C", "pid": process, "name": f"context of {lane}", "ts": _us(event.end_ns)}
        yield {**counter, "args": {"tokens": event.turn.context_after}}


def _label(event: Event) -> str:
    if event.turn is None:
        return event.name
    return f"turn {event.turn.index + 1}" + (" (compaction)" if event.turn.compaction else "")


def _figures(turn: Turn) -> dict[str, Any]:
    return {
        "turn": turn.index,
        "prompt_tokens": turn.prompt,
        "cached_tokens": turn.cached,
        "output_tokens": turn.output,
        "thinking_tokens": turn.thinking,
        "ttft_s": to_s(turn.ttft_ns),
        "compaction": turn.compaction,
    }


def _when(stretch: Any) -> dict[str, float]:
    return {"ts": _us(stretch.start_ns), "dur": _us(stretch.end_ns - stretch.start_ns)}


def _us(time_ns: int) -> float:
    """Return microseconds, to the nanosecond, so that what lies inside does not stick out by rounding."""
    return round(to_s(time_ns) / MICROSECOND_S, 3)


def _about(what: str, process: int, thread: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": facts}


PLUGIN = Export("trace.json", _HEAD, render, in_folder=True)
