"""The KV memory of one engine: what running calls hold, and what is kept of idle contexts.

Least recently used blocks go first, and of one context the tail before the head, as in vLLM's queue of free
blocks (https://docs.vllm.ai/en/latest/design/prefix_caching/) and in the radix trees of SGLang and
TensorRT-LLM. All blocks of a context are touched together, so that an idle context is one entry of the queue,
evicted from its end; what several contexts share (a system prompt, the context that a sub-agent inherits)
is a segment above theirs, used last by whoever was last. An event costs the depth of that tree, which
nested sub-agents make, and no more.

Only whole blocks are reused, and the last token of a prompt is always computed. What a call no longer uses
of its context (a summarised history, dropped thinking, a last block that was not full) stays until it is the
oldest: an engine cannot know that nobody will ask for it again.

The agent says how much of its prompt is unchanged; the cache says what of that has been evicted. A context
that it never saw comes in whole: it was computed before the simulation began, or elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import NamedTuple

from agentsim.backends.base import IterationCost, prefill_s
from agentsim.sim.kv_sizes import BlockSizes, Segment
from agentsim.sim.kv_tiers import TierStack
from agentsim.sim.load import Load
from agentsim.sim.request import Prefix, Request


class Fetch(NamedTuple):
    """Blocks of one segment that a lower tier has, and whether they are worth the way back."""

    segment: Segment
    tier: int
    blocks: int


class Match(NamedTuple):
    """What the cache has for a call.

    Its own blocks go behind the first `start`, on `above`; `kept` blocks are in memory, `hit` count as
    cached without being loaded. `leaf` is the caller's own idle segment where some of it is taken over.
    `shared` is the system prompt that it reads, or computes for others: (key, blocks).
    """

    start: int
    above: Segment | None
    kept: int
    hit: int
    leaf: Segment | None
    shared: tuple[str, int] | None
    loads: tuple[Fetch, ...]


class KvCache:
    """Counts blocks, live (held by calls that run) and idle; in full layers and in windowed ones."""

    def __init__(self, cost: IterationCost, load: Load) -> None:
        self._cost, self.load = cost, load
        self.sizes = BlockSizes(cost)
        self.capacity_bytes = cost.kv_capacity_bytes * (1 + 1e-12)
        self.tiers = TierStack(cost.rules.tiers, self.sizes) if cost.rules.tiers else None
        self.live_blocks = self.live_windows = 0
        self.idle_blocks = self.idle_windows = 0
        self._idle: OrderedDict[Segment, None] = OrderedDict()
        self._leaves: dict[str, Segment] = {}
        self._shared: dict[str, Segment] = {}

    # what there is

    def look(self, request: Request) -> Match:
        """Return what the cache has for a call now; changes nothing."""
        limit = max(request.goal - 1, 0) // self.sizes.block_tokens
        prefix = request.prefix
        own = request.segment or self._leaves.get(prefix.owner)
        leaf = own or self._parent(prefix)
        claim = min(request.claim // self.sizes.block_tokens, limit)
        present, have, intact = _present(leaf)
        kept = min(claim, have)
        hit = claim if intact else kept
        shared = self._shared_by(prefix, limit)
        loads = self._loads(leaf, present, claim) if self.tiers is not None and kept < claim else ()
        if shared is not None and kept <= shared[1]:
            root = self._shared.get(shared[0])
            there = root.blocks if root is not None else 0
            return Match(shared[1], root, there, max(hit, there), None, shared, loads)
        while present is not None and present.start >= kept:
            present = present.above
        if present is None:
            return Match(0, None, 0, hit, None, None, loads)
        if present is own and not present.users:
            return Match(present.start, present.above, kept, hit, present, None, loads)
        if present.above is None and present in self._shared.values() and kept < present.length:
            return Match(0, None, 0, hit, None, None, loads)  # a system prompt that was cut: read, not shared
        return Match(kept, present, kept, hit, None, None, loads)

    def _parent(self, prefix: Prefix) -> Segment | None:
        """Return what a new agent inherits: its parent's context, for a first call that claims any."""
        if not prefix.tokens:
            return None
        return self._leaves.get(prefix.owner.rpartition("/")[0])

    def _shared_by(self, prefix: Prefix, limit: int) -> tuple[str, int] | None:
        """Return the system prompt of a call, unless it is cut or is all that the call asks for."""
        blocks = prefix.shared_tokens // self.sizes.block_tokens
        if not blocks or blocks > limit or 0 < prefix.tokens < prefix.shared_tokens:
            return None
        root = self._shared.get(prefix.shared_key)
        return (prefix.shared_key, blocks) if root is None or root.length == blocks else None

    def _loads(self, leaf: Segment | None, present: Segment | None, claim: int) -> tuple[Fetch, ...]:
        """Return what lower tiers have behind the blocks that are present, as far as it pays to load it."""
        path, segment = [], leaf
        while segment is not None:
            path.append(segment)
            if segment is present:
                break
            segment = segment.above
        found: list[Fetch] = []
        at = present.start + present.blocks if present is not None else 0
        for segment in reversed(path):
            if at != segment.start + segment.blocks:
                break
            for tier, blocks in enumerate(segment.lower or ()):
                blocks = min(blocks, claim - at)
                if blocks <= 0:
                    continue
                if not self._pays(at, blocks, tier):
                    return tuple(found)
                found.append(Fetch(segment, tier, blocks))
                at += blocks
        return tuple(found)

    def _pays(self, start: int, blocks: int, tier: int) -> bool:
        assert self.tiers is not None
        tokens = self.sizes.block_tokens
        again_s = prefill_s(self._cost, start * tokens, (start + blocks) * tokens)
        return self.tiers.load_s(blocks, tier) < again_s

    def needs(self, request: Request, match: Match) -> tuple[int, int]:
        """Return the blocks, full and windowed, that start to be held when the call is admitted."""
        total = request.blocks
        added, segment = total - match.start, match.above
        if match.shared is not None:
            added += match.shared[1]
            if segment is not None:
                added -= segment.blocks if segment.users else 0
        else:
            if segment is not None and not segment.users:
                added += min(match.start - segment.start, segment.blocks)
                segment = segment.above
            while segment is not None:
                added += 0 if segment.users else segment.blocks
                segment = segment.above
        return added, self.sizes.windows(total)

    # what happens

    def take(self, request: Request, match: Match) -> None:
        """Let an admitted call hold its blocks; precondition: `match` is what the cache has now."""
        for load in match.loads:
            self.tiers.take(load.segment, load.blocks, load.tier)  # type: ignore[union-attr]
        above = self._share(*match.shared) if match.shared is not None else match.above
        if match.leaf is not None:
            segment = self._take_over(match.leaf, match.kept - match.leaf.start)
        else:
            if above is not None and (not above.inner or above.start + above.length > match.start):
                above = self._split(above, match.start)
            segment = Segment(above, match.start, 0, 1, False)
        for load in match.loads:
            if load.segment is not match.leaf and load.segment is not above:
                load.segment.start += load.blocks  # what is left of it in the tier lies behind a gap
                load.segment.length -= load.blocks
        self._pin(above)
        segment.blocks = segment.length = request.blocks - segment.start
        segment.windows = self.sizes.windows(request.blocks)
        self.live_blocks += segment.blocks
        self.live_windows += segment.windows
        request.segment = segment
        if request.prefix.owner:
            self._leaves[request.prefix.owner] = segment
        self.shrink()

    def _share(self, key: str, blocks: int) -> Segment:
        """Return the segment of a system prompt, whole: who comes first computes what is not there."""
        root = self._shared.get(key)
        if root is None:
            root = self._shared[key] = Segment(None, 0, blocks, 0, True)
            self.idle_blocks += blocks
        elif root.blocks < blocks:
            self.idle_blocks += blocks - root.blocks
            root.blocks = blocks
            for tier, there in enumerate(root.lower or ()):
                self.tiers.take(root, there, tier)  # type: ignore[union-attr]
        return root

    def _take_over(self, leaf: Segment, blocks: int) -> Segment:
        """Return a running segment with the first blocks of an idle one; the rest stays in line."""
        self.idle_blocks -= blocks
        rest = leaf.blocks - blocks
        if rest or (leaf.lower is not None and any(leaf.lower)):
            taken = Segment(leaf.above, leaf.start, blocks, 1, False)
            leaf.start += blocks
            leaf.blocks = leaf.length = rest
            leaf.above = None
            if not rest:
                self._forget(leaf)
            return taken
        self._forget(leaf)
        leaf.users = 1
        return leaf

    def _forget(self, segment: Segment) -> None:
        self._idle.pop(segment, None)
        self.idle_windows -= segment.windows
        segment.windows = 0

    def _split(self, segment: Segment, at: int) -> Segment:
        """Return a new segment with the blocks up to `at`, on which this one, cut to the rest, now stands."""
        head = Segment(segment.above, segment.start, at - segment.start, segment.users, True)
        segment.above, segment.start = head, at
        segment.blocks -= head.blocks
        segment.length -= head.blocks
        if not segment.blocks and not segment.users:
            self._forget(segment)
        return head

    def _pin(self, segment: Segment | None) -> None:
        while segment is not None:
            if not segment.users:
                self._idle.pop(segment, None)
                self.idle_blocks -= segment.blocks
                self.live_blocks += segment.blocks
            segment.users += 1
            segment = segment.above

    def grow(self, request: Request, blocks: int) -> None:
        """Let a running call hold so many blocks in all."""
        segment = request.segment
        assert segment is not None
        more = blocks - segment.start - segment.blocks
        if more:
            segment.blocks += more
            segment.length += more
            self.live_blocks += more
            windows = self.sizes.windows(blocks)
            self.live_windows += windows - segment.windows
            segment.windows = windows

    def release(self, request: Request, tokens: int) -> None:
        """Let go of a call's blocks; what holds its first `tokens` stays until it is evicted."""
        segment = request.segment
        assert segment is not None
        total = self.sizes.blocks(tokens)
        self.live_blocks -= segment.blocks
        self.live_windows -= segment.windows
        blocks = segment.blocks = segment.length = max(total - segment.start, 0)
        segment.users = 0
        segment.windows = self.sizes.windows(total) if blocks else 0
        if blocks:
            self.idle_blocks += blocks
            self.idle_windows += segment.windows
            self._idle[segment] = None
        above = segment.above
        while above is not None:
            above.users -= 1
            if not above.users:
                self._unpin(above, total)
            above = above.above

    def _unpin(self, segment: Segment, computed: int) -> None:
        """Put a shared segment that nobody reads any more in line, as far as it was computed."""
        self.live_blocks -= segment.blocks
        segment.blocks = min(segment.blocks, max(computed - segment.start, 0))
        if segment.blocks:
            self.idle_blocks += segment.blocks
            self._idle[segment] = None

    def shrink(self) -> None:
        """Evict the oldest idle blocks until everything fits; precondition: what runs fits."""
        sizes = self.sizes
        while True:
            blocks = self.live_blocks + self.idle_blocks
            over = sizes.bytes(blocks, self.live_windows + self.idle_windows) - self.capacity_bytes
            if over <= 0 or not self._idle:
                return
            self._evict(next(iter(self._idle)), over)

    def _evict(self, segment: Segment, over: float) -> None:
        had, sizes = segment.blocks, self.sizes
        if segment.windows:
            kept = sizes.kept(had, segment.start, over)
        else:
            kept = min(max(had - ceil(over * (1 - 1e-12) / sizes.full_bytes), 0), had - 1)
        segment.blocks = kept
        windows = sizes.windows(segment.start + kept) if kept and segment.windows else 0
        self.idle_windows += windows - segment.windows
        segment.windows = windows
        self.idle_blocks -= had - kept
        self.load.evicted_tokens += (had - kept) * sizes.block_tokens
        if not kept:
            del self._idle[segment]
        if self.tiers is not None:
            self.tiers.put(segment, had - kept)

    @property
    def live_bytes(self) -> float:
        """Bytes that running calls hold, as last counted."""
        return self.sizes.bytes(self.live_blocks, self.live_windows)


def _present(leaf: Segment | None) -> tuple[Segment | None, int, bool]:
    """Return the last segment of a context in memory, where it ends, and whether none is missing."""
    segment, intact = leaf, True
    while segment is not None and not segment.blocks:
        above = segment.above
        whole = not segment.length and segment.start == (above.start + above.length if above else 0)
        intact = intact and whole
        segment = above
    if segment is None:
        return None, 0, intact
    return segment, segment.start + segment.blocks, intact and segment.blocks == segment.length
