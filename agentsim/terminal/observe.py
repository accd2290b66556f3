"""The screen of `observe`: what recorded sessions spent their time on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import bar, grid, indented, joined, labelled, screen
from agentsim.units import count_text, duration_text, time_unit

if TYPE_CHECKING:
    from agentsim.importers._observe import Totals
    from agentsim.verbs_logs import Observed

_TOOLS_SHOWN = 4
_SLOWEST_SHOWN = 3
_REASONS_SHOWN = 5
_FILES_AT_MOST = 10_000
"""Of more sessions nobody wants a file each: they are the requests of a trace."""


def observe_screen(observed: Observed, width: int) -> RenderableType:
    """Return the whole screen of one session or many."""
    total = observed.total
    what = total.first if total.sessions == 1 else f"{total.sessions:,} sessions"
    facts = [f"{duration_text(total.elapsed_s)} on the clock", f"{duration_text(total.task_s)} of agent work"]
    heading = Text.assemble((what, "bold"), "\n", (joined(facts), "dim"))
    return screen(heading, indented(_split(total, width)), indented(_facts(observed)))


def _split(total: Totals, width: int) -> Table:
    parts = [
        ("model", total.model_s, "blue"),
        ("tools", total.tool_s, "yellow"),
        ("compaction", total.compaction_s, "red"),
        ("unexplained", total.residual_s - total.compaction_s, "bright_black"),
    ]
    whole = sum(seconds for _, seconds, _ in parts)
    unit, factor = time_unit(whole)
    room = max(min(width - 40, 60), 10)
    table = grid("left", "left", "right", "right")
    table.columns[1].min_width = room
    table.add_row("", "", Text(unit, style="dim"), Text("%", style="dim"))
    for name, seconds, style in parts:
        if name == "compaction" and not seconds:
            continue
        share = seconds / whole if whole else 0.0
        table.add_row(name, bar(share, room, style), f"{seconds / factor:.1f}", f"{100 * share:.1f}")
    return table


def _facts(observed: Observed) -> Table:
    total = observed.total
    rows = [
        ("Waiting for you", f"{duration_text(total.human_s)}, not counted" if total.human_s else ""),
        ("Tools", _tools(total)),
        ("Slowest", _slowest(total)),
        ("Model calls", _calls(total)),
        ("Timing", _timing(total)),
        ("Odd records", _reasons([(what, count, "") for what, count in total.odd.items()])),
        ("Passed over", passed_over(observed.passed_over)),
        ("Next", _next(observed)),
    ]
    return labelled([row for row in rows if row[1]])


def _tools(total: Totals) -> str:
    longest = sorted((item for item in total.tools_s.items() if item[1]), key=lambda item: -item[1])
    shown = [f"{name} {duration_text(length_s)}" for name, length_s in longest[:_TOOLS_SHOWN]]
    more = longest[_TOOLS_SHOWN:]
    rest_s = sum(length_s for _, length_s in more)
    return joined([*shown, f"{_number(len(more), 'other')} {duration_text(rest_s)}" if more else ""])


def _slowest(total: Totals) -> str:
    shown = total.slowest[:_SLOWEST_SHOWN]
    return joined([f"{slow.name} {duration_text(slow.duration_s)}" for slow in shown if slow.duration_s])


def _calls(total: Totals) -> str:
    if not total.contexts:
        return "none"
    cached = f"{total.cached_tokens / total.prompt_tokens:.0%}" if total.prompt_tokens else ""
    return joined(
        [
            f"{total.contexts.total():,}",
            f"context p50 {count_text(total.context_at(0.5))}, max {count_text(max(total.contexts))}",
            f"cache hit rate {cached}" if cached else "",
            _number(total.tool_calls, "tool call"),
            _number(total.sub_agents, "sub-agent"),
        ]
    )


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}" if count else ""


def _timing(total: Totals) -> str:
    every = total.durations.total()
    names = {"measured": "measured", "inferred": "inferred from neighbours", "absent": "without a time"}
    shares = {name: total.durations[key] / every for key, name in names.items() if total.durations[key]}
    return joined([f"{share:.0%} {name}" for name, share in shares.items()])


def passed_over(places: Mapping[str, Sequence[str]]) -> str:
    """Return how many files were passed over, why, and one of them for each reason."""
    return _reasons([(what, len(found), found[0]) for what, found in places.items()])


def _reasons(reasons: Sequence[tuple[str, int, str]]) -> str:
    """Return the most common of (what, how often, an example)."""
    listed = sorted(reasons, key=lambda reason: -reason[1])
    shown = [
        f"{count:,} x {what}"
        + (f" ({example.rpartition('/')[2]}{', …' if count > 1 else ''})" * bool(example))
        for what, count, example in listed[:_REASONS_SHOWN]
    ]
    rest = sum(count for _, count, _ in listed[_REASONS_SHOWN:])
    kinds = len(listed) - _REASONS_SHOWN
    return joined([*shown, f"{rest:,} of {_number(kinds, 'other kind')}" if kinds > 0 else ""])


def _next(observed: Observed) -> str:
    if observed.written is not None:
        return f"agentsim compare {observed.written} --on recorded --on lpx"
    if observed.total.sessions > _FILES_AT_MOST:
        return ""
    output = "session.yaml" if observed.total.sessions == 1 else "sessions/"
    return f"agentsim import {observed.path} -o {output}"
