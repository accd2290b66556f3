"""The screen of `observe`: what recorded sessions spent their time on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.result import percentile
from agentsim.terminal.layout import bar, grid, indented, joined, labelled, screen
from agentsim.units import count_text, duration_text, time_unit

if TYPE_CHECKING:
    from agentsim.importers._observe import Observation
    from agentsim.verbs_logs import Observed

_TOOLS_SHOWN = 4


def observe_screen(observed: Observed, width: int) -> RenderableType:
    """Return the whole screen of one session or many."""
    seen = observed.sessions
    clock, task = sum(o.split.elapsed_s for o in seen), sum(o.task_s for o in seen)
    what = seen[0].session if len(seen) == 1 else f"{len(seen):,} sessions"
    facts = joined([f"{duration_text(clock)} on the clock", f"{duration_text(task)} of agent work"])
    heading = Text.assemble((what, "bold"), "\n", (facts, "dim"))
    return screen(heading, indented(_split(seen, width)), indented(_facts(observed)))


def _split(seen: Sequence[Observation], width: int) -> Table:
    parts = [
        ("model", sum(o.model_s for o in seen), "blue"),
        ("tools", sum(o.tool_s for o in seen), "yellow"),
        ("unexplained", sum(o.split.residual_s for o in seen), "bright_black"),
    ]
    total = sum(seconds for _, seconds, _ in parts)
    unit, factor = time_unit(total)
    room = max(min(width - 40, 60), 10)
    table = grid("left", "left", "right", "right")
    table.columns[1].min_width = room
    table.add_row("", "", Text(unit, style="dim"), Text("%", style="dim"))
    for name, seconds, style in parts:
        share = seconds / total if total else 0.0
        table.add_row(name, bar(share, room, style), f"{seconds / factor:.1f}", f"{100 * share:.1f}")
    return table


def _facts(observed: Observed) -> Table:
    seen = observed.sessions
    human = sum(o.split.human_s for o in seen)
    rows = [
        ("Waiting for you", f"{duration_text(human)}, not counted" if human else ""),
        ("Tools", _tools(seen)),
        ("Slowest", _slowest(seen)),
        ("Model calls", _calls(seen)),
        ("Timing", _timing(seen)),
        ("Odd records", _odd(seen)),
        ("Passed over", _passed_over(observed)),
        ("Next", f"agentsim import {observed.path} -o session.yaml" if len(seen) == 1 else ""),
    ]
    return labelled([row for row in rows if row[1]])


def _tools(seen: Sequence[Observation]) -> str:
    times: Counter[str] = Counter()
    for observation in seen:
        times.update(observation.tools_s)
    return joined([f"{name} {duration_text(t)}" for name, t in times.most_common(_TOOLS_SHOWN) if t])


def _slowest(seen: Sequence[Observation]) -> str:
    found = sorted((slow for o in seen for slow in o.slowest), key=lambda slow: -slow.duration_s)
    return joined([f"{slow.name} {duration_text(slow.duration_s)}" for slow in found[:3] if slow.duration_s])


def _calls(seen: Sequence[Observation]) -> str:
    contexts = sorted(context for o in seen for context in o.contexts)
    if not contexts:
        return "none"
    prompt, cached = sum(o.prompt_tokens for o in seen), sum(o.cached_tokens for o in seen)
    agents = sum(o.sub_agents for o in seen)
    return joined(
        [
            f"{len(contexts):,}",
            f"context p50 {count_text(percentile(contexts, 0.5))}, max {count_text(contexts[-1])}",
            f"{cached / prompt:.0%} of prompt tokens cached" if prompt else "",
            f"{sum(o.tool_calls for o in seen):,} tool calls",
            f"{agents:,} sub-agents" if agents else "",
        ]
    )


def _timing(seen: Sequence[Observation]) -> str:
    counts: Counter[str] = Counter()
    for observation in seen:
        counts.update(observation.durations)
    total = counts.total()
    names = {"measured": "measured", "inferred": "inferred from neighbours", "absent": "without a time"}
    return joined([f"{counts[key] / total:.0%} {name}" for key, name in names.items() if counts[key]])


def _odd(seen: Sequence[Observation]) -> str:
    counts: Counter[str] = Counter()
    for observation in seen:
        counts.update(observation.split.odd)
    return joined([f"{count:,} x {what}" for what, count in counts.most_common()])


def _passed_over(observed: Observed) -> str:
    return joined([f"{len(places):,} x {reason}" for reason, places in observed.passed_over.items()])
