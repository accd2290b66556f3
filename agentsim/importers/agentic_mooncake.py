"""Agentic Mooncake traces (Dynamo, AISimulate), versions 1 and 2: requests that wait for one another.

Version 1: a row's `session_id` is one agent; rows linked by `wait_for` and `branches` are one session.
Version 2: a header, then rows whose `play_id` is the session and whose `dependencies` link them.

Why so: version 1 tells how long before a request the last one that it waited for ended; where the ends of
all others are known to be earlier, that gives this one's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._blocks import SeenBlocks
from agentsim.importers._json_values import DAMAGED, plain_text, text
from agentsim.importers._serving import (
    MISFIT,
    UNUSABLE,
    Request,
    blocks_in,
    cached_tokens,
    fits,
    hashes_of,
    lane_events,
    lengths_of,
    refuse_empty,
    rows_of,
)
from agentsim.importers._values import FURTHEST_S, instant_ns, seconds, tokens
from agentsim.importers.mooncake import AGENTIC
from agentsim.recorded import RecordedLane, RecordedSession

_CHARS = 256 * 2**10
_TIMES = ("timestamp", "created_time", "not_before_ms")
BLOCKS = (512, 64, 16, 128, 256, 32, 1024, 2, 4, 8)
"""Sizes of a block that version 1 may have, which does not say it: the one that fits most rows."""


@dataclass(frozen=True)
class AgenticMooncake:
    """The importer of this format."""

    name: str = "agentic_mooncake"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by a row's lengths beside its links to other rows."""
        lengths = b'"output_length"' in head or b'"output_tokens"' in head
        linked = b'"request_id"' in head and any(mark in head for mark in AGENTIC)
        return head.lstrip()[:1] in (b"{", b"[") and lengths and linked and b'"hash_ids"' in head

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the sessions in order of first appearance; rows may stand mixed, so all are read first."""
        odd: Counter[str] = Counter()
        trace = _Trace(odd)
        for _, row in rows_of(path, odd, DAMAGED):
            trace.add(row)
        if not trace.rows:
            raise refuse_empty(path, "request_id, input_length and output_length")
        for rows in trace.sessions():
            name = rows[0].play or rows[0].agent or rows[0].id
            yield _Session(name, rows, trace.block(), trace.odd_of(rows)).recorded()


PLUGIN = AgenticMooncake()


@dataclass(slots=True)
class _Row(Request):
    """A row without its hashes: of `blocks`, `leading` had been seen before."""

    id: str = ""
    play: str = ""
    agent: str = ""
    timed: bool = False
    waits_for: tuple[str | _Row, ...] = ()
    branches: tuple[str, ...] = ()
    blocks: int = 0
    leading: int = 0
    above: tuple[_Row, ...] = ()
    top: _Row | None = None


class _Trace:
    """Collects rows, and finds out which of them belong together."""

    def __init__(self, odd: Counter[str]) -> None:
        self.odd, self.rows = odd, dict[str, _Row]()
        self.seen, self.plays = SeenBlocks(), dict[str, SeenBlocks]()
        self.waiting: list[tuple[_Row, str]] = []
        self.chars = 0
        self.block_size = 0
        self.fitting: Counter[int] = Counter()

    def add(self, row: dict[str, Any]) -> None:
        """Take a row, or the header, which has no lengths but may say how many tokens a block has."""
        lengths = lengths_of(row)
        if lengths is None:
            size = tokens(row.get("block_size"))
            self.block_size = size or self.block_size
            self.odd[UNUSABLE] += size is None
            return
        read = _row(row, lengths, f"row {len(self.rows) + 1}")
        if read.id in self.rows:
            self.odd["requests written twice"] += 1
            return
        hashes = hashes_of(row)
        read.blocks = blocks_in(hashes)
        if hashes:
            self._look_up_later(read, hashes)
            self._note_fitting(read.blocks, lengths[0])
        read.waits_for = tuple([self.rows.get(name, name) for name in _waited(row)])
        self.rows[read.id] = read

    def _look_up_later(self, row: _Row, hashes: str) -> None:
        """Look up the blocks of a row with the next rows', or at once where a play has a cache of its own."""
        if row.play:
            if row.play not in self.plays:
                self.plays[row.play] = SeenBlocks()
            row.leading = self.plays[row.play].leading(hashes)
            return
        self.waiting.append((row, hashes))
        self.chars += len(hashes)
        if self.chars > _CHARS:
            self._look_up()

    def _look_up(self) -> None:
        leading = self.seen.leading_each([hashes for _, hashes in self.waiting]) if self.waiting else []
        for (row, _), known in zip(self.waiting, leading, strict=True):
            row.leading = known
        self.waiting, self.chars = [], 0

    def _note_fitting(self, blocks: int, prompt: int) -> None:
        """Note the sizes of a block that fit a row, unless the header has said it."""
        for size in () if self.block_size else BLOCKS:
            if (blocks - 1) * size < prompt <= blocks * size:
                self.fitting[size] += 1

    def block(self) -> int:
        """Return the tokens of a block: as the header says, else what fits most rows."""
        best = max(BLOCKS, key=lambda size: (self.fitting[size], -BLOCKS.index(size)))
        return self.block_size or best

    def odd_of(self, rows: list[_Row]) -> Counter[str]:
        """Return what was odd about rows, for the first session with what was odd about the file."""
        noted, self.odd = self.odd, Counter()
        size = self.block()
        noted[MISFIT] += sum(r.blocks > 0 and not fits(r.blocks, r.prompt, size) for r in rows)
        return noted

    def sessions(self) -> Iterator[list[_Row]]:
        """Yield rows by session: by play, or those that links or an agent's name hold together."""
        self._look_up()
        self._link()
        sessions: dict[tuple[str, bool], list[_Row]] = {}
        for row in self.rows.values():
            key = row.play or _top(row).id, bool(row.play)
            if key not in sessions:
                sessions[key] = []
            sessions[key].append(row)
        self.rows = {}
        for key in list(sessions):
            yield sessions.pop(key)

    def _found(self, name: str | _Row) -> _Row | None:
        return self.rows.get(name) if isinstance(name, str) else name

    def _link(self) -> None:
        """Put rows in the place of the names they wait for, and together with all that they are linked to."""
        agents: dict[str, _Row] = {}
        for row in self.rows.values():
            row.above = tuple([found for name in row.waits_for if (found := self._found(name)) is not None])
            self.odd["waits for requests that are missing"] += len(row.waits_for) - len(row.above)
            row.waits_for = ()
            if row.play:
                continue
            _join(row, agents.setdefault(row.agent, row) if row.agent else row)
            for other in (*row.above, *(self.rows[b] for b in row.branches if b in self.rows)):
                _join(row, other)


