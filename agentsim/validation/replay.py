"""One measured run through the simulator, whatever its kind; runs in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentsim.errors import AgentsimError, InfeasibleError
from agentsim.sim.closed_loop import Served
from agentsim.specs.sourced import Ledger
from agentsim.validation.disaggregated import serve_pools
from agentsim.validation.rows import Pools, Refusal, Run
from agentsim.validation.serving import cost_of, serve, times_of
from agentsim.validation.speculation import drafter_of


class Job(NamedTuple):
    """A run to simulate: with its model's drafter or without, on profiles of a folder or the catalog's.

    `pools` where prefill and decode had workers of their own.
    """

    run: Run
    speculates: bool = False
    profiles: str | None = None
    pools: Pools | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a run took in the simulator, in seconds: mean TTFT, median TPOT.

    `admitted` is how many sequences ran at once at the most, 0 where that was not looked at; `fitted_on`
    what the engines' constants were fitted on.
    """

    ttft_s: float
    tpot_s: float
    requests: int
    admitted: int
    fitted_on: tuple[str, ...]


def replay(job: Job) -> Replayed | Refusal:
    """Simulate one run, or say why it cannot be."""
    ledger = Ledger()
    try:
        served, admitted = _served(job, ledger)
    except AgentsimError as bad:
        infeasible = isinstance(bad, InfeasibleError)
        reason = "the engine could not run it" if infeasible else "the catalog lacks what it needs"
        return Refusal(job.run.line, reason, str(bad))
    return Replayed(*times_of(served, job.run), len(served), admitted, ledger.fitted_on())


def _served(job: Job, ledger: Ledger) -> tuple[list[Served], int]:
    """Return the requests, and how many ran at once."""
    drafter = drafter_of(job.run) if job.speculates else None
    cost = cost_of(job.run, drafter, job.profiles, ledger)
    if job.pools is None:
        return serve(cost, job.run)
    prefill = cost_of(job.pools.prefill, None, job.profiles, ledger)
    return serve_pools(prefill, cost, job.run, job.pools), 0
