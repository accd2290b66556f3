"""Measured runs whose prompts are prefilled by some workers and decoded by others.

Prefill workers, the KV over the network, decode workers: a call goes through the stages that the pattern
`prefill_decode` has, and workers of a kind share their calls by who has fewest. A row without its numbers
of workers takes those of the one deployment that the harness started for its load (`topologies.py`); where
there is none, or several, it is refused: how many GPUs took it is not known then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentsim.backends.base import IterationCost
from agentsim.coexec.base import LinkCost, Move, Serve
from agentsim.plan import Routing
from agentsim.sim.clock import Clock
from agentsim.sim.closed_loop import Served, closed_loop
from agentsim.sim.engine_pool import EnginePool
from agentsim.sim.server import EngineServer
from agentsim.sim.staged import Link, StagedServer
from agentsim.specs.harness import load_harnesses
from agentsim.validation.rows import (
    Measured,
    Pools,
    Refusal,
    Run,
    counts_in_thousands,
    run_of,
    without_repeats,
)
from agentsim.validation.serving import requests_of
from agentsim.validation.table import Row
from agentsim.validation.topologies import Topology, Workers, topologies_of

_SIDE = ("num_workers", "tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
COLUMNS = (
    *("model", "gpu", "engine", "isl", "osl", "concurrency", "precision", "ttft_ms", "tpot_ms"),
    *(f"prefill_{name}" for name in _SIDE),
    *(f"decode_{name}" for name in _SIDE),
    "decode_batch_size",
)
"""Columns of the heading; `engine_version` and `measured_on` are read where they are there."""
MOST_WORKERS = 1000
_STAGES = (Serve("prefill", "prefill"), Serve("decode", "decode"))


def measured(rows: Sequence[Row]) -> Measured:
    """Return the runs that rows hold. The row that says most of those with the same times is kept."""
    found = [(row, _run(row)) for row in rows]
    pairs = [(row, run) for row, run in found if isinstance(run, tuple)]
    pools = {run.line: pool for _, (run, pool) in pairs}
    known = [run for _, (run, _) in pairs]
    kept = without_repeats(known, lambda run: _setup(pools[run.line]))
    times = {_times(row) for row, _ in pairs}
    refused = [(row, r) for row, r in found if isinstance(r, Refusal)]
    told = tuple(r for row, r in refused if _times(row) not in times)
    repeats = len(known) - len(kept) + len(refused) - len(told)
    return Measured(len(rows), tuple(kept), told, repeats, pools)


def _setup(pools: Pools) -> tuple[object, ...]:
    prefill = pools.prefill
    sizes = (prefill.chips, prefill.attention_dp, prefill.expert_parallel)
    return (pools.prefill_workers, pools.decode_workers, *sizes)


def _times(row: Row) -> tuple[str, ...]:
    """Return what two rows of one measurement share, even where one of them says less."""
    return tuple(row.text(column) for column in ("gpu", "engine", "isl", "osl", "ttft_ms", "tpot_ms"))


def _run(row: Row) -> tuple[Run, Pools] | Refusal:
    """Return the run of the decode workers, and the pools; or why there is none."""
    if any((row.count(f"{side}_pp_size") or 1) > 1 for side in ("prefill", "decode")):
        return Refusal(row.line, "pipeline parallelism is not simulated")
    named = _named(row)
    topology = named if named is not None else _started(row)
    if isinstance(topology, Refusal):
        return topology
    batch, workers = row.count("decode_batch_size") or 0, topology.decode.number
    given = row.count("concurrency")
    users = given or batch * workers
    said = [] if given else ["concurrency is not given: decode_batch_size x decode workers"]
    if named is None:
        said.append("workers are not given: as InferenceX's configuration lists for the load")
    prefill, decode = _side(row, topology.prefill, users), _side(row, topology.decode, users)
    if isinstance(prefill, Refusal):
        return prefill
    if isinstance(decode, Refusal):
        return decode
    run = replace(decode, assumed=(*said, *decode.assumed))
    return run, Pools(prefill, topology.prefill.number, workers, topology.speculates)


def _started(row: Row) -> Topology | Refusal:
    """Return the workers of the one deployment that was started for a row's load."""
    listed = topologies_of(row)
    if len(listed) == 1:
        return listed[0]
    why = f"was started in {len(listed)} ways" if listed else "is not in InferenceX's configuration"
    return Refusal(row.line, f"how many workers there were is not given, and its load {why}")


