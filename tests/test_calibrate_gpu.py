"""Fits of engine profiles: what was put in comes out, the formula follows the server, files stay whole."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from test_cli import RUNS, printed
from typer.testing import CliRunner

from agentsim import yaml_file
from agentsim.calibrate import gpu_plan
from agentsim.calibrate.engine_constants import MOST, Key, likeness, pooled, space_of
from agentsim.calibrate.gpu import Trial, simulate_trial
from agentsim.calibrate.gpu_plan import Choices, Plan
from agentsim.calibrate.gpu_profiles import check, profile_documents
from agentsim.calibrate.least_squares import damped, solve
from agentsim.calibrate.steady import point_of
from agentsim.cli import app
from agentsim.errors import InputError, SpecError
from agentsim.specs import catalog
from agentsim.specs.engine import EngineProfile
from agentsim.specs.law import GpuLaw
from agentsim.specs.sourced import Ledger, data_of
from agentsim.validation.halves import configuration_of, fitted_lines, profile_of
from agentsim.validation.rows import COLUMNS, read_runs
from agentsim.validation.serving import cost_of

ENGINES = catalog.names("engines")
TRUE = {
    "layer_s": 55e-6,
    "iteration_s": 0.8e-3,
    "sequence_s": 30e-6,
    "prefill_s": 4e-3,
    "request_s": 30e-3,
    "packed_read": 0.8,
    "kept_read": 0.8,
    "kv_read": 0.7,
    "packed_gemm": 0.5,
    "kept_gemm": 0.5,
}


def write_runs(path, runs):
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="")
        table.writeheader()
        table.writerows(runs)
    return str(path)


def row(tp, users, isl=1024, osl=256, **others):
    cells = {"model": "meta-llama/Llama-3.1-8B", "gpu": "h200_sxm", "engine": "vllm", "precision": "fp8"}
    cells |= {"isl": isl, "osl": osl, "batch_size": users, "concurrency": users, "tp": tp, "moe_tp": 1}
    return cells | {"moe_ep": 1, "attention_dp": 1, "ttft_ms": 1, "tpot_ms": 1} | others


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file of runs that an engine with the constants `TRUE` gives."""
    path = tmp_path_factory.mktemp("runs") / "made.csv"
    rows = [row(tp, users, osl=osl) for tp in (1, 2, 4) for users in (1, 4, 16) for osl in (64, 512)]
    runs = read_runs(write_runs(path, rows)).runs
    for cells, run in zip(rows, runs, strict=True):
        plain = cost_of(run, None, None, Ledger())
        cost = plain.at(replace(plain.constants, attention_share=0.6, **TRUE))
        times = simulate_trial(Trial(run, cost)).times
        cells |= {"ttft_ms": 1e3 * (times.ttft_s + cost.request_s), "tpot_ms": 1e3 * times.tpot_s}
    return write_runs(path, rows)


@pytest.fixture(scope="module")
def fitted(made):
    return Plan(made, Choices(share=0.6, processes=1)).calibration()


def test_a_fit_gives_the_times_of_the_engine_that_made_the_runs(fitted):
    """On runs left out of it. Constants pull towards their priors, so that they come out near, not equal."""
    [profile] = fitted.profiles
    assert len(fitted.in_fit) == 12
    assert len(fitted.left_out) == 6
    assert fitted.classes()["all"].tpot.median < 0.05
    assert fitted.classes()["all"].ttft.median < 0.15
    assert profile.constants["layer_overhead"] == pytest.approx(TRUE["layer_s"], rel=0.3)
    assert profile.constants["weight_read_efficiency"] == pytest.approx(TRUE["packed_read"], rel=0.15)


def test_the_formula_follows_the_server_when_constants_change(made):
    for run in read_runs(made).runs[::4]:
        plain = cost_of(run, None, None, Ledger())
        before = plain.at(replace(plain.constants, **TRUE))
        changed = {name: value * (1.15 if name.endswith("_s") else 0.9) for name, value in TRUE.items()}
        point = point_of(run, before, simulate_trial(Trial(run, before)).times)
        after = plain.at(replace(plain.constants, **changed))
        times = simulate_trial(Trial(run, after)).times
        found = point.at(after.constants)
        assert found.tpot_s == pytest.approx(times.tpot_s, rel=0.02)
        assert found.ttft_s == pytest.approx(times.ttft_s + after.request_s, rel=0.1)


def test_a_written_profile_holds_the_constants_and_all_else_of_its_file(fitted):
    [text] = profile_documents(fitted.profiles, "made runs").values()
    before, profile = catalog.load(EngineProfile, "vllm-h200"), check(text, "vllm-h200")
    constants = profile.serving["dense"]["fp8"]
    [fit] = fitted.profiles
    for name, value in fit.constants.items():
        datum = getattr(constants, name)
        assert datum.value == pytest.approx(value, rel=5e-3)
        assert datum.basis == "calibrated"
        assert "12 runs of llama-3.1-8b" in datum.fitted_on
        assert "on 6 left out" in datum.fitted_on
    assert constants.layer_overhead.source_text == "made runs"
    empty = {"serving": {}, "sources": {}}
    assert profile.model_copy(update=empty) == before.model_copy(update=empty)


def test_profiles_that_were_written_before_are_replaced_not_added_to(fitted, tmp_path, monkeypatch):
    first = profile_documents(fitted.profiles, "made runs")
    (tmp_path / "vllm-h200.yaml").write_text(first["vllm-h200"], "utf-8")
    monkeypatch.setattr(
        catalog, "document", lambda _, n: yaml_file.read(str(tmp_path / f"{n}.yaml"), SpecError)
    )
    assert profile_documents(fitted.profiles, "made runs") == first


