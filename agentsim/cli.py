"""The command line: finds the command that is asked for, and turns every end into an exit code.

Commands lie in `commands/`; a module is loaded when one of its commands is called. Results go to stdout,
the rest to stderr. An expected error is one line and exit code 2, an interrupt exit code 130; a
traceback is a bug.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_group

from agentsim.errors import AgentsimError, unknown_name
from agentsim.terminal.console import drop_stdout, settle_streams, stop

COMMANDS = {
    "run": "run",
    "compare": "run",
    "claim": "answers",
    "sensitivity": "answers",
    "capacity": "fleet",
    "sweep": "sweep",
    "report": "report",
    "import": "logs",
    "observe": "logs",
    "bench": "hardware",
    "anchors": "hardware",
    "schedule": "hardware",
    "calibrate": "calibrate",
    "validate-model": "validation",
    "validate": "catalog",
    "list": "catalog",
    "show": "catalog",
    "schema": "catalog",
    "init": "catalog",
}
"""Command, and the module of `commands/` that has it, in the order of the help."""


class Commands(TyperGroup):
    """The commands by name, each loaded once it is asked for: a run pays for no other command."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; raise `UnknownNameError` where there is none of that name."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:  # a shell completes a line: nothing is wrong yet
                return None
            raise unknown_name("command", cmd_name, COMMANDS)
        module = import_module(f"agentsim.commands.{COMMANDS[cmd_name]}")
        return get_group(module.app).commands[cmd_name]


app = typer.Typer(
    name="agentsim",
    cls=Commands,
    help="How long an AI agent's whole task takes on given inference hardware, and where the time goes.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
