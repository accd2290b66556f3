"""Spans of one trace as a tree whose times make sense and whose model calls are each counted once.

Why so: an end before the start, a clock four minutes off and a wrapper around a call are frequent in
exported traces. What is known is kept; what is mended or left out is counted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from agentsim.importers._span_attributes import NO_TOOLS, Kind, Usage
from agentsim.recorded import Timing

S = 10**9
SKEW_NS, LATE_NS = S, 60 * S
"""A child further than this before, or after, its parent was timed by another clock, if it fits into it."""

LONGEST_NS, FAR_NS = 30 * 86_400 * S, 365 * 86_400 * S
"""No call or tool takes longer, no span of a trace starts further from the middle one."""


@dataclass(slots=True, eq=False)
class Span:
    """One span. Times are ns since 1970, None where the file has none.

    `given` and `gave` are what a model or tool was told and answered; both only where asked for.
    """

    trace: str
    id: str
    parent: str
    kind: Kind
    name: str
    start_ns: int | None
    end_ns: int | None
    model: str = ""
    usage: Usage | None = None
    ttft_s: float | None = None
    failed: bool = False
    response: str = ""
    session: str = ""
    asked: frozenset[str] = NO_TOOLS
    timing: Timing = "measured"
    given: str = ""
    gave: str = ""
    above: Span | None = field(default=None, init=False)
    below: list[Span] = field(init=False)

    @property
    def start(self) -> int:
        return self.start_ns or 0

    @property
    def end(self) -> int:
        return self.end_ns or 0


def tree_of(spans: Sequence[Span], odd: Counter[str]) -> list[Span]:
    """Return the spans of one trace, linked and mended, parents before children."""
    order = _linked(_unique(spans, odd), odd)
    for step in (_starts, _ends, _skew, _wrappers, _answers, _asked, _plain_tools, _nested_tools, _noted):
        step(order, odd)
    return order


def _unique(spans: Sequence[Span], odd: Counter[str]) -> list[Span]:
    """Return one span an id: exports repeat a span when it has ended, so the later one with an end holds."""
    kept: dict[str, Span] = {}
    for index, span in enumerate(spans):
        key = span.id or f" {index}"
        before = kept.get(key)
        odd["spans without an id"] += not span.id
        odd["spans written twice"] += before is not None
        if before is None or span.end_ns is not None or before.end_ns is None:
            kept[key] = span
    return list(kept.values())


def _linked(spans: list[Span], odd: Counter[str]) -> list[Span]:
    by_id = {span.id: span for span in spans if span.id}
    for span in spans:
        span.above, span.below = by_id.get(span.parent), []
        odd["spans whose parent is missing"] += span.above is None and bool(span.parent)
    for span in spans:
        if span.above is not None:
            span.above.below.append(span)
    reached: set[int] = set()
    order = _down([span for span in spans if span.above is None], reached)
    for span in spans:
        if id(span) not in reached:
            _uproot(span)
            odd["spans in a circle"] += 1
            order += _down([span], reached)
    return order


def _down(roots: list[Span], reached: set[int]) -> list[Span]:
    order = list(roots)
    reached.update(map(id, roots))
    for span in order:
        span.below = [child for child in span.below if id(child) not in reached]
        reached.update(map(id, span.below))
        order += span.below
    return order


def _uproot(span: Span) -> None:
    if span.above is not None:
        span.above.below.remove(span)
    span.above = None


def _starts(order: list[Span], odd: Counter[str]) -> None:
    """Give every span a start: its own, else its end, its parent's start, the span's before it."""
    given = sorted(span.start_ns for span in order if span.start_ns is not None)
    for span in order:
        if span.start_ns is not None and abs(span.start_ns - given[len(given) // 2]) > FAR_NS:
            span.start_ns = None
    latest = next((span.start_ns for span in order if span.start_ns is not None), None)
    for span in order:
        if span.start_ns is None:
            span.timing = "absent"
            near = span.above.start_ns if span.above is not None else latest
            span.start_ns = span.end_ns = span.end_ns if span.end_ns is not None else near or 0
            odd["spans without a start"] += span.kind in ("model", "tool")
        latest = span.start_ns


def _ends(order: list[Span], odd: Counter[str]) -> None:
    beside = _Beside(order)
    for span in order:
        counts = span.kind in ("model", "tool")
        if span.end_ns is None:
            found = beside.end_of(span)
            span.end_ns, span.timing = found or span.start, "inferred" if found else "absent"
            odd["ends inferred from neighbours" if found else "spans without an end"] += counts
        elif span.end_ns < span.start:
            odd["spans that end before they start"] += counts
            span.end_ns, span.timing = span.start_ns, "absent"
        elif span.end_ns - span.start > LONGEST_NS and counts:
            odd["spans of over 30 days"] += 1
            span.end_ns, span.timing = span.start_ns, "absent"


class _Beside:
    """Knows when spans of one parent start: one without an end lasts to the next, or to its parent's end."""

    def __init__(self, order: list[Span]) -> None:
        self.starts: dict[tuple[int, bool], list[int]] = {}
        for span in sorted(order, key=lambda span: span.start):
            self.starts.setdefault((id(span.above), False), []).append(span.start)
            if span.kind == "model":
                self.starts.setdefault((id(span.above), True), []).append(span.start)

    def end_of(self, span: Span) -> int | None:
        """Return the end that neighbours tell; tools may run side by side, so only a model call ends one."""
        ends = _next(self.starts.get((id(span.above), span.kind == "tool"), []), span.start)
        if span.above is not None and span.above.end > span.start:
            ends.append(span.above.end)
        end = min(ends, default=None)
        return end if end is not None and end - span.start <= LONGEST_NS else None


