"""Engines of one kind side by side: a pool of prefill or decode workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simpy import Event

from agentsim.sim.request import Request, Work
from agentsim.sim.server import EngineServer


class EnginePool:
    """Sends every call to the engine with the fewest under way, the first of several such.

    Precondition: there is at least one engine.
    """

    def __init__(self, engines: Sequence[EngineServer]) -> None:
        self._engines = engines
        self._calls = [0] * len(engines)

    def submit(self, work: Work) -> Request:
        """Start a call; see `Server`."""
        place = self._least()
        return self._noted(place, self._engines[place].submit(work))

    def submit_decode(self, work: Work) -> Request:
        """Start a call whose prompt has been prefilled elsewhere."""
        place = self._least()
        return self._noted(place, self._engines[place].submit_decode(work))

    def cached_tokens(self, work: Work) -> int:
        """Return how much of a call's prompt the engine that would take it now has in its memory."""
        return self._engines[self._least()].cached_tokens(work)

    def _least(self) -> int:
        return self._calls.index(min(self._calls))

    def _noted(self, place: int, request: Request) -> Request:
        self._calls[place] += 1
        request.done.callbacks.append(partial(self._ended, place))
        return request

    def _ended(self, place: int, _event: Event) -> None:
        self._calls[place] -= 1
