"""The screen of `bench`: speeds by size of request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import grid, indented, joined, labelled, screen
from agentsim.units import MICROSECOND_S, count_text

if TYPE_CHECKING:
    from agentsim.bench import Bench, Case

_SHARES = (0.2, 0.5, 0.8)


def bench_screen(bench: Bench) -> RenderableType:
    """Return the whole screen of a benchmark on one deployment."""
    parts: list[RenderableType] = [_heading(bench), indented(_speeds(bench))]
    if any(case.tokens_per_step or case.floor_s for case in bench.cases):
        parts.append(indented(_steps(bench)))
    return screen(*parts, indented(labelled(_notes(bench))))


def _heading(bench: Bench) -> Text:
    runs = len(bench.seeds)
    requests = next(len(case.speeds) for case in bench.cases if case.speeds) // runs
    facts = joined(
        [
            bench.plan.deployment,
            f"{requests} requests a size, one after another",
            f"{runs} run{'s' if runs > 1 else ''} from seed {bench.seeds[0]}",
        ]
    )
    return Text.assemble((bench.protocol.title, "bold"), "\n", (facts, "dim"))


def _speeds(bench: Bench) -> Table:
    table = grid("left", "right", "right", "right", "right", "right", padding=3)
    heads = ("median", "p20", "p80", "min", "max")
    table.add_row(Text("Output tok/s", style="bold"), *[Text(head, style="dim") for head in heads])
    for case in bench.cases:
        if case.problem:
            continue
        low, middle, high = (case.speed(share) for share in _SHARES)
        figures = (low, high, min(case.speeds), max(case.speeds))
        table.add_row(
            _size(case), Text(f"{middle:,.0f}", style="bold green"), *[f"{value:,.0f}" for value in figures]
        )
    return table


def _size(case: Case) -> str:
    return f"{count_text(case.size.input_tokens)} in, {count_text(case.size.output_tokens)} out"


def _steps(bench: Bench) -> Table:
    """What a step yields from request to request, and takes, against its schedule alone."""
    table = grid("left", "right", "right", "right", "right", "right", padding=3)
    heads = ("tok/step", "p20-p80", "us/step", "floor", "ratio")
    table.add_row(Text("Decode step", style="bold"), *[Text(head, style="dim") for head in heads])
    for case in bench.cases:
        if case.step_s is not None:
            floor = case.floor_s
            table.add_row(
                _size(case),
                *_yield(case),
                f"{case.step_s / MICROSECOND_S:,.0f}",
                f"{floor / MICROSECOND_S:,.0f}" if floor else "-",
                f"{case.step_s / floor:.2f}" if floor else "-",
            )
    return table


def _yield(case: Case) -> tuple[str, str]:
    if not case.tokens_per_step:
        return "1", "-"
    low, middle, high = (case.yield_of(share) for share in _SHARES)
    return f"{middle:.2f}", f"{low:.2f}-{high:.2f}"


def _notes(bench: Bench) -> list[tuple[str, str]]:
    ratio = bench.protocol.token_ratio
    notes = [(_size(case), f"not run: {case.problem}") for case in bench.cases if case.problem]
    if bench.text:
        notes.append(("Drafts", f"accepted as on text of the kind '{bench.text}'"))
    if any(case.floor_s for case in bench.cases):
        notes.append(("Floor", "the schedule alone, nothing calibrated"))
    known = ratio.source_text if ratio.basis != "assumed" else f"assumed: {ratio.why}"
    notes.append(("Tokens", f"{ratio.value:g} of the protocol's for one of the model's ({known})"))
    return notes + [("Note", warning) for warning in bench.plan.warnings]
