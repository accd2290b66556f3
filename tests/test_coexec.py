"""Patterns of several engines: stages in order, KV paid for, nothing lost between them."""

from __future__ import annotations

import pytest

from agentsim import plugins
from agentsim.compile import compile_plan
from agentsim.errors import SpecError
from agentsim.result import Part
from agentsim.sim.engine import simulate
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
    assert {"single", "prefill_decode"} <= set(plugins.built_in_names("coexec"))
