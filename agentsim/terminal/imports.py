"""The screen of `import`: what was in the log, where its time went, what was odd about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import bar, grid, indented, joined, labelled, screen
from agentsim.units import count_text, duration_text, time_unit

if TYPE_CHECKING:
    from agentsim.verbs_logs import Imported

TEXT_KEPT = "holds what was said: look for secrets before it leaves this machine"
_PARTS = (
    ("model", "model_s", "blue"),
    ("tools and waits", "tool_s", "yellow"),
    ("sub-agents' model", "subagent_model_s", "cyan"),
    ("sub-agents' tools", "subagent_tool_s", "green"),
    ("compaction", "compaction_s", "red"),
    ("unexplained", "residual_s", "bright_black"),
)


def import_screen(imported: Imported, width: int) -> RenderableType:
    """Return the whole screen of one imported session."""
    calls = list(imported.session.calls)
    heading = Text.assemble(
        (imported.session.name, "bold"),
        "\n",
        (joined([
            f"{imported.session.format} log",
            f"{len(calls)} model calls",
            _sub_agents(len(imported.session.lanes) - 1),
            f"{count_text(sum(c.output_tokens for c in calls))} tokens written",
            f"prompts up to {count_text(max((c.prompt_tokens for c in calls), default=0))} tokens",
        ]), "dim"),
    )  # fmt: skip
    return screen(heading, indented(_split(imported, width)), indented(_facts(imported)))


def _sub_agents(count: int) -> str:
    return f"{count} sub-agent{'s' if count > 1 else ''}" if count else ""


def _split(imported: Imported, width: int) -> Table:
    seen = imported.seen
    parts = {name: getattr(seen.split, name) for name in seen.split.__slots__}
    parts |= {"compaction_s": seen.compaction_s, "residual_s": seen.split.residual_s - seen.compaction_s}
    busy = seen.task_s
    unit, factor = time_unit(busy)
    room = max(min(width - 48, 60), 10)
    table = grid("left", "left", "right", "right")
    table.columns[1].min_width = room
    table.add_row(Text("As recorded", style="bold"), "", Text(unit, style="dim"), Text("%", style="dim"))
    for label, field, style in _PARTS:
        seconds = parts[field]
        if seconds or field in ("model_s", "tool_s"):
            share = seconds / busy if busy else 0.0
            figures = f"{seconds / factor:.1f}", f"{100 * share:.1f}"
            table.add_row(f"  {label}", bar(share, room, style), *figures)
    table.add_row("", "", "─────", "")
    table.add_row("", "", f"{busy / factor:.1f}", "")
    return table


def _text(imported: Imported) -> str:
    if not imported.text_asked:
        return ""
    return TEXT_KEPT if imported.has_text else f"a {imported.session.format} log holds none"


def _facts(imported: Imported) -> Table:
    split, known = imported.seen.split, imported.seen.durations
    odd = joined([f"{count:,} x {what}" for what, count in split.odd.items()])
    timing = joined(
        [
            f"{sum(known.values()):,} calls and tools: {known['measured']:,} measured",
            f"{known['inferred']:,} inferred from neighbours" if known["inferred"] else "",
            f"{known['absent']:,} without a time" if known["absent"] else "",
        ]
    )
    rows = [
        ("Waiting for a human", f"{duration_text(split.human_s)}, not counted" if split.human_s else ""),
        ("Timing", timing),
        ("Odd records", odd),
        ("Text", _text(imported)),
        ("Written", imported.written or ""),
        ("Next", f"agentsim compare {imported.written} --on recorded --on lpx" if imported.written else ""),
    ]
    return labelled([row for row in rows if row[1]])
