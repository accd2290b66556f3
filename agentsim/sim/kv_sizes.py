"""Blocks of KV in bytes, and the runs of blocks that a cache keeps books on."""

from __future__ import annotations

from math import ceil

from agentsim.backends.base import IterationCost
from agentsim.units import bytes_text, count_text


class Segment:
    """A run of blocks of one context: `blocks` of `length` are in the engine's memory, from the front.

    It starts behind the first `start` blocks, which lie on the segments `above` it. `users` counts the
    running calls that read it. `windows` are the blocks that its windowed layers hold; `lower` the blocks
    behind the present ones that lie in each lower tier. Several contexts share what is above them all:
    `inner` tells such a segment, which never grows, from one at the end of a context.
    """

    __slots__ = ("above", "blocks", "inner", "length", "lower", "start", "users", "windows")

    def __init__(self, above: Segment | None, start: int, blocks: int, users: int, inner: bool) -> None:
        self.above, self.start, self.users, self.inner = above, start, users, inner
        self.blocks = self.length = blocks
        self.windows = 0
        self.lower: list[int] | None = None


class BlockSizes:
    """Bytes of KV blocks: each counts in the layers that see everything, the last few in windowed ones."""

    __slots__ = ("block_tokens", "full_bytes", "window_blocks", "window_bytes")

    def __init__(self, cost: IterationCost) -> None:
        tokens = self.block_tokens = cost.rules.block_tokens
        self.full_bytes = cost.kv_bytes(tokens, 0.0)
        self.window_bytes = cost.kv_bytes(0.0, tokens) if cost.window_tokens else 0.0
        self.window_blocks = ceil(cost.window_tokens / tokens) if cost.window_tokens else 0

    def blocks(self, tokens: int) -> int:
        """Return the blocks that some tokens take."""
        return -(-tokens // self.block_tokens)

    def windows(self, blocks: int) -> int:
        """Return the blocks that windowed layers hold of a context of so many."""
        return min(blocks, self.window_blocks)

    def too_long(self, tokens: int, room: float) -> str:
        """Return what is wrong with a context that does not fit so many bytes, and what would help."""
        need = self.held(self.blocks(tokens), 0)
        return (
            f"a context of {tokens:,} tokens needs {bytes_text(need)} of KV; "
            f"{bytes_text(room)} are free beside the weights, enough for about "
            f"{count_text(tokens * room / need)} tokens: "
            "use more chips, a smaller KV precision, or compaction"
        )

    def bytes(self, blocks: float, windows: float) -> float:
        """Return the bytes of blocks in full layers and in windowed ones."""
        return blocks * self.full_bytes + windows * self.window_bytes

    def held(self, blocks: int, start: int) -> float:
        """Return the bytes of a run of blocks behind the first `start`, windows included."""
        return self.bytes(blocks, self.windows(start + blocks)) if blocks else 0.0

    def kept(self, blocks: int, start: int, over: float) -> int:
        """Return how many blocks of a run stay when at least `over` bytes must go, from its tail."""
        left = self.held(blocks, start) - over * (1 - 1e-12)
        if not self.window_bytes:
            return min(max(int(left // self.full_bytes), 0), blocks - 1)
        few = max(self.window_blocks - start, 0)
        kept = (left - self.window_blocks * self.window_bytes) // self.full_bytes
        if kept < few:
            both = self.full_bytes + self.window_bytes
            kept = (left - min(start, self.window_blocks) * self.window_bytes) // both
        return min(max(int(kept), 0), blocks - 1)
