"""From the calls, tools and prompts of a Claude Code session to the events of its lanes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate

from agentsim.importers._rows import (
    LONGEST_CALL_S,
    SLACK_S,
    Lane,
    ToolUse,
    compaction_start_s,
    tool_waits,
    waited_for_human,
)
from agentsim.importers._texts import together
from agentsim.importers._values import Odd
from agentsim.recorded import (
    PARTIAL_OUTPUT,
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedWait,
    Timing,
)

MAIN = "main"
CLOSED = "session closed"
_MOST_CHARS = 16  # to a token; an answer with more was cut off in its count, not in its text
_FEW_TOKENS = 4  # of which each may be a run of blanks


class Mark(IntEnum):
    """What a moment of a lane is, in the order in which moments of the same time are taken."""

    RESULT = 0
    AGENT = 1
    UNTIMED = 2
    COMPACT = 3
    PROMPT = 4
    NOTICE = 5
    INTERRUPT = 6
    BUSY = 7


@dataclass(slots=True)
class Call:
    """A model call as its rows tell it, on the clock of the log. `known` says that its times are."""

    lane: str
    ready_s: float
    start_s: float
    first_s: float
    end_s: float
    known: bool
    model: str = "unknown"
    prompt: int = 0
    cached: int = 0
    output: int = 0
    chars: int = 0
    uses: list[str] = field(default_factory=list)
    said: str = ""
    texts: tuple[str, ...] = ()


@dataclass(slots=True)
class Compacted:
    """A compaction that ended at `at_s`."""

    at_s: float
    length_s: float | None
    tokens: int = 0


@dataclass(slots=True)
class LaneLog:
    """What is known of a lane beside its calls."""

    parent: str | None = None
    last_input_s: float | None = None
    marks: list[tuple[float, Mark]] = field(default_factory=list)
    compactions: list[Compacted] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def lanes_of(
    logs: Mapping[str, LaneLog],
    calls: Mapping[str, Call],
    uses: Mapping[str, ToolUse],
    kinds: Mapping[str, str],
    odd: Odd,
) -> list[Lane]:
    """Return the lanes with their events, the main one first; times are those of the log.

    `kinds` are the types of sub-agents, which their lanes are named after.
    """
    by_lane: dict[str, list[Call]] = defaultdict(list)
    for call in calls.values():
        by_lane[call.lane].append(call)
    names = sorted(logs, key=lambda name: name != MAIN)
    lanes = [_lane(name, logs[name], by_lane[name], uses, odd) for name in names]
    for lane in lanes:
        lane.name, lane.parent = _label(lane.name, kinds), lane.parent and _label(lane.parent, kinds)
    return lanes


def _label(name: str, kinds: Mapping[str, str]) -> str:
    return name if name == MAIN else f"{kinds.get(name, 'sub-agent')} {name}"


def _lane(name: str, log: LaneLog, calls: list[Call], uses: Mapping[str, ToolUse], odd: Odd) -> Lane:
    lane = Lane(name, log.parent)
    marks = [(at_s, mark, at_s) for at_s, mark in log.marks]
    ends = Counter(call.end_s for call in calls)
    resumed: set[float] = set()
    for call in sorted(calls, key=lambda call: call.first_s):
        if call.known and ends[call.end_s] > 1:
            odd["answer stamped anew when the session was resumed"] += 1
            call.known = False
            resumed.add(call.end_s)
        lane.events += _call(call, odd)
        waits = tool_waits(_answered(call, uses), odd)
        lane.events += waits
        until_s = max((wait.end_s for wait in waits), default=call.start_s)
        marks += _call_marks(call, until_s)
    lane.events += _between(sorted(marks), log, name == MAIN, odd)
    if resumed and name == MAIN:
        lane.events += list(_closed(lane.events, sorted(resumed)))
    return lane


def _closed(events: Sequence[RecordedEvent], resumes_s: Sequence[float]) -> Iterator[RecordedEvent]:
    """Yield the time before each resume of which nothing is told: nobody was at work for sure."""
    spans = sorted((event.end_s, event.start_s) for event in events)
    ends_s = [end_s for end_s, _ in spans]
    earliest_s = list(accumulate((start_s for _, start_s in reversed(spans)), min))  # of the last n to end
    for at_s in resumes_s:
        before = bisect_left(ends_s, at_s)
        since_s = ends_s[before - 1] if before else at_s
        until_s = earliest_s[len(spans) - before - 1] if before < len(spans) else at_s
        if until_s > since_s + SLACK_S:
            yield RecordedWait(since_s, until_s - since_s, "human", CLOSED, timing="inferred")


def _answered(call: Call, uses: Mapping[str, ToolUse]) -> Iterator[ToolUse]:
    for use in (uses[key] for key in call.uses):
        use.answered_s = call.end_s
        yield use


def _call(call: Call, odd: Odd) -> Iterator[RecordedEvent]:
    length_s = call.end_s - call.start_s
    if call.known and length_s > LONGEST_CALL_S:
        odd["answer of over an hour, not believed"] += 1
        call.known = False
    if call.chars > _MOST_CHARS * (call.output + _FEW_TOKENS):
        odd[PARTIAL_OUTPUT] += 1
    if call.start_s > call.ready_s and call.known:
        name = "failed attempts and pauses"
        yield RecordedWait(call.ready_s, call.start_s - call.ready_s, "harness", name, timing="inferred")
    yield RecordedCall(
        call.start_s,
        length_s if call.known else 0.0,
        call.model,
        call.prompt,
        call.cached,
        call.output,
        timing="inferred" if call.known else "absent",
        said=call.said,
        text=together(call.texts),
    )


def _call_marks(call: Call, until_s: float) -> Iterator[tuple[float, Mark, float]]:
    if not call.known:
        yield call.start_s, Mark.UNTIMED, until_s
        return
    yield call.start_s, Mark.BUSY, max(call.end_s, until_s)
    yield call.end_s, Mark.AGENT, until_s


def _between(
    marks: list[tuple[float, Mark, float]], log: LaneLog, is_main: bool, odd: Odd
) -> Iterator[RecordedEvent]:
    """Yield the waits for humans and the compactions. Each mark says until when the agent is busy."""
    compactions = iter(sorted(log.compactions, key=lambda c: c.at_s))
    last_s, last, busy_s = None, Mark.UNTIMED, float("-inf")
    for at_s, mark, until_s in marks:
        idle = is_main and last_s is not None and busy_s <= at_s and last is not Mark.UNTIMED
        if mark is Mark.COMPACT:
            yield from _compaction(next(compactions), last_s if busy_s <= at_s else None, idle)
        elif mark in (Mark.PROMPT, Mark.NOTICE, Mark.INTERRUPT) and idle and last_s is not None:
            yield from _gap(last_s, at_s, last, mark, odd)
        if mark is not Mark.BUSY:
            last_s, last = at_s, mark
        busy_s = max(busy_s, until_s)


def _compaction(done: Compacted, free_s: float | None, idle: bool) -> Iterator[RecordedEvent]:
    start_s = compaction_start_s(free_s, done.at_s, done.length_s)
    if idle:
        yield from waited_for_human(free_s, start_s)
    timing: Timing = "inferred" if done.length_s is None else "measured"
    yield RecordedCompaction(start_s, done.at_s - start_s, done.tokens, timing)


def _gap(since_s: float, at_s: float, last: Mark, mark: Mark, odd: Odd) -> Iterator[RecordedEvent]:
    """Yield what an idle agent waited for until somebody spoke."""
    if mark is Mark.INTERRUPT or last is Mark.RESULT:
        odd["interrupted by the user, the answer lost"] += 1
        if at_s > since_s:
            yield RecordedWait(since_s, at_s - since_s, "harness", "interrupted answer", timing="inferred")
    elif mark is Mark.NOTICE:
        if at_s > since_s:
            yield RecordedWait(since_s, at_s - since_s, "tool", "background task", timing="inferred")
    else:
        yield from waited_for_human(since_s, at_s)
