"""Mooncake serving traces as JSON lines: when requests came, their lengths, hashes of 512-token blocks.

A row without `session_id` is a session of one call; rows with one (Mooncake+) are turns, `delay` ms after
the answer before. Cached are the leading blocks that any row above has used: a cache shared by all.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from agentsim.importers._blocks import SeenBlocks
from agentsim.importers._estimate import text_tokens
from agentsim.importers._json_values import DAMAGED, text
from agentsim.importers._plain_rows import Bulk, bulk_of, bulk_values
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
    rows_in,
)
from agentsim.importers._texts import text_in
from agentsim.importers._values import FURTHEST_S, seconds
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession

BLOCK_TOKENS = 512

AGENTIC = (
    b'"wait_for"',
    b'"tool_wait_ms"',
    b'"branches"',
    b'"prefix_reset"',
    b'"dependencies"',
    b'"play_id"',
)
_OTHERS = (b'"requests"', b'"chat_id"', *AGENTIC)
_COLUMNS, _CACHED = 6, 2
_WAITING_CHARS = 256 * 2**10
_ESTIMATED = "tokens estimated from text"


@dataclass(frozen=True)
class Mooncake:
    """The importer of this format."""

    name: str = "mooncake"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the lengths of a row, without the links between rows of agentic traces."""
        lengths = b'"output_length"' in head and (b'"input_length"' in head or b'"text_input"' in head)
        begins = head.lstrip()[:1] in (b"{", b"[")
        return begins and lengths and not any(mark in head for mark in _OTHERS)

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield rows without a session as they come, then the sessions in order of first appearance."""
        return _sessions(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield them with the prompts, where they are given as text."""
        return _sessions(path, keep_text=True)


PLUGIN = Mooncake()


def _sessions(path: str, keep_text: bool) -> Iterator[RecordedSession]:
    odd: Counter[str] = Counter()
    read = _Reader(keep_text)
    for line, value in bulk_values(path, odd):
        if isinstance(value, tuple):
            yield from read.plain(value if isinstance(value, Bulk) else bulk_of(value), line, odd)
            continue
        for row in rows_in(value, odd, DAMAGED):
            session = read.row(row, line, odd)
            if session is not None:
                yield session
                odd.clear()
    if not read.sessions and not read.yielded:
        raise refuse_empty(path, "input_length and output_length")
    read.look_up()
    for name, rows in read.sessions.items():
        yield read.session(name, rows, odd)
        odd.clear()


