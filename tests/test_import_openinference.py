"""OpenInference spans: Phoenix exports and span dumps, attributes flat or nested; odd times; side by side."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    BASE_S,
    DATA,
    LOGS,
    calls_in,
    check_damaged,
    damaged_or_wrong,
    needs_logs,
    recognised,
    sessions_in,
    waits_of,
)
from span_checks import CALL, LATER, ODD, ROOT, Spans, check_odd, one_in, span, tokens_of

from agentsim.errors import ImportFormatError
from agentsim.importers._split import observed_split
from agentsim.importers.base import importer_of
from agentsim.importers.openinference import PLUGIN

FILES = [DATA / "openinference_phoenix.json", DATA / "openinference_flat.jsonl"]
KINDS = {"model": "LLM", "tool": "TOOL", "agent": "AGENT", "other": "CHAIN"}


def iso(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(BASE_S + at_s, UTC).isoformat()


def phoenix_span(made: dict[str, Any]) -> dict[str, Any]:
    attributes = dict(made.get("attributes", {}))
    if made["kind"] == "model":
        attributes["llm.model_name"] = made.get("model", "m")
    if made.get("tokens"):
        attributes |= dict(
            zip(("llm.token_count.prompt", "llm.token_count.completion"), made["tokens"], strict=True)
        )
    return {
        "name": made["name"],
        "context": {"trace_id": "t1", "span_id": made["id"]},
        "span_kind": KINDS[made["kind"]],
        "parent_id": made["parent"] or None,
        "start_time": iso(made["start"]),
        "end_time": iso(made["end"]),
        "status_code": "ERROR" if made.get("failed") else "OK",
        "attributes": attributes,
    }


def render(spans: Spans) -> str:
    return "\n".join(json.dumps(phoenix_span(made), ensure_ascii=False) for made in spans) + "\n"


def test_agents_side_by_side_are_lanes_and_the_rest_is_the_main_lane() -> None:
    [session] = sessions_in(PLUGIN, FILES[0])
    assert [(lane.name, lane.parent) for lane in session.lanes] == [
        ("main", None),
        ("researcher", "main"),
        ("critic", "main"),
    ]
    assert [calls_in(session, lane) for lane in range(3)] == [
        [(0, 2, "measured"), (14, 6, "measured")],
        [(3, 5, "measured"), (10, 3, "measured")],
        [(3, 8, "measured")],
    ]
    assert waits_of(session, 1) == [("tool", "web_search", 8, 2)]
    split = observed_split(session)
    assert (split.elapsed_s, split.model_s, split.subagent_model_s) == pytest.approx((20, 8, 10))


def test_nested_attributes_give_tokens_and_an_event_the_first_token() -> None:
    [session] = sessions_in(PLUGIN, FILES[0])
    assert tokens_of(session)[0] == (50, 30, 10, 4)
    assert [call.ttft_s for call in session.calls][:2] == [pytest.approx(0.4), None]


def test_flat_attributes_and_pairs_of_seconds_and_ns_are_read() -> None:
    [session] = sessions_in(PLUGIN, FILES[1])
    assert calls_in(session) == [(0.001, 3, "measured")]
    assert tokens_of(session) == [(80, 0, 15, 0)]
    assert [call.ttft_s for call in session.calls] == [pytest.approx(0.25)]
    assert ("tool", "getWeather", 3.001, 1) in waits_of(session)
    assert session.odd == {"wrapper spans that repeat a call": 1}


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_give_the_right_answer(name: str, tmp_path: Path) -> None:
    spans, right = ODD[name]
    check_odd(one_in(PLUGIN, render(spans), tmp_path), right)


def reshaped(shape: str) -> str:
    spans = [phoenix_span(made) for made in (ROOT, CALL, span("t", "tool", 4, 6, name="grep"), LATER)]
    if shape == "attributes as text":
        spans = [made | {"attributes": json.dumps(made["attributes"])} for made in spans]
    if shape == "a column for each":
        columns = ("trace_id", "span_id")
        spans = [
            {key: value for key, value in made.items() if key not in ("context", "attributes")}
            | {f"context.{key}": made["context"][key] for key in columns}
            | {f"attributes.{key}": value for key, value in made["attributes"].items()}
            for made in spans
        ]
    if shape == "epochs in s":
        spans = [made | {"start_time": BASE_S + at} for made, at in zip(spans, (0, 0, 4, 6), strict=True)]
        spans = [made | {"end_time": BASE_S + at} for made, at in zip(spans, (10, 4, 6, 10.0), strict=True)]
    if shape == "epochs in ms, as text":
        spans = [
            made | {"start_time": f"{BASE_S + at}000"} for made, at in zip(spans, (0, 0, 4, 6), strict=True)
        ]
        spans = [
            made | {"end_time": f"{BASE_S + at}000"} for made, at in zip(spans, (10, 4, 6, 10), strict=True)
        ]
    if shape == "naive times":
        spans = [
            made | {key: made[key].replace("+00:00", "") for key in ("start_time", "end_time")}
            for made in spans
        ]
    if shape == "a page of the API":
        return json.dumps({"data": spans, "next_cursor": None}, indent=1)
    return json.dumps(spans)


SHAPES = (
    "a list",
    "attributes as text",
    "a column for each",
    "epochs in s",
    "epochs in ms, as text",
    "naive times",
    "a page of the API",
)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_a_span_gives_the_same_session(shape: str, tmp_path: Path) -> None:
    session = one_in(PLUGIN, reshaped(shape), tmp_path)
    assert importer_of(str(tmp_path / "log.jsonl")).name == "openinference"
    assert calls_in(session) == [(0, 4, "measured"), (6, 4, "measured")]
    assert waits_of(session) == [("tool", "grep", 4, 2)]
    assert tokens_of(session) == [(100, 0, 10, 0)] * 2


def test_a_call_ends_no_later_than_the_tool_begins_that_it_asked_for(tmp_path: Path) -> None:
    asks = {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "grep"}
    spans = [ROOT, span("a", "model", 0, 9, attributes=asks), span("t", "tool", 4, 6, name="grep"), LATER]
    session = one_in(PLUGIN, render(spans), tmp_path)
    assert calls_in(session) == [(0, 4, "inferred"), (6, 4, "measured")]
    assert session.odd == {"calls cut where their tool begins": 1}


def test_sessions_that_stand_mixed_are_told_apart(tmp_path: Path) -> None:
    rows = [phoenix_span(made) for made in (CALL | {"parent": ""}, LATER | {"parent": ""})]
    for index, row in enumerate(rows):
        row["attributes"]["session.id"] = f"s{index}"
        row["context"]["trace_id"] = f"t{index}"
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n{broken\n")
    sessions = sessions_in(PLUGIN, path)
    assert [(s.name, dict(s.odd)) for s in sessions] == [("s0", {"damaged rows left out": 1}), ("s1", {})]


@pytest.mark.parametrize("text", ["[]", render([ROOT]), '[{"name": "x"', "7"])
def test_a_file_without_a_call_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: "):
        one_in(PLUGIN, text, tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_format_is_known_by_its_content(path: Path) -> None:
    assert importer_of(str(path)).name == "openinference"


@needs_logs
def test_of_the_shared_logs_only_its_own_are_taken() -> None:
    assert set(recognised(PLUGIN)) == {
        f"openinference/{file.name}" for file in (LOGS / "openinference").iterdir()
    }


@needs_logs
def test_shared_spans_become_calls_of_their_length() -> None:
    sessions = sessions_in(PLUGIN, LOGS / "openinference" / "spans-by-operation.json")
    calls = [call for session in sessions for call in session.calls]
    assert len(calls) == 8  # the embeddings are none
    streamed = [c for c in calls if c.ttft_s is not None]
    assert [(c.prompt_tokens, c.output_tokens) for c in streamed] == [(15, 112)]
    assert (streamed[0].duration_s, streamed[0].ttft_s) == pytest.approx((5.386, 0.427), rel=0.01)


@settings(max_examples=150)
@given(data=st.data(), path=st.sampled_from(FILES))
def test_damaged_files_are_read_or_refused(
    data: st.DataObject, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, path.read_bytes()))
