"""Many recorded sessions on several deployments: each as it would be alone, none lost, the same for all."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from importer_checks import DATA, workflow_of
from test_cli import data, invoke, printed, sessions_file

from agentsim.claims import HOURS_TO_MINUTES
from agentsim.compile import compile_plan
from agentsim.errors import AgentsimError, InfeasibleError
from agentsim.importers._folder import Walk, sessions_below
from agentsim.importers._task import recorded_task, unquoted
from agentsim.population import EDGES, PARTIAL, histogram, population_of, quantiles, with_people
from agentsim.recorded import PARTIAL_OUTPUT, RecordedCall, RecordedLane, RecordedSession, RecordedWait
from agentsim.sim.engine import simulate

ON = ("coding-tool", "endpoint-100")
SHARED = Path(__file__).parents[2] / "shared" / "validation" / "agent_sessions.jsonl.gz"


def readable():
    """Return every session of the test data that can be read."""
    found = []
    for path in sorted(DATA.glob("*")):
        if path.is_file():
            try:
                found += list(sessions_below(str(path), Walk()))
            except AgentsimError:
                continue
    return [session for session in found if any(session.calls)]


SESSIONS = readable()


def session(name="s", calls=5, prompt=1000, wait_s=10.0, wait="tools and waits"):
    """Return a made-up session of one lane."""
    events, clock = [], 0.0
    for _ in range(calls):
        events.append(RecordedCall(clock, 2.0, "m", prompt, 0, 100))
        events.append(RecordedWait(clock + 2.0, wait_s, "tool", wait))
        clock += 2.0 + wait_s
    return RecordedSession(name, "made", (RecordedLane("main", None, tuple(events)),))


def of(sessions, on=ON, **options):
    return population_of("made", sessions, on, (), HOURS_TO_MINUTES, **options)


def test_there_are_sessions_of_many_formats_to_test_with():
    assert len({session.format for session in SESSIONS}) >= 8


@pytest.mark.parametrize("name", ["coding-tool", "recorded"])
def test_a_session_runs_as_its_workflow_file_does(name):
    for recorded in SESSIONS:
        plan = compile_plan(workflow_of(recorded), name)
        direct = replace(plan, task=recorded_task(recorded))
        theirs, ours = simulate(plan, 3), simulate(direct, 3)
        assert (ours.tasks, ours.turns, ours.spans) == (theirs.tasks, theirs.turns, theirs.spans), (
            recorded.name
        )


@pytest.mark.parametrize("name", ["plain", 'say "no"', "back\\slash", 'both \\" of them', "\\", '"'])
def test_a_name_in_quotes_is_read_back(name):
    from agentsim.importers._build import _quoted

    assert unquoted(_quoted(name)) == name


def test_a_population_of_one_is_the_single_comparison():
    recorded = session(calls=20)
    row = of([recorded]).rows[0]
    for lived, name in zip(row.lived, ON, strict=True):
        assert lived.task_s == simulate(compile_plan(workflow_of(recorded), name)).completion_s()[0]


def test_sessions_that_do_not_fit_are_counted_with_the_reason_and_stand_in_no_distribution():
    fits, too_long = session("a"), [session(n, prompt=300_000) for n in "bc"]
    found = of([fits, *too_long, session("d", calls=0)], ("coding-tool", "8xb200"))
    assert [row.name for row in found.rows] == ["a"]
    assert found.left_out["8xb200"] == {"a context of over 262,144 tokens, the most that it takes": 2}
    assert found.left_out["coding-tool"] == {"no model call in it": 1}
    assert found.sessions == 4
    with pytest.raises(InfeasibleError, match="no session runs on all"):
        of(too_long, ("coding-tool", "8xb200"))


def test_the_claim_is_counted_over_the_sessions_that_are_long_enough_for_it():
    short, tools, writing = session("a"), session("b", wait_s=2000.0), session("c", calls=2000, wait_s=0.0)
    found = of([short, tools, writing], ("coding-tool", "lpx-aa"))
    assert found.begun() == 2
    assert found.kept(1) == 1
    assert found.is_lower_bound(1)
    assert found.slowest()[0].name == "b"


def test_long_waits_that_a_log_does_not_explain_can_be_taken_for_a_persons():
    sessions = [session("a", wait_s=400.0), session("b", wait_s=400.0, wait="pytest")]
    as_it_is, idle = of(sessions), of(sessions, idle_s=300.0)
    assert as_it_is.task_s(0)[0] - idle.task_s(0)[0] == pytest.approx(5 * 400.0)
    assert as_it_is.task_s(0)[1] == idle.task_s(0)[1]
    assert with_people(sessions[0], 500.0) == sessions[0]


def test_the_histogram_counts_every_session_once():
    values = [0.5, 1.0, 1.04, 1.05, 1.9, 2.0, 9.99, 10.0, 1000.0]
    counts = histogram(values)
    assert len(counts) == len(EDGES) + 1
    assert sum(counts) == len(values)
    assert (counts[0], counts[1], counts[-1]) == (1, 2, 2)


def test_quantiles_of_nothing_are_nothing():
    assert quantiles([]) == {}
    assert quantiles([3.0])["p90"] == 3.0


def test_many_sessions_come_to_the_same_on_one_core_and_on_several(monkeypatch):
    sessions = [session(str(n), calls=3 + n, wait_s=float(n)) for n in range(40)]
    monkeypatch.setattr("agentsim.executors.local.ALONE_S", 0.0)
    spread_out = of(sessions).to_json()
    monkeypatch.setattr("agentsim.pool.cores", lambda: 1)
    assert of(sessions).to_json() == spread_out
    assert [entry["name"] for entry in spread_out["list"]] == [str(n) for n in range(40)]


# the command line


@pytest.fixture
def logs(tmp_path):
    """A folder with four sessions in one file, one in another, and a file that is no log."""
    sessions_file(tmp_path / "sessions.jsonl.gz")
    shutil.copy(DATA / "weka_plain.json", tmp_path)
    (tmp_path / "notes.txt").write_text("nothing", "utf-8")
    return str(tmp_path)


COMPARED = ("--on", "coding-tool", "--on", "endpoint-100")


def test_a_folder_of_logs_is_compared_and_says_what_was_passed_over(logs):
    text = printed("compare", logs, *COMPARED)
    for words in ("5 of 5 sessions", "speed-up", "of model time", "slowest tenth waits for", "1 file"):
        assert words in text
    found = data("compare", logs, *COMPARED)
    assert (found["sessions"], found["simulated"]) == (5, 5)
    assert sum(found["deployments"][1]["histogram"]) == 5
    assert sum(found["passed_over"].values()) == 1
    json.dumps(found, allow_nan=False)


def test_the_screen_of_a_population_fits_eighty_columns(logs):
    _, out, _ = invoke("compare", logs, *COMPARED, "--on", "8xb200", "--idle-over", "1 s")
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert "a person's" in out


@pytest.mark.skipif(not SHARED.exists(), reason="the recorded sessions are not here")
def test_hundreds_of_recorded_sessions_run_as_they_are():
    found = data("compare", str(SHARED), "--on", "coding-tool", "--on", "lpx")
    left_out = sum(sum(reasons.values()) for reasons in found["left_out"].values())
    assert (found["sessions"], found["simulated"] + left_out) == (348, 348)
    assert (
        found["deployments"][1]["output_tokens_per_s"] > 20 * found["deployments"][0]["output_tokens_per_s"]
    )
    assert found["deployments"][1]["speedup"]["p50"] < 2


def test_a_session_whose_output_was_counted_in_part_tells_nothing_of_other_hardware():
    whole, part = session("whole", calls=20), session("part", calls=20)
    found = of([whole, replace(part, odd={PARTIAL_OUTPUT: 3}), replace(part, odd={PARTIAL_OUTPUT: 2})])
    assert [row.name for row in found.rows] == ["whole", "part"]
    assert sum(reasons[PARTIAL] for reasons in found.left_out.values()) == 1
