"""OpenHands: latencies joined on ids, waits between events, event folders, logs of calls, odd input."""

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
    LOGS,
    Change,
    calls_of,
    changed,
    check_damaged,
    checked,
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
from agentsim.importers.openhands import PLUGIN
from agentsim.recorded import RecordedCompaction

OUTPUT = DATA / "openhands_output.jsonl"
ROW, SHORT = (json.loads(line) for line in OUTPUT.read_text().splitlines())
STREAM = json.loads((DATA / "openhands_stream.json").read_text())
REAL = LOGS / "openhands"


def event(row: dict[str, Any], key: int) -> dict[str, Any]:
    return next(e for e in row["history"] if e.get("id") == key)


# ---- a line of output.jsonl


def test_each_line_is_a_session_under_the_name_of_its_instance() -> None:
    assert [s.name for s in sessions_in(PLUGIN, OUTPUT)] == ["made-1", "made-2"]


def test_latencies_are_joined_on_the_id_and_one_without_an_event_lies_where_it_fits() -> None:
    session = sessions_in(PLUGIN, OUTPUT)[0]
    assert calls_of(session) == [
        (1.5, 1.5, "measured"), (7.5, 2.5, "measured"), (12.0, 2.0, "measured"), (16.0, 4.0, "measured"),
    ]  # fmt: skip
    assert session.odd == {"system prompt estimated from text": 1, "tokens estimated from text": 1}


def test_tokens_are_those_of_the_usage_with_cached_ones_inside_the_prompt() -> None:
    known = tokens_of(sessions_in(PLUGIN, OUTPUT)[0])
    assert [known[i] for i in (0, 1, 3)] == [(100, 0, 10), (130, 90, 20), (220, 130, 5)]
    assert known[2] == (151, 0, 0), "no usage: the context so far"


def test_a_tool_runs_from_its_action_to_the_observation_that_it_caused() -> None:
    assert waits_of(sessions_in(PLUGIN, OUTPUT)[0]) == [
        ("harness", "start up", 0.0, 1.5),
        ("harness", "recall", 0.5, 0.5),
        ("tool", "execute_bash", 3.0, 4.0),
        ("tool", "execute_bash", 10.0, 1.0),
    ]


def test_without_metrics_a_call_runs_from_the_latest_input_to_its_answer() -> None:
    short = sessions_in(PLUGIN, OUTPUT)[1]
    assert calls_of(short) == [(1.0, 2.0, "inferred")]
    assert tokens_of(short) == [(100, 0, 10)]


# ---- odd input: the number is that of the issue log


def _metrics_zero(row: dict[str, Any]) -> None:
    for usage in row["metrics"]["token_usages"]:
        usage.update(prompt_tokens=0, completion_tokens=0, cache_read_tokens=0)


def _usage_empty(row: dict[str, Any]) -> None:
    row["metrics"]["token_usages"] = []
    for item in row["history"]:
        if "tool_call_metadata" in item:
            item["tool_call_metadata"]["model_response"]["usage"] = {}


def _milliseconds(row: dict[str, Any]) -> None:
    for latency in row["metrics"]["response_latencies"]:
        latency["latency"] *= 1000


def _latency(value: Any) -> Change:
    return lambda row: row["metrics"]["response_latencies"][3].update(latency=value)


def _set(key: int, **fields: Any) -> Change:
    return lambda row: event(row, key).update(fields)


def _repeat(row: dict[str, Any]) -> None:
    row["history"].insert(5, row["history"][4])


def _metadata_twice(row: dict[str, Any]) -> None:
    row["metrics"]["metadata"] = row["history"][4]["metadata"] = row["metadata"]


def _unknown(row: dict[str, Any]) -> None:
    row["history"].append({"id": 99, "what": "new"})


def _swap(row: dict[str, Any]) -> None:
    row["history"][5], row["history"][6] = row["history"][6], row["history"][5]


