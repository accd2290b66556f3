"""ATIF: measured spans, inferred calls, sub-agents, copied context, sums of calls, references not opened."""

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
    calls_in,
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
from agentsim.importers.atif import MAX_DEPTH, PLUGIN
from agentsim.recorded import RecordedCompaction

AGENTS = DATA / "atif_agents.json"
DOC = json.loads(AGENTS.read_text())
BLURRED = "time of tools and model not apart"


def test_calls_have_their_spans_else_run_from_what_came_before() -> None:
    [session] = sessions_in(PLUGIN, AGENTS)
    assert calls_of(session) == [
        (0.5, 1.5, "measured"),
        (5.0, 4.0, "inferred"),
        (13.0, 2.0, "inferred"),
        (45.0, 1.0, "inferred"),
        (10.0, 3.0, "inferred"),
    ]
    assert tokens_of(session) == [(100, 30, 20), (140, 100, 10), (160, 140, 5), (170, 160, 2), (40, 0, 6)]
    assert [call.thinking_tokens for call in session.calls] == [8, 0, 0, 0, 0]


def test_35_parallel_tools_lie_side_by_side_and_a_user_after_an_answer_is_a_human() -> None:
    [session] = sessions_in(PLUGIN, AGENTS)
    assert waits_of(session) == [
        ("harness", "start up", 0.0, 0.5),
        ("tool", "read_file", 2.0, 3.0),
        ("tool", "search", 2.0, 2.0),
        ("tool", "delegate", 9.0, 0.0),
        ("human", "human", 15.0, 30.0),
    ]


def test_a_trajectory_inside_is_a_sub_agent_and_what_it_copied_is_no_call() -> None:
    [session] = sessions_in(PLUGIN, AGENTS)
    assert [(lane.name, lane.parent) for lane in session.lanes] == [("main", None), ("looker", "main")]
    assert len(calls_in(session, 1)) == 1
    assert session.odd == {"continues in another file": 1, "copied context": 1}


# ---- odd input: the number is that of the issue log


def _step(place: int, **fields: Any) -> Change:
    return lambda data: data["steps"][place].update(fields)


def _timeless(data: dict[str, Any]) -> None:
    for step in (*data["steps"], *data["subagent_trajectories"][0]["steps"]):
        step["timestamp"] = None


def _apart(data: dict[str, Any]) -> None:
    del data["subagent_trajectories"]


def _total_steps(data: dict[str, Any]) -> None:
    data["final_metrics"]["total_steps"] = 1


def _version(data: dict[str, Any]) -> None:
    data["schema_version"] = "ATIF-v3.0"


def _swap(data: dict[str, Any]) -> None:
    data["steps"][2], data["steps"][3] = data["steps"][3], data["steps"][2]


def _no_spans(data: dict[str, Any]) -> None:
    del data["steps"][1]["extra"]
    for call in data["steps"][1]["tool_calls"]:
        del call["extra"]


def _wrapper(data: dict[str, Any]) -> None:
    data["steps"][5]["extra"] = {
        "invocation": {"start_timestamp": 1772355600.0, "end_timestamp": 1772355646.0}
    }


def _no_metrics(data: dict[str, Any]) -> None:
    for step in data["steps"]:
        step.pop("metrics", None)


def _image(data: dict[str, Any]) -> None:
    _no_metrics(data)
    part = {"type": "image", "source": {"media_type": "image/png", "data": "A" * 40000}}
    data["steps"][0]["message"] = [{"type": "text", "text": "look"}, part]


CALLS = [(0.5, 1.5, "measured"), (5.0, 4.0, "inferred"), (13.0, 2.0, "inferred"), (45.0, 1.0, "inferred")]
KID = (10.0, 3.0, "inferred")
ABSENT = [(0.0, 0.0, "absent")] * 5
HALVES = [(0.5, 0.75, "measured"), (1.25, 0.75, "measured")]

