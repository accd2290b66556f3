"""Agentic Mooncake traces, versions 1 and 2: agents as lanes, waits and lengths from what links rows."""

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
from agentsim.importers.agentic_mooncake import PLUGIN
from agentsim.importers.base import importer_of

FILES = [DATA / "agentic_mooncake_v1.jsonl", DATA / "agentic_mooncake_v2.jsonl"]


def row(id: str, **more: Any) -> dict[str, Any]:
    made = {"request_id": id, "session_id": "s", "input_length": 64, "output_length": 5, "hash_ids": [1]}
    return {key: value for key, value in (made | more).items() if value is not None}


def read(rows: list[dict[str, Any]], folder: Path) -> Any:
    return one_in(PLUGIN, "\n".join(map(json.dumps, rows)) + "\n", folder)


def test_agents_are_lanes_under_the_agent_that_started_them() -> None:
    root, other = sessions_in(PLUGIN, FILES[0])
    assert [(lane.name, lane.parent) for lane in root.lanes] == [("main", None), ("agent child", "main")]
    assert (root.name, other.name) == ("root", "other")


def test_an_answer_ends_where_the_wait_of_the_request_after_it_begins() -> None:
    root, _ = sessions_in(PLUGIN, FILES[0])
    assert calls_in(root) == [(0, 2, "inferred"), (8, 3, "inferred"), (15, 0, "absent")]
    assert calls_in(root, 1) == [(2.5, 1.5, "inferred"), (5, 2, "inferred")]
    assert root.odd == {"answers not timed": 1}


def test_tools_have_their_names_and_stand_side_by_side_before_the_delay() -> None:
    root, _ = sessions_in(PLUGIN, FILES[0])
    assert waits_of(root)[1:] == [
        ("tool", "grep", 11, 1),
        ("tool", "pytest", 11, 3),
        ("harness", "delay", 14, 1),
    ]
    assert waits_of(root, 1) == [("tool", "tools and waits", 4, 1)]
    split = observed_split(root)
    assert (split.elapsed_s, split.model_s, split.subagent_model_s, split.subagent_tool_s) == pytest.approx(
        (15, 5, 3.5, 1)
    )


def test_the_block_of_version_1_is_the_size_that_fits_most_rows() -> None:
    root, other = sessions_in(PLUGIN, FILES[0])
    assert [call.cached_tokens for call in root.lanes[0].calls] == [0, 128, 192]
    assert [call.cached_tokens for call in root.lanes[1].calls] == [0, 60]
    assert [call.cached_tokens for call in other.calls] == [64]


def test_plays_of_version_2_are_sessions_with_recorded_lengths() -> None:
    first, second = sessions_in(PLUGIN, FILES[1])
    assert [(lane.name, lane.parent) for lane in first.lanes] == [("main", None), ("agent p1/sub", "main")]
    assert calls_in(first) == [(0, 2, "measured"), (5, 1, "measured")]
    assert calls_in(first, 1) == [(2.5, 1.5, "measured")]
    assert calls_in(second) == [(0, 6, "inferred"), (10, 0, "absent")]
    assert [call.model for call in second.calls] == ["m-2", "m-2"]


def test_hashes_of_version_2_hold_within_a_play_and_the_header_gives_the_block() -> None:
    first, second = sessions_in(PLUGIN, FILES[1])
    assert tokens_of(first) == [(40, 0, 8, 0), (48, 32, 9, 0), (16, 0, 3, 0)]
    assert tokens_of(second) == [(40, 0, 8, 0), (60, 48, 2, 0)]


def test_a_delay_after_a_dispatch_is_no_wait(tmp_path: Path) -> None:
    link = {"request_id": "a", "trigger": "dispatch", "delay_ms": 2000, "relation": "spawn"}
    rows = [
        row("a", play_id="p", not_before_ms=0),
        row("b", play_id="p", not_before_ms=5000, dependencies=[link]),
    ]
    session = read(rows, tmp_path)
    assert calls_in(session) == [(0, 0, "absent"), (5, 0, "absent")]
    assert waits_of(session) == [("harness", "answer not timed, and wait", 0, 5)]


