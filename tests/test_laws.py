"""Laws that hold for whatever an agent does: on random workflows, and each against a doctored result."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from conftest import endpoint, plan_of, workflow
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsim import invariants
from agentsim.compare import instant_plan
from agentsim.compile import compile_plan
from agentsim.errors import InvariantViolation
from agentsim.invariants import LAWS, check
from agentsim.result import Part, Resource, Result, Source
from agentsim.sim.engine import simulate

# random workflows, as plain data in the schema of the file

TOOLS = ("grep", "build", "flaky")


def drawn(low, high, write=int):
    """Return a strategy for a value or any distribution of values between two bounds."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    return st.one_of(
        value.map(write),
        pair.map(lambda p: {"uniform": [write(p[0]), write(p[1])]}),
        pair.map(lambda p: {"lognormal": {"median": write(p[0] + 1), "p90": write(min(p[1], 3 * p[0]) + 1)}}),
        value.map(lambda mean: {"exponential": {"mean": write(mean)}}),
        st.lists(value.map(write), min_size=1, max_size=3).map(lambda values: {"empirical": values}),
    )


def in_ms(value):
    return f"{value} ms"


def in_bytes(value):
    return f"{value} B"


TOKENS, FEW, TIMES = drawn(0, 400), drawn(0, 3), drawn(0, 3000, in_ms)
FILES = st.fixed_dictionaries({"size": drawn(0, 20_000, in_bytes)}, optional={"count": FEW})
TOOL_STEP = st.one_of(
    st.sampled_from(TOOLS).map(lambda name: {"call": name}),
    st.builds(
        lambda name, time, result: {"call": {"tool": name, "time": time, "result_tokens": result}},
        st.sampled_from(TOOLS),
        TIMES,
        TOKENS,
    ),
    FILES.map(lambda files: {"read_file": files}),
    st.builds(lambda files, result: {"write_file": {**files, "result_tokens": result}}, FILES, TOKENS),
)
GENERATE = st.builds(
    lambda tokens, thinking: {"generate": {"tokens": tokens, "thinking_tokens": thinking}}, TOKENS, TOKENS
)
RECORDED = st.builds(
    lambda tokens, prompt, cached: {
        "generate": {"tokens": tokens, "prompt_tokens": prompt, "cached_tokens": min(prompt, cached)}
    },
    TOKENS,
    st.integers(1, 3000),
    st.integers(0, 3000),
)
LEAF = st.one_of(
    GENERATE,
    GENERATE,
    RECORDED,
    TOOL_STEP,
    TOKENS.map(lambda tokens: {"user": {"tokens": tokens}}),
    TIMES.map(lambda time: {"think": time}),
    TOKENS.map(lambda tokens: {"compact": {"summary_tokens": tokens}}),
    st.lists(TOOL_STEP, max_size=4).map(lambda steps: {"parallel": steps}),
)


@st.composite
def sub_agents(draw, bodies):
    """Draw sub-agents and, for some of the background ones, the join behind them."""
    agents = []
    for name in draw(st.lists(st.sampled_from(("scout", "critic", "tester")), min_size=1, max_size=3)):
        agent = {
            "name": name,
            "context": draw(st.sampled_from(("fresh", "inherit"))),
            "task_tokens": draw(TOKENS),
            "report_tokens": draw(TOKENS),
            "count": draw(st.integers(1, 2)),
            "background": draw(st.booleans()),
            "steps": draw(bodies),
        }
        agents.append(agent)
    waiting = sorted({a["name"] for a in agents if a["background"]})
    between = draw(st.lists(LEAF, max_size=2))
    joined = [{"join": waiting}] if waiting and draw(st.booleans()) else []
    return [{"agents": agents}, *between, *joined]


def deeper(bodies):
    """Put bodies of steps into loops and sub-agents."""
    loop = st.builds(lambda times, steps: [{"repeat": {"times": times, "steps": steps}}], FEW, bodies)
    return st.lists(st.one_of(LEAF.map(lambda s: [s]), loop, sub_agents(bodies)), min_size=1, max_size=3).map(
        lambda groups: [step for group in groups for step in group]
    )


