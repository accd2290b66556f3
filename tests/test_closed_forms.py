"""Runs whose every nanosecond can be told by hand."""

from __future__ import annotations

import pytest
from conftest import endpoint, plan_of, workflow

from agentsim.compare import compare
from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError, InvariantViolation
from agentsim.result import INFERENCE, Part
from agentsim.sim.engine import simulate

S = 1_000_000_000
MS = 1_000_000


def run(*steps, cost=None, seed=0, **sections):
    return simulate(plan_of(workflow(*steps, **sections), cost), seed)


def say(tokens, **more):
    return {"generate": {"tokens": tokens, **more}}


def table(result):
    """Return the timeline: lane, part, name, start, end, whether it is critical; ns."""
    return [(s.lane, s.part.key, s.name, s.start_ns, s.end_ns, s.critical) for s in result.spans]


def prompts(result):
    """Return (prompt, cached) of every call in order."""
    return [(t.prompt, t.cached) for t in result.turns]


def elapsed(result):
    return result.task.completion_ns


# the claim's own numbers


def test_five_thousand_tokens_at_a_hundred_a_second_take_fifty_seconds():
    plan = compile_plan(workflow(say(5000)), "endpoint-100")
    assert elapsed(simulate(plan)) == 50 * S


def test_five_thousand_tokens_on_lpx_take_a_second_and_a_half():
    task = workflow(say(5000), context={"system_tokens": 100_000})
    assert elapsed(simulate(compile_plan(task, "lpx-aa"))) == pytest.approx(1.46 * S, rel=0.01)


# a whole task by hand


def test_a_task_of_three_turns_takes_what_its_pieces_take():
    """Fixed 100 ms; 1 ms an uncached, 10 us a cached token; 100 tok/s; round trip 40 ms."""
    result = run(
        {"user": {"tokens": 200}},  # context 1000 + 200
        say(50),  # 100 ms + 1200 ms; 500 ms; context 1250
        {"call": "grep"},  # 300 ms; context 1330
        say(20, thinking_tokens=30),  # 80 new, 1250 cached: 100 + 80 + 12.5; 500 ms; context 1350
        {"read_file": {"size": "4 kB", "count": 3}},  # 3 x (2 ms + 4 ms); 3 x 1000 tokens; 4350
        {"think": "7 s"},
        say(10),  # cached 1330, new 3020: 100 + 3020 + 13.3; 100 ms; context 4360
        cost=endpoint(0.1, 1e-3, 1e-5, 100.0),
        context={"system_tokens": 1000},
        network={"round_trip": "40 ms"},
        storage={"latency": "2 ms", "bandwidth": "1 MB/s", "bytes_per_token": 4},
        tools={"grep": {"time": "300 ms", "result_tokens": 80}},
    )
    us = 1000
    steps = [
        ("network", "network", 40_000),
        ("prefill", "prefill", 1_300_000),
        ("decode", "decode", 500_000),
        ("tool", "grep", 300_000),
        ("network", "network", 40_000),
        ("prefill", "prefill", 192_500),
        ("decode", "decode", 500_000),
        ("file", "read_file", 18_000),
        ("human", "human", 7_000_000),
        ("network", "network", 40_000),
        ("prefill", "prefill", 3_133_300),
        ("decode", "decode", 100_000),
    ]
    expected, now = [], 0
    for part, name, length in steps:
        expected.append(("main", part, name, now * us, (now + length) * us, True))
        now += length
    assert table(result) == expected
    assert result.task.end_ns == 13_163_800 * us
    assert elapsed(result) == 6_163_800 * us
    assert prompts(result) == [(1200, 0), (1330, 1250), (4350, 1330)]
    assert [t.context_after for t in result.turns] == [1250, 1350, 4360]
    assert result.task.human_ns == 7 * S
    assert result.task.peak_context == 4360
    assert (result.task.prompt_tokens, result.task.cached_tokens, result.task.output_tokens) == (
        6880,
        2580,
        110,
    )


# Amdahl


