"""No log, whatever it claims of times and counts, gives a session that the workflow schema refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importer_checks import DATA, checked, places, workflow_of

from agentsim import plugins
from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._readable import is_readable, least_bytes
from agentsim.recorded import (
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
)
from agentsim.units import MAX_SECONDS, MAX_TOKENS

EXTREMES = [
    ("2000-01-01T00:00:00Z", "2099-12-31T23:59:59Z"),
    ("2010-01-01T00:00:01Z", "2039-12-31T23:59:59Z"),
    (1_262_304_001_000, 2_208_988_799_000),
    (999_999_999.9996, 0),
    (1_000_000_000.001, 1e308),
    (999_999_999_999.6, 0),
    (10**8, 10**9),
    (10**30, -1),
]
SESSION = {
    "id": "s",
    "system_tokens": 5,
    "tool_tokens": 5,
    "requests": [
        {"t_s": t, "agent": agent, "model": "m", "input_tokens": 100, "cached_tokens": 10,
         "output_tokens": 9, "api_s": 2, "think_s": 1, "ttft_s": 0.5}
        for t, agent in ((1, "main"), (5, "main"), (6, "main/a"), (9, "main"))
    ],
}  # fmt: skip


def logs():
    """Return the small logs of each importer, the largest three of each."""
    found = {name: [] for name in plugins.names("importers")}
    for path in sorted(DATA.glob("*.[jt]*"), key=lambda path: -path.stat().st_size):
        name = next(name for name in found if path.name.startswith(name))
        found[name] += [path] if len(found[name]) < 3 else []
    return found


LOGS_OF = logs()
OWN = {"csv", "perfetto"}
"""What agentsim writes itself, and needs no small log to be read."""


def rows_in(text):
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def is_measure(value):
    """Tell a number, or a text that begins like a date or is one of digits."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, str) and value[:4].isdigit())


def measures(rows):
    found = [(holder, key) for holder, key in places(rows) if is_measure(holder[key])]
    return {key: [holder for holder, k in found if k == key] for _, key in found if isinstance(key, str)}


def sound_sessions(importer, log):
    """Return how many sessions a log holds, all of them sound; none where it is refused in one line."""
    problem = f"{log}:"
    try:
        return len([checked(session) for session in importer.sessions(str(log))])
    except ImportFormatError as bad:
        problem = str(bad)
    assert problem.startswith(f"{log}:")
    return 0


@pytest.mark.parametrize("name", sorted(LOGS_OF.keys() - OWN))
def test_extreme_times_and_counts_end_in_a_sound_session_or_one_line(name, tmp_path):
    made = {path.name: path.read_text("utf-8") for path in LOGS_OF[name]}
    made = made or {"sessions.jsonl": json.dumps(SESSION)}
    importer = plugins.load("importers", name)
    read = 0
    for file, text in made.items():
        for key in measures(rows_in(text)):
            for extremes in EXTREMES:
                rows = rows_in(text)
                for holder, value in zip(measures(rows)[key], cycle(extremes), strict=False):
                    holder[key] = str(value) if isinstance(holder[key], str) else value
                log = tmp_path / file
                log.write_text("".join(json.dumps(row) + "\n" for row in rows))
                read += sound_sessions(importer, log)
    assert read


def test_every_importer_has_a_small_log_of_its_own():
    assert {name for name, found in LOGS_OF.items() if not found} == {"sessions", *OWN}


def test_a_wait_longer_than_a_workflow_may_hold_is_written_as_several():
    events = (
        RecordedCall(0.0, 5.0, "m", 10, 0, 1),
        RecordedWait(5.0, 2.5e9, "human", "you"),
        RecordedCall(2.5e9 + 5.0, 1.0, "m", 10, 0, 1),
        RecordedCall(6e9, 1.0, "m", 10, 0, 1),
    )
    checked(RecordedSession("long", "made", (RecordedLane("main", None, events),)))


FIGURES = st.integers(0, MAX_TOKENS)
LENGTHS = st.floats(0, MAX_SECONDS)
NAMES = st.text(max_size=210) | st.sampled_from(["null", "true", "12", "a: b", "- a", "\ud800"])
CALLS = st.builds(
    lambda start_s, duration_s, name, tokens, cached, thinking, **more: RecordedCall(
        start_s, duration_s, name, tokens, min(cached, tokens), tokens, min(thinking, tokens), **more
    ),
    LENGTHS, LENGTHS, NAMES, FIGURES, FIGURES, FIGURES, ttft_s=st.none() | LENGTHS,
    timing=st.sampled_from(["measured", "absent"]), said=NAMES, text=NAMES,
)  # fmt: skip
WAITS = st.builds(RecordedWait, LENGTHS, LENGTHS, st.sampled_from(["tool", "human", "harness"]), NAMES)
COMPACTIONS = st.builds(RecordedCompaction, LENGTHS, LENGTHS, FIGURES)
EVENTS: st.SearchStrategy[list[RecordedEvent]] = st.lists(CALLS | WAITS | COMPACTIONS, max_size=6)


@st.composite
def in_range(draw: st.DrawFn) -> RecordedSession:
    """Return a session of which nothing is known but that its figures are in range."""
    names = draw(st.lists(NAMES.filter(lambda name: name != "main"), unique=True, max_size=3))
    children = [
        RecordedLane(name, draw(st.sampled_from([None, "main"])), tuple(draw(EVENTS))) for name in names
    ]
    main = RecordedLane("main", None, (draw(CALLS), *draw(EVENTS)))
    return RecordedSession(draw(NAMES), "made", (main, *children), draw(FIGURES))


@given(session=in_range())
def test_a_session_whose_figures_are_in_range_is_a_workflow_that_can_be_read(session):
    assert is_readable(session)
    workflow_of(session)
    assert len(workflow_document(session).encode()) > least_bytes(session)


CALL = RecordedCall(1.0, 2.0, "m", 30, 20, 10, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"start_s": 2.5e9}, {"start_s": float("nan")}, {"duration_s": -1.0}, {"duration_s": 2e9},
        {"prompt_tokens": 10}, {"prompt_tokens": MAX_TOKENS + 1}, {"cached_tokens": -1},
        {"output_tokens": 4}, {"output_tokens": MAX_TOKENS + 1}, {"thinking_tokens": -1}, {"ttft_s": -1.0},
    ],
)  # fmt: skip
def test_a_figure_out_of_range_leaves_the_judgement_to_the_reader(change):
    def made(call: RecordedCall) -> RecordedSession:
        return RecordedSession("s", "made", (RecordedLane("main", None, (call,)),))

    assert is_readable(made(CALL))
    assert not is_readable(made(replace(CALL, **change)))


def test_sub_agents_of_sub_agents_and_sessions_of_nothing_are_left_to_the_reader():
    lanes = [RecordedLane("main", None, (CALL,)), RecordedLane("a", "main", ()), RecordedLane("b", "a", ())]
    assert is_readable(RecordedSession("s", "made", tuple(lanes[:2])))
    assert not is_readable(RecordedSession("s", "made", tuple(lanes)))
    assert not is_readable(RecordedSession("s", "made", (RecordedLane("main", None, ()),)))