def _epochs(row: dict[str, Any]) -> None:
    for place, item in enumerate(row["history"]):
        item["timestamp"] = 1_772_355_600.25 + [0, 0.5, 0.5, 1, 3, 7, 10, 11, 14, 20][place]


def _no_ids(row: dict[str, Any]) -> None:
    for item in row["history"]:
        item.pop("id", None)


SAME = [(1.5, 1.5, "measured"), (7.5, 2.5, "measured"), (12.0, 2.0, "measured"), (16.0, 4.0, "measured")]
LAST_INFERRED = [*SAME[:3], (14.0, 6.0, "inferred")]
NO_USAGE = "tokens estimated from text"


ODD: dict[str, tuple[Change, list[Any], dict[str, int]]] = {
    "03-repeated-event": (_repeat, SAME, {"repeated event": 1}),
    "19-out-of-order": (_swap, SAME, {"out of order": 1}),
    "23-image": (_set(6, content=[{"type": "image_url", "image_url": "A" * 40000}]), SAME, {NO_USAGE: 1}),
    "32-float-epochs": (_epochs, SAME, {}),
    "33-line-separators": (_set(1, args={"content": "a\u2028b\u2029c\x85d"}), SAME, {}),
    "39-negative-latency": (_latency(-4.0), LAST_INFERRED, {"duration negative or absurd": 1}),
    "39-absurd-latency": (_latency(1e6), LAST_INFERRED, {"latency over the time there was": 1}),
    "39-zero-latency": (_latency(0), LAST_INFERRED, {}),
    "39-latency-as-text": (_latency("4"), SAME, {}),
    "39-milliseconds": (_milliseconds, SAME, {"latency in milliseconds": 4}),
    "42-metrics-zero-but-the-response-tells": (_metrics_zero, SAME, {NO_USAGE: 1}),
    "42-usage-empty": (_usage_empty, SAME, {NO_USAGE: 4}),
    "42-metadata-repeated": (_metadata_twice, SAME, {}),
    "event-without-a-time": (_set(4, timestamp=None), SAME, {"event without a time": 1}),
    "absurd-time": (_set(4, timestamp="9999-12-31T00:00:00"), SAME, {"event without a time": 1}),
    "unknown-event": (_unknown, SAME, {}),
}


@pytest.mark.parametrize(("change", "calls", "odd"), ODD.values(), ids=ODD.keys())
def test_odd_input_has_the_right_answer_and_is_counted(
    change: Change, calls: list[Any], odd: dict[str, int], tmp_path: Path
) -> None:
    session = one(PLUGIN, changed(ROW, change), tmp_path / "output.jsonl")
    assert calls_of(session) == calls
    assert {what: session.odd.get(what) for what in odd} == odd


def test_without_ids_the_tool_call_joins_result_and_action(tmp_path: Path) -> None:
    session = one(PLUGIN, changed(ROW, _no_ids), tmp_path / "output.jsonl")
    assert calls_of(session) == SAME


def test_an_image_brings_no_tokens(tmp_path: Path) -> None:
    row = changed(ROW, _usage_empty)
    event(row, 8)["content"] = "data:image/png;base64," + "A" * 40000 + " seen"
    assert max(prompt for prompt, _, _ in tokens_of(one(PLUGIN, row, tmp_path / "o.jsonl"))) < 200


def test_42_a_condenser_call_that_no_event_carries_is_the_time_of_the_compaction(tmp_path: Path) -> None:
    row = deepcopy(ROW)
    event(row, 9).update(action="condensation", args={"summary": "s" * 40})
    del event(row, 9)["observation"]
    session = one(PLUGIN, row, tmp_path / "output.jsonl")
    [compaction] = [e for e in session.lanes[0].events if isinstance(e, RecordedCompaction)]
    assert (compaction.start_s, compaction.duration_s, compaction.timing) == (12.0, 2.0, "measured")
    assert compaction.summary_tokens == 10
    assert len(list(session.calls)) == 3


