"""The screen of `compare`: one table, a column per deployment, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.compare import HOUR_S, Comparison, Verdict
from agentsim.summary import Summary
from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.terminal.run import NAMES, sources_line
from agentsim.units import count_text, duration_text, time_unit

Cell = Callable[[Summary], str]


def compare_screen(comparison: Comparison) -> RenderableType:
    """Return the whole screen of a comparison."""
    columns = comparison.columns
    name = Text(columns[0].first.workflow, style="bold")
    return screen(
        name, indented(_table(columns)), *map(indented, _verdict(comparison)), indented(_notes(columns))
    )


def _table(columns: Sequence[Summary]) -> Table:
    unit, factor = time_unit(max(c.completion_s.p95 for c in columns))
    table = grid("left", *["right"] * len(columns), padding=3)
    table.add_row("", *[Text(c.first.deployment, style="bold") for c in columns])
    for label, cell in _headline(columns[0], unit, factor):
        table.add_row(Text(label, style="bold"), *[Text(cell(c), style="bold") for c in columns])
    table.add_row(Text(f"where it went (mean, {unit})", style="dim"))
    for part in NAMES:
        if any(c.parts_s[part] for c in columns):
            table.add_row(f"  {NAMES[part]}", *[f"{c.parts_s[part] / factor:.1f}" for c in columns])
    for label, cell in _rest(columns, factor):
        table.add_row(label, *[cell(c) for c in columns])
    return table


def _headline(base: Summary, unit: str, factor: float) -> list[tuple[str, Cell]]:
    return [
        (f"task time p50 ({unit})", lambda c: _low(c) + f"{c.completion_s.p50 / factor:.1f}"),
        ("          p95", lambda c: _low(c) + f"{c.completion_s.p95 / factor:.1f}"),
        ("speed-up", lambda c: _times(base.completion_s.p50, c.completion_s.p50)),
        ("token speed (tok/s)", lambda c: f"{c.output_tokens_per_s or 0:,.0f}"),
        ("          ratio", lambda c: _times(c.output_tokens_per_s, base.output_tokens_per_s)),
    ]


def _rest(columns: Sequence[Summary], factor: float) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [("peak context (tokens)", lambda c: count_text(c.peak_context))]
    if any(c.human_s for c in columns):
        rows.insert(0, ("waiting for you, not counted", lambda c: f"{c.human_s / factor:.1f}"))
    if any(c.cost_usd is not None for c in columns):
        rows.append(("cost (USD a task)", _cost))
    if any(c.first.by_the_hour for c in columns):
        rows.append(("  * the machine to itself", lambda _: ""))
    return rows


def _cost(column: Summary) -> str:
    if column.cost_usd is None:
        return "unknown"
    return f"{column.cost_usd:.2f}" + (" *" if column.first.by_the_hour else "")


def _low(column: Summary) -> str:
    return "≥ " if column.is_lower_bound else ""


def _times(upper: float | None, lower: float | None) -> str:
    return f"{upper / lower:.1f}x" if upper and lower else "-"


def _verdict(comparison: Comparison) -> list[RenderableType]:
    verdict, base = comparison.verdict, comparison.columns[0]
    answer = "Yes, for this task." if verdict.holds else "Not for this task."
    first = Text.assemble((f'"{verdict.claim.capitalize()}"?  {answer} ', "bold"), _because(verdict, base))
    return [first, Text(_limits(comparison))]


def _because(verdict: Verdict, base: Summary) -> str:
    ratio = verdict.token_speed_ratio
    speed = f"{ratio:.3g}x the token speed gives " if ratio else ""
    text = f"On {verdict.fastest}, {speed}{verdict.speedup:.2g}x the task speed."
    before = duration_text(base.completion_s.p50)
    if base.completion_s.p50 < HOUR_S:
        text += f" It takes {before} on {base.first.deployment}: no hours to save."
    elif not verdict.holds:
        text += f" {before} would have to become less than an hour, and at most half of it."
    return text


def _limits(comparison: Comparison) -> str:
    verdict, base = comparison.verdict, comparison.columns[0]
    outside = duration_text(verdict.instant_s)
    text = f"Tools, files and the network alone take {outside}"
    if verdict.ceiling_speedup is not None:
        text += f"; even inference in no time would give {verdict.ceiling_speedup:.3g}x"
    text += f" ({verdict.non_inference_share:.0%} of the time on {base.first.deployment} is not inference)."
    if verdict.saturation_tok_s is not None:
        speed = f"{verdict.saturation_tok_s:,.0f}"
        text += f" Decoding faster than {speed} tok/s would change the answer on {verdict.fastest} by "
        text += "less than 1 %."
    return text


def _notes(columns: Sequence[Summary]) -> Table:
    notes = [(f"{c.first.deployment}", warning) for c in columns for warning in c.warnings]
    sources = [(c.first.deployment, sources_line(c.first.sources, c.first.deployment)) for c in columns]
    return labelled([*notes, *sources])