def test_the_ceiling_of_every_speedup_is_amdahls():
    """20 s of tools and 30 s of decoding: with no inference at all, 2.5 times faster and never more."""
    task = workflow(
        {"repeat": {"times": 10, "steps": [say(300), {"call": "make"}]}}, tools={"make": {"time": "2 s"}}
    )
    slow, fast = plan_of(task), plan_of(task, endpoint(tokens_per_s=1e6))
    verdict = compare([slow, fast], simulate, [0, 1, 2]).verdict
    assert verdict.ceiling_speedup == pytest.approx(2.5, rel=1e-12)
    assert verdict.non_inference_share == pytest.approx(0.4, rel=1e-12)
    assert verdict.speedup == pytest.approx(50 / (20 + 3000 / 1e6), rel=1e-9)
    assert verdict.speedup < verdict.ceiling_speedup
    assert verdict.instant_s == pytest.approx(20.0, rel=1e-12)


def test_beyond_the_saturation_speed_the_task_gains_less_than_a_hundredth():
    task = workflow(say(3000), {"call": "make"}, tools={"make": {"time": "20 s"}})
    verdict = compare([plan_of(task), plan_of(task)], simulate, [0]).verdict
    at_saturation = plan_of(task, endpoint(tokens_per_s=verdict.saturation_tok_s))
    result = simulate(at_saturation)
    assert result.task.parts_ns[Part.DECODE] / elapsed(result) == pytest.approx(0.01, rel=1e-6)


# tools


@pytest.mark.parametrize(
    ("retries", "expected_ns"),
    [(0, 2 * S), (1, 4 * S + 500 * MS), (3, 8 * S + (500 + 1500 + 4500) * MS)],
    ids=["no retry", "one", "three"],
)
def test_a_tool_that_always_fails_takes_every_attempt_and_every_pause(retries, expected_ns):
    failure = {"probability": 1.0, "retries": retries, "backoff": {"initial": "500 ms", "factor": 3}}
    result = run({"call": "flaky"}, tools={"flaky": {"time": "2 s", "failure": failure}})
    assert elapsed(result) == expected_ns
    assert (result.task.tool_calls, result.task.failed_calls) == (1, 1)


def test_a_tool_that_never_fails_takes_one_attempt():
    failure = {"probability": 0.0, "retries": 5}
    result = run({"call": "sure"}, tools={"sure": {"time": "2 s", "failure": failure}})
    assert (elapsed(result), result.task.failed_calls) == (2 * S, 0)


@pytest.mark.parametrize(("slots", "seconds"), [(1, 15), (2, 9), (3, 6), (5, 3), (9, 3)])
def test_calls_beyond_a_tools_slots_queue(slots, seconds):
    """Five calls of 3 s on so many slots go in ceil(5 / slots) rounds."""
    calls = [{"call": "build"}] * 5
    result = run({"parallel": calls}, tools={"build": {"time": "3 s", "slots": slots}})
    assert elapsed(result) == seconds * S
    assert result.resources[0].peak == min(slots, 5)


def test_the_wait_for_a_slot_stands_in_the_timeline():
    result = run({"parallel": [{"call": "build"}] * 2}, tools={"build": {"time": "3 s", "slots": 1}})
    assert table(result) == [
        ("main", "tool", "build", 0, 3 * S, False),
        ("main", "tool", "build (waiting for a slot)", 0, 3 * S, True),
        ("main", "tool", "build", 3 * S, 6 * S, True),
    ]


def test_a_slot_is_free_while_a_failed_call_pauses():
    failure = {"probability": 1.0, "retries": 1, "backoff": {"initial": "10 s"}}
    tools = {"flaky": {"time": "2 s", "slots": 1, "failure": failure}}
    result = run({"parallel": [{"call": "flaky"}] * 2}, tools=tools)
    assert elapsed(result) == 16 * S  # the second starts at 2 s, pauses 4 to 14 s, ends at 16 s


def test_the_slowest_branch_of_a_parallel_step_decides():
    branches = [{"call": "short"}, {"call": "long"}, {"read_file": {"size": "1 MB"}}]
    result = run(
        {"parallel": branches},
        say(1),
        tools={
            "short": {"time": "1 s", "result_tokens": 10},
            "long": {"time": "4 s", "result_tokens": 100},
        },
        storage={"latency": "0 s", "bandwidth": "1 MB/s", "bytes_per_token": 1000},
    )
    assert table(result)[:3] == [
        ("main", "tool", "short", 0, 1 * S, False),
        ("main", "file", "read_file", 0, 1 * S, False),
        ("main", "tool", "long", 0, 4 * S, True),
    ]
    assert prompts(result) == [(1110, 0)]


