"""What the simulation needs, resolved and checked: the frozen join of a task and a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from agentsim.backends.base import CostModel
from agentsim.coexec.base import LinkCost, Stage
from agentsim.specs.sourced import UsedDatum
from agentsim.workflow.graph import Task


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """USD per token."""

    uncached: float
    cached: float
    output: float


class Routing(NamedTuple):
    """How many copies of a deployment there are, and how each call finds its own.

    The thresholds are the prefix-aware policy's (see `specs/router.py`); the others have none.
    """

    replicas: int = 1
    policy: str = "round_robin"
    least_match: float = 0.0
    calls_ahead: float = inf
    times_ahead: float = inf


ONE_COPY = Routing()


class Plant(NamedTuple):
    """The chips that a plan runs on, all replicas together, and the power that they are rated for.

    `watts` is None where a chip's is unknown; `sources` tell where it comes from.
    """

    chips: int
    watts: float | None
    sources: tuple[UsedDatum, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A task on a deployment, ready to simulate.

    `limit_tokens` is the smaller of the task's window and the model's. Prices are None where they are
    not known; `overrides` were set for this run alone;
    `pace_sigma` is the spread, as
    the sigma of its logarithm, of the tokens that speculation yields a step, from call to call.
    `unknown_parts` names the parts of a call's time
    that nobody has published: they count as zero, and times are lower bounds.
    """

    task: Task
    deployment: str
    title: str
    engines: Mapping[str, CostModel]
    links: Mapping[str, LinkCost]
    stages: tuple[Stage, ...]
    limit_tokens: int | None
    sources: tuple[UsedDatum, ...]
    usd_per_s: float | None = None
    token_prices: TokenPrices | None = None
    unknown_parts: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    asked_for: str = ""
    warnings: tuple[str, ...] = ()
    pace_sigma: float = 0.0
    routing: Routing = ONE_COPY
    workers: Mapping[str, int] = field(default_factory=dict)
    """How many engines of a name there are in each replica, where it is not one."""
    plant: Plant | None = None
    """None where nobody has said what it runs on: an endpoint, a recorded session."""
