"""A drafter on an engine of its own proposes, the target checks; only draft tokens cross between them.

    step = drafts, one by one + their tokens to the target + verification of all and one more + what is right

The target checks k drafts of a sequence as it would decode k + 1 sequences with the context of one. Each
engine keeps KV of its own, so that nothing else crosses. The drafter prefills a prompt while its target
does; its time counts only where it would be the slower one (compared at a full iteration of new tokens).
A drafter that reads its target's KV or hidden states cannot be external.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentsim.backends.base import Batch, Drafter, IterationCost, ServingRules, expected_tokens
from agentsim.coexec.base import (
    TYPICAL_CONTEXT,
    LinkCost,
    Pattern,
    PatternParts,
    Serve,
    compiled,
    need_engines,
    take_link,
    token_s,
)
from agentsim.errors import InfeasibleError, SpecError

TOKEN_BYTES = 4
"""A token crosses as its number, in 32 bit."""


@dataclass(frozen=True, slots=True)
class ExternalDraftCost:
    """`IterationCost` of drafts on one engine and their verification on another.

    KV is counted on both engines together; `kv_capacity_bytes` is what both hold of one long sequence when
    the first of them is full.
    """

    target: IterationCost
    draft: IterationCost
    link: LinkCost
    drafts: int
    tokens_per_step: float
    window_tokens: int | None
    kv_capacity_bytes: float
    draft_prefills: bool

    @property
    def verified_tokens(self) -> int:
        return self.drafts + 1

    @property
    def batched_tokens(self) -> int:
        return self.target.batched_tokens

    @property
    def rules(self) -> ServingRules:
        """The target schedules, and KV that it evicted is drafted from anew: no tiers."""
        return self.target.rules._replace(tiers=())

    @property
    def max_sequences(self) -> int:
        return min(self.target.max_sequences, self.draft.max_sequences)

    @property
    def request_s(self) -> float:
        return max(self.target.request_s, self.draft.request_s)

    @property
    def kv_knee_bytes(self) -> float:
        """Where the drafter's near memory is full; exact for models without windows."""
        return self.draft.kv_knee_bytes * self.kv_bytes(1.0, 0.0) / self.draft.kv_bytes(1.0, 0.0)

    def iteration_s(self, batch: Batch) -> float:
        """Return the time of one iteration; see `IterationCost`."""
        return sum(self.parts(batch).values())

    def parts(self, batch: Batch) -> dict[str, float]:
        """Return where an iteration's time goes; the values sum to `iteration_s`."""
        sequences, drafting, crossing = batch.sequences, 0.0, 0.0
        if sequences:
            drafting = self.drafts * self.draft.iteration_s(batch.of_decode)
            there = self.link.time_s(TOKEN_BYTES * self.drafts * sequences)
            crossing = there + self.link.time_s(TOKEN_BYTES * self.verified_tokens * sequences)
        if self.draft_prefills and batch.prefill_tokens:
            drafting += self.draft.iteration_s(batch.of_prefill)
        verifying = self.target.iteration_s(batch._replace(sequences=sequences * self.verified_tokens))
        return {"drafting": drafting, "crossing": crossing, "verifying": verifying}

    def kv_bytes(self, context: float, window: float) -> float:
        """Return the bytes on both engines together; see `IterationCost`."""
        return self.target.kv_bytes(context, window) + self.draft.kv_bytes(context, window)


def join(parts: PatternParts) -> Pattern:
    """Return the two engines as one. Engines: `draft`, `target`; link: `tokens`."""
    need_engines(parts, "draft", "target", own_model=("draft",))
    _check(parts)
    link = take_link(parts, "tokens")
    target = compiled(parts.engines["target"])
    draft = compiled(parts.engines["draft"])
    costs = [_joined(target, draft, link, drafter, parts) for drafter in parts.drafters]
    return Pattern({"main": min(costs, key=token_s)}, {}, (Serve("main"),))


def _joined(
    target: IterationCost, draft: IterationCost, link: LinkCost, drafter: Drafter, parts: PatternParts
) -> ExternalDraftCost:
    window = _window(target, draft)
    return ExternalDraftCost(
        target=target,
        draft=draft,
        link=link,
        drafts=drafter.tokens,
        tokens_per_step=expected_tokens(drafter.acceptance(parts.ledger)),
        window_tokens=window,
        kv_capacity_bytes=_capacity(target, draft, window or 0),
        draft_prefills=_prefill_s(draft, target) > _prefill_s(target, target),
    )


def _check(parts: PatternParts) -> None:
    """Refuse what cannot draft from outside, in one line."""
    title, choice = parts.deployment.title, parts.deployment.speculation
    if choice is None:
        raise SpecError(
            f"{title}: pattern 'external-drafter' needs speculation: its drafter and kind of text"
        )
    named = parts.deployment.engines["draft"].model
    if named != choice.drafter:
        runs = named or parts.deployment.model
        raise SpecError(
            f"{title}: engine 'draft' runs {runs}, speculation names {choice.drafter}: set the engine's "
            f"model to {choice.drafter}"
        )
    drafter, model = parts.drafters[0].model, parts.engines["target"].model
    own, theirs = parts.ledger.take(drafter.shape), parts.ledger.take(model.shape)
    assert drafter.drafting is not None, "checked when the deployment was compiled"
    if drafter.drafting.shares_kv or drafter.drafting.shares_embeddings or own.input_projections:
        reads = "KV cache" if drafter.drafting.shares_kv else "hidden states"
        raise InfeasibleError(
            f"{drafter.title} reads its target's {reads} and cannot draft from another engine: use a "
            "model of its own, or pattern 'single', which runs it beside its target"
        )
    if own.vocab != theirs.vocab:
        raise InfeasibleError(
            f"{drafter.title} drafts from a vocabulary of {own.vocab:,} tokens, {model.title} has "
            f"{theirs.vocab:,}: take a drafter made for it, or leave speculation out"
        )


def _window(target: IterationCost, draft: IterationCost) -> int | None:
    widths = {cost.window_tokens for cost in (target, draft)} - {None}
    if len(widths) > 1:
        raise InfeasibleError(
            f"a drafter whose window ({draft.window_tokens} tokens) is not its target's "
            f"({target.window_tokens}) is not modelled"
        )
    return next(iter(widths), None)


def _capacity(target: IterationCost, draft: IterationCost, window: int) -> float:
    """Return the KV bytes of both engines at the context that fills the first of them."""
    contexts = [
        (cost.kv_capacity_bytes - cost.kv_bytes(0.0, window)) / cost.kv_bytes(1.0, 0.0)
        for cost in (target, draft)
    ]
    longest = max(min(contexts), 0.0)
    return sum(cost.kv_bytes(longest, window) for cost in (target, draft))


def _prefill_s(cost: IterationCost, target: IterationCost) -> float:
    tokens = target.batched_tokens
    pairs, seen = float(tokens * TYPICAL_CONTEXT), float(tokens * (cost.window_tokens or 0))
    return cost.iteration_s(Batch(0, 0.0, 0.0, tokens, pairs, seen))


PLUGIN = join
