"""The commands on files and the catalog: check them, list them, show what is in them, start a new one."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output
from agentsim.errors import AgentsimError
from agentsim.terminal.console import note, show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def validate(files: Annotated[list[str], typer.Argument(help="workflow, deployment or spec files")]) -> None:
    """Check files of any kind without running them.

    agentsim validate workflows/coding-agent.yaml
    """
    from agentsim.verbs import validate_file

    bad = 0
    for file in files:
        try:
            typer.echo(f"{file}: {validate_file(file)}")
        except AgentsimError as error:
            bad += 1
            note(str(error))
    if bad:
        raise typer.Exit(2)


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="hardware, models, engines, endpoints or deployments")
    ] = None,
    format_: Output = Format.table,
) -> None:
    """List what the catalog holds.

    agentsim list deployments
    """
    from agentsim.terminal.catalog import list_screen
    from agentsim.verbs import list_catalog

    found = list_catalog(kind)
    show_result(format_ is Format.json, lambda: found, lambda _: list_screen(found))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="anything that list prints")], format_: Output = Format.table
) -> None:
    """Show everything that is known of a name: value, basis and source of each number.

    agentsim show lpx-aa
    """
    from agentsim.terminal.catalog import show_screen
    from agentsim.verbs import show_sheets

    sheets = show_sheets(name)
    show_result(
        format_ is Format.json, lambda: [sheet.to_json() for sheet in sheets], lambda _: show_screen(sheets)
    )


@app.command()
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors.

    agentsim schema > workflow.schema.json
    """
    import json

    from agentsim.workflow.schema import Workflow

    typer.echo(json.dumps(Workflow.model_json_schema(), indent=2))


@app.command()
def init(path: Annotated[str, typer.Argument(help="the file to write")] = "workflow.yaml") -> None:
    """Write a commented workflow to start from.

    agentsim init my-task.yaml
    """
    from agentsim.verbs import write_starter

    write_starter(path)
    typer.echo(f"{path}: written. Next: agentsim run {path} --on coding-tool")
