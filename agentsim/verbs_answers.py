"""What the verbs do that answer beyond one run, without the command line: bands, claims, sensitivity.

Returns data; prints nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from agentsim.claims import HOURS_TO_MINUTES, Claim, Verdict, parse_claim
from agentsim.compare import Comparison, compare
from agentsim.errors import ImportFormatError, InputError
from agentsim.levers import DECODE, Bound, evaluations, solve
from agentsim.plan import Plan
from agentsim.pool import Step
from agentsim.sensitivity import Tornado, tornado
from agentsim.sensitivity import evaluations as bars_of
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.uncertainty import sampled, uncertainty_of
from agentsim.units import parse
from agentsim.variation import Study, study_of
from agentsim.verbs import check_deployments, compare_deployments, deployment_overrides, plans, workflow_of
from agentsim.workflow.scale import levers_of

if TYPE_CHECKING:
    from agentsim.population import Population

Progress = Callable[[str, int], Any]
"""Opens a bar: what is done, in how many steps; yields the step."""

DEFAULT_PAIRS = {
    "time": ("coding-tool", "lpx"),
    "tokens": ("coding-tool", "lpx"),
    "power": ("8xb200", "lpx"),
}
"""Today's tool, or of claims about power GPUs whose watts are published, and the rack that is claimed for."""
SOLVED = ("tools", "turns", "output")
"""The levers of a task that a claim is solved for."""


def study(workflow: str, deployments: Sequence[str], overrides: Sequence[str]) -> Study:
    """Return the study of a workflow file on deployments."""
    return study_of(workflow_of(workflow, overrides), deployments, deployment_overrides(overrides))


def with_bands(
    comparison: Comparison,
    found: Study,
    claim: Claim,
    samples: int,
    seed: int,
    step: Step,
) -> Comparison:
    """Return a comparison with the bands over `samples` draws of the uncertain data."""
    names = dict(zip((c.first.deployment for c in comparison.columns), found.deployments, strict=True))
    outcomes = sampled(found, samples, seed, step)
    fastest = names[comparison.verdict.fastest]
    return replace(comparison, uncertainty=uncertainty_of(found, claim, fastest, outcomes, seed))


def compare_workflow(
    workflow: str,
    deployments: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    samples: int,
    progress: Progress,
) -> Comparison:
    """Compare deployments over the seeds, and over `samples` draws of what is uncertain about them."""
    with progress("simulating", len(seeds) * (len(deployments) + 1)) as step:
        comparison = compare_deployments(workflow, deployments, seeds, overrides, step)
    if not samples:
        return comparison
    found = study(workflow, deployments, overrides)
    with progress("drawing", samples) as step:
        return with_bands(comparison, found, HOURS_TO_MINUTES, samples, seeds[0], step)


def compare_any(
    path: str,
    deployments: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    samples: int,
    idle_over: str | None,
    progress: Progress,
) -> Comparison | Population:
    """Compare deployments on a workflow file, or on the recorded sessions of a log or a folder."""
    if not is_workflow(path):
        if samples:
            raise InputError(
                "compare: --uncertainty draws for a workflow; recorded sessions are run as they are"
            )
        return compare_sessions(path, deployments, overrides, seeds[0], idle_over, progress)
    if idle_over is not None:
        raise InputError(
            "compare: --idle-over is for recorded sessions; a workflow says what is a person's wait"
        )
    return compare_workflow(path, deployments, seeds, overrides, samples, progress)


def is_workflow(path: str) -> bool:
    """Tell whether a path names a workflow file: one that ends in .yaml, or has steps and is no log."""
    if os.path.isdir(path) or path.endswith((".yaml", ".yml")):
        return not os.path.isdir(path)
    from agentsim.importers.base import head_of, importer_of

    try:
        importer_of(path)
    except ImportFormatError:
        return os.path.isfile(path) and b"steps:" in head_of(path)
    return False


def compare_sessions(
    path: str,
    deployments: Sequence[str],
    overrides: Sequence[str],
    seed: int,
    idle_over: str | None,
    progress: Progress,
) -> Population:
    """Run every session of a log or of a folder on every deployment."""
    from agentsim.importers._folder import Walk
    from agentsim.importers.base import telling_bytes
    from agentsim.population import bare_plan, population_of
    from agentsim.verbs_logs import recorded_at, size_of_large, steps_at

    check_deployments(deployments)
    theirs = deployment_overrides(overrides)
    if len(theirs) < len(overrides):
        raise InputError("compare: recorded sessions have no fields to --set, only deployment.… has")
    idle_s, walk = None if idle_over is None else _duration("--idle-over", idle_over), Walk()
    for name in deployments:
        bare_plan(name, tuple(theirs))  # a wrong name is told before much is read
    with (
        progress("reading", steps_at(path)) as step,
        telling_bytes(step) if size_of_large(path) else nullcontext(),
    ):
        sessions = list(recorded_at(path, walk, None, step if os.path.isdir(path) else lambda: None))
    with progress("simulating", len(sessions)) as step:
        found = population_of(path, sessions, deployments, theirs, HOURS_TO_MINUTES, seed, idle_s, step)
    passed_over = {reason: len(places) for reason, places in walk.passed_over.items()}
    return replace(found, passed_over=passed_over, overrides=tuple(overrides))


def _duration(option: str, text: str) -> float:
    try:
        return parse(text, "time")
    except ValueError as problem:
        raise InputError(f"{option}: {problem}") from None


