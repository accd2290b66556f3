"""The catalog's facts hold against one another and against what was published."""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from typing import Any

import pytest

from agentsim import yaml_file
from agentsim.backends.gpu.weights import format_of, weights_of
from agentsim.errors import SpecError
from agentsim.specs import catalog
from agentsim.specs import model as shapes
from agentsim.specs.deployment import Deployment
from agentsim.specs.endpoint import Endpoint
from agentsim.specs.engine import EngineProfile
from agentsim.specs.hardware import Chip
from agentsim.specs.model import Model
from agentsim.specs.sourced import Ledger, data_of

FILES = [(kind, name) for kind in catalog.KINDS for name in catalog.names(kind)]
CHIPS = {name: catalog.load(Chip, name) for name in catalog.names("hardware")}
MODELS = {name: catalog.load(Model, name) for name in catalog.names("models")}
ENGINES = {name: catalog.load(EngineProfile, name) for name in catalog.names("engines")}
ENDPOINTS = {name: catalog.load(Endpoint, name) for name in catalog.names("endpoints")}
DEPLOYMENTS = {name: catalog.load(Deployment, name) for name in catalog.names("deployments")}
GPUS = {name: chip for name, chip in CHIPS.items() if chip.kind == "gpu"}

LOCAL = re.compile(r"\.\./|(^|[\s(\"'])/\w|~/|\b(shared|validation|facts)/|[A-Z]:\\")

# Total and active parameters as each vendor states them, and how far a stated figure is rounded.
VENDOR = {
    "deepseek-r1": (671e9, 37e9, 0.5e9),
    "gemma-4-26b-a4b": (25.2e9, 3.8e9, 0.05e9),
    "gemma-4-31b": (30.7e9, 30.7e9, 0.05e9),
    "gpt-oss-120b": (116.8e9, 5.1e9, 0.05e9),
    "qwen3-235b": (235e9, 22e9, 0.5e9),
    "qwen3-coder-480b": (480e9, 35e9, 0.5e9),
}
# KV elements a token, summed over layers: those that keep everything, those in a sliding window.
KV_ELEMENTS = {
    "deepseek-r1": (35_136, 0),
    "gemma-4-26b-a4b": (5 * 2048, 25 * 4096),
    "gemma-4-31b": (10 * 4096, 50 * 8192),
    "glm-4.6": (188_416, 0),
    "gpt-oss-120b": (18 * 1024, 18 * 1024),
    "kimi-k2": (35_136, 0),
    "llama-3.1-8b": (65_536, 0),
    "llama-3.3-70b": (163_840, 0),
    "qwen3-235b": (96_256, 0),
    "qwen3-32b": (131_072, 0),
    "qwen3-coder-480b": (126_976, 0),
}
# (drafter, kind of text, drafts): the accepted length that was measured, in tokens a step.
ACCEPTED_LENGTHS = {
    ("gemma-4-31b-mtp", "code", 7): 5.37,
    ("gemma-4-31b-mtp", "code-fp4", 7): 5.19,
    ("deepseek-r1-mtp", "code", 1): 1.92,
    ("deepseek-r1-mtp", "code", 2): 2.58,
    ("deepseek-r1-mtp", "code", 3): 2.82,
    ("deepseek-r1-mtp", "code", 4): 2.99,
    ("deepseek-r1-mtp", "code", 5): 3.01,
}
ODD_FP8_RATIO = {
    "rubin": "NVIDIA's page gives 17.5 PFLOPS of FP8 and 4 of BF16: FP8 was widened with FP4, BF16 was not"
}
LINE_RATE = {
    "b200": 900e9,
    "b300": 900e9,
    "gb200": 900e9,
    "gb300": 900e9,
    "h100": 450e9,
    "h200": 450e9,
    "mi300x": 448e9,
    "rubin": 1800e9,
}


