"""The screens of `anchors` and of `calibrate lpx`: published against simulated, and what is still unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.units import MICROSECOND_S

if TYPE_CHECKING:
    from agentsim.anchors import Constant, Reading, Row
    from agentsim.verbs_hardware import Held

_VERDICTS = {True: ("holds", "green"), False: ("fails", "red"), None: ("not yet", "yellow")}
_TEXT = 10
"""Longest text of a published figure that is shown; of a longer one its numbers are."""


def anchors_screen(held: Held) -> RenderableType:
    """Return the whole screen: the rows, why some fail, and how far schedules are from measured steps."""
    rows = held.rows
    parts: list[RenderableType] = [indented(_table(rows)), indented(Text(_BASIS, style="dim"))]
    missed = [(row.anchor.id, row.why) for row in rows if row.why]
    if missed:
        parts.append(indented(labelled(missed)))
    parts += [indented(part) for part in readings_parts(held.readings)]
    return screen(*parts, indented(Text(_count(rows), style="bold")))


_BASIS = (
    "Gate: a row that must hold within its tolerance; the others are only told.\n"
    "Calibrated: fitted to this row, or the catalog takes the figure itself. Restates: follows from another "
    "row, no prediction of its own."
)


def _table(rows: Sequence[Row]) -> Table:
    table = grid("left", "right", "right", "left", "right", "left", "left", "left", padding=1)
    heads = ("published", "simulated", "unit", "err %", "basis", "gate", "verdict")
    table.add_row(Text("Anchor", style="bold"), *[Text(head, style="dim") for head in heads])
    for row in rows:
        anchor, (verdict, style) = row.anchor, _VERDICTS[row.ok]
        published = anchor.value if _is_short(anchor.value) else _numbers(anchor.figures)
        error = "-" if row.error is None else f"{100 * row.error:+.1f}"
        cells = [str(published), _numbers(row.simulated or ()) or "-", anchor.unit, error, _basis(row)]
        if not isinstance(published, str):
            cells[0] = number_text(published)
        table.add_row(anchor.id, *cells, "yes" if anchor.gate else "no", Text(verdict, style=style))
    return table


def _basis(row: Row) -> str:
    if row.simulated is None:
        return "-"
    return "restates" if row.anchor.follows else row.anchor.basis


def _is_short(value: float | str) -> bool:
    return not isinstance(value, str) or len(value) <= _TEXT


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(number_text(value) for value in values)


def number_text(value: float) -> str:
    """Return a figure with four digits, or all of a longer whole number."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _count(rows: Sequence[Row]) -> str:
    gates = [row for row in rows if row.anchor.gate]
    text = f"{sum(bool(row.ok) for row in gates)} of {len(gates)} gates hold"
    predicted = [row for row in gates if row.independent]
    text += f", {sum(bool(row.ok) for row in predicted)} of {len(predicted)} independent predictions; "
    missing = sum(row.ok is None for row in rows)
    return text + f"{len(rows)} rows" + (f", {missing} not simulated" if missing else "")


def readings_parts(readings: Sequence[Reading]) -> list[RenderableType]:
    """Return the schedule's floor beside what the published speeds imply, and what to make of it."""
    table = grid("left", "left", "right", "right", "right", "right", "right", padding=1)
    heads = ("read as", "tok/step", "us/step", "floor", "ratio", "us/layer")
    table.add_row(Text("What a speed implies", style="bold"), *[Text(head, style="dim") for head in heads])
    for reading in readings:
        step, floor = (time / MICROSECOND_S for time in (reading.step_s, reading.floor_s))
        table.add_row(
            f"{reading.anchor} {number_text(reading.published)}",
            f"{reading.drafts} (fitted)" if reading.fitted else reading.drafts,
            f"{reading.tokens_per_step:.2f}",
            number_text(step),
            number_text(floor),
            f"{reading.ratio:.2f}",
            f"{reading.layer_s(reading.step_s) / MICROSECOND_S:.1f}",
        )
    return [table, Text(_READ_SO, style="dim")]


_READ_SO = (
    "The floor is the schedule alone, nothing calibrated: the ratio is what the model does not know. "
    "(fitted): the tokens a step were fitted on this very speed, so that the row is no evidence. "
    "With drafts, a layer's share of a step includes drafting and the head."
)


def constants_screen(fitted: Sequence[tuple[Constant, float]]) -> RenderableType:
    """Return the screen of a calibration: what it would write, and what stands in the catalog."""
    table = grid("left", "left", "right", "left", padding=2)
    heads = ("fitted", "in the catalog", "on")
    table.add_row(Text("Constant", style="bold"), *[Text(head, style="dim") for head in heads])
    for constant, current in fitted:
        apart = 100 * (current / constant.value - 1.0)
        table.add_row(constant.datum.rpartition(".")[2], constant.text, f"{apart:+.2f} %", constant.anchor)
    where = [(constant.datum.rpartition(".")[2], constant.datum) for constant, _ in fitted]
    return screen(indented(table), indented(labelled(where)))
