"""The policies that choose one of several like servers for every call, and copies behind one door.

A router knows what it sent where: the calls that are under way at each place, and whose context it has
put there. It does not see what a cache has dropped since, as routers outside the engine do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from simpy import Event

from agentsim.plan import Routing
from agentsim.sim.holdings import Holdings
from agentsim.sim.request import Answer, Server, Work


class Chooser:
    """Names the place of every call, and counts those under way. Precondition: there is a place."""

    def __init__(self, places: int, routing: Routing) -> None:
        self.routing = routing
        self._choose = POLICIES[routing.policy]
        self._holdings = Holdings[int]()
        self.turn = 0
        self.calls = [0] * places
        """Calls under way at each place."""

    def seat(self, work: Work) -> tuple[int, Work]:
        """Return where a call goes, and the call as that place knows it: with the prefix that lies there.

        It is under way there from now on, until `leave` is called.
        """
        prefix = work.prefix
        held = self._holdings.of(prefix)
        place = self._choose(self, work, held)
        there = held.get(place, 0) if held else prefix.tokens
        if there < prefix.tokens:
            work = work._replace(prefix=prefix._replace(tokens=there))
        self.turn += 1
        self.calls[place] += 1
        self._holdings.note(prefix.owner, place, work.prompt + work.output)
        return place, work

    def leave(self, place: int, _event: Event | None = None) -> None:
        """Count a call that has ended."""
        self.calls[place] -= 1


class ReplicaRouter:
    """`Server` that sends every call to one of several. Precondition: there is at least one."""

    def __init__(self, replicas: Sequence[Server], routing: Routing) -> None:
        self._replicas = replicas
        self._chooser = Chooser(len(replicas), routing)

    def submit(self, work: Work) -> Answer:
        """Start a call; see `Server`."""
        place, work = self._chooser.seat(work)
        answer = self._replicas[place].submit(work)
        answer.done.callbacks.append(partial(self._chooser.leave, place))
        return answer


Policy = Callable[[Chooser, Work, Mapping[int, int]], int]
"""Names the place of a call, given the tokens of its prefix that each place holds."""


def round_robin(chooser: Chooser, _work: Work, _held: Mapping[int, int]) -> int:
    """One after another, whatever they do."""
    return chooser.turn % len(chooser.calls)


def least_loaded(chooser: Chooser, _work: Work, _held: Mapping[int, int]) -> int:
    """Where the fewest calls are under way; the first of several such."""
    return chooser.calls.index(min(chooser.calls))


def prefix_aware(chooser: Chooser, work: Work, held: Mapping[int, int]) -> int:
    """Where most of the prefix lies, while the loads are balanced and it is worth it; else the least loaded.

    The loads are out of balance by the rule of `specs/router.yaml`.
    """
    rule, calls = chooser.routing, chooser.calls
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