def expected_length(rates: tuple[float, ...]) -> float:
    return 1.0 + sum(prod(rates[: i + 1]) for i in range(len(rates)))


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_every_file_loads_and_is_found_by_its_name(kind: str, name: str) -> None:
    spec = catalog.load(catalog.schema_of(kind), name)
    assert spec.title  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_every_datum_says_where_it_comes_from(kind: str, name: str) -> None:
    for path, datum in data_of(catalog.load(catalog.schema_of(kind), name)):
        assert len(datum.source_text) > 8, path
        if datum.basis == "assumed":
            assert datum.why, path


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_every_source_key_is_used_and_every_used_key_is_explained(kind: str, name: str) -> None:
    spec = catalog.load(catalog.schema_of(kind), name)
    keys = {datum.source for _, datum in data_of(spec) if datum.source}
    declared = set(getattr(spec, "sources", {}))
    assert declared <= keys, "declared and never used"
    assert all(" " in key for key in keys - declared), "a bare word that no source explains"


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_no_text_of_the_catalog_points_into_somebodys_file_system(kind: str, name: str) -> None:
    with open(f"{catalog.folder(kind)}/{name}.yaml", encoding="utf-8") as file:
        assert not LOCAL.findall(file.read().replace("https://", ""))


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_a_range_encloses_its_value(kind: str, name: str) -> None:
    for path, datum in data_of(catalog.load(catalog.schema_of(kind), name)):
        if datum.range is not None and isinstance(datum.value, int | float):
            low, high = datum.range
            assert low <= datum.value <= high, path
            assert low < high, path


@pytest.mark.parametrize("name", MODELS)
def test_a_models_shape_has_the_stated_number_of_weights(name: str) -> None:
    shape, stated = MODELS[name].shape.value, MODELS[name].parameters.value
    assert shape is not None
    assert stated is not None
    assert shapes.total_parameters(shape) == pytest.approx(stated.total, rel=0.01)
    assert shapes.active_parameters(shape) == pytest.approx(stated.active, rel=0.01)


@pytest.mark.parametrize("name", VENDOR)
def test_a_models_shape_has_the_weights_that_its_vendor_advertises(name: str) -> None:
    shape = MODELS[name].shape.value
    assert shape is not None
    total, active, rounding = VENDOR[name]
    assert shapes.total_parameters(shape) == pytest.approx(total, rel=0.01)
    assert shapes.active_parameters(shape) == pytest.approx(active, abs=rounding)


@pytest.mark.parametrize("name", KV_ELEMENTS)
def test_a_token_leaves_the_published_kv_elements(name: str) -> None:
    shape = MODELS[name].shape.value
    assert shape is not None
    kept = sum(g.layers * g.kv_elements() for g in shape.attention if g.kind != "window")
    windowed = sum(g.layers * g.kv_elements() for g in shape.attention if g.kind == "window")
    assert (kept, windowed) == KV_ELEMENTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_the_layers_of_a_model_are_all_accounted_for(name: str) -> None:
    shape = MODELS[name].shape.value
    assert shape is not None
    assert sum(g.layers for g in shape.attention) == shape.layers
    if shape.experts is not None and shape.dense_layers is not None:
        assert shape.experts.layers + shape.dense_layers == shape.layers


def test_the_fp4_checkpoint_of_gemma_is_no_smaller_than_its_fp8_weights() -> None:
    model = MODELS["gemma-4-31b"]
    weights = weights_of(model, "fp4", Ledger())
    size = weights.packed * weights.packed_bytes + 2 * (weights.kept + weights.head)
    assert size == pytest.approx(31.5e9, rel=0.01)


@pytest.mark.parametrize(("name", "text", "drafts"), ACCEPTED_LENGTHS)
def test_acceptance_reproduces_the_measured_accepted_length(name: str, text: str, drafts: int) -> None:
    drafting = MODELS[name].drafting
    assert drafting is not None
    rates = drafting.acceptance[text].value
    assert rates is not None
    measured = ACCEPTED_LENGTHS[name, text, drafts]
    assert expected_length(rates[:drafts]) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.drafting])
def test_no_kind_of_text_is_drafted_better_than_code(name: str) -> None:
    drafting = MODELS[name].drafting
    assert drafting is not None
    lengths = {kind: expected_length(d.value or ()) for kind, d in drafting.acceptance.items()}
    assert max(lengths.values()) == lengths["code"]


