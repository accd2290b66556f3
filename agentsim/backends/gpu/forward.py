"""One forward pass of one model on one engine: the law.

    t =   roof(weights read, multiplied) + roof(experts read, multiplied)     roof(a, b) = (a^n + b^n)^(1/n)
        + max(KV read, attention multiplied) + window + sparse attention and its indexer + linear states
        + collectives + layers x time per layer + time per iteration + sequences x time per sequence
        what of it decodes longer by a share per draft
        + [prefill] time per prefill + attention of its pairs

`Work` is physics: what a pass moves and multiplies, at published peaks. `rates` divides it by what the
engine reaches (`constants.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentsim.backends.base import Batch
from agentsim.backends.gpu.constants import Constants
from agentsim.backends.gpu.group import Group
from agentsim.backends.gpu.network import Collective, collective_of
from agentsim.backends.gpu.weights import kv_bytes, weights_of
from agentsim.specs.hardware import WEIGHT_BYTES, Precision
from agentsim.specs.law import Architecture
from agentsim.specs.model import Model, Shape


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts: times to read all of them and to take one token through its own; how many are read.

    `choice` is the share that one token chooses, over `skew` (infinite: even routing); `imbalance` is by
    how much the fullest group of experts lies over the mean, per standard deviation of one expert.
    """

    read_all_s: float
    token_s: float
    choice: float
    skew: float
    imbalance: float

    def share(self, tokens: float) -> float:
        """Return the share of the experts that a batch of tokens reads, in the fullest group."""
        if self.skew == math.inf:
            found = 1.0 - math.pow(1.0 - self.choice, tokens)
        else:
            found = 1.0 - math.pow(1.0 + self.choice * tokens / self.skew, -self.skew)
        if self.imbalance:
            found = min(1.0, found + self.imbalance * math.sqrt(found * (1.0 - found)))
        return found


@dataclass(frozen=True, slots=True)
class KvTimes:
    """Seconds at the published peaks: to read one token's KV or multiply it in decode, by kind of layer.

    `index_s` is the key that a sparse layer reads of every token, `state_s` a sequence's state.
    """

    context_s: float
    context_multiply_s: float
    index_s: float
    window_s: float
    window_multiply_s: float
    state_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass moves and multiplies, in seconds at the published peaks of the chips of one layer.

    `packed` and `kept`: weights in the checkpoint's format and in bf16; `_token_s`: one token through them.
    `pair`, `window_pair`: one (query, key) pair of a prefill.
    `layers` counts a layer once for plain attention, more for others; `copies` are those of the attention.
    """

    packed_read_s: float
    kept_read_s: float
    experts_read_s: float
    packed_token_s: float
    kept_token_s: float
    head_token_s: float
    expert_token_s: float
    kv: KvTimes
    pair_s: float
    window_pair_s: float
    layers: float
    copies: int
    stages: int
    choice: float
    imbalance: float
    roof_exponent: float
    draft_overhead: float
    collective: Collective | None


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One model's forward pass on one engine: times per token, per KV token, per attention pair.

    `verified` is how many tokens of a sequence it checks; all of them read the same KV once. `drafted` is
    how much longer a step takes for its drafts' host work: sampling, rejection, launches in between.
    """

    read_s: float
    token_s: float
    head_token_s: float
    context_s: float
    window_s: float
    sequence_s: float
    pair_s: float
    window_pair_s: float
    overhead_s: float
    prefill_s: float
    copies: int
    stages: int
    verified: int
    drafted: float
    roof_exponent: float
    collective: Collective | None
    experts: Experts | None

    def time_s(self, sequences: float, batch: Batch) -> float:
        """Return the time of a pass over `sequences` and the prefill of `batch`.

        A pipeline works on its sequences in turns: each stage sees one share of them, and one that is
        alone passes all stages. A sequence lies on one copy of the attention: few leave the others waiting.
        """
        context, window = batch.context, batch.window
        if self.stages > 1 and sequences > 1:
            turns = min(float(self.stages), sequences)
            sequences, context, window = sequences / turns, context / turns, window / turns
        alone = self._crowding(sequences)
        decoding = sequences * self.verified
        own = sequences * self.sequence_s + context * self.context_s + window * self.window_s
        own_s = self.overhead_s + alone * own
        multiply = decoding * alone * (self.token_s + self.head_token_s)
        prefill = batch.prefill_tokens
        if not prefill:
            return (own_s + self._shared_s(decoding, multiply)) * self.drafted
        crowding = self._crowding(batch.prefill_requests)
        prompts = prefill * crowding * self.token_s
        prompts += min(batch.prefill_requests * crowding, prefill) * self.head_token_s
        pairs = batch.prefill_pairs * self.pair_s + batch.prefill_window_pairs * self.window_pair_s
        time = own_s + self._shared_s(decoding + prefill, multiply + prompts)
        if decoding and self.drafted > 1.0:
            time += (self.drafted - 1.0) * (own_s + self._shared_s(decoding, multiply))
        return time + self.prefill_s + crowding * pairs

    def _crowding(self, sequences: float) -> float:
        """Return how much longer than spread over all copies of the attention so few sequences take."""
        return self.copies / min(self.copies, max(sequences, 1.0))

    def _shared_s(self, tokens: float, multiply_s: float) -> float:
        """Return the time of what all sequences share: weights, experts, collectives."""
        time = self._roof(self.read_s, multiply_s)
        if self.experts is not None:
            read = self.experts.read_all_s * self.experts.share(tokens)
            time += self._roof(read, tokens * self.experts.token_s)
        if self.collective is not None:
            time += self.collective.time_s(tokens)
        return time

    def _roof(self, read_s: float, multiply_s: float) -> float:
        n = self.roof_exponent
        return float((read_s**n + multiply_s**n) ** (1.0 / n))


