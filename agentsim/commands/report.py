"""The command that turns results into a page."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output
from agentsim.terminal.console import show_result

app = typer.Typer(rich_markup_mode=None)


@app.command()
def report(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="folders of run --output-dir, files of run -o, JSON of run, compare, observe or sensitivity",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="the page to write")],
    format_: Output = Format.table,
) -> None:
    """Write results as one self-contained page: verdict, breakdown, timeline, context, latency, sources.

    agentsim report results/ compare.json -o report.html
    """
    from agentsim.terminal.report import report_screen
    from agentsim.verbs_report import write_report

    written = write_report(results, output)
    show_result(format_ is Format.json, written.to_json, lambda _: report_screen(written))
