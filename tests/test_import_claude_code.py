"""Claude Code sessions: one call a message id, sub-agents beside it, inputs that broke other tools."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import (
    DATA,
    LOGS,
    check_damaged,
    checked,
    damaged_or_wrong,
    needs_logs,
    recognised,
    told,
)

from agentsim.errors import ImportFormatError
from agentsim.importers.claude_code import PLUGIN
from agentsim.recorded import RecordedSession, RecordedWait

REAL = sorted((LOGS / "claude-code").rglob("*.jsonl"))


def load(name: str) -> RecordedSession:
    [session] = PLUGIN.sessions(str(DATA / f"claude_code_{name}"))
    return checked(session)


A = "115/100/20"
PLAIN = [f"0+5 call {A}", "5+3 tool Bash", "8+4 call 138/110/9"]
AGENT = ["4.5+3 call 405/0/20", "7.5+1 tool Read", "8.5+6 call 465/400/30"]
AROUND = ["0+4 call 910/0/30", "4+11 tool Task", "15+3 call 950/900/9"]

ISSUES: dict[str, tuple[list[list[str]], dict[str, int]]] = {
    "01_partial_output": ([["0+6 call 115/100/285"]], {}),
    "02_no_request_id": ([[f"0+4 call {A}"]], {}),
    "03_tools_in_later_rows": (
        [["0+4 call 115/100/30", "3+2 tool Read", "4+2 tool Grep", f"6+3 call {A}"]],
        {},
    ),
    "04_request_id_in_some_rows": ([[f"0+4 call {A}"]], {}),
    "05_answer_written_again_later": (
        [["0+4 call 905/0/5", "4+7.5 human human", "11.5+2.5 call 924/900/6"]],
        {"answer written again": 1},
    ),
    "06_rows_copied_byte_by_byte": ([PLAIN], {"row written again": 5}),
    "07_prefill_row": ([["0+5 call 900/0/44"]], {}),
    "08_sub_agent": ([AROUND, AGENT], {}),
    "09_nested_sub_agents": (
        [
            AROUND,
            [*AGENT[:2], "8.5+1.5 call 465/400/30", "10+4 tool Task", "14+0.5 call 525/460/30"],
            ["10.2+3.7 call 305/0/12"],
        ],
        {},
    ),
    "10_orphan_sub_agent": ([[AROUND[0], "4+11 tool Agent", AROUND[2]], AGENT], {}),
    "12_inline_sidechain": (
        [[f"0+4 call {A}", "4+11 tool Task", f"15+3 call {A}"], AGENT],
        {},
    ),
    "13_times_are_ends": ([PLAIN], {}),
    "14_idle": ([[*PLAIN, "12+2988 human human", f"3000+4 call {A}"]], {}),
    "15_resumed_after_28_days": (
        [[*PLAIN, "12+2.4192e+06 human human", "2.41921e+06+3 call 9/0/3"]],
        {},
    ),
    "17_generation_after_a_tool": ([[f"0+3 call {A}", "3+1 tool Bash", f"4+40 call {A}"]], {}),
    "18_history_appended_again": (
        [
            [
                *PLAIN,
                "12+2 human human",
                "14+6 compaction 100",
                "20.1+3.9 call 125/0/9",
                "24+6 human human",
                f"30+3 call {A}",
            ]
        ],
        {"row written again": 5, "tokens of a summary estimated from text": 1},
    ),
    "19_parallel_results_out_of_order": (
        [[f"0+3.2 call {A}", "3+6 tool Read", "3.2+1.8 tool Grep", f"9+3 call {A}"]],
        {},
    ),
    "19_rewind": (
        [[f"0+4 call {A}", "4+6 human human", f"10+3 call {A}", "13+7 human human", f"20+6 call {A}"]],
        {},
    ),
    "20_parent_in_a_deleted_file": (
        [["0+0 compaction 10", "0+2 human human", f"2+3 call {A}"]],
        {"tokens of a summary estimated from text": 1},
    ),
    "21_truncated": ([PLAIN[:2]], {"row cut off or not JSON": 1}),
    "21_zeros_at_the_end": ([PLAIN], {"row cut off or not JSON": 1}),
    "23_image": ([[f"0+3 call {A}"]], {}),
    "24_silent_for_two_weeks": (
        [[f"0+3 call {A}", "3+1 tool Bash", "4+0 call 9/0/3 absent"]],
        {"answer of over an hour, not believed": 1},
    ),
    "32_epochs_and_naive_times": ([PLAIN], {"time without zone, read as UTC": 1}),
    "33_line_separators_in_strings": ([[f"0+3 call {A}"]], {}),
    "34_byte_order_mark": ([PLAIN], {}),
    "35_parallel_tools": (
        [
            [
                f"0+4 call {A}",
                "3+1.2 tool Read",
                "3.7+5.3 tool WebFetch",
                "9.004+0.006 tool Glob",
                f"9.01+2.99 call {A}",
            ]
        ],
        {},
    ),
    "38_result_before_its_call": (
        [[f"0+4 call {A}", "4+0 tool Bash", f"4+5 call {A}"]],
        {"tool result earlier than its call": 1},
    ),
    "39_negative_duration": (
        [[f"0+4 call {A}", "4+2 tool Bash", f"6+3 call {A}"]],
        {"duration negative or absurd": 1},
    ),
    "40_clock_skew": ([[f"0+0 call {A} absent"]], {"answer without a known input": 1}),
    "41_cached_is_apart": ([["0+4 call 12000/9000/10"]], {}),
    "human_waits": (
        [
            [
                f"0+4 call {A}",
                "4+60 human AskUserQuestion",
                f"64+3 call {A}",
                "67+30 human ExitPlanMode",
                f"97+2 call {A}",
                "99+30 human Edit",
                f"129+2 call {A}",
            ]
        ],
        {},
    ),
    "approval": (
        [
            [
                f"0+4 call {A}",
                "4+88 human approval or suspend",
                "92+2 tool Grep",
                f"94+3 call {A}",
                "97+1000 human approval or suspend",
                f"1097+2 call {A}",
            ]
        ],
        {"wait beside a tool, taken as approval or suspend": 2},
    ),
    "api_errors": (
        [["0+5 harness failed attempts and pauses", f"5+4 call {A}"]],
        {"answer made up by the harness, no model call": 1, "failed attempt of a model call": 2},
    ),
    "interrupted": (
        [
            [
                f"0+4 call {A}",
                "4+2 tool Bash",
                "6+10 harness interrupted answer",
                "16+14 human human",
                f"30+3 call {A}",
            ]
        ],
        {"interrupted by the user, the answer lost": 1},
    ),
    "resumed_and_stamped_anew": (
        [
            [
                f"0+0 call {A} absent",
                "0+12 human session closed",
                "12+8 tool Task",
                f"20+0 call {A} absent",
                f"25+3 call {A}",
            ]
        ],
        {"answer stamped anew when the session was resumed": 2},
    ),
    "plain": ([PLAIN], {}),
}


@pytest.mark.parametrize("name", ISSUES)
def test_an_input_that_broke_other_tools_gives_the_right_answer(name: str) -> None:
    lanes, odd = ISSUES[name]
    session = load(f"{name}.jsonl")
    assert [told(lane) for lane in session.lanes] == lanes
    assert session.odd == odd


def test_lanes_are_named_by_the_type_of_their_agent_and_know_who_started_them() -> None:
    lanes = [(lane.name, lane.parent) for lane in load("09_nested_sub_agents.jsonl").lanes]
    assert lanes == [("main", None), ("Explore a1", "main"), ("sub-agent b2", "Explore a1")]
    assert [x.name for x in load("10_orphan_sub_agent.jsonl").lanes] == ["main", "Plan c3"]


def test_a_sub_agents_model_is_its_own() -> None:
    models = [{call.model for call in lane.calls} for lane in load("08_sub_agent.jsonl").lanes]
    assert models == [{"claude-x"}, {"claude-small"}]


def test_sub_agents_files_of_the_older_layout_are_found_by_the_ids_that_the_session_mentions(
    tmp_path: Path,
) -> None:
    main = tmp_path / "s-1.jsonl"
    main.write_bytes((DATA / "claude_code_08_sub_agent.jsonl").read_bytes())
    agent = (DATA / "claude_code_08_sub_agent" / "subagents" / "agent-a1.jsonl").read_bytes()
    (tmp_path / "agent-a1.jsonl").write_bytes(agent)
    (tmp_path / "agent-other.jsonl").write_bytes(agent.replace(b"a1", b"zz"))
    [session] = PLUGIN.sessions(str(main))
    assert [told(lane) for lane in session.lanes] == [AROUND, AGENT]
    assert PLUGIN.main_file_of(str(tmp_path / "agent-a1.jsonl")) == str(main)


def test_a_sub_agents_file_knows_its_session_and_can_be_read_alone() -> None:
    file = DATA / "claude_code_09_nested_sub_agents" / "subagents" / "workflows" / "wf_1" / "agent-b2.jsonl"
    assert PLUGIN.main_file_of(str(file)) == str(DATA / "claude_code_09_nested_sub_agents.jsonl")
    assert PLUGIN.main_file_of(str(DATA / "claude_code_plain.jsonl")) is None
    [session] = PLUGIN.sessions(str(file))
    checked(session)
    assert told(session.lanes[0]) == ["0+3.7 call 305/0/12"]


def test_a_damaged_sub_agents_file_is_counted_and_the_session_still_read(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes((DATA / "claude_code_08_sub_agent.jsonl").read_bytes())
    folder = tmp_path / "s" / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a1.jsonl").write_text("{")
    [session] = PLUGIN.sessions(str(tmp_path / "s.jsonl"))
    assert session.odd == {"row cut off or not JSON": 1, "sub-agent's file not readable": 1}


def test_an_agent_id_in_a_log_never_names_a_file_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text = (DATA / "claude_code_08_sub_agent.jsonl").read_text().replace('"a1"', '"../x"')
    (folder / "s.jsonl").write_text(text)
    (tmp_path / "x.jsonl").write_bytes((DATA / "claude_code_plain.jsonl").read_bytes())
    [session] = PLUGIN.sessions(str(folder / "s.jsonl"))
    assert len(session.lanes) == 1


def test_the_web_export_holds_the_same_rows() -> None:
    assert told(load("export.json").lanes[0]) == PLAIN


def test_a_stream_of_the_sdk_has_tokens_and_no_times() -> None:
    session = load("stream.json")
    assert [told(lane) for lane in session.lanes] == [
        ["0+0 call 24/20/7 absent", "0+0 tool Task", "0+0 call 28/24/9 absent"],
        ["0+0 call 3/0/2 absent"],
    ]
    assert session.lanes[0].events[1].timing == "absent"  # type: ignore[union-attr]
    assert session.odd == {"row without a time": 4}


def test_a_packed_log_is_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl.gz"
    file.write_bytes(gzip.compress((DATA / "claude_code_plain.jsonl").read_bytes()))
    [session] = PLUGIN.sessions(str(file))
    assert told(session.lanes[0]) == PLAIN


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no row of it is a JSON object|the file is empty"),
        (b"hello\n", "no row of it is a JSON object"),
        (b"[1, 2]", "no model call"),
        (b'{"loglines": [', "not JSON"),
        (b'{"type": "user"}\n', "no model call"),
        (b"[" * 100_000, "not JSON"),
        (b"\x1f\x8bxx", "packed file is cut off"),
    ],
    ids=["empty", "text", "numbers", "cut export", "no call", "deep", "gzip"],
)
def test_what_holds_no_call_is_one_line_with_the_file(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(content)
    with pytest.raises(ImportFormatError, match=problem) as error:
        list(PLUGIN.sessions(str(file)))
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


def test_a_session_without_a_call_says_what_it_holds_instead() -> None:
    with pytest.raises(ImportFormatError, match=r"no model call in this log; answer made up by the harness"):
        load("bad_no_call.jsonl")


def test_no_text_of_a_log_is_kept(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (DATA / "claude_code_plain.jsonl").read_text().splitlines()]
    file = tmp_path / "s.jsonl"
    with file.open("w") as out:
        for index in range(40):
            row = json.loads(json.dumps(rows[1]).replace("m1", f"m{index}").replace("u2", f"x{index}"))
            row["message"]["content"] = [{"type": "text", "text": "x" * 500_000}]
            out.write(json.dumps(row) + "\n")
    tracemalloc.start()
    list(PLUGIN.sessions(str(file)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


# ---- damaged files


FUZZED = (
    "plain",
    "08_sub_agent",
    "18_history_appended_again",
    "35_parallel_tools",
    "api_errors",
    "interrupted",
)


@settings(max_examples=300)
@given(data=st.data(), name=st.sampled_from(FUZZED))
def test_a_damaged_log_ends_in_a_session_or_in_one_line(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged_claude_code.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, (DATA / f"claude_code_{name}.jsonl").read_bytes()))


# ---- real sessions


@needs_logs
def test_exactly_its_own_files_are_recognised() -> None:
    assert [LOGS / name for name in recognised(PLUGIN)] == REAL


@needs_logs
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem[:40])
def test_calls_of_a_real_file_are_its_message_ids_and_not_its_rows(path: Path) -> None:
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
    for file in path.with_suffix("").rglob("agent-*.jsonl"):
        rows += [json.loads(line) for line in file.read_bytes().split(b"\n") if line.strip()]
    messages = [row["message"] for row in rows if row.get("type") == "assistant"]
    ids = {m["id"] for m in messages if m.get("id") and m["model"] != "<synthetic>"}
    if not ids:
        with pytest.raises(ImportFormatError, match="no model call"):
            list(PLUGIN.sessions(str(path)))
        return
    [session] = PLUGIN.sessions(str(path))
    checked(session)
    assert len(list(session.calls)) == len(ids)


@needs_logs
def test_the_long_real_session_has_170_calls_in_278_rows() -> None:
    [session] = PLUGIN.sessions(str(LOGS / "claude-code" / "episodic-memory_large.jsonl"))
    assert len(list(session.calls)) == 170


@needs_logs
def test_four_real_sub_agents_side_by_side_do_36_s_of_work_in_11_s() -> None:
    file = "b3a7bd3c-5a10-4e7b-8ff0-7fc0cd6d1093.jsonl"
    [session] = PLUGIN.sessions(str(LOGS / "claude-code" / "vscode-copilot-chat" / file))
    main, *agents = session.lanes
    work = sorted(lane.end_s - lane.start_s for lane in agents)
    assert work == pytest.approx([7.6, 8.6, 9.3, 10.4], rel=0.01)
    tasks = [event for event in main.events if isinstance(event, RecordedWait)]
    elapsed_s = max(x.end_s for x in tasks) - min(x.start_s for x in tasks)
    assert elapsed_s == pytest.approx(11.1, rel=0.01)
    assert {lane.parent for lane in agents} == {"main"}
