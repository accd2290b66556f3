"""What would have to be true for a claim to hold: one lever at a time, all else as it stands.

A lever is moved by rising factors until the answer turns, then between the last two factors until they are
within about a hundredth of each other. A claim may hold between two factors only (a task that is made too
short has no hours to save), so the turn nearest to things as they are is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from typing import Any

from agentsim.claims import ENOUGH, Claim
from agentsim.pool import Step, spread
from agentsim.variation import Outcome, Runner, Study, Variation
from agentsim.workflow.scale import Levers

DECODE = "decode"
ROUNDS = 7
"""Each halves what lies between two factors: 4 becomes 1.01."""
POWERS: dict[str, tuple[float, ...]] = {
    "tools": (-6, -4, -3, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 3),
    "output": (-5, -3, -2, -1, -0.5, 0.5, 1, 2, 3, 5),
    "turns": (-5, -3, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 3, 5),
    DECODE: (-6, -3, 3, 6, 10),
}
"""How far each lever is moved, as powers of two: in small steps where a claim may hold in between only."""
MOST_CALLS = 1000
"""A task of less model calls is made no longer than this many."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where moving one lever turns the answer: at `factor` times what it is, or (None) nowhere.

    `value` is what the lever comes to there and `now` what it is: seconds of tools, tokens a call, calls, or
    tokens per second. `tried` are the factors between which it was looked for.
    """

    lever: str
    factor: float | None
    now: float
    value: float | None
    tried: tuple[float, float]
    problem: str = ""

    @property
    def sense(self) -> str:
        """On which side of the value the answer is the other one."""
        return "" if self.factor is None else "at most" if self.factor < 1 else "at least"


def evaluations(levers: Sequence[str]) -> int:
    """Return how many variations are run at most to solve for these levers."""
    grid = sum(len(POWERS[lever]) + (lever == "tools") for lever in levers)
    return 1 + grid + len(levers) * ROUNDS


@dataclass
class _Search:
    """One lever on its way: the nearest factor that turns the answer, and its neighbour that does not."""

    lever: str
    inside: float | None = None
    outside: float = 1.0
    outcome: Sequence[Outcome] = ()
    problem: str = ""

    def between(self) -> float:
        """Return the factor half way: in steps of equal ratio, but to none at all."""
        assert self.inside is not None, "only what turns the answer is narrowed"
        return sqrt(self.inside * self.outside) if self.inside else self.outside / 2


def solve(
    study: Study, claim: Claim, seeds: Sequence[int], levers: Sequence[str], step: Step = lambda: None
) -> list[Bound]:
    """Return for each lever where it turns the answer. The study's deployments are base and other.

    Precondition: the task runs on both as it stands.
    """
    solver = _Solver(study, claim, tuple(seeds), step)
    [now] = solver.run([(levers[0], 1.0)])
    solver.wanted = not holds(claim, now)
    searches = [_Search(lever) for lever in levers]
    grids = {lever: grid(lever, now[0].model_calls) for lever in levers}
    found = iter(solver.run([(lever, factor) for lever in levers for factor in grids[lever]]))
    for search in searches:
        solver.bracket(search, [(factor, next(found)) for factor in grids[search.lever]])
    for _ in range(ROUNDS):
        solver.narrow([search for search in searches if search.inside is not None])
    return [_bound(search, now, grids[search.lever]) for search in searches]


def holds(claim: Claim, outcomes: Sequence[Outcome]) -> bool:
    """Tell whether a claim holds for outcomes on base and other; not where one cannot be had."""
    base, other = outcomes
    if base.problem or other.problem:
        return False
    if claim.kind == "tokens":
        return (other.token_speed or inf) >= claim.factor * (base.token_speed or inf)
    return claim.share(base.completion_s, other.completion_s) >= ENOUGH


def moved(lever: str, factor: float, seeds: tuple[int, ...], other: str) -> Variation:
    """Return the variation with one lever at a factor; decoding is made faster on `other` alone."""
    if lever == DECODE:
        return Variation(seeds, decode=factor, faster=other)
    return Variation(seeds, levers=replace(Levers(), **{lever: factor}))


def grid(lever: str, calls: float) -> list[float]:
    """Return the factors that are tried first, the nearest to 1 first."""
    factors = [2.0**power for power in POWERS[lever]]
    if lever == "turns":
        factors = [factor for factor in factors if factor * calls <= MOST_CALLS]
    return sorted(factors, key=lambda factor: abs(log(factor))) + ([0.0] if lever == "tools" else [])


class _Solver:
    def __init__(self, study: Study, claim: Claim, seeds: tuple[int, ...], step: Step) -> None:
        self.study, self.claim, self.seeds, self.step = study, claim, seeds, step
        self.wanted = True
        self.runner = Runner(study)

    def run(self, moves: Sequence[tuple[str, float]]) -> list[list[Outcome]]:
        """Return the outcomes of moves; what is compiled for one call serves the next."""
        other = self.study.deployments[1]
        variations = [moved(lever, factor, self.seeds, other) for lever, factor in moves]
        return spread(self.runner, variations, self.step)

    def turns(self, outcomes: Sequence[Outcome]) -> bool:
        """Tell whether the answer is the other one; where the task cannot be had there is no answer."""
        return not any(o.problem for o in outcomes) and holds(self.claim, outcomes) == self.wanted

    def bracket(self, search: _Search, tried: Sequence[tuple[float, Sequence[Outcome]]]) -> None:
        for factor, outcomes in tried:
            search.problem = search.problem or next((o.problem for o in outcomes if o.problem), "")
            if search.inside is None and self.turns(outcomes):
                search.inside, search.outcome = factor, outcomes
                same_side = [f for f, _ in tried if (f < 1) == (factor < 1) and abs(f - 1) < abs(factor - 1)]
                search.outside = max(same_side, key=lambda f: abs(f - 1), default=1.0)

    def narrow(self, searches: Sequence[_Search]) -> None:
        for search in searches:  # here: a few runs are over before other processes have started
            factor = search.between()
            outcomes = self.runner(moved(search.lever, factor, self.seeds, self.study.deployments[1]))
            self.step()
            if self.turns(outcomes):
                search.inside, search.outcome = factor, outcomes
            else:
                search.outside = factor


def _bound(search: _Search, now: Sequence[Outcome], tried: Sequence[float]) -> Bound:
    return Bound(
        lever=search.lever,
        factor=search.inside,
        now=value_of(search.lever, now),
        value=None if search.inside is None else value_of(search.lever, search.outcome),
        tried=(min(tried, default=1.0), max(tried, default=1.0)),
        problem=search.problem,
    )


def value_of(lever: str, outcomes: Sequence[Outcome]) -> float:
    """Return what a lever comes to: on the base, but for the token speed, which is the other's."""
    base, other = outcomes
    values: dict[str, Any] = {
        "tools": base.tools_s,
        "output": base.output_tokens / base.model_calls if base.model_calls else 0.0,
        "turns": base.model_calls,
        DECODE: other.token_speed or 0.0,
    }
    return float(values[lever])