@pytest.mark.parametrize("name", [n for n, c in CHIPS.items() if {"fp8", "bf16"} <= c.dense_compute.keys()])
def test_peak_compute_is_dense_in_every_precision(name: str) -> None:
    peak = {p: d.value for p, d in CHIPS[name].dense_compute.items()}
    assert peak["fp8"] is not None
    assert peak["bf16"] is not None
    ratio = peak["fp8"] / peak["bf16"]
    if name in ODD_FP8_RATIO:
        assert ratio > 2.05, f"no longer odd: {ODD_FP8_RATIO[name]}"
    else:
        assert min(abs(ratio - 1), abs(ratio - 2)) < 0.02
    if peak.get("fp4") is not None:
        assert 1.9 < peak["fp4"] / peak["fp8"] < 3.2  # type: ignore[operator]


@pytest.mark.parametrize("name", GPUS)
def test_a_gpus_ridge_point_is_plausible(name: str) -> None:
    flops, bandwidth = GPUS[name].dense_compute["bf16"].value, GPUS[name].memory_bandwidth.value
    assert flops is not None
    assert bandwidth is not None
    assert 150 < flops / bandwidth < 350


@pytest.mark.parametrize("name", GPUS)
def test_scale_up_bandwidth_is_the_published_one_of_one_direction(name: str) -> None:
    scale_up = GPUS[name].scale_up
    assert scale_up is not None
    assert scale_up.bandwidth.value is not None
    assert scale_up.bandwidth.value <= LINE_RATE[name]


def test_the_lpx_rack_is_the_sum_of_its_chips() -> None:
    chip = CHIPS["lp30"]
    assert chip.rack is not None
    count = chip.rack.chips.value or 0
    assert count * (chip.memory.value or 0) == pytest.approx(128e9, rel=0.03)
    assert count * (chip.memory_bandwidth.value or 0) == pytest.approx(40e15, rel=0.05)
    assert count * (chip.dense_compute["fp8"].value or 0) == pytest.approx(315e15, rel=0.03)
    assert chip.scale_up is not None
    assert chip.rack.scale_up_total is not None
    assert 2 * count * (chip.scale_up.bandwidth.value or 0) == pytest.approx(chip.rack.scale_up_total.value)


def test_lpx_lanes_do_not_exceed_the_links_of_a_chip() -> None:
    rack = CHIPS["lp30"].rack
    assert rack is not None
    assert rack.trays is not None
    assert rack.links is not None
    assert rack.lanes_in_tray is not None
    assert rack.lanes_between_trays is not None
    trays = rack.trays.value or 0
    in_tray = (rack.chips.value or 0) // trays - 1
    used = in_tray * (rack.lanes_in_tray.value or 0) + (trays - 1) * (rack.lanes_between_trays.value or 0)
    assert used <= (rack.links.value or 0)


def test_more_lpx_memory_is_farther_away() -> None:
    rack = CHIPS["lp30"].rack
    assert rack is not None
    assert rack.reach is not None
    for near, far in pairwise(rack.reach.value or ()):
        assert near.memory < far.memory
        assert near.latency < far.latency


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_profile_fits_the_gpu_that_it_is_named_after(name: str) -> None:
    profile = ENGINES[name]
    assert name == f"{profile.software}-{profile.hardware}"
    peaks = CHIPS[profile.hardware].dense_compute
    assert profile.weight_read_efficiency.keys() == profile.gemm_efficiency.keys()
    assert profile.gemm_efficiency.keys() <= peaks.keys()


@pytest.mark.parametrize("name", ENGINES)
def test_an_all_reduce_is_no_faster_than_the_links(name: str) -> None:
    profile = ENGINES[name]
    scale_up = CHIPS[profile.hardware].scale_up
    assert scale_up is not None
    for gpus, entry in profile.all_reduce.items():
        assert int(gpus) <= (scale_up.chips.value or 0)
        for bandwidth in (entry.bandwidth, entry.large_bandwidth):
            assert (bandwidth.value or 0) <= (scale_up.bandwidth.value or 0)


