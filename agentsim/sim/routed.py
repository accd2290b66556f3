"""Calls that rules send to one of several engines, and the KV that follows them or is made again."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from simpy import Event

from agentsim.backends.base import prefill_s
from agentsim.coexec.base import LinkCost, Move, Route, Way
from agentsim.result import Part
from agentsim.sim.clock import Clock
from agentsim.sim.holdings import Holdings
from agentsim.sim.request import Work
from agentsim.sim.server import EngineServer
from agentsim.sim.staged import Link, StagedAnswer


class RoutedServer:
    """`Server` that sends every call by the first way whose conditions hold.

    It remembers how much of each agent's context lies on which engine.
    """

    def __init__(
        self,
        env: Clock,
        route: Route,
        servers: Mapping[str, EngineServer],
        links: Mapping[str, LinkCost],
    ) -> None:
        self._env, self._route, self._servers = env, route, servers
        self._costs = links
        self._links = {name: Link(env, cost) for name, cost in links.items()}
        self._holdings = Holdings[str]()

    def submit(self, work: Work) -> StagedAnswer:
        """Start a call; see `Server`."""
        way = next(way for way in self._route.ways if _holds(way, work))
        there = self._holdings.kept(work.prefix, way.engine)
        answer = StagedAnswer(work)
        answer.done = self._env.process(self._pass(answer, way, there))
        self._holdings.note(work.prefix.owner, way.engine, work.prompt + work.output)
        return answer

    def _pass(self, answer: StagedAnswer, way: Way, there: int) -> Generator[Event, Any, None]:
        work, move = answer.work, self._route.moves.get(way.engine)
        if there < work.prefix.tokens and move is not None and self._follows(way, move, work, there):
            start = self._env.now
            yield self._links[move.link].move(move.bytes(work.prefix.tokens, there))
            answer.add(Part.KV_TRANSFER, f"KV over {move.link}", self._env.now - start)
            there = work.prefix.tokens
        request = self._servers[way.engine].submit(work._replace(prefix=work.prefix._replace(tokens=there)))
        yield request.done
        answer.cached = request.cached
        for part, name, length in request.stretches():
            if length:
                answer.add(part, f"{name} on {way.engine}", length)

    def _follows(self, way: Way, move: Move, work: Work, there: int) -> bool:
        """Tell whether KV moves: as the rule says, or where that takes less than to prefill it again."""
        if way.moves is not None:
            return way.moves
        crossing = self._costs[move.link].time_s(move.bytes(work.prefix.tokens, there))
        return crossing < prefill_s(self._servers[way.engine].cost, there, work.prefix.tokens)


def _holds(way: Way, work: Work) -> bool:
    return (
        (way.context_over is None or work.prompt > way.context_over)
        and (way.new_tokens_over is None or work.prompt - work.prefix.tokens > way.new_tokens_over)
        and (way.role is None or way.role == _role(work.prefix.owner))
    )


def _role(owner: str) -> str:
    """Return the name of the sub-agent that owns a context, without the number of its instance."""
    _, nested, name = owner.rpartition("/")
    if not nested:
        return "main"
    plain = name.partition("#")[0]
    return plain.replace("%23", "#").replace("%2F", "/").replace("%25", "%")


def routed(
    env: Clock, route: Route, servers: Mapping[str, EngineServer], links: Mapping[str, LinkCost]
) -> RoutedServer:
    """Return the server of routed engines."""
    return RoutedServer(env, route, servers, links)
