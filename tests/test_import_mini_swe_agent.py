"""mini-swe-agent: times between messages, tools in turn, the versions without times, odd input."""

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
from agentsim.importers.base import head_of
from agentsim.importers.mini_swe_agent import PLUGIN

V2 = DATA / "mini_swe_agent_v2.traj.json"
TRAJ = json.loads(V2.read_text())
NO_TIME = "call without a time"


def bare() -> list[dict[str, str]]:
    roles = ["system", "user", "assistant", "user", "assistant", "user"]
    return [{"role": role, "content": letter * 40} for role, letter in zip(roles, "suaoas", strict=True)]


def test_model_time_runs_from_the_message_before_and_the_first_call_has_none() -> None:
    [session] = sessions_in(PLUGIN, V2)
    assert calls_of(session) == [
        (0.0, 0.0, "absent"), (0.75, 2.25, "inferred"), (6.5, 1.5, "inferred"), (8.25, 1.75, "inferred"),
    ]  # fmt: skip
    assert tokens_of(session) == [(100, 0, 10), (130, 100, 12), (170, 130, 9), (190, 170, 9)]
    assert [call.thinking_tokens for call in session.calls] == [2, 2, 2, 2]
    assert session.odd == {NO_TIME: 1, "system prompt estimated from text": 1}
    assert {call.model for call in session.calls} == {"tiny"}


def test_tools_of_one_answer_run_in_turn_and_a_format_error_is_the_harness() -> None:
    [session] = sessions_in(PLUGIN, V2)
    assert waits_of(session) == [
        ("tool", "bash", 0.0, 0.75),
        ("tool", "bash", 3.0, 1.0),
        ("tool", "bash", 4.0, 2.5),
        ("harness", "harness", 8.0, 0.25),
        ("tool", "bash", 10.0, 0.5),
    ]


def test_36_a_bare_list_is_known_by_its_name_and_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "local.traj.json"
    path.write_text(json.dumps(bare()))
    [session] = sessions_in(PLUGIN, path)
    assert PLUGIN.recognises(str(path), head_of(str(path)))
    assert not PLUGIN.recognises("messages.json", head_of(str(path)))
    assert calls_of(session) == [(0.0, 0.0, "absent")] * 2
    assert tokens_of(session) == [(20, 0, 10), (40, 0, 10)]
    assert session.odd["tokens estimated from text"] == 2


def _message(place: int, **fields: Any) -> Change:
    return lambda data: data["messages"][place].update(fields)


def _at(place: int, at: Any) -> Change:
    return lambda data: data["messages"][place]["extra"].update(timestamp=at)


def _milliseconds(data: dict[str, Any]) -> None:
    for message in data["messages"][2:]:
        message["extra"]["timestamp"] *= 1000


def _iso(data: dict[str, Any]) -> None:
    data["messages"][4]["extra"]["timestamp"] = "2026-02-02T02:40:03"


def _repeated(data: dict[str, Any]) -> None:
    data["messages"].insert(5, data["messages"][4])


def _usage(usage: Any) -> Change:
    return lambda data: data["messages"][4]["extra"]["response"].update(usage=usage)


def _interrupted(data: dict[str, Any]) -> None:
    data["messages"][8]["extra"]["interrupt_type"] = "UserInterruption"


SAME = [(0.0, 0.0, "absent"), (0.75, 2.25, "inferred"), (6.5, 1.5, "inferred"), (8.25, 1.75, "inferred")]
NOT_TIMED = [SAME[0], (0.75, 0.0, "absent"), *SAME[2:]]
ANSWER_EARLIER = [SAME[0], (0.25, 0.0, "absent"), *SAME[2:]]
IN_RESPONSES = {"input_tokens": 130, "output_tokens": 12, "input_tokens_details": {"cached_tokens": 100}}

