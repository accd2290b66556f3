"""What the tests of all importers share: what every session must be, how it is told, damaged files."""

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
from agentsim.importers._split import Split, observed_split
from agentsim.importers.base import Importer, head_of
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.workflow.graph import build_task
from agentsim.workflow.load import check_document
from agentsim.workflow.schema import Workflow

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parents[2] / "shared" / "logs"
BASE_S = 1_800_000_000
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")

NEVER_IDLE = {"claude_code", "codex", "pi"}
"""Formats in which every lane has an event; in others an agent may do nothing but start sub-agents."""

Change = Callable[[Any], Any]


# ---- sessions


def workflow_of(session: RecordedSession) -> Workflow:
    """Return the workflow that a session is written as, which can run."""
    workflow = check_document(yaml_file.parse(workflow_document(session), "imported.yaml"))
    build_task(workflow)
    return workflow


def parts_sum(split: Split) -> float:
    parts = (split.model_s, split.tool_s, split.subagent_model_s, split.subagent_tool_s)
    return sum(parts) + split.human_s + split.residual_s


def checked(session: RecordedSession) -> RecordedSession:
    """Return a sound session: its workflow can run, lanes, times and tokens fit, its split adds up."""
    workflow_of(session)
    names = [lane.name for lane in session.lanes]
    assert names[0] == "main"
    assert len(set(names)) == len(names)
    for lane in session.lanes:
        assert lane.parent is None if lane.name == "main" else lane.parent in names
        starts = [event.start_s for event in lane.events]
        assert starts == sorted(starts)
        assert all(start >= 0 for start in starts)
        assert lane.events or session.format not in NEVER_IDLE
        assert all(event.duration_s >= 0 for event in lane.events)
    for call in session.calls:
        assert 0 <= call.cached_tokens <= call.prompt_tokens
        assert 0 <= call.thinking_tokens <= call.output_tokens
        assert call.duration_s == 0 or call.timing != "absent"
    split = observed_split(session)
    assert parts_sum(split) == pytest.approx(split.elapsed_s)
    assert abs(parts_sum(split) - split.elapsed_s) < 1e-6
    return session


def sessions_in(importer: Importer, path: Path) -> list[RecordedSession]:
    return [checked(session) for session in importer.sessions(str(path))]


def calls_of(recorded: RecordedSession | RecordedLane) -> list[tuple[float, float, str]]:
    """Return (start, duration, how it is known) of every call, to the millisecond."""
    return [(round(c.start_s, 3), round(c.duration_s, 3), c.timing) for c in recorded.calls]


def calls_in(session: RecordedSession, lane: int = 0) -> list[tuple[float, float, str]]:
    return calls_of(session.lanes[lane])


def waits_of(session: RecordedSession, lane: int = 0) -> list[tuple[str, str, float, float]]:
    """Return (kind, name, start, duration) of every wait of a lane, to the millisecond."""
    waits = (event for event in session.lanes[lane].events if isinstance(event, RecordedWait))
    return [(w.kind, w.name, round(w.start_s, 3), round(w.duration_s, 3)) for w in waits]


def told(lane: RecordedLane) -> list[str]:
    """Return the events of a lane as `start+duration what`, calls with prompt/cached/output tokens."""
    return [_told(event) for event in lane.events]


def _told(event: Any) -> str:
    when = f"{event.start_s:g}+{event.duration_s:g}"
    if isinstance(event, RecordedCall):
        sizes = f"{event.prompt_tokens}/{event.cached_tokens}/{event.output_tokens}"
        return f"{when} call {sizes}{'' if event.timing == 'inferred' else ' ' + event.timing}"
    if isinstance(event, RecordedWait):
        return f"{when} {event.kind} {event.name}"
    return f"{when} compaction {event.summary_tokens}"


def recognised(importer: Importer) -> list[str]:
    """Return the shared logs that an importer takes for its own."""
    files = (path for path in sorted(LOGS.rglob("*")) if path.is_file())
    return [str(p.relative_to(LOGS)) for p in files if importer.recognises(str(p), head_of(str(p)))]


# ---- damage


VALUES = st.one_of(
    st.sampled_from(
        [None, True, -1, 0, 3, 1.5, -0.5, 1e9, 1e308, 1e400, 10**30, 10**40, 10**400, BASE_S * 10**9,
         "", "x", "7", "n", "subagent", "a1", "2026-01-01T00:00:00", "\ud800", "\ud800\u2028",
         [], [[]], [1], [None], [{}], {}, {"a": 1}]
    ),
    st.integers(), st.floats(), st.text(max_size=5),
)  # fmt: skip


def changed(document: Any, change: Change) -> Any:
    document = deepcopy(document)
    change(document)
    return document


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of everything inside a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def with_wrong_values(data: st.DataObject, document: Any) -> Any:
    """Return a copy with one to four values replaced, left out or repeated."""
    document = deepcopy(document)
    for _ in range(data.draw(st.integers(1, 4))):
        every = list(places(document))
        if not every:
            break
        holder, key = data.draw(st.sampled_from(every))
        how = data.draw(st.integers(0, 2))
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.insert(data.draw(st.integers(0, len(holder))), deepcopy(holder[key]))
        else:
            holder[key] = deepcopy(data.draw(VALUES))
    return document


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """Return content with lines left out, repeated or moved, bits flipped, and cut off."""
    lines = content.split(b"\n")
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        action = data.draw(st.sampled_from(["drop", "repeat", "swap"]))
        if action == "swap":
            lines[place], lines[0] = lines[0], lines[place]
        else:
            lines[place : place + 1] = [lines[place]] * (2 if action == "repeat" else 0)
        lines = lines or [b""]
    found = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(0, 4)) if found else 0):
        found[data.draw(st.integers(0, len(found) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(found[: data.draw(st.one_of(st.just(len(found)), st.integers(0, len(found))))])


def damaged_or_wrong(data: st.DataObject, content: bytes) -> bytes:
    """Return a document, or rows of them, with wrong values, damage to its bytes, or both."""
    what = data.draw(st.sampled_from(["values", "bytes", "both"]))
    if what != "bytes":
        try:
            rows = [json.loads(content)]
        except json.JSONDecodeError:
            rows = [json.loads(line) for line in content.splitlines()]
        content = "".join(json.dumps(row) + "\n" for row in with_wrong_values(data, rows)).encode()
    return content if what == "values" else damaged(data, content)


def check_damaged(importer: Importer, path: Path, content: bytes) -> None:
    """A damaged file ends in sound sessions, or in one line that begins with the file and a line in it."""
    path.write_bytes(content)
    importer.recognises(str(path), content)
    problem = f"{path}:"
    try:
        sessions_in(importer, path)
    except ImportFormatError as bad:
        problem = str(bad)
    assert problem.startswith(f"{path}:")
    assert "\n" not in problem
