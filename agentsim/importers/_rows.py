"""What the importers of agents' own logs share: rows read forgivingly, tool waits, lanes.

An agent's log ends where the power went out, holds half-written rows and clocks that jump. What can be
read is read, what cannot is counted; only a file that gives nothing at all is an `ImportFormatError`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._values import EARLIEST_S, Odd
from agentsim.importers.base import ANY_JSON, BOM, damage_of, decoded, opened
from agentsim.recorded import (
    RecordedCall,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    Timing,
    WaitKind,
    set_time,
)

Row = dict[str, Any]
Interval = tuple[float, float]

SLACK_S = 1.0
"""How much longer a tool may seem than its own clock says before somebody must have been asked first."""
LONGEST_TOOL_S = 600.0
"""The longest time limit a shell command is given; what takes longer and has no clock waited for someone."""
LONGEST_CALL_S = 3600.0
"""No service streams an answer for longer; such a gap is a machine asleep."""

MAX_ROW_BYTES = 64 * 2**20
"""A longer row holds pictures or files, not an answer; reading it would take several times the room."""

MAX_DEPTH = 16
"""Sub-agents within sub-agents; what lies deeper belongs to the main agent."""

APPROVAL = "approval or suspend"
HUMAN = "human"

_DIGITS = 6  # a float of seconds since 1970 holds no more
_ROWS_KEPT = 300_000


def rows_of(path: str, odd: Odd, begins: bytes, stamp: bytes | None = None) -> Iterator[Row]:
    """Yield the JSON objects of a file, one a line; what is no JSON object is counted and left out.

    Where a row was cut off and another written behind it, `begins` tells where that one begins. Rows that
    hold `stamp` are different moments: one that stands there again, byte by byte, is left out.
    """
    read, seen = False, set[int]()
    for raw in _byte_lines(path, odd):
        if stamp is not None and stamp in raw:
            if hash(raw) in seen:
                odd["row written again"] += 1
                continue
            seen.add(hash(raw))
            if len(seen) > _ROWS_KEPT:
                seen.clear()
        row = _row(raw, odd, begins)
        if row is not None:
            read = True
            yield row
    if not read:
        raise ImportFormatError(f"{path}:1: no row of it is a JSON object")


def _row(raw: bytes, odd: Odd, begins: bytes) -> Row | None:
    row = _object(raw)
    if row is None:
        odd["row cut off or not JSON"] += 1
        second = raw.rfind(begins, 1)
        row = _object(raw[second:]) if second > 0 else None
    return row


def _object(raw: bytes) -> Row | None:
    try:
        value = decoded(raw.decode(), ANY_JSON)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _byte_lines(path: str, odd: Odd) -> Iterator[bytes]:
    """Yield the lines of a file, packed or not, split at line feeds only, without blank and huge ones."""
    number = 0
    try:
        with opened(path) as file:
            while raw := file.readline(MAX_ROW_BYTES + 1):
                number += 1
                if len(raw) > MAX_ROW_BYTES:
                    odd[f"row of over {MAX_ROW_BYTES // 2**20} MiB"] += 1
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(MAX_ROW_BYTES)
                    continue
                raw = raw.removeprefix(BOM) if number == 1 else raw
                if not raw.isspace() and raw:
                    yield raw
    except Exception as bad:
        raise damage_of(bad, path, number + 1) from None


def mapping(value: Any) -> Row:
    """Return an object as it is, and anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def name_of(value: Any, default: str = "unknown") -> str:
    """Return a name of at most 200 characters, or the default where there is none."""
    return value[:200] if isinstance(value, str) and value.strip() else default


def key_of(value: Any) -> str | None:
    """Return an identifier, None where it is missing or empty."""
    return value if isinstance(value, str) and value else None


@dataclass(slots=True)
class ToolUse:
    """A call of a tool. `own_s` is what the tool's own clock says, `exact` that it leaves nothing out.

    `timed` tells whether the log stamped it; `asks_human` that it does nothing but ask.
    `earliest_s` and `answered_s` are when the model call that asked for it began and ended.
    """

    name: str
    start_s: float
    earliest_s: float
    end_s: float | None = None
    own_s: float | None = None
    answered_s: float = -math.inf
    exact: bool = False
    timed: bool = True
    asks_human: bool = False
    may_be_long: bool = False
    text: str = ""
    result_text: str = ""


def tool_waits(uses: Iterable[ToolUse], odd: Odd, approval: WaitKind = "human") -> list[RecordedWait]:
    """Return the waits for the tools of one model call, side by side as they ran, and for whom they asked.

    A tool's own clock counts; where that is not exact and agrees within `SLACK_S`, the time to its result.
    """
    waits: list[RecordedWait] = []
    asked: list[tuple[str, Interval]] = []
    for use in uses:
        if use.end_s is None:
            odd["tool call without result"] += 1
            continue
        if use.end_s < use.start_s:
            odd["tool result earlier than its call"] += 1
            use.end_s, use.own_s = use.start_s, None
        began_s = _began_s(use, use.end_s)
        if began_s is not None:
            texts = use.text, use.result_text
            waits.append(
                RecordedWait(began_s, use.end_s - began_s, "tool", use.name, 0, _timing(use), *texts)
            )
        name = use.name if use.asks_human else APPROVAL
        since_s, until_s = max(use.start_s, use.answered_s), use.end_s if began_s is None else began_s
        if until_s > since_s + (SLACK_S if began_s is not None else 0):
            asked.append((name, (since_s, until_s)))
    return sorted([*waits, *_asked(asked, waits, odd, approval)], key=lambda wait: wait.start_s)


