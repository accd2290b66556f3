"""OTLP/JSON GenAI spans: old and new names, leaves only, odd times, agents side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    BASE_S,
    DATA,
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
from agentsim.importers.base import importer_of
from agentsim.importers.otel import PLUGIN

FILES = [DATA / "otel_new.json", DATA / "otel_old.jsonl"]
OPERATIONS = {"model": "chat", "tool": "execute_tool", "agent": "invoke_agent"}


def typed(value: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue", bool: "boolValue"}
    return {kinds[type(value)]: value}


def otlp_span(made: dict[str, Any], trace: str = "t1") -> dict[str, Any]:
    given = dict(made.get("attributes", {}))
    if made["kind"] in OPERATIONS:
        given["gen_ai.operation.name"] = OPERATIONS[made["kind"]]
    if made["kind"] == "model":
        given["gen_ai.request.model"] = made.get("model", "m")
    if made.get("tokens"):
        given |= dict(
            zip(("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"), made["tokens"], strict=True)
        )
    times = {"startTimeUnixNano": made["start"], "endTimeUnixNano": made["end"]}
    return {
        "traceId": trace,
        "spanId": made["id"],
        "parentSpanId": made["parent"],
        "name": made["name"],
        "status": {"code": 2 if made.get("failed") else 0},
        "attributes": [{"key": key, "value": typed(value)} for key, value in given.items()],
    } | {key: str(round((BASE_S + at) * 10**9)) for key, at in times.items() if at is not None}


def export(spans: list[dict[str, Any]]) -> str:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, ensure_ascii=False)


def render(spans: Spans) -> str:
    """One export a span, one a line."""
    return "\n".join(export([otlp_span(made)]) for made in spans) + "\n"


def test_spans_become_calls_and_tools_in_their_time() -> None:
    [session] = sessions_in(PLUGIN, FILES[0])
    assert session.name == "talk-1"
    assert calls_in(session) == [(0.5, 3, "measured"), (9.5, 2, "measured")]
    assert tokens_of(session) == [(1000, 800, 100, 40), (1300, 0, 50, 0)]
    assert [(c.model, c.ttft_s) for c in session.calls] == [("m-1-2026", 0.75), ("m-1", None)]
    assert waits_of(session)[1:3] == [("tool", "search", 4, 2), ("tool", "fetch", 4, 5)]
    assert session.odd == {}


def test_the_totals_of_an_agent_span_are_no_call_and_its_ends_frame_the_session() -> None:
    [session] = sessions_in(PLUGIN, FILES[0])
    assert [w for w in waits_of(session) if w[0] == "harness"] == [
        ("harness", "framework", 0, 0.5),
        ("harness", "framework", 11.5, 0.5),
    ]


def test_traces_of_one_session_are_its_turns_with_a_human_between_them() -> None:
    [session] = sessions_in(PLUGIN, FILES[1])
    assert tokens_of(session) == [(1050, 900, 20, 0), (1100, 0, 7, 0)]
    assert waits_of(session) == [("tool", "lookup", 2, 3), ("human", "human", 5, 60)]


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_give_the_right_answer(name: str, tmp_path: Path) -> None:
    spans, right = ODD[name]
    check_odd(one_in(PLUGIN, render(spans), tmp_path), right)


USAGE = {
    "new names include the cache": (
        {
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.usage.cache_read.input_tokens": 60,
        },
        (100, 60, 9, 0),
    ),
    "more cached than prompt is not included": (
        {
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.usage.cache_read_input_tokens": 60,
            "gen_ai.usage.cache_creation_input_tokens": 20,
        },
        (85, 60, 9, 0),
    ),
    "a total tells that it is not included": (
        {
            "gen_ai.usage.input_tokens": 70,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.usage.cache_read_input_tokens": 60,
            "gen_ai.usage.total_tokens": 139,
        },
        (130, 60, 9, 0),
    ),
    "a total tells that thinking is not included": (
        {
            "gen_ai.usage.input_tokens": 70,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.usage.reasoning_tokens": 6,
            "gen_ai.usage.total_tokens": 85,
        },
        (70, 0, 15, 6),
    ),
    "counts as text": (
        {"gen_ai.usage.prompt_tokens": "70", "gen_ai.usage.completion_tokens": "9"},
        (70, 0, 9, 0),
    ),
    "counts as floats": (
        {"gen_ai.usage.prompt_tokens": 70.0, "gen_ai.usage.completion_tokens": 9},
        (70, 0, 9, 0),
    ),
    "openinference names": (
        {
            "llm.token_count.prompt": 70,
            "llm.token_count.completion": 9,
            "llm.token_count.prompt_details.cache_read": 30,
        },
        (70, 30, 9, 0),
    ),
    "absurd counts are none": (
        {"gen_ai.usage.input_tokens": -4, "gen_ai.usage.output_tokens": 9},
        (0, 0, 9, 0),
    ),
}


@pytest.mark.parametrize("name", USAGE)
def test_tokens_are_counted_once_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    attributes, right = USAGE[name]
    spans = [span("a", "model", 0, 4, parent="", tokens=None, attributes=attributes)]
    assert tokens_of(one_in(PLUGIN, render(spans), tmp_path)) == [right]


def test_an_answer_that_two_instrumentations_recorded_counts_once(tmp_path: Path) -> None:
    same = {"attributes": {"gen_ai.response.id": "resp-1"}}
    session = one_in(
        PLUGIN, render([ROOT, CALL | same, span("c", "model", 0.1, 3.9) | same, LATER]), tmp_path
    )
    assert calls_in(session) == [(0.1, 3.8, "measured"), (6, 4, "measured")]
    assert session.odd == {"answers recorded twice": 1}


@pytest.mark.parametrize("ttft", [-1.0, 5.0])
def test_a_first_token_before_the_call_or_after_it_is_none(ttft: float, tmp_path: Path) -> None:
    spans = [CALL | {"parent": "", "attributes": {"gen_ai.response.time_to_first_chunk": ttft}}]
    [call] = one_in(PLUGIN, render(spans), tmp_path).calls
    assert call.ttft_s is None


def test_field_names_may_be_those_of_the_protocol(tmp_path: Path) -> None:
    text = render([ROOT, CALL, LATER])
    for camel, snake in (
        ("resourceSpans", "resource_spans"),
        ("scopeSpans", "scope_spans"),
        ("traceId", "trace_id"),
        ("spanId", "span_id"),
        ("parentSpanId", "parent_span_id"),
        ("startTimeUnixNano", "start_time_unix_nano"),
        ("endTimeUnixNano", "end_time_unix_nano"),
        ("stringValue", "string_value"),
        ("intValue", "int_value"),
    ):
        text = text.replace(f'"{camel}"', f'"{snake}"')
    (tmp_path / "log.jsonl").write_text(text)
    assert importer_of(str(tmp_path / "log.jsonl")).name == "otel"
    assert one_in(PLUGIN, text, tmp_path) == one_in(PLUGIN, render([ROOT, CALL, LATER]), tmp_path)


def test_overlapping_traces_of_one_session_run_side_by_side(tmp_path: Path) -> None:
    talk = {"attributes": {"gen_ai.conversation.id": "c"}}
    spans = [otlp_span(CALL | talk, "t1"), otlp_span(span("b", "model", 1, 9) | talk, "t2")]
    session = one_in(PLUGIN, export(spans), tmp_path)
    assert [(lane.name, lane.parent) for lane in session.lanes] == [("main", None), ("turn", "main")]


def test_a_trace_without_any_time_stands_behind_the_others(tmp_path: Path) -> None:
    talk = {"attributes": {"gen_ai.conversation.id": "c"}}
    spans = [otlp_span(span("b", "model", None, None, parent="") | talk, "t2"), otlp_span(CALL | talk, "t1")]
    session = one_in(PLUGIN, export(spans), tmp_path)
    assert calls_in(session) == [(0, 4, "measured"), (4, 0, "absent")]


DAMAGE = {
    "a byte order mark": (lambda rows: b"\xef\xbb\xbf" + rows, {}),
    "a truncated last row": (
        lambda rows: rows[:-1] + b"\n" + rows.splitlines()[0][:60],
        {"damaged rows left out": 1},
    ),
    "half a row, then the same row": (
        lambda rows: rows.splitlines()[0][:60] + b"\n" + rows,
        {"damaged rows left out": 1},
    ),
    "blank lines": (lambda rows: rows.replace(b"\n", b"\n\n"), {}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_rows_are_counted_and_the_others_read(name: str, tmp_path: Path) -> None:
    damage, odd = DAMAGE[name]
    session = one_in(PLUGIN, damage(render([ROOT, CALL, LATER]).encode()), tmp_path)
    assert calls_in(session) == [(0, 4, "measured"), (6, 4, "measured")]
    assert session.odd == odd


@pytest.mark.parametrize(
    "text", ['{"resourceSpans": []}', render([ROOT]), '{"resourceSpans": [{"sco', "[" * 100_000]
)
def test_a_file_without_a_call_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: ") as caught:
        one_in(PLUGIN, text, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_format_is_known_by_its_content(path: Path) -> None:
    assert importer_of(str(path)).name == "otel"


@needs_logs
def test_no_shared_log_is_taken_for_this_format() -> None:
    assert recognised(PLUGIN) == []


@settings(max_examples=150)
@given(data=st.data(), path=st.sampled_from(FILES))
def test_damaged_files_are_read_or_refused(
    data: st.DataObject, path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, path.read_bytes()))
