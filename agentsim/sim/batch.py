"""The sequences that an engine decodes together, on a virtual clock that counts iterations.

A sequence that needs n more tokens finishes at a known iteration, so the next completion is the top of a
heap; so is the next context that outgrows the model's window. Sums over all sequences are kept up as they
come and go, so that an event costs O(log sequences).
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from math import inf

from agentsim.sim.kv_sizes import BlockSizes
from agentsim.sim.request import Request

_Ordered = tuple[int, int, Request]
_SLACK = 1e-6
"""Tokens; what sums of fractional tokens may lack of a whole one."""


class DecodeBatch:
    """Decoding sequences: their number, the sums of their contexts and windows, and what a step adds to them.

    `paid_blocks` and `paid_windows` are the KV blocks that were counted as theirs when last looked at.
    """

    def __init__(self, window: float, sizes: BlockSizes) -> None:
        self._window, self._sizes = window, sizes
        self.members: dict[Request, None] = {}
        self._finishes: list[_Ordered] = []
        self._crossings: list[_Ordered] = []
        self._order = 0
        self.iteration = self.count = 0
        self.context = self.window_sum = 0.0
        self.gains = self.window_gains = 0.0
        self.paid_blocks = self.paid_windows = 0

    def next_change(self) -> int:
        """Return how many iterations go by until a sequence ends or outgrows its window; at least 1."""
        finishes, crossings = self._finishes, self._crossings
        while finishes[0][1] != finishes[0][2].order:
            heappop(finishes)
        nearest = finishes[0][0]
        while crossings and crossings[0][1] != crossings[0][2].order:
            heappop(crossings)
        if crossings and crossings[0][0] < nearest:
            nearest = crossings[0][0]
        return nearest - self.iteration

    def advance(self, iterations: int) -> list[Request]:
        """Let all sequences decode; return those that end. Precondition: not beyond the next change."""
        now = self.iteration = self.iteration + iterations
        self.context += self.gains * iterations
        self.window_sum += self.window_gains * iterations
        crossings, finishes = self._crossings, self._finishes
        while crossings and crossings[0][0] <= now:
            _, order, request = heappop(crossings)
            if order == request.order:
                self._cross(request)
        ended = []
        while finishes and finishes[0][0] <= now:
            _, order, request = heappop(finishes)
            if order == request.order:
                self.leave(request)
                ended.append(request)
        return ended

    def join(self, request: Request) -> None:
        """Let a sequence decode what is left of its output; precondition: at least one token is."""
        request.joined = self.iteration
        left = (request.output - request.written) / request.gain
        finish = self.iteration + max(math.ceil(left - 1e-9), 1)
        self._order = request.order = self._order + 1
        heappush(self._finishes, (finish, self._order, request))
        self.members[request] = None
        self.count += 1
        self.context += request.context
        self.gains += request.gain
        segment = request.segment
        assert segment is not None
        self.paid_blocks += segment.start + segment.blocks
        self.paid_windows += segment.windows
        if self._window < inf:
            self._join_window(request, finish)

    def _join_window(self, request: Request, finish: int) -> None:
        self.window_sum += min(request.context, self._window)
        request.below_window = request.context < self._window
        if request.below_window:
            self.window_gains += request.gain
            crossing = self.iteration + math.ceil((self._window - request.context) / request.gain)
            if crossing < finish:
                heappush(self._crossings, (crossing, request.order, request))

    def _cross(self, request: Request) -> None:
        """From here on this sequence's windowed layers read a full window and no more."""
        request.below_window = False
        self.window_gains -= request.gain
        self.window_sum -= self._context_of(request) - self._window

    def _context_of(self, request: Request) -> float:
        return request.context + request.gain * (self.iteration - request.joined)

    def leave(self, request: Request) -> None:
        """Take a sequence out, with its context and what it has written brought up to date."""
        context = self._context_of(request)
        request.written += context - request.context
        request.context = context
        request.order = -1
        del self.members[request]
        self.count -= 1
        self.context -= context
        self.gains -= request.gain
        segment = request.segment
        assert segment is not None
        self.paid_blocks -= segment.start + segment.blocks
        self.paid_windows -= segment.windows
        if self._window < inf:
            if request.below_window:
                self.window_gains -= request.gain
                self.window_sum -= context
            else:
                self.window_sum -= self._window
        if not self.count:  # sums of floats that were added and taken away again
            self.context = self.window_sum = self.gains = self.window_gains = 0.0

    # KV blocks

    def bounds(self, iterations: int) -> tuple[float, int]:
        """Return blocks, full and windowed, that all sequences need at most after so many iterations."""
        tokens = self.context + self.gains * iterations
        return tokens / self._sizes.block_tokens + self.count, self.count * self._sizes.window_blocks

    def needs(self, iterations: int) -> tuple[int, int]:
        """Return blocks, full and windowed, that sequences need after so many iterations; O(sequences)."""
        size, wide = self._sizes.block_tokens, self._sizes.window_blocks
        then = self.iteration + iterations
        blocks = [-(-int(r.context + r.gain * (then - r.joined) + _SLACK) // size) for r in self.members]
        return sum(blocks), sum(min(n, wide) for n in blocks) if wide else 0

    def tokens_of(self, request: Request) -> int:
        """Return the whole tokens of a sequence's context."""
        return int(self._context_of(request) + _SLACK)


def whole_tokens(context: float) -> int:
    """Return the whole tokens of a context that speculation grows by fractions."""
    return int(context + _SLACK)
