"""LLMServingSim workloads as JSON lines: chains of requests with the time that tools take after each.

A line is a session with `sub_requests`, or a single request. Only tools are timed. What was cached is
told by `prefix_reuse_toks`, by token ids (what two prompts begin with), or by `reuse_previous_kv`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentsim.importers._json_values import DAMAGED, text
from agentsim.importers._serving import TOOL, UNUSABLE, refuse_empty, rows_of
from agentsim.importers._values import seconds, tokens
from agentsim.recorded import RecordedCall, RecordedEvent, RecordedLane, RecordedSession, RecordedWait

_UNKNOWN_CACHE = "calls whose cached tokens are not told"


@dataclass(frozen=True)
class LLMServingSim:
    """The importer of this format."""

    name: str = "llmservingsim"

    def recognises(self, path: str, head: bytes) -> bool:  # noqa: ARG002  (content decides, not the name)
        """Tell it by the token counts of a request, beside its arrival or the requests of a session."""
        counts = b'"input_toks"' in head and b'"output_toks"' in head
        return head.lstrip()[:1] in (b"{", b"[") and counts

    def sessions(self, path: str) -> Iterator[RecordedSession]:
        """Yield one session a line, its clock started at the first request."""
        odd: Counter[str] = Counter()
        found = False
        for line, row in rows_of(path, odd, DAMAGED):
            session = _session(row, line, odd)
            if session is not None:
                found = True
                yield session
                odd.clear()
        if not found:
            raise refuse_empty(path, "input_toks and output_toks")


PLUGIN = LLMServingSim()


def _session(row: dict[str, Any], line: int, odd: Counter[str]) -> RecordedSession | None:
    inside = row.get("sub_requests", [row])
    chain = [item for item in inside if isinstance(item, dict)] if isinstance(inside, list) else []
    events = tuple(_events(chain, bool(row.get("reuse_previous_kv")), text(row.get("model")), odd))
    if not any(isinstance(event, RecordedCall) for event in events):
        odd[UNUSABLE] += 1
        return None
    name = text(row.get("session_id")) or text(row.get("request_id")) or f"row {line}"
    noted = dict(sorted((+odd).items()))
    return RecordedSession(name, PLUGIN.name, (RecordedLane("main", None, events),), 0, noted)


def _events(
    chain: list[dict[str, Any]], keeps: bool, model: str, odd: Counter[str]
) -> Iterator[RecordedEvent]:
    at_s, before, ids = 0.0, None, ()
    for index, item in enumerate(chain):
        prompt, output = tokens(item.get("input_toks")), tokens(item.get("output_toks"))
        if prompt is None or output is None:
            odd["requests without usable lengths left out"] += len(chain) > 1
            continue
        cached = _cached(item, before, ids, keeps)
        odd[_UNKNOWN_CACHE] += cached is None
        name = text(item.get("model")) or model or "unknown"
        before = RecordedCall(at_s, 0.0, name, prompt, min(cached or 0, prompt), output, timing="absent")
        ids = _ids(item)
        yield before
        length_s = _tool_s(item, odd)
        if length_s and index + 1 < len(chain):
            yield RecordedWait(at_s, length_s, "tool", text(item.get("tool_name", item.get("tool"))) or TOOL)
            at_s += length_s


def _tool_s(item: Mapping[str, Any], odd: Counter[str]) -> float:
    """Return how long the tool after a request took, 0 where it is not told or no length of time."""
    given = item.get("tool_duration_ns")
    length_s = seconds(given, 1e9)
    odd["tool durations out of range"] += given is not None and length_s is None
    return length_s or 0.0


def _ids(item: Mapping[str, Any]) -> Any:
    given = item.get("input_tok_ids")
    return given if isinstance(given, list) else ()


def _cached(item: Mapping[str, Any], before: RecordedCall | None, ids: Any, keeps: bool) -> int | None:
    """Return how much of a prompt the request before has left in the cache, None where that is not told."""
    told = tokens(item.get("prefix_reuse_toks"))
    if told is not None or before is None:
        return told or 0
    own = _ids(item)
    if ids and own:
        return next(
            (i for i, (a, b) in enumerate(zip(ids, own, strict=False)) if a != b), min(len(ids), len(own))
        )
    return before.prompt_tokens + before.output_tokens if keeps else None