def test_38_a_result_before_its_action_takes_no_time(tmp_path: Path) -> None:
    row = changed(ROW, _set(8, timestamp="2026-03-01T09:00:09"))
    session = one(PLUGIN, row, tmp_path / "output.jsonl")
    assert session.odd["out of order"] == 1
    assert [w for w in waits_of(session) if w[0] == "tool"] == [("tool", "execute_bash", 3.0, 4.0)]


def test_a_delegate_is_a_sub_agent_until_its_observation(tmp_path: Path) -> None:
    row = deepcopy(ROW)
    event(row, 5).update(action="delegate", args={"agent": "Browser", "thought": ""})
    event(row, 8).update(observation="delegate", cause=5)
    session = one(PLUGIN, row, tmp_path / "output.jsonl")
    assert [(lane.name, lane.parent) for lane in session.lanes] == [("main", None), ("Browser", "main")]


def test_a_user_who_permits_is_a_human_wait_before_the_tool(tmp_path: Path) -> None:
    row = deepcopy(ROW)
    for at, state in (("03.5", "awaiting_user_confirmation"), ("06", "user_confirmed")):
        moment = {"id": f"s{at}", "timestamp": f"2026-03-01T09:00:{at}", "observation": "agent_state_changed"}
        row["history"].append(moment | {"source": "environment", "extras": {"agent_state": state}})
    waits = waits_of(one(PLUGIN, row, tmp_path / "output.jsonl"))
    assert waits[2:4] == [("human", "permission", 3.0, 3.0), ("tool", "execute_bash", 6.0, 1.0)]


def test_without_times_the_latencies_lie_one_after_another(tmp_path: Path) -> None:
    row = changed(ROW, lambda row: [item.pop("timestamp") for item in row["history"]])
    assert calls_of(one(PLUGIN, row, tmp_path / "output.jsonl")) == [
        (0.0, 1.5, "measured"), (1.5, 2.5, "measured"), (4.0, 2.0, "measured"), (6.0, 4.0, "measured"),
    ]  # fmt: skip


def test_36_pairs_without_any_time_are_calls_whose_time_is_absent(tmp_path: Path) -> None:
    action = {"source": "agent", "action": "run", "args": {"command": "l" * 40}}
    result = {"source": "agent", "observation": "run", "content": "o" * 80, "extras": {}}
    row = {"issue": {"number": 7}, "issue_type": "issue", "history": [[action, result]] * 2, "metrics": None}
    session = one(PLUGIN, row, tmp_path / "output.jsonl")
    assert session.name == "issue 7"
    assert calls_of(session) == [(0.0, 0.0, "absent")] * 2
    assert tokens_of(session) == [(0, 0, 10), (30, 0, 10)]
    assert session.odd["call without a time"] == 2


# ---- files


def test_21_a_last_line_that_is_cut_off_is_counted_and_the_rest_stays(tmp_path: Path) -> None:
    text = OUTPUT.read_text()
    [session] = read(PLUGIN, text[:-100], tmp_path / "output.jsonl")
    assert session.odd["line that is not JSON"] == 1


def test_34_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    assert read(PLUGIN, b"\xef\xbb\xbf" + OUTPUT.read_bytes(), tmp_path / "output.jsonl") == sessions_in(
        PLUGIN, OUTPUT
    )


def test_a_session_that_failed_before_any_call_is_counted_with_its_neighbour(tmp_path: Path) -> None:
    empty = {"instance_id": "none", "test_result": {}, "history": [], "error": "no container"}
    [session] = read(PLUGIN, [empty, ROW, empty], tmp_path / "output.jsonl")
    assert session.odd["session without a model call"] == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff\xfe{", b"null\n", b'{"instance_id": "x"']
)
def test_what_holds_no_session_is_refused_with_file_and_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"output\.jsonl:1: "):
        read(PLUGIN, content, tmp_path / "output.jsonl")


