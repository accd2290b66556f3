"""What a recorded session tells of itself: where its time went, tool by tool, and how that is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Any

from agentsim import units
from agentsim.importers._split import Split, observed_split
from agentsim.recorded import RecordedCall, RecordedCompaction, RecordedLane, RecordedSession, RecordedWait

SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Slow:
    """A long stretch of a session: what it was, and how long (s)."""

    name: str
    session: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One session as observed. Times are seconds; `tools_s` counts every call, side by side or not.

    `sub_agents_s` is how long each sub-agent was at it, from its first event to its last; `compaction_s` is
    the part of the split's residual in which the main agent's context was summarised. `overlap_s` is how long
    calls of one agent ran beside another of its own.
    """

    session: str
    format: str
    split: Split
    compaction_s: float
    overlap_s: float
    tools_s: Mapping[str, float]
    slowest: tuple[Slow, ...]
    model_calls: int
    tool_calls: int
    sub_agents_s: Mapping[str, float]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    contexts: tuple[int, ...]
    durations: Mapping[str, int]

    @property
    def model_s(self) -> float:
        """Time in which a model was at work, sub-agents' included; what overlaps counts once."""
        return _whole(self.split.model_s + self.split.subagent_model_s)

    @property
    def tool_s(self) -> float:
        """Time in which tools were at work and no model."""
        return _whole(self.split.tool_s + self.split.subagent_tool_s)

    @property
    def sub_agents(self) -> int:
        return len(self.sub_agents_s)

    @property
    def task_s(self) -> float:
        """Time on the task: everything but the waits for a human."""
        return _whole(self.split.elapsed_s - self.split.human_s)

    def to_json(self) -> dict[str, Any]:
        """Return the object of this session in `observe --format json`."""
        return {
            "session": self.session,
            "format": self.format,
            "task_s": self.task_s,
            "model_s": self.model_s,
            "tool_s": self.tool_s,
            "human_s": self.split.human_s,
            "residual_s": self.split.residual_s,
            "compaction_s": self.compaction_s,
            "overlap_s": self.overlap_s,
            "tools_s": dict(self.tools_s),
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "sub_agents": self.sub_agents,
            "sub_agents_s": dict(self.sub_agents_s),
            "tokens": {
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
            },
            "durations": dict(self.durations),
            "skipped": dict(self.split.odd),
        }


@dataclass(slots=True)
class Totals:
    """What any number of sessions come to, in room that hardly grows with it. Times are seconds.

    `contexts` counts the model calls by their prompt tokens, `first` is the name of the first session.
    """

    sessions: int = 0
    first: str = ""
    elapsed_s: float = 0.0
    model_s: float = 0.0
    tool_s: float = 0.0
    human_s: float = 0.0
    residual_s: float = 0.0
    compaction_s: float = 0.0
    tool_calls: int = 0
    sub_agents: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tools_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    contexts: Counter[int] = field(default_factory=Counter)
    durations: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    slowest: tuple[Slow, ...] = ()

    @property
    def task_s(self) -> float:
        return self.elapsed_s - self.human_s

    def add(self, session: RecordedSession) -> None:
        """Add a session; a row of a serving trace, of which there are millions, in a shorter way."""
        lanes = session.lanes
        alone = lanes[0].events[0] if len(lanes) == len(lanes[0].events) == 1 else None
        if isinstance(alone, RecordedCall) and self.sessions:
            self._add_call(session, alone)
        else:
            self._add(observe(session))

    def _add_call(self, session: RecordedSession, call: RecordedCall) -> None:
        self.sessions += 1
        self.prompt_tokens += call.prompt_tokens
        self.cached_tokens += call.cached_tokens
        self.contexts[call.prompt_tokens] += 1
        self.durations[call.timing] += 1
        if session.odd:
            self.odd.update(session.odd)
        if call.duration_s:
            self.elapsed_s += call.duration_s
            self.model_s += call.duration_s
            self._add_slow(_slowest(session.name, [call], []))

    def _add(self, seen: Observation) -> None:
        self.first = self.first or seen.session
        self.sessions += 1
        self.elapsed_s += seen.split.elapsed_s
        self.model_s += seen.model_s
        self.tool_s += seen.tool_s
        self.human_s += seen.split.human_s
        self.residual_s += seen.split.residual_s
        self.compaction_s += seen.compaction_s
        self.tool_calls += seen.tool_calls
        self.sub_agents += seen.sub_agents
        self.prompt_tokens += seen.prompt_tokens
        self.cached_tokens += seen.cached_tokens
        for context in seen.contexts:
            self.contexts[context] += 1
        for timing, count in seen.durations.items():
            self.durations[timing] += count
        for what, count in seen.split.odd.items():
            self.odd[what] += count
        for name, length_s in seen.tools_s.items():
            self.tools_s[name] += length_s
        self._add_slow(seen.slowest)

    def _add_slow(self, found: tuple[Slow, ...]) -> None:
        least_s = self.slowest[-1].duration_s if len(self.slowest) == SLOWEST else -1.0
        if found and found[0].duration_s > least_s:
            self.slowest = _longest([*self.slowest, *found])

    def context_at(self, share: float) -> int:
        """Return the prompt tokens that `share` of the model calls do not exceed; 0 without a call."""
        left = share * self.contexts.total()
        for tokens, count in sorted(self.contexts.items()):
            left -= count
            if left <= 0:
                return tokens
        return 0