def forward_pass(
    model: Model, precision: Precision, group: Group, constants: Constants, verified: int = 1
) -> ForwardPass:
    """Return the pass of a model whose weights have the given precision."""
    return rates(work_of(model, precision, group), constants, verified)


def rates(work: Work, constants: Constants, verified: int = 1) -> ForwardPass:
    """Return the times of a pass at what the engine reaches of the peaks."""
    c = constants
    multiply = work.packed_token_s / c.packed_gemm + work.kept_token_s / c.kept_gemm
    attention = verified / c.attention_share
    context = max(work.kv.context_s / c.kv_read, work.kv.context_multiply_s * attention)
    experts = None
    if work.choice:
        experts = Experts(
            read_all_s=work.experts_read_s / c.expert_read,
            token_s=work.expert_token_s / c.expert_gemm,
            choice=work.choice,
            skew=c.skew,
            imbalance=work.imbalance,
        )
    return ForwardPass(
        read_s=work.packed_read_s / c.packed_read + work.kept_read_s / c.kept_read,
        token_s=multiply,
        head_token_s=work.head_token_s / c.kept_gemm,
        context_s=context + work.kv.index_s / c.kv_read,
        window_s=max(work.kv.window_s / c.kv_read, work.kv.window_multiply_s * attention),
        sequence_s=c.sequence_s / work.copies + work.kv.state_s,
        pair_s=work.pair_s / c.attention_share,
        window_pair_s=work.window_pair_s / c.attention_share,
        overhead_s=work.layers * c.layer_s + c.iteration_s,
        prefill_s=c.prefill_s,
        copies=work.copies,
        stages=work.stages,
        verified=verified,
        drafted=1.0 + work.draft_overhead * (verified - 1),
        roof_exponent=work.roof_exponent,
        collective=work.collective,
        experts=experts,
    )


