"""Raw Weka sessions (kv-cache-tester, SemiAnalysis releases): one JSON object a session, hashes of blocks.

A prompt is a list of block hashes; what was cached is its longest prefix of blocks that the session has
seen before, in order of time. Sub-agents are entries with requests of their own.

Why so: where no `api_time` was kept, `think_time` runs from the last *known* end and the next
`input_types` says `text` whatever came, so the pause after such a call is neither tool nor human: it holds
the answer as well and is kept as `harness`. Where `think_time` is shorter than the time to the next call,
it does end the call, and the duration is inferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers.base import joined, json_object, lines_of
from agentsim.recorded import (
    RecordedCall,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    Timing,
    WaitKind,
)
from agentsim.units import MAX_SECONDS, MAX_TOKENS

MAX_DEPTH = 16
"""Sub-agents within sub-agents; more than that is refused."""

CLOCK_STEP_S = 1.0
"""Raw files keep `t` and `think_time` in whole seconds; two of them differ by as much without meaning it."""

TOOL, HUMAN, UNTIMED = "tools and waits", "human", "answer not timed, and wait"


class Weka:
    """The importer of raw Weka sessions: a JSON file of one session, or a line of JSON for each."""

    name = "weka"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        marks = b'"block_size"' in head or b'"hash_ids"' in head
        return head.lstrip().startswith(b"{") and b'"requests"' in head and marks

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        for place, data in _documents(path):
            yield _Session(data, place).read()


PLUGIN = Weka()


def _documents(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sessions' objects: one a line, or one over the whole file where line 1 does not end it."""
    lines = lines_of(path)
    number, text = next(lines, (1, ""))
    if not text.strip():
        raise ImportFormatError(f"{path}:1: the file is empty")
    if not _is_whole(text):
        text = joined(chain([(number, text)], lines), path)
    yield f"{path}:{number}", json_object(text, f"{path}:{number}")
    for number, text in lines:
        yield f"{path}:{number}", json_object(text, f"{path}:{number}")