def sensitivity(
    workflow: str,
    deployments: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    progress: Progress,
) -> Tornado:
    """Rank what moves the task time on one deployment, or the speed-up of the second over the first."""
    if len(deployments) > 2:
        raise InputError("sensitivity: give --on once, or twice for the speed-up of the second")
    if len(set(deployments)) < len(deployments):
        raise InputError(f"sensitivity: --on {deployments[0]} is given twice")
    compiled = plans(workflow, deployments, overrides)
    found = study(workflow, deployments, overrides)
    with progress("moving one at a time", bars_of(found, compiled[0])) as step:
        return tornado(found, compiled[0], seeds, step)


@dataclass(frozen=True, slots=True)
class Power:
    """Watts of all chips together, or None; `told` says what they are of, or why nobody knows."""

    watts: float | None
    told: str


def power_of(plan: Plan) -> Power:
    """Return the power that a plan's chips are rated for."""
    plant = plan.plant
    if plant is None:
        return Power(None, "what runs behind it is not published")
    if plant.watts is None:
        return Power(None, "; ".join(used.source for used in plant.sources if used.basis == "unknown"))
    return Power(plant.watts, f"{plant.chips} chips as rated, without hosts and cooling")


@dataclass(frozen=True)
class Judged:
    """A claim held against one workflow: runs, bands where they were asked for, and what would turn it.

    `holds` is None where a number that it needs is not published; `power` are the watts of base and other,
    and `watts_bound` what the other may draw at most, where the claim is one of power.
    """

    claim: Claim
    workflow: str
    path: str
    comparison: Comparison
    holds: bool | None
    bounds: tuple[Bound, ...]
    power: tuple[Power, Power] | None = None
    rate_ratio: float | None = None
    watts_bound: float | None = None

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict

    def to_json(self) -> dict[str, Any]:
        """Return one entry of the list that `claim --format json` prints."""
        verdict, bands = self.verdict, self.comparison.uncertainty
        return {
            "claim": asdict(self.claim) | {"below_s": _finite(self.claim.below_s)},
            "workflow": self.workflow,
            "base": self.comparison.columns[0].first.deployment,
            "other": verdict.fastest,
            "holds": self.holds,
            "verdict": verdict.to_json(),
            "uncertainty": bands.to_json() if bands else None,
            "would_turn_it": [asdict(bound) for bound in self.bounds],
            "power": [asdict(power) for power in self.power] if self.power else None,
            "tokens_per_watt_ratio": self.rate_ratio,
            "other_watts_at_most": self.watts_bound,
        }


def _finite(number: float) -> float | None:
    return number if number < float("inf") else None


def judge(
    text: str,
    workflows: Sequence[str],
    deployments: Sequence[str],
    seeds: Sequence[int],
    overrides: Sequence[str],
    samples: int,
    progress: Progress,
) -> list[Judged]:
    """Hold a claim against workflow files, the first deployment as the base of the second."""
    claim = parse_claim(text)
    pair = tuple(deployments) or DEFAULT_PAIRS[claim.kind]
    if len(pair) != 2 or pair[0] == pair[1]:
        raise InputError("claim: give --on twice: what is claimed to be slower, and what to be faster")
    return [_judged(claim, path, pair, seeds, overrides, samples, progress) for path in workflows]


def _judged(
    claim: Claim,
    path: str,
    pair: tuple[str, ...],
    seeds: Sequence[int],
    overrides: Sequence[str],
    samples: int,
    progress: Progress,
) -> Judged:
    compiled = plans(path, pair, overrides)
    with progress("simulating", 3 * len(seeds)) as step:
        comparison = compare(compiled, simulate, seeds, step, claim)
    found = study(path, pair, overrides)
    if samples:
        with progress("drawing", samples) as step:
            comparison = with_bands(comparison, found, claim, samples, seeds[0], step)
    if claim.kind == "power":
        return _judged_power(claim, path, compiled, comparison)
    levers = _levers(claim, compiled)
    with progress("solving", evaluations(levers)) as step:
        bounds = solve(found, claim, seeds, levers, step) if levers else []
    holds = comparison.verdict.holds
    if claim.kind == "tokens":
        holds = (comparison.verdict.token_speed_ratio or 0.0) >= claim.factor
    return Judged(claim, compiled[0].task.name, path, comparison, holds, tuple(bounds))


def _levers(claim: Claim, compiled: Sequence[Plan]) -> list[str]:
    """The levers of the task, and the token speed where the other has one that can be made faster."""
    speed = [] if compiled[1].deployment == catalog.RECORDED else [DECODE]
    if claim.kind == "tokens":
        return speed
    there = levers_of(compiled[0].task)
    return [lever for lever in SOLVED if lever in there] + speed


def _judged_power(claim: Claim, path: str, compiled: Sequence[Plan], comparison: Comparison) -> Judged:
    """Tokens per second and watt of one agent that has the machine to itself, where the watts are known."""
    base, other = map(power_of, compiled)
    speeds = comparison.verdict.token_speed_ratio
    ratio = speeds * base.watts / other.watts if speeds and base.watts and other.watts else None
    bound = speeds * base.watts / claim.factor if speeds and base.watts else None
    name = comparison.columns[0].first.workflow
    holds = None if ratio is None else ratio >= claim.factor
    return Judged(claim, name, path, comparison, holds, (), (base, other), ratio, bound)