BODIES = st.recursive(st.lists(LEAF, min_size=1, max_size=4), deeper, max_leaves=4)
SINGLE_BODIES = st.recursive(
    st.lists(LEAF, min_size=1, max_size=4),
    lambda bodies: st.lists(
        st.one_of(LEAF, st.builds(lambda n, steps: {"repeat": {"times": n, "steps": steps}}, FEW, bodies)),
        min_size=1,
        max_size=3,
    ),
    max_leaves=3,
)
FAILURE = st.builds(
    lambda p, retries, pause, factor: {
        "probability": p,
        "retries": retries,
        "backoff": {"initial": in_ms(pause), "factor": factor},
    },
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 3),
    st.integers(0, 2000),
    st.sampled_from([1, 2, 2.5]),
)
SECTIONS = st.fixed_dictionaries(
    {
        "context": st.one_of(
            st.just({"system_tokens": 200}),
            st.just({"system_tokens": 0}),
            st.builds(
                lambda at, summary: {
                    "system_tokens": 150,
                    "limit_tokens": 8000,
                    "compaction": {"at": at, "summary_tokens": summary},
                },
                st.sampled_from([0.2, 0.5]),
                st.integers(0, 300),
            ),
        ),
        "network": st.builds(lambda trip: {"round_trip": trip}, TIMES),
        "storage": st.just({"latency": "1 ms", "bandwidth": "1 MB/s", "bytes_per_token": 10}),
        "tools": st.fixed_dictionaries(
            {
                "grep": st.builds(lambda t, r: {"time": t, "result_tokens": r}, TIMES, TOKENS),
                "build": st.builds(lambda t, n: {"time": t, "slots": n}, TIMES, st.integers(1, 2)),
                "flaky": st.builds(
                    lambda t, f, n: {"time": t, "failure": f, "slots": n}, TIMES, FAILURE, st.integers(1, 3)
                ),
            }
        ),
    }
)
WORKFLOWS = st.builds(lambda steps, sections: {"steps": steps, **sections}, BODIES, SECTIONS)
SINGLES = st.builds(lambda steps, sections: {"steps": steps, **sections}, SINGLE_BODIES, SECTIONS)

PROBE = workflow({"user": {"tokens": 1}})
SERVICE = endpoint(0.2, 1e-4, 1e-6, 80.0)
FORGETFUL = endpoint(0.2, 1e-4, 1e-6, 80.0, cache_lifetime_s=1.0)
COSTS = {
    "service": SERVICE,
    "service that forgets": FORGETFUL,
    **{
        name: compile_plan(PROBE, name).engines["main"]
        for name in ("gemma-h200", "gemma-b300-mtp", "llama-70b-4xh100", "gpt-oss-b200")
    },
    "two at a time": replace(
        compile_plan(PROBE, "gemma-h200").engines["main"], max_sequences=2, batched_tokens=128
    ),
}


def made(data, cost=SERVICE):
    """Return the plan of a drawn workflow."""
    sections = {key: value for key, value in data.items() if key != "steps"}
    return plan_of(workflow(*data["steps"], **sections), cost)


def without_slots(data):
    """Return the same workflow with any number of calls of every tool at once."""
    twin = deepcopy(data)
    for tool in twin["tools"].values():
        tool.pop("slots", None)
    return twin


def as_bytes(result):
    return json.dumps(result.to_json(), sort_keys=True).encode()


def whole_ns(result):
    return result.task.completion_ns


# what holds for every run


@pytest.mark.parametrize("name", COSTS)
@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=80)
def test_every_run_obeys_the_laws_and_repeats_byte_for_byte(name, data, seed):
    plan = made(data, COSTS[name])
    first = simulate(plan, seed)
    assert check(first) is first
    assert as_bytes(first) == as_bytes(simulate(made(data, COSTS[name]), seed))


