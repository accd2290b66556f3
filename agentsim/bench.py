"""Public speed benchmarks, replayed by the simulation on any deployment.

A protocol is a task: sub-agents with contexts of their own start one after another, and each makes one
call. No prompt is like another, so that nothing is cached. Speed is what comes after the first token
over the time after it, in the protocol's tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agentsim.backends.base import Batch, IterationCost
from agentsim.backends.lpx.cost import LpxCost
from agentsim.compile import compile_plan
from agentsim.errors import AgentsimError, InputError, unknown_name
from agentsim.plan import Plan
from agentsim.result import Spread, Turn, percentile
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.specs.anchor import Protocol, Size, load_anchors
from agentsim.specs.sourced import Ledger
from agentsim.units import to_s
from agentsim.workflow.graph import build_task
from agentsim.workflow.schema import Workflow

SCHEMA = "agentsim.bench/1"
RUNS = 20
"""Runs over consecutive seeds: the spread between requests would show in the median of one."""
P80 = 0.8
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One size of request: tokens/s of every request, and what else the simulation saw of them.

    `tokens_per_step` is each request's yield of a speculative step; empty without speculation. `step_s` is
    a step halfway through a request, `floor_s` what a static schedule has of it.
    `problem` says why it was not run, where it was not.
    """

    size: Size
    speeds: tuple[float, ...] = ()
    tokens_per_step: tuple[float, ...] = ()
    ttft_s: tuple[float, ...] = ()
    step_s: float | None = None
    floor_s: float | None = None
    problem: str = ""

    def speed(self, share: float = 0.5) -> float:
        """Return the speed that `share` of the requests stay under. Precondition: it was run."""
        return percentile(sorted(self.speeds), share)

    def yield_of(self, share: float = 0.5) -> float:
        """Return the tokens a step that `share` of the requests stay under; 1 without speculation."""
        return percentile(sorted(self.tokens_per_step), share) if self.tokens_per_step else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the case as plain data; None where it was not run."""
        speeds = Spread.of(self.speeds)
        return {
            "input_tokens": self.size.input_tokens,
            "output_tokens": self.size.output_tokens,
            "requests": len(self.speeds),
            "output_tokens_per_s": {**asdict(speeds), "p80": self.speed(P80)} if speeds else None,
            "tokens_per_step": _spread(self.tokens_per_step),
            "ttft_s": _spread(self.ttft_s),
            "step_s": self.step_s,
            "floor_s": self.floor_s,
            "problem": self.problem or None,
        }


@dataclass(frozen=True, slots=True)
class Bench:
    """A protocol on a deployment. `text` is the kind of text that drafts were taken for."""

    name: str
    protocol: Protocol
    plan: Plan
    text: str | None
    seeds: Sequence[int]
    cases: tuple[Case, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `bench --format json` prints."""
        return {
            "schema": SCHEMA,
            "protocol": self.name,
            "deployment": self.plan.deployment,
            "title": self.plan.title,
            "text": self.text,
            "token_ratio": self.protocol.token_ratio.value,
            "seed": self.seeds[0],
            "runs": len(self.seeds),
            "lower_bound": bool(self.plan.unknown_parts),
            "cases": [case.to_json() for case in self.cases],
        }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    spread = Spread.of(values)
    return asdict(spread) if spread else None


def protocol_named(name: str) -> Protocol:
    """Return a protocol; `UnknownNameError` with those there are."""
    protocols = load_anchors().protocols
    if name not in protocols:
        raise unknown_name("protocol", name, protocols)
    return protocols[name]


def run_bench(name: str, deployment: str, seeds: Sequence[int], done: Step = lambda: None) -> Bench:
    """Run a protocol on what `--on` names. A size that does not fit is told, unless none does."""
    if not seeds:
        raise InputError("a benchmark needs at least one run")
    protocol = protocol_named(name)
    plan, text = bench_plan(protocol, deployment)
    cases = tuple(_case(plan, protocol, size, seeds, done) for size in sizes_of(protocol))
    if all(case.problem for case in cases):
        raise InputError(f"{deployment}: {cases[0].problem}")
    return Bench(name, protocol, plan, text, seeds, cases)


def sizes_of(protocol: Protocol) -> tuple[Size, ...]:
    """Return the sizes of a protocol's requests."""
    return Ledger().take(protocol.sizes)


def bench_plan(protocol: Protocol, deployment: str) -> tuple[Plan, str | None]:
    """Return the plan of a protocol's first size, and the kind of text that drafts are taken for."""
    text = _text_for(protocol.text, deployment)
    overrides = [f"speculation.text={text}"] if text else []
    return compile_plan(_requests(protocol, sizes_of(protocol)[0]), deployment, overrides), text


