"""SWE-agent: calls without times, tools with theirs, tokens estimated and brought to the totals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    DATA,
    LOGS,
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
from agentsim.importers.swe_agent import PLUGIN

NEW = DATA / "swe_agent_new.traj"
TRAJ = json.loads(NEW.read_text())
SCALED = "tokens estimated from text, scaled to the totals"


def test_tools_keep_their_times_under_the_names_that_are_tools_of_the_agent() -> None:
    [session] = sessions_in(PLUGIN, NEW)
    assert waits_of(session) == [
        ("tool", "find_file", 0.0, 0.5), ("tool", "bash", 0.5, 1.25), ("tool", "submit", 1.75, 0.25),
    ]  # fmt: skip
    assert calls_of(session) == [(0.0, 0.0, "absent"), (0.5, 0.0, "absent"), (1.75, 0.0, "absent")]


def test_43_estimates_are_brought_to_the_recorded_totals() -> None:
    [session] = sessions_in(PLUGIN, NEW)
    assert tokens_of(session) == [(205, 0, 8), (615, 0, 7), (820, 0, 15)]
    assert session.odd == {
        SCALED: 3,
        "call without a time": 3,
        "call without a step of its own": 1,
        "system prompt estimated from text": 1,
    }
    assert {call.model for call in session.calls} == {"tiny"}


def _old(data: dict[str, Any]) -> None:
    """The first generation: no `query`, no `execution_time`, totals of 0."""
    for step in data["trajectory"]:
        del step["query"], step["execution_time"]
    data["info"]["model_stats"] = {"tokens_sent": 0, "tokens_received": 0, "api_calls": 0}
    data["replay_config"] = None
    data["history"] = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "u" * 400}]
    for said in ("a" * 40, "b" * 40, "c" * 40):
        data["history"] += [{"role": "assistant", "content": said}, {"role": "user", "content": "o" * 80}]


def test_without_queries_the_history_before_an_answer_is_its_prompt(tmp_path: Path) -> None:
    session = one(PLUGIN, changed(TRAJ, _old), tmp_path / "old.traj")
    assert [prompt for prompt, _, _ in tokens_of(session)] == [200, 230, 260]
    assert session.odd["tokens estimated from text"] == 3
    assert [event.timing for event in session.lanes[0].events] == ["absent"] * 6


def _short_history(data: dict[str, Any]) -> None:
    _old(data)
    data["history"] = data["history"][:3]


def test_without_a_whole_history_the_steps_before_are_the_prompt(tmp_path: Path) -> None:
    session = one(PLUGIN, changed(TRAJ, _short_history), tmp_path / "old.traj")
    steps = TRAJ["trajectory"]
    grown = [len(step["response"] + step["observation"]) for step in steps]
    expected = [200, -(-(800 + grown[0]) // 4), -(-(800 + sum(grown[:2])) // 4)]
    assert [prompt for prompt, _, _ in tokens_of(session)] == expected


def _step(place: int, **fields: Any) -> Change:
    return lambda data: data["trajectory"][place].update(fields)


ODD: dict[str, tuple[Change, dict[str, int], float]] = {
    "38-negative-tool-time": (_step(1, execution_time=-3.0), {"tool of negative time": 1}, 0.75),
    "39-absurd-tool-time": (_step(1, execution_time=1e12), {"tool of absurd time": 1}, 0.75),
    "45-tool-time-always-minus-one": (_step(1, execution_time=-1), {"tool of negative time": 1}, 0.75),
    "39-zero-tool-time": (_step(1, execution_time=0), {SCALED: 3}, 0.75),
    "32-tool-time-as-text": (_step(1, execution_time="1.25"), {SCALED: 3}, 2.0),
    "33-line-separators": (_step(1, action="cat\u2028x", observation="a\x85b"), {SCALED: 3}, 2.0),
    "23-image": (_step(1, query=[{"content": "data:image/png;base64," + "A" * 9999}]), {SCALED: 3}, 2.0),
    "unknown-keys": (_step(1, extra_info={"x": [1]}), {SCALED: 3}, 2.0),
}


@pytest.mark.parametrize(("change", "odd", "tool_s"), ODD.values(), ids=ODD.keys())
def test_odd_input_has_the_right_answer_and_is_counted(
    change: Change, odd: dict[str, int], tool_s: float, tmp_path: Path
) -> None:
    session = one(PLUGIN, changed(TRAJ, change), tmp_path / "a.traj")
    assert sum(length_s for _, _, _, length_s in waits_of(session)) == pytest.approx(tool_s)
    assert {what: session.odd.get(what) for what in odd} == odd
    assert len(list(session.calls)) == 3


def test_each_attempt_of_a_retrying_agent_is_a_session(tmp_path: Path) -> None:
    sessions = read(PLUGIN, {"attempts": [TRAJ, TRAJ], "info": {}}, tmp_path / "a.traj")
    assert [s.name for s in sessions] == ["a attempt 1", "a attempt 2"]


def test_34_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    session = one(PLUGIN, b"\xef\xbb\xbf" + NEW.read_bytes(), tmp_path / "swe_agent_new.traj")
    assert session == sessions_in(PLUGIN, NEW)[0]


def test_21_a_file_that_is_cut_off_is_refused_where_it_ends(tmp_path: Path) -> None:
    content = NEW.read_bytes()[:4000]
    with pytest.raises(ImportFormatError, match=rf"cut\.traj:{content.count(10) + 1}: not JSON"):
        read(PLUGIN, content, tmp_path / "cut.traj")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"trajectory": []}', b'{"trajectory": 5}'])
def test_what_holds_no_call_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"none\.traj:1: "):
        read(PLUGIN, content, tmp_path / "none.traj")


@settings(max_examples=200)
@given(data=st.data())
def test_damage_never_raises_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "swe_agent"
    folder.mkdir(exist_ok=True)
    path = folder / "a.traj"
    check_damaged(PLUGIN, path, json.dumps(with_wrong_values(data, TRAJ)).encode())
    check_damaged(PLUGIN, path, damaged(data, NEW.read_bytes()))


@needs_logs
def test_exactly_its_own_files_are_recognised_and_keep_the_recorded_totals() -> None:
    names = recognised(PLUGIN)
    assert names == [
        f"swe-agent/{n}.traj" for n in ("ctf_crypto_katy", "pydicom-1458_gpt4", "test-repo-i1_gpt4")
    ]
    for name in names:
        stats = json.loads((LOGS / name).read_text())["info"]["model_stats"]
        [session] = sessions_in(PLUGIN, LOGS / name)
        if stats["api_calls"]:
            assert len(list(session.calls)) == stats["api_calls"]
            assert sum(prompt for prompt, _, _ in tokens_of(session)) == stats["tokens_sent"]
            assert sum(output for _, _, output in tokens_of(session)) == stats["tokens_received"]
