"""One workflow on several deployments, and what that says about a claim.

Deployments see the same draws, seed by seed (but for the network's, where a smaller window makes one
compact more often), so their differences are the deployments' own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from agentsim.backends.base import ServiceTime
from agentsim.claims import ENOUGH, HOURS_TO_MINUTES, Claim, Verdict
from agentsim.coexec.base import Serve
from agentsim.plan import Plan
from agentsim.result import Result
from agentsim.summary import Summary, SummaryBuilder
from agentsim.uncertainty import Band, Uncertainty

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
class Comparison:
    """A column per deployment, in the order asked for; bands where uncertain data were drawn."""

    columns: tuple[Summary, ...]
    verdict: Verdict
    uncertainty: Uncertainty | None = None

    def to_json(self) -> dict[str, Any]:
        found = {"columns": [c.to_json() for c in self.columns], "verdict": self.verdict.to_json()}
        return found | ({"uncertainty": self.uncertainty.to_json()} if self.uncertainty else {})


class Column(NamedTuple):
    """The runs of one plan: their summary, and the task completion time of each."""

    summary: Summary
    completion_s: list[float]


def compare(
    plans: Sequence[Plan],
    simulate: Simulate,
    seeds: Sequence[int],
    step: Callable[[], None] = lambda: None,
    claim: Claim = HOURS_TO_MINUTES,
) -> Comparison:
    """Run every plan, and inference in no time, over the same seeds; `step` is called after each run.

    Preconditions: at least one plan, one seed, and all plans of one task.
    """
    columns = [_runs(plan, simulate, seeds, step) for plan in plans]
    instant = _runs(instant_plan(plans[0]), simulate, seeds, step)
    verdict = _verdict(claim, columns, instant.summary)
    return Comparison(tuple(column.summary for column in columns), verdict)


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


def _runs(plan: Plan, simulate: Simulate, seeds: Sequence[int], step: Callable[[], None]) -> Column:
    builder, completion_s = SummaryBuilder(), []
    for seed in seeds:
        result = simulate(plan, seed)
        builder.add(result)
        completion_s += result.completion_s()
        step()
    return Column(builder.build(), completion_s)


def _verdict(claim: Claim, columns: Sequence[Column], instant: Summary) -> Verdict:
    first = columns[0]
    fastest = min(columns[1:] or columns, key=lambda c: c.summary.completion_s.p50)
    base, best = first.summary, fastest.summary
    base_s, best_s, instant_s = (c.completion_s.p50 for c in (base, best, instant))
    probability = claim.share(first.completion_s, fastest.completion_s)
    pairs = zip(first.completion_s, fastest.completion_s, strict=True)
    band = Band.of([a / b if b else 1.0 for a, b in pairs]) or Band(1.0, 1.0, 1.0)
    return Verdict(
        claim=claim.text,
        holds=probability >= ENOUGH,
        probability=probability,
        runs=len(first.completion_s),
        lower_bound=best.is_lower_bound,
        fastest=best.first.deployment,
        speedup=_ratio(base_s, best_s) or 1.0,
        speedup_p5=band.p5,
        speedup_p95=band.p95,
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
