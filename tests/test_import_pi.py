"""Sessions of pi: measured calls, tools one after another, what was copied or broken off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_checks import DATA, LOGS, check_damaged, checked, damaged_or_wrong, needs_logs, recognised, told

from agentsim.errors import ImportFormatError
from agentsim.importers._split import observed_split
from agentsim.importers.pi import PLUGIN
from agentsim.recorded import RecordedCompaction, RecordedSession, RecordedWait

REAL = LOGS / "pi" / "before-compaction_head.jsonl"


def load(name: str) -> RecordedSession:
    [session] = PLUGIN.sessions(str(DATA / f"pi_{name}.jsonl"))
    return checked(session)


PLAIN = ["0+3.9 call 115/100/20 measured", "3.9+5 tool bash", "9.1+2.8 call 141/115/30 measured"]

ISSUES: dict[str, tuple[list[str], dict[str, int]]] = {
    "plain": (PLAIN, {}),
    "06_rows_copied": (PLAIN, {"row written again": 2}),
    "14_idle": ([*PLAIN, "11.9+48 human human", "59.9+3 call 145/140/9 measured"], {}),
    "21_truncated": (PLAIN[:2], {"row cut off or not JSON": 1}),
    "32_epochs_and_naive_times": (PLAIN, {"time without zone, read as UTC": 1}),
    "33_line_separators_in_strings": (["0+3 call 115/100/20 measured"], {}),
    "34_byte_order_mark": (PLAIN, {}),
    "35_tools_one_after_another": (
        [
            "0+4 call 115/100/20 measured",
            "4+0.5 tool read",
            "4.5+4.5 tool bash",
            "9+0.25 tool read",
            "9.25+1.75 call 115/100/20 measured",
        ],
        {},
    ),
    "38_odd_results_and_counts": (
        ["0+4 call 115/100/20 measured", "4+0 tool bash", "6+3 call 12/10/0 measured"],
        {
            "token count not readable": 2,
            "tool call without result": 1,
            "tool result earlier than its call": 1,
            "tool result without its call": 1,
        },
    ),
    "40_clock_set_back": (
        ["0+0 call 115/100/20 absent", "0+5 human human", "5+4 call 115/100/20 measured"],
        {"clock set back": 1},
    ),
    "aborted": (
        ["0+3 harness answer broken off", "3+7 human human", "10+4 call 115/100/20 measured"],
        {"answer broken off before its tokens were known": 1},
    ),
    "compaction": (
        [*PLAIN, "11.9+40 compaction 100", "51.9+8 human human", "59.9+6 call 900/0/9 measured"],
        {"tokens of a summary estimated from text": 1},
    ),
    "header_later_than_its_rows": (
        PLAIN,
        {"answer from before the session, copied from the one it branched from": 2},
    ),
}


@pytest.mark.parametrize("name", ISSUES)
def test_an_input_that_broke_other_tools_gives_the_right_answer(name: str) -> None:
    events, odd = ISSUES[name]
    session = load(name)
    assert [told(lane) for lane in session.lanes] == [events]
    assert session.odd == odd
    assert session.name == "p-1"


@pytest.mark.parametrize("rows", ["", "x", '{"type":"session","id":"a","cwd":"/"}\n'])
def test_what_holds_no_call_is_one_line_with_the_file(rows: str, tmp_path: Path) -> None:
    file = tmp_path / "pi.jsonl"
    file.write_text(rows)
    with pytest.raises(ImportFormatError, match=r"pi.jsonl:1: no (model call|row of it)"):
        list(PLUGIN.sessions(str(file)))


@settings(max_examples=200)
@given(data=st.data(), name=st.sampled_from(["plain", "35_tools_one_after_another", "compaction", "aborted"]))
def test_a_damaged_log_ends_in_a_session_or_in_one_line(
    data: st.DataObject, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged_pi.jsonl"
    check_damaged(PLUGIN, file, damaged_or_wrong(data, (DATA / f"pi_{name}.jsonl").read_bytes()))


@needs_logs
def test_exactly_its_own_files_are_recognised() -> None:
    assert [LOGS / name for name in recognised(PLUGIN)] == [REAL]


@needs_logs
def test_the_busy_time_of_a_real_session_splits_as_its_times_say() -> None:
    """Known: 25 turns busy for 2360 s; 2131 s of the model, broken-off answers included; 230 s of tools."""
    [session] = PLUGIN.sessions(str(REAL))
    checked(session)
    events = session.lanes[0].events
    split = observed_split(session)
    compacting_s = sum(e.duration_s for e in events if isinstance(e, RecordedCompaction))
    broken_off_s = sum(e.duration_s for e in events if isinstance(e, RecordedWait) and e.kind == "harness")
    assert split.elapsed_s - split.human_s - compacting_s == pytest.approx(2360, rel=0.01)
    assert split.model_s + broken_off_s == pytest.approx(2131, rel=0.01)
    assert split.model_s == pytest.approx(2131, rel=0.01)
    assert split.tool_s == pytest.approx(230, rel=0.01)
    humans = sum(isinstance(e, RecordedWait) and e.kind == "human" for e in events)
    assert humans == 24, "25 turns"


def test_rows_without_an_id_that_stand_twice_count_once(tmp_path):
    rows = [json.loads(line) for line in (DATA / "pi_plain.jsonl").read_text("utf-8").splitlines()]
    plain = [{k: v for k, v in row.items() if k != "id" or row["type"] == "session"} for row in rows]
    once, twice = tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    once.write_text("".join(json.dumps(row) + "\n" for row in plain), "utf-8")
    twice.write_text("".join(json.dumps(row) + "\n" for row in [*plain, *plain[1:]]), "utf-8")
    (one,), (two,) = (list(PLUGIN.sessions(str(path))) for path in (once, twice))
    assert list(two.calls) == list(one.calls)
    assert two.odd["row written again"] == len([row for row in plain if row["type"] != "session"])
