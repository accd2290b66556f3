"""`schedule`: where a decode step's time goes, its trace, and what determinism buys."""

from __future__ import annotations

import json
from functools import cache

import pytest
from test_cli import data, invoke, printed

from agentsim.backends.lpx.determinism import Row

KEYS = {"tensor_parallel", "pipeline_stages", "lpus", "step_s", "breakdown_s", "floor_s"}
PARTS = {"compute", "sram", "first_bit", "serialisation", "idle", "overhead"}
GEMMA = "gemma-4-31b"


@cache
def with_table():
    return data("schedule", GEMMA, "--on", "lpx", "--table")


def test_the_breakdown_sums_to_the_step():
    found = data("schedule", GEMMA, "--on", "lpx", "--context", "10k")
    assert found.keys() >= KEYS
    assert found["breakdown_s"].keys() == PARTS
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_s"])
    assert found["step_s"] == pytest.approx(found["floor_s"] + found["breakdown_s"]["overhead"])
    assert found["tensor_parallel"] * found["pipeline_stages"] <= found["lpus"] <= 256


def test_fewer_drafts_take_less_time_and_none_takes_no_calibrated_overhead():
    steps = [data("schedule", GEMMA, "--drafted", str(n)) for n in (0, 3, 7)]
    assert [step["drafted"] for step in steps] == [0, 3, 7]
    assert steps[0]["step_s"] < steps[1]["step_s"] < steps[2]["step_s"]
    assert steps[0]["step_s"] == steps[0]["floor_s"]
    assert data("schedule", GEMMA)["drafted"] == 7


def test_a_longer_context_takes_longer():
    near, far = (data("schedule", GEMMA, "--context", text)["floor_s"] for text in ("1k", "100000"))
    assert near < far


def test_another_model_is_laid_out_without_the_drafter_of_the_first_if_that_is_asked_for():
    found = data("schedule", "llama-3.3-70b", "--on", "lpx", "--drafted", "0")
    assert (found["model"], found["drafted"], found["tokens_per_step"]) == ("llama-3.3-70b", 0, 1.0)


def test_the_trace_is_a_file_of_events(tmp_path):
    path = tmp_path / "schedule.json"
    found = data("schedule", GEMMA, "--drafted", "0", "--trace", str(path))
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert found["written"] == str(path)
    assert max(ends) / 1e6 == pytest.approx(found["floor_s"], rel=0.01)


def test_the_table_has_every_number_of_chips_and_both_claims_are_answered():
    rows, claims = with_table()["table"], with_table()["claims"]
    assert {row["chips"] for row in rows if row["kind"] == "LPU"} == {8, 16, 32, 64, 128, 256}
    assert {row["chips"] for row in rows if row["kind"] == "GPU"} == {1, 2, 4, 8, 72}
    assert {row["context"] for row in rows} == {1_000, 10_000, 100_000}
    assert [claim["text"].split()[0] for claim in claims] == ["First-bit", "Ahead-of-time"]


def test_no_more_chips_are_used_than_there_are_and_the_deployments_own_are_the_most():
    rows = [row for row in with_table()["table"] if row["kind"] == "LPU"]
    assert all((row["used"] is None) == (row["tokens_per_s"] is None) for row in rows)
    assert all(row["used"] <= row["chips"] for row in rows if row["used"])
    found = data("schedule", "llama-3.3-70b", "--on", "groqchip1-llama70b", "--table")
    lpus = [row for row in found["table"] if row["kind"] == "LPU"]
    assert {row["chips"] for row in lpus} == {8, 16, 32, 64, 128, 256, 512, 576}
    assert {row["context"] for row in found["table"]} == {1_000}
    assert lpus[-1]["used"] == found["lpus"]


def test_the_table_has_the_planned_context_and_the_chips_of_the_deployment(tmp_path):
    """So that its last row is the step above it."""
    path = tmp_path / "made.yaml"
    engine = "{backend: lpx, hardware: lp30, chips: 128, context: 10k, precision: {weights: fp8, kv: fp8}}"
    path.write_text(f"title: made\nmodel: gemma-4-31b\nengines:\n  main: {engine}\n", "utf-8")
    found = data("schedule", GEMMA, "--on", str(path), "--table")
    lpus = [row for row in found["table"] if row["kind"] == "LPU"]
    assert max(row["chips"] for row in lpus) == 128
    assert {row["context"] for row in lpus} == {1_000, 10_000}
    assert lpus[-1]["tokens_per_s"] == pytest.approx(1 / found["floor_s"], rel=1e-6)


def test_a_short_model_is_scheduled_at_its_limit_unless_a_context_is_asked_for():
    assert data("schedule", "llama-3.3-70b", "--on", "groqchip1-llama70b")["context"] == 4_000
    assert data("schedule", GEMMA)["context"] == 10_000


def test_what_is_first_depends_on_assumed_start_ups_and_the_answer_says_so():
    first = with_table()["claims"][0]
    assert first["holds"] is None
    assert first["answer"].startswith("In part: first bits take most in 4 of 6 steps")
    assert "first bit 76% / 59% / 35%" in first["answer"]
    assert "almost all of it is assumed" in first["answer"]


def test_the_gain_is_told_with_what_the_schedule_leaves_unexplained():
    ahead = with_table()["claims"][1]
    rows = [row for row in with_table()["table"] if row["both"]]
    assert all(row["tokens_per_s"] >= 2 * row["both"] for row in rows)
    assert ahead["holds"] is None
    assert ahead["answer"].startswith("Yes on the schedule alone; between 1.7x and 5.6x")
    assert all(text in ahead["answer"] for text in ("with 137 us", "with 778 us"))


@pytest.mark.parametrize(
    ("beyond", "gain"), [(0.0, 5.0), (1e-3, 2.0)], ids=["alone", "with a millisecond each"]
)
def test_time_that_both_pay_makes_the_gain_smaller(beyond, gain):
    row = Row("LPU", 64, 1_000, tokens_per_s=1 / 3e-4, both=1 / 1.5e-3)
    assert row.gain(beyond) == pytest.approx(gain, rel=0.05)
    assert Row("LPU", 8, 1_000, None).gain(beyond) is None


@pytest.mark.parametrize("more", [(), ("--table",), ("--drafted", "0")], ids=["plain", "table", "none"])
def test_the_screen_fits(more, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed("schedule", GEMMA, *more)
    assert max(map(len, shown.splitlines())) <= 80
    assert "first bit" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((GEMMA, "--context", "abc"), "write it like"),
        ((GEMMA, "--context", "0"), "262,144"),
        ((GEMMA, "--context", "1M"), "262,144"),
        ((GEMMA, "--on", "fastest-public"), "--on lpx"),
        ((GEMMA, "--on", "gemma-b300"), "--on lpx"),
        ((GEMMA, "--on", "nope"), "nope"),
        ((GEMMA, "--drafted", "9"), "0 to 7"),
        ((GEMMA, "--drafted", "-1"), "--drafted"),
        ((GEMMA, "--on", "lpx-no-speculation", "--drafted", "3"), "no drafter"),
        ((GEMMA, "--trace", "/nowhere/x.json"), "cannot write"),
        (("gemma-4-31", "--on", "lpx"), "gemma-4-31b"),
        (("llama-3.3-70b", "--on", "lpx"), "drafts for gemma-4-31b, not for llama-3.3-70b"),
        (("deepseek-r1", "--on", "lpx", "--drafted", "0"), "racks"),
        ((), "MODEL"),
    ],
)
def test_bad_input_is_one_line_that_says_what_would_work(arguments, said):
    code, out, err = invoke("schedule", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
