"""The screen of `capacity`: the most agents, what a task costs there, what breaks beyond, what was tried."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.fleet.capacity import Capacity, Point
from agentsim.terminal.fleet import cost_text, energy_line, replicas_text
from agentsim.terminal.layout import grid, indented, joined, labelled, screen
from agentsim.terminal.run import overrides_line, sources_line
from agentsim.units import HOUR_S, duration_text, rounded_text, share_text, time_unit


def capacity_screen(found: Capacity, width: int) -> RenderableType:
    """Return the whole screen of a search."""
    del width  # the table is narrower than the narrowest screen
    facts = labelled([row for row in _facts(found) if row[1]])
    return screen(_heading(found), indented(_answer(found)), indented(_table(found)), indented(facts))


def _heading(found: Capacity) -> Text:
    first = found.best.fleet.summary.first
    facts = joined(
        [
            f"{found.share:.0%} of the tasks must meet {found.objective.text}",
            replicas_text(found.best.fleet),
            f"seed {found.seed}",
        ]
    )
    return Text.assemble((found.workflow, "bold"), *overrides_line(first), "\n", (facts, "dim"))


def _answer(found: Capacity) -> Table:
    fleet, load = found.best.fleet, found.best.load
    table = grid("left", "left", padding=3)
    table.columns[1].no_wrap = False
    most = found.text if found.bounded else f"over {found.text}"
    per_chip = f", {rounded_text(load / fleet.chips)} a chip" if fleet.chips and not found.arrival else ""
    label = "Most arrivals" if found.arrival else "Most agents"
    table.add_row(
        Text(label, style="bold"),
        Text.assemble((most, "bold green"), f"{per_chip}   on {found.plan.deployment}"),
    )
    table.add_row(Text("Tasks an hour", style="bold"), f"{rounded_text(fleet.tasks_per_h)}{_a_chip(found)}")
    return table


def _a_chip(found: Capacity) -> str:
    each, chips = found.best.fleet.tasks_per_h_per_chip, found.best.fleet.chips
    return "" if each is None else f", {rounded_text(each)} a chip ({chips:,} chips)"


def _facts(found: Capacity) -> list[tuple[str, str]]:
    fleet = found.best.fleet
    return [
        ("Beyond", _beyond(found)),
        ("Judged on", _judged(found)),
        *_alone(found),
        ("Cost", cost_text(fleet)),
        ("Energy", energy_line(fleet)),
        *[("Note", warning) for warning in fleet.summary.warnings],
        ("Sources", sources_line(fleet.summary.first)),
    ]


def _judged(found: Capacity) -> str:
    begun = "agents begin spread over one task's time; " if found.arrival is None else ""
    return f"{begun}{found.best.judged:,} tasks of one seed at the answer: others may differ by some percent"


def _alone(found: Capacity) -> list[tuple[str, str]]:
    """Say what one agent takes, unless the table's first row does."""
    if any(point.load == 1 for point in found.points):
        return []
    return [
        ("Alone", f"one agent takes {duration_text(found.alone.completion_s)} (p50) with nobody beside it")
    ]


def _beyond(found: Capacity) -> str:
    """Say what fails at the lightest load that is too much."""
    point = found.next_point
    if point is None:
        return "the heaviest load that is tried still meets it"
    if point.fleet.grows:
        return "more arrive than are served: the queue grows without bound"
    quality = point.fleet.quality
    assert quality is not None
    missed = [f"{part} is missed by {share_text(share)}" for part, share in quality.missed.items() if share]
    return f"at {_load(found, point)} only {_met(found, point)} meet it: {', '.join(missed)}"


def _met(found: Capacity, point: Point) -> str:
    """Return the share of good tasks; one that misses the asked one by little is not rounded up to it."""
    digits = 1 if point.share < found.share <= round(point.share, 2) else 0
    return f"{point.share:.{digits}%}"


def _load(found: Capacity, point: Point) -> str:
    return rounded_text(point.load * HOUR_S) if found.arrival else f"{point.load:,.0f}"


def _table(found: Capacity) -> Table:
    spreads = [point.completion_s for point in found.points]
    unit, factor = time_unit(max(spread.p95 for spread in spreads))
    table = grid("right", "right", "right", "right", "right", "right", "right", "left")
    load = "arrivals/h" if found.arrival else "agents"
    names = (load, "meet it", f"p50 {unit}", f"p95 {unit}", "tasks/h", "cache hit", "queue", "")
    table.add_row(*[Text(name, style="dim") for name in names])
    for point, spread in zip(found.points, spreads, strict=True):
        best = point is found.best
        fleet = point.fleet
        cells = (
            _load(found, point),
            _met(found, point),
            f"{spread.p50 / factor:.1f}",
            f"{spread.p95 / factor:.1f}",
            rounded_text(fleet.tasks_per_h),
            f"{fleet.hit_rate or 0:.0%}",
            f"{fleet.queue_share:.0%}",
            "← the most" if best else "grows" if fleet.grows else "",
        )
        table.add_row(*[Text(cell, style="bold" if best else "") for cell in cells])
    return table
