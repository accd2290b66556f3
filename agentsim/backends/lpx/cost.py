"""What an iteration costs: the compiled schedules, read off at compile time and interpolated.

    t = drafts + look-up and layers (rows) + head (rows) + context x slope + window x slope + pairs

Rows are the tokens that the target works on: those of a prompt, and the drafts and one more of each
decoding sequence. Times are exact against the schedule at the compiled numbers of rows for one sequence
at the two compiled contexts, linear in between, and continued beyond the last with its slope.

The KV of several sequences is charged as if each were read on its own from stage to stage; that is exact
for one sequence or one stage, and too high by up to the number of stages for a part that is small.
Prefill overlaps in the stages, so that its attention costs what the busiest stage has of it. Where KV is
spread over stages, rows of a prompt send their queries out as decoding rows do; to move new keys and
values instead would be cheaper, so that the time to first token is an upper bound there (100K
tokens of Gemma 4 31B on `lpx`: 0.41 s of prefill; 0.27 s if nothing were sent to other stages).

KV that does not fit the SRAM lies in DRAM behind each chip's link to its expansion logic and crosses that
link at every step, beside the schedule.

A step with drafts also takes `speculative_step_overhead`, the one calibrated constant; `floor_s` is the
time without it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentsim.backends.base import Batch, ServingRules
from agentsim.backends.lpx.chip import SOFTMAX_OPERATIONS, to_s
from agentsim.backends.lpx.schedule import PARTS
from agentsim.backends.lpx.shapes import Layer
from agentsim.backends.lpx.step import Parts, Step, sum_parts

SHORT_CONTEXT = 1024
"""The smaller of the contexts at which steps are compiled (tokens); the other is the one planned for."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at rising counts, linear in between: seconds in all, and by parts."""

    counts: tuple[int, ...]
    times: tuple[float, ...]
    parts: tuple[Parts, ...]

    def at(self, count: float) -> float:
        """Return the seconds at `count`, which is at least the first."""
        index, share = self._place(count)
        low = self.times[index]
        return low + share * (self.times[index + 1] - low)

    def parts_at(self, count: float) -> Parts:
        """Return the parts at `count`; they sum to `at`."""
        index, share = self._place(count)
        low, high = self.parts[index], self.parts[index + 1]
        return {part: low[part] + share * (high[part] - low[part]) for part in PARTS}

    def _place(self, count: float) -> tuple[int, float]:
        counts = self.counts
        index = min(max(bisect_right(counts, count) - 1, 0), len(counts) - 2)
        return index, (count - counts[index]) / (counts[index + 1] - counts[index])


@dataclass(frozen=True, slots=True)
class Slope:
    """What one more token of context, or one more pair, takes: seconds in all, and by parts."""

    time: float
    parts: Parts

    @staticmethod
    def of(parts: Parts) -> Slope:
        return Slope(sum(parts.values()), parts)


