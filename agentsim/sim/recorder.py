"""What is kept of a run while it goes: everything, or only what the summary needs.

With `full` detail every turn and span is kept. Otherwise memory grows with live agents alone: calls
are counted, and latencies go into bins half a percent wide.
"""

from __future__ import annotations

import math
from typing import Literal

from agentsim.result import SHARES, Part, Span, Spread, TaskOutcome, Turn

Detail = Literal["full", "summary"]
_BINS_PER_E = 200


class Histogram:
    """A sample in logarithmic bins; percentiles are true to half a bin, moments exact."""

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._count = 0
        self._sum = self._squares = 0.0
        self._low, self._high = math.inf, 0.0

    def add(self, value: float) -> None:
        place = int(math.log(value) * _BINS_PER_E) if value > 1 else 0
        self._bins[place] = self._bins.get(place, 0) + 1
        self._count += 1
        self._sum += value
        self._squares += value * value
        self._low, self._high = min(self._low, value), max(self._high, value)

    def spread(self) -> Spread | None:
        """Return the sample's summary, or None where it is empty."""
        if not self._count:
            return None
        mean = self._sum / self._count
        deviation = math.sqrt(max(self._squares / self._count - mean * mean, 0.0))
        p99, p95, p90, p75, p50 = map(self._percentile, SHARES)
        return Spread(mean, self._low, self._high, p99, p95, p90, p75, p50, deviation)

    def _percentile(self, share: float) -> float:
        """Return what lies between the two nearest of the sample, as where all of it is kept."""
        below, way = divmod(share * (self._count - 1), 1.0)
        low = self._ranked(int(below))
        return low + way * (self._ranked(int(below) + 1) - low) if way else low

    def _ranked(self, rank: int) -> float:
        """Return about the value that so many others lie below."""
        if rank <= 0 or rank >= self._count - 1:
            return self._low if rank <= 0 else self._high
        seen = 0
        for place in sorted(self._bins):
            seen += self._bins[place]
            if seen > rank:
                middle = math.exp((place + 0.5) / _BINS_PER_E) if place else 0.0
                return min(max(middle, self._low), self._high)
        return self._high


class Recorder:
    """Takes what agents report."""

    def __init__(self, detail: Detail) -> None:
        self.full = detail == "full"
        self.turns: list[Turn] = []
        self.spans: list[Span] = []
        self.critical: set[int] = set()
        self.tasks: list[TaskOutcome] = []
        self.calls_started = self.calls_finished = 0
        self.contexts_cut = 0
        self._ttft, self._itl = Histogram(), Histogram()

    def span(
        self,
        part: Part,
        name: str,
        lane: str,
        start: int,
        end: int,
        causes: tuple[int, ...],
        turn: int | None,
    ) -> int:
        """Keep a span; return its id. Precondition: full detail."""
        identity = len(self.spans)
        self.spans.append(Span(identity, part, name, lane, start, end, causes, False, turn))
        return identity

    def latency(self, ttft_ns: int, decode_ns: int, output: int) -> None:
        """Count one finished call. With full detail the turns themselves are kept instead."""
        self._ttft.add(ttft_ns)
        if output > 1:
            self._itl.add(decode_ns / (output - 1))

    def finished_spans(self) -> tuple[Span, ...]:
        """Return the spans with the critical ones marked."""
        critical = self.critical
        return tuple(
            Span(s.id, s.part, s.name, s.lane, s.start_ns, s.end_ns, s.causes, s.id in critical, s.turn)
            for s in self.spans
        )

    def ttft(self) -> Spread | None:
        if self.full:
            return Spread.of([t.ttft_ns for t in self.turns if not t.compaction])
        return self._ttft.spread()

    def itl(self) -> Spread | None:
        if self.full:
            return Spread.of([t.itl_ns for t in self.turns if t.itl_ns is not None and not t.compaction])
        return self._itl.spread()
