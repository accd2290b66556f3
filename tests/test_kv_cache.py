"""The KV memory of an engine: what idle contexts keep, what is evicted, shared, loaded back, put back."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from conftest import plan_of, workflow
from hypothesis import given
from hypothesis import strategies as st
from test_server import Simple

from agentsim.backends.base import ServingRules, Tier
from agentsim.compile import compile_plan
from agentsim.result import Part
from agentsim.sim.clock import Clock
from agentsim.sim.engine import simulate
from agentsim.sim.load import SAMPLES, Load
from agentsim.sim.request import Prefix, Work
from agentsim.sim.server import EngineServer

BLOCKS = ServingRules(block_tokens=16, reserve=False)
UNIT = Simple(base_s=1e-3, token_s=1e-5, batched_tokens=100_000, max_sequences=64, rules=BLOCKS)


def in_turn(cost, calls):
    """Run calls (owner, prompt, claimed, output, *shared) in turn; return the server and requests."""
    env, made = Clock(), []
    server = EngineServer(env, cost)

    def caller():
        for owner, prompt, claimed, output, *shared in calls:
            prefix = Prefix(claimed, env.now, owner, *(shared or (0,)), "main")
            made.append(server.submit(Work(prompt, prefix, output)))
            yield made[-1].done
            yield env.timeout(5)

    env.process(caller())
    env.run()
    return server, made


def at_once(cost, calls, gap_ns=1):
    """Run calls (owner, prompt, claimed, output) that arrive together; return server and requests."""
    env, made = Clock(), []
    server = EngineServer(env, cost)

    def caller():
        for owner, prompt, claimed, output in calls:
            made.append(server.submit(Work(prompt, Prefix(claimed, 0, owner), output)))
            yield env.timeout(gap_ns)

    env.process(caller())
    env.run()
    return server, made


def hits(requests):
    return [request.cached for request in requests]


def test_an_idle_context_stays_while_memory_lasts_in_whole_blocks():
    _, made = in_turn(UNIT, [("a", 100, 0, 20), ("a", 150, 120, 1)])
    assert hits(made) == [0, 112]  # 119 tokens were computed: seven whole blocks


def test_the_oldest_context_is_evicted_from_its_tail():
    cost = replace(UNIT, kv_capacity_bytes=320.0)  # 20 blocks
    calls = [("a", 160, 0, 1), ("b", 96, 0, 1), ("c", 96, 0, 1), ("a", 161, 160, 1)]
    _, made = in_turn(cost, calls)
    assert hits(made) == [0, 0, 0, 128]  # 22 blocks for 20 places: a lost two of its ten
    _, made = in_turn(cost, [*calls[:3], ("b", 97, 96, 1)])
    assert made[-1].cached == 96


def test_at_least_one_token_of_a_prompt_is_computed():
    _, made = in_turn(UNIT, [("a", 64, 0, 1), ("a", 64, 64, 1)])
    assert made[-1].cached == 48


def test_a_context_that_the_engine_never_saw_comes_in_whole():
    _, made = in_turn(UNIT, [("a", 1000, 900, 1)])
    assert made[0].cached == 896


def test_what_a_summary_replaced_is_computed_again():
    _, made = in_turn(UNIT, [("a", 480, 0, 1, 64), ("a", 120, 64, 1, 64), ("a", 200, 121, 1, 64)])
    assert hits(made) == [0, 64, 112]


def test_a_system_prompt_is_held_once_and_read_by_all():
    server, made = in_turn(UNIT, [(name, 330, 0, 1, 320) for name in "abcd"])
    assert hits(made) == [0, 320, 320, 320]
    assert server.cache.idle_blocks == 20 + 4


def test_sub_agents_that_inherit_a_context_share_its_blocks():
    calls = [("main", 3200, 0, 1), *((f"main/{n}", 3216, 3200, 1) for n in "abc")]
    server, made = in_turn(UNIT, calls)
    assert hits(made) == [0, 3200, 3200, 3200]
    assert server.cache.idle_blocks == 200 + 3


TRACE = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(1, 120), st.integers(0, 40), st.integers(0, 3)),
    min_size=2,
    max_size=30,
)


@pytest.mark.parametrize("window", [None, 32])
@given(
    drawn=TRACE, rooms=st.tuples(st.integers(40, 100), st.integers(1, 60)), shared=st.sampled_from([0, 48])
)
def test_more_memory_never_gives_fewer_cached_tokens_on_the_same_calls(window, drawn, rooms, shared):
    """LRU is a stack algorithm: what a small memory keeps, a larger one keeps too. One call at a time: calls
    that overlap take other times in another memory, and so another order, for which the law does not hold."""
    contexts, calls = {}, []
    for owner, added, output, dropped in drawn:
        context = contexts.get(owner, shared)
        claimed = 0 if owner not in contexts else max(context - (40 if not dropped else 0), shared)
        prompt = context + added if context + added + output <= 600 else shared + added
        claimed = min(claimed, shared if prompt <= context else claimed)
        calls.append((owner, prompt, claimed, output, shared))
        contexts[owner] = prompt + output
    small, more = rooms[0] * 16.0, (rooms[0] + rooms[1]) * 16.0
    cost = replace(UNIT, window_tokens=window)
    scale = 1 if window is None else 2
    few = in_turn(replace(cost, kv_capacity_bytes=scale * small), calls)[1]
    many = in_turn(replace(cost, kv_capacity_bytes=scale * more), calls)[1]
    assert all(a <= b for a, b in zip(hits(few), hits(many), strict=True))


# admission and preemption


def test_an_engine_that_reserves_lets_a_call_wait_and_never_puts_one_back():
    cost = replace(UNIT, kv_capacity_bytes=320.0, rules=BLOCKS._replace(reserve=True))
    server, (first, second) = at_once(cost, [("a", 100, 0, 100), ("b", 100, 0, 100)])
    assert second.started_ns == first.finished_ns
    assert server.load.preemptions == 0


def test_an_engine_that_lets_kv_grow_puts_the_latest_call_back_when_it_is_full():
    cost = replace(UNIT, kv_capacity_bytes=320.0)
    server, (first, second) = at_once(cost, [("a", 100, 0, 100), ("b", 100, 0, 100)])
    assert server.load.preemptions == 1
    assert server.load.recomputed_tokens > 0
    assert first.finished_ns < second.finished_ns
    again = [name for _, name, length in second.stretches() if length and "put back" in name]
    assert again == ["queue (put back)", "prefill (put back)"]
    assert sum(length for *_, length in second.stretches()) == second.finished_ns - second.submitted_ns
    assert server.load.peak.live_bytes <= 320.0


def test_a_call_that_is_put_back_still_writes_all_its_tokens():
    """Tokens that are out stay out; the steps of all rounds sum to those of a call alone."""
    cost = replace(UNIT, kv_capacity_bytes=320.0, token_s=0.0)
    _, (alone,) = at_once(cost, [("a", 100, 0, 100)])
    _, (_, second) = at_once(cost, [("a", 100, 0, 100), ("b", 100, 0, 100)])
    decoded = sum(length for part, _, length in second.stretches() if part is Part.DECODE)
    again = sum(1 for _, name, length in second.stretches() if length and name == "prefill (put back)")
    assert decoded + again * 1_000_000 == alone.decode_ns  # a resumed prefill writes a token too


def test_decode_stands_still_while_a_prefill_first_engine_prefills():
    mixed = replace(UNIT, token_s=1e-4, batched_tokens=100)
    first = replace(mixed, rules=BLOCKS._replace(prefill_first=True))
    calls = [("a", 16, 0, 50), ("b", 1000, 0, 1)]
    _, (a_mixed, _) = at_once(mixed, calls, gap_ns=5_000_000)
    _, (a_first, b_first) = at_once(first, calls, gap_ns=5_000_000)
    assert a_first.decode_ns == 49_000_000 + b_first.prefill_ns  # ten iterations of prompts alone
    assert a_mixed.decode_ns < a_first.decode_ns


# lower tiers


def evicted_and_asked_for(rules, **changes):
    cost = replace(UNIT, kv_capacity_bytes=1600.0, rules=rules, **changes)
    return in_turn(cost, [("a", 1440, 0, 1), ("b", 1440, 0, 1), ("a", 1450, 1440, 1)])


def test_evicted_kv_is_loaded_back_where_that_is_faster_than_computing_it():
    fast, slow = Tier("host", 5000.0, 1e6), Tier("host", 5000.0, 1e4)
    server, made = evicted_and_asked_for(BLOCKS._replace(tiers=(fast,)))
    assert server.load.tier_hit_tokens["host"] == 1440 - 160
    assert server.load.hit_tokens == 160
    assert made[-1].cached == 1440
    assert made[-1].transfer_ns == 1_280_000
    loaded = [length for part, _, length in made[-1].stretches() if part is Part.KV_TRANSFER]
    assert loaded == [1_280_000]
    server, made = evicted_and_asked_for(BLOCKS._replace(tiers=(slow,)))
    assert (made[-1].cached, made[-1].transfer_ns) == (160, 0)


def test_what_the_host_evicts_goes_to_the_ssd():
    tiers = (Tier("host", 320.0, 1e6), Tier("ssd", 5000.0, 5e5))
    server, made = evicted_and_asked_for(BLOCKS._replace(tiers=tiers))
    assert server.load.tier_hit_tokens == {"host": 320, "ssd": 960}
    assert made[-1].transfer_ns == 320_000 + 1_920_000


# the load record


def test_the_load_record_weighs_levels_with_their_time():
    load = Load()
    load.note(0, 10.0, 0.0, 1, 0)
    load.note(30, 40.0, 4.0, 3, 2)
    load.note(40, 0.0, 0.0, 0, 0)
    assert load.mean == pytest.approx((17.5, 1.0, 1.5, 0.5))
    assert load.peak == (40.0, 4.0, 3, 2)


@given(steps=st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 50)), min_size=1, max_size=400))
def test_the_series_of_a_load_is_short_and_sums_to_its_mean(steps):
    load, now, total = Load(), 7, 0.0
    load.note(now, 0.0, 0.0, 0, 0)
    level = 0
    for length, following in steps:
        now += length
        total += level * length
        level = following
        load.note(now, float(level), 0.0, level, 0)
    series = load.series()
    assert len(series) <= SAMPLES + 1
    assert load.mean.live_bytes * (now - 7) == pytest.approx(total, rel=1e-9, abs=1e-6)
    ends = [start for start, _ in series[1:]] + [now]
    assert sum(mean.live_bytes * (end - start) for (start, mean), end in zip(series, ends, strict=True)) == (
        pytest.approx(total, rel=1e-9, abs=1e-6)
    )


def test_prompt_tokens_are_hit_loaded_or_computed():
    server, made = evicted_and_asked_for(BLOCKS._replace(tiers=(Tier("host", 5000.0, 1e6),)))
    load = server.load
    assert load.prompt_tokens == sum(request.prompt for request in made)
    assert load.hit_rate == pytest.approx(sum(hits(made)) / load.prompt_tokens)
    assert load.evicted_tokens >= 1280


# what real fleets show


def fleet(agents, turns=12, gap="3 s", added=1000, output=100, **changes):
    """Return the hit rate and the throughput (tokens/s) of agents that keep one engine busy."""
    task = workflow(
        {"repeat": {"times": turns, "steps": [{"generate": {"tokens": output}}, {"call": "tool"}]}},
        tools={"tool": {"time": gap, "result_tokens": added}},
        context={"system_tokens": 2000},
    )
    cost = replace(compile_plan(task, "llama-8b-h100").engines["main"], **changes)
    result = simulate(plan_of(task, cost), detail="summary", arrivals_s=[0.1 * n for n in range(agents)])
    tasks = result.tasks
    hit = sum(t.cached_tokens for t in tasks) / sum(t.prompt_tokens for t in tasks)
    span = max(t.end_ns for t in tasks) - min(t.start_ns for t in tasks)
    time = sum(t.end_ns - t.start_ns for t in tasks) / len(tasks)
    return hit, sum(t.output_tokens for t in tasks) / (span * 1e-9), time * 1e-9


def test_the_hit_rate_falls_off_a_cliff_when_contexts_outgrow_memory():
    token = compile_plan(workflow({"user": {"tokens": 1}}), "llama-8b-h100").engines["main"].kv_bytes(1, 0)
    room = 200_000 * token
    rates = [fleet(agents, kv_capacity_bytes=room)[0] for agents in (4, 8, 32)]
    assert rates[0] > 0.8
    assert rates[1] == pytest.approx(rates[0], abs=0.03)
    assert rates[2] < 0.6 * rates[0]


def test_more_concurrency_never_lowers_throughput_below_saturation():
    speeds = [fleet(agents)[1] for agents in (1, 2, 4, 8, 16)]
    assert all(before < after for before, after in pairwise(speeds))


def test_the_batch_limit_that_gives_most_tokens_is_not_the_one_that_ends_tasks_soonest():
    """Short answers wait behind nobody when all run; a long batch makes every step of all of them slower."""
    cost = replace(UNIT, base_s=1e-3, sequence_s=6e-4, token_s=0.0, max_sequences=4)
    calls = [(f"{n}", 16, 0, 101) for n in range(16)]
    outcomes = {}
    for limit in (4, 16):
        _, made = at_once(replace(cost, max_sequences=limit), calls)
        last = max(request.finished_ns for request in made)
        outcomes[limit] = (16 * 101 / last, sum(r.finished_ns - r.submitted_ns for r in made) / 16)
    assert outcomes[16][0] > outcomes[4][0]
    assert outcomes[16][1] > outcomes[4][1]