@pytest.mark.parametrize("name", COSTS)
@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_a_summary_tells_of_the_same_tasks_as_the_whole_run(name, data, seed):
    plan = made(data, COSTS[name])
    full, short = simulate(plan, seed), simulate(plan, seed, detail="summary")
    assert short.tasks == full.tasks
    assert (short.calls_started, short.resources) == (full.calls_started, full.resources)
    assert (short.turns, short.spans) == ((), ())
    if full.ttft_ns is not None:
        assert short.ttft_ns.avg == pytest.approx(full.ttft_ns.avg, rel=1e-9)
        assert (short.ttft_ns.min, short.ttft_ns.max) == (full.ttft_ns.min, full.ttft_ns.max)


@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_a_result_goes_through_json_and_back_unchanged(data, seed):
    result = simulate(made(data), seed)
    assert Result.from_json(json.loads(as_bytes(result))) == result


@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_the_critical_path_has_no_gap_and_no_overlap(data, seed):
    result = simulate(made(data), seed)
    now = result.task.start_ns
    for span in sorted((s for s in result.spans if s.critical), key=lambda s: s.start_ns):
        assert span.start_ns == now
        now = span.end_ns
    assert now == result.task.end_ns


@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_the_peak_context_is_the_largest_that_any_call_saw(data, seed):
    result = simulate(made(data), seed)
    seen = [max(t.prompt, t.context_after) for t in result.turns]
    assert result.task.peak_context == max(seen, default=0)


# L7: nothing beats infinite resources


@pytest.mark.parametrize("name", COSTS)
@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_no_deployment_beats_instant_inference_and_unlimited_tools(name, data, seed):
    ideal = simulate(instant_plan(made(without_slots(data))), seed)
    assert whole_ns(simulate(made(data, COSTS[name]), seed)) >= whole_ns(ideal)


@pytest.mark.parametrize("cost", [SERVICE, FORGETFUL], ids=["service", "service that forgets"])
@given(data=WORKFLOWS, seed=st.integers(0, 2**32))
@settings(max_examples=50)
def test_unlimited_tools_never_make_a_task_on_a_service_slower(cost, data, seed):
    limited, free = made(data, cost), made(without_slots(data), cost)
    assert whole_ns(simulate(limited, seed)) >= whole_ns(simulate(free, seed))


@pytest.mark.parametrize("name", COSTS)
@given(data=SINGLES, seed=st.integers(0, 2**32))
@settings(max_examples=30)
def test_instant_inference_never_makes_a_single_agent_slower(name, data, seed):
    plan = made(data, COSTS[name])
    assert whole_ns(simulate(plan, seed)) >= whole_ns(simulate(instant_plan(plan), seed))


# L8: more tokens never cost less


def by_the_token(cost):
    """Return the same engine with a KV cache whose blocks hold one token."""
    return replace(cost, rules=cost.rules._replace(block_tokens=1)) if hasattr(cost, "rules") else cost


@pytest.mark.parametrize("name", COSTS)
@given(
    outputs=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    more=st.integers(1, 200),
    which=st.integers(0, 3),
    prompt=st.integers(0, 5000),
    longer=st.integers(1, 4000),
)
@settings(max_examples=30)
def test_more_tokens_never_make_a_single_agent_faster(name, outputs, more, which, prompt, longer):
    """By the token: a longer prompt may fill a block that the next call then hits as a whole."""
    cost = by_the_token(COSTS[name])

    def elapsed(user, written):
        steps = [step for n in written for step in ({"generate": {"tokens": n}}, {"call": "grep"})]
        tools = {"grep": {"time": "1 s", "result_tokens": 40}}
        task = workflow({"user": {"tokens": user}}, *steps, tools=tools)
        return whole_ns(simulate(plan_of(task, cost)))

    base = elapsed(prompt, outputs)
    wordier = [n + more * (i == which % len(outputs)) for i, n in enumerate(outputs)]
    assert elapsed(prompt, wordier) >= base  # equal where the last step of speculation yields the rest
    assert elapsed(prompt, [n + 50 for n in outputs]) > base
    assert elapsed(prompt + longer, outputs) >= base


# draws