def test_a_call_may_bring_its_own_time_and_result():
    result = run(
        {"call": {"tool": "grep", "time": "5 s", "result_tokens": 7}},
        say(1),
        tools={"grep": {"time": "1 s", "result_tokens": 900}},
    )
    assert (elapsed(result), prompts(result)) == (5 * S + 10 * MS, [(7, 0)])


def test_a_written_file_adds_only_its_result_to_the_context():
    result = run(
        {"write_file": {"size": "2 MB", "count": 2, "result_tokens": 15}},
        say(1),
        storage={"latency": "5 ms", "bandwidth": "1 MB/s"},
    )
    assert (result.spans[0].end_ns, prompts(result)) == (4010 * MS, [(15, 0)])


# contexts


def test_context_and_cached_prefix_grow_by_what_each_turn_adds():
    """Each round: 30 of the model, 70 of the tool; all but the tool's 70 is cached."""
    result = run(
        {"user": {"tokens": 100}},
        {"repeat": {"times": 4, "steps": [say(30), {"call": "grep"}]}},
        tools={"grep": {"time": "1 s", "result_tokens": 70}},
        context={"system_tokens": 900},
    )
    assert prompts(result) == [(1000, 0), (1100, 1030), (1200, 1130), (1300, 1230)]


def test_thinking_is_written_and_then_dropped():
    """What was written behind dropped thinking lies at another place: only the prompt stays cached."""
    result = run({"user": {"tokens": 500}}, say(40, thinking_tokens=160), say(10))
    assert [t.decode_ns for t in result.turns] == [2 * S, 100 * MS]
    assert prompts(result) == [(500, 0), (540, 500)]


def test_a_call_always_computes_at_least_one_token():
    result = run({"user": {"tokens": 500}}, say(0), say(0))
    assert prompts(result) == [(500, 0), (500, 499)]


def test_a_recorded_call_keeps_its_recorded_figures():
    result = run({"user": {"tokens": 7}}, say(10, prompt_tokens=1000, cached_tokens=640), say(5))
    assert prompts(result) == [(1000, 640), (1010, 1009)]


def test_a_compaction_shrinks_the_context_to_its_summary_and_keeps_only_the_system_prompt_cached():
    """600 + 20 would reach 0.6 x 1000: the model writes 50 tokens first; 100 + 50 remain."""
    result = run(
        {"user": {"tokens": 400}},
        say(10),  # 500 -> 510
        {"user": {"tokens": 90}},
        say(20),  # 600 + 20 >= 600: compaction, then a prompt of 150
        say(5),
        context={
            "system_tokens": 100,
            "limit_tokens": 1000,
            "compaction": {"at": 0.6, "summary_tokens": 50},
        },
    )
    assert [(t.prompt, t.cached, t.output, t.context_after, t.compaction) for t in result.turns] == [
        (500, 0, 10, 510, False),
        (600, 510, 50, 150, True),
        (150, 100, 20, 170, False),
        (170, 169, 5, 175, False),
    ]
    assert result.task.parts_ns[Part.COMPACTION] == 500 * MS
    assert elapsed(result) == 850 * MS


def test_a_compaction_starts_at_its_share_of_the_limit_and_not_before():
    rule = {"system_tokens": 0, "limit_tokens": 1000, "compaction": {"at": 0.6, "summary_tokens": 50}}
    below = run({"user": {"tokens": 589}}, say(10), context=rule)
    at = run({"user": {"tokens": 590}}, say(10), context=rule)
    assert [t.compaction for t in below.turns] == [False]
    assert [t.compaction for t in at.turns] == [True, False]


def test_a_step_may_ask_for_a_compaction():
    result = run(
        {"user": {"tokens": 400}},
        say(10),
        {"compact": {"summary_tokens": 25}},
        say(5),
        context={"system_tokens": 90},
    )
    assert prompts(result) == [(490, 0), (500, 499), (115, 90)]


