"""An engine under continuous batching, advanced from change to change of its batch.

Between two changes of the batch the composition is constant and every iteration costs a fixed amount more
than the one before, since the cost is affine in the context (see `backends/base.py`): a phase of k
iterations is an arithmetic series.

What an iteration works on follows the engine's `ServingRules`. vLLM and TensorRT-LLM decode every running
sequence and give prompts what is left of the token budget, first come first served; SGLang prefills alone
while prompts wait. A call leaves the queue when an iteration has budget for it and its KV fits. TensorRT-LLM
reserves all its output too (GUARANTEED_NO_EVICT); vLLM and SGLang let KV grow, and when blocks run out put
the call admitted last back to the head of the queue: its blocks join the idle cache, what of them is evicted
is computed again, and nothing is admitted in that iteration. vLLM takes blocks for a prompt chunk by chunk,
here they are taken at once; SGLang also keeps room for a share of what running calls will write, here it
does not.
"""

from __future__ import annotations

from collections import deque
from math import inf
from operator import attrgetter
from typing import Any

from agentsim.backends.base import IterationCost
from agentsim.errors import InfeasibleError, InvariantViolation
from agentsim.sim.batch import DecodeBatch, whole_tokens
from agentsim.sim.clock import Clock
from agentsim.sim.gate import Gate
from agentsim.sim.kv_cache import KvCache, Match
from agentsim.sim.kv_growth import KvGrowth
from agentsim.sim.load import Load
from agentsim.sim.phase import Phase, compose
from agentsim.sim.request import Request, Work
from agentsim.units import to_ns, to_s


