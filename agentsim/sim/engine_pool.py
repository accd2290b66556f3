"""Engines of one kind side by side: the prefill or the decode workers of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentsim.plan import Routing
from agentsim.sim.request import Request, Work
from agentsim.sim.router import Chooser
from agentsim.sim.server import EngineServer


class Seat:
    """The worker that a call was given, before it is sent there."""

    def __init__(self, pool: EnginePool, place: int, work: Work) -> None:
        self._pool, self._place, self._work = pool, place, work

    @property
    def cached_tokens(self) -> int:
        """How much of the call's prompt is in the worker's memory now."""
        return self._engine.cached_tokens(self._work)

    def submit(self, output: int) -> Request:
        """Start the call, with so many tokens to write."""
        return self._until_done(self._engine.submit(self._work._replace(output=output)))

    def submit_decode(self) -> Request:
        """Start the call, whose prompt has been prefilled elsewhere."""
        return self._until_done(self._engine.submit_decode(self._work))

    @property
    def _engine(self) -> EngineServer:
        return self._pool.engines[self._place]

    def _until_done(self, request: Request) -> Request:
        request.done.callbacks.append(partial(self._pool.chooser.leave, self._place))
        return request


class EnginePool:
    """Gives every call a worker. Precondition: there is at least one."""

    def __init__(self, engines: Sequence[EngineServer], routing: Routing) -> None:
        self.engines = engines
        self.chooser = Chooser(len(engines), routing)

    def seat(self, work: Work) -> Seat:
        """Return the worker of a call; precondition: it is submitted there."""
        return Seat(self, *self.chooser.seat(work))
