"""A slow engine that does every iteration one by one: the reference for the server's closed forms.

Written from the rules alone, in seconds as floats, without an event loop:

* an iteration decodes every sequence that has its first token, and prefills at most the token budget
  less the verified tokens of each of those, first come first served;
* a call is admitted in order of arrival while a sequence slot and room for its final KV in the near
  memory are free (a call alone may use the far memory), and it never joins an iteration that has begun;
* the first token is out when the iteration of the last prefill chunk ends; every decode iteration
  then yields `tokens_per_step` times its pace more, at least one and at most what is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.base import Batch, IterationCost

NS = 1e-9
NEAR_S = 20 * NS
"""Arrivals nearer than this to the end of an iteration could fall on either side of it by rounding."""


@dataclass
class Call:
    """One call; times in seconds."""

    arrival_s: float
    prompt: int
    cached: int
    output: int
    pace: float = 1.0
    started_s: float = -1.0
    first_token_s: float = -1.0
    finished_s: float = -1.0
    to_prefill: int = 0
    context: float = 0.0
    written: float = 0.0

    def __post_init__(self) -> None:
        self.to_prefill = max(self.prompt - self.cached, 1)
        self.context = self.prompt - self.to_prefill


class SlowEngine:
    """Runs calls (in order of arrival) to their end.

    `changes` counts how often the batch changed; `ambiguous` tells that an arrival and the end of an
    iteration were too near each other to say which came first; `busy_s` is the time in iterations.
    """

    def __init__(self, cost: IterationCost, calls: list[Call]) -> None:
        self.cost = cost
        self.to_come = sorted(calls, key=lambda call: call.arrival_s)
        self.waiting: list[Call] = []
        self.prefilling: list[Call] = []
        self.decoding: list[Call] = []
        self.now_s = self.busy_s = 0.0
        self.changes = 0
        self.ambiguous = False
        self.most_sequences = 0

    def run(self) -> SlowEngine:
        while self.to_come or self.waiting or self.prefilling or self.decoding:
            self._take_arrivals()
            self._admit()
            if self.prefilling or self.decoding:
                self._iterate()
            else:
                self.now_s = self._ready_s(self.to_come[0])
        return self

    def _ready_s(self, call: Call) -> float:
        return call.arrival_s + self.cost.request_s

    def _take_arrivals(self) -> None:
        while self.to_come and self._ready_s(self.to_come[0]) <= self.now_s:
            self.waiting.append(self.to_come.pop(0))
            self.changes += 1

    def _admit(self) -> None:
        while self.waiting:
            running = self.prefilling + self.decoding
            held = sum(self._final_kv(call) for call in running)
            if len(running) >= self.cost.max_sequences:
                break
            near = min(self.cost.kv_knee_bytes, self.cost.kv_capacity_bytes) * (1 + 1e-12)
            if running and held + self._final_kv(self.waiting[0]) > near:
                break
            call = self.waiting.pop(0)
            call.started_s = self.now_s
            self.prefilling.append(call)
            self.most_sequences = max(self.most_sequences, len(running) + 1)

    def _final_kv(self, call: Call) -> float:
        length = call.prompt + call.output
        return self.cost.kv_bytes(length, self._window(length))

    def _window(self, context: float) -> float:
        return 0.0 if self.cost.window_tokens is None else min(context, self.cost.window_tokens)

    def _chunks(self) -> list[tuple[Call, int]]:
        left = max(self.cost.batched_tokens - len(self.decoding) * self.cost.verified_tokens, 1)
        chunks = []
        for call in self.prefilling:
            size = min(call.to_prefill, left)
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
        batch = Batch(
            sequences=len(self.decoding),
            context=sum(call.context for call in self.decoding),
            window=sum(self._window(call.context) for call in self.decoding),
            prefill_tokens=sum(size for _, size in chunks),
            prefill_pairs=pairs,
            prefill_window_pairs=window_pairs,
        )
        step_s = self.cost.iteration_s(batch)
        self.now_s += step_s
        self.busy_s += step_s
        self.ambiguous |= any(abs(self._ready_s(c) - self.now_s) < NEAR_S for c in self.to_come)
        self._write()
        for call, size in chunks:
            self._prefill(call, size)

    def _write(self) -> None:
        window = self.cost.window_tokens
        for call in list(self.decoding):
            before = call.context
            gain = min(max(self.cost.tokens_per_step * call.pace, 1), self.cost.verified_tokens)
            call.context += gain
            call.written += gain
            self.changes += window is not None and before < window <= call.context
            if call.written >= (call.output - 1) - 1e-6:
                self.decoding.remove(call)
                self._finish(call)

    def _prefill(self, call: Call, size: int) -> None:
        call.to_prefill -= size
        call.context += size
        self.changes += 1
        if call.to_prefill:
            return
        self.prefilling.remove(call)
        call.first_token_s = self.now_s
        if call.output > 1:
            call.context += 1
            self.decoding.append(call)
        else:
            self._finish(call)

    def _finish(self, call: Call) -> None:
        call.finished_s = self.now_s
        self.changes += 1
