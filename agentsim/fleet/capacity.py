"""The most agents that a deployment carries while enough of their tasks meet an objective.

Load is doubled until it is too much, then the gap is halved. Every load is run on the same seed, so that
the same tasks are done under each. A point is judged on its middle tasks alone: those that start while the
load builds up, and those behind which nobody starts any more, see less of it than they should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from agentsim.backends.base import IterationCost
from agentsim.errors import InfeasibleError, InputError
from agentsim.fleet.objective import PARTS, Objective
from agentsim.fleet.outcome import Alone, Fleet, alone, fleet_of, quality_of, run_traffic
from agentsim.fleet.traffic import Arrival, Traffic, rate_text
from agentsim.plan import Plan
from agentsim.result import Result, Spread
from agentsim.units import duration_text

SCHEMA = "agentsim.capacity/1"
SHARE = 0.9
"""The share of tasks that must meet the objective where nothing else is asked for."""
LEAST_JUDGED = 40
"""Tasks that a point is judged on, at the least; more load is judged on more."""
EXACT = 32
"""Up to here agents are counted one by one, beyond within `TOLERANCE`."""
TOLERANCE = 0.05
MOST = 16_384
"""Agents at once where the search gives up."""
OPEN = ("poisson", "uniform")
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Point:
    """One load that was tried: agents at a time, or arrivals a second.

    `share` of the `judged` tasks are good, and `completion_s` is theirs; the rest is of the whole run.
    """

    load: float
    share: float
    judged: int
    completion_s: Spread
    fleet: Fleet
    ok: bool

    def to_json(self) -> dict[str, Any]:
        """Return the point as plain data."""
        fleet, spread = self.fleet, self.completion_s
        assert fleet.quality is not None
        return {
            "load": self.load,
            "ok": self.ok,
            "goodput_share": self.share,
            "tasks_judged": self.judged,
            "missed_shares": fleet.quality.missed,
            "tasks_per_h": fleet.tasks_per_h,
            "task_completion_s": asdict(spread),
            "agents_alive_mean": fleet.mean_alive,
            "cache_hit_rate": fleet.hit_rate,
            "queue_share": fleet.queue_share,
            "preemptions": fleet.preemptions,
            "cost_usd": fleet.cost_usd,
            "rated_energy_j_per_task": fleet.energy_j,
            "queue_grows_without_bound": fleet.grows,
        }


@dataclass(frozen=True, slots=True)
class Capacity:
    """The answer, `best`, and all points in the order of their load. `arrival` is None for a closed loop.

    `bounded` is False where even the heaviest load that is tried meets the objective.
    """

    workflow: str
    plan: Plan
    objective: Objective
    share: float
    seed: int
    arrival: str | None
    alone: Alone
    best: Point
    bounded: bool
    points: tuple[Point, ...]

    @property
    def text(self) -> str:
        """The load of the answer in words."""
        return load_text(self.best.load, self.arrival)

    @property
    def next_point(self) -> Point | None:
        """The lightest load that was too much."""
        return next((p for p in self.points if p.load > self.best.load and not p.ok), None)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `capacity --format json` prints."""
        load, chips = self.best.load, self.best.fleet.chips
        return {
            "schema": SCHEMA,
            "workflow": self.workflow,
            "deployment": self.plan.deployment,
            "title": self.plan.title,
            "overrides": list(self.plan.overrides),
            "seed": self.seed,
            "objective": self.objective.to_json(),
            "share": self.share,
            "arrival": self.arrival,
            "agents": None if self.arrival else load,
            "agents_per_chip": load / chips if chips and not self.arrival else None,
            "arrivals_per_s": load if self.arrival else None,
            "bounded": self.bounded,
            "chips": chips,
            "task_alone_s": self.alone.completion_s,
            "best": self.best.to_json(),
            "points": [point.to_json() for point in self.points],
        }


def load_text(load: float, arrival: str | None) -> str:
    """Return a load in words: agents at a time, or a rate."""
    return rate_text(load) if arrival else f"{load:,.0f} agent{'s' if load != 1 else ''} at a time"


def find_capacity(
    plan: Plan,
    objective: Objective,
    share: float = SHARE,
    seed: int = 0,
    arrival: str | None = None,
    step: Step = lambda: None,
) -> Capacity:
    """Return the heaviest load under which at least `share` of the tasks meet the objective.

    `step` is called after each load. Raises `InfeasibleError` where not even the lightest does, and
    `InputError` where load changes nothing: an endpoint, a recorded session.
    """
    _check(plan, share, arrival)
    search = _Search(plan, objective, share, seed, arrival, step)
    best, bounded = search.run()
    points = tuple(search.points[load] for load in sorted(search.points))
    return Capacity(
        workflow=plan.task.name,
        plan=plan,
        objective=objective,
        share=share,
        seed=seed,
        arrival=arrival,
        alone=search.alone,
        best=best,
        bounded=bounded,
        points=points,
    )


