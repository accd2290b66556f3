"""What most logs hold is read in a shorter way; it gives what the long one gives, or leaves it to that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from importer_checks import DATA

from agentsim import plugins
from agentsim.importers import _span_store
from agentsim.importers._span_attributes import flat
from agentsim.importers._split import _marked, _swept, of_one_agent
from agentsim.importers._values import _iso_ns, _plain_iso_ns
from agentsim.importers.base import ANY_JSON, STRICT_JSON, decoded
from agentsim.recorded import (
    RecordedCall,
    RecordedCompaction,
    RecordedEvent,
    RecordedLane,
    RecordedSession,
    RecordedWait,
)

TIMES = st.one_of(st.integers(0, 4), st.floats(0, 1e9), st.sampled_from([0.1, 0.2, 0.3, 1e-9, 5e-10]))
MADE: list[Any] = [
    lambda start, length: RecordedCall(start, length, "m", 9, 0, 3),
    lambda start, length: RecordedWait(start, length, "tool", "bash"),
    lambda start, length: RecordedWait(start, length, "human", "human"),
    lambda start, length: RecordedWait(start, length, "harness", "pause"),
    lambda start, length: RecordedCompaction(start, length, 5),
]


@given(
    steps=st.lists(st.tuples(TIMES, TIMES, st.sampled_from(MADE)), max_size=12),
    back=st.sampled_from([0.0, 0.0, 0.5, 3.0]),
)
def test_the_parts_of_what_one_agent_did_are_those_of_all_edges_sorted(
    steps: list[tuple[float, float, Any]], back: float
) -> None:
    events: list[RecordedEvent] = []
    now_s = 0.0
    for pause_s, length_s, make in steps:
        earliest_s = events[-1].start_s if events else 0.0
        events.append(make(max(now_s + pause_s - back, earliest_s), length_s))
        now_s = events[-1].end_s
    session = RecordedSession("s", "made", (RecordedLane("main", None, tuple(events)),))
    assert of_one_agent(session) == _swept(_marked(session))


DIGITS = st.text("0123456789:-T.Z+ ٣", min_size=20, max_size=26)
WRITTEN = st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")


@given(
    text=st.one_of(DIGITS, WRITTEN, st.tuples(WRITTEN, DIGITS, st.integers(0, 24)).map(
        lambda made: made[0][: made[2]] + made[1][: 24 - made[2]]
    ))
)  # fmt: skip
@example("2026-03-02T10:00:60.000Z")
@example("2026-03-02T24:00:00.000Z")
@example("2026-03-02T10:00:0٣.000Z")
@example("0001-01-01T00:00:00.000Z")
def test_a_time_as_most_logs_write_it_is_what_iso_says(text: str) -> None:
    assert _plain_iso_ns(text) in (None, _iso_ns(text))


@given(text=WRITTEN)
def test_most_times_take_the_short_way(text: str) -> None:
    assert _plain_iso_ns(text) == _iso_ns(text) is not None


def _outcome(read: Any, *given: Any) -> Any:
    try:
        return repr(read(*given))
    except ValueError as bad:
        return str(bad)


JSON = st.recursive(st.one_of(st.none(), st.integers(), st.floats(), st.text()), st.lists).map(json.dumps)


@given(
    text=st.tuples(st.sampled_from(["", " ", "\n", "x"]), JSON, st.sampled_from(["", " \r\n", "\x0b", "7"]))
)
def test_a_row_is_decoded_as_the_decoder_does_it(text: tuple[str, str, str]) -> None:
    for decoder in (ANY_JSON, STRICT_JSON):
        source = "".join(text)
        assert _outcome(decoded, source, decoder) == _outcome(decoder.decode, source)


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers()))))
def test_attributes_without_any_nested_are_flat_already(attributes: dict[str, Any]) -> None:
    assert flat(attributes) == flat({"nested and empty": {}} | attributes)


@pytest.mark.parametrize("name", ["otel", "openinference", "langfuse"])
@pytest.mark.parametrize("loose", [0, 1, 3])
def test_spans_that_were_packed_make_the_same_sessions(name, loose, monkeypatch):
    importer = plugins.load("importers", name)
    paths = sorted(str(path) for path in DATA.glob(f"{name}_*"))
    assert paths
    plain = [list(importer.sessions(path)) for path in paths]
    monkeypatch.setattr(_span_store, "LOOSE", loose)
    assert [list(importer.sessions(path)) for path in paths] == plain
