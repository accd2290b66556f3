"""A closed loop on one server: users who each send their next request when the last one is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentsim.sim.clock import Clock
from agentsim.sim.request import Prefix, Server, Work
from agentsim.units import to_s

_COLD = Prefix(0, 0)


class Served(NamedTuple):
    """One request as its user saw it, in seconds. A request of one token has a TPOT of 0.

    `first`: it is its user's first one, sent when all users started at once.
    """

    ttft_s: float
    tpot_s: float
    first: bool = False


def closed_loop(
    server_on: Callable[[Clock], Server], users: int, requests: Iterable[tuple[int, int]]
) -> list[Served]:
    """Return every request in the order in which they finish.

    All users start at once; prompts share no prefix. A request is (prompt tokens, output tokens), both
    at least 1. Raises what the server raises, such as `InfeasibleError` for a context that cannot fit.
    """
    env = Clock()
    loop = _Loop(env, server_on(env), requests)
    for _ in range(users):
        loop.next_request(first=True)
    env.run()
    return loop.served


class _Loop:
    """The requests that are left, and those that are done."""

    def __init__(self, env: Clock, server: Server, requests: Iterable[tuple[int, int]]) -> None:
        self._env, self._server, self._left = env, server, iter(requests)
        self.served: list[Served] = []

    def next_request(self, first: bool = False) -> None:
        """Send the next request, where one is left; its end sends another."""
        request = next(self._left, None)
        if request is None:
            return
        env, start, (prompt, output) = self._env, self._env.now, request
        answer = self._server.submit(Work(prompt, _COLD, output))

        def finish(_event: object) -> None:
            decode_ns = answer.decode_ns
            tpot_s = to_s(decode_ns) / (output - 1) if output > 1 else 0.0
            self.served.append(Served(to_s(env.now - start - decode_ns), tpot_s, first))
            self.next_request()

        answer.done.callbacks.append(finish)
