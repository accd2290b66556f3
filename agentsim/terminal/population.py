"""The screen of `compare` over many recorded sessions: distributions, the claim, the slowest tenth."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.compare import Comparison
from agentsim.population import EDGES, Population, Row, Share, fastest, histogram, quantiles, slowest_parts
from agentsim.result import Part
from agentsim.terminal.compare import compare_screen
from agentsim.terminal.layout import STYLES, bar, grid, indented, labelled, screen
from agentsim.terminal.run import NAMES
from agentsim.units import duration_text, time_unit

SHOWN = ("p10", "p50", "p90", "p99", "max")
MANY = 10
"""From so many sessions on, one in ten is one."""
LEAST_SHARE = 0.001
_OF_PART = {part.key: name for part, name in NAMES.items()}


def compared_screen(found: Comparison | Population, width: int) -> RenderableType:
    """Return the screen of a comparison, of one workflow or of many sessions."""
    return compare_screen(found, width) if isinstance(found, Comparison) else population_screen(found, width)


def population_screen(population: Population, width: int) -> RenderableType:
    """Return the whole screen."""
    return screen(
        _heading(population),
        *(indented(Text.assemble(*line)) for line in _answers(population)),
        indented(_quantiles(population)),
        *(indented(_histogram(population, i, width)) for i in range(1, len(population.deployments))),
        indented(_slowest(population, width)),
        indented(_notes(population)),
    )


def _heading(population: Population) -> Text:
    calls = sum(row.model_calls for row in population.rows)
    facts = f"{len(population.rows):,} of {population.sessions:,} sessions simulated · {calls:,} model calls"
    changed = (
        [("\n", ""), (f"with {', '.join(population.overrides)}", "yellow")] if population.overrides else []
    )
    return Text.assemble(
        (os.path.basename(os.path.abspath(population.path)), "bold"), *changed, "\n", (facts, "dim")
    )


def _answers(population: Population) -> Iterator[list[tuple[str, str]]]:
    """Yield, for the fastest deployment, what sessions gain, and what the claim comes to."""
    index = fastest(population)
    name, speedups = population.deployments[index], quantiles(population.speedups(index))
    ratio, model = _token_ratio(population, index), quantiles(population.model_speedups(index))
    half, tenth = f"{speedups['p50']:.2f}x faster on {name}", f"{speedups['p90']:.2f}x or more"
    many = len(population.rows) >= MANY
    gain = (
        f"Half of the sessions are {half} or more, one in ten {tenth}." if many else f"Half way it is {half}."
    )
    zero = f" At most: unpublished parts of {name} count as zero." if population.is_lower_bound(index) else ""
    yield [
        (gain + zero, "bold"),
        (f" {ratio}The model's own time alone shrinks {model['p50']:.3g}x.", ""),
    ]
    begun, kept = population.begun(), population.kept(index)
    share = f" ({kept / begun:.0%})" if kept else ""
    yield [
        (f'"{population.claim.text.capitalize()}"?  In {kept} of {begun} sessions{share}', "bold"),
        (f" that take an hour or more on {population.deployments[0]}.", ""),
    ]


def _token_ratio(population: Population, index: int) -> str:
    base, other = population.token_speed(0), population.token_speed(index)
    return f"It writes tokens {other / base:.3g}x as fast. " if base and other else ""


def _quantiles(population: Population) -> Table:
    columns = [population.task_s(index) for index in range(len(population.deployments))]
    unit, factor = time_unit(quantiles(columns[0])["p50"])
    table = grid("left", *["right"] * (len(SHOWN) + 1), padding=3)
    table.add_row("", *[Text(name, style="bold") for name in SHOWN], Text("all", style="bold"))
    table.add_row(Text(f"task time ({unit})", style="bold"))
    for index, times in enumerate(columns):
        figures: list[float] = [*(quantiles(times)[name] for name in SHOWN), sum(times)]
        low = "≥ " if population.is_lower_bound(index) else ""
        table.add_row(f"  {population.deployments[index]}", *[f"{low}{t / factor:,.1f}" for t in figures])
    total = sum(columns[0])
    for label, of in (("speed-up", population.speedups), ("  of model time", population.model_speedups)):
        table.add_row(Text(label, style="bold" if label == "speed-up" else ""))
        for index in range(1, len(columns)):
            whole = f"{total / sum(columns[index]):.2f}x" if label == "speed-up" else ""
            ratios = [f"{quantiles(of(index))[name]:.3g}x" for name in SHOWN]
            table.add_row(f"  {population.deployments[index]}", *ratios, whole)
    return table


def _histogram(population: Population, index: int, width: int) -> RenderableType:
    counts = histogram(population.speedups(index))
    most, room = max(counts), max(min(width - 40, 60), 16)
    table = grid("right", "left", "right", "right")
    for place, count in enumerate(counts):
        if count or 0 < place <= _last(counts):
            share = f"{100 * count / len(population.rows):.1f}"
            table.add_row(_class(place), bar(count / most, room, "blue"), f"{count:,}", share)
    heading = Text.assemble(
        (f"Speed-up on {population.deployments[index]}", "bold"), ("   sessions, and % of all", "dim")
    )
    return Group(heading, table)


def _last(counts: Sequence[int]) -> int:
    return max(place for place, count in enumerate(counts) if count)


def _class(place: int) -> str:
    if place == 0:
        return f"under {EDGES[0]:g}x"
    if place == len(EDGES):
        return f"{EDGES[-1]:g}x or more"
    return f"{EDGES[place - 1]:g}x to {EDGES[place]:g}x"


def _slowest(population: Population, width: int) -> RenderableType:
    rows, index = population.slowest(), fastest(population)
    base, other = population.deployments[0], population.deployments[index]
    shares = slowest_parts(population)
    total = sum(share.base_s for share in shares)
    unit, factor = time_unit(total / len(rows))
    heading = Text.assemble(
        ("The slowest tenth waits for", "bold"), (f"   {_span(rows)}; {unit} each", "dim")
    )
    table, room = grid("left", "left", "right", "right", "right"), max(min(width - 50, 50), 12)
    table.add_row("", "", *[Text(text, style="dim") for text in (base, "%", other)])
    for share in shares:
        part = share.base_s / total
        if part >= LEAST_SHARE:
            figures = (share.base_s / factor / len(rows), share.other_s / factor / len(rows))
            table.add_row(
                f"  {_part_name(share)}",
                bar(part, room, STYLES[share.part]),
                f"{figures[0]:,.1f}",
                f"{100 * part:.1f}",
                f"{figures[1]:,.1f}",
            )
    named = [Text(f"  {text}", style="dim") for text in _named(shares, len(rows))]
    return Group(heading, table, *named)


def _part_name(share: Share) -> str:
    """Return what a part is called; where its waits have one name, that."""
    return next(iter(share.names)) if len(share.names) == 1 else _OF_PART[share.part]


def _span(rows: Sequence[Row]) -> str:
    times = [row.lived[0].task_s for row in rows]
    if len(rows) == 1:
        return f"1 session, {duration_text(times[0])}"
    return f"{len(rows)} sessions, {duration_text(min(times))} to {duration_text(max(times))}"


def _named(shares: Sequence[Share], count: int) -> Iterator[str]:
    """Yield the longest waits by name, where there is more than one name."""
    for share in shares:
        if share.part == Part.TOOL.key and len(share.names) > 1:
            told = (f"{name} {duration_text(seconds / count)}" for name, seconds in share.names.items())
            yield f"of tools, by name and side by side: {' · '.join(told)}"


def _notes(population: Population) -> Table:
    left_out = [
        ("Left out", f"{count} on {name}: {reason}")
        for name, reasons in population.left_out.items()
        for reason, count in reasons.items()
    ]
    over = [
        ("Passed over", f"{count} file{'' if count == 1 else 's'}: {reason}")
        for reason, count in population.passed_over.items()
    ]
    return labelled([*left_out, *over, *_idle(population)])


def _idle(population: Population) -> Iterator[tuple[str, str]]:
    from agentsim.importers.sessions import WAIT_NAME

    unexplained_s = sum(row.waits_s.get(WAIT_NAME, 0.0) for row in population.rows)
    if population.idle_s is not None:
        yield (
            "Idle",
            f"waits of over {duration_text(population.idle_s)} that the logs do not explain are a person's",
        )
    elif unexplained_s:
        yield (
            "Waits",
            f"{unexplained_s / 3600:,.0f} h of them may be tools or a person at lunch: the logs do not say. "
            "--idle-over '5 min' takes longer ones for a person's, and does not count them",
        )