def _top(row: _Row) -> _Row:
    """Return the row at the top of those that belong together."""
    while row.top is not None:
        row.top = row.top.top or row.top
        row = row.top
    return row


def _join(one: _Row, other: _Row) -> None:
    above, below = _top(one), _top(other)
    if above is not below:
        below.top = above


def _row(row: Mapping[str, Any], lengths: tuple[int, int], name: str) -> _Row:
    at_s = _time_of(row)
    links = _dicts(row.get("dependencies"))
    api_s = seconds(row.get("recorded_api_time_ms"), 1e3)
    return _Row(
        at_s or 0.0,
        lengths[0],
        0,
        lengths[1],
        text(row.get("model")) or "unknown",
        api_s or 0.0,
        "measured" if api_s else "absent",
        seconds(row.get("tool_wait_ms"), 1e3),
        _delay_s(row, links),
        _tools(row.get("tool_events")),
        id=plain_text(row.get("request_id")) or name,
        play=text(row.get("play_id")),
        agent=text(row.get("session_id")),
        timed=at_s is not None,
        branches=tuple(_names(row.get("branches"))),
    )


def _waited(row: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of what a row waits for, each once."""
    links = _dicts(row.get("dependencies"))
    return dict.fromkeys((*_names(row.get("wait_for")), *(plain_text(x.get("request_id")) for x in links)))


def _time_of(row: Mapping[str, Any]) -> float | None:
    for key in _TIMES:
        if key in row:
            return seconds(row[key], 1e3, FURTHEST_S)
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return [found for item in value if (found := plain_text(item))] if isinstance(value, list) else []


def _delay_s(row: Mapping[str, Any], links: list[dict[str, Any]]) -> float | None:
    """Return the wait after an answer: after a dispatch it is no wait, for the answer runs meanwhile."""
    given = [link.get("delay_ms") for link in links if link.get("trigger") != "dispatch"]
    known = [found for value in given if (found := seconds(value, 1e3)) is not None]
    return max(known) if known else seconds(row.get("delay", row.get("delay_ms")), 1e3)


def _tools(value: Any) -> tuple[tuple[str, float, float], ...]:
    """Return (name, start after the first tool's, length) of the tools before a request."""
    found = []
    for event in _dicts(value):
        start_ns = instant_ns(event.get("started_at_unix_ms"))
        length_s = seconds(event.get("duration_ms"), 1e3)
        if start_ns is not None and length_s is not None:
            found.append((text(event.get("tool_class")) or "tool", start_ns / 1e9, length_s))
    first_s = min((start_s for _, start_s, _ in found), default=0.0)
    return tuple((name, start_s - first_s, length_s) for name, start_s, length_s in found)


class _Session:
    """Lays the rows of one session on lanes: one an agent, the earliest one first."""

    def __init__(self, name: str, rows: list[_Row], block: int, odd: Counter[str]) -> None:
        self.name, self.block, self.odd = name, block, odd
        self.rows = _timed(rows, odd)
        self.agents: dict[str, str] = {}
        self.spawners = {name: row for row in reversed(rows) for name in row.branches}

    def recorded(self) -> RecordedSession:
        """Return the session, its clock started at the first request."""
        self._infer()
        origin_s = min(row.start_s for row in self.rows)
        lanes: dict[str, list[_Row]] = {}
        for row in sorted(self.rows, key=lambda row: row.start_s):
            lanes.setdefault(self._agent(row), []).append(row)
        names: dict[str, str] = {}
        recorded = []
        for agent, rows in lanes.items():
            parent = self._parent(rows[0], names) if names else None
            names[agent] = agent if names else "main"
            recorded.append(RecordedLane(names[agent], parent, self._events(rows, origin_s)))
        odd = dict(sorted((+self.odd).items()))
        return RecordedSession(self.name, PLUGIN.name, tuple(recorded), 0, odd)

    def _events(self, rows: list[_Row], origin_s: float) -> Any:
        requests = []
        for row in rows:
            known, prompt = row.leading, row.prompt
            cached = cached_tokens(known, row.blocks, prompt, self.block) if known else 0
            requests.append(row.at(row.start_s - origin_s, cached))
        return lane_events(requests, self.odd)

    def _infer(self) -> None:
        """Let an answer end where the wait of a request began that waited for it alone, or for it longest."""
        for row in sorted(self.rows, key=lambda row: len(row.above)):
            wait_s = row.wait_s
            open_ = [above for above in row.above if above.timing == "absent"]
            if len(open_) != 1 or wait_s is None or not (row.timed and open_[0].timed):
                continue
            last, end_s = open_[0], row.start_s - wait_s
            others_s = [above.end_s for above in row.above if above is not open_[0]]
            if end_s > last.start_s and all(other_s < end_s for other_s in others_s):
                last.length_s, last.timing = end_s - last.start_s, "inferred"

    def _agent(self, row: _Row) -> str:
        """Return the lane of a row: its agent, else that of the request it waited for, unless it branched."""
        walked: dict[str, None] = {row.id: None}
        while not row.agent and row.above and row.id not in row.above[0].branches:
            row = row.above[0]
            if row.id in self.agents or row.id in walked:
                break
            walked[row.id] = None
        found = self.agents.get(row.id) or (f"agent {row.agent}" if row.agent else f"request {row.id}")
        self.agents |= dict.fromkeys(walked, found)
        return found

    def _parent(self, first: _Row, names: Mapping[str, str]) -> str:
        """Return the lane that started another: of those that began before it, for others cannot have."""
        starters = [*first.above, *filter(None, [self.spawners.get(first.id)])]
        return next((names[agent] for agent in map(self._agent, starters) if agent in names), "main")


def _timed(rows: list[_Row], odd: Counter[str]) -> list[_Row]:
    """Return rows with a start each: those without a time start when what they wait for allows it."""
    after: dict[str, list[_Row]] = {}
    open_ = {row.id: 0 if row.timed else len(row.above) for row in rows}
    for row in rows:
        for above in () if row.timed else row.above:
            after.setdefault(above.id, []).append(row)
    ready = [row for row in rows if not open_[row.id]]
    for row in ready:  # grows while it is walked
        _start(row)
        for later in after.get(row.id, ()):
            open_[later.id] -= 1
            ready += [later] if not open_[later.id] else []
    odd["requests that wait for one another in a circle"] += len(rows) - len(ready)
    odd["rows without a timestamp"] += sum(not row.timed for row in rows)
    return rows


def _start(row: _Row) -> None:
    if not row.timed:
        ends_s = [above.end_s for above in row.above]
        row.start_s = max(ends_s, default=0.0) + (row.wait_s or 0.0)
