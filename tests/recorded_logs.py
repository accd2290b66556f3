"""What the tests of importers share: what every session must be, how it is told in short, damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from agentsim import yaml_file
from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._split import observed_split
from agentsim.importers.base import Importer
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.workflow.load import check_document

LOGS = Path(__file__).parents[1].parent / "shared" / "logs"


def check(session: RecordedSession) -> None:
    """A session is sound: its workflow builds, its times are in order, its split adds up."""
    check_document(yaml_file.parse(workflow_document(session), "imported.yaml"))
    assert session.lanes[0].name == "main"
    assert session.lanes[0].parent is None
    for lane in session.lanes:
        starts = [event.start_s for event in lane.events]
        assert starts == sorted(starts)
        assert min(starts) >= 0
        assert all(event.duration_s >= 0 for event in lane.events)
    for call in session.calls:
        assert 0 <= call.cached_tokens <= call.prompt_tokens
        assert (call.timing == "absent") <= (call.duration_s == 0)
    split = observed_split(session)
    parts = split.model_s + split.tool_s + split.subagent_model_s + split.subagent_tool_s
    assert parts + split.human_s + split.residual_s == pytest.approx(split.elapsed_s)


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


def check_damaged(plugin: Importer, file: Path) -> None:
    """A damaged log ends in sound sessions, or in one line that names it."""
    problem, sessions = None, []
    plugin.recognises(str(file), file.read_bytes())
    try:
        sessions = list(plugin.sessions(str(file)))
    except ImportFormatError as bad:
        problem = str(bad)
    assert problem is None or (problem.startswith(str(file)) and "\n" not in problem)
    for session in sessions:
        check(session)


def damaged(data: st.DataObject, content: bytes) -> bytes:
    """Return a log with rows dropped, repeated, moved or mistyped, bits flipped and its end cut off."""
    lines = content.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        action = data.draw(st.sampled_from(["drop", "repeat", "swap", "type"]))
        if action == "drop" and len(lines) > 1:
            del lines[place]
        elif action == "repeat":
            lines.insert(place, lines[place])
        elif action == "swap":
            lines[place], lines[0] = lines[0], lines[place]
        else:
            lines[place] = _mistyped(data, lines[place])
    raw = bytearray(b"".join(lines))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(raw[: data.draw(st.one_of(st.just(len(raw)), st.integers(1, len(raw))))])


_ODD = st.sampled_from([None, True, -1, 1e400, 10**400, 1.5, "x", "\ud800", "", [], [1], {}, [{}], {"a": 1}])


def _mistyped(data: st.DataObject, line: bytes) -> bytes:
    """Replace one value anywhere in a row by something else."""
    row = json.loads(line)
    at: Any = row
    for _ in range(data.draw(st.integers(0, 4))):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        inner = [key for key in keys if isinstance(at[key], dict | list) and at[key]]
        if not inner:
            break
        at = at[data.draw(st.sampled_from(inner))]
    key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else list(range(len(at)))))
    at[key] = data.draw(_ODD)
    return json.dumps(row).encode() + b"\n"
