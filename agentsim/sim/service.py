"""A service seen from outside: every call takes its own time, whatever else is going on.

How an endpoint slows down under load is not published, so nothing is assumed about it.
"""

from __future__ import annotations

from math import inf

from agentsim.backends.base import ServiceCost
from agentsim.sim.clock import Clock
from agentsim.sim.request import Request, Work
from agentsim.units import to_ns


class Service:
    """`Server` in front of a `ServiceCost`. Counts the calls outside the measured table."""

    def __init__(self, env: Clock, cost: ServiceCost) -> None:
        self._env, self._cost = env, cost
        lifetime = cost.cache_lifetime_s
        self._lifetime_ns = inf if lifetime is None else to_ns(lifetime)
        self.extrapolated = 0

    def submit(self, work: Work) -> Request:
        """Start a call; see `Server`."""
        env, (prompt, prefix, output, *_) = self._env, work
        expired = env.now - prefix.used_ns > self._lifetime_ns
        cached = 0 if expired else min(prefix.tokens, prompt - 1)
        request = Request(env, prompt, cached, output)
        time = self._cost.call(prompt - cached, cached, output)
        request.started_ns = request.submitted_ns
        request.first_token_ns = request.started_ns + to_ns(time.prefill_s)
        request.finished_ns = request.first_token_ns + to_ns(time.decode_s)
        self.extrapolated += time.extrapolated
        request.done = env.timeout(request.finished_ns - request.submitted_ns)
        return request