def test_a_compaction_leaves_its_own_system_prompt_in_the_cache():
    """The compacting call reads the whole prompt, so its prefix is cached whatever was before."""
    result = run(
        {"user": {"tokens": 400}}, {"compact": {"summary_tokens": 25}}, say(5), context={"system_tokens": 90}
    )
    assert prompts(result) == [(490, 0), (115, 90)]


def test_the_largest_prompt_is_never_over_the_peak_context():
    """A compaction's own prompt is a context like any other."""
    result = run(
        {"user": {"tokens": 400}},
        say(10),
        {"user": {"tokens": 500}},
        {"compact": {"summary_tokens": 25}},
        say(5),
    )
    assert result.task.peak_context >= max(turn.prompt for turn in result.turns)


def test_a_context_over_the_limit_is_refused_with_what_would_help():
    with pytest.raises(InfeasibleError, match=r"1,010 tokens; .* takes 1,000: add compaction"):
        run({"user": {"tokens": 1000}}, say(10), context={"limit_tokens": 1000})


def test_a_prefix_expires_when_it_lies_unused_for_longer_than_the_cache_keeps_it():
    cost = endpoint(cache_lifetime_s=5.0)
    steps = [{"user": {"tokens": 100}}, say(10), {"call": "wait"}, say(10)]
    kept = run(*steps, cost=cost, tools={"wait": {"time": "5 s"}})
    lost = run(*steps, cost=cost, tools={"wait": {"time": "5001 ms"}})
    assert (prompts(kept)[1], prompts(lost)[1]) == ((110, 109), (110, 0))


def test_an_inherited_prefix_expires_with_its_parents_last_call():
    """The fork itself touches no cache: what was written 9 s ago is gone after 5 s."""
    result = run(
        {"user": {"tokens": 100}},
        say(10),
        {"call": "wait"},
        {"agents": [{"name": "child", "context": "inherit", "task_tokens": 20, "steps": [say(10)]}]},
        cost=endpoint(cache_lifetime_s=5.0),
        tools={"wait": {"time": "9 s"}},
    )
    assert prompts(result) == [(100, 0), (130, 0)]


# sub-agents


def sub(name, *steps, **more):
    return {"name": name, "steps": list(steps), **more}


def test_sub_agents_side_by_side_take_as_long_as_the_slowest_and_their_reports_join():
    result = run(
        {"user": {"tokens": 1000}},
        say(100),  # 1 s; context 1100
        {"agents": [sub("a", say(200), report_tokens=30), sub("b", say(500), report_tokens=70)]},
        say(100),
    )
    assert table(result) == [
        ("main", "decode", "decode", 0, 1 * S, True),
        ("main/a", "decode", "decode", 1 * S, 3 * S, False),
        ("main/b", "decode", "decode", 1 * S, 6 * S, True),
        ("main", "decode", "decode", 6 * S, 7 * S, True),
    ]
    assert prompts(result)[-1] == (1200, 1100)
    assert result.task.output_tokens == 900
    assert result.task.critical_output == 700


def test_a_fresh_context_starts_from_its_system_prompt_and_an_inherited_one_from_the_parents():
    result = run(
        {"user": {"tokens": 1000}},
        say(100),
        {
            "agents": [
                sub("fresh", say(1), task_tokens=40),
                sub("own", say(1), task_tokens=40, system_tokens=7),
                sub("heir", say(1), task_tokens=40, context="inherit"),
            ]
        },
        context={"system_tokens": 500},
    )
    by_lane = {turn.lane: (turn.prompt, turn.cached) for turn in result.turns}
    assert by_lane == {
        "main": (1500, 0),
        "main/fresh": (540, 0),
        "main/own": (47, 0),
        "main/heir": (1640, 1600),
    }


