"""A measured run replayed on the real engine server.

The number of requests is the harness's per user, at least `LEAST`; over `MANY` users it is as many as
`MANY` users send, at least four a user: by then the mean has settled. Lengths come from a seed of the load
alone, so a run gives the same times wherever it stands in a file and whoever simulates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from agentsim import plugins, seeds
from agentsim.backends.base import Drafter, EngineParts, IterationCost
from agentsim.errors import AgentsimError, InfeasibleError
from agentsim.sim.closed_loop import Served, closed_loop
from agentsim.sim.server import EngineServer
from agentsim.specs.deployment import Engine, PrecisionChoice
from agentsim.specs.harness import Harness, load_harnesses
from agentsim.specs.sourced import Ledger
from agentsim.validation.names import load_chip, load_model
from agentsim.validation.rows import Refusal, Run

LEAST, MANY, FEW_ROUNDS = 24, 256, 4


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a run took in the simulator, in seconds. The measured times are a median TPOT and a mean TTFT."""

    ttft_s: float
    tpot_s: float
    requests: int

    @staticmethod
    def of(served: Sequence[Served]) -> Replayed:
        """Return the summary of requests; there is at least one of two tokens or more."""
        tpots = [s.tpot_s for s in served if s.tpot_s]
        return Replayed(fmean(s.ttft_s for s in served), median(tpots), len(served))


def replay(run: Run, drafter: Drafter | None = None) -> Replayed | Refusal:
    """Simulate one run, with a drafter where it is taken to have had one; or say why it cannot be."""
    try:
        return replay_on(cost_of(run, drafter), run)
    except AgentsimError as bad:
        return refusal_of(run, bad)


def refusal_of(run: Run, bad: AgentsimError) -> Refusal:
    """Return the refusal of a run that the simulator has no answer for."""
    kind = "does not fit" if isinstance(bad, InfeasibleError) else "the catalog lacks what it needs"
    return Refusal(run.line, kind, str(bad))


def replay_on(cost: IterationCost, run: Run) -> Replayed:
    """Simulate one run on an engine of this cost. Raises `InfeasibleError` where a request cannot fit."""
    loads = requests_of(run)
    return Replayed.of(closed_loop(lambda env: EngineServer(env, cost), run.concurrency, loads))


def requests_of(run: Run) -> list[tuple[int, int]]:
    """Return (prompt, output) of every request of a run, in the order in which they are sent."""
    harness = load_harnesses()[run.harness]
    shortest, per_user = _value(harness.shortest), _value(harness.requests_per_user)
    draw = seeds.stream(0, run.input_tokens, run.output_tokens, run.concurrency)

    def length(label: int, least: int) -> int:
        low = int(label * shortest)
        return max(low + int(draw() * (label - low + 1)), least)

    count = request_count(run.concurrency, per_user)
    return [(length(run.input_tokens, 1), length(run.output_tokens, 2)) for _ in range(count)]


def request_count(users: int, per_user: int) -> int:
    """Return how many requests are simulated; see the module."""
    if users > MANY:
        return max(FEW_ROUNDS * users, per_user * MANY)
    return max(per_user * users, LEAST)


def cost_of(run: Run, drafter: Drafter | None = None) -> IterationCost:
    """Return the cost model of a run's engine. Raises `AgentsimError` where there is none.

    The token budget is the harness's where it sets one.
    """
    parts = EngineParts(load_model(run.model), load_chip(run.gpu), engine_of(run), drafter, Ledger(), "")
    cost: IterationCost = plugins.load("backends", "gpu")(parts)
    budget = load_harnesses()[run.harness].batched_tokens.get(run.engine)
    return replace(cost, batched_tokens=_value(budget)) if budget is not None else cost  # type: ignore[type-var]


def engine_of(run: Run) -> Engine:
    """Return the engine that a run describes. Raises `InfeasibleError` for a format that no engine has."""
    known = Engine.model_fields
    more = {"attention_dp": run.attention_dp, "expert_parallel": run.expert_parallel}
    lacking = [name for name, ways in more.items() if ways > 1 and name not in known]
    if lacking:
        raise InfeasibleError(f"an engine has no {lacking[0]}")
    return Engine(
        hardware=run.gpu,
        chips=run.chips,
        precision=_formats(run, load_harnesses()[run.harness]),
        software=run.engine,
        **{name: ways for name, ways in more.items() if name in known},
    )


def _formats(run: Run, harness: Harness) -> PrecisionChoice:
    kv = harness.kv.get(run.engine)
    narrow = run.precision in ("fp8", "fp4")
    formats = {"weights": run.precision, "kv": _value(kv) if kv is not None and narrow else "bf16"}
    try:
        return PrecisionChoice(**formats)
    except ValueError:
        raise InfeasibleError(f"no engine is known with {run.precision} weights") from None


def _value(datum: Any) -> Any:
    """Return the value of a datum of the harnesses; none of them is unknown."""
    return datum.value
