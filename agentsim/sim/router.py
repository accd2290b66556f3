"""Copies of a deployment behind one door, and the policies that choose one of them for every call.

A router knows what it sent where: the calls that are under way at each replica, and whose context it has
put there. It does not see what a replica's cache has dropped since, as routers outside the engine do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from simpy import Event

from agentsim.plan import Routing
from agentsim.sim.holdings import Holdings
from agentsim.sim.request import Answer, Server, Work


class ReplicaRouter:
    """`Server` that sends every call to one of several. Precondition: there is at least one."""

    def __init__(self, replicas: Sequence[Server], routing: Routing) -> None:
        self._replicas, self.routing = replicas, routing
        self._choose = POLICIES[routing.policy]
        self._holdings = Holdings[int]()
        self.turn = 0
        self.calls = [0] * len(replicas)
        """Calls under way at each replica."""

    def submit(self, work: Work) -> Answer:
        """Start a call; see `Server`."""
        prefix = work.prefix
        held = self._holdings.of(prefix)
        place = self._choose(self, work, held)
        there = held.get(place, 0) if held else prefix.tokens
        if there < prefix.tokens:
            work = work._replace(prefix=prefix._replace(tokens=there))
        self.turn += 1
        self.calls[place] += 1
        answer = self._replicas[place].submit(work)
        answer.done.callbacks.append(partial(self._ended, place))
        self._holdings.note(prefix.owner, place, work.prompt + work.output)
        return answer

    def _ended(self, place: int, _event: Event) -> None:
        self.calls[place] -= 1


Policy = Callable[[ReplicaRouter, Work, Mapping[int, int]], int]
"""Names the replica of a call, given the tokens of its prefix that each replica holds."""


def round_robin(router: ReplicaRouter, _work: Work, _held: Mapping[int, int]) -> int:
    """One after another, whatever they do."""
    return router.turn % len(router.calls)


def least_loaded(router: ReplicaRouter, _work: Work, _held: Mapping[int, int]) -> int:
    """Where the fewest calls are under way; the first of several such."""
    return router.calls.index(min(router.calls))


def prefix_aware(router: ReplicaRouter, work: Work, held: Mapping[int, int]) -> int:
    """Where most of the prefix lies, while the loads are balanced and it is worth it; else the least loaded.

    The loads are out of balance by the rule of `specs/router.yaml`.
    """
    rule, calls = router.routing, router.calls
    most, least = max(calls), min(calls)
    if not held or (most - least > rule.calls_ahead and most > rule.times_ahead * least):
        return calls.index(least)
    place = max(held, key=lambda at: (held[at], -calls[at]))
    return place if held[place] >= rule.least_match * work.prompt else calls.index(least)


POLICIES: dict[str, Policy] = {
    "round_robin": round_robin,
    "least_loaded": least_loaded,
    "prefix_aware": prefix_aware,
}
