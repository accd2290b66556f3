"""A slow engine that does every iteration one by one: the reference for the server's closed forms.

Written from the rules alone, in seconds as floats, without an event loop, with a list of every block:

* an iteration decodes every sequence that has its first token, and prefills at most the token budget
  less the verified tokens of each of those, first come first served; a prefill-first engine prefills
  alone while there are prompts, with all of the budget;
* a call is admitted in order of arrival while the budget is not used up by those before it, and a
  sequence slot and room for its KV are free (a call alone may use the far memory): for its prompt, or, on
  an engine that reserves, for its prompt and output. It never joins an iteration that has begun;
* an engine that takes prompts whole admits one only if it fits what is left of the budget, or is first;
* an engine that holds calls looks at those that have come in at every so many decode iterations in a row,
  and, unless it waits for others, whenever an iteration prefilled or nothing decodes; if it has copies of the
  attention, as soon as a call waits for each or fewer than that decode (a call is the copy's that has the
  fewest when it comes in), and what is not admitted then must wait again; if it waits for a share of its
  budget, the iterations count from the first call that waits;
* before an iteration every sequence has blocks for the tokens it will have read. Where they do not all
  fit, the call admitted last goes back to the head of the queue, and nothing is admitted then;
* the first token is out when the iteration of the last prefill chunk ends; every decode iteration
  then yields `tokens_per_step` times its pace more, at least one and at most what is verified;
* a block that no call holds stays until its place is needed: the one let go of first goes first, of those
  let go of together the one deepest in its context. It goes to the first tier, from there to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from agentsim.backends.base import Batch, IterationCost

NS = 1e-9
NEAR_S = 20 * NS
"""Arrivals nearer than this to the end of an iteration could fall on either side of it by rounding."""


@dataclass
class Call:
    """One call; times in seconds. `lane` "" stands for itself alone.

    `shared` tokens at the front are a system prompt, the same in all calls. When it ends, each of the calls
    in `then` comes in after its gap.
    """

    arrival_s: float
    prompt: int
    cached: int
    output: int
    pace: float = 1.0
    lane: str = ""
    shared: int = 0
    then: list[tuple[float, Call]] = field(default_factory=list)
    started_s: float = -1.0
    first_token_s: float = -1.0
    finished_s: float = -1.0
    loaded_s: float = 0.0
    to_prefill: int = 0
    context: float = 0.0
    written: float = 0.0
    hit: int = -1
    goal: int = 0
    ids: list[object] = field(default_factory=list)
    admitted: int = 0
    copy: int = 0

    def __post_init__(self) -> None:
        self.goal = self.prompt


class Memory:
    """Every block by what it holds: (context, place in it), in lists from the oldest to the newest."""

    def __init__(self, cost: IterationCost) -> None:
        self.cost, self.size = cost, cost.rules.block_tokens
        self.wide = ceil(cost.window_tokens / self.size) if cost.window_tokens else 0
        self.held: dict[object, int] = {}
        self.idle: list[object] = []
        self.tiers: list[list[object]] = [[] for _ in cost.rules.tiers]
        self.home: dict[object, object] = {}
        self.lanes: dict[str, list[object]] = {}
        self.system: list[object] = []
        self.names = 0
        self.evicted = 0

    def of_blocks(self, blocks: int, windows: int) -> float:
        return self.cost.kv_bytes(blocks * self.size, windows * self.size)

    def windows_live(self, calls: list[Call], blocks: dict[int, int]) -> int:
        return sum(min(blocks[id(call)], self.wide) for call in calls)

    def windows_idle(self, idle: list[object]) -> int:
        """Windowed layers keep the last blocks of each run that one call left."""
        deepest: dict[object, int] = {}
        for block in idle:
            run, place = self.home[block]
            if run is not None:
                deepest[run] = max(deepest.get(run, 0), place + 1)
        return sum(min(end, self.wide) for end in deepest.values())

    def fresh(self) -> object:
        self.names += 1
        return self.names

    def shrink(self, live: int, windows: int) -> None:
        """Evict one block after another until all that is live and idle fits."""
        capacity = self.cost.kv_capacity_bytes * (1 + 1e-12)
        while self.idle:
            total = live + len(self.idle)
            if self.of_blocks(total, windows + self.windows_idle(self.idle)) <= capacity:
                return
            self.evicted += 1
            self.push(self.idle.pop(0), 0)

    def push(self, block: object, tier: int) -> None:
        if tier == len(self.tiers):
            return
        there = self.tiers[tier]
        there.append(block)
        capacity = self.cost.rules.tiers[tier].capacity_bytes * (1 + 1e-12)
        while self.tier_bytes(there) > capacity:
            self.push(there.pop(0), tier + 1)

    def tier_bytes(self, blocks: list[object]) -> float:
        runs: dict[object, int] = {}
        for block in blocks:
            run = self.home[block][0]
            runs[run] = runs.get(run, 0) + 1
        return self.of_blocks(len(blocks), sum(min(count, self.wide) for count in runs.values()))


class SlowEngine:
    """Runs calls (in order of arrival) to their end.

    `changes` counts how often the batch changed; `ambiguous` tells that an arrival and the end of an
    iteration were too near each other to say which came first; `busy_s` is the time in iterations.
    """

    def __init__(self, cost: IterationCost, calls: list[Call]) -> None:
        self.cost, self.rules = cost, cost.rules
        self.memory = Memory(cost)
        self.to_come = sorted(calls, key=lambda call: call.arrival_s)
        self.waiting: list[Call] = []
        self.loading: list[Call] = []
        self.prefilling: list[Call] = []
        self.decoding: list[Call] = []
        self.link_s = 0.0
        self.now_s = self.busy_s = 0.0
        self.changes = self.admissions = self.preemptions = 0
        self.ambiguous = False
        self.most_sequences = 0
        self.seen: list[Call] = []
        self.since, self.due = 0, False

    @property
    def running(self) -> list[Call]:
        return self.loading + self.prefilling + self.decoding

    def run(self) -> SlowEngine:
        while self.to_come or self.waiting or self.running:
            self._take_arrivals()
            put_back = self._make_room()
            self._look()
            if not put_back:
                self._admit()
            self.most_sequences = max(self.most_sequences, len(self.running))
            if self.prefilling or self.decoding:
                self._iterate()
            else:
                self.now_s = min(
                    [self._ready_s(call) for call in self.to_come[:1]] + [c.loaded_s for c in self.loading]
                )
        return self

    def _emptiest_copy(self) -> int:
        """Return the copy of the attention that has the fewest calls."""
        if self.rules.hold is None or not self.rules.hold.copies:
            return 0
        copies = [call.copy for call in self.waiting + self.running]
        return min(range(self.rules.hold.copies), key=copies.count)

    def _look(self) -> None:
        hold = self.rules.hold
        if hold is None:
            self.seen = list(self.waiting)
            return
        due, self.due = self.due, False
        if hold.again:
            self.seen = []
        if hold.copies:
            copies = {call.copy for call in self.waiting}
            due |= len(self.decoding) < hold.copies or len(copies) == hold.copies
        else:
            due |= not self.decoding
        if hold.share is not None:
            due |= self._filled() >= hold.share * self.cost.batched_tokens
        if due:
            self.seen, self.since = list(self.waiting), 0

    def _filled(self) -> int:
        total = len(self.decoding)
        for call in self.waiting:
            if total + call.goal > self.cost.batched_tokens:
                break
            total += call.goal
        return total

    def _count_hold(self, prefilled: bool) -> None:
        hold = self.rules.hold
        if hold is None:
            return
        waits = bool(self.waiting) or hold.share is None
        self.since = 0 if prefilled else self.since + waits
        self.due = self.since == hold.iterations or (prefilled and not hold.again)
        if self.due:
            self.since = 0
        self.changes += self.due

    def _ready_s(self, call: Call) -> float:
        return call.arrival_s + self.cost.request_s

    def _take_arrivals(self) -> None:
        while self.to_come and self._ready_s(self.to_come[0]) <= self.now_s:
            call = self.to_come.pop(0)
            call.copy = self._emptiest_copy()
            self.waiting.append(call)
            self.changes += 1
        for call in list(self.loading):
            if call.loaded_s <= self.now_s:
                self.loading.remove(call)
                self.prefilling.append(call)
                self.changes += 1

    # memory

    def _blocks_of(self, call: Call) -> int:
        """Count the blocks that a running call holds now."""
        if self.rules.reserve:
            return -(-(call.prompt + call.output) // self.memory.size)
        if call in self.decoding:
            return -(-int(call.context + 1e-6) // self.memory.size)
        return -(-call.goal // self.memory.size)

    def _extend(self, call: Call) -> None:
        """Give a call a new block for each that it needs and does not have."""
        memory, shared = self.memory, self._shared(call)
        while len(call.ids) < self._blocks_of(call):
            place = len(call.ids)
            while shared > len(memory.system):
                memory.system.append(memory.fresh())
            call.ids.append(memory.system[place] if place < shared else memory.fresh())

    def _shared(self, call: Call) -> int:
        """Count the blocks of the system prompt, where the call has more than that."""
        blocks = call.shared // self.memory.size
        return blocks if blocks <= (call.prompt - 1) // self.memory.size else 0

    def _live(self, calls: list[Call]) -> tuple[int, int]:
        """Count blocks that are held, each once; and those of windowed layers, which are nobody else's."""
        for call in calls:
            self._extend(call)
            for block in call.ids[: self._shared(call)]:
                self.memory.home[block] = (None, 0)
        held = {block for call in calls for block in call.ids}
        wide = self.memory.wide
        return len(held), sum(min(len(call.ids), wide) for call in calls)

    def _live_bytes(self, calls: list[Call]) -> float:
        return self.memory.of_blocks(*self._live(calls))

    def _make_room(self) -> bool:
        if self.rules.reserve:
            return False
        capacity, put_back = self.cost.kv_capacity_bytes * (1 + 1e-12), False
        while self._live_bytes(self.running) > capacity:
            self.memory.shrink(*self._live(self.running))
            self._put_back(max(self.prefilling + self.decoding, key=lambda call: call.admitted))
            put_back = True
        self.memory.shrink(*self._live(self.running))
        return put_back

    def _put_back(self, call: Call) -> None:
        if call in self.decoding:
            call.goal = int(call.context + 1e-6)
            computed = call.goal - 1
            self.decoding.remove(call)
        else:
            computed = int(call.context)
            self.prefilling.remove(call)
        self._let_go(call, computed)
        call.cached = computed
        self.waiting.insert(0, call)
        self.seen.append(call)
        self.preemptions += 1
        self.changes += 1

    def _let_go(self, call: Call, computed: int) -> None:
        """Leave the blocks with computed tokens, the deepest to be evicted first."""
        memory = self.memory
        while len(call.ids) * memory.size < computed:  # what speculation wrote in the last iteration
            call.ids.append(memory.fresh())
        keep = call.ids[: -(-computed // memory.size)]
        others = {block for other in self.running if other is not call for block in other.ids}
        free = [block for block in keep if block not in others]
        run = memory.fresh()
        for place, block in enumerate(keep):
            if block in free and memory.home.get(block, (run, 0))[0] is not None:
                memory.home[block] = (run, place)
        memory.idle.extend(reversed(free))
        call.ids = list(keep)
        if call.lane:
            memory.lanes[call.lane] = list(keep)

    def _known(self, call: Call) -> list[object] | None:
        """Return the blocks that the unchanged part of a call's context once had; None: never seen."""
        memory = self.memory
        if call.ids:
            return call.ids
        if call.lane in memory.lanes:
            return memory.lanes[call.lane]
        if call.cached:
            return memory.lanes.get(call.lane.rpartition("/")[0])
        return memory.system[: self._shared(call)] or None

    def _find(self, call: Call) -> tuple[list[object], int, list[tuple[int, list[object]]]]:
        """Return the blocks in memory that a call reuses, those counted as hit, and what tiers would give."""
        memory, size = self.memory, self.memory.size
        limit = (call.goal - 1) // size
        claim = min(max(call.cached // size, self._shared(call)), limit)
        known = self._known(call)
        there = set(memory.idle) | {block for other in self.running for block in other.ids}
        if known is None:
            return [], min(call.cached // size, limit), []
        found = 0
        while found < min(claim, len(known)) and known[found] in there:
            found += 1
        loads: list[tuple[int, list[object]]] = []
        if all(block in there for block in known):
            return known[:found], max(found, min(call.cached // size, limit)), []
        at = found
        while at < min(claim, len(known)):
            tier = next((i for i, blocks in enumerate(memory.tiers) if known[at] in blocks), None)
            if tier is None:
                break
            end = at
            run = memory.home[known[at]][0]
            while end < min(claim, len(known)) and known[end] in memory.tiers[tier]:
                if memory.home[known[end]][0] != run:
                    break
                end += 1
            if not self._pays(at, end, tier):
                break
            loads.append((tier, known[at:end]))
            at = end
        return known[:found], found, loads

    def _load_s(self, blocks: int, tier: int) -> float:
        memory = self.memory
        return memory.of_blocks(blocks, min(blocks, memory.wide)) / self.rules.tiers[tier].bytes_per_s

    def _pays(self, start: int, end: int, tier: int) -> bool:
        """Compare loading with prefilling the same tokens on an idle engine, chunk by chunk."""
        again_s, at = 0.0, start * self.memory.size
        while at < end * self.memory.size:
            chunk = min(end * self.memory.size - at, self.cost.batched_tokens)
            pairs = sum(at + i + 1 for i in range(chunk))
            window = min(pairs, chunk * (self.cost.window_tokens or 0))
            again_s += self.cost.iteration_s(Batch(0, 0.0, 0.0, chunk, pairs, window))
            at += chunk
        return self._load_s(end - start, tier) < again_s

    def _admit(self) -> None:
        memory = self.memory
        near = min(self.cost.kv_knee_bytes, self.cost.kv_capacity_bytes) * (1 + 1e-12)
        while self.waiting and sum(call.to_prefill for call in self.prefilling) < self._budget():
            call = self.waiting[0]
            if call not in self.seen or len(self.running) >= self.cost.max_sequences:
                break
            memory.shrink(*self._live(self.running))
            reused, hit, loads = self._find(call)
            alone, before = not self.running, call.ids
            call.ids = list(reused)
            fits = alone or self._live_bytes([*self.running, call]) <= near
            if not fits:
                call.ids = before
                break
            if self._would_split(call, hit + sum(len(blocks) for _, blocks in loads)):
                call.ids = before
                break
            self.waiting.pop(0)
            self._start(call, hit, loads)

    def _would_split(self, call: Call, hit: int) -> bool:
        left = self._budget() - sum(other.to_prefill for other in self.prefilling)
        whole = self.rules.whole_prompts and bool(self.prefilling)
        return whole and call.goal - hit * self.memory.size > left

    def _start(self, call: Call, hit: int, loads: list[tuple[int, list[object]]]) -> None:
        memory = self.memory
        memory.idle = [block for block in memory.idle if block not in call.ids]
        if call.lane not in memory.lanes and call.lane.rpartition("/")[0] in memory.lanes and call.cached:
            for block in set(call.ids) & set(memory.lanes[call.lane.rpartition("/")[0]]):
                memory.home[block] = (None, 0)
        if call.lane:
            memory.lanes[call.lane] = call.ids
        if call.started_s < 0:
            call.started_s = self.now_s
        self.admissions += 1
        call.admitted = self.admissions
        load_s = 0.0
        for tier, blocks in loads:
            memory.tiers[tier] = [block for block in memory.tiers[tier] if block not in blocks]
            load_s += self._load_s(len(blocks), tier)
            hit += len(blocks)
        if call.hit < 0:
            call.hit = hit * memory.size
        call.to_prefill = call.goal - hit * memory.size
        call.context = hit * memory.size
        if loads:
            self.link_s = max(self.link_s, self.now_s) + load_s
            call.loaded_s = self.link_s
            self.loading.append(call)
        else:
            self.prefilling.append(call)
        for tier, blocks in enumerate(memory.tiers):
            memory.tiers[tier] = [block for block in blocks if block not in call.ids]
        memory.shrink(*self._live(self.running))

    # iterations

    def _budget(self) -> int:
        if self.rules.prefill_first:
            return self.cost.batched_tokens
        return max(self.cost.batched_tokens - len(self.decoding) * self.cost.verified_tokens, 1)

    def _window(self, context: float) -> float:
        return 0.0 if self.cost.window_tokens is None else min(context, self.cost.window_tokens)

    def _chunks(self) -> list[tuple[Call, int]]:
        left = self._budget()
        chunks = []
        for call in self.prefilling:
            size = min(call.to_prefill, left)
            if chunks and size < call.to_prefill and self.rules.whole_prompts:
                break
            left -= size
            if size:
                chunks.append((call, size))
        return chunks

    def _pairs(self, chunks: list[tuple[Call, int]]) -> tuple[float, float]:
        """Count, query by query, the keys that each sees: all before it and itself, or its window."""
        full = windowed = 0.0
        for call, size in chunks:
            for position in range(size):
                full += call.context + position + 1
                windowed += self._window(call.context + position + 1)
        return full, windowed

    def _iterate(self) -> None:
        chunks = self._chunks()
        pairs, window_pairs = self._pairs(chunks)
        decoding = [] if chunks and self.rules.prefill_first else self.decoding
        batch = Batch(
            sequences=len(decoding),
            context=sum(call.context for call in decoding),
            window=sum(self._window(call.context) for call in decoding),
            prefill_tokens=sum(size for _, size in chunks),
            prefill_pairs=pairs,
            prefill_window_pairs=window_pairs,
            prefill_requests=len(chunks),
        )
        assert self._live_bytes(self.running) <= self.cost.kv_capacity_bytes * (1 + 1e-12)
        step_s = self.cost.iteration_s(batch)
        self.now_s += step_s
        self.busy_s += step_s
        due = [self._ready_s(call) for call in self.to_come] + [call.loaded_s for call in self.loading]
        self.ambiguous |= any(abs(moment - self.now_s) < NEAR_S for moment in due)
        self._count_hold(bool(chunks))
        self._write(list(decoding))
        for call, size in chunks:
            self._prefill(call, size)

    def _write(self, decoding: list[Call]) -> None:
        window = self.cost.window_tokens
        for call in decoding:
            before = call.context
            gain = min(max(self.cost.tokens_per_step * call.pace, 1), self.cost.verified_tokens)
            call.context += gain
            call.written += gain
            self.changes += window is not None and before < window <= call.context
            if call.written >= call.output - 1e-6:
                self.decoding.remove(call)
                self._finish(call)

    def _prefill(self, call: Call, size: int) -> None:
        call.to_prefill -= size
        call.context += size
        self.changes += 1
        if call.to_prefill:
            return
        self.prefilling.remove(call)
        if call.first_token_s < 0:
            call.first_token_s = self.now_s
        call.context += 1
        call.written += 1
        if call.written < call.output - 1e-6:
            self.decoding.append(call)
        else:
            self._finish(call)

    def _finish(self, call: Call) -> None:
        call.finished_s = self.now_s
        self.changes += 1
        self._let_go(call, call.prompt + max(call.output, 1) - 1)
        for gap_s, follower in call.then:
            follower.arrival_s = self.now_s + gap_s
            self.to_come.append(follower)
        self.to_come.sort(key=lambda follower: follower.arrival_s)