class _Reader:
    """Reads rows one after another; of sessions it keeps six numbers a row."""

    def __init__(self, keep_text: bool) -> None:
        self.said: dict[str, list[str]] | None = {} if keep_text else None
        self.seen = SeenBlocks()
        self.sessions: dict[str, array[float]] = {}
        self.noted: dict[str, Counter[str]] = {}
        self.models: dict[str, int] = {"unknown": 0}
        self.yielded = False
        self.waiting: list[tuple[array[float], int, str]] = []
        self.chars = 0

    def plain(self, rows: Bulk, line: int, odd: Counter[str]) -> Iterator[RecordedSession]:
        """Yield the sessions that rows without anything but lengths and hashes are."""
        self.yielded = True
        self.look_up()
        columns = rows.prompts, rows.outputs, self._leading(rows.hashes), rows.hashes
        for number, (prompt, output, cached, hashes) in enumerate(zip(*columns, strict=True), line):
            blocks = hashes.count(",") + 1
            if (blocks - 1) * BLOCK_TOKENS < prompt <= blocks * BLOCK_TOKENS:
                cached = cached * BLOCK_TOKENS if cached < blocks else prompt
            else:
                cached = cached_tokens(cached, blocks, prompt, BLOCK_TOKENS)
                odd[MISFIT] += 1
            call = RecordedCall(0.0, 0.0, "unknown", prompt, cached, output, 0, None, "absent")
            lanes = (RecordedLane("main", None, (call,)),)
            yield RecordedSession(f"row {number}", "mooncake", lanes, 0, dict(odd) if odd else {})
            if odd:
                odd.clear()

    def _leading(self, hashes: list[str]) -> list[int]:
        return self.seen.leading_each(hashes) if len(hashes) > 1 else [self.seen.leading(hashes[0])]

    def row(self, row: dict[str, Any], line: int, odd: Counter[str]) -> RecordedSession | None:
        """Return the session that a row is, or keep it for the session that it belongs to."""
        name = text(row.get("session_id"))
        noted = self._noted(name) if name else odd
        lengths = lengths_of(row) or _estimated(row, noted)
        if lengths is None:
            odd[UNUSABLE] += 1
            return None
        prompt, output = lengths
        if not name:
            self.yielded = True
            cached = self._cached(hashes_of(row), prompt, noted)
            said = "" if self.said is None else text_in(row.get("text_input"))
            call = RecordedCall(0.0, 0.0, _model(row), prompt, cached, output, timing="absent", said=said)
            return _single(text(row.get("request_id")) or f"row {line}", call, odd)
        start_s, delay_s = (
            seconds(row.get("timestamp"), 1e3, FURTHEST_S),
            seconds(row.get("delay", row.get("delay_ms")), 1e3),
        )
        model = self.models.setdefault(_model(row), len(self.models))
        kept = (
            nan if start_s is None else start_s,
            prompt,
            0,
            output,
            nan if delay_s is None else delay_s,
            model,
        )
        rows = self._rows(name)
        rows.extend(kept)
        self._look_up_later(rows, hashes_of(row), prompt, noted)
        if self.said is not None:
            self.said.setdefault(name, []).append(text_in(row.get("text_input")))
        return None

    def _rows(self, name: str) -> array[float]:
        if name not in self.sessions:
            self.sessions[name] = array("d")
        return self.sessions[name]

    def _noted(self, name: str) -> Counter[str]:
        if name not in self.noted:
            self.noted[name] = Counter()
        return self.noted[name]

    def _cached(self, hashes: str, prompt: int, odd: Counter[str]) -> int:
        if not hashes:
            return 0
        self.look_up()
        leading, blocks = self.seen.leading(hashes), blocks_in(hashes)
        if not fits(blocks, prompt, BLOCK_TOKENS):
            odd[MISFIT] += 1
        return cached_tokens(leading, blocks, prompt, BLOCK_TOKENS) if leading else 0

    def _look_up_later(self, rows: array[float], hashes: str, prompt: int, odd: Counter[str]) -> None:
        """Look up the blocks of the row that stands last in `rows` together with those of the next rows."""
        if not hashes:
            return
        if not fits(blocks_in(hashes), prompt, BLOCK_TOKENS):
            odd[MISFIT] += 1
        self.waiting.append((rows, len(rows) - _COLUMNS + _CACHED, hashes))
        self.chars += len(hashes)
        if self.chars > _WAITING_CHARS:
            self.look_up()

    def look_up(self) -> None:
        """Look up the blocks of the rows that wait for it."""
        leading = self.seen.leading_each([hashes for *_, hashes in self.waiting]) if self.waiting else []
        for (rows, place, hashes), known in zip(self.waiting, leading, strict=True):
            if known:
                prompt = int(rows[place - 1])
                rows[place] = cached_tokens(known, blocks_in(hashes), prompt, BLOCK_TOKENS)
        self.waiting, self.chars = [], 0

    def session(self, name: str, rows: array[float], odd: Counter[str]) -> RecordedSession:
        """Return the session that kept rows are, its clock started at the first."""
        odd = odd + self.noted.get(name, Counter())
        names = list(self.models)
        requests = [_request(kept, names) for kept in zip(*[iter(rows)] * _COLUMNS, strict=True)]
        for request, said in zip(requests, (self.said or {}).get(name, ()), strict=False):
            request.said = said
        _order(requests, odd)
        lane = RecordedLane("main", None, lane_events(requests, odd))
        return RecordedSession(name, PLUGIN.name, (lane,), 0, dict(sorted((+odd).items())))


def _single(name: str, call: RecordedCall, odd: Counter[str]) -> RecordedSession:
    lanes = (RecordedLane("main", None, (call,)),)
    return RecordedSession(name, "mooncake", lanes, 0, dict(odd) if odd else {})


def _model(row: Mapping[str, Any]) -> str:
    return text(row.get("model")) or "unknown"


def _estimated(row: Mapping[str, Any], odd: Counter[str]) -> tuple[int, int] | None:
    """Return lengths where the prompt is given as text, four characters a token."""
    given = row.get("text_input")
    lengths = lengths_of({**row, "input_length": 0})
    if not isinstance(given, str) or lengths is None:
        return None
    odd[_ESTIMATED] += 1
    return text_tokens(len(given)), lengths[1]


def _request(kept: tuple[float, ...], models: list[str]) -> Request:
    start_s, prompt, cached, output, delay_s, model = kept
    lengths = int(prompt), int(cached), int(output)
    return Request(start_s, *lengths, models[int(model)], delay_s=None if isnan(delay_s) else delay_s)


def _order(requests: list[Request], odd: Counter[str]) -> None:
    """Sort the turns of a session and set those without a timestamp after the turn before them."""
    latest_s = 0.0
    for request in requests:
        if isnan(request.start_s):
            odd["rows without a timestamp"] += 1
            request.start_s = latest_s + (request.delay_s or 0.0)
        if request.start_s < latest_s:
            odd["rows out of order"] += 1
        latest_s = max(latest_s, request.start_s)
    requests.sort(key=lambda request: request.start_s)
    origin_s = requests[0].start_s
    for request in requests:
        request.start_s -= origin_s
