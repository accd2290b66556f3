"""From spans to recorded sessions: which spans run side by side, what waited for what.

Siblings that hold model calls and overlap in time are lanes of their own, agents above all; a tool with
calls inside is one as well, for its context is its own. All else is the main lane.

Why so: sequential agents share the main lane, since a hand-over is no parallel work and prompts are
recorded exactly for every call anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agentsim.errors import ImportFormatError
from agentsim.importers._span_attributes import Usage
from agentsim.importers._span_store import SpanStore
from agentsim.importers._span_trees import S, Span, events_of, tree_of
from agentsim.recorded import (
    RecordedCall,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    WaitKind,
)

OVERLAP_NS = S // 100
"""Starts and ends in ms, rounded each way, overlap by less without meaning it."""

FRAMEWORK, HUMAN, FAILED = "framework", "human", "failed model call"
_HUMAN_TOOLS = {
    "askuserquestion", "askuser", "askhuman", "humaninput", "requestuserinput", "getuserinput",
    "exitplanmode",
}  # fmt: skip
_NO_USAGE = Usage(0, 0, 0, 0)

Extent = tuple[int, int]


def recorded_sessions(
    spans: Iterable[Span], format: str, path: str, odd: Counter[str]
) -> Iterator[RecordedSession]:
    """Yield the sessions that spans make, in order of first appearance.

    Traces of one conversation are the turns of one session. `odd` is what reading the file counted; it
    goes to the first session. A file without a model call or a tool is an `ImportFormatError`.
    """
    found, store = False, SpanStore()
    for span in spans:
        store.add(span)
    for name, traces in store.by_session().items():
        session = _Session(name, format, odd)
        for trace in traces:
            session.add(store.pop(trace))
        if session.turns:
            found = True
            yield session.recorded()
            odd = Counter()
    if not found:
        raise ImportFormatError(f"{path}:1: no model call and no tool among its spans")


@dataclass(slots=True)
class _Lane:
    name: str
    parent: str | None
    events: list[RecordedEvent] = field(default_factory=list)


@dataclass(slots=True)
class _Turn:
    """One trace: the extent of its events and of its outermost spans, and the spans by lane."""

    inner: Extent
    outer: Extent
    order: list[Span]


class _Session:
    """Collects the traces of one session, then lays them on lanes of one clock."""

    def __init__(self, name: str, format: str, odd: Counter[str]) -> None:
        self.name, self.format, self.odd = name, format, Counter(odd)
        self.turns: list[_Turn] = []
        self.lanes = [_Lane("main", None)]
        self.taken = Counter({"main": 1})
        self.heard: dict[str, str] = {}  # what a user said last, by lane

    def add(self, spans: Sequence[Span]) -> None:
        noted: Counter[str] = Counter()
        order = tree_of(spans, noted)
        inner = _extent(events_of(order))
        if inner is not None:
            self.turns.append(_Turn(inner, _outer(order, inner), order))
            self.odd += noted

    def recorded(self) -> RecordedSession:
        self._date()
        self.turns.sort(key=lambda turn: turn.outer)
        self.origin = self.turns[0].outer[0]
        latest = self.origin
        for turn in self.turns:
            alone = turn.inner[0] >= latest - OVERLAP_NS
            lane = self.lanes[0] if alone else self._open("turn", self.lanes[0])
            if alone:
                self._wait(lane, latest, turn.outer[0], "human", HUMAN)
                self._wait(lane, max(turn.outer[0], latest), turn.inner[0], "harness", FRAMEWORK)
            self._lay(turn.order, lane)
            if alone:
                self._wait(lane, turn.inner[1], turn.outer[1], "harness", FRAMEWORK)
            latest = max(latest, turn.outer[1])
        return self._session()

    def _date(self) -> None:
        """Put traces without any time behind the others."""
        latest = max(turn.outer[1] for turn in self.turns)
        for turn in self.turns:
            if turn.outer[1] == 0:
                turn.inner = turn.outer = latest, latest
                for span in turn.order:
                    span.start_ns = span.end_ns = latest

    def _session(self) -> RecordedSession:
        lanes = tuple(
            RecordedLane(lane.name, lane.parent, tuple(sorted(lane.events, key=lambda e: e.start_s)))
            for lane in self.lanes
        )
        noted = {what: count for what, count in sorted(self.odd.items()) if count > 0}
        return RecordedSession(self.name, self.format, lanes, 0, noted)

    def _open(self, name: str, parent: _Lane) -> _Lane:
        free = name
        while self.taken[free]:
            self.taken[name] += 1
            free = f"{name} {self.taken[name]}"
        self.taken[free] = 1
        self.lanes.append(_Lane(free, parent.name))
        return self.lanes[-1]

    def _wait(self, lane: _Lane, start: int, end: int, kind: WaitKind, name: str) -> None:
        if end > start:
            lane.events.append(RecordedWait(self._s(start), (end - start) / S, kind, name, timing="inferred"))

    def _s(self, at_ns: int) -> float:
        return (at_ns - self.origin) / S

    def _lay(self, order: Sequence[Span], lane: _Lane) -> None:
        """Lay the events of one trace on lanes, those of its outermost spans on `lane`."""
        extents = _call_extents(order)
        lanes: dict[int, _Lane] = {}
        for siblings, above in _families(order):
            around = lanes[id(above)] if above is not None else lane
            apart = _side_by_side([s for s in siblings if id(s) in extents], extents)
            for span in siblings:
                own = id(span) in apart or _tool_is_agent(span, extents)
                inside = self._open(span.name, around) if own else around
                lanes[id(span)] = inside
                if span.kind == "model":
                    inside.events.append(self._call(span, inside.name))
                elif span.kind == "tool":
                    around.events.append(self._tool(span))

    def _call(self, span: Span, lane: str) -> RecordedEvent:
        start_s, length_s = self._s(span.start), (span.end - span.start) / S
        if span.failed and span.usage is None:
            return RecordedWait(start_s, length_s, "harness", FAILED, timing=span.timing)
        usage, length_s = span.usage or _NO_USAGE, 0.0 if span.timing == "absent" else length_s
        tokens = usage.prompt, usage.cached, usage.output, usage.thinking
        said, self.heard[lane] = "" if self.heard.get(lane) == span.given else span.given, span.given
        model = span.model or "unknown"
        known = span.ttft_s, span.timing, said, span.gave
        return RecordedCall(start_s, length_s, model, *tokens, *known)

    def _tool(self, span: Span) -> RecordedWait:
        plain = span.name.lower().replace("_", "").replace("-", "").replace(" ", "")
        kind: WaitKind = "human" if plain in _HUMAN_TOOLS else "tool"
        length_s = (span.end - span.start) / S
        texts = span.given, span.gave
        return RecordedWait(self._s(span.start), length_s, kind, span.name, 0, span.timing, *texts)


def _extent(spans: Iterable[Span]) -> Extent | None:
    pairs = [(span.start, span.end) for span in spans]
    return (min(start for start, _ in pairs), max(end for _, end in pairs)) if pairs else None


def _outer(order: Sequence[Span], inner: Extent) -> Extent:
    """Return how long a trace took: from the start to the end of its outermost spans, if they are sound."""
    roots = [span for span in order if span.above is None and span.timing == "measured"]
    start, end = _extent(roots) or inner
    return min(start, inner[0]), max(end, inner[1])


def _families(order: Sequence[Span]) -> Iterator[tuple[list[Span], Span | None]]:
    """Yield spans with one parent, and the parent; parents come before their children."""
    yield [span for span in order if span.above is None], None
    for span in order:
        if span.below:
            yield span.below, span


def _call_extents(order: Sequence[Span]) -> dict[int, Extent]:
    """Return the time that events take, for every span that is or holds a model call."""
    extents: dict[int, Extent] = {}
    calls: set[int] = set()
    for span in reversed(order):
        own = [(span.start, span.end)] if span.kind in ("model", "tool") else []
        parts = own + [extents[id(child)] for child in span.below if id(child) in extents]
        if parts:
            extents[id(span)] = min(start for start, _ in parts), max(end for _, end in parts)
        if span.kind == "model" or any(id(child) in calls for child in span.below):
            calls.add(id(span))
    return {key: extent for key, extent in extents.items() if key in calls}


def _side_by_side(siblings: list[Span], extents: dict[int, Extent]) -> set[int]:
    """Return which siblings need a lane: those that overlap; plain calls only where they overlap calls."""
    plain = [span for span in siblings if not _holds(span, extents)]
    return _overlapping(plain, extents) | (_overlapping(siblings, extents) - set(map(id, plain)))


def _holds(span: Span, extents: dict[int, Extent]) -> bool:
    return any(id(child) in extents for child in span.below)


def _overlapping(spans: list[Span], extents: dict[int, Extent]) -> set[int]:
    found: set[int] = set()
    ordered = sorted(spans, key=lambda span: extents[id(span)])
    latest: Span | None = None
    for span in ordered:
        start, end = extents[id(span)]
        if latest is not None and start < extents[id(latest)][1] - OVERLAP_NS:
            found |= {id(latest), id(span)}
        if latest is None or end > extents[id(latest)][1]:
            latest = span
    return found


def _tool_is_agent(span: Span, extents: dict[int, Extent]) -> bool:
    """Tell whether a span is a lane because a tool runs it: the one agent below it, else the tool itself."""
    if span.kind == "agent" and span.above is not None and span.above.kind == "tool":
        return _only_agent(span.above, extents) is span
    return span.kind == "tool" and _holds(span, extents) and _only_agent(span, extents) is None


def _only_agent(tool: Span, extents: dict[int, Extent]) -> Span | None:
    inside = [child for child in tool.below if id(child) in extents]
    return inside[0] if len(inside) == 1 and inside[0].kind == "agent" else None
