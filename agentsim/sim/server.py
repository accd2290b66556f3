"""An engine under continuous batching, advanced from change to change of its batch.

An iteration decodes every running sequence and prefills at most a token budget, first come first
served, as vLLM, SGLang and TensorRT-LLM do with chunked prefill. Between two changes of the batch the
composition is constant and every iteration costs a fixed amount more than the one before, since the
cost is affine in the context (see `backends/base.py`): a phase of k iterations is an arithmetic series.

Sequences are kept on a virtual clock counted in iterations: one that needs n more tokens finishes at a
known iteration, so the next completion is the top of a heap.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import Any

from agentsim.backends.base import Batch, IterationCost
from agentsim.errors import InfeasibleError, InvariantViolation
from agentsim.sim.clock import Clock
from agentsim.sim.request import Request, Work
from agentsim.units import bytes_text, count_text, to_ns, to_s

_HALF_TICK_S = to_s(0.5)
_Ordered = tuple[int, int, Request]


class EngineServer:
    """`Server` in front of an `IterationCost`."""

    def __init__(self, env: Clock, cost: IterationCost) -> None:
        self._env = env
        self.cost = cost
        self._request_ns = to_ns(cost.request_s)
        self._window = cost.window_tokens or inf
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()
        self._finishes: list[_Ordered] = []
        self._crossings: list[_Ordered] = []
        self._order = 0
        self._sequences = 0
        self._context = self._window_sum = 0.0
        self._gains = self._window_gains = 0.0
        self._kv_bytes = 0.0
        self._iteration = 0
        self._phase = 0
        self._phase_open = False
        self._phase_start = self._phase_iterations = 0
        self._first_s = self._growth_s = 0.0
        self._chunks: list[tuple[Request, int]] = []
        self.peak_kv_bytes = 0.0
        self.peak_sequences = 0

    def submit(self, work: Work) -> Request:
        """Start a call; see `Server`."""
        prompt, prefix, output = work.prompt, work.prefix, work.output
        request = Request(self._env, prompt, min(prefix.tokens, prompt - 1), output)
        request.gain = self._gain(work.pace)
        request.overhead_ns = self._request_ns
        self._size(request)
        if self._request_ns:
            self._env.timeout(self._request_ns, request).callbacks.append(self._on_ready)
        else:
            self._ready(request)
        return request

    def submit_decode(self, work: Work) -> Request:
        """Start a call whose prompt is in this engine's KV cache and whose first token is written."""
        request = Request(self._env, work.prompt, work.prompt, work.output)
        request.remaining, request.context = 0, float(work.prompt)
        request.gain = self._gain(work.pace)
        self._size(request)
        self._ready(request)
        return request

    def _gain(self, pace: float) -> float:
        """Tokens that a step yields: at least the one that is always right, at most all that are checked."""
        return min(max(self.cost.tokens_per_step * pace, 1.0), float(self.cost.verified_tokens))

    def _size(self, request: Request) -> None:
        """Note the KV that a call needs at its end; refuse one that could never fit."""
        final = request.prompt + request.output
        request.kv = self.cost.kv_bytes(final, self._windowed(final))
        if request.kv > self.cost.kv_capacity_bytes:
            raise InfeasibleError(self._too_long(request))

    def _windowed(self, context: int) -> float:
        return min(context, self._window) if self._window < inf else 0.0

    def _too_long(self, request: Request) -> str:
        room, need = self.cost.kv_capacity_bytes, request.kv
        fits = (request.prompt + request.output) * room / need
        return (
            f"a context of {request.prompt + request.output:,} tokens needs {bytes_text(need)} of KV; "
            f"{bytes_text(room)} are free beside the weights, enough for about {count_text(fits)} tokens: "
            "use more chips, a smaller KV precision, or compaction"
        )

    def _on_ready(self, event: Any) -> None:
        self._ready(event.value)

    def _ready(self, request: Request) -> None:
        self._waiting.append(request)
        if not self._phase_open:
            self._phase_open = True
            self._phase_iterations = 0
            self._env.at_the_end_of(0, self._on_waking)
        elif self._fits(self._waiting[0]):
            self._cut_short()

    def _on_waking(self, _event: Any) -> None:
        self._begin()

    def _fits(self, request: Request) -> bool:
        """Tell whether a call may start: its KV fits the near memory, or it is alone and must use the far."""
        running = self._sequences + len(self._prefilling)
        near = min(self.cost.kv_knee_bytes, self.cost.kv_capacity_bytes)
        if running and request.kv > near - self._kv_bytes:
            return False
        return running < self.cost.max_sequences

    def _admit(self) -> None:
        waiting, now = self._waiting, self._env.now
        if not waiting:
            return
        while waiting and self._fits(waiting[0]):
            request = waiting.popleft()
            request.started_ns = now
            self._kv_bytes += request.kv
            if request.remaining:
                self._prefilling.append(request)
            else:
                self._start_decode(request)
        self.peak_kv_bytes = max(self.peak_kv_bytes, self._kv_bytes)
        self.peak_sequences = max(self.peak_sequences, self._sequences + len(self._prefilling))

    def _begin(self) -> None:
        """Start the next phase, or stand idle where there is nothing to work on."""
        self._admit()
        iterations = self._compose()
        if self._finishes:
            iterations = min(iterations, self._finishes[0][0] - self._iteration)
        elif not self._chunks:
            self._idle()
            return
        if self._crossings:
            iterations = min(iterations, self._crossings[0][0] - self._iteration)
        if self.cost.kv_knee_bytes < inf:
            iterations = min(iterations, self._until_knee())
        self._phase_open, self._phase_start = True, self._env.now
        self._measure(int(iterations))
        self._end_after(int(iterations))

    def _until_knee(self) -> float:
        """Return how many iterations go by before the KV outgrows the near memory; they are at least 1."""
        left = self.cost.kv_knee_bytes - self.cost.kv_bytes(self._context, self._window_sum)
        growth = self.cost.kv_bytes(self._gains, self._window_gains)
        return left // growth + 1 if left >= 0 and growth > 0 else inf

    def _idle(self) -> None:
        self._phase_open = False
        if self._waiting:
            raise InvariantViolation("L9: the engine idles while a call that fits it waits")

    def _compose(self) -> float:
        """Choose the prefill chunks of the next phase; return how many iterations keep them the same."""
        self._chunks = []
        if not self._prefilling:
            return inf
        budget = max(self.cost.batched_tokens - self._sequences * self.cost.verified_tokens, 1)
        first = self._prefilling[0]
        if first.remaining > budget:
            self._chunks.append((first, budget))
            return 1 if first.context < self._window < inf else first.remaining // budget
        for request in self._prefilling:
            if budget <= 0:
                break
            chunk = min(request.remaining, budget)
            self._chunks.append((request, chunk))
            budget -= chunk
        return 1

    def _batch(self, done: int) -> Batch:
        """Return the batch of this phase's iteration number `done` (from 0)."""
        context = self._context + self._gains * done
        window = self._window_sum + self._window_gains * done
        if not self._chunks:
            return Batch(self._sequences, context, window)
        tokens, pairs, window_pairs = 0, 0.0, 0.0
        for request, chunk in self._chunks:
            start = request.context + done * chunk
            tokens += chunk
            pairs += chunk * start + chunk * (chunk + 1) / 2
            if self._window < inf:
                window_pairs += _window_pairs(start, chunk, self._window)
        return Batch(self._sequences, context, window, tokens, pairs, window_pairs, len(self._chunks))

    def _measure(self, iterations: int) -> None:
        self._first_s = self.cost.iteration_s(self._batch(0))
        self._growth_s = 0.0
        if iterations > 1:
            last = self.cost.iteration_s(self._batch(iterations - 1))
            self._growth_s = (last - self._first_s) / (iterations - 1)

    def _elapsed_s(self, iterations: int) -> float:
        """Return the time that the first iterations of this phase take: an arithmetic series."""
        return iterations * (self._first_s + self._growth_s * (iterations - 1) / 2)

    def _end_after(self, iterations: int) -> None:
        """Let this phase end once `iterations` are done; an earlier date that was set is void."""
        self._phase_iterations = iterations
        self._phase += 1
        end = self._phase_start + to_ns(self._elapsed_s(iterations))
        self._env.at_the_end_of(max(end - self._env.now, 0), self._on_phase_end, self._phase)

    def _cut_short(self) -> None:
        """End the phase after the iteration that is under way, so that a new call can join."""
        if self._phase_iterations > 1:
            done = self._iterations_within(to_s(self._env.now - self._phase_start))
            if done < self._phase_iterations:
                self._end_after(done)

    def _iterations_within(self, elapsed_s: float) -> int:
        """Return the smallest count of iterations, at least 1, that takes `elapsed_s` or longer."""
        first, growth = self._first_s, self._growth_s
        if growth > 0:
            half = first - growth / 2
            guess = (math.sqrt(half * half + 2 * growth * elapsed_s) - half) / growth
        else:
            guess = elapsed_s / first
        count = max(int(guess), 1)
        while self._elapsed_s(count) < elapsed_s - _HALF_TICK_S:
            count += 1
        return count

    def _on_phase_end(self, event: Any) -> None:
        if event.value == self._phase:
            self._advance(self._phase_iterations)
            self._begin()

    def _advance(self, iterations: int) -> None:
        """Apply the phase that has just ended to the batch."""
        self._iteration += iterations
        self._context += self._gains * iterations
        self._window_sum += self._window_gains * iterations
        while self._crossings and self._crossings[0][0] <= self._iteration:
            self._cross(heappop(self._crossings)[2])
        while self._finishes and self._finishes[0][0] <= self._iteration:
            self._leave(heappop(self._finishes)[2])
        for request, chunk in self._chunks:
            self._prefilled(request, chunk * iterations)

    def _prefilled(self, request: Request, tokens: int) -> None:
        request.remaining -= tokens
        request.context += tokens
        if request.remaining > 0:
            return
        self._prefilling.popleft()
        self._start_decode(request)

    def _start_decode(self, request: Request) -> None:
        request.first_token_ns = self._env.now
        if request.output > 1:
            self._join(request)
        else:
            self._finish(request)

    def _join(self, request: Request) -> None:
        """Let a prefilled request, whose first token is out, decode the rest."""
        request.context += 1.0
        request.joined = self._iteration
        finish = self._iteration + math.ceil((request.output - 1) / request.gain - 1e-9)
        self._order += 1
        heappush(self._finishes, (finish, self._order, request))
        self._sequences += 1
        self._context += request.context
        self._gains += request.gain
        if self._window < inf:
            self._join_window(request, finish)

    def _join_window(self, request: Request, finish: int) -> None:
        self._window_sum += min(request.context, self._window)
        request.below_window = request.context < self._window
        if request.below_window:
            self._window_gains += request.gain
            crossing = self._iteration + math.ceil((self._window - request.context) / request.gain)
            if crossing < finish:
                heappush(self._crossings, (crossing, self._order, request))

    def _context_of(self, request: Request) -> float:
        return request.context + request.gain * (self._iteration - request.joined)

    def _cross(self, request: Request) -> None:
        """From here on this sequence's windowed layers read a full window and no more."""
        request.below_window = False
        self._window_gains -= request.gain
        self._window_sum -= self._context_of(request) - self._window

    def _leave(self, request: Request) -> None:
        context = self._context_of(request)
        self._sequences -= 1
        self._context -= context
        self._gains -= request.gain
        if request.below_window:
            self._window_gains -= request.gain
            self._window_sum -= context
        elif self._window < inf:
            self._window_sum -= self._window
        request.below_window = False
        if not self._sequences:  # sums of floats that were added and taken away again
            self._context = self._window_sum = self._gains = self._window_gains = 0.0
        self._finish(request)

    def _finish(self, request: Request) -> None:
        request.finished_ns = self._env.now
        self._kv_bytes -= request.kv
        request.done.succeed()


def _window_pairs(start: float, chunk: int, window: float) -> float:
    """Return the (query, key) pairs of a chunk when a query sees at most `window` keys."""
    if start + chunk <= window:
        return chunk * start + chunk * (chunk + 1) / 2
    growing = max(min(window - start, chunk), 0.0)
    return growing * start + growing * (growing + 1) / 2 + (chunk - growing) * window
