"""One workflow on several deployments, and what that says about the claim "hours become minutes".

Deployments see the same draws, seed by seed (but for the network's, where a smaller window makes one
compact more often), so their differences are the deployments' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from agentsim.backends.base import ServiceTime
from agentsim.coexec.base import Serve
from agentsim.plan import Plan
from agentsim.result import Result
from agentsim.summary import Summary, SummaryBuilder

CLAIM = "hours become minutes"
HOUR_S = 3600.0
LEAST_SPEEDUP = 2.0
"""Passing from 61 to 59 minutes is no claim kept: the task must at least take half the time."""
SATURATION_LOSS = 0.01
"""Speed stops mattering where all further speed would save less than this share of the task."""

Simulate = Callable[[Plan, int], Result]


@dataclass(frozen=True, slots=True)
class InstantCost:
    """`ServiceCost` of inference that takes no time at all: the ceiling of every speed-up."""

    cache_lifetime_s: float | None = None

    def call(self, uncached_tokens: int, cached_tokens: int, output_tokens: int) -> ServiceTime:
        del uncached_tokens, cached_tokens, output_tokens
        return ServiceTime(0.0, 0.0, False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison says of the claim, first deployment against the fastest of the others.

    `ceiling_speedup` is what inference in no time would give, `saturation_tok_s` the decode speed
    beyond which the task gains less than a hundredth. Infinite and undefined figures are None. With
    `lower_bound` the fastest has unknown parts, and its speed-up is at most what is said.
    """

    claim: str
    holds: bool
    lower_bound: bool
    fastest: str
    speedup: float
    token_speed_ratio: float | None
    ceiling_speedup: float | None
    instant_s: float
    non_inference_share: float
    saturation_tok_s: float | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column per deployment, in the order asked for."""

    columns: tuple[Summary, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        return {"columns": [c.to_json() for c in self.columns], "verdict": self.verdict.to_json()}


def compare(
    plans: Sequence[Plan], simulate: Simulate, seeds: Sequence[int], step: Callable[[], None] = lambda: None
) -> Comparison:
    """Run every plan, and inference in no time, over the same seeds; `step` is called after each run.

    Preconditions: at least one plan, one seed, and all plans of one task.
    """
    columns = [_runs(plan, simulate, seeds, step) for plan in plans]
    instant = _runs(instant_plan(plans[0]), simulate, seeds, step)
    return Comparison(tuple(columns), _verdict(columns, instant))


def instant_plan(plan: Plan) -> Plan:
    """Return the same task with inference that takes no time."""
    return replace(
        plan,
        deployment="instant",
        title="inference in no time",
        engines={"instant": InstantCost()},
        links={},
        stages=(Serve("instant"),),
        unknown_parts=(),
    )


def _runs(plan: Plan, simulate: Simulate, seeds: Sequence[int], step: Callable[[], None]) -> Summary:
    builder = SummaryBuilder()
    for seed in seeds:
        builder.add(simulate(plan, seed))
        step()
    return builder.build()


def _verdict(columns: Sequence[Summary], instant: Summary) -> Verdict:
    base = columns[0]
    best = min(columns[1:] or columns, key=lambda c: c.completion_s.p50)
    base_s, best_s, instant_s = (c.completion_s.p50 for c in (base, best, instant))
    speedup = _ratio(base_s, best_s) or 1.0
    holds = base_s >= HOUR_S > best_s and speedup >= LEAST_SPEEDUP
    return Verdict(
        claim=CLAIM,
        holds=holds,
        lower_bound=best.is_lower_bound,
        fastest=best.first.deployment,
        speedup=speedup,
        token_speed_ratio=_ratio(best.output_tokens_per_s, base.output_tokens_per_s),
        ceiling_speedup=_ratio(base_s, instant_s),
        instant_s=instant_s,
        non_inference_share=1.0 - base.inference_share,
        saturation_tok_s=_saturation(best),
    )


def _ratio(upper: float | None, lower: float | None) -> float | None:
    return upper / lower if upper is not None and lower and upper < inf else None


def _saturation(column: Summary) -> float | None:
    """Return the decode speed v with n/v = loss x (rest + n/v), over the critical path's n tokens."""
    rest = column.completion_s.avg - column.critical_decode_s
    if rest <= 0:
        return None
    return column.critical_output * (1.0 - SATURATION_LOSS) / (SATURATION_LOSS * rest)
