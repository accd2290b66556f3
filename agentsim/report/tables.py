"""Bars and tables of a report, which need no script: parts by deployment, latency, causes, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from agentsim.report.read import Inputs
from agentsim.report.shapes import Bar, Run, Sensitivity, Session, Spread
from agentsim.report.words import PARTS, low
from agentsim.units import duration_text, time_unit

PART_ORDER = tuple(PARTS)
WIDTH = 1000.0
MOST_SESSIONS, MOST_BARS = 30, 16
_HUMAN = {"human": "waiting for you"}
_OBSERVED = {
    "model_s": ("decode", "model"),
    "tool_s": ("tool", "tools"),
    "residual_s": ("queue", "unexplained"),
}
_BASES = ("datasheet", "measured", "paper", "calibrated", "derived", "assumed", "unknown")


def legend(parts: Iterable[str], names: dict[str, str] | None = None) -> str:
    """Return the colours of parts by name."""
    known = names or {**PARTS, **_HUMAN}
    swatch = '<svg viewBox="0 0 1 1" aria-hidden="true"><rect class="p-{0}" width="1" height="1"/></svg>'
    items = "".join(f"<li>{swatch.format(part)}{escape(known[part])}</li>" for part in parts)
    return f'<ul class="legend">{items}</ul>'


def figure(value: float, text: str) -> str:
    """Return a figure as people read it, with the number behind it."""
    return f'<data value="{value!r}">{escape(text)}</data>'


def breakdown(inputs: Inputs) -> Iterator[str]:
    """Yield the bars by deployment, and the same in numbers."""
    runs = inputs.runs
    used = [part for part in PART_ORDER if any(run.breakdown_s.get(part) for run in runs)]
    longest = max(run.task_completion_s.avg for run in runs) or 1.0
    rows = (
        _bar_row(
            label,
            [(part, run.breakdown_s.get(part, 0.0), PARTS[part]) for part in used],
            longest,
            low(run) + duration_text(run.task_completion_s.avg),
        )
        for label, run in zip(inputs.labels(), runs, strict=True)
    )
    yield f'<div class="bars">{"".join(rows)}</div>'
    yield legend(used)
    yield _numbers(inputs, used)


def _bar_row(name: str, parts: Sequence[tuple[str, float, str]], longest: float, total: str) -> str:
    pieces, at = [], 0.0
    for part, seconds, label in parts:
        width = seconds / longest * WIDTH
        title = f"<title>{escape(label)} {duration_text(seconds)}</title>"
        pieces.append(f'<rect class="p-{part}" x="{at:.2f}" width="{width:.2f}" height="10">{title}</rect>')
        at += width
    said = ", ".join(f"{label} {duration_text(seconds)}" for _, seconds, label in parts if seconds)
    return (
        f'<div class="bar"><span class="name">{escape(name)}</span>'
        f'<svg viewBox="0 0 {WIDTH:.0f} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{name}: {said}")}">{"".join(pieces)}</svg>'
        f'<span class="total">{escape(total)}</span></div>'
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, kind: str = "") -> str:
    """Return a table that scrolls by itself where it is too wide; cells are HTML, the first one a heading."""
    heads = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><caption>{caption}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numbers(inputs: Inputs, used: Sequence[str]) -> str:
    runs = inputs.runs
    unit, factor = time_unit(max(run.task_completion_s.p95 for run in runs))

    def seconds(value: float) -> str:
        return figure(value, f"{value / factor:.1f}")

    def times(run: Run, value: float) -> str:
        return low(run) + seconds(value)

    several = any(run.runs > 1 for run in runs)
    mean = "task time, mean" if several else "task time"
    rows = [[mean, *[times(run, run.task_completion_s.avg) for run in runs]]]
    rows += [[f"– {PARTS[p]}", *[seconds(run.breakdown_s.get(p, 0.0)) for run in runs]] for p in used]
    if any(run.tool_slot_wait_s for run in runs):
        rows.append(["tools, waiting for a slot", *[seconds(run.tool_slot_wait_s) for run in runs]])
    if several:
        rows.append(["task time, median", *[times(run, run.task_completion_s.p50) for run in runs]])
        rows.append(["95th percentile", *[times(run, run.task_completion_s.p95) for run in runs]])
    if inputs.uncertainty is not None:
        bands = [inputs.uncertainty.task_s.get(run.deployment) for run in runs]
        shown = [f"{seconds(b.p5)} to {seconds(b.p95)}" if b else "–" for b in bands]
        rows.append(["with uncertain data, 5 % to 95 %", *shown])
    if any(run.human_wait_s for run in runs):
        rows.append(["waiting for you, not counted", *[seconds(run.human_wait_s) for run in runs]])
    head = ["", *map(escape, inputs.labels())]
    return table(
        head, rows, f"The same in {_unit_name(unit)}; the parts sum to the {mean.split()[-1]}", "numbers"
    )


def _unit_name(unit: str) -> str:
    return {"min": "minutes", "s": "seconds", "ms": "milliseconds"}.get(unit, unit)


def latency(inputs: Inputs) -> str:
    """Return the table of latencies and speeds; nothing where no call was timed."""
    rows = []
    for label, run in zip(inputs.labels(), inputs.runs, strict=True):
        if run.ttft_s is not None:
            first = [escape(label), *[low(run) + cell for cell in _spread(run.ttft_s)]]
            itl = figure(run.itl_s.p50, duration_text(run.itl_s.p50)) if run.itl_s else "–"
            speed = run.output_tokens_per_s
            rows.append([*first, itl, figure(speed, f"{speed:,.0f}") if speed else "–"])
    head = ["", "TTFT p50", "p95", "p99", "max", "ITL p50", "tok/s"]
    caption = "Time to first token (TTFT), time between tokens (ITL), decode speed"
    return table(head, rows, caption, "numbers") if rows else ""


def _spread(spread: Spread) -> list[str]:
    return [figure(v, duration_text(v)) for v in (spread.p50, spread.p95, spread.p99, spread.max)]


def sessions(found: Sequence[Session]) -> Iterator[str]:
    """Yield the bars of recorded sessions, the longest ones, and the tools of all."""
    shown = sorted(found, key=lambda s: -s.task_s)[:MOST_SESSIONS]
    longest = shown[0].task_s or 1.0
    rows = (
        _bar_row(
            session.session,
            [(part, getattr(session, key), name) for key, (part, name) in _OBSERVED.items()],
            longest,
            duration_text(session.task_s),
        )
        for session in shown
    )
    yield f'<div class="bars">{"".join(rows)}</div>'
    yield legend(*_legend_of(_OBSERVED))
    if len(shown) < len(found):
        yield f'<p class="note">The {len(shown)} longest of {len(found):,} sessions.</p>'
    tools: Counter[str] = Counter()
    for session in found:
        tools.update(session.tools_s)
    cells = ([escape(name), figure(s, duration_text(s))] for name, s in tools.most_common(MOST_BARS))
    yield table(["", "time"], cells, "Tools, every call counted, side by side or not", "numbers")


def _legend_of(named: dict[str, tuple[str, str]]) -> tuple[list[str], dict[str, str]]:
    return [part for part, _ in named.values()], dict(named.values())


def tornado(found: Sensitivity) -> Iterator[str]:
    """Yield bars from the low to the high end of each cause around the answer, the widest first."""
    bars = [bar for bar in found.bars if bar.low is not None and bar.high is not None][:MOST_BARS]
    ends = [end for bar in bars for end in (bar.low, bar.high) if end is not None] + [found.answer]
    least, most = min(ends), max(ends)
    against = (
        f", {escape(found.other)} against {escape(found.base)}"
        if found.other
        else f" on {escape(found.base)}"
    )
    what = "speed-up" if found.unit != "s" else "median task time"
    middle = _end(found, found.answer)
    yield (
        f'<p class="note">The {what} is {middle}{against}; each bar moves one cause alone, '
        "blue to its low end, orange to its high end.</p>"
    )
    yield f'<div class="bars tornado">{"".join(_swing(found, bar, least, most) for bar in bars)}</div>'
    rows = [
        [escape(bar.name), escape(bar.basis) or "workflow", _end(found, bar.low), _end(found, bar.high)]
        for bar in found.bars[:MOST_BARS]
    ]
    yield table(["", "basis", "low end", "high end"], rows, f"The same in numbers: {what}", "numbers")


def _swing(found: Sensitivity, bar: Bar, least: float, most: float) -> str:
    assert bar.low is not None
    assert bar.high is not None
    room = (most - least) or 1.0
    low_, high, mid = ((x - least) / room * WIDTH for x in (bar.low, bar.high, found.answer))
    pieces = [
        f'<rect class="{name}" x="{min(end, mid):.2f}" width="{abs(end - mid):.2f}" height="10"/>'
        for name, end in (("end-low", low_), ("end-high", high))
    ]
    label = f"{bar.name}: {_plain(found, bar.low)} to {_plain(found, bar.high)}"
    return (
        f'<div class="bar"><span class="name">{escape(bar.name)}</span>'
        f'<svg viewBox="0 0 {WIDTH:.0f} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">'
        f'{"".join(pieces)}<rect class="middle" x="{mid - 1:.2f}" width="2" height="10"/></svg>'
        f'<span class="total">{_end(found, bar.low)} – {_end(found, bar.high)}</span></div>'
    )


def _plain(found: Sensitivity, value: float) -> str:
    return duration_text(value) if found.unit == "s" else f"{value:.3g}x"


def _end(found: Sensitivity, value: float | None) -> str:
    return "does not fit" if value is None else figure(value, _plain(found, value))


def sources(runs: Sequence[Run]) -> Iterator[str]:
    """Yield how many data of each basis every run used, and each datum with its source, once."""
    counts = []
    for run in {run.deployment: run for run in runs}.values():
        bases = Counter(datum.basis for datum in run.sources.list)
        told = [f"{bases[basis]} {escape(basis)}" for basis in sorted(bases, key=_rank)]
        counts.append(f"<li><b>{escape(run.deployment)}</b> {' · '.join(told)}</li>")
    yield f'<ul class="notes">{"".join(counts)}</ul>'
    users: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        for datum in run.sources.list:
            users.setdefault((datum.name, datum.basis, datum.source), []).append(run.deployment)
    several = len({run.deployment for run in runs}) > 1
    rows = [
        [
            escape(name),
            f'<span class="basis b-{_class(basis)}">{escape(basis)}</span>',
            escape(source)
            + (f" <small>({escape(', '.join(dict.fromkeys(used)))})</small>" if several else ""),
        ]
        for (name, basis, source), used in sorted(users.items(), key=lambda item: _rank(item[0][1]))
    ]
    yield table(
        ["", "basis", "source"], rows, "Every datum that the runs used, strongest basis first", "sources"
    )


def _rank(basis: str) -> int:
    return _BASES.index(basis) if basis in _BASES else len(_BASES)


def _class(basis: str) -> str:
    return basis if basis in _BASES else "unknown"
