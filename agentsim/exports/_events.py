"""The spans and turns of a result as events: model calls, tool calls, file reads, waits for a human.

A tool call is one event from the wait for its slot to the end of its last attempt.

What spans do not tell is lost here: a call of no time has no span, attempts without a pause between them
count as calls, and which attempts failed is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agentsim.errors import InputError
from agentsim.result import RETRY_PAUSE, SLOT_WAIT, Part, Result, Span, Turn

KINDS = {Part.TOOL: "tool", Part.FILE: "file", Part.HUMAN: "human"}
"""What an event is called that is no model call, which is a `model` event."""


@dataclass(slots=True)
class Event:
    """What one agent did in a stretch of time; `pieces` are its spans in order; a model call has a `turn`."""

    kind: str
    name: str
    start_ns: int
    end_ns: int
    pieces: list[Span] = field(default_factory=list)
    turn: Turn | None = None


@dataclass(slots=True)
class Lane:
    """One agent's events, by start. Its name is a path: `main/reviewer#2` was started by `main`."""

    name: str
    events: list[Event] = field(default_factory=list)

    @property
    def parent(self) -> str | None:
        return self.name.rpartition("/")[0] or None

    @property
    def label(self) -> str:
        """The agent's own name."""
        return plain(self.name.rpartition("/")[2])

    @property
    def start_ns(self) -> int:
        return min(event.start_ns for event in self.events)

    @property
    def end_ns(self) -> int:
        return max(event.end_ns for event in self.events)


@dataclass(slots=True)
class Task:
    """One task: its name among those of the run, and its lanes, main first, starters before started."""

    name: str
    lanes: list[Lane]

    @property
    def start_ns(self) -> int:
        return min(lane.start_ns for lane in self.lanes)

    @property
    def end_ns(self) -> int:
        return max(lane.end_ns for lane in self.lanes)


def plain(name: str) -> str:
    """Return a part of a lane's name as the workflow spells it."""
    return name.replace("%2F", "/").replace("%23", "#").replace("%25", "%")


def tasks_of(result: Result) -> list[Task]:
    """Return the tasks of a result with their events. Raises `InputError` where spans were not kept."""
    lanes: dict[str, Lane] = {}
    for lane, event in (*_calls(result), *_others(result)):
        lanes.setdefault(lane, Lane(lane)).events.append(event)
    if not lanes:
        raise InputError("the run kept no spans and no turns: there is nothing to export or to draw")
    tasks: dict[str, Task] = {}
    for full in sorted(lanes, key=_order):
        task, name = split_lane(full, len(result.tasks) > 1)
        lanes[full].name = name
        lanes[full].events.sort(key=lambda event: (event.start_ns, event.end_ns))
        tasks.setdefault(task, Task(task, [])).lanes.append(lanes[full])
    found = list(tasks.values())
    for made in found:
        _complete(made)
    return found


def tracks_of(lane: Lane) -> list[list[Event]]:
    """Return the events of a lane on as few tracks as it takes for none to overlap."""
    tracks: list[list[Event]] = []
    for event in lane.events:
        free = next((track for track in tracks if track[-1].end_ns <= event.start_ns), None)
        if free is None:
            tracks.append([event])
        else:
            free.append(event)
    return tracks


def split_lane(lane: str, several: bool) -> tuple[str, str]:
    """Return task and lane; where there is one task only, lanes are not marked with it."""
    if not several:
        return "1", lane
    task, _, name = lane.partition(":")
    return task, name


def _order(lane: str) -> tuple[int, int, str]:
    number = lane.partition(":")[0]
    return int(number) if number.isdigit() else 0, lane.count("/"), lane


def _complete(task: Task) -> None:
    """Add the agents that did nothing but start others."""
    names = {lane.name for lane in task.lanes}
    for lane in list(task.lanes):
        above = lane.parent
        while above is not None and above not in names:
            inside = [other for other in task.lanes if other.name.startswith(f"{above}/")]
            start_ns, end_ns = min(o.start_ns for o in inside), max(o.end_ns for o in inside)
            task.lanes.append(Lane(above, [Event("idle", "", start_ns, end_ns)]))
            names.add(above)
            above = task.lanes[-1].parent
    task.lanes.sort(key=lambda lane: (lane.name.count("/"), lane.start_ns, lane.name))


def _calls(result: Result) -> Iterator[tuple[str, Event]]:
    pieces: dict[tuple[str, int], list[Span]] = {}
    for span in result.spans:
        if span.turn is not None:
            pieces.setdefault((span.lane, span.turn), []).append(span)
    for turn in result.turns:
        name = "compaction" if turn.compaction else "chat"
        spans = pieces.get((turn.lane, turn.index), [])
        yield turn.lane, Event("model", name, turn.start_ns, turn.end_ns, spans, turn)


def _others(result: Result) -> list[tuple[str, Event]]:
    found: list[tuple[str, Event]] = []
    last: dict[int, Event] = {}
    for span in result.spans:
        if span.part not in KINDS or span.turn is not None:
            continue
        before = last.get(span.causes[0]) if span.causes else None
        name = span.name.removesuffix(SLOT_WAIT).removesuffix(RETRY_PAUSE)
        if before is not None and span.part is Part.TOOL and _goes_on(before, span, name):
            event = before
            event.end_ns = span.end_ns
        else:
            event = Event(KINDS[span.part], name, span.start_ns, span.end_ns)
            found.append((span.lane, event))
        event.pieces.append(span)
        last[span.id] = event
    return found


def _goes_on(before: Event, span: Span, name: str) -> bool:
    """Tell whether a span belongs to the call before it: a pause, or what follows a pause or a wait."""
    if before.kind != "tool" or before.name != name:
        return False
    idle = (SLOT_WAIT, RETRY_PAUSE)
    return span.name.endswith(RETRY_PAUSE) or before.pieces[-1].name.endswith(idle)
