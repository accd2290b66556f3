"""The KV of decoding sequences, which grows with every iteration, against the memory that there is.

Blocks are counted exactly only where it matters: a bound that costs nothing tells when all is well.
"""

from __future__ import annotations

from agentsim.sim.batch import DecodeBatch
from agentsim.sim.kv_cache import KvCache


class KvGrowth:
    """What a batch needs of a cache that its sequences grow into; with `reserve` they grow into nothing."""

    def __init__(self, cache: KvCache, batch: DecodeBatch, reserve: bool) -> None:
        self._cache, self._batch, self._reserve = cache, batch, reserve

    @property
    def none(self) -> bool:
        """Whether nothing grows."""
        return self._reserve or not self._batch.count

    def bytes_with(self, blocks: float, windows: float) -> float:
        """Return the bytes that running calls hold, as last counted, and so many blocks more."""
        cache = self._cache
        return cache.sizes.bytes(cache.live_blocks + blocks, cache.live_windows + windows)

    def _most(self, iterations: int) -> tuple[float, int]:
        """Return what sequences may need, after so many iterations, beyond what is counted as theirs."""
        blocks, windows = self._batch.bounds(iterations)
        return blocks - self._batch.paid_blocks, windows - self._batch.paid_windows

    def fits_with(self, blocks: int, windows: int, limit_bytes: float) -> bool:
        """Tell whether blocks more fit a limit beside all that runs now."""
        if not self.none:
            growth, wider = self._most(0)
            if self.bytes_with(blocks + growth, windows + wider) <= limit_bytes:
                return True
            self.settle()
        return self.bytes_with(blocks, windows) <= limit_bytes

    def settle(self) -> None:
        """Count what every sequence holds now; O(sequences)."""
        batch, cache = self._batch, self._cache
        live, windows = cache.live_blocks, cache.live_windows
        for request in batch.members:
            cache.grow(request, cache.sizes.blocks(batch.tokens_of(request)))
        batch.paid_blocks += cache.live_blocks - live
        batch.paid_windows += cache.live_windows - windows

    def evict(self) -> None:
        """Let what was written since the last count push out idle blocks."""
        cache = self._cache
        blocks, windows = (0.0, 0) if self.none else self._most(0)
        total = self.bytes_with(blocks + cache.idle_blocks, windows + cache.idle_windows)
        if total > cache.capacity_bytes:
            if not self.none:
                self.settle()
            cache.shrink()

    def overflows(self) -> bool:
        """Tell whether the next iteration's KV does not fit, with everything counted if so."""
        if self.none or self.bytes_with(*self._most(0)) <= self._cache.capacity_bytes:
            return False
        self.settle()
        self._cache.shrink()
        return self._cache.live_bytes > self._cache.capacity_bytes

    def until_full(self, iterations: int) -> int:
        """Return how many of the next iterations' KV fits; the first one's does."""
        batch, capacity = self._batch, self._cache.capacity_bytes
        if self.none or self.bytes_with(*self._most(iterations - 1)) <= capacity:
            return iterations
        low, high = 0, iterations
        while high - low > 1:
            middle = (low + high) // 2
            blocks, windows = batch.needs(middle)
            need = self.bytes_with(blocks - batch.paid_blocks, windows - batch.paid_windows)
            low, high = (middle, high) if need <= capacity else (low, middle)
        return low + 1

    def grown_bytes(self) -> float:
        """Return about what sequences have written since they were last counted, but for halves of blocks."""
        if self.none:
            return 0.0
        sizes = self._cache.sizes
        grown = self._batch.context / sizes.block_tokens - self._batch.paid_blocks
        return max(grown, 0.0) * sizes.full_bytes
