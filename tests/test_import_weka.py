"""Raw Weka sessions: exact tokens, sub-agents in their time, what is odd counted, nothing else raised."""

from __future__ import annotations

import gzip
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
    check_damaged,
    checked,
    damaged,
    needs_logs,
    parts_sum,
    with_wrong_values,
    workflow_of,
)

from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._split import observed_split
from agentsim.importers.base import importer_of
from agentsim.importers.weka import MAX_DEPTH, PLUGIN
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait

REAL = sorted((LOGS / "weka").glob("*.json"))
RECORDED = LOGS.parent / "validation" / "agent_sessions.jsonl.gz"
NAMES = ("weka_plain", "weka_odd", "weka_sub_agents")


def raw(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return data


def load(name: str) -> RecordedSession:
    [session] = PLUGIN.sessions(str(DATA / f"{name}.json"))
    return session


def load_data(data: Any, folder: Path) -> RecordedSession:
    path = folder / "log.json"
    path.write_text(json.dumps(data))
    [session] = PLUGIN.sessions(str(path))
    return session


def plain(steps: Any) -> list[tuple[str, Any]]:
    """Steps as (kind, content) without what was not given."""
    dumped = [step.model_dump(exclude_unset=True, exclude_none=True) for step in steps]
    for step in dumped:
        step.get("generate", {}).pop("time", None)
        step.get("generate", {}).pop("ttft", None)
    return [next(iter(step.items())) for step in dumped]


# ---- tokens and times


def test_tokens_of_a_call_are_those_of_the_log() -> None:
    calls = list(load("weka_plain").calls)
    assert [(c.prompt_tokens, c.output_tokens, c.model) for c in calls] == [
        (10, 5, "m-1"), (18, 4, "m-1"), (25, 7, "m-2"), (7, 1, "m-1"),
    ]  # fmt: skip
    assert [c.ttft_s for c in calls] == [None, 0.5, None, None]


def test_cached_is_the_longest_prefix_of_blocks_seen_before_and_never_over_the_prompt() -> None:
    assert [c.cached_tokens for c in load("weka_plain").calls] == [0, 8, 4, 7]


def test_waits_fill_the_time_between_calls_and_tell_a_human_from_a_tool() -> None:
    waits = [e for e in load("weka_plain").lanes[0].events if isinstance(e, RecordedWait)]
    assert [(w.start_s, w.duration_s, w.kind, w.timing) for w in waits] == [
        (2.5, 7.5, "tool", "measured"),
        (11.25, 48.75, "human", "measured"),
        (63.0, 0.0, "tool", "measured"),
    ]


def test_a_text_after_an_answer_that_ended_the_turn_is_a_human_whatever_comes_with_it(tmp_path: Path) -> None:
    data = raw("weka_plain")
    data["requests"][2]["input_types"] = ["text", "tool_result", "tool_use"]
    kinds = [e.kind for e in load_data(data, tmp_path).lanes[0].events if isinstance(e, RecordedWait)]
    assert kinds == ["tool", "human", "tool"]


def test_the_clock_starts_at_the_first_event(tmp_path: Path) -> None:
    data = raw("weka_plain")
    for request in data["requests"]:
        request["t"] += 1000
    assert load_data(data, tmp_path) == load("weka_plain")


# ---- the workflow


def test_a_session_becomes_a_workflow_with_the_recorded_tokens_and_waits() -> None:
    workflow = workflow_of(load("weka_plain"))
    assert workflow.context.system_tokens == 5
    assert plain(workflow.steps) == [
        ("user", {"tokens": {"constant": 5}}),
        ("generate", _generate(5, 10, 0)),
        ("call", _call(7.5, result_tokens={"constant": 3})),
        ("generate", _generate(4, 18, 8)),
        ("think", {"time": {"constant": 48.75}}),
        ("user", {"tokens": {"constant": 3}}),
        ("generate", _generate(7, 25, 4) | {"model": "m-2"}),
        ("call", _call(0.0)),
        ("generate", _generate(1, 7, 7)),
    ]


def _generate(tokens: int, prompt: int, cached: int, model: str = "m-1") -> dict[str, Any]:
    exact = {"prompt_tokens": prompt, "cached_tokens": cached, "model": model}
    return {"tokens": {"constant": tokens}} | exact


def _call(seconds: float, tool: str = "tools and waits", **more: Any) -> dict[str, Any]:
    return {"tool": tool, "time": {"constant": pytest.approx(seconds)}} | more


def test_the_file_says_where_it_comes_from_and_what_is_odd_but_names_no_folder() -> None:
    text = workflow_document(load("weka_odd"))
    assert "# From a weka log, session odd: 6 model calls, 0 sub-agents." in text
    assert "no API time: 2" in text
    assert str(DATA) not in text


@pytest.mark.parametrize(
    "name", ["", "null", "no: #x", 'say "hi" \\', "tab\tline\nend\u2028\x85", "\ud800", "😀"]
)
def test_any_name_in_a_log_can_stand_in_the_file(name: str, tmp_path: Path) -> None:
    data = raw("weka_sub_agents")
    data["id"] = name
    data["requests"][1]["agent_id"] = data["requests"][3]["agent_id"] = name
    data["requests"][0]["model"] = name
    checked(load_data(data, tmp_path))


# ---- sub-agents


def test_sub_agents_that_overlap_stay_side_by_side_and_a_late_one_runs_in_the_background() -> None:
    workflow = workflow_of(load("weka_sub_agents"))
    kinds = [kind for kind, _ in plain(workflow.steps)]
    assert kinds == ["user", "generate", "call", "agents", "call", "generate", "join", "call", "generate"]
    [group] = [step.agents for step in workflow.steps if step.agents]
    assert [(a.name, a.background) for a in group] == [
        ("agent_001", False), ("agent_002", False), ("agent_003", True),
    ]  # fmt: skip


def test_a_wait_keeps_only_what_no_awaited_sub_agent_fills() -> None:
    calls = [c for kind, c in plain(workflow_of(load("weka_sub_agents")).steps) if kind == "call"]
    assert calls == [
        _call(1),
        _call(5, result_tokens={"constant": 4}),
        _call(1, result_tokens={"constant": 4}),
    ]


def test_a_sub_agent_that_starts_later_than_its_group_waits_first() -> None:
    [step] = [s for s in workflow_of(load("weka_sub_agents")).steps if s.agents]
    assert [plain(agent.steps)[0] for agent in step.agents] == [
        ("generate", _generate(2, 6, 4, "m")),
        ("call", _call(1, "harness")),
        ("call", _call(2, "harness")),
    ]


def test_a_wait_that_ends_with_a_background_sub_agent_is_a_join() -> None:
    joins = [names for kind, names in plain(workflow_of(load("weka_sub_agents")).steps) if kind == "join"]
    assert joins == [("agent_003",)]


def test_sub_agents_one_after_another_are_steps_of_their_own(tmp_path: Path) -> None:
    data = raw("weka_sub_agents")
    data["requests"][2]["t"] = 26.0
    data["requests"][4]["t"] = 45.0
    steps = workflow_of(load_data(data, tmp_path)).steps
    assert [len(s.agents) for s in steps if s.agents] == [2, 1]


def test_all_lanes_share_what_was_cached_in_order_of_time() -> None:
    lanes = {lane.name: [c.cached_tokens for c in lane.calls] for lane in load("weka_sub_agents").lanes}
    assert lanes == {"main": [0, 12, 20], "agent_001": [4, 8], "agent_002": [4], "agent_003": [0, 4]}


def absolute(entries: list[dict[str, Any]], origin_s: float = 0.0) -> None:
    for entry in entries:
        entry["t"] += origin_s
        absolute(entry.get("requests", []), entry["t"])


def test_inner_times_may_count_from_the_marker_or_from_the_start_of_the_session(tmp_path: Path) -> None:
    data = raw("weka_sub_agents")
    absolute(data["requests"])
    assert data["requests"][1]["requests"][1]["t"] == 17.0
    assert load_data(data, tmp_path) == load("weka_sub_agents")


def nested(depth: int) -> dict[str, Any]:
    entry = deepcopy(raw("weka_sub_agents")["requests"][1])
    for _ in range(depth - 1):
        outer = deepcopy(raw("weka_sub_agents")["requests"][1])
        outer["requests"].insert(1, entry)
        entry = outer
    return raw("weka_sub_agents") | {"requests": [raw("weka_sub_agents")["requests"][0], entry]}


def test_sub_agents_may_start_sub_agents(tmp_path: Path) -> None:
    session = load_data(nested(MAX_DEPTH - 1), tmp_path)
    assert [lane.parent for lane in session.lanes][:3] == [None, "main", "agent_001"]
    assert len({lane.name for lane in session.lanes}) == MAX_DEPTH
    checked(session)


def test_what_an_empty_sub_agent_started_belongs_to_its_own_parent(tmp_path: Path) -> None:
    data = nested(2)
    outer = data["requests"][1]
    outer["requests"], outer["duration_ms"] = [outer["requests"][1]], None
    session = load_data(data, tmp_path)
    assert [(lane.name, lane.parent) for lane in session.lanes] == [("main", None), ("agent_001 2", "main")]
    assert session.odd["empty sub-agent"] == 1


def test_a_sub_agent_whose_calls_were_lost_still_takes_its_time(tmp_path: Path) -> None:
    data = raw("weka_sub_agents")
    data["requests"][2]["requests"] = []
    session = load_data(data, tmp_path)
    [wait] = next(lane for lane in session.lanes if lane.name == "agent_002").events
    assert (wait.start_s, wait.duration_s) == (6.0, 14.0)
    assert session.odd["sub-agent without calls"] == 1


# ---- what is odd


def test_what_is_odd_is_counted_and_nothing_is_dropped() -> None:
    session = load("weka_odd")
    assert len(list(session.calls)) == 6
    assert session.odd == {
        "API time inferred": 1,
        "no API time": 2,
        "no output": 1,
        "out of order": 1,
        "overlapping calls": 1,
        "prompt sent twice": 1,
    }


def test_a_call_without_api_time_has_no_duration_unless_think_time_gives_one() -> None:
    calls = [(c.start_s, c.duration_s, c.timing) for c in load("weka_odd").calls if c.timing != "measured"]
    assert calls == [(0.0, 0.0, "absent"), (20.0, 3.0, "inferred"), (26.0, 0.0, "absent")]


def test_the_wait_after_a_call_of_unknown_length_is_neither_tool_nor_human() -> None:
    waits = [e for e in load("weka_odd").lanes[0].events if isinstance(e, RecordedWait)]
    assert [(w.start_s, w.duration_s, w.kind) for w in waits] == [
        (0.0, 6.0, "harness"), (16.0, 4.0, "tool"), (23.0, 3.0, "tool"), (26.0, 4.0, "harness"),
    ]  # fmt: skip


def test_whole_seconds_that_overlap_by_less_than_one_are_no_overlap(tmp_path: Path) -> None:
    data = raw("weka_plain")
    data["requests"][0]["api_time"] = 10.5
    assert "overlapping calls" not in load_data(data, tmp_path).odd
    data["requests"][1]["t"] = 10.25
    assert load_data(data, tmp_path).odd["overlapping calls"] == 1


# ---- the observed split


def test_the_observed_split_sums_to_the_elapsed_time() -> None:
    split = observed_split(load("weka_plain"))
    assert (split.elapsed_s, split.model_s, split.tool_s, split.human_s) == (64.0, 7.75, 7.5, 48.75)
    assert (split.residual_s, split.measured, split.inferred, split.absent) == (0.0, 4, 0, 0)


def test_time_in_sub_agents_is_their_own_part_and_overlaps_count_once() -> None:
    split = observed_split(load("weka_sub_agents"))
    assert (split.elapsed_s, split.model_s, split.subagent_model_s) == (80.0, 11.0, 20.0)
    assert (split.tool_s, split.subagent_tool_s, split.residual_s) == (49.0, 0.0, 0.0)


def test_time_that_the_record_does_not_explain_is_the_residual() -> None:
    split = observed_split(load("weka_odd"))
    assert (split.model_s, split.tool_s, split.residual_s) == (14.0, 7.0, 10.0)
    assert (split.measured, split.inferred, split.absent, dict(split.odd)["no output"]) == (3, 1, 2, 1)


def test_waits_that_overlap_are_written_side_by_side() -> None:
    call = RecordedCall(0.0, 1.0, "m", 10, 0, 2)
    waits = RecordedWait(1.0, 4.0, "tool", "grep"), RecordedWait(1.0, 9.0, "tool", "run_tests")
    later = RecordedCall(10.0, 1.0, "m", 20, 10, 2)
    session = RecordedSession("s", "other", (RecordedLane("main", None, (call, *waits, later)),))
    [branches] = [content for kind, content in plain(workflow_of(session).steps) if kind == "parallel"]
    assert [b["call"] for b in branches] == [
        _call(4, "grep"), _call(9, "run_tests", result_tokens={"constant": 8}),
    ]  # fmt: skip
    assert observed_split(session).tool_s == 9.0


def test_thinking_is_written_apart_from_the_visible_output() -> None:
    calls = RecordedCall(0.0, 1.0, "m", 10, 0, 7, thinking_tokens=5), RecordedCall(1.0, 1.0, "m", 14, 10, 1)
    workflow = workflow_of(RecordedSession("s", "other", (RecordedLane("main", None, calls),)))
    assert plain(workflow.steps)[1:3] == [
        ("generate", _generate(2, 10, 0, "m") | {"thinking_tokens": {"constant": 5}}),
        ("user", {"tokens": {"constant": 2}}),
    ]


# ---- files that cannot be read


def broken(change: Any) -> str:
    data = raw("weka_plain")
    change(data["requests"][1], data)
    return json.dumps(data)


BROKEN = {
    "empty": ("", r":1: the file is empty"),
    "not JSON": ("hello", r":1: not JSON"),
    "a list": ("[1]", r":1: list found"),
    "truncated": (json.dumps(raw("weka_plain"))[:400], r":1: not JSON"),
    "deep": ("[" * 200_000, r":1: not JSON"),
    "deep object": ('{"requests":' * 200_000, r":1: not JSON"),
    "other format": ('{"messages": []}', r":1: requests: is missing"),
    "no requests": ('{"requests": []}', r"holds no request"),
    "no calls": (
        json.dumps({"requests": [{"t": 0, "type": "subagent", "requests": []}]}),
        r"holds no call",
    ),
    "requests is text": ('{"requests": "x"}', r"requests: 'x' is not a list"),
    "NaN": (broken(lambda r, _: r.update(t=float("nan"))), r"NaN is not a number"),
    "infinite": (broken(lambda r, _: r.update(t=7)).replace('"t": 7', '"t": 1e999'), r"out of range"),
    "negative time": (broken(lambda r, _: r.update(t=-1)), r":1: requests\[1\]: t: -1 is out of range"),
    "negative api_time": (broken(lambda r, _: r.update(api_time=-0.5)), r"api_time: -0.5 is out of range"),
    "huge count": (broken(lambda r, _: r.update({"in": 10**300})), r"in: a huge number is out of range"),
    "huge digits": (broken(lambda r, _: r.update(out=7777)).replace("7777", "7" * 5000), r":1: not JSON"),
    "more than is simulated": (
        broken(lambda r, _: r.update(out=2 * 10**9)),
        r"out: 2000000000 is out of range",
    ),
    "text for a number": (broken(lambda r, _: r.update({"in": "9"})), r"in: '9' is not a whole number"),
    "bool for a number": (broken(lambda r, _: r.update(t=True)), r"t: True is not a number"),
    "fraction of a token": (broken(lambda r, _: r.update(out=1.5)), r"out: 1.5 is not a whole number"),
    "no time": (broken(lambda r, _: r.pop("t")), r"t: is missing"),
    "no input": (broken(lambda r, _: r.pop("in")), r"in: is missing"),
    "unknown type": (broken(lambda r, _: r.update(type="x")), r"'x' is not a kind of request"),
    "hashes of lists": (broken(lambda r, _: r.update(hash_ids=[[1]])), r"hash_ids\[0\]: a list cannot stand"),
    "no block": (broken(lambda _, d: d.update(block_size=0)), r"block_size: 0 tokens"),
    "nested too deep": (json.dumps(nested(MAX_DEPTH)), r"nested over 16 deep"),
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.values(), ids=BROKEN.keys())
def test_a_log_that_cannot_be_read_is_one_line_with_its_place(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(ImportFormatError, match=problem) as caught:
        list(PLUGIN.sessions(str(path)))
    assert str(caught.value).startswith(f"{path}:1: ")
    assert "\n" not in str(caught.value)


def test_sessions_may_stand_one_a_line_and_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [json.dumps(raw(name)) for name in NAMES]
    path.write_text("\n".join(lines) + "\n")
    assert [session.name for session in PLUGIN.sessions(str(path))] == ["plain", "odd", "team"]
    path.write_text("\n".join(lines)[:-9] + "\n")
    with pytest.raises(ImportFormatError, match=r"log\.jsonl:3: not JSON"):
        list(PLUGIN.sessions(str(path)))


def test_a_packed_log_reads_like_the_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress((DATA / "weka_plain.json").read_bytes()))
    assert list(PLUGIN.sessions(str(path))) == [load("weka_plain")]


@pytest.mark.parametrize("name", NAMES)
def test_the_format_is_known_by_its_content(name: str) -> None:
    assert importer_of(str(DATA / f"{name}.json")).name == "weka"


# ---- anything at all


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_wrong_or_missing_values_are_refused_or_read(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "wrong.json"
    check_damaged(PLUGIN, path, json.dumps(with_wrong_values(data, raw(name))).encode())


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_cut_off_or_damaged_files_are_refused_or_read(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    check_damaged(PLUGIN, path, damaged(data, (DATA / f"{name}.json").read_bytes()))


# ---- real sessions


@needs_logs
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_a_real_session_keeps_every_token_and_its_time(path: Path) -> None:
    log = json.loads(path.read_text())
    [session] = PLUGIN.sessions(str(path))
    steps = [s.generate for s in workflow_of(session).steps if s.generate]
    assert sum(s.prompt_tokens or 0 for s in steps) == log["totals"]["combined_tokens"]["input"]
    assert sum(s.tokens.constant or 0 for s in steps) == log["totals"]["combined_tokens"]["output"]
    last = max(r["t"] + (r.get("api_time") or 0) for r in log["requests"])
    split = observed_split(session)
    assert split.elapsed_s == pytest.approx(last)
    assert parts_sum(split) == pytest.approx(split.elapsed_s)


@needs_logs
@pytest.mark.skipif(not RECORDED.exists(), reason="the shared sessions are not here")
def test_cached_tokens_of_real_sessions_are_those_derived_before() -> None:
    with gzip.open(RECORDED, "rt") as file:
        known = {s["id"]: [r["cached_tokens"] for r in s["requests"]] for s in map(json.loads, file)}
    for path in REAL:
        [session] = PLUGIN.sessions(str(path))
        assert [call.cached_tokens for call in session.calls] == known[session.name]
