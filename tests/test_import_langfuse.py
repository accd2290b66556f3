"""Langfuse exports: lengths from the times alone, each call and each cached token once, odd times mended."""

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
from agentsim.importers.langfuse import PLUGIN

FILE = DATA / "langfuse_agent.json"
TYPES = {"model": "GENERATION", "tool": "TOOL", "agent": "AGENT", "other": "SPAN"}


def iso(at_s: float | None) -> str | None:
    return (
        None
        if at_s is None
        else datetime.fromtimestamp(BASE_S + at_s, UTC).isoformat().replace("+00:00", "Z")
    )


def observation(made: dict[str, Any]) -> dict[str, Any]:
    row = {
        "id": made["id"],
        "traceId": "t1",
        "parentObservationId": made["parent"] or None,
        "type": TYPES[made["kind"]],
        "name": made["name"],
        "startTime": iso(made["start"]),
        "endTime": iso(made["end"]),
        "level": "ERROR" if made.get("failed") else "DEFAULT",
        "latency": 0,
        "model": made.get("model"),
    }
    if made.get("tokens"):
        row["usageDetails"] = dict(zip(("input", "output"), made["tokens"], strict=True))
    return row | made.get("more", {})


def render(spans: Spans) -> str:
    trace = {"id": "t1", "projectId": "p", "name": "made"}
    document = {"trace": trace, "observations": [observation(made) for made in spans]}
    return json.dumps(document, ensure_ascii=False)


def test_observations_become_calls_and_tools_and_lengths_come_from_the_times() -> None:
    [session] = sessions_in(PLUGIN, FILE)
    assert session.name == "sess-1"
    assert calls_in(session) == [(0.2, 2.8, "measured"), (5.3, 3.5, "measured")]
    assert tokens_of(session) == [(100, 80, 17, 5), (130, 100, 40, 0)]
    assert [call.ttft_s for call in session.calls] == [pytest.approx(0.7), None]
    assert [w for w in waits_of(session) if w[0] == "tool"] == [
        ("tool", "search", 3.2, 2),
        ("tool", "note", 5.2, 0),
    ]
    assert session.odd == {
        "cached tokens added to the prompt": 1,
        "tool spans of no length": 1,
        "wrapper spans that repeat a call": 1,
    }


@pytest.mark.parametrize("latency", [4, 4000, 0, -3.0, None, "4 s"])
def test_latency_is_never_believed(latency: Any, tmp_path: Path) -> None:
    session = one_in(PLUGIN, render([ROOT, CALL | {"more": {"latency": latency}}, LATER]), tmp_path)
    assert calls_in(session) == [(0, 4, "measured"), (6, 4, "measured")]


@pytest.mark.parametrize("name", ODD)
def test_odd_spans_give_the_right_answer(name: str, tmp_path: Path) -> None:
    spans, right = ODD[name]
    check_odd(one_in(PLUGIN, render(spans), tmp_path), right)


USAGE = {
    "cached apart, as the total tells": (
        {"input": 20, "input_cached_tokens": 80, "output": 5, "total": 105},
        (100, 80, 5, 0),
    ),
    "cached included, as the total tells": (
        {"input": 100, "input_cached_tokens": 80, "output": 5, "total": 105},
        (100, 80, 5, 0),
    ),
    "kinds of input are apart where nothing tells": (
        {"input": 100, "input_cache_read": 80, "output": 5},
        (180, 80, 5, 0),
    ),
    "details are included where nothing tells": (
        {"input": 100, "output": 5, "prompt_details.cache_read": 80},
        (100, 80, 5, 0),
    ),
    "anthropic's names": (
        {"input": 3, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 17, "output": 5},
        (100, 80, 5, 0),
    ),
    "reasoning included": ({"input": 10, "output": 9, "total": 19, "output_reasoning": 6}, (10, 0, 9, 6)),
    "reasoning apart": ({"input": 10, "output": 9, "total": 25, "output_reasoning": 6}, (10, 0, 15, 6)),
    "more cached than there is": (
        {"input": 10, "output": 9, "prompt_details.cache_read": 50},
        (60, 50, 9, 0),
    ),
    "counts as text": ({"input": "10", "output": "9", "total": "19"}, (10, 0, 9, 0)),
}