@given(seed=st.integers(0, 2**32), extra=st.integers(1, 3))
@settings(max_examples=30)
def test_one_more_tool_call_moves_no_other_draw(seed, extra):
    skewed = {"lognormal": {"median": 100, "p90": 500}}
    tools = {
        "grep": {"time": {"lognormal": {"median": "1 s", "p90": "9 s"}}, "result_tokens": skewed},
        "other": {"time": {"lognormal": {"median": "2 s", "p90": "8 s"}}, "result_tokens": skewed},
    }
    steps = [{"generate": {"tokens": skewed}}, {"call": "grep"}, {"think": {"exponential": {"mean": "5 s"}}}]
    sections = {"tools": tools, "network": {"round_trip": {"uniform": ["1 ms", "90 ms"]}}}
    plain = simulate(plan_of(workflow(*steps, *steps, **sections)), seed)
    added = simulate(plan_of(workflow(*[{"call": "other"}] * extra, *steps, *steps, **sections)), seed)

    def draws(result):
        kept = [
            s for s in result.spans if s.part in (Part.TOOL, Part.HUMAN, Part.NETWORK) and s.name != "other"
        ]
        return [(s.name, s.end_ns - s.start_ns) for s in kept], [t.output for t in result.turns]

    assert draws(added) == draws(plain)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_two_deployments_see_the_same_task(seed):
    skewed = {"lognormal": {"median": 100, "p90": 500}}
    loop = {
        "repeat": {
            "times": {"uniform": [1, 6]},
            "steps": [{"generate": {"tokens": skewed}}, {"call": "grep"}],
        }
    }
    task = workflow(loop, tools={"grep": {"time": {"exponential": {"mean": "3 s"}}, "result_tokens": skewed}})
    results = [simulate(plan_of(task, cost), seed) for cost in COSTS.values()]
    seen = [([(t.prompt, t.output) for t in r.turns], r.part_s(Part.TOOL)) for r in results]
    assert all(each == seen[0] for each in seen)


def test_agents_of_one_kind_and_causes_of_one_agent_draw_apart():
    skewed = {"lognormal": {"median": 1000, "p90": 5000}}
    worker = {"name": "w", "count": 4, "task_tokens": skewed, "steps": [{"generate": {"tokens": skewed}}]}
    result = simulate(plan_of(workflow({"agents": [worker]}, {"user": {"tokens": skewed}})))
    drawn = [n for turn in result.turns for n in (turn.prompt, turn.output)]
    assert len(set(drawn)) == 8


def test_agents_that_arrive_in_one_simulation_draw_apart():
    task = workflow({"generate": {"tokens": {"lognormal": {"median": 1000, "p90": 5000}}}})
    result = simulate(plan_of(task), arrivals_s=[0.0] * 6)
    assert len({task.output_tokens for task in result.tasks}) == 6