def _timing(use: ToolUse) -> Timing:
    if use.own_s is not None:
        return "measured"
    return "inferred" if use.timed else "absent"


def _asked(
    asked: list[tuple[str, Interval]], tools: list[RecordedWait], odd: Odd, approval: WaitKind
) -> Iterator[RecordedWait]:
    """Yield the waits for a human, as far as no tool was at work, each moment once."""
    taken = [(wait.start_s, wait.end_s) for wait in tools]
    for name, interval in asked:
        for start_s, end_s in list(free_of([interval], taken)):
            if name == APPROVAL and end_s - start_s <= SLACK_S:
                continue
            odd["wait beside a tool, taken as approval or suspend"] += name == APPROVAL
            kind: WaitKind = approval if name == APPROVAL else "human"
            yield RecordedWait(start_s, end_s - start_s, kind, name, timing="inferred")
            taken.append((start_s, end_s))


def _began_s(use: ToolUse, end_s: float) -> float | None:
    """Return when a tool began to work; None where all of the time was a human's."""
    span_s = end_s - use.start_s
    if use.asks_human:
        return None
    if use.own_s is None:
        return None if span_s > LONGEST_TOOL_S and not use.may_be_long else use.start_s
    if use.own_s > span_s:
        return max(end_s - use.own_s, min(use.earliest_s, use.start_s))
    close = span_s - use.own_s <= SLACK_S and not use.exact
    return use.start_s if close else end_s - use.own_s


def waited_for_human(since_s: float | None, until_s: float) -> list[RecordedEvent]:
    """Return the wait for what a human said next; none where the agent was not idle."""
    if since_s is None or until_s <= since_s:
        return []
    return [RecordedWait(since_s, until_s - since_s, "human", HUMAN, timing="inferred")]


def compaction_start_s(free_s: float | None, end_s: float, length_s: float | None = None) -> float:
    """Return when a compaction began: as its length says, else when the agent was free, unless long ago."""
    if length_s is not None:
        return end_s - length_s
    return free_s if free_s is not None and 0 <= end_s - free_s <= LONGEST_TOOL_S else end_s


def free_of(wanted: Sequence[Interval], taken: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of the union of `wanted` that no interval of `taken` covers."""
    edges = sorted({edge for pair in (*wanted, *taken) for edge in pair})
    pairs = pairwise(edges)
    yield from _merged((a, b) for a, b in pairs if _covers(wanted, a, b) and not _covers(taken, a, b))


def _covers(intervals: Sequence[Interval], start_s: float, end_s: float) -> bool:
    return any(a <= start_s and end_s <= b for a, b in intervals)


def _merged(intervals: Iterable[Interval]) -> Iterator[Interval]:
    held: Interval | None = None
    for start_s, end_s in intervals:
        if held is not None and held[1] == start_s:
            held = held[0], end_s
            continue
        if held is not None:
            yield held
        held = start_s, end_s
    if held is not None:
        yield held


@dataclass(slots=True)
class Lane:
    """An agent's events as they are found, on the clock of the log. Those of one moment keep their order."""

    name: str
    parent: str | None = None
    events: list[RecordedEvent] = field(default_factory=list)


def session_of(
    name: str, form: str, lanes: Sequence[Lane], odd: Odd, place: str, id: str = ""
) -> RecordedSession:
    """Return a session whose clock starts at its first event; lanes without events are left out.

    The main lane is the first that is left. Raises `ImportFormatError` at `place` where no call is.
    """
    kept = [lane for lane in lanes if lane.events]
    if not any(isinstance(event, RecordedCall) for lane in kept for event in lane.events):
        raise ImportFormatError(f"{place}: no model call in this log{_listed(odd)}")
    main = kept[0]
    main.name = "main"
    parents = {x.name: x.parent for x in kept if x is not main}
    origin_s = _origin_s([event for x in kept for event in x.events])
    recorded = tuple(
        RecordedLane(x.name, None if x is main else _parent(x, parents, main), _from(origin_s, x.events))
        for x in kept
    )
    return RecordedSession(name, form, recorded, odd=dict(sorted((+odd).items())), id=id)


def _origin_s(events: list[RecordedEvent]) -> float:
    """Return the first time that the log tells; where it tells none, times count from 0 already."""
    times = (time_s for event in events for time_s in (event.start_s, event.end_s))
    return min((x for x in times if x >= EARLIEST_S), default=min(event.start_s for event in events))


def _listed(odd: Odd) -> str:
    return "".join(f"; {what}: {count}" for what, count in sorted((+odd).items()))


def _parent(lane: Lane, parents: Mapping[str, str | None], main: Lane) -> str:
    """Return the lane that started this one; the main one where the record goes in circles or too deep."""
    above = parents.get(lane.name)
    for _ in range(MAX_DEPTH):
        if above is None or above not in parents:
            return lane.parent if lane.parent in parents and lane.parent else main.name
        above = parents[above]
    return main.name


def _from(origin_s: float, events: list[RecordedEvent]) -> tuple[RecordedEvent, ...]:
    events.sort(key=lambda event: event.start_s)
    for event in events:  # in place: a log may hold a hundred thousand
        start_s = max(round(event.start_s - origin_s, _DIGITS), 0.0)  # what has no time stands at the start
        length_s = max(round(event.end_s - origin_s, _DIGITS) - start_s, 0.0)
        set_time(event, start_s, round(length_s, _DIGITS))
    return tuple(events)