@pytest.mark.parametrize("name", USAGE)
def test_cached_and_thinking_tokens_are_counted_once(name: str, tmp_path: Path) -> None:
    details, right = USAGE[name]
    made = span("a", "model", 0, 4, parent="", tokens=None, more={"usageDetails": details})
    assert tokens_of(one_in(PLUGIN, render([made]), tmp_path)) == [right]


@pytest.mark.parametrize(
    "old",
    [{"promptTokens": 10, "completionTokens": 9}, {"usage": {"input": 10, "output": 9, "unit": "TOKENS"}}],
)
def test_counts_of_older_exports_are_read(old: dict[str, Any], tmp_path: Path) -> None:
    made = span("a", "model", 0, 4, parent="", tokens=None, more=old)
    assert tokens_of(one_in(PLUGIN, render([made]), tmp_path)) == [(10, 0, 9, 0)]


@pytest.mark.parametrize(("at_s", "ttft_s"), [(1, 1), (-1, None), (7, None)])
def test_a_first_token_outside_the_call_is_none(at_s: float, ttft_s: float | None, tmp_path: Path) -> None:
    made = CALL | {"parent": "", "more": {"completionStartTime": iso(at_s)}}
    session = one_in(PLUGIN, render([made]), tmp_path)
    assert [call.ttft_s for call in session.calls] == [ttft_s]
    assert session.odd == ({} if ttft_s else {"times to the first token out of range": 1})


def test_a_call_ends_no_later_than_the_tool_begins_that_it_asked_for(tmp_path: Path) -> None:
    asks = {"more": {"toolCallNames": ["grep"]}}
    spans = [ROOT, span("a", "model", 0, 9) | asks, span("t", "tool", 4, 6, name="grep"), LATER]
    session = one_in(PLUGIN, render(spans), tmp_path)
    assert calls_in(session) == [(0, 4, "inferred"), (6, 4, "measured")]


@pytest.mark.parametrize("shape", ["list of observations", "observations in the trace", "one trace a line"])
def test_other_shapes_give_the_same_calls(shape: str, tmp_path: Path) -> None:
    rows = [observation(made) for made in (ROOT, CALL, LATER)]
    text = json.dumps(rows)
    if shape == "observations in the trace":
        text = json.dumps({"id": "t1", "name": "made", "observations": rows}, indent=2)
    if shape == "one trace a line":
        text = "\ufeff" + render([ROOT, CALL, LATER]) + "\n" + '{"trace": {"id": "t2", "projectId"'
    session = one_in(PLUGIN, text, tmp_path)
    assert importer_of(str(tmp_path / "log.jsonl")).name == "langfuse"
    assert calls_in(session) == [(0, 4, "measured"), (6, 4, "measured")]


@pytest.mark.parametrize(
    "text", ['{"trace": {}, "observations": []}', render([ROOT]), '{"trace": {"id"', "[]"]
)
def test_a_file_without_a_call_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: "):
        one_in(PLUGIN, text, tmp_path)


def test_the_format_is_known_by_its_content() -> None:
    assert importer_of(str(FILE)).name == "langfuse"


REAL = {
    "agno-2025-06-11": (6.991, 5.746, 0.717, 2),
    "claude-agent-2025-12-22": (7.360, 7.232, 0.082, 4),
    "langgraph-python-2025-08-22": (2.610, 2.591, 0.001, 2),
    "openai-agents-2025-09-30": (2.190, 2.186, 0.0, 2),
    "pydantic-ai-tools-2025-12-04": (7.424, 7.402, 0.006, 4),
    "vercel-aisdk-2025-11-17": (3.045, 3.043, 0.0, 1),
}
"""Elapsed, model and tool seconds, and calls: the sums of the innermost spans, worked out by hand."""


@needs_logs
@pytest.mark.parametrize("name", REAL)
def test_shared_traces_split_as_their_spans_say(name: str) -> None:
    [session] = sessions_in(PLUGIN, LOGS / "langfuse" / f"{name}.trace.json")
    split = observed_split(session)
    assert (split.elapsed_s, split.model_s, split.tool_s) == pytest.approx(REAL[name][:3], rel=0.01, abs=1e-6)
    assert len(list(session.calls)) == REAL[name][3]


@needs_logs
def test_of_the_shared_logs_only_its_own_are_taken() -> None:
    assert set(recognised(PLUGIN)) == {f"langfuse/{file.name}" for file in (LOGS / "langfuse").iterdir()}


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    check_damaged(PLUGIN, path, damaged_or_wrong(data, FILE.read_bytes()))
