"""A run of iterations over a batch that stays the same: an arithmetic series in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import inf

from agentsim.backends.base import Batch, IterationCost
from agentsim.sim.batch import DecodeBatch
from agentsim.sim.request import Request
from agentsim.units import to_s

_HALF_TICK_S = to_s(0.5)
Chunks = Sequence[tuple[Request, int]]
"""Prompts and how many tokens of each an iteration prefills."""


class Phase:
    """The first iteration's time and what each one after it takes more; `iterations` until it ends.

    `decodes` tells whether running sequences decode in it, `number` it apart from the ones before.
    """

    __slots__ = ("_first_s", "_growth_s", "chunks", "decodes", "iterations", "number", "start_ns")

    def __init__(self) -> None:
        self.number = self.iterations = self.start_ns = 0
        self.decodes = False
        self.chunks: Chunks = ()
        self._first_s = self._growth_s = 0.0

    def measure(self, cost: IterationCost, batch: DecodeBatch, iterations: int) -> None:
        """Take the time of so many iterations over the batch and the chunks as they are now."""
        window = cost.window_tokens or inf
        self._first_s = cost.iteration_s(self._batch(batch, window, 0))
        self._growth_s = 0.0
        if iterations > 1:
            last = cost.iteration_s(self._batch(batch, window, iterations - 1))
            self._growth_s = (last - self._first_s) / (iterations - 1)

    def _batch(self, batch: DecodeBatch, window_tokens: float, done: int) -> Batch:
        """Return what iteration number `done` (from 0) works on."""
        sequences, context, window = 0, 0.0, 0.0
        if self.decodes:
            sequences, context = batch.count, batch.context + batch.gains * done
            window = batch.window_sum + batch.window_gains * done
        if not self.chunks:
            return Batch(sequences, context, window)
        tokens, pairs, window_pairs = 0, 0.0, 0.0
        for request, chunk in self.chunks:
            start = request.context + done * chunk
            tokens += chunk
            pairs += chunk * start + chunk * (chunk + 1) / 2
            if window_tokens < inf:
                window_pairs += _window_pairs(start, chunk, window_tokens)
        return Batch(sequences, context, window, tokens, pairs, window_pairs, len(self.chunks))

    def elapsed_s(self, iterations: int) -> float:
        """Return the time that the first iterations take."""
        return iterations * (self._first_s + self._growth_s * (iterations - 1) / 2)

    def iterations_within(self, elapsed_s: float) -> int:
        """Return the smallest count of iterations, at least 1, that takes `elapsed_s` or longer."""
        first, growth = self._first_s, self._growth_s
        if growth > 0:
            half = first - growth / 2
            guess = (math.sqrt(half * half + 2 * growth * elapsed_s) - half) / growth
        else:
            guess = elapsed_s / first
        count = max(int(guess), 1)
        while self.elapsed_s(count) < elapsed_s - _HALF_TICK_S:
            count += 1
        return count


def compose(prefilling: Sequence[Request], budget: int, window: float, whole: bool) -> tuple[Chunks, float]:
    """Return the prefill chunks of a phase, first come first served, and how many iterations keep them so.

    With `whole`, a prompt is split only where it is longer than all of the budget.
    """
    if not prefilling:
        return (), inf
    first = prefilling[0]
    if first.remaining > budget:
        same = 1 if first.context < window < inf else first.remaining // budget
        return ((first, budget),), same
    chunks: list[tuple[Request, int]] = []
    for request in prefilling:
        if budget <= 0:
            break
        chunk = min(request.remaining, budget)
        if chunk < request.remaining and chunks and whole:
            break
        chunks.append((request, chunk))
        budget -= chunk
    return chunks, 1


def _window_pairs(start: float, chunk: int, window: float) -> float:
    """Return the (query, key) pairs of a chunk when a query sees at most `window` keys."""
    if start + chunk <= window:
        return chunk * start + chunk * (chunk + 1) / 2
    growing = max(min(window - start, chunk), 0.0)
    return growing * start + growing * (growing + 1) / 2 + (chunk - growing) * window
