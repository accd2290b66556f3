"""How the engine's software schedules calls and keeps their KV, from its profile and the deployment."""

from __future__ import annotations

from agentsim.backends.base import Hold, ServingRules, Tier
from agentsim.backends.gpu.group import Group
from agentsim.errors import SpecError
from agentsim.specs.deployment import OffloadTier


def serving_rules(group: Group) -> ServingRules:
    """Return the rules of an engine; what its profile does not say is as in `ServingRules`."""
    take, profile, default = group.ledger.take_or_none, group.profile, ServingRules()
    scheduling, admission = take(profile.scheduling), take(profile.admission)
    return ServingRules(
        block_tokens=take(profile.block_tokens) or default.block_tokens,
        prefill_first=scheduling == "prefill_first",
        reserve=default.reserve if admission is None else admission == "reserve",
        whole_prompts=take(profile.prompts) == "whole",
        hold=_hold(group),
        tiers=_tiers(group),
        copies=group.copies,
    )


def _hold(group: Group) -> Hold | None:
    engine = group.engine
    _check_holds(group)
    if engine.balance_wait is not None:
        return Hold(engine.balance_wait, group.copies)
    if engine.batch_wait is not None:
        return Hold(engine.batch_wait, share=engine.batch_wait_share)
    return Hold(engine.receive_interval) if engine.receive_interval > 1 else None


def _check_holds(group: Group) -> None:
    engine, title = group.engine, group.profile.title
    set_ = [name for name in ("balance_wait", "batch_wait") if getattr(engine, name) is not None]
    set_ += ["receive_interval"] if engine.receive_interval > 1 else []
    if len(set_) > 1:
        raise SpecError(f"{title}: {' and '.join(set_)} are set; an engine holds calls in one way")
    if engine.batch_wait is None and engine.batch_wait_share < 1:
        raise SpecError(f"{title}: batch_wait_share ends a batch_wait, and none is set")
    if engine.balance_wait is not None and group.copies == 1:
        raise SpecError(f"{title}: balance_wait is for copies of the attention; attention_dp is 1")


def _tiers(group: Group) -> tuple[Tier, ...]:
    offload = group.engine.kv_offload
    if offload is None:
        return ()
    named: tuple[tuple[str, OffloadTier | None], ...] = (("host", offload.host), ("ssd", offload.ssd))
    take = group.ledger.take
    return tuple(
        Tier(name, take(tier.capacity), take(tier.bandwidth)) for name, tier in named if tier is not None
    )