def test_another_seed_gives_another_run():
    task = workflow({"generate": {"tokens": {"lognormal": {"median": 100, "p90": 500}}}})
    assert len({whole_ns(simulate(plan_of(task), seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize("detail", ["summary", "full"])
@pytest.mark.parametrize("name", COSTS)
def test_many_agents_on_shared_servers_obey_the_laws(name, detail):
    skewed = {"lognormal": {"median": 60, "p90": 200}}
    loop = {"repeat": {"times": 4, "steps": [{"generate": {"tokens": skewed}}, {"call": "grep"}]}}
    tools = {"grep": {"time": {"exponential": {"mean": "1 s"}}, "result_tokens": skewed, "slots": 2}}
    plan = plan_of(workflow(loop, tools=tools, context={"system_tokens": 500}), COSTS[name])
    arrivals = [0.37 * i for i in range(12)]
    result = simulate(plan, 3, detail=detail, arrivals_s=arrivals)
    assert len(result.tasks) == 12
    assert result.calls_finished == 48


# each law catches what it is there for


def sound():
    """Return a run with sub-agents, tools with slots, compaction: every law has something to look at."""
    return simulate(
        plan_of(
            workflow(
                {"user": {"tokens": 300}},
                {"generate": {"tokens": 50}},
                {"call": "build"},
                {
                    "agents": [
                        {"name": "a", "steps": [{"generate": {"tokens": 20}}, {"generate": {"tokens": 5}}]}
                    ]
                },
                {"generate": {"tokens": 10, "thinking_tokens": 5}},
                tools={"build": {"time": "1 s", "slots": 1}},
            ),
            endpoint(0.1, 1e-3, 1e-5),
        )
    )


def with_task(**changes):
    return lambda r: replace(r, tasks=(replace(r.task, **changes),))


def with_turn(index, **changes):
    return lambda r: replace(
        r, turns=tuple(replace(t, **changes) if i == index else t for i, t in enumerate(r.turns))
    )


def with_span(index, **changes):
    return lambda r: replace(
        r, spans=tuple(replace(s, **changes) if i == index else s for i, s in enumerate(r.spans))
    )


def negative_part(result):
    parts = list(result.task.parts_ns)
    parts[Part.TOOL], parts[Part.FILE] = parts[Part.TOOL] + 5, parts[Part.FILE] - 5
    return with_task(parts_ns=tuple(parts))(result)


def longer_task(result):
    return with_task(end_ns=result.task.end_ns + 1)(result)


def shifted_parts(result):
    parts = list(result.task.parts_ns)
    parts[Part.DECODE] += 1
    return with_task(parts_ns=tuple(parts))(result)


def without_thinking(result):
    turn = next(i for i, t in enumerate(result.turns) if t.thinking)
    return with_turn(turn, thinking=0)(result)


DOCTORED = {
    "a call never finished": ("l1_calls", lambda r: replace(r, calls_finished=r.calls_finished - 1)),
    "a call nobody made": (
        "l1_calls",
        lambda r: replace(r, calls_started=r.calls_started + 1, calls_finished=r.calls_finished + 1),
    ),
    "a task with a call too few": ("l1_calls", with_task(model_calls=3)),
    "an effect before its cause": ("l2_causes", with_span(2, start_ns=0)),
    "a cause that ends later": ("l2_causes", with_span(1, causes=(3,))),
    "a span that runs backwards": ("l3_time", with_span(0, end_ns=-1)),
    "a task that runs backwards": ("l3_time", with_task(start_ns=10**15)),
    "a slot too many": ("l4_capacity", lambda r: replace(r, resources=(Resource("tool build", 1, 2),))),
    "KV over the memory": ("l4_capacity", lambda r: replace(r, resources=(Resource("KV", 1e9, 1.001e9),))),
    "a nanosecond more than the parts": ("l6_parts", longer_task),
    "a part a nanosecond longer": ("l6_parts", shifted_parts),
    "a part below nothing": ("l6_parts", negative_part),
    "a critical span left out": ("l6_critical", with_span(0, critical=False)),
    "a span that is a nanosecond short": (
        "l6_critical",
        lambda r: with_span(0, end_ns=r.spans[0].end_ns - 1)(r),
    ),
    "no sources": ("l10_every", lambda r: replace(r, sources=())),
    "a source without a text": ("l10_every", lambda r: replace(r, sources=(Source("x", "datasheet", ""),))),
    "a prompt that is not the context": ("l11_tokens", with_turn(0, prompt=299)),
    "more cached than there is": ("l11_tokens", with_turn(0, cached=301)),
    "fewer cached than none": ("l11_tokens", with_turn(0, cached=-1)),
    "an output that is lost": ("l11_tokens", with_turn(0, context_after=300)),
    "thinking that is kept": ("l11_tokens", without_thinking),
    "a context that forgets": ("l11_tokens", with_turn(3, context_before=0, added=350)),
}


def test_the_run_that_is_doctored_is_sound():
    result = sound()
    assert check(result) is result


@pytest.mark.parametrize("name", DOCTORED)
def test_a_law_catches(name):
    law, doctor = DOCTORED[name]
    with pytest.raises(InvariantViolation, match=law):
        check(doctor(sound()))


def test_every_law_is_shown_to_catch_something():
    caught = {law for law, _ in DOCTORED.values()}
    assert all(any(law.__name__.startswith(c) for c in caught) for law in LAWS)


def test_every_law_in_the_file_is_run():
    written = {name for name in vars(invariants) if name.startswith("l") and name[1].isdigit()}
    assert {law.__name__ for law in LAWS} == written
