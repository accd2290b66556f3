"""One row an event: model calls, tool calls, file reads, waits for a human. Times in seconds.

The importer `csv` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentsim.exports._events import Event, tasks_of
from agentsim.exports.base import Export, csv_line
from agentsim.result import Result
from agentsim.units import to_s

_COLUMNS = (
    "task", "lane", "kind", "name", "start_s", "end_s", "turn", "ttft_s", "prompt_tokens", "cached_tokens",
    "output_tokens", "thinking_tokens", "model",
)  # fmt: skip


def render(result: Result) -> Iterator[str]:
    """Yield the lines of `events.csv`."""
    yield csv_line(_COLUMNS)
    for task in tasks_of(result):
        for lane in task.lanes:
            for event in lane.events:
                if event.kind != "idle":
                    yield csv_line(_row(task.name, lane.name, event, result.deployment))


def _row(task: str, lane: str, event: Event, model: str) -> tuple[object, ...]:
    start = task, lane, event.kind, event.name, to_s(event.start_ns), to_s(event.end_ns)
    turn = event.turn
    if turn is None:
        return (*start, *[""] * (len(_COLUMNS) - len(start)))
    counts = turn.prompt, turn.cached, turn.output, turn.thinking
    return (*start, turn.index, to_s(turn.ttft_ns), *counts, model)


PLUGIN = Export("events.csv", csv_line(_COLUMNS), render)
