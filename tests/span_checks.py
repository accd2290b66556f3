"""What the tests of span and serving-trace importers share: reading, building, odd inputs, damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from agentsim import yaml_file
from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._split import observed_split
from agentsim.importers.base import Importer, head_of
from agentsim.recorded import RecordedCall, RecordedSession, RecordedWait
from agentsim.workflow.graph import build_task
from agentsim.workflow.load import check_document

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parents[1].parent / "shared" / "logs"
BASE_S = 1_800_000_000
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")


def checked(session: RecordedSession) -> RecordedSession:
    """A session builds a workflow that can run, its parts sum up, its lanes and tokens make sense."""
    build_task(check_document(yaml_file.parse(workflow_document(session), "imported.yaml")))
    names = [lane.name for lane in session.lanes]
    assert names[0] == "main"
    assert len(set(names)) == len(names)
    for lane in session.lanes:
        assert lane.parent is None if lane.name == "main" else lane.parent in names
        assert [e.start_s for e in lane.events] == sorted(e.start_s for e in lane.events)
        assert all(e.start_s >= -1e-6 for e in lane.events)
        assert all(e.duration_s >= 0 for e in lane.events if isinstance(e, RecordedCall | RecordedWait))
    for call in session.calls:
        assert 0 <= call.cached_tokens <= call.prompt_tokens
        assert 0 <= call.thinking_tokens <= call.output_tokens
        assert call.duration_s == 0 or call.timing != "absent"
    split = observed_split(session)
    parts = split.model_s + split.tool_s + split.subagent_model_s + split.subagent_tool_s
    assert parts + split.human_s + split.residual_s == pytest.approx(split.elapsed_s, abs=1e-6)
    return session


def sessions_in(importer: Importer, path: Path) -> list[RecordedSession]:
    return [checked(session) for session in importer.sessions(str(path))]


def one_in(
    importer: Importer, content: str | bytes, folder: Path, name: str = "log.jsonl"
) -> RecordedSession:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    [session] = sessions_in(importer, path)
    return session


def calls_of(session: RecordedSession, lane: int = 0) -> list[tuple[float, float, str]]:
    return [(round(c.start_s, 3), round(c.duration_s, 3), c.timing) for c in session.lanes[lane].calls]


def tokens_of(session: RecordedSession) -> list[tuple[int, int, int, int]]:
    return [(c.prompt_tokens, c.cached_tokens, c.output_tokens, c.thinking_tokens) for c in session.calls]


def waits_of(session: RecordedSession, lane: int = 0) -> list[tuple[str, str, float, float]]:
    waits = (event for event in session.lanes[lane].events if isinstance(event, RecordedWait))
    return [(w.kind, w.name, round(w.start_s, 3), round(w.duration_s, 3)) for w in waits]


def recognised_by(importer: Importer) -> set[str]:
    """Return the shared logs that an importer takes for its own."""
    files = [file for file in sorted(LOGS.rglob("*")) if file.is_file()]
    own = (file for file in files if importer.recognises(str(file), head_of(str(file))))
    return {str(file.relative_to(LOGS)) for file in own}


# ---- odd spans, in every format

Spans = list[dict[str, Any]]


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
    assert calls_of(session) == [pytest.approx(c) for c in right.get("calls", calls_of(session))]
    assert waits == [pytest.approx(w) for w in right.get("waits", waits)]
    assert [lane.name for lane in session.lanes] == right.get("lanes", ["main"])
    assert sum(c.prompt_tokens for c in session.calls) == right.get("prompt", 100 * len(list(session.calls)))
    assert observed_split(session).tool_s == pytest.approx(
        right.get("tool_s", observed_split(session).tool_s)
    )


# ---- anything at all

VALUES = st.sampled_from(
    [None, True, -1, 0, 3, 1.5, -0.5, 1e308, 10**40, "", "x", "7", "2026-01-01T00:00:00", "\ud800\u2028",
     [], [[]], {}, [1], {"a": 1}, [None], "a1", BASE_S * 10**9]
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, flip bits of, repeat or drop lines of a file, or put values of other types into it."""
    if draw(st.booleans()):
        return _with_wrong_values(draw, content)
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    lines = bytes(data).split(b"\n")
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, len(lines) - 1))
        lines[index : index + 1] = [lines[index]] * draw(st.sampled_from([0, 2]))
        lines = lines or [b""]
    whole = b"\n".join(lines)
    return whole[: draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))]


def _with_wrong_values(draw: st.DrawFn, content: bytes) -> bytes:
    rows = content.decode().splitlines()
    lined = all(row[:1] in "{[" and row[-1:] in "}]" for row in rows) and len(rows) > 1
    values = [json.loads(row) for row in rows] if lined else [json.loads(content)]
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(values))
        if not found:
            break
        holder, key = draw(st.sampled_from(found))
        if draw(st.booleans()):
            holder[key] = deepcopy(draw(VALUES))
        else:
            del holder[key]
    return "\n".join(map(json.dumps, values)).encode()


def import_or_refuse(importer: Importer, content: bytes, folder: Path) -> None:
    """A file is read into sessions that hold, or refused in one line that begins with file and line."""
    path = folder / "fuzz.jsonl"
    path.write_bytes(content)
    problem = f"{path}:"
    try:
        sessions_in(importer, path)
    except ImportFormatError as bad:
        problem = str(bad)
    assert problem.startswith(f"{path}:")
    assert "\n" not in problem


Render = Callable[[Spans], str]
