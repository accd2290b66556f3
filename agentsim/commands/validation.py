"""The command that holds the simulator against measured serving runs."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsim.commands.options import Format, Output
from agentsim.terminal.console import progress, show_result

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keep the command's name, of which there is only one here."""


@app.command("validate-model")
def validate_model(
    file: Annotated[str, typer.Argument(help="a CSV of measured runs, packed with gzip or not")],
    holdout: Annotated[
        int | None, typer.Option(min=0, help="judge only the half that a fit with this seed left out")
    ] = None,
    profiles: Annotated[
        str | None, typer.Option(help="folder of engine profiles to use before the catalog's")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, max=256, help="default: one a core")] = None,
    format_: Output = Format.table,
) -> None:
    """Simulate measured serving runs and say how far off TTFT and TPOT are, and which rows were refused.

    agentsim validate-model runs.csv

    A row is one run in a closed loop. It gives model, gpu, engine (vllm, sglang, trtllm), isl and osl
    (tokens of a prompt and an answer), concurrency (users), tp (GPUs), ttft_ms and tpot_ms (medians).
    It may give precision, engine_version, measured_on, moe_tp and moe_ep (how experts are split),
    attention_dp (over 1: each GPU does the attention of its own sequences), batch_size (of one such GPU),
    and harness: inferencex, thousands or engine-defaults (how lengths are drawn and engines started;
    without it a row with attention_dp is taken for InferenceX's).
    """
    from agentsim.terminal.validation import validation_screen
    from agentsim.validation.judge import Choices, Plan

    plan = Plan(file, Choices(profiles, holdout, processes))
    with progress("simulating measured runs", plan.steps) as step:
        report = plan.report(step)
    show_result(format_ is Format.json, report.to_json, lambda width: validation_screen(report, width))
