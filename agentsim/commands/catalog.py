"""The commands on files and the catalog: check them, list them, show what is in them, start a new one."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output, names_of
from agentsim.terminal.console import note, show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(help="workflow, sweep, deployment or spec files")],
    format_: Output = Format.table,
) -> None:
    """Check files of any kind without running them.

    agentsim validate workflows/coding-agent.yaml
    """
    from agentsim.verbs import validate_files

    found = validate_files(files)
    if format_ is Format.json:
        show_result(True, lambda: found, str)
    for file in found if format_ is Format.table else ():
        if file["valid"]:
            typer.echo(f"{file['file']}: {file['is']}")
        else:
            note(file["problem"])
    if not all(file["valid"] for file in found):
        raise typer.Exit(2)


@app.command("list")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="hardware, models, engines, endpoints or deployments", autocompletion=names_of("kinds")
        ),
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
    name: Annotated[str, typer.Argument(help="anything that list prints", autocompletion=names_of("all"))],
    format_: Output = Format.table,
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
def schema(
    kind: Annotated[
        str, typer.Argument(help="workflow, sweep or deployment", autocompletion=names_of("schemas"))
    ] = "workflow",
) -> None:
    """Print the JSON Schema of workflow, sweep or deployment files, for editors. It is JSON always.

    agentsim schema > workflow.schema.json
    """
    from agentsim.verbs import json_schema

    show_result(True, lambda: json_schema(kind), str)


@app.command()
def init(
    path: Annotated[str, typer.Argument(help="the file to write")] = "workflow.yaml",
    format_: Output = Format.table,
) -> None:
    """Write a commented workflow to start from.

    agentsim init my-task.yaml
    """
    from agentsim.verbs import write_starter

    write_starter(path)
    following = f"agentsim run {path} --on coding-tool"
    if format_ is Format.json:
        show_result(True, lambda: {"written": path, "next": following}, str)
    else:
        typer.echo(f"{path}: written. Next: {following}")
