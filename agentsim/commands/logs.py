"""The commands on recorded logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from agentsim.commands.options import Format, Output, names_of
from agentsim.terminal.console import note, progress, show_list, show_result

if TYPE_CHECKING:
    from agentsim.importers._folder import Walk
    from agentsim.recorded import RecordedSession
    from agentsim.verbs_logs import Step

app = typer.Typer(rich_markup_mode=None)
LogPath = Annotated[str, typer.Argument(metavar="LOG", help="a recorded session, or a folder of them")]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="the format, where it is not recognised by content",
        autocompletion=names_of("formats"),
    ),
]


@app.command("import")
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
    if output is not None and (output.endswith("/") or os.path.isdir(output)):
        from agentsim.verbs_logs import import_folder

        _show(
            "importing", log, lambda walk, step: import_folder(log, output, walk, log_format, step), format_
        )
        return
    from agentsim.terminal.imports import import_screen
    from agentsim.verbs_logs import import_session

    imported = import_session(log, output, log_format)
    show_result(format_ is Format.json, imported.to_json, lambda width: import_screen(imported, width))


@app.command()
def observe(log: LogPath, log_format: LogFormat = None, format_: Output = Format.table) -> None:
    """Tell what recorded sessions spent their time on: model, tools, harness, you.

    agentsim observe session.json
    """
    from agentsim.verbs_logs import recorded_at

    _show("reading", log, lambda walk, step: recorded_at(log, walk, log_format, step), format_)


def _show(
    doing: str, log: str, sessions: Callable[[Walk, Step], Iterator[RecordedSession]], format_: Format
) -> None:
    """Show sessions while they are read: as JSON one by one, or what they come to as a screen."""
    from agentsim.importers._folder import Walk
    from agentsim.importers._observe import observe as observe_session
    from agentsim.terminal.observe import observe_screen, passed_over
    from agentsim.verbs_logs import files_at, total_of

    walk = Walk()
    with progress(doing, files_at(log)) as step:
        if format_ is Format.json:
            show_list(observe_session(session).to_json() for session in sessions(walk, step))
        else:
            observed = total_of(log, sessions(walk, step), walk)
    if format_ is not Format.json:
        show_result(False, dict, lambda width: observe_screen(observed, width))
    elif walk.passed_over:
        note(f"passed over: {passed_over(walk.passed_over)}")
