"""The screen of `claim`: what is asserted, what is found, and what would have to be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.claims import Verdict
from agentsim.levers import DECODE, Bound
from agentsim.summary import Summary
from agentsim.terminal.layout import grid, indented, labelled, screen
from agentsim.uncertainty import Uncertainty
from agentsim.units import duration_text, si_text

if TYPE_CHECKING:
    from agentsim.verbs_answers import Judged

NAMES = {"tools": "tools and files", "turns": "turns", "output": "output a turn", DECODE: "token speed"}


def claim_screen(found: Sequence[Judged], width: int) -> RenderableType:
    """Return the claim in numbers, and a block for every workflow that it was held against."""
    del width
    first = found[0]
    base, other = first.comparison.columns[0].first.deployment, first.verdict.fastest
    asserted = first.claim.asserted.replace("BASE", base).replace("OTHER", other)
    parts: list[RenderableType] = [Text.assemble((f'"{first.claim.text}"', "bold"), f" asserts: {asserted}.")]
    for judged in found:
        parts += _block(judged)
    return screen(*parts)


def _block(judged: Judged) -> Iterator[RenderableType]:
    runs, first = judged.verdict.runs, judged.comparison.columns[0].first
    seeds = f"{runs} runs, seeds {first.seed}-{first.seed + runs - 1}" if runs > 1 else f"seed {first.seed}"
    yield Text.assemble((judged.workflow, "bold"), "\n", (seeds, "dim"))
    yield indented(Text.assemble((_answer(judged) + " ", "bold"), _because(judged)))
    yield indented(_table(judged))
    bounds = _power_bound(judged) if judged.power else _bounds(judged)
    if bounds is not None:
        yield indented(bounds)
    notes = list(_notes(judged))
    if notes:
        yield indented(labelled(notes))


def _answer(judged: Judged) -> str:
    if judged.holds is None:
        return "Nobody can say."
    if judged.claim.kind != "time":
        return "Yes, but that is not the task." if judged.holds else "No."
    return answer_text(judged.verdict)


def answer_text(verdict: Verdict) -> str:
    """Return the answer to a claim of the task in a few words."""
    if verdict.probability == 1:
        return "Yes, for this task."
    if not verdict.probability:
        return "Not for this task."
    how = "More often than not" if verdict.holds else "Seldom"
    return f"{how}: in {_times(verdict.probability, verdict.runs)}."


def _times(share: float, runs: int) -> str:
    return f"{round(share * runs)} of {runs} run{'' if runs == 1 else 's'}"


def _because(judged: Judged) -> str:
    base, other = _columns(judged)
    before, after = duration_text(base.completion_s.p50), duration_text(other.completion_s.p50)
    at_least = "at least " if other.is_lower_bound else ""
    verdict = judged.verdict
    text = f"{before} on {base.first.deployment} become {at_least}{after} on {other.first.deployment}, "
    text += f"{'at most ' if at_least else ''}{verdict.speedup:.3g}x."
    if verdict.ceiling_speedup is not None and judged.claim.kind == "time":
        text += f" Inference in no time at all would give {verdict.ceiling_speedup:.3g}x."
    return text


def _columns(judged: Judged) -> tuple[Summary, Summary]:
    base, other = judged.comparison.columns
    return base, other


def _table(judged: Judged) -> Table:
    """Return the three readings of "faster" beside each other; the one that is claimed is marked."""
    table = grid("left", "right", "left", padding=3)
    for label, figure, told, claimed in _readings(judged):
        style = "bold" if claimed else ""
        table.add_row(Text(label, style=style), Text(figure, style=style), Text(told, style=style))
    return table


def _readings(judged: Judged) -> Iterator[tuple[str, str, str, bool]]:
    claim, verdict, bands = judged.claim, judged.verdict, judged.comparison.uncertainty
    base, other = _columns(judged)
    is_time = claim.kind == "time"
    told = f"holds in {_times(verdict.probability, verdict.runs)}"
    yield "task time", f"{verdict.speedup:.2f}x", told if is_time else "not what is claimed", is_time
    if verdict.runs > 1:
        yield "  single runs, p5-p95", f"{verdict.speedup_p5:.2f}x to {verdict.speedup_p95:.2f}x", "", False
    if bands and (band := bands.speedup[bands.fastest]):
        chance = (
            "" if bands.probability is None else f"holds in {bands.probability:.0%} of {bands.samples} draws"
        )
        figure = f"{band.p5:.2f}x to {band.p95:.2f}x"
        yield "  and data drawn, p5-p95", figure, chance if is_time else "", is_time
    ratio = verdict.token_speed_ratio
    if ratio is not None:
        speeds = f"{other.output_tokens_per_s:,.0f} against {base.output_tokens_per_s:,.0f} tok/s"
        is_tokens = claim.kind == "tokens"
        says = ("holds: " if judged.holds else "does not hold: ") if is_tokens else ""
        yield "token speed", f"{ratio:.3g}x", says + speeds, is_tokens
    if claim.kind == "power":
        rate = "unknown" if judged.rate_ratio is None else f"{judged.rate_ratio:.3g}x"
        yield "tokens per second and MW", rate, "one agent alone on the machine", True


def _bounds(judged: Judged) -> RenderableType | None:
    if not judged.bounds:
        return None
    table = grid("left", "left", "left")
    table.columns[2].no_wrap = False
    for bound in judged.bounds:
        table.add_row(
            Text("  " + NAMES[bound.lever]),
            Text(_needed(bound), style="bold"),
            Text(_now(bound), style="dim"),
        )
    verb = "stop holding" if judged.holds else "hold"
    heading = Text(f"It would {verb}, with one thing changed and all else as it is:", style="bold")
    return Group(heading, table)


def _needed(bound: Bound) -> str:
    if bound.value is None:
        return "at no value"
    if bound.factor == 0:
        return "only with none at all"
    return f"{bound.sense} {_amount(bound.lever, bound.value)}"


def _now(bound: Bound) -> str:
    now = _amount(bound.lever, bound.now)
    if bound.factor is None:
        low, high = bound.tried
        return f"now {now}, tried x{low:.2g}-x{high:,.4g}" + (", some do not fit" if bound.problem else "")
    return f"now {now} (x{bound.factor:.3g})"


def _amount(lever: str, value: float) -> str:
    if lever == "tools":
        return duration_text(value)
    if lever == "turns":
        return f"{value:,.0f} call{'' if round(value) == 1 else 's'}"
    return f"{value:,.0f} tokens" if lever == "output" else f"{value:,.0f} tok/s"


def _power_bound(judged: Judged) -> RenderableType | None:
    if judged.watts_bound is None:
        return Text("What power would make it hold cannot be said: the base's own is not published.")
    bound = si_text(judged.watts_bound, "power")
    return Text(f"It would hold if {judged.verdict.fastest} drew at most {bound}, for one agent alone.")


def _notes(judged: Judged) -> Iterator[tuple[str, str]]:
    bands = judged.comparison.uncertainty
    for power, column in zip(judged.power or (), judged.comparison.columns, strict=False):
        known = "unknown" if power.watts is None else si_text(power.watts, "power")
        yield f"Power of {column.first.deployment}", f"{known} ({power.told})"
    if judged.power:
        yield "Note", "a claim per MW is of a machine under load; it says nothing of how long one task takes"
    if judged.comparison.columns[-1].is_lower_bound:
        yield (
            "Note",
            f"{judged.verdict.fastest} has unpublished parts that count as zero: its times are lower bounds",
        )
    if bands:
        yield from drawn_notes(bands)
    else:
        yield "Next", "--uncertainty 200 draws what is only assumed, agentsim sensitivity ranks it"


def drawn_notes(bands: Uncertainty) -> Iterator[tuple[str, str]]:
    """Yield what was drawn and how, and what of it does not fit."""
    counts = ", ".join(f"{count} of {name}" for name, count in bands.drawn.items())
    yield "Drawn", f"{bands.samples} times, with the runs' own randomness: {counts}; {bands.distribution}"
    for name, reasons in bands.misfits.items():
        for reason, count in reasons.items():
            yield "Does not fit", f"{count} of {bands.samples} draws on {name}: {reason}"
