"""Measured serving runs: what a CSV's rows mean, how they are replayed, and what the report says of them."""

from __future__ import annotations

import csv
import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from test_cli import data, printed

from agentsim.coexec.base import LinkCost
from agentsim.errors import InputError
from agentsim.pool import spread
from agentsim.sim.clock import Clock
from agentsim.sim.closed_loop import Served, closed_loop
from agentsim.sim.server import EngineServer
from agentsim.sim.staged import Link
from agentsim.specs import catalog
from agentsim.specs.sourced import Ledger
from agentsim.units import to_ns, to_s
from agentsim.validation import disaggregated
from agentsim.validation import rows as rows_of
from agentsim.validation.halves import fitted_lines
from agentsim.validation.judge import Choices, Plan, octave
from agentsim.validation.parallelism import parallelism_of
from agentsim.validation.report import Errors, quantile
from agentsim.validation.rows import Pools, Refusal, measured, run_of
from agentsim.validation.serving import cost_of, requests_of, serve, times_of
from agentsim.validation.speculation import drafter_for, speculating
from agentsim.validation.suspects import (
    ELSEWHERE,
    FIRST_TOKEN_ELSEWHERE,
    OVER_PEAK,
    SLOWER_THAN_MORE,
    WAITED,
    wrong_runs,
)
from agentsim.validation.table import Row, read_table

LLAMA = {
    "model": "meta-llama/Llama-3.1-70B",
    "gpu": "h200_sxm",
    "engine": "trtllm",
    "engine_version": "1.0",
    "precision": "fp8",
    "isl": 1024,
    "osl": 128,
    "batch_size": 4,
    "tp": 4,
    "pp": 1,
    "attention_dp": 1,
    "moe_tp": 1,
    "moe_ep": 1,
    "concurrency": 4,
    "measured_on": "2026-01-01",
    "ttft_ms": 120.0,
    "tpot_ms": 11.0,
}
DEEPSEEK = {**LLAMA, "model": "deepseek-ai/DeepSeek-V3", "gpu": "b200_sxm", "tp": 8, "moe_ep": 8}
POOLED = {
    **{k: LLAMA[k] for k in ("model", "gpu", "engine", "precision", "isl", "osl", "concurrency")},
    **{f"prefill_{k}": 1 for k in ("num_workers", "attention_dp_size", "moe_tp_size", "moe_ep_size")},
    **{f"decode_{k}": 1 for k in ("num_workers", "attention_dp_size", "moe_tp_size", "moe_ep_size")},
    "prefill_tp_size": 2,
    "decode_tp_size": 4,
    "decode_batch_size": 4,
    "ttft_ms": 200.0,
    "tpot_ms": 10.0,
}


def row(line=2, base=LLAMA, **cells):
    return Row("made.csv", line, {k: str(v) for k, v in {**base, **cells}.items()})


def run(line=2, base=LLAMA, **cells):
    found = run_of(row(line, base, **cells))
    assert not isinstance(found, Refusal), found
    return found


def refusal(**cells):
    found = run_of(row(**cells))
    assert isinstance(found, Refusal)
    return found.reason


