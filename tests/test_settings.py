"""How measured runs' engines were started: setups of a harness put together, workers by load."""

from dataclasses import replace

import pytest

from agentsim.specs import catalog
from agentsim.specs.harness import load_harnesses, workers_file
from agentsim.validation.names import gpu_of, load_chip, load_model
from agentsim.validation.rows import run_of
from agentsim.validation.settings import as_started, batched_tokens, settings_of
from agentsim.validation.speculation import ways_of
from agentsim.validation.table import Row, read_table
from agentsim.validation.topologies import topologies_of

CELLS = {
    "model": "deepseek-ai/DeepSeek-R1",
    "gpu": "b200_sxm",
    "engine": "trtllm",
    "precision": "fp4",
    "isl": "1024",
    "osl": "1024",
    "batch_size": "16",
    "tp": "8",
    "moe_tp": "8",
    "moe_ep": "1",
    "attention_dp": "1",
    "concurrency": "16",
    "ttft_ms": "200",
    "tpot_ms": "10",
    "measured_on": "2026-02-03",
    "engine_version": "1.2.0rc6.post2",
}


def run(**cells):
    return run_of(Row("", 2, CELLS | cells))


def test_a_later_setup_comes_before_an_earlier_one_and_keeps_what_it_does_not_name():
    sglang = {"engine": "sglang", "engine_version": "0.5.9"}
    few, many = run(**sglang, concurrency="4"), run(**sglang)
    assert (settings_of(few).receive_interval, settings_of(many).receive_interval) == (10, 30)
    assert settings_of(few).kv == settings_of(many).kv == "fp8"
    assert settings_of(run(**sglang, gpu="h200_sxm")).receive_interval is None


def test_a_budget_follows_the_labels():
    before = run(measured_on="2025-12-15", engine_version="1.1.0rc2.post2")
    assert batched_tokens(before) == 1152  # 1024 + 16 + 64, in steps of 64
    assert batched_tokens(run()) == 8192  # at the least, since 2026
    longer = run(isl="8192")
    assert batched_tokens(longer) == 8320


def test_a_version_that_was_started_with_drafts_alone_speculates_and_another_does_not():
    assert ways_of(run(engine_version="1.2.0rc6.post3")) == (True,)
    assert ways_of(run()) == (False,)
    assert ways_of(run(engine_version="", measured_on="")) == (False, True)
    assert ways_of(run(model="meta-llama/Llama-3.1-70B")) == (False,)


def test_a_script_that_replicates_the_attention_by_itself_is_believed_before_the_label():
    cells = {"measured_on": "2025-11-02", "engine_version": "", "gpu": "h200_sxm", "precision": "fp8"}
    many = run(**cells, isl="8192", concurrency="64")
    assert (many.attention_dp, many.expert_parallel) == (8, 8)
    assert "as the launch script started it" in many.assumed[-1]
    assert run(**cells, isl="8192", concurrency="32").attention_dp == 1
    assert as_started(many) == many


def test_every_setup_names_what_the_catalog_has():
    for harness in load_harnesses().harnesses.values():
        for setup in harness.setups:
            assert setup.basis != "assumed" or setup.why
            assert setup.source in load_harnesses().sources
            assert all(gpu_of(gpu) == gpu for gpu in setup.where.gpus)
            assert set(setup.where.models) <= set(catalog.names("models"))


@pytest.mark.parametrize("name", ["prefill", "decode"])
def test_every_listed_deployment_has_workers_whose_gpus_share_out_the_model(name):
    _, rows = read_table(workers_file(), ["model", "gpu"])
    assert rows
    for row in rows:
        load_model(row.text("model")), load_chip(row.text("gpu"))
        chips, experts = row.count(f"{name}_chips"), row.count(f"{name}_ep")
        assert row.count(f"{name}_workers") >= 1
        assert chips % experts == 0


def test_a_row_without_workers_has_those_of_the_one_deployment_of_its_load():
    _, rows = read_table(workers_file(), ["model", "gpu"])
    listed = next(r for r in rows if r.text("model") == "gpt-oss-120b")
    cells = {name: listed.text(name) for name in ("engine", "precision", "isl", "osl", "concurrency")}
    labels = {"model": "openai/gpt-oss-120b", "gpu": "gb200", "decode_tp_size": listed.text("decode_chips")}
    found = topologies_of(Row("", 2, cells | labels))
    assert listed.count("decode_workers") in {topology.decode.number for topology in found}
    assert topologies_of(Row("", 2, cells | labels | {"concurrency": "7777"})) == []
    assert topologies_of(Row("", 2, cells | labels | {"decode_tp_size": "3"})) == []


def test_a_dense_model_is_not_replicated():
    llama = run(model="meta-llama/Llama-3.1-70B", precision="fp8")
    assert as_started(replace(llama, harness="inferencex")).attention_dp == 1
