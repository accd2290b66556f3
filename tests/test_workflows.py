"""The shipped workflows run, pass the laws, and still teach what their first lines say."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from agentsim import verbs
from agentsim.compare import Comparison
from agentsim.result import Part, Result
from agentsim.summary import Summary
from agentsim.workflow import schema

ROOT = Path(__file__).parents[1]
STARTER = ROOT / "agentsim" / "starter.template.yaml"
SHIPPED = sorted((ROOT / "workflows").glob("*.yaml"))
SEEDS = range(8)
COMPARED = ("coding-tool", "8xb200", "lpx-aa")
LOCAL = re.compile(r"\.\./|(^|[\s(\"'])/\w|~/|\b(shared|validation|facts)/|[A-Z]:\\")

every_file = pytest.mark.parametrize("path", [*SHIPPED, STARTER], ids=lambda path: path.stem)
every_shipped = pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)


def _path(name: str) -> str:
    return str(ROOT / "workflows" / f"{name}.yaml")


@cache
def _compared(name: str) -> Comparison:
    return verbs.compare_deployments(_path(name), COMPARED, SEEDS)


@cache
def _on(name: str, deployment: str) -> Summary:
    """Return the runs of a shipped workflow; its `first` is told span by span."""
    return verbs.run_task(_path(name), deployment, SEEDS)[0]


def _share(summary: Summary, part: Part) -> float:
    return summary.parts_s[part] / summary.completion_s.avg


def _waited_for_slot_s(result: Result) -> float:
    spans = [s for s in result.spans if "waiting for a slot" in s.name]
    return sum(s.end_ns - s.start_ns for s in spans) / 1e9


# every file


@every_file
@pytest.mark.parametrize("deployment", ["endpoint-100", "8xb200"])
def test_it_runs_and_passes_the_laws(path: Path, deployment: str) -> None:
    summary, _ = verbs.run_task(str(path), deployment, range(2))
    assert summary.completion_s.min > 0
    assert summary.model_calls > 0


@every_file
def test_its_lines_fit_a_page_and_name_no_local_path(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert [line for line in lines if "#" in line and len(line) > 100] == []
    assert [line for line in lines if LOCAL.search(line)] == []


@every_shipped
def test_its_head_says_what_it_teaches_and_where_its_figures_come_from(path: Path) -> None:
    head = path.read_text("utf-8").split("\nname:")[0]
    assert "# What it teaches: " in head
    assert "# Where the figures come from\n" in head
    assert f"agentsim compare workflows/{path.name} --on coding-tool" in head


# the starter


def test_the_starter_opens_with_the_line_that_editors_look_for() -> None:
    first = STARTER.read_text("utf-8").splitlines()[0]
    assert first == (
        "# yaml-language-server: $schema=workflow.schema.json   (agentsim schema > workflow.schema.json)"
    )


def test_the_starter_shows_every_kind_of_step() -> None:
    shown = set(re.findall(r"^ *(?:# )?- (\w+):", STARTER.read_text("utf-8"), re.MULTILINE))
    assert set(schema.Step.model_fields) <= shown


# what they teach


def test_the_coding_agent_takes_200_turns_and_passes_200k_tokens() -> None:
    first = _on("coding-agent", "coding-tool").first
    assert len([turn for turn in first.turns if not turn.compaction]) == 200
    assert first.tasks[0].peak_context > 200_000


def test_the_coding_agent_is_not_twice_as_fast_at_fifty_times_the_token_speed() -> None:
    verdict = _compared("coding-agent").verdict
    assert not verdict.holds
    assert verdict.token_speed_ratio is not None
    assert verdict.token_speed_ratio > 20
    assert 1.2 < verdict.speedup < 2.5


def test_the_coding_agents_rare_long_calls_make_most_of_its_tool_time() -> None:
    spans = [s for s in _on("coding-agent", "endpoint-100").first.spans if s.part is Part.TOOL]
    times = [s.end_ns - s.start_ns for s in spans]
    long = [time for time in times if time > 60e9]
    assert len(long) < 0.1 * len(times)
    assert sum(long) > 0.4 * sum(times)


def test_research_spends_a_larger_share_on_prefill_than_coding() -> None:
    research, coding = (_on(name, "coding-tool") for name in ("research-agent", "coding-agent"))
    assert _share(research, Part.PREFILL) > 1.3 * _share(coding, Part.PREFILL)


def test_a_research_speed_up_on_lpx_comes_with_the_warning_that_prefill_is_unknown() -> None:
    fastest = _compared("research-agent").columns[-1]
    assert fastest.parts_s[Part.PREFILL] == 0
    assert any("not published" in str(warning) for warning in fastest.warnings)


def test_the_reviewers_work_adds_up_to_more_than_the_time_that_passes() -> None:
    result = _on("code-review", "coding-tool").first
    reviewers = [s for s in result.spans if s.lane != "main"]
    assert len({s.lane for s in reviewers}) == 5
    elapsed = result.tasks[0].end_ns - result.tasks[0].start_ns
    assert sum(s.end_ns - s.start_ns for s in reviewers) > elapsed


def test_a_second_test_environment_takes_the_queue_out_of_the_review() -> None:
    two, _ = verbs.run_task(_path("code-review"), "coding-tool", SEEDS, ["tools.run_tests.slots=2"])
    assert _waited_for_slot_s(two.first) == 0
    assert two.completion_s.avg < _on("code-review", "coding-tool").completion_s.avg


def test_the_customers_replies_are_told_apart_from_the_support_agents_work() -> None:
    summary = _on("support-agent", "coding-tool")
    elapsed_s = summary.first.tasks[0].end_ns / 1e9
    assert summary.human_s > summary.completion_s.avg
    assert elapsed_s > summary.completion_s.avg


def test_the_network_weighs_more_on_support_the_faster_the_model() -> None:
    slow, _, fast = _compared("support-agent").columns
    assert slow.parts_s[Part.NETWORK] == pytest.approx(fast.parts_s[Part.NETWORK])
    assert _share(fast, Part.NETWORK) > 0.2 > _share(slow, Part.NETWORK)


def test_token_speed_hardly_matters_where_the_agent_waits_for_a_pipeline() -> None:
    verdict = _compared("ci-fix").verdict
    assert verdict.token_speed_ratio is not None
    assert verdict.token_speed_ratio > 20
    assert 1.0 <= verdict.speedup < 1.5


def test_a_third_runner_does_more_for_the_build_than_a_faster_model() -> None:
    assert _waited_for_slot_s(_on("ci-fix", "coding-tool").first) > 0
    three, _ = verbs.run_task(_path("ci-fix"), "coding-tool", SEEDS, ["tools.pipeline.slots=3"])
    assert three.completion_s.p50 < _compared("ci-fix").columns[-1].completion_s.p50


def test_the_recorded_session_keeps_its_calls_and_its_waits() -> None:
    summary = _on("recorded-session", "coding-tool")
    assert summary.model_calls == 21
    assert summary.completion_s.std == pytest.approx(0, abs=1e-6)
    assert summary.human_s > 0