def _check(plan: Plan, share: float, arrival: str | None) -> None:
    if not 0 < share <= 1:
        raise InputError(f"--share {share:g}: a share of the tasks is over 0 and at most 1")
    if arrival not in (None, *OPEN):
        raise InputError(
            f"--arrival {arrival}: capacity searches the rate of {' or '.join(OPEN)}, without one"
        )
    if not all(isinstance(cost, IterationCost) for cost in plan.engines.values()):
        raise InputError(
            f"{plan.deployment}: its times do not change with load, as how it slows down is not published; "
            "capacity needs a deployment of engines (agentsim list deployments)"
        )


class _Search:
    """Loads that were tried, and the next to try."""

    def __init__(
        self, plan: Plan, objective: Objective, share: float, seed: int, arrival: str | None, step: Step
    ) -> None:
        self.plan, self.objective, self.share = plan, objective, share
        self.seed, self.arrival, self.step = seed, arrival, step
        self.alone = alone(plan, seed)
        if not self.alone.elapsed_s:
            raise InputError(f"{plan.task.name}: the task takes no time, so that no number is too many")
        self.points: dict[float, Point] = {}

    def run(self) -> tuple[Point, bool]:
        """Return the best point and whether a heavier one failed."""
        load = self._lightest()
        good = self._try(load)
        if not good.ok:
            raise InfeasibleError(self._never(good))
        while good.ok and load < self._heaviest():
            best, load = good, load * 2
            good = self._try(load)
        if good.ok:
            return good, False
        return self._bisect(best, load), True

    def _bisect(self, best: Point, bad: float) -> Point:
        while self._apart(best.load, bad):
            middle = self._middle(best.load, bad)
            point = self._try(middle)
            if point.ok:
                best = point
            else:
                bad = middle
        return best

    def _lightest(self) -> float:
        """One agent at a time, or arrivals so rare that hardly two meet."""
        return 0.1 / self.alone.elapsed_s if self.arrival else 1

    def _heaviest(self) -> float:
        return MOST / self.alone.elapsed_s if self.arrival else MOST

    def _apart(self, low: float, high: float) -> bool:
        if self.arrival:
            return high / low > 1 + TOLERANCE
        return high - low > max(1, TOLERANCE * low if low > EXACT else 1)

    def _middle(self, low: float, high: float) -> float:
        return (low + high) / 2 if self.arrival else (low + high) // 2

    def _try(self, load: float) -> Point:
        traffic, skipped = self._traffic(load)
        result = run_traffic(self.plan, traffic, self.seed)
        judged = _middle_tasks(result, skipped)
        quality = quality_of([judged], self.objective)
        whole = fleet_of(self.plan, traffic, [result], self.alone)
        fleet = replace(whole, quality=quality)
        spread = Spread.of(judged.completion_s())
        assert spread is not None
        is_met = quality.share >= self.share and not fleet.grows
        point = Point(load, quality.share, len(judged.tasks), spread, fleet, is_met)
        self.points[load] = point
        self.step()
        return point

    def _traffic(self, load: float) -> tuple[Traffic, int]:
        """Return what is run at a load, and how many tasks at each end of it are not judged."""
        if self.arrival is None:
            users = int(load)
            agents = 2 * users + max(users, LEAST_JUDGED)
            return Traffic(agents, concurrency=users, ramp_s=self.alone.elapsed_s), users
        alive = ceil(load * self.alone.elapsed_s)
        agents = 2 * alive + max(3 * alive, LEAST_JUDGED)
        return Traffic(agents, Arrival(self.arrival, load)), alive

    def _never(self, point: Point) -> str:
        quality = point.fleet.quality
        assert quality is not None
        part = max(quality.missed, key=lambda name: quality.missed[name])
        bound = dict(self.objective.bounds())[part]
        return (
            f"no load meets {part} ≤ {duration_text(bound)} on {self.plan.deployment}: with one agent at a "
            f"time {1 - quality.missed[part]:.0%} of the tasks do, not {self.share:.0%}; "
            f"{PARTS[part]}: {_spread_text(point.fleet, part)}"
        )


def _middle_tasks(result: Result, skipped: int) -> Result:
    ordered = sorted(result.tasks, key=lambda task: task.start_ns)
    return replace(result, tasks=tuple(ordered[skipped : len(ordered) - skipped]))


def _spread_text(fleet: Fleet, part: str) -> str:
    from agentsim.fleet.objective import figure
    from agentsim.result import percentile

    values = sorted(figure(task, part) for task in fleet.summary.first.tasks)
    return f"p50 {duration_text(percentile(values, 0.5))}, p90 {duration_text(percentile(values, 0.9))}"