@pytest.mark.parametrize("name", ENGINES)
def test_a_profile_has_at_most_eight_fitted_constants_inside_their_ranges(name):
    profile = catalog.load(EngineProfile, name)
    for kind, formats in profile.serving.items():
        priors = dict(catalog.load(GpuLaw, "gpu-law").priors[kind])
        for constants in formats.values():
            data = {constant: datum for constant, datum in constants if datum is not None}
            assert sum(datum.basis == "calibrated" for datum in data.values()) <= MOST
            for constant, datum in data.items():
                low, high = priors[constant].range
                assert low * 0.99 <= datum.value <= high * 1.01  # files hold three digits


@pytest.mark.parametrize("name", ENGINES)
def test_a_fitted_constant_has_the_spread_of_its_fit_and_not_the_range_that_was_searched(name):
    for formats in catalog.load(EngineProfile, name).serving.values():
        for constants in formats.values():
            fitted = [d for _, d in data_of(constants) if d.basis == "calibrated"]
            assert all(d.range is None and 0 < d.spread < 1 for d in fitted)


@pytest.mark.parametrize("kind", ["dense", "moe"])
@pytest.mark.parametrize("software", ["vllm", "sglang"])
def test_at_most_eight_constants_are_fitted(kind, software):
    space = space_of(Key(software, "h200", "fp8", kind))
    assert len(space.names) <= MOST
    assert (space.low < space.start).all()
    assert (space.start < space.high).all()


def test_profiles_are_alike_by_engine_generation_gpu_and_format():
    one = Key("vllm", "h200", "fp8", "moe")
    others = [
        Key("vllm", "h200", "bf16", "moe"),
        Key("vllm", "h100", "fp8", "moe"),
        Key("vllm", "gb200", "fp8", "moe"),
        Key("sglang", "gb200", "bf16", "moe"),
        Key("vllm", "h200", "fp8", "dense"),
    ]
    shares = [likeness(one, other) for other in others]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0


def test_a_profile_without_runs_is_expected_between_its_prior_and_what_is_alike():
    key, other = Key("vllm", "h100", "fp8", "dense"), Key("vllm", "h200", "fp8", "dense")
    space = space_of(key)
    theirs = space.start + 0.5
    expected = pooled(key, {other: theirs}, {other: 40}, space.names)
    assert (space.start < expected).all()
    assert (expected < theirs).all()
    assert (pooled(key, {other: theirs}, {other: 4}, space.names) < expected).all()


def test_runs_of_one_configuration_lie_on_one_side_and_every_profile_is_fitted(made):
    runs = read_runs(made).runs
    for seed in range(3):
        lines = fitted_lines(runs, seed)
        sides = {}
        for run in runs:
            sides.setdefault(configuration_of(run), set()).add(run.line in lines)
        assert all(len(side) == 1 for side in sides.values())
        assert {profile_of(r) for r in runs} == {profile_of(r) for r in runs if r.line in lines}
        assert fitted_lines(runs, seed) == lines
    assert len({frozenset(fitted_lines(runs, seed)) for seed in range(8)}) > 1


def test_least_squares_stay_inside_their_bounds():
    def residuals(point):
        return np.array([point[0] - 1.0, 10 * (point[1] - point[0] ** 2)])

    low, high = np.array([-2.0, -2.0]), np.array([2.0, 2.0])
    found = solve(residuals, np.array([-1.0, 1.0]), low, high, 50)
    assert found.point == pytest.approx([1, 1], abs=0.05)
    bound = solve(residuals, np.array([-1.0, 1.0]), low, np.array([0.5, 2.0]), 50)
    assert bound.point[0] == 0.5


def test_an_outlier_hardly_pulls():
    near, far, farther = damped(np.array([0.01, 1.0, 10.0]), 0.1)
    assert near == pytest.approx(0.01, rel=0.01)
    assert farther < 1.5 * far


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--share", "0"], "--share is 0"), (["--share", "1.5"], "over 0, at most 1")],
    ids=["nothing", "more than all"],
)
def test_a_share_that_is_none_is_refused_in_one_line(made, arguments, said):
    with pytest.raises(InputError, match=said):
        CliRunner().invoke(
            app, ["calibrate", "gpu", made, *arguments], catch_exceptions=False, standalone_mode=False
        )


def test_a_file_without_a_run_of_the_catalog_is_refused_with_the_reason(tmp_path):
    path = write_runs(tmp_path / "none.csv", [row(1, 1, model="nobody/knows-me")])
    with pytest.raises(InputError, match="no run to fit on: no model 'nobody/knows-me' in the catalog"):
        gpu_plan.Plan(path)


def test_runs_that_cannot_be_fitted_are_refused_and_far_ones_are_said_to_be(tmp_path):
    head, *rows = RUNS.splitlines()
    few = tmp_path / "few.csv"
    few.write_text("\n".join([head, rows[0]]) + "\n", "utf-8")
    with pytest.raises(InputError, match="no profile has 3 runs"):
        Plan(str(few), Choices(processes=1)).calibration()
    slow = [{**row, "tpot_ms": 1000 * float(row["tpot_ms"])} for row in csv.DictReader(io.StringIO(RUNS))]
    path = tmp_path / "slow.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, slow[0])
        writer.writeheader()
        writer.writerows(slow)
    said = printed("calibrate", "gpu", str(path), "-o", str(tmp_path / "out/"))
    assert "are the times in ms?" in " ".join(said.split())
