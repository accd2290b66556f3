"""A measured run's engine, its load, and its requests on the real engine server.

The number of requests is the harness's per user, at least `LEAST`; over `MANY` users it is as many as
`MANY` users send, at least four a user, and the first request of each user, which meets those of all others,
counts for its share of what the harness sends. Lengths come from a seed of the load
alone, so a run gives the same times wherever it stands in a file and whoever simulates it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from agentsim import seeds
from agentsim.backends.base import Drafter, EngineParts, IterationCost
from agentsim.backends.gpu.cost import GpuCost, compile_gpu
from agentsim.errors import InfeasibleError
from agentsim.sim.clock import Clock
from agentsim.sim.closed_loop import Served, closed_loop
from agentsim.sim.server import EngineServer
from agentsim.specs.deployment import Engine, PrecisionChoice
from agentsim.specs.hardware import Precision
from agentsim.specs.harness import Harness, Settings, load_harnesses
from agentsim.specs.sourced import Ledger
from agentsim.validation.names import load_chip, load_model, software_of
from agentsim.validation.rows import Run
from agentsim.validation.settings import batched_tokens, settings_of

LEAST, MANY, FEW_ROUNDS = 24, 256, 4
TOKEN_WEIGHT = 1 / 50
"""Cost of a simulated output token, in requests."""


def times_of(served: Sequence[Served], run: Run) -> tuple[float, float]:
    """Return mean TTFT and median TPOT, which measured columns agree with; one output is over 1 token."""
    per_user = _value(load_harnesses().harnesses[run.harness].requests_per_user)
    first = [s.ttft_s for s in served if s.first]
    later = [s.ttft_s for s in served if not s.first] or first
    ttft_s = (fmean(first) + (per_user - 1) * fmean(later)) / per_user
    return ttft_s, median(s.tpot_s for s in served if s.tpot_s)


def serve(cost: IterationCost, run: Run) -> tuple[list[Served], int]:
    """Return a run's requests on an engine of this cost, and how many sequences ran at once at the most.

    Raises `InfeasibleError` where a request cannot fit.
    """
    servers: list[EngineServer] = []

    def server_on(env: Clock) -> EngineServer:
        servers.append(EngineServer(env, cost))
        return servers[0]

    served = closed_loop(server_on, run.concurrency, requests_of(run))
    return served, servers[0].peak_sequences


def requests_of(run: Run) -> list[tuple[int, int]]:
    """Return (prompt, output) of every request of a run, in the order in which they are sent."""
    harness = load_harnesses().harnesses[run.harness]
    return loads(harness, run.input_tokens, run.output_tokens, run.concurrency)


def loads(harness: Harness, input_tokens: int, output_tokens: int, users: int) -> list[tuple[int, int]]:
    """Return (prompt, output) of every request of a harness with these labels."""
    shortest, per_user = _value(harness.shortest), _value(harness.requests_per_user)
    draw = seeds.stream(0, input_tokens, output_tokens, users)

    def length(label: int, least: int) -> int:
        low = int(label * shortest)
        return max(low + int(draw() * (label - low + 1)), least)

    count = request_count(users, per_user)
    return [(length(input_tokens, 1), length(output_tokens, 2)) for _ in range(count)]


def weight_of(run: Run) -> float:
    """Return what a run costs to simulate beside others; longer outputs meet more changes of the batch."""
    return run.concurrency * (1 + TOKEN_WEIGHT * run.output_tokens)


def request_count(users: int, per_user: int) -> int:
    """Return how many requests are simulated; see the module."""
    if users > MANY:
        return max(FEW_ROUNDS * users, per_user * MANY)
    return max(per_user * users, LEAST)


def cost_of(run: Run, drafter: Drafter | None, profiles: str | None, ledger: Ledger) -> GpuCost:
    """Return the cost model of a run's engine. Raises `AgentsimError` where there is none.

    The token budget is the harness's where it sets one. A harness starts an engine so that it may run all
    users at once; memory may hold fewer.
    """
    parts = EngineParts(
        load_model(run.model), load_chip(run.gpu), engine_of(run, profiles), drafter, ledger, ""
    )
    cost = compile_gpu(parts)
    budget = batched_tokens(run)
    cost = replace(cost, max_sequences=max(cost.max_sequences, run.concurrency))
    return cost if budget is None else replace(cost, batched_tokens=budget * run.attention_dp)


def own_profile(folder: str, software: str, gpu: str) -> str:
    """Return the path of a profile in a folder that comes before the catalog's."""
    return os.path.join(folder, f"{software}-{gpu}.yaml")


def engine_of(run: Run, profiles: str | None = None) -> Engine:
    """Return the engine that a run describes. Raises `InfeasibleError` for a format that no engine has."""
    software, settings = software_of(run.engine, run.version, run.gpu, run.kind), settings_of(run)
    own = own_profile(profiles, software, run.gpu) if profiles is not None else ""
    return Engine(
        hardware=run.gpu,
        chips=run.chips,
        precision=_formats(run, settings.kv or "bf16"),
        software=own if os.path.isfile(own) else software,
        attention_dp=run.attention_dp,
        expert_parallel=run.expert_parallel,
        receive_interval=settings.receive_interval or 1,
        balance_wait=settings.balance_wait if run.attention_dp > 1 else None,
        **_batch_wait(settings) if run.attention_dp == 1 else {},
    )


def _batch_wait(settings: Settings) -> dict[str, Any]:
    if settings.batch_wait is None:
        return {}
    return {"batch_wait": settings.batch_wait, "batch_wait_share": settings.batch_wait_share or 1.0}


def _formats(run: Run, kv: Precision) -> PrecisionChoice:
    try:
        return PrecisionChoice(weights=run.precision, kv=kv)
    except ValueError:
        raise InfeasibleError(f"no engine is known with {run.precision} weights") from None


def _value(datum: Any) -> Any:
    """Return the value of a datum of the harnesses; none of them is unknown."""
    return datum.value
