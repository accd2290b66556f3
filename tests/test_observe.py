"""What recorded sessions tell of themselves, and that a replay gives the same time back."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from agentsim import yaml_file
from agentsim.compile import compile_plan
from agentsim.errors import ImportFormatError
from agentsim.importers._build import workflow_document
from agentsim.importers._folder import Walk, sessions_below
from agentsim.importers._observe import observe
from agentsim.recorded import RecordedCall, RecordedCompaction, RecordedLane, RecordedSession, RecordedWait
from agentsim.result import Part
from agentsim.sim.engine import simulate
from agentsim.verbs_logs import import_folder, observe_logs
from agentsim.workflow.load import check_document

DATA = Path(__file__).parent / "data"
LOGS = Path(__file__).parents[1].parent / "shared" / "logs"
WEKA = sorted((LOGS / "weka").glob("*.json"))


def call(start, length, prompt=1000, cached=0, output=50, **more):
    return RecordedCall(start, length, "m", prompt, cached, output, **more)


def tool(start, length, name="bash"):
    return RecordedWait(start, length, "tool", name)


def human(start, length):
    return RecordedWait(start, length, "human", "user")


def session(*events, lanes=()):
    return RecordedSession("s", "made", (RecordedLane("main", None, events), *lanes))


def replay(recorded):
    workflow = check_document(yaml_file.parse(workflow_document(recorded), "s.yaml"))
    return simulate(compile_plan(workflow, "recorded"))


PLAIN = session(
    call(0, 4, ttft_s=1.5), tool(4, 6), call(10, 5, 1100, 1000), human(15, 60), call(75, 3, 1200, 1100)
)


def test_a_session_tells_model_tool_and_human_time():
    seen = observe(PLAIN)
    assert (seen.model_s, seen.tool_s, seen.split.human_s, seen.task_s) == pytest.approx((12, 6, 60, 18))
    assert (seen.model_calls, seen.tool_calls, seen.sub_agents) == (3, 1, 0)
    assert seen.slowest[0].name == "bash"


def test_a_replay_takes_the_recorded_time():
    result = replay(PLAIN)
    assert result.task.completion_ns == 18_000_000_000
    assert result.task.human_ns == 60_000_000_000
    assert result.task.parts_ns[Part.TOOL] == 6_000_000_000


def test_a_replay_keeps_the_recorded_time_to_the_first_token():
    assert replay(PLAIN).turns[0].ttft_ns == 1_500_000_000


def test_a_replay_counts_the_calls_without_a_recorded_time():
    result = replay(session(call(0, 0, timing="absent"), tool(0, 5), call(5, 2)))
    assert list(result.warnings.values()) == [1]
    assert result.task.completion_ns == 7_000_000_000


def test_a_compaction_takes_its_recorded_time_in_a_replay():
    recorded = session(call(0, 2, 9000), RecordedCompaction(2, 30, 400), call(32, 1, 500, 100))
    result = replay(recorded)
    assert result.task.completion_ns == 33_000_000_000
    assert result.task.parts_ns[Part.COMPACTION] == 30_000_000_000


def test_sub_agents_side_by_side_replay_side_by_side():
    lanes = [RecordedLane(f"a{i}", "main", (call(5, 6 + i),)) for i in range(4)]
    result = replay(session(call(0, 5), tool(5, 9, "Task"), call(14, 1), lanes=lanes))
    assert result.task.completion_ns == 15_000_000_000


@pytest.mark.skipif(not WEKA, reason="the shared logs are not here")
@pytest.mark.parametrize("path", WEKA, ids=lambda path: path.stem)
def test_a_real_session_replays_in_its_busy_time(path):
    [recorded] = sessions_below(str(path), Walk())
    busy = observe(recorded).task_s
    assert replay(recorded).task.completion_ns / 1e9 == pytest.approx(busy, rel=0.005)


# folders


@pytest.fixture
def folder(tmp_path):
    for name in ("weka_plain.json", "weka_odd.json"):
        (tmp_path / "logs" / name[:6]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "logs" / name[:6] / name).write_bytes((DATA / name).read_bytes())
    (tmp_path / "logs" / "notes.txt").write_text("no log\n")
    (tmp_path / "logs" / "cut.json").write_text('{"id": "x", "requests": [')
    return tmp_path / "logs"


def test_a_folder_is_observed_whole_and_what_is_no_log_is_passed_over(folder):
    observed = observe_logs(str(folder))
    assert sorted(o.session for o in observed.sessions) == ["odd", "plain"]
    assert sum(len(places) for places in observed.passed_over.values()) == 2


def test_loops_sockets_and_dead_links_are_passed_over(folder):
    os.symlink(folder, folder / "loop")
    os.symlink(folder / "nowhere", folder / "dead")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "s"))
        observed = observe_logs(str(folder))
    assert len(observed.sessions) == 2
    assert sorted(Path(p).name for p in observed.passed_over["not a plain file"]) == ["dead", "s"]


def test_a_folder_is_imported_a_file_a_session(folder, tmp_path):
    import_folder(str(folder), str(tmp_path / "out"), None)
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == ["odd.yaml", "plain.yaml"]
    for path in written:
        check_document(yaml_file.read(str(path)))


def test_a_folder_without_a_log_says_so(tmp_path):
    (tmp_path / "a.txt").write_text("nothing\n")
    with pytest.raises(ImportFormatError, match="no session in it"):
        observe_logs(str(tmp_path))


def test_the_json_of_a_session_has_the_agreed_keys():
    keys = {
        "session", "task_s", "model_s", "tool_s", "human_s", "residual_s", "model_calls", "tool_calls",
        "sub_agents", "tokens", "durations", "skipped",
    }  # fmt: skip
    data = observe(PLAIN).to_json()
    assert keys <= set(data)
    assert set(data["durations"]) == {"measured", "inferred", "absent"}
    assert json.loads(json.dumps(data)) == data
    assert data["model_s"] + data["tool_s"] + data["residual_s"] == pytest.approx(data["task_s"])


def test_a_session_that_two_files_hold_counts_once(folder):
    (folder / "copy.json").write_bytes((DATA / "weka_plain.json").read_bytes())
    observed = observe_logs(str(folder))
    assert sorted(o.session for o in observed.sessions) == ["odd", "plain"]
    assert list(observed.passed_over["a session that another file holds, too"])


@pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")
def test_sub_agents_files_are_read_with_their_session():
    observed = observe_logs(str(LOGS / "claude-code"))
    parallel = next(o for o in observed.sessions if o.sub_agents == 4)
    assert parallel.session.startswith("b3a7bd3c")
    assert len(observed.passed_over["part of another file's session"]) == 5


@pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")
def test_every_log_of_every_format_replays_in_its_busy_time():
    """Within half a percent and a tenth of a second; sessions without readable times are left out."""
    off = []
    for recorded in sessions_below(str(LOGS), Walk()):
        seen = observe(recorded)
        untimed = seen.durations["absent"] or "time not readable" in recorded.odd
        if untimed or recorded.format in ("mooncake", "swe_agent") or not seen.model_calls:
            continue
        took = replay(recorded).task.completion_ns / 1e9
        if took != pytest.approx(seen.task_s, rel=0.005, abs=0.1):
            off.append((recorded.format, recorded.name, took, seen.task_s))
    assert off == []