@pytest.mark.parametrize("name", ENGINES)
def test_an_all_reduce_over_more_gpus_starts_no_sooner(name: str) -> None:
    if name in ("trtllm-gb200", "trtllm-gb300", "trtllm-rubin"):
        pytest.skip("over eight GPUs and more, another protocol takes over: multi-node NVLink, one-shot")
    table = ENGINES[name].all_reduce
    starts = [table[size].latency.value or 0 for size in sorted(table, key=int)]
    assert starts == sorted(starts)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoints_speeds_are_listed_by_rising_context(name: str) -> None:
    points = ENDPOINTS[name].decode_speed.value
    assert points is not None
    contexts = [p.context_tokens for p in points]
    assert contexts == sorted(set(contexts))
    assert all(1 < p.speed < 100_000 for p in points)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_names_a_model_that_the_catalog_has(name: str) -> None:
    model = ENDPOINTS[name].model
    assert model is None or model in MODELS or model.startswith("claude")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_can_be_built_from_the_catalog(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    model = MODELS[deployment.model]
    for engine in deployment.engines.values():
        if engine.backend != "gpu":
            continue
        precision, profile = engine.precision.weights, ENGINES[f"{engine.software}-{engine.hardware}"]
        assert engine.chips == 1 or str(engine.chips) in profile.all_reduce
        stored = format_of(model, precision)
        kind = "moe" if model.shape.value.experts else "dense"
        assert precision in profile.gemm_efficiency or stored in profile.serving[kind]


@pytest.mark.parametrize("name", [n for n, d in DEPLOYMENTS.items() if d.speculation])
def test_a_deployments_drafter_drafts_for_its_model(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    assert deployment.speculation is not None
    drafting = MODELS[deployment.speculation.drafter].drafting
    assert drafting is not None
    assert drafting.target == deployment.model
    rates = drafting.acceptance[deployment.speculation.text].value
    assert rates is not None
    assert 1 <= deployment.speculation.draft_tokens <= len(rates)


def changed(kind: str, name: str, place: str, value: Any) -> Any:
    """Read a spec of the catalog with one entry changed."""
    document = catalog.document(kind, name)
    document = yaml_file.with_overrides(document, [f"{place}={value}"], SpecError)
    return catalog.from_document(catalog.schema_of(kind), document, name)


@pytest.mark.parametrize(
    ("kind", "name", "place", "value"),
    [
        ("hardware", "h200", "memory.value", "0 GB"),
        ("hardware", "lp30", "vector.value", "0 B"),
        ("hardware", "lp30", "rack.chips.value", 0),
        ("hardware", "lp30", "rack.lanes_in_tray.value", 0),
        ("hardware", "lp30", "lpu.batched_tokens.value", 0),
        ("engines", "trtllm-h200", "memory_share.value", 0),
        ("engines", "trtllm-h200", "weight_read_efficiency.fp8.value", 0),
        ("engines", "trtllm-h200", "kv_read_efficiency.value", 0),
        ("engines", "trtllm-h200", "gemm_efficiency.fp8.value", 0),
        ("engines", "trtllm-h200", "attention_efficiency.value", 0),
        ("engines", "trtllm-h200", "batched_tokens.value", 0),
        ("engines", "trtllm-h200", "sequences.value", 0),
        ("models", "gemma-4-31b", "shape.value.layers", 0),
        ("models", "gemma-4-31b", "shape.value.hidden", 0),
        ("models", "gemma-4-31b", "shape.value.attention[0].heads", 0),
    ],
)
def test_what_is_divided_by_is_over_zero(kind: str, name: str, place: str, value: Any) -> None:
    with pytest.raises(SpecError, match=r"\.yaml:\d+: .*over 0"):
        changed(kind, name, place, value)


@pytest.mark.parametrize("bounds", ["[0.9, 0.1]", "[0.1, 0.2]", "[0.9, 0.95]"])
def test_a_value_lies_in_its_range(bounds: str) -> None:
    with pytest.raises(SpecError, match="must lie in its range"):
        changed(
            "engines",
            "trtllm-h200",
            "memory_share",
            f"{{value: 0.8, range: {bounds}, basis: assumed, why: x}}",
        )


def test_an_unknown_that_is_needed_is_said_in_one_line() -> None:
    chip = changed("hardware", "h200", "memory", "{basis: unknown, why: the vendor has not said}")
    with pytest.raises(SpecError, match=r"h200\.memory is unknown"):
        Ledger().take(chip.memory)
