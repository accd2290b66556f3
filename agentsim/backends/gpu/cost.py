"""What an iteration costs: the drafts one by one, then the target's pass over everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from agentsim.backends.base import Batch, Drafter, EngineParts, ServingRules, expected_tokens
from agentsim.backends.gpu.forward import ForwardPass, forward_pass, kv_times, window_of
from agentsim.backends.gpu.group import Group, group_of
from agentsim.backends.gpu.serving import serving_rules
from agentsim.backends.gpu.weights import kv_bytes, kv_capacity_bytes
from agentsim.specs.model import Shape

_DENSE_ONLY = "optimistic: the engine's constants are of dense models, this one is a mixture of experts"


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter that proposes `tokens` one after another before each verification."""

    forward: ForwardPass
    tokens: int


@dataclass(frozen=True, slots=True)
class GpuCost:
    """`IterationCost` of one GPU engine; see `backends/base.py` for the contract."""

    target: ForwardPass
    draft: Draft | None
    tokens_per_step: float
    verified_tokens: int
    window_tokens: int | None
    kv_bytes_per_token: float
    window_bytes_per_token: float
    kv_capacity_bytes: float
    batched_tokens: int
    max_sequences: int
    request_s: float
    rules: ServingRules

    @property
    def kv_knee_bytes(self) -> float:
        return inf

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration. A drafter that keeps KV of its own prefills the prompt too."""
        draft = self.draft
        if draft is None:
            return self.target.time_s(batch.sequences, batch)
        time = self.target.time_s(batch.sequences * self.verified_tokens, batch)
        if batch.sequences:
            alone = Batch(batch.sequences, batch.context, batch.window)
            time += draft.tokens * draft.forward.time_s(batch.sequences, alone)
        return time

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes that sequences hold whose contexts and windows sum to these."""
        return context * self.kv_bytes_per_token + window * self.window_bytes_per_token


def compile_gpu(parts: EngineParts) -> GpuCost:
    """Return the cost model of one engine.

    Raises `InfeasibleError` with what would fit, `MeasurementMissing` for a tensor-parallel size that the
    profile has no all-reduce for, `SpecError` or `UnknownNameError` for an engine without a profile.
    """
    model, drafter, ledger = parts.model, parts.drafter, parts.ledger
    group = group_of(parts)
    profile, shape = group.profile, ledger.take(model.shape)
    per_token, per_window = _kv_bytes(shape, drafter, group)
    if shape.experts is not None:
        ledger.warn(_DENSE_ONLY)
    return GpuCost(
        target=forward_pass(model, parts.engine.precision.weights, group),
        draft=Draft(_draft_pass(drafter, shape, group), drafter.tokens) if drafter else None,
        tokens_per_step=expected_tokens(drafter.acceptance(ledger)) if drafter else 1.0,
        verified_tokens=drafter.tokens + 1 if drafter else 1,
        window_tokens=window_of(shape),
        kv_bytes_per_token=per_token,
        window_bytes_per_token=per_window,
        kv_capacity_bytes=kv_capacity_bytes(model, drafter.model if drafter else None, group),
        batched_tokens=ledger.take(profile.batched_tokens),
        max_sequences=ledger.take(profile.sequences),
        request_s=ledger.take(profile.request_overhead),
        rules=serving_rules(group),
    )


def _kv_bytes(shape: Shape, drafter: Drafter | None, group: Group) -> tuple[float, float]:
    """Bytes of one token's KV: the target's, and the drafter's where it keeps its own."""
    full, window = kv_bytes(shape, group)
    if drafter is not None and not _shares_kv(drafter):
        own_full, own_window = kv_bytes(group.ledger.take(drafter.model.shape), group)
        return full + own_full, window + own_window
    return full, window


def _shares_kv(drafter: Drafter) -> bool:
    return drafter.model.drafting is not None and drafter.model.drafting.shares_kv


def _draft_pass(drafter: Drafter, target: Shape, group: Group) -> ForwardPass:
    """A drafter runs in bf16 beside its target and, where it shares the target's KV, reads that."""
    own_pass = forward_pass(drafter.model, "bf16", group)
    if not _shares_kv(drafter):
        return own_pass
    layers = {g.kind: g.layers for g in group.ledger.take(drafter.model.shape).attention}
    read = tuple(g.model_copy(update={"layers": layers.get(g.kind, 0)}) for g in target.attention)
    context_s, window_s = kv_times(target.model_copy(update={"attention": read}), group)
    return replace(own_pass, context_s=context_s, window_s=window_s)
