"""The screen of `compare`: one table, a column per deployment, and the verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.claims import LEAST_SPEEDUP, Verdict
from agentsim.compare import Comparison
from agentsim.result import Part
from agentsim.summary import Summary
from agentsim.terminal.claim import answer_text, drawn_notes
from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.terminal.run import NAMES, overrides_line, sources_line
from agentsim.uncertainty import Uncertainty
from agentsim.units import HOUR_S, count_text, duration_text, time_unit

Cell = Callable[[Summary], str]
_GAP = 3
Row = tuple[str, list[str]]
UNCERTAIN, AS_IT_STANDS = "with uncertain data drawn", "as it stands"
_BOLD = (UNCERTAIN, AS_IT_STANDS, "task", "speed-up", "          p95", "token speed", "          ratio")


def compare_screen(comparison: Comparison, width: int) -> RenderableType:
    """Return the whole screen of a comparison; columns that do not fit side by side stand in blocks."""
    columns = comparison.columns
    rows = list(_rows(comparison))
    blocks = [indented(_table(rows, block)) for block in _blocks(rows, columns, width - 2)]
    heading = Text.assemble(
        (columns[0].first.workflow, "bold"),
        *overrides_line(columns[0].first),
        "\n",
        (_runs(columns[0]), "dim"),
    )
    return screen(heading, *blocks, *map(indented, _verdict(comparison)), indented(_notes(comparison)))


def _runs(column: Summary) -> str:
    first, runs = column.first.seed, column.runs
    return (
        f"{runs} runs each, seeds {first}-{first + runs - 1}" if runs > 1 else f"one run each, seed {first}"
    )


def _rows(comparison: Comparison) -> Iterator[Row]:
    """Yield label and cells of every row, the names of the deployments first."""
    columns, bands = comparison.columns, comparison.uncertainty
    unit, factor = time_unit(max(c.completion_s.p95 for c in columns))
    yield "", [c.first.deployment for c in columns]
    if bands is not None:
        yield from _bands(bands, columns, unit, factor)
    for label, cell in (
        *_headline(columns[0], unit, factor),
        *_parts(columns, unit, factor),
        *_rest(columns),
    ):
        yield label, [cell(c) for c in columns]


def _bands(bands: Uncertainty, columns: Sequence[Summary], unit: str, factor: float) -> Iterator[Row]:
    """Yield what nine tenths of the draws lie in, and the heading of what follows."""
    yield UNCERTAIN, ["" for _ in columns]
    rows = (
        (f"task time {{}} ({unit})", bands.task_s, 1 / factor, ".1f", ""),
        ("speed-up  {}", bands.speedup, 1.0, ".2f", "x"),
        ("token speed {} (tok/s)", bands.tokens_per_s, 1.0, ",.0f", ""),
    )
    for label, by_deployment, scale, form, times in rows:
        for end in ("p5", "p95"):
            found = [getattr(band, end, None) for band in by_deployment.values()]
            cells = ["-" if value is None else f"{value * scale:{form}}{times}" for value in found]
            name = label.format(end) if end == "p5" else " " * label.index("{") + end
            yield f"  {name}", cells
    yield AS_IT_STANDS, ["" for _ in columns]


def _headline(base: Summary, unit: str, factor: float) -> list[tuple[str, Cell]]:
    return [
        (f"task time p50 ({unit})", lambda c: _low(c) + f"{c.completion_s.p50 / factor:.1f}"),
        ("          p95", lambda c: _low(c) + f"{c.completion_s.p95 / factor:.1f}"),
        ("speed-up", lambda c: _times(base.completion_s.p50, c.completion_s.p50)),
        ("token speed (tok/s)", lambda c: f"{c.output_tokens_per_s or 0:,.0f}"),
        ("          ratio", lambda c: _times(c.output_tokens_per_s, base.output_tokens_per_s)),
    ]


def _parts(columns: Sequence[Summary], unit: str, factor: float) -> Iterator[tuple[str, Cell]]:
    yield f"on average ({unit})", lambda c: _low(c) + f"{c.completion_s.avg / factor:.1f}"
    for part in NAMES:
        if any(c.parts_s[part] for c in columns):
            yield f"  {NAMES[part]}", _part_cell(part, factor)
            if part is Part.TOOL and any(c.slot_wait_s for c in columns):
                yield "    waiting for a slot", lambda c: f"{c.slot_wait_s / factor:.1f}"
    if any(c.human_s for c in columns):
        yield "  waiting for you, not counted", lambda c: f"{c.human_s / factor:.1f}"


def _part_cell(part: Part, factor: float) -> Cell:
    return lambda c: (_low(c) if part is Part.PREFILL else "") + f"{c.parts_s[part] / factor:.1f}"


def _rest(columns: Sequence[Summary]) -> Iterator[tuple[str, Cell]]:
    yield "peak context (tokens)", lambda c: count_text(c.peak_context)
    if any(c.cost_usd is not None for c in columns):
        alone = ", machine to itself" if any(c.first.by_the_hour for c in columns) else ""
        yield f"USD a task{alone}", lambda c: "unknown" if c.cost_usd is None else f"{c.cost_usd:.2f}"


def _low(column: Summary) -> str:
    return "≥ " if column.is_lower_bound else ""


def _times(upper: float | None, lower: float | None) -> str:
    return f"{upper / lower:.1f}x" if upper and lower else "-"


def _blocks(rows: list[Row], columns: Sequence[Summary], width: int) -> Iterator[range]:
    """Yield runs of columns that fit the width; no figure is ever cut."""
    room = width - max(len(label) for label, _ in rows)
    start, used = 0, 0
    for index in range(len(columns)):
        need = _GAP + max(len(cells[index]) for _, cells in rows)
        if used + need > room and index > start:
            yield range(start, index)
            start, used = index, 0
        used += need
    yield range(start, len(columns))


def _table(rows: list[Row], block: range) -> Table:
    table = grid("left", *["right"] * len(block), padding=_GAP)
    for label, cells in rows:
        style = "bold" if not label or label.startswith(_BOLD) else ""
        table.add_row(Text(label, style=style), *[Text(cells[i], style=style) for i in block])
    return table


def _verdict(comparison: Comparison) -> list[RenderableType]:
    verdict, base = comparison.verdict, comparison.columns[0]
    claim = f'"{verdict.claim[:1].upper()}{verdict.claim[1:]}"?'
    first = Text.assemble((f"{claim}  {answer_text(verdict)} ", "bold"), _because(verdict, base))
    return [first, *map(Text, _chance(comparison)), Text(_limits(comparison))]


def _chance(comparison: Comparison) -> Iterator[str]:
    """Yield how sure the answer is, where uncertain data were drawn."""
    bands, verdict = comparison.uncertainty, comparison.verdict
    if bands is None or bands.probability is None or (band := bands.speedup[bands.fastest]) is None:
        return
    yield (
        f"With what is uncertain drawn {bands.samples} times, the claim holds with a probability of "
        f"{bands.probability:.0%}, and the speed-up on {verdict.fastest} is {band.p5:.2f}x to "
        f"{band.p95:.2f}x (p5-p95); the runs' own randomness alone makes it {verdict.speedup_p5:.2f}x to "
        f"{verdict.speedup_p95:.2f}x."
    )


def _because(verdict: Verdict, base: Summary) -> str:
    ratio = verdict.token_speed_ratio
    speed = f"{ratio:.3g}x the token speed gives " if ratio else ""
    most = "at most " if verdict.lower_bound else ""
    text = f"On {verdict.fastest}, {speed}{most}{verdict.speedup:.2g}x the task speed."
    return f"{text} {_changed(verdict, base)}"


def _changed(verdict: Verdict, base: Summary) -> str:
    """Say what a run half way becomes, and which part of the claim it fails."""
    before, after = base.completion_s.p50, base.completion_s.p50 / verdict.speedup
    if before < HOUR_S:
        return f"It takes {duration_text(before)} on {base.first.deployment}: no hours to save."
    text = f"{duration_text(before)} become {duration_text(after)}"
    if after >= HOUR_S:
        return f"{text}, still hours."
    if verdict.speedup < LEAST_SPEEDUP:
        return f"{text}: less than an hour, but less than {LEAST_SPEEDUP:.0f}x faster."
    return f"{text}."


def _limits(comparison: Comparison) -> str:
    verdict, base = comparison.verdict, comparison.columns[0]
    text = f"With inference in no time at all it would take {duration_text(verdict.instant_s)}"
    if verdict.ceiling_speedup is not None:
        text += f": {verdict.ceiling_speedup:.3g}x is the most that speed can give"
    text += f". {verdict.non_inference_share:.0%} of the time on {base.first.deployment} is tools, files and "
    text += "the network."
    if verdict.saturation_tok_s is not None:
        text += f" Decoding faster than {verdict.saturation_tok_s:,.0f} tok/s would change the answer on "
        text += f"{verdict.fastest} by less than 1 %."
    return text


def _notes(comparison: Comparison) -> Table:
    columns = comparison.columns
    notes = [(c.first.deployment, warning) for c in columns for warning in c.warnings]
    sources = [(c.first.deployment, sources_line(c.first)) for c in columns]
    bands = comparison.uncertainty
    return labelled([*notes, *sources, *(drawn_notes(bands) if bands else ())])
