"""The screen of `sweep`: the best point, the worst, what drives it, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from agentsim.sweep.columns import Metric
from agentsim.sweep.effects import Driver, Reading, point_text
from agentsim.sweep.space import Axis, value_text
from agentsim.terminal.layout import grid, indented, joined, labelled, screen
from agentsim.terminal.plots import Side, bars, heat_map, key_of, line_plot
from agentsim.units import count_text, duration_text, time_unit

if TYPE_CHECKING:
    from agentsim.verbs_sweep import Swept

LONGEST_LABEL = 24
REASONS = 3
"""Distinct reasons of points without result that are told."""
STATUSES = {"infeasible": "infeasible", "invalid": "invalid", "error": "ended in an error"}


def sweep_screen(found: Swept, width: int) -> RenderableType:
    """Return the whole screen of a sweep, as far as it is done."""
    reading = found.reading
    parts: list[RenderableType] = [_heading(found)]
    if any(value is not None for value in reading.values):
        show = _show(reading)
        parts += [indented(_answer(reading)), *map(indented, _picture(reading, show, width - 2))]
    parts.append(indented(_notes(found)))
    return screen(*parts)


def _heading(found: Swept) -> RenderableType:
    seeds = found.sweep.work.seeds
    runs = f"{len(seeds)} runs each, seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    done = sum(found.reading.statuses.values())
    points = f"{found.sweep.space.size:,} points"
    if done < found.sweep.space.size:
        points = f"{done:,} of {points}"
    where = f"on {found.sweep.work.deployment}" if found.sweep.work.deployment else ""
    task = found.sweep.task if found.sweep.task != found.sweep.name else ""
    return Text.assemble((found.sweep.name, "bold"), "\n", (joined([task, points, runs, where]), "dim"))


def _answer(reading: Reading) -> RenderableType:
    table = grid("left", "left", "left", padding=2)
    table.columns[2].no_wrap = False
    for label, index, style in (("Best", reading.best, "bold green"), ("Worst", reading.worst, "bold")):
        value = reading.values[index]
        assert value is not None, "an extreme has a value"
        low = "≥ " if _is_bound(reading, index) else ""
        told = Text(low + _told(reading.metric, value), style=style)
        table.add_row(Text(label, style="bold"), told, point_text(reading.space, index))
    for place, driver in enumerate(reading.drivers):
        head = Text("Driven by" if not place else "", style="bold")
        table.add_row(
            head, f"{driver.share:.0%}" if len(reading.drivers) > 1 else "", _driver(driver, reading)
        )
    left = 1.0 - sum(driver.share for driver in reading.drivers)
    if len(reading.drivers) > 1:
        if left >= 0.005:
            table.add_row("", f"{left:.0%}", "their interplay")
        table.add_row(
            "", "", Text("% of the variation between points; means over the other axes", style="dim")
        )
    return table


def _is_bound(reading: Reading, index: int) -> bool:
    return reading.metric.dimension == "time" and index in reading.lower_bounds


def _driver(driver: Driver, reading: Reading) -> str:
    known = [mean for mean in driver.means if mean is not None]
    low, high = (_told(reading.metric, edge) for edge in (min(known), max(known)))
    return f"{driver.label}: {low} to {high}"


def _told(metric: Metric, value: float) -> str:
    """Return a figure with its unit."""
    unit, show = _scale(metric.dimension, value)
    return duration_text(value) if metric.dimension == "time" else joined_unit(show(value), unit)


def joined_unit(text: str, unit: str) -> str:
    """Return a figure and its unit, where it has one."""
    return f"{text} {unit}" if unit else text


def _scale(dimension: str, largest: float) -> tuple[str, Callable[[float], str]]:
    """Return the unit of a table whose largest figure is given, and how its figures are written."""
    if dimension == "time":
        unit, factor = time_unit(largest)
        return unit, lambda value: f"{value / factor:.1f}"
    if dimension == "share":
        return "%", lambda value: f"{100 * value:.1f}"
    if dimension == "token speed":
        return "tok/s", lambda value: f"{value:,.0f}"
    if dimension == "USD":
        return "USD", lambda value: f"{value:.2f}"
    return ("tokens" if dimension == "tokens" else ""), count_text


def _show(reading: Reading) -> tuple[str, Callable[[float], str]]:
    return _scale(reading.metric.dimension, max(v for v in reading.values if v is not None))


def _picture(
    reading: Reading, scale: tuple[str, Callable[[float], str]], width: int
) -> Iterator[RenderableType]:
    """Yield title and picture: of the one axis, or of the two that drive the metric most."""
    unit, show = scale
    what = reading.metric.label[0].upper() + reading.metric.label[1:] + (f" ({unit})" if unit else "")
    varied = [driver for driver in reading.drivers if len(driver.means) > 1] or list(reading.drivers)
    if len(varied) == 1:
        side = _side(reading.space.groups[varied[0].group])
        line = side.numbers is not None and len(side.numbers) > 2
        yield Text.assemble((what, "bold"), f" by {side.title}")
        yield (
            line_plot(varied[0].means, side, show, width)
            if line
            else bars(varied[0].means, side, show, width)
        )
        if line:
            yield bars(varied[0].means, side, show, width) if len(side.labels) <= 24 else Text()
        return
    one, other = sorted(varied[:2], key=lambda driver: (len(driver.means), driver.group))
    across, down = _side(reading.space.groups[one.group]), _side(reading.space.groups[other.group])
    cells = reading.surface(other.group, one.group)
    rest = ", ".join(driver.label for driver in varied[2:])
    yield Text.assemble(
        (what, "bold"),
        f"\n{down.title} down, {across.title} across" + (f"; the mean over {rest}" if rest else ""),
    )
    yield heat_map(cells, down, across, show, width)
    yield Text(key_of(cells, lambda value: joined_unit(show(value), unit)), style="dim")


def _side(group: Sequence[Axis]) -> Side:
    """Return a group of axes as the side of a picture; several are told by the values of the first."""
    axis = group[0]
    labels = [_shortened(value_text(value)) for value in axis.values]
    others = f" (with {', '.join(a.path for a in group[1:])})" if len(group) > 1 else ""
    return Side(axis.path + others, labels, axis.numbers)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _notes(found: Swept) -> RenderableType:
    statuses, reasons = found.reading.statuses, found.reading.reasons
    bounds, warned = len(found.reading.lower_bounds), found.reading.warned
    rows = [
        (
            "Lower bounds",
            f"{bounds:,} points: a part of their time is not published and counts as zero" if bounds else "",
        ),
        ("Warnings", f"on {warned:,} points: see the column 'warnings'" if warned else ""),
        ("No result", joined([f"{statuses[s]:,} {told}" for s, told in STATUSES.items() if statuses.get(s)])),
        *(
            ("", f"{count:,}x {reason}")
            for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:REASONS]
        ),
        ("", f"and {len(reasons) - REASONS:,} other reasons" if len(reasons) > REASONS else ""),
        ("Table", found.output),
    ]
    return labelled((label, text) for label, text in rows if text)
