"""Turns per second of the simulation, one process, one core. Anyone can run it:

    python tests/benchmarks/throughput.py [--format json]

Cases: `shared` is 100 sessions x 40 turns (+1,200 tokens in, 200 out, 2.5 s tool), a session arriving
every 20 s on one GPU server; `alone` the same sessions one after another; `long` ten times the turns,
whose peak memory shows that it does not grow with turns that are done. `thrash` is 200 sessions x 50 turns
(+2,000 in, 300 out, 3 s tool), all at once on one GPU that runs four calls: their KV is ten times its
memory, and every turn finds its context evicted. `1000 agents` and `10000 agents` do 10 turns each, one
arriving a second: what a turn costs must not grow with their number.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from typing import NamedTuple


class Case(NamedTuple):
    """Sessions that arrive `every_s`, their turns, and what they run on; `sequences` caps the engine's."""

    sessions: int
    turns: int
    every_s: float
    deployment: str = "llama-70b-8xh200"
    sequences: int | None = None
    added: int = 1000
    output: int = 200
    gap: str = "2.5 s"


CASES = {
    "shared": Case(100, 40, 20.0),
    "alone": Case(100, 40, 400.0),
    "long": Case(100, 400, 20.0),
    "thrash": Case(200, 50, 0.1, "gemma-h200", 4, 2000, 300, "3 s"),
    "1000 agents": Case(1000, 10, 1.0),
    "10000 agents": Case(10_000, 10, 1.0),
}


def workflow(case: Case) -> dict[str, object]:
    """Return the benchmark's task as plain data; the context stays under the model's limit."""
    turn = [{"generate": {"tokens": case.output}}, {"call": "tool"}]
    return {
        "name": "throughput",
        "context": {"limit_tokens": 120_000, "compaction": {"at": 0.9, "summary_tokens": 1000}},
        "tools": {"tool": {"time": case.gap, "result_tokens": case.added}},
        "steps": [{"user": {"tokens": 1200}}, {"repeat": {"times": case.turns, "steps": turn}}],
    }


def measure(name: str) -> dict[str, float]:
    """Run one case in this process; seconds exclude imports, memory does not."""
    from agentsim.compile import compile_plan
    from agentsim.sim.engine import simulate
    from agentsim.workflow.schema import Workflow

    case = CASES[name]
    plan = compile_plan(Workflow.model_validate(workflow(case)), case.deployment)
    if case.sequences is not None:
        engine = replace(plan.engines["main"], max_sequences=case.sequences)  # type: ignore[type-var]
        plan = replace(plan, engines={"main": engine})
    arrivals = [index * case.every_s for index in range(case.sessions)]
    rounds = 3 if case.sessions * case.turns < 20_000 else 1
    best = min(_seconds(lambda: simulate(plan, detail="summary", arrivals_s=arrivals)) for _ in range(rounds))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    done = case.sessions * case.turns
    return {"turns": done, "seconds": best, "turns_per_s": done / best, "peak_rss_mb": peak}


def _seconds(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


def main() -> None:
    """Run every case in a process of its own and print the table."""
    if len(sys.argv) > 2 and sys.argv[1] == "--case":
        print(json.dumps(measure(sys.argv[2])))
        return
    found = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case]
        found[case] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if "json" in sys.argv:
        print(json.dumps(found, indent=2))
        return
    print(f"{'case':12} {'turns':>8} {'seconds':>8} {'turns/s':>8} {'peak MB':>8}")
    for case, row in found.items():
        speed, peak = row["turns_per_s"], row["peak_rss_mb"]
        print(f"{case:12} {row['turns']:8.0f} {row['seconds']:8.3f} {speed:8.0f} {peak:8.0f}")


if __name__ == "__main__":
    main()
