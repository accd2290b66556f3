"""What a recorded session tells of itself: where its time went, tool by tool, and how that is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._split import Split, observed_split
from agentsim.recorded import RecordedCall, RecordedSession, RecordedWait

SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Slow:
    """A long stretch of a session: what it was, and how long (s)."""

    name: str
    session: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """One session as observed. Times are seconds; `tools_s` counts every call, side by side or not."""

    session: str
    format: str
    split: Split
    tools_s: Mapping[str, float]
    slowest: tuple[Slow, ...]
    model_calls: int
    tool_calls: int
    sub_agents: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    contexts: tuple[int, ...]
    durations: Mapping[str, int]

    @property
    def model_s(self) -> float:
        """Time in which a model was at work, sub-agents' included; what overlaps counts once."""
        return self.split.model_s + self.split.subagent_model_s

    @property
    def tool_s(self) -> float:
        """Time in which tools were at work and no model."""
        return self.split.tool_s + self.split.subagent_tool_s

    @property
    def task_s(self) -> float:
        """Time on the task: everything but the waits for a human."""
        return self.split.elapsed_s - self.split.human_s

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
            "tools_s": dict(self.tools_s),
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "sub_agents": self.sub_agents,
            "tokens": {
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
            },
            "durations": dict(self.durations),
            "skipped": dict(self.split.odd),
        }


def observe(session: RecordedSession) -> Observation:
    """Return what a session tells of itself."""
    calls = list(session.calls)
    waits = [e for lane in session.lanes for e in lane.events if isinstance(e, RecordedWait)]
    tools = [wait for wait in waits if wait.kind == "tool"]
    return Observation(
        session=session.name,
        format=session.format,
        split=observed_split(session),
        tools_s=_by_name(tools),
        slowest=_slowest(session.name, calls, tools),
        model_calls=len(calls),
        tool_calls=len(tools),
        sub_agents=len(session.lanes) - 1,
        prompt_tokens=sum(call.prompt_tokens for call in calls),
        cached_tokens=sum(call.cached_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        contexts=tuple(call.prompt_tokens for call in calls),
        durations=_known([*calls, *tools]),
    )


def _by_name(tools: Iterable[RecordedWait]) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for tool in tools:
        times[tool.name] += tool.duration_s
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def _slowest(session: str, calls: list[RecordedCall], tools: list[RecordedWait]) -> tuple[Slow, ...]:
    found = [Slow(tool.name, session, tool.duration_s) for tool in tools]
    found += [Slow(f"answer of {call.model or 'the model'}", session, call.duration_s) for call in calls]
    return tuple(sorted(found, key=lambda slow: -slow.duration_s)[:SLOWEST])


def _known(events: Iterable[RecordedCall | RecordedWait]) -> dict[str, int]:
    counts = Counter(event.timing for event in events)
    return {timing: counts[timing] for timing in ("measured", "inferred", "absent")}
