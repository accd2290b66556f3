"""Agentic Mooncake version 2 (Dynamo, AISimulate): the requests of a run, for others to run the same.

A row is a model call that waits for those before it, by `dependencies`: the call before in its lane, the
last calls of the sub-agents that ended since, or the call after which its lane was started. Blocks of a
prompt have the same id where its text is the same, whatever the simulated cache still held.

Lost on the way: what follows the last model call; tools by name for readers other than ours (they see a
delay); waits for a human and file reads, which become delays and tools; joins of background sub-agents;
the output of a call, whose blocks are told only by the prompt after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agentsim.exports._events import Event, Lane, Task, tasks_of
from agentsim.exports.base import Export
from agentsim.exports.otel import EPOCH_NS
from agentsim.result import Result, Turn
from agentsim.units import to_s

BLOCK_TOKENS = 64
_MS_PER_S = 1e3
_HEAD = '{"schema":"dynamo.agentic_mooncake","version":2,"block_size":64,"hash_id_scope":"local",'


def render(result: Result) -> Iterator[str]:
    """Yield the header and a line a model call."""
    yield _HEAD
    name = f"{result.workflow} on {result.deployment}, seed {result.seed}"
    yield f'"source":{{"format":"agentsim","digest":"{sha256(name.encode()).hexdigest()}"}}}}\n'
    for task in tasks_of(result):
        for row in _Play(task, result.deployment).rows():
            yield json.dumps(row, separators=(",", ":")) + "\n"


@dataclass(slots=True)
class _Step:
    """A model call of a lane, the one before it there, and what the agent did in between."""

    call: Event
    lane: Lane
    before: Event | None
    waits: list[Event]


def _steps(lane: Lane) -> Iterator[_Step]:
    before, waits = None, list[Event]()
    for event in lane.events:
        if event.turn is None:
            waits.append(event)
        else:
            yield _Step(event, lane, before, waits)
            before, waits = event, []


class _Play:
    """One task: the requests of every lane, and what each waits for."""

    def __init__(self, task: Task, model: str) -> None:
        self.model, self.name = model, f"task {task.name}"
        self.start_ns = task.start_ns
        self.lanes = task.lanes
        self.calls = {lane.name: [e for e in lane.events if e.turn is not None] for lane in task.lanes}
        self.blocks = _Blocks()

    def rows(self) -> Iterator[dict[str, Any]]:
        every = [step for lane in self.lanes for step in _steps(lane)]
        for step in sorted(every, key=lambda step: (step.call.start_ns, _turn(step.call).index)):
            yield self._row(step)

    def _row(self, step: _Step) -> dict[str, Any]:
        event, lane, turn = step.call, step.lane, _turn(step.call)
        links, at_ms = self._links(step), _ms(event.start_ns - self.start_ns)
        tools = [
            wait for wait in step.waits if wait.kind in ("tool", "file") and wait.end_ns <= event.start_ns
        ]
        row: dict[str, Any] = {
            "request_id": f"{self.name} turn {turn.index}",
            "play_id": self.name,
            "session_id": lane.name,
            "model": self.model,
            "input_length": turn.prompt,
            "output_length": turn.output,
            "hash_ids": self.blocks.of(lane.name, lane.parent, turn),
            "not_before_ms": 0.0 if links else at_ms,
            "timestamp": at_ms,
            "recorded_api_time_ms": _ms(event.end_ns - event.start_ns),
            "dependencies": links,
        }
        if tools:
            row["tool_wait_ms"] = _ms(max(e.end_ns for e in tools) - tools[0].start_ns)
            row["tool_events"] = [_tool(e, f"{turn.index}.{i}") for i, e in enumerate(tools)]
        return row

    def _links(self, step: _Step) -> list[dict[str, Any]]:
        event, before = step.call, step.before
        if before is None:
            starter = self._starter(step)
            return [self._link(starter, event.start_ns - starter.end_ns, "spawn")] if starter else []
        joined = [calls for child in self.lanes if (calls := self._joined(child, step))]
        first_ns = min((calls[0].start_ns for calls in joined), default=event.start_ns)
        links = [self._link(before, first_ns - before.end_ns, "sequence")]
        return links + [self._link(c[-1], event.start_ns - c[-1].end_ns, "join") for c in joined]

    def _starter(self, step: _Step) -> Event | None:
        calls = self.calls.get(step.lane.parent or "", [])
        return max((e for e in calls if e.end_ns <= step.call.start_ns), key=_end, default=None)

    def _joined(self, child: Lane, step: _Step) -> list[Event]:
        """Return the calls of a sub-agent that started and ended between two calls of its starter."""
        calls = self.calls[child.name] if child.parent == step.lane.name else []
        before = step.before
        inside = calls and before and before.end_ns <= calls[0].start_ns
        return calls if inside and calls[-1].end_ns <= step.call.start_ns else []

    def _link(self, to: Event, delay_ns: int, relation: str) -> dict[str, Any]:
        name = f"{self.name} turn {_turn(to).index}"
        link = {"request_id": name, "trigger": "completion", "delay_ms": _ms(delay_ns)}
        return {**link, "relation": relation}


class _Blocks:
    """Ids for the blocks of prompts: those of the text that a lane's prompts share stay the same."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[list[int], int]] = {}
        self.made = 0

    def of(self, lane: str, parent: str | None, turn: Turn) -> list[int]:
        """Return the ids of a prompt: as many as it fills, the last one perhaps in part."""
        ids, length = self.known.get(lane, self._start(parent, turn))
        kept = ids[: min(self._shared(turn, length), turn.prompt) // BLOCK_TOKENS]
        wanted = -(-turn.prompt // BLOCK_TOKENS)
        fresh = range(self.made, self.made + wanted - len(kept))
        self.made += len(fresh)
        found = [*kept, *fresh]
        self.known[lane] = found, turn.prompt
        return found

    def _start(self, parent: str | None, turn: Turn) -> tuple[list[int], int]:
        """An agent that inherits a context starts with its starter's blocks, as far as they were cached."""
        ids, length = self.known.get(parent or "", ([], 0))
        return ids, min(length, turn.cached)

    def _shared(self, turn: Turn, length: int) -> int:
        """A prompt holds the one before unless the context was cut; then what the cache found is shared."""
        return length if turn.prompt >= length and turn.added >= 0 else min(length, turn.cached)


def _turn(event: Event) -> Turn:
    assert event.turn is not None
    return event.turn


def _end(event: Event) -> int:
    return event.end_ns


def _tool(event: Event, name: str) -> dict[str, Any]:
    return {
        "tool_call_id": name,
        "tool_class": event.name,
        "started_at_unix_ms": round(_ms(EPOCH_NS + event.start_ns)),
        "ended_at_unix_ms": round(_ms(EPOCH_NS + event.end_ns)),
        "duration_ms": _ms(event.end_ns - event.start_ns),
        "status": "ok",
    }


def _ms(time_ns: int) -> float:
    return to_s(time_ns) * _MS_PER_S


PLUGIN = Export("agentic_mooncake.jsonl", _HEAD, render)
