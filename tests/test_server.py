"""The server's closed forms against an engine that does every iteration one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import pytest
from conftest import workflow
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from slow_stepper import Call, SlowEngine

from agentsim.backends.base import Batch, Hold, IterationCost, ServingRules, Tier
from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError
from agentsim.sim.clock import Clock
from agentsim.sim.request import Prefix, Work
from agentsim.sim.server import EngineServer

TASK = workflow({"user": {"tokens": 1}})
BY_THE_TOKEN = ServingRules()


def gpu(name, **changes):
    """Return the compiled cost model of a catalog deployment, with some of its limits changed."""
    return replace(compile_plan(TASK, name).engines["main"], **changes)


@dataclass(frozen=True)
class Simple:
    """An engine whose iteration costs round amounts, so that times can be told by hand."""

    base_s: float = 1e-3
    sequence_s: float = 0.0
    context_s: float = 0.0
    token_s: float = 0.0
    pair_s: float = 0.0
    window_tokens: int | None = None
    kv_capacity_bytes: float = 1e9
    kv_knee_bytes: float = inf
    far_byte_s: float = 0.0
    rules: ServingRules = BY_THE_TOKEN
    batched_tokens: int = 100
    max_sequences: int = 8
    tokens_per_step: float = 1.0
    verified_tokens: int = 1
    request_s: float = 0.0

    def iteration_s(self, batch):
        return (
            self.base_s
            + batch.sequences * self.sequence_s
            + (batch.context + 2 * batch.window) * self.context_s
            + batch.prefill_tokens * self.token_s
            + (batch.prefill_pairs + 2 * batch.prefill_window_pairs) * self.pair_s
            + max(self.kv_bytes(batch.context, batch.window) - self.kv_knee_bytes, 0) * self.far_byte_s
        )

    def kv_bytes(self, context, window):
        return context + window


COSTS = {
    "simple": Simple(0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9),
    "flat": Simple(0.917e-3),
    "windowed": Simple(0.731e-3, 0.11e-3, 1.7e-7, 3.1e-6, 1.3e-9, window_tokens=64),
    "few sequences": Simple(0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, max_sequences=2),
    "little KV": Simple(0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, kv_capacity_bytes=900.0),
    "speculative": Simple(
        0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, 64, tokens_per_step=2.7, verified_tokens=4
    ),
    "two memories": Simple(0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, kv_knee_bytes=600.0, far_byte_s=2.3e-6),
    "two memories and a window": Simple(
        0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, 64, kv_knee_bytes=900.0, far_byte_s=2.3e-6
    ),
    "slow to accept": Simple(0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9, request_s=17e-3),
    "gemma windows": gpu("gemma-h200", batched_tokens=96),
    "gemma windows, narrow": gpu("gemma-4xb200", batched_tokens=96, window_tokens=100, max_sequences=3),
    "gemma speculation": gpu("gemma-b300-mtp", batched_tokens=128, window_tokens=100),
    "llama": gpu("llama-70b-4xh100", batched_tokens=64),
    "experts": gpu("gpt-oss-b200", batched_tokens=64),
    "mla speculation": gpu("deepseek-8xb200-mtp3", batched_tokens=64),
}

CALLS = st.lists(
    st.tuples(
        st.integers(1, 200_000_000),  # ns between arrivals
        st.integers(1, 400),  # prompt
        st.floats(0.0, 1.0),  # share cached
        st.one_of(st.integers(0, 5), st.integers(0, 120)),  # output
        st.sampled_from([1.0, 0.6, 1.3]),  # pace
    ),
    min_size=1,
    max_size=9,
)


def traffic_of(drawn, gap):
    """Return (arrival ns, prompt, cached, output, pace) rows; `gap` scales the time between arrivals."""
    rows, now = [], 0
    for between, prompt, share, output, pace in drawn:
        now += int(between * gap)
        rows.append((now, prompt, int(share * prompt), output, pace))
    return rows


def served(cost, traffic):
    """Run the server over the traffic; return its requests in order of arrival."""
    env = Clock()
    server, requests = EngineServer(env, cost), []

    def caller(arrival, prompt, cached, output, *pace):
        yield env.timeout(arrival)
        request = server.submit(Work(prompt, Prefix(cached, 0), output, *pace))
        requests.append(request)
        yield request.done

    for row in traffic:
        env.process(caller(*row))
    env.run()
    return server, requests


def reference(cost, traffic):
    """Run the slow engine over the same traffic; return it and its calls."""
    calls = [Call(arrival * 1e-9, *rest) for arrival, *rest in traffic]
    return SlowEngine(cost, calls).run(), calls


def ns(seconds):
    return round(seconds * 1e9)


@pytest.mark.parametrize("name", COSTS)
@given(drawn=CALLS, gap=st.sampled_from([0.0, 1e-6, 0.02, 0.2, 1.0]))
@settings(max_examples=50)
def test_the_server_agrees_with_iterations_done_one_by_one(name, drawn, gap):
    cost, traffic = COSTS[name], traffic_of(drawn, gap)
    slow, calls = reference(cost, traffic)
    assume(not slow.ambiguous)
    server, requests = served(cost, traffic)
    tolerance = 1 + slow.changes // 2  # each change of the batch rounds to the clock once
    for call, request in zip(calls, requests, strict=True):
        measured = (request.started_ns, request.first_token_ns, request.finished_ns)
        expected = (ns(call.started_s), ns(call.first_token_s), ns(call.finished_s))
        assert measured == pytest.approx(expected, rel=0, abs=tolerance)
    assert server.peak_sequences == slow.most_sequences
    assert server.peak_kv_bytes <= cost.kv_capacity_bytes


@pytest.mark.parametrize("name", COSTS)
def test_one_long_call_agrees_to_a_nanosecond_for_each_phase(name):
    traffic = [(0, 300, 0, 500)]
    _, calls = reference(COSTS[name], traffic)
    _, requests = served(COSTS[name], traffic)
    assert requests[0].first_token_ns == pytest.approx(ns(calls[0].first_token_s), rel=0, abs=4)
    assert requests[0].finished_ns == pytest.approx(ns(calls[0].finished_s), rel=0, abs=5)


def test_one_call_takes_its_chunks_and_then_a_step_a_token():
    _, (request,) = served(Simple(base_s=1e-3, batched_tokens=100), [(0, 250, 0, 11)])
    assert (request.started_ns, request.first_token_ns, request.finished_ns) == (0, 3_000_000, 13_000_000)


def test_a_step_that_yields_several_tokens_needs_fewer_steps():
    _, (request,) = served(Simple(base_s=1e-3, tokens_per_step=2.5, verified_tokens=4), [(0, 10, 0, 11)])
    assert request.decode_ns == 4_000_000


def test_a_cached_prefix_is_not_prefilled_again():
    cost = Simple(base_s=1e-3, token_s=1e-5, batched_tokens=10_000)
    _, (cold,) = served(cost, [(0, 5000, 0, 1)])
    _, (warm,) = served(cost, [(0, 5000, 4900, 1)])
    assert (cold.prefill_ns, warm.prefill_ns) == (51_000_000, 2_000_000)


def test_a_prompt_that_is_cached_whole_still_takes_one_iteration():
    _, (request,) = served(Simple(base_s=1e-3, token_s=1e-5), [(0, 50, 50, 1)])
    assert request.prefill_ns == 1_010_000


def test_the_fixed_time_of_a_request_counts_as_prefill_and_not_as_queue():
    _, (request,) = served(Simple(base_s=1e-3, request_s=0.02), [(0, 50, 0, 1)])
    assert (request.queue_ns, request.prefill_ns) == (0, 21_000_000)


@pytest.mark.parametrize("name", ["llama-70b-4xh100", "gemma-b300-mtp", "gpt-oss-b200"])
def test_two_sequences_together_finish_sooner_than_one_after_the_other(name):
    cost = gpu(name)
    _, (alone,) = served(cost, [(0, 2000, 0, 400)])
    _, together = served(cost, [(0, 2000, 0, 400), (1, 2000, 0, 400)])
    last = max(request.finished_ns for request in together)
    assert alone.finished_ns < last < 1.5 * alone.finished_ns


def test_calls_of_the_same_moment_share_their_first_iteration():
    """Sub-agents start together; an engine takes what is there when an iteration begins."""
    cost = Simple(base_s=1e-3, token_s=1e-6, batched_tokens=100)
    _, requests = served(cost, [(5, 20, 0, 1)] * 4)
    assert [(r.queue_ns, r.prefill_ns) for r in requests] == [(0, 1_080_000)] * 4


def test_a_call_waits_until_a_sequence_slot_is_free():
    _, (first, second) = served(Simple(base_s=1e-3, max_sequences=1), [(0, 10, 0, 5), (100, 10, 0, 5)])
    assert second.started_ns == first.finished_ns == 5_000_000
    assert second.queue_ns == 5_000_000 - 100


def test_a_call_waits_until_its_kv_fits():
    cost = Simple(base_s=1e-3, kv_capacity_bytes=100.0)
    server, (first, second, small) = served(cost, [(0, 50, 0, 10), (5, 50, 0, 10), (6, 10, 0, 1)])
    assert second.started_ns == first.finished_ns
    assert small.started_ns >= second.started_ns  # first come first served: no overtaking
    assert server.peak_kv_bytes <= 100.0


def test_a_call_that_can_never_fit_is_refused_with_what_would():
    with pytest.raises(InfeasibleError, match=r"200 tokens needs .* enough for about 100 tokens"):
        served(Simple(kv_capacity_bytes=100.0), [(0, 150, 0, 50)])


@pytest.mark.parametrize("name", COSTS)
@given(drawn=CALLS, gap=st.sampled_from([1e-6, 0.05, 1.0]))
@settings(max_examples=20)
def test_the_engine_is_busy_whenever_there_is_work(name, drawn, gap):
    """Work conservation: between arrival and end of any call nothing but its fixed time is idle."""
    cost, traffic = COSTS[name], traffic_of(drawn, gap)
    _, requests = served(cost, traffic)
    fixed = ns(cost.request_s)
    busy = sorted((r.submitted_ns + fixed, r.finished_ns) for r in requests)
    end = -inf
    for ready, finished in busy:
        if ready > end:  # the engine was idle: whoever comes first is taken at once
            assert any(r.started_ns == ready and r.submitted_ns + fixed == ready for r in requests)
        end = max(end, finished)


@given(drawn=CALLS, limit=st.integers(1, 4))
@settings(max_examples=50)
def test_no_more_sequences_run_than_the_engine_takes(drawn, limit):
    _, requests = served(Simple(max_sequences=limit), traffic_of(drawn, 0.01))
    edges = sorted([(r.finished_ns, -1) for r in requests] + [(r.started_ns, 1) for r in requests])
    running = most = 0
    for _, change in edges:
        running += change
        most = max(most, running)
    assert most <= limit


def test_every_made_up_cost_meets_the_contract():
    assert all(isinstance(cost, IterationCost) for cost in COSTS.values())
    assert all(cost.iteration_s(Batch(1, 1.0, 1.0)) > 0 for cost in COSTS.values())


# the KV cache under traffic: sessions that come back, share, fork, are evicted and put back

UNIT = (0.731e-3, 0.11e-3, 1.7e-8, 3.1e-6, 1.3e-9)
GROW, RESERVE = ServingRules(16, False, False), ServingRules(16, False, True)
FIRST = ServingRules(16, True, False)
HOST = Tier("host", 700.0, 4e5)
SSD = Tier("ssd", 900.0, 1.5e5)
PRESSED = {
    "roomy": Simple(*UNIT, rules=GROW, kv_capacity_bytes=1e6),
    "reserve": Simple(*UNIT, rules=RESERVE, kv_capacity_bytes=1000.0),
    "grow": Simple(*UNIT, rules=GROW, kv_capacity_bytes=1000.0),
    "grow by the token": Simple(*UNIT, rules=ServingRules(1, False, False), kv_capacity_bytes=1000.0),
    "prefill first": Simple(*UNIT, rules=FIRST, kv_capacity_bytes=1000.0, batched_tokens=64),
    "few sequences": Simple(*UNIT, rules=GROW, kv_capacity_bytes=1000.0, max_sequences=2),
    "windowed": Simple(*UNIT, rules=GROW, window_tokens=64, kv_capacity_bytes=1500.0),
    "windowed, reserve": Simple(*UNIT, rules=RESERVE, window_tokens=64, kv_capacity_bytes=1500.0),
    "speculative": Simple(
        *UNIT, rules=GROW, tokens_per_step=2.7, verified_tokens=4, kv_capacity_bytes=1000.0
    ),
    "speculative, prefill first": Simple(
        *UNIT, 64, rules=FIRST, tokens_per_step=2.7, verified_tokens=4, kv_capacity_bytes=1500.0
    ),
    "slow to accept": Simple(*UNIT, rules=GROW, kv_capacity_bytes=1000.0, request_s=17e-3),
    "host": Simple(*UNIT, rules=GROW._replace(tiers=(HOST,)), kv_capacity_bytes=1000.0),
    "host and ssd": Simple(*UNIT, rules=GROW._replace(tiers=(HOST, SSD)), kv_capacity_bytes=1000.0),
    "host, windowed": Simple(*UNIT, 64, rules=RESERVE._replace(tiers=(HOST, SSD)), kv_capacity_bytes=1500.0),
    "slow host": Simple(
        *UNIT, rules=GROW._replace(tiers=(HOST._replace(bytes_per_s=3e4),)), kv_capacity_bytes=1000.0
    ),
    "looks now and then": Simple(
        *UNIT, rules=FIRST._replace(hold=Hold(7)), kv_capacity_bytes=1000.0, batched_tokens=64
    ),
    "looks now and then, mixed": Simple(
        *UNIT, 64, rules=GROW._replace(hold=Hold(10)), kv_capacity_bytes=1500.0, request_s=3e-3
    ),
    "waits for prompts": Simple(*UNIT, rules=RESERVE._replace(hold=Hold(12, 2)), kv_capacity_bytes=1000.0),
    "waits for prompts, grow": Simple(
        *UNIT, rules=GROW._replace(hold=Hold(9, 3)), kv_capacity_bytes=1000.0, batched_tokens=64
    ),
    "waits for a batch": Simple(
        *UNIT, rules=RESERVE._replace(hold=Hold(8, share=0.7)), kv_capacity_bytes=1000.0, batched_tokens=200
    ),
    "waits for a batch, grow": Simple(
        *UNIT, rules=GROW._replace(hold=Hold(11, share=1.0)), kv_capacity_bytes=900.0, batched_tokens=64
    ),
    "whole prompts": Simple(
        *UNIT, rules=RESERVE._replace(whole_prompts=True), kv_capacity_bytes=1500.0, batched_tokens=200
    ),
    "whole prompts of a host": Simple(
        *UNIT,
        rules=GROW._replace(whole_prompts=True, hold=Hold(5, 2), tiers=(HOST,)),
        kv_capacity_bytes=1000.0,
        batched_tokens=160,
    ),
}
TURN = st.tuples(
    st.integers(1, 60_000_000),  # ns since the turn before
    st.integers(1, 150),  # new tokens
    st.integers(0, 60),  # output
    st.sampled_from(["whole", "whole", "thinking", "summary"]),  # what of it stays in the context
    st.sampled_from([1.0, 0.6, 1.3]),  # pace
)
SESSIONS = st.lists(
    st.tuples(
        st.integers(1, 80_000_000),  # ns until it begins
        st.lists(TURN, min_size=1, max_size=5),
        st.one_of(st.none(), st.tuples(st.integers(0, 4), st.lists(TURN, min_size=1, max_size=2))),
    ),
    min_size=1,
    max_size=6,
)
LONGEST = 600
"""Tokens; a session stops before it."""


@dataclass
class Turn:
    """One call of a session, and those that follow it: (ns after its end, turn)."""

    lane: str
    shared: int
    prompt: int
    cached: int
    output: int
    pace: float
    then: list


def session_of(lane, turns, shared, context, cached):
    """Return the calls of a session in order; each is among those that follow the one before."""
    made = []
    for gap, added, output, keeps, pace in turns:
        prompt = context + added
        if prompt + output > LONGEST:
            break
        turn = Turn(lane, shared, prompt, cached, output, pace, [])
        if made:
            made[-1].then.append((gap, turn))
        made.append(turn)
        context, cached = prompt + output, prompt if keeps == "thinking" else prompt + output
        if keeps == "summary":
            context, cached = shared + output, shared
    return made


def starts_of(sessions, shared, gap):
    """Return (arrival ns, first turn) of each session; some fork after one of their turns.

    What a fork inherits must still be its parent's context when it comes in: such parents drop nothing.
    """
    starts, now = [], 0
    for index, (between, turns, fork) in enumerate(sessions):
        now += max(int(between * gap), 1)
        if fork is not None:
            turns = [(*turn[:3], "whole", turn[4]) for turn in turns]
        turns = session_of(f"{index}", turns, shared, shared, 0)
        if not turns:
            continue
        starts.append((now, turns[0]))
        if fork is not None and fork[0] < len(turns):
            parent = turns[fork[0]]
            inherited = parent.prompt + parent.output
            forked = session_of(f"{index}/a", fork[1], shared, inherited, inherited)
            parent.then.extend((7 + fork[1][0][0], turn) for turn in forked[:1])
    return starts


def served_sessions(cost, starts):
    """Run the server over sessions; return it and (turn, request) in the order of submission."""
    env = Clock()
    server, made = EngineServer(env, cost), []

    def caller(gap, turn):
        yield env.timeout(gap)
        prefix = Prefix(turn.cached, 0, turn.lane, turn.shared, "main")
        request = server.submit(Work(turn.prompt, prefix, turn.output, turn.pace))
        made.append((turn, request))
        yield request.done
        for gap, follower in turn.then:
            env.process(caller(gap, follower))

    for start, turn in starts:
        env.process(caller(start, turn))
    env.run()
    return server, made


def slow_sessions(cost, starts):
    """Run the slow engine over the same sessions; return it and its call of each turn by identity."""
    calls = {}

    def call_of(turn, arrival_s=0.0):
        call = Call(arrival_s, turn.prompt, turn.cached, turn.output, turn.pace, turn.lane, turn.shared)
        call.then = [(gap * 1e-9, call_of(follower)) for gap, follower in turn.then]
        calls[id(turn)] = call
        return call

    first = [call_of(turn, start * 1e-9) for start, turn in starts]
    return SlowEngine(cost, first).run(), calls


def agree(cost, sessions, shared, gap):
    """Check that server and slow engine tell the same of every call; return both."""
    starts = starts_of(sessions, shared, gap)
    slow, calls = slow_sessions(cost, starts)
    assume(not slow.ambiguous)
    server, made = served_sessions(cost, starts)
    tolerance = 1 + slow.changes  # each change of the batch rounds to the clock, each arrival once more
    assert len(made) == len(calls)
    for turn, request in made:
        call = calls[id(turn)]
        assert request.cached == call.hit
        measured = (request.first_token_ns, request.finished_ns)
        assert measured == pytest.approx((ns(call.first_token_s), ns(call.finished_s)), rel=0, abs=tolerance)
        assert (
            sum(length for _, _, length in request.stretches()) == request.finished_ns - request.submitted_ns
        )
        assert min(length for _, _, length in request.stretches()) >= 0
    assert server.load.preemptions == slow.preemptions
    assert server.peak_kv_bytes <= cost.kv_capacity_bytes
    return server, slow


@pytest.mark.parametrize("name", PRESSED)
@given(sessions=SESSIONS, shared=st.sampled_from([0, 0, 40, 96]), gap=st.sampled_from([0.0, 0.01, 0.2, 1.0]))
@settings(max_examples=60)
def test_sessions_agree_with_iterations_and_blocks_done_one_by_one(name, sessions, shared, gap):
    agree(PRESSED[name], sessions, shared, gap)
