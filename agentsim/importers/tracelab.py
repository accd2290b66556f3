"""TraceLab `round_trace.jsonl`: one model call a line, with the times of what it read and wrote.

The call runs from the latest input before its first output to its last output. A tool's wall time is kept;
where the runner's own duration is over a second shorter, the rest is what came before it, approval or a
queue, which the log does not tell apart.

Why so: lines of a session may be mixed with those of others; a bounded number of sessions is kept open,
and one that comes back after that is a session of its own, counted. Sub-agents have no link to a parent.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agentsim.errors import ImportFormatError
from agentsim.importers._draft import Draft, made_call, told
from agentsim.importers._trajectory import (
    Usage,
    documents,
    top_keys,
    words,
)
from agentsim.importers._values import LONGEST_S, first_tokens, instant, number, tokens
from agentsim.importers.base import objects
from agentsim.recorded import RecordedSession, RecordedWait, Timing, WaitKind

MAX_OPEN = 64
APPROVAL_S = 1.0
"""A tool whose own duration is shorter than its wall time by more was waiting for something else."""

_SAID = "user_message"
_OUTPUTS = {"reasoning", "text", "tool_call"}
_TIMED = {_SAID, "tool_result", *_OUTPUTS}
_ASKS_A_HUMAN = {"AskUserQuestion", "ExitPlanMode", "request_user_input"}


class TraceLab:
    """The importer of TraceLab rounds."""

    name = "tracelab"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the keys of the first round."""
        if b'"round_index"' not in head:
            return False
        keys = set(top_keys(head))
        return {b"session_id", b"round_index"} <= keys and bool(keys & {b"prefix_tokens", b"timing_events"})

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions in the order in which they end."""
        yield from told(_of_file(path), path)


PLUGIN = TraceLab()


@dataclass(slots=True)
class _Tool:
    name: str
    start_s: float
    end_s: float | None
    own_s: float | None


@dataclass(slots=True)
class _Round:
    """A model call as read, before its neighbours are known; times are None where the log has none."""

    index: int
    model: str
    usage: Usage
    read_s: float | None
    said_s: float | None
    first_s: float | None
    last_s: float | None
    tools: list[_Tool] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    rounds: dict[str, _Round] = field(default_factory=dict)
    odd: Counter[str] = field(default_factory=Counter)


def _of_file(path: str) -> Iterator[RecordedSession | str | ImportFormatError]:
    sessions: OrderedDict[str, _Open] = OrderedDict()
    closed: set[int] = set()
    for row in _rows(path):
        if not isinstance(row, dict) or "session_id" not in row:
            yield row if isinstance(row, ImportFormatError) else "line that is no round"
            continue
        name = words(row.get("session_id"), "unnamed")
        if name not in sessions:
            sessions[name] = _Open()
            sessions[name].odd["lines apart from the rest of the session"] += hash(name) in closed
        sessions.move_to_end(name)
        _add(sessions[name], row)
        if len(sessions) > MAX_OPEN:
            name, first = sessions.popitem(last=False)
            closed.add(hash(name))
            yield _session(name, first) or "session without a model call"
    for name, rest in sessions.items():
        yield _session(name, rest) or "session without a model call"


def _rows(path: str) -> Iterator[Any]:
    for value in documents(path):
        yield from objects(value) if isinstance(value, list) else [value]


def _add(session: _Open, row: dict[str, Any]) -> None:
    """Add a round; a later line of the same round replaces the earlier one."""
    key = words(row.get("round_id")) or words(row.get("trace_key")) or f"line {len(session.rounds)}"
    session.odd["repeated round"] += key in session.rounds
    session.rounds[key] = _round(row, len(session.rounds), session.odd)


def _round(row: dict[str, Any], place: int, odd: Counter[str]) -> _Round:
    read, written = _times(objects(row.get("timing_events")))
    first_s = min(written, default=None)
    read = [pair for pair in read if first_s is None or pair[0] <= first_s] or read
    said = min((at_s for at_s, kind in read if kind == _SAID), default=None)
    return _Round(
        place if (index := tokens(row.get("round_index"))) is None else index,
        words(row.get("model"), "unknown"),
        _usage(row, odd),
        max(read, default=(None, ""))[0],
        said if all(kind == _SAID for _, kind in read) else None,
        first_s,
        max(written, default=None),
        [tool for item in objects(row.get("tools")) if (tool := _tool(item, odd)) is not None],
    )


def _times(events: list[dict[str, Any]]) -> tuple[list[tuple[float, str]], list[float]]:
    """Return the inputs, as (time, kind), and the times of the outputs."""
    read: list[tuple[float, str]] = []
    written: list[float] = []
    for event in events:
        kind = event.get("event_type")
        if isinstance(kind, str) and kind in _TIMED and (at_s := instant(event.get("timestamp"))) is not None:
            if kind in _OUTPUTS:
                written.append(at_s)
            else:
                read.append((at_s, kind))
    return read, written


def _usage(row: dict[str, Any], odd: Counter[str]) -> Usage:
    prefix, added = first_tokens(row, "prefix_tokens"), first_tokens(row, "newly_append_tokens")
    total = first_tokens(row, "input_tokens_total")
    if total is None and added is not None:
        total = (prefix or 0) + added
    output = first_tokens(row, "output_tokens")
    odd["no token usage"] += total is None or output is None
    thinking = first_tokens(row, "reasoning_output_tokens") or 0
    odd["more cached tokens than prompt"] += (prefix or 0) > (total or 0)
    return Usage(total or 0, output or 0, min(prefix or 0, total or 0), min(thinking, output or 0))


def _tool(item: dict[str, Any], odd: Counter[str]) -> _Tool | None:
    start_s, end_s = instant(item.get("emitted_at")), instant(item.get("result_at"))
    wall_ms, own_ms = number(item.get("tool_wall_latency_ms")), number(item.get("tool_internal_latency_ms"))
    if start_s is None:
        odd["tool without a time"] += 1
        return None
    if end_s is None and wall_ms is not None:
        end_s = start_s + wall_ms / 1e3
    own_s = own_ms / 1e3 if own_ms is not None and 0 < own_ms <= LONGEST_S * 1e3 else None
    return _Tool(words(item.get("tool_name"), "tool"), start_s, end_s, own_s)


def _session(name: str, session: _Open) -> RecordedSession | None:
    draft = Draft(name, PLUGIN.name, session.odd)
    rounds = list(session.rounds.values())
    draft.odd["out of order"] += sum(b.index < a.index for a, b in pairwise(rounds))
    now_s: float | None = None
    for round_ in sorted(rounds, key=lambda r: r.index):
        now_s = _take(draft, round_, now_s)
    return draft.built()


def _take(draft: Draft, round_: _Round, now_s: float | None) -> float | None:
    """Add a round and what the agent waited for before; return when the latest of it ended."""
    events = draft.lanes[0].events
    if now_s is not None and round_.said_s is not None and round_.said_s > now_s:
        events.append(RecordedWait(now_s, round_.said_s - now_s, "human", "human"))
    start_s, length_s, timing = _span(draft, round_, now_s)
    usage = round_.usage
    counts = (usage.prompt or 0, usage.cached or 0, usage.output or 0, usage.thinking)
    events.append(made_call((start_s, length_s), round_.model, counts, timing))
    end_s = start_s + length_s
    for tool in round_.tools:
        if tool.end_s is None:
            draft.odd["tool without a result"] += 1
        else:
            events += _waits(draft, tool, tool.end_s)
            end_s = max(end_s, events[-1].end_s)
    return max(end_s, now_s or 0.0) or None


def _span(draft: Draft, round_: _Round, now_s: float | None) -> tuple[float, float, Timing]:
    begun_s = round_.read_s if round_.read_s is not None else now_s
    if round_.last_s is None or begun_s is None:
        draft.odd["call without a time"] += 1
        known = (t for t in (round_.last_s, begun_s, now_s) if t is not None)
        return next(known, 0.0), 0.0, "absent"
    return draft.inferred(begun_s, round_.last_s, "call")


def _waits(draft: Draft, tool: _Tool, end_s: float) -> list[RecordedWait]:
    wall_s = draft.span(tool.start_s, end_s, "tool")
    kind: WaitKind = "human" if tool.name in _ASKS_A_HUMAN else "tool"
    if kind == "tool" and tool.own_s is not None and wall_s - tool.own_s > APPROVAL_S:
        draft.odd["tool that first waited for approval or a queue"] += 1
        held_s = wall_s - tool.own_s
        before = RecordedWait(tool.start_s, held_s, "harness", "approval or queue", timing="inferred")
        return [before, RecordedWait(tool.start_s + held_s, tool.own_s, "tool", tool.name)]
    return [RecordedWait(tool.start_s, wall_s, kind, tool.name)]
