"""The command line: thin verbs that parse options, call the library and print.

Results go to stdout, the rest to stderr. An expected error is one line and exit code 2, an interrupt
exit code 130; a traceback is a bug. Heavy modules are imported by the verb that needs them.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from agentsim import cli_hardware, cli_logs
from agentsim.cli_options import Format, Output, Overrides, Runs, Seed, WorkflowPath
from agentsim.errors import AgentsimError, InputError
from agentsim.terminal.console import (
    drop_stdout,
    note,
    progress,
    settle_streams,
    show_result,
    stop,
)

app = typer.Typer(
    name="agentsim",
    help="How long an AI agent's whole task takes on given inference hardware, and where the time goes.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
calibrate_app = typer.Typer(
    help="Fit a model of hardware or of a service to measurements.", rich_markup_mode=None
)
app.add_typer(calibrate_app, name="calibrate", no_args_is_help=True)


@app.command()
def run(
    workflow: WorkflowPath,
    on: Annotated[str, typer.Option(help="a deployment or endpoint by name, or a path")] = "coding-tool",
    seed: Seed = 0,
    runs: Runs = 1,
    set_: Overrides = None,
    format_: Output = Format.table,
    output_dir: Annotated[
        str | None, typer.Option(help="write summary.json, turns.csv, spans.csv, trace.json")
    ] = None,
) -> None:
    """Run a workflow on a deployment: task completion time and where it went.

    agentsim run workflows/coding-agent.yaml --on coding-tool --runs 20
    """
    from agentsim.terminal.run import run_screen
    from agentsim.verbs import run_task

    with progress("simulating", runs) as step:
        summary, written = run_task(workflow, on, range(seed, seed + runs), set_ or [], output_dir, step)
    show_result(
        format_ is Format.json, summary.to_json, lambda width: run_screen(summary, width, workflow, written)
    )


@app.command()
def compare(
    workflow: WorkflowPath,
    on: Annotated[list[str], typer.Option(help="a deployment; give it twice or more, the first is the base")],
    seed: Seed = 0,
    runs: Runs = 20,
    set_: Overrides = None,
    format_: Output = Format.table,
) -> None:
    """Compare deployments on one workflow, and judge "hours become minutes".

    agentsim compare workflows/coding-agent.yaml --on coding-tool --on 8xb200 --on lpx-aa
    """
    from agentsim.terminal.compare import compare_screen
    from agentsim.verbs import compare_deployments

    with progress("simulating", runs * (len(on) + 1)) as step:
        comparison = compare_deployments(workflow, on, range(seed, seed + runs), set_ or [], step)
    show_result(format_ is Format.json, comparison.to_json, lambda width: compare_screen(comparison, width))


cli_logs.register(app)
cli_hardware.register(app, calibrate_app)


@app.command()
def validate(files: Annotated[list[str], typer.Argument(help="workflow, deployment or spec files")]) -> None:
    """Check files of any kind without running them.

    agentsim validate workflows/coding-agent.yaml
    """
    from agentsim.verbs import validate_file

    bad = 0
    for file in files:
        try:
            typer.echo(f"{file}: {validate_file(file)}")
        except AgentsimError as error:
            bad += 1
            note(str(error))
    if bad:
        sys.exit(2)


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


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help="hardware, models, engines, endpoints or deployments")
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
    name: Annotated[str, typer.Argument(help="anything that list prints")], format_: Output = Format.table
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
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors.

    agentsim schema > workflow.schema.json
    """
    import json

    from agentsim.workflow.schema import Workflow

    typer.echo(json.dumps(Workflow.model_json_schema(), indent=2))


@app.command()
def init(path: Annotated[str, typer.Argument(help="the file to write")] = "workflow.yaml") -> None:
    """Write a commented workflow to start from.

    agentsim init my-task.yaml
    """
    from agentsim.verbs import write_starter

    write_starter(path)
    typer.echo(f"{path}: written. Next: agentsim run {path} --on coding-tool")


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(f"agentsim {version_of('agentsim')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 2 an expected error, 130 interrupted, 1 a bug."""
    gc.set_threshold(100_000)  # a run makes few cycles and many objects; collecting often only costs
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # none is used; looking for them is slow
    settle_streams()
    try:
        code = app(prog_name="agentsim", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except AgentsimError as error:
        stop(str(error), 2)
    except BrokenPipeError:
        drop_stdout()
        sys.exit(141)
    except OSError as error:
        drop_stdout()
        stop(f"stdout: {(error.strerror or str(error)).lower()}", 2)
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
            stop("interrupted", 130)
        if not hasattr(error, "format_message"):
            raise
        stop(_usage_problem(error), 2)
    if code == 130:
        stop("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _usage_problem(error: Any) -> str:
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "agentsim"
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{place}: say what to do (see {place} --help)"
    return f"{place}: {error.format_message()} (see {place} --help)"
