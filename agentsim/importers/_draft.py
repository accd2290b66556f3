"""A session while it is read from a trajectory, on an absolute clock that is shifted when it is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._trajectory import documents, scaled_to
from agentsim.importers._values import EARLIEST_S, LONGEST_S
from agentsim.recorded import (
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    Timing,
)


@dataclass(slots=True)
class Lane:
    """An agent while it is read; times are absolute."""

    name: str
    parent: str | None = None
    events: list[RecordedEvent] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """A session while it is read: the lanes, main first, and what was odd."""

    name: str
    format: str
    odd: Counter[str] = field(default_factory=Counter)
    lanes: list[Lane] = field(default_factory=lambda: [Lane("main")])
    system_tokens: int = 0
    keep_text: bool = False

    def lane(self, name: str, parent: str) -> Lane:
        """Add a sub-agent under a name that is still free."""
        taken, free, count = {lane.name for lane in self.lanes}, name, 1
        while free in taken:
            count += 1
            free = f"{name} {count}"
        self.lanes.append(Lane(free, parent))
        return self.lanes[-1]

    def span(self, start_s: float, end_s: float, what: str) -> float:
        """Return the length of a span; one that is negative or absurdly long is 0 and counted."""
        if 0 <= end_s - start_s <= LONGEST_S:
            return end_s - start_s
        self.odd[f"{what} of negative time" if end_s < start_s else f"{what} of absurd time"] += 1
        return 0.0

    def inferred(self, before_s: float, at_s: float, what: str) -> tuple[float, float, Timing]:
        """Return start, length and how it is known of what lasted from one record to the next."""
        length_s = self.span(before_s, at_s, what)
        return (
            at_s - length_s,
            length_s,
            "inferred" if before_s <= at_s <= before_s + LONGEST_S else "absent",
        )

    def built(self) -> RecordedSession | None:
        """Return the session with the clock at 0 for its first event, None where it holds no call."""
        starts = [event.start_s for lane in self.lanes for event in lane.events]
        # an event that no time is known of stands at 0 of the clock: it moves to the session's start
        origin_s = min((s for s in starts if s >= EARLIEST_S), default=min(starts, default=0.0))
        lanes = [_built(lane, origin_s) for lane in self.lanes if lane.events or lane is self.lanes[0]]
        if not any(isinstance(event, RecordedCall) for lane in lanes for event in lane.events):
            return None
        odd = {what: count for what, count in sorted(self.odd.items()) if count}
        return RecordedSession(self.name, self.format, tuple(lanes), self.system_tokens, odd)


def _built(lane: Lane, origin_s: float) -> RecordedLane:
    shifted = [_moved(event, max(event.start_s - origin_s, 0.0)) for event in lane.events]
    return RecordedLane(lane.name, lane.parent, _with_results(sorted(shifted, key=_start)))


def _moved(event: RecordedEvent, start_s: float) -> RecordedEvent:
    """Return an event at another time; `dataclasses.replace` is the slowest part of an import."""
    if isinstance(event, RecordedWait):
        kept = event.kind, event.name, event.result_tokens, event.timing, event.text, event.result_text
        return RecordedWait(start_s, event.duration_s, *kept)
    if isinstance(event, RecordedCall):
        counts = event.prompt_tokens, event.cached_tokens, event.output_tokens, event.thinking_tokens
        texts = event.said, event.text
        return made_call((start_s, event.duration_s), event.model, counts, event.timing, texts)
    return replace(event, start_s=start_s)


def _start(event: RecordedEvent) -> float:
    return event.start_s


def _with_results(events: list[RecordedEvent]) -> tuple[RecordedEvent, ...]:
    """Give the tool that stands alone between two calls what the context grew by."""
    before: RecordedCall | None = None
    tools: list[int] = []
    plain = True
    for index, event in enumerate(events):
        if isinstance(event, RecordedWait):
            tools += [index] if event.kind == "tool" else []
            plain = plain and event.kind != "human"
        elif isinstance(event, RecordedCompaction):
            plain = False
        else:
            if before is not None and plain and len(tools) == 1:
                kept = before.prompt_tokens + before.output_tokens - before.thinking_tokens
                growth, wait = max(event.prompt_tokens - kept, 0), events[tools[0]]
                assert isinstance(wait, RecordedWait), "only waits were noted"
                events[tools[0]] = replace(wait, result_tokens=growth)
            before, tools, plain = event, [], True
    return tuple(events)


def made_call(
    span: tuple[float, float],
    model: str,
    counts: tuple[int, int, int, int],
    timing: Timing,
    texts: tuple[str, str] = ("", ""),
) -> RecordedCall:
    """Return a call of (start, length) with (prompt, cached, output, thinking) tokens, and its texts."""
    prompt, cached, output, thinking = counts
    return RecordedCall(span[0], span[1], model, prompt, cached, output, thinking, None, timing, *texts)


NO_CALL = "trajectory without a model call"


def of_values(
    path: str, read: Callable[[Any], Iterable[RecordedSession | None]]
) -> Iterator[RecordedSession | str | ImportFormatError]:
    """Yield what `read` makes of each JSON value of a file, and why one gave no session."""
    for value in documents(path):
        if isinstance(value, ImportFormatError):
            yield value
        else:
            yield from (session or NO_CALL for session in read(value))


def told(found: Iterable[RecordedSession | str | ImportFormatError], path: str) -> Iterator[RecordedSession]:
    """Yield the sessions of a file; each reason for one that is not there is counted with its neighbour."""
    held: RecordedSession | None = None
    lost: Counter[str] = Counter()
    first: ImportFormatError | None = None
    for item in found:
        if isinstance(item, RecordedSession):
            if held is not None:
                yield held
            held, lost = _with_lost(item, lost), Counter()
        else:
            first = first or (item if isinstance(item, ImportFormatError) else None)
            lost["line that is not JSON" if isinstance(item, ImportFormatError) else item] += 1
    if held is None:
        raise first or ImportFormatError(f"{path}:1: {next(iter(lost), 'the log holds no session')}")
    yield _with_lost(held, lost)


def _with_lost(session: RecordedSession, lost: Counter[str]) -> RecordedSession:
    return replace(session, odd=dict(Counter(session.odd) + lost)) if lost else session


def rescale(lane: Lane, prompt_total: int | None, output_total: int | None) -> None:
    """Bring estimated tokens of a lane's calls to the totals that the log gives; no total changes nothing."""
    places = [i for i, event in enumerate(lane.events) if isinstance(event, RecordedCall)]
    calls = [event for event in lane.events if isinstance(event, RecordedCall)]
    prompts = scaled_to(prompt_total, [call.prompt_tokens for call in calls])
    outputs = scaled_to(output_total, [call.output_tokens for call in calls])
    for place, call, prompt, output in zip(places, calls, prompts, outputs, strict=True):
        lane.events[place] = replace(
            call,
            prompt_tokens=prompt,
            cached_tokens=min(call.cached_tokens, prompt),
            output_tokens=output,
            thinking_tokens=min(call.thinking_tokens, output),
        )
