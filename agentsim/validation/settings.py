"""How the engine of a measured run was started, from what its harness's scripts say."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from agentsim.specs.harness import Settings, Setup, Where, load_harnesses

if TYPE_CHECKING:
    from agentsim.validation.rows import Run


def settings_of(run: Run) -> Settings:
    """Return the setups of a run's harness put together; of two that say the same thing the later counts."""
    said: dict[str, object] = {}
    for setup in load_harnesses().harnesses[run.harness].setups:
        if _holds(setup.where, run):
            said.update(_said(setup))
    return Settings.model_construct(**said)  # type: ignore[arg-type]  # values of setups that were checked


def batched_tokens(run: Run) -> int | None:
    """Return the token budget of an iteration of one attention copy; None where nothing is said of it."""
    budget = settings_of(run).budget
    if budget is None:
        return None
    labels = budget.prompt * run.input_tokens + budget.output * run.output_tokens
    tokens = ceil(labels + budget.user * run.concurrency) + budget.more
    return max(-(-tokens // budget.multiple) * budget.multiple, budget.least)


def as_started(run: Run) -> Run:
    """Return a run with the parallelism that its harness's scripts gave it, where that is not the label's."""
    settings = settings_of(run)
    copies = run.chips if settings.replicated else run.attention_dp
    experts = run.chips if settings.all_experts_apart or settings.replicated else run.expert_parallel
    if not run.mixture or (copies, experts) == (run.attention_dp, run.expert_parallel):
        return run
    said = f"attention_dp {copies}, moe_ep {experts}: as the launch script started it"
    return replace(run, attention_dp=copies, expert_parallel=experts, assumed=(*run.assumed, said))


def _said(setup: Setup) -> dict[str, object]:
    return {name: value for name in Settings.model_fields if (value := getattr(setup, name)) is not None}


def _holds(where: Where, run: Run) -> bool:
    among = (
        (where.models, run.model),
        (where.gpus, run.gpu),
        (where.precisions, run.precision),
        (where.versions, run.version),
    )
    return (
        where.engine == run.engine
        and all(not names or name in names for names, name in among)
        and _dated(where, run.measured_on)
        and run.concurrency > where.users_over
        and where.chips in (None, run.chips)
        and (where.chips_under is None or run.chips < where.chips_under)
        and where.output_tokens in (None, run.output_tokens)
        and where.input_tokens in (None, run.input_tokens)
        and where.copies in (None, run.attention_dp > 1)
        and where.separate is run.separate
    )


def _dated(where: Where, day: str) -> bool:
    """Tell whether a run is of the dates; one without a date is of all that have no end."""
    if not day:
        return where.since is None and where.until is None
    return (where.since is None or where.since <= day) and (where.until is None or day <= where.until)
