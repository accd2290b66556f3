"""Many agents: laws of queues, arrivals, replicas and routers, overload, objectives, capacity."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from conftest import endpoint, plan_of, workflow
from test_cli import ROOT, data, invoke

from agentsim.compile import compile_plan
from agentsim.errors import InfeasibleError, InputError, SpecError
from agentsim.fleet.capacity import find_capacity
from agentsim.fleet.objective import Objective, figure, parse_objective
from agentsim.fleet.outcome import alone, fleet_of, peak_alive, run_traffic
from agentsim.fleet.traffic import Arrival, Traffic, traffic_of
from agentsim.plan import Routing
from agentsim.result import Part
from agentsim.sim.clock import Clock
from agentsim.sim.engine import simulate
from agentsim.sim.request import Prefix, Work
from agentsim.sim.router import POLICIES, ReplicaRouter
from agentsim.units import to_s

SERVER = "llama-70b-4xh100"
TURN = [{"generate": {"tokens": {"lognormal": {"median": 150, "p90": 400}}}}, {"call": "tool"}]
TOOL = {"time": {"exponential": {"mean": "2 s"}}, "result_tokens": {"uniform": [200, 1500]}}


def task(turns=4, prompt=1200):
    repeat = {"times": turns, "steps": TURN}
    return workflow({"user": {"tokens": prompt}}, {"repeat": repeat}, tools={"tool": TOOL})


@cache
def plan_on(deployment=SERVER, *overrides, turns=4):
    return compile_plan(task(turns), deployment, overrides)


def run(traffic, plan=None, seed=0):
    return run_traffic(plan or plan_on(), traffic, seed)


def told(traffic, plan=None, seed=0, objective=None):
    plan = plan or plan_on()
    return fleet_of(plan, traffic, [run(traffic, plan, seed)], alone(plan), objective)


# arrivals


@pytest.mark.parametrize("kind", ["poisson", "uniform"])
def test_arrivals_come_in_order_at_the_rate_that_was_asked_for(kind):
    starts = Arrival(kind, 0.5).starts_s(4000, seed=1)
    assert starts == sorted(starts)
    assert len(starts) / starts[-1] == pytest.approx(0.5, rel=0.05)


def test_poisson_arrivals_vary_as_much_as_they_last():
    starts = Arrival("poisson", 2.0).starts_s(4000, seed=3)
    gaps = [b - a for a, b in pairwise(starts)]
    mean = sum(gaps) / len(gaps)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.1)


def test_more_agents_leave_the_arrivals_of_the_first_as_they_were():
    few, many = (Arrival("poisson", 1.0).starts_s(count, seed=5) for count in (10, 50))
    assert many[:10] == few


@pytest.mark.parametrize(
    "traffic",
    [
        Traffic(30, Arrival("poisson", 0.5)),
        Traffic(30, concurrency=4),
        Traffic(30),
        Traffic(9, concurrency=9),
    ],
    ids=["poisson", "closed loop", "at once", "as many users as agents"],
)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(traffic):
    first, again, other = (json.dumps(run(traffic, seed=s).to_json(), sort_keys=True) for s in (1, 1, 2))
    assert first == again != other


def test_every_agent_that_comes_ends_its_task_once():
    result = run(Traffic(60, Arrival("poisson", 1.0)))
    assert len(result.tasks) == 60
    assert sum(t.model_calls for t in result.tasks) == 60 * 4 == result.calls_finished
    starts = Arrival("poisson", 1.0).starts_s(60, seed=0)
    assert sorted(to_s(t.start_ns) for t in result.tasks) == pytest.approx(starts)


@pytest.mark.parametrize("users", [1, 3, 8])
def test_a_closed_loop_keeps_exactly_its_users_busy_until_no_agent_is_left(users):
    result = run(Traffic(24, concurrency=users))
    assert peak_alive(result) == users
    ends = sorted(t.end_ns for t in result.tasks)
    assert sorted(t.start_ns for t in result.tasks) == sorted([0] * users + ends[: 24 - users])


def test_users_that_begin_one_after_another_do_not_begin_together():
    starts = sorted(to_s(t.start_ns) for t in run(Traffic(12, concurrency=4, ramp_s=8.0)).tasks)
    assert starts[:4] == pytest.approx([0.0, 2.0, 4.0, 6.0])


def test_the_draws_of_an_agent_do_not_depend_on_how_it_comes():
    wait, loop = Traffic(6, Arrival("uniform", 0.001)), Traffic(6, concurrency=2)
    outputs = [sorted(t.output_tokens for t in run(traffic).tasks) for traffic in (wait, loop)]
    assert outputs[0] == outputs[1]


# laws of queues


def test_agents_alive_are_the_arrivals_a_second_times_the_seconds_each_stays():
    rate = 0.5
    traffic = Traffic(600, Arrival("poisson", rate))
    result = run(traffic)
    stay_s = sum(to_s(t.end_ns - t.start_ns) for t in result.tasks) / len(result.tasks)
    last = max(to_s(t.start_ns) for t in result.tasks)
    moments = [last * (k + 0.5) / 997 for k in range(997)]
    edges = sorted(
        [(to_s(t.start_ns), 1) for t in result.tasks] + [(to_s(t.end_ns), -1) for t in result.tasks]
    )
    alive = sum(sum(step for when, step in edges if when <= moment) for moment in moments) / len(moments)
    assert alive == pytest.approx(rate * stay_s, rel=0.1)


def test_more_users_never_complete_fewer_tasks_an_hour_below_saturation():
    rates = [
        told(Traffic(8 * users, concurrency=users, ramp_s=20.0)).tasks_per_h for users in (1, 2, 4, 8, 16, 32)
    ]
    assert all(more > 0.99 * fewer for fewer, more in pairwise(rates))
    assert rates[-1] > 10 * rates[0]


class Limited:
    """A cost model whose engine runs fewer sequences at once."""

    def __init__(self, cost, sequences):
        self._cost, self.max_sequences = cost, sequences

    def __getattr__(self, name):
        return getattr(self._cost, name)


def test_the_batch_limit_that_is_best_for_tokens_is_not_the_best_for_tasks():
    plan = plan_on()
    narrow, wide = (
        told(Traffic(96, concurrency=48), replace(plan, engines={"main": Limited(plan.engines["main"], n)}))
        for n in (4, 48)
    )
    assert narrow.summary.itl_s.p50 < wide.summary.itl_s.p50
    assert narrow.summary.completion_s.p50 > wide.summary.completion_s.p50
    assert narrow.tasks_per_h < wide.tasks_per_h
    assert narrow.queue_share > 0.2 > wide.queue_share


def test_users_that_begin_late_do_not_make_the_rate_look_lower():
    together, ramped = (told(Traffic(160, concurrency=16, ramp_s=ramp)).tasks_per_h for ramp in (0.0, 25.0))
    assert ramped == pytest.approx(together, rel=0.03)


def test_more_replicas_never_complete_fewer_tasks_an_hour():
    traffic = Traffic(160, concurrency=80)
    rates = [told(traffic, plan_on(SERVER, f"replicas={n}", "router=least_loaded")) for n in (1, 2, 4)]
    per_h = [fleet.tasks_per_h for fleet in rates]
    assert per_h == sorted(per_h)
    assert [fleet.chips for fleet in rates] == [4, 8, 16]


def test_good_tasks_are_never_more_than_tasks():
    times = sorted(run(Traffic(40, concurrency=20)).completion_s())
    for bound in (times[0] / 2, times[10], times[-1]):
        fleet = told(Traffic(40, concurrency=20), objective=Objective(task_s=bound))
        assert fleet.goodput_per_h <= fleet.tasks_per_h
        assert fleet.quality.share == sum(time <= bound for time in times) / 40


def test_a_tighter_objective_is_met_by_no_more_tasks():
    result = run(Traffic(40, concurrency=20))
    plan, lone = plan_on(), alone(plan_on())
    shares = [
        fleet_of(plan, Traffic(40, concurrency=20), [result], lone, Objective(60.0, ttft)).quality.share
        for ttft in (0.05, 0.2, 0.5, 2.0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


# replicas and routers


class Door:
    """A server that notes what it is asked and ends nothing by itself."""

    def __init__(self, env):
        self.env, self.seen, self.open = env, [], []

    def submit(self, work):
        self.seen.append(work)
        answer = type("Answer", (), {"done": self.env.event(), "prompt": work.prompt, "cached": 0})()
        self.open.append(answer)
        return answer


def routers(policy, count=3, **rule):
    env = Clock()
    doors = [Door(env) for _ in range(count)]
    return env, doors, ReplicaRouter(doors, Routing(count, policy, **rule))


def call(owner, prompt=1000, prefix=0):
    return Work(prompt, Prefix(prefix, 0, owner), 100)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_one_replica_every_router_is_as_none(policy):
    traffic = Traffic(20, Arrival("poisson", 1.0))
    plain = plan_on()
    routed = replace(plain, routing=Routing(1, policy))
    assert run(traffic, routed) == run(traffic, plain)
    _, [door], router = routers(policy, 1)
    works = [call("a"), call("b"), call("a", 2000, 1100)]
    for work in works:
        router.submit(work)
    assert door.seen == works


def test_round_robin_goes_through_the_replicas_in_turn():
    _, doors, router = routers("round_robin")
    for number in range(7):
        router.submit(call(f"{number}"))
    assert [len(door.seen) for door in doors] == [3, 2, 2]


def test_least_loaded_never_idles_a_replica_while_another_has_two_calls():
    env, doors, router = routers("least_loaded")
    for number in range(5):
        router.submit(call(f"{number}"))
    assert router._chooser.calls == [2, 2, 1]
    for answer in doors[0].open:
        answer.done.succeed()
    env.run()
    assert router._chooser.calls == [0, 2, 1]
    router.submit(call("next"))
    assert router._chooser.calls == [1, 2, 1]


def test_a_replica_has_only_what_was_sent_to_it():
    _, doors, router = routers("round_robin", 2)
    router.submit(call("a", 1000))
    router.submit(call("a", 1300, 1100))
    router.submit(call("a", 1600, 1400))
    assert [work.prefix.tokens for work in doors[0].seen] == [0, 1100]
    assert [work.prefix.tokens for work in doors[1].seen] == [0]


def test_prefix_aware_goes_where_the_prefix_lies_and_starts_where_least_is_done():
    _, doors, router = routers("prefix_aware", least_match=0.3)
    for owner in ("a", "b", "c", "a", "b", "b"):
        router.submit(call(owner, 2000, 1100))
    owners = [[work.prefix.owner for work in door.seen] for door in doors]
    assert owners == [["a", "a"], ["b", "b", "b"], ["c"]]


def test_prefix_aware_leaves_a_replica_that_is_far_ahead():
    _, doors, router = routers("prefix_aware", 2, least_match=0.3, calls_ahead=4, times_ahead=1.5)
    for _ in range(9):
        router.submit(call("a", 2000, 1100))
    assert [len(door.seen) for door in doors] == [5, 4]


def test_prefix_aware_does_not_follow_a_prefix_that_is_hardly_any_of_the_prompt():
    _, doors, router = routers("prefix_aware", 2, least_match=0.3)
    router.submit(call("a", 1000))
    router.submit(call("a", 100_000, 1100))
    assert [len(door.seen) for door in doors] == [1, 1]


def test_a_sub_agent_that_inherits_goes_where_its_parent_is():
    _, doors, router = routers("prefix_aware", 2, least_match=0.3)
    router.submit(call("1:main", 1000))
    router.submit(call("2:main", 1000))
    router.submit(call("2:main/helper", 1200, 1100))
    assert [work.prefix.owner for work in doors[1].seen] == ["2:main", "2:main/helper"]


def hits(policy, **options):
    plan = plan_on(SERVER, "replicas=3", f"router={policy}", **options)
    tasks = run(Traffic(30, concurrency=9), plan).tasks
    return sum(t.cached_tokens for t in tasks) / sum(t.prompt_tokens for t in tasks)


def test_prefix_aware_never_hits_less_than_round_robin():
    assert hits("prefix_aware") == pytest.approx(hits("prefix_aware", turns=4))
    assert hits("prefix_aware") > hits("round_robin") + 0.1
    assert hits("prefix_aware", turns=1) == hits("round_robin", turns=1)


@pytest.mark.parametrize("deployment", ["gemma-pd-2xb200", "gemma-routed"])
def test_a_pattern_of_several_engines_is_replicated_whole(deployment):
    traffic, one, two = Traffic(12), plan_on(deployment), plan_on(deployment, "replicas=2")
    assert {r.name for r in run(traffic, two).resources} == {
        f"{engine}#{n}: {what}"
        for engine in one.engines
        for n in (1, 2)
        for what in ("sequences", "KV bytes")
    }
    assert two.plant.chips == 2 * one.plant.chips
    assert told(traffic, two).summary.completion_s.avg <= told(traffic, one).summary.completion_s.avg


SPLIT = "gemma-pd-2xb200"


def workers(prefill, decode, *more, turns=4):
    kinds = {"prefill": prefill, "decode": decode}
    return plan_on(SPLIT, *(f"engines.{k}.workers={n}" for k, n in kinds.items()), *more, turns=turns)


def test_prefill_and_decode_have_workers_of_any_number():
    plan = workers(1, 3)
    result = run(Traffic(9), plan)
    names = {r.name.partition(":")[0] for r in result.resources}
    assert names == {"prefill", "decode#1", "decode#2", "decode#3"}
    assert plan.plant.chips == 2 * plan_on(SPLIT).plant.chips  # one and one before, one and three now
    busy = {load.engine: load.running.max for load in result.loads}
    assert min(busy[f"decode#{n}"] for n in (1, 2, 3)) >= 1


def test_one_worker_of_each_kind_is_as_none_named_and_more_are_no_slower():
    traffic = Traffic(16, concurrency=12)
    assert run(traffic, workers(1, 1)) == run(traffic, plan_on(SPLIT))
    times = [told(traffic, workers(n, n)).summary.completion_s.avg for n in (1, 2, 4)]
    assert times == sorted(times, reverse=True)


def test_each_pair_of_workers_has_a_link_of_its_own():
    plans = {(n, m): workers(n, m) for n, m in ((1, 1), (1, 4), (3, 2))}
    assert {key: plan.links["kv"].lanes for key, plan in plans.items()} == {(1, 1): 1, (1, 4): 1, (3, 2): 2}
    crossing = [
        sum(t.parts_ns[Part.KV_TRANSFER] for t in run(Traffic(16, concurrency=12), workers(n, n)).tasks)
        for n in (1, 4)
    ]
    assert crossing[1] <= crossing[0]


def test_a_session_finds_its_kv_at_the_workers_that_it_was_sent_to():
    aware, blind = (
        run(Traffic(24, concurrency=8), workers(3, 3, f"router={policy}"))
        for policy in ("prefix_aware", "round_robin")
    )
    cached = [sum(t.cached_tokens for t in result.tasks) for result in (aware, blind)]
    assert cached[0] > 1.3 * cached[1]
    moved = [sum(t.parts_ns[Part.KV_TRANSFER] for t in result.tasks) for result in (aware, blind)]
    assert moved[0] < moved[1]


def test_workers_on_a_pattern_that_has_none_are_refused():
    with pytest.raises(SpecError, match="'main' has 2 workers; only pattern 'prefill-decode'"):
        plan_on(SERVER, "engines.main.workers=2")


def test_the_price_of_a_task_is_that_of_all_replicas():
    one, two = (told(Traffic(4, concurrency=1), plan_on(SERVER, f"replicas={n}")) for n in (1, 2))
    assert two.cost_usd / one.cost_usd == pytest.approx(2 * one.tasks_per_h / two.tasks_per_h)
    assert two.energy_j / one.energy_j == pytest.approx(2 * one.tasks_per_h / two.tasks_per_h)


# overload


@cache
def served_per_s():
    """Return the tasks a second that are done while there is always something to do."""
    loops = [Traffic(4 * users, concurrency=users, ramp_s=20.0) for users in (256, 512)]
    return max(told(traffic, plan_on(turns=2)).tasks_per_h for traffic in (*loops, Traffic(2000))) / 3600


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("load", "agents", "verdict"),
    [(0.5, 1200, "holds"), (0.7, 1200, "holds"), (1.2, 2400, "grows"), (2.0, 2400, "grows")],
)
def test_overload_is_said_and_only_overload(load, agents, verdict, seed):
    traffic = Traffic(agents, Arrival("poisson", load * served_per_s()))
    fleet = told(traffic, plan_on(turns=2), seed)
    assert [backlog.verdict for backlog in fleet.backlogs] == [verdict]
    assert fleet.grows == (verdict == "grows") == ("without bound" in fleet.overload)
    assert fleet.to_json()["fleet"]["percentiles_are_of_a_steady_load"] == (verdict == "holds")


def test_arrivals_that_are_over_before_the_load_is_steady_tell_nothing_and_say_so():
    fleet = told(Traffic(20, Arrival("uniform", 4.0)))
    assert [backlog.verdict for backlog in fleet.backlogs] == ["untold"]
    assert not fleet.grows
    enough = fleet.backlogs[0].enough_agents
    assert f"--agents {enough}" in fleet.overload
    assert "a burst" not in told(Traffic(enough + 1, Arrival("uniform", 4.0))).overload


@pytest.mark.parametrize("traffic", [Traffic(20), Traffic(20, concurrency=4)], ids=["at once", "closed loop"])
def test_agents_that_do_not_arrive_by_themselves_have_no_backlog(traffic):
    assert (told(traffic).backlogs, told(traffic).overload) == ((), "")


def test_a_steady_rate_of_arrivals_is_what_is_completed():
    fleet = told(Traffic(600, Arrival("poisson", 0.5 * served_per_s())), plan_on(turns=2))
    assert fleet.tasks_per_h / 3600 == pytest.approx(0.5 * served_per_s(), rel=0.1)


# objectives


def test_what_a_bound_is_held_against_is_what_the_task_took():
    result = simulate(plan_on())
    [outcome], turns = result.tasks, result.turns
    assert figure(outcome, "task") == to_s(outcome.completion_ns)
    assert min(t.ttft_ns for t in turns) <= outcome.ttft_p95_ns <= max(t.ttft_ns for t in turns)
    itl = sum(t.decode_ns for t in turns) / sum(t.output - 1 for t in turns)
    assert figure(outcome, "itl") == pytest.approx(to_s(itl))


def test_an_objective_is_read_as_it_is_written():
    assert parse_objective("task=10min, ttft=2s,itl=50ms") == Objective(600.0, 2.0, 0.05)
    assert parse_objective(Objective(600.0, 2.0).option) == Objective(600.0, 2.0)


# capacity


def test_capacity_is_where_one_agent_more_is_too_many():
    plan, lone = plan_on(), alone(plan_on()).completion_s
    found = find_capacity(plan, Objective(task_s=1.6 * lone))
    loads = {point.load: point for point in found.points}
    assert found.bounded
    assert found.best.share >= 0.9 > found.next_point.share
    assert found.next_point.load - found.best.load <= max(1, 0.05 * found.best.load)
    assert found.best.load == max(load for load, point in loads.items() if point.ok)


def test_a_looser_objective_carries_no_fewer_agents_and_so_do_more_replicas():
    lone = alone(plan_on()).completion_s
    tight, loose = (find_capacity(plan_on(), Objective(task_s=k * lone)).best.load for k in (1.4, 1.6))
    twice = find_capacity(plan_on(SERVER, "replicas=2"), Objective(task_s=1.4 * lone)).best.load
    assert tight <= loose
    assert twice > 1.2 * tight


def test_a_rate_that_is_carried_is_not_overload():
    plan = plan_on(turns=2)
    found = find_capacity(plan, Objective(task_s=3 * alone(plan).completion_s), arrival="poisson")
    assert not found.best.fleet.grows
    assert found.best.load < 1.3 * served_per_s()


def test_an_objective_that_no_load_meets_says_what_one_agent_gets():
    with pytest.raises(InfeasibleError, match=r"no load meets task ≤ 1\.00 s .* one agent .* 0% .* p50 \d"):
        find_capacity(plan_on(), Objective(task_s=1.0))


def test_an_endpoint_has_no_capacity_that_is_known():
    with pytest.raises(InputError, match="do not change with load"):
        find_capacity(plan_of(task(), endpoint()), Objective(task_s=1000.0))


def test_waiting_for_people_holds_a_user_but_not_the_clock():
    steps = [{"generate": {"tokens": 100}}, {"think": "60 s"}] * 2
    plan = compile_plan(workflow({"user": {"tokens": 500}}, *steps), SERVER)
    fleet = told(Traffic(12, concurrency=4), plan)
    assert fleet.summary.completion_s.max < 60
    assert fleet.tasks_per_h_per_user == pytest.approx(30, rel=0.1)
    assert fleet.tasks_per_h == pytest.approx(4 * fleet.tasks_per_h_per_user, rel=0.05)


def test_traffic_is_said_in_words():
    said = [
        traffic_of(*options).text
        for options in (
            (None, None, None),
            (200, None, 32),
            (200, "poisson:0.5/s", None),
            (5, "uniform:2/h", None),
        )
    ]
    assert said == [
        "1 agent",
        "200 agents, 32 at a time",
        "200 agents, 0.5 a second at random",
        "5 agents, 2 an hour evenly",
    ]


def test_a_trace_says_when_agents_come(tmp_path):
    path = tmp_path / "times.txt"
    path.write_text("0 s\n1.5 s  # the second\n\n2 min\n")
    traffic = traffic_of(None, f"trace:{path}", None)
    starts = sorted(to_s(t.start_ns) for t in run(traffic).tasks)
    assert starts == [0.0, 1.5, 120.0]
    assert traffic_of(2, f"trace:{path}", None).agents == 2


def test_parts_of_a_queue_show_where_agents_wait_for_engines():
    crowd, few = (told(Traffic(n, concurrency=n), plan_on(SERVER)) for n in (300, 4))
    assert crowd.summary.parts_s[Part.QUEUE] >= few.summary.parts_s[Part.QUEUE]
    assert crowd.queue_share == crowd.summary.parts_s[Part.QUEUE] / crowd.summary.completion_s.avg


# the command line


SHORT = str(ROOT / "workflows" / "support-agent.yaml")
FLEET = ("run", SHORT, "--on", SERVER, "--agents", "24", "--slo", "task=60s,ttft=2s,itl=50ms")
FLEET_KEYS = {
    "agents", "concurrency", "tasks_per_h", "tasks_per_h_per_chip", "tasks_per_h_per_user", "goodput_share",
    "goodput_per_h", "cache_hit_rate", "queue_share", "preemptions", "engines", "rated_energy_j_per_task",
    "queue_grows_without_bound",
}  # fmt: skip


def test_a_fleet_as_json_has_what_one_agent_has_and_the_fleet_beside_it():
    one, fleet = data("run", SHORT, "--on", SERVER), data(*FLEET)
    assert set(fleet) == set(one) | {"fleet"}
    assert set(fleet["fleet"]) >= FLEET_KEYS
    assert fleet["fleet"]["agents"] == fleet["fleet"]["tasks"] == 24


@pytest.mark.parametrize("come", [("--concurrency", "6"), ("--arrival", "poisson:1/min"), ("--runs", "2")])
@pytest.mark.parametrize("width", ["80", "160"])
def test_the_screen_of_a_fleet_fits_and_answers_first(come, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    code, text, _ = invoke(*FLEET, *come)
    lines = text.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= int(width)
    first = next(line for line in lines if line.startswith("  "))
    assert "Task completion time p50" in first
    assert "…" not in text


def test_an_endpoint_carries_a_fleet_whose_chips_nobody_knows():
    fleet = data("run", SHORT, "--on", "coding-tool", "--agents", "5")
    assert fleet["fleet"]["chips"] is fleet["fleet"]["rated_energy_j_per_task"] is None
    text = invoke("run", SHORT, "--on", "coding-tool", "--agents", "5")[1]
    assert "chips unknown" in text
    assert "unknown: no power is known" in text


def test_capacity_prints_its_answer_first_and_every_point_that_it_tried():
    arguments = ("capacity", SHORT, "--on", SERVER, "--slo", "task=32s")
    found = data(*arguments)
    loads = [point["load"] for point in found["points"]]
    assert loads == sorted(loads)
    assert found["agents"] in loads
    text = invoke(*arguments)[1]
    assert max(map(len, text.splitlines())) <= 80
    assert f"{found['agents']:.0f} agents at a time" in text.splitlines()[3]
    assert sum("%" in line and "." in line for line in text.splitlines()) >= len(loads)


def test_files_of_a_fleet_tell_of_every_agent(tmp_path):
    folder = tmp_path / "out"
    fleet = data("run", SHORT, "--on", SERVER, "--agents", "3", "--output-dir", str(folder))
    assert json.loads((folder / "summary.json").read_text("utf-8")) == fleet
    lanes = {line.split(",")[1].split(":")[0] for line in (folder / "turns.csv").read_text().splitlines()[1:]}
    assert {"1", "2", "3"} <= {lane.strip('"') for lane in lanes}
