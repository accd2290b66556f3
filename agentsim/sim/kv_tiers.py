"""Memory behind the engine's own: KV that was evicted goes to the first tier, and from there to the next.

Each tier is an LRU of its own at block granularity. What one tier evicts the next takes; what the last
evicts is gone. KV that is loaded back, or computed again, leaves the tier that had it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsim.backends.base import Tier
from agentsim.sim.kv_sizes import BlockSizes, Segment


class TierStack:
    """The tiers of one engine, nearest first; `Segment.lower` holds how many blocks each has of it."""

    def __init__(self, tiers: Sequence[Tier], sizes: BlockSizes) -> None:
        self.tiers, self._sizes = tiers, sizes
        self._order: list[dict[Segment, None]] = [{} for _ in tiers]
        self._held = [0.0] * len(tiers)

    def put(self, segment: Segment, blocks: int, index: int = 0) -> None:
        """Take in blocks that the memory before this tier evicts: those in front of what it has already."""
        if index == len(self.tiers):
            return
        lower = segment.lower
        if lower is None:
            lower = segment.lower = [0] * len(self.tiers)
        self._change(segment, index, lower[index] + blocks)
        while self._held[index] > self.tiers[index].capacity_bytes * (1 + 1e-12):
            self._evict(index)

    def take(self, segment: Segment, blocks: int, index: int) -> None:
        """Give back the blocks of a segment that are nearest to its start."""
        assert segment.lower is not None
        self._change(segment, index, segment.lower[index] - blocks)

    def _evict(self, index: int) -> None:
        oldest = next(iter(self._order[index]))
        assert oldest.lower is not None
        over = self._held[index] - self.tiers[index].capacity_bytes
        had = oldest.lower[index]
        kept = self._sizes.kept(had, 0, over)
        self._change(oldest, index, kept)
        self.put(oldest, had - kept, index + 1)

    def _change(self, segment: Segment, index: int, blocks: int) -> None:
        lower, order = segment.lower, self._order[index]
        assert lower is not None
        sizes = self._sizes
        self._held[index] += sizes.held(blocks, 0) - sizes.held(lower[index], 0)
        lower[index] = blocks
        if blocks:
            order.setdefault(segment)
        else:
            order.pop(segment, None)
        if not order:
            self._held[index] = 0.0

    def load_s(self, blocks: int, index: int) -> float:
        """Return the seconds that blocks of one context take from a tier into the engine's memory."""
        return self._sizes.held(blocks, 0) / self.tiers[index].bytes_per_s