def _skew(order: list[Span], odd: Counter[str]) -> None:
    """Move children that another clock put outside their parent into its middle, with all below them."""
    for span in order:
        outside = [child for child in span.below if _is_outside(child, span)]
        if not outside:
            continue
        first, last = min(c.start for c in outside), max(c.end for c in outside)
        if last - first <= span.end - span.start and span.timing == "measured":
            shift = span.start + (span.end - span.start - (last - first)) // 2 - first
            moved = [s for child in outside for s in _all_below(child)]
            for inner in moved:
                inner.start_ns, inner.end_ns = inner.start + shift, inner.end + shift
            odd["spans moved from a clock that was off"] += len(moved)


def _is_outside(child: Span, span: Span) -> bool:
    return child.end > 0 and not span.start - SKEW_NS <= child.start <= span.end + LATE_NS


def _all_below(span: Span) -> list[Span]:
    found = [span]
    for inner in found:
        found += inner.below
    return found


def _wrappers(order: list[Span], odd: Counter[str]) -> None:
    """Count model calls at the leaves only; a wrapper's tokens are used where its one call has none."""
    leaves: dict[int, list[Span]] = {}
    for span in reversed(order):
        inside = [leaf for child in span.below for leaf in leaves.pop(id(child), ())]
        if span.kind == "model" and inside:
            odd["wrapper spans that repeat a call"] += 1
            span.kind = "other"
            if len(inside) == 1 and inside[0].usage is None:
                inside[0].usage = span.usage
        leaves[id(span)] = inside or ([span] if span.kind == "model" else [])


def _answers(order: list[Span], odd: Counter[str]) -> None:
    """Count an answer once that two instrumentations recorded: the span nearest to the call is kept."""
    calls = [span for span in order if span.kind == "model" and span.response]
    calls.sort(key=lambda span: span.response)
    for _, group in groupby(calls, key=lambda span: span.response):
        same = sorted(group, key=lambda span: (span.usage is None, span.end - span.start))
        for span in same[1:]:
            span.kind = "other"
            odd["answers recorded twice"] += 1


def _asked(order: list[Span], odd: Counter[str]) -> None:
    """End a call no later than the first tool begins that it asked for."""
    tools: dict[str, list[int]] = {}
    for span in sorted(order, key=lambda span: span.start):
        if span.kind == "tool":
            tools.setdefault(span.name, []).append(span.start)
    for span in order:
        begun = [at for name in span.asked for at in _next(tools.get(name, []), span.start) if at < span.end]
        if span.kind == "model" and begun:
            span.end_ns, span.timing = min(begun), "inferred"
            odd["calls cut where their tool begins"] += 1


def _next(starts: list[int], after: int) -> list[int]:
    """Return the first of sorted times that is later than another, if there is one."""
    index = bisect_right(starts, after)
    return starts[index : index + 1]


def _plain_tools(order: list[Span], odd: Counter[str]) -> None:  # noqa: ARG001  (a step like the others)
    """Take a plain leaf for a tool where the span around it says that tools run there."""
    for span in order:
        if span.kind == "other" and not span.below and span.above is not None:
            around = span.above
            if around.kind == "other" and around.name.lower() in ("tools", "tool", "action"):
                span.kind = "tool"


def _nested_tools(order: list[Span], odd: Counter[str]) -> None:
    """Of tools within tools (a client's and its server's span) keep the outer one."""
    covered: set[int] = set()
    for span in order:
        above = span.above
        inside = above is not None and (id(above) in covered or above.kind == "tool")
        if inside and span.kind != "agent":
            covered.add(id(span))
            if span.kind == "tool" and not _calls_between(span):
                span.kind = "other"
                odd["tool spans inside a tool's"] += 1


def _calls_between(span: Span) -> bool:
    """Tell whether an agent's own calls stand beside a tool: then the tool above works like an agent."""
    return span.above is not None and any(beside.kind == "model" for beside in span.above.below)


def _noted(order: list[Span], odd: Counter[str]) -> None:
    for span in order:
        if span.kind == "model":
            _note_call(span, odd)
        elif span.kind == "tool":
            odd["tool spans of no length"] += span.end == span.start and span.timing == "measured"


def _note_call(span: Span, odd: Counter[str]) -> None:
    length_s = (span.end - span.start) / S
    if length_s == 0 and span.timing != "absent":
        odd["model calls of no length"] += 1
        span.timing = "absent"
    if span.ttft_s is not None and not (0 <= span.ttft_s <= length_s and span.timing == "measured"):
        odd["times to the first token out of range"] += span.timing == "measured"
        span.ttft_s = None
    odd["failed model calls"] += span.failed
    odd["model calls without token counts"] += span.usage is None and not span.failed
    odd["cached tokens added to the prompt"] += span.usage is not None and span.usage.added


def events_of(order: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans that are model calls or tools."""
    return (span for span in order if span.kind in ("model", "tool"))
