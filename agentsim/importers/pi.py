"""Sessions of the pi coding agent: JSON lines, one message each, with measured model calls.

An assistant row holds when its request began (`message.timestamp`, ms) and is stamped when the answer was
written; tools ran one after another, and a tool's time is that from the row before to its result.
`usage.input` is without what was cached.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from agentsim.importers._estimate import text_tokens
from agentsim.importers._rows import (
    Lane,
    Row,
    ToolUse,
    compaction_start_s,
    key_of,
    mapping,
    name_of,
    rows_of,
    session_of,
    tool_waits,
    waited_for_human,
)
from agentsim.importers._texts import text_in, together, written
from agentsim.importers._values import Odd, counted, time_of
from agentsim.importers.base import objects
from agentsim.recorded import RecordedCall, RecordedCompaction, RecordedSession, RecordedWait, Timing

_HEADER = re.compile(rb'\{\s*"type"\s*:\s*"session"\s*,')
_COPY_S = 1.0


class Pi:
    """The importer of pi sessions."""

    name = "pi"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by its first row."""
        first = head.lstrip().partition(b"\n")[0]
        return bool(_HEADER.match(first)) and b'"cwd"' in first and b'"id"' in first

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield the one session of a file."""
        yield _session(path, keep_text=False)

    def sessions_with_text(self, path: str) -> Iterator[RecordedSession]:
        """Yield it with what was said."""
        yield _session(path, keep_text=True)


PLUGIN = Pi()


def _session(path: str, keep_text: bool) -> RecordedSession:
    session = _Session(path, keep_text)
    for row in rows_of(path, session.odd, b'{"type"'):
        session.take(row)
    return session.read()


class _Session:
    """Reads rows in file order. `free_s` is when the agent last finished something."""

    def __init__(self, path: str, keep_text: bool) -> None:
        self.path, self.odd, self.lane = path, Odd(), Lane("main")
        self.keep_text, self.said = keep_text, ""
        self.name = os.path.basename(path).partition(".")[0]
        self.header_s: float | None = None
        self.free_s: float | None = None
        self.uses: dict[str, ToolUse] = {}
        self.seen: set[int] = set()
        self.compacting = False

    def read(self) -> RecordedSession:
        self._close_tools()
        self.seen.clear()  # what is not needed any more makes room
        return session_of(self.name, PLUGIN.name, [self.lane], self.odd, f"{self.path}:1")

    def take(self, row: Row) -> None:
        kind = row.get("type")
        if kind == "session":
            self.name = name_of(row.get("id"), self.name)
            self.header_s = time_of(row.get("timestamp"), self.odd)
        elif kind in ("message", "compaction", "branch_summary") and not self._again(row):
            written_s = time_of(row.get("timestamp"), self.odd)
            if kind == "message":
                self._message(mapping(row.get("message")), written_s)
            elif kind == "compaction":
                self._compaction(row, written_s)

    def _again(self, row: Row) -> bool:
        """Tell whether a row was read before: one of this identifier or, in older logs, of this content."""
        key = key_of(row.get("id"))
        if key is None:
            key = repr((row.get("timestamp"), row.get("message")))
        again = hash(key) in self.seen
        if again:
            self.odd["row written again"] += 1
        self.seen.add(hash(key))
        return again

    def _message(self, message: Row, written_s: float | None) -> None:
        stamp_s = time_of(message.get("timestamp"), self.odd)
        role = message.get("role")
        if role == "assistant":
            self._answer(message, stamp_s, written_s)
        elif role == "toolResult":
            self._result(message, written_s if written_s is not None else stamp_s)
        elif role == "user":
            self._prompt(stamp_s if stamp_s is not None else written_s)
            self.said = together([self.said, self._kept(message.get("content"))])

    def _kept(self, content: Any) -> str:
        return text_in(content) if self.keep_text else ""

    def _prompt(self, at_s: float | None) -> None:
        self._close_tools()
        if at_s is None:
            return
        self.lane.events += waited_for_human(self.free_s, at_s)
        self._advance(at_s)

    def _advance(self, at_s: float) -> None:
        self.free_s = at_s if self.free_s is None else max(self.free_s, at_s)

    def _answer(self, message: Row, start_s: float | None, end_s: float | None) -> None:
        self._close_tools()
        timing: Timing = "measured"
        if start_s is None or end_s is None or end_s < start_s:
            self.odd["answer without a time" if start_s is None or end_s is None else "clock set back"] += 1
            start_s = next((x for x in (start_s, self.free_s, end_s) if x is not None), 0.0)
            end_s, timing = start_s, "absent"
        if self.header_s is not None and end_s < self.header_s - _COPY_S:
            self.odd["answer from before the session, copied from the one it branched from"] += 1
        call = self._call(message, start_s, end_s - start_s, timing)
        if call is not None:
            self.lane.events.append(call)
        self._advance(end_s)
        for block in objects(message.get("content")):
            key = key_of(block.get("id"))
            if block.get("type") == "toolCall" and key:
                self.uses[key] = ToolUse(name_of(block.get("name")), end_s, end_s, may_be_long=True)
                self.uses[key].text = written(block.get("arguments")) if self.keep_text else ""

    def _call(self, message: Row, start_s: float, length_s: float, timing: Timing) -> RecordedCall | None:
        """Return the call; None for one that was broken off before its tokens were known."""
        usage = mapping(message.get("usage"))
        cached = counted(usage.get("cacheRead"), self.odd)
        fresh = counted(usage.get("input"), self.odd) + counted(usage.get("cacheWrite"), self.odd)
        output = counted(usage.get("output"), self.odd)
        if not fresh + cached + output:
            self.odd["answer broken off before its tokens were known"] += 1
            wait = RecordedWait(start_s, length_s, "harness", "answer broken off", timing=timing)
            self.lane.events.append(wait)
            return None
        said, self.said = self.said, ""
        return RecordedCall(
            start_s,
            length_s,
            name_of(message.get("model")),
            fresh + cached,
            cached,
            output,
            timing=timing,
            said=said,
            text=self._kept(message.get("content")),
        )

    def _result(self, message: Row, end_s: float | None) -> None:
        use = self.uses.get(str(message.get("toolCallId")))
        if use is None or end_s is None or use.end_s is not None:
            what = "tool result without its call" if use is None else "tool result without a time or repeated"
            self.odd[what] += 1
            return
        begin_s = self.free_s if self.free_s is not None else end_s
        use.result_text = self._kept(message.get("content"))
        use.start_s, use.end_s = max(use.start_s, min(begin_s, end_s)), end_s
        self._advance(end_s)

    def _close_tools(self) -> None:
        self.lane.events += tool_waits(self.uses.values(), self.odd)
        self.uses.clear()

    def _compaction(self, row: Row, at_s: float | None) -> None:
        """Note a compaction; the call that wrote the summary is not in the log, its time is what passed."""
        self._close_tools()
        end_s = at_s if at_s is not None else self.free_s
        if end_s is None:
            return
        start_s = compaction_start_s(self.free_s, end_s)
        summary = row.get("summary")
        self.odd["tokens of a summary estimated from text"] += 1
        tokens = text_tokens(len(summary) if isinstance(summary, str) else 0)
        self.lane.events += waited_for_human(self.free_s, start_s)
        self.lane.events.append(RecordedCompaction(start_s, end_s - start_s, tokens))
        self._advance(end_s)