def work_of(model: Model, precision: Precision, group: Group) -> Work:
    """Return what a pass of a model moves and multiplies on a group."""
    shape = group.ledger.take(model.shape)
    weights, experts = weights_of(model, precision, group.ledger), shape.experts
    wide = WEIGHT_BYTES["bf16"] / group.bandwidth()
    narrow_s = 2.0 / group.peak(group.multiplied_in(weights.stored))
    wide_s = 2.0 / group.peak("bf16")
    choice = experts.active / experts.count if experts else 0.0
    pair_s, window_pair_s = _pair_times(shape, group)
    return Work(
        packed_read_s=group.copies * weights.packed * weights.packed_bytes / group.bandwidth(),
        kept_read_s=group.copies * (weights.kept + weights.head) * wide,
        experts_read_s=weights.routed * weights.packed_bytes / group.bandwidth(),
        packed_token_s=weights.packed * narrow_s,
        kept_token_s=weights.kept * wide_s,
        head_token_s=weights.head * wide_s,
        expert_token_s=choice * weights.routed * narrow_s,
        kv=kv_times(shape, group),
        pair_s=pair_s,
        window_pair_s=window_pair_s,
        layers=shape.layers * _layer_factor(shape, group),
        copies=group.copies,
        stages=group.stages,
        choice=choice,
        imbalance=_imbalance(shape, group),
        roof_exponent=group.ledger.take(group.law.roof_exponent),
        draft_overhead=group.ledger.take(group.law.draft_overhead),
        collective=collective_of(shape, group),
    )


def _layer_factor(shape: Shape, group: Group) -> float:
    """By how much a layer's fixed time is longer than one of plain attention, by architecture."""
    kinds: dict[Architecture, bool] = {
        "sparse_mla": any(a.index_tokens is not None for a in shape.attention),
        "mla": any(a.kind == "mla" for a in shape.attention),
    }
    kind = next((name for name, holds in kinds.items() if holds), None)
    return 1.0 if kind is None else group.ledger.take(group.law.layer_overhead_factors[kind])


def _imbalance(shape: Shape, group: Group) -> float:
    """By how much the fullest of the groups of experts lies over the mean; see `Experts`."""
    parallel = group.engine.expert_parallel
    if shape.experts is None or parallel == 1:
        return 0.0
    table = group.law.expert_imbalance
    size = min((int(n) for n in table), key=lambda n: abs(n - parallel))
    return group.ledger.take(table[str(size)]) * math.sqrt(parallel / shape.experts.count)


def kv_times(shape: Shape, group: Group) -> KvTimes:
    """Return the times of the layers' KV."""
    rate, peak = group.bandwidth(), group.peak("bf16")
    kept = kv_bytes(shape, group)
    flops = {False: 0.0, True: 0.0}
    for a in shape.attention:
        flops[a.kind == "window" or a.index_tokens is not None] += a.decode_flops_per_pair() * a.layers
    return KvTimes(
        context_s=kept.full / rate,
        context_multiply_s=flops[False] / peak,
        index_s=kept.index / rate,
        window_s=(kept.window + kept.sparse) / rate,
        window_multiply_s=flops[True] / peak,
        state_s=2.0 * kept.state / rate,  # read and written
    )


def _pair_times(shape: Shape, group: Group) -> tuple[float, float]:
    """Seconds for one query-key pair in prefill, over the layers that see all and those that see some."""
    peak, pair, window = group.peak("bf16"), 0.0, 0.0
    for a in shape.attention:
        flops = a.flops_per_pair() * a.layers
        if a.kind == "window":
            window += flops
        elif a.index_tokens is not None:
            window, pair = window + flops, pair + a.index_flops_per_pair() * a.layers
        else:
            pair += flops
    return pair / peak, window / peak


def window_of(shape: Shape) -> int | None:
    """Return how many tokens windowed or sparse layers see, or None where every layer sees all."""
    widths = (g.window_tokens if g.kind == "window" else g.index_tokens for g in shape.attention)
    return next((width for width in widths if width is not None), None)