ODD: dict[str, tuple[Change, list[Any], dict[str, int]]] = {
    "03-repeated-step": (lambda d: d["steps"].insert(3, d["steps"][2]), [*CALLS, KID], {"repeated step": 1}),
    "19-out-of-order": (_swap, [*CALLS, KID], {"out of order": 1}),
    "23-image": (_image, [*CALLS, KID], {"tokens estimated from text": 4}),
    "32-float-epoch": (_step(3, timestamp=1772355615.0), [*CALLS, KID], {}),
    "33-line-separators": (_step(0, message="a\u2028b\x85c"), [*CALLS, KID], {}),
    "36-no-times-at-all": (_timeless, ABSENT, {"call without a time": 5}),
    "36-tools-without-times": (
        _no_spans, [(0.0, 2.0, "inferred"), (2.0, 7.0, "inferred"), *CALLS[2:], KID], {BLURRED: 1},
    ),
    "38-end-before-start": (
        _step(3, timestamp="2026-03-01T09:00:08Z"),
        [*CALLS[:2], (8.0, 0.0, "absent"), CALLS[3], KID],
        {"call of negative time": 1},
    ),
    "39-absurd-time": (
        _step(5, timestamp="9999-01-01T00:00:00Z"), [*CALLS[:3], (45.0, 0.0, "absent"), KID],
        {"step without a time": 1},
    ),
    "39-a-span-of-the-whole-run": (_wrapper, [*CALLS, KID], {"span over several steps left out": 1}),
    "41-cached-over-prompt": (
        _step(3, metrics={"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": 9}),
        [*CALLS, KID],
        {"more cached tokens than prompt": 1},
    ),
    "44-sub-agent-in-another-file": (
        _apart, [*CALLS[:2], (9.0, 6.0, "inferred"), CALLS[3]], {"sub-agent in another file": 1, BLURRED: 1},
    ),
    "46-total-steps-is-not-the-count": (_total_steps, [*CALLS, KID], {}),
    "no-model-call-in-the-step": (
        _step(3, llm_call_count=0), [*CALLS[:2], CALLS[3], KID], {"step without a model call": 1},
    ),
    "a-sum-of-two-calls": (
        _step(1, llm_call_count=2), [*HALVES, *CALLS[1:], KID], {"call known only as part of a sum": 2},
    ),
    "an-absurd-sum": (_step(1, llm_call_count=10**12), [*CALLS, KID], {}),
    "unknown-version": (_version, [*CALLS, KID], {"version of ATIF that is not known here": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("change", "calls", "odd"), ODD.values(), ids=ODD.keys())
def test_odd_input_has_the_right_answer_and_is_counted(
    change: Change, calls: list[Any], odd: dict[str, int], tmp_path: Path
) -> None:
    session = one(PLUGIN, changed(DOC, change), tmp_path / "trajectory.json")
    assert calls_of(session) == calls
    assert {what: session.odd.get(what) for what in odd} == odd


def test_a_sum_is_divided_without_losing_a_token(tmp_path: Path) -> None:
    session = one(PLUGIN, changed(DOC, _step(1, llm_call_count=3)), tmp_path / "trajectory.json")
    parts = tokens_of(session)[:3]
    assert tuple(map(sum, zip(*parts, strict=True))) == (100, 30, 20)


def test_estimates_are_brought_to_the_totals_of_the_trajectory(tmp_path: Path) -> None:
    session = one(PLUGIN, changed(DOC, _no_metrics), tmp_path / "trajectory.json")
    assert sum(call.prompt_tokens for call in session.lanes[0].calls) == 570
    assert sum(call.output_tokens for call in session.lanes[0].calls) == 37


def test_the_harness_may_know_how_long_a_tool_took(tmp_path: Path) -> None:
    data = changed(DOC, _no_spans)
    data["steps"][1]["tool_calls"][0]["extra"] = {"duration_ms": 2500}
    data["steps"][1]["tool_calls"][1]["extra"] = {"execution_time": 4.0}
    session = one(PLUGIN, data, tmp_path / "trajectory.json")
    assert waits_of(session)[:2] == [("tool", "read_file", 2.0, 2.5), ("tool", "search", 2.0, 4.0)]
    assert calls_of(session)[1] == (6.0, 3.0, "inferred")


def test_a_summary_whose_calls_are_elsewhere_is_a_compaction(tmp_path: Path) -> None:
    ref = {"subagent_trajectory_ref": [{"session_id": "x", "trajectory_path": "/etc/passwd"}]}
    step = {
        "source": "system",
        "message": "Performed context summarization",
        "observation": {"results": [ref]},
    }
    data = changed(DOC, _apart)
    data["steps"].insert(4, step | {"timestamp": "2026-03-01T09:00:16Z"})
    for key, item in enumerate(data["steps"], 1):
        item["step_id"] = key
    session = one(PLUGIN, data, tmp_path / "trajectory.json")
    assert [type(e) for e in session.lanes[0].events].count(RecordedCompaction) == 1
    assert session.odd["sub-agent in another file"] == 2


def test_sub_agents_within_sub_agents_end_at_a_depth(tmp_path: Path) -> None:
    inner = deepcopy(DOC["subagent_trajectories"][0])
    for depth in range(MAX_DEPTH + 2):
        inner = deepcopy(DOC["subagent_trajectories"][0]) | {
            "subagent_trajectories": [inner],
            "session_id": f"{depth}",
        }
    session = one(
        PLUGIN, changed(DOC, lambda d: d.update(subagent_trajectories=[inner])), tmp_path / "trajectory.json"
    )
    assert len(session.lanes) == MAX_DEPTH
    assert session.odd[f"sub-agent over {MAX_DEPTH} deep left out"] == 1


def test_documents_one_a_line_are_sessions_and_21_the_cut_off_one_is_counted(tmp_path: Path) -> None:
    line = json.dumps(DOC)
    sessions = read(PLUGIN, f"{line}\n{line}\n{line[:500]}", tmp_path / "all.jsonl")
    assert len(sessions) == 2
    assert sessions[1].odd["line that is not JSON"] == 1


def test_34_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    assert one(PLUGIN, b"\xef\xbb\xbf" + AGENTS.read_bytes(), path) == sessions_in(PLUGIN, AGENTS)[0]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"schema_version": "ATIF-v1.6", "steps": []}', b"{\n"]
)
def test_what_holds_no_call_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"none\.json:\d: "):
        read(PLUGIN, content, tmp_path / "none.json")


