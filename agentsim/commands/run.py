"""The commands that simulate a workflow: on one deployment, or on several beside each other."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import (
    Agents,
    Arrival,
    Bounds,
    Concurrency,
    Format,
    Output,
    Overrides,
    Runs,
    Samples,
    Seed,
    WorkflowPath,
    names_of,
)
from agentsim.terminal.console import progress, show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def run(
    workflow: WorkflowPath,
    on: Annotated[
        str, typer.Option(help="a deployment or endpoint by name, or a path", autocompletion=names_of("on"))
    ] = "coding-tool",
    agents: Agents = None,
    arrival: Arrival = None,
    concurrency: Concurrency = None,
    slo: Annotated[str | None, Bounds] = None,
    seed: Seed = 0,
    runs: Runs = 1,
    set_: Overrides = None,
    format_: Output = Format.table,
    output_dir: Annotated[
        str | None, typer.Option(help="write summary.json, result.json, turns.csv, spans.csv, trace.json")
    ] = None,
    export: Annotated[
        str, typer.Option(help="what -o writes: result, perfetto, otel, agentic-mooncake, csv, turns, spans")
    ] = "result",
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="write the first run to this file, as --export says")
    ] = None,
) -> None:
    """Run a workflow on a deployment: task completion time and where it went; one agent, or many.

    agentsim run workflows/coding-agent.yaml --on coding-tool --runs 20
    """
    from agentsim.terminal.run import run_screen
    from agentsim.verbs import run_task

    seeds = range(seed, seed + runs)
    if (agents, arrival, concurrency, slo) != (None,) * 4:
        traffic = agents, arrival, concurrency
        _run_fleet(workflow, on, traffic, seeds, slo, set_ or [], (output_dir, export, output), format_)
        return
    with progress("simulating", runs) as step:
        summary, written = run_task(workflow, on, seeds, set_ or [], output_dir, step, export, output)
    show_result(
        format_ is Format.json, summary.to_json, lambda width: run_screen(summary, width, workflow, written)
    )


def _run_fleet(
    workflow: str,
    on: str,
    asked: tuple[int | None, str | None, int | None],
    seeds: range,
    slo: str | None,
    overrides: list[str],
    files: tuple[str | None, str, str | None],
    format_: Format,
) -> None:
    from agentsim.fleet.traffic import traffic_of
    from agentsim.terminal.fleet import fleet_screen
    from agentsim.verbs_fleet import run_fleet

    traffic = traffic_of(*asked)
    with progress("simulating", traffic.agents * len(seeds)) as step:
        fleet, written = run_fleet(workflow, on, traffic, seeds, slo, overrides, step, *files)
    show_result(
        format_ is Format.json, fleet.to_json, lambda width: fleet_screen(fleet, width, workflow, written)
    )


@app.command()
def compare(
    workflow: Annotated[
        str, typer.Argument(metavar="WORKFLOW", help="a workflow file (YAML), a log, or a folder of logs")
    ],
    on: Annotated[
        list[str],
        typer.Option(
            help="a deployment; give it twice or more, the first is the base", autocompletion=names_of("on")
        ),
    ],
    seed: Seed = 0,
    runs: Runs = 20,
    uncertainty: Samples = 0,
    idle_over: Annotated[
        str | None, typer.Option(help="logs: longer waits that they do not explain are a person's")
    ] = None,
    set_: Overrides = None,
    format_: Output = Format.table,
) -> None:
    """Compare deployments on a workflow or on recorded sessions, and judge "hours become minutes".

    --uncertainty N draws what is only assumed or calibrated N times within its range, and prints bands.
    Of recorded sessions the distribution is shown; --runs is for workflows.

    agentsim compare workflows/coding-agent.yaml --on coding-tool --on 8xb200 --on lpx-aa
    """
    from agentsim.terminal.population import compared_screen
    from agentsim.verbs_answers import compare_any

    seeds = range(seed, seed + runs)
    found = compare_any(workflow, on, seeds, set_ or [], uncertainty, idle_over, progress)
    show_result(format_ is Format.json, found.to_json, lambda width: compared_screen(found, width))
