"""What each engine of a run had to do, from the record that its server keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentsim.result import EngineLoad, Level
from agentsim.sim.server import EngineServer


class Levels(Protocol):
    """KV bytes of running calls and of idle contexts, sequences that run, calls that wait."""

    live_bytes: float
    cached_bytes: float
    running: float
    waiting: float


class Load(Protocol):
    """The record of one engine: levels over its time, and what was counted."""

    peak: Levels
    preemptions: int

    @property
    def mean(self) -> Levels:
        """Means over time."""
        ...

    def series(self) -> Sequence[tuple[int, Levels]]:
        """Return (start ns, mean levels) of samples of one length."""
        ...


def engine_loads(servers: Mapping[str, Any]) -> tuple[EngineLoad, ...]:
    """Return the load of every engine that runs iterations and keeps a record."""
    kept = {n: getattr(s, "load", None) for n, s in servers.items() if isinstance(s, EngineServer)}
    return tuple(_engine_load(n, servers[n], load) for n, load in kept.items() if load is not None)


def _engine_load(name: str, server: EngineServer, load: Load) -> EngineLoad:
    mean, peak, room = load.mean, load.peak, server.cost.kv_capacity_bytes
    return EngineLoad(
        engine=name,
        kv_capacity_bytes=room,
        kv_live_bytes=Level(mean.live_bytes, peak.live_bytes),
        kv_cached_bytes=Level(mean.cached_bytes, peak.cached_bytes),
        running=Level(mean.running, peak.running),
        waiting=Level(mean.waiting, peak.waiting),
        preemptions=load.preemptions,
        live_series=tuple(levels.live_bytes / room for _, levels in load.series()),
        used_series=tuple((levels.live_bytes + levels.cached_bytes) / room for _, levels in load.series()),
    )
