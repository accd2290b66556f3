"""What an engine was busy with over time, in constant memory: means, peaks, a short series, and counters."""

from __future__ import annotations

from typing import NamedTuple

SAMPLES = 256
"""Samples of the series at most; when it is full, neighbours are joined and the step doubles."""
_FIRST_STEP_NS = 1_000_000


class Levels(NamedTuple):
    """KV bytes that running calls hold, KV bytes kept for reuse, running sequences, waiting calls."""

    live_bytes: float
    cached_bytes: float
    running: float
    waiting: float


class Load:
    """The load of one engine.

    `prompt_tokens` were asked for, `hit_tokens` of them found in the engine's memory and `tier_hit_tokens`
    (by tier) loaded from elsewhere; `preemptions` calls were put back, `recomputed_tokens` of theirs
    computed again; `evicted_tokens` left the engine's memory. All else is over time, since the first call.
    """

    def __init__(self) -> None:
        self.prompt_tokens = self.hit_tokens = 0
        self.tier_hit_tokens: dict[str, int] = {}
        self.preemptions = self.recomputed_tokens = self.evicted_tokens = 0
        self.peak = Levels(0.0, 0.0, 0, 0)
        self.start_ns: int | None = None
        self._now = 0
        self._levels = (0.0, 0.0, 0, 0)
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._bins: list[Levels] = []
        self.step_ns = _FIRST_STEP_NS
        self._bin_end = 0

    def note(self, now: int, live: float, cached: float, running: int, waiting: int) -> None:
        """Enter the levels from now on; precondition: time has not gone back."""
        if self.start_ns is None:
            self.start_ns = self._now = now
            self._bin_end = now + self.step_ns
        if now > self._now:
            if now >= self._bin_end:
                self._fill(now)
            a, b, c, d = self._levels
            length, sums = now - self._now, self._sums
            sums[0] += a * length
            sums[1] += b * length
            sums[2] += c * length
            sums[3] += d * length
            self._now = now
        self._levels = (live, cached, running, waiting)
        peak = self.peak
        if live > peak[0] or cached > peak[1] or running > peak[2] or waiting > peak[3]:
            self.peak = Levels(*map(max, peak, self._levels))

    def _fill(self, now: int) -> None:
        """Close the samples that end up to `now`."""
        while now >= self._bin_end:
            while now - self._bin_end > SAMPLES * self.step_ns:
                self._join()  # a long silence: no sample of it is worth more than the others
            length = self._bin_end - self._now
            pairs = zip(self._sums, self._levels, strict=True)
            self._bins.append(Levels(*(total + level * length for total, level in pairs)))
            self._sums = [0.0, 0.0, 0.0, 0.0]
            self._now = self._bin_end
            self._bin_end += self.step_ns
            if len(self._bins) == SAMPLES:
                self._join()

    def _join(self) -> None:
        """Join neighbouring samples and double the step; an odd one out goes on in the open sample."""
        bins = self._bins
        self._bins = [
            Levels(*(a + b for a, b in zip(*pair, strict=True)))
            for pair in zip(bins[::2], bins[1::2], strict=False)
        ]
        self._bin_end += self.step_ns
        if len(bins) % 2:
            self._sums = [a + b for a, b in zip(self._sums, bins[-1], strict=True)]
            self._bin_end -= self.step_ns
        self.step_ns *= 2

    @property
    def mean(self) -> Levels:
        """Time-weighted means up to the last change."""
        length = max(self._now - (self.start_ns or 0), 1)
        totals = [sum(column) for column in zip(self._sums, *self._bins, strict=True)]
        return Levels(*(total / length for total in totals))

    def series(self) -> list[tuple[int, Levels]]:
        """Return (start ns, mean levels) of each closed sample, and of the open one."""
        start, found = self.start_ns or 0, []
        for index, sums in enumerate(self._bins):
            found.append((start + index * self.step_ns, Levels(*(s / self.step_ns for s in sums))))
        begun = start + len(self._bins) * self.step_ns
        if self._now > begun:
            found.append((begun, Levels(*(s / (self._now - begun) for s in self._sums))))
        return found

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that were cached anywhere; None before the first call."""
        if not self.prompt_tokens:
            return None
        return (self.hit_tokens + sum(self.tier_hit_tokens.values())) / self.prompt_tokens
