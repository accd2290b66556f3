"""The two halves of a file: runs to fit on, and runs left out to judge the fit by."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from agentsim import seeds
from agentsim.backends.gpu.weights import format_of
from agentsim.errors import InfeasibleError
from agentsim.validation.names import load_model, software_of
from agentsim.validation.rows import Run

HALF = 0.5


def profile_of(run: Run) -> tuple[str, str, str, str]:
    """Return what an engine's constants are told apart by: software, GPU, format of the weights, class."""
    return (software_of(run.engine, run.version, run.gpu, run.kind), run.gpu, _stored(run), run.kind)


def _stored(run: Run) -> str:
    try:
        return format_of(load_model(run.model), run.precision)  # type: ignore[arg-type]
    except InfeasibleError:
        return run.precision


def configuration_of(run: Run) -> tuple[object, ...]:
    """Return model, engine and parallelism: runs of one configuration differ in their load alone."""
    setup = (run.model, run.gpu, software_of(run.engine, run.version, run.gpu, run.kind), run.precision)
    return (*setup, run.chips, run.attention_dp, run.expert_parallel)


def fitted_lines(runs: Iterable[Run], seed: int, share: float = HALF) -> set[int]:
    """Return the lines of the runs to fit on: a share of each profile's configurations, drawn at random.

    Runs of one configuration lie on the same side. Of an odd number the fit has one more, so that no
    profile is without a run.
    """
    profiles: dict[object, dict[tuple[object, ...], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        profiles[profile_of(run)][configuration_of(run)].append(run)
    found: set[int] = set()
    for setups in profiles.values():
        order = sorted(setups, key=lambda setup: (seeds.stream(seed, *map(str, setup))(), str(setup)))
        for setup in order[: math.ceil(share * len(order))]:
            found |= {run.line for run in setups[setup]}
    return found