def _text_for(wanted: str, deployment: str) -> str | None:
    """The protocol's kind of text where the drafter knows it, else the deployment's; None without drafts.

    A kind such as `code-fp4` is `code`, too.
    """
    _, document = catalog.deployment_document(deployment)
    choice = document.data.get("speculation") if isinstance(document.data, dict) else None
    if not isinstance(choice, dict):
        return None
    own = str(choice.get("text", "code"))
    if own == wanted or own.startswith(f"{wanted}-"):
        return own
    return wanted if wanted in _kinds(str(choice.get("drafter")), os.path.dirname(document.name)) else own


def _kinds(drafter: str, near: str) -> Sequence[str]:
    from agentsim.specs.model import Model  # an endpoint needs none of its schemas

    drafting = catalog.load(Model, drafter, near).drafting
    return tuple(drafting.acceptance) if drafting else ()


def _case(plan: Plan, protocol: Protocol, size: Size, seeds: Sequence[int], done: Step) -> Case:
    try:
        return run_case(plan, protocol, size, seeds, done)
    except AgentsimError as problem:
        return Case(size, problem=str(problem))


def run_case(
    plan: Plan, protocol: Protocol, size: Size, seeds: Sequence[int], done: Step = lambda: None
) -> Case:
    """Run all requests of one size, once for each seed."""
    plan = replace(plan, task=build_task(_requests(protocol, size)))
    turns: list[Turn] = []
    for seed in seeds:
        turns += simulate(plan, seed).turns
        done()
    ratio, (step, floor) = Ledger().take(protocol.token_ratio), _step_times(plan, turns)
    return Case(
        size,
        speeds=tuple(ratio * (turn.output - 1) / to_s(turn.decode_ns) for turn in turns),
        tokens_per_step=tuple(_yields(plan, turns)),
        ttft_s=tuple(to_s(turn.ttft_ns) for turn in turns),
        step_s=step,
        floor_s=floor,
    )


def _yields(plan: Plan, turns: Sequence[Turn]) -> list[float]:
    """Tokens that a step of each request yielded; empty where there is no one engine that drafts."""
    cost = only_engine(plan)
    if cost is None or cost.verified_tokens == 1:
        return []
    return [(turn.output - 1) * step_s(cost, _halfway(turn)) / to_s(turn.decode_ns) for turn in turns]


def _step_times(plan: Plan, turns: Sequence[Turn]) -> tuple[float | None, float | None]:
    """A step halfway through a request, and its schedule's share where the engine is of LPUs."""
    cost = only_engine(plan)
    if cost is None:
        return None, None
    context = _halfway(turns[0])
    return step_s(cost, context), floor_s(cost, context)


def _halfway(turn: Turn) -> float:
    return turn.prompt + turn.output / 2


def only_engine(plan: Plan) -> IterationCost | None:
    """Return the engine of a plan that has one, and None for a service or several engines."""
    cost = next(iter(plan.engines.values()))
    return cost if len(plan.engines) == 1 and isinstance(cost, IterationCost) else None


def step_s(cost: IterationCost, context: float) -> float:
    """Return the seconds of a decode step of one sequence at a context."""
    return cost.iteration_s(alone(cost, context))


def alone(cost: IterationCost, context: float) -> Batch:
    """Return the batch of one sequence that decodes alone at a context."""
    return Batch(1, context, min(context, cost.window_tokens) if cost.window_tokens else 0.0)


def floor_s(cost: IterationCost, context: float) -> float | None:
    """Return a step's seconds as scheduled, without calibrated overhead; None where nothing is scheduled."""
    return cost.floor_s(alone(cost, context)) if isinstance(cost, LpxCost) else None


def _requests(protocol: Protocol, size: Size) -> Workflow:
    """Return the task of a protocol: requests one after another, each with a context of its own."""
    ledger = Ledger()
    ratio = ledger.take(protocol.token_ratio)
    tokens_in, tokens_out = (max(round(n / ratio), 1) for n in (size.input_tokens, size.output_tokens))
    request = {
        "name": "request",
        "context": "fresh",
        "system_tokens": 0,
        "task_tokens": tokens_in,
        "steps": [{"generate": {"tokens": max(tokens_out, 2)}}],
    }
    again = {"times": ledger.take(protocol.requests), "steps": [{"agents": [request]}]}
    return Workflow.model_validate({"name": "benchmark", "steps": [{"repeat": again}]})
