"""OpenHands: `output.jsonl` of its evaluations and resolver, event streams, and logs of single calls.

A line of `output.jsonl` is a session, with events (`history`) and `metrics` beside each other. An event
stream is a folder of one file an event, of V0 or of the V1 SDK (`base_state.json` beside it); its first
file stands for it. So does the first of the SDK's logs of calls, which are grouped by the model in their
names; their `timestamp` is the end of the call.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from agentsim.errors import ImportFormatError
from agentsim.importers._draft import Draft, made_call, told
from agentsim.importers._openhands import session_of
from agentsim.importers._openhands_events import Event, Metrics, event_of, flat
from agentsim.importers._texts import text_in
from agentsim.importers._trajectory import (
    Context,
    chars,
    document,
    documents,
    is_list_of_objects,
    stem,
    sub,
    top_keys,
    usage_of,
    words,
)
from agentsim.importers._values import instant, number, seconds
from agentsim.importers.base import head_of, objects
from agentsim.recorded import RecordedSession, RecordedWait, Timing, WaitKind

_EVENT_FILE = re.compile(r"(?:event-)?0*(\d{1,12})(?:-[\w-]+)?\.json")
_CALL_FILE = re.compile(r"(.+)-(\d{9,11}\.\d+)(?:-\w+)?\.json")
_NO_CALL = "session without a model call"


class OpenHands:
    """The importer of OpenHands sessions."""

    name = "openhands"

    def recognises(self, path: str, head: bytes) -> bool:
        """Tell it by the keys of the first object; of a session over many files, only the first is one."""
        folder, file = os.path.split(path)
        kind = _kind(file, head)
        if kind == "call":
            return file == _call_files(folder, file)[0]
        return _is_first_event(folder, file) if kind == "event" else kind is not None

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions: one a line, one of a list or folder of events, those of the calls' logs."""
        return _sessions(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with what was said."""
        return _sessions(path, keep_text=True)


PLUGIN = OpenHands()


def _sessions(path: str, keep_text: bool) -> Iterator[RecordedSession]:
    folder, file = os.path.split(path)
    kind = _kind(file, head_of(path))
    if kind == "call":
        yield from told(_of_calls(folder, file, keep_text), path)
    elif kind == "event":
        yield from told(_of_folder(folder, keep_text), path)
    else:
        yield from told(_of_values(path, keep_text), path)


def _kind(file: str, head: bytes) -> Literal["call", "event", "whole"] | None:
    """Return what a file holds: one call, one event, or whole sessions; None of what is not OpenHands'."""
    keys = set(top_keys(head)) if is_list_of_objects(head) or head.lstrip().startswith(b"{") else set()
    if is_list_of_objects(head):
        return "whole" if _is_event(keys) else None
    if _CALL_FILE.fullmatch(file) and b"messages" in keys:
        return "call"
    if _EVENT_FILE.fullmatch(file) and (_is_event(keys) or {b"kind", b"source"} <= keys):
        return "event"
    return "whole" if _is_output(keys) else None


def _is_event(keys: set[bytes]) -> bool:
    return b"source" in keys and bool(keys & {b"action", b"observation"}) and b"step_id" not in keys


def _is_output(keys: set[bytes]) -> bool:
    if b"trajectory" in keys:
        return False
    shapes = ({b"instance_id", b"test_result"}, {b"issue", b"issue_type"}, {b"history", b"metrics"})
    return any(shape <= keys for shape in shapes) or {b"instance_id", b"history"} <= keys


def _of_values(path: str, keep_text: bool) -> Iterator[RecordedSession | str | ImportFormatError]:
    for value in documents(path):
        if isinstance(value, ImportFormatError):
            yield value
        elif isinstance(value, dict):
            yield _of_row(value, path, keep_text) or _NO_CALL
        else:
            events = [event_of(data, keep_text) for data in flat(value)]
            yield session_of(stem(path), PLUGIN.name, events, Metrics(), Counter()) or _NO_CALL


def _of_row(row: dict[str, Any], path: str, keep_text: bool) -> RecordedSession | None:
    odd: Counter[str] = Counter()
    metrics = Metrics(model=words(sub(row, "metadata", "llm_config").get("model")))
    metrics.add(sub(row, "metrics"), odd)
    issue = number(sub(row, "issue").get("number"))
    name = words(row.get("instance_id")) or (stem(path) if issue is None else f"issue {issue:.0f}")
    events = [event_of(data, keep_text) for data in flat(row.get("history"))]
    return session_of(name, PLUGIN.name, events, metrics, odd)


# ---- a folder of events


def _is_first_event(folder: str, file: str) -> bool:
    """Tell whether a file is the first of its folder, which is listed only where it might be."""
    match = _EVENT_FILE.fullmatch(file)
    number = int(match[1]) if match else 0
    earlier = (os.path.join(folder, f"{lower}.json") for lower in range(min(number, 8)))
    if number and (file.startswith("event-") or any(map(os.path.exists, earlier))):
        return False
    return file == _event_files(folder)[0]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:
        return []


def _event_files(folder: str) -> list[str]:
    """Return the files of an event stream in order of their ids, which may have gaps."""
    found = [(int(match[1]), name) for name in _names(folder) if (match := _EVENT_FILE.fullmatch(name))]
    return [name for _, name in sorted(found)] or [""]


def _of_folder(folder: str, keep_text: bool) -> Iterator[RecordedSession | str | ImportFormatError]:
    odd: Counter[str] = Counter()
    events: list[Event] = []
    for name in _event_files(folder):
        try:
            data = document(os.path.join(folder, name))
        except ImportFormatError as bad:
            odd["event file that cannot be read"] += 1
            if not events:
                yield bad
            continue
        events += [event_of(data, keep_text)] if isinstance(data, dict) else []
    owner = os.path.dirname(os.path.abspath(folder)) if os.path.basename(folder) == "events" else folder
    session = session_of(stem(owner), PLUGIN.name, events, _state_metrics(owner, odd), odd)
    yield session or _NO_CALL


def _state_metrics(folder: str, odd: Counter[str]) -> Metrics:
    """Read what the V1 SDK keeps beside the events."""
    metrics = Metrics()
    if "base_state.json" in _names(folder):
        try:
            state = document(os.path.join(folder, "base_state.json"))
        except ImportFormatError:
            odd["base_state.json cannot be read"] += 1
            return metrics
        metrics.model = words(sub(state, "agent", "llm").get("model"))
        for usage in sub(state, "stats", "usage_to_metrics").values():
            metrics.add(usage if isinstance(usage, dict) else {}, odd)
    return metrics


# ---- logs of single calls


def _call_files(folder: str, file: str) -> list[str]:
    """Return the logs of calls of the same model, in order of time."""
    match = _CALL_FILE.fullmatch(file)
    group = match[1] if match else ""
    found = []
    for name in _names(folder):
        other = _CALL_FILE.fullmatch(name)
        if other and other[1] == group:
            found.append((float(other[2]), name))
    return [name for _, name in sorted(found)] or [""]


def _of_calls(folder: str, file: str, keep_text: bool) -> Iterator[RecordedSession | str | ImportFormatError]:
    """Yield a session for each conversation: it ends where the messages do not grow."""
    match = _CALL_FILE.fullmatch(file)
    log: _CallLog | None = None
    count, lost = 0, 0
    for name in _call_files(folder, file):
        try:
            data = document(os.path.join(folder, name))
        except ImportFormatError as bad:
            yield bad
            continue
        if not isinstance(data, dict) or not sub(data, "response"):
            lost += 1
            continue
        messages = objects(data.get("messages"))
        if log is None or len(messages) <= log.first:
            if log is not None:
                yield log.draft.built() or _NO_CALL
            count += 1
            log = _CallLog(f"{words(match[1] if match else '', 'calls')} {count}", len(messages), keep_text)
        log.add(data, messages)
    if log is not None:
        log.draft.odd["log without a response"] += lost
        yield log.draft.built() or _NO_CALL


class _CallLog:
    """A conversation: what lies between two calls is told by the messages that joined."""

    def __init__(self, name: str, first: int, keep_text: bool) -> None:
        self.draft, self.first, self.keep_text = Draft(name, PLUGIN.name), first, keep_text
        self.count, self.end_s, self.asked = 0, None, ["tool"]  # type: int, float | None, list[str]
        self.seen: set[str] = set()
        self.context = Context(self.draft.odd)

    def add(self, data: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        response = sub(data, "response")
        key = words(response.get("id"))
        if key and key in self.seen:
            self.draft.odd["repeated call"] += 1
            return
        self.seen.add(key)
        start_s, length_s, timing = self._span(data)
        new = messages[self.count :] if self.keep_text else []
        self._wait(start_s, messages, text_in([m for m in new if words(m.get("role")) == "tool"]))
        self.context.add(sum(map(chars, messages[self.count :])))
        written = [sub(choice, "message") for choice in objects(response.get("choices"))]
        counts = self.context.settle(usage_of(sub(response, "usage")), sum(map(chars, written)))
        model = words(response.get("model"), "unknown")
        said = text_in([m for m in new if words(m.get("role")) == "user"])
        texts = said, text_in(written if self.keep_text else None)
        self.draft.lanes[0].events.append(made_call((start_s, length_s), model, counts, timing, texts))
        calls = [sub(call, "function") for message in written for call in objects(message.get("tool_calls"))]
        self.asked = [words(call.get("name"), "tool") for call in calls]
        self.count, self.end_s = len(messages) + 1, start_s + length_s

    def _span(self, data: dict[str, Any]) -> tuple[float, float, Timing]:
        end_s, latency = instant(data.get("timestamp")), seconds(data.get("latency_sec"))
        before_s = self.end_s if self.end_s is not None else 0.0
        if end_s is None or latency is None or latency <= 0:
            self.draft.odd["call without a time"] += 1
            return (before_s if end_s is None else end_s), 0.0, "absent"
        if latency > 1e3 or (self.end_s and latency > end_s - self.end_s + 1 >= latency / 1e3):
            self.draft.odd["latency in milliseconds"] += 1
            latency /= 1e3
        return end_s - latency, latency, "measured"

    def _wait(self, start_s: float, messages: list[dict[str, Any]], result: str) -> None:
        if self.end_s is None:
            return
        joined = {words(message.get("role")) for message in messages[self.count :]}
        human = "user" in joined and not self.asked  # results come as of the user where tools are emulated
        kind: WaitKind = "human" if human else "tool"
        name = "human" if human else self.asked[0] if len(self.asked) == 1 else "tools"
        length_s = self.draft.span(self.end_s, start_s, "wait")
        self.draft.lanes[0].events.append(
            RecordedWait(start_s - length_s, length_s, kind, name, timing="inferred", result_text=result)
        )
