"""The commands on recorded logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from agentsim.commands.options import names_of
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
        help="the log's format, where it is not recognised by content",
        autocompletion=names_of("formats"),
    ),
]
Formats = Annotated[
    list[str],
    typer.Option(
        "--format",
        metavar="table|json",
        help="table for people, json for programs; a log's format is taken here as well as by --from",
    ),
]
KeepText = Annotated[
    bool, typer.Option("--keep-text", help="write what was said as well, secrets included; see `schema`")
]
Force = Annotated[bool, typer.Option("--force", help="write over workflows that were edited by hand")]


@app.command("import")
def import_log(
    log: LogPath,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="the workflow file to write, or a folder/")
    ] = None,
    keep_text: KeepText = False,
    force: Force = False,
    log_format: LogFormat = None,
    formats: Formats = ["table"],  # noqa: B006  (typer copies it)
) -> None:
    """Turn recorded sessions into workflows, and print where their time went.

    agentsim import session.json -o session.yaml
    """
    from agentsim.terminal.imports import import_screen
    from agentsim.verbs_logs import Reading, import_folder, import_session

    as_json, chosen = _formats(formats, log_format)
    how = Reading(chosen, keep_text, force)
    if output is not None and (output.endswith("/") or os.path.isdir(output)):
        _show("importing", log, lambda walk, step: import_folder(log, output, walk, how, step), as_json)
    else:
        with _progress("importing", log):
            imported = import_session(log, output, how)
        show_result(as_json, imported.to_json, lambda width: import_screen(imported, width))


@app.command()
def observe(
    log: LogPath,
    log_format: LogFormat = None,
    formats: Formats = ["table"],  # noqa: B006  (typer copies it)
) -> None:
    """Tell what recorded sessions spent their time on: model, tools, harness, you.

    agentsim observe session.json
    """
    from agentsim.verbs_logs import recorded_at

    as_json, chosen = _formats(formats, log_format)
    _show("reading", log, lambda walk, step: recorded_at(log, walk, chosen, step), as_json)


def _formats(given: list[str], log_format: str | None) -> tuple[bool, str | None]:
    """Return whether JSON is wanted, and the log's format: `--format` takes both, for their names differ."""
    from agentsim.verbs_logs import log_format_named

    of_output = [name for name in given if name in ("table", "json")]
    of_log = [log_format_named(name) for name in given if name not in ("table", "json")]
    return of_output[-1:] == ["json"], log_format or (of_log[-1] if of_log else None)


@contextmanager
def _progress(doing: str, log: str) -> Iterator[Step]:
    """Show how many files of a folder are read, or how many bytes of a large file."""
    from agentsim.importers.base import telling_bytes
    from agentsim.verbs_logs import size_of_large, steps_at

    with progress(doing, steps_at(log)) as step:
        if size_of_large(log):
            with telling_bytes(step):
                yield lambda: None
        else:
            yield step


def _show(
    doing: str, log: str, sessions: Callable[[Walk, Step], Iterator[RecordedSession]], as_json: bool
) -> None:
    """Show sessions while they are read: as JSON one by one, or what they come to as a screen."""
    from agentsim.importers._folder import Walk
    from agentsim.importers._observe import observe as observe_session
    from agentsim.terminal.observe import observe_screen, passed_over
    from agentsim.verbs_logs import total_of

    walk = Walk()
    with _progress(doing, log) as step:
        if as_json:
            show_list(observe_session(session).to_json() for session in sessions(walk, step))
        else:
            observed = total_of(log, sessions(walk, step), walk)
    if not as_json:
        show_result(False, dict, lambda width: observe_screen(observed, width))
    elif walk.passed_over:
        note(f"passed over: {passed_over(walk.passed_over)}")
