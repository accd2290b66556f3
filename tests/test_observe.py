"""What recorded sessions tell of themselves, and that a replay gives the same time back."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from test_cli import printed

from agentsim import verbs_logs, yaml_file
from agentsim.compile import compile_plan
from agentsim.errors import ImportFormatError, InputError, OutputError
from agentsim.importers._build import workflow_document
from agentsim.importers._folder import Walk, sessions_below
from agentsim.importers._forks import COPIED, Histories
from agentsim.importers._observe import observe
from agentsim.importers._readable import is_readable
from agentsim.importers.base import importer_of, telling_bytes
from agentsim.recorded import RecordedCall, RecordedCompaction, RecordedLane, RecordedSession, RecordedWait
from agentsim.result import Part
from agentsim.sim.engine import simulate
from agentsim.terminal.console import show_list
from agentsim.units import to_s
from agentsim.verbs_logs import Reading, import_folder, import_session, recorded_at, total_of
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


def observed_at(path):
    """Return the sessions at a path by name, and what was passed over."""
    walk = Walk()
    return {s.name: observe(s) for s in recorded_at(str(path), walk)}, walk.passed_over


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


def test_a_compaction_is_told_apart_from_what_nothing_explains():
    seen = observe(session(call(0, 2, 9000), RecordedCompaction(2, 30, 400), call(35, 1, 500, 100)))
    assert (seen.compaction_s, seen.split.residual_s) == (30, 33)


def test_sub_agents_side_by_side_replay_side_by_side():
    lanes = [RecordedLane(f"a{i}", "main", (call(5, 6 + i),)) for i in range(4)]
    result = replay(session(call(0, 5), tool(5, 9, "Task"), call(14, 1), lanes=lanes))
    assert result.task.completion_ns == 15_000_000_000


def test_a_sub_agent_that_starts_during_a_call_runs_beside_it():
    lanes = [RecordedLane("a", "main", (call(4, 7), tool(11, 2)))]
    result = replay(session(call(0, 2), tool(2, 1), call(3, 19), call(22, 1), lanes=lanes))
    assert result.task.completion_ns == 23_000_000_000
    assert sorted(turn.start_ns / 1e9 for turn in result.turns) == [0, 3, 4, 22]


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
    seen, passed_over = observed_at(folder)
    assert sorted(seen) == ["odd", "plain"]
    assert {reason: len(places) for reason, places in passed_over.items()} == {
        "not a log of a known format": 2,
    }


def test_loops_sockets_pipes_and_dead_links_are_said_and_passed_over(folder):
    os.symlink(folder, folder / "loop")
    os.symlink("self", folder / "self")
    os.symlink(folder / "nowhere", folder / "dead")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "s"))
        seen, passed_over = observed_at(folder)
    assert len(seen) == 2
    assert sorted(Path(p).name for p in passed_over["not a plain file"]) == ["dead", "pipe", "s", "self"]
    assert passed_over["a link to a folder, not followed"] == [str(folder / "loop")]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImportFormatError, match="not a plain file"):
        observed_at(tmp_path / "pipe")


def test_a_file_that_may_not_be_read_is_said_and_passed_over(folder, monkeypatch):
    may_open = open

    def refuse(path, *args, **kwargs):
        if str(path).endswith("cut.json"):
            raise PermissionError(13, "Permission denied")
        return may_open(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", refuse)
    seen, passed_over = observed_at(folder)
    assert len(seen) == 2
    assert passed_over["permission denied"] == [str(folder / "cut.json")]


def test_a_folder_is_imported_a_file_a_session(folder, tmp_path):
    assert len(list(import_folder(str(folder), str(tmp_path / "out"), Walk()))) == 2
    written = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in written] == ["odd.yaml", "plain.yaml"]
    for path in written:
        check_document(yaml_file.read(str(path)))


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(folder):
    with pytest.raises(InputError, match=r"^/dev/null/out: "):
        list(import_folder(str(folder), "/dev/null/out", Walk()))


@pytest.mark.parametrize("name", ["weka_sub_agents.json", "claude_code_human_waits.jsonl", "pi_plain.jsonl"])
def test_a_long_workflow_is_checked_in_parts_and_written_whole(name, tmp_path, monkeypatch):
    output, whole = str(tmp_path / "parts.yaml"), str(tmp_path / "whole.yaml")
    import_session(str(DATA / name), whole)
    monkeypatch.setattr(verbs_logs, "STEPS_CHECKED", 2)
    import_session(str(DATA / name), output)
    assert Path(output).read_text() == Path(whole).read_text()
    check_document(yaml_file.read(output))


def test_an_edited_workflow_is_only_written_over_when_that_is_said(tmp_path):
    log, output = str(DATA / "claude_code_plain.jsonl"), tmp_path / "s.yaml"
    import_session(log, str(output))
    first = output.read_text()
    import_session(str(DATA / "pi_plain.jsonl"), str(output))  # nobody edited it: it is replaced
    assert output.read_text() != first
    output.write_text(first.replace("tokens: 20", "tokens: 21", 1))
    edited = output.read_text()
    assert edited != first
    with pytest.raises(OutputError, match=r"s\.yaml: was edited since it was imported; --force"):
        import_session(log, str(output))
    assert output.read_text() == edited
    import_session(log, str(output), Reading(force=True))
    assert output.read_text() == first


def test_a_large_file_tells_how_much_of_it_was_read(tmp_path, monkeypatch):
    log, told = DATA / "codex_plain.jsonl", []
    monkeypatch.setattr(verbs_logs, "LARGE_BYTES", 100)
    assert verbs_logs.steps_at(str(log)) == log.stat().st_size
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for path in (log, packed):
        told.clear()
        with telling_bytes(told.append):
            assert list(recorded_at(str(path), Walk()))
        assert sum(told) == path.stat().st_size


def test_what_cannot_be_a_workflow_is_an_error_that_names_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(verbs_logs, "workflow_document", lambda _: "name: x\nsteps: [{user: {tokens: -1}}]\n")
    monkeypatch.setattr(verbs_logs, "is_readable", lambda _: False)
    with pytest.raises(
        ImportFormatError, match=r"weka_plain\.json:1: cannot be a workflow: steps\[0\]\.user"
    ):
        import_session(str(DATA / "weka_plain.json"), str(tmp_path / "s.yaml"))


@pytest.mark.parametrize("most", [10, 300])
def test_a_workflow_too_long_to_be_read_again_is_not_written(tmp_path, monkeypatch, most):
    monkeypatch.setattr(yaml_file, "MAX_BYTES", most)
    with pytest.raises(InputError, match=r"s\.yaml: not written: over 0 MiB as a workflow"):
        import_session(str(DATA / "claude_code_plain.jsonl"), str(tmp_path / "s.yaml"))
    assert not (tmp_path / "s.yaml").exists()


def test_a_folder_without_a_log_says_so(tmp_path):
    (tmp_path / "a.txt").write_text("nothing\n")
    with pytest.raises(ImportFormatError, match="no session in it"):
        observed_at(tmp_path)


def test_totals_are_the_sums_of_the_sessions(folder):
    seen, _ = observed_at(folder)
    total = total_of(str(folder), recorded_at(str(folder), Walk()), Walk()).total
    assert total.task_s == pytest.approx(sum(o.task_s for o in seen.values()))
    assert total.model_s + total.tool_s + total.residual_s == pytest.approx(total.task_s)
    assert total.contexts.total() == sum(o.model_calls for o in seen.values())
    contexts = sorted(context for o in seen.values() for context in o.contexts)
    assert (total.context_at(0.0), total.context_at(1.0)) == (contexts[0], contexts[-1])
    assert total.slowest[0].duration_s == max(s.duration_s for o in seen.values() for s in o.slowest)


def test_sessions_of_one_call_add_up_like_any_others():
    alone = [replace(session(call(0, 4.0 + i, 100 + i, 10)), odd={"x": 1}) for i in range(8)]
    longer = [replace(s, lanes=(*s.lanes, RecordedLane("a", "main", ()))) for s in alone]
    short, full = (total_of("", made, Walk()).total for made in (alone, longer))
    assert full.sub_agents == 8
    assert short == replace(full, sub_agents=0)


def test_formats_may_be_named_with_hyphens():
    file = str(DATA / "claude_code_plain.jsonl")
    assert importer_of(file, "claude-code").name == importer_of(file, "claude_code").name == "claude_code"


def test_a_list_is_printed_while_it_is_made(capsys):
    made = ({"session": name, "parts": [1]} for name in "ab")
    show_list(made)
    assert (
        capsys.readouterr().out == json.dumps([{"session": n, "parts": [1]} for n in "ab"], indent=2) + "\n"
    )
    show_list([])
    assert json.loads(capsys.readouterr().out) == []


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
    seen, passed_over = observed_at(folder)
    assert sorted(seen) == ["odd", "plain"]
    assert list(passed_over["a session that another file holds, too"])


@pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")
def test_sub_agents_files_are_read_with_their_session():
    seen, passed_over = observed_at(LOGS / "claude-code")
    [parallel] = [o for o in seen.values() if o.sub_agents == 4]
    assert parallel.session.startswith("b3a7bd3c")
    assert sorted(parallel.to_json()["sub_agents_s"].values()) == pytest.approx(
        [7.6, 8.6, 9.3, 10.4], rel=0.01
    )
    assert len(passed_over["part of another file's session"]) == 5


@pytest.mark.skipif(not LOGS.exists(), reason="the shared logs are not here")
def test_every_log_of_every_format_replays_in_its_busy_time():
    """Within half a percent; a serving trace, of thousands of sessions of one call, is left out."""
    off = []
    for recorded in sessions_below(str(LOGS), Walk()):
        seen = observe(recorded)
        if recorded.format == "mooncake" or not seen.model_calls:
            continue
        took = replay(recorded).task.completion_ns / 1e9
        if took != pytest.approx(seen.task_s, rel=0.005):
            off.append((recorded.format, recorded.name, took, seen.task_s))
    assert off == []


def test_what_a_log_calls_itself_moves_no_cursor(tmp_path):
    log = json.loads((DATA / "weka_plain.json").read_text("utf-8"))
    (tmp_path / "w.json").write_text(json.dumps({**log, "id": "a\x1b[31mb\u2028c\x07"}), "utf-8")
    said = printed("observe", str(tmp_path / "w.json"))
    assert said.startswith("a?[31mb?c\n")


def test_how_long_calls_of_one_agent_overlapped_is_told():
    def of(*starts_s):
        calls = tuple(RecordedCall(start_s, 10.0, "m", 9, 0, 3) for start_s in starts_s)
        return observe(RecordedSession("s", "made", (RecordedLane("main", None, calls),)))

    assert of(0.0, 10.0, 30.0).overlap_s == 0.0
    assert of(0.0, 2.0, 11.0).overlap_s == pytest.approx(8.0 + 1.0)
    assert of(0.0, 2.0).to_json()["overlap_s"] == pytest.approx(8.0)


def test_a_folder_that_nothing_is_written_to_says_why(tmp_path):
    (tmp_path / "logs").mkdir()
    shutil.copy(DATA / "weka_plain.json", tmp_path / "logs")
    list(import_folder(str(tmp_path / "logs"), str(tmp_path / "out"), Walk()))
    (made,) = (tmp_path / "out").iterdir()
    made.write_text(made.read_text("utf-8") + "# mine\n", "utf-8")
    with pytest.raises(InputError, match="was edited since it was imported"):
        list(import_folder(str(tmp_path / "logs"), str(tmp_path / "out"), Walk()))


BEGUN = (call(0, 4), tool(4, 6), call(10, 5, 1100, 1000))


def told_of(*sessions):
    """Return what each session has of its own, read in this order."""
    histories = Histories()
    return [histories.own_part(one) for one in sessions]


def test_of_a_session_that_goes_on_from_another_only_its_own_part_counts():
    before = session(*BEGUN)
    after = session(*BEGUN, human(15, 60), call(75, 3, 1200, 1100), tool(78, 2), call(80, 1, 1300, 1200))
    kept, own = told_of(before, after)
    assert kept == before
    assert own.lanes[0].events == (call(0, 3, 1200, 1100), tool(3, 2), call(5, 1, 1300, 1200))
    assert own.odd == {COPIED: 2}


def test_whichever_of_two_forks_is_read_first_no_call_counts_twice():
    one = session(*BEGUN, call(75, 3, 1200, 1100))
    other = session(*BEGUN, call(90, 2, 1250, 1100))
    for pair in ((one, other), (other, one)):
        assert sum(len(list(found.calls)) for found in told_of(*pair)) == 4


def test_a_session_whose_calls_another_began_with_has_nothing_of_its_own():
    assert told_of(session(*BEGUN, call(75, 3, 1200, 1100)), session(*BEGUN))[1] is None


def test_sessions_that_only_look_alike_are_whole():
    one_call = session(call(0, 4), call(20, 1, 1200))
    assert told_of(session(*BEGUN), one_call)[1] == one_call, "one call may be alike by chance"
    untimed = session(*(replace(event, duration_s=0.0) for event in BEGUN))
    assert told_of(untimed, untimed)[1] == untimed, "runs of a benchmark whose log holds no times"


@pytest.mark.parametrize(
    "events",
    [
        (call(0, 10), call(0, 12)),
        (call(0, 10), call(2, 3), call(4, 20), tool(24, 3), call(27, 1)),
        (call(0, 10), tool(10, 2), call(12, 30), call(15, 2), human(42, 60), call(102, 4)),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_calls_that_ran_beside_one_another_are_replayed_so(events, inside):
    recorded = session(*events)
    if inside:
        lane = RecordedLane("helper", "main", events)
        recorded = session(call(0, 1), call(200, 1), lanes=(replace(lane, events=_later(events, 1.0)),))
    assert is_readable(recorded)
    task = replay(recorded).tasks[0]
    assert to_s(task.completion_ns) == pytest.approx(observe(recorded).task_s, rel=0.005)
    assert task.model_calls == observe(recorded).model_calls


def _later(events, by_s):
    return tuple(replace(event, start_s=event.start_s + by_s) for event in events)
