"""The screen of `validate-model`: how far off the simulator is, where, and what was left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentsim.terminal.layout import bar, grid, indented, joined, labelled, screen
from agentsim.units import MILLISECOND_S
from agentsim.validation.report import Errors

if TYPE_CHECKING:
    from agentsim.validation.report import Judged, Report, Spread

MANY, HIGH = 30, 0.15
"""A group of this many runs whose median error is over this is named."""
_HEADS = ("runs", "median", "p90", "bias", "median", "p90", "bias")
_BAR_AT, _NAMES, _LINES = 120, 4, 8
_FULL = 0.4
"""Error at which a bar is full."""


def validation_screen(report: Report, width: int) -> RenderableType:
    """Return the whole screen of a file of measurements."""
    parts: list[RenderableType] = [_heading(report)]
    if report.counted:
        parts += [indented(_tables(report, width)), indented(_worst(report, width))]
    return screen(*parts, indented(labelled(_notes(report))))


def _heading(report: Report) -> Text:
    kind = "prefill and decode on separate workers" if report.separate else "one engine a run"
    seconds = joined(
        [
            f"{report.read:,} rows",
            f"{len(report.counted):,} judged",
            f"{len(report.refused):,} refused" if report.refused else "",
            f"{len(report.wrong):,} look wrong" if report.wrong else "",
            f"{report.duplicates:,} repeat another" if report.duplicates else "",
            f"{report.in_fit:,} in the fit" if report.in_fit else "",
        ]
    )
    facts = (f"Simulated against {report.file}: {kind}", "bold")
    answer = _answer(Errors.of(report.counted))
    return Text.assemble(facts, "\n", (seconds, "dim"), "\n\n", *answer)


def _answer(errors: Errors) -> list[tuple[str, str]]:
    if errors.tpot is None or errors.ttft is None:
        return [("  No row could be judged.", "bold")]
    return [
        (f"  TPOT is off by {_percent(errors.tpot.median)} % in the median", "bold"),
        (f" (p90 {_percent(errors.tpot.p90)} %), ", ""),
        (f"TTFT by {_percent(errors.ttft.median)} %", "bold"),
        (f" (p90 {_percent(errors.ttft.p90)} %).", ""),
    ]


def _tables(report: Report, width: int) -> Table:
    """Return all groups under one heading, so that their columns line up."""
    wide = width >= _BAR_AT
    table = grid("left", *["right"] * (7 if wide else 6), "left", padding=2)
    table.add_row(Text("Error, %", style="bold"), Text(), *_bold("TPOT", "", "", "TTFT"))
    table.add_row(Text(), *_dim(_HEADS if wide else _HEADS[:-1]), *_dim(["TPOT median"] * wide))
    room = min(width - 76, 40) if wide else 0
    table.add_row(*_row("all", Errors.of(report.counted), room))
    for headings in (report.group_by, *[(h,) for h in report.headings]):
        groups = report.by(*headings)
        if len(groups) > 1:
            name = "by group" if len(headings) > 1 else f"by {headings[0]}"
            table.add_row()
            table.add_row(Text(name, style="dim"))
            for key, errors in groups.items():
                table.add_row(*_row(" ".join(key), errors, room))
    return table


def _row(name: str, errors: Errors, room: int) -> list[Text]:
    high = errors.rows >= MANY and errors.tpot is not None and errors.tpot.median > HIGH
    style = "red" if high else ""
    tpot, ttft = _spread(errors.tpot), _spread(errors.ttft)
    cells = [Text(f"{errors.rows:,}"), *tpot, *(ttft if room else ttft[:-1])]
    median = errors.tpot.median if errors.tpot else 0.0
    bars = [bar(min(median / _FULL, 1.0), room, style or "blue")] if room else []
    return [Text(f"  {name}", style=style), *cells, *bars]


def _spread(spread: Spread | None) -> list[Text]:
    if spread is None:
        return [Text("-")] * 3
    return [Text(_percent(spread.median)), Text(_percent(spread.p90)), Text(f"{100 * spread.bias:+.1f}")]


def _worst(report: Report, width: int) -> Table:
    names = ("line", "model", "on", "workers", "in/out", "users", "measured", "simulated")
    justify = ("right", "left", "left", "left", "right", "right", "right", "right", "right")
    table = grid(*justify, padding=1 if width < _BAR_AT else 2)
    table.add_row(Text("Worst", style="bold"), *_dim(names[1:-2]), *_dim(("TPOT ms", "sim.", "off %")))
    for run in report.worst():
        what = run.labels
        on = f"{what['engine']} {what['gpu']} {what['precision']}"
        place = (f"{run.line}", _cut(what["model"], 13, width), on, _cut(run.setup, 9, width))
        times = (run.measured_tpot_s, run.tpot_s)
        figures = [f"{t / MILLISECOND_S:.1f}" for t in times]
        table.add_row(*place, run.load, f"{run.users:,}", *figures, f"{100 * run.tpot_off:+.0f}")
    return table


def _cut(text: str, room: int, width: int) -> str:
    return text if width >= _BAR_AT or len(text) <= room else text[: room - 1] + "…"


def _notes(report: Report) -> list[tuple[str, str]]:
    notes = _sample(report) + _high(report) + _speculation(report)
    if report.wrong:
        whole = Errors.of(report.judged).tpot
        assert whole is not None, "what looks wrong was simulated"
        notes += [("Looks wrong", text) for text in _wrong(report.wrong)]
        notes.append(("", f"Counted too, they would make the TPOT median {_percent(whole.median)} %."))
    notes += [("Refused", text) for text in _refused(report)]
    notes += [("Assumed", text) for text in _assumed(report.judged)]
    return _once(notes)


def _sample(report: Report) -> list[tuple[str, str]]:
    """Say whether the figures are of a fit or of a prediction, as far as the profiles tell."""
    inside, all_ = report.in_sample(), len(report.counted)
    fitted = f"{inside:,} of {all_:,} runs: their engine's constants were fitted on a file of this name"
    if report.holdout is not None and report.own_profiles:
        text = f"runs that a fit with seed {report.holdout} left out, if that fit wrote the profiles in use"
        return [("Left out", text)]
    if inside and report.holdout is not None:
        again = f"agentsim calibrate gpu {report.file} --seed {report.holdout} -o FOLDER"
        return [("In sample", f"{fitted}. To judge what was left out: {again}, then --profiles FOLDER")]
    if inside:
        return [("In sample", f"{fitted}, so these errors are of a fit and not of a prediction")]
    unnamed = (
        "no engine's constants name a file of this name; runs copied from one that they name are in sample"
    )
    return [("Sample", unnamed)] if all_ else []


def _high(report: Report) -> list[tuple[str, str]]:
    found = [
        f"{' '.join(key)} {_percent(e.tpot.median)} %"
        for key, e in report.by("engine", "gpu", "class").items()
        if e.tpot is not None and e.rows >= MANY and e.tpot.median > HIGH
    ]
    over = f"groups of {MANY} runs and more with a TPOT median over {100 * HIGH:.0f} %"
    return [("Far off", f"{over}: {', '.join(found)}")] if found else []


def _speculation(report: Report) -> list[tuple[str, str]]:
    """Say which runs are taken to have speculated, and how far off each kind is."""
    by = report.by_speculation()
    if not by:
        return []
    models = sorted({run.labels["model"] for runs in by.values() for run in runs})
    told = [run for runs in by.values() for run in runs if not run.inferred]
    inferred = {kind: [run for run in runs if run.inferred] for kind, runs in by.items()}
    parts = [
        f"{len(runs):,} with it {kind} (TPOT median {_median(runs)} %)"
        for kind, runs in sorted(inferred.items(), reverse=True)
        if runs
    ]
    come = "comes" if len(models) == 1 else "come"
    notes = [("Speculation", f"{', '.join(models)} {come} with a drafter")]
    if told:
        known = f"{len(told):,} runs: their version and scripts tell whether it ran"
        notes.append(("Speculation", f"{known} (TPOT median {_median(told)} %)"))
    if parts:
        how = "which lies nearer to all runs of a server; of one or two, on where none without is as fast"
        notes.append(("Speculation", f"inferred of the others, {how}: {', '.join(parts)}"))
    return notes


def _wrong(runs: Sequence[Judged]) -> list[str]:
    lines: dict[str, list[int]] = {}
    for run in runs:
        lines.setdefault(str(run.wrong), []).append(run.line)
    return [f"{_runs(len(found))}: {why} (line{_numbers(found)})" for why, found in lines.items()]


def _refused(report: Report) -> list[str]:
    """Return reasons with how many rows each, and the commonest details of each."""
    details: dict[str, Counter[str]] = {}
    for row in report.refused:
        details.setdefault(row.reason, Counter())[row.detail] += 1
    found = []
    for reason, count in report.reasons().most_common(_LINES):
        said = [(text, n) for text, n in details[reason].most_common(_NAMES) if text]
        found.append(f"{_rows(count)}: {reason}")
        found += [f"   {n:,}: {_first(text)}" for text, n in said]
        left = count - sum(n for _, n in said)
        if said and left:
            found.append(f"   {left:,}: others (--format json lists every row)")
    return found


def _first(text: str) -> str:
    """Return the part of a message that tells rows apart: up to its first full stop."""
    return text.split(". ")[0]


def _assumed(runs: Iterable[Judged]) -> list[str]:
    counts = Counter(text for run in runs for text in run.assumed)
    shown = [f"{_runs(count)}: {text}" for text, count in counts.most_common(_LINES)]
    left = len(counts) - len(shown)
    return [*shown, f"{left} rarer kinds (--format json tells them by row)"] if left > 0 else shown


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_LINES])) + (", …" if len(lines) > _LINES else "")
    return f"s {shown}" if len(lines) > 1 else f" {shown}"


def _once(notes: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return notes with each label only where it first stands."""
    return [(label if i == 0 or notes[i - 1][0] != label else "", t) for i, (label, t) in enumerate(notes)]


def _runs(count: int) -> str:
    return f"{count:,} run{'s' if count != 1 else ''}"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count != 1 else ''}"


def _median(runs: Sequence[Judged]) -> str:
    spread = Errors.of(runs).tpot
    return _percent(spread.median) if spread else "-"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _bold(*texts: str) -> list[Text]:
    return [Text(text, style="bold") for text in texts]


def _dim(texts: Iterable[str]) -> list[Text]:
    return [Text(text, style="dim") for text in texts]
