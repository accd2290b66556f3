"""The command that runs a task over many settings."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output, names_of
from agentsim.terminal.console import progress, show_result, stop

app = typer.Typer(rich_markup_mode=None)


@app.command()
def sweep(
    file: Annotated[str, typer.Argument(metavar="SWEEP", help="a sweep file (YAML)")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="a .csv or .parquet; default: SWEEP's name, here")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="the column that pictures show", autocompletion=names_of("metrics"))
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=1024, help="processes; default: cores")] = None,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="run on this Dask cluster")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="begin anew, whatever is there")] = False,
    plot: Annotated[bool, typer.Option("--plot", help="show what is there; run nothing")] = False,
    format_: Output = Format.table,
) -> None:
    """Run a task over many settings: the best point, the worst, and what drives it.

    A row for each point goes to a table. Ended early, the same command goes on where it was.

    agentsim sweep workflows/sweeps/pipeline.yaml -o pipeline.csv
    """
    from agentsim.terminal.sweep import sweep_screen
    from agentsim.verbs_sweep import open_sweep, place_of, swept

    place = place_of(workers, dask)
    opened, column = open_sweep(file, output, metric, restart, plot)
    with opened as running:
        try:
            with progress("simulating", running.left) as step:
                running.run(place, step)
        except KeyboardInterrupt:
            stop(f"interrupted; {running.told()}", 130)
        found = swept(running, column, format_ is Format.json)
    show_result(format_ is Format.json, found.to_json, lambda width: sweep_screen(found, width))
    if found.bugs:
        raise typer.Exit(1)
