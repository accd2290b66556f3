"""Patterns of several engines: stages in order, KV paid for, nothing lost between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsim import plugins
from agentsim.backends.base import Batch
from agentsim.backends.lpx.cost import LpxCost
from agentsim.coexec.external_drafter import TOKEN_BYTES
from agentsim.compare import compare
from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError, SpecError, UnknownNameError
from agentsim.result import Part
from agentsim.sim.engine import simulate
from agentsim.sim.interactivity import interactivity
from agentsim.specs import catalog
from agentsim.specs.deployment import Deployment
from agentsim.summary import summarise
from agentsim.workflow.schema import Workflow

SPLIT = "gemma-pd-2xb200"


def task(*steps, **more):
    return Workflow.model_validate({"name": "made", "steps": list(steps), **more})


def say(tokens):
    return {"generate": {"tokens": tokens}}


ONE_CALL = task({"user": {"tokens": 20_000}}, say(300))
TWO_CALLS = task({"user": {"tokens": 20_000}}, say(300), {"user": {"tokens": 1000}}, say(300))


def test_prefill_transfer_and_decode_follow_each_other():
    result = simulate(compile_plan(ONE_CALL, SPLIT))
    assert [span.name for span in result.spans] == ["prefill on prefill", "KV over kv", "decode on decode"]
    assert [span.part for span in result.spans] == [Part.PREFILL, Part.KV_TRANSFER, Part.DECODE]


def test_the_transfer_takes_the_latency_and_the_kv_of_the_prompt_over_the_bandwidth():
    plan = compile_plan(ONE_CALL, SPLIT)
    cost, link = plan.engines["decode"], plan.links["kv"]
    [turn] = simulate(plan).turns
    size = cost.kv_bytes(20_000, cost.window_tokens)
    assert turn.transfer_ns == pytest.approx((link.latency_s + size / link.bytes_per_s) * 1e9, abs=2)


@pytest.mark.parametrize("kept", ["new", "whole"])
def test_a_second_turn_moves_what_the_decode_engine_does_not_keep(kept):
    plan = compile_plan(TWO_CALLS, SPLIT, [f"kv={kept}"])
    first, second = simulate(plan).turns
    latency_ns = plan.links["kv"].latency_s * 1e9
    sent = (second.transfer_ns - latency_ns) / (first.transfer_ns - latency_ns)
    if kept == "whole":
        assert sent > 1
    else:
        assert sent < 0.1


def test_a_split_call_takes_what_one_engine_takes_and_the_transfer():
    """Alone on the machine, two engines of one kind do the same work as one."""
    [split] = simulate(compile_plan(ONE_CALL, SPLIT)).turns
    [whole] = simulate(compile_plan(ONE_CALL, SPLIT, ["pattern=single", _ONE_ENGINE])).turns
    assert (split.prefill_ns, split.decode_ns) == pytest.approx((whole.prefill_ns, whole.decode_ns), rel=1e-6)


_ONE_ENGINE = (
    "engines={main: {hardware: b200, chips: 1, precision: {weights: fp8, kv: fp8}, software: trtllm}}"
)


def test_the_ttft_holds_the_transfer():
    [turn] = simulate(compile_plan(ONE_CALL, SPLIT)).turns
    assert turn.ttft_ns == turn.network_ns + turn.queue_ns + turn.prefill_ns + turn.transfer_ns


def test_a_prefill_does_not_slow_the_decode_of_another_agent():
    steps = [{"user": {"tokens": 50_000}}, say(200)]
    agents = {"agents": [{"name": f"a{i}", "steps": steps} for i in range(3)]}
    mixed = simulate(compile_plan(task(agents), SPLIT, ["pattern=single", _ONE_ENGINE]))
    split = simulate(compile_plan(task(agents), SPLIT))

    def worst_itl(result):
        return max(turn.itl_ns for turn in result.turns)

    assert worst_itl(split) < worst_itl(mixed)


def test_a_link_carries_one_transfer_after_another():
    steps = [{"user": {"tokens": 2000}}, say(20)]
    agents = {"agents": [{"name": f"a{i}", "steps": steps} for i in range(4)]}
    slow = ["links.kv.bandwidth.value=1 MB/s"]
    turns = simulate(compile_plan(task(agents), SPLIT, slow)).turns
    alone = min(turn.transfer_ns for turn in turns)
    assert max(turn.transfer_ns for turn in turns) == pytest.approx(4 * alone, rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "engines={main: {hardware: b200, precision: {weights: fp8, kv: fp8}, software: trtllm}}",
            "prefill, decode",
        ),
        ("links={}", "needs a link named 'kv'"),
        ("pattern=single", "takes one engine"),
    ],
    ids=["engines of other names", "no link", "two engines for one"],
)
def test_a_pattern_says_what_it_needs(change, message):
    with pytest.raises(SpecError, match=message):
        compile_plan(ONE_CALL, SPLIT, [change])


def test_every_pattern_is_a_plug_in():
    patterns = {"single", "prefill_decode", "external_drafter", "attention_ffn", "routed"}
    assert patterns <= set(plugins.built_in_names("coexec"))


# on LPX beside VR NVL72

PATTERNS = ("lpx-prefill-decode", "llama-70b-lpx-drafter", "gemma-afd")
OSS2T = ("oss2t-nvl72", "oss2t-prefill-decode", "oss2t-afd", "oss2t-drafter")
NOTHING = "basis: derived, source: a perfect link"
IDEAL = f"{{latency: {{value: 0 s, {NOTHING}}}, bandwidth: {{value: 1000000 TB/s, {NOTHING}}}}}"
RUBIN = "{hardware: rubin, chips: 8, precision: {weights: fp8, kv: fp8}, software: trtllm}"


def cost_of(name, *overrides):
    return compile_plan(ONE_CALL, name, overrides).engines["main"]


def decoding(sequences, context):
    return Batch(sequences, sequences * context, sequences * min(context, 1024))


@pytest.mark.parametrize("name", [*PATTERNS, *OSS2T, "gemma-8xrubin-mtp"])
def test_a_pattern_does_a_short_task(name):
    result = simulate(compile_plan(TWO_CALLS, name))
    assert [turn.prompt for turn in result.turns] == [20_000, 21_300]
    assert all(turn.decode_ns > 0 for turn in result.turns)


def test_a_split_engine_decodes_as_fast_as_it_does_alone():
    [split] = simulate(compile_plan(ONE_CALL, "lpx-prefill-decode")).turns
    [alone] = simulate(compile_plan(ONE_CALL, "lpx")).turns
    assert split.decode_ns == alone.decode_ns


def test_a_drafter_runs_on_the_engine_that_decodes_alone():
    drafting, plain = (
        compile_plan(ONE_CALL, "lpx-prefill-decode", overrides).engines
        for overrides in ([], ["speculation=null"])
    )
    assert drafting["prefill"] == plain["prefill"]
    assert drafting["decode"].verified_tokens == 8
    assert plain["decode"].verified_tokens == 1


def test_copies_of_kv_do_not_cross():
    """Eight GPUs and a width of LPUs keep heads several times; a link carries each once."""
    plan = compile_plan(ONE_CALL, "lpx-prefill-decode")
    [turn] = simulate(plan).turns
    link, once = plan.links["kv"], 20_000 * 10 * 4096 + 1024 * 50 * 8192
    assert turn.transfer_ns == pytest.approx(1e9 * link.time_s(once), abs=2)
    assert plan.engines["prefill"].kv_bytes(20_000, 1024) > once


@pytest.mark.parametrize("first", ["lpx-prefill-decode", "gemma-routed", "gemma-afd"])
def test_any_pattern_can_be_what_others_are_compared_with(first):
    plans = [compile_plan(ONE_CALL, name) for name in (first, "coding-tool")]
    assert compare(plans, simulate, [0]).verdict.instant_s == 0


# a drafter elsewhere


def test_only_tokens_cross_to_and_from_an_external_drafter():
    cost = cost_of("llama-70b-lpx-drafter")
    parts, tokens = cost.parts(decoding(3, 10_000)), 3 * (cost.drafts + cost.drafts + 1)
    crossing = 2 * cost.link.latency_s + TOKEN_BYTES * tokens / cost.link.bytes_per_s
    assert parts["crossing"] == pytest.approx(crossing, rel=1e-9)


def test_a_step_is_all_drafts_and_a_verification_of_one_more():
    cost, batch = cost_of("llama-70b-lpx-drafter"), decoding(3, 10_000)
    alone = cost_of("llama-70b-4xb200", "engines.main.hardware=rubin", "engines.main.chips=8")
    parts = cost.parts(batch)
    assert parts["drafting"] == pytest.approx(cost.drafts * cost.draft.iteration_s(batch), rel=1e-12)
    together = Batch(3 * (cost.drafts + 1), batch.context, batch.window)
    assert parts["verifying"] == pytest.approx(alone.iteration_s(together), rel=1e-12)


def test_drafts_that_are_never_accepted_gain_nothing(tmp_path):
    text = Path(catalog.folder("models"), "llama-3.1-8b.yaml").read_text("utf-8")
    never = text.replace("0.80", "0.0").replace("0.65", "0.0")
    (tmp_path / "never.yaml").write_text(never, "utf-8")
    named = [f"speculation.drafter={tmp_path}/never.yaml", f"engines.draft.model={tmp_path}/never.yaml"]
    cost = cost_of("llama-70b-lpx-drafter", *named)
    alone = cost_of("llama-70b-4xb200", "engines.main.hardware=rubin", "engines.main.chips=8")
    assert cost.tokens_per_step == 1
    assert cost.iteration_s(decoding(1, 10_000)) > alone.iteration_s(decoding(1, 10_000))


def test_the_draft_length_is_the_fastest_where_none_is_given():
    def per_token(cost):
        return cost.iteration_s(decoding(1, 10_000)) / cost.tokens_per_step

    chosen = cost_of("oss2t-drafter", "speculation.draft_tokens=null")
    others = [cost_of("oss2t-drafter", f"speculation.draft_tokens={n}") for n in range(1, 9)]
    assert per_token(chosen) == min(map(per_token, others))
    assert 1 < chosen.drafts < 8


def test_both_engines_hold_what_a_drafted_sequence_keeps():
    roomy = cost_of("llama-70b-lpx-drafter")
    small = cost_of("llama-70b-lpx-drafter", "engines.draft.chips=32", "engines.draft.context=32k")
    assert small.kv_capacity_bytes < roomy.kv_capacity_bytes
    context = small.kv_capacity_bytes / small.kv_bytes(1, 0)
    assert small.draft.kv_bytes(context, 0) == pytest.approx(small.draft.kv_capacity_bytes, rel=1e-9)
    assert small.target.kv_bytes(context, 0) < small.target.kv_capacity_bytes


# attention and feed-forward apart


def test_activations_cross_twice_a_layer():
    cost = cost_of("gemma-afd", "speculation=null")
    latency_s, bytes_per_s, _ = cost.link
    for sequences in (1, 2):
        crossing = 60 * 2 * (latency_s + sequences * 5376 * 2 / bytes_per_s)
        assert cost.parts(decoding(sequences, 10_000))["crossing"] == pytest.approx(crossing, rel=1e-9)


def test_one_sequence_waits_for_each_half_in_turn():
    cost = cost_of("gemma-afd", "speculation=null")
    parts = cost.parts(decoding(1, 10_000))
    assert parts["attention"] == pytest.approx(cost.attention.iteration_s(decoding(1, 10_000)), rel=1e-9)
    assert parts["ffn"] == pytest.approx(cost.ffn.pass_s(1), rel=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_two_halves_on_equal_machines_with_a_perfect_link_are_one_machine(share):
    """At batch 1, where nothing overlaps and reading is all that counts."""
    ideal = [f"engines.ffn={RUBIN}", f"links.activations={IDEAL}", f"attention_overhead_share.value={share}"]
    halves, whole = cost_of("gemma-afd", "speculation=null", *ideal), cost_of("gemma-8xrubin")
    assert halves.iteration_s(decoding(1, 10_000)) == pytest.approx(
        whole.iteration_s(decoding(1, 10_000)), rel=1e-9
    )


@pytest.mark.parametrize("sequences", [1, 2, 3, 7, 16, 64, 200])
def test_micro_batches_take_no_longer_than_one_and_no_less_than_the_busier_half(sequences):
    cost = cost_of("gemma-afd", "speculation=null")
    batch = decoding(sequences, 10_000)
    attention, ffn = cost.attention.iteration_s(batch), cost.ffn.pass_s(sequences)
    crossing = 60 * 2 * (cost.link.latency_s + sequences * 5376 * 2 / cost.link.bytes_per_s)
    assert max(attention, ffn) <= cost.iteration_s(batch) * (1 + 1e-9)
    assert cost.iteration_s(batch) <= (attention + ffn + crossing) * (1 + 1e-9)


def test_a_slower_link_never_helps():
    times = [
        cost_of("gemma-afd", f"links.activations.latency.value={us} us").iteration_s(decoding(4, 10_000))
        for us in (2, 4, 20)
    ]
    assert times == sorted(set(times))


def test_prefill_is_the_attention_engines_own():
    apart, whole = (
        simulate(compile_plan(ONE_CALL, name)).turns[0] for name in ("gemma-afd", "gemma-8xrubin-mtp")
    )
    assert apart.prefill_ns == whole.prefill_ns


def test_lpus_hold_the_feed_forward_weights_and_nothing_else():
    cost = cost_of("gemma-afd").ffn
    assert cost.weight_bytes == 60 * 3 * 5376 * 21504
    assert cost.lpus * 500e6 >= cost.weight_bytes


def test_a_feed_forward_half_is_shorter_than_whole_layers():
    whole = compile_plan(ONE_CALL, "lpx-no-speculation").engines["main"]
    assert isinstance(whole, LpxCost)
    assert cost_of("gemma-afd").ffn.pass_s(1) < whole.iteration_s(decoding(1, 0))


# what cannot be, in one line

GEMMA_DRAFTER = [
    "model=gemma-4-31b",
    "engines.draft.model=gemma-4-31b-mtp",
    "speculation={drafter: gemma-4-31b-mtp, text: code}",
]
REFUSED = {
    "a drafter that reads its target's KV": (
        "llama-70b-lpx-drafter",
        GEMMA_DRAFTER,
        "reads its target's KV cache",
    ),
    "no drafter": ("llama-70b-lpx-drafter", ["speculation=null"], "needs speculation"),
    "a drafter that runs nowhere": (
        "llama-70b-lpx-drafter",
        ["engines.draft.model=null"],
        "set the engine's model to llama-3.1-8b",
    ),
    "a model of its own on another engine": (
        "lpx-prefill-decode",
        ["engines.decode.model=llama-3.1-8b"],
        "names a model of its own",
    ),
    "no share": ("gemma-afd", ["attention_overhead_share=null"], "needs attention_overhead_share"),
    "attention on LPUs": (
        "gemma-afd",
        ["engines.attention={backend: lpx, hardware: lp30, chips: 256, precision: {weights: fp8, kv: fp8}}"],
        "in the memory of GPUs",
    ),
    "too few LPUs for the MLPs": ("gemma-afd", ["engines.ffn.chips=16"], "with chips: 48"),
    "too few racks for the experts": (
        "oss2t-afd",
        ["engines.ffn.chips=256", "engines.ffn.racks=1"],
        "with chips: 4096 and racks: 16",
    ),
    "fp4 on LPUs": ("gemma-afd", ["engines.ffn.precision.weights=fp4"], "has no fp4; it has fp8"),
    "no link": ("gemma-afd", ["links={}"], "needs a link named 'activations'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_pattern_cannot_do_is_refused_in_one_line(case):
    name, overrides, said = REFUSED[case]
    with pytest.raises((SpecError, InfeasibleError), match=said) as refusal:
        compile_plan(ONE_CALL, name, overrides)
    assert "\n" not in str(refusal.value)


# a model of two trillion


def test_the_racks_of_the_2t_model_are_the_fewest_that_hold_it():
    for name, engine in (("oss2t-prefill-decode", "decode"), ("oss2t-afd", "ffn")):
        racks = catalog.load(Deployment, name).engines[engine].racks
        one_less = [f"engines.{engine}.racks={racks - 1}", f"engines.{engine}.chips={256 * (racks - 1)}"]
        with pytest.raises(InfeasibleError, match=f"racks: {racks}"):
            compile_plan(ONE_CALL, name, one_less)


def test_each_pattern_speeds_up_the_2t_model():
    alone, *patterns = (interactivity(compile_plan(ONE_CALL, name)) for name in OSS2T)
    assert min(patterns) > alone


# where decode time goes


@pytest.mark.parametrize("name", [*PATTERNS, "lpx"])
def test_the_parts_of_decode_sum_to_it(name):
    result = simulate(compile_plan(TWO_CALLS, name))
    assert sum(result.decode_parts.values()) == pytest.approx(result.part_s(Part.DECODE), rel=1e-9)
    assert summarise([result, result]).decode_parts_s == pytest.approx(dict(result.decode_parts), rel=1e-9)


def test_an_engine_without_parts_has_none():
    assert simulate(compile_plan(ONE_CALL, "8xb200")).decode_parts == {}


@pytest.mark.parametrize("name", [*PATTERNS, *OSS2T[1:]])
def test_the_parts_of_an_iteration_sum_to_it(name):
    for cost in compile_plan(ONE_CALL, name).engines.values():
        for batch in (decoding(1, 5000), decoding(40, 90_000), Batch(2, 9e3, 9e3, 512, 1e6, 1e5)):
            if hasattr(cost, "parts"):
                assert sum(cost.parts(batch).values()) == pytest.approx(cost.iteration_s(batch), rel=1e-9)


# rules that send calls to one of several engines

ROUTED = "gemma-routed"


def names_of(result):
    return [span.name for span in result.spans]


def test_the_first_rule_that_holds_decides():
    long, both = [{"user": {"tokens": 130_000}}, say(20)], "rules=[{when: {context_over: 100k}, to: main}]"
    assert names_of(simulate(compile_plan(task(*long), ROUTED))) == ["prefill on long", "decode on long"]
    assert names_of(simulate(compile_plan(task(*long), ROUTED, [both]))) == [
        "prefill on main",
        "decode on main",
    ]
    assert "decode on main" in names_of(simulate(compile_plan(ONE_CALL, ROUTED)))


def test_one_way_for_all_is_that_engine_alone():
    [sent] = simulate(compile_plan(ONE_CALL, ROUTED, ["rules=[]"])).turns
    [alone] = simulate(compile_plan(ONE_CALL, "lpx", ["engines.main.context=128k"])).turns
    assert (sent.prefill_ns, sent.decode_ns) == (alone.prefill_ns, alone.decode_ns)


GROWS = task({"user": {"tokens": 20_000}}, say(300), {"user": {"tokens": 1000}}, say(300))
OVER = "rules=[{when: {context_over: 20500}, to: long, kv: %s}]"


def test_kv_moves_with_a_call_that_changes_engines():
    plan = compile_plan(GROWS, ROUTED, [OVER % "move"])
    first, second = simulate(plan).turns
    kept = 20_300 * 10 * 4096 + 1024 * 50 * 8192
    assert first.transfer_ns == 0
    assert second.transfer_ns == pytest.approx(1e9 * plan.links["kv"].time_s(kept), abs=2)
    assert second.cached == 20_300 // 16 * 16  # whole blocks


def test_kv_that_does_not_move_is_prefilled_again():
    moved, again = (simulate(compile_plan(GROWS, ROUTED, [OVER % kv])).turns[1] for kv in ("move", "prefill"))
    assert (again.transfer_ns, again.cached) == (0, 0)
    assert again.prefill_ns > moved.prefill_ns


@pytest.mark.parametrize(("bandwidth", "kind"), [("400 GB/s", "move"), ("1 MB/s", "prefill")])
def test_the_cheaper_of_both_is_taken(bandwidth, kind):
    link = f"links.kv.bandwidth.value={bandwidth}"
    free, told = (
        simulate(compile_plan(GROWS, ROUTED, [OVER % kv, link])).turns[1] for kv in ("cheaper", kind)
    )
    assert (free.transfer_ns, free.prefill_ns) == (told.transfer_ns, told.prefill_ns)


def test_only_what_is_new_moves_back():
    """The engine that a session left still has what it had."""
    there = "{when: {new_tokens_over: 900}, to: long, kv: move}"
    home = "{when: {context_over: 2900}, to: main, kv: move}"
    back = f"rules=[{there}, {home}]"
    steps = [
        {"user": {"tokens": 800}},
        say(20),
        {"user": {"tokens": 2000}},
        say(20),
        {"user": {"tokens": 100}},
        say(20),
    ]
    to_long, to_main = (
        turn.transfer_ns for turn in simulate(compile_plan(task(*steps), ROUTED, [back])).turns[1:]
    )
    link = compile_plan(ONE_CALL, ROUTED).links["kv"]
    held, grown = 820 * (10 * 4096 + 50 * 8192), 2840 * 10 * 4096 + 1024 * 50 * 8192
    assert to_long == pytest.approx(1e9 * link.time_s(held), abs=2)
    assert to_main == pytest.approx(1e9 * link.time_s(grown - held), abs=2)


def test_a_role_is_a_sub_agents_name():
    rule = "rules=[{when: {role: reviewer}, to: long}]"
    agents = [
        {"name": name, "steps": [{"user": {"tokens": 500}}, say(20)]} for name in ("reviewer", "writer")
    ]
    spans = simulate(compile_plan(task({"agents": agents}, say(20)), ROUTED, [rule])).spans
    used = {(span.lane, span.name.split()[-1]) for span in spans if span.name.startswith("decode")}
    assert used == {("main/reviewer", "long"), ("main/writer", "main"), ("main", "main")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["default=null"], "needs a default"),
        (["default=elsewhere"], "elsewhere"),
        (["links={}", OVER % "move"], "no link named 'kv'"),
        (["pattern=single"], "only pattern 'routed' follows rules"),
    ],
    ids=["no default", "an engine that is not there", "no link", "another pattern"],
)
def test_rules_that_cannot_be_followed_are_refused_in_one_line(change, said):
    with pytest.raises((SpecError, UnknownNameError), match=said) as refusal:
        compile_plan(ONE_CALL, ROUTED, change)
    assert "\n" not in str(refusal.value)
