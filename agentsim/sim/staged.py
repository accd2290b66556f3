"""A call that goes through several engines and links, one stage after another."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from simpy import Event

from agentsim.coexec.base import LinkCost, Move, Serve, Step
from agentsim.errors import SpecError
from agentsim.result import Part
from agentsim.sim.clock import Clock
from agentsim.sim.engine_pool import EnginePool
from agentsim.sim.request import Request, Stretch, Work
from agentsim.sim.server import EngineServer
from agentsim.units import to_ns


class Link:
    """A link that carries one transfer after another, first come first served."""

    def __init__(self, env: Clock, cost: LinkCost) -> None:
        self._env, self._cost = env, cost
        self._free_ns = 0

    def move(self, size_bytes: float) -> Event:
        """Send bytes; the event is due when the last of them has arrived."""
        now = self._env.now
        self._free_ns = max(now, self._free_ns) + to_ns(size_bytes / self._cost.bytes_per_s)
        return self._env.timeout(self._free_ns + to_ns(self._cost.latency_s) - now)


class StagedAnswer:
    """A call under way through its stages; see `Answer`."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.prompt, self.output, self.cached = work.prompt, work.output, 0
        self.done: Event
        self._stretches: list[Stretch] = []

    def add(self, part: Part, name: str, length_ns: int) -> None:
        """Enter one more stretch of its time."""
        self._stretches.append((part, name, length_ns))

    def stretches(self) -> tuple[Stretch, ...]:
        return tuple(self._stretches)

    def _sum(self, part: Part) -> int:
        return sum(length for kind, _, length in self._stretches if kind is part)

    @property
    def queue_ns(self) -> int:
        return self._sum(Part.QUEUE)

    @property
    def prefill_ns(self) -> int:
        return self._sum(Part.PREFILL)

    @property
    def transfer_ns(self) -> int:
        return self._sum(Part.KV_TRANSFER)

    @property
    def decode_ns(self) -> int:
        return self._sum(Part.DECODE)


class StagedServer:
    """`Server` that takes every call through the stages of a pattern."""

    def __init__(
        self,
        env: Clock,
        stages: Sequence[Step],
        servers: Mapping[str, EngineServer | EnginePool],
        links: Mapping[str, Link],
    ) -> None:
        self._env, self._stages = env, stages
        self._servers, self._links = servers, links

    def submit(self, work: Work) -> StagedAnswer:
        """Start a call; see `Server`."""
        answer = StagedAnswer(work)
        answer.done = self._env.process(self._pass(answer))
        return answer

    def _pass(self, answer: StagedAnswer) -> Generator[Event, Any, None]:
        for index, stage in enumerate(self._stages):
            if isinstance(stage, Move):
                start = self._env.now
                there = self._there(index, answer.work)
                yield self._links[stage.link].move(stage.bytes(answer.prompt, there))
                answer.add(Part.KV_TRANSFER, f"KV over {stage.link}", self._env.now - start)
            else:
                request = self._submit(stage, answer)
                yield request.done
                if stage.does != "decode":
                    answer.cached = request.cached
                for part, name, length in request.stretches():
                    if length:
                        answer.add(part, f"{name} on {stage.engine}", length)

    def _there(self, index: int, work: Work) -> int:
        """Return how much of a prompt the engine after a move still has."""
        after = next(stage for stage in self._stages[index:] if isinstance(stage, Serve))
        return self._servers[after.engine].cached_tokens(work)

    def _submit(self, stage: Serve, answer: StagedAnswer) -> Request:
        server = self._servers[stage.engine]
        if stage.does == "decode":
            return server.submit_decode(answer.work)
        output = answer.output if stage.does == "all" else min(answer.output, 1)
        return server.submit(answer.work._replace(output=output))


def staged(
    env: Clock, stages: Sequence[Step], servers: Mapping[str, Any], links: Mapping[str, LinkCost]
) -> StagedServer:
    """Return the server of a pattern with several stages. Every engine must run iterations."""
    engines = {name: server for name, server in servers.items() if isinstance(server, EngineServer)}
    if len(engines) < len(servers):
        raise SpecError("a pattern of several stages joins engines, not endpoints")
    return StagedServer(env, stages, engines, {name: Link(env, cost) for name, cost in links.items()})