def observe(session: RecordedSession) -> Observation:
    """Return what a session tells of itself."""
    calls, tools = _calls_and_tools(session)
    split = observed_split(session)
    compactions = (e for e in session.lanes[0].events if isinstance(e, RecordedCompaction))
    return Observation(
        session=session.name,
        format=session.format,
        split=split,
        compaction_s=min(_whole(sum(e.duration_s for e in compactions)), split.residual_s),
        overlap_s=_whole(sum(_overlap_s(lane) for lane in session.lanes)),
        tools_s=_by_name(tools),
        slowest=_slowest(session.name, calls, tools),
        model_calls=len(calls),
        tool_calls=len(tools),
        sub_agents_s={lane.name: _whole(lane.end_s - lane.start_s) for lane in session.lanes[1:]},
        prompt_tokens=sum([call.prompt_tokens for call in calls]),
        cached_tokens=sum([call.cached_tokens for call in calls]),
        output_tokens=sum([call.output_tokens for call in calls]),
        contexts=tuple([call.prompt_tokens for call in calls]),
        durations=_known(calls, tools),
    )


def _whole(length_s: float) -> float:
    """Return a sum of times in whole nanoseconds: what binary fractions leave behind is no time."""
    return units.to_s(units.to_ns(length_s))


def _calls_and_tools(session: RecordedSession) -> tuple[list[RecordedCall], list[RecordedWait]]:
    calls: list[RecordedCall] = []
    tools: list[RecordedWait] = []
    for lane in session.lanes:
        for event in lane.events:
            if isinstance(event, RecordedCall):
                calls.append(event)
            elif isinstance(event, RecordedWait) and event.kind == "tool":
                tools.append(event)
    return calls, tools


def _overlap_s(lane: RecordedLane) -> float:
    overlap_s, until_s = 0.0, -math.inf
    for call in lane.calls:
        overlap_s += max(min(until_s, call.end_s) - call.start_s, 0.0)
        until_s = max(until_s, call.end_s)
    return overlap_s


def _by_name(tools: Iterable[RecordedWait]) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for tool in tools:
        times[tool.name] += tool.duration_s
    return {name: _whole(length_s) for name, length_s in sorted(times.items(), key=lambda item: -item[1])}


def _slowest(session: str, calls: list[RecordedCall], tools: list[RecordedWait]) -> tuple[Slow, ...]:
    longest = nlargest(SLOWEST, tools, key=_length)
    found = [Slow(tool.name, session, tool.duration_s) for tool in longest]
    answers = nlargest(SLOWEST, calls, key=_length)
    found += [Slow(f"answer of {call.model or 'the model'}", session, call.duration_s) for call in answers]
    return _longest(found)


_length = attrgetter("duration_s")


def _longest(found: Iterable[Slow]) -> tuple[Slow, ...]:
    return tuple(sorted(found, key=lambda slow: -slow.duration_s)[:SLOWEST])


def _known(calls: Iterable[RecordedCall], tools: Iterable[RecordedWait]) -> dict[str, int]:
    counts = {"measured": 0, "inferred": 0, "absent": 0}
    for call in calls:
        counts[call.timing] += 1
    for tool in tools:
        counts[tool.timing] += 1
    return counts