def _is_whole(text: str) -> bool:
    return text.rstrip().endswith("}") and text.count("{") == text.count("}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A JSON object and where it stands; every field is checked when it is asked for."""

    data: Mapping[str, Any]
    place: str

    def fail(self, key: str, problem: str) -> ImportFormatError:
        return ImportFormatError(f"{self.place}: {key}: {problem}")

    def number(self, key: str) -> float | None:
        """Return a time in the file's unit, None where it is absent or null."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"{_shown(value)} is not a number")
        if not 0 <= value <= MAX_SECONDS:
            raise self.fail(key, f"{_shown(value)} is out of range; it must lie in 0..{MAX_SECONDS:.0e}")
        return float(value)

    def time(self, key: str) -> float:
        value = self.number(key)
        if value is None:
            raise self.fail(key, "is missing")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.data.get(key, default)
        if value is None:
            raise self.fail(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"{_shown(value)} is not a whole number")
        if not 0 <= value <= MAX_TOKENS:
            raise self.fail(key, f"{_shown(value)} is out of range; it must lie in 0..{MAX_TOKENS:.0e}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.fail(key, f"{_shown(value)} is not text" if key in self.data else "is missing")
        return value

    def items(self, key: str, kind: type | tuple[type, ...], required: bool = True) -> list[Any]:
        value = self.data.get(key)
        if value is None and not required:
            return []
        if not isinstance(value, list):
            raise self.fail(key, f"{_shown(value)} is not a list" if key in self.data else "is missing")
        for index, item in enumerate(value):
            if not isinstance(item, kind):
                raise self.fail(f"{key}[{index}]", f"{_shown(item)} cannot stand here")
        return value

    def entries(self, key: str) -> list[_Entry]:
        items = self.items(key, dict)
        return [_Entry(item, f"{self.place}{_join(self.place, key)}[{i}]") for i, item in enumerate(items)]


def _join(place: str, key: str) -> str:
    return f".{key}" if place.endswith("]") else f": {key}"


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > MAX_TOKENS**2:
        return "a huge number"  # str() of an int of over 4,300 digits raises
    text = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class _Request:
    """One model call as read, before its neighbours are known."""

    lane: int
    call: RecordedCall
    hashes: tuple[int | str, ...]
    think_s: float | None
    input_types: frozenset[str]
    stop: str


@dataclass(slots=True)
class _Lane:
    """An agent as read. `span_s` is its recorded duration, for one that kept no requests."""

    name: str
    parent: str | None
    start_s: float
    span_s: float | None = None
    requests: list[_Request] = field(default_factory=list)


class _Session:
    """Reads one session: entries to requests on one clock, then cached prefixes, then waits."""

    def __init__(self, data: dict[str, Any], place: str) -> None:
        self.top = _Entry(data, place)
        self.odd: Counter[str] = Counter()
        self.lanes = [_Lane("main", None, 0.0)]
        self.block = self.top.count("block_size", 64)
        if self.block == 0:
            raise self.top.fail("block_size", "0 tokens make no block")

    def read(self) -> RecordedSession:
        entries = self.top.entries("requests")
        if not entries:
            raise self.top.fail("requests", "the session holds no request")
        self.relative = _inner_times_are_relative(entries)
        self._take(entries, 0, 0.0, 1)
        self._order()
        self._set_cached()
        lanes = [RecordedLane(x.name, x.parent, self._events(x)) for x in self.lanes]
        kept = _without_empty(lanes)
        self._note("empty sub-agent", len(lanes) - len(kept))
        if not any(x.events for x in kept):
            raise self.top.fail("requests", "the session holds no call")
        return self._session(kept)

    def _session(self, lanes: tuple[RecordedLane, ...]) -> RecordedSession:
        system = self.top.count("system_tokens", 0) + self.top.count("tool_tokens", 0)
        name = self.top.text("id", "unnamed")
        return RecordedSession(name, PLUGIN.name, _from_zero(lanes), system, dict(sorted(self.odd.items())))

    def _note(self, what: str, count: int = 1) -> None:
        if count:
            self.odd[what] += count

    def _take(self, entries: list[_Entry], lane: int, origin_s: float, depth: int) -> None:
        """Read the entries of one lane; `origin_s` is added to their times."""
        for entry in entries:
            kind = entry.text("type")
            if kind == "subagent":
                self._take_sub_agent(entry, lane, origin_s, depth)
            elif kind in ("n", "s"):
                self.lanes[lane].requests.append(self._request(entry, lane, origin_s))
            else:
                raise entry.fail("type", f"{_shown(kind)} is not a kind of request. Allowed: n, s, subagent")

    def _take_sub_agent(self, entry: _Entry, parent: int, origin_s: float, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise entry.fail("requests", f"sub-agents nested over {MAX_DEPTH} deep")
        start_s = origin_s + entry.time("t")
        span_ms = entry.number("duration_ms")
        self._note("no sub-agent duration", int(span_ms is None))
        name = self._free_name(entry.text("agent_id", "sub-agent"))
        span_s = None if span_ms is None else span_ms / 1e3
        self.lanes.append(_Lane(name, self.lanes[parent].name, start_s, span_s))
        inner_s = start_s if self.relative else 0.0
        self._take(entry.entries("requests"), len(self.lanes) - 1, inner_s, depth + 1)

    def _free_name(self, name: str) -> str:
        taken, free, number = {lane.name for lane in self.lanes}, name, 1
        while free in taken:
            number += 1
            free = f"{name} {number}"
        return free

    def _request(self, entry: _Entry, lane: int, origin_s: float) -> _Request:
        hashes = tuple(entry.items("hash_ids", (int, str), required=False))
        api_s = entry.number("api_time") or 0.0
        call = RecordedCall(
            start_s=origin_s + entry.time("t"),
            duration_s=api_s,
            model=entry.text("model", "unknown"),
            prompt_tokens=entry.count("in"),
            cached_tokens=0,
            output_tokens=entry.count("out"),
            ttft_s=entry.number("ttft") or None,
            timing="measured" if api_s else "absent",
        )
        self._note("no output", int(call.output_tokens == 0))
        self._note("no block hashes", int(not hashes and call.prompt_tokens >= self.block))
        types = frozenset(entry.items("input_types", str, required=False))
        return _Request(lane, call, hashes, entry.number("think_time"), types, entry.text("stop", ""))

    def _order(self) -> None:
        for lane in self.lanes:
            starts = [r.call.start_s for r in lane.requests]
            self._note("out of order", sum(b < a for a, b in pairwise(starts)))
            lane.requests.sort(key=lambda r: r.call.start_s)
            self._note("prompt sent twice", sum(map(_repeats, lane.requests, lane.requests[1:])))

    def _set_cached(self) -> None:
        """Set the cached tokens of every call, in order of time over all lanes."""
        seen: set[int | str] = set()
        places = [(r.call.start_s, r.lane, i) for x in self.lanes for i, r in enumerate(x.requests)]
        for _, lane, index in sorted(places):
            request = self.lanes[lane].requests[index]
            blocks = next((i for i, h in enumerate(request.hashes) if h not in seen), len(request.hashes))
            seen.update(request.hashes)
            cached = min(blocks * self.block, request.call.prompt_tokens)
            call = replace(request.call, cached_tokens=cached)
            self.lanes[lane].requests[index] = replace(request, call=call)

    def _events(self, lane: _Lane) -> tuple[RecordedEvent, ...]:
        if not lane.requests and lane.span_s:
            self._note("sub-agent without calls")
            return (RecordedWait(lane.start_s, lane.span_s, "tool", TOOL),)
        events: list[RecordedEvent] = []
        latest: _Request | None = None  # of the calls so far, the one that ends last
        for request, after in pairwise([*lane.requests, None]):
            assert request is not None, "only the last of the list is None"
            timed = replace(request, call=self._timed(request, after))
            if latest is not None:
                events += self._wait(latest, timed)
            events.append(timed.call)
            if latest is None or timed.call.end_s >= latest.call.end_s:
                latest = timed
        return tuple(events)

    def _timed(self, request: _Request, after: _Request | None) -> RecordedCall:
        """Return the call with a duration inferred from the next one's `think_time`, where that can be."""
        call = request.call
        if call.timing != "absent":
            return call
        think_s = after.think_s if after else None
        room_s = after.call.start_s - call.start_s if after else 0.0
        if think_s is not None and 0 < think_s < room_s:
            self._note("API time inferred")
            return replace(call, duration_s=room_s - think_s, timing="inferred")
        self._note("no API time")
        return call

    def _wait(self, before: _Request, after: _Request) -> list[RecordedEvent]:
        """Return the wait between two calls, none where the second starts while the first runs."""
        gap_s = after.call.start_s - before.call.end_s
        if gap_s < -_clock_step_s(before.call, after.call):
            self._note("overlapping calls")
            return []
        kind, name = _kind(before, after)
        agrees = after.think_s is not None and abs(after.think_s - gap_s) <= CLOCK_STEP_S
        timing: Timing = "measured" if agrees else "inferred"
        start_s = min(before.call.end_s, after.call.start_s)
        return [RecordedWait(start_s, max(gap_s, 0.0), kind, name, timing=timing)]


def _repeats(before: _Request, after: _Request) -> bool:
    same = before.call.prompt_tokens == after.call.prompt_tokens and before.hashes == after.hashes
    return same and bool(before.hashes)


def _clock_step_s(*calls: RecordedCall) -> float:
    """Return how much two times may differ without meaning it."""
    return CLOCK_STEP_S if all(call.start_s.is_integer() for call in calls) else 0.0


def _kind(before: _Request, after: _Request) -> tuple[WaitKind, str]:
    if before.call.timing == "absent":
        return "harness", UNTIMED
    spoken = "text" in after.input_types and before.stop == "end_turn"
    return ("human", HUMAN) if spoken or after.input_types == {"text"} else ("tool", TOOL)


def _inner_times_are_relative(entries: list[_Entry]) -> bool:
    """Tell whether a sub-agent's requests count from its marker: most begin before it if read as absolute."""
    pairs = list(_first_inner_times(entries))
    return 2 * sum(inner < marker for marker, inner in pairs) > len(pairs)


def _first_inner_times(entries: list[_Entry], depth: int = 1) -> Iterator[tuple[float, float]]:
    for entry in entries:
        if entry.data.get("type") != "subagent" or depth >= MAX_DEPTH:
            continue
        inner = entry.entries("requests")
        if inner:
            yield entry.time("t"), min(x.time("t") for x in inner)
        yield from _first_inner_times(inner, depth + 1)


def _without_empty(lanes: list[RecordedLane]) -> tuple[RecordedLane, ...]:
    """Leave out sub-agents that did nothing; what they started then belongs to whoever started them."""
    above = {lane.name: lane.parent for lane in lanes[1:] if not lane.events}
    kept = []
    for lane in lanes:
        parent = lane.parent
        while parent in above:
            parent = above[parent]
        kept += [replace(lane, parent=parent)] if lane.name not in above else []
    return tuple(kept)


def _from_zero(lanes: tuple[RecordedLane, ...]) -> tuple[RecordedLane, ...]:
    """Let the clock start at the first event."""
    origin_s = min(lane.start_s for lane in lanes if lane.events)
    if origin_s == 0:
        return lanes
    return tuple(
        replace(lane, events=tuple(replace(e, start_s=e.start_s - origin_s) for e in lane.events))
        for lane in lanes
    )
