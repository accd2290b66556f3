"""The command that turns results into a page."""

from __future__ import annotations

from typing import Annotated

import typer

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
) -> None:
    """Write results as one self-contained page: verdict, breakdown, timeline, context, latency, sources.

    agentsim report results/ compare.json -o report.html
    """
    from agentsim.units import bytes_text
    from agentsim.verbs_report import write_report

    written = write_report(results, output)
    typer.echo(f"{written.path}: {bytes_text(written.size_bytes)}, one file that loads nothing")
    for line in written.missing:
        typer.echo(f"Not in it: {line}")
