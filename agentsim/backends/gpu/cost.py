"""What an iteration costs: the drafts one by one, then the target's pass over everything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from agentsim.backends.base import Batch, Drafter, EngineParts, ServingRules, expected_tokens
from agentsim.backends.gpu.constants import Constants, constants_of
from agentsim.backends.gpu.forward import ForwardPass, Work, kv_times, rates, window_of, work_of
from agentsim.backends.gpu.group import Group, group_of
from agentsim.backends.gpu.serving import serving_rules
from agentsim.backends.gpu.weights import format_of, kv_bytes, kv_capacity_bytes
from agentsim.specs.engine import ModelClass
from agentsim.specs.model import Shape


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter that proposes `tokens` one after another before each verification.

    `keeps_kv`: it has KV of its own, which a prompt is prefilled into.
    """

    forward: ForwardPass
    tokens: int
    keeps_kv: bool

    def time_s(self, batch: Batch) -> float:
        """Return the time that it adds to an iteration."""
        time = 0.0
        if batch.sequences:
            time += self.tokens * self.forward.time_s(batch.sequences, batch.of_decode)
        if self.keeps_kv and batch.prefill_tokens:
            time += self.forward.time_s(0, batch.of_prefill)
        return time


@dataclass(frozen=True, slots=True)
class GpuCost:
    """`IterationCost` of one GPU engine; see `backends/base.py` for the contract.

    `works` are what the passes of target and drafter move, `constants` what the engine reaches: with others,
    `at` gives other times.
    """

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
    works: tuple[Work, ...]
    constants: Constants
    rules: ServingRules

    @property
    def kv_knee_bytes(self) -> float:
        return inf

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration. A drafter that keeps KV of its own prefills the prompt too."""
        time = self.target.time_s(batch.sequences, batch)
        return time if self.draft is None else time + self.draft.time_s(batch)

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes that sequences hold whose contexts and windows sum to these."""
        return context * self.kv_bytes_per_token + window * self.window_bytes_per_token

    def at(self, constants: Constants) -> GpuCost:
        """Return the same engine with other constants."""
        draft = self.draft
        if draft is not None:
            draft = replace(draft, forward=rates(self.works[1], _of_drafter(constants)))
        return replace(
            self,
            target=rates(self.works[0], constants, self.verified_tokens),
            draft=draft,
            request_s=constants.request_s,
            constants=constants,
        )


def compile_gpu(parts: EngineParts) -> GpuCost:
    """Return the cost model of one engine.

    Raises `InfeasibleError` with what would fit, `MeasurementMissing` for a group of GPUs that the profile
    has no all-reduce for, `SpecError` or `UnknownNameError` for an engine without a profile.
    """
    model, drafter, ledger = parts.model, parts.drafter, parts.ledger
    group = group_of(parts)
    profile, shape = group.profile, ledger.take(model.shape)
    capacity = kv_capacity_bytes(model, drafter.model if drafter else None, group)
    constants = constants_of(group, format_of(model, parts.engine.precision.weights), class_of(shape))
    works = [work_of(model, parts.engine.precision.weights, group)]
    if drafter is not None:
        works.append(_draft_work(drafter, shape, group))
    verified = drafter.tokens + 1 if drafter else 1
    per_token, per_window = _kv_bytes(shape, drafter, group)
    return GpuCost(
        target=rates(works[0], constants, verified),
        draft=Draft(rates(works[1], _of_drafter(constants)), drafter.tokens, not _shares_kv(drafter))
        if drafter
        else None,
        tokens_per_step=expected_tokens(drafter.acceptance(ledger)) if drafter else 1.0,
        verified_tokens=verified,
        window_tokens=window_of(shape),
        kv_bytes_per_token=per_token,
        window_bytes_per_token=per_window,
        kv_capacity_bytes=capacity,
        batched_tokens=ledger.take(profile.batched_tokens) * group.copies,
        max_sequences=ledger.take(profile.sequences) * group.copies,
        request_s=constants.request_s,
        works=tuple(works),
        constants=constants,
        rules=serving_rules(group),
    )


def class_of(shape: Shape) -> ModelClass:
    """Return the class of models that a profile's constants are told apart by."""
    return "moe" if shape.experts is not None else "dense"


def _of_drafter(constants: Constants) -> Constants:
    """A drafter's pass has no host work of its own: it belongs to its target's iteration."""
    return replace(constants, iteration_s=0.0, sequence_s=0.0, prefill_s=0.0)


def _kv_bytes(shape: Shape, drafter: Drafter | None, group: Group) -> tuple[float, float]:
    """Bytes of one token's KV: the target's, and the drafter's where it keeps its own."""
    kept = kv_bytes(shape, group)
    if drafter is not None and not _shares_kv(drafter):
        kept = kept.plus(kv_bytes(group.ledger.take(drafter.model.shape), group))
    return kept.kept()


def _shares_kv(drafter: Drafter) -> bool:
    return drafter.model.drafting is not None and drafter.model.drafting.shares_kv


def _draft_work(drafter: Drafter, target: Shape, group: Group) -> Work:
    """A drafter runs in bf16 beside its target and, where it shares the target's KV, reads that."""
    own = work_of(drafter.model, "bf16", group)
    if not _shares_kv(drafter):
        return own
    layers = {g.kind: g.layers for g in group.ledger.take(drafter.model.shape).attention}
    read = tuple(g.model_copy(update={"layers": layers.get(g.kind, 0)}) for g in target.attention)
    return replace(own, kv=kv_times(target.model_copy(update={"attention": read}), group))
