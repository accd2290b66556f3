"""What a run came to, simulated or observed: tasks, model calls, spans, sources.

A `Result` is frozen, holds integer nanoseconds, and goes through JSON and back unchanged. `Part` names
what time can be spent on; the parts of a task's critical path sum to its elapsed time exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from agentsim.units import to_s

SCHEMA = "agentsim.result/1"


class Part(IntEnum):
    """What a stretch of the critical path was spent on, in the order of tables.

    `QUEUE` is waiting for the model's server; waiting for a slot of a tool is part of `TOOL`.
    """

    QUEUE = 0
    PREFILL = 1
    DECODE = 2
    KV_TRANSFER = 3
    TOOL = 4
    FILE = 5
    NETWORK = 6
    COMPACTION = 7
    HUMAN = 8

    @property
    def key(self) -> str:
        """The name in JSON."""
        return self.name.lower()


SHARES = (0.99, 0.95, 0.90, 0.75, 0.50)
"""The percentiles that tables print, in their order."""
INFERENCE = (Part.QUEUE, Part.PREFILL, Part.DECODE, Part.KV_TRANSFER, Part.COMPACTION)
"""Parts that faster inference could shorten."""
SLOT_WAIT, RETRY_PAUSE = " (waiting for a slot)", " (pause before a retry)"
"""What follows a tool's name in the spans of a call in which the tool does not work."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one agent's time. `causes` are ids of the spans that had to end before."""

    id: int
    part: Part
    name: str
    lane: str
    start_ns: int
    end_ns: int
    causes: tuple[int, ...] = ()
    critical: bool = False
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call. Tokens: `prompt` includes `cached`, `output` includes `thinking`.

    `context_after` is the context once the output joined it; `added` what user, tools and files had
    put there since the last turn (negative where a recorded harness cut it back).
    """

    index: int
    lane: str
    start_ns: int
    network_ns: int
    queue_ns: int
    prefill_ns: int
    transfer_ns: int
    decode_ns: int
    prompt: int
    cached: int
    output: int
    thinking: int
    context_before: int
    added: int
    context_after: int
    compaction: bool = False

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.ttft_ns + self.decode_ns

    @property
    def ttft_ns(self) -> int:
        """Time to first token as the agent sees it, network and KV transfer included."""
        return self.network_ns + self.queue_ns + self.prefill_ns + self.transfer_ns

    @property
    def itl_ns(self) -> float | None:
        """Mean inter-token latency, (latency - TTFT) / (output - 1); None below two tokens."""
        return self.decode_ns / (self.output - 1) if self.output > 1 else None


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One agent's whole task: its critical path by part, and what it took."""

    start_ns: int
    end_ns: int
    parts_ns: tuple[int, ...]
    model_calls: int
    tool_calls: int
    failed_calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    peak_context: int
    first_context: int
    critical_output: int
    """Tokens written on the critical path, compactions included ..."""
    critical_decode_ns: int
    """... and the time they took to write."""
    slot_wait_ns: int
    """The share of TOOL on the critical path that was spent waiting for a slot."""
    decode_ns: int
    """Decode time of all calls, those off the critical path included."""
    ttft_p95_ns: float = 0.0
    """95th percentile of its calls' time to first token, compactions left out; 0 without calls."""

    @property
    def human_ns(self) -> int:
        return self.parts_ns[Part.HUMAN]

    @property
    def completion_ns(self) -> int:
        """Task completion time: elapsed time without the waits for a human."""
        return self.end_ns - self.start_ns - self.human_ns


class Resource(NamedTuple):
    """Something of finite capacity, and the most of it that was in use at once."""

    name: str
    capacity: float
    peak: float


