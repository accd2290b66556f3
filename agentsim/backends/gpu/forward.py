"""One forward pass of one model on one engine, as times per token, per KV token, per attention pair."""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.base import Batch
from agentsim.backends.gpu.group import Group
from agentsim.backends.gpu.weights import Weights, kv_bytes, weights_of
from agentsim.errors import MeasurementMissing
from agentsim.specs.engine import AllReduce
from agentsim.specs.hardware import Precision
from agentsim.specs.model import Model, Shape

ACTIVATION_BYTES = 2.0
"""Activations cross the all-reduce in bf16, whatever the weights are."""
ALL_REDUCES_PER_LAYER = 2
"""Megatron tensor parallelism: one behind the attention, one behind the MLP (Shoeybi et al. 2019)."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: the time to read all of them, and the chance that a token skips a given one.

    A batch reads the distinct experts that its tokens choose, with even routing.
    """

    read_all_s: float
    skip: float


@dataclass(frozen=True, slots=True)
class Collective:
    """All all-reduces of one forward pass, small and large protocol: start-up and time per token."""

    small_s: float
    small_token_s: float
    large_s: float
    large_token_s: float

    def time_s(self, tokens: float) -> float:
        """Return the time over `tokens`, by the faster protocol."""
        return min(
            self.small_s + tokens * self.small_token_s,
            self.large_s + tokens * self.large_token_s,
        )


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One model's forward pass on one engine: times per token, per KV token, per attention pair."""

    read_s: float
    decode_token_s: float
    prefill_token_s: float
    context_s: float
    window_s: float
    pair_s: float
    window_pair_s: float
    overhead_s: float
    collective: Collective | None
    experts: Experts | None

    def time_s(self, decode_tokens: float, batch: Batch) -> float:
        """Return the time of a pass over `decode_tokens` and the prefill of `batch`."""
        tokens = decode_tokens + batch.prefill_tokens
        read = self.read_s
        if self.experts is not None:
            read += self.experts.read_all_s * (1.0 - self.experts.skip**tokens)
        multiply = decode_tokens * self.decode_token_s + batch.prefill_tokens * self.prefill_token_s
        time = read if read > multiply else multiply
        time += self.overhead_s + batch.context * self.context_s + batch.window * self.window_s
        if batch.prefill_tokens:
            time += batch.prefill_pairs * self.pair_s + batch.prefill_window_pairs * self.window_pair_s
        if self.collective is not None:
            time += self.collective.time_s(tokens)
        return time


def forward_pass(model: Model, precision: Precision, group: Group) -> ForwardPass:
    """Return the pass of a model whose weights have the given precision."""
    shape = group.ledger.take(model.shape)
    weights = weights_of(model, precision, group.ledger)
    active_share = shape.experts.active / shape.experts.count if shape.experts else 0.0
    multiply = _multiply_time(weights.dense, group) + active_share * _multiply_time(weights.routed, group)
    context_s, window_s = kv_times(shape, group)
    pair_s, window_pair_s = _pair_times(shape, group)
    return ForwardPass(
        read_s=_read_time(weights, weights.dense, group),
        decode_token_s=multiply,
        prefill_token_s=multiply - _head_time(shape, weights, group),
        context_s=context_s,
        window_s=window_s,
        pair_s=pair_s,
        window_pair_s=window_pair_s,
        overhead_s=shape.layers * group.ledger.take(group.profile.layer_overhead),
        collective=_collective(shape, group),
        experts=_experts(shape, _read_time(weights, weights.routed, group)),
    )


def _read_time(weights: Weights, part: dict[Precision, float], group: Group) -> float:
    """Seconds to read these weights once, all chips together."""
    return sum(n * weights.size(p) / group.weight_rate(p) for p, n in part.items() if n)


def _multiply_time(part: dict[Precision, float], group: Group) -> float:
    """Seconds to take one token through these weights: two FLOPs each."""
    return sum(2.0 * n / group.flops(p) for p, n in part.items() if n)


def _head_time(shape: Shape, weights: Weights, group: Group) -> float:
    """Seconds of one token in the output head, which a prefill runs for its last token only."""
    kept: Precision = "bf16" if weights.dense.get("bf16") else next(iter(weights.dense))
    return 2.0 * shape.vocab * shape.hidden / group.flops(kept)


def _experts(shape: Shape, read_all_s: float) -> Experts | None:
    experts = shape.experts
    if experts is None:
        return None
    return Experts(read_all_s, 1.0 - experts.active / experts.count)


def kv_times(shape: Shape, group: Group) -> tuple[float, float]:
    """Return the seconds to read one token's KV in decode, in full and in windowed layers."""
    rate = group.bandwidth() * group.ledger.take(group.profile.kv_read_efficiency)
    full, window = kv_bytes(shape, group)
    return full / rate, window / rate


def _pair_times(shape: Shape, group: Group) -> tuple[float, float]:
    """Seconds for one query-key pair in prefill, over all full and all windowed layers."""
    sums, rate = {True: 0.0, False: 0.0}, group.attention_flops()
    for a in shape.attention:
        sums[a.kind == "window"] += a.flops_per_pair() * a.layers / rate
    return sums[False], sums[True]


def _collective(shape: Shape, group: Group) -> Collective | None:
    if group.chips == 1:
        return None
    table = group.profile.all_reduce
    entry: AllReduce | None = table.get(str(group.chips))
    if entry is None:
        sizes = ", ".join(["1", *table])
        raise MeasurementMissing(
            f"{group.profile.title}: no all-reduce was measured over {group.chips} GPUs; measured: {sizes}"
        )
    take, calls = group.ledger.take, ALL_REDUCES_PER_LAYER * shape.layers
    token_bytes = shape.hidden * ACTIVATION_BYTES
    return Collective(
        small_s=calls * take(entry.latency),
        small_token_s=calls * token_bytes / take(entry.bandwidth),
        large_s=calls * take(entry.large_latency),
        large_token_s=calls * token_bytes / take(entry.large_bandwidth),
    )


def window_of(shape: Shape) -> int | None:
    """Return the width of the sliding window, or None where every layer sees the whole context."""
    return next((g.window_tokens for g in shape.attention if g.kind == "window"), None)
