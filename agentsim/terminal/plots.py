"""Pictures in plain text: a heat map of two axes, a line or bars of one. They read without colour, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import bar, grid

SHADES = " ░▒▓█"
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""From dark to light in even steps of brightness, so that they differ for the colour-blind, too."""
NOTHING = "×"
"""Stands where there is no result."""
WIDE_SPAN = 10.0
"""From this ratio between the largest and the smallest value on, shades go by factors."""
MAP_ROWS = 40
PLOT_ROWS = 12
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800


@dataclass(frozen=True, slots=True)
class Side:
    """An axis of a picture: its title, the texts of its values, and the values as numbers where they are."""

    title: str
    labels: Sequence[str]
    numbers: Sequence[float] | None = None


Cells = Sequence[Sequence[float | None]]
Show = Callable[[float], str]


def heat_map(cells: Cells, down: Side, across: Side, show: Show, width: int) -> RenderableType:
    """Return a row for each value of `down`, a cell for each of `across`, darkest where it is most.

    Cells have figures where they fit, else shades alone. What does not fit even so is left out evenly, and
    a line says so.
    """
    shade = _shade(cells)
    rows = thinned(len(down.labels), MAP_ROWS)
    labels = [down.labels[row] for row in rows]
    room = width - max(map(len, labels)) - 2
    texts = [[NOTHING if value is None else show(value) for value in cells[row]] for row in rows]
    widest = max(len(text) for text in [*(t for row in texts for t in row), *across.labels])
    columns = list(range(len(across.labels)))
    if (widest + 5) * len(columns) <= room:
        table = grid("right", *["right"] * len(columns), padding=2)
        table.add_row("", *[Text(label, style="dim") for label in across.labels])
        for label, row, shown in zip(labels, rows, texts, strict=True):
            drawn = [_patch(shade(v), 2, " ") + f" {text}" for v, text in zip(cells[row], shown, strict=True)]
            table.add_row(Text(label, style="dim"), *drawn)
    else:
        size = 2 if 2 * len(columns) <= room else 1
        columns = thinned(len(columns), room // size)
        table = grid("right", "left", padding=2)
        for label, row in zip(labels, rows, strict=True):
            patches = [_patch(shade(cells[row][column]), size, NOTHING) for column in columns]
            table.add_row(Text(label, style="dim"), Text().join(patches))
        table.add_row("", Text(_ends(across.labels, columns, len(columns) * size), style="dim"))
    if len(rows) == len(down.labels) and len(columns) == len(across.labels):
        return table
    told = f"{len(rows)} of {len(down.labels):,} rows and {len(columns)} of {len(across.labels):,} columns"
    return Group(table, Text(f"{told} are shown", style="dim"))


def _shade(cells: Cells) -> Callable[[float | None], int | None]:
    """Return which of the shades a value has; None where there is no value."""
    known = [value for row in cells for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = math.log if _is_wide(low, high) else float
    first = scale(low)
    span = scale(high) - first

    def level(value: float | None) -> int | None:
        if value is None:
            return None
        share = (scale(value) - first) / span if span else 0.0
        return min(int(share * len(SHADES)), len(SHADES) - 1)

    return level


def _is_wide(low: float, high: float) -> bool:
    return low > 0 and high / low > WIDE_SPAN


def _patch(level: int | None, size: int, nothing: str) -> Text:
    if level is None:
        return Text(nothing * size, style="dim")
    return Text(SHADES[level] * size, style=COLOURS[level])


def thinned(count: int, room: int) -> list[int]:
    """Return which of `count` things are shown where there is room for so many: evenly, both ends in."""
    if count <= room:
        return list(range(count))
    return [round(step * (count - 1) / (room - 1)) for step in range(room)]


def _ends(labels: Sequence[str], shown: Sequence[int], width: int) -> str:
    """Return the first and the last label below the ends of what they label."""
    first, last = labels[shown[0]], labels[shown[-1]]
    return first + " " * max(width - len(first) - len(last), 1) + last


def key_of(cells: Cells, show: Show) -> str:
    """Return what light and dark mean in a heat map of these cells."""
    known = [value for row in cells for value in row if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    steps = ", shades by factors" if _is_wide(low, high) else ""
    text = f"lightest {show(low)}, darkest {show(high)}{steps}"
    return text + (f", {NOTHING} no result" if any(value is None for row in cells for value in row) else "")


def bars(values: Sequence[float | None], side: Side, show: Show, width: int) -> Table:
    """Return a bar for each value, from zero."""
    most = max((value for value in values if value is not None), default=0.0)
    room = max(min(width - max(map(len, side.labels)) - 16, 60), 10)
    table = grid("left", "left", "right")
    for label, value in zip(side.labels, values, strict=True):
        drawn = bar(value / most, room, "blue") if value and most else Text("")
        table.add_row(label, drawn, NOTHING if value is None else show(value))
    return table


def line_plot(values: Sequence[float | None], side: Side, show: Show, width: int) -> RenderableType:
    """Return a line over the numbers of an axis, from zero up; it breaks where there is no result."""
    assert side.numbers is not None, "a line needs numbers"
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    ticks = {0: show(most), PLOT_ROWS // 2: show(most / 2), PLOT_ROWS - 1: show(0.0)}
    margin = max(map(len, ticks.values()))
    columns = max(min(width - margin - 4, 100), 20)
    places = _places(side.numbers)
    points = [
        None if value is None else (place * (2 * columns - 1), (1 - value / most) * (4 * PLOT_ROWS - 1))
        for place, value in zip(places, values, strict=True)
    ]
    text = Text()
    for row, dots in enumerate(_canvas(points, columns, PLOT_ROWS)):
        tick = ticks.get(row, "")
        text += (
            Text(f"{tick:>{margin}} {'┤' if tick else '│'}", style="dim") + Text(dots, style="blue") + "\n"
        )
    first, last = side.labels[0], side.labels[-1]
    scale = " (log)" if by_factors(side.numbers) else ""
    below = f"{side.title}{scale}".center(max(columns - len(first) - len(last), len(side.title) + 8))
    text += Text(f"{'':>{margin}} └{'─' * columns}\n{'':>{margin}}  {first}{below}{last}", style="dim")
    return text


def by_factors(numbers: Sequence[float]) -> bool:
    """Tell whether numbers are spaced more evenly by their ratios than by their differences."""
    if len(numbers) < 3 or min(numbers) <= 0:
        return False
    return _unevenness([math.log(n) for n in numbers]) < _unevenness(numbers)


def _unevenness(numbers: Sequence[float]) -> float:
    steps = [abs(after - before) for before, after in pairwise(numbers)]
    return max(steps) / (math.fsum(steps) or 1.0)


def _places(numbers: Sequence[float]) -> list[float]:
    """Return where numbers lie between the smallest, 0, and the largest, 1."""
    scaled = [math.log(n) for n in numbers] if by_factors(numbers) else list(numbers)
    low, high = min(scaled), max(scaled)
    return [(n - low) / (high - low) if high > low else 0.0 for n in scaled]


def _canvas(points: Sequence[tuple[float, float] | None], columns: int, rows: int) -> list[str]:
    """Return lines of braille with a path through the points; x and y count dots from the top left."""
    cells = [[0] * columns for _ in range(rows)]
    before: tuple[float, float] | None = None
    for point in points:
        if point is not None:
            for x, y in _between(before or point, point):
                cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
        before = point
    return ["".join(chr(_BRAILLE + dots) if dots else " " for dots in row) for row in cells]


def _between(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[int, int]]:
    steps = max(int(max(abs(end[0] - start[0]), abs(end[1] - start[1]))), 1)
    share = [step / steps for step in range(steps + 1)]
    return [
        (round(start[0] + s * (end[0] - start[0])), round(start[1] + s * (end[1] - start[1]))) for s in share
    ]
