"""The screen of `sensitivity`: a tornado, the longest bar first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.sensitivity import LEVER, Bar, Tornado
from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.units import duration_text, time_unit

LOW, HIGH, AXIS = "▒", "█", "│"
LEAST_SWING = 0.001
"""Bars that move the answer by less than this share of it are only named."""
_GROUPS = {"lpu", "rack", "links", "drafting", "engines", "main"}
_ROOM = 61
"""Columns that a row takes beside its bar."""


def sensitivity_screen(tornado: Tornado, width: int) -> RenderableType:
    """Return the whole screen."""
    shown = [bar for bar in tornado.bars if bar.swing >= LEAST_SWING * tornado.answer]
    heading = Text.assemble((tornado.workflow, "bold"), *_changed(tornado), "\n", (_subject(tornado), "dim"))
    answer = Text.assemble(("  " + _answer(tornado), "bold"), _besides(tornado))
    parts: list[RenderableType] = [heading, answer]
    if shown:
        parts.append(indented(_table(tornado, shown, max(width - _ROOM, 16))))
    return screen(*parts, indented(_notes(tornado, shown)))


def _changed(tornado: Tornado) -> list[tuple[str, str]]:
    return [("\n", ""), (f"with {', '.join(tornado.overrides)}", "yellow")] if tornado.overrides else []


def _subject(tornado: Tornado) -> str:
    seeds = tornado.seeds
    median = (
        f"median of {len(seeds)} runs, seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    )
    what = "the task time on" if tornado.other is None else f"the speed-up of {tornado.other} over"
    return f"what moves {what} {tornado.base} · {median}"


def _answer(tornado: Tornado) -> str:
    if tornado.other is None:
        return f"Task completion time   {duration_text(tornado.answer)}"
    return f"Speed-up of the task   {tornado.answer:.2f}x"


def _besides(tornado: Tornado) -> str:
    ratio = tornado.token_speed_ratio
    return f"   (token speed: {ratio:.3g}x)" if ratio else ""


def _table(tornado: Tornado, bars: Sequence[Bar], room: int) -> Table:
    unit, factor = ("x", 1.0) if tornado.other else time_unit(tornado.answer)
    ends = [end for bar in bars for end in (bar.low, bar.high) if end is not None]
    span = (min(ends), max(ends))
    table, names = grid("left", "left", "right", "right", "left"), labels_of(bars)
    table.add_row(
        *[Text(text, style="dim") for text in ("", "from, to", f"low ({unit})", "high")],
        _axis(tornado, span, room, factor),
    )
    for bar in bars:
        if bar.low is None or bar.high is None:  # it has no swing, and is told below
            continue
        table.add_row(
            Text(names[bar.name], style="bold" if bar.kind == LEVER else ""),
            Text(_told(bar), style="dim"),
            _figure(bar.low / factor, bar.swing / factor),
            _figure(bar.high / factor, bar.swing / factor),
            _drawn(bar.low, bar.high, tornado.answer, span, room),
        )
    return table


def _axis(tornado: Tornado, span: tuple[float, float], room: int, factor: float) -> Text:
    """Return the head of the bars: the least answer, the one as it stands, the most."""
    low, middle, high = (f"{value / factor:.3g}" for value in (span[0], tornado.answer, span[1]))
    place = _place(tornado.answer, span, room)
    line = [" "] * room
    line[: len(low)] = low
    line[room - len(high) :] = high
    start = min(max(place - len(middle) // 2, len(low) + 1), room - len(high) - 1 - len(middle))
    if start > len(low):
        line[start : start + len(middle)] = middle
    return Text("".join(line), style="dim")


def _drawn(low: float, high: float, answer: float, span: tuple[float, float], room: int) -> Text:
    """Return a bar with the shade of the end that makes it, and the answer as it stands as an axis."""
    centre, cells = _place(answer, span, room), [" "] * room
    for end, shade in ((low, LOW), (high, HIGH)):
        place = _place(end, span, room)
        for cell in range(min(place, centre), max(place, centre) + 1):
            cells[cell] = shade
    cells[centre] = AXIS
    return Text("".join(cells), style="blue")


def _place(value: float, span: tuple[float, float], room: int) -> int:
    width = span[1] - span[0]
    return round((value - span[0]) / width * (room - 1)) if width else 0


def _figure(value: float, swing: float) -> str:
    return f"{value:.3f}" if swing < 0.1 else f"{value:.2f}" if swing < 1 else f"{value:.1f}"


def _told(bar: Bar) -> str:
    """Return the ends in as little room as they need: `1-70 ms`, `x0.5-x2`."""
    units = re.fullmatch(r"(\S+) (\S+) to (\S+) (\S+)", bar.told)
    if units and units[2] == units[4]:
        return f"{units[1]}-{units[3]} {units[2]}"
    return bar.told.replace(" to ", "-") if not units else bar.told


def labels_of(bars: Sequence[Bar]) -> dict[str, str]:
    """Return names that fit beside a bar; the spec that a datum is of only where two would be alike."""
    short = {bar.name: _short(bar.name) if bar.kind != LEVER else bar.name for bar in bars}
    often = Counter(short.values())
    return {
        name: f"{name.partition('.')[0]}: {text}" if often[text] > 1 else text for name, text in short.items()
    }


def _short(name: str) -> str:
    spec, *path = _parts(name)
    del spec
    while len(path) > 1 and path[0] in _GROUPS:
        path = path[1:]
    return " ".join(path[-2:]).replace("_", " ")


def _parts(name: str) -> list[str]:
    """Split a datum's name; the dots of a model's version belong to the spec."""
    return re.split(r"\.(?!\d)", name)


def _notes(tornado: Tornado, shown: Sequence[Bar]) -> Table:
    names = labels_of(tornado.bars)
    little = [names[bar.name] for bar in tornado.bars if bar not in shown and not bar.problem]
    misfits = [f"{names[bar.name]}: {bar.problem}" for bar in tornado.bars if bar.problem]
    rows = [
        ("Read it", f"{LOW} where a cause is at its first value, {HIGH} at its second; {AXIS} as it stands"),
        ("Hardly", f"{', '.join(little)}: less than {LEAST_SWING:.1%} each" if little else ""),
        ("Not at all", ", ".join(_short(name) for name in tornado.still)),
        *(("Does not fit", misfit) for misfit in misfits),
        (
            "Next",
            "--format json has every full name and value; agentsim compare --uncertainty draws them together",
        ),
    ]
    return labelled([row for row in rows if row[1]])
