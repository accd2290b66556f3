"""The screen of `run`: the answer, where the time went, what to look at next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.result import Part, Result, Span, Spread
from agentsim.specs.sourced import BASES
from agentsim.summary import Summary
from agentsim.terminal.layout import STYLES, bar, grid, indented, joined, labelled, screen
from agentsim.units import count_text, duration_text, time_unit, to_ns, to_s

NAMES = {
    Part.QUEUE: "queue",
    Part.PREFILL: "prefill",
    Part.DECODE: "decode",
    Part.KV_TRANSFER: "KV transfer",
    Part.TOOL: "tools",
    Part.FILE: "files",
    Part.NETWORK: "network",
    Part.COMPACTION: "compaction",
}
DECODE_NAMES = {"first_bit": "first bit", "sram": "SRAM", "ffn": "FFN"}


def run_screen(summary: Summary, width: int, workflow: str, written: Sequence[str] = ()) -> RenderableType:
    """Return the whole screen of the runs of a workflow file; `written` are the files that tell of them."""
    parts: list[RenderableType] = [heading(summary), indented(_answer(summary))]
    if summary.runs > 1:
        parts.append(indented(spread(summary)))
    parts += [indented(breakdown(summary, width)), indented(_facts(summary, workflow, written))]
    return screen(*parts)


def heading(summary: Summary) -> RenderableType:
    """Return the name of the workflow, and what a task of it is made of."""
    first = summary.first
    calls = f"{summary.model_calls:.0f} model call{'' if round(summary.model_calls) == 1 else 's'}"
    context = f"context {count_text(first.task.first_context)} → {count_text(summary.peak_context)} tokens"
    last = first.seed + summary.runs - 1
    seeds = f"seeds {first.seed}-{last}" if summary.runs > 1 else f"seed {first.seed}"
    facts = joined([calls, context, f"{count_text(summary.tokens.output)} tokens written", seeds])
    return Text.assemble((first.workflow, "bold"), *overrides_line(first), "\n", (facts, "dim"))


def overrides_line(result: Result) -> list[tuple[str, str]]:
    """Return what was set for this run alone, as a line under the title; nothing where nothing was."""
    if not result.overrides:
        return []
    return [("\n", ""), (f"with {', '.join(result.overrides)}", "yellow")]


def _answer(summary: Summary) -> RenderableType:
    low = "at least " if summary.is_lower_bound else ""
    value = f"{low}{duration_text(summary.completion_s.avg)}"
    label = "Task completion time" + (" (mean)" if summary.runs > 1 else "")
    table = grid("left", "left", padding=3)
    table.columns[1].no_wrap = False
    table.add_row(Text(label, style="bold"), Text.assemble((value, "bold green"), f"   on {_where(summary)}"))
    return table


def _where(summary: Summary) -> str:
    speed = summary.output_tokens_per_s
    shown = f" ({count_text(speed)} tok/s while decoding)" if speed else ""
    return summary.first.deployment + shown


def spread(summary: Summary, mark: str = "") -> Table:
    """Return the percentiles of the task completion time; a `mark` beside them qualifies them."""
    unit, factor = time_unit(summary.completion_s.max)
    table = grid("left", *["right"] * 9)
    fields = Spread.__slots__
    table.add_row(Text(f"in {unit}", style="dim"), *[Text(name, style="dim") for name in fields])
    table.add_row(
        Text(mark, style="yellow"),
        *[f"{getattr(summary.completion_s, name) / factor:.1f}" for name in fields],
    )
    return table


def breakdown(summary: Summary, width: int) -> Table:
    """Return the mean time of a task by parts, the largest first; they sum to the last row."""
    total = summary.completion_s.avg
    unit, factor = time_unit(total)
    room = max(min(width - 44, 60), 10)
    table = grid("left", "left", "right", "right")
    table.columns[1].min_width = room
    table.add_row(
        Text("Where the time went", style="bold"), "", Text(unit, style="dim"), Text("%", style="dim")
    )
    for part, seconds in sorted(_shown(summary), key=lambda item: -item[1]):
        share = seconds / total if total else 0.0
        row = bar(share, room, STYLES[part.key])
        table.add_row(f"  {NAMES[part]}", row, f"{seconds / factor:.1f}", f"{100 * share:.1f}")
        if part is Part.TOOL and summary.slot_wait_s:
            waited = f"{summary.slot_wait_s / factor:.1f} of it"
            table.add_row("    for a slot", Text(waited, style="dim"), "", "")
        if part is Part.DECODE:
            for name, spent in summary.decode_parts_s.items():
                figures = f"{spent / factor:.1f}", f"{100 * spent / total:.1f}"
                shown = [
                    Text(text, style="dim") for text in (f"    {DECODE_NAMES.get(name, name)}", *figures)
                ]
                table.add_row(shown[0], bar(spent / total, room, "dim"), *shown[1:])
    table.add_row("", "", "─────", "")
    table.add_row("", "", f"{total / factor:.1f}", "")
    return table


def _shown(summary: Summary) -> list[tuple[Part, float]]:
    """Every part but the human's, and no KV transfer where there is none to speak of."""
    optional = (Part.KV_TRANSFER, Part.COMPACTION, Part.FILE)
    return [(p, s) for p, s in summary.parts_s.items() if p in NAMES and (s or p not in optional)]


