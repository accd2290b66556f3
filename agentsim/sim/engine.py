"""Runs a plan: builds servers and agents, lets the clock run, checks the laws, returns the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agentsim.backends.base import CostModel, IterationCost
from agentsim.backends.recorded import ReplayCost
from agentsim.coexec.base import Route, Serve
from agentsim.errors import InfeasibleError, SpecError
from agentsim.invariants import check
from agentsim.plan import Plan
from agentsim.result import Resource, Result, Source
from agentsim.sim.agent import Agent, Steps
from agentsim.sim.clock import Clock
from agentsim.sim.decode import decode_parts
from agentsim.sim.engine_load import engine_loads
from agentsim.sim.engine_pool import EnginePool
from agentsim.sim.recorder import Detail, Recorder
from agentsim.sim.replay import Replay
from agentsim.sim.request import Server
from agentsim.sim.routed import routed
from agentsim.sim.router import ReplicaRouter
from agentsim.sim.server import EngineServer
from agentsim.sim.service import Service
from agentsim.sim.session import Session
from agentsim.sim.staged import staged
from agentsim.sim.tools import ToolBench
from agentsim.units import MAX_SECONDS, duration_text, to_ns, to_s

Workers = dict[str, list[Server]]
"""The servers of one replica, by the engine of the deployment that they run."""


def simulate(
    plan: Plan,
    seed: int = 0,
    *,
    detail: Detail = "full",
    arrivals_s: Sequence[float] = (0.0,),
    concurrency: int | None = None,
    done: Callable[[], None] = lambda: None,
) -> Result:
    """Run one agent per arrival on shared servers and tools; return the checked result.

    With `concurrency` no more agents than that are alive: the next in the order of `arrivals_s` starts when
    one ends, but not before its arrival. `done` is called at the end of every task. Same plan, seed and
    arrivals give the same result, byte for byte. With `detail="summary"` memory grows with agents that are
    alive, not with turns that are done. Raises `InfeasibleError` where a context outgrows the model or the
    memory.
    """
    env, replicas = Clock(), range(plan.routing.replicas)
    copies = [_servers(env, plan) for _ in replicas]
    bench, recorder = ToolBench(env), Recorder(detail)
    doors = [_door(env, plan, servers) for servers in copies]
    server = doors[0] if len(doors) == 1 else ReplicaRouter(doors, plan.routing)
    several = len(arrivals_s) > 1

    def task(index: int) -> Steps:
        prefix = f"{index + 1}:" if several else ""
        session = Session(env, plan, server, bench, recorder, seed, index, prefix)
        return _task(session, to_ns(arrivals_s[index]), done)

    _start(env, task, len(arrivals_s), concurrency)
    env.run()
    return check(_result(plan, seed, recorder, bench, _named(copies)))


def _start(env: Clock, task: Callable[[int], Steps], count: int, concurrency: int | None) -> None:
    """Let tasks begin: each at its arrival, or each with the first of so many users that is free."""
    if concurrency is None:
        for index in range(count):
            env.process(task(index))
        return
    waiting = iter(range(count))
    for _ in range(min(concurrency, count)):
        env.process(_user(task, waiting))


def _user(task: Callable[[int], Steps], waiting: Iterator[int]) -> Steps:
    """Work on one task after another until none is left."""
    for index in waiting:
        yield from task(index)


def _named(copies: list[Workers]) -> dict[str, Server]:
    """Return all servers by name; those of replicas, and workers of one kind, carry their number."""
    named: dict[str, Server] = {}
    for name in copies[0]:
        servers = [server for copy in copies for server in copy[name]]
        names = [name] if len(servers) == 1 else [f"{name}#{n + 1}" for n in range(len(servers))]
        named |= zip(names, servers, strict=True)
    return named


def _servers(env: Clock, plan: Plan) -> Workers:
    return {
        name: [_server(env, cost) for _ in range(plan.workers.get(name, 1))]
        for name, cost in plan.engines.items()
    }


def _server(env: Clock, cost: CostModel) -> Server:
    if isinstance(cost, ReplayCost):
        return Replay(env)
    return EngineServer(env, cost) if isinstance(cost, IterationCost) else Service(env, cost)


def _door(env: Clock, plan: Plan, servers: Workers) -> Server:
    """Return what agents call: the one engine, or the stages of a pattern that joins several."""
    first = plan.stages[0]
    if len(plan.stages) == 1 and isinstance(first, Serve):
        return servers[first.engine][0]
    engines = {name: [w for w in all_ if isinstance(w, EngineServer)] for name, all_ in servers.items()}
    if not all(engines.values()):
        raise SpecError("a pattern of several stages or engines joins engines, not endpoints")
    if isinstance(first, Route):
        return routed(env, first, {name: workers[0] for name, workers in engines.items()}, plan.links)
    pools = {name: EnginePool(workers, plan.routing) for name, workers in engines.items()}
    steps = [stage for stage in plan.stages if not isinstance(stage, Route)]
    return staged(env, steps, pools, plan.links)


def _task(session: Session, arrival_ns: int, done: Callable[[], None]) -> Steps:
    if arrival_ns > session.env.now:
        yield session.env.timeout(arrival_ns - session.env.now)
    main = Agent(session, "main", session.plan.task.system_tokens)
    yield from main.run(session.plan.task.body)
    session.recorder.tasks.append(session.outcome(main.start_ns, main.path))
    if main.path.spans is not None:
        session.recorder.critical.update(main.path.spans)
    done()


def _result(
    plan: Plan, seed: int, recorder: Recorder, bench: ToolBench, servers: dict[str, Server]
) -> Result:
    if any(task.completion_ns > to_ns(MAX_SECONDS) for task in recorder.tasks):
        raise InfeasibleError(
            f"{plan.title}: a task takes over {duration_text(MAX_SECONDS)}, the most that is simulated; look "
            "for a figure that is off by orders"
        )
    return Result(
        workflow=plan.task.name,
        deployment=plan.deployment,
        title=plan.title,
        seed=seed,
        origin="simulated",
        tasks=tuple(recorder.tasks),
        ttft_ns=recorder.ttft(),
        itl_ns=recorder.itl(),
        calls_started=recorder.calls_started,
        calls_finished=recorder.calls_finished,
        resources=tuple(bench.resources() + _engine_resources(servers)),
        sources=tuple(Source(u.name, u.basis, u.source) for u in plan.sources),
        warnings=_warnings(plan, servers, recorder),
        turns=tuple(recorder.turns),
        spans=recorder.finished_spans(),
        cost_usd=_cost(plan, recorder),
        lower_bound=bool(plan.unknown_parts),
        asked_for=plan.asked_for,
        decode_parts=decode_parts(plan, recorder.tasks),
        overrides=plan.overrides,
        loads=engine_loads(servers),
        by_the_hour=plan.token_prices is None and plan.usd_per_s is not None,
    )


def _engine_resources(servers: dict[str, Server]) -> list[Resource]:
    found = []
    for name, server in servers.items():
        if isinstance(server, EngineServer):
            found.append(Resource(f"{name}: sequences", server.cost.max_sequences, server.peak_sequences))
            found.append(Resource(f"{name}: KV bytes", server.cost.kv_capacity_bytes, server.peak_kv_bytes))
    return found


def _warnings(plan: Plan, servers: dict[str, Server], recorder: Recorder) -> dict[str, int]:
    found = dict.fromkeys(plan.warnings, 0)
    if plan.unknown_parts:
        parts = ", ".join(plan.unknown_parts)
        found[f"a lower bound: not published, and counted as zero: {parts}"] = 0
    outside = sum(s.extrapolated for s in servers.values() if isinstance(s, Service))
    if outside:
        found["calls outside the measured context lengths, taken at the nearest measured speed"] = outside
    untimed = sum(s.untimed for s in servers.values() if isinstance(s, Replay))
    if untimed:
        found["calls without a recorded time, which count as none; the wait after one holds its answer"] = (
            untimed
        )
    if recorder.contexts_cut:
        found["compactions that dropped the oldest results to fit the window"] = recorder.contexts_cut
    return found


def _cost(plan: Plan, recorder: Recorder) -> float | None:
    """Return USD per task: by the token where the service charges so, else by the time of the chips."""
    tasks = recorder.tasks
    if not tasks:
        return None
    if plan.token_prices is not None:
        prices = plan.token_prices
        cached = sum(t.cached_tokens for t in tasks)
        uncached = sum(t.prompt_tokens for t in tasks) - cached
        written = sum(t.output_tokens for t in tasks)
        total = uncached * prices.uncached + cached * prices.cached + written * prices.output
        return total / len(tasks)
    if plan.usd_per_s is None:
        return None
    return plan.usd_per_s * _billed_s(recorder) / len(tasks)


def _billed_s(recorder: Recorder) -> float:
    """A machine that one task has to itself is paid while the task runs, not while a person thinks."""
    tasks = recorder.tasks
    if len(tasks) == 1:
        return to_s(tasks[0].completion_ns)
    return to_s(max(t.end_ns for t in tasks) - min(t.start_ns for t in tasks))
