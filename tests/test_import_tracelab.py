"""TraceLab: calls from last input to last output, tools at their wall time, humans apart, odd input."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    DATA,
    Change,
    calls_of,
    changed,
    check_damaged,
    damaged,
    needs_logs,
    recognised,
    sessions_in,
    waits_of,
    with_wrong_values,
)
from trajectory_checks import one, read, tokens_of

from agentsim.errors import ImportFormatError
from agentsim.importers._split import observed_split
from agentsim.importers.base import head_of
from agentsim.importers.tracelab import MAX_OPEN, PLUGIN

ROUNDS = DATA / "tracelab_rounds.jsonl"
ROWS = [json.loads(line) for line in ROUNDS.read_text().splitlines()]
SAME = [(0.0, 3.0, "inferred"), (9.0, 2.5, "inferred"), (21.5, 1.5, "inferred"), (83.0, 2.0, "inferred")]


def test_a_call_runs_from_the_latest_input_to_its_last_output() -> None:
    [session] = sessions_in(PLUGIN, ROUNDS)
    assert calls_of(session) == SAME
    assert tokens_of(session) == [(100, 0, 30), (160, 100, 20), (190, 160, 10), (205, 190, 8)]
    assert next(session.calls).thinking_tokens == 12


def test_35_parallel_tools_keep_their_own_starts_and_approval_and_humans_are_apart() -> None:
    [session] = sessions_in(PLUGIN, ROUNDS)
    assert waits_of(session) == [
        ("tool", "Bash", 2.5, 1.0),
        ("tool", "WebSearch", 3.0, 6.0),
        ("harness", "approval or queue", 11.5, 8.0),
        ("tool", "Bash", 19.5, 2.0),
        ("human", "human", 23.0, 60.0),
    ]
    assert session.odd == {"tool that first waited for approval or a queue": 1}


def test_14_15_idle_time_of_a_session_is_the_human_s(tmp_path: Path) -> None:
    rows = deepcopy(ROWS)
    for place, at in enumerate(("2026-03-29T09:00:00Z", "2026-03-29T09:00:02Z")):
        rows[3]["timing_events"][place]["timestamp"] = at
    split = observed_split(one(PLUGIN, rows, tmp_path / "round_trace.jsonl"))
    assert split.human_s == pytest.approx(28 * 86400 - 23)
    assert split.model_s == pytest.approx(9.0)


def _round(place: int, **fields: Any) -> Change:
    return lambda rows: rows[place].update(fields)


def _tool(place: int, **fields: Any) -> Change:
    return lambda rows: rows[1]["tools"][place].update(fields)


def _twice(rows: list[Any]) -> None:
    rows.insert(1, deepcopy(ROWS[0]) | {"output_tokens": 1})
    rows[0], rows[1] = rows[1], rows[0]


def _swap(rows: list[Any]) -> None:
    rows[1], rows[2] = rows[2], rows[1]


def _event(place: int, index: int, at: Any) -> Change:
    return lambda rows: rows[place]["timing_events"][index].update(timestamp=at)


def _epochs(rows: list[Any]) -> None:
    for place, at in enumerate((1772355683.0, 1772355685000)):
        rows[3]["timing_events"][place]["timestamp"] = at


ODD: dict[str, tuple[Change, list[Any], dict[str, int]]] = {
    "01-25-a-round-twice": (_twice, SAME, {"repeated round": 1}),
    "19-out-of-order": (_swap, SAME, {"out of order": 1}),
    "30-half-a-row-and-the-same-again": (
        lambda rows: rows.insert(1, json.dumps(ROWS[1])[:300]), SAME, {"line that is not JSON": 1},
    ),
    "32-float-and-ms-epochs": (_epochs, SAME, {}),
    "33-line-separators": (_round(1, project="a\u2028b\x85"), SAME, {}),
    "36-no-times": (
        _round(2, timing_events=[], tools=[]), [*SAME[:2], (21.5, 0.0, "absent"), SAME[3]],
        {"call without a time": 1},
    ),
    "38-output-before-input": (
        _event(2, 1, "2026-03-01T09:00:20Z"), [*SAME[:2], (20.0, 0.0, "absent"), SAME[3]],
        {"call of negative time": 1},
    ),
    "38-result-before-the-call": (
        _tool(0, result_at="2026-03-01T08:00:00Z", tool_internal_latency_ms=None), SAME,
        {"tool of negative time": 1},
    ),
    "39-absurd-time": (_event(1, 2, "0001-01-01T00:00:00Z"), SAME, {}),
    "39-no-result": (_tool(0, result_at=None, tool_wall_latency_ms=None), SAME, {"tool without a result": 1}),
    "41-cached-over-prompt": (
        _round(1, input_tokens_total=50), SAME, {"more cached tokens than prompt": 1},
    ),
    "42-no-usage": (_round(1, output_tokens=None), SAME, {"no token usage": 1}),
    "unknown-rows": (lambda rows: rows.insert(0, {"kind": "header"}), SAME, {"line that is no round": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("change", "calls", "odd"), ODD.values(), ids=ODD.keys())
def test_odd_input_has_the_right_answer_and_is_counted(
    change: Change, calls: list[Any], odd: dict[str, int], tmp_path: Path
) -> None:
    session = one(PLUGIN, changed(ROWS, change), tmp_path / "round_trace.jsonl")
    assert calls_of(session) == calls
    assert {what: session.odd.get(what) for what in odd} == odd


def test_of_a_round_twice_the_last_line_counts(tmp_path: Path) -> None:
    rows = [ROWS[0] | {"output_tokens": 1}, *ROWS]
    assert tokens_of(one(PLUGIN, rows, tmp_path / "round_trace.jsonl"))[0] == (100, 0, 30)


def test_a_tool_that_asks_a_human_is_a_human_wait(tmp_path: Path) -> None:
    rows = changed(ROWS, _tool(0, tool_name="AskUserQuestion"))
    assert waits_of(one(PLUGIN, rows, tmp_path / "a.jsonl"))[2] == ("human", "AskUserQuestion", 11.5, 10.0)


def test_21_34_a_cut_off_last_line_is_counted_and_a_byte_order_mark_ignored(tmp_path: Path) -> None:
    session = one(PLUGIN, b"\xef\xbb\xbf" + ROUNDS.read_bytes()[:-40], tmp_path / "round_trace.jsonl")
    assert calls_of(session) == SAME[:3]
    assert session.odd["line that is not JSON"] == 1


def named(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"session_id": name, "round_id": f"{name} {row['round_index']}"} for row in rows]


def test_rows_of_sessions_may_be_mixed(tmp_path: Path) -> None:
    rows = [row for pair in zip(named("a", ROWS), named("b", ROWS), strict=True) for row in pair]
    sessions = read(PLUGIN, rows, tmp_path / "round_trace.jsonl")
    assert [(s.name, calls_of(s)) for s in sessions] == [("a", SAME), ("b", SAME)]


def test_a_session_that_comes_back_after_too_many_others_is_counted(tmp_path: Path) -> None:
    others = [row for i in range(MAX_OPEN + 1) for row in named(f"o{i}", ROWS[:1])]
    rows = [*named("a", ROWS[:2]), *others, *named("a", ROWS[2:])]
    sessions = [s for s in read(PLUGIN, rows, tmp_path / "round_trace.jsonl") if s.name == "a"]
    assert [len(list(s.calls)) for s in sessions] == [2, 2]
    assert sessions[1].odd["lines apart from the rest of the session"] == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"session_id": "x"', b"\xff\n", b"5\n"])
def test_what_holds_no_round_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"none\.jsonl:1: "):
        read(PLUGIN, content, tmp_path / "none.jsonl")


@settings(max_examples=200)
@given(data=st.data())
def test_damage_never_raises_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "tracelab"
    folder.mkdir(exist_ok=True)
    path = folder / "round_trace.jsonl"
    rows = "".join(json.dumps(row) + "\n" for row in with_wrong_values(data, ROWS))
    check_damaged(PLUGIN, path, rows.encode())
    check_damaged(PLUGIN, path, damaged(data, ROUNDS.read_bytes()))


def test_its_own_file_is_recognised() -> None:
    assert PLUGIN.recognises(str(ROUNDS), head_of(str(ROUNDS)))


@needs_logs
def test_no_other_log_is_taken_for_its_own() -> None:
    assert [name for name in recognised(PLUGIN) if not name.startswith("tracelab/")] == []
