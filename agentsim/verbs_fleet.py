"""What the commands on many agents do, without the command line. Returns data; prints nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agentsim.fleet.capacity import SHARE, Capacity, find_capacity
from agentsim.fleet.objective import parse_objective
from agentsim.fleet.outcome import Fleet, alone, fleet_of, run_traffic
from agentsim.fleet.traffic import Traffic
from agentsim.sim.recorder import Detail
from agentsim.verbs import exporter, output_files, outputs, plans

Step = Callable[[], None]


def run_fleet(
    workflow: str,
    deployment: str,
    traffic: Traffic,
    seeds: Sequence[int],
    slo: str | None = None,
    overrides: Sequence[str] = (),
    step: Step = lambda: None,
    output_dir: str | None = None,
    export: str = "result",
    output: str | None = None,
) -> tuple[Fleet, list[str]]:
    """Run many agents of a workflow file over the seeds; return what came of them and the files written.

    `step` is called at the end of every task. Every turn and span is kept only where files tell of them.
    """
    objective = parse_objective(slo) if slo is not None else None
    plan = plans(workflow, [deployment], overrides)[0]
    write_export = exporter(export, output)
    detail: Detail = "summary" if output_dir is output is None else "full"
    with outputs(output_dir) as write:
        single = alone(plan, seeds[0])
        results = [run_traffic(plan, traffic, seed, detail, step) for seed in seeds]
        fleet = fleet_of(plan, traffic, results, single, objective)
        written = write_export(fleet.summary.first)
        written += write(_files(fleet)) if write is not None else []
    return fleet, written


def _files(fleet: Fleet) -> dict[str, list[str]]:
    told = {"summary.json": [json.dumps(fleet.to_json(), indent=2) + "\n"]}
    return {**output_files(fleet.summary), **told}


def capacity_of(
    workflow: str,
    deployment: str,
    slo: str,
    share: float = SHARE,
    seed: int = 0,
    arrival: str | None = None,
    overrides: Sequence[str] = (),
    step: Step = lambda: None,
) -> Capacity:
    """Find the most agents of a workflow file that a deployment carries under an objective."""
    objective = parse_objective(slo)
    plan = plans(workflow, [deployment], overrides)[0]
    return find_capacity(plan, objective, share, seed, arrival, step)