@settings(max_examples=200)
@given(data=st.data())
def test_damage_never_raises_anything_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "atif"
    folder.mkdir(exist_ok=True)
    path = folder / "trajectory.json"
    check_damaged(PLUGIN, path, json.dumps(with_wrong_values(data, DOC)).encode())
    check_damaged(PLUGIN, path, damaged(data, AGENTS.read_bytes()))


@needs_logs
def test_exactly_its_own_files_are_recognised() -> None:
    assert recognised(PLUGIN) == [
        "atif/letta_atif_tool-calls.json",
        *(f"atif/nemo_exmp0{number}_atif.json" for number in (1, 3, 4, 6)),
        "atif/phoenix_harbor_openhands.json",
        *(
            f"atif/phoenix_harbor_terminus2_{part}.json"
            for part in (
                "continuation",
                "continuation_cont1",
                "sub_answers",
                "sub_summary",
                "summarization",
                "timeout",
            )
        ),
    ]


@needs_logs
def test_real_trajectories_keep_every_token_of_their_steps() -> None:
    for name in recognised(PLUGIN):
        steps = json.loads((LOGS / name).read_text())["steps"]
        known = [s["metrics"] for s in steps if s.get("metrics") and not s.get("is_copied_context")]
        [session] = sessions_in(PLUGIN, LOGS / name)
        if known:
            assert [(p, o) for p, _, o in tokens_of(session)] == [
                (m["prompt_tokens"], m["completion_tokens"]) for m in known
            ]


@needs_logs
def test_a_real_trajectory_with_spans_has_them() -> None:
    [session] = sessions_in(PLUGIN, LOGS / "atif" / "nemo_exmp04_atif.json")
    assert calls_of(session) == [(0.0, 1.0, "measured"), (4.0, 1.0, "measured")]
    assert waits_of(session) == [("tool", "read_file", 2.0, 1.0)]
