"""What the tests of the trajectory importers share: reading what was written, building it, damaging it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

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
VALUES = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1.5,
        1e308,
        10**40,
        "",
        "x",
        "2026-01-01T00:00:00",
        "\ud800\u2028",
        [],
        [[]],
        {},
        [1],
        {"a": 1},
    ]
)


def checked(session: RecordedSession) -> RecordedSession:
    """Return a session that is in order: it builds a workflow that can run, and its parts fit together."""
    workflow = check_document(yaml_file.parse(workflow_document(session), "imported.yaml"))
    build_task(workflow)
    assert session.lanes[0].name == "main"
    assert session.lanes[0].parent is None
    assert len({lane.name for lane in session.lanes}) == len(session.lanes)
    for lane in session.lanes:
        starts = [event.start_s for event in lane.events]
        assert starts == sorted(starts)
        assert all(event.duration_s >= 0 and event.start_s >= 0 for event in lane.events)
    for call in session.calls:
        assert 0 <= call.cached_tokens <= call.prompt_tokens
        assert 0 <= call.thinking_tokens <= call.output_tokens
    split = observed_split(session)
    parts = (split.model_s, split.tool_s, split.subagent_model_s, split.subagent_tool_s)
    assert abs(sum(parts) + split.human_s + split.residual_s - split.elapsed_s) < 1e-6
    return session


def sessions_in(importer: Importer, path: Path) -> list[RecordedSession]:
    return [checked(session) for session in importer.sessions(str(path))]


def read(importer: Importer, content: Any, path: Path) -> list[RecordedSession]:
    """Write text, bytes, a list of rows or a document, and read it."""
    if isinstance(content, list):
        content = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in content) + "\n"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return sessions_in(importer, path)


def one(importer: Importer, content: Any, path: Path) -> RecordedSession:
    [session] = read(importer, content, path)
    return session


def calls_of(session: RecordedSession) -> list[tuple[float, float, str]]:
    """Return (start, duration, how it is known) of every call, to the millisecond."""
    return [(round(c.start_s, 3), round(c.duration_s, 3), c.timing) for c in session.calls]


def tokens_of(session: RecordedSession) -> list[tuple[int, int, int]]:
    return [(c.prompt_tokens, c.cached_tokens, c.output_tokens) for c in session.calls]


def waits_of(session: RecordedSession, lane: int = 0) -> list[tuple[str, str, float, float]]:
    """Return (kind, name, start, duration) of every wait of a lane, to the millisecond."""
    waits = (event for event in session.lanes[lane].events if isinstance(event, RecordedWait))
    return [(w.kind, w.name, round(w.start_s, 3), round(w.duration_s, 3)) for w in waits]


def calls_in(session: RecordedSession, lane: int) -> int:
    return sum(isinstance(event, RecordedCall) for event in session.lanes[lane].events)


def recognised(importer: Importer) -> list[str]:
    """Return the shared logs that an importer takes for its own."""
    files = (path for path in sorted(LOGS.rglob("*")) if path.is_file())
    return [str(p.relative_to(LOGS)) for p in files if importer.recognises(str(p), head_of(str(p)))]


# ---- damage


def survives(importer: Importer, path: Path) -> None:
    """Read a damaged file: it ends in sessions that are in order or in a refusal of one line."""
    refusal = ""
    try:
        importer.recognises(str(path), head_of(str(path)))
        sessions_in(importer, path)
    except ImportFormatError as bad:
        refusal = str(bad)
    assert "\n" not in refusal
    assert path.parent.name in refusal or not refusal


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (holder, key) of everything inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from places(inner)


def with_wrong_values(data: st.DataObject, document: Any) -> Any:
    """Return a copy with one to three values replaced, left out or repeated."""
    document = deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
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
    """Return content with bits flipped, lines left out or repeated, and cut off."""
    lines = content.split(b"\n")
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(lines) - 1))
        lines[place : place + 1] = lines[place : place + 1] * data.draw(st.sampled_from([0, 2]))
        lines = lines or [b""]
    found = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(0, 4)) if found else 0):
        found[data.draw(st.integers(0, len(found) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(found[: data.draw(st.one_of(st.just(len(found)), st.integers(0, len(found))))])


Change = Callable[[Any], Any]
