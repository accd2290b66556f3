"""Answers beyond one run: draws, bands, what moves them, claims and what would make them hold."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from conftest import endpoint, plan_of, workflow
from hypothesis import given
from hypothesis import strategies as st
from test_cli import data, invoke, printed

from agentsim.backends.base import IterationCost
from agentsim.claims import HOURS_TO_MINUTES, parse_claim
from agentsim.compare import compare
from agentsim.compile import compile_plan
from agentsim.errors import InputError
from agentsim.levers import DECODE, holds, moved, solve
from agentsim.sensitivity import tornado
from agentsim.sim.engine import simulate
from agentsim.specs import catalog
from agentsim.specs.hardware import Chip
from agentsim.specs.ranges import drawn, is_uncertain, value_at
from agentsim.specs.sourced import Datum, data_of
from agentsim.uncertainty import Band, by_reason, latin_hypercube, sampled, uncertainty_of
from agentsim.variation import Outcome, Variation, study_of, uncertain_data, with_faster_decode
from agentsim.verbs_answers import power_of
from agentsim.workflow.graph import build_task
from agentsim.workflow.scale import Levers, levers_of, scaled

SHARES = st.floats(0.0, 1.0)
TASK = workflow(
    {"user": {"tokens": 1000}},
    {"repeat": {"times": 20, "steps": [{"generate": {"tokens": 300}}, {"call": "test"}]}},
    tools={"test": {"time": {"lognormal": {"median": "5 s", "p90": "15 s"}}}},
    network={"round_trip": "40 ms"},
)
PROFILE = """\
title: made up
fixed: {{value: 1 s, range: [{least}, {most}], basis: assumed, why: made up}}
per_uncached_token: {{value: 1 us/tok, source: here, basis: calibrated, spread: {spread}, fitted_on: nothing}}
per_cached_token: {{value: 0 us/tok, source: here, basis: measured}}
decode_speed: {{value: 50 tok/s, source: here, basis: measured}}
"""


def profile(folder, name="made", least="0.5 s", most="3 s", spread=0.1):
    """Write an endpoint whose fixed time is uncertain; return its path."""
    path = folder / f"{name}.yaml"
    path.write_text(PROFILE.format(least=least, most=most, spread=spread), "utf-8")
    return str(path)


def ranged(value, least, most):
    return Datum(basis="assumed", value=value, range=(least, most), why="made up")


# what a datum may be


@given(SHARES, SHARES)
def test_a_value_rises_with_its_share_from_one_end_of_the_range_to_the_other(one, other):
    datum = ranged(7.4e12, 4.6e12, 2e13)
    low, high = sorted((one, other))
    assert 4.6e12 * (1 - 1e-12) <= value_at(datum, low) <= value_at(datum, high) <= 2e13 * (1 + 1e-12)
    assert value_at(datum, 0.0) == pytest.approx(4.6e12)
    assert value_at(datum, 1.0) == pytest.approx(2e13)
    assert value_at(datum, 0.5) == 7.4e12


@given(SHARES, st.floats(0.1, 1.0), st.floats(1.0, 10.0))
def test_a_wider_range_moves_no_value_inwards(share, shrink, grow):
    narrow, wide = ranged(5.0, 4.0, 6.0), ranged(5.0, 4.0 * shrink, 6.0 * grow)
    inner, outer = value_at(narrow, share), value_at(wide, share)
    assert outer <= inner * (1 + 1e-12) if share < 0.5 else outer >= inner * (1 - 1e-12)


@given(SHARES)
def test_a_range_of_no_width_and_a_datum_without_one_are_always_their_value(share):
    plain = Datum(basis="measured", value=3.0, source="made up")
    for datum in (ranged(3.0, 3.0, 3.0), plain):
        assert not is_uncertain(datum)
        assert value_at(datum, share) == 3.0


@given(SHARES)
def test_chips_lanes_and_budgets_come_in_doublings_and_other_counts_whole(share):
    assert value_at(ranged(128, 32, 256), share) in {32, 64, 128, 256}
    assert isinstance(value_at(ranged(256, 96, 256), share), int)
    assert value_at(ranged(0.0, 0.0, 4.0), share) == pytest.approx(max(4 * (2 * share - 1), 0.0))


def test_a_spread_is_cut_at_two_sigma_and_scales_a_whole_table():
    speeds = catalog.document("endpoints", "claude-opus-4-1")
    from agentsim.specs.endpoint import Endpoint

    datum = catalog.from_document(Endpoint, speeds, "claude-opus-4-1").decode_speed
    low, high = (value_at(datum, share)[0].speed / datum.value[0].speed for share in (0.0, 1.0))
    assert low * high == pytest.approx(1.0)
    assert high == pytest.approx(2.718281828 ** (2 * datum.spread))
    assert value_at(datum, 1.0)[0].context_tokens == datum.value[0].context_tokens


def test_every_uncertain_datum_of_the_catalog_can_be_drawn_at_both_ends():
    kinds = {kind: catalog.schema_of(kind) for kind in catalog.KINDS}
    data = [
        d
        for kind, schema in kinds.items()
        for n in catalog.names(kind)
        for _, d in data_of(catalog.load(schema, n))
    ]
    uncertain = [datum for datum in data if is_uncertain(datum)]
    assert len(uncertain) > 50
    for datum in uncertain:
        assert value_at(datum, 0.0) != value_at(datum, 1.0), datum.name


def test_a_ledger_with_other_values_compiles_what_would_be_if_they_were_so():
    plain = compile_plan(TASK, "lpx")
    name = "lp30.lpu.speculative_step_overhead"
    faster = compile_plan(TASK, "lpx", (), drawn({name: 0.0}))
    assert faster.engines["main"].step_overhead_s < plain.engines["main"].step_overhead_s
    assert [used.name for used in faster.sources] == [used.name for used in plain.sources]


def test_a_range_with_fewer_numbers_than_its_value_is_refused():
    with pytest.raises(ValueError, match="as many numbers"):
        ranged((0.5, 0.6), (0.5,), (0.6, 0.7))


# the draws


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_a_latin_hypercube_has_each_stratum_exactly_once(samples, seed):
    drawn_shares = latin_hypercube(["a", "b"], samples, seed)
    for name in ("a", "b"):
        assert sorted(int(shares[name] * samples) for shares in drawn_shares) == list(range(samples))


def test_another_datum_moves_no_draw_of_the_others():
    alone, beside = latin_hypercube(["a"], 20, 7), latin_hypercube(["b", "a"], 20, 7)
    assert [s["a"] for s in alone] == [s["a"] for s in beside]
    assert [s["a"] for s in beside] != [s["b"] for s in beside]
    assert alone != latin_hypercube(["a"], 20, 8)


# bands


def banded(names, samples=12, seed=3, claim=HOURS_TO_MINUTES):
    study = study_of(TASK, names)
    return uncertainty_of(study, claim, names[-1], sampled(study, samples, seed), seed)


def test_without_width_the_samples_are_the_runs_as_they_stand(tmp_path):
    path = profile(tmp_path, least="1 s", most="1 s", spread=0)
    study = study_of(TASK, [path])
    assert study.data() == {}
    plan = compile_plan(TASK, path)
    runs = [simulate(plan, seed).completion_s()[0] for seed in range(3, 8)]
    assert [found[0].completion_s[0] for found in sampled(study, 5, 3)] == runs


def test_wider_ranges_give_no_narrower_band_on_the_same_draws(tmp_path):
    widths = []
    for index, ends in enumerate((("0.9 s", "1.1 s"), ("0.5 s", "1.1 s"), ("0.5 s", "3 s"))):
        folder = tmp_path / str(index)
        folder.mkdir()
        found = sampled(study_of(CONSTANT, [profile(folder, least=ends[0], most=ends[1])]), 16, 1)
        band = Band.of([outcome.completion_s[0] for [outcome] in found])
        widths.append(band.p95 - band.p5)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


CONSTANT = workflow({"repeat": {"times": 5, "steps": [{"generate": {"tokens": 10}}]}})


def test_a_datum_that_two_deployments_share_is_drawn_once(tmp_path):
    """Two deployments that differ in name alone differ in nothing when their data are drawn."""
    base = catalog.document("deployments", "gemma-8xrubin").name
    twin = tmp_path / "twin.yaml"
    twin.write_text(Path(base).read_text("utf-8"), "utf-8")
    study = study_of(CONSTANT, ["gemma-8xrubin", str(twin)])
    found = sampled(study, 6, 0)
    assert len({outcomes[0].completion_s for outcomes in found}) == 6
    assert all(first.completion_s == second.completion_s for first, second in found)


def test_bands_say_what_was_drawn_and_hold_the_answer_as_it_stands(tmp_path):
    path = profile(tmp_path)
    bands = banded([path, "endpoint-100"], samples=20)
    assert bands.drawn == {path: 2, "endpoint-100": len(study_of(TASK, ["endpoint-100"]).data())}
    assert bands.task_s[path].p5 < bands.task_s[path].p50 < bands.task_s[path].p95
    assert bands.speedup[path] == Band(1.0, 1.0, 1.0)
    assert bands.probability == 0.0
    json.dumps(bands.to_json())


def test_samples_that_do_not_fit_are_counted_with_their_reason():
    assert by_reason(["needs 5k of 3", "", "needs 7k of 3", "else"]) == {"needs 5k of 3": 2, "else": 1}
    both = Outcome(completion_s=(10.0,)), Outcome(problem="needs 5k of 3")
    study = study_of(TASK, ["endpoint-100", "coding-tool"])
    bands = uncertainty_of(study, HOURS_TO_MINUTES, "coding-tool", [list(both)] * 2, 0)
    assert bands.misfits == {"coding-tool": {"needs 5k of 3": 2}}
    assert (bands.probability, bands.speedup["coding-tool"]) == (None, None)


# levers


def test_levers_scale_what_they_name_and_nothing_else():
    plan = compile_plan(TASK, "endpoint-100")
    assert levers_of(plan.task) == ("tools", "output", "turns", "network")
    before = simulate(plan, 4)
    tools = simulate(replace(plan, task=scaled(plan.task, Levers(tools=2))), 4)
    assert tools.task.parts_ns[4] == pytest.approx(2 * before.task.parts_ns[4], rel=1e-9)
    assert tools.task.parts_ns[:4] == before.task.parts_ns[:4]
    turns = simulate(replace(plan, task=scaled(plan.task, Levers(turns=0.5))), 4)
    assert turns.task.model_calls == before.task.model_calls / 2
    written = simulate(replace(plan, task=scaled(plan.task, Levers(output=3))), 4)
    assert written.task.output_tokens == 3 * before.task.output_tokens
    network = simulate(replace(plan, task=scaled(plan.task, Levers(network=0))), 4)
    assert network.task.parts_ns[6] == 0


def test_a_loop_in_a_loop_is_not_longer_twice():
    inner = {"repeat": {"times": 3, "steps": [{"generate": {"tokens": 1}}]}}
    plan = plan_of(workflow({"repeat": {"times": 2, "steps": [inner]}}))
    longer = replace(plan, task=scaled(plan.task, Levers(turns=4)))
    assert simulate(longer).task.model_calls == 4 * simulate(plan).task.model_calls


@pytest.mark.parametrize("name", ["endpoint-100", "8xb200", "lpx-prefill-decode"])
def test_decoding_faster_leaves_prefill_as_it_was(name):
    plan = compile_plan(TASK, name)
    before, after = (simulate(p, 1).task for p in (plan, with_faster_decode(plan, 10.0)))
    assert after.decode_ns == pytest.approx(before.decode_ns / 10, rel=0.05)
    assert after.parts_ns[1] == pytest.approx(before.parts_ns[1], rel=1e-6)
    assert all(isinstance(cost, IterationCost) for cost in plan.engines.values()) == (name != "endpoint-100")


# what moves the answer


def test_a_tornado_has_no_bar_of_what_the_deployment_does_not_use(tmp_path):
    path = profile(tmp_path)
    found = tornado(study_of(TASK, [path]), compile_plan(TASK, path), [0, 1])
    names = {bar.name for bar in found.bars}
    assert "made.fixed" in names
    assert not any(name.startswith(("coding-tool", "lp30")) for name in names)
    assert [bar.swing for bar in found.bars] == sorted((bar.swing for bar in found.bars), reverse=True)


def test_a_bar_ends_where_the_datum_itself_gives_that_time(tmp_path):
    path = profile(tmp_path)
    found = tornado(study_of(CONSTANT, [path]), compile_plan(CONSTANT, path), [0])
    [bar] = [bar for bar in found.bars if bar.name == "made.fixed"]
    assert (bar.at, bar.told) == ((pytest.approx(0.5), pytest.approx(3.0)), "0.5 s to 3 s")
    low, high = (
        compile_plan(CONSTANT, profile(tmp_path, least=at, most="9 s"), [f"fixed.value={at}"])
        for at in ("0.5 s", "3 s")
    )
    assert (bar.low, bar.high) == tuple(pytest.approx(simulate(p).completion_s()[0]) for p in (low, high))


def test_the_sensitivity_of_a_speed_up_is_that_of_both_deployments():
    names = ["coding-tool", "endpoint-100"]
    found = tornado(study_of(TASK, names), compile_plan(TASK, names[0]), [0])
    times = [simulate(compile_plan(TASK, name), 0).completion_s()[0] for name in names]
    assert found.answer == pytest.approx(times[0] / times[1])
    assert "coding-tool.decode_speed" in {bar.name for bar in found.bars}


# claims


@pytest.mark.parametrize(
    ("text", "kind", "factor", "from_s", "below_s"),
    [
        ("hours to minutes", "time", 2, 3600, 3600),
        ("Hours become  minutes", "time", 2, 3600, 3600),
        ("days to hours", "time", 2, 86400, 86400),
        ("minutes to seconds", "time", 2, 60, 60),
        ("4x", "time", 4, 0, inf),
        ("1.5 times faster", "time", 1.5, 0, inf),
        ("under 10 min", "time", 0, 0, 600),
        ("4x tokens", "tokens", 4, 0, inf),
        ("50x tok/s", "tokens", 50, 0, inf),
        ("35x per MW", "power", 35, 0, inf),
        ("35x TPS/MW", "power", 35, 0, inf),
    ],
)
def test_a_claim_is_put_in_numbers(text, kind, factor, from_s, below_s):
    found = parse_claim(text)
    assert (found.kind, found.factor, found.from_s, found.below_s) == (kind, factor, from_s, below_s)
    assert "OTHER" in found.asserted


@pytest.mark.parametrize(
    "text", ["", "fast", "0x", "-4x", "minutes to hours", "4x per GW", "under 10", "9" * 400 + "x"]
)
def test_what_is_no_claim_is_refused_with_what_would_be_one(text):
    with pytest.raises(InputError, match="claim"):
        parse_claim(text)


@given(st.floats(1e-3, 1e6), st.floats(0.1, 10))
def test_once_as_fast_always_holds_of_a_thing_against_itself(seconds, factor):
    assert parse_claim("1x").is_kept(seconds, seconds)
    assert parse_claim(f"{factor:.3f}x").is_kept(seconds * factor * 1.01, seconds)


def test_a_verdict_counts_the_runs_in_which_the_claim_holds():
    plans = [plan_of(TASK, endpoint(tokens_per_s=v)) for v in (20.0, 2000.0)]
    runs = [[simulate(plan, seed).completion_s()[0] for seed in range(9)] for plan in plans]
    ratios = sorted(a / b for a, b in zip(*runs, strict=True))
    claim = parse_claim(f"{(ratios[2] + ratios[3]) / 2:.6f}x")
    verdict = compare(plans, simulate, range(9), claim=claim).verdict
    assert (verdict.probability, verdict.runs, verdict.holds) == (pytest.approx(6 / 9), 9, True)
    assert compare(plans[:1] * 2, simulate, [0], claim=parse_claim("1x")).verdict.probability == 1.0


@pytest.mark.parametrize("text", ["1.5x", "1.05x", "under 100 s"])
def test_a_solved_lever_makes_the_claim_just_hold_or_fail(text):
    claim, seeds = parse_claim(text), (0, 1, 2)
    study = study_of(TASK, ["coding-tool", "endpoint-100"])
    levers = ["tools", "turns", "output", DECODE]
    now = holds(claim, study.outcomes([Variation(seeds)])[0])
    bounds = solve(study, claim, seeds, levers)
    assert any(bound.factor for bound in bounds)
    for bound in bounds:
        if bound.factor:
            back = 0.95 if bound.factor > 1 else 1 / 0.95
            at, before = study.outcomes(
                [moved(bound.lever, bound.factor * f, seeds, "endpoint-100") for f in (1.0, back)]
            )
            assert holds(claim, at) != now
            assert holds(claim, before) == now or bound.lever == "turns"  # turns are whole


def test_a_lever_that_cannot_make_a_claim_hold_says_so():
    study = study_of(TASK, ["coding-tool", "endpoint-100"])
    [bound] = solve(study, parse_claim("1000x"), (0,), [DECODE])
    assert (bound.factor, bound.value, bound.sense) == (None, None, "")
    assert bound.tried[1] >= 1000


def test_power_is_that_of_the_chips_and_never_invented():
    chip = catalog.load(Chip, "b200")
    assert power_of(compile_plan(TASK, "8xb200")).watts == 8 * chip.power.value
    for name in ("lpx", "coding-tool", "recorded"):
        assert power_of(compile_plan(TASK, name)).watts is None
        assert "published" in power_of(compile_plan(TASK, name)).told


# the command line


WORKFLOW = "workflows/ci-fix.yaml"


@pytest.fixture
def short(tmp_path):
    """A workflow file that takes no time to run."""
    path = tmp_path / "w.yaml"
    path.write_text(
        "name: t\ntools: {test: {time: 30 s}}\nsteps:\n"
        "  - repeat: {times: 10, steps: [{generate: {tokens: 500}}, {call: test}]}\n",
        "utf-8",
    )
    return str(path)


ON = ("--on", "coding-tool", "--on", "endpoint-100")


def test_bands_stand_in_the_table_and_in_the_json(short):
    text = printed("compare", short, *ON, "--runs", "2", "--uncertainty", "6")
    assert "with uncertain data drawn" in text
    assert "each range with its value as the median" in " ".join(text.split())
    bands = data("compare", short, *ON, "--runs", "2", "--uncertainty", "6")["uncertainty"]
    assert bands["samples"] == 6
    assert bands["task_s"]["coding-tool"]["p5"] <= bands["task_s"]["coding-tool"]["p95"]


def test_a_claim_tells_token_speed_and_task_time_apart(short):
    text = printed("claim", "1.5x", short, *ON, "--runs", "2")
    for words in (
        "asserts: the task takes at least 1.5 times as long",
        "task time",
        "token speed",
        "tools and files",
    ):
        assert words in text
    [entry] = data("claim", "4x tokens", short, *ON, "--runs", "2")
    assert entry["holds"] is False
    assert entry["verdict"]["token_speed_ratio"] == pytest.approx(100 / 60, rel=0.01)
    [needed] = entry["would_turn_it"]
    assert (needed["lever"], needed["value"]) == ("decode", pytest.approx(240, rel=0.02))


def test_a_claim_per_mw_is_nobodys_to_judge_where_power_is_undisclosed(short):
    text = " ".join(
        printed("claim", "35x per MW", short, "--on", "8xb200", "--on", "lpx", "--runs", "1").split()
    )
    assert "Nobody can say" in text
    assert "published no watts" in text
    [known] = data("claim", "35x per MW", short, "--on", "8xb200", "--on", "gemma-b300", "--runs", "1")
    assert known["holds"] is False
    assert known["other_watts_at_most"] > 0


def test_a_claim_is_held_against_every_workflow_that_is_given(short):
    assert len(data("claim", "1x", short, short, *ON, "--runs", "1")) == 2


def test_sensitivity_ranks_and_names_what_does_nothing(short):
    text = printed("sensitivity", short, "--on", "coding-tool", "--runs", "1")
    lines = [line for line in text.splitlines() if "│" in line]
    assert "time of tools and files" in lines[0] + lines[1]
    found = data("sensitivity", short, *ON, "--runs", "1")
    assert (found["unit"], found["other"]) == ("speed-up", "endpoint-100")


@pytest.mark.parametrize("command", [("claim", "1.5x"), ("sensitivity",), ("compare",)])
def test_answers_are_the_same_however_many_cores_find_them(command, short, monkeypatch):
    arguments = (
        *command,
        short,
        *ON,
        "--runs",
        "2",
        *(("--uncertainty", "5") if command[0] == "compare" else ()),
    )
    monkeypatch.setattr("agentsim.executors.local.ALONE_S", 0.0)
    spread_out = data(*arguments)
    monkeypatch.setattr("agentsim.pool.cores", lambda: 1)
    assert data(*arguments) == spread_out


def test_screens_fit_eighty_columns_without_colour(short):
    for arguments in (
        ("claim", "2x", short, *ON),
        ("sensitivity", short, "--on", "coding-tool"),
        ("compare", short, *ON, "--uncertainty", "4"),
    ):
        code, out, _ = invoke(*arguments, "--runs", "1")
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert "\x1b" not in out
        assert "…" not in out


def test_uncertain_data_of_a_plan_are_those_with_a_range_or_a_spread():
    found = uncertain_data(compile_plan(TASK, "lpx"))
    assert {"lpx.engines.main.chips_estimate", "lp30.lpu.request_overhead"} <= found.keys()
    assert all(is_uncertain(datum) for datum in found.values())
    assert "lp30.memory_bandwidth" not in found
    assert build_task(TASK).body
