"""The commands that fit a model of hardware or of a service to measurements."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from agentsim.commands.options import Format, Output
from agentsim.errors import InputError
from agentsim.terminal.console import progress, show_result

app = typer.Typer(rich_markup_mode=None)
calibrate_app = typer.Typer(
    help="Fit a model of hardware or of a service to measurements.", rich_markup_mode=None
)
app.add_typer(calibrate_app, name="calibrate", no_args_is_help=True)


@calibrate_app.command("endpoint")
def calibrate_endpoint(
    file: Annotated[str, typer.Argument(help="recorded sessions")],
    output: Annotated[str | None, typer.Option("--output", "-o", help="a profile file, or a folder/")] = None,
    check: Annotated[str | None, typer.Option(help="judge this profile instead of fitting one")] = None,
    source: Annotated[str | None, typer.Option(help="what to name as the source; default: the file")] = None,
    format_: Output = Format.table,
) -> None:
    """Fit fixed time, times per token and decode speed of every model in a file of sessions.

    agentsim calibrate endpoint sessions.jsonl.gz -o my-endpoints.yaml
    """
    from agentsim.terminal.calibration import calibration_screen
    from agentsim.verbs import calibrate_sessions

    if (output is None) == (check is None):
        raise InputError("calibrate endpoint: give either -o (fit and write) or --check (judge a profile)")
    report = calibrate_sessions(file, output, check, source or os.path.basename(file))
    show_result(format_ is Format.json, report.to_json, lambda _: calibration_screen(report, output))


@calibrate_app.command("gpu")
def calibrate_gpu(
    file: Annotated[str, typer.Argument(help="a CSV of measured runs, packed with gzip or not")],
    output: Annotated[str | None, typer.Option("--output", "-o", help="folder for the profiles")] = None,
    seed: Annotated[int, typer.Option(min=0, help="draws which configurations are left out")] = 0,
    share: Annotated[float, typer.Option(help="share of the configurations to fit on")] = 0.5,
    on_all: Annotated[bool, typer.Option("--on-all", help="after judging, fit on all runs")] = False,
    source: Annotated[str | None, typer.Option(help="what to name as the source; default: the file")] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=256, help="default: one a core")] = None,
    format_: Output = Format.table,
) -> None:
    """Fit engine profiles on a random half of measured serving runs, and judge them on the other half.

    agentsim calibrate gpu runs.csv --on-all -o profiles/
    """
    from agentsim.calibrate.gpu_plan import Choices, Plan
    from agentsim.terminal.gpu_calibration import gpu_calibration_screen
    from agentsim.verbs_hardware import fit_engines

    plan = Plan(file, Choices(seed, share, on_all, processes))
    with progress("fitting engine profiles", plan.steps) as step:
        found = fit_engines(plan, output, source or os.path.basename(file), step)
    show_result(
        format_ is Format.json, found.to_json, lambda width: gpu_calibration_screen(found, output, width)
    )


@calibrate_app.command("lpx")
def calibrate_lpx(format_: Output = Format.table) -> None:
    """Fit the three constants of the LPX anchors, and print what would be written.

    agentsim calibrate lpx
    """
    _calibrate("lpx", format_)


@calibrate_app.command("b300")
def calibrate_b300(format_: Output = Format.table) -> None:
    """Fit the time per layer of vLLM on B300 to its anchor in bf16, and print what would be written.

    agentsim calibrate b300
    """
    _calibrate("b300", format_)


def _calibrate(rows: str, format_: Format) -> None:
    from agentsim.terminal.anchors import constants_screen
    from agentsim.verbs_hardware import fit, fitted_json

    fitted = fit(rows)
    show_result(format_ is Format.json, lambda: fitted_json(fitted), lambda _: constants_screen(fitted))
