"""Tools with a finite number of slots, shared by all agents of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from simpy import Resource as Slots

from agentsim.result import Resource
from agentsim.seeds import Stream
from agentsim.sim.clock import Clock
from agentsim.units import to_ns
from agentsim.workflow.graph import FileAccess, ToolCall


class ToolBench:
    """The slots of every limited tool, made when the tool is first called."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._slots: dict[str, Slots] = {}
        self._peaks: dict[str, int] = {}

    def slots(self, call: ToolCall) -> Slots | None:
        """Return the slots that a call must hold, or None where any number may run."""
        if call.slots is None:
            return None
        if call.name not in self._slots:
            self._slots[call.name] = Slots(self._env, call.slots)
        return self._slots[call.name]

    def note_use(self, name: str) -> None:
        """Remember how many slots are taken now."""
        self._peaks[name] = max(self._peaks.get(name, 0), self._slots[name].count)

    def resources(self) -> list[Resource]:
        return [
            Resource(f"tool {name}", slots.capacity, self._peaks.get(name, 0))
            for name, slots in sorted(self._slots.items())
        ]


@dataclass(frozen=True, slots=True)
class Attempts:
    """One call as drawn: the time of each attempt, the pause behind all but the last, how it ended."""

    times_ns: tuple[int, ...]
    pauses_ns: tuple[int, ...]
    result_tokens: int
    failed: bool


def draw_call(call: ToolCall, stream: Stream) -> Attempts:
    """Draw a tool call, its failures included. Everything is drawn before any of it happens."""
    times, pauses = list[int](), list[int]()
    retry, limit = call.retry, call.timeout_s
    pause_s = retry.initial_s if retry else 0.0
    while True:
        time_s = call.time_s(stream)
        times.append(to_ns(min(time_s, limit)))
        failed = time_s > limit or (retry is not None and stream() < retry.probability)
        if not failed or retry is None or len(pauses) >= retry.retries:
            return Attempts(tuple(times), tuple(pauses), int(call.result_tokens(stream)), failed)
        pauses.append(to_ns(pause_s))
        pause_s *= retry.factor


def draw_files(access: FileAccess, stream: Stream) -> tuple[int, int]:
    """Draw a run of files one after another; return (nanoseconds, tokens that join the context)."""
    time_s, tokens = 0.0, 0.0
    for _ in range(int(access.files(stream))):
        size = access.size_bytes(stream)
        time_s += access.latency_s(stream) + size / access.bytes_per_s
        tokens += access.tokens(size)
    return to_ns(time_s), int(tokens) + int(access.result_tokens(stream))
