"""Public benchmarks replayed: the protocol is what runs, and the figures are those of the simulation."""

from __future__ import annotations

from itertools import pairwise

import pytest
from test_cli import data, invoke, printed

from agentsim.bench import bench_plan, protocol_named, run_bench, run_case, sizes_of
from agentsim.errors import UnknownNameError
from agentsim.sim.engine import simulate
from agentsim.specs.anchor import Size

AA, CODING = protocol_named("aa"), protocol_named("speed-coding")


def tokens(protocol):
    return [(size.input_tokens, size.output_tokens) for size in sizes_of(protocol)]


def test_the_protocols_are_the_published_ones():
    assert tokens(AA) == [(1_000, 1_000), (10_000, 1_500), (100_000, 2_000)]
    assert tokens(CODING) == [(251, 524)]
    assert (AA.requests.value, CODING.requests.value) == (50, 80)
    assert (AA.token_ratio.value, AA.token_ratio.basis) == (1.0, "assumed")


@pytest.mark.parametrize("deployment", ["lpx", "gemma-b300-mtp", "coding-tool"])
def test_requests_follow_one_another_with_nothing_cached(deployment):
    plan, _ = bench_plan(AA, deployment)
    turns = simulate(plan, 0).turns
    assert len(turns) == 50
    assert {(turn.prompt, turn.cached, turn.output) for turn in turns} == {(1_000, 0, 1_000)}
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(turns))


def test_speed_counts_what_comes_after_the_first_token():
    """A service of 100 tokens a second: 999 tokens in the time of 1,000."""
    plan, text = bench_plan(AA, "endpoint-100")
    case = run_case(plan, AA, Size(input_tokens=1_000, output_tokens=1_000), [0])
    assert text is None
    assert set(case.speeds) == {99.9}
    assert case.tokens_per_step == ()
    assert case.floor_s is None


def test_a_token_ratio_makes_fewer_tokens_of_the_model_and_the_same_speed_in_the_protocols():
    ratio = AA.token_ratio.__class__(basis="assumed", value=1.25, why="made")
    other = AA.model_copy(update={"token_ratio": ratio})
    plan, _ = bench_plan(other, "endpoint-100")
    [turn] = {(t.prompt, t.output) for t in simulate(plan, 0).turns}
    assert turn == (800, 800)
    case = run_case(plan, other, sizes_of(other)[0], [0])
    assert case.speed() == pytest.approx(125, rel=0.01)


@pytest.mark.parametrize(
    ("protocol", "deployment", "text"),
    [
        (AA, "lpx", "unique"),
        (CODING, "lpx", "code"),
        (CODING, "gemma-b300-mtp-fp4", "code-fp4"),
        (AA, "deepseek-8xb200-mtp3", "code"),
        (AA, "lpx-no-speculation", None),
        (AA, "fastest-public", None),
    ],
)
def test_drafts_are_taken_for_the_protocols_kind_of_text_where_the_drafter_knows_it(
    protocol, deployment, text
):
    assert bench_plan(protocol, deployment)[1] == text


def test_the_yield_differs_from_request_to_request():
    [case] = run_bench("speed-coding", "lpx", range(5)).cases
    assert case.yield_of() == pytest.approx(5.37, rel=0.03)
    assert case.yield_of(0.8) / case.yield_of(0.5) == pytest.approx(case.speed(0.8) / case.speed(), rel=0.01)
    assert 1 <= min(case.tokens_per_step) < max(case.tokens_per_step) <= 8.01


def test_a_size_that_does_not_fit_is_told_and_the_others_run():
    bench = run_bench("aa", "groqchip1-llama70b", [0])
    assert [bool(case.problem) for case in bench.cases] == [False, False, True]
    assert bench.to_json()["cases"][2]["output_tokens_per_s"] is None


def test_the_same_seeds_give_the_same_figures():
    first, second = (run_bench("speed-coding", "lpx", range(2)).to_json() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("protocol", ["aa", "speed-coding"])
@pytest.mark.parametrize("deployment", ["lpx", "lpx-no-speculation", "8xb200", "fastest-public"])
def test_any_deployment_prints_a_table_and_an_object(protocol, deployment, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed("bench", protocol, "--on", deployment, "--runs", "1")
    assert max(map(len, shown.splitlines())) <= 80
    found = data("bench", protocol, "--on", deployment, "--runs", "1")
    assert found.keys() == {
        "schema", "protocol", "deployment", "title", "text", "token_ratio", "seed", "runs", "lower_bound",
        "cases",
    }  # fmt: skip
    for case in found["cases"]:
        assert case["output_tokens_per_s"]["p50"] > 0
        assert case["output_tokens_per_s"].keys() >= {"p80", "p95", "avg"}
        assert (case["floor_s"] is not None) == deployment.startswith("lpx")


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench",),
        ("bench", "aa", "--on", "nope"),
        ("bench", "aa", "--on", "lp30"),
        ("bench", "aa", "--runs", "0"),
        ("bench", "nope"),
    ],
)
def test_bad_input_is_one_line(arguments):
    code, out, err = invoke(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_an_unknown_protocol_is_named_with_those_there_are():
    with pytest.raises(UnknownNameError, match="speed-coding"):
        run_bench("speed-codin", "lpx", [0])