def _facts(summary: Summary, workflow: str, written: Sequence[str]) -> Table:
    of_seed = f" (seed {summary.first.seed})" if summary.runs > 1 else ""
    cost = summary.cost_usd
    rows = [
        (f"Slowest{of_seed}", _slowest(summary.first)),
        ("Per turn", per_turn(summary)),
        ("Inference", _inference(summary)),
        ("Waiting for you", f"{duration_text(summary.human_s)}, not counted" if summary.human_s else ""),
        ("Cost", f"{cost:.2f} USD a task{_alone(summary)}" if cost is not None else ""),
        *(("Note", warning) for warning in summary.warnings),
        ("Sources", sources_line(summary.first)),
        (f"Written{of_seed}", ", ".join(written)),
        ("Next", f"agentsim compare {workflow} --on {asked_for(summary.first)} --on {_other(summary)}"),
    ]
    return labelled([row for row in rows if row[1]])


def asked_for(result: Result) -> str:
    """Return what names the deployment on a command line."""
    return result.asked_for or result.deployment


def _other(summary: Summary) -> str:
    """Name a deployment to compare with: the fastest that was measured, or today's tool beside that one."""
    return "coding-tool" if summary.first.deployment == "lpx-aa" else "lpx-aa"


def _alone(summary: Summary) -> str:
    """A price by the hour buys the whole machine, however little of it one task uses."""
    return ", the machine to itself" if summary.first.by_the_hour else ""


def _slowest(result: Result) -> str:
    spans = sorted(
        (s for s in result.spans if s.critical and s.part is not Part.HUMAN),
        key=lambda s: s.start_ns - s.end_ns,
    )
    return joined([f"{_place(s)}{s.name} {duration_text(to_s(s.end_ns - s.start_ns))}" for s in spans[:3]])


def _place(span: Span) -> str:
    """Say whose span it is, unless it is a tool of the main agent."""
    lane = "" if span.lane == "main" else f"{span.lane.removeprefix('main/')}: "
    return lane + ("" if span.turn is None else f"turn {span.turn + 1} ")


def per_turn(summary: Summary) -> str:
    """Return what a call is like: time to first token, time between tokens, what was cached."""
    ttft, itl = summary.ttft_s, summary.itl_s
    low = "≥ " if summary.is_lower_bound else ""
    return joined(
        [
            f"TTFT p50 {low}{duration_text(ttft.p50)}, p95 {low}{duration_text(ttft.p95)}"
            if ttft
            else "TTFT not known",
            f"ITL p50 {duration_text(itl.p50)}" if itl else "",
            f"{_cached_share(summary):.0%} of prompt tokens cached",
        ]
    )


def _cached_share(summary: Summary) -> float:
    return summary.tokens.cached / summary.tokens.prompt if summary.tokens.prompt else 0.0


def _inference(summary: Summary) -> str:
    share, total = summary.inference_share, summary.completion_s.avg
    rest = duration_text(to_s(to_ns(total * (1 - share))))  # the difference of two floats is never quite 0
    return f"{share:.0%} of the task; the rest of its critical path takes {rest}"


def sources_line(result: Result) -> str:
    """Return the counts by basis, strongest first, and where the list is."""
    counts = [(basis, sum(s.basis == basis for s in result.sources)) for basis in BASES]
    line = joined([f"{count} {basis}" for basis, count in counts if count])
    return line if result.deployment == "recorded" else f"{line} (agentsim show {asked_for(result)})"
