"""What many agents cost to simulate: time and memory as they grow in number, one process, one core.

    python tests/benchmarks/fleet.py [--format json] [--quick]

Cases: `tp4` is 100 sessions x 40 turns (+1,200 tokens in, 200 out, 2.5 s tool) on one TP4 replica, a session
arriving every 20 s; `routed` the same on four replicas behind each router, all at once; `100` to `10000` that
many agents of 20 turns, a tenth of them at a time on sixteen replicas, whose time per turn should stay the
same; `large` 10,000 agents x 200 turns with the summary only, whose memory should stay under 1 GB. `--quick`
leaves `large` out, which takes minutes. A ratio to the first row of its group tells more than a time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from throughput import workflow

TP4 = "llama-70b-4xh100"
SIZES = (100, 1_000, 10_000)
CASES = {
    "tp4": {"agents": 100, "turns": 40, "every_s": 20.0, "replicas": 1, "repeats": 3},
    **{
        router: {"agents": 100, "turns": 40, "every_s": 0.0, "replicas": 4, "repeats": 3}
        for router in ("round_robin", "least_loaded", "prefix_aware")
    },
    **{
        str(size): {"agents": size, "turns": 20, "users": size // 10, "replicas": 16, "repeats": 1}
        for size in SIZES
    },
    "large": {"agents": 10_000, "turns": 200, "users": 1_000, "replicas": 16, "repeats": 1},
}


def measure(name: str) -> dict[str, float]:
    """Run one case in this process; seconds are of the processor and exclude imports, memory does not."""
    from agentsim.compile import compile_plan
    from agentsim.sim.engine import simulate
    from agentsim.workflow.schema import Workflow

    case = CASES[name]
    router = name if name.endswith(("robin", "loaded", "aware")) else "prefix_aware"
    overrides = [f"replicas={case['replicas']}", f"router={router}"]
    plan = compile_plan(Workflow.model_validate(workflow(case["turns"])), TP4, overrides)
    arrivals = [index * case.get("every_s", 0.0) for index in range(case["agents"])]
    times = []
    for _ in range(case["repeats"]):
        start = time.process_time()
        result = simulate(plan, detail="summary", arrivals_s=arrivals, concurrency=case.get("users"))
        times.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    calls = result.calls_finished
    return {"turns": calls, "seconds": min(times), "turns_per_s": calls / min(times), "peak_rss_mb": peak}


def ratios(found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the time per turn of the most agents over the fewest's, and of routers over one replica's."""
    speed = {name: row["turns_per_s"] for name, row in found.items()}
    routers = {f"{name}_over_tp4": speed["tp4"] / speed[name] for name in list(CASES)[1:4]}
    return {"time_per_turn_10000_over_100": speed["100"] / speed["10000"], **routers}


def main() -> None:
    """Run every case in a process of its own and print the table."""
    if len(sys.argv) > 2 and sys.argv[1] == "--case":
        print(json.dumps(measure(sys.argv[2])))
        return
    found = {}
    for name in CASES:
        if name == "large" and "--quick" in sys.argv:
            continue
        command = [sys.executable, __file__, "--case", name]
        found[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    told = ratios(found)
    if "json" in sys.argv:
        print(json.dumps({"cases": found, "ratios": told}, indent=2))
        return
    print(f"{'case':12} {'turns':>9} {'seconds':>8} {'turns/s':>8} {'peak MB':>8}")
    for name, row in found.items():
        speed, peak = row["turns_per_s"], row["peak_rss_mb"]
        print(f"{name:12} {row['turns']:9.0f} {row['seconds']:8.2f} {speed:8.0f} {peak:8.0f}")
    for name, ratio in told.items():
        print(f"{name} {ratio:.2f}")


if __name__ == "__main__":
    main()
