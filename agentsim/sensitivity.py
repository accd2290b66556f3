"""What moves the answer: each uncertain datum at both ends of what it may be, each lever of the task at a
half and the double, all else as it stands. Sorted, they make a tornado."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from agentsim.errors import InfeasibleError
from agentsim.plan import Plan
from agentsim.pool import Step
from agentsim.specs.ranges import value_at
from agentsim.specs.sourced import Datum
from agentsim.variation import Outcome, Study, Variation
from agentsim.workflow.scale import Levers, levers_of

ENDS = (0.0, 1.0)
FACTORS = (0.5, 2.0)
LEVERS = {
    "tools": "time of tools and files",
    "output": "tokens written a turn",
    "turns": "turns",
    "network": "network round trip",
}
"""The levers of a task, in the order in which they are told, and what they are called."""
LEVER, DATUM = "lever", "datum"


@dataclass(frozen=True, slots=True)
class Bar:
    """What one cause does. `at` are its two values, `told` the same for people.

    The answers there are None where it does not fit, for the reason in `problem`.
    """

    name: str
    kind: str
    basis: str
    at: tuple[Any, Any]
    told: str
    low: float | None
    high: float | None
    problem: str = ""

    @property
    def swing(self) -> float:
        """How far apart the answers are."""
        return abs(self.high - self.low) if self.low is not None and self.high is not None else 0.0


@dataclass(frozen=True)
class Tornado:
    """The answer, and bars by falling swing. It is a task time (s), or with `other` a speed-up over it.

    `still` are the data that the deployments use and that do not move it.
    """

    workflow: str
    base: str
    other: str | None
    seeds: tuple[int, ...]
    answer: float
    token_speed_ratio: float | None
    bars: tuple[Bar, ...]
    still: tuple[str, ...]
    overrides: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found | {"unit": "speed-up" if self.other else "s"}


def tornado(study: Study, plan: Plan, seeds: Sequence[int], step: Step = lambda: None) -> Tornado:
    """Return what moves the median task time on the first deployment, or its ratio to the second's.

    `plan` is the first deployment's, as it stands. `step` is called `evaluations` times.
    """
    data, same, levers = study.data(), tuple(seeds), levers_of(plan.task)
    shifts = [Variation(same)]
    shifts += [Variation(same, levers=Levers(**{lever: f})) for lever in levers for f in FACTORS]
    shifts += [Variation(same, shares={datum: end}) for datum in data for end in ENDS]
    outcomes = study.outcomes(shifts, step)
    pairs = list(zip(outcomes[1::2], outcomes[2::2], strict=True))
    bars = [_bar(LEVERS[lever], None, pair) for lever, pair in zip(levers, pairs, strict=False)]
    bars += [_bar(key, data[key], pair) for key, pair in zip(data, pairs[len(levers) :], strict=True)]
    answer = _answer(outcomes[0])
    if answer is None:
        raise InfeasibleError(next((o.problem for o in outcomes[0] if o.problem), "the task takes no time"))
    moving = [bar for bar in bars if bar.swing or bar.problem]
    return Tornado(
        workflow=plan.task.name,
        base=study.deployments[0],
        other=study.deployments[1] if len(study.deployments) > 1 else None,
        seeds=same,
        answer=answer,
        token_speed_ratio=_speeds(outcomes[0]),
        bars=tuple(sorted(moving, key=lambda bar: (-bar.swing, bar.name))),
        still=tuple(bar.name for bar in bars if bar not in moving),
        overrides=plan.overrides,
    )


def evaluations(study: Study, plan: Plan) -> int:
    """Return how many variations a tornado takes."""
    return 1 + 2 * (len(levers_of(plan.task)) + len(study.data()))


def _bar(name: str, datum: Datum[Any] | None, pair: Sequence[Sequence[Outcome]]) -> Bar:
    low, high = map(_answer, pair)
    problems = [outcome.problem for outcomes in pair for outcome in outcomes if outcome.problem]
    return Bar(
        name=name,
        kind=LEVER if datum is None else DATUM,
        basis="" if datum is None else datum.basis,
        at=FACTORS if datum is None else (_plain(value_at(datum, 0.0)), _plain(value_at(datum, 1.0))),
        told="x{} to x{}".format(*map("{:g}".format, FACTORS)) if datum is None else datum.range_text,
        low=low,
        high=high,
        problem=problems[0] if problems else "",
    )


def _plain(value: Any) -> Any:
    """Return a datum's value as JSON can hold it; of a row whose numbers are all alike, one."""
    if isinstance(value, tuple):
        rows = [_plain(item) for item in value]
        return rows[0] if all(row == rows[0] for row in rows) else rows
    return value.model_dump() if hasattr(value, "model_dump") else value


def _answer(outcomes: Sequence[Outcome]) -> float | None:
    if any(outcome.problem for outcome in outcomes):
        return None
    times = [median(outcome.completion_s) for outcome in outcomes]
    if len(times) == 1:
        return times[0]
    return times[0] / times[1] if times[1] else None


def _speeds(outcomes: Sequence[Outcome]) -> float | None:
    speeds = [outcome.token_speed for outcome in outcomes]
    return speeds[1] / speeds[0] if len(speeds) > 1 and speeds[0] and speeds[1] else None