class Level(NamedTuple):
    """Something that goes up and down: its mean over the run, and the most it came to."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What one engine had to do over a run.

    KV is `live` while its call runs, `cached` while it waits for a next one. The series are shares of the
    capacity over evenly spaced stretches of the run: live alone, and `used`, which is both.
    """

    engine: str
    kv_capacity_bytes: float
    kv_live_bytes: Level
    kv_cached_bytes: Level
    running: Level
    waiting: Level
    preemptions: int
    live_series: tuple[float, ...]
    used_series: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data with levels by name."""
        levels = {name: getattr(self, name)._asdict() for name in _LEVELS}
        return {**asdict(self), **levels}


class Source(NamedTuple):
    """A datum that the run used."""

    name: str
    basis: str
    text: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A sample in the order that benchmark tables print. The unit is the sample's own."""

    avg: float
    min: float
    max: float
    p99: float
    p95: float
    p90: float
    p75: float
    p50: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Summarise a sample; None where it is empty. Percentiles are linearly interpolated."""
        if not values:
            return None
        ordered, count = sorted(values), len(values)
        mean = math.fsum(ordered) / count
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in ordered) / count)
        p99, p95, p90, p75, p50 = (percentile(ordered, q) for q in SHARES)
        return cls(mean, ordered[0], ordered[-1], p99, p95, p90, p75, p50, deviation)

    def scaled(self, factor: float) -> Spread:
        """Return the same spread in another unit."""
        return Spread(**{name: value * factor for name, value in asdict(self).items()})


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of an ordered, non-empty sample lies."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Result:
    """One run. `turns` and `spans` are empty where only the summary was asked for."""

    workflow: str
    deployment: str
    title: str
    seed: int
    origin: Literal["simulated", "observed"]
    tasks: tuple[TaskOutcome, ...]
    ttft_ns: Spread | None
    itl_ns: Spread | None
    calls_started: int
    calls_finished: int
    resources: tuple[Resource, ...] = ()
    sources: tuple[Source, ...] = ()
    warnings: Mapping[str, int] = field(default_factory=dict)
    """What a reader must know, and how many times it came up (0: it holds for the whole run)."""
    turns: tuple[Turn, ...] = ()
    spans: tuple[Span, ...] = ()
    cost_usd: float | None = None
    """USD a task; by the token, or (`by_the_hour`) for the chips as long as the task takes."""
    by_the_hour: bool = False
    lower_bound: bool = False
    """A part of the inference time is unknown and counts as zero."""
    asked_for: str = ""
    """What named the deployment: its name, or a path."""
    decode_parts: Mapping[str, float] = field(default_factory=dict)
    """What decoding waited for (s), where the engine that decodes says so; sums to the mean DECODE."""
    loads: tuple[EngineLoad, ...] = ()
    """What each engine of a simulation had to do."""
    overrides: tuple[str, ...] = ()
    """Fields that were set for this run alone, as `path=value`."""

    @property
    def task(self) -> TaskOutcome:
        """The first task; the only one where a single agent ran."""
        return self.tasks[0]

    def completion_s(self) -> list[float]:
        """Return every task's completion time in seconds."""
        return [to_s(task.completion_ns) for task in self.tasks]

    def part_s(self, part: Part) -> float:
        """Return the mean over tasks of the critical path's seconds in one part."""
        return to_s(sum(task.parts_ns[part] for task in self.tasks)) / len(self.tasks)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `from_json` turns back into an equal result."""
        resources = [r._asdict() for r in self.resources]
        sources = [s._asdict() for s in self.sources]
        loads = [load.to_json() for load in self.loads]
        return {"schema": SCHEMA, **asdict(self), "resources": resources, "sources": sources, "loads": loads}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """Rebuild a result. Precondition: `data` comes from `to_json`."""
        given = {k: v for k, v in data.items() if k != "schema"}
        rebuilt: dict[str, Any] = {
            "tasks": tuple(TaskOutcome(**{**t, "parts_ns": tuple(t["parts_ns"])}) for t in given["tasks"]),
            "turns": tuple(Turn(**t) for t in given["turns"]),
            "spans": tuple(_span(s) for s in given["spans"]),
            "resources": tuple(Resource(**r) for r in given["resources"]),
            "sources": tuple(Source(**s) for s in given["sources"]),
            "loads": tuple(_load(entry) for entry in given["loads"]),
            "overrides": tuple(given["overrides"]),
            "ttft_ns": Spread(**given["ttft_ns"]) if given["ttft_ns"] else None,
            "itl_ns": Spread(**given["itl_ns"]) if given["itl_ns"] else None,
        }
        return cls(**{**given, **rebuilt})


_LEVELS = ("kv_live_bytes", "kv_cached_bytes", "running", "waiting")


def _load(data: Mapping[str, Any]) -> EngineLoad:
    levels = {name: Level(**data[name]) for name in _LEVELS}
    series = {name: tuple(data[name]) for name in ("live_series", "used_series")}
    return EngineLoad(**{**data, **levels, **series})


def _span(data: Mapping[str, Any]) -> Span:
    return Span(**{**data, "part": Part(data["part"]), "causes": tuple(data["causes"])})
