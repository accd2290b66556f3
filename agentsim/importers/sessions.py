"""Recorded sessions as JSON lines, packed with gzip or not: one session a line, its `requests` by agent.

A request holds `t_s` (whole seconds from the session's start), `agent` (`main`, `main/agent_001`),
`model`, `input_tokens` of which `cached_tokens`, `output_tokens`, `api_s`, `think_s` and `ttft_s`.
The format does not say what an agent waited for, so every wait is of the kind `tool` and called
`tools and waits`, a human at the keyboard included.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from agentsim.errors import ImportFormatError
from agentsim.importers.base import json_objects
from agentsim.recorded import (
    RecordedCall,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
    Timing,
)
from agentsim.units import MAX_SECONDS, MAX_TOKENS

WAIT_NAME = "tools and waits"
CLOCK_STEP_S = 1.0
"""Starts are whole seconds: an overlap of less says nothing."""

T = TypeVar("T")
_MARKS = (b'"requests"', b'"input_tokens"', b'"think_s"')
_WANTED = {str: "text", int: "a whole number", float: "a number", list: "a list"}


@dataclass(frozen=True)
class SessionsImporter:
    """The importer of this format."""

    name: str = "sessions"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (the head is enough here)
        """Tell it by the keys of the first session that holds a request."""
        return head.lstrip().startswith(b"{") and all(mark in head for mark in _MARKS)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield one session a line. `system_tokens` includes the definitions of the tools."""
        for place, line in json_objects(path):
            yield _session(_Fields(line, place))


@dataclass(frozen=True)
class _Fields:
    """A JSON object whose values are asked for by type; what does not fit is an error at `place`."""

    data: dict[str, Any]
    place: str

    def text(self, key: str) -> str:
        value = self._of(key, str)
        if not value.isprintable() or not value.strip():
            self._refuse(key, _shown(value), "a name")
        return value

    def tokens(self, key: str) -> int:
        value = self._of(key, int)
        if not 0 <= value < MAX_TOKENS:
            self._refuse(key, _shown(value), f"0 to {MAX_TOKENS:,} tokens")
        return value

    def seconds(self, key: str) -> float:
        value = self._of(key, float)
        if not 0 <= value < MAX_SECONDS:
            self._refuse(key, _shown(value), f"0 to {MAX_SECONDS:,.0f} s")
        return value

    def seconds_or_none(self, key: str) -> float | None:
        return None if self.data.get(key, 0) is None else self.seconds(key)

    def objects(self, key: str) -> Iterator[_Fields]:
        for index, item in enumerate(self._of(key, list)):
            place = f"{self.place}: {key}[{index}]"
            if not isinstance(item, dict):
                raise ImportFormatError(f"{place}: {_shown(item)} found where an object is expected")
            yield _Fields(item, place)

    def _of(self, key: str, kind: type[T]) -> T:
        if key not in self.data:
            raise ImportFormatError(f"{self.place}: '{key}' is missing; each line holds one recorded session")
        value = self.data[key]
        allowed = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or isinstance(value, bool):
            self._refuse(key, _shown(value), _WANTED[kind])
        return cast(T, value)

    def _refuse(self, key: str, found: str, wanted: str) -> NoReturn:
        raise ImportFormatError(f"{self.place}: {key}: {found} found where {wanted} is expected")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True, slots=True)
class _Request:
    """A call with the lane it ran in and the wait that the recorder saw before it (None: not known)."""

    agent: str
    call: RecordedCall
    wait_s: float | None


def _session(fields: _Fields) -> RecordedSession:
    requests = [_request(item) for item in fields.objects("requests")]
    lanes: dict[str, list[_Request]] = {}
    for request in sorted(requests, key=lambda r: r.call.start_s):
        lanes.setdefault(request.agent, []).append(request)
    names = sorted(lanes, key=lambda name: name.count("/"))
    return RecordedSession(
        name=fields.text("id"),
        format="sessions",
        lanes=tuple(RecordedLane(n, _parent(n, lanes), _events(lanes[n])) for n in names),
        system_tokens=fields.tokens("system_tokens") + fields.tokens("tool_tokens"),
        odd=dict(Counter(odd for lane in lanes.values() for odd in _oddities(lane))),
    )


def _request(fields: _Fields) -> _Request:
    seconds = fields.seconds_or_none("api_s")
    call = RecordedCall(
        start_s=fields.seconds("t_s"),
        duration_s=seconds or 0.0,
        model=fields.text("model"),
        prompt_tokens=fields.tokens("input_tokens"),
        cached_tokens=fields.tokens("cached_tokens"),
        output_tokens=fields.tokens("output_tokens"),
        ttft_s=fields.seconds_or_none("ttft_s"),
        timing="measured" if seconds else "absent",
    )
    if call.cached_tokens > call.prompt_tokens:
        raise ImportFormatError(f"{fields.place}: more cached_tokens than input_tokens, which include them")
    return _Request(fields.text("agent"), call, fields.seconds_or_none("think_s"))


def _parent(name: str, lanes: dict[str, list[_Request]]) -> str | None:
    """Return the nearest lane above `name` that made a call."""
    while "/" in name:
        name = name.rpartition("/")[0]
        if name in lanes:
            return name
    return None


def _events(lane: list[_Request]) -> tuple[RecordedEvent, ...]:
    events: list[RecordedEvent] = []
    before: RecordedCall | None = None
    for request in lane:
        wait = _wait(request, before)
        if wait is not None:
            events.append(wait)
        events.append(request.call)
        before = request.call
    return tuple(events)


def _wait(request: _Request, before: RecordedCall | None) -> RecordedWait | None:
    """Return the wait before a call: `think_s`, or what is left since a call of unknown length began.

    The recorder counts `think_s` from the last call whose end it knows, across calls without a time.
    """
    end = request.call.start_s
    if before is None:
        return _named_wait(end, request.wait_s or 0.0, "measured")
    gap = end - before.start_s
    if before.timing == "absent" and (request.wait_s is None or request.wait_s > gap):
        return _named_wait(end, gap, "inferred")
    if request.wait_s is None:
        return _named_wait(end, end - before.end_s, "inferred")
    return _named_wait(end, request.wait_s, "measured", earliest_s=before.start_s)


def _named_wait(
    end_s: float, duration_s: float, timing: Timing, earliest_s: float = 0.0
) -> RecordedWait | None:
    if duration_s <= 0:
        return None
    start = max(end_s - duration_s, earliest_s)
    return RecordedWait(start, duration_s, "tool", WAIT_NAME, timing=timing)


def _oddities(lane: list[_Request]) -> Iterator[str]:
    end = -math.inf
    for request in lane:
        call = request.call
        if call.timing == "absent":
            yield "no API time"
        if call.output_tokens == 0:
            yield "no output"
        if call.start_s < end - CLOCK_STEP_S:
            yield "overlapping calls"
        end = max(end, call.end_s)


PLUGIN = SessionsImporter()
