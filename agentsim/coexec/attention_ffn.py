"""Attention and KV on one engine, feed-forward layers on another; activations cross twice a layer and token.

    sequential:  attention + way there + feed-forward + way back, layer by layer
    ping-pong:   m micro-batches follow one another, a layer takes as long as what is busiest

The attention engine is GPUs; it holds the whole model, because it prefills on its own, and a drafter runs
beside its target there. The feed-forward engine (LPUs, or GPUs) serves decode alone. Of m = 1, 2, ... the
best is taken at the number of sequences; one sequence has nothing to overlap with. Reading the KV of the
contexts is never hidden behind the other engine: exact for one micro-batch and where attention is the
busiest, as long contexts make it; else an upper bound, which keeps time affine in context.

A GPU layer's fixed time (launches, small kernels) and its two all-reduces are halved between attention and
feed-forward by the deployment's `attention_overhead_share`, and one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol, TypeVar

from agentsim.backends.base import Batch, Drafter, EngineParts, ServingRules, expected_tokens
from agentsim.backends.gpu.cost import GpuCost, compile_gpu
from agentsim.backends.gpu.forward import ForwardPass
from agentsim.backends.gpu.network import ACTIVATION_BYTES, ALL_REDUCES_PER_LAYER
from agentsim.backends.lpx.feed_forward import compile_feed_forward
from agentsim.coexec.base import LinkCost, Pattern, PatternParts, Serve, need_engines, take_link, token_s
from agentsim.errors import SpecError
from agentsim.specs import model as shapes
from agentsim.specs.model import Model, Shape
from agentsim.specs.sourced import Datum

T = TypeVar("T")
MICRO_BATCHES = (1, 2, 3, 4, 6, 8)
"""Numbers of micro-batches that are tried."""
CROSSINGS_PER_LAYER = 2


class Pass(Protocol):
    """The feed-forward layers of one model."""

    @property
    def most_tokens(self) -> int:
        """Tokens that one pass takes."""
        ...

    def pass_s(self, tokens: int) -> float:
        """Return the seconds of one pass of `tokens` through all layers; it never falls with them."""
        ...


@dataclass(frozen=True, slots=True)
class GpuFeedForward:
    """`Pass` on GPUs."""

    cost: GpuCost

    @property
    def most_tokens(self) -> int:
        return self.cost.batched_tokens

    def pass_s(self, tokens: int) -> float:
        return self.cost.iteration_s(Batch(tokens, 0.0, 0.0))


@dataclass(frozen=True, slots=True)
class AttentionFfnCost:
    """`IterationCost` of attention on one engine and feed-forward layers on another.

    `whole` is the model on the attention engine, as it prefills; `attention` its attention half; `known`
    remembers the best micro-batches by the number of sequences.
    """

    whole: GpuCost
    attention: GpuCost
    ffn: Pass
    link: LinkCost
    layers: int
    token_bytes: float
    tokens_per_step: float
    known: dict[int, dict[str, float]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def window_tokens(self) -> int | None:
        return self.whole.window_tokens

    @property
    def kv_capacity_bytes(self) -> float:
        return self.whole.kv_capacity_bytes

    @property
    def kv_knee_bytes(self) -> float:
        return inf

    @property
    def batched_tokens(self) -> int:
        return self.whole.batched_tokens

    @property
    def rules(self) -> ServingRules:
        return self.whole.rules

    @property
    def max_sequences(self) -> int:
        return min(self.whole.max_sequences, max(self.ffn.most_tokens // self.verified_tokens, 1))

    @property
    def verified_tokens(self) -> int:
        return self.whole.verified_tokens

    @property
    def request_s(self) -> float:
        return self.whole.request_s

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration; see `IterationCost`."""
        return sum(self.parts(batch).values())

    def parts(self, batch: Batch) -> dict[str, float]:
        """Return what an iteration waits for; the values sum to `iteration_s`."""
        found = dict.fromkeys(("drafting", "attention", "ffn", "crossing"), 0.0)
        if batch.sequences:
            if batch.sequences not in self.known:
                self.known[batch.sequences] = min(self._decodes(batch.sequences), key=_whole_s)
            found.update(self.known[batch.sequences])
            found["attention"] += self._context_s(batch)
            found["drafting"] = self._drafting_s(batch)
        if batch.prefill_tokens or not batch.sequences:
            found["prefill"] = self.whole.iteration_s(batch.of_prefill)
        return found

    def _decodes(self, sequences: int) -> Iterator[dict[str, float]]:
        """Yield the time without contexts, in each number of micro-batches."""
        for count in MICRO_BATCHES:
            tokens = -(-sequences // count) * self.verified_tokens
            attention, ffn = self.attention.iteration_s(Batch(tokens, 0.0, 0.0)), self.ffn.pass_s(tokens)
            wire = self.layers * tokens * self.token_bytes / self.link.bytes_per_s
            crossing = CROSSINGS_PER_LAYER * (self.layers * self.link.latency_s + wire)
            one = {"attention": attention, "ffn": ffn, "crossing": crossing}
            busiest = max(
                ({"attention": count * attention}, {"ffn": count * ffn}, {"crossing": count * wire}),
                key=_whole_s,
            )
            rest = dict.fromkeys(one, 0.0)
            yield one if _whole_s(one) >= _whole_s(busiest) else {**rest, **busiest}

    def _context_s(self, batch: Batch) -> float:
        """Seconds to read the KV of all contexts."""
        bare = Batch(1, 0.0, 0.0)
        seen = bare._replace(context=batch.context, window=batch.window)
        return self.attention.iteration_s(seen) - self.attention.iteration_s(bare)

    def _drafting_s(self, batch: Batch) -> float:
        draft = self.whole.draft
        return 0.0 if draft is None else draft.time_s(batch.of_decode)

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes on the attention engine; see `IterationCost`."""
        return self.whole.kv_bytes(context, window)


def _whole_s(parts: dict[str, float]) -> float:
    return sum(parts.values())


def join(parts: PatternParts) -> Pattern:
    """Return the two engines as one. Engines: `attention`, `ffn`; link: `activations`."""
    need_engines(parts, "attention", "ffn")
    drafters = parts.drafters or (None,)
    link, ffn = take_link(parts, "activations"), _feed_forward(parts)
    costs = [_joined(parts, drafter, ffn, link) for drafter in drafters]
    return Pattern({"main": min(costs, key=token_s)}, {}, (Serve("main"),))


def _joined(parts: PatternParts, drafter: Drafter | None, ffn: Pass, link: LinkCost) -> AttentionFfnCost:
    engine = parts.engines["attention"]
    if engine.chip.kind != "gpu":
        raise SpecError(
            f"{parts.deployment.title}: engine 'attention' keeps KV in the memory of GPUs; "
            f"{engine.chip.title} is none"
        )
    shape = parts.ledger.take(engine.model.shape)
    half = compile_gpu(engine._replace(model=_half(engine, _without_ffn(shape))))
    return AttentionFfnCost(
        whole=compile_gpu(engine._replace(drafter=drafter)),
        attention=_share_of(half, _share(parts)),
        ffn=ffn,
        link=link,
        layers=shape.layers,
        token_bytes=shape.hidden * ACTIVATION_BYTES,
        tokens_per_step=expected_tokens(drafter.acceptance(parts.ledger)) if drafter else 1.0,
    )


def _feed_forward(parts: PatternParts) -> Pass:
    engine = parts.engines["ffn"]
    if engine.chip.kind != "gpu":
        return compile_feed_forward(engine)
    shape = parts.ledger.take(engine.model.shape)
    half = compile_gpu(engine._replace(model=_half(engine, _without_attention(shape))))
    return GpuFeedForward(_share_of(half, 1.0 - _share(parts)))


def _share(parts: PatternParts) -> float:
    share = parts.deployment.attention_overhead_share
    if share is None:
        raise SpecError(
            f"{parts.deployment.title}: pattern 'attention-ffn' needs attention_overhead_share, the "
            "attention's share of a GPU layer's fixed time"
        )
    return parts.ledger.take(share)


def _share_of(half: GpuCost, share: float) -> GpuCost:
    """Return half a model with its share of the layers' fixed time, and one all-reduce a layer."""
    forward: ForwardPass = half.target
    collective = forward.collective
    if collective is not None:
        collective = collective.times(1.0 / ALL_REDUCES_PER_LAYER)
    target = replace(forward, overhead_s=share * forward.overhead_s, collective=collective)
    return replace(half, target=target)


def _without_ffn(shape: Shape) -> Shape:
    return shape.model_copy(update={"ffn": 0, "experts": None, "dense_layers": None})


def _without_attention(shape: Shape) -> Shape:
    return shape.model_copy(update={"attention": (), "vocab": 0})


def _half(engine: EngineParts, half: Shape) -> Model:
    """Return the model with half its shape; of an fp4 checkpoint, the attention half keeps its bf16 first."""
    model, whole = engine.model, engine.ledger.take(engine.model.shape)
    update: dict[str, Any] = {"shape": _with(model.shape, half)}
    if model.fp4 is not None and engine.engine.precision.weights == "fp4":
        checkpoint = engine.ledger.take(model.fp4)
        kept = (1.0 - checkpoint.share) * shapes.total_parameters(whole)
        if not half.attention:
            kept -= shapes.total_parameters(_without_ffn(whole))
        share = 1.0 - min(max(kept / shapes.total_parameters(half), 0.0), 1.0)
        update["fp4"] = _with(model.fp4, checkpoint.model_copy(update={"share": share}))
    return model.model_copy(update=update)


def _with(datum: Datum[T], value: T) -> Datum[T]:
    """Return a datum of the same name and source with another value."""
    changed = replace(datum, value=value, range=None)
    changed.named(datum.name, {datum.source: datum.source_text})
    return changed


PLUGIN = join
