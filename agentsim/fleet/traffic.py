"""How many agents come, and when: at once, at a rate, at given times, or each when another ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from agentsim.errors import InputError, unknown_name
from agentsim.seeds import stream
from agentsim.units import HOUR_S, MAX_SECONDS, duration_text, parse, rounded_text

MAX_AGENTS = 1_000_000
KINDS = {
    "poisson": "poisson:0.5/s",
    "uniform": "uniform:2/s",
    "at-once": "at-once",
    "trace": "trace:FILE",
}
"""The kinds of arrival, and how each is written."""


class Arrival(NamedTuple):
    """When agents come: `per_s` of them, at random (poisson) or evenly (uniform), or as a trace says."""

    kind: str = "at-once"
    per_s: float = 0.0
    times_s: tuple[float, ...] = ()

    def starts_s(self, agents: int, seed: int) -> list[float]:
        """Return the arrival of every agent in seconds from the start, none before the one before it."""
        if self.kind == "trace":
            return list(self.times_s[:agents])
        if self.kind == "at-once":
            return [0.0] * agents
        if self.kind == "uniform":
            return [index / self.per_s for index in range(agents)]
        draw, now, starts = stream(seed, "arrivals"), 0.0, list[float]()
        for _ in range(agents):
            now -= math.log(draw()) / self.per_s
            starts.append(now)
        return starts


AT_ONCE = Arrival()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Agents and how they come. With `concurrency`, so many users each start an agent when theirs ends.

    The users begin one after another within `ramp_s`.
    """

    agents: int = 1
    arrival: Arrival = AT_ONCE
    concurrency: int | None = None
    ramp_s: float = 0.0

    def starts_s(self, seed: int) -> list[float]:
        """Return the moments that agents do not start before."""
        if self.concurrency is None or not self.ramp_s:
            return self.arrival.starts_s(self.agents, seed)
        users = min(self.concurrency, self.agents)
        return [self.ramp_s * index / users for index in range(users)] + [0.0] * (self.agents - users)

    @property
    def text(self) -> str:
        """The traffic in words."""
        agents = f"{self.agents:,} agent{'s' if self.agents > 1 else ''}"
        if self.concurrency is not None:
            return f"{agents}, {self.concurrency:,} at a time"
        kind, rate = self.arrival.kind, self.arrival.per_s
        if kind == "trace":
            return f"{agents} at the times of a trace"
        if kind == "at-once":
            return f"{agents} at once" if self.agents > 1 else agents
        how = "at random" if kind == "poisson" else "evenly"
        return f"{agents}, {rate_text(rate)} {how}"


def rate_text(per_s: float) -> str:
    """Return a rate in the unit in which it is a number that one can picture."""
    for unit, seconds in (("second", 1.0), ("minute", 60.0)):
        if per_s * seconds >= 0.1:
            return f"{rounded_text(per_s * seconds)} a {unit}"
    return f"{rounded_text(per_s * HOUR_S)} an hour"


def traffic_of(agents: int | None, arrival: str | None, concurrency: int | None) -> Traffic:
    """Return the traffic that the options ask for. Raises `InputError` for what makes no sense."""
    if agents is not None and not 1 <= agents <= MAX_AGENTS:
        raise InputError(f"--agents {agents:,}: a fleet has 1 to {MAX_AGENTS:,} agents")
    if concurrency is not None:
        return _closed_loop(agents or 1, arrival, concurrency)
    if arrival is None:
        return Traffic(agents or 1)
    coming = parse_arrival(arrival)
    if coming.kind == "trace":
        return _traced(agents, coming)
    count = agents or 1
    if coming.per_s and count / coming.per_s > MAX_SECONDS:
        raise InputError(
            f"--arrival {arrival}: {count:,} agents would take over {duration_text(MAX_SECONDS)} to arrive"
        )
    return Traffic(count, coming)


def _closed_loop(agents: int, arrival: str | None, concurrency: int) -> Traffic:
    if arrival is not None:
        raise InputError(
            "--concurrency lets an agent start when one ends, --arrival at its own time: give one of them"
        )
    if concurrency < 1:
        raise InputError(f"--concurrency {concurrency}: at least 1 agent must run")
    if concurrency > agents:
        raise InputError(
            f"--concurrency {concurrency:,} with --agents {agents:,}: give at least as many agents"
        )
    return Traffic(agents, concurrency=concurrency)


def _traced(agents: int | None, coming: Arrival) -> Traffic:
    known = len(coming.times_s)
    if agents is not None and agents > known:
        raise InputError(f"--agents {agents:,}: the trace has the arrivals of {known:,}")
    return Traffic(agents or known, coming)


def parse_arrival(text: str) -> Arrival:
    """Return what `poisson:0.5/s`, `uniform:2/s`, `at-once` or `trace:FILE` says."""
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        raise unknown_name("kind of arrival", kind, KINDS)
    if kind == "at-once":
        if colon:
            raise InputError(f"--arrival {text}: 'at-once' has no rate")
        return Arrival()
    if not rest:
        raise InputError(f"--arrival {text}: write it like {KINDS[kind]}")
    if kind == "trace":
        return Arrival(kind, times_s=_times(rest))
    try:
        return Arrival(kind, parse(rest, "rate"))
    except ValueError as problem:
        raise InputError(f"--arrival {text}: {problem}") from None


def _times(path: str) -> tuple[float, ...]:
    """Read a trace: one arrival a line, in order, as a time with its unit."""
    found: list[float] = []
    for number, line in enumerate(_lines(path), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            found.append(parse(text, "time"))
        except ValueError as problem:
            raise InputError(f"{path}:{number}: {problem}") from None
        if found[-1:] < found[-2:-1]:
            raise InputError(f"{path}:{number}: {text} is before the arrival above it")
        if len(found) > MAX_AGENTS:
            raise InputError(f"{path}:{number}: over {MAX_AGENTS:,} arrivals")
    if not found:
        raise InputError(f"{path}: no arrival in it; write one a line, such as '12.5 s'")
    return tuple(found)


def _lines(path: str) -> list[str]:
    from agentsim.yaml_file import read_text  # bounded, and only where there is a trace

    return read_text(path, InputError).splitlines()
