"""LLMServingSim workloads: chains of requests, tools timed, what was cached where that is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    DATA,
    calls_in,
    check_damaged,
    damaged_or_wrong,
    needs_logs,
    recognised,
    sessions_in,
    waits_of,
)
from span_checks import one_in, tokens_of

from agentsim.errors import ImportFormatError
from agentsim.importers._split import observed_split
from agentsim.importers.base import importer_of
from agentsim.importers.llmservingsim import PLUGIN

FILE = DATA / "llmservingsim_chain.jsonl"


def chain(*requests: dict[str, Any], **more: Any) -> str:
    return json.dumps({"session_id": "s", "arrival_time_ns": 0, "sub_requests": list(requests)} | more)


def request(tool_s: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"input_toks": 100, "output_toks": 10, "tool_duration_ns": round(tool_s * 1e9)} | more


def test_a_chain_is_a_session_whose_tools_are_timed_and_whose_calls_are_not() -> None:
    first = sessions_in(PLUGIN, FILE)[0]
    assert calls_in(first) == [(0, 0, "absent"), (1.5, 0, "absent"), (2, 0, "absent")]
    assert waits_of(first) == [("tool", "tools and waits", 0, 1.5), ("tool", "grep", 1.5, 0.5)]
    assert observed_split(first).tool_s == pytest.approx(2)


def test_cached_tokens_are_those_told_or_the_common_prefix_or_unknown_and_counted() -> None:
    told, kept, ids, flat = sessions_in(PLUGIN, FILE)
    assert tokens_of(told) == [(100, 0, 20, 0), (150, 120, 30, 0), (200, 0, 5, 0)]
    assert told.odd == {"calls whose cached tokens are not told": 1}
    assert tokens_of(kept) == [(10, 0, 2, 0), (40, 12, 1, 0)]
    assert tokens_of(ids) == [(4, 0, 2, 0), (5, 2, 1, 0)]
    assert (tokens_of(flat), flat.name) == ([(64, 0, 8, 0)], "row 4")


ODD = {
    "negative tool time": ([request(-1), request()], [0, 0], {"tool durations out of range": 1}),
    "absurd tool time": ([request(1e12), request()], [0, 0], {"tool durations out of range": 1}),
    "time as text": ([request(tool_duration_ns="500000000"), request()], [0, 0.5], {}),
    "no tool time": ([request(tool_duration_ns=None), request()], [0, 0], {}),
    "a request without lengths": (
        [request(), {"input_toks": 5}, request()], [0, 1], {"requests without usable lengths left out": 1},
    ),
    "a request that is no object": ([request(), None, request()], [0, 1], {}),
    "more cached than prompt": ([request(), request(prefix_reuse_toks=900)], [0, 1], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_requests_give_the_right_answer(name: str, tmp_path: Path) -> None:
    requests, starts, odd = ODD[name]
    session = one_in(PLUGIN, chain(*requests, reuse_previous_kv=True), tmp_path)
    assert [start for start, *_ in calls_in(session)] == starts
    assert session.odd == odd


def test_damaged_rows_are_counted_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        f"\ufeff{chain(request())[:40]}\n{chain(request())}\n{chain()}\n{chain(request())}\n{{cut"
    )
    assert [dict(session.odd) for session in sessions_in(PLUGIN, path)] == [
        {"damaged rows left out": 1}, {"rows without usable lengths left out": 1},
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{}", chain(), '{"session_id": "s", "sub', "[]"])
def test_a_file_without_a_request_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: "):
        one_in(PLUGIN, text, tmp_path)


def test_the_format_is_known_by_its_content() -> None:
    assert importer_of(str(FILE)).name == "llmservingsim"


@needs_logs
def test_no_shared_log_is_taken_for_this_format() -> None:
    assert recognised(PLUGIN) == []


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    check_damaged(PLUGIN, path, damaged_or_wrong(data, FILE.read_bytes()))
