"""Answers every call in its recorded time; a call without one takes none, and is counted."""

from __future__ import annotations

from agentsim.sim.clock import Clock
from agentsim.sim.request import Request, Work


class Replay:
    """`Server` over recorded durations. `untimed` counts the calls that have none."""

    def __init__(self, env: Clock) -> None:
        self._env = env
        self.untimed = 0

    def submit(self, work: Work) -> Request:
        """Start a call; see `Server`. Its recorded prefix counts as cached, as the record says."""
        request = Request(self._env, work.prompt, min(work.prefix.tokens, work.prompt), work.output)
        self.untimed += work.recorded_ns is None
        whole = work.recorded_ns or 0
        first = min(work.recorded_ttft_ns or 0, whole)
        request.started_ns = request.submitted_ns
        request.first_token_ns = request.started_ns + first
        request.finished_ns = request.started_ns + whole
        request.done = self._env.timeout(whole)
        return request
