"""The screen of `schedule`: where a decode step's time goes, and what determinism buys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import bar, grid, indented, joined, labelled, screen
from agentsim.units import MICROSECOND_S, count_text

if TYPE_CHECKING:
    from agentsim.backends.lpx.determinism import Row
    from agentsim.backends.lpx.report import ScheduleReport
    from agentsim.verbs_hardware import Claim, Scheduled

NAMES = {
    "compute": "compute",
    "sram": "SRAM",
    "first_bit": "first bit",
    "serialisation": "serialisation",
    "idle": "idle",
    "overhead": "not explained by the\n  schedule (calibrated)",
}
_COLOURS = {
    "compute": "blue",
    "sram": "cyan",
    "first_bit": "magenta",
    "serialisation": "yellow",
    "idle": "bright_black",
    "overhead": "red",
}


def schedule_screen(scheduled: Scheduled, width: int) -> RenderableType:
    """Return the whole screen of a step, with the table and its answers where it was asked for."""
    report = scheduled.report
    parts: list[RenderableType] = [_heading(scheduled)]
    parts += [indented(_breakdown(report, width)), indented(Text(_FIRST_BIT, style="dim"))]
    parts.append(indented(labelled(_facts(scheduled))))
    if scheduled.table:
        parts += [indented(_table(scheduled.table)), indented(Text(_table_says(), style="dim"))]
        parts += [indented(_claim(claim)) for claim in scheduled.claims]
    return screen(*parts)


def _claim(claim: Claim) -> Text:
    return Text.assemble((f'"{claim.text}"?  ', "bold"), claim.answer)


def _heading(scheduled: Scheduled) -> Text:
    report = scheduled.report
    facts = joined(
        [
            scheduled.deployment,
            f"{report.lpus} LPUs: {report.pipeline_stages} stages of {report.tensor_parallel}",
            f"context {count_text(report.context)}",
            f"{report.drafted} drafts" if report.drafted else "no drafts",
        ]
    )
    return Text.assemble((f"A decode step of {scheduled.model}", "bold"), "\n", (facts, "dim"))


def _breakdown(report: ScheduleReport, width: int) -> Table:
    room = max(min(width - 49, 60), 10)
    table = grid("left", "left", "right", "right")
    table.columns[1].min_width = room
    table.add_row(
        Text("Where the time goes", style="bold"), "", Text("us", style="dim"), Text("%", style="dim")
    )
    for part, seconds in sorted(report.breakdown_s.items(), key=lambda item: -item[1]):
        if part == "overhead" and not seconds:
            continue  # nobody has measured a step without drafts: it is no zero
        share = seconds / report.step_s
        row = bar(share, room, _COLOURS[part])
        table.add_row(f"  {NAMES[part]}", row, f"{seconds / MICROSECOND_S:.1f}", f"{100 * share:.1f}")
    table.add_row("", "", "─────", "")
    table.add_row("", "", f"{report.step_s / MICROSECOND_S:.1f}", "")
    return table


def _facts(scheduled: Scheduled) -> list[tuple[str, str]]:
    report = scheduled.report
    speed, floor = (report.tokens_per_step / time for time in (report.step_s, report.floor_s))
    schedule = f"{report.floor_s / MICROSECOND_S:.1f} us"
    if report.step_s > report.floor_s:
        schedule += f" alone; the step is {report.step_s / report.floor_s:.2f} times that, as calibrated"
    rows = [
        ("Schedule", schedule),
        (
            "Speed",
            f"{speed:,.0f} tok/s at {report.tokens_per_step:.2f} a step; {floor:,.0f} as scheduled",
        ),
        ("Written", scheduled.written or ""),
        ("Next", "https://ui.perfetto.dev opens it" if scheduled.written else _next(scheduled)),
    ]
    return [row for row in rows if row[1]]


def _next(scheduled: Scheduled) -> str:
    asked = f"agentsim schedule {scheduled.name} --on {scheduled.deployment}"
    asked += "" if scheduled.asked_drafts is None else f" --drafted {scheduled.asked_drafts}"
    return f"{asked} --trace schedule.json" if scheduled.table else f"{asked} --table"


_FIRST_BIT = "First bit: waiting for the start of a transfer to cross its hops, however much it carries."


def _table_says() -> str:
    from agentsim.backends.lpx.determinism import EXCHANGES_PER_ALL_REDUCE, measured_start

    gpus, seconds = measured_start()
    all_reduce = seconds / MICROSECOND_S
    return (
        "LPUs as scheduled; each tensor waited for whole; a GPU's start-up paid for each transfer; both. "
        f"The start-up is {all_reduce / EXCHANGES_PER_ALL_REDUCE:.1f} us, half of the {all_reduce:.1f} us "
        f"all-reduce measured on {gpus} x B200 with TensorRT-LLM. LPU rows are an uncalibrated schedule, "
        "GPU rows carry measured engine overheads: the two do not compare as they stand. 'used': LPUs of "
        "the mapping, which holds the context that the deployment plans for. '-': it does not fit, or was "
        "not measured."
    )


def _table(rows: Sequence[Row]) -> Table:
    table = grid("left", *["right"] * 7, padding=2)
    heads = ("chips", "used", "context", "scheduled", "no overlap", "start-up", "both")
    table.add_row(Text("tok/s, batch 1", style="bold"), *[Text(head, style="dim") for head in heads])
    for row in rows:
        figures = [row.tokens_per_s]
        if row.kind == "LPU":
            figures += [row.no_overlap, row.start_up, row.both]
        cells = ["-" if value is None else f"{value:,.0f}" for value in figures]
        used = str(row.used or "-") if row.kind == "LPU" else ""
        cells = [str(row.chips), used, count_text(row.context), *cells]
        table.add_row(row.kind, *cells, *[""] * (7 - len(cells)))
    return table
