"""The screen of `sensitivity`: a tornado, the longest bar first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.sensitivity import LEVER, Bar, Tornado
from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.units import duration_text, time_unit

_GAP = 2
LOW, HIGH, AXIS = "▒", "█", "│"
LEAST_SWING = 0.0005
"""Data that move the answer by less than this share of it are only named ..."""
MOST_BARS = 10
"""... and so are those after the first few."""
LEVERS_HEAD, DATA_HEAD = "The task", "What is uncertain"
_GROUPS = {"lpu", "rack", "links", "drafting", "engines", "main"}
_LEAST_ROOM = 10
_MOST_ROOM = 80
"""Columns of a bar."""


def sensitivity_screen(tornado: Tornado, width: int) -> RenderableType:
    """Return the whole screen; the task and the data have a scale each, for one dwarfs the other."""
    task = [bar for bar in tornado.bars if bar.kind == LEVER and bar.swing]
    known = [bar for bar in tornado.bars if bar.kind != LEVER and bar.swing >= LEAST_SWING * tornado.answer]
    known = known[:MOST_BARS]
    heading = Text.assemble((tornado.workflow, "bold"), *_changed(tornado), "\n", (_subject(tornado), "dim"))
    answer = Text.assemble((_answer(tornado), "bold"), _besides(tornado), "\n", _most(tornado, task, known))
    blocks = [(LEVERS_HEAD, task), (DATA_HEAD, known)]
    tables = [indented(_table(tornado, head, bars, width - 2)) for head, bars in blocks if bars]
    return screen(heading, indented(answer), *tables, indented(_notes(tornado, [*task, *known])))


def _most(tornado: Tornado, task: Sequence[Bar], known: Sequence[Bar]) -> str:
    """Say which lever and which datum move the answer most."""
    names, told = labels_of(tornado.bars), []
    for what, bars in (("of the task, ", task), ("of what is uncertain, ", known)):
        told += [f"{what}{names[bar.name]} ({_from_to(tornado, bar)})" for bar in bars[:1]]
    return f"What moves it most: {'; '.join(told)}." if told else ""


def _from_to(tornado: Tornado, bar: Bar) -> str:
    unit, factor = ("x", 1.0) if tornado.other else time_unit(tornado.answer)
    low, high = sorted((end or 0.0) / factor for end in (bar.low, bar.high))
    ends = [_figure(end, bar.swing / factor) for end in (low, high)]
    return f"{ends[0]}x to {ends[1]}x" if tornado.other else f"{ends[0]} to {ends[1]} {unit}"


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


def _table(tornado: Tornado, head: str, bars: Sequence[Bar], width: int) -> Table:
    unit, factor = ("x", 1.0) if tornado.other else time_unit(tornado.answer)
    ends = [end for bar in bars for end in (bar.low, bar.high) if end is not None]
    span, cells = (min(ends), max(ends)), list(_cells(tornado, head, bars, unit, factor))
    taken = 2 + sum(max(len(row[column]) for row in cells) + _GAP for column in range(4))
    room = min(max(width - taken, _LEAST_ROOM), _MOST_ROOM)
    table = grid("left", "left", "right", "right", "left", padding=_GAP)
    table.columns[0].no_wrap = False
    heads = [Text(text, style="dim" if place else "bold") for place, text in enumerate(cells[0])]
    table.add_row(*heads, _axis(tornado, span, room, factor))
    for bar, (name, told, low, high) in zip(bars, cells[1:], strict=True):
        table.add_row(
            f"  {name}", Text(told, style="dim"), low, high, _drawn(bar, tornado.answer, span, room)
        )
    return table


def _cells(
    tornado: Tornado, head: str, bars: Sequence[Bar], unit: str, factor: float
) -> Iterator[tuple[str, str, str, str]]:
    """Yield what stands beside the bars, the head first."""
    names = labels_of(tornado.bars)
    yield head, "from, to", f"low ({unit})", "high"
    for bar in bars:
        low, high = (_figure((end or 0.0) / factor, bar.swing / factor) for end in (bar.low, bar.high))
        yield names[bar.name], _told(bar), low, high


def _axis(tornado: Tornado, span: tuple[float, float], room: int, factor: float) -> Text:
    """Return the head of the bars: the least answer, the one as it stands, the most."""
    swing = (span[1] - span[0]) / factor
    low, middle, high = (_figure(value / factor, swing) for value in (span[0], tornado.answer, span[1]))
    place = _place(tornado.answer, span, room)
    line = [" "] * room
    line[: len(low)] = low
    line[room - len(high) :] = high
    start = min(max(place - len(middle) // 2, len(low) + 1), room - len(high) - 1 - len(middle))
    if start > len(low):
        line[start : start + len(middle)] = middle
    return Text("".join(line), style="dim")


def _drawn(bar: Bar, answer: float, span: tuple[float, float], room: int) -> Text:
    """Return a bar with the shade of the end that makes it, and the answer as it stands as an axis."""
    centre, cells = _place(answer, span, room), [" "] * room
    for end, shade in ((bar.low, LOW), (bar.high, HIGH)):
        place = centre if end is None else _place(end, span, room)
        for cell in range(min(place, centre), max(place, centre) + 1):
            cells[cell] = shade
    cells[centre] = AXIS
    return Text("".join(cells), style="blue")


def _place(value: float, span: tuple[float, float], room: int) -> int:
    width = span[1] - span[0]
    return round((value - span[0]) / width * (room - 1)) if width else 0


def _figure(value: float, swing: float) -> str:
    """Return a figure with as many digits as its swing needs to be seen."""
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
    if len(path) == 1:
        return f"{spec}: {path[0].replace('_', ' ')}"
    while len(path) > 1 and path[0] in _GROUPS:
        path = path[1:]
    return re.sub(r"[_.]", " ", " ".join(path[-2:]))


def _parts(name: str) -> list[str]:
    """Split a datum's name; the dots of a model's version belong to the spec."""
    return re.split(r"\.(?!\d)", name)


def _notes(tornado: Tornado, shown: Sequence[Bar]) -> Table:
    names = labels_of(tornado.bars)
    little = [names[bar.name] for bar in tornado.bars if bar not in shown and not bar.problem]
    misfits = [f"{names[bar.name]}: {bar.problem}" for bar in tornado.bars if bar.problem]
    rows = [
        ("Read it", f"{LOW} where a cause is at its first value, {HIGH} at its second; {AXIS} as it stands"),
        ("Spread", "a spread of ±n % is moved by two of it" if any("±" in b.told for b in shown) else ""),
        ("Hardly", ", ".join(little)),
        ("Not at all", ", ".join(_short(name) for name in tornado.still)),
        *(("Does not fit", misfit) for misfit in misfits),
        (
            "Next",
            "--format json has every full name and value; agentsim compare --uncertainty draws them together",
        ),
    ]
    return labelled([row for row in rows if row[1]])