def test_a_background_agent_costs_only_what_is_left_of_it_at_the_join():
    steps = [
        {"agents": [sub("index", {"call": "crawl"}, background=True, report_tokens=50)]},
        say(300),  # 0 to 3 s, beside the crawl
        {"join": ["index"]},
        say(100),
    ]
    long = run(*steps, tools={"crawl": {"time": "10 s"}})
    short = run(*steps, tools={"crawl": {"time": "2 s"}})
    assert (elapsed(long), elapsed(short)) == (11 * S, 4 * S)
    assert prompts(long) == prompts(short) == [(0, 0), (350, 300)]
    assert (long.task.parts_ns[Part.TOOL], long.task.parts_ns[Part.DECODE]) == (10 * S, 1 * S)
    assert (short.task.parts_ns[Part.TOOL], short.task.parts_ns[Part.DECODE]) == (0, 4 * S)


def test_a_background_agent_that_nobody_joins_is_waited_for_at_the_end():
    result = run(
        {"agents": [sub("index", {"call": "crawl"}, background=True)]},
        say(300),
        tools={"crawl": {"time": "10 s"}},
    )
    assert elapsed(result) == 10 * S


def test_a_join_waits_for_every_agent_of_a_counted_name():
    """Three of a kind are started under one name, and one name joins all three."""
    result = run(
        {"agents": [sub("index", {"call": "crawl"}, background=True, count=3, report_tokens=50)]},
        {"join": ["index"]},
        say(100),
        tools={"crawl": {"time": "10 s"}},
    )
    assert elapsed(result) == 11 * S
    assert prompts(result) == [(150, 0)]


def test_agents_of_one_kind_run_side_by_side():
    result = run({"agents": [sub("w", say(200), count=4, report_tokens=25)]}, say(100))
    assert elapsed(result) == 3 * S
    assert prompts(result)[-1] == (100, 0)
    assert result.task.model_calls == 5


@pytest.mark.parametrize(
    "agents",
    [
        [sub("a #2", say(10)), sub("a", say(20)), sub("a", say(30))],
        [sub("a", {"agents": [sub("b", say(10))]}), sub("a/b", say(20))],
        [sub("a", say(10), count=2), sub("a 1", say(20))],
    ],
    ids=["a number in the name", "a slash in the name", "a count in the name"],
)
def test_agents_whose_names_look_like_lanes_stay_apart(agents):
    try:
        result = run({"agents": agents})
    except InvariantViolation as breach:
        pytest.fail(f"two agents share a lane: {breach}")
    lanes = [turn.lane for turn in result.turns]
    assert len(set(lanes)) == len(lanes)


# repeats and arrivals


def test_a_drawn_repeat_is_drawn_once_when_it_is_entered():
    loop = {"repeat": {"times": {"uniform": [2, 9]}, "steps": [{"call": "grep"}]}}
    counts = set()
    for seed in range(40):
        result = run(loop, seed=seed, tools={"grep": {"time": "1 s"}})
        assert elapsed(result) == result.task.tool_calls * S
        counts.add(result.task.tool_calls)
    assert counts == set(range(2, 10))


def test_nested_repeats_multiply():
    inner = {"repeat": {"times": 3, "steps": [say(100)]}}
    result = run({"repeat": {"times": 4, "steps": [inner]}})
    assert (elapsed(result), result.task.model_calls) == (12 * S, 12)


def test_nothing_done_takes_no_time():
    result = run({"repeat": {"times": 0, "steps": [say(100)]}})
    assert (elapsed(result), result.task.model_calls, result.spans) == (0, 0, ())


@pytest.mark.parametrize("detail", ["summary", "full"])
def test_agents_that_arrive_one_after_another_share_the_tools(detail):
    plan = plan_of(
        workflow(say(100), {"call": "build"}, say(50), tools={"build": {"time": "3 s", "slots": 1}})
    )
    result = simulate(plan, arrivals_s=(0.0, 1.0), detail=detail)
    assert sorted((t.start_ns, t.end_ns) for t in result.tasks) == [(0, 4500 * MS), (1 * S, 7500 * MS)]
    second = max(result.tasks, key=lambda t: t.start_ns)
    assert second.parts_ns[Part.TOOL] == (2 + 3) * S


def test_inference_parts_and_others_split_the_task():
    result = run(say(100), {"call": "make"}, tools={"make": {"time": "3 s"}})
    inference = sum(result.task.parts_ns[part] for part in INFERENCE)
    assert (inference, elapsed(result) - inference) == (1 * S, 3 * S)
