"""What the tests of span and serving-trace importers share: building files, odd spans and their answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from importer_checks import calls_in, sessions_in, waits_of

from agentsim.importers._split import observed_split
from agentsim.importers.base import Importer
from agentsim.recorded import RecordedSession


def one_in(
    importer: Importer, content: str | bytes, folder: Path, name: str = "log.jsonl"
) -> RecordedSession:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    [session] = sessions_in(importer, path)
    return session


def tokens_of(session: RecordedSession) -> list[tuple[int, int, int, int]]:
    return [(c.prompt_tokens, c.cached_tokens, c.output_tokens, c.thinking_tokens) for c in session.calls]


# ---- odd spans, in every format

Spans = list[dict[str, Any]]
Render = Callable[[Spans], str]


def span(
    id: str, kind: str, start: float | None, end: float | None, parent: str = "r", **more: Any
) -> dict[str, Any]:
    """Return a span of no format yet; times are seconds after the start of the trace, None if missing."""
    tokens = {"tokens": (100, 10)} if kind == "model" else {}
    made = {"id": id, "kind": kind, "start": start, "end": end, "parent": parent, "name": f"{kind} {id}"}
    return made | tokens | more


ROOT = span("r", "other", 0, 10, parent="")
CALL, LATER = span("a", "model", 0, 4), span("b", "model", 6, 10)

ODD: dict[str, tuple[Spans, dict[str, Any]]] = {
    "in order": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="grep"), LATER],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "waits": [("tool", "grep", 4, 2)], "odd": {}},
    ),
    "rows out of order": (
        [LATER, span("t", "tool", 4, 6, name="grep"), CALL, ROOT],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "waits": [("tool", "grep", 4, 2)], "odd": {}},
    ),
    "an end before the start": (
        [ROOT, CALL, span("b", "model", 6, 5)],
        {"calls": [(0, 4, "measured"), (6, 0, "absent")], "odd": {"spans that end before they start": 1}},
    ),
    "a call of no length": (
        [ROOT, CALL, span("b", "model", 6, 6)],
        {"calls": [(0, 4, "measured"), (6, 0, "absent")], "odd": {"model calls of no length": 1}},
    ),
    "a tool of no length": (
        [ROOT, CALL, span("t", "tool", 5, 5, name="note"), LATER],
        {"waits": [("tool", "note", 5, 0)], "odd": {"tool spans of no length": 1}},
    ),
    "a call without an end lasts to the next span": (
        [ROOT, span("a", "model", 0, None), span("t", "tool", 3, 6, name="grep"), LATER],
        {"calls": [(0, 3, "inferred"), (6, 4, "measured")], "odd": {"ends inferred from neighbours": 1}},
    ),
    "parallel tools without ends last to the next call": (
        [ROOT, CALL, span("t", "tool", 4, None, name="x"), span("u", "tool", 4.5, None, name="y"), LATER],
        {"waits": [("tool", "x", 4, 2), ("tool", "y", 4.5, 1.5)],
         "odd": {"ends inferred from neighbours": 2}},
    ),
    "a call alone without an end": (
        [span("a", "model", 0, None, parent="")],
        {"calls": [(0, 0, "absent")], "odd": {"spans without an end": 1}},
    ),
    "a call without a start": (
        [ROOT, CALL, span("b", "model", None, 9)],
        {"calls": [(0, 4, "measured"), (9, 0, "absent")], "odd": {"spans without a start": 1}},
    ),
    "a call of two months": (
        [span("a", "model", 0, 4, parent=""), span("b", "model", 6, 6_000_000, parent="")],
        {"calls": [(0, 4, "measured"), (6, 0, "absent")], "odd": {"spans of over 30 days": 1}},
    ),
    "a start two years from the others": (
        [ROOT, CALL, span("b", "model", -63_000_000, 9)],
        {"calls": [(0, 4, "measured"), (9, 0, "absent")], "odd": {"spans without a start": 1}},
    ),
    "a wrapper around a call": (
        [ROOT, span("w", "model", 0, 5, tokens=(900, 90)), span("a", "model", 0.5, 4, parent="w"), LATER],
        {"calls": [(0.5, 3.5, "measured"), (6, 4, "measured")], "prompt": 200,
         "odd": {"wrapper spans that repeat a call": 1}},
    ),
    "a wrapper around a call without tokens": (
        [ROOT, span("w", "model", 0, 5, tokens=(90, 9)), span("a", "model", 0.5, 4, parent="w", tokens=None)],
        {"calls": [(0.5, 3.5, "measured")], "prompt": 90, "odd": {"wrapper spans that repeat a call": 1}},
    ),
    "a wrapper around an agent's calls": (
        [ROOT, span("w", "model", 0, 10), span("a", "model", 0, 4, parent="w"), LATER | {"parent": "w"}],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "odd": {"wrapper spans that repeat a call": 1}},
    ),
    "a span written twice, first without its end": (
        [ROOT, span("a", "model", 0, None), LATER, CALL],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "odd": {"spans written twice": 1}},
    ),
    "a span written again without its end": (
        [ROOT, CALL, LATER, span("a", "model", 0, None)],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "odd": {"spans written twice": 1}},
    ),
    "spans without ids": (
        [ROOT, CALL | {"id": ""}, LATER | {"id": ""}],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "odd": {"spans without an id": 2}},
    ),
    "a parent that is missing": (
        [CALL | {"parent": "gone"}, LATER | {"parent": "gone"}],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "odd": {"spans whose parent is missing": 2}},
    ),
    "spans in a circle": (
        [span("p", "other", 0, 4, parent="q"), span("q", "other", 0, 4, parent="p"), CALL | {"parent": "q"}],
        {"calls": [(0, 4, "measured")], "odd": {"spans in a circle": 1}},
    ),
    "a clock four minutes slow": (
        [ROOT, span("a", "model", -238, -234), span("t", "tool", -233, -232, parent="a", name="grep")],
        {"calls": [(3, 4, "measured")], "odd": {"spans moved from a clock that was off": 2}},
    ),
    "a clock four minutes fast": (
        [ROOT, span("a", "model", 240, 244)],
        {"calls": [(3, 4, "measured")], "odd": {"spans moved from a clock that was off": 1}},
    ),
    "work that goes on after the answer": (
        [ROOT, CALL, span("b", "model", 12, 14)],
        {"calls": [(0, 4, "measured"), (12, 2, "measured")], "odd": {}},
    ),
    "parallel tools": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="x"), span("u", "tool", 4, 5, name="y"), LATER],
        {"waits": [("tool", "x", 4, 2), ("tool", "y", 4, 1)], "tool_s": 2, "odd": {}},
    ),
    "tools within tools": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="x"),
         span("u", "tool", 4.5, 5, parent="t", name="server"), LATER],
        {"waits": [("tool", "x", 4, 2)], "odd": {"tool spans inside a tool's": 1}},
    ),
    "a plain span where tools run": (
        [ROOT, CALL, span("n", "other", 4, 6, name="tools"),
         span("u", "other", 4, 5, parent="n", name="web"), LATER],
        {"waits": [("tool", "web", 4, 1)], "odd": {}},
    ),
    "a tool that asks a human": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="AskUserQuestion"), LATER],
        {"waits": [("human", "AskUserQuestion", 4, 2)], "odd": {}},
    ),
    "a call that failed": (
        [ROOT, span("a", "model", 0, 4, tokens=None, failed=True), LATER],
        {"calls": [(6, 4, "measured")], "waits": [("harness", "failed model call", 0, 4)],
         "odd": {"failed model calls": 1}},
    ),
    "a call without token counts": (
        [ROOT, span("a", "model", 0, 4, tokens=None), LATER],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "prompt": 100,
         "odd": {"model calls without token counts": 1}},
    ),
    "calls fanned out without agents": (
        [ROOT, CALL, span("c", "model", 1, 3), LATER],
        {"calls": [(6, 4, "measured")], "lanes": ["main", "model a", "model c"], "odd": {}},
    ),
    "agents side by side": (
        [ROOT, span("x", "agent", 0, 5, name="x"), span("y", "agent", 1, 6, name="y"),
         span("a", "model", 0, 5, parent="x"), span("c", "model", 1, 6, parent="y"), LATER],
        {"calls": [(6, 4, "measured")], "lanes": ["main", "x", "y"], "odd": {}},
    ),
    "agents one after another": (
        [ROOT, span("x", "agent", 0, 4, name="x"), span("y", "agent", 6, 10, name="y"),
         CALL | {"parent": "x"}, LATER | {"parent": "y"}],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "lanes": ["main"], "odd": {}},
    ),
    "an agent that a tool runs": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="task"), span("x", "agent", 4, 6, parent="t", name="x"),
         span("c", "model", 4.5, 5.5, parent="x"), LATER],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "waits": [("tool", "task", 4, 2)],
         "lanes": ["main", "x"], "tool_s": 1, "odd": {}},
    ),
    "a tool that calls the model": (
        [ROOT, CALL, span("t", "tool", 4, 6, name="summarise"),
         span("c", "model", 4.5, 5.5, parent="t"), LATER],
        {"calls": [(0, 4, "measured"), (6, 4, "measured")], "waits": [("tool", "summarise", 4, 2)],
         "lanes": ["main", "summarise"], "odd": {}},
    ),
    "names with separators of lines": (
        [ROOT, CALL | {"model": "m\u2028\u2029\x85"}, span("t", "tool", 4, 6, name="a\u2028b\x85"), LATER],
        {"waits": [("tool", "a\u2028b\x85", 4, 2)], "odd": {}},
    ),
}  # fmt: skip


def check_odd(session: RecordedSession, right: dict[str, Any]) -> None:
    """Compare a session of odd spans with the right answer, as far as that is given."""
    waits = [wait for wait in waits_of(session) if wait[1] != "framework"]
    assert dict(session.odd) == right["odd"]
    assert calls_in(session) == [pytest.approx(c) for c in right.get("calls", calls_in(session))]
    assert waits == [pytest.approx(w) for w in right.get("waits", waits)]
    assert [lane.name for lane in session.lanes] == right.get("lanes", ["main"])
    assert sum(c.prompt_tokens for c in session.calls) == right.get("prompt", 100 * len(list(session.calls)))
    assert observed_split(session).tool_s == pytest.approx(
        right.get("tool_s", observed_split(session).tool_s)
    )
