"""The commands on hardware: public benchmarks replayed, published figures held, schedules laid out."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output, Seed, names_of
from agentsim.terminal.console import progress, show_result

On = Annotated[
    str,
    typer.Option(help="a deployment or endpoint by name, or a path", autocompletion=names_of("on")),
]
BenchRuns = Annotated[int, typer.Option(min=1, max=1000, help="runs over consecutive seeds")]
app = typer.Typer(rich_markup_mode=None)
bench_app = typer.Typer(help="Replay a public speed benchmark on a deployment.", rich_markup_mode=None)
app.add_typer(bench_app, name="bench", no_args_is_help=True)


@bench_app.command("aa")
def bench_aa(on: On = "lpx", seed: Seed = 0, runs: BenchRuns = 20, format_: Output = Format.table) -> None:
    """Artificial Analysis: unique prompts of 1K, 10K and 100K, speed after the first chunk.

    agentsim bench aa --on lpx
    """
    _bench("aa", on, seed, runs, format_)


@bench_app.command("speed-coding")
def bench_speed_coding(
    on: On = "lpx", seed: Seed = 0, runs: BenchRuns = 20, format_: Output = Format.table
) -> None:
    """SPEED-Bench, coding: 80 requests of 251 tokens in and 524 out, on average.

    agentsim bench speed-coding --on lpx
    """
    _bench("speed-coding", on, seed, runs, format_)


def _bench(protocol: str, on: str, seed: int, runs: int, format_: Format) -> None:
    from agentsim.terminal.bench import bench_screen
    from agentsim.verbs_hardware import replay

    bench = replay(protocol, on, range(seed, seed + runs))
    show_result(format_ is Format.json, bench.to_json, lambda _: bench_screen(bench))


@app.command()
def anchors(seed: Seed = 0, runs: BenchRuns = 20, format_: Output = Format.table) -> None:
    """Hold the simulation against every published figure: error, calibrated or predicted, verdict.

    agentsim anchors
    """
    from agentsim.terminal.anchors import anchors_screen
    from agentsim.verbs_hardware import count_anchors, hold_anchors

    with progress("simulating", count_anchors()) as step:
        held = hold_anchors(range(seed, seed + runs), step)
    show_result(format_ is Format.json, held.to_json, lambda _: anchors_screen(held))


@app.command()
def schedule(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="a model by name, or a path", autocompletion=names_of("models")),
    ],
    on: Annotated[
        str, typer.Option(help="a deployment of LPUs by name, or a path", autocompletion=names_of("on"))
    ] = "lpx",
    context: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="the context; default: 10k, or all it takes")
    ] = None,
    drafted: Annotated[int | None, typer.Option(min=0, help="drafts a step; 0 for none")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="write every event for Perfetto")] = None,
    table: Annotated[bool, typer.Option("--table", help="also what determinism buys, by chips")] = False,
    format_: Output = Format.table,
) -> None:
    """Lay out a decode step on LPUs before it runs, and print where its time goes.

    agentsim schedule gemma-4-31b --on lpx --context 10k
    """
    from agentsim.terminal.schedule import schedule_screen
    from agentsim.verbs_hardware import lay_out

    found = lay_out(model, on, context, drafted, trace, table)
    show_result(format_ is Format.json, found.to_json, lambda width: schedule_screen(found, width))
