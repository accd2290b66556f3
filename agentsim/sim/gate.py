"""When waiting calls are let in while sequences decode: not at every iteration, on engines that hold them."""

from __future__ import annotations

from collections.abc import Collection

from agentsim.backends.base import Hold
from agentsim.sim.request import Request

_FOREVER = 1 << 62


class Gate:
    """Counts decode iterations since it was last open, and how many waiting calls have been let through.

    SGLang reads its socket every so many decode iterations and after every other one; what it has read it
    keeps (https://docs.sglang.ai/advanced_features/server_arguments.html, scheduler_recv_interval).
    TensorRT-LLM with copies of the attention gives each call to one of them when it comes in, and prefills
    when every copy has a prompt, or when it has waited for that long enough
    (https://nvidia.github.io/TensorRT-LLM/llm-api/reference/AttentionDpConfig.html, timeout_iters); without,
    when prompts fill a share of the budget, or when the first has waited long enough
    (batch_wait_timeout_iters and batch_wait_max_tokens_ratio of its TorchLlmArgs). What the iteration has no
    room for then waits again.
    """

    __slots__ = ("_budget", "_calls", "_hold", "_open_from", "_passed", "_since", "_waits")

    def __init__(self, hold: Hold | None, budget: int) -> None:
        self._hold, self._budget = hold, budget
        self._passed = _FOREVER if hold is None else 0
        self._since = 0
        self._waits = False
        self._calls = [0] * hold.copies if hold is not None else []
        self._open_from: int | None = None

    @property
    def let_in(self) -> int:
        """How many of the waiting calls may be admitted, from the head of the queue."""
        return self._passed

    def look(self, waiting: Collection[Request], decoding: int) -> None:
        """Open where it is time to; call once before each phase."""
        hold = self._hold
        if hold is None:
            return
        due = self._since >= hold.iterations
        if not hold.from_first:  # it opened at every multiple, the last time at the latest of them
            self._since %= hold.iterations
            due = due and not self._since
        self._waits = bool(waiting)
        self._share_out(waiting)
        open_now = self._waits and self._need_not_wait(hold, waiting, decoding)
        self._open_from = 0 if open_now else None
        if due or open_now:
            self._passed, self._since = len(waiting), 0
        elif hold.again:
            self._passed = 0

    def _need_not_wait(self, hold: Hold, waiting: Collection[Request], decoding: int) -> bool:
        if hold.copies:
            return decoding < hold.copies or len({request.copy for request in waiting}) >= hold.copies
        if not decoding:
            return True
        return hold.share is not None and self._filled(waiting, decoding) >= hold.share * self._budget

    def _filled(self, waiting: Collection[Request], decoding: int) -> int:
        """Return the tokens of an iteration with the waiting prompts that fit it whole."""
        total = decoding
        for request in waiting:
            if total + request.goal > self._budget:
                break
            total += request.goal
        return total

    def _share_out(self, waiting: Collection[Request]) -> None:
        """Give calls that have come in the copies of the attention with the fewest calls."""
        if not self._calls:
            return
        for request in waiting:
            if request.copy < 0:
                request.copy = self._calls.index(min(self._calls))
                self._calls[request.copy] += 1

    def went(self, request: Request) -> None:
        """Count a call that is done."""
        if self._calls:
            self._calls[request.copy] -= 1

    def admitted(self) -> None:
        """Count a call that has left the queue."""
        self._passed -= 1

    def put_back(self) -> None:
        """Count a call that came back to the head of the queue."""
        self._passed += 1

    @property
    def notes_arrivals(self) -> bool:
        """Whether it matters when in a phase a call came in."""
        return self._hold is not None and self._hold.again

    def arrived(self, done: int, waiting: Collection[Request], decoding: int) -> None:
        """Count a call that waits from iteration `done` of the present phase on."""
        hold = self._hold
        assert hold is not None, "a gate that never closes notes no arrivals"
        if hold.from_first and not self._waits:
            self._since = -done
        self._waits = True
        self._share_out(waiting)
        if self._open_from is None and self._need_not_wait(hold, waiting, decoding):
            self._open_from = done

    def closed_for(self, waiting: Collection[Request], decoding: int) -> int:
        """Return how many decode iterations go by until somebody who waits is let in; 0: now, or nobody."""
        hold = self._hold
        if hold is None or not waiting or self._need_not_wait(hold, waiting, decoding):
            return 0
        if not hold.again and len(waiting) <= self._passed:
            return 0
        return hold.iterations - self._since

    def opens_after(self, iterations: int, first: int) -> int:
        """Return the first opening at `iterations` or later, of those that begin at `first`."""
        assert self._hold is not None, "a gate that never closes is never waited for"
        every = self._hold.iterations
        return first + max(-(-(iterations - first) // every), 0) * every

    def ran(self, iterations: int, prefilled: bool) -> None:
        """Count the iterations of a phase."""
        hold = self._hold
        if hold is None:
            return
        if prefilled:
            self._since = 0 if hold.again else hold.iterations
        elif self._open_from is not None and iterations > self._open_from:
            self._since = 1  # it opened anew before each iteration
        elif self._waits or not hold.from_first:
            self._since += iterations
