"""Codex rollouts: a call is a change of the total usage, forks replay their parent, three generations."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import DATA, LOGS, check_damaged, checked, damaged_or_wrong, needs_logs, recognised, told

from agentsim.errors import ImportFormatError
from agentsim.importers._split import observed_split
from agentsim.importers.codex import PLUGIN
from agentsim.recorded import RecordedCall, RecordedLane, RecordedSession, RecordedWait

REAL = sorted((LOGS / "codex").glob("*.jsonl"))


def load(name: str) -> RecordedSession:
    [session] = PLUGIN.sessions(str(DATA / f"codex_{name}.jsonl"))
    return checked(session)


PLAIN = ["0+3 call 100/60/20", "3+2 tool exec_command", "5+3 call 130/100/10"]
OWN = ["0+3 call 400/300/33", "3+2 tool exec_command", "5+3 call 450/400/11"]
ESTIMATED = {"tokens estimated from text": 2}

ISSUES: dict[str, tuple[list[str], dict[str, int]]] = {
    "plain": (PLAIN, {}),
    "two_turns": (
        [
            *PLAIN,
            "8.1+50.9 human human",
            "59+3 call 150/120/7",
            "62+2 tool exec_command",
            "64+3 call 170/150/6",
        ],
        {},
    ),
    "21_truncated": (PLAIN, {"row cut off or not JSON": 1}),
    "25_usage_told_again": (PLAIN, {"usage told again": 3}),
    "28_rows_written_again": (PLAIN, {"row written again": 13}),
    "26_fork_replays_at_once": (OWN, {"call replayed from the parent session": 4}),
    "26_fork_replays_old_times": (
        OWN,
        {
            "call replayed from the parent session": 4,
            "sub-agent of another session, in a file of its own": 1,
        },
    ),
    "26_sub_agent_without_replay": (
        PLAIN,
        {"sub-agent of another session, in a file of its own": 1},
    ),
    "27_two_calls_alike": (["0+3 call 100/60/20", "3+5 human human", "8+3 call 100/60/20"], {}),
    "29_usage_before_the_model": (["0+3 call 100/60/20", "3+2 human human", "5+2 call 120/90/5"], {}),
    "30_half_written_rows": (PLAIN, {"row cut off or not JSON": 2}),
    "32_epochs_and_naive_times": (PLAIN, {"time without zone, read as UTC": 1}),
    "33_line_separators_in_strings": (["0+3 call 100/60/20"], {}),
    "34_byte_order_mark": (PLAIN, {}),
    "35_parallel_tools": (
        [
            "0+2.4 call 100/60/20",
            "2+0.7 tool exec_command",
            "2.2+2 tool apply_patch",
            "2.4+6 tool exec_command",
            "8.4+2.6 call 140/100/9",
        ],
        {},
    ),
    "38_result_before_its_call": (
        ["0+2 call 100/60/20", "2+0 tool exec_command", "2+3 call 90/90/5"],
        {"tool result earlier than its call": 1},
    ),
    "approval": (
        [
            "0+2 call 100/60/20",
            "2+58 human approval or suspend",
            "60+2 tool exec_command",
            "62+3 call 120/90/5",
            "65+30 human request_user_input",
            "95+3 call 130/120/5",
        ],
        {"wait beside a tool, taken as approval or suspend": 1},
    ),
    "approval_never": (
        [
            "0+2 call 100/60/20",
            "2+58 harness approval or suspend",
            "60+2 tool exec_command",
            "62+3 call 120/90/5",
            "65+30 human request_user_input",
            "95+3 call 130/120/5",
        ],
        {"wait beside a tool, taken as approval or suspend": 1},
    ),
    "compaction_and_first_token": (
        [*PLAIN, "8.1+10.9 compaction 50", "19+10 human human", "29+4 call 50/0/6"],
        {"tokens of a summary estimated from text": 1},
    ),
    "rows_behind_their_usage": (["0+5 call 100/60/20", "5+3 tool shell", "8+3.5 call 140/100/9"], {}),
    "output_before_usage": (
        ["0+2 call 100/60/20", "2+2 tool exec_command", "4+3 call 140/100/9"],
        {},
    ),
    "said_meanwhile": (["0+6 call 100/60/20", "6+2 call 140/100/9"], {}),
    "totals_only": (["0+3 call 100/60/20", "3+2 human human", "5+3 call 150/120/7"], {}),
    "turn_broken_off": (
        ["0+2 harness answer broken off", "4+15 human human", "19+4 call 100/60/20"],
        {"answer without usage": 1, "turn broken off by the user": 1},
    ),
    "no_usage": (["0+2 call 2/0/1", "2+3 tool exec_command", "5+3 call 3/0/1"], ESTIMATED),
    "first_generation": (
        ["0+0 call 143/0/10 absent", "0+2.5 tool shell", "2.5+0 call 153/0/20 absent"],
        ESTIMATED | {"row without a time": 5},
    ),
}


@pytest.mark.parametrize("name", ISSUES)
def test_an_input_that_broke_other_tools_gives_the_right_answer(name: str) -> None:
    events, odd = ISSUES[name]
    session = load(name)
    assert [told(lane) for lane in session.lanes] == [events]
    assert session.odd == odd


def test_a_session_is_called_by_its_own_id_and_not_by_its_parents() -> None:
    assert load("26_fork_replays_at_once").name == "child"
    assert load("26_sub_agent_without_replay").name == "kid"
    assert load("first_generation").name == "old-1"


def test_a_model_that_is_named_only_later_counts_for_the_calls_before() -> None:
    assert [call.model for call in load("29_usage_before_the_model").calls] == ["gpt-late", "gpt-late"]


def test_reasoning_is_part_of_the_output_and_the_first_token_belongs_to_the_first_call_of_its_turn() -> None:
    assert [call.thinking_tokens for call in load("plain").calls] == [8, 0]
    assert [call.ttft_s for call in load("compaction_and_first_token").calls] == [None, None, 1.5]


def test_a_tool_with_a_clock_of_its_own_is_measured_and_one_without_is_inferred() -> None:
    def timings(name: str) -> list[str]:
        return [e.timing for e in load(name).lanes[0].events if isinstance(e, RecordedWait)]

    assert timings("35_parallel_tools") == ["measured"] * 3
    assert timings("no_usage") == ["inferred"]


@pytest.mark.parametrize("rows", ["", "{}", '{"type":"session_meta","payload":{"id":"x"}}\n', "\n\n"])
def test_what_holds_no_call_is_one_line_with_the_file(rows: str, tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(rows)
    with pytest.raises(ImportFormatError, match=r"rollout.jsonl:1: no (model call|row of it)"):
        list(PLUGIN.sessions(str(file)))


FUZZED = ("plain", "26_fork_replays_at_once", "35_parallel_tools", "rows_behind_their_usage", "no_usage")


@settings(max_examples=300)
@given(data=st.data(), name=st.sampled_from(FUZZED))
def test_a_damaged_log_ends_in_a_session_or_in_one_line(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged_codex.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, (DATA / f"codex_{name}.jsonl").read_bytes()))


# ---- real rollouts

NO_USAGE = "agent-sessions_codex_050_legacy"


@needs_logs
def test_exactly_its_own_files_are_recognised() -> None:
    assert [LOGS / name for name in recognised(PLUGIN)] == REAL


@needs_logs
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_a_real_rollout_is_a_sound_session(path: Path) -> None:
    if path.stem == NO_USAGE:
        with pytest.raises(ImportFormatError, match="no model call"):
            list(PLUGIN.sessions(str(path)))
        return
    [session] = PLUGIN.sessions(str(path))
    checked(session)


def turns(lane: RecordedLane) -> list[list[RecordedCall | RecordedWait]]:
    """Return the events between the waits for a human."""
    found: list[list[RecordedCall | RecordedWait]] = [[]]
    for event in lane.events:
        if isinstance(event, RecordedWait) and event.kind == "human":
            found.append([])
        elif isinstance(event, RecordedCall | RecordedWait):
            found[-1].append(event)
    return found


def union_s(events: list[RecordedCall | RecordedWait]) -> float:
    total, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda e: e.start_s):
        total += max(event.end_s - max(event.start_s, until), 0.0)
        until = max(until, event.end_s)
    return total


@needs_logs
def test_the_turns_of_a_real_rollout_split_as_its_times_say() -> None:
    [session] = PLUGIN.sessions(str(LOGS / "codex" / "rollout-tracelab_example_session.jsonl"))
    found = turns(session.lanes[0])
    elapsed = [max(e.end_s for e in turn) - min(e.start_s for e in turn) for turn in found]
    model = [sum(e.duration_s for e in turn if isinstance(e, RecordedCall)) for turn in found]
    tool = [union_s([e for e in turn if isinstance(e, RecordedWait)]) for turn in found]
    assert elapsed == pytest.approx([24.05, 7.15, 5.16], rel=0.01)
    assert model == pytest.approx([17.67, 7.09, 5.10], rel=0.01)
    assert tool == pytest.approx([6.42, 0.11, 0.06], rel=0.01, abs=0.005)


@needs_logs
def test_a_real_rollout_has_a_call_for_each_change_of_the_total() -> None:
    [session] = PLUGIN.sessions(str(LOGS / "codex" / "rollout-tracelab_example_session.jsonl"))
    assert len(list(session.calls)) == 9
    assert sum(call.prompt_tokens for call in session.calls) == 95_819
    assert sum(call.cached_tokens for call in session.calls) == 79_488
    split = observed_split(session)
    assert split.residual_s < 0.001 * split.elapsed_s
