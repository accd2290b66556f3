"""A call that goes through several engines and links, one stage after another."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from heapq import heapreplace
from typing import Any

from simpy import Event

from agentsim.coexec.base import LinkCost, Move, Serve, Step
from agentsim.result import Part
from agentsim.sim.clock import Clock
from agentsim.sim.engine_pool import EnginePool, Seat
from agentsim.sim.request import Request, Stretch, Work
from agentsim.units import to_ns


class Link:
    """A link that carries one transfer after another on each of its lanes, first come first served."""

    def __init__(self, env: Clock, cost: LinkCost) -> None:
        self._env, self._cost = env, cost
        self._free_ns = [0] * cost.lanes

    def move(self, size_bytes: float) -> Event:
        """Send bytes; the event is due when the last of them has arrived."""
        now = self._env.now
        sent_ns = max(now, self._free_ns[0]) + to_ns(size_bytes / self._cost.bytes_per_s)
        heapreplace(self._free_ns, sent_ns)
        return self._env.timeout(sent_ns + to_ns(self._cost.latency_s) - now)


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
        pools: Mapping[str, EnginePool],
        links: Mapping[str, Link],
    ) -> None:
        self._env, self._stages = env, stages
        self._pools, self._links = pools, links

    def submit(self, work: Work) -> StagedAnswer:
        """Start a call; see `Server`."""
        answer = StagedAnswer(work)
        answer.done = self._env.process(self._pass(answer))
        return answer

    def _pass(self, answer: StagedAnswer) -> Generator[Event, Any, None]:
        seat: Seat | None = None
        for index, stage in enumerate(self._stages):
            if isinstance(stage, Move):
                start, seat = self._env.now, self._seat(index, answer.work)
                yield self._links[stage.link].move(stage.bytes(answer.prompt, seat.cached_tokens))
                answer.add(Part.KV_TRANSFER, f"KV over {stage.link}", self._env.now - start)
            else:
                request = _submit(stage, seat or self._seat(index, answer.work), answer.output)
                seat = None
                yield request.done
                if stage.does != "decode":
                    answer.cached = request.cached
                for part, name, length in request.stretches():
                    if length:
                        answer.add(part, f"{name} on {stage.engine}", length)

    def _seat(self, index: int, work: Work) -> Seat:
        """Return the worker of the stage at `index` or, for a move, of the one after it."""
        serves = next(stage for stage in self._stages[index:] if isinstance(stage, Serve))
        return self._pools[serves.engine].seat(work)


def _submit(stage: Serve, seat: Seat, output: int) -> Request:
    if stage.does == "decode":
        return seat.submit_decode()
    return seat.submit(output if stage.does == "all" else min(output, 1))


def staged(
    env: Clock, stages: Sequence[Step], pools: Mapping[str, EnginePool], links: Mapping[str, LinkCost]
) -> StagedServer:
    """Return the server of a pattern with several stages."""
    return StagedServer(env, stages, pools, {name: Link(env, cost) for name, cost in links.items()})