@dataclass(frozen=True, slots=True)
class LpxCost:
    """`IterationCost` of LPUs; see `backends/base.py` for the contract."""

    layers: Curve
    head: Curve
    drafts: Curve | None
    context: Slope
    window: Slope
    pair: Slope
    window_pair: Slope
    step_overhead_s: float
    verified_tokens: int
    tokens_per_step: float
    window_tokens: int | None
    kv_bytes_per_token: float
    window_bytes_per_token: float
    kv_capacity_bytes: float
    kv_knee_bytes: float
    far_byte_s: float
    batched_tokens: int
    max_sequences: int
    request_s: float
    tensor_parallel: int
    pipeline_stages: int
    lpus: int

    @property
    def rules(self) -> ServingRules:
        """KV is counted by the token and reserved: how LPUs page it has not been published."""
        return ServingRules()

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration, the calibrated overhead of a step with drafts included."""
        time = self.floor_s(batch)
        return time + self.step_overhead_s if batch.sequences else time

    def floor_s(self, batch: Batch) -> float:
        """Return the time of one iteration as scheduled, without any calibrated overhead."""
        checked = batch.sequences * self.verified_tokens
        time = self.layers.at(checked + batch.prefill_tokens) + self.head.at(checked or 1)
        if self.drafts is not None and batch.sequences:
            time += self.drafts.at(batch.sequences)
        time += batch.context * self.context.time + batch.window * self.window.time
        if batch.prefill_tokens:
            time += batch.prefill_pairs * self.pair.time
            time += batch.prefill_window_pairs * self.window_pair.time
        return time + self._far_s(batch)

    def _far_s(self, batch: Batch) -> float:
        """Seconds to fetch what of the decoding sequences' KV lies beyond the SRAM, at every step."""
        beyond = self.kv_bytes(batch.context, batch.window) - self.kv_knee_bytes
        return beyond * self.far_byte_s if beyond > 0 else 0.0

    def parts(self, batch: Batch) -> Parts:
        """Return where an iteration's time goes; the values sum to `iteration_s`."""
        checked = batch.sequences * self.verified_tokens
        found = [self.layers.parts_at(checked + batch.prefill_tokens), self.head.parts_at(checked or 1)]
        if self.drafts is not None and batch.sequences:
            found.append(self.drafts.parts_at(batch.sequences))
        for amount, slope in (
            (batch.context, self.context),
            (batch.window, self.window),
            (batch.prefill_pairs if batch.prefill_tokens else 0.0, self.pair),
            (batch.prefill_window_pairs if batch.prefill_tokens else 0.0, self.window_pair),
        ):
            found.append({part: amount * time for part, time in slope.parts.items()})
        if batch.sequences:
            found.append({"overhead": self.step_overhead_s})
        found.append({"serialisation": self._far_s(batch)})
        return {part: sum(parts.get(part, 0.0) for parts in found) for part in PARTS}

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes, copies included, of sequences whose contexts and windows sum to these."""
        return context * self.kv_bytes_per_token + window * self.window_bytes_per_token


@dataclass(frozen=True, slots=True)
class Times:
    """All of a step that `LpxCost` interpolates."""

    layers: Curve
    head: Curve
    drafts: Curve | None
    context: Slope
    window: Slope


def compile_times(step: Step, batched_tokens: int, sequences: int, context: int, window: int | None) -> Times:
    """Lay out the schedules of all compiled points and return their times."""
    seen = float(min(window or 0, SHORT_CONTEXT))
    far = float(max(context, 2 * SHORT_CONTEXT))
    near = _one(step, SHORT_CONTEXT, seen)
    slope = _difference(_one(step, far, seen), near, far - SHORT_CONTEXT)
    window_slope = _difference(near, _one(step, SHORT_CONTEXT, 0.0), seen) if seen else _nothing()
    # Where the context is short the schedule bends; the line goes through the compiled points instead.
    bent = {part: near[part] - SHORT_CONTEXT * slope[part] - seen * window_slope[part] for part in PARTS}
    bare = _one(step, 0.0, 0.0)
    shift = {part: bent[part] - bare[part] for part in PARTS}
    most = batched_tokens + sequences * step.rows
    layers = curve_through(
        {rows: _plus(_seconds(step.pipelined_ps(rows)), shift) for rows in counts_to(step.rows, most)}
    )
    head = curve_through(
        {rows: _seconds(step.exit(rows).parts_ps) for rows in counts_to(step.rows, sequences * step.rows)}
    )
    drafts = None
    if step.drafts:
        drafts = curve_through({n: _seconds(step.draft_ps(n, 0.0, 0.0)) for n in counts_to(1, sequences)})
    return Times(layers, head, drafts, Slope.of(slope), Slope.of(window_slope))


def pair_slopes(step: Step) -> tuple[Slope, Slope]:
    """Return the time of one query-key pair of a prompt, in layers that see everything and windowed ones."""
    full, windowed = ([_pair_s(step, stage, kind) for stage in step.mapping.stages] for kind in (False, True))
    lenders = step.mapping.division.lenders
    if lenders is not None:
        return Slope.of({"compute": sum(full) / lenders.size}), Slope.of({"compute": max(windowed)})
    return Slope.of({"compute": max(full)}), Slope.of({"compute": max(windowed)})


def _pair_s(step: Step, stage: Sequence[Layer], windowed: bool) -> float:
    """Seconds of one pair in all layers of one kind in one stage: products and softmax overlap."""
    lpu, time = step.stage.lpu, 0.0
    for layer in stage:
        held = layer.attention
        if (held.window is not None) == windowed:
            products = (held.score_flops + held.value_flops) / lpu.flops_per_s
            softmax = SOFTMAX_OPERATIONS * held.heads / lpu.vector_ops_per_s
            time += max(products, softmax) / step.mapping.width
    return time


def _one(step: Step, context: float, window: float) -> Parts:
    """The parts of one sequence's step, its head aside."""
    forward = sum_parts(step.forward_ps(step.rows, context, window))
    return _seconds(sum_parts([forward, step.draft_ps(1, context, window)]))


def curve_through(points: dict[int, Parts]) -> Curve:
    """Return the curve through these points, which may not fall: a longer one is never faster."""
    counts = tuple(sorted(points))
    parts = [points[count] for count in counts]
    times = [sum(p.values()) for p in parts]
    for index, (before, time) in enumerate(pairwise(times)):
        if time < before:  # a packing of vectors that happens to be better: wait as long
            idle = times[index] - time
            parts[index + 1] = {**parts[index + 1], "idle": parts[index + 1]["idle"] + idle}
            times[index + 1] = times[index]
    return Curve(counts, tuple(times), tuple(parts))


def counts_to(first: int, most: int) -> list[int]:
    """Return 1, `first` and its doublings up to `most` or just beyond."""
    found = [1, 2] if first == 1 else [1, first]
    while found[-1] < most or len(found) < 2:
        found.append(2 * found[-1])
    return found


def _seconds(parts: dict[str, int]) -> Parts:
    return {part: to_s(time) for part, time in parts.items()}


def _difference(high: Parts, low: Parts, width: float) -> Parts:
    return {part: (high[part] - low[part]) / width for part in PARTS}


def _plus(parts: Parts, shift: Parts) -> Parts:
    return {part: parts[part] + shift[part] for part in PARTS}


def _nothing() -> Parts:
    return dict.fromkeys(PARTS, 0.0)