class EngineServer:
    """`Server` in front of an `IterationCost`; `load` records what it was busy with."""

    def __init__(self, env: Clock, cost: IterationCost) -> None:
        self._env = env
        self.cost = cost
        self.load = Load()
        self.cache = KvCache(cost, self.load)
        self._rules = cost.rules
        self._most = cost.max_sequences
        self._near_bytes = min(cost.kv_knee_bytes, cost.kv_capacity_bytes) * (1 + 1e-12)
        self._knee_bytes = cost.kv_knee_bytes
        self._request_ns = to_ns(cost.request_s)
        self._window = cost.window_tokens or inf
        self._batch = DecodeBatch(self._window, self.cache.sizes)
        self._growth = KvGrowth(self.cache, self._batch, cost.rules.reserve)
        self._gate = Gate(cost.rules.hold, cost.batched_tokens)
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._backlog = self._loading = self._admitted = 0
        self._link_free_ns = 0
        self._phase = Phase()
        self._phase_open = False

    @property
    def peak_kv_bytes(self) -> float:
        """The most bytes of KV that running calls held at once."""
        return self.load.peak.live_bytes

    @property
    def peak_sequences(self) -> int:
        """The most sequences that ran at once."""
        return int(self.load.peak.running)

    # calls come in

    def submit(self, work: Work) -> Request:
        """Start a call; see `Server`."""
        request = self._request(work, work.prefix.tokens)
        request.overhead_ns = self._request_ns
        if self._request_ns:
            self._env.timeout(self._request_ns, request).callbacks.append(self._on_ready)
        else:
            self._ready(request)
        return request

    def submit_decode(self, work: Work) -> Request:
        """Start a call whose prompt is in this engine's KV cache and whose first token is written."""
        request = self._request(work, work.prompt)
        request.remaining, request.context = 0, float(work.prompt)
        self._ready(request)
        return request

    def cached_tokens(self, work: Work) -> int:
        """Return how much of a call's prompt is in this engine's memory now."""
        request = self._request(work, work.prefix.tokens)
        return self.cache.look(request).hit * self.cache.sizes.block_tokens

    def _request(self, work: Work, claim: int) -> Request:
        """Return a new request; refuse one whose KV could never fit."""
        prompt, output = work.prompt, work.output
        request = Request(self._env, prompt, 0, output)
        cost, sizes = self.cost, self.cache.sizes
        gain = cost.tokens_per_step * work.pace
        request.gain = min(max(gain, 1.0), float(cost.verified_tokens))
        request.prefix, request.claim, request.goal = work.prefix, claim, prompt
        request.written, request.segment, request.below_window = 0.0, None, False
        request.remaining, request.context, request.order, request.copy = prompt, 0.0, -1, -1
        final, copies = sizes.blocks(prompt + output), self._rules.copies
        request.blocks = final if self._rules.reserve else sizes.blocks(prompt)
        if sizes.held(final, 0) > self.cache.capacity_bytes / copies:
            raise InfeasibleError(sizes.too_long(prompt + output, cost.kv_capacity_bytes / copies))
        return request

    def _on_ready(self, event: Any) -> None:
        self._ready(event.value)

    def _ready(self, request: Request) -> None:
        self._waiting.append(request)
        if not self._phase_open:
            self._wake()
            return
        self._note()
        if self._gate.notes_arrivals and self._phase.iterations:
            done = self._iterations_done()
            if done < self._phase.iterations:  # else those that end with the phase make room first
                self._gate.arrived(done, self._waiting, self._batch.count)
        held = self._held()
        if held or (self._has_budget() and self._may_fit(self._waiting[0])):
            self._cut_short(held)

    def _held(self) -> int:
        """Return how many iterations of this phase go by at least before a waiting call is let in."""
        if not self._phase.decodes or self._phase.chunks:
            return 0
        return self._gate.closed_for(self._waiting, self._batch.count)

    def _wake(self) -> None:
        self._phase_open = True
        self._phase.iterations = 0
        self._env.at_the_end_of(0, self._on_waking)

    def _on_waking(self, _event: Any) -> None:
        self._begin()

    # admission

    def _budget(self) -> int:
        """Return the prompt tokens that an iteration takes now."""
        if self._rules.prefill_first:
            return self.cost.batched_tokens
        return max(self.cost.batched_tokens - self._batch.count * self.cost.verified_tokens, 1)

    def _has_budget(self) -> bool:
        return self._backlog < self._budget()

    @property
    def _running(self) -> int:
        return self._batch.count + len(self._prefilling) + self._loading

    def _may_fit(self, request: Request) -> bool:
        """Tell whether a call could start at the next change of the batch; "no" is certain."""
        running, cache = self._running, self.cache
        if not running:
            return True
        if running >= self._most:
            return False
        windows = cache.sizes.windows(request.blocks)
        if self._growth.bytes_with(request.blocks, windows) <= self._near_bytes:
            return True
        needs = cache.needs(request, cache.look(request))
        return self._growth.bytes_with(*needs) <= self._near_bytes

    def _admit(self) -> None:
        waiting, gate = self._waiting, self._gate
        while waiting and gate.let_in > 0 and self._has_budget():
            if self._running >= self._most:
                return
            if not self._rules.reserve:
                self._growth.evict()
            request = waiting[0]
            match = self.cache.look(request)
            if not self._fits(request, match) or self._would_split(request, match):
                return
            waiting.popleft()
            gate.admitted()
            self._start(request, match)

    def _would_split(self, request: Request, match: Match) -> bool:
        """Tell whether a prompt that is prefilled whole finds too little budget left by those before it."""
        if not self._rules.whole_prompts or not self._backlog:
            return False
        hit = (match.hit + sum(load.blocks for load in match.loads)) * self.cache.sizes.block_tokens
        return self._backlog + request.goal - hit > self._budget()

    def _fits(self, request: Request, match: Match) -> bool:
        """Tell whether a call may start: its KV fits the near memory, or it is alone and must use the far."""
        if not self._running:
            return True
        return self._growth.fits_with(*self.cache.needs(request, match), self._near_bytes)

    def _start(self, request: Request, match: Match) -> None:
        now, cache, size = self._env.now, self.cache, self.cache.sizes.block_tokens
        cache.take(request, match)
        self._admitted += 1
        request.admitted, request.started_ns, request.loading_ns = self._admitted, now, 0
        if not request.remaining:
            self._start_decode(request)
            return
        loaded = sum(load.blocks for load in match.loads)
        hit = (match.hit + loaded) * size
        request.remaining, request.context = request.goal - hit, float(hit)
        self._count_hits(request, match, hit)
        if loaded:
            self._fetch(request, match)
            return
        self._prefilling.append(request)
        self._backlog += request.remaining

    def _count_hits(self, request: Request, match: Match, hit: int) -> None:
        load, size = self.load, self.cache.sizes.block_tokens
        if request.past is not None:
            load.recomputed_tokens += request.remaining
            return
        request.cached = hit
        load.prompt_tokens += request.prompt
        load.hit_tokens += match.hit * size
        for there in match.loads:
            name = self._rules.tiers[there.tier].name
            load.tier_hit_tokens[name] = load.tier_hit_tokens.get(name, 0) + there.blocks * size

    def _fetch(self, request: Request, match: Match) -> None:
        """Load KV from the lower tiers, one call after another, before its prefill goes on."""
        tiers, now = self.cache.tiers, self._env.now
        assert tiers is not None
        length = to_ns(sum(tiers.load_s(load.blocks, load.tier) for load in match.loads))
        self._link_free_ns = max(self._link_free_ns, now) + length
        request.loading_ns = self._link_free_ns - now
        self._loading += 1
        self._env.timeout(request.loading_ns, request).callbacks.append(self._on_loaded)

    def _on_loaded(self, event: Any) -> None:
        request, had_budget = event.value, self._has_budget()
        self._loading -= 1
        self._prefilling.append(request)
        self._backlog += request.remaining
        if not self._phase_open:
            self._wake()
        elif had_budget:
            self._cut_short()

    # KV that runs out

    def _make_room(self) -> bool:
        """Put calls back, the latest first, until the next iteration's KV fits; tell whether any was."""
        if not self._growth.overflows():
            return False
        cache = self.cache
        while cache.live_bytes > cache.capacity_bytes:
            self._put_back(max((*self._prefilling, *self._batch.members), key=attrgetter("admitted")))
            cache.shrink()
        return True

    def _put_back(self, request: Request) -> None:
        if request.order > 0:
            self._batch.leave(request)
            request.goal = whole_tokens(request.context)
            computed = request.goal - 1
        else:
            self._prefilling.remove(request)
            self._backlog -= request.remaining
            computed = int(request.context)
        self.cache.release(request, computed)
        request.claim, request.blocks = computed, self.cache.sizes.blocks(request.goal)
        request.remaining = request.goal
        request.put_back(self._env.now)
        self._waiting.appendleft(request)
        self._gate.put_back()
        self.load.preemptions += 1

    # phases

    def _begin(self) -> None:
        """Start the next phase, or stand idle where there is nothing to work on."""
        put_back = not self._rules.reserve and self._make_room()
        self._gate.look(self._waiting, self._batch.count)
        if not put_back:
            self._admit()
        phase, batch = self._phase, self._batch
        phase.chunks, iterations = compose(
            self._prefilling, self._budget(), self._window, self._rules.whole_prompts
        )
        phase.decodes = bool(batch.count) and not (self._rules.prefill_first and phase.chunks)
        if phase.decodes:
            iterations = min(iterations, batch.next_change())
            if self._knee_bytes < inf:
                iterations = min(iterations, self._until_knee())
            if not self._rules.reserve:
                iterations = self._growth.until_full(int(iterations))
            if not phase.chunks and self._waiting:
                iterations = min(iterations, self._held() or iterations)
        elif not phase.chunks:
            self._idle()
            return
        if put_back:
            iterations = 1
        self._phase_open, phase.start_ns = True, self._env.now
        self._note()
        phase.measure(self.cost, batch, int(iterations))
        self._end_after(int(iterations))

    def _note(self) -> None:
        cache, batch = self.cache, self._batch
        sizes, room = cache.sizes, cache.capacity_bytes
        live = cache.live_blocks * sizes.full_bytes + cache.live_windows * sizes.window_bytes
        idle = cache.idle_blocks * sizes.full_bytes + cache.idle_windows * sizes.window_bytes
        if batch.count and not self._rules.reserve:
            live += self._growth.grown_bytes()
        if live + idle > room:  # what grew has pushed idle blocks out that are not counted yet
            live = min(live, room)
            idle = room - live
        running = batch.count + len(self._prefilling) + self._loading
        self.load.note(self._env.now, live, idle, running, len(self._waiting))

    def _until_knee(self) -> float:
        """Return how many iterations go by before the KV outgrows the near memory; they are at least 1."""
        batch, cost = self._batch, self.cost
        left = self._knee_bytes - cost.kv_bytes(batch.context, batch.window_sum)
        growth = cost.kv_bytes(batch.gains, batch.window_gains)
        return left // growth + 1 if left >= 0 and growth > 0 else inf

    def _idle(self) -> None:
        self._phase_open = False
        self._note()
        if self._waiting and not self._loading:
            raise InvariantViolation("L9: the engine idles while a call that fits it waits")

    def _end_after(self, iterations: int) -> None:
        """Let this phase end once `iterations` are done; an earlier date that was set is void."""
        phase, env = self._phase, self._env
        phase.iterations = iterations
        phase.number += 1
        end = phase.start_ns + to_ns(phase.elapsed_s(iterations))
        env.at_the_end_of(max(end - env.now, 0), self._on_phase_end, phase.number)

    def _cut_short(self, held: int = 0) -> None:
        """End the phase after the iteration that is under way, so that a new call can join.

        A gate that opens after `held` iterations of it opens again every so many.
        """
        phase = self._phase
        if phase.iterations > 1:
            done = self._iterations_done()
            if held:
                done = self._gate.opens_after(done, held)
            if done < phase.iterations:
                self._end_after(done)

    def _iterations_done(self) -> int:
        """Return how many iterations of this phase are done when the one under way is."""
        return self._phase.iterations_within(to_s(self._env.now - self._phase.start_ns))

    def _on_phase_end(self, event: Any) -> None:
        if event.value == self._phase.number:
            self._advance(self._phase.iterations)
            self._begin()

    def _advance(self, iterations: int) -> None:
        """Apply the phase that has just ended to the batch."""
        chunks = self._phase.chunks
        self._gate.ran(iterations, bool(chunks))
        if self._phase.decodes:
            for request in self._batch.advance(iterations):
                self._finish(request)
        for request, chunk in chunks:
            self._prefilled(request, chunk * iterations)

    def _prefilled(self, request: Request, tokens: int) -> None:
        request.remaining -= tokens
        request.context += tokens
        self._backlog -= tokens
        if request.remaining > 0:
            return
        self._prefilling.popleft()
        self._start_decode(request)

    def _start_decode(self, request: Request) -> None:
        """Write the token that ends a prefill, and let a request with more to write decode."""
        request.token_ns = self._env.now
        if not request.first_token_ns:
            request.first_token_ns = request.token_ns
        request.context += 1.0
        request.written += 1.0
        if request.written < request.output - 1e-9:
            self._batch.join(request)
        else:
            self._finish(request)

    def _finish(self, request: Request) -> None:
        request.finished_ns = self._env.now
        self.cache.release(request, request.prompt + max(request.output, 1) - 1)
        request.segment = None
        self._gate.went(request)
        request.done.succeed()
