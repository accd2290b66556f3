"""The commands that answer beyond one run: whether a claim holds, and what moves the answer."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output, Overrides, Runs, Samples, Seed, WorkflowPath, names_of
from agentsim.terminal.console import progress, show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def claim(
    text: Annotated[str, typer.Argument(metavar="CLAIM", help='such as "hours to minutes" or "4x"')],
    workflows: Annotated[list[str], typer.Argument(metavar="WORKFLOW...", help="workflow files (YAML)")],
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="the slow one, then the fast one; default: coding-tool, lpx; of power 8xb200, lpx",
            autocompletion=names_of("on"),
        ),
    ] = None,
    seed: Seed = 0,
    runs: Runs = 10,
    uncertainty: Samples = 0,
    set_: Overrides = None,
    format_: Output = Format.table,
) -> None:
    """Hold a claim against workflows: does it hold, how surely, and what would make it hold.

    Claims: "hours to minutes", "4x", "under 10 min", "4x tokens", "35x per MW".

    agentsim claim "4x" workflows/support-agent.yaml --on coding-tool --on lpx --runs 3
    """
    from agentsim.terminal.claim import claim_screen
    from agentsim.verbs_answers import judge

    found = judge(text, workflows, on or [], range(seed, seed + runs), set_ or [], uncertainty, progress)
    show_result(
        format_ is Format.json,
        lambda: [judged.to_json() for judged in found],
        lambda width: claim_screen(found, width),
    )


@app.command()
def sensitivity(
    workflow: WorkflowPath,
    on: Annotated[
        list[str],
        typer.Option(help="a deployment; twice: the speed-up of the second", autocompletion=names_of("on")),
    ],
    seed: Seed = 0,
    runs: Runs = 5,
    set_: Overrides = None,
    format_: Output = Format.table,
) -> None:
    """Rank what moves the answer: data at both ends of their ranges, and the task's own levers.

    agentsim sensitivity workflows/support-agent.yaml --on coding-tool --on gemma-b300
    """
    from agentsim.terminal.sensitivity import sensitivity_screen
    from agentsim.verbs_answers import sensitivity as ranked

    found = ranked(workflow, on, range(seed, seed + runs), set_ or [], progress)
    show_result(format_ is Format.json, found.to_json, lambda width: sensitivity_screen(found, width))