def _named(row: Row) -> Topology | Refusal | None:
    """Return the workers that a row itself names; None where it does not."""
    counts = [row.count(f"{side}_num_workers") or 0 for side in ("prefill", "decode")]
    if not all(counts):
        return None
    if max(counts) > MOST_WORKERS:
        return Refusal(row.line, f"more than {MOST_WORKERS:,} workers of a kind are not simulated")
    return Topology(_labelled(row, "prefill", counts[0]), _labelled(row, "decode", counts[1]), None)


def _labelled(row: Row, side: str, count: int) -> Workers:
    """Return one kind of worker. Its labels are of one data-parallel rank each."""
    tp, dp, moe_tp, moe_ep = (row.count(f"{side}_{name}") or 0 for name in _SIDE[1:])
    chips = max(max(tp, 1) * max(dp, 1), moe_tp * moe_ep)
    return Workers(count, chips, max(moe_ep, 1), max(chips // max(tp, 1), 1))


def _side(row: Row, workers: Workers, users: int) -> Run | Refusal:
    """Return one kind of worker as the engine of a run; a model without experts has one attention alone."""
    harness = row.text("harness") or ("thousands" if counts_in_thousands(row) else "inferencex")
    cells = {"tp": str(workers.chips), "attention_dp": "1", "batch_size": "", "concurrency": str(users)}
    cells["harness"] = harness
    run = run_of(row.with_cells(cells), separate=True)
    if isinstance(run, Refusal):
        return run
    releases: Any = load_harnesses().releases.value
    run = replace(run, version=releases.get(run.engine, {}).get(run.version, run.version))
    if not run.mixture:
        return run
    copies, experts = workers.attention_dp, workers.expert_parallel
    return replace(run, chips=workers.chips, attention_dp=copies, expert_parallel=experts)


def serve_pools(prefill: IterationCost, decode: IterationCost, run: Run, pools: Pools) -> list[Served]:
    """Return a run's requests on both pools. Raises `InfeasibleError` where one cannot fit."""
    link, window = link_of(run, pools), decode.window_tokens
    move = Move("kv", decode.kv_bytes(1, 0), decode.kv_bytes(0, 1), window, whole=True)

    def server_on(env: Clock) -> StagedServer:
        workers = {
            "prefill": _pool(env, prefill, pools.prefill_workers),
            "decode": _pool(env, decode, pools.decode_workers),
        }
        return StagedServer(env, (_STAGES[0], move, _STAGES[1]), workers, {"kv": Link(env, link)})

    return closed_loop(server_on, run.concurrency, requests_of(run))


def link_of(run: Run, pools: Pools) -> LinkCost:
    """Return the network between the workers: the side with fewer GPUs limits it.

    A prompt's KV lies on one copy of the attention on either side, and only that copy's GPUs move it.
    """
    harness: Any = load_harnesses()
    one = min(side.chips // side.attention_dp for side in (pools.prefill, run))
    all_ = min(pools.prefill.chips * pools.prefill_workers, run.chips * pools.decode_workers)
    return LinkCost(harness.kv_launch.value, harness.kv_rate.value * one, max(all_ // one, 1))


def _pool(env: Clock, cost: IterationCost, workers: int) -> EnginePool:
    return EnginePool([EngineServer(env, cost) for _ in range(workers)], Routing(workers, "least_loaded"))