ODD: dict[str, tuple[Change, list[Any], dict[str, int]]] = {
    "03-repeated-call": (_repeated, SAME, {"repeated call": 1}),
    "32-epochs-in-ms": (_milliseconds, SAME, {}),
    "32-iso-among-epochs": (_iso, SAME, {}),
    "33-line-separators": (_message(3, content="a\u2028b\x85"), SAME, {}),
    "36-no-time": (_at(4, None), NOT_TIMED, {NO_TIME: 2}),
    "38-before-the-message-before": (_at(4, 1770000000.25), ANSWER_EARLIER, {"call of negative time": 1}),
    "39-absurd-time": (_at(4, 1e30), NOT_TIMED, {NO_TIME: 2}),
    "41-cached-over-prompt": (
        _usage({"prompt_tokens": 90, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 95}}),
        SAME,
        {"more cached tokens than prompt": 1},
    ),
    "42-usage-empty": (_usage({}), SAME, {"tokens estimated from text": 1}),
    "41-usage-of-the-responses-api": (_usage(IN_RESPONSES), SAME, {NO_TIME: 1}),
    "a-human-interrupts": (_interrupted, SAME, {NO_TIME: 1}),
    "unknown-message": (_message(0, role="developer"), SAME, {}),
}


@pytest.mark.parametrize(("change", "calls", "odd"), ODD.values(), ids=ODD.keys())
def test_odd_input_has_the_right_answer_and_is_counted(
    change: Change, calls: list[Any], odd: dict[str, int], tmp_path: Path
) -> None:
    session = one(PLUGIN, changed(TRAJ, change), tmp_path / "a.traj.json")
    assert calls_of(session) == calls
    assert {what: session.odd.get(what) for what in odd} == odd


def test_an_interruption_is_a_human_wait(tmp_path: Path) -> None:
    waits = waits_of(one(PLUGIN, changed(TRAJ, _interrupted), tmp_path / "a.traj.json"))
    assert waits[3] == ("human", "human", 8.0, 0.25)


def test_messages_of_the_responses_api_have_no_roles(tmp_path: Path) -> None:
    data = changed(TRAJ, lambda data: data["messages"].__delitem__(slice(6, None)))
    usage = {"input_tokens": 130, "output_tokens": 12, "input_tokens_details": {"cached_tokens": 100}}
    answer, result = data["messages"][4], data["messages"][5]
    data["messages"][4:] = [
        {"object": "response", "id": "r", "output": [], "usage": usage, "extra": answer["extra"]},
        {"type": "function_call_output", "call_id": "c", "output": "out", "extra": result["extra"]},
    ]
    session = one(PLUGIN, data, tmp_path / "a.traj.json")
    assert tokens_of(session)[1] == (130, 100, 12)
    assert waits_of(session)[1] == ("tool", "bash", 3.0, 1.0)


def test_21_34_a_cut_off_file_is_refused_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    path = tmp_path / "mini_swe_agent_v2.traj.json"
    assert one(PLUGIN, b"\xef\xbb\xbf" + V2.read_bytes(), path) == sessions_in(PLUGIN, V2)[0]
    with pytest.raises(ImportFormatError, match=r"v2\.traj\.json:\d+: not JSON"):
        read(PLUGIN, V2.read_bytes()[:1500], path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"messages": [{"role": "user"}]}', b"\xff"])
def test_what_holds_no_call_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"none\.traj\.json:1: "):
        read(PLUGIN, content, tmp_path / "none.traj.json")


@settings(max_examples=200)
@given(data=st.data())
def test_damage_never_raises_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "mini_swe_agent"
    folder.mkdir(exist_ok=True)
    path = folder / "a.traj.json"
    document = data.draw(st.sampled_from([TRAJ, bare()]))
    check_damaged(PLUGIN, path, json.dumps(with_wrong_values(data, document)).encode())
    check_damaged(PLUGIN, path, damaged(data, V2.read_bytes()))


@needs_logs
def test_exactly_its_own_files_are_recognised_and_every_answer_is_a_call() -> None:
    names = recognised(PLUGIN)
    assert names == ["mini-swe-agent/github_issue.traj.json", "mini-swe-agent/local.traj.json"]
    for name in names:
        answers = [m for m in json.loads((LOGS / name).read_text()) if m["role"] == "assistant"]
        [session] = sessions_in(PLUGIN, LOGS / name)
        assert len(list(session.calls)) == len(answers)