def stream(folder: Path, version: int = 1) -> Path:
    """Write an event stream, of the SDK or of V0, and return its first file."""
    events = STREAM["events"] if version == 1 else ROW["history"]
    (folder / "events").mkdir(parents=True)
    if version == 1:
        (folder / "base_state.json").write_text(json.dumps(STREAM["base_state"]))
    for item in events:
        name = f"event-{int(item['id'][1:]):05d}-{item['id']}.json" if version == 1 else f"{item['id']}.json"
        (folder / "events" / name).write_text(json.dumps(item))
    return folder / "events" / ("event-00000-e0.json" if version == 1 else "0.json")


@pytest.mark.parametrize("version", [0, 1])
def test_only_the_first_file_of_an_event_folder_stands_for_it(version: int, tmp_path: Path) -> None:
    first = stream(tmp_path / "talk", version)
    files = [str(f) for f in tmp_path.rglob("*.json")]
    assert [f for f in files if PLUGIN.recognises(f, head_of(f))] == [str(first)]
    assert sessions_in(PLUGIN, first)[0].name == "talk"


def test_an_sdk_stream_has_parallel_tools_side_by_side_a_compaction_and_a_human(tmp_path: Path) -> None:
    [session] = sessions_in(PLUGIN, stream(tmp_path / "talk"))
    assert calls_of(session) == [(1.5, 2.5, "measured"), (12.0, 2.0, "measured"), (74.5, 1.5, "measured")]
    assert tokens_of(session) == [(60, 0, 9), (50, 20, 6), (70, 50, 2)]
    assert next(session.calls).thinking_tokens == 4
    assert waits_of(session)[1:] == [
        ("tool", "terminal", 4.0, 2.0), ("tool", "file_editor", 4.0, 5.0), ("human", "human", 14.0, 60.0),
    ]  # fmt: skip
    assert RecordedCompaction(9.25, 1.75, 12, "measured") in session.lanes[0].events


def test_ids_of_events_have_gaps_and_the_rest_of_a_damaged_folder_counts(tmp_path: Path) -> None:
    first = stream(tmp_path / "talk", 0)
    (first.parent / "8.json").write_text("{")
    [session] = sessions_in(PLUGIN, first)
    assert session.odd["event file that cannot be read"] == 1
    assert [start for start, _, _ in calls_of(session)] == [1.0, 7.0, 14.0]


def test_an_output_under_the_name_of_an_event_is_an_output(tmp_path: Path) -> None:
    assert [s.name for s in read(PLUGIN, OUTPUT.read_bytes(), tmp_path / "4595.json")] == ["made-1", "made-2"]


def test_who_writes_first_and_when_is_human_time_before_the_start(tmp_path: Path) -> None:
    row = changed(ROW, _set(0, timestamp="2026-03-01T08:59:00"))
    waits = waits_of(one(PLUGIN, row, tmp_path / "output.jsonl"))
    assert waits[0] == ("human", "human", 0.0, 60.5)
    assert ("harness", "start up", 60.5, 1.0) in waits


def call_log(
    folder: Path, at_s: float, latency: Any, messages: int, role: str = "tool", tool: bool = True
) -> Path:
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    for _ in range(messages):
        said += [{"role": "assistant", "content": "a"}, {"role": role, "content": "r"}]
    message = {"content": "a", "tool_calls": [{"function": {"name": "look"}}] if tool else None}
    usage = {"prompt_tokens": 50 + 10 * messages, "completion_tokens": 5, "cache_read_input_tokens": 40}
    response = {"id": f"r{at_s}", "model": "tiny", "choices": [{"message": message}], "usage": usage}
    log = {"messages": said, "response": response, "timestamp": at_s, "latency_sec": latency}
    path = folder / f"tiny-{at_s:.3f}.json"
    path.write_text(json.dumps(log))
    return path


