"""The same task on the same deployments with something changed: data of the catalog, or levers of the task.

A `Variation` says what is changed, a `Study` what it is changed in; an `Outcome` is what came of it on
one deployment. Uncertainty, sensitivity and the levers of a claim are all many variations of one study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsim.backends.base import Batch, IterationCost, ServiceTime
from agentsim.backends.recorded import ReplayCost
from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError, SpecError
from agentsim.plan import Plan
from agentsim.pool import Step, spread
from agentsim.result import Part, Result
from agentsim.sim.engine import simulate
from agentsim.specs.ranges import drawn, is_uncertain
from agentsim.specs.sourced import Datum
from agentsim.units import to_s
from agentsim.workflow.scale import UNMOVED, Levers, scaled
from agentsim.workflow.schema import Workflow

Shares = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Variation:
    """Shares at which data take their values (`specs.ranges`), levers, and the seeds to run.

    `decode` is how many times faster the deployment called `faster` decodes.
    """

    seeds: tuple[int, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    levers: Levers = UNMOVED
    decode: float = 1.0
    faster: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a variation came to on one deployment, seed by seed (s); `problem` says why it cannot be had.

    The rest are means of a task: seconds of tools and files on its critical path, of the network, calls,
    tokens written, and the seconds that all decoding took.
    """

    completion_s: tuple[float, ...] = ()
    tools_s: float = 0.0
    network_s: float = 0.0
    model_calls: float = 0.0
    output_tokens: float = 0.0
    decode_s: float = 0.0
    problem: str = ""

    @property
    def token_speed(self) -> float | None:
        """Tokens per second while decoding."""
        return self.output_tokens / self.decode_s if self.decode_s else None


@dataclass(frozen=True)
class Study:
    """A workflow on deployments. `uses` are the uncertain data that each reads, by name."""

    workflow: Workflow
    deployments: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    uses: Mapping[str, Mapping[str, Datum[Any]]] = field(default_factory=dict)

    def data(self) -> dict[str, Datum[Any]]:
        """Return every uncertain datum once, in the order of the deployments."""
        return {name: datum for used in self.uses.values() for name, datum in used.items()}

    def outcomes(self, variations: Sequence[Variation], step: Step = lambda: None) -> list[list[Outcome]]:
        """Return, for every variation, its outcome on every deployment; `step` is called for each one."""
        return spread(Runner(self), variations, step)


def study_of(workflow: Workflow, deployments: Sequence[str], overrides: Sequence[str] = ()) -> Study:
    """Return the study of a workflow on deployments; `overrides` are of the deployments alone."""
    uses = {name: uncertain_data(compile_plan(workflow, name, overrides)) for name in deployments}
    return Study(workflow, tuple(deployments), tuple(overrides), uses)


def uncertain_data(plan: Plan) -> dict[str, Datum[Any]]:
    """Return the data of a plan that have a range or a spread, by name."""
    data = (used.datum for used in plan.sources)
    return {datum.name: datum for datum in data if datum is not None and is_uncertain(datum)}


class Runner:
    """Runs variations of one study; compiles and runs again only what a variation changes."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.compiled: dict[tuple[str, Shares], Plan] = {}
        self.known: dict[tuple[Any, ...], Outcome] = {}

    def __reduce__(self) -> tuple[type[Runner], tuple[Study]]:
        """Leave behind what was compiled: a plan stays in its process."""
        return Runner, (self.study,)

    def __call__(self, variation: Variation) -> list[Outcome]:
        return [self._known(name, variation) for name in self.study.deployments]

    def _known(self, name: str, variation: Variation) -> Outcome:
        decode = variation.decode if name == variation.faster else 1.0
        key = name, self._shares(name, variation), variation.levers, decode, variation.seeds
        if key not in self.known:
            self.known[key] = self._outcome(name, variation)
        return self.known[key]

    def _shares(self, name: str, variation: Variation) -> Shares:
        """Return the shares of the data that a deployment reads."""
        used = self.study.uses.get(name, {})
        return tuple((datum, share) for datum, share in variation.shares.items() if datum in used)

    def _outcome(self, name: str, variation: Variation) -> Outcome:
        try:
            plan = self._plan(name, variation)
            plan = replace(plan, task=scaled(plan.task, variation.levers))
            if name == variation.faster:
                plan = with_faster_decode(plan, variation.decode)
            return _outcome_of([simulate(plan, seed, detail="summary") for seed in variation.seeds])
        except InfeasibleError as bad:
            return Outcome(problem=str(bad))
        except SpecError as bad:
            if not variation.shares:
                raise
            return Outcome(problem=str(bad))  # data that do not go together, such as trays and chips

    def _plan(self, name: str, variation: Variation) -> Plan:
        key = name, self._shares(name, variation)
        if key not in self.compiled:
            if key[1]:
                self.compiled = {k: p for k, p in self.compiled.items() if not k[1]}
            ledger = drawn(dict(key[1]))
            self.compiled[key] = compile_plan(self.study.workflow, name, self.study.overrides, ledger)
        return self.compiled[key]


def _outcome_of(results: Sequence[Result]) -> Outcome:
    tasks = [task for result in results for task in result.tasks]
    count = len(tasks)
    return Outcome(
        completion_s=tuple(to_s(task.completion_ns) for task in tasks),
        tools_s=to_s(sum(t.parts_ns[Part.TOOL] + t.parts_ns[Part.FILE] for t in tasks)) / count,
        network_s=to_s(sum(t.parts_ns[Part.NETWORK] for t in tasks)) / count,
        model_calls=sum(t.model_calls for t in tasks) / count,
        output_tokens=sum(t.output_tokens for t in tasks) / count,
        decode_s=to_s(sum(t.decode_ns for t in tasks)) / count,
    )


def with_faster_decode(plan: Plan, times: float) -> Plan:
    """Return the plan with decoding that is `times` faster, and prefill as it was."""
    return replace(plan, engines={name: _faster(cost, times) for name, cost in plan.engines.items()})


def _faster(cost: Any, times: float) -> Any:
    if isinstance(cost, ReplayCost):
        raise InfeasibleError("recorded durations have no decode speed of their own")
    return _FasterIterations(cost, times) if isinstance(cost, IterationCost) else _FasterCalls(cost, times)


@dataclass(frozen=True, slots=True)
class _FasterCalls:
    """A service that decodes `times` faster."""

    cost: Any
    times: float

    @property
    def cache_lifetime_s(self) -> float | None:
        found: float | None = self.cost.cache_lifetime_s
        return found

    def call(self, uncached_tokens: int, cached_tokens: int, output_tokens: int) -> ServiceTime:
        time: ServiceTime = self.cost.call(uncached_tokens, cached_tokens, output_tokens)
        return time._replace(decode_s=time.decode_s / self.times)


class _FasterIterations:
    """An engine whose iterations without prefill take 1/`times` as long."""

    def __init__(self, cost: IterationCost, times: float) -> None:
        self._cost, self._times = cost, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cost, name)

    def iteration_s(self, batch: Batch) -> float:
        time = self._cost.iteration_s(batch)
        return time if batch.prefill_tokens or not batch.sequences else time / self._times
