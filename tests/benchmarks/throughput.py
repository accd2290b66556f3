"""Turns per second of the simulation, one process, one core. Anyone can run it:

    python tests/benchmarks/throughput.py [--format json]

Cases: `shared` is 100 sessions x 40 turns (+1,200 tokens in, 200 out, 2.5 s tool), a session arriving
every 20 s on one GPU server; `alone` the same sessions one after another; `long` ten times the turns,
whose peak memory shows that it does not grow with turns that are done.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

CASES = {"shared": (100, 40, 20.0), "alone": (100, 40, 400.0), "long": (100, 400, 20.0)}
DEPLOYMENT = "llama-70b-8xh200"


def workflow(turns: int) -> dict[str, object]:
    """Return the benchmark's task as plain data; the context stays under the model's limit."""
    turn = [{"generate": {"tokens": 200}}, {"call": "tool"}]
    return {
        "name": "throughput",
        "context": {"limit_tokens": 120_000, "compaction": {"at": 0.9, "summary_tokens": 1000}},
        "tools": {"tool": {"time": "2.5 s", "result_tokens": 1000}},
        "steps": [{"user": {"tokens": 1200}}, {"repeat": {"times": turns, "steps": turn}}],
    }


def measure(case: str) -> dict[str, float]:
    """Run one case in this process; seconds exclude imports, memory does not."""
    from agentsim.compile import compile_plan
    from agentsim.sim.engine import simulate
    from agentsim.workflow.schema import Workflow

    sessions, turns, every_s = CASES[case]
    plan = compile_plan(Workflow.model_validate(workflow(turns)), DEPLOYMENT)
    arrivals = [index * every_s for index in range(sessions)]
    best = min(_seconds(lambda: simulate(plan, detail="summary", arrivals_s=arrivals)) for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    done = sessions * turns
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
    print(f"{'case':8} {'turns':>8} {'seconds':>8} {'turns/s':>8} {'peak MB':>8}")
    for case, row in found.items():
        speed, peak = row["turns_per_s"], row["peak_rss_mb"]
        print(f"{case:8} {row['turns']:8.0f} {row['seconds']:8.3f} {speed:8.0f} {peak:8.0f}")


if __name__ == "__main__":
    main()
