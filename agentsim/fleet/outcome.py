"""What became of many agents: how many tasks an hour, how good, at what cost, and whether it would last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from agentsim.fleet.objective import Objective
from agentsim.fleet.overload import Backlog, backlog_of
from agentsim.fleet.traffic import Traffic
from agentsim.plan import Plan, Routing
from agentsim.result import EngineLoad, Part, Result, Source, TaskOutcome, percentile
from agentsim.sim.engine import simulate
from agentsim.sim.recorder import Detail
from agentsim.summary import Summary, SummaryBuilder
from agentsim.units import HOUR_S, to_s

STEADY_WAVES = 3
"""A closed loop shows its steady rate where each user works on this many tasks."""
EDGE = 0.1
"""The share of tasks at each end of a run that a steady rate leaves out."""
TASKS_ALONE = 20
"""Tasks run one after another to see what one takes with nobody beside it."""
Step = Callable[[], None]


class Alone(NamedTuple):
    """Seconds that one agent takes with nobody beside it: the median task completion time of a few tasks.

    With waits for people: the median, and the longest.
    """

    completion_s: float
    elapsed_s: float
    longest_s: float


@dataclass(frozen=True, slots=True)
class Quality:
    """How many of the tasks meet an objective, and how many miss each part of it (shares)."""

    objective: Objective
    share: float
    missed: dict[str, float]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The runs of one traffic on one deployment. Rates are tasks an hour; what is unknown is None.

    `cost_usd` and `energy_j` are of one task; the energy is the chips' at their rated power for the whole
    run, and thus the most that they can take.
    """

    summary: Summary
    traffic: Traffic
    alone: Alone
    tasks: int
    tasks_per_h: float
    mean_alive: float
    peak_alive: int
    routing: Routing
    chips: int | None
    quality: Quality | None
    cost_usd: float | None
    energy_j: float | None
    backlogs: tuple[Backlog, ...]
    loads: tuple[EngineLoad, ...]

    @property
    def tasks_per_h_per_chip(self) -> float | None:
        """Tasks an hour over the chips of all replicas."""
        return self.tasks_per_h / self.chips if self.chips else None

    @property
    def tasks_per_h_per_user(self) -> float:
        """Tasks an hour of a user who has one agent at work all the time, waits for people included."""
        elapsed_s = self.summary.completion_s.avg + self.summary.human_s
        return HOUR_S / elapsed_s if elapsed_s else 0.0

    @property
    def goodput_per_h(self) -> float | None:
        """Tasks an hour that meet the objective; None without one."""
        return self.tasks_per_h * self.quality.share if self.quality else None

    @property
    def hit_rate(self) -> float | None:
        """The share of prompt tokens that were found in the cache."""
        tokens = self.summary.tokens
        return tokens.cached / tokens.prompt if tokens.prompt else None

    @property
    def queue_share(self) -> float:
        """The share of the task completion time that was spent waiting for an engine."""
        total = self.summary.completion_s.avg
        return self.summary.parts_s[Part.QUEUE] / total if total else 0.0

    @property
    def preemptions(self) -> int | None:
        """Calls whose KV had to give way to others'; None where no engine is seen from inside."""
        return sum(load.preemptions for load in self.loads) if self.loads else None

    @property
    def overload(self) -> str:
        """Say that the backlog grows without bound, or that the run is too short to tell; else nothing."""
        verdicts = {backlog.verdict: backlog for backlog in self.backlogs}
        if "grows" in verdicts:
            worst = verdicts["grows"]
            return (
                "overload: more agents arrive than are served, so that the queue grows without bound and "
                f"the times with the length of the run ({worst.middle:.0f} agents alive in the middle third "
                f"of the arrivals, {worst.last:.0f} in the last)"
            )
        if "untold" in verdicts:
            enough = max(backlog.enough_agents for backlog in self.backlogs)
            return (
                "a burst: the arrivals end before the load is steady, so that it cannot be told whether the "
                f"queue would grow without bound; --agents {enough} would show it"
            )
        return ""

    @property
    def grows(self) -> bool:
        """Tell whether the backlog of any run grows without bound."""
        return any(backlog.verdict == "grows" for backlog in self.backlogs)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `run --format json` prints for a fleet."""
        summary, quality = self.summary, self.quality
        warnings = [*summary.warnings, *([self.overload] if self.overload else [])]
        return {
            **summary.to_json(),
            "warnings": warnings,
            "cost_usd": self.cost_usd,
            "fleet": {
                "agents": self.traffic.agents,
                "arrival": self.traffic.arrival.kind if self.traffic.concurrency is None else None,
                "arrivals_per_s": self.traffic.arrival.per_s or None,
                "concurrency": self.traffic.concurrency,
                "tasks": self.tasks,
                "task_alone_s": self.alone.completion_s,
                "tasks_per_h": self.tasks_per_h,
                "tasks_per_h_per_chip": self.tasks_per_h_per_chip,
                "tasks_per_h_per_user": self.tasks_per_h_per_user,
                "agents_alive": {"mean": self.mean_alive, "max": self.peak_alive},
                "replicas": self.routing.replicas,
                "router": self.routing.policy if self.routing.replicas > 1 else None,
                "chips": self.chips,
                "objective": quality.objective.to_json() if quality else None,
                "goodput_share": quality.share if quality else None,
                "goodput_per_h": self.goodput_per_h,
                "missed_shares": quality.missed if quality else None,
                "cache_hit_rate": self.hit_rate,
                "queue_share": self.queue_share,
                "preemptions": self.preemptions,
                "engines": [load.to_json() for load in self.loads],
                "rated_energy_j_per_task": self.energy_j,
                "queue_grows_without_bound": self.grows,
                "percentiles_are_of_a_steady_load": not self.overload,
                "backlog": [asdict(backlog) for backlog in self.backlogs],
            },
        }


def run_traffic(
    plan: Plan, traffic: Traffic, seed: int, detail: Detail = "summary", step: Step = lambda: None
) -> Result:
    """Run one traffic on a plan; `step` is called at the end of every task."""
    return simulate(
        plan,
        seed,
        detail=detail,
        arrivals_s=traffic.starts_s(seed),
        concurrency=traffic.concurrency,
        done=step,
    )


def alone(plan: Plan, seed: int = 0) -> Alone:
    """Return how long one agent takes with nobody beside it."""
    found = run_traffic(plan, Traffic(TASKS_ALONE, concurrency=1), seed)
    elapsed_s = sorted(to_s(task.end_ns - task.start_ns) for task in found.tasks)
    completion_s = sorted(found.completion_s())
    return Alone(percentile(completion_s, 0.5), percentile(elapsed_s, 0.5), elapsed_s[-1])


def fleet_of(
    plan: Plan, traffic: Traffic, results: Sequence[Result], alone: Alone, objective: Objective | None = None
) -> Fleet:
    """Return what the runs of one traffic came to. Preconditions: at least one run, all of this plan."""
    builder, tasks = SummaryBuilder(), [task for result in results for task in result.tasks]
    for result in results:
        builder.add(replace(result, sources=(*result.sources, *_power_sources(plan))))
    summary, plant, elapsed = builder.build(), plan.plant, sum(map(_elapsed_s, results))
    judge = backlog_of if traffic.concurrency is None else _no_backlog
    backlogs = [judge(result.tasks, alone.longest_s) for result in results]
    rates = [
        _tasks_per_s(result, traffic, backlog) for result, backlog in zip(results, backlogs, strict=True)
    ]
    rate = sum(rates) / len(rates)
    return Fleet(
        summary=summary,
        traffic=traffic,
        alone=alone,
        tasks=len(tasks),
        tasks_per_h=rate * HOUR_S,
        mean_alive=sum(to_s(t.end_ns - t.start_ns) for t in tasks) / elapsed if elapsed else 0.0,
        peak_alive=max(map(peak_alive, results)),
        routing=plan.routing,
        chips=plant.chips if plant else None,
        quality=quality_of(results, objective) if objective else None,
        cost_usd=_cost_usd(plan, summary, rate),
        energy_j=plant.watts / rate if plant and plant.watts and rate else None,
        backlogs=tuple(backlog for backlog in backlogs if backlog is not None),
        loads=results[0].loads,
    )


def quality_of(results: Sequence[Result], objective: Objective) -> Quality:
    """Return how many tasks of all runs meet an objective."""
    tasks = [task for result in results for task in result.tasks]
    missed = [objective.missed(task) for task in tasks]
    by_part = Counter(part for parts in missed for part in parts)
    good = sum(not parts for parts in missed)
    shares = {part: by_part[part] / len(tasks) for part, _ in objective.bounds()}
    return Quality(objective, good / len(tasks), shares)


def _no_backlog(_tasks: Sequence[TaskOutcome], _alone_s: float) -> None:
    """A closed loop has no queue of agents."""


def _power_sources(plan: Plan) -> list[Source]:
    return [Source(u.name, u.basis, u.source) for u in (plan.plant.sources if plan.plant else ())]


def _elapsed_s(result: Result) -> float:
    return to_s(max(t.end_ns for t in result.tasks) - min(t.start_ns for t in result.tasks))


def _tasks_per_s(result: Result, traffic: Traffic, backlog: Backlog | None) -> float:
    """Tasks a second while the load is steady, or over the whole run where it never is.

    A closed loop is steady up to its last start: before that all tasks but one a user have ended. Arrivals
    by themselves are where they last long enough to tell; the first and last tasks to end are left out.
    """
    count, users = len(result.tasks), traffic.concurrency
    if users is not None and count >= STEADY_WAVES * users:
        late_s = traffic.ramp_s * (users - 1) / (2 * users)  # by how much a user begins late, on average
        starts = [task.start_ns for task in result.tasks]
        ended, seconds = count - users, max(to_s(max(starts) - min(starts)) - late_s, 0.0)
    elif backlog is not None and backlog.verdict != "untold":
        ends = sorted(to_s(task.end_ns) for task in result.tasks)
        edge = int(count * EDGE)
        ended, seconds = count - 1 - 2 * edge, ends[count - 1 - edge] - ends[edge]
    else:
        ended, seconds = count, _elapsed_s(result)
    return ended / seconds if seconds else 0.0


def peak_alive(result: Result) -> int:
    """Return the most agents that were alive at once; one that ends makes room for one that starts."""
    changes = [(task.start_ns, 1) for task in result.tasks] + [(task.end_ns, -1) for task in result.tasks]
    alive = peak = 0
    for _, change in sorted(changes):
        alive += change
        peak = max(peak, alive)
    return peak


def _cost_usd(plan: Plan, summary: Summary, tasks_per_s: float) -> float | None:
    if plan.token_prices is not None:
        return summary.cost_usd
    if plan.usd_per_s is None or not tasks_per_s:
        return None
    return plan.usd_per_s / tasks_per_s
