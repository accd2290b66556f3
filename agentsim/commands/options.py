"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"


def names_of(kind: str) -> Callable[[str], list[str]]:
    """Return what completes a name while it is typed; nothing is read before a shell asks.

    `kind` is one of `completion.NAMES`.
    """

    def complete(incomplete: str) -> list[str]:
        from agentsim.completion import completed

        return completed(kind, incomplete)

    return complete


WorkflowPath = Annotated[str, typer.Argument(metavar="WORKFLOW", help="a workflow file (YAML)")]
Seed = Annotated[int, typer.Option(help="seed of the first run; further runs count up from it")]
Runs = Annotated[int, typer.Option(min=1, max=100_000, help="runs over consecutive seeds")]
Samples = Annotated[
    int,
    typer.Option(
        "--uncertainty",
        metavar="N",
        min=0,
        max=100_000,
        help="draw what is uncertain so often; 0: not at all",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="change a field first; deployment.… for the deployment"),
]
Output = Annotated[Format, typer.Option("--format", help="table for people, json for programs")]
Agents = Annotated[int | None, typer.Option(help="agents on the same deployment; default: 1")]
Arrival = Annotated[
    str | None,
    typer.Option(
        metavar="HOW", help="when they come: at-once (default), poisson:0.5/s, uniform:2/s, trace:FILE"
    ),
]
Concurrency = Annotated[
    int | None, typer.Option(metavar="N", help="N at a time: an agent starts when one ends")
]
Bounds = typer.Option(metavar="BOUNDS", help="what a task must meet: task=10min,ttft=2s,itl=50ms")