ODD = {
    "no timestamps but the first": (
        [row("a", timestamp=0), row("b", wait_for=["a"], delay=2, tool_wait_ms=3)],
        [(0, 0, "absent"), (0.005, 0, "absent")], {"answers not timed": 2, "rows without a timestamp": 1},
    ),
    "rows out of order": (
        [row("b", wait_for=["a"], timestamp=4000, delay=1000), row("a", timestamp=0)],
        [(0, 3, "inferred"), (4, 0, "absent")], {"answers not timed": 1},
    ),
    "a request written twice": (
        [row("a", timestamp=0), row("a", timestamp=9), row("b", wait_for=["a"], timestamp=4000, delay=1000)],
        [(0, 3, "inferred"), (4, 0, "absent")], {"answers not timed": 1, "requests written twice": 1},
    ),
    "a wait for a request that is missing": (
        [row("a", timestamp=0), row("b", wait_for=["gone"], timestamp=4000, delay=1000)],
        [(0, 3, "inferred"), (4, 0, "absent")],
        {"answers not timed": 1, "waits for requests that are missing": 1},
    ),
    "requests that wait for each other": (
        [row("a", wait_for=["b"]), row("b", wait_for=["a"])],
        [(0, 0, "absent"), (0, 0, "absent")],
        {"answers not timed": 2, "requests that wait for one another in a circle": 2,
         "rows without a timestamp": 2},
    ),
    "a wait longer than the gap": (
        [row("a", timestamp=0), row("b", wait_for=["a"], timestamp=4000, delay=9000)],
        [(0, 0, "absent"), (4, 0, "absent")], {"answers not timed": 2},
    ),
    "negative waits": (
        [row("a", timestamp=0), row("b", wait_for=["a"], timestamp=4000, delay=-5, tool_wait_ms=-1)],
        [(0, 0, "absent"), (4, 0, "absent")], {"answers not timed": 2},
    ),
    "no ids": (
        [row("a", timestamp=0, request_id=None), row("b", timestamp=4000, request_id=None)],
        [(0, 0, "absent"), (4, 0, "absent")], {"answers not timed": 2},
    ),
    "blocks that do not fit": (
        [row("a", timestamp=0), row("b", timestamp=4000, hash_ids=[1, 2, 3, 4, 5], input_length=3)],
        [(0, 0, "absent"), (4, 0, "absent")], {"answers not timed": 2, "hash_ids do not fit input_length": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_rows_give_the_right_answer(name: str, tmp_path: Path) -> None:
    rows, calls, odd = ODD[name]
    session = read(rows, tmp_path)
    assert calls_in(session) == calls
    assert session.odd == odd


def test_requests_without_an_agent_follow_the_one_that_they_waited_for(tmp_path: Path) -> None:
    rows = [
        row("a", session_id=None, timestamp=0, branches=["c"]),
        row("b", session_id=None, timestamp=3000, wait_for=["a"], delay=1000),
        row("c", session_id=None, timestamp=2500, wait_for=["a"], delay=500),
    ]
    session = read(rows, tmp_path)
    assert [(lane.name, lane.parent) for lane in session.lanes] == [("main", None), ("request c", "main")]


def test_requests_without_an_agent_may_wait_in_a_circle(tmp_path: Path) -> None:
    waits = {"a": "b", "b": "c", "c": "b"}
    rows = [row(name, session_id=None, wait_for=[other]) for name, other in waits.items()]
    assert len(list(read(rows, tmp_path).calls)) == 3


def test_agents_that_claim_to_have_started_each_other_are_all_kept(tmp_path: Path) -> None:
    rows = [
        row("a", session_id="x", timestamp=0), row("b", session_id="y", timestamp=1, wait_for=["c"]),
        row("c", session_id="z", timestamp=2, wait_for=["b", "a"]),
    ]  # fmt: skip
    assert [(lane.name, lane.parent) for lane in read(rows, tmp_path).lanes] == [
        ("main", None), ("agent y", "main"), ("agent z", "agent y"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['{"schema": "agentic_mooncake", "version": 2}', '{"request_id": "x"', "[]"])
def test_a_file_without_a_row_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:1: "):
        one_in(PLUGIN, text, tmp_path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_format_is_known_by_its_content(path: Path) -> None:
    assert importer_of(str(path)).name == "agentic_mooncake"


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
