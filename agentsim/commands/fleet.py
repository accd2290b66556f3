"""The command on many agents beside `run`: how many a deployment carries."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Bounds, Format, Output, Overrides, Seed, WorkflowPath, names_of
from agentsim.terminal.console import progress, show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def capacity(
    workflow: WorkflowPath,
    slo: Annotated[str, Bounds],
    on: Annotated[
        str, typer.Option(help="a deployment of engines by name, or a path", autocompletion=names_of("on"))
    ] = "8xb200",
    share: Annotated[float, typer.Option(help="share of the tasks that must meet it")] = 0.9,
    arrival: Annotated[
        str | None, typer.Option(metavar="HOW", help="find a rate instead: poisson or uniform")
    ] = None,
    seed: Seed = 0,
    set_: Overrides = None,
    format_: Output = Format.table,
) -> None:
    """Find the most agents at a time that a deployment carries while their tasks meet an objective.

    agentsim capacity workflows/coding-agent.yaml --on llama-70b-4xh100 --slo task=90min,ttft=2s
    """
    from agentsim.terminal.capacity import capacity_screen
    from agentsim.verbs_fleet import capacity_of

    with progress("trying loads", None) as step:
        found = capacity_of(workflow, on, slo, share, seed, arrival, set_ or [], step)
    show_result(format_ is Format.json, found.to_json, lambda width: capacity_screen(found, width))
