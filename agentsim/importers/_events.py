"""Events as agentsim writes them, one by one, to recorded sessions: what its own exports share.

Lanes are paths: `main/reviewer` was started by `main`. Of a row that cannot be used nothing is taken, and
it is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._json_values import text
from agentsim.importers._values import seconds, tokens
from agentsim.recorded import (
    RecordedCall,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    Timing,
    WaitKind,
)

UNUSABLE = "events that cannot be used left out"
_KINDS: Mapping[str, WaitKind] = {"tool": "tool", "file": "tool", "human": "human"}


@dataclass
class Events:
    """Collects the events of a file by task and lane, in order of first appearance."""

    format: str
    odd: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, dict[str, list[RecordedEvent]]] = field(default_factory=dict)

    def add(self, task: str, start_s: float | None, end_s: float | None, facts: Mapping[str, Any]) -> None:
        """Take one event: its task and times (s), and by name its kind, lane, name and tokens."""
        lane, event = text(facts.get("lane")), None
        if start_s is not None and end_s is not None and start_s <= end_s and lane:
            event = _event(start_s, end_s - start_s, facts)
        if event is None:
            self.odd[UNUSABLE] += 1
        else:
            self.tasks.setdefault(task, {}).setdefault(lane, []).append(event)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield a session a task. Raises `ImportFormatError` where there is no event."""
        if not self.tasks:
            raise ImportFormatError(f"{path}:1: no event in it that could be used")
        for task, lanes in self.tasks.items():
            noted = {what: count for what, count in sorted(self.odd.items()) if count}
            self.odd = Counter()
            yield RecordedSession(f"task {task}", self.format, tuple(_lanes(lanes)), 0, noted)


def _event(start_s: float, length_s: float, facts: Mapping[str, Any]) -> RecordedEvent | None:
    if facts.get("kind") != "model":
        kind = _KINDS.get(text(facts.get("kind")))
        return (
            None if kind is None else RecordedWait(start_s, length_s, kind, text(facts.get("name")) or kind)
        )
    given = [tokens(facts.get(f"{name}_tokens")) for name in ("prompt", "cached", "output", "thinking")]
    prompt, cached, output, thinking = (0 if count is None else count for count in given)
    if None in given or cached > prompt or thinking > output:
        return None
    ttft_s = seconds(facts.get("ttft_s"))
    within = ttft_s if ttft_s is not None and ttft_s <= length_s else None
    timing: Timing = "measured" if length_s else "absent"
    model = text(facts.get("model")) or "unknown"
    return RecordedCall(start_s, length_s, model, prompt, cached, output, thinking, within, timing)


def _lanes(lanes: Mapping[str, list[RecordedEvent]]) -> Iterator[RecordedLane]:
    """Yield the lanes, the main one first; one whose starter is not there was started by the main one."""
    first = "main" if "main" in lanes else min(lanes, key=lambda lane: (lane.count("/"), lane))
    origin_s = min(event.start_s for events in lanes.values() for event in events)
    for lane in sorted(lanes, key=lambda lane: (lane != first, lane.count("/"))):
        above = lane.rpartition("/")[0]
        parent = above if above in lanes and above != first else "main"
        name = "main" if lane == first else lane
        yield RecordedLane(name, None if lane == first else parent, _moved(lanes[lane], origin_s))


def _moved(events: list[RecordedEvent], origin_s: float) -> tuple[RecordedEvent, ...]:
    moved = (replace(event, start_s=event.start_s - origin_s) for event in events) if origin_s else events
    return tuple(sorted(moved, key=lambda event: event.start_s))
