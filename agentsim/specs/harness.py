"""How serving measurements were taken: lengths of requests, how many, and settings of the engines.

All of them live in `specs/harnesses`.
"""

from __future__ import annotations

import os
from functools import cache

from pydantic import Field

from agentsim.fields import (
    BytesPerSecond,
    Count,
    Efficiency,
    Line,
    Positive,
    PositiveCount,
    Probability,
    Seconds,
    Strict,
)
from agentsim.specs import catalog
from agentsim.specs.hardware import Precision
from agentsim.specs.sourced import Basis, Datum


class Where(Strict):
    """Which runs a setup is of; all that is given must hold. Dates are as in 2026-01-31, both ends included.

    `separate`: of runs whose prompts are prefilled by workers of their own, else of all others.
    """

    engine: str
    models: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    users_over: Count = 0
    chips: Count | None = None
    chips_under: Count | None = None
    output_tokens: Count | None = None
    copies: bool | None = None
    input_tokens: Count | None = None
    separate: bool = False


class Budget(Strict):
    """A token budget that a script works out: shares of labels, and so many tokens more, rounded up."""

    prompt: float = 0.0
    output: float = 0.0
    user: float = 0.0
    more: Count = 0
    multiple: PositiveCount = 1
    least: Count = 0


class Settings(Strict):
    """What is known of how an engine was started; None where nothing is.

    `kv` is the format of the KV cache, `budget` is of one attention copy, `receive_interval` and the waits
    are as in a deployment. `replicated` says that each GPU did the attention of its own sequences,
    `all_experts_apart` that experts were spread over all GPUs, whatever the labels say; `draft_tokens` with
    how many drafts a run speculated: 0 if it did not.
    """

    kv: Precision | None = None
    budget: Budget | None = None
    receive_interval: PositiveCount | None = None
    balance_wait: PositiveCount | None = None
    batch_wait: PositiveCount | None = None
    batch_wait_share: Probability | None = None
    replicated: bool | None = None
    all_experts_apart: bool | None = None
    draft_tokens: Count | None = None


class Setup(Settings):
    """How an engine was started for some runs; a later setup that is of the run too comes before this one."""

    where: Where
    source: str
    basis: Basis
    why: Line | None = None


class Harness(Strict):
    """A closed loop: `concurrency` users start at once and each sends its next request when one is done.

    Lengths are uniform between `shortest` times the label and the label. `setups` replace what the
    engine's profile says.
    """

    title: Line
    shortest: Datum[Efficiency]
    requests_per_user: Datum[PositiveCount]
    setups: tuple[Setup, ...] = ()


class Doubts(Strict):
    """From which ratio on a measured run looks wrong, or must have speculated.

    `slower`: a step over that of the same server at a higher concurrency. `step`, `first_token`: over the
    same load on other servers, on no more bandwidth. `faster`: a step without drafts over that of a run.
    """

    slower: Datum[Positive]
    step: Datum[Positive]
    first_token: Datum[Positive]
    faster: Datum[Positive]


class Harnesses(Strict):
    """The whole file.

    `draft_tokens`: drafts a step where a run is taken to have speculated. `kv_launch` and `kv_rate`: start-up
    of a KV transfer between workers, and bytes per second of one GPU. `releases`: by engine, its version in
    each release of the software that joins separate workers. `fastest_gemm`: the largest share of a dense
    peak that any measured matrix product reaches; a run that needs more cannot be right.
    """

    title: Line
    sources: dict[str, str] = Field(default_factory=dict)
    draft_tokens: Datum[PositiveCount]
    kv_launch: Datum[Seconds]
    kv_rate: Datum[BytesPerSecond]
    releases: Datum[dict[str, dict[str, str]]]
    fastest_gemm: dict[Precision, Datum[Efficiency]]
    doubts: Doubts
    harnesses: dict[str, Harness]


@cache
def load_harnesses() -> Harnesses:
    """Return the harnesses that come with agentsim."""
    path = os.path.join(catalog.folder("harnesses"), "serving.yaml")
    return catalog.load_file(Harnesses, path, "harnesses")


def workers_file() -> str:
    """Return the path of the CSV that lists deployments with separate workers by load."""
    return os.path.join(catalog.folder("harnesses"), "inferencex_workers.csv")
