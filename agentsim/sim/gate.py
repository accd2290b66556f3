"""When waiting calls are let in while sequences decode: not at every iteration, on engines that hold them."""

from __future__ import annotations

from agentsim.backends.base import Hold

_FOREVER = 1 << 62


class Gate:
    """Counts decode iterations since it was last open, and how many waiting calls have been let through.

    SGLang reads its socket every so many decode iterations and after every other one; what it has read it
    keeps (https://docs.sglang.ai/advanced_features/server_arguments.html, scheduler_recv_interval).
    TensorRT-LLM with copies of the attention prefills when there is a prompt for each, or when it has
    waited for that long enough; what the iteration then has no room for waits again
    (https://nvidia.github.io/TensorRT-LLM/llm-api/reference/AttentionDpConfig.html, timeout_iters).
    """

    __slots__ = ("_hold", "_passed", "_since")

    def __init__(self, hold: Hold | None) -> None:
        self._hold = hold
        self._passed = _FOREVER if hold is None else 0
        self._since = 0

    @property
    def let_in(self) -> int:
        """How many of the waiting calls may be admitted, from the head of the queue."""
        return self._passed

    def look(self, waiting: int, decoding: int) -> None:
        """Open where it is time to; call once before each phase."""
        hold = self._hold
        if hold is None:
            return
        due = self._since >= hold.iterations and self._since % hold.iterations == 0
        self._since %= hold.iterations
        if due or self._need_not_wait(hold, waiting, decoding):
            self._passed, self._since = waiting, 0
        elif hold.prompts is not None:
            self._passed = 0

    def _need_not_wait(self, hold: Hold, waiting: int, decoding: int) -> bool:
        if hold.prompts is None:
            return not decoding
        return decoding < hold.prompts or waiting >= hold.prompts

    def admitted(self) -> None:
        """Count a call that has left the queue."""
        self._passed -= 1

    def put_back(self) -> None:
        """Count a call that came back to the head of the queue."""
        self._passed += 1

    def closed_for(self, waiting: int, decoding: int) -> int:
        """Return how many decode iterations go by until somebody who waits is let in; 0: now, or nobody."""
        hold = self._hold
        if hold is None or waiting <= self._passed or self._need_not_wait(hold, waiting, decoding):
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
        if not prefilled:
            self._since += iterations
        else:
            self._since = hold.iterations if hold.prompts is None else 0
