"""The commands on recorded logs."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.cli_options import Format, Output
from agentsim.terminal.console import progress, show_result

LogPath = Annotated[str, typer.Argument(metavar="LOG", help="a recorded session, or a folder of them")]
LogFormat = Annotated[
    str | None, typer.Option("--from", help="the format, where it is not recognised by content")
]


def import_log(
    log: LogPath,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="the workflow file to write, or a folder/")
    ] = None,
    log_format: LogFormat = None,
    format_: Output = Format.table,
) -> None:
    """Turn recorded sessions into workflows, and print where their time went.

    agentsim import session.json -o session.yaml
    """
    from agentsim.terminal.imports import import_screen
    from agentsim.terminal.observe import observe_screen
    from agentsim.verbs_logs import files_at, import_folder, import_session

    as_json = format_ is Format.json
    if output is not None and output.endswith("/"):
        with progress("importing", files_at(log)) as step:
            written = import_folder(log, output, log_format, step)
        show_result(as_json, written.to_json, lambda width: observe_screen(written, width))
        return
    imported = import_session(log, output, log_format)
    show_result(as_json, imported.to_json, lambda width: import_screen(imported, width))


def observe(log: LogPath, log_format: LogFormat = None, format_: Output = Format.table) -> None:
    """Tell what recorded sessions spent their time on: model, tools, harness, you.

    agentsim observe session.json
    """
    from agentsim.terminal.observe import observe_screen
    from agentsim.verbs_logs import files_at, observe_logs

    with progress("reading", files_at(log)) as step:
        observed = observe_logs(log, log_format, step)
    show_result(format_ is Format.json, observed.to_json, lambda width: observe_screen(observed, width))


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("import")(import_log)
    app.command()(observe)