def table(path, *rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def test_a_checkpoint_is_known_by_its_shape_whoever_publishes_it():
    assert run().model == "llama-3.3-70b"
    assert run(model="nvidia/Qwen3-32B-NVFP4").model == "qwen3-32b"
    assert run(base=DEEPSEEK).model == "deepseek-r1"
    assert run(model="Llama-3.1-70B-Instruct").gpu == "h200"


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"model": "acme/none-7b"}, "no model 'acme/none-7b'"),
        ({"gpu": "h999"}, "no GPU 'h999'"),
        ({"gpu": "h100_pcie"}, "no GPU 'h100_pcie'"),
        ({"pp": 2}, "pipeline"),
        ({"concurrency": 10**9, "batch_size": 10**9}, "more than 20,000 users"),
        ({"concurrency": "", "batch_size": ""}, "neither concurrency nor batch_size"),
        ({"tpot_ms": 0}, "a measured time is 0"),
        ({"ttft_ms": ""}, "ttft_ms is not given"),
        ({"osl": 1}, "osl at least 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_cannot_be_simulated_says_why(cells, why):
    assert why in refusal(**cells)


def test_what_a_row_leaves_out_is_assumed_aloud():
    assert run(precision="").precision == "bf16"
    named = run(precision="", model="nvidia/Qwen3-32B-FP8")
    assert (named.precision, "precision is not given: fp8" in named.assumed[0]) == ("fp8", True)
    assert run(precision="", model="nvidia/Llama-3.3-70B-Instruct-FP8-dynamic").precision == "fp8"
    found = run(concurrency="", batch_size=24)
    assert (found.concurrency, found.assumed[0]) == (24, "concurrency is not given: batch_size")


def test_a_dense_model_behind_one_address_counts_one_engines_share():
    assert run(concurrency=448, batch_size=14).concurrency == 14
    assert (
        run(base=DEEPSEEK, concurrency=112, batch_size=28, attention_dp="", tp=4, moe_ep=4).attention_dp == 4
    )


@pytest.mark.parametrize(
    ("labels", "chips_dp_ep"),
    [
        ((8, 1, 8, 1), (8, 1, 1)),
        ((8, 1, 1, 8), (8, 1, 8)),
        ((8, 1, 2, 4), (8, 1, 4)),
        ((64, 1, 8, 8), (8, 1, 8)),
        ((16, 16, 4, 4), (4, 4, 4)),
        ((64, 64, 8, 8), (8, 8, 8)),
        ((4, 4, 1, 16), (4, 4, 4)),
        ((8, 8, 1, 8), (8, 8, 8)),
        ((2, None, 4, 1), (4, 2, 1)),
        ((4, None, 1, 4), (4, 1, 4)),
    ],
)
def test_labels_of_parallelism_that_are_products_are_taken_apart(labels, chips_dp_ep):
    assert parallelism_of(*labels)[:3] == chips_dp_ep


def test_rows_of_the_same_times_count_once_and_the_fullest_is_kept():
    bare = row(2, measured_on="", engine_version="")
    rounded, other = row(3, tpot_ms=11.0004), row(4, tpot_ms=11.3)
    found = measured([bare, rounded, other])
    assert ([r.line for r in found.runs], found.duplicates, found.read) == ([3, 4], 1, 3)


def test_a_closed_loop_keeps_its_users_busy_and_counts_every_request():
    cost = cost_of(run(), None, None, Ledger())
    served = closed_loop(lambda env: EngineServer(env, cost), 2, [(500, 10)] * 7)
    assert len(served) == 7
    assert all(s.tpot_s > 0 and s.ttft_s > cost.request_s for s in served)
    alone = closed_loop(lambda env: EngineServer(env, cost), 1, [(500, 10)])
    assert min(s.ttft_s for s in served) >= alone[0].ttft_s


def test_a_request_of_a_closed_loop_waits_for_no_one_but_its_own_batch():
    """One user: TTFT and TPOT follow from the cost of each iteration."""
    from agentsim.backends.base import Batch

    cost = cost_of(run(), None, None, Ledger())
    (only,) = closed_loop(lambda env: EngineServer(env, cost), 1, [(300, 2)])
    prefill = cost.iteration_s(Batch(0, 0.0, 0.0, 300, 300 * 301 / 2, 0.0, 1))
    assert to_ns(only.ttft_s) == pytest.approx(to_ns(cost.request_s + prefill), abs=2)
    assert only.tpot_s == pytest.approx(cost.iteration_s(Batch(1, 301.0, 0.0)), rel=1e-6)


def test_lengths_follow_the_harness_and_the_load_alone():
    random, fixed = (
        run(concurrency=8, batch_size=8),
        run(attention_dp="", isl=512, concurrency=8, batch_size=8),
    )
    assert (random.harness, fixed.harness) == ("inferencex", "engine-defaults")
    assert {prompt for prompt, _ in requests_of(fixed)} == {512}
    prompts = [prompt for prompt, _ in requests_of(random)]
    assert (min(prompts) >= 0.8 * 1024 - 1, max(prompts) <= 1024, len(set(prompts)) > 20) == (True,) * 3
    assert requests_of(replace(random, line=99, gpu="b200")) == requests_of(random)


def test_more_users_never_lower_throughput_nor_shorten_a_step():
    tpots = []
    for users in (1, 4, 16):
        load = run(concurrency=users, batch_size=users)
        served, admitted = serve(cost_of(load, None, None, Ledger()), load)
        assert admitted == users
        tpots.append(sum(s.tpot_s for s in served) / len(served))
    rates = [users / tpot for users, tpot in zip((1, 4, 16), tpots, strict=True)]
    assert (tpots, rates) == (sorted(tpots), sorted(rates))


def test_results_do_not_depend_on_how_many_processes_make_them():
    numbers = list(range(40))
    seen = []
    alone = spread(square, numbers, lambda: seen.append(1), float, 1)
    assert alone == spread(square, numbers, lambda: seen.append(1), float, 2) == [n * n for n in numbers]
    assert len(seen) == 2 * len(numbers)


def square(number):
    return number * number


def test_a_server_is_taken_to_have_speculated_where_that_lies_nearer_to_all_of_its_runs():
    assert drafter_for("deepseek-r1") is not None
    assert drafter_for("llama-3.3-70b") is None, "a drafter with embeddings of its own does not come with it"
    fast = [
        run(line, DEEPSEEK, concurrency=c, batch_size=c, tpot_ms=4) for line, c in ((2, 4), (3, 8), (4, 16))
    ]
    without, with_ = {2: 0.008, 3: 0.008, 4: 0.004}, {2: 0.004, 3: 0.004, 4: 0.006}
    assert speculating(fast, without, with_) == {2, 3, 4}
    both = [replace(fast[0], line=5, tpot_s=0.008)]
    assert speculating([*fast, *both], {**without, 5: 0.008}, {**with_, 5: 0.004}) == {2, 3}


def test_a_run_or_two_speculated_only_where_they_are_faster_than_the_engine_can_be_without():
    one = run(model="deepseek-ai/DeepSeek-R1", tpot_ms=8)
    line = one.line
    assert speculating([one], {line: 0.0095}, {line: 0.0079}) == set(), "nearer with drafts, as by chance"
    assert speculating([one], {line: 0.0105}, {line: 0.0079}) == {line}
    assert speculating([one], {line: 0.0105}, {line: 0.0040}) == set(), "far off either way"


def wrong(*runs, admitted=()):
    return wrong_runs(runs, set(), dict(admitted))


def test_a_run_that_needs_more_than_the_peak_looks_wrong():
    fast = run(isl=8000, osl=2, ttft_ms=50, tpot_ms=1, concurrency=16, batch_size=16)
    assert wrong(fast) == {2: OVER_PEAK}
    assert wrong(replace(fast, ttft_s=8.0)) == {}


def test_a_run_slower_than_its_server_at_more_users_looks_wrong():
    slow, more = run(2, tpot_ms=20), run(3, concurrency=8, batch_size=8, tpot_ms=12)
    assert wrong(slow, more) == {2: SLOWER_THAN_MORE}
    assert wrong(run(2, tpot_ms=12), more) == {}
    assert wrong(replace(slow, version="2.0"), more) == {}, "another server"


def test_users_who_wait_longer_than_they_are_served_look_wrong_only_where_memory_holds_them():
    waits = run(ttft_ms=9000)
    assert wrong(waits, admitted={2: 4}.items()) == {2: WAITED}
    assert wrong(waits, admitted={2: 3}.items()) == {}


def test_a_step_of_another_order_than_elsewhere_looks_wrong():
    here, there = run(2, gpu="b200_sxm", tpot_ms=30), run(3, tpot_ms=12)
    assert wrong(here, there) == {2: ELSEWHERE}
    assert wrong(replace(here, gpu="h100"), there) == {}, "less bandwidth may be slower"


def test_first_tokens_of_another_order_than_elsewhere_look_wrong():
    here, there = run(2, gpu="b200_sxm", ttft_ms=900), run(3, ttft_ms=200)
    older = replace(there, line=4, version="0.1")
    assert wrong(here, there, older) == {2: FIRST_TOKEN_ELSEWHERE}
    assert wrong(replace(here, ttft_s=0.7), there, older) == {}
    assert wrong(here, there) == {}, "one other server may be the odd one"
    assert wrong(here, there, replace(older, engine="sglang")) == {}, "engines start prompts differently"


def test_the_first_request_of_a_user_counts_for_its_share_of_what_the_harness_sends():
    served = [Served(9.0, 0.01, True), Served(1.0, 0.01), Served(1.0, 0.02), Served(1.0, 0.03)]
    ttft_s, tpot_s = times_of(served, run())
    assert (ttft_s, tpot_s) == (pytest.approx((9 + 9 * 1) / 10), pytest.approx(0.015))
    assert times_of(served[:1], run())[0] == 9.0


def test_runs_of_one_configuration_lie_on_the_same_side_of_a_holdout():
    loads = [run(line, isl=isl) for line, isl in enumerate((128, 256, 512), 2)]
    others = [replace(loads[0], line=10 + tp, chips=tp) for tp in (1, 2, 8)]
    for seed in range(4):
        fitted = fitted_lines([*loads, *others], seed)
        assert len({r.line in fitted for r in loads}) == 1
        assert 0 < sum(r.line in fitted for r in others) < len(others) + 1
    assert len({frozenset(fitted_lines([*loads, *others], seed)) for seed in range(8)}) > 1


def test_a_holdout_judges_what_a_fit_left_out(tmp_path):
    path = table(tmp_path / "runs.csv", *[{**LLAMA, "tp": tp} for tp in (1, 2, 4, 8)])
    report = Plan(path, Choices(holdout=0, processes=1)).report()
    assert (len(report.judged), report.in_fit) == (2, 2)
    fitted = fitted_lines(rows_of.read_runs(path).runs, 0)
    assert {run.line for run in report.judged} == {2, 3, 4, 5} - fitted


def test_every_row_is_judged_refused_or_a_repeat(tmp_path):
    rows = [
        LLAMA,
        {**LLAMA, "tpot_ms": 11.0001},
        {**LLAMA, "gpu": "h999"},
        {**LLAMA, "concurrency": 8, "batch_size": 8},
    ]
    report = Plan(table(tmp_path / "runs.csv", *rows), Choices(processes=1)).report()
    assert (report.read, len(report.judged), len(report.refused), report.duplicates) == (4, 2, 1, 1)
    assert 0 < report.judged[0].tpot_s < 1
    json = report.to_json()
    assert json["read"] == json["rows"] + json["refused"] + json["duplicates"] + json["looks_wrong"]
    assert set(json["groups"][0]) == {
        *("engine", "gpu", "precision", "class", "rows", "tpot_median", "ttft_median"),
    }
    off = [abs(run["tpot_off"]) for run in json["worst"]]
    assert off == sorted(off, reverse=True)


def test_a_report_is_the_same_packed_and_however_it_is_simulated(tmp_path):
    rows = [{**LLAMA, "concurrency": c, "batch_size": c} for c in range(1, 18)]
    plain = table(tmp_path / "runs.csv", *rows)
    packed = tmp_path / "packed" / "runs.csv"
    packed.parent.mkdir()
    with open(plain, "rb") as file:
        packed.write_bytes(gzip.compress(file.read()))
    one = Plan(plain, Choices(processes=1)).report().to_json()
    assert Plan(str(packed), Choices(processes=2)).report().to_json() == one


def test_separate_workers_are_known_by_their_columns_and_prefill_does_not_disturb_decode(tmp_path):
    plan = Plan(table(tmp_path / "pools.csv", POOLED), Choices(processes=1))
    (pooled,) = plan.report().judged
    assert (plan.separate, pooled.setup) == (True, "1 x tp2 > 1 x tp4")
    together = Plan(table(tmp_path / "runs.csv", LLAMA), Choices(processes=1)).report().judged[0]
    assert pooled.tpot_s < together.tpot_s


def test_workers_whose_number_is_not_given_are_refused():
    found = disaggregated.measured([row(2, POOLED, decode_num_workers="", ttft_ms=201)])
    (refused,) = found.refused
    assert refused.reason.startswith("how many workers there were is not given")
    fuller = disaggregated.measured([row(2, POOLED), row(3, POOLED, decode_num_workers="")])
    assert (len(fuller.runs), fuller.refused, fuller.duplicates) == (1, (), 1), "it repeats a fuller row"


def test_a_decode_worker_is_counted_in_gpus_by_its_ranks():
    cells = {"model": "deepseek-ai/DeepSeek-R1", "decode_tp_size": 1, "decode_attention_dp_size": 8}
    (found,) = disaggregated.measured([row(2, POOLED, **cells, decode_moe_ep_size=8)]).runs
    assert (found.chips, found.attention_dp, found.expert_parallel) == (8, 8, 8)


def test_a_missing_column_names_the_kind_of_file_that_is_nearest(tmp_path):
    path = table(tmp_path / "pools.csv", POOLED)
    assert read_table(path, rows_of.COLUMNS, disaggregated.COLUMNS)[0] == 1


def test_quantiles_lie_between_neighbours():
    assert quantile([1.0, 3.0], 0.5) == 2.0
    assert quantile([5.0], 0.9) == 5.0
    assert Errors.of([]).tpot is None


def test_concurrency_is_grouped_by_powers_of_two():
    assert [octave(n) for n in (1, 2, 3, 4, 5, 16, 17, 256)] == [
        *("1", "2", "3-4", "3-4", "5-8", "9-16", "17-32", "129-256"),
    ]


def test_the_screen_says_how_far_off_and_what_was_refused(tmp_path):
    rows = [LLAMA, {**LLAMA, "gpu": "h999"}, {**DEEPSEEK, "moe_ep": 1, "precision": "fp4"}]
    path = table(tmp_path / "runs.csv", *rows)
    said = printed("validate-model", path, "--processes", "1")
    for part in ("TPOT is off by", "by group", "1 row: no GPU 'h999' in the catalog", "Speculation", "Worst"):
        assert part in said
    assert data("validate-model", path, "--processes", "1")["rows"] == 2


def test_constants_fitted_on_a_file_of_this_name_are_never_called_a_prediction(tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()
    profile = catalog.document("engines", "trtllm-h200").name
    text = Path(profile).read_text("utf-8")
    assert "basis: datasheet}" in text
    fitted = text.replace("basis: datasheet}", 'basis: calibrated, fitted_on: "runs.csv: 9 runs"}', 1)
    assert "memory_share" in next(line for line in fitted.splitlines() if "runs.csv" in line)
    (folder / "trtllm-h200.yaml").write_text(fitted, "utf-8")
    path = table(tmp_path / "runs.csv", LLAMA)
    said = printed("validate-model", path, "--profiles", str(folder))
    assert "In sample  1 of 1 runs" in said
    assert "not of a prediction" in " ".join(said.split())
    assert "In sample" not in printed("validate-model", table(tmp_path / "other.csv", LLAMA))


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_separate_workers_in_a_pipeline_are_refused(side):
    (refused,) = disaggregated.measured([row(2, POOLED, **{f"{side}_pp_size": 8})]).refused
    assert "pipeline" in refused.reason


def test_the_side_with_fewer_gpus_limits_the_network_and_a_prompt_leaves_from_one_copy():
    base = run(base=DEEPSEEK)
    prefill, decode = replace(base, chips=8, attention_dp=8), replace(base, chips=32, attention_dp=32)
    one = disaggregated.link_of(decode, Pools(prefill, 1, 1))
    assert one.lanes == 8
    whole = disaggregated.link_of(
        replace(decode, attention_dp=1), Pools(replace(prefill, attention_dp=1), 1, 1)
    )
    assert (whole.lanes, whole.bytes_per_s) == (1, pytest.approx(8 * one.bytes_per_s))
    more = disaggregated.link_of(decode, Pools(prefill, 3, 1))
    assert (more.lanes, more.bytes_per_s) == (24, one.bytes_per_s)


def test_a_link_carries_as_many_transfers_at_once_as_it_has_lanes():
    arrived = {}
    for lanes in (1, 2):
        env = Clock()
        link, times = Link(env, LinkCost(0.5, 100.0, lanes)), []
        for _ in range(3):
            link.move(200.0).callbacks.append(lambda _, times=times, env=env: times.append(to_s(env.now)))
        env.run()
        arrived[lanes] = times
    assert arrived == {1: [2.5, 4.5, 6.5], 2: [2.5, 2.5, 4.5]}


def test_prompts_longer_than_the_model_takes_are_refused():
    assert "longer than the 131,072 tokens" in refusal(isl=200_000)


def test_a_harness_is_as_the_row_names_it_and_a_wrong_name_is_refused():
    assert (run().harness, run(harness="thousands").harness) == ("inferencex", "thousands")
    assert "no harness 'mine'; known: inferencex" in refusal(harness="mine")


def test_one_measurement_under_two_labels_of_parallelism_counts_once():
    rows = [row(2, DEEPSEEK, moe_tp=1, moe_ep=8), row(3, DEEPSEEK, moe_tp=8, moe_ep=1, ttft_ms=120.01)]
    found = measured(rows)
    assert (len(found.runs), found.duplicates) == (1, 1)


def test_a_folder_without_a_profile_of_the_runs_is_refused(tmp_path):
    path = table(tmp_path / "runs.csv", LLAMA)
    with pytest.raises(InputError, match=r"looked for trtllm-h200\.yaml"):
        Plan(path, Choices(profiles=str(tmp_path)))
    profile = catalog.document("engines", "vllm-h100").name
    shutil.copy(profile, tmp_path / "trtllm-h200.yaml")
    with pytest.raises(InputError, match="is a profile of vllm on h100"):
        Plan(path, Choices(profiles=str(tmp_path)))