def test_logs_of_calls_are_a_session_and_their_times_are_ends(tmp_path: Path) -> None:
    first = call_log(tmp_path, 1757015010.0, 4.0, 0)
    later = [
        call_log(tmp_path, 1757015013.5, 2.0, 1, tool=False),
        call_log(tmp_path, 1757015046.5, 1.0, 2, "user"),
    ]
    other = call_log(tmp_path, 1757016000.0, 1.0, 0)
    sessions = sessions_in(PLUGIN, first)
    assert [s.name for s in sessions] == ["tiny 1", "tiny 2"]
    assert calls_of(sessions[0]) == [(0.0, 4.0, "measured"), (5.5, 2.0, "measured"), (39.5, 1.0, "measured")]
    assert waits_of(sessions[0]) == [("tool", "look", 4.0, 1.5), ("human", "human", 7.5, 32.0)]
    assert [PLUGIN.recognises(str(f), head_of(str(f))) for f in (first, *later, other)] == [True] + [
        False
    ] * 3


@pytest.mark.parametrize(
    ("latency", "odd"), [(2000.0, "latency in milliseconds"), (-1, "call without a time")]
)
def test_45_a_latency_of_a_log_may_be_ms_or_made_up(latency: float, odd: str, tmp_path: Path) -> None:
    call_log(tmp_path, 1757015010.0, latency, 0)
    [session] = sessions_in(PLUGIN, tmp_path / "tiny-1757015010.000.json")
    assert session.odd[odd] == 1
    assert calls_of(session)[0][1:] == ((2.0, "measured") if latency > 0 else (0.0, "absent"))


# ---- damage


@settings(max_examples=150)
@given(data=st.data())
def test_wrong_values_never_raise_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "openhands"
    folder.mkdir(exist_ok=True)
    path = folder / "output.jsonl"
    rows = with_wrong_values(data, [ROW, SHORT])
    check_damaged(PLUGIN, path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    check_damaged(PLUGIN, path, json.dumps(with_wrong_values(data, STREAM["events"])).encode())


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_never_raise_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "openhands"
    folder.mkdir(exist_ok=True)
    check_damaged(PLUGIN, folder / "output.jsonl", damaged(data, OUTPUT.read_bytes()))


# ---- real sessions


@needs_logs
@pytest.mark.parametrize(
    ("name", "end_to_end_s", "model_s", "tool_s", "calls"),
    [
        ("ponylang__ponyc-4595", 88.2, 79.7, 8.1, 23),
        ("ponylang__ponyc-4593", 114.5, 106.2, 7.5, 34),
        ("ponylang__ponyc-4588", 449.9, 168.8, 279.8, 50),
    ],
)
def test_the_log_alone_is_enough(
    name: str, end_to_end_s: float, model_s: float, tool_s: float, calls: int
) -> None:
    sessions = PLUGIN.sessions(str(REAL / "multi_swe_bench_examples_output.jsonl"))
    [session] = [checked(s) for s in sessions if s.name == name]
    split = observed_split(session)
    assert split.elapsed_s == pytest.approx(end_to_end_s, rel=0.01)
    assert split.model_s == pytest.approx(model_s, rel=0.01)
    assert split.tool_s == pytest.approx(tool_s, rel=0.01)
    assert (split.measured, split.inferred, split.absent) == (calls, 0, 0)


@needs_logs
def test_exactly_its_own_files_are_recognised() -> None:
    assert recognised(PLUGIN) == [
        "openhands/multi_swe_bench_examples_output.jsonl",
        "openhands/sdk_llm_logs/litellm_proxy__anthropic__claude-sonnet-4-20250514-1757015025.972.json",
        "openhands/sdk_llm_logs/litellm_proxy__deepseek__deepseek-chat-1757015054.055.json",
        "openhands/traj_basic.json",
    ]


@needs_logs
def test_every_real_session_builds() -> None:
    counts = [len(list(s.calls)) for name in recognised(PLUGIN) for s in sessions_in(PLUGIN, LOGS / name)]
    assert counts == [23, 34, 50, 6, 4, 2]
